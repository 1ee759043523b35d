//! Compatibility document: the table of commands with notes that its entries do not have.
//! [`compatibility`] writes `docs/redis-compatibility.md`, and a test compares the two.

use std::fmt::Write;

use super::spec::{Group, Spec};
use super::table::COMMANDS;

/// Where a command differs from Redis 7.0 in what a client can see. A command that is not here does what Redis's does.
const NOTES: &[(&str, &str)] = &[
    ("acl|cat", "only commands that are supported"),
    ("acl|load", "always an error: users are in the configuration file, not in an ACL file"),
    ("acl|save", "always an error: use `CONFIG REWRITE`"),
    (
        "acl|setuser",
        "no selectors, no rules about first arguments (`+select|0`), no `sanitize-payload`; names and patterns are UTF-8; refusals have the wording of Redis 7.2; rules about commands of Redis 7.0 that are not here are kept and have no effect, which the log says",
    ),
    (
        "bgsave",
        "writes a snapshot in a format of our own, between requests (`docs/store.md`), so what a transaction writes meanwhile may be \
         there in part; `SCHEDULE` does the same",
    ),
    ("client|kill", "`MAXAGE` is not supported"),
    (
        "client|list",
        "`qbuf`, `qbuf-free` and `argv-mem` are of an unfinished request in a buffer of the client's own; buffers that the shard lends \
         (for whole requests; `rbs`, `rbp`) are shown as 0",
    ),
    ("client|no-evict", "accepted and ignored: clients are never evicted for the memory they hold"),
    ("client|no-touch", "of Redis 7.2; holds for reads of whole strings"),
    ("client|pause", "a pause ends at a tick, so up to 100 ms late; keys expire meanwhile"),
    ("client|setinfo", "of Redis 7.2; checked and not stored"),
    (
        "client|tracking",
        "an invalidation per key, where Redis gathers those of one turn of its loop in `BCAST` mode, whose prefixes must be \
         such that the user may read all keys there",
    ),
    ("client|unblock", "always 0: no command blocks"),
    ("command|docs", "always empty"),
    ("config|get", "the parameters in `docs/store.md`"),
    ("config|resetstat", "resets `INFO` and `LATENCY HISTOGRAM`; `/metrics` continues"),
    ("config|rewrite", "rewrites the TOML file that the server was started with"),
    ("config|set", "the parameters in `docs/store.md`"),
    (
        "exec",
        "refused as a whole if the user's rights have changed since `MULTI`; parts of a reply beyond 64 MiB are left out; `SLOWLOG` has no entry for a transaction as a whole",
    ),
    ("flushall", "`SYNC` and `ASYNC` do the same"),
    ("flushdb", "`SYNC` and `ASYNC` do the same"),
    ("hexpire", "of Redis 7.4, as the other commands for fields that expire"),
    ("info", "Redis's fields if they have a meaning here, and a section for the tiers"),
    (
        "keys",
        "only keys that the user may read; walks the whole index while nothing else runs; refused if the reply exceeds 64 MiB, or if more than 10,000 keys lie on flash",
    ),
    ("lastsave", "the time of the start, until a snapshot is written"),
    ("latency|doctor", "a few plain sentences"),
    ("latency|histogram", "only while `latency-tracking` is on, which it is not by default"),
    ("latency|latest", "the events are `command`, `fast-command` and `expire-cycle`"),
    ("memory|usage", "bytes of the item in its tier, and its share of the metadata"),
    ("monitor", "the time is that of the batch in which the request came"),
    (
        "multi",
        "the queue counts as an unfinished request: it ends in an error at 32 MiB, or when all clients' requests together \
               have no room left",
    ),
    (
        "object|encoding",
        "the encoding that Redis would choose for the present value by its default limits: a string that was appended to may be \
         `embstr`, a hash that has become small `listpack`",
    ),
    ("object|freq", "always an error: no LFU policy is selected"),
    ("object|idletime", "an estimate: recency is counted in requests, and converted by the rate of requests"),
    ("object|refcount", "always 1, where Redis shares small numbers"),
    (
        "randomkey",
        "of the keys that the user may read; gives up after 65536 that it may not; of keys on flash only some are looked at, \
         so there may be none though there are some",
    ),
    ("rename", "the events are `rename_to`, then `rename_from`"),
    ("save", "as `BGSAVE`, and nothing else runs meanwhile"),
    (
        "scan",
        "only keys that the user may read; `COUNT` is at most 10000; a cursor is a position in the order of hashes",
    ),
    (
        "shutdown",
        "where not all that is to outlive the store can be written, it serves on and the answer is an error; `NOSAVE` leaves the \
         snapshot out, `FORCE` stops with exit code 1 instead; `NOW` has no effect",
    ),
    (
        "slowlog|get",
        "fast requests of one pipeline are timed in runs of 64, and a run's time stands with its last request; \
                     a threshold below 1 ms times each",
    ),
    ("subscribe", "limit: 16 MiB for names, subscriptions and watched keys of all clients together"),
    ("tenants", "of our own: requests, memory and share of each tenant, as lines or with `JSON`"),
    ("wait", "always 0: there are no replicas"),
];

fn group_name(group: Group) -> &'static str {
    match group {
        Group::String => "Strings",
        Group::Hash => "Hashes",
        Group::Keyspace => "Keys",
        Group::Connection => "Connections",
        Group::Server => "The server",
        Group::PubSub => "Channels",
        Group::Transaction => "Transactions",
    }
}

const GROUPS: [Group; 7] = [
    Group::String,
    Group::Hash,
    Group::Keyspace,
    Group::Transaction,
    Group::PubSub,
    Group::Connection,
    Group::Server,
];

const HEAD: &str = "\
# Redis compatibility

Which Redis commands the store supports, and what differs from Redis 7.0. A command that is not listed gets Redis's own \"unknown command\".
Replies and errors are Redis's, except where a note says otherwise; `tests/e2e/test_dialogues.py` and
`crates/store/tests/differential.rs` run both servers and compare. `make docs` writes this page from the table of commands in the code; a
test fails when it is stale.

*Arguments* include the command's name; a minus means \"at least\". *Flags* are those of `COMMAND INFO`.

General limits: a value has at most `max_value` bytes (16 MiB by default), a key at most 65535. There are 16 databases. There are no
scripts, no replicas, and none of Redis's RDB and AOF files; see [restarts](store.md#restarts) for what
survives a restart, and [several shards](store.md#several-shards) for what changes with them.

Time: a step of the wall clock, forth or back, moves no deadline, where in Redis keys then expire at once or too late. Moments in requests
(`EXPIREAT`, `EXAT`, `PXAT`) and in replies (`EXPIRETIME`, `LASTSAVE`, `TIME`, `SLOWLOG`) are by the wall clock as it is at the request, so
after a step `EXPIRETIME` of an older key differs by that step. [Expiry](store.md#what-clients-see) says by which clock they are kept.
";

/// The table as a document in Markdown.
pub fn compatibility() -> String {
    let mut text = HEAD.to_owned();
    for group in GROUPS {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\n## {}\n\n| command | arguments | flags | notes |\n| --- | --- | --- | --- |\n",
            group_name(group)
        );
        for spec in COMMANDS.iter().filter(|spec| spec.group == group) {
            if spec.subcommands.is_empty() {
                row(&mut text, spec);
            }
            spec.subcommands.iter().for_each(|sub| row(&mut text, sub));
        }
    }
    text
}

fn row(text: &mut String, spec: &Spec) {
    let name = spec.full_name();
    let note = NOTES.iter().find(|(noted, _)| *noted == name).map_or("", |(_, note)| note);
    let flags: Vec<&str> = spec.flags.names().collect();
    let shown = name.replace('|', " ").to_uppercase();
    let _ = writeln!(text, "| `{shown}` | {} | {} | {note} |", spec.arity, flags.join(", "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_document_is_what_the_table_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/redis-compatibility.md");
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == compatibility(), "docs/redis-compatibility.md is stale: run `make docs`");
    }

    #[test]
    fn every_note_is_about_a_command() {
        for (name, _) in NOTES {
            let mut words = name.splitn(2, '|');
            let spec = COMMANDS.iter().find(|spec| Some(spec.name) == words.clone().next());
            let spec = spec.unwrap_or_else(|| panic!("{name} is no command"));
            words.next();
            assert!(
                words.next().is_none_or(|sub| spec.subcommands.iter().any(|it| it.name == sub)),
                "{name}"
            );
        }
        assert!(NOTES.is_sorted_by(|a, b| a.0 < b.0));
    }
}
