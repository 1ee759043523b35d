//! Logs of `redis-cli monitor`: `1795274197.447399 [0 127.0.0.1:59904] "SET" "user:1" "hello" "EX" "60"`.
//!
//! A command gives one record per key; the database is the tenant. The log does not contain the sizes of values that are read, so
//! reads have size 0, as have writes that change a part. Commands without keys are no accesses; unknown commands (modules) are
//! broken lines, because it is not known which of their arguments are keys. Arguments are escaped as Redis' `sdscatrepr` does it.

use std::ops::Range;

use tiermem_base::hash::trace_key;
use tiermem_base::{Access, Op};

use super::redis_commands::{Command, Keys, Size, Ttl, find};
use crate::BadRecord;
use crate::reader::core::clock::{Clock, SECOND_NS};
use crate::reader::core::fields::{excerpt, malformed, number, number_u32, out_of_range, time_ns};
use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::lines::{LineFormat, LineOut};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "redis-monitor",
    about: "redis-cli monitor: a record per key of each command",
    file_names: &[],
    open: Open::Text(|_| Box::new(RedisMonitor::default())),
};

/// A log prints values in full.
const LINE_BYTES_MAX: usize = 16 << 20;

#[derive(Default)]
struct RedisMonitor {
    clock: Clock,
    /// The arguments of one command, unescaped, one behind the other.
    bytes: Vec<u8>,
    arguments: Vec<Range<usize>>,
}

/// The arguments of one command by their places.
struct Arguments<'a> {
    bytes: &'a [u8],
    ranges: &'a [Range<usize>],
}

impl<'a> Arguments<'a> {
    fn get(&self, at: usize) -> Option<&'a [u8]> {
        Some(&self.bytes[self.ranges.get(at)?.clone()])
    }

    fn len(&self) -> usize {
        self.ranges.len()
    }

    fn word_at(&self, word: &[u8], from: usize) -> Option<usize> {
        (from..self.len())
            .find(|at| self.get(*at).is_some_and(|argument| argument.eq_ignore_ascii_case(word)))
    }
}

impl RedisMonitor {
    /// Reads `"a" "b" ...` into the arguments.
    fn unescape(&mut self, text: &[u8]) -> Option<()> {
        self.bytes.clear();
        self.arguments.clear();
        let mut rest = text.trim_ascii_end();
        while !rest.is_empty() {
            rest = rest.strip_prefix(b" ").unwrap_or(rest).strip_prefix(b"\"")?;
            let start = self.bytes.len();
            loop {
                let special = memchr::memchr2(b'"', b'\\', rest)?;
                self.bytes.extend_from_slice(&rest[..special]);
                let (found, after) = (rest[special], &rest[special + 1..]);
                rest = after;
                if found == b'"' {
                    break;
                }
                let (escaped, after) = rest.split_first()?;
                rest = after;
                self.bytes.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 0x07,
                    b'b' => 0x08,
                    b'x' => {
                        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                        rest = &rest[2..];
                        u8::from_str_radix(digits, 16).ok()?
                    }
                    b'"' | b'\\' => *escaped,
                    _ => return None,
                });
            }
            self.arguments.push(start..self.bytes.len());
        }
        (!self.arguments.is_empty()).then_some(())
    }
}

/// The places of a command's keys, and what is done to each; `None` if arguments are missing.
fn keys_of(command: &Command, arguments: &Arguments<'_>) -> Option<Vec<(usize, Op)>> {
    let len = arguments.len();
    let all = |range: Range<usize>, op| range.map(|at| (at, op)).collect::<Vec<_>>();
    let counted = |at: usize| {
        let count = number("numkeys", arguments.get(at)?).ok()?;
        let end = usize::try_from(count).ok()?.checked_add(at + 1).filter(|end| *end <= len)?;
        Some(at + 1..end)
    };
    let op = command.op;
    let keys = match command.keys {
        Keys::None => return Some(Vec::new()),
        Keys::At(at) => all(at..at + 1, op),
        Keys::From(at) => all(at..len, op),
        Keys::Pairs if len % 2 == 1 => (1..len).step_by(2).map(|at| (at, op)).collect(),
        Keys::Pairs => return None,
        Keys::AllButLast => all(1..len.checked_sub(1)?, op),
        Keys::Counted(at) => all(counted(at)?, op),
        Keys::StoreCounted => [all(1..2, Op::Set), all(counted(2)?, Op::Get)].concat(),
        Keys::StoreFrom => [all(1..2, Op::Set), all(2..len, Op::Get)].concat(),
        Keys::WriteRead => vec![(1, Op::Set), (2, Op::Get)],
        Keys::ReadWrite => vec![(1, Op::Get), (2, Op::Set)],
        Keys::Rename => vec![(1, Op::Del), (2, Op::Set)],
        Keys::Streams => {
            let first = arguments.word_at(b"STREAMS", 1)? + 1;
            all(first..first + (len - first) / 2, op)
        }
    };
    (!keys.is_empty() && keys.iter().all(|(at, _)| *at < len)).then_some(keys)
}

fn ttl_s(command: &Command, arguments: &Arguments<'_>) -> u32 {
    let (place, millis) = match command.ttl {
        Ttl::None => return 0,
        Ttl::Seconds(at) => (Some(at), false),
        Ttl::Millis(at) => (Some(at), true),
        Ttl::Words(from) => match arguments.word_at(b"EX", from) {
            Some(at) => (Some(at + 1), false),
            None => (arguments.word_at(b"PX", from).map(|at| at + 1), true),
        },
    };
    // A command that Redis refused is in the log as well: a time that is none means no limit.
    let ttl = place.and_then(|at| arguments.get(at)).and_then(|text| number("ttl", text).ok()).unwrap_or(0);
    let seconds = if millis { ttl.div_ceil(1000) } else { ttl };
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

impl LineFormat for RedisMonitor {
    fn line(&mut self, _: u64, line: &[u8], out: &mut LineOut<'_>) -> Result<(), BadRecord> {
        const WANTED: &str =
            "a line of redis-cli monitor such as `1339518083.107412 [0 127.0.0.1:60866] \"get\" \"key\"`";
        // The server's answer to MONITOR.
        if line == b"OK" {
            out.note();
            return Ok(());
        }
        let broken = || malformed(WANTED, line);
        let open = memchr::memmem::find(line, b" [").ok_or_else(broken)?;
        let close = memchr::memmem::find(line, b"] ").filter(|close| *close > open).ok_or_else(broken)?;
        let at_ns = time_ns("time", &line[..open], SECOND_NS)?;
        let client = &line[open + 2..close];
        let database = client.split(|byte| *byte == b' ').next().unwrap_or_default();
        let tenant = number_u32("database", database)?;
        self.unescape(&line[close + 2..]).ok_or_else(broken)?;
        let arguments = Arguments { bytes: &self.bytes, ranges: &self.arguments };
        let name = arguments.get(0).unwrap_or_default();
        let command = find(name).ok_or_else(|| BadRecord::UnknownOp { text: excerpt(name) })?;
        let keys =
            keys_of(command, &arguments).ok_or_else(|| malformed("a command with all its keys", line))?;
        if let Some((at, _)) = keys.iter().find(|(at, _)| arguments.get(*at).map_or(0, <[u8]>::len) > 0xffff)
        {
            // Redis allows longer ones; the record's column does not, and they are not used in practice.
            return Err(out_of_range("key", arguments.get(*at).unwrap_or_default()));
        }
        let length = |at: usize| arguments.get(at).map_or(0, <[u8]>::len);
        let sum: usize = match command.size {
            Size::Unknown | Size::Next => 0,
            Size::Of(at) => length(at),
            Size::From(at) => (at..arguments.len()).map(length).sum(),
        };
        let ttl_s = ttl_s(command, &arguments);
        if keys.is_empty() {
            out.note();
            return Ok(());
        }
        let time_ns = self.clock.since_start(at_ns);
        for (at, op) in keys {
            let key = arguments.get(at).unwrap_or_default();
            let size = if command.size == Size::Next { length(at + 1) } else { sum };
            // A line is shorter than 4 GiB, and so is what it holds.
            let access = Access::new(time_ns, op, trace_key(key), size as u32);
            out.push(Access { tenant, ttl_s, key_size: key.len() as u16, ..access });
        }
        Ok(())
    }

    fn line_bytes_max(&self) -> usize {
        LINE_BYTES_MAX
    }

    fn steps_back(&self) -> u64 {
        self.clock.steps_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::core::lines::tests::read_with;

    fn read(text: &str) -> Vec<Result<Access, String>> {
        read_with(Box::<RedisMonitor>::default(), text.as_bytes())
    }

    /// The records of one command in database 0, as operation, key and size.
    fn records(command: &str) -> Vec<(Op, u64, u32)> {
        let words: Vec<String> = command.split(' ').map(|word| format!("\"{word}\"")).collect();
        let line = format!("1.000001 [0 127.0.0.1:59904] {}\n", words.join(" "));
        read(&line).into_iter().map(|record| record.map(|it| (it.op, it.key, it.size)).unwrap()).collect()
    }

    #[test]
    fn commands_become_one_record_per_key() {
        let key = |name: &str| trace_key(name.as_bytes());
        let (a, b, c) = (key("a"), key("b"), key("c"));
        for (command, wanted) in [
            ("GET a", vec![(Op::Get, a, 0)]),
            ("set a hello EX 60", vec![(Op::Set, a, 5)]),
            ("MSET a 1 b 22", vec![(Op::Set, a, 1), (Op::Set, b, 2)]),
            ("MGET a b c", vec![(Op::Get, a, 0), (Op::Get, b, 0), (Op::Get, c, 0)]),
            ("UNLINK a b", vec![(Op::Del, a, 0), (Op::Del, b, 0)]),
            ("HSET a f1 v1 f2 v2", vec![(Op::Set, a, 8)]),
            ("BLPOP a b 0", vec![(Op::Set, a, 0), (Op::Set, b, 0)]),
            ("ZUNIONSTORE a 2 b c WEIGHTS 1 2", vec![(Op::Set, a, 0), (Op::Get, b, 0), (Op::Get, c, 0)]),
            ("ZRANGESTORE a b 0 -1", vec![(Op::Set, a, 0), (Op::Get, b, 0)]),
            ("SINTERSTORE a b c", vec![(Op::Set, a, 0), (Op::Get, b, 0), (Op::Get, c, 0)]),
            ("XREAD COUNT 2 STREAMS a b 0 0", vec![(Op::Get, a, 0), (Op::Get, b, 0)]),
            ("RENAME a b", vec![(Op::Del, a, 0), (Op::Set, b, 0)]),
            ("OBJECT ENCODING a", vec![(Op::Get, a, 0)]),
            ("PING", vec![]),
            ("SCAN 0", vec![]),
        ] {
            assert_eq!(records(command), wanted, "{command}");
        }
    }

    #[test]
    fn arguments_are_unescaped_and_databases_are_tenants() {
        let text = "OK\n1795274197.5 [2 127.0.0.1:1] \"SETEX\" \"\\xff\\n\\\"q\\\\\" \"30\" \"v\\x00l\"\n\
                    1795274198.5 [11 lua] \"get\" \"sp ace\"\n1795274198.6 [0 unix:/tmp/redis.sock] \"PSETEX\" \"k\" \"1500\" \"\"\n";
        let set = Access {
            tenant: 2,
            ttl_s: 30,
            key_size: 5,
            ..Access::new(0, Op::Set, trace_key(b"\xff\n\"q\\"), 3)
        };
        let get = Access { tenant: 11, key_size: 6, ..Access::get(1_000_000_000, trace_key(b"sp ace"), 0) };
        let empty =
            Access { ttl_s: 2, key_size: 1, ..Access::new(1_100_000_000, Op::Set, trace_key(b"k"), 0) };
        assert_eq!(read(text), [Ok(set), Ok(get), Ok(empty)]);
    }

    #[test]
    fn broken_lines_are_named() {
        for (line, wanted) in [
            ("1.0 [0 127.0.0.1:1] \"GET", "not a line of redis-cli monitor"),
            ("1.0 [0 127.0.0.1:1] GET a", "not a line of redis-cli monitor"),
            ("1.0 [0 127.0.0.1:1] \"GET\" \"\\xz1\"", "not a line of redis-cli monitor"),
            ("1.0 [x 127.0.0.1:1] \"GET\" \"a\"", "`database` is not a number"),
            ("x [0 127.0.0.1:1] \"GET\" \"a\"", "`time` is not a number"),
            ("1.0 [0 127.0.0.1:1] \"JSON.GET\" \"a\"", "no operation \"JSON.GET\""),
            ("1.0 [0 127.0.0.1:1] \"GET\"", "a command with all its keys"),
            ("1.0 [0 127.0.0.1:1] \"MSET\" \"a\" \"1\" \"b\"", "a command with all its keys"),
            ("1.0 [0 127.0.0.1:1] \"ZUNION\" \"99999999999999999999\" \"b\"", "a command with all its keys"),
            ("1.0 [0 127.0.0.1:1] \"XREAD\" \"STREAMS\"", "a command with all its keys"),
            ("", "not a line of redis-cli monitor"),
        ] {
            let error = read(&format!("{line}\n")).remove(0).unwrap_err().replace("this is not", "not");
            assert!(error.contains(wanted), "{line}: {error}");
        }
    }
}
