//! Which keys a request looks at, for whoever must bring them near before it runs.

use super::context::Context;
use super::keyspace::{SCAN_COUNT_DEFAULT, SCAN_COUNT_MAX};
use super::spec::Flags;
use super::table::lookup;
use crate::resp::{Args, parse_i64};

/// What a request must have at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: it looks at no key, or only replaces values.
    Nothing,
    /// The keys at these places among its arguments: first, behind the last, step.
    Keys(usize, usize, usize),
    /// Whatever a scan from this cursor over about so many keys meets.
    Scan(u64, usize),
}

/// What a request needs, and whether it writes.
pub fn needs(args: Args<'_>) -> (Needs, bool) {
    let Some(mut spec) = lookup(&args[0]) else { return (Needs::Nothing, false) };
    if !spec.subcommands.is_empty() && args.len() > 1 {
        let sub = spec.subcommands.iter().find(|sub| sub.name.as_bytes().eq_ignore_ascii_case(&args[1]));
        let Some(sub) = sub else { return (Needs::Nothing, false) };
        spec = sub;
    }
    let writes = spec.flags.contains(Flags::DENYOOM);
    if !spec.accepts(args.len()) {
        return (Needs::Nothing, false);
    }
    if spec.name == "scan" {
        return (scan(args), writes);
    }
    let (first, last, step) = spec.keys;
    if first == 0 || replaces(spec.name, args) {
        return (Needs::Nothing, writes);
    }
    let end = if last < 0 { args.len() as i64 + i64::from(last) } else { i64::from(last) } + 1;
    (Needs::Keys(first as usize, end.max(0) as usize, (step as usize).max(1)), writes)
}

/// Whether the request gives its keys new values whatever they had.
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

fn scan(args: Args<'_>) -> Needs {
    let Some(cursor) = std::str::from_utf8(&args[1]).ok().and_then(|text| text.parse().ok()) else {
        return Needs::Nothing;
    };
    let mut count = SCAN_COUNT_DEFAULT;
    for at in (2..args.len().saturating_sub(1)).step_by(2) {
        if args[at].eq_ignore_ascii_case(b"count") {
            count = parse_i64(&args[at + 1]).and_then(|it| u64::try_from(it).ok()).unwrap_or(count);
        }
    }
    Needs::Scan(cursor, count.min(SCAN_COUNT_MAX) as usize)
}

impl Context<'_> {
    /// Runs after each request: what was at hand for it is not for the next.
    #[inline]
    pub fn end_request(&mut self) {
        self.engine.unstage();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{Limits, Parser, Progress};

    fn of(words: &str) -> (Needs, bool) {
        let mut parser = Parser::default();
        let line = format!("{words}\r\n");
        let limits = Limits { bulk_bytes_max: 1000, request_bytes_max: 1000, unauthenticated: false };
        assert_eq!(parser.parse(line.as_bytes(), &limits), Ok(Progress::Complete));
        needs(parser.args(line.as_bytes()))
    }

    #[test]
    fn keys_are_found_and_mere_replacing_needs_none() {
        for (words, expected, writes) in [
            ("GET k", Needs::Keys(1, 2, 1), false),
            ("mget a b c", Needs::Keys(1, 4, 1), false),
            ("SET k v", Needs::Nothing, true),
            ("SET k v EX 10", Needs::Nothing, true),
            ("SET k v NX", Needs::Keys(1, 2, 1), true),
            ("SET k v EX 10 GET", Needs::Keys(1, 2, 1), true),
            ("MSET a 1 b 2", Needs::Nothing, true),
            ("MSETNX a 1 b 2", Needs::Keys(1, 5, 2), true),
            ("INCR k", Needs::Keys(1, 2, 1), true),
            ("MEMORY USAGE k", Needs::Keys(2, 3, 1), false),
            ("DEL a b", Needs::Keys(1, 3, 1), false),
            ("PING", Needs::Nothing, false),
            ("GET", Needs::Nothing, false),
            ("nonsense k", Needs::Nothing, false),
            ("SCAN 12 MATCH x COUNT 99", Needs::Scan(12, 99), false),
            ("SCAN x", Needs::Nothing, false),
        ] {
            assert_eq!(of(words), (expected, writes), "{words}");
        }
    }
}
