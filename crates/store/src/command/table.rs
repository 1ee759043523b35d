//! The table of commands and the look-up of a name in it.

use super::context::{Context, Outcome};
use super::spec::{Flags, Group, Handler, Spec};
use super::{
    acl, client, config, connection, counter, describe, expiry, hash, help, keys, keyspace, latency,
};
use super::{
    monitor, persistence, pubsub, server_info, slowlog, string, tenants, tracking, transaction, ttl,
};
use crate::resp::Args;

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

const fn spec(
    name: &'static str,
    arity: i8,
    flags: Flags,
    keys: (i8, i8, i8),
    group: Group,
    handler: fn(&mut Context<'_>, Args<'_>) -> Outcome,
) -> Spec {
    Spec {
        name,
        container: "",
        arity,
        flags,
        keys,
        group,
        subcommands: &[],
        handler: Handler::Plain(handler),
    }
}

/// A command about commands: no keys, at any time.
const fn over_table(
    name: &'static str,
    arity: i8,
    handler: fn(&mut Context<'_>, Args<'_>, &'static [Spec]) -> Outcome,
) -> Spec {
    let handler = Handler::OverTable(handler);
    Spec {
        name,
        container: "",
        arity,
        flags: ANY_TIME,
        keys: NO_KEYS,
        group: Group::Server,
        subcommands: &[],
        handler,
    }
}

/// Every command.
pub static COMMANDS: &[Spec] = &[
    spec("acl", -2, Flags::NONE, NO_KEYS, Group::Server, describe::container).with(&[
        spec("cat", -2, SESSION, NO_KEYS, Group::Server, acl::cat).of("acl"),
        spec("deluser", -3, ADMIN, NO_KEYS, Group::Server, acl::deluser).of("acl"),
        spec("genpass", -2, SESSION, NO_KEYS, Group::Server, acl::genpass).of("acl"),
        spec("getuser", 3, ADMIN, NO_KEYS, Group::Server, acl::getuser).of("acl"),
        spec("help", 2, ANY_TIME, NO_KEYS, Group::Server, help::help).of("acl"),
        spec("list", 2, ADMIN, NO_KEYS, Group::Server, acl::list).of("acl"),
        spec("load", 2, ADMIN, NO_KEYS, Group::Server, acl::no_file).of("acl"),
        spec("save", 2, ADMIN, NO_KEYS, Group::Server, acl::no_file).of("acl"),
        spec("setuser", -3, ADMIN, NO_KEYS, Group::Server, acl::setuser).of("acl"),
        spec("users", 2, ADMIN, NO_KEYS, Group::Server, acl::users).of("acl"),
        spec("whoami", 2, SESSION, NO_KEYS, Group::Server, acl::whoami).of("acl"),
    ]),
    spec("append", 3, GROW_FAST, ONE_KEY, Group::String, string::append),
    spec("auth", -2, LOGIN, NO_KEYS, Group::Connection, connection::auth),
    spec("bgsave", -1, SAVES, NO_KEYS, Group::Server, persistence::bgsave),
    spec("client", -2, Flags::NONE, NO_KEYS, Group::Connection, describe::container).with(&[
        spec("caching", 3, SESSION, NO_KEYS, Group::Connection, tracking::caching).of("client"),
        spec("getname", 2, SESSION, NO_KEYS, Group::Connection, client::getname).of("client"),
        spec("getredir", 2, SESSION, NO_KEYS, Group::Connection, tracking::getredir).of("client"),
        spec("help", 2, ANY_TIME, NO_KEYS, Group::Connection, help::help).of("client"),
        spec("id", 2, SESSION, NO_KEYS, Group::Connection, client::id).of("client"),
        spec("info", 2, SESSION, NO_KEYS, Group::Connection, client::info).of("client"),
        spec("kill", -3, ADMIN, NO_KEYS, Group::Connection, client::kill).of("client"),
        spec("list", -2, ADMIN, NO_KEYS, Group::Connection, client::list).of("client"),
        spec("no-evict", 3, ADMIN, NO_KEYS, Group::Connection, client::no_evict).of("client"),
        spec("no-touch", 3, SESSION, NO_KEYS, Group::Connection, client::no_touch).of("client"),
        spec("pause", -3, ADMIN, NO_KEYS, Group::Connection, client::pause).of("client"),
        spec("reply", 3, SESSION, NO_KEYS, Group::Connection, client::reply).of("client"),
        spec("setinfo", 4, SESSION, NO_KEYS, Group::Connection, client::setinfo).of("client"),
        spec("setname", 3, SESSION, NO_KEYS, Group::Connection, client::setname).of("client"),
        spec("tracking", -3, SESSION, NO_KEYS, Group::Connection, tracking::tracking).of("client"),
        spec("trackinginfo", 2, SESSION, NO_KEYS, Group::Connection, tracking::trackinginfo).of("client"),
        spec("unblock", -3, ADMIN, NO_KEYS, Group::Connection, client::unblock).of("client"),
        spec("unpause", 2, ADMIN, NO_KEYS, Group::Connection, client::unpause).of("client"),
    ]),
    over_table("command", -1, describe::command).with(&[
        over_table("count", 2, describe::count).of("command"),
        spec("docs", -2, ANY_TIME, NO_KEYS, Group::Server, describe::docs).of("command"),
        over_table("info", -2, describe::info).of("command"),
        over_table("list", -2, describe::list).of("command"),
    ]),
    spec("config", -2, Flags::NONE, NO_KEYS, Group::Server, describe::container).with(&[
        spec("get", -3, ADMIN, NO_KEYS, Group::Server, config::get).of("config"),
        spec("resetstat", 2, ADMIN, NO_KEYS, Group::Server, config::resetstat).of("config"),
        spec("rewrite", 2, ADMIN, NO_KEYS, Group::Server, config::rewrite).of("config"),
        spec("set", -4, ADMIN, NO_KEYS, Group::Server, config::set).of("config"),
    ]),
    spec("copy", -3, GROW, TWO_KEYS, Group::Keyspace, keys::copy),
    spec("dbsize", 1, READ_FAST, NO_KEYS, Group::Keyspace, keyspace::dbsize),
    spec("decr", 2, GROW_FAST, ONE_KEY, Group::String, counter::decr),
    spec("decrby", 3, GROW_FAST, ONE_KEY, Group::String, counter::decrby),
    spec("del", -2, WRITE, ALL_KEYS, Group::Keyspace, keyspace::del),
    spec("discard", 1, AT_ONCE, NO_KEYS, Group::Transaction, transaction::discard),
    spec("echo", 2, ANY_TIME_FAST, NO_KEYS, Group::Connection, connection::echo),
    spec(
        "exec",
        1,
        SESSION.and(Flags::SKIP_SLOWLOG).and(Flags::IN_MULTI),
        NO_KEYS,
        Group::Transaction,
        transaction::exec,
    ),
    spec("exists", -2, READ_FAST, ALL_KEYS, Group::Keyspace, keyspace::exists),
    spec("expire", -3, WRITE_FAST, ONE_KEY, Group::Keyspace, ttl::expire),
    spec("expireat", -3, WRITE_FAST, ONE_KEY, Group::Keyspace, ttl::expireat),
    spec("expiretime", 2, READ_FAST, ONE_KEY, Group::Keyspace, ttl::expiretime),
    spec("flushall", -1, WRITE, NO_KEYS, Group::Keyspace, keyspace::flushall),
    spec("flushdb", -1, WRITE, NO_KEYS, Group::Keyspace, keyspace::flushdb),
    spec("get", 2, READ_FAST, ONE_KEY, Group::String, string::get),
    spec("getdel", 2, WRITE_FAST, ONE_KEY, Group::String, string::getdel),
    spec("getex", -2, WRITE_FAST, ONE_KEY, Group::String, expiry::getex),
    spec("getrange", 4, READ, ONE_KEY, Group::String, string::getrange),
    spec("getset", 3, GROW_FAST, ONE_KEY, Group::String, string::getset),
    spec("hdel", -3, WRITE_FAST, ONE_KEY, Group::Hash, hash::hdel),
    spec("hello", -1, LOGIN, NO_KEYS, Group::Connection, connection::hello),
    spec("hexists", 3, READ_FAST, ONE_KEY, Group::Hash, hash::hexists),
    spec("hexpire", -6, GROW_FAST, ONE_KEY, Group::Hash, hash::hexpire),
    spec("hexpireat", -6, GROW_FAST, ONE_KEY, Group::Hash, hash::hexpireat),
    spec("hexpiretime", -5, READ_FAST, ONE_KEY, Group::Hash, hash::hexpiretime),
    spec("hget", 3, READ_FAST, ONE_KEY, Group::Hash, hash::hget),
    spec("hgetall", 2, READ, ONE_KEY, Group::Hash, hash::hgetall),
    spec("hincrby", 4, GROW_FAST, ONE_KEY, Group::Hash, hash::hincrby),
    spec("hincrbyfloat", 4, GROW_FAST, ONE_KEY, Group::Hash, hash::hincrbyfloat),
    spec("hkeys", 2, READ, ONE_KEY, Group::Hash, hash::hkeys),
    spec("hlen", 2, READ_FAST, ONE_KEY, Group::Hash, hash::hlen),
    spec("hmget", -3, READ_FAST, ONE_KEY, Group::Hash, hash::hmget),
    spec("hmset", -4, GROW_FAST, ONE_KEY, Group::Hash, hash::hmset),
    spec("hpersist", -5, WRITE_FAST, ONE_KEY, Group::Hash, hash::hpersist),
    spec("hpexpire", -6, GROW_FAST, ONE_KEY, Group::Hash, hash::hpexpire),
    spec("hpexpireat", -6, GROW_FAST, ONE_KEY, Group::Hash, hash::hpexpireat),
    spec("hpexpiretime", -5, READ_FAST, ONE_KEY, Group::Hash, hash::hpexpiretime),
    spec("hpttl", -5, READ_FAST, ONE_KEY, Group::Hash, hash::hpttl),
    spec("hrandfield", -2, READ, ONE_KEY, Group::Hash, hash::hrandfield),
    spec("hscan", -3, READ, ONE_KEY, Group::Hash, hash::hscan),
    spec("hset", -4, GROW_FAST, ONE_KEY, Group::Hash, hash::hset),
    spec("hsetnx", 4, GROW_FAST, ONE_KEY, Group::Hash, hash::hsetnx),
    spec("hstrlen", 3, READ_FAST, ONE_KEY, Group::Hash, hash::hstrlen),
    spec("httl", -5, READ_FAST, ONE_KEY, Group::Hash, hash::httl),
    spec("hvals", 2, READ, ONE_KEY, Group::Hash, hash::hvals),
    spec("incr", 2, GROW_FAST, ONE_KEY, Group::String, counter::incr),
    spec("incrby", 3, GROW_FAST, ONE_KEY, Group::String, counter::incrby),
    spec("incrbyfloat", 3, GROW_FAST, ONE_KEY, Group::String, counter::incrbyfloat),
    over_table("info", -1, server_info::info),
    spec("keys", 2, READ, NO_KEYS, Group::Keyspace, keys::keys),
    spec("lastsave", 1, ANY_TIME_FAST, NO_KEYS, Group::Server, persistence::lastsave),
    spec("latency", -2, Flags::NONE, NO_KEYS, Group::Server, describe::container).with(&[
        spec("doctor", 2, ADMIN, NO_KEYS, Group::Server, latency::doctor).of("latency"),
        spec("help", 2, ANY_TIME, NO_KEYS, Group::Server, help::help).of("latency"),
        spec("histogram", -2, ADMIN, NO_KEYS, Group::Server, latency::histogram).of("latency"),
        spec("history", 3, ADMIN, NO_KEYS, Group::Server, latency::history).of("latency"),
        spec("latest", 2, ADMIN, NO_KEYS, Group::Server, latency::latest).of("latency"),
        spec("reset", -2, ADMIN, NO_KEYS, Group::Server, latency::reset).of("latency"),
    ]),
    spec("memory", -2, Flags::NONE, NO_KEYS, Group::Server, describe::container).with(&[spec(
        "usage",
        -3,
        READ,
        SECOND_KEY,
        Group::Server,
        keyspace::memory_usage,
    )
    .of("memory")]),
    spec("mget", -2, READ_FAST, ALL_KEYS, Group::String, string::mget),
    spec("monitor", 1, ADMIN, NO_KEYS, Group::Server, monitor::monitor),
    spec("mset", -3, GROW, PAIRS, Group::String, string::mset),
    spec("msetnx", -3, GROW, PAIRS, Group::String, string::msetnx),
    spec("multi", 1, AT_ONCE, NO_KEYS, Group::Transaction, transaction::multi),
    spec("object", -2, Flags::NONE, NO_KEYS, Group::Keyspace, describe::container).with(&[
        spec("encoding", 3, READ, SECOND_KEY, Group::Keyspace, keys::object_encoding).of("object"),
        spec("freq", 3, READ, SECOND_KEY, Group::Keyspace, keys::object_freq).of("object"),
        spec("help", 2, ANY_TIME, NO_KEYS, Group::Keyspace, help::help).of("object"),
        spec("idletime", 3, READ, SECOND_KEY, Group::Keyspace, keys::object_idletime).of("object"),
        spec("refcount", 3, READ, SECOND_KEY, Group::Keyspace, keys::object_refcount).of("object"),
    ]),
    spec("persist", 2, WRITE_FAST, ONE_KEY, Group::Keyspace, ttl::persist),
    spec("pexpire", -3, WRITE_FAST, ONE_KEY, Group::Keyspace, ttl::pexpire),
    spec("pexpireat", -3, WRITE_FAST, ONE_KEY, Group::Keyspace, ttl::pexpireat),
    spec("pexpiretime", 2, READ_FAST, ONE_KEY, Group::Keyspace, ttl::pexpiretime),
    spec("ping", -1, Flags::FAST.and(Flags::WHILE_SUBSCRIBED), NO_KEYS, Group::Connection, connection::ping),
    spec("psetex", 4, GROW, ONE_KEY, Group::String, expiry::psetex),
    spec("psubscribe", -2, SUBSCRIBER, NO_KEYS, Group::PubSub, pubsub::psubscribe),
    spec("pttl", 2, READ_FAST, ONE_KEY, Group::Keyspace, ttl::pttl),
    spec("publish", 3, Flags::PUBSUB.and(ANY_TIME_FAST), NO_KEYS, Group::PubSub, pubsub::publish),
    spec("pubsub", -2, Flags::NONE, NO_KEYS, Group::PubSub, describe::container).with(&[
        spec("channels", -2, CHANNELS, NO_KEYS, Group::PubSub, pubsub::channels).of("pubsub"),
        spec("help", 2, ANY_TIME, NO_KEYS, Group::PubSub, help::help).of("pubsub"),
        spec("numpat", 2, CHANNELS, NO_KEYS, Group::PubSub, pubsub::numpat).of("pubsub"),
        spec("numsub", -2, CHANNELS, NO_KEYS, Group::PubSub, pubsub::numsub).of("pubsub"),
    ]),
    spec("punsubscribe", -1, SUBSCRIBER, NO_KEYS, Group::PubSub, pubsub::punsubscribe),
    spec("quit", -1, LEAVE, NO_KEYS, Group::Connection, connection::quit),
    spec("randomkey", 1, READ, NO_KEYS, Group::Keyspace, keys::randomkey),
    spec("rename", 3, WRITE, TWO_KEYS, Group::Keyspace, keys::rename),
    spec("renamenx", 3, WRITE_FAST, TWO_KEYS, Group::Keyspace, keys::renamenx),
    spec("reset", 1, LEAVE, NO_KEYS, Group::Connection, connection::reset),
    spec("save", 1, SAVES.and(Flags::NO_MULTI), NO_KEYS, Group::Server, persistence::save),
    spec("scan", -2, READ, NO_KEYS, Group::Keyspace, keyspace::scan),
    spec("select", 2, ANY_TIME_FAST, NO_KEYS, Group::Connection, connection::select),
    spec("set", -3, GROW, ONE_KEY, Group::String, expiry::set),
    spec("setex", 4, GROW, ONE_KEY, Group::String, expiry::setex),
    spec("setnx", 3, GROW_FAST, ONE_KEY, Group::String, string::setnx),
    spec("setrange", 4, GROW, ONE_KEY, Group::String, string::setrange),
    spec("shutdown", -1, ENDS, NO_KEYS, Group::Server, persistence::shutdown),
    spec("slowlog", -2, Flags::NONE, NO_KEYS, Group::Server, describe::container).with(&[
        spec("get", -2, LOG, NO_KEYS, Group::Server, slowlog::get).of("slowlog"),
        spec("help", 2, ANY_TIME, NO_KEYS, Group::Server, help::help).of("slowlog"),
        spec("len", 2, LOG, NO_KEYS, Group::Server, slowlog::len).of("slowlog"),
        spec("reset", 2, LOG, NO_KEYS, Group::Server, slowlog::reset).of("slowlog"),
    ]),
    spec("strlen", 2, READ_FAST, ONE_KEY, Group::String, string::strlen),
    spec("subscribe", -2, SUBSCRIBER, NO_KEYS, Group::PubSub, pubsub::subscribe),
    spec("substr", 4, READ, ONE_KEY, Group::String, string::getrange),
    spec("tenants", -1, LOG, NO_KEYS, Group::Server, tenants::tenants),
    spec("time", 1, ANY_TIME_FAST, NO_KEYS, Group::Server, server_info::time),
    spec("touch", -2, READ_FAST, ALL_KEYS, Group::Keyspace, keyspace::touch),
    spec("ttl", 2, READ_FAST, ONE_KEY, Group::Keyspace, ttl::ttl),
    spec("type", 2, READ_FAST, ONE_KEY, Group::Keyspace, keyspace::type_of),
    spec("unlink", -2, WRITE_FAST, ALL_KEYS, Group::Keyspace, keyspace::del),
    spec("unsubscribe", -1, SUBSCRIBER, NO_KEYS, Group::PubSub, pubsub::unsubscribe),
    spec("unwatch", 1, AT_ONCE_QUEUED, NO_KEYS, Group::Transaction, transaction::unwatch),
    spec("wait", 3, Flags::NOSCRIPT, NO_KEYS, Group::Connection, keys::wait),
    spec("watch", -2, AT_ONCE, ALL_KEYS, Group::Transaction, transaction::watch),
];

const SLOTS: usize = 1024;
const NO_COMMAND: u8 = u8::MAX;

/// A few of a name's letters and its length: enough to tell all commands apart, whatever their case.
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
