//! Format of a file or device with a tier's persistent bytes,
//! drawn in `docs/store-format.md`. All numbers are little-endian.
//!
//! The header identifies the owner, so that foreign data are never overwritten and no two
//! configurations read each other's. Behind it is the [`State`], which changes as the store
//! runs, then the table that says how each page is divided ([`Form`]), then the pages.

use tiermem_base::{TierKind, TierSpec};
use tiermem_policy::ladder::{GRANULE_BYTES, PAGE_BYTES, UNIT_BYTES};

/// Bytes of the header with the padding behind it.
pub const HEADER_BYTES: u64 = PAGE_BYTES;
/// The version of the division. Older ones are taken up from [`OLDEST_VERSION`] on, and others refused.
pub const VERSION: u32 = 3;
/// Here runs were whole pages. Their entries still count.
pub const OLDEST_VERSION: u32 = 2;
/// Bytes of a page's entry in the table.
pub const PAGE_ENTRY_BYTES: u64 = 16;

const MAGIC: [u8; 8] = *b"TMREGION";
/// Bytes of the header that its checksum covers.
const SEALED_BYTES: usize = 60;

/// Division of a region's bytes.
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

/// Bytes of a tier in which items can lie: a persistent region begins
/// with a header and a table. 0 for a tier of unknown capacity.
pub fn pages_bytes(tier: &TierSpec) -> u64 {
    let capacity = tier.known_bytes().unwrap_or(0);
    if tier.kind == TierKind::Dax { Division::of(capacity).pages_bytes } else { capacity }
}

/// Identity of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the region.
    pub capacity: u64,
    /// Everything else that decides where items lie in pages, such as the size classes, as a number of its owner.
    pub layout: u64,
    /// Drawn when the region was made.
    pub uuid: [u8; 16],
    /// The version of the division.
    pub version: u32,
}

/// State of a region, by the bytes in its header's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionState {
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
    /// The header as the bytes at a region's start.
    pub fn to_bytes(self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.capacity.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.layout.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.uuid);
        let checksum = crc32fast::hash(&bytes[..SEALED_BYTES]);
        bytes[SEALED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Looks at a region's first bytes; what is missing counts as zeros.
    pub fn find(bytes: &[u8]) -> RegionState {
        if bytes.iter().all(|byte| *byte == 0) {
            return RegionState::Nothing;
        }
        if bytes.len() < 64 || bytes[..8] != MAGIC {
            return RegionState::Strange;
        }
        let version = u32::from_le_bytes(array(bytes, 8));
        if !(OLDEST_VERSION..=VERSION).contains(&version) {
            return RegionState::Version(version);
        }
        let header = Header {
            capacity: u64::from_le_bytes(array(bytes, 16)),
            layout: u64::from_le_bytes(array(bytes, 24)),
            uuid: array(bytes, 32),
            version,
        };
        if header.to_bytes() == bytes[..64] { RegionState::Region(header) } else { RegionState::Damaged }
    }
}

/// Where the state stands: the cache line behind the header.
pub const STATE_OFFSET: usize = 64;
/// Bytes of the state.
pub const STATE_BYTES: usize = 64;

/// State that a start needs from the runs before it. Its fields are written one by one, each
/// in one store, in an order that leaves no inconsistent moment; so there is no checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Number of the entries in the table that are valid, from 1 on. Increasing it empties the region.
    pub generation: u64,
    /// The boot of the machine in which it was last opened.
    pub boot: [u8; 16],
    /// Drawn by the start of the last run that took the region up; the flash tier of that run has the same.
    pub session: [u8; 16],
    /// Drawn by a start that has perhaps not got so far.
    pub next_session: [u8; 16],
    /// Whether it was closed in order, and everything written back before that was noted.
    pub clean: bool,
}

impl State {
    /// Offset of the field from the region's start.
    pub const GENERATION: usize = STATE_OFFSET;
    /// Offset of the field from the region's start.
    pub const BOOT: usize = STATE_OFFSET + 8;
    /// Offset of the field from the region's start.
    pub const SESSION: usize = STATE_OFFSET + 24;
    /// Offset of the field from the region's start.
    pub const NEXT_SESSION: usize = STATE_OFFSET + 40;
    /// Offset of the field from the region's start.
    pub const CLEAN: usize = STATE_OFFSET + 56;

    /// Reads the state from a region's first bytes.
    pub fn read(bytes: &[u8]) -> Self {
        State {
            generation: u64::from_le_bytes(array(bytes, Self::GENERATION)),
            boot: array(bytes, Self::BOOT),
            session: array(bytes, Self::SESSION),
            next_session: array(bytes, Self::NEXT_SESSION),
            clean: u64::from_le_bytes(array(bytes, Self::CLEAN)) == 1,
        }
    }
}

/// How a page is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Into slots of this number of units.
    Slots {
        /// Units of a slot.
        units: u32,
    },
    /// A large item begins here, and may end on a later page.
    Run {
        /// The granule of this page where it begins.
        first: u32,
        /// Granules that it has, more than a page of them.
        granules: u32,
    },
}

/// In a form's word: a run.
const RUN: u32 = 1 << 31;
/// In a run's word: it counts granules, and before them says where the run begins. Without this the word is of [`OLDEST_VERSION`].
const GRANULES: u32 = 1 << 30;
/// Where in a run's word the granule stands at which it begins.
const FIRST_SHIFT: u32 = 26;
const PAGE_UNITS: u32 = (PAGE_BYTES / UNIT_BYTES) as u32;
const PAGE_GRANULES: u32 = (PAGE_BYTES / GRANULE_BYTES) as u32;

impl Form {
    /// The form of the page on which a place of `bytes` begins, at so many bytes from the first page.
    #[inline]
    pub fn of_place(offset: u64, bytes: u64) -> Self {
        if bytes <= PAGE_BYTES {
            Form::Slots { units: (bytes / UNIT_BYTES) as u32 }
        } else {
            let first = (offset % PAGE_BYTES / GRANULE_BYTES) as u32;
            Form::Run { first, granules: (bytes / GRANULE_BYTES) as u32 }
        }
    }

    /// Its word in the table; never 0.
    #[inline]
    pub fn word(self) -> u32 {
        match self {
            Form::Slots { units } => units,
            Form::Run { first, granules } => RUN | GRANULES | first << FIRST_SHIFT | granules,
        }
    }

    /// The form of such a word. `None`: there is none.
    pub fn of_word(word: u32) -> Option<Self> {
        if word & RUN == 0 {
            return (1..=PAGE_UNITS).contains(&word).then_some(Form::Slots { units: word });
        }
        let rest = word & !(RUN | GRANULES);
        if word & GRANULES == 0 {
            let granules = rest.checked_mul(PAGE_GRANULES).filter(|&granules| granules > 0)?;
            return Some(Form::Run { first: 0, granules });
        }
        let (first, granules) = (rest >> FIRST_SHIFT, rest & ((1 << FIRST_SHIFT) - 1));
        (first < PAGE_GRANULES && granules > 0).then_some(Form::Run { first, granules })
    }

    /// The entry of page `page`, but for the generation with which it begins.
    pub fn entry(self, page: u32, generation: u64) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.word().to_le_bytes());
        bytes[4..].copy_from_slice(&check(page, generation, self.word()).to_le_bytes());
        bytes
    }

    /// Reads the entry of page `page`; `None` where it is of another generation, or no entry.
    pub fn read(entry: &[u8], page: u32, generation: u64) -> Option<Self> {
        let (found, word) = (u64::from_le_bytes(array(entry, 0)), u32::from_le_bytes(array(entry, 8)));
        let sound = u32::from_le_bytes(array(entry, 12)) == check(page, generation, word);
        if found == generation && sound { Form::of_word(word) } else { None }
    }

    /// Where items begin within the page, in bytes, and how many bytes each may have.
    pub fn places(self) -> (impl Iterator<Item = usize>, usize) {
        let granule_bytes = GRANULE_BYTES as usize;
        let (begin, count, bytes) = match self {
            Form::Slots { units } => (0, (PAGE_UNITS / units) as usize, units as usize * UNIT_BYTES as usize),
            Form::Run { first, granules } => {
                (first as usize * granule_bytes, 1, granules as usize * granule_bytes)
            }
        };
        ((0..count).map(move |slot| begin + slot * bytes), bytes)
    }

    /// Pages that it spans.
    pub fn pages(self) -> u32 {
        match self {
            Form::Slots { .. } => 1,
            Form::Run { first, granules } => (first + granules).div_ceil(PAGE_GRANULES),
        }
    }

    /// The granule of its last page behind which that page may belong to another run.
    pub fn end_on_last_page(self) -> u32 {
        match self {
            Form::Slots { .. } => PAGE_GRANULES,
            Form::Run { first, granules } => first + granules - (self.pages() - 1) * PAGE_GRANULES,
        }
    }
}

fn check(page: u32, generation: u64, word: u32) -> u32 {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&page.to_le_bytes());
    bytes[4..12].copy_from_slice(&generation.to_le_bytes());
    bytes[12..].copy_from_slice(&word.to_le_bytes());
    crc32fast::hash(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_entry_is_known_in_its_place_and_its_generation_only() {
        let run = Form::Run { first: 5, granules: 98 };
        for form in [Form::Slots { units: 4 }, Form::Slots { units: 4096 }, run] {
            let entry = [&7u64.to_le_bytes()[..], &form.entry(5, 7)].concat();
            assert_eq!(Form::read(&entry, 5, 7), Some(form));
            assert_eq!(Form::read(&entry, 6, 7), None);
            assert_eq!(Form::read(&entry, 5, 8), None);
            for at in 0..16 {
                let mut broken = entry.clone();
                broken[at] ^= 1;
                assert_eq!(Form::read(&broken, 5, 7), None, "{at}");
            }
        }
        assert_eq!(Form::of_place(0, PAGE_BYTES), Form::Slots { units: 4096 });
        assert_eq!(Form::of_place(7 * PAGE_BYTES + 5 * GRANULE_BYTES, 98 * GRANULE_BYTES), run);
        assert_eq!((run.pages(), run.end_on_last_page()), (7, 7));
        assert_eq!(
            (
                Form::Run { first: 0, granules: 32 }.pages(),
                Form::Run { first: 0, granules: 32 }.end_on_last_page()
            ),
            (2, 16)
        );
        assert_eq!(run.places().0.collect::<Vec<_>>(), [5 * 4096]);
        // As the version before wrote them.
        assert_eq!(Form::of_word(RUN | 3), Some(Form::Run { first: 0, granules: 48 }));
        assert_eq!(Form::Slots { units: 5 }.places().0.last(), Some(818 * 80));
        assert_eq!([0, RUN, 4097, RUN | GRANULES].map(Form::of_word), [None; 4]);
    }

    const HEADER: Header = Header { capacity: 1 << 20, layout: 7, uuid: [9; 16], version: VERSION };

    #[test]
    fn a_header_is_known_and_anything_else_is_not() {
        let bytes = HEADER.to_bytes();
        assert_eq!(Header::find(&bytes), RegionState::Region(HEADER));
        assert_eq!(Header::find(&[0; 4096]), RegionState::Nothing);
        assert_eq!(Header::find(&[]), RegionState::Nothing);
        assert_eq!(Header::find(b"#!/bin/sh\n"), RegionState::Strange);
        assert_eq!(Header::find(&bytes[..40]), RegionState::Strange);
        for at in 0..64 {
            let mut broken = bytes;
            broken[at] ^= 1;
            let found = Header::find(&broken);
            assert!(!matches!(found, RegionState::Region(_) | RegionState::Nothing), "{at}: {found:?}");
        }
    }

    /// The format on disk must not change by accident.
    #[test]
    fn the_header_is_golden() {
        let bytes = HEADER.to_bytes();
        assert_eq!(&bytes[..16], b"TMREGION\x03\0\0\0\0\0\x01\0");
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
