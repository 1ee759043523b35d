//! Keys of Redis commands: which arguments are keys, and what the command does to them: the `key specs` of the command reference
//! (redis.io/commands), as data.

use tiermem_base::Op;

/// The effect of a command on its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub keys: Keys,
    pub op: Op,
    pub size: Size,
    pub ttl: Ttl,
}

/// Where a command's keys stand; arguments are counted from the command's name, which is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// It has none: it is no access.
    None,
    /// One, at this place.
    At(usize),
    /// All from this place on.
    From(usize),
    /// Every second one from 1 on: keys and values.
    Pairs,
    /// All from 1 on but the last argument.
    AllButLast,
    /// As many as the argument at this place says, behind it.
    Counted(usize),
    /// The first is written, those behind the count at 2 are read.
    StoreCounted,
    /// The first is written, all others are read.
    StoreFrom,
    /// The first is written, the second read.
    WriteRead,
    /// The first is read, the second written.
    ReadWrite,
    /// The first is removed, the second written.
    Rename,
    /// The first half of what stands behind `STREAMS`.
    Streams,
}

/// Where the size of what is written stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// Nowhere: reads, and commands that change parts.
    Unknown,
    /// It is the length of this argument.
    Of(usize),
    /// It is the length of all arguments from this one on: members and fields that are added.
    From(usize),
    /// Each key is followed by its value.
    Next,
}

/// Where the time to live stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ttl {
    None,
    /// Seconds at this place.
    Seconds(usize),
    /// Milliseconds at this place.
    Millis(usize),
    /// Behind one of the words EX and PX, from this place on.
    Words(usize),
}

const fn read(keys: Keys) -> Command {
    Command { keys, op: Op::Get, size: Size::Unknown, ttl: Ttl::None }
}

const fn write(keys: Keys, size: Size) -> Command {
    Command { keys, op: Op::Set, size, ttl: Ttl::None }
}

const fn delete(keys: Keys) -> Command {
    Command { keys, op: Op::Del, size: Size::Unknown, ttl: Ttl::None }
}

const NO_KEYS: Command = read(Keys::None);

/// Rows of commands that do the same, their names in upper case.
const TABLE: &[(&[&str], Command)] = &[
    (
        &[
            "GET",
            "STRLEN",
            "GETRANGE",
            "SUBSTR",
            "GETBIT",
            "BITCOUNT",
            "BITPOS",
            "BITFIELD_RO",
            "TYPE",
            "TTL",
            "PTTL",
            "EXPIRETIME",
            "PEXPIRETIME",
            "DUMP",
            "PERSIST",
            "HGET",
            "HMGET",
            "HGETALL",
            "HKEYS",
            "HVALS",
            "HLEN",
            "HEXISTS",
            "HSTRLEN",
            "HRANDFIELD",
            "HSCAN",
            "HTTL",
            "HPTTL",
            "HEXPIRETIME",
            "HPEXPIRETIME",
            "LLEN",
            "LRANGE",
            "LINDEX",
            "LPOS",
            "SCARD",
            "SMEMBERS",
            "SISMEMBER",
            "SMISMEMBER",
            "SRANDMEMBER",
            "SSCAN",
            "ZCARD",
            "ZCOUNT",
            "ZLEXCOUNT",
            "ZRANGE",
            "ZRANGEBYSCORE",
            "ZRANGEBYLEX",
            "ZREVRANGE",
            "ZREVRANGEBYSCORE",
            "ZREVRANGEBYLEX",
            "ZRANK",
            "ZREVRANK",
            "ZSCORE",
            "ZMSCORE",
            "ZRANDMEMBER",
            "ZSCAN",
            "XLEN",
            "XRANGE",
            "XREVRANGE",
            "XPENDING",
            "GEOPOS",
            "GEODIST",
            "GEOHASH",
            "GEOSEARCH",
            "GEORADIUS_RO",
            "GEORADIUSBYMEMBER_RO",
            "SORT_RO",
            "DIGEST",
        ],
        read(Keys::At(1)),
    ),
    (&["MGET", "EXISTS", "TOUCH", "WATCH", "SINTER", "SUNION", "SDIFF", "PFCOUNT"], read(Keys::From(1))),
    (&["SINTERCARD", "ZINTERCARD", "ZUNION", "ZINTER", "ZDIFF"], read(Keys::Counted(1))),
    (&["XREAD", "XREADGROUP"], read(Keys::Streams)),
    (&["XINFO", "OBJECT"], read(Keys::At(2))),
    (&["GETEX"], Command { ttl: Ttl::Words(2), ..read(Keys::At(1)) }),
    (&["EXPIRE"], Command { ttl: Ttl::Seconds(2), ..read(Keys::At(1)) }),
    (&["PEXPIRE"], Command { ttl: Ttl::Millis(2), ..read(Keys::At(1)) }),
    (&["EXPIREAT", "PEXPIREAT"], read(Keys::At(1))),
    (&["SET"], Command { ttl: Ttl::Words(3), ..write(Keys::At(1), Size::Of(2)) }),
    (&["SETEX"], Command { ttl: Ttl::Seconds(2), ..write(Keys::At(1), Size::Of(3)) }),
    (&["PSETEX"], Command { ttl: Ttl::Millis(2), ..write(Keys::At(1), Size::Of(3)) }),
    (&["SETNX", "GETSET"], write(Keys::At(1), Size::Of(2))),
    (&["RESTORE"], Command { ttl: Ttl::Millis(2), ..write(Keys::At(1), Size::Of(3)) }),
    (&["MSET", "MSETNX"], write(Keys::Pairs, Size::Next)),
    (
        &[
            "APPEND", "HSET", "HMSET", "HSETNX", "LPUSH", "RPUSH", "LPUSHX", "RPUSHX", "SADD", "ZADD",
            "GEOADD", "PFADD", "XADD",
        ],
        write(Keys::At(1), Size::From(2)),
    ),
    (
        &[
            "INCR",
            "DECR",
            "INCRBY",
            "DECRBY",
            "INCRBYFLOAT",
            "SETRANGE",
            "SETBIT",
            "BITFIELD",
            "HINCRBY",
            "HINCRBYFLOAT",
            "HDEL",
            "HEXPIRE",
            "HPEXPIRE",
            "HEXPIREAT",
            "HPEXPIREAT",
            "HPERSIST",
            "HGETDEL",
            "HGETEX",
            "HSETEX",
            "LPOP",
            "RPOP",
            "LREM",
            "LSET",
            "LTRIM",
            "LINSERT",
            "SREM",
            "SPOP",
            "ZREM",
            "ZINCRBY",
            "ZPOPMIN",
            "ZPOPMAX",
            "ZREMRANGEBYRANK",
            "ZREMRANGEBYSCORE",
            "ZREMRANGEBYLEX",
            "XDEL",
            "XTRIM",
            "XACK",
            "XCLAIM",
            "XAUTOCLAIM",
            "XSETID",
            "SORT",
            "GEORADIUS",
            "GEORADIUSBYMEMBER",
        ],
        write(Keys::At(1), Size::Unknown),
    ),
    (&["XGROUP"], write(Keys::At(2), Size::Unknown)),
    (&["BLPOP", "BRPOP", "BZPOPMIN", "BZPOPMAX"], write(Keys::AllButLast, Size::Unknown)),
    (&["LMPOP", "ZMPOP"], write(Keys::Counted(1), Size::Unknown)),
    (&["BLMPOP", "BZMPOP"], write(Keys::Counted(2), Size::Unknown)),
    (&["SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE", "PFMERGE"], write(Keys::StoreFrom, Size::Unknown)),
    (&["ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"], write(Keys::StoreCounted, Size::Unknown)),
    (&["BITOP"], write(Keys::From(2), Size::Unknown)),
    (&["ZRANGESTORE", "GEOSEARCHSTORE"], write(Keys::WriteRead, Size::Unknown)),
    (&["COPY", "SMOVE", "LMOVE", "BLMOVE", "RPOPLPUSH", "BRPOPLPUSH"], write(Keys::ReadWrite, Size::Unknown)),
    (&["RENAME", "RENAMENX"], write(Keys::Rename, Size::Unknown)),
    (&["DEL", "UNLINK"], delete(Keys::From(1))),
    (&["GETDEL", "MOVE", "DELEX"], delete(Keys::At(1))),
    (
        // The calls of a script are logged by themselves, with `lua` for their client, so that a script is no access.
        &[
            "ACL",
            "ASKING",
            "AUTH",
            "BGREWRITEAOF",
            "BGSAVE",
            "CLIENT",
            "CLUSTER",
            "COMMAND",
            "CONFIG",
            "DBSIZE",
            "DEBUG",
            "DISCARD",
            "ECHO",
            "EVAL",
            "EVALSHA",
            "EVALSHA_RO",
            "EVAL_RO",
            "EXEC",
            "FAILOVER",
            "FCALL",
            "FCALL_RO",
            "FLUSHALL",
            "FLUSHDB",
            "FUNCTION",
            "HELLO",
            "INFO",
            "KEYS",
            "LASTSAVE",
            "LATENCY",
            "LOLWUT",
            "MEMORY",
            "MIGRATE",
            "MODULE",
            "MONITOR",
            "MULTI",
            "PFDEBUG",
            "PFSELFTEST",
            "PING",
            "PSUBSCRIBE",
            "PSYNC",
            "PUBLISH",
            "PUBSUB",
            "PUNSUBSCRIBE",
            "QUIT",
            "RANDOMKEY",
            "READONLY",
            "READWRITE",
            "REPLCONF",
            "REPLICAOF",
            "RESET",
            "ROLE",
            "SAVE",
            "SCAN",
            "SCRIPT",
            "SELECT",
            "SHUTDOWN",
            "SLAVEOF",
            "SLOWLOG",
            "SPUBLISH",
            "SSUBSCRIBE",
            "SUBSCRIBE",
            "SUNSUBSCRIBE",
            "SWAPDB",
            "SYNC",
            "TIME",
            "UNSUBSCRIBE",
            "UNWATCH",
            "WAIT",
            "WAITAOF",
        ],
        NO_KEYS,
    ),
];

/// The command of that name, in any case.
pub(super) fn find(name: &[u8]) -> Option<&'static Command> {
    let is = |known: &&str| name.eq_ignore_ascii_case(known.as_bytes());
    TABLE.iter().find(|(names, _)| names.iter().any(&is)).map(|(_, command)| command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_command_stands_once_and_in_upper_case() {
        let names: Vec<&str> = TABLE.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        assert!(names.iter().all(|name| !name.bytes().any(|byte| byte.is_ascii_lowercase())));
        assert_eq!(find(b"gEt"), Some(&read(Keys::At(1))));
        assert_eq!(find(b"GETS"), None);
    }
}
