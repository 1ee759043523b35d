//! Ranges of regions, in granules.

use super::Recording;

/// Granules that a region is given at most, unless the reader says otherwise: 100 GiB have 25,600 of 4 MiB.
const GRANULES_AUTO_MAX: u64 = 32 << 10;

/// A stretch of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionRange {
    /// Index in the recording's regions.
    pub region: usize,
    /// Bytes from the region's start.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes of a granule.
    pub granule_bytes: u64,
}

impl RegionRange {
    /// All of a region; `granule_bytes` or, without it, the finest that gives not too many granules.
    pub fn whole(recording: &Recording, region: usize, granule_bytes: Option<u64>) -> Self {
        let bytes = recording.head.regions.get(region).map_or(0, |region| region.bytes);
        RegionRange { region, offset: 0, bytes, granule_bytes: 1 }.with_granule(recording, granule_bytes)
    }

    /// The same in granules of `granule_bytes` or, without it, of the finest that gives not too many.
    pub fn with_granule(self, recording: &Recording, granule_bytes: Option<u64>) -> Self {
        let granule_bytes = granule_bytes.unwrap_or_else(|| {
            let mut granule_bytes = finest_granule(recording);
            while self.bytes / granule_bytes > GRANULES_AUTO_MAX {
                granule_bytes = granule_bytes.saturating_mul(2);
            }
            granule_bytes
        });
        RegionRange { granule_bytes: granule_bytes.max(1), ..self }
    }

    /// The granules that it touches, counted from the region's start: the first, and how many.
    pub fn granules(&self) -> (u64, u64) {
        let first = self.offset / self.granule_bytes;
        let end = self.offset.saturating_add(self.bytes).div_ceil(self.granule_bytes);
        (first, (end - first).max(1))
    }
}

/// The finest granule that a recording's samples have.
pub fn finest_granule(recording: &Recording) -> u64 {
    match recording.head.granule_bytes {
        0 => 4096,
        bytes => bytes,
    }
}
