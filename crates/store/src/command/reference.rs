//! Notes on commands that their entries in the table do not have, and the table as a document: [`compatibility`] writes
//! `docs/redis-compatibility.md`, and a test compares the two.

use std::fmt::Write;

use super::spec::{Group, Spec};
use super::table::COMMANDS;

/// Where a command differs from Redis 7.0 in what a client can see. A command that is not here does what Redis's does.
const NOTES: &[(&str, &str)] = &[
    ("acl|cat", "of the commands that are here"),
    ("acl|load", "always the error that there is no such file: users are in the configuration file"),
    ("acl|save", "always the error that `CONFIG REWRITE` does it"),
    (
        "acl|setuser",
        "no selectors, no rules about first arguments (`+select|0`), no `sanitize-payload`; names and patterns are UTF-8; what a user may not do is refused in the words of Redis 7.2",
    ),
    (
        "bgsave",
        "writes a snapshot of our own format, as `docs/store.md` says, between requests; `SCHEDULE` does the same",
    ),
    ("client|kill", "`MAXAGE` is not known"),
    ("client|list", "buffers that the shard lends (`qbuf-free`, `rbs`, `rbp`, `argv-mem`) are shown as 0"),
    ("client|no-evict", "accepted: no client is ever evicted for what it holds"),
    ("client|no-touch", "of Redis 7.2; holds for reads of whole strings"),
    ("client|pause", "a pause ends at a tick, so up to 100 ms late; keys expire meanwhile"),
    ("client|setinfo", "of Redis 7.2; checked and not kept"),
    (
        "client|tracking",
        "an invalidation per key, where Redis gathers those of one turn of its loop in `BCAST` mode, whose prefixes must be \
         such that the user may read all keys there",
    ),
    ("client|unblock", "always 0: no command blocks"),
    ("command|docs", "always empty"),
    ("config|get", "the parameters in `docs/store.md`"),
    ("config|resetstat", "for `INFO`; `/metrics` goes on"),
    ("config|rewrite", "rewrites the TOML file that the server was started with"),
    ("config|set", "the parameters in `docs/store.md`"),
    (
        "exec",
        "refused as a whole where the user's rights have changed since `MULTI`; a reply beyond 64 MiB is left out part by part; `SLOWLOG` has the transaction's time in no entry",
    ),
    ("flushall", "`SYNC` and `ASYNC` do the same"),
    ("flushdb", "`SYNC` and `ASYNC` do the same"),
    ("hexpire", "of Redis 7.4, as its relatives are"),
    ("info", "Redis's fields where they have a meaning here, and a section of its own for the tiers"),
    (
        "keys",
        "only those that the user may read; goes through the whole index while nothing else runs; refused beyond a reply of 64 MiB, and where more than 10,000 keys lie on flash",
    ),
    ("lastsave", "the start's time until a snapshot was written"),
    ("latency|doctor", "a few plain sentences"),
    ("latency|histogram", "only while `latency-tracking` is on, which it is not by default"),
    ("latency|latest", "the events are `command`, `fast-command` and `expire-cycle`"),
    ("memory|usage", "the place that the item has in its tier and its share of the metadata"),
    ("monitor", "the time is that of the batch in which the request came"),
    (
        "multi",
        "the queue counts as an unfinished request: it ends in an error at 32 MiB, or when all clients' requests together \
               have no room left",
    ),
    (
        "object|encoding",
        "what Redis would choose for the value as it is now: a string that was appended to may be `embstr`",
    ),
    ("object|freq", "always the error that no LFU policy is selected"),
    (
        "object|idletime",
        "from the count of requests since, by the times at which the store had served how many",
    ),
    ("object|refcount", "always 1, where Redis shares small numbers"),
    (
        "randomkey",
        "of the keys in memory that the user may read; looks through the whole index when few keys are in this database",
    ),
    ("rename", "the events are `rename_to`, then `rename_from`"),
    ("save", "as `BGSAVE`, and nothing else runs meanwhile"),
    (
        "scan",
        "only keys that the user may read; `COUNT` is at most 10000; a cursor is a place in the order of hashes",
    ),
    ("shutdown", "`SAVE` and `NOSAVE` are about the snapshot; `NOW` and `FORCE` change nothing"),
    (
        "slowlog|get",
        "fast requests of one pipeline are timed in runs of 64, and a run's time stands with its last request; \
                     a threshold below 1 ms times each",
    ),
    ("subscribe", "names, subscriptions and watched keys of all clients together may take 16 MiB"),
    ("tenants", "of our own: what each tenant asks for and has, as lines or with `JSON`"),
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

This file is written by `make docs` from the table of commands in the code; a test fails when it is stale. Replies and errors are
those of Redis 7.0 but for what the notes say; `tests/e2e/test_dialogues.py` and `crates/store/tests/differential.rs` ask both
servers and compare. Commands that are not here get Redis's own \"unknown command\".

Arguments count the command's name; a minus means \"at least\". Flags are those of `COMMAND INFO`.

What no command is asked: values are at most `max_value` (16 MiB) long and keys 65535 bytes; there are 16 databases, no
scripts, no replicas, no persistence but that of a flash tier. What differs with several shards says docs/store.md.
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
