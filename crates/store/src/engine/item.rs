//! Layout of an item: a header of eight bytes (value length `u32`, key length `u16`, database `u8`, kind of value `u8`,
//! all little-endian), the key, the value. The highest bit of the kind says that the item was read from flash and has
//! not changed since. The bit below it is the seal of items that outlive the process, which `seal.rs` alone uses.
//! Expiry, tier and recency are in the ladder's arrays instead, so decisions about an item never touch its memory.

use crate::tiers::{SEAL, SEAL_AT};

use super::types::ValueKind;

/// Bytes before the key.
pub const HEADER_BYTES: usize = 8;

/// Header of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the value.
    pub value_len: u32,
    /// Bytes of the key.
    pub key_len: u16,
    /// The database that the key belongs to.
    pub db: u8,
    /// Kind of the value.
    pub kind: ValueKind,
    /// Whether the flash tier has the same item.
    pub unchanged: bool,
}

/// In the kind's byte.
const UNCHANGED: u8 = 0x80;
/// What remains of that byte is the kind.
const KIND: u8 = !(UNCHANGED | SEAL);
const KIND_AT: usize = SEAL_AT;

impl Header {
    /// Reads a header; `bytes` starts with it.
    #[inline]
    pub fn read(bytes: &[u8]) -> Self {
        Header {
            value_len: u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            key_len: u16::from_le_bytes([bytes[4], bytes[5]]),
            db: bytes[6],
            kind: ValueKind::from_byte(bytes[KIND_AT] & KIND),
            unchanged: bytes[KIND_AT] & UNCHANGED != 0,
        }
    }

    /// Notes in a header that the item is not on flash any more.
    #[inline]
    pub fn note_changed(bytes: &mut [u8]) {
        bytes[KIND_AT] &= !UNCHANGED;
    }

    /// Writes the header, unsealed, to the start of `bytes`.
    #[inline]
    pub fn write(self, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(&self.value_len.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.key_len.to_le_bytes());
        bytes[6] = self.db;
        bytes[KIND_AT] = self.kind.byte() | if self.unchanged { UNCHANGED } else { 0 };
    }

    /// Where the value starts.
    #[inline]
    pub fn value_offset(self) -> usize {
        HEADER_BYTES + usize::from(self.key_len)
    }

    /// Bytes of header, key and value.
    #[inline]
    pub fn item_len(self) -> usize {
        self.value_offset() + self.value_len as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_its_bytes() {
        for kind in [ValueKind::String, ValueKind::Hash] {
            for unchanged in [false, true] {
                let header = Header { value_len: 70_000, key_len: 300, db: 15, kind, unchanged };
                let mut bytes = [0xFF; HEADER_BYTES];
                header.write(&mut bytes);
                assert_eq!(Header::read(&bytes), header);
                bytes[SEAL_AT] |= SEAL;
                assert_eq!(Header::read(&bytes), header, "the seal is not part of it");
                Header::note_changed(&mut bytes);
                assert_eq!(Header::read(&bytes), Header { unchanged: false, ..header });
                assert_ne!(bytes[SEAL_AT] & SEAL, 0);
                assert_eq!(header.item_len(), 8 + 300 + 70_000);
            }
        }
    }
}
