//! Entry or hole of a blob: its layout, reading and writing it.

use core::ops::Range;

use super::Broken;
use super::head::{put_u48, u48_at};

const EXPIRES: u8 = 1 << 4;
const HOLE: u8 = 1 << 7;
const EXPIRY_BYTES: usize = 6;

/// An entry that lies within the blob entirely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Where it begins.
    pub(super) at: usize,
    /// Where it ends.
    pub(super) end: usize,
    /// What it is, unless a hole.
    pub(super) parts: Option<Parts>,
}

/// What a live entry is made of, as places in the blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) field: Range<usize>,
    pub(super) value: Range<usize>,
    /// Where the expiry lies, for an entry that may expire, and what it is; 0 is never.
    pub(super) expiry: Option<(usize, u64)>,
}

impl Parts {
    /// When it expires, in Unix ms; 0 is never.
    pub(super) fn expires_ms(&self) -> u64 {
        self.expiry.map_or(0, |(_, at_ms)| at_ms)
    }

    pub(super) fn is_over(&self, now_ms: u64) -> bool {
        let at_ms = self.expires_ms();
        at_ms != 0 && at_ms <= now_ms
    }
}

impl Entry {
    pub(super) fn len(&self) -> usize {
        self.end - self.at
    }

    /// Reads the entry at `at`, which must end at or before `used`.
    #[inline]
    pub(super) fn read(bytes: &[u8], at: usize, used: usize) -> Result<Self, Broken> {
        let bytes = bytes.get(..used).ok_or(Broken)?;
        let flags = *bytes.get(at).ok_or(Broken)?;
        let mut next = at + 1;
        let first = length(bytes, &mut next, flags & 3)?;
        if flags & HOLE != 0 {
            let end = next + first;
            return if end <= used { Ok(Entry { at, end, parts: None }) } else { Err(Broken) };
        }
        let second = length(bytes, &mut next, flags >> 2 & 3)?;
        let expiry = if flags & EXPIRES != 0 {
            let expiry = (next, u48_at(bytes, next).ok_or(Broken)?);
            next += EXPIRY_BYTES;
            Some(expiry)
        } else {
            None
        };
        let (field, value) = (next..next + first, next + first..next + first + second);
        let end = value.end;
        if end > used {
            return Err(Broken);
        }
        Ok(Entry { at, end, parts: Some(Parts { field, value, expiry }) })
    }
}

/// Reads a length of the width that `code` names.
#[inline]
fn length(bytes: &[u8], next: &mut usize, code: u8) -> Result<usize, Broken> {
    let at = *next;
    let width = if code == 3 { 4 } else { usize::from(code) };
    *next += width;
    let part = bytes.get(at..at + width).ok_or(Broken)?;
    Ok(part.iter().rev().fold(0, |length, byte| length << 8 | usize::from(*byte)))
}

/// The code and the number of bytes of a length.
fn width(length: usize) -> (u8, usize) {
    match length {
        0 => (0, 0),
        1..=0xff => (1, 1),
        0x100..=0xffff => (2, 2),
        _ => (3, 4),
    }
}

/// Bytes of the entry of a field with this value, and with an expiry if it `expires`.
pub fn entry_bytes(field_len: usize, value_len: usize, expires: bool) -> usize {
    let expiry = if expires { EXPIRY_BYTES } else { 0 };
    1 + width(field_len).1 + width(value_len).1 + expiry + field_len + value_len
}

/// Appends to `target` bytes that lie within it from `at` on; the caller has made sure of the room.
fn put(target: &mut [u8], at: &mut usize, part: &[u8]) {
    if let Some(place) = target.get_mut(*at..*at + part.len()) {
        place.copy_from_slice(part);
    }
    *at += part.len();
}

/// Writes an entry at `at`, [`entry_bytes`] of it. `expires_ms` makes it one that may expire; 0 in it is never.
pub(super) fn write(bytes: &mut [u8], at: usize, field: &[u8], value: &[u8], expires_ms: Option<u64>) {
    let (field_width, value_width) = (width(field.len()), width(value.len()));
    let expires = if expires_ms.is_some() { EXPIRES } else { 0 };
    let mut next = at;
    put(bytes, &mut next, &[field_width.0 | value_width.0 << 2 | expires]);
    put(bytes, &mut next, &(field.len() as u32).to_le_bytes()[..field_width.1]);
    put(bytes, &mut next, &(value.len() as u32).to_le_bytes()[..value_width.1]);
    if let Some(at_ms) = expires_ms {
        put_u48(bytes, next, at_ms);
        next += EXPIRY_BYTES;
    }
    put(bytes, &mut next, field);
    put(bytes, &mut next, value);
}

/// Makes `len` bytes at `at`, one at least, a hole.
pub(super) fn write_hole(bytes: &mut [u8], at: usize, len: usize) {
    let (code, width) = match len {
        0 => return,
        1 => (0, 0),
        2..=0x101 => (1, 1),
        0x102..=0x1_0002 => (2, 2),
        _ => (3, 4),
    };
    let mut next = at;
    put(bytes, &mut next, &[HOLE | code]);
    put(bytes, &mut next, &((len - 1 - width) as u32).to_le_bytes()[..width]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_holes_of_every_length_read_back() {
        for field_len in [0, 1, 255, 256, 65_535, 65_536] {
            for value_len in [0, 1, 255, 256, 65_535, 65_536] {
                for expiry in [None, Some(0), Some(1 << 45)] {
                    let (field, value) = (vec![b'f'; field_len], vec![b'v'; value_len]);
                    let len = entry_bytes(field_len, value_len, expiry.is_some());
                    let mut bytes = vec![0xff; len + 9];
                    write(&mut bytes, 4, &field, &value, expiry);
                    assert_eq!(bytes[4 + len..], [0xff; 5], "not a byte too many");
                    let entry = Entry::read(&bytes, 4, bytes.len()).unwrap();
                    assert_eq!(entry.len(), len);
                    let parts = entry.parts.unwrap();
                    assert_eq!((&bytes[parts.field], &bytes[parts.value]), (&field[..], &value[..]));
                    assert_eq!(parts.expiry.map(|(_, at_ms)| at_ms), expiry);
                    assert_eq!(Entry::read(&bytes, 4, 3 + len), Err(Broken));
                }
            }
        }
        for len in (1..1000).chain(65_000..66_000) {
            let mut bytes = vec![0xff; len + 1];
            write_hole(&mut bytes, 0, len);
            assert_eq!(bytes[len], 0xff);
            assert_eq!(Entry::read(&bytes, 0, len + 1), Ok(Entry { at: 0, end: len, parts: None }));
        }
    }
}
