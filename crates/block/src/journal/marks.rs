//! Marks in a record: which labels a volume's store may have.

use tiermem_policy::extents::pairing::{Mark, Marks};

use super::bytes::u64_at;

/// Bytes of marks: flags, two marks.
pub(super) const MARKS_BYTES: usize = 1 + 2 * MARK_BYTES;
const MARK_BYTES: usize = 24;

const HAS_OWN: u8 = 1;
const HAS_BEFORE: u8 = 2;
/// The label before is one, and not none.
const BEFORE_IS_MARK: u8 = 4;

/// Appends their bytes.
pub(super) fn put_marks(out: &mut Vec<u8>, marks: &Marks) {
    let flag = |flag: u8, is_set: bool| if is_set { flag } else { 0 };
    let before = marks.before.flatten();
    out.push(
        flag(HAS_OWN, marks.own.is_some())
            | flag(HAS_BEFORE, marks.before.is_some())
            | flag(BEFORE_IS_MARK, before.is_some()),
    );
    for mark in [marks.own, before] {
        let Mark { cache, generation } = mark.unwrap_or(Mark { cache: 0, generation: 0 });
        out.extend_from_slice(&cache.to_le_bytes());
        out.extend_from_slice(&generation.to_le_bytes());
    }
}

/// Reads them; `None`: these bytes are none.
pub(super) fn read_marks(bytes: &[u8]) -> Option<Marks> {
    let flags = bytes[0];
    let mark = |at: usize| {
        let cache = u128::from(u64_at(bytes, at)) | u128::from(u64_at(bytes, at + 8)) << 64;
        Mark { cache, generation: u64_at(bytes, at + 16) }
    };
    let has = |flag: u8| flags & flag != 0;
    if flags & !(HAS_OWN | HAS_BEFORE | BEFORE_IS_MARK) != 0 || has(BEFORE_IS_MARK) && !has(HAS_BEFORE) {
        return None;
    }
    Some(Marks {
        own: has(HAS_OWN).then(|| mark(1)),
        before: has(HAS_BEFORE).then(|| has(BEFORE_IS_MARK).then(|| mark(1 + MARK_BYTES))),
    })
}
