//! Logs of memcached, as a client that says `watch fetchers` or `watch mutations` receives them: lines of `name=value`.
//!
//! `type=item_get` is a get, `type=item_store` with `status=stored` a set, `type=item_delete` a deletion; a store that was
//! refused and all other events are no accesses. Keys are percent-encoded and are decoded before they become hashes. With both
//! watchers on, memcached also logs the look-up that each store begins with. Fields are described in memcached's
//! `doc/protocol.txt`, "Watchers".

use tiermem_base::hash::trace_key;
use tiermem_base::{Access, Op};

use crate::BadRecord;
use crate::reader::core::clock::{Clock, MICROSECOND_NS, SECOND_NS};
use crate::reader::core::fields::{malformed, number, number_u32, out_of_range};
use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::lines::{LineFormat, LineOut};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "memcached-watch",
    about: "memcached watch fetchers / mutations: ts= gid= type= key= ...",
    file_names: &[],
    open: Open::Text(|_| Box::new(MemcachedWatch::default())),
};

#[derive(Default)]
struct MemcachedWatch {
    clock: Clock,
    key: Vec<u8>,
}

/// `seconds.microseconds`, of which memcached does not pad the second: `199.42` is 42 microseconds past 199.
fn timestamp_ns(text: &[u8]) -> Result<u64, BadRecord> {
    let point =
        memchr::memchr(b'.', text).ok_or_else(|| malformed("a time such as 1795274198.662638", text))?;
    let seconds = number("ts", &text[..point])?;
    let micros = number("ts", &text[point + 1..])?;
    let fits = micros < SECOND_NS / MICROSECOND_NS;
    let whole = seconds.checked_mul(SECOND_NS).filter(|_| fits);
    whole.and_then(|ns| ns.checked_add(micros * MICROSECOND_NS)).ok_or_else(|| out_of_range("ts", text))
}

fn hex_digit(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|digit| digit as u8)
}

/// Undoes percent-encoding; `None` if a `%` is not followed by two digits.
fn decode(text: &[u8], key: &mut Vec<u8>) -> Option<()> {
    key.clear();
    let mut rest = text;
    while let [first, after @ ..] = rest {
        if *first != b'%' {
            key.push(*first);
            rest = after;
            continue;
        }
        let [high, low, after @ ..] = after else { return None };
        key.push(hex_digit(*high)? << 4 | hex_digit(*low)?);
        rest = after;
    }
    Some(())
}

impl LineFormat for MemcachedWatch {
    fn line(&mut self, _: u64, line: &[u8], out: &mut LineOut<'_>) -> Result<(), BadRecord> {
        // The server's answer to `watch`.
        if line == b"OK" {
            out.note();
            return Ok(());
        }
        let (mut ts, mut kind, mut key, mut status) = (None, None, None, None);
        let (mut size, mut ttl) = (None, None);
        for part in line.split(|byte| *byte == b' ').filter(|part| !part.is_empty()) {
            let equals = memchr::memchr(b'=', part).ok_or_else(|| malformed("name=value", part))?;
            let (name, value) = (&part[..equals], &part[equals + 1..]);
            let field = match name {
                b"ts" => &mut ts,
                b"type" => &mut kind,
                b"key" => &mut key,
                b"status" => &mut status,
                b"size" => &mut size,
                b"ttl" => &mut ttl,
                _ => continue,
            };
            *field = Some(value);
        }
        let (Some(ts), Some(kind)) = (ts, kind) else {
            return Err(malformed("a line of memcached's watch with ts= and type=", line));
        };
        let at_ns = timestamp_ns(ts)?;
        let op = match (kind, status) {
            (b"item_get", _) => Op::Get,
            (b"item_store", Some(b"stored")) => Op::Set,
            (b"item_delete" | b"deleted", _) => Op::Del,
            _ => {
                out.note();
                return Ok(());
            }
        };
        let key = key.ok_or_else(|| malformed("a line of memcached's watch with key=", line))?;
        decode(key, &mut self.key).ok_or_else(|| malformed("a percent-encoded key", key))?;
        // The protocol allows keys of 250 bytes.
        let key_size = u16::try_from(self.key.len()).map_err(|_| out_of_range("key", key))?;
        let size = size.map_or(Ok(0), |size| number_u32("size", size))?;
        let ttl_s = match ttl {
            None | Some(b"-1") => 0,
            Some(ttl) => number_u32("ttl", ttl)?,
        };
        let access = Access::new(self.clock.since_start(at_ns), op, trace_key(&self.key), size);
        out.push(Access { ttl_s, key_size, ..access });
        Ok(())
    }

    fn line_bytes_max(&self) -> usize {
        4096
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
        read_with(Box::new(MemcachedWatch::default()), text.as_bytes())
    }

    #[test]
    fn events_become_accesses() {
        let text = "OK\n\
            ts=1795274198.662638 gid=2 type=item_get key=foo status=not_found clsid=0 cfd=25 size=0\n\
            ts=1795274198.662646 gid=3 type=item_store key=foo status=stored cmd=set ttl=60 clsid=1 cfd=25 size=5\n\
            ts=1795274199.13624 gid=14 type=item_store key=foo status=not_stored cmd=add ttl=0 clsid=1 cfd=25 size=3\n\
            ts=1795274199.13630 gid=15 type=item_get key=a%20b status=found clsid=1 cfd=25 size=5\n\
            ts=1795274199.20000 gid=16 type=eviction key=foo fetch=yes ttl=0 la=0 clsid=1 size=5\n";
        let get = |time_ns, key: &[u8], size| Access {
            key_size: key.len() as u16,
            ..Access::get(time_ns, trace_key(key), size)
        };
        let set = Access { op: Op::Set, ttl_s: 60, ..get(8000, b"foo", 5) };
        // The fraction is a count of microseconds: .13630 is 13.63 ms.
        assert_eq!(read(text), [Ok(get(0, b"foo", 0)), Ok(set), Ok(get(350_992_000, b"a b", 5))]);
    }

    #[test]
    fn broken_lines_say_what_they_lack() {
        for (line, wanted) in [
            ("gid=2 type=item_get key=foo", "with ts= and type="),
            ("ts=1.2 type=item_get", "with key="),
            ("ts=1 type=item_get key=a", "a time such as"),
            ("ts=1.9999999 type=item_get key=a", "`ts` is out of range"),
            ("ts=1.2 type=item_get key=a%2", "percent-encoded"),
            ("hello world", "name=value"),
            ("", "with ts= and type="),
        ] {
            let error = read(&format!("{line}\n")).remove(0).unwrap_err();
            assert!(error.contains(wanted), "{line}: {error}");
        }
    }
}
