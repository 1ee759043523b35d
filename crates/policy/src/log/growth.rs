//! Growth of a log's device, which is divided into equal regions, one for each shard: whole segments, the same number to each.
//!
//! ```text
//! region 0 | region 1 | first growth: of 0, of 1 | second growth: of 0, of 1 | ...
//! ```
//!
//! Nothing moves. So it suffices that each region knows how many segments each growth gave it. All regions take the same growths in
//! the same order: one that has taken fewer, because the process died meanwhile, takes the others later, and no two ever overlap.

use tiermem_base::Bytes;

use super::{LOG_PAGE_BYTES, PAGES_MAX, Region};

/// Growths that a superblock has room for.
pub const GROWTHS_MAX: usize = 256;

/// Why a device does not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotGrow {
    /// It would shrink.
    #[error("it has {0} and never shrinks: to have a smaller one, begin an empty one with --reset")]
    Smaller(Bytes),
    /// Beyond what places can name.
    #[error("places of items reach to {0} with this number of shards: give at most that")]
    TooLarge(Bytes),
    /// As often as a superblock can name.
    #[error("it has grown {GROWTHS_MAX} times, which is as often as it can: begin an empty one with --reset")]
    TooOften,
}

/// A device's regions, and what each was given later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growths {
    region_bytes: u64,
    segment_bytes: u32,
    regions: u32,
    given: Vec<u32>,
}

impl Growths {
    /// `regions` of `region_bytes` each; `given` are the segments that each growth gave to each of them.
    pub fn new(region_bytes: u64, segment_bytes: u32, regions: u32, given: Vec<u32>) -> Self {
        Growths { region_bytes, segment_bytes, regions: regions.max(1), given }
    }

    /// The same regions, which were given this.
    pub fn with_given(&self, given: Vec<u32>) -> Self {
        Growths { given, ..self.clone() }
    }

    /// The segments that each growth gave to each region.
    pub fn given(&self) -> &[u32] {
        &self.given
    }

    /// Notes a growth.
    pub fn give(&mut self, segments: u32) {
        self.given.push(segments);
    }

    /// Bytes of the device that all regions take.
    pub fn capacity_bytes(&self) -> u64 {
        self.region_capacity_bytes().saturating_mul(u64::from(self.regions))
    }

    /// Bytes that each of them takes.
    pub fn region_capacity_bytes(&self) -> u64 {
        self.region_bytes.saturating_add(self.given_segments().saturating_mul(u64::from(self.segment_bytes)))
    }

    fn given_segments(&self) -> u64 {
        self.given.iter().map(|&segments| u64::from(segments)).sum()
    }

    /// Where each growth of this region begins on the device, and its segments.
    pub fn of_region(&self, region: u32) -> impl Iterator<Item = (u64, u32)> {
        let mut start = self.region_bytes.saturating_mul(u64::from(self.regions));
        self.given.iter().map(move |&segments| {
            let bytes = u64::from(segments).saturating_mul(u64::from(self.segment_bytes));
            let own = start.saturating_add(bytes.saturating_mul(u64::from(region)));
            start = start.saturating_add(bytes.saturating_mul(u64::from(self.regions)));
            (own, segments)
        })
    }

    /// Segments to give to each region so that they take at most `capacity_bytes`; 0: they take that now, or lack less than one each.
    ///
    /// # Errors
    /// Why the device cannot grow to that.
    pub fn segments_to(&self, capacity_bytes: u64) -> Result<u32, CannotGrow> {
        let (has, segment) = (self.capacity_bytes(), u64::from(self.segment_bytes));
        let regions = u64::from(self.regions);
        let more = capacity_bytes.checked_sub(has).ok_or(CannotGrow::Smaller(Bytes(has)))?;
        let segments = more / regions / segment;
        if segments == 0 {
            return Ok(0);
        }
        if self.given.len() >= GROWTHS_MAX {
            return Err(CannotGrow::TooOften);
        }
        let own = Region::divide(self.region_bytes, self.segment_bytes).map_or(0, |region| region.segments);
        let most = u64::from(PAGES_MAX) * u64::from(LOG_PAGE_BYTES) / segment;
        let left = most.saturating_sub(u64::from(own) + self.given_segments());
        if segments > left {
            return Err(CannotGrow::TooLarge(Bytes(has + left * segment * regions)));
        }
        Ok(segments as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEGMENT: u32 = 64 << 10;

    proptest! {
        /// However it grows, what the regions have lies apart and within the capacity that was asked for.
        #[test]
        fn nothing_overlaps(
            regions in 1u32..6,
            region_bytes in (1u64 << 20..1 << 22).prop_map(|bytes| bytes / 4096 * 4096),
            wanted in prop::collection::vec(0u64..3 << 20, 0..9),
        ) {
            let mut growths = Growths::new(region_bytes, SEGMENT, regions, Vec::new());
            for more in wanted {
                let capacity_bytes = growths.capacity_bytes() + more;
                if let Ok(segments) = growths.segments_to(capacity_bytes) && segments > 0 {
                    growths.give(segments);
                }
                prop_assert!(growths.capacity_bytes() <= capacity_bytes);
                prop_assert!(capacity_bytes - growths.capacity_bytes() < u64::from(regions * SEGMENT));
            }
            let mut ranges: Vec<(u64, u64)> =
                (0..u64::from(regions)).map(|at| (at * region_bytes, (at + 1) * region_bytes)).collect();
            for region in 0..regions {
                let of = growths.of_region(region);
                ranges.extend(of.map(|(start, segments)| (start, start + u64::from(segments * SEGMENT))));
            }
            ranges.sort_unstable();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0), "{ranges:?}");
            prop_assert_eq!(ranges.last().unwrap().1, growths.capacity_bytes());
        }
    }

    #[test]
    fn what_cannot_be_is_told() {
        let mut growths = Growths::new(1 << 20, SEGMENT, 2, Vec::new());
        let refused = |growths: &Growths, bytes: u64| growths.segments_to(bytes).unwrap_err();
        assert_eq!(growths.segments_to(2 << 20), Ok(0));
        assert_eq!(refused(&growths, (2 << 20) - 1), CannotGrow::Smaller(Bytes(2 << 20)));
        let least = (2 << 20) + 2 * u64::from(SEGMENT);
        assert_eq!(growths.segments_to(least - 1), Ok(0));
        assert_eq!(growths.segments_to(least), Ok(1));
        let CannotGrow::TooLarge(Bytes(most)) = refused(&growths, u64::MAX) else { panic!("it is") };
        let own = Region::divide(1 << 20, SEGMENT).unwrap().segments;
        let segments = growths.segments_to(most).unwrap();
        let pages = u64::from(own + segments) * u64::from(SEGMENT / LOG_PAGE_BYTES);
        assert_eq!(pages, u64::from(PAGES_MAX));
        (0..GROWTHS_MAX).for_each(|_| growths.give(1));
        assert_eq!(refused(&growths, 1 << 30), CannotGrow::TooOften);
    }
}
