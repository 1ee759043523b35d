//! Trims that wait until they may reach the store.
//!
//! A trim is a write of anything: it comes behind all that was written before it, like the writes of its epoch. So it waits until the store
//! has that epoch, and what is written to its units meanwhile takes them out of it. That keeps each order of write-back: an image as of a
//! flush before the trim has what was there.
//!
//! It promises nothing. What is forgotten, by a restart or because there are too many, costs the store's room and no client anything.

use std::collections::BTreeMap;
use std::ops::Range;

use super::pause::Pause;
use crate::extents::geometry::UNIT_BYTES;

/// Most runs of units that wait, of a volume: some 300 KiB of memory. Beyond that the shortest are forgotten.
const RUNS_MAX: usize = 4096;
/// Units of one trim of the store: 32 MiB, as in the largest request that clients may send.
const TRIM_UNITS_MAX: u64 = (32 << 20) / UNIT_BYTES;

/// Runs of units, each with the epoch in which it was trimmed. None overlap, and none that touch are of one epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Runs {
    /// By their first unit: the unit behind them, and the epoch.
    runs: BTreeMap<u64, (u64, u64)>,
}

impl Runs {
    /// The first run that ends behind a unit, and its epoch.
    fn first_from(&self, unit: u64) -> Option<(Range<u64>, u64)> {
        let before = self.runs.range(..=unit).next_back().filter(|(_, (end, _))| *end > unit);
        let (&start, &(end, epoch)) = before.or_else(|| self.runs.range(unit..).next())?;
        Some((start..end, epoch))
    }

    /// Takes a range out.
    fn remove(&mut self, units: &Range<u64>) {
        while let Some((run, epoch)) = self.first_from(units.start).filter(|(run, _)| run.start < units.end) {
            self.runs.remove(&run.start);
            if run.start < units.start {
                self.runs.insert(run.start, (units.start, epoch));
            }
            if units.end < run.end {
                self.runs.insert(units.end, (run.end, epoch));
            }
        }
    }

    /// Adds what is missing of a range. What is there keeps its epoch, which is no later: nothing was written there since.
    fn add(&mut self, units: &Range<u64>, epoch: u64) {
        let mut at = units.start;
        while at < units.end {
            let next = self.first_from(at).map_or(u64::MAX..u64::MAX, |(run, _)| run);
            if at < next.start {
                self.join(at..units.end.min(next.start), epoch);
            }
            at = next.end;
        }
    }

    /// Adds a run to its neighbours of the same epoch.
    fn join(&mut self, mut run: Range<u64>, epoch: u64) {
        let before = self.runs.range(..run.start).next_back().map(|(&start, &it)| (start, it));
        if let Some((start, _)) = before.filter(|(_, it)| *it == (run.start, epoch)) {
            run.start = start;
        }
        if let Some(&(end, _)) = self.runs.get(&run.end).filter(|(_, of)| *of == epoch) {
            self.runs.remove(&run.end);
            run.end = end;
        }
        self.runs.insert(run.start, (run.end, epoch));
    }

    /// Forgets the shortest runs beyond the largest number.
    fn limit(&mut self) {
        while self.runs.len() > RUNS_MAX {
            let shortest =
                self.runs.iter().min_by_key(|(start, (end, _))| end - *start).map(|(start, _)| *start);
            shortest.map(|start| self.runs.remove(&start));
        }
    }
}

/// The trims of one volume that its store has not had.
#[derive(Clone, Debug, Default)]
pub(super) struct Trims {
    waiting: Runs,
    /// No run that waits is of an earlier epoch.
    earliest: u64,
    /// What the store is asked to trim, as it was asked.
    asked: Option<Range<u64>>,
    /// What of that was not written since: it waits again if the store fails.
    going: Runs,
    /// The store failed one: no other is sent for a while. Writes are, as it may take those.
    pub pause: Pause,
}

impl Trims {
    /// Units are trimmed, in this epoch.
    pub fn add(&mut self, units: &Range<u64>, epoch: u64) {
        self.earliest = if self.waiting.runs.is_empty() { epoch } else { self.earliest.min(epoch) };
        self.waiting.add(units, epoch);
        self.waiting.limit();
    }

    /// Units are written: what they become is not to be trimmed.
    pub fn written(&mut self, units: &Range<u64>) {
        for runs in [&mut self.waiting, &mut self.going] {
            runs.remove(units);
            // A run may have become two.
            runs.limit();
        }
    }

    /// The next units that the store may be asked to trim: a run of an epoch that `is_flushed`. One is under way at a time.
    pub fn next(&mut self, is_flushed: impl Fn(u64) -> bool) -> Option<Range<u64>> {
        if !self.may_be_due(&is_flushed) {
            return None;
        }
        let mut runs = self.waiting.runs.iter();
        let Some((&start, &(end, epoch))) = runs.find(|(_, (_, epoch))| is_flushed(*epoch)) else {
            self.earliest = self.waiting.runs.values().map(|(_, epoch)| *epoch).min().unwrap_or(0);
            return None;
        };
        let units = start..end.min(start + TRIM_UNITS_MAX);
        self.waiting.remove(&units);
        self.going.add(&units, epoch);
        self.asked = Some(units.clone());
        Some(units)
    }

    /// The store has answered; what it failed to trim waits again.
    pub fn answered(&mut self, now_ns: u64, is_done: bool) {
        self.asked = None;
        let going = std::mem::take(&mut self.going);
        if is_done {
            self.pause.reset();
            return;
        }
        self.pause.failed(now_ns);
        going.runs.into_iter().for_each(|(start, (end, epoch))| self.add(&(start..end), epoch));
    }

    /// Whether a trim of some of these units is under way: what else goes to their place in the store must wait for its end.
    pub fn are_asked(&self, units: &Range<u64>) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.start < units.end && units.start < asked.end)
    }

    /// Whether one may wait for nothing but its turn.
    pub fn may_be_due(&self, is_flushed: impl Fn(u64) -> bool) -> bool {
        self.asked.is_none() && !self.waiting.runs.is_empty() && is_flushed(self.earliest)
    }

    /// Whether none waits or is under way.
    pub fn is_empty(&self) -> bool {
        self.asked.is_none() && self.waiting.runs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The epoch of each unit.
    fn by_unit(runs: &Runs) -> BTreeMap<u64, u64> {
        let mut before: Option<(u64, u64)> = None;
        let mut units = BTreeMap::new();
        for (&start, &(end, epoch)) in &runs.runs {
            assert!(start < end && before.is_none_or(|(to, of)| to < start || to == start && of != epoch));
            before = Some((end, epoch));
            units.extend((start..end).map(|unit| (unit, epoch)));
        }
        units
    }

    proptest! {
        #[test]
        fn runs_are_like_a_map_of_units(steps in prop::collection::vec((any::<bool>(), 0u64..40, 1u64..12, 0u64..3), 1..60)) {
            let (mut runs, mut naive) = (Runs::default(), BTreeMap::new());
            for (adds, at, len, epoch) in steps {
                let units = at..at + len;
                if adds {
                    runs.add(&units, epoch);
                    units.for_each(|unit| _ = naive.entry(unit).or_insert(epoch));
                } else {
                    runs.remove(&units);
                    naive.retain(|unit, _| !units.contains(unit));
                }
                prop_assert_eq!(&by_unit(&runs), &naive);
            }
        }
    }

    #[test]
    fn a_trim_waits_for_its_epoch_and_one_goes_at_a_time() {
        let mut trims = Trims::default();
        trims.add(&(10..20), 2);
        trims.add(&(30..40), 1);
        assert_eq!(trims.next(|epoch| epoch < 1), None);
        assert_eq!(trims.next(|epoch| epoch < 2), Some(30..40));
        assert!(trims.are_asked(&(39..50)) && !trims.are_asked(&(40..50)) && !trims.are_asked(&(10..30)));
        assert_eq!(trims.next(|_| true), None, "one is under way");
        trims.answered(0, true);
        assert_eq!(trims.next(|epoch| epoch < 2), None);
        assert_eq!(trims.next(|_| true), Some(10..20));
        trims.answered(0, true);
        assert!(trims.is_empty());
    }

    #[test]
    fn what_is_written_is_not_trimmed_and_not_tried_again() {
        let mut trims = Trims::default();
        trims.add(&(0..100), 0);
        trims.written(&(10..20));
        assert_eq!(trims.next(|_| true), Some(0..10));
        trims.written(&(2..4));
        trims.answered(0, false);
        assert_eq!(trims.pause.until_ns(), 100_000_000);
        assert_eq!(by_unit(&trims.waiting).len(), 8 + 80);
        assert_eq!(trims.next(|_| true), Some(0..2));
        // Written, and trimmed anew while it is on its way: that waits for the epoch of its own.
        trims.written(&(0..2));
        trims.add(&(0..2), 7);
        trims.answered(0, true);
        assert_eq!(by_unit(&trims.waiting).get(&1), Some(&7));
    }

    #[test]
    fn a_large_trim_goes_in_pieces() {
        let mut trims = Trims::default();
        trims.add(&(5..TRIM_UNITS_MAX * 2), 0);
        for expected in [5..TRIM_UNITS_MAX + 5, TRIM_UNITS_MAX + 5..2 * TRIM_UNITS_MAX] {
            assert_eq!(trims.next(|_| true), Some(expected));
            trims.answered(0, true);
        }
        assert!(trims.is_empty());
    }

    #[test]
    fn the_shortest_are_forgotten_where_there_are_too_many() {
        let mut trims = Trims::default();
        for number in 0..2 * RUNS_MAX as u64 {
            let start = number * 100;
            trims.add(&(start..start + 1 + 9 * (number % 2)), 0);
        }
        assert_eq!(trims.waiting.runs.len(), RUNS_MAX);
        assert_eq!(by_unit(&trims.waiting).len(), 10 * RUNS_MAX, "all long ones are there");
        trims.written(&(105..106));
        assert_eq!(trims.waiting.runs.len(), RUNS_MAX, "that cuts one in two");
    }
}
