//! How a file or device is divided that holds a tier's bytes beyond the process: drawn in `docs/store-format.md`. All
//! numbers are little-endian.
//!
//! The header says whose bytes these are, so that nobody's data are overwritten and no two configurations read each
//! other's. Between it and the pages lies room for a table of pages, which recovery in place will need.

use tiermem_policy::ladder::PAGE_BYTES;

/// Bytes of the header with the padding behind it.
pub const HEADER_BYTES: u64 = PAGE_BYTES;
/// The version of the division. Another one is refused.
pub const VERSION: u32 = 1;
/// Bytes kept in the table for each page.
const PAGE_ENTRY_BYTES: u64 = 16;

const MAGIC: [u8; 8] = *b"TMREGION";
/// Bytes of the header that its checksum covers.
const SEALED_BYTES: usize = 60;

/// How the bytes of a region are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// Where the pages begin.
    pub pages_offset: u64,
    /// Bytes of the pages.
    pub pages_bytes: u64,
}

impl Division {
    /// Divides `capacity` bytes. There are no pages where it is too small for one.
    pub fn of(capacity: u64) -> Self {
        let pages = capacity.saturating_sub(HEADER_BYTES) / (PAGE_BYTES + PAGE_ENTRY_BYTES);
        let table = (pages * PAGE_ENTRY_BYTES).next_multiple_of(PAGE_BYTES);
        let pages_offset = HEADER_BYTES + table;
        let pages_bytes = capacity.saturating_sub(pages_offset) / PAGE_BYTES * PAGE_BYTES;
        Division { pages_offset, pages_bytes }
    }
}

/// Whose region it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the region.
    pub capacity: u64,
    /// What else decides where items lie in pages, such as the size classes, as its owner counts it.
    pub layout: u64,
    /// Drawn when the region was made.
    pub uuid: [u8; 16],
}

/// What stands where a header is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing: zeros.
    Nothing,
    /// A region's header.
    Region(Header),
    /// A header of another version.
    Version(u32),
    /// A header that is damaged.
    Damaged,
    /// Something else, which is not ours to overwrite.
    Strange,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    core::array::from_fn(|offset| bytes[at + offset])
}

impl Header {
    /// The header as it stands at a region's start.
    pub fn to_bytes(self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.capacity.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.layout.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.uuid);
        let checksum = crc32fast::hash(&bytes[..SEALED_BYTES]);
        bytes[SEALED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Looks at a region's first bytes; what is missing counts as zeros.
    pub fn find(bytes: &[u8]) -> Found {
        if bytes.iter().all(|byte| *byte == 0) {
            return Found::Nothing;
        }
        if bytes.len() < 64 || bytes[..8] != MAGIC {
            return Found::Strange;
        }
        let version = u32::from_le_bytes(array(bytes, 8));
        if version != VERSION {
            return Found::Version(version);
        }
        let header = Header {
            capacity: u64::from_le_bytes(array(bytes, 16)),
            layout: u64::from_le_bytes(array(bytes, 24)),
            uuid: array(bytes, 32),
        };
        if header.to_bytes() == bytes[..64] { Found::Region(header) } else { Found::Damaged }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: Header = Header { capacity: 1 << 20, layout: 7, uuid: [9; 16] };

    #[test]
    fn a_header_is_known_and_anything_else_is_not() {
        let bytes = HEADER.to_bytes();
        assert_eq!(Header::find(&bytes), Found::Region(HEADER));
        assert_eq!(Header::find(&[0; 4096]), Found::Nothing);
        assert_eq!(Header::find(&[]), Found::Nothing);
        assert_eq!(Header::find(b"#!/bin/sh\n"), Found::Strange);
        assert_eq!(Header::find(&bytes[..40]), Found::Strange);
        for at in 0..64 {
            let mut broken = bytes;
            broken[at] ^= 1;
            let found = Header::find(&broken);
            assert!(!matches!(found, Found::Region(_) | Found::Nothing), "{at}: {found:?}");
        }
    }

    /// What is on disk must not change by accident.
    #[test]
    fn the_header_is_golden() {
        let bytes = HEADER.to_bytes();
        assert_eq!(&bytes[..16], b"TMREGION\x01\0\0\0\0\0\x01\0");
        assert_eq!(&bytes[16..32], &[0, 0, 16, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(u32::from_le_bytes(array(&bytes, 60)), crc32fast::hash(&bytes[..60]));
    }

    proptest! {
        #[test]
        fn a_division_wastes_little_and_overlaps_nothing(capacity in 0u64..(1 << 36)) {
            let division = Division::of(capacity);
            prop_assert_eq!(division.pages_offset % PAGE_BYTES, 0);
            prop_assert!(division.pages_bytes == 0 || division.pages_offset + division.pages_bytes <= capacity);
            let entries = division.pages_bytes / PAGE_BYTES * PAGE_ENTRY_BYTES;
            prop_assert!(HEADER_BYTES + entries <= division.pages_offset);
            prop_assert!(division.pages_bytes + capacity / 4000 + 4 * PAGE_BYTES >= capacity);
        }
    }
}
