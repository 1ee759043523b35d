//! Slices that were read from a journal, and their samples.
//!
//! Who follows a recording for hours has no room for all of them. Where there are more than the [`Limits`] allow, neighbouring slices are
//! taken together, always the same number of them, and then neighbouring stretches of memory. Accesses are added up; of what was in memory
//! the most counts, as everywhere ([`crate::recording::touched()`]). Nothing is left out.

use std::collections::BTreeMap;

use super::JournalSample;
use crate::recording::{Rss, Slice};

/// How much of a recording is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Slices at most.
    pub slices_max: usize,
    /// Samples at most; one for each region, whatever their number.
    pub samples_max: usize,
}

impl Limits {
    /// All of it.
    pub const NONE: Limits = Limits { slices_max: usize::MAX, samples_max: usize::MAX };
}

/// Slices stay apart down to this number as long as stretches of memory can be taken together instead.
const SLICES_APART: usize = 64;
/// Regions are not larger.
const CELL_BYTES_MAX: u64 = 1 << 47;
/// Where that does not help, as with many regions that have a sample each, there are no fewer than these.
const SLICES_MIN: usize = 4;

/// Slices and samples so far.
#[derive(Debug)]
pub(super) struct Kept {
    limits: Limits,
    /// Slices of the journal.
    count: u32,
    /// How many of those one here has; the last one may have fewer.
    together: u32,
    slices: Vec<Slice>,
    /// Samples in the order of slices, each with its own.
    samples: Vec<(u32, JournalSample)>,
    /// Samples of one stretch of so many bytes are taken together, 0 for those of the same range alone.
    cell_bytes: u64,
    /// By the number of the process.
    rss: BTreeMap<u32, Rss>,
}

impl Default for Kept {
    fn default() -> Self {
        Kept::within(Limits::NONE)
    }
}

impl Kept {
    pub(super) fn within(limits: Limits) -> Self {
        Kept {
            limits: Limits { slices_max: limits.slices_max.max(SLICES_MIN), ..limits },
            count: 0,
            together: 1,
            slices: Vec::new(),
            samples: Vec::new(),
            cell_bytes: 0,
            rss: BTreeMap::new(),
        }
    }

    /// Slices of the journal.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// How many of those one of [`Self::slices`] has.
    pub(super) fn together(&self) -> u32 {
        self.together
    }

    pub(super) fn slices(&self) -> &[Slice] {
        &self.slices
    }

    pub(super) fn samples(&self) -> &[(u32, JournalSample)] {
        &self.samples
    }

    pub(super) fn rss(&self, process: u32) -> Rss {
        self.rss.get(&process).cloned().unwrap_or_default()
    }

    /// The slice here that has a slice of the journal.
    pub(super) fn place(&self, slice: u32) -> u32 {
        slice / self.together
    }

    /// Adds the next slice. `None`, and nothing is added, if there are too many.
    pub(super) fn push(
        &mut self,
        slice: Slice,
        rss: &[(u32, u64)],
        samples: impl Iterator<Item = JournalSample>,
    ) -> Option<()> {
        let next = self.count.checked_add(1)?;
        let number = self.place(self.count);
        let begins = number as usize == self.slices.len();
        match self.slices.last_mut() {
            Some(last) if !begins => last.end_ns = slice.end_ns,
            _ => self.slices.push(slice),
        }
        // What was in memory is told at the end of the last one: a process that has ended has nothing there any more.
        self.rss.values_mut().for_each(|rss| rss.forget(number));
        for (process, bytes) in rss {
            self.rss.entry(*process).or_default().put(number, *bytes);
        }
        self.samples.extend(samples.map(|sample| (number, sample)));
        if !begins || self.cell_bytes > 0 {
            let from = self.samples.partition_point(|(its, _)| *its < number);
            let last = self.samples.split_off(from);
            self.samples.extend(joined(last, self.cell_bytes));
        }
        self.count = next;
        self.make_room();
        Some(())
    }

    fn make_room(&mut self) {
        while self.slices.len() > self.limits.slices_max {
            self.halve_slices();
        }
        while self.samples.len() > self.limits.samples_max {
            if self.slices.len() > SLICES_APART {
                self.halve_slices();
                continue;
            }
            let before = self.samples.len();
            if self.cell_bytes < CELL_BYTES_MAX {
                self.coarsen();
            }
            if self.samples.len() * 8 > before * 7 {
                if self.slices.len() <= SLICES_MIN {
                    break;
                }
                self.halve_slices();
            }
        }
    }

    /// Takes two slices each together.
    fn halve_slices(&mut self) {
        self.together = self.together.saturating_mul(2);
        let slices = self.slices.len();
        let pair = |pair: &[Slice]| Slice { start_ns: pair[0].start_ns, end_ns: pair[pair.len() - 1].end_ns };
        self.slices = self.slices.chunks(2).map(pair).collect();
        self.samples.iter_mut().for_each(|(slice, _)| *slice /= 2);
        self.rss.values_mut().for_each(|rss| *rss = rss.of_pairs(slices));
        self.rss.retain(|_, rss| !rss.is_empty());
        self.samples = joined(std::mem::take(&mut self.samples), self.cell_bytes);
    }

    /// Takes stretches of memory together that are twice as long as before, at first as half of the samples are.
    fn coarsen(&mut self) {
        if self.cell_bytes == 0 {
            let mut sizes: Vec<u64> = self.samples.iter().map(|(_, sample)| sample.bytes).collect();
            let middle = sizes.len() / 2;
            self.cell_bytes = sizes.select_nth_unstable(middle).1.checked_next_power_of_two().unwrap_or(1);
        }
        self.cell_bytes = self.cell_bytes.saturating_mul(2);
        self.samples = joined(std::mem::take(&mut self.samples), self.cell_bytes);
    }
}

/// Samples in the order of slices, of which those that belong together are one: of one region, source and kind, and of the same range, or of
/// ranges in the same cell.
fn joined(mut samples: Vec<(u32, JournalSample)>, cell_bytes: u64) -> Vec<(u32, JournalSample)> {
    let kind = |(slice, it): &(u32, JournalSample)| {
        (*slice, it.region, it.source, it.op.code(), it.level as u8, it.node)
    };
    samples.sort_unstable_by_key(|it| (kind(it), it.1.address, it.1.bytes));
    let is_small = |it: &JournalSample| it.bytes < cell_bytes;
    let mut out: Vec<(u32, JournalSample)> = Vec::with_capacity(samples.len());
    for sample in samples {
        let last = out.last_mut().filter(|last| {
            let (one, other) = (&last.1, &sample.1);
            let is_same = one.address == other.address && one.bytes == other.bytes;
            let is_near = || {
                is_small(other)
                    && one.bytes <= cell_bytes
                    && one.address / cell_bytes == other.address / cell_bytes
            };
            kind(last) == kind(&sample) && (is_same || is_near())
        });
        match last {
            Some((_, last)) => join(last, &sample.1),
            None => out.push(sample),
        }
    }
    out.shrink_to_fit();
    out
}

/// Adds a sample to one that begins no later.
fn join(one: &mut JournalSample, other: &JournalSample) {
    let (end, other_end) = (one.address + one.bytes, other.address + other.bytes);
    let in_memory = if other.address < end {
        one.resident.max(other.resident)
    } else {
        one.resident.saturating_add(other.resident)
    };
    one.bytes = end.max(other_end) - one.address;
    one.resident = in_memory.min(one.bytes);
    one.weight += other.weight;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Level, NODE_UNKNOWN};
    use tiermem_base::Op;

    const PAGE: u64 = 4096;

    fn sample(region: u32, page: u64, resident: u64) -> JournalSample {
        JournalSample {
            region,
            address: page * PAGE,
            bytes: PAGE,
            weight: 1.0,
            resident,
            source: 0,
            op: Op::Unknown,
            level: Level::Unknown,
            node: NODE_UNKNOWN,
        }
    }

    fn slice(number: u64) -> Slice {
        Slice { start_ns: number * 10, end_ns: number * 10 + 9 }
    }

    fn weight(kept: &Kept) -> f64 {
        kept.samples().iter().map(|(_, sample)| sample.weight).sum()
    }

    #[test]
    fn slices_are_taken_together_and_accesses_added_up() {
        let mut kept = Kept::within(Limits { slices_max: 8, samples_max: 1 << 20 });
        for number in 0..100 {
            let pages = [number % 4, 7];
            let samples = pages.map(|page| sample(0, page, number.min(50)));
            // A process that ends, and one that begins, in the middle of slices that are taken together.
            let rss = if number < 50 { [(0, 100 + number)] } else { [(1, number)] };
            kept.push(slice(number), &rss, samples.into_iter()).unwrap();
        }
        assert_eq!((kept.count(), kept.together(), kept.slices().len()), (100, 16, 7));
        assert_eq!(
            (kept.slices()[0], kept.slices()[6]),
            (Slice { start_ns: 0, end_ns: 159 }, Slice { start_ns: 960, end_ns: 999 })
        );
        assert_eq!(weight(&kept), 200.0);
        // Five different pages in each, and each with the most that was in memory.
        assert_eq!(kept.samples().len(), 7 * 5);
        let of = |number: u32, page: u64| {
            let found = kept.samples().iter().filter(|(its, it)| *its == number && it.address == page * PAGE);
            found.map(|(_, it)| (it.weight, it.resident)).collect::<Vec<_>>()
        };
        assert_eq!((of(0, 7), of(1, 3), of(6, 7)), (vec![(16.0, 15)], vec![(4.0, 31)], vec![(4.0, 50)]));
        let told = |process: u32| (0..8).map(|at| kept.rss(process).at(at)).collect::<Vec<_>>();
        assert_eq!(told(0), [Some(115), Some(131), Some(147), None, None, None, None, None]);
        assert_eq!(told(1), [None, None, None, Some(63), Some(79), Some(95), Some(99), None]);
        assert_eq!((kept.place(15), kept.place(16), kept.place(99)), (0, 1, 6));
    }

    #[test]
    fn stretches_are_taken_together_where_there_are_many() {
        let mut kept = Kept::within(Limits { slices_max: 8, samples_max: 100 });
        for number in 0..8 {
            kept.push(slice(number), &[], (0..64).map(|page| sample(0, page, PAGE))).unwrap();
            assert!(kept.samples().len() <= 100, "{}", kept.samples().len());
        }
        assert_eq!((kept.slices().len(), weight(&kept)), (8, 512.0));
        let in_memory = |number: u32| {
            kept.samples().iter().filter(|(its, _)| *its == number).map(|(_, it)| it.resident).sum::<u64>()
        };
        // Whichever cells they are in, and however often they were accessed.
        assert!((0..8).all(|number| in_memory(number) == 64 * PAGE));
        assert!(kept.samples().iter().all(|(_, it)| it.bytes == 8 * PAGE && it.resident == it.bytes));
    }

    #[test]
    fn regions_stay_apart_whatever_their_number() {
        let mut kept = Kept::within(Limits { slices_max: 64, samples_max: 1000 });
        for number in 0..64 {
            kept.push(slice(number), &[], (0..500).map(|region| sample(region, 10 * u64::from(region), 1)))
                .unwrap();
        }
        assert!(kept.slices().len() <= SLICES_MIN && kept.samples().len() <= SLICES_MIN * 500);
        assert_eq!(weight(&kept), 64.0 * 500.0);
    }
}
