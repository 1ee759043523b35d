//! Routing of requests among several shards, by the command's name and keys.

use super::context::Context;
use super::resolved::Resolved;
use super::run::account;
use super::spec::{Flags, Spec, keys};
use crate::host::Session;
use crate::resp::{Args, Request, parse_i64};
use crate::shards::Placement;
use crate::shards::merge::{Merge, split_cursor};

use super::keyspace::parse_cursor;

/// Where a request runs.
#[derive(Debug)]
pub enum Route {
    /// Where the client is at home.
    Here,
    /// At one other shard.
    At(usize),
    /// To one shard; its reply must be edited before it is sent.
    One(usize, Merge),
    /// At every shard, as it is.
    Everywhere(Merge),
    /// In parts, each at a shard: the request of each.
    Split(Vec<(usize, Request)>, Merge),
    /// At this shard, together with all that was queued before it.
    Transaction(usize),
    /// At home, once all shards have shown their figures.
    AfterShowing,
    /// Nowhere.
    Refused(&'static str),
}

impl Resolved {
    /// The key of a request that names one and may run at once: most are such.
    #[inline]
    pub fn only_key<'a>(self, session: &Session, args: Args<'a>) -> Option<&'a [u8]> {
        let (first, last, _) = self.0?.keys;
        let plain = first == last && first != 0 && session.authenticated && session.transaction.is_none();
        if plain { args.get(first.unsigned_abs().into()) } else { None }
    }

    /// The route of any request. A request that cannot run at all is refused by the home shard.
    pub fn route(self, session: &Session, args: Args<'_>, placement: Placement) -> Route {
        let Some(spec) = self.0.filter(|_| session.authenticated) else { return Route::Here };
        if session.transaction.is_some() {
            return in_transaction(session, spec, placement);
        }
        match spec.keys {
            (0, ..) => keyless(spec, args, placement),
            _ => over_keys(spec, args, placement),
        }
    }

    /// Counts and shows a request that runs elsewhere, or in parts.
    pub fn account(self, context: &mut Context<'_>, args: Args<'_>) {
        context.session.command = self.0;
        context.host.stats.commands_processed += 1;
        if let Some(spec) = self.0 {
            account(context, spec, args);
        }
    }

    /// Whether a client that reads replies sees its effect at once,
    /// so all earlier replies must have been sent before it runs.
    pub fn comes_last(self) -> bool {
        self.0.is_some_and(|spec| {
            spec.flags.contains(Flags::WHILE_SUBSCRIBED)
                || matches!(spec.name, "monitor" | "info" | "shutdown")
        })
    }

    /// Whether it changes state that every shard has a copy of, or all
    /// shards at once: all of them must run such requests in the same order.
    pub fn tells_all(self) -> bool {
        self.0.is_some_and(|spec| {
            let name = (spec.container, spec.name);
            matches!(
                name,
                ("", "flushall" | "flushdb")
                    | ("client", "pause" | "unpause")
                    | ("config", "set" | "resetstat")
                    | ("acl", "setuser" | "deluser")
            )
        })
    }
}

/// As Redis Cluster says it.
const CROSS: &str = "CROSSSLOT Keys in request don't hash to the same slot";
const CROSS_EXEC: &str = "EXECABORT Transaction discarded because its keys, watched ones among them, lie in several shards: give \
                          keys that belong together the same {tag}";
const EVERYWHERE_EXEC: &str = "EXECABORT Transaction discarded because it holds a command that concerns all shards: send that \
                               outside of MULTI";
const HOME_EXEC: &str = "EXECABORT Transaction discarded because it holds keys and a command about the connection or the \
                         server, which may be at home in different shards: send that outside of MULTI";
/// Commands without keys that do the same in any shard.
const ANYWHERE: [&str; 3] = ["ping", "echo", "time"];
const NO_REDIRECT: &str = "ERR CLIENT TRACKING with REDIRECT needs a store with one shard: use RESP3 (HELLO 3), where \
                           invalidations come through the same connection";

fn at(shard: usize, placement: Placement) -> Route {
    if shard == placement.own { Route::Here } else { Route::At(shard) }
}

/// A command that names several keys.
fn over_keys(spec: &'static Spec, args: Args<'_>, placement: Placement) -> Route {
    let shards: Vec<usize> = keys(spec, args).map(|key| placement.shard_of(key)).collect();
    let Some(&first) = shards.first() else { return Route::Here };
    if shards.iter().all(|&shard| shard == first) {
        return at(first, placement);
    }
    let step = usize::from(spec.keys.2.unsigned_abs()).max(1);
    // An argument list that is no list of pairs is for the handler to refuse.
    if !(args.len() - 1).is_multiple_of(step) {
        return Route::Here;
    }
    let mut parts: Vec<(usize, Request)> = Vec::new();
    let mut order = Vec::with_capacity(shards.len());
    for (number, shard) in shards.into_iter().enumerate() {
        let part = parts.iter().position(|(at, _)| *at == shard).unwrap_or_else(|| {
            parts.push((shard, Request::of([&args[0]])));
            parts.len() - 1
        });
        order.push(part as u16);
        args.iter_from(1 + number * step).take(step).for_each(|word| parts[part].1.push(word));
    }
    match spec.name {
        "mget" => Route::Split(parts, Merge::Interleave(order)),
        "del" | "unlink" | "exists" | "touch" => Route::Split(parts, Merge::Sum),
        "mset" | "watch" => Route::Split(parts, Merge::Same),
        _ => Route::Refused(CROSS),
    }
}

/// A command that names no key.
fn keyless(spec: &'static Spec, args: Args<'_>, placement: Placement) -> Route {
    match everywhere(spec, args) {
        Some(merge) => Route::Everywhere(merge),
        None if spec.name == "scan" => scan(args, placement),
        None if matches!(spec.name, "info" | "lastsave" | "tenants") => Route::AfterShowing,
        None if (spec.container, spec.name) == ("client", "tracking")
            && args.iter_from(3).any(|word| word.eq_ignore_ascii_case(b"redirect")) =>
        {
            Route::Refused(NO_REDIRECT)
        }
        None => Route::Here,
    }
}

/// How the replies are merged of a command that every shard must run.
fn everywhere(spec: &Spec, args: Args<'_>) -> Option<Merge> {
    let merge = match (spec.container, spec.name) {
        ("", "dbsize" | "publish") | ("pubsub", "numpat") | ("slowlog", "len") | ("latency", "reset") => {
            Merge::Sum
        }
        ("", "flushall" | "flushdb" | "monitor")
        | ("client", "pause" | "unpause" | "no-touch")
        | ("config", "set" | "resetstat")
        | ("acl", "setuser" | "deluser")
        | ("slowlog", "reset")
        | ("", "save" | "bgsave") => Merge::Same,
        ("client", "tracking") if !args.iter_from(3).any(|word| word.eq_ignore_ascii_case(b"redirect")) => {
            Merge::Same
        }
        ("client", "kill") if args.len() == 3 => Merge::AnySuccess,
        ("client", "kill") => Merge::Sum,
        ("client", "list") => Merge::Texts,
        ("", "keys") => Merge::Arrays,
        ("", "randomkey") => Merge::NonNull(0),
        ("pubsub", "channels") => Merge::Distinct,
        ("pubsub", "numsub") => Merge::Counts,
        ("slowlog", "get") => Merge::Newest(slowlog_count(args)),
        _ => return None,
    };
    Some(merge)
}

/// Most entries of `SLOWLOG GET`: 10 by default, all with -1.
fn slowlog_count(args: Args<'_>) -> usize {
    args.get(2)
        .map_or(10, |count| parse_i64(count).map_or(10, |it| usize::try_from(it).unwrap_or(usize::MAX)))
}

fn scan(args: Args<'_>, placement: Placement) -> Route {
    let Some(cursor) = parse_cursor(&args[1]) else { return Route::Here };
    let (shard, _) = split_cursor(cursor);
    if shard >= placement.shards {
        // As for a cursor behind the last key.
        return Route::Here;
    }
    Route::One(shard, Merge::Cursor { shard, shards: placement.shards })
}

/// Requests are queued at home; the last one takes the queue to where its keys are.
fn in_transaction(session: &Session, spec: &'static Spec, placement: Placement) -> Route {
    let queue = session.transaction.as_ref().filter(|queue| spec.name == "exec" && !queue.is_void());
    let Some(queue) = queue else { return Route::Here };
    if queue.iter().any(|(spec, args)| spec.name == "scan" || everywhere(spec, args).is_some()) {
        return Route::Refused(EVERYWHERE_EXEC);
    }
    let mut shards = session.watched_shards;
    let queued = queue.iter().flat_map(|(spec, args)| keys(spec, args));
    queued.for_each(|key| shards.add(placement.shard_of(key)));
    match shards.only() {
        Err(_) => Route::Refused(CROSS_EXEC),
        Ok(None) => Route::Here,
        // Wherever its client happens to be at home.
        Ok(_) if queue.iter().any(|(spec, _)| spec.keys.0 == 0 && !ANYWHERE.contains(&spec.name)) => {
            Route::Refused(HOME_EXEC)
        }
        Ok(Some(own)) if own == placement.own => Route::Here,
        Ok(Some(shard)) => Route::Transaction(shard),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Transaction;
    use crate::shards::ShardSet;

    const PLACEMENT: Placement = Placement { own: 1, shards: 4 };

    fn request(words: &str) -> Request {
        Request::of(words.split(' ').map(str::as_bytes))
    }

    fn routed(words: &str) -> String {
        let session = Session { authenticated: true, ..Session::default() };
        let request = request(words);
        shown(Resolved::of(request.args()).route(&session, request.args(), PLACEMENT))
    }

    fn shown(route: Route) -> String {
        let text = |request: &Request| {
            let words: Vec<_> = request.args().iter_from(0).map(String::from_utf8_lossy).collect();
            words.join(" ")
        };
        match route {
            Route::One(shard, _) => format!("One({shard})"),
            Route::Split(parts, _) => {
                let parts: Vec<String> =
                    parts.iter().map(|(shard, request)| format!("{shard}: {}", text(request))).collect();
                parts.join(", ")
            }
            Route::Refused(text) => text.split(' ').next().unwrap_or_default().to_owned(),
            Route::Everywhere(_) => "everywhere".to_owned(),
            other => format!("{other:?}"),
        }
    }

    /// A key of a shard, by a tag.
    fn key(shard: usize) -> String {
        let tag = (0..).find(|tag| PLACEMENT.shard_of(format!("{tag}").as_bytes()) == shard);
        format!("{{{}}}", tag.unwrap_or(0))
    }

    #[test]
    fn requests_go_where_their_keys_are() {
        let [k0, k1, k2, _] = [0, 1, 2, 3].map(key);
        for (words, expected) in [
            (format!("GET {k1}"), "Here".to_owned()),
            (format!("get {k2}"), "At(2)".to_owned()),
            (format!("MEMORY USAGE {k2}"), "At(2)".to_owned()),
            (format!("MGET {k2}a {k2}b"), "At(2)".to_owned()),
            (format!("MGET {k1}a {k1}b"), "Here".to_owned()),
            (format!("MGET {k0} {k2}a {k0}b"), format!("0: MGET {k0} {k0}b, 2: MGET {k2}a")),
            (format!("MSET {k0} 1 {k1} 2"), format!("0: MSET {k0} 1, 1: MSET {k1} 2")),
            (format!("MSET {k0} 1 {k1}"), "Here".to_owned()),
            (format!("MSETNX {k0} 1 {k1} 2"), "CROSSSLOT".to_owned()),
            (format!("RENAME {k0} {k1}"), "CROSSSLOT".to_owned()),
            (format!("RENAME {k0} {k0}x"), "At(0)".to_owned()),
            ("PING".to_owned(), "Here".to_owned()),
            ("GET".to_owned(), "Here".to_owned()),
            ("NONSENSE a b".to_owned(), "Here".to_owned()),
            ("DBSIZE".to_owned(), "everywhere".to_owned()),
            ("CONFIG SET maxclients 5".to_owned(), "everywhere".to_owned()),
            ("CONFIG GET maxclients".to_owned(), "Here".to_owned()),
            ("INFO".to_owned(), "AfterShowing".to_owned()),
            ("LASTSAVE".to_owned(), "AfterShowing".to_owned()),
            ("CLIENT TRACKING ON".to_owned(), "everywhere".to_owned()),
            ("CLIENT TRACKING ON REDIRECT 5".to_owned(), "ERR".to_owned()),
            ("SCAN 0 COUNT 5".to_owned(), "One(0)".to_owned()),
            (format!("SCAN {} MATCH x", 3u64 << 40 | 9), "One(3)".to_owned()),
            (format!("SCAN {}", 4u64 << 40), "Here".to_owned()),
        ] {
            assert_eq!(routed(&words), expected, "{words}");
        }
    }

    #[test]
    fn transactions_have_one_shard() {
        let [k0, k1, k2, _] = [0, 1, 2, 3].map(key);
        for (queued, watched, expected) in [
            (
                vec![format!("SET {k2} 1"), format!("GET {k2}b"), "PING".to_owned()],
                ShardSet::Empty,
                "Transaction(2)",
            ),
            (vec![format!("SET {k1} 1")], ShardSet::Empty, "Here"),
            (vec!["PING".to_owned()], ShardSet::Empty, "Here"),
            (vec![format!("SET {k1} 1"), format!("GET {k0}")], ShardSet::Empty, "EXECABORT"),
            (vec![format!("SET {k1} 1")], ShardSet::One(0), "EXECABORT"),
            (vec!["PING".to_owned()], ShardSet::One(0), "Transaction(0)"),
            (vec!["DBSIZE".to_owned()], ShardSet::Empty, "EXECABORT"),
            (vec!["HELLO 3".to_owned(), format!("GET {k0}")], ShardSet::Empty, "EXECABORT"),
            (vec!["HELLO 3".to_owned(), format!("GET {k1}")], ShardSet::Empty, "EXECABORT"),
            (vec!["HELLO 3".to_owned()], ShardSet::Empty, "Here"),
        ] {
            let mut transaction = Transaction::default();
            for words in &queued {
                let request = request(words);
                transaction.push(Resolved::of(request.args()).0.unwrap(), request.args());
            }
            let session = Session {
                authenticated: true,
                transaction: Some(Box::new(transaction)),
                watched_shards: watched,
                ..Session::default()
            };
            let route = |words: &str| {
                let request = request(words);
                shown(Resolved::of(request.args()).route(&session, request.args(), PLACEMENT))
            };
            assert_eq!(route("EXEC"), expected, "{queued:?}");
            assert_eq!(route(&format!("GET {k0}")), "Here");
        }
    }
}
