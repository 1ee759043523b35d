//! What more DRAM would have saved: page faults by the size of DRAM.

use std::time::Duration;

use tiermem_policy::paging::Saved;

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
        let mut more: Vec<u64> =
            MORE_PERCENT.map(|percent| whole_pages(self.dram_bytes * percent / 100)).into();
        more.extend((self.dram_bytes / 10..=4 * self.dram_bytes).contains(&GIB).then_some(GIB));
        more.push(0);
        more.sort_unstable();
        more.dedup();
        more.into_iter().filter_map(|more| self.with_more(more)).collect()
    }

    /// It with so many bytes of DRAM more.
    pub fn with_more(&self, bytes: u64) -> Option<DramSize> {
        let steered = self.steered.as_ref().filter(|steered| steered.has_begun)?;
        let saved = match bytes {
            0 => Saved::default(),
            // DRAM that holds all that it needs sends nothing away, whatever the kernel reads along.
            _ if self.dram_bytes + bytes >= self.required_bytes => steered.more_dram.saved_by(u64::MAX),
            _ => steered.more_dram.saved_by(bytes / PAGE_BYTES),
        };
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
        if is_fit { GIB } else { whole_pages(self.dram_bytes / 4) }
    }

    /// The size of DRAM at which a tenth of the page faults is left; `None` where there is no such size, or it is not known.
    pub fn tenth_dram_bytes(&self) -> Option<u64> {
        let steered = self.steered.as_ref().filter(|_| self.major_faults > 0)?;
        let saved = self.major_faults - self.major_faults / FEW_ONE_OF;
        let bytes = self.dram_bytes + steered.more_dram.pages_to_save(saved)? * PAGE_BYTES;
        Some(bytes.min(self.required_bytes.max(self.dram_bytes)))
    }
}

fn whole_pages(bytes: u64) -> u64 {
    bytes / PAGE_BYTES * PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use tiermem_base::Rng;
    use tiermem_policy::evict::Named;
    use tiermem_policy::evict::any_policy::Order;
    use tiermem_policy::paging::{Act, Config, Event, Outcome, Paging};

    use super::*;
    use crate::run::{Cause, Ended, How, MeasuredTimes};
    use crate::steer::Steered;

    /// What is known after three passes over twice as many pages as there are.
    fn steered(dram_pages: u32) -> Steered {
        let order = Order::new(Named::Lru, 1, 0);
        let mut core = Paging::new(Config::kernel(dram_pages, 8 * dram_pages), order).unwrap();
        let (mut rng, mut acts) = (Rng::seeded(0), Vec::<Act>::new());
        for now in 0..u64::from(6 * dram_pages) {
            let (page, major) = (now % u64::from(2 * dram_pages), now >= u64::from(2 * dram_pages));
            core.on(Event::Fault { page, major, write: true }, now, &mut rng, &mut acts);
            core.on(Event::Step { budget: 64 }, now, &mut rng, &mut acts);
            while let Some(act) = acts.pop() {
                let settled = Event::Settled { ticket: act.ticket(), outcome: Outcome::Done };
                core.on(settled, now, &mut rng, &mut acts);
            }
        }
        let more_dram = core.more_dram().clone();
        Steered { has_begun: true, counts: core.counts(), more_dram, ..Steered::default() }
    }

    fn report(dram_bytes: u64, required_bytes: u64) -> Report {
        let steered = steered((dram_bytes / PAGE_BYTES) as u32);
        Report {
            how: How::Kernel,
            required_bytes,
            charged_peak_bytes: dram_bytes,
            dram_bytes,
            pool: None,
            flash_bytes: None,
            flash_peak_bytes: dram_bytes,
            foreign_bytes: None,
            real: Duration::from_secs(1),
            usage: None,
            pager_cpu: Duration::ZERO,
            // Some read a file.
            major_faults: steered.counts.faults + 100,
            minor_faults: 0,
            shared_bytes: 0,
            read_bytes: 0,
            written_bytes: 0,
            is_of_machine: false,
            fault_times: Some(MeasuredTimes { p50_us: 50.0, p99_us: 100.0, count: 9 }),
            steered: Some(steered),
            slices: Vec::new(),
            ended: Ended { cause: Cause::Detached, full: None },
        }
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn faults_are_left_until_all_fits() {
        let report = report(16 * MIB, 40 * MIB);
        let faults = 4 * 4096 + 100;
        assert_eq!(report.major_faults, faults);
        let rows = report.more_dram();
        // A gibibyte is too much more to be told.
        let sizes: Vec<u64> = rows.iter().map(|row| row.dram_bytes * 100 / (16 * MIB)).collect();
        assert_eq!(sizes, [100, 109, 125, 150, 175, 200, 250, 300, 400]);
        assert!(rows.iter().all(|row| row.dram_bytes % PAGE_BYTES == 0));
        // Two passes of twice its size. Where it keeps some pages free it is a little less than its size.
        let left: Vec<u64> = rows.iter().map(|row| row.faults).collect();
        assert_eq!(left[..5], [faults; 5]);
        assert_eq!(left[6..], [100; 3]);
        assert_eq!(rows[0].wait, Some(Duration::from_micros(faults * 50)));
        assert_eq!(rows[8].wait, Some(Duration::from_micros(100 * 50)));
        let tenth_bytes = report.tenth_dram_bytes().unwrap();
        assert!((31 * MIB..33 * MIB).contains(&tenth_bytes), "{tenth_bytes}");
    }

    #[test]
    fn dram_that_holds_all_that_is_needed_saves_all() {
        let report = report(16 * MIB, 24 * MIB);
        assert_eq!(report.with_more(8 * MIB - 4096).unwrap().faults, report.major_faults);
        assert_eq!(report.with_more(8 * MIB).unwrap().faults, 100);
        assert_eq!(report.tenth_dram_bytes(), Some(24 * MIB));
        assert_eq!(report.next_bytes(), 4 * MIB);
    }

    #[test]
    fn where_nothing_was_watched_nothing_is_known() {
        let unknown = Report { steered: None, ..report(16 * MIB, 24 * MIB) };
        assert_eq!((unknown.more_dram(), unknown.tenth_dram_bytes()), (Vec::new(), None));
        let not_begun = Report { steered: Some(Steered::default()), ..unknown };
        assert_eq!((not_begun.more_dram(), not_begun.with_more(0)), (Vec::new(), None));
    }
}
