//! Names of a volume's objects, and the header of a chunk's object (`docs/block-objects.md` describes it).

use std::fmt;
use std::str::FromStr;

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

/// The manifest's name behind the prefix.
pub(super) const MANIFEST: &str = "tiermem-volume.json";

/// The label's name behind the prefix.
pub(super) const LABEL: &str = "tiermem-label";

/// Where chunks are behind the prefix.
pub(super) const CHUNKS: &str = "chunks";

/// Bytes before the volume's bytes in a chunk's object.
pub(super) const HEADER_BYTES: usize = 64;

const MAGIC: [u8; 4] = *b"TMC1";

/// The least and the largest chunk.
pub(super) const CHUNK_BYTES_MIN: u64 = 64 << 10;
pub(super) const CHUNK_BYTES_MAX: u64 = 64 << 20;

/// The largest volume: numbers in a manifest are also read by programs that hold them as floating point.
pub(super) const SIZE_BYTES_MAX: u64 = 1 << 53;

/// A unique name: 16 random bytes, written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(super) struct Id(pub [u8; 16]);

impl Id {
    /// A new one; `None` where the system has no randomness.
    pub fn random() -> Option<Id> {
        let mut bytes = [0; 16];
        SystemRandom::new().fill(&mut bytes).ok().map(|()| Id(bytes))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl From<Id> for String {
    fn from(id: Id) -> String {
        id.to_string()
    }
}

impl FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.len() == 32 && text.bytes().all(|it| it.is_ascii_hexdigit());
        let number = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        let number = number.ok_or_else(|| format!("`{text}` is no name of 32 hexadecimal digits"))?;
        Ok(Id(number.to_be_bytes()))
    }
}

impl TryFrom<String> for Id {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The header of a chunk's object. No two puts have the same header, so no two objects have
/// the same ETag even where that is only a checksum, and every object names its writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub volume: Id,
    pub writer: Id,
    pub chunk: u64,
    /// Counts the puts of this writer.
    pub put: u64,
    /// Bytes of the volume that follow; those of the chunk behind them are zeroes.
    pub payload_bytes: u32,
    payload_crc: u32,
}

/// Why an object is no chunk of this volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Damage {
    #[error("it does not begin as a chunk does")]
    NoChunk,
    #[error("its checksum does not fit")]
    Checksum,
    #[error("it belongs to another volume or place")]
    Elsewhere,
}

impl Header {
    /// Makes an object of `object`, which holds the payload behind room for the header.
    pub fn seal(volume: Id, writer: Id, chunk: u64, put: u64, object: &mut [u8]) {
        let (room, payload) = object.split_at_mut(HEADER_BYTES);
        room[..4].copy_from_slice(&MAGIC);
        room[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        room[8..24].copy_from_slice(&volume.0);
        room[24..40].copy_from_slice(&writer.0);
        room[40..48].copy_from_slice(&chunk.to_le_bytes());
        room[48..56].copy_from_slice(&put.to_le_bytes());
        room[56..60].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
        let crc = crc32fast::hash(&room[..60]);
        room[60..64].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads an object's begin, which must be of this volume and chunk.
    pub fn read(object: &[u8], volume: Id, chunk: u64) -> Result<Header, Damage> {
        let bytes = object.get(..HEADER_BYTES).ok_or(Damage::NoChunk)?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let id = |at: usize| {
            let mut id = [0; 16];
            id.copy_from_slice(&bytes[at..at + 16]);
            Id(id)
        };
        if bytes[..4] != MAGIC {
            return Err(Damage::NoChunk);
        }
        if crc32fast::hash(&bytes[..60]) != word(60) {
            return Err(Damage::Checksum);
        }
        let header = Header {
            volume: id(8),
            writer: id(24),
            chunk: long(40),
            put: long(48),
            payload_bytes: word(4),
            payload_crc: word(56),
        };
        if (header.volume, header.chunk) != (volume, chunk) {
            return Err(Damage::Elsewhere);
        }
        Ok(header)
    }

    /// Reads a whole object of a chunk of `chunk_bytes` bytes.
    pub fn read_whole(object: &[u8], volume: Id, chunk: u64, chunk_bytes: u64) -> Result<Header, Damage> {
        let header = Header::read(object, volume, chunk)?;
        let payload = &object[HEADER_BYTES..];
        let fits =
            payload.len() as u64 == u64::from(header.payload_bytes) && payload.len() as u64 <= chunk_bytes;
        if !fits || crc32fast::hash(payload) != header.payload_crc {
            return Err(Damage::Checksum);
        }
        Ok(header)
    }
}

/// How a volume is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub size_bytes: u64,
    pub chunk_bytes: u64,
}

/// What of a request is about one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkRange {
    pub chunk: u64,
    /// Bytes of the chunk.
    pub from: usize,
    pub to: usize,
    /// Where in the request they begin.
    pub at: usize,
}

impl Shape {
    /// Bytes of the volume in a chunk: the last one may be shorter.
    pub fn bytes_of(&self, chunk: u64) -> usize {
        (self.size_bytes - chunk * self.chunk_bytes).min(self.chunk_bytes) as usize
    }

    /// The chunks that a range touches; it lies within the volume.
    pub fn parts(self, offset: u64, bytes: u64) -> impl Iterator<Item = ChunkRange> {
        let (end, chunk_bytes) = (offset + bytes, self.chunk_bytes);
        (offset / chunk_bytes..end.div_ceil(chunk_bytes)).map(move |chunk| {
            let begin = chunk * chunk_bytes;
            let (from, to) = (offset.max(begin), end.min(begin + chunk_bytes));
            let (at, from, to) = (from - offset, from - begin, to - begin);
            ChunkRange { chunk, from: from as usize, to: to as usize, at: at as usize }
        })
    }
}

/// A chunk's name behind the prefix.
pub(super) fn chunk_name(chunk: u64) -> String {
    format!("{CHUNKS}/{chunk:012x}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object(payload: &[u8]) -> Vec<u8> {
        let mut object = vec![0; HEADER_BYTES + payload.len()];
        object[HEADER_BYTES..].copy_from_slice(payload);
        Header::seal(Id([1; 16]), Id([2; 16]), 7, 9, &mut object);
        object
    }

    #[test]
    fn a_header_says_what_it_was_told() {
        let object = object(b"payload");
        let header = Header::read_whole(&object, Id([1; 16]), 7, 64).unwrap();
        assert_eq!((header.writer, header.put, header.payload_bytes), (Id([2; 16]), 9, 7));
        assert_eq!(Header::read(&object, Id([3; 16]), 7), Err(Damage::Elsewhere));
        assert_eq!(Header::read(&object, Id([1; 16]), 8), Err(Damage::Elsewhere));
        assert_eq!(Header::read(&object[..63], Id([1; 16]), 7), Err(Damage::NoChunk));
        assert_eq!(Header::read_whole(&object, Id([1; 16]), 7, 6), Err(Damage::Checksum));
        assert_eq!(Header::read_whole(&object[..70], Id([1; 16]), 7, 64), Err(Damage::Checksum));
    }

    #[test]
    fn the_bytes_are_those_of_the_document() {
        let object = object(b"\x01\x02");
        assert_eq!(&object[..8], b"TMC1\x02\0\0\0");
        assert_eq!(object[8..24], [1; 16]);
        assert_eq!(object[24..40], [2; 16]);
        assert_eq!(&object[40..56], b"\x07\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0");
        assert_eq!(chunk_name(0x1f), "chunks/00000000001f");
    }

    #[test]
    fn an_id_is_its_text() {
        let id = Id::random().unwrap();
        assert_eq!(id.to_string().parse(), Ok(id));
        for wrong in ["", "12", "+0000000000000000000000000000000", "0000000000000000000000000000000g"] {
            assert!(wrong.parse::<Id>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_flipped_bit_is_noticed(at in 0usize..HEADER_BYTES + 100, bit in 0u8..8) {
            let mut object = object(&[5; 100]);
            object[at] ^= 1 << bit;
            prop_assert!(Header::read_whole(&object, Id([1; 16]), 7, 100).is_err());
        }

        #[test]
        fn parts_are_the_range(size in 1u64..500_000, chunk in 1u64..70_000, at in 0u64..500_000, bytes in 0u64..500_000) {
            let shape = Shape { size_bytes: size, chunk_bytes: chunk };
            let offset = at % size;
            let bytes = bytes.min(size - offset);
            let mut next = offset;
            for part in shape.parts(offset, bytes) {
                prop_assert_eq!(part.chunk * chunk + part.from as u64, next);
                prop_assert_eq!(part.at as u64, next - offset);
                prop_assert!(part.from < part.to && part.to <= shape.bytes_of(part.chunk));
                next += (part.to - part.from) as u64;
            }
            prop_assert_eq!(next, offset + bytes);
        }
    }
}
