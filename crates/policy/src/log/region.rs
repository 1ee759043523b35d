//! Layout of a log's region on its device: two superblocks, the journal's two halves, and segments.

use super::{LOG_PAGE_BYTES, PAGES_MAX};

/// Bytes of a record in the journal.
pub const RECORD_BYTES: u32 = 16;
/// Bytes of a checkpoint's part before its rows.
pub const PART_HEADER_BYTES: u32 = 64;
/// Bytes of a segment's row in a checkpoint.
pub const SEGMENT_ROW_BYTES: u32 = 16;
/// Bytes of an item's row in a checkpoint.
pub const ITEM_ROW_BYTES: u32 = 12;
/// Superblocks, a page each.
const SUPERBLOCKS: u64 = 2;
/// The journal's least size, each half of it.
const JOURNAL_BYTES_MIN: u64 = 64 << 10;
/// Fewer segments than these make no log.
const SEGMENTS_MIN: u64 = 8;

/// The parts of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Bytes of one of the journal's halves.
    pub journal_bytes: u64,
    /// Segments.
    pub segments: u32,
}

impl Region {
    /// Divides a region. `None` where fewer than eight segments would fit.
    pub fn divide(region_bytes: u64, segment_bytes: u32) -> Option<Region> {
        // A fiftieth in each half holds one record for every 800 bytes of the region.
        let page = u64::from(LOG_PAGE_BYTES);
        let journal_bytes = (region_bytes / 50 / page * page).max(JOURNAL_BYTES_MIN);
        let left = region_bytes.checked_sub(SUPERBLOCKS * page + 2 * journal_bytes)?;
        let segments = left.checked_div(u64::from(segment_bytes))?;
        let pages = segments * u64::from(segment_bytes) / page;
        let fits = segments >= SEGMENTS_MIN && pages <= u64::from(PAGES_MAX);
        fits.then_some(Region { journal_bytes, segments: segments as u32 })
    }

    /// Records that a half of the journal holds.
    pub fn journal_records(&self) -> u64 {
        self.journal_bytes / u64::from(RECORD_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_holds_all_of_its_parts() {
        for (region_bytes, segment_bytes) in [(1 << 20, 64 << 10), (16 << 20, 64 << 10), (1 << 37, 2 << 20)] {
            let region = Region::divide(region_bytes, segment_bytes).expect("it is large enough");
            let parts =
                2 * (4096 + region.journal_bytes) + u64::from(region.segments) * u64::from(segment_bytes);
            assert!(parts <= region_bytes && region_bytes - parts < u64::from(segment_bytes));
            assert_eq!(region.journal_records() * 16, region.journal_bytes);
        }
        for (region_bytes, segment_bytes) in
            [(0, 4096), (16 << 20, 2 << 20), (1 << 20, 0), (u64::MAX, 1 << 20)]
        {
            assert_eq!(Region::divide(region_bytes, segment_bytes), None);
        }
    }
}
