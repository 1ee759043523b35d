//! GGUF, versions 2 and 3: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use std::io::{self, BufReader, Read, Seek};

use super::damaged;

pub(super) const MAGIC: &[u8] = b"GGUF";
const ALIGNMENT_KEY: &[u8] = b"general.alignment";
const ALIGNMENT_BYTES: u64 = 32;
/// Longest name that is read, and most dimensions of a tensor.
const NAME_BYTES_MAX: u64 = 1 << 16;
const DIMENSIONS_MAX: u32 = 16;
const UINT32: u32 = 4;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Names of tensors, and where they start.
pub(super) fn begins(file: BufReader<impl Read + Seek>, length: u64) -> io::Result<Vec<(String, u64)>> {
    let mut header = Header { file, length, at: 0 };
    header.skip(MAGIC.len() as u64)?;
    if !(2..=3).contains(&header.u32()?) {
        return Err(damaged("only versions 2 and 3 of GGUF are known"));
    }
    let (tensors, pairs) = (header.u64()?, header.u64()?);
    let mut alignment = ALIGNMENT_BYTES;
    for _ in 0..pairs {
        let key = header.name()?;
        match (header.u32()?, key.as_slice()) {
            (UINT32, ALIGNMENT_KEY) => alignment = u64::from(header.u32()?),
            (kind, _) => header.skip_value(kind)?,
        }
    }
    let mut found = Vec::new();
    for _ in 0..tensors {
        let name = String::from_utf8_lossy(&header.name()?).into_owned();
        let dimensions = header.u32()?;
        if dimensions > DIMENSIONS_MAX {
            return Err(damaged("a tensor has more dimensions than there can be"));
        }
        header.skip(u64::from(dimensions) * 8 + 4)?;
        found.push((name, header.u64()?));
    }
    let data = header.at.checked_next_multiple_of(alignment.max(1));
    let place = |offset: u64| data?.checked_add(offset);
    let placed = found.into_iter().map(|(name, offset)| Some((name, place(offset)?)));
    placed.collect::<Option<_>>().ok_or_else(|| damaged("a tensor lies behind the file's end"))
}

/// What stands before the tensors' data. Each number that is read is of bytes that the file has, so that no count makes reading endless.
struct Header<F> {
    file: BufReader<F>,
    length: u64,
    at: u64,
}

impl<F: Read + Seek> Header<F> {
    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> io::Result<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn name(&mut self) -> io::Result<Vec<u8>> {
        let length = self.u64()?;
        if length > NAME_BYTES_MAX {
            return Err(damaged("a name is longer than there can be one"));
        }
        let mut name = vec![0; length as usize];
        self.file.read_exact(&mut name)?;
        self.at += length;
        Ok(name)
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let to = self.at.checked_add(bytes).filter(|to| *to <= self.length);
        self.at = to.ok_or_else(|| damaged("the file ends within its header"))?;
        let bytes = i64::try_from(bytes).map_err(|_| damaged("the file ends within its header"))?;
        // Of a vocabulary this skips some bytes a hundred thousand times, which are in the buffer.
        self.file.seek_relative(bytes)
    }

    fn skip_value(&mut self, kind: u32) -> io::Result<()> {
        match kind {
            STRING => {
                let length = self.u64()?;
                self.skip(length)
            }
            ARRAY => {
                let (kind, count) = (self.u32()?, self.u64()?);
                match size_of_kind(kind) {
                    Some(bytes) => {
                        let all = count.checked_mul(bytes);
                        self.skip(all.ok_or_else(|| damaged("the file ends within its header"))?)
                    }
                    None if kind == STRING => (0..count).try_for_each(|_| self.skip_value(kind)),
                    None => Err(damaged("arrays of such values are not known")),
                }
            }
            kind => match size_of_kind(kind) {
                Some(bytes) => self.skip(bytes),
                None => Err(damaged("values of such a type are not known")),
            },
        }
    }
}

/// Bytes of a value, if all of its type have the same: integers, floating-point numbers and truth values.
fn size_of_kind(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}
