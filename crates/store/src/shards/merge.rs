//! Merging of several shards' replies into one.

use crate::resp::{Elements, Version, Writer, parse_i64, whole_line};

/// How replies of several shards are merged. An error among them is the reply, the first one in the order of shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merge {
    /// There is one part, which is the reply.
    Only,
    /// Numbers are added up.
    Sum,
    /// All say the same, or one has an error.
    Same,
    /// One that succeeded, if there is one; else the first.
    AnySuccess,
    /// One of the parts that are not null, the first from this part on.
    NonNull(usize),
    /// Arrays one behind the other.
    Arrays,
    /// Arrays of arrays that begin with a number and a time: by time, the newest first, at most this number.
    Newest(usize),
    /// Strings one behind the other.
    Texts,
    /// Arrays of different elements, each once.
    Distinct,
    /// Arrays of name, number, name, number: the same names, numbers added up.
    Counts,
    /// Array elements in the order of the keys: for each key which part has it.
    Interleave(Vec<u16>),
    /// A scan's reply, with a cursor of this shard.
    Cursor {
        /// The shard that was asked.
        shard: usize,
        /// How many there are.
        shards: usize,
    },
}

/// Bits of a cursor within a shard; those above name the shard.
const CURSOR_BITS: u32 = 40;

/// The shard that a scan's cursor is about, and the cursor there.
pub fn split_cursor(cursor: u64) -> (usize, u64) {
    ((cursor >> CURSOR_BITS) as usize, cursor & ((1 << CURSOR_BITS) - 1))
}

/// The cursor with which a scan continues; 0 ends it.
fn join_cursor(shard: usize, shards: usize, next: u64) -> u64 {
    match next {
        0 if shard + 1 < shards => (shard as u64 + 1) << CURSOR_BITS,
        0 => 0,
        next => (shard as u64) << CURSOR_BITS | next,
    }
}

impl Merge {
    /// The one reply. `parts` are whole replies in the order of the shards that were asked.
    pub fn apply(&self, parts: &[Vec<u8>], version: Version) -> Vec<u8> {
        if let Merge::AnySuccess = self {
            return parts.iter().find(|part| !is_error(part)).or(parts.first()).cloned().unwrap_or_default();
        }
        if let Some(error) = parts.iter().find(|part| is_error(part)) {
            return error.clone();
        }
        let mut reply = Vec::new();
        let mut writer = Writer::new(&mut reply, version);
        match self {
            Merge::Sum => writer.integer(parts.iter().filter_map(|part| integer(part)).sum()),
            Merge::Only | Merge::Same | Merge::AnySuccess => {
                return parts.first().cloned().unwrap_or_default();
            }
            Merge::NonNull(from) => {
                let turned = parts[*from % parts.len()..].iter().chain(parts);
                return turned
                    .clone()
                    .find(|part| !is_null(part))
                    .or(parts.first())
                    .cloned()
                    .unwrap_or_default();
            }
            Merge::Texts => {
                let texts: Vec<&[u8]> = parts.iter().map(|part| text(part)).collect();
                writer.verbatim(&texts.concat());
            }
            Merge::Arrays => {
                let elements: Vec<&[u8]> = parts.iter().flat_map(|part| Elements::of(part)).collect();
                writer.array(elements.len());
                elements.iter().for_each(|element| reply.extend_from_slice(element));
            }
            Merge::Newest(most) => {
                let mut elements: Vec<&[u8]> = parts.iter().flat_map(|part| Elements::of(part)).collect();
                let time = |element: &[u8]| Elements::of(element).nth(1).and_then(integer);
                // Stable: what one shard puts first stays first.
                elements.sort_by_key(|element| core::cmp::Reverse(time(element)));
                elements.truncate(*most);
                writer.array(elements.len());
                elements.iter().for_each(|element| reply.extend_from_slice(element));
            }
            Merge::Distinct => {
                let elements: std::collections::BTreeSet<&[u8]> =
                    parts.iter().flat_map(|part| Elements::of(part)).collect();
                writer.array(elements.len());
                elements.iter().for_each(|element| reply.extend_from_slice(element));
            }
            Merge::Counts => {
                let sums = sums_by_name(parts);
                writer.array(2 * sums.len());
                for (name, count) in sums {
                    reply.extend_from_slice(name);
                    Writer::new(&mut reply, version).integer(count);
                }
            }
            Merge::Interleave(order) => {
                let mut parts: Vec<Elements<'_>> = parts.iter().map(|part| Elements::of(part)).collect();
                writer.array(order.len());
                for &part in order {
                    reply.extend_from_slice(parts[usize::from(part)].next().unwrap_or(b"$-1\r\n"));
                }
            }
            Merge::Cursor { shard, shards } => {
                let mut elements = Elements::of(parts.first().map_or(&[], Vec::as_slice));
                let next = elements.next().map(text).and_then(crate::resp::parse_u64_digits).unwrap_or(0);
                writer.array(2);
                writer.bulk(itoa::Buffer::new().format(join_cursor(*shard, *shards, next)).as_bytes());
                reply.extend_from_slice(elements.next().unwrap_or(b"*0\r\n"));
            }
        }
        reply
    }
}

/// Names and counts of the first shard, with the counts of the
/// others added: they answer with the same names in the same order.
fn sums_by_name(parts: &[Vec<u8>]) -> Vec<(&[u8], i64)> {
    let mut sums: Vec<(&[u8], i64)> = Vec::new();
    for (which, part) in parts.iter().enumerate() {
        let mut elements = Elements::of(part);
        let mut at = 0;
        while let (Some(name), Some(count)) = (elements.next(), elements.next()) {
            let count = integer(count).unwrap_or(0);
            if which == 0 {
                sums.push((name, count));
            } else if let Some(sum) = sums.get_mut(at) {
                sum.1 += count;
            }
            at += 1;
        }
    }
    sums
}

fn is_error(reply: &[u8]) -> bool {
    reply.first() == Some(&b'-')
}

fn is_null(reply: &[u8]) -> bool {
    reply == b"$-1\r\n" || reply == b"_\r\n"
}

fn integer(reply: &[u8]) -> Option<i64> {
    parse_i64(whole_line(reply).strip_prefix(b":")?)
}

/// The bytes of a string; of a verbatim one without the word for its kind.
fn text(reply: &[u8]) -> &[u8] {
    let head = whole_line(reply).len() + 2;
    let bytes = reply.get(head..reply.len().saturating_sub(2)).unwrap_or_default();
    if reply.first() == Some(&b'=') { bytes.get(4..).unwrap_or_default() } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(merge: Merge, parts: &[&str]) -> String {
        let parts: Vec<Vec<u8>> = parts.iter().map(|part| part.as_bytes().to_vec()).collect();
        String::from_utf8(merge.apply(&parts, Version::Resp2)).unwrap()
    }

    #[test]
    fn replies_are_merged() {
        assert_eq!(merged(Merge::Sum, &[":1\r\n", ":41\r\n"]), ":42\r\n");
        assert_eq!(merged(Merge::Sum, &[":1\r\n", "-ERR no\r\n"]), "-ERR no\r\n");
        assert_eq!(merged(Merge::Same, &["+OK\r\n", "+OK\r\n"]), "+OK\r\n");
        assert_eq!(merged(Merge::AnySuccess, &["-ERR no\r\n", "+OK\r\n"]), "+OK\r\n");
        assert_eq!(merged(Merge::AnySuccess, &["-ERR no\r\n", "-ERR no\r\n"]), "-ERR no\r\n");
        assert_eq!(merged(Merge::NonNull(1), &["$1\r\na\r\n", "$-1\r\n"]), "$1\r\na\r\n");
        assert_eq!(merged(Merge::NonNull(0), &["$-1\r\n", "$-1\r\n"]), "$-1\r\n");
        assert_eq!(merged(Merge::Texts, &["$2\r\na\n\r\n", "=6\r\ntxt:b\n\r\n"]), "$4\r\na\nb\n\r\n");
        assert_eq!(
            merged(Merge::Arrays, &["*1\r\n$1\r\na\r\n", "*0\r\n", "*1\r\n*1\r\n:1\r\n"]),
            "*2\r\n$1\r\na\r\n*1\r\n:1\r\n"
        );
        let entry = |id: u32, time: u32| format!("*3\r\n:{id}\r\n:{time}\r\n+x\r\n");
        assert_eq!(
            merged(
                Merge::Newest(2),
                &[&format!("*2\r\n{}{}", entry(1, 90), entry(0, 20)), &format!("*1\r\n{}", entry(0, 50))]
            ),
            format!("*2\r\n{}{}", entry(1, 90), entry(0, 50))
        );
        assert_eq!(merged(Merge::Distinct, &["*1\r\n+b\r\n", "*2\r\n+a\r\n+b\r\n"]), "*2\r\n+a\r\n+b\r\n");
        assert_eq!(
            merged(Merge::Counts, &["*4\r\n+a\r\n:1\r\n+a\r\n:1\r\n", "*4\r\n+a\r\n:2\r\n+a\r\n:2\r\n"]),
            "*4\r\n+a\r\n:3\r\n+a\r\n:3\r\n"
        );
        assert_eq!(
            merged(Merge::Interleave(vec![1, 0, 1]), &["*1\r\n$1\r\nb\r\n", "*2\r\n$-1\r\n$1\r\nc\r\n"]),
            "*3\r\n$-1\r\n$1\r\nb\r\n$1\r\nc\r\n"
        );
        let scanned = |next: u64| format!("*2\r\n${}\r\n{next}\r\n*1\r\n$1\r\nk\r\n", next.to_string().len());
        let cursor = |shard| Merge::Cursor { shard, shards: 2 };
        assert_eq!(merged(cursor(0), &[&scanned(7)]), scanned(7));
        assert_eq!(merged(cursor(0), &[&scanned(0)]), scanned(1 << CURSOR_BITS));
        assert_eq!(merged(cursor(1), &[&scanned(7)]), scanned(1 << CURSOR_BITS | 7));
        assert_eq!(merged(cursor(1), &[&scanned(0)]), scanned(0));
        assert_eq!(split_cursor(1 << CURSOR_BITS | 7), (1, 7));
    }
}
