//! Unmapped units: no longer cached, as the log was told but may not have made durable yet. Until it has, a crash
//! could bring an old mapping back, with the store's contents of that time: no new data may reach the store there.

use std::collections::HashMap;
use std::ops::Range;

use crate::journal::Lsn;

/// Number of regions remembered before the settled ones are removed.
const REGIONS_MIN: usize = 1024;

/// The last record of that kind for each region of a volume. No block crosses the bounds of a region.
#[derive(Debug)]
pub(super) struct Unmapped {
    region_units: u64,
    last: HashMap<(u16, u64), Lsn>,
    /// Number of regions at the next check.
    regions_max: usize,
}

impl Unmapped {
    /// With regions of the largest block.
    pub(super) fn new(region_units: u64) -> Self {
        Unmapped { region_units, last: HashMap::new(), regions_max: REGIONS_MIN }
    }

    fn regions(&self, units: &Range<u64>) -> Range<u64> {
        units.start / self.region_units..units.end.div_ceil(self.region_units)
    }

    /// A record says that these units of a volume are not cached any more.
    pub(super) fn note(&mut self, volume: u16, units: &Range<u64>, lsn: Lsn, synced: Lsn) {
        for region in self.regions(units) {
            self.last.insert((volume, region), lsn);
        }
        if self.last.len() > self.regions_max {
            self.last.retain(|_, lsn| *lsn > synced);
            self.regions_max = (2 * self.last.len()).max(REGIONS_MIN);
        }
    }

    /// Up to where the log must be durable before these units of a volume may change in the store.
    pub(super) fn last_of(&self, volume: u16, units: &Range<u64>) -> Lsn {
        let lsns = self.regions(units).filter_map(|region| self.last.get(&(volume, region)));
        lsns.copied().max().unwrap_or(Lsn(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_record_counts_where_it_is_about_the_same_region() {
        let mut unmapped = Unmapped::new(64);
        unmapped.note(0, &(0..16), Lsn(5), Lsn(0));
        unmapped.note(0, &(60..70), Lsn(7), Lsn(0));
        unmapped.note(1, &(0..16), Lsn(9), Lsn(0));
        assert_eq!(unmapped.last_of(0, &(32..33)), Lsn(7));
        assert_eq!(unmapped.last_of(0, &(64..65)), Lsn(7));
        assert_eq!(unmapped.last_of(0, &(128..500)), Lsn(0));
        assert_eq!(unmapped.last_of(1, &(63..65)), Lsn(9));
    }

    #[test]
    fn what_is_durable_is_forgotten() {
        let mut unmapped = Unmapped::new(1);
        for lsn in 1..=3 * REGIONS_MIN as u64 {
            unmapped.note(0, &(lsn..lsn + 1), Lsn(lsn), Lsn(lsn - 1));
        }
        assert!(unmapped.last.len() <= REGIONS_MIN + 1);
        let last = 3 * REGIONS_MIN as u64;
        assert_eq!(unmapped.last_of(0, &(last..last + 1)), Lsn(last));
    }
}
