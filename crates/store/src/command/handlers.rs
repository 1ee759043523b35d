//! Handlers of commands: the function that runs each command.

use super::context::Handler;
use super::table::COMMANDS;
use super::{
    acl, client, command_info, config, connection, counter, exec, hash, help, keys, keyspace, latency,
    monitor, persistence, pubsub, server_info, set, slowlog, string, tenants, tracking, transaction, ttl,
};

/// Every command in the order of their numbers ([`Spec::all`](super::Spec::all)): those of the table, then all subcommands.
const BY_NAME: &[(&str, Handler)] = &[
    ("acl", command_info::container),
    ("append", string::append),
    ("auth", connection::auth),
    ("bgsave", persistence::bgsave),
    ("client", command_info::container),
    ("command", command_info::command),
    ("config", command_info::container),
    ("copy", keys::copy),
    ("dbsize", keyspace::dbsize),
    ("decr", counter::decr),
    ("decrby", counter::decrby),
    ("del", keyspace::del),
    ("discard", transaction::discard),
    ("echo", connection::echo),
    ("exec", exec::exec),
    ("exists", keyspace::exists),
    ("expire", ttl::expire),
    ("expireat", ttl::expireat),
    ("expiretime", ttl::expiretime),
    ("flushall", keyspace::flushall),
    ("flushdb", keyspace::flushdb),
    ("get", string::get),
    ("getdel", string::getdel),
    ("getex", set::getex),
    ("getrange", string::getrange),
    ("getset", string::getset),
    ("hdel", hash::hdel),
    ("hello", connection::hello),
    ("hexists", hash::hexists),
    ("hexpire", hash::hexpire),
    ("hexpireat", hash::hexpireat),
    ("hexpiretime", hash::hexpiretime),
    ("hget", hash::hget),
    ("hgetall", hash::hgetall),
    ("hincrby", hash::hincrby),
    ("hincrbyfloat", hash::hincrbyfloat),
    ("hkeys", hash::hkeys),
    ("hlen", hash::hlen),
    ("hmget", hash::hmget),
    ("hmset", hash::hmset),
    ("hpersist", hash::hpersist),
    ("hpexpire", hash::hpexpire),
    ("hpexpireat", hash::hpexpireat),
    ("hpexpiretime", hash::hpexpiretime),
    ("hpttl", hash::hpttl),
    ("hrandfield", hash::hrandfield),
    ("hscan", hash::hscan),
    ("hset", hash::hset),
    ("hsetnx", hash::hsetnx),
    ("hstrlen", hash::hstrlen),
    ("httl", hash::httl),
    ("hvals", hash::hvals),
    ("incr", counter::incr),
    ("incrby", counter::incrby),
    ("incrbyfloat", counter::incrbyfloat),
    ("info", server_info::info),
    ("keys", keys::keys),
    ("lastsave", persistence::lastsave),
    ("latency", command_info::container),
    ("memory", command_info::container),
    ("mget", string::mget),
    ("monitor", monitor::monitor),
    ("mset", string::mset),
    ("msetnx", string::msetnx),
    ("multi", transaction::multi),
    ("object", command_info::container),
    ("persist", ttl::persist),
    ("pexpire", ttl::pexpire),
    ("pexpireat", ttl::pexpireat),
    ("pexpiretime", ttl::pexpiretime),
    ("ping", connection::ping),
    ("psetex", set::psetex),
    ("psubscribe", pubsub::psubscribe),
    ("pttl", ttl::pttl),
    ("publish", pubsub::publish),
    ("pubsub", command_info::container),
    ("punsubscribe", pubsub::punsubscribe),
    ("quit", connection::quit),
    ("randomkey", keys::randomkey),
    ("rename", keys::rename),
    ("renamenx", keys::renamenx),
    ("reset", connection::reset),
    ("save", persistence::save),
    ("scan", keyspace::scan),
    ("select", connection::select),
    ("set", set::set),
    ("setex", set::setex),
    ("setnx", string::setnx),
    ("setrange", string::setrange),
    ("shutdown", persistence::shutdown),
    ("slowlog", command_info::container),
    ("strlen", string::strlen),
    ("subscribe", pubsub::subscribe),
    ("substr", string::getrange),
    ("tenants", tenants::tenants),
    ("time", server_info::time),
    ("touch", keyspace::touch),
    ("ttl", ttl::ttl),
    ("type", keyspace::type_of),
    ("unlink", keyspace::del),
    ("unsubscribe", pubsub::unsubscribe),
    ("unwatch", transaction::unwatch),
    ("wait", keys::wait),
    ("watch", transaction::watch),
    ("acl|cat", acl::cat),
    ("acl|deluser", acl::deluser),
    ("acl|genpass", acl::genpass),
    ("acl|getuser", acl::getuser),
    ("acl|help", help::help),
    ("acl|list", acl::list),
    ("acl|load", acl::no_file),
    ("acl|save", acl::no_file),
    ("acl|setuser", acl::setuser),
    ("acl|users", acl::users),
    ("acl|whoami", acl::whoami),
    ("client|caching", tracking::caching),
    ("client|getname", client::getname),
    ("client|getredir", tracking::getredir),
    ("client|help", help::help),
    ("client|id", client::id),
    ("client|info", client::info),
    ("client|kill", client::kill),
    ("client|list", client::list),
    ("client|no-evict", client::no_evict),
    ("client|no-touch", client::no_touch),
    ("client|pause", client::pause),
    ("client|reply", client::reply),
    ("client|setinfo", client::setinfo),
    ("client|setname", client::setname),
    ("client|tracking", tracking::tracking),
    ("client|trackinginfo", tracking::trackinginfo),
    ("client|unblock", client::unblock),
    ("client|unpause", client::unpause),
    ("command|count", command_info::count),
    ("command|docs", command_info::docs),
    ("command|info", command_info::info),
    ("command|list", command_info::list),
    ("config|get", config::get),
    ("config|resetstat", config::resetstat),
    ("config|rewrite", config::rewrite),
    ("config|set", config::set),
    ("latency|doctor", latency::doctor),
    ("latency|help", help::help),
    ("latency|histogram", latency::histogram),
    ("latency|history", latency::history),
    ("latency|latest", latency::latest),
    ("latency|reset", latency::reset),
    ("memory|help", help::help),
    ("memory|usage", keyspace::memory_usage),
    ("object|encoding", keys::object_encoding),
    ("object|freq", keys::object_freq),
    ("object|help", help::help),
    ("object|idletime", keys::object_idletime),
    ("object|refcount", keys::object_refcount),
    ("pubsub|channels", pubsub::channels),
    ("pubsub|help", help::help),
    ("pubsub|numpat", pubsub::numpat),
    ("pubsub|numsub", pubsub::numsub),
    ("slowlog|get", slowlog::get),
    ("slowlog|help", help::help),
    ("slowlog|len", slowlog::len),
    ("slowlog|reset", slowlog::reset),
];

/// The handler of each command, by its number.
pub static HANDLERS: [Handler; BY_NAME.len()] = {
    let mut handlers = [BY_NAME[0].1; BY_NAME.len()];
    let mut number = 0;
    let mut at = 0;
    while at < COMMANDS.len() {
        assert!(
            is_named(BY_NAME[number].0, "", COMMANDS[at].name),
            "the handlers are in the order of the table"
        );
        handlers[number] = BY_NAME[number].1;
        number += 1;
        at += 1;
    }
    at = 0;
    while at < COMMANDS.len() {
        let mut sub = 0;
        while sub < COMMANDS[at].subcommands.len() {
            let name = COMMANDS[at].subcommands[sub].name;
            assert!(
                is_named(BY_NAME[number].0, COMMANDS[at].name, name),
                "the handlers are in the order of the table"
            );
            handlers[number] = BY_NAME[number].1;
            number += 1;
            sub += 1;
        }
        at += 1;
    }
    assert!(number == BY_NAME.len(), "every handler has a command");
    handlers
};

/// Whether `text` is `name`, or `container|name` where there is a container.
const fn is_named(text: &str, container: &str, name: &str) -> bool {
    let (text, container, name) = (text.as_bytes(), container.as_bytes(), name.as_bytes());
    let before = if container.is_empty() { 0 } else { container.len() + 1 };
    if text.len() != before + name.len() || (before > 0 && text[container.len()] != b'|') {
        return false;
    }
    let mut at = 0;
    while at < text.len() {
        let expected = if at < container.len() {
            container[at]
        } else if at < before {
            b'|'
        } else {
            name[at - before]
        };
        if text[at] != expected {
            return false;
        }
        at += 1;
    }
    true
}
