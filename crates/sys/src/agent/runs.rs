//! Sampled runs of pages, one in each granule, that represent the granule. Their positions follow from a seed, so both ends of
//! the socket know them.

use tiermem_base::Rng;

/// How runs are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Bytes of a granule, a multiple of 4096.
    pub granule_bytes: u64,
    /// Where one of the granules starts.
    pub origin: u64,
    /// Bytes of a run, a multiple of 4096, at most a granule's.
    pub run_bytes: u64,
    /// Another seed puts the runs elsewhere.
    pub seed: u64,
}

/// A run and its granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its first address.
    pub start: u64,
    /// Behind its last one.
    pub end: u64,
    /// The first address of its granule, as far as it lies in the range.
    pub granule_start: u64,
    /// Behind its last one.
    pub granule_end: u64,
}

const PAGE_BYTES: u64 = 4096;

impl Draw {
    /// Whether it makes sense.
    pub fn is_valid(self) -> bool {
        let is_pages = |bytes: u64| bytes >= PAGE_BYTES && bytes.is_multiple_of(PAGE_BYTES);
        let origin = self.origin.is_multiple_of(PAGE_BYTES);
        is_pages(self.granule_bytes)
            && is_pages(self.run_bytes)
            && self.run_bytes <= self.granule_bytes
            && origin
    }

    /// The runs of a range, in the order of addresses; none of a draw that is not valid. A granule of which less than a run
    /// lies in the range is its own run.
    pub fn runs(self, address: u64, bytes: u64) -> impl Iterator<Item = Run> {
        let end = if self.is_valid() { address.saturating_add(bytes) } else { address };
        let granule_bytes = self.granule_bytes.max(PAGE_BYTES);
        // The origin may lie behind the range, which has grown downward since.
        let behind =
            (i128::from(address) - i128::from(self.origin)).rem_euclid(i128::from(granule_bytes)) as u64;
        let mut next = address;
        let mut until = address.saturating_add(granule_bytes - behind).min(end);
        std::iter::from_fn(move || {
            if next >= end {
                return None;
            }
            let (granule_start, granule_end) = (next, until);
            (next, until) = (until, until.saturating_add(granule_bytes).min(end));
            let places = (granule_end - granule_start).saturating_sub(self.run_bytes) / PAGE_BYTES;
            let place = Rng::seeded(self.seed ^ granule_start).below(places + 1);
            let start = granule_start + place * PAGE_BYTES;
            let end = start.saturating_add(self.run_bytes).min(granule_end);
            Some(Run { start, end, granule_start, granule_end })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn granules_cover_a_range_and_each_has_its_run(
            from in 0..1_u64 << 30, pages in 0..5000_u64, granule in 1..300_u64, run in 1..40_u64, origin in 0..1_u64 << 30, seed: u64,
        ) {
            let (address, bytes) = (from * PAGE_BYTES, pages * PAGE_BYTES);
            let run_bytes = run.min(granule) * PAGE_BYTES;
            let draw = Draw { granule_bytes: granule * PAGE_BYTES, origin: origin * PAGE_BYTES, run_bytes, seed };
            let mut next = address;
            for run in draw.runs(address, bytes) {
                prop_assert_eq!(run.granule_start, next);
                prop_assert!(run.granule_start <= run.start && run.start < run.end && run.end <= run.granule_end);
                prop_assert_eq!(run.end - run.start, run_bytes.min(run.granule_end - run.granule_start));
                let from_origin = i128::from(run.granule_end) - i128::from(draw.origin);
                prop_assert!(run.granule_end == address + bytes || from_origin % i128::from(draw.granule_bytes) == 0);
                next = run.granule_end;
            }
            prop_assert_eq!(next, address + bytes);
        }
    }

    #[test]
    fn another_seed_draws_other_runs_and_nonsense_draws_none() {
        let draw = Draw { granule_bytes: 4 << 20, origin: 0, run_bytes: 128 << 10, seed: 1 };
        let starts = |draw: Draw| draw.runs(0, 1 << 30).map(|run| run.start).collect::<Vec<_>>();
        assert_eq!(starts(draw), starts(draw));
        assert_ne!(starts(draw), starts(Draw { seed: 2, ..draw }));
        assert!(starts(Draw { run_bytes: 0, ..draw }).is_empty());
        assert!(starts(Draw { granule_bytes: 5000, ..draw }).is_empty());
        assert_eq!(draw.runs(u64::MAX - 4095, u64::MAX).count(), 1);
    }
}
