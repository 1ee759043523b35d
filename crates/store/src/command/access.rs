//! Key access of commands, reading or writing as in Redis's key
//! specifications: ACL rules about keys tell the two apart.

use super::spec::{Flags, Spec};
use crate::resp::Args;
use crate::users::Access;

/// Commands that only ask whether a key is there, and how its value is kept, not what it is.
const ASKING: [&str; 8] = ["exists", "hexists", "hlen", "hstrlen", "strlen", "touch", "type", "watch"];
/// Commands that write and reply with the old or the new value.
const READING_WRITERS: [&str; 10] = [
    "decr",
    "decrby",
    "getdel",
    "getex",
    "getset",
    "hincrby",
    "hincrbyfloat",
    "incr",
    "incrby",
    "incrbyfloat",
];

/// What it does with the key that it names in this place, counted from 0.
pub(super) fn of_key(spec: &Spec, args: Args<'_>, place: usize) -> Access {
    match spec.name {
        // `OBJECT` and `MEMORY USAGE`.
        _ if !spec.container.is_empty() => Access::ASK,
        "copy" if place == 0 => Access::READ,
        "rename" | "renamenx" if place == 0 => Access::BOTH,
        "set" if args.iter_from(3).any(|word| word.eq_ignore_ascii_case(b"get")) => Access::BOTH,
        name if ASKING.contains(&name) => Access::ASK,
        name if READING_WRITERS.contains(&name) => Access::BOTH,
        _ if spec.flags.contains(Flags::WRITE) => Access::WRITE,
        _ => Access::READ,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::table::{COMMANDS, lookup};
    use crate::resp::Request;

    #[test]
    fn keys_are_read_written_or_only_asked_about() {
        for (words, expected) in [
            ("GET k", vec![Access::READ]),
            ("SET k v", vec![Access::WRITE]),
            ("SET k get", vec![Access::WRITE]),
            ("SET k v NX GET", vec![Access::BOTH]),
            ("COPY a b", vec![Access::READ, Access::WRITE]),
            ("RENAME a b", vec![Access::BOTH, Access::WRITE]),
            ("EXISTS a b", vec![Access::ASK, Access::ASK]),
            ("TTL a", vec![Access::READ]),
            ("DEL a", vec![Access::WRITE]),
            ("INCR a", vec![Access::BOTH]),
            ("HSET a f v", vec![Access::WRITE]),
        ] {
            let request = Request::of(words.split(' ').map(str::as_bytes));
            let spec = lookup(&request.args()[0]).unwrap();
            for (place, access) in expected.into_iter().enumerate() {
                assert_eq!(of_key(spec, request.args(), place), access, "{words}");
            }
        }
    }

    #[test]
    fn every_name_is_a_commands() {
        for name in ASKING.iter().chain(&READING_WRITERS) {
            assert!(COMMANDS.iter().any(|spec| spec.name == *name && spec.keys.0 > 0), "{name}");
        }
    }
}
