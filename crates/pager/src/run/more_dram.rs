//! What more DRAM would have saved: page faults by the size of DRAM.

use std::time::Duration;

use super::report::Report;

const PAGE_BYTES: u64 = 4096;
const GIB: u64 = 1 << 30;
/// More DRAM, in percent of what it has.
const MORE_PERCENT: [u64; 8] = [10, 25, 50, 75, 100, 150, 200, 300];
/// The part of the faults that is left where there are few.
const FEW_ONE_OF: u64 = 10;

/// A run as it would have been with another size of DRAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DramSize {
    /// The limit of DRAM.
    pub dram_bytes: u64,
    /// Page faults that read from disk.
    pub faults: u64,
    /// Pages fetched ahead that were used.
    pub fetched_pages: u64,
    /// How long those faults would have taken at the median of those that were measured.
    pub wait: Option<Duration>,
}

impl Report {
    /// It with more DRAM, by ascending size, the first as it was; empty where nobody has watched what left and came back.
    pub fn more_dram(&self) -> Vec<DramSize> {
        let mut more: Vec<u64> = MORE_PERCENT.map(|percent| self.dram_bytes / 100 * percent).into();
        more.extend((self.dram_bytes / 10..=4 * self.dram_bytes).contains(&GIB).then_some(GIB));
        more.push(0);
        more.sort_unstable();
        more.dedup();
        more.into_iter().filter_map(|more| self.with_more(more)).collect()
    }

    /// It with so many bytes of DRAM more.
    pub fn with_more(&self, bytes: u64) -> Option<DramSize> {
        let steered = self.steered.as_ref().filter(|steered| steered.has_begun)?;
        let saved = steered.more_dram.saved_by(bytes / PAGE_BYTES);
        let faults = self.major_faults.saturating_sub(saved.faults);
        Some(DramSize {
            dram_bytes: self.dram_bytes + bytes,
            faults,
            fetched_pages: steered.counts.prefetch_used.saturating_sub(saved.fetches),
            wait: self.fault_times.map(|times| Duration::from_secs_f64(faults as f64 * times.p50_us / 1e6)),
        })
    }

    /// How much more is worth a sentence: a gibibyte where that is no trifle and no multiple of what it has, else a quarter.
    pub fn next_bytes(&self) -> u64 {
        let is_fit = (self.dram_bytes / 10..=self.dram_bytes).contains(&GIB);
        if is_fit { GIB } else { self.dram_bytes / 4 }
    }

    /// The size of DRAM at which a tenth of the page faults is left; `None` where there is no such size, or it is not known.
    pub fn tenth_dram_bytes(&self) -> Option<u64> {
        let steered = self.steered.as_ref().filter(|_| self.major_faults > 0)?;
        let saved = self.major_faults - self.major_faults / FEW_ONE_OF;
        steered.more_dram.pages_to_save(saved).map(|pages| self.dram_bytes + pages * PAGE_BYTES)
    }
}
