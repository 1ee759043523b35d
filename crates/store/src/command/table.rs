//! Table of commands, and the look-up of a name in it.

use super::spec::{Flags, Group, Spec};

const NO_KEYS: (i8, i8, i8) = (0, 0, 0);
const ONE_KEY: (i8, i8, i8) = (1, 1, 1);
const SECOND_KEY: (i8, i8, i8) = (2, 2, 1);
const TWO_KEYS: (i8, i8, i8) = (1, 2, 1);
const ALL_KEYS: (i8, i8, i8) = (1, -1, 1);
const PAIRS: (i8, i8, i8) = (1, -1, 2);

const READ: Flags = Flags::READONLY;
const READ_FAST: Flags = READ.and(Flags::FAST);
const WRITE: Flags = Flags::WRITE;
const WRITE_FAST: Flags = WRITE.and(Flags::FAST);
const GROW: Flags = WRITE.and(Flags::DENYOOM);
const GROW_FAST: Flags = GROW.and(Flags::FAST);
const ANY_TIME: Flags = Flags::LOADING.and(Flags::STALE);
const ANY_TIME_FAST: Flags = ANY_TIME.and(Flags::FAST);
const SESSION: Flags = ANY_TIME.and(Flags::NOSCRIPT);
const LOGIN: Flags = SESSION.and(Flags::FAST).and(Flags::NO_AUTH).and(Flags::ALLOW_BUSY);
const LEAVE: Flags = LOGIN.and(Flags::IN_MULTI).and(Flags::WHILE_SUBSCRIBED);
const ADMIN: Flags = SESSION.and(Flags::ADMIN);
const LOG: Flags = ANY_TIME.and(Flags::ADMIN);
const AT_ONCE_QUEUED: Flags = SESSION.and(Flags::FAST).and(Flags::ALLOW_BUSY);
const AT_ONCE: Flags = AT_ONCE_QUEUED.and(Flags::IN_MULTI);
const SAVES: Flags = Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::NO_ASYNC_LOADING);
const ENDS: Flags = ADMIN.and(Flags::ALLOW_BUSY).and(Flags::NO_MULTI);
const CHANNELS: Flags = ANY_TIME.and(Flags::PUBSUB);
const SUBSCRIBER: Flags = SESSION.and(Flags::PUBSUB).and(Flags::WHILE_SUBSCRIBED);

const fn spec(name: &'static str, arity: i8, flags: Flags, keys: (i8, i8, i8), group: Group) -> Spec {
    Spec { name, container: "", arity, flags, keys, group, subcommands: &[] }
}

/// A command about commands: no keys, at any time.
const fn over_table(name: &'static str, arity: i8) -> Spec {
    spec(name, arity, ANY_TIME, NO_KEYS, Group::Server)
}

/// Every command.
pub static COMMANDS: &[Spec] = &[
    spec("acl", -2, Flags::NONE, NO_KEYS, Group::Server).with(&[
        spec("cat", -2, SESSION, NO_KEYS, Group::Server).of("acl"),
        spec("deluser", -3, ADMIN, NO_KEYS, Group::Server).of("acl"),
        spec("genpass", -2, SESSION, NO_KEYS, Group::Server).of("acl"),
        spec("getuser", 3, ADMIN, NO_KEYS, Group::Server).of("acl"),
        spec("help", 2, ANY_TIME, NO_KEYS, Group::Server).of("acl"),
        spec("list", 2, ADMIN, NO_KEYS, Group::Server).of("acl"),
        spec("load", 2, ADMIN, NO_KEYS, Group::Server).of("acl"),
        spec("save", 2, ADMIN, NO_KEYS, Group::Server).of("acl"),
        spec("setuser", -3, ADMIN, NO_KEYS, Group::Server).of("acl"),
        spec("users", 2, ADMIN, NO_KEYS, Group::Server).of("acl"),
        spec("whoami", 2, SESSION, NO_KEYS, Group::Server).of("acl"),
    ]),
    spec("append", 3, GROW_FAST, ONE_KEY, Group::String),
    spec("auth", -2, LOGIN, NO_KEYS, Group::Connection),
    spec("bgsave", -1, SAVES, NO_KEYS, Group::Server),
    spec("client", -2, Flags::NONE, NO_KEYS, Group::Connection).with(&[
        spec("caching", 3, SESSION, NO_KEYS, Group::Connection).of("client"),
        spec("getname", 2, SESSION, NO_KEYS, Group::Connection).of("client"),
        spec("getredir", 2, SESSION, NO_KEYS, Group::Connection).of("client"),
        spec("help", 2, ANY_TIME, NO_KEYS, Group::Connection).of("client"),
        spec("id", 2, SESSION, NO_KEYS, Group::Connection).of("client"),
        spec("info", 2, SESSION, NO_KEYS, Group::Connection).of("client"),
        spec("kill", -3, ADMIN, NO_KEYS, Group::Connection).of("client"),
        spec("list", -2, ADMIN, NO_KEYS, Group::Connection).of("client"),
        spec("no-evict", 3, ADMIN, NO_KEYS, Group::Connection).of("client"),
        spec("no-touch", 3, SESSION, NO_KEYS, Group::Connection).of("client"),
        spec("pause", -3, ADMIN, NO_KEYS, Group::Connection).of("client"),
        spec("reply", 3, SESSION, NO_KEYS, Group::Connection).of("client"),
        spec("setinfo", 4, SESSION, NO_KEYS, Group::Connection).of("client"),
        spec("setname", 3, SESSION, NO_KEYS, Group::Connection).of("client"),
        spec("tracking", -3, SESSION, NO_KEYS, Group::Connection).of("client"),
        spec("trackinginfo", 2, SESSION, NO_KEYS, Group::Connection).of("client"),
        spec("unblock", -3, ADMIN, NO_KEYS, Group::Connection).of("client"),
        spec("unpause", 2, ADMIN, NO_KEYS, Group::Connection).of("client"),
    ]),
    over_table("command", -1).with(&[
        over_table("count", 2).of("command"),
        spec("docs", -2, ANY_TIME, NO_KEYS, Group::Server).of("command"),
        over_table("info", -2).of("command"),
        over_table("list", -2).of("command"),
    ]),
    spec("config", -2, Flags::NONE, NO_KEYS, Group::Server).with(&[
        spec("get", -3, ADMIN, NO_KEYS, Group::Server).of("config"),
        spec("resetstat", 2, ADMIN, NO_KEYS, Group::Server).of("config"),
        spec("rewrite", 2, ADMIN, NO_KEYS, Group::Server).of("config"),
        spec("set", -4, ADMIN, NO_KEYS, Group::Server).of("config"),
    ]),
    spec("copy", -3, GROW, TWO_KEYS, Group::Keyspace),
    spec("dbsize", 1, READ_FAST, NO_KEYS, Group::Keyspace),
    spec("decr", 2, GROW_FAST, ONE_KEY, Group::String),
    spec("decrby", 3, GROW_FAST, ONE_KEY, Group::String),
    spec("del", -2, WRITE, ALL_KEYS, Group::Keyspace),
    spec("discard", 1, AT_ONCE, NO_KEYS, Group::Transaction),
    spec("echo", 2, ANY_TIME_FAST, NO_KEYS, Group::Connection),
    spec("exec", 1, SESSION.and(Flags::SKIP_SLOWLOG).and(Flags::IN_MULTI), NO_KEYS, Group::Transaction),
    spec("exists", -2, READ_FAST, ALL_KEYS, Group::Keyspace),
    spec("expire", -3, WRITE_FAST, ONE_KEY, Group::Keyspace),
    spec("expireat", -3, WRITE_FAST, ONE_KEY, Group::Keyspace),
    spec("expiretime", 2, READ_FAST, ONE_KEY, Group::Keyspace),
    spec("flushall", -1, WRITE, NO_KEYS, Group::Keyspace),
    spec("flushdb", -1, WRITE, NO_KEYS, Group::Keyspace),
    spec("get", 2, READ_FAST, ONE_KEY, Group::String),
    spec("getdel", 2, WRITE_FAST, ONE_KEY, Group::String),
    spec("getex", -2, WRITE_FAST, ONE_KEY, Group::String),
    spec("getrange", 4, READ, ONE_KEY, Group::String),
    spec("getset", 3, GROW_FAST, ONE_KEY, Group::String),
    spec("hdel", -3, WRITE_FAST, ONE_KEY, Group::Hash),
    spec("hello", -1, LOGIN, NO_KEYS, Group::Connection),
    spec("hexists", 3, READ_FAST, ONE_KEY, Group::Hash),
    spec("hexpire", -6, GROW_FAST, ONE_KEY, Group::Hash),
    spec("hexpireat", -6, GROW_FAST, ONE_KEY, Group::Hash),
    spec("hexpiretime", -5, READ_FAST, ONE_KEY, Group::Hash),
    spec("hget", 3, READ_FAST, ONE_KEY, Group::Hash),
    spec("hgetall", 2, READ, ONE_KEY, Group::Hash),
    spec("hincrby", 4, GROW_FAST, ONE_KEY, Group::Hash),
    spec("hincrbyfloat", 4, GROW_FAST, ONE_KEY, Group::Hash),
    spec("hkeys", 2, READ, ONE_KEY, Group::Hash),
    spec("hlen", 2, READ_FAST, ONE_KEY, Group::Hash),
    spec("hmget", -3, READ_FAST, ONE_KEY, Group::Hash),
    spec("hmset", -4, GROW_FAST, ONE_KEY, Group::Hash),
    spec("hpersist", -5, WRITE_FAST, ONE_KEY, Group::Hash),
    spec("hpexpire", -6, GROW_FAST, ONE_KEY, Group::Hash),
    spec("hpexpireat", -6, GROW_FAST, ONE_KEY, Group::Hash),
    spec("hpexpiretime", -5, READ_FAST, ONE_KEY, Group::Hash),
    spec("hpttl", -5, READ_FAST, ONE_KEY, Group::Hash),
    spec("hrandfield", -2, READ, ONE_KEY, Group::Hash),
    spec("hscan", -3, READ, ONE_KEY, Group::Hash),
    spec("hset", -4, GROW_FAST, ONE_KEY, Group::Hash),
    spec("hsetnx", 4, GROW_FAST, ONE_KEY, Group::Hash),
    spec("hstrlen", 3, READ_FAST, ONE_KEY, Group::Hash),
    spec("httl", -5, READ_FAST, ONE_KEY, Group::Hash),
    spec("hvals", 2, READ, ONE_KEY, Group::Hash),
    spec("incr", 2, GROW_FAST, ONE_KEY, Group::String),
    spec("incrby", 3, GROW_FAST, ONE_KEY, Group::String),
    spec("incrbyfloat", 3, GROW_FAST, ONE_KEY, Group::String),
    over_table("info", -1),
    spec("keys", 2, READ, NO_KEYS, Group::Keyspace),
    spec("lastsave", 1, ANY_TIME_FAST, NO_KEYS, Group::Server),
    spec("latency", -2, Flags::NONE, NO_KEYS, Group::Server).with(&[
        spec("doctor", 2, ADMIN, NO_KEYS, Group::Server).of("latency"),
        spec("help", 2, ANY_TIME, NO_KEYS, Group::Server).of("latency"),
        spec("histogram", -2, ADMIN, NO_KEYS, Group::Server).of("latency"),
        spec("history", 3, ADMIN, NO_KEYS, Group::Server).of("latency"),
        spec("latest", 2, ADMIN, NO_KEYS, Group::Server).of("latency"),
        spec("reset", -2, ADMIN, NO_KEYS, Group::Server).of("latency"),
    ]),
    spec("memory", -2, Flags::NONE, NO_KEYS, Group::Server).with(&[
        spec("help", 2, ANY_TIME, NO_KEYS, Group::Server).of("memory"),
        spec("usage", -3, READ, SECOND_KEY, Group::Server).of("memory"),
    ]),
    spec("mget", -2, READ_FAST, ALL_KEYS, Group::String),
    spec("monitor", 1, ADMIN, NO_KEYS, Group::Server),
    spec("mset", -3, GROW, PAIRS, Group::String),
    spec("msetnx", -3, GROW, PAIRS, Group::String),
    spec("multi", 1, AT_ONCE, NO_KEYS, Group::Transaction),
    spec("object", -2, Flags::NONE, NO_KEYS, Group::Keyspace).with(&[
        spec("encoding", 3, READ, SECOND_KEY, Group::Keyspace).of("object"),
        spec("freq", 3, READ, SECOND_KEY, Group::Keyspace).of("object"),
        spec("help", 2, ANY_TIME, NO_KEYS, Group::Keyspace).of("object"),
        spec("idletime", 3, READ, SECOND_KEY, Group::Keyspace).of("object"),
        spec("refcount", 3, READ, SECOND_KEY, Group::Keyspace).of("object"),
    ]),
    spec("persist", 2, WRITE_FAST, ONE_KEY, Group::Keyspace),
    spec("pexpire", -3, WRITE_FAST, ONE_KEY, Group::Keyspace),
    spec("pexpireat", -3, WRITE_FAST, ONE_KEY, Group::Keyspace),
    spec("pexpiretime", 2, READ_FAST, ONE_KEY, Group::Keyspace),
    spec("ping", -1, Flags::FAST.and(Flags::WHILE_SUBSCRIBED), NO_KEYS, Group::Connection),
    spec("psetex", 4, GROW, ONE_KEY, Group::String),
    spec("psubscribe", -2, SUBSCRIBER, NO_KEYS, Group::PubSub),
    spec("pttl", 2, READ_FAST, ONE_KEY, Group::Keyspace),
    spec("publish", 3, Flags::PUBSUB.and(ANY_TIME_FAST), NO_KEYS, Group::PubSub),
    spec("pubsub", -2, Flags::NONE, NO_KEYS, Group::PubSub).with(&[
        spec("channels", -2, CHANNELS, NO_KEYS, Group::PubSub).of("pubsub"),
        spec("help", 2, ANY_TIME, NO_KEYS, Group::PubSub).of("pubsub"),
        spec("numpat", 2, CHANNELS, NO_KEYS, Group::PubSub).of("pubsub"),
        spec("numsub", -2, CHANNELS, NO_KEYS, Group::PubSub).of("pubsub"),
    ]),
    spec("punsubscribe", -1, SUBSCRIBER, NO_KEYS, Group::PubSub),
    spec("quit", -1, LEAVE, NO_KEYS, Group::Connection),
    spec("randomkey", 1, READ, NO_KEYS, Group::Keyspace),
    spec("rename", 3, WRITE, TWO_KEYS, Group::Keyspace),
    spec("renamenx", 3, WRITE_FAST, TWO_KEYS, Group::Keyspace),
    spec("reset", 1, LEAVE, NO_KEYS, Group::Connection),
    spec("save", 1, SAVES.and(Flags::NO_MULTI), NO_KEYS, Group::Server),
    spec("scan", -2, READ, NO_KEYS, Group::Keyspace),
    spec("select", 2, ANY_TIME_FAST, NO_KEYS, Group::Connection),
    spec("set", -3, GROW, ONE_KEY, Group::String),
    spec("setex", 4, GROW, ONE_KEY, Group::String),
    spec("setnx", 3, GROW_FAST, ONE_KEY, Group::String),
    spec("setrange", 4, GROW, ONE_KEY, Group::String),
    spec("shutdown", -1, ENDS, NO_KEYS, Group::Server),
    spec("slowlog", -2, Flags::NONE, NO_KEYS, Group::Server).with(&[
        spec("get", -2, LOG, NO_KEYS, Group::Server).of("slowlog"),
        spec("help", 2, ANY_TIME, NO_KEYS, Group::Server).of("slowlog"),
        spec("len", 2, LOG, NO_KEYS, Group::Server).of("slowlog"),
        spec("reset", 2, LOG, NO_KEYS, Group::Server).of("slowlog"),
    ]),
    spec("strlen", 2, READ_FAST, ONE_KEY, Group::String),
    spec("subscribe", -2, SUBSCRIBER, NO_KEYS, Group::PubSub),
    spec("substr", 4, READ, ONE_KEY, Group::String),
    spec("tenants", -1, LOG, NO_KEYS, Group::Server),
    spec("time", 1, ANY_TIME_FAST, NO_KEYS, Group::Server),
    spec("touch", -2, READ_FAST, ALL_KEYS, Group::Keyspace),
    spec("ttl", 2, READ_FAST, ONE_KEY, Group::Keyspace),
    spec("type", 2, READ_FAST, ONE_KEY, Group::Keyspace),
    spec("unlink", -2, WRITE_FAST, ALL_KEYS, Group::Keyspace),
    spec("unsubscribe", -1, SUBSCRIBER, NO_KEYS, Group::PubSub),
    spec("unwatch", 1, AT_ONCE_QUEUED, NO_KEYS, Group::Transaction),
    spec("wait", 3, Flags::NOSCRIPT, NO_KEYS, Group::Connection),
    spec("watch", -2, AT_ONCE, ALL_KEYS, Group::Transaction),
];

const SLOTS: usize = 1024;
const NO_COMMAND: u8 = u8::MAX;

/// A few letters of a name and its length, independent of case: enough to tell all commands apart.
#[inline]
const fn letters(name: &[u8]) -> u64 {
    let len = name.len();
    let picked = name[0] as u64
        | (name[1] as u64) << 8
        | (name[len / 2] as u64) << 16
        | (name[len - 2] as u64) << 24
        | (name[len - 1] as u64) << 32;
    (picked | 0x20_2020_2020) << 8 | (len & 0xff) as u64
}

#[inline]
const fn slot(letters: u64, factor: u64) -> usize {
    (letters.wrapping_mul(factor) >> (64 - SLOTS.trailing_zeros())) as usize
}

/// Places every command in a slot of its own, or says at which command that failed.
const fn place(factor: u64) -> Option<[u8; SLOTS]> {
    let mut slots = [NO_COMMAND; SLOTS];
    let mut at = 0;
    while at < COMMANDS.len() {
        let slot = slot(letters(COMMANDS[at].name.as_bytes()), factor);
        if slots[slot] != NO_COMMAND {
            return None;
        }
        slots[slot] = at as u8;
        at += 1;
    }
    Some(slots)
}

/// The first odd factor, of a fixed sequence, that gives every command its own slot.
const INDEX: (u64, [u8; SLOTS]) = {
    let mut factor = 0x9e37_79b9_7f4a_7c15_u64;
    loop {
        if let Some(slots) = place(factor) {
            break (factor, slots);
        }
        factor = factor.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(2);
    }
};
static SLOT_TABLE: [u8; SLOTS] = INDEX.1;

/// Finds a command by its name in any case: one multiplication, one comparison.
#[inline]
pub fn lookup(name: &[u8]) -> Option<&'static Spec> {
    if name.len() < 2 {
        return None;
    }
    let spec = COMMANDS.get(usize::from(SLOT_TABLE[slot(letters(name), INDEX.0)]))?;
    spec.name.as_bytes().eq_ignore_ascii_case(name).then_some(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case_and_nothing_else_is() {
        for spec in COMMANDS {
            for name in [spec.name.to_owned(), spec.name.to_uppercase()] {
                assert_eq!(lookup(name.as_bytes()).unwrap().name, spec.name);
            }
            let longer = format!("{}x", spec.name);
            assert!(lookup(longer.as_bytes()).is_none_or(|found| found.name != spec.name));
        }
        for name in ["", "g", "ge", "getx", "gey", "zzz", "s\u{5}t"] {
            assert!(lookup(name.as_bytes()).is_none(), "{name:?}");
        }
    }

    #[test]
    fn every_command_has_a_number_of_its_own() {
        for (at, spec) in Spec::all(COMMANDS).enumerate() {
            assert_eq!(spec.number(COMMANDS), at, "{}", spec.full_name());
        }
        let get = lookup(b"get").unwrap();
        assert_eq!(COMMANDS[get.number(COMMANDS)].name, "get");
    }

    #[test]
    fn the_table_is_sorted_and_fits_its_index() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
        assert!(COMMANDS.len() < usize::from(NO_COMMAND));
    }
}
