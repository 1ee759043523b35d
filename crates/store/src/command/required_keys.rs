//! Required keys of a request: those to be fetched from flash before it runs.

use super::context::Context;
use super::keyspace::{SCAN_COUNT_DEFAULT, SCAN_COUNT_MAX};
use super::resolved::Resolved;
use super::spec::{Flags, Spec, keys};
use crate::host::{Host, Session};
use crate::resp::{Args, parse_i64};
use crate::shards::Placement;
use crate::shards::merge::split_cursor;

/// Data that must be in memory before a request runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: it looks at no key, or only replaces values.
    Nothing,
    /// The keys that [`Resolved::each_key`] names.
    Keys,
    /// The keys that a scan from this cursor over about this number of keys meets.
    Scan(u64, usize),
    /// Any key.
    AnyKey,
    /// All keys there are.
    AllKeys,
}

impl Resolved {
    /// The keys that the request needs, and whether it may store something.
    pub fn needs(self, session: &Session, host: &Host, args: Args<'_>) -> (Needs, bool) {
        let Some(spec) = self.0 else { return (Needs::Nothing, false) };
        if self.is_forbidden(session, host, args) {
            return (Needs::Nothing, false);
        }
        if let Some(queue) = &session.transaction {
            // Requests are only queued before the last one.
            return if spec.name == "exec" { (Needs::Keys, queue.writes()) } else { (Needs::Nothing, false) };
        }
        let needs = match spec.name {
            "scan" => scan(args, host.placement()),
            "randomkey" => Needs::AnyKey,
            "keys" => Needs::AllKeys,
            _ if spec.keys.0 == 0 || replaces(spec.name, args) => Needs::Nothing,
            _ => Needs::Keys,
        };
        (needs, spec.flags.contains(Flags::DENYOOM))
    }

    /// Visits the keys that the request looks at, each with its database; those of a whole transaction at its end.
    pub fn each_key(self, session: &Session, host: &Host, args: Args<'_>, visit: &mut dyn FnMut(u8, &[u8])) {
        let Some(queue) = &session.transaction else {
            return self.0.into_iter().for_each(|spec| keys_of(spec, session.db, args, visit));
        };
        host.clients.watched().keys_of(session.slot).for_each(|(db, key)| visit(db, key));
        let mut db = session.db;
        for (spec, args) in queue.iter() {
            if spec.name == "select" {
                db = parse_i64(&args[1]).and_then(|it| u8::try_from(it).ok()).unwrap_or(db);
            }
            keys_of(spec, db, args, visit);
        }
    }
}

fn keys_of(spec: &Spec, db: u8, args: Args<'_>, visit: &mut dyn FnMut(u8, &[u8])) {
    if replaces(spec.name, args) {
        return;
    }
    keys(spec, args).for_each(|key| visit(db, key));
    if spec.name == "copy" {
        // Its target may lie in another database.
        for at in 3..args.len().saturating_sub(1) {
            if args[at].eq_ignore_ascii_case(b"db")
                && let Some(db) = parse_i64(&args[at + 1]).and_then(|it| u8::try_from(it).ok())
            {
                visit(db, &args[2]);
            }
        }
    }
}

/// Whether the request replaces the values of its keys without reading them.
fn replaces(name: &str, args: Args<'_>) -> bool {
    let sets_time = |word: &[u8]| {
        [b"ex".as_slice(), b"px", b"exat", b"pxat"].into_iter().any(|it| it.eq_ignore_ascii_case(word))
    };
    match name {
        "set" => args.len() == 3 || args.len() == 5 && sets_time(&args[3]),
        "setex" | "psetex" | "mset" => true,
        _ => false,
    }
}

fn scan(args: Args<'_>, placement: Placement) -> Needs {
    let Some(cursor) = std::str::from_utf8(&args[1]).ok().and_then(|text| text.parse().ok()) else {
        return Needs::Nothing;
    };
    let (shard, cursor) = split_cursor(cursor);
    if shard != placement.own {
        return Needs::Nothing;
    }
    let mut count = SCAN_COUNT_DEFAULT;
    for at in (2..args.len().saturating_sub(1)).step_by(2) {
        if args[at].eq_ignore_ascii_case(b"count") {
            count = parse_i64(&args[at + 1]).and_then(|it| u64::try_from(it).ok()).unwrap_or(count);
        }
    }
    Needs::Scan(cursor, count.min(SCAN_COUNT_MAX) as usize)
}

impl Context<'_> {
    /// Runs after each request: items fetched for it are not kept for the next.
    #[inline]
    pub fn end_request(&mut self) {
        self.engine.flash_reads().unstage();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{Limits, Parser, Progress};

    #[test]
    fn nothing_is_needed_for_what_will_be_refused() {
        let (mut host, mut session) = (Host::default(), Session::default());
        host.settings.users.change("u", [b"~a".as_slice(), b"+get"].into_iter()).unwrap();
        session.login = crate::users::Login::of("u");
        session.mode.set(crate::command::Mode::RESTRICTED, true);
        for (words, expected) in
            [(["GET", "a"], Needs::Keys), (["GET", "b"], Needs::Nothing), (["STRLEN", "a"], Needs::Nothing)]
        {
            let request = crate::resp::Request::of(words.map(str::as_bytes));
            let found = Resolved::of(request.args());
            assert_eq!(found.needs(&session, &host, request.args()), (expected, false), "{words:?}");
        }
    }

    #[test]
    fn keys_are_found_and_mere_replacing_needs_none() {
        for (words, expected, keys, writes) in [
            ("GET k", Needs::Keys, "0k", false),
            ("mget a b c", Needs::Keys, "0a0b0c", false),
            ("SET k v", Needs::Nothing, "", true),
            ("SET k v EX 10", Needs::Nothing, "", true),
            ("SET k v NX", Needs::Keys, "0k", true),
            ("SET k v EX 10 GET", Needs::Keys, "0k", true),
            ("MSET a 1 b 2", Needs::Nothing, "", true),
            ("MSETNX a 1 b 2", Needs::Keys, "0a0b", true),
            ("INCR k", Needs::Keys, "0k", true),
            ("MEMORY USAGE k", Needs::Keys, "0k", false),
            ("DEL a b", Needs::Keys, "0a0b", false),
            ("COPY a b DB 3", Needs::Keys, "0a0b3b", true),
            ("PING", Needs::Nothing, "", false),
            ("GET", Needs::Nothing, "", false),
            ("nonsense k", Needs::Nothing, "", false),
            ("SCAN 12 MATCH x COUNT 99", Needs::Scan(12, 99), "", false),
            ("SCAN x", Needs::Nothing, "", false),
            ("RANDOMKEY", Needs::AnyKey, "", false),
        ] {
            let mut parser = Parser::default();
            let line = format!("{words}\r\n");
            let limits = Limits { bulk_bytes_max: 1000, request_bytes_max: 1000, unauthenticated: false };
            assert_eq!(parser.parse(line.as_bytes(), &limits), Ok(Progress::Complete));
            let args = parser.args(line.as_bytes());
            let (found, session, host) = (Resolved::of(args), Session::default(), Host::default());
            assert_eq!(found.needs(&session, &host, args), (expected, writes), "{words}");
            let mut visited = String::new();
            found.each_key(&session, &host, args, &mut |db, key| {
                visited += &format!("{db}{}", String::from_utf8_lossy(key));
            });
            assert_eq!(visited, keys, "{words}");
        }
    }
}
