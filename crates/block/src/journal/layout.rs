//! Layout of a cache device: superblock, log, table, data.

use std::ops::Range;

use tiermem_policy::extents::{BLOCK_BYTES_MAX, Geometry, GeometryError, UNIT_BYTES};

use super::JournalError;
use super::page::{PAGE_BYTES, PageShape};

/// Two blocks.
pub(super) const SUPERBLOCK_BYTES: u64 = 2 * PAGE_BYTES as u64;
/// A log must hold what checkpoints need beside what they free; see `checkpoint.rs`.
pub const LOG_BYTES_MIN: u64 = 256 << 10;
/// Places in the log are 32 bits of blocks; more would also take long to read at start.
pub const LOG_BYTES_MAX: u64 = 64 << 30;

/// Requested layout of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutConfig {
    /// Block sizes in bytes, ascending.
    pub block_bytes: Vec<u64>,
    /// Bytes of a group; `None` is the largest block.
    pub group_bytes: Option<u64>,
    /// Bytes of the log; `None` takes 1/256 of the device, from 1 MiB to 256 MiB.
    pub log_bytes: Option<u64>,
}

/// Where things lie on a cache device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The geometry of the data area.
    pub geometry: Geometry,
    /// Block sizes in bytes, ascending.
    pub block_bytes: Vec<u64>,
    /// Where the log begins, in bytes.
    pub log_at: u64,
    /// Its bytes.
    pub log_bytes: u64,
    /// Where the table begins, in bytes.
    pub table_at: u64,
    /// Pages of the table; each has two places.
    pub pages: u32,
    /// Where the data begin, in bytes: a multiple of 4 KiB.
    pub data_at: u64,
    /// Groups in the data area.
    pub groups: u32,
    pub(super) shape: PageShape,
}

impl Layout {
    /// Divides a device of `device_bytes`: as many whole groups as fit.
    ///
    /// # Errors
    /// Invalid sizes, and a device that is too small for them.
    pub fn plan(device_bytes: u64, config: &LayoutConfig) -> Result<Self, JournalError> {
        let default_log = (device_bytes / 256).clamp(1 << 20, 256 << 20).next_multiple_of(UNIT_BYTES);
        let log_bytes = config.log_bytes.unwrap_or(default_log);
        if !log_bytes.is_multiple_of(UNIT_BYTES) || !(LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(&log_bytes) {
            return Err(JournalError::LogSize {
                asked_bytes: log_bytes,
                least_bytes: LOG_BYTES_MIN,
                most_bytes: LOG_BYTES_MAX,
            });
        }
        // The sizes are checked as for a cache with room; then as many groups as fit are taken.
        let roomy = |capacity_bytes| Geometry::new(&config.block_bytes, config.group_bytes, capacity_bytes);
        let least_groups = config.block_bytes.len() as u64 + 1;
        let group_bytes = match roomy(0) {
            Err(GeometryError::TooSmall { wanted, least, .. }) => wanted / least,
            Err(other) => return Err(other.into()),
            Ok(geometry) => geometry.group_bytes(),
        };
        let shape = PageShape::of(config.block_bytes[0] / UNIT_BYTES);
        let pages = |groups: u64| (groups * (group_bytes / UNIT_BYTES)).div_ceil(u64::from(shape.units));
        let data_at =
            |groups: u64| SUPERBLOCK_BYTES + log_bytes + pages(groups).saturating_mul(2 * PAGE_BYTES as u64);
        let fits = |groups: u64| data_at(groups) + groups * group_bytes <= device_bytes;
        let mut groups = device_bytes.saturating_sub(data_at(0)) / group_bytes;
        while groups > 0 && !fits(groups) {
            // Each group too many brings its pages along, so this ends after a step or two.
            let over = data_at(groups) + groups * group_bytes - device_bytes;
            groups -= (over / (2 * group_bytes)).clamp(1, groups);
        }
        if groups < least_groups {
            let wanted_bytes = data_at(least_groups) + least_groups * group_bytes;
            return Err(JournalError::TooSmall { device_bytes, wanted_bytes });
        }
        let geometry = roomy(groups * group_bytes)?;
        Ok(Layout {
            log_at: SUPERBLOCK_BYTES,
            log_bytes,
            table_at: SUPERBLOCK_BYTES + log_bytes,
            pages: pages(groups) as u32,
            data_at: data_at(groups),
            groups: geometry.groups(),
            block_bytes: config.block_bytes.clone(),
            geometry,
            shape,
        })
    }

    /// The layout with `groups` groups: as formatted on a device that has grown since.
    pub(super) fn with_end(config: &LayoutConfig, groups: u32) -> Result<Self, JournalError> {
        // The smallest device for this number of groups, found from the plan of a large one.
        let group_bytes = config.group_bytes.or(config.block_bytes.last().copied()).unwrap_or(UNIT_BYTES);
        if group_bytes > 4 * BLOCK_BYTES_MAX {
            let largest = config.block_bytes.last().copied().unwrap_or(0);
            return Err(GeometryError::Group { group: group_bytes, largest }.into());
        }
        let units = u64::from(groups) * (group_bytes / UNIT_BYTES);
        let first = config.block_bytes.first().copied().unwrap_or(UNIT_BYTES);
        let shape = PageShape::of((first / UNIT_BYTES).max(1));
        let pages = units.div_ceil(u64::from(shape.units));
        let log_bytes = config.log_bytes.unwrap_or(0).min(LOG_BYTES_MAX + 1);
        let end = SUPERBLOCK_BYTES + log_bytes + pages * 2 * PAGE_BYTES as u64 + units * UNIT_BYTES;
        Layout::plan(end, config)
    }

    /// Where the device's part of this cache ends.
    pub fn end(&self) -> u64 {
        self.data_at + self.geometry.capacity_bytes()
    }

    /// Units of the data area.
    pub fn units(&self) -> u64 {
        u64::from(self.geometry.slots()) * self.geometry.piece_units()
    }

    /// Where a unit's bytes lie on the device.
    pub fn unit_at(&self, unit: u64) -> u64 {
        self.data_at + unit * UNIT_BYTES
    }

    /// The units of a block of a class that begins at a slot.
    pub fn block_units(&self, slot: u32, class: usize) -> Range<u64> {
        let per_piece = self.geometry.piece_units();
        let first = u64::from(slot) * per_piece;
        first..first + self.geometry.class_pieces(class) * per_piece
    }

    /// Where version `version` of a page's image lies: the places are taken in turn.
    pub(super) fn page_at(&self, page: u32, version: u64) -> u64 {
        self.table_at + (2 * u64::from(page) + version % 2) * PAGE_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn config(block_bytes: &[u64], group_bytes: Option<u64>) -> LayoutConfig {
        LayoutConfig { block_bytes: block_bytes.to_vec(), group_bytes, log_bytes: Some(LOG_BYTES_MIN) }
    }

    proptest! {
        #[test]
        fn parts_do_not_overlap_and_the_table_covers_the_data(
            device_bytes in (1u64 << 20)..(1 << 40),
            shift in 12u32..=22,
            group_shift in 0u32..3,
        ) {
            let block = 1 << shift;
            let config = config(&[block], Some((block << group_shift).min(16 << 20)));
            let Ok(layout) = Layout::plan(device_bytes, &config) else { return Ok(()) };
            prop_assert!(layout.end() <= device_bytes);
            prop_assert!(layout.data_at.is_multiple_of(UNIT_BYTES));
            prop_assert_eq!(layout.log_at + layout.log_bytes, layout.table_at);
            prop_assert_eq!(layout.table_at + u64::from(layout.pages) * 8192, layout.data_at);
            prop_assert!(u64::from(layout.pages) * u64::from(layout.shape.units) >= layout.units());
            prop_assert_eq!(Layout::with_end(&config, layout.groups).unwrap(), layout);
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let small = Layout::plan(1 << 20, &config(&[1 << 20], None)).unwrap_err();
        let JournalError::TooSmall { wanted_bytes, .. } = small else { panic!("{small}") };
        assert!(Layout::plan(wanted_bytes, &config(&[1 << 20], None)).is_ok());
        assert!(matches!(Layout::plan(1 << 30, &config(&[3], None)), Err(JournalError::Geometry(_))));
        assert!(matches!(Layout::plan(1 << 30, &config(&[], None)), Err(JournalError::Geometry(_))));
        let log = LayoutConfig { log_bytes: Some(4096), ..config(&[1 << 16], None) };
        assert!(matches!(Layout::plan(1 << 30, &log), Err(JournalError::LogSize { .. })));
    }
}
