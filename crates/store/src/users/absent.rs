//! Commands of Redis 7.0 that are not here: rules written for Redis name them.

/// Their names, sorted; subcommands as `container|name`.
#[rustfmt::skip]
pub(super) const ABSENT: [&str; 216] = [
    "acl|dryrun", "acl|log", "asking", "bgrewriteaof", "bitcount", "bitfield", "bitfield_ro", "bitop",
    "bitpos", "blmove", "blmpop", "blpop", "brpop", "brpoplpush", "bzmpop", "bzpopmax", "bzpopmin",
    "cluster", "cluster|addslots", "cluster|addslotsrange", "cluster|bumpepoch",
    "cluster|count-failure-reports", "cluster|countkeysinslot", "cluster|delslots", "cluster|delslotsrange",
    "cluster|failover", "cluster|flushslots", "cluster|forget", "cluster|getkeysinslot", "cluster|help",
    "cluster|info", "cluster|keyslot", "cluster|links", "cluster|meet", "cluster|myid", "cluster|nodes",
    "cluster|replicas", "cluster|replicate", "cluster|reset", "cluster|saveconfig",
    "cluster|set-config-epoch", "cluster|setslot", "cluster|shards", "cluster|slaves", "cluster|slots",
    "command|getkeys", "command|getkeysandflags", "command|help", "config|help", "debug", "dump", "eval",
    "eval_ro", "evalsha", "evalsha_ro", "failover", "fcall", "fcall_ro", "function", "function|delete",
    "function|dump", "function|flush", "function|help", "function|kill", "function|list", "function|load",
    "function|restore", "function|stats", "geoadd", "geodist", "geohash", "geopos", "georadius",
    "georadius_ro", "georadiusbymember", "georadiusbymember_ro", "geosearch", "geosearchstore", "getbit",
    "latency|graph", "lcs", "lindex", "linsert", "llen", "lmove", "lmpop", "lolwut", "lpop", "lpos",
    "lpush", "lpushx", "lrange", "lrem", "lset", "ltrim", "memory|doctor", "memory|malloc-stats",
    "memory|purge", "memory|stats", "migrate", "module", "module|help", "module|list", "module|load",
    "module|loadex", "module|unload", "move", "pfadd", "pfcount", "pfdebug", "pfmerge", "pfselftest",
    "psync", "pubsub|shardchannels", "pubsub|shardnumsub", "readonly", "readwrite", "replconf", "replicaof",
    "restore", "restore-asking", "role", "rpop", "rpoplpush", "rpush", "rpushx", "sadd", "scard", "script",
    "script|debug", "script|exists", "script|flush", "script|help", "script|kill", "script|load", "sdiff",
    "sdiffstore", "setbit", "sinter", "sintercard", "sinterstore", "sismember", "slaveof", "smembers",
    "smismember", "smove", "sort", "sort_ro", "spop", "spublish", "srandmember", "srem", "sscan",
    "ssubscribe", "sunion", "sunionstore", "sunsubscribe", "swapdb", "sync", "xack", "xadd", "xautoclaim",
    "xclaim", "xdel", "xgroup", "xgroup|create", "xgroup|createconsumer", "xgroup|delconsumer",
    "xgroup|destroy", "xgroup|help", "xgroup|setid", "xinfo", "xinfo|consumers", "xinfo|groups",
    "xinfo|help", "xinfo|stream", "xlen", "xpending", "xrange", "xread", "xreadgroup", "xrevrange",
    "xsetid", "xtrim", "zadd", "zcard", "zcount", "zdiff", "zdiffstore", "zincrby", "zinter", "zintercard",
    "zinterstore", "zlexcount", "zmpop", "zmscore", "zpopmax", "zpopmin", "zrandmember", "zrange",
    "zrangebylex", "zrangebyscore", "zrangestore", "zrank", "zrem", "zremrangebylex", "zremrangebyrank",
    "zremrangebyscore", "zrevrange", "zrevrangebylex", "zrevrangebyscore", "zrevrank", "zscan", "zscore",
    "zunion", "zunionstore",
];

/// The name in this list, if it is there.
pub(super) fn find_absent(name: &[u8]) -> Option<&'static str> {
    ABSENT.into_iter().find(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::super::commands::Command;
    use super::*;

    #[test]
    fn what_is_here_is_not_absent() {
        assert!(ABSENT.is_sorted());
        for command in Command::all() {
            assert_eq!(find_absent(command.spec.full_name().as_bytes()), None);
        }
    }
}
