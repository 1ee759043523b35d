//! State of each unit of the cache: not cached, clean (the store has it too), dirty (the store lacks it), or lost (dirty and not
//! readable any more).
//!
//! A unit is *valid* where the cache holds the volume's content, and *dirty* where the backing store does not have that yet. A
//! dirty unit whose bytes the cache's device no longer gives is *lost*: it cannot be written back, and the store has older
//! content, which must not be read instead. It stays valid, dirty and lost until it is written anew, and its block keeps its
//! place until then.
//!
//! A unit *failed* when the cache's device failed a read or a write of it. It is not used again: nothing is fetched into it, and what is
//! dirty there is not valid any more once it is clean.

use std::collections::BTreeSet;
use std::ops::Range;

use super::bits::RunBits;
use super::geometry::UNIT_BYTES;
use super::plan::Part;

/// The state of all units of the cache, by their numbers there.
#[derive(Debug)]
pub struct Units {
    valid: RunBits,
    dirty: RunBits,
    dirty_units: u64,
    lost: BTreeSet<u64>,
    failed: BTreeSet<u64>,
}

/// The units of a part.
pub(super) fn units_at(part: &Part) -> Range<u64> {
    part.at / UNIT_BYTES..(part.at + part.bytes) / UNIT_BYTES
}

/// These units of a part.
fn within(part: &Part, units: Range<u64>) -> Part {
    let at = units.start * UNIT_BYTES;
    Part { offset: part.offset + (at - part.at), at, bytes: (units.end - units.start) * UNIT_BYTES }
}

impl Units {
    pub(super) fn new(units: u64) -> Self {
        Units {
            valid: RunBits::new(units),
            dirty: RunBits::new(units),
            dirty_units: 0,
            lost: BTreeSet::new(),
            failed: BTreeSet::new(),
        }
    }

    pub(super) fn valid(&self) -> &RunBits {
        &self.valid
    }

    pub(super) fn dirty(&self) -> &RunBits {
        &self.dirty
    }

    /// The runs of these units that are valid.
    pub fn valid_runs(&self, units: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        runs_of(&self.valid, units)
    }

    /// The runs of these units that are dirty.
    pub fn dirty_runs(&self, units: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        runs_of(&self.dirty, units)
    }

    /// Dirty bytes, lost ones included.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_units * UNIT_BYTES
    }

    /// Units hold, or are about to hold, the volume's content.
    pub(super) fn fill(&mut self, units: Range<u64>) {
        self.valid.set(units);
    }

    /// Units hold something newer than the store.
    pub(super) fn make_dirty(&mut self, units: Range<u64>) {
        debug_assert!(self.valid.all(units.clone()), "what is dirty is there");
        self.dirty_units += units.end - units.start - self.dirty.count(units.clone());
        self.dirty.set(units);
    }

    /// Clean units hold nothing any more.
    pub(super) fn drop_clean(&mut self, units: Range<u64>) {
        debug_assert!(!self.dirty.any(units.clone()), "what the store lacks is kept");
        self.valid.clear(units);
    }

    /// The block of these units is dropped, whatever their state.
    pub(super) fn forget(&mut self, units: Range<u64>) {
        self.dirty_units -= self.dirty.count(units.clone());
        self.valid.clear(units.clone());
        self.dirty.clear(units.clone());
        if self.has_lost(units.clone()) {
            self.lost.retain(|unit| !units.contains(unit));
        }
    }

    /// Notes that these parts, which a verdict named, have been written back.
    pub fn cleaned(&mut self, parts: &[Part]) {
        for part in parts {
            let units = units_at(part);
            let cleaned = self.dirty.count(units.clone());
            debug_assert!(cleaned <= self.dirty_units, "what becomes clean was counted when it became dirty");
            debug_assert!(!self.has_lost(units.clone()), "nobody has written back what is lost");
            self.dirty_units -= cleaned;
            self.dirty.clear(units.clone());
            if self.has_failed(units.clone()) {
                for unit in self.failed.range(units) {
                    self.valid.clear(*unit..*unit + 1);
                }
            }
        }
    }

    /// Notes that these parts of the cache do not hold the content that their plan said: filling them failed. None of them is
    /// lost: lost units stay so ([`Self::without_lost`]).
    pub fn invalidate(&mut self, parts: &[Part]) {
        self.cleaned(parts);
        for part in parts {
            self.valid.clear(units_at(part));
        }
    }

    /// The cache's device does not give these units any more, which are dirty. Returns how many were not lost before.
    pub fn lose(&mut self, units: Range<u64>) -> u64 {
        debug_assert!(self.dirty.all(units.clone()), "what is clean can be had from the store");
        units.map(|unit| u64::from(self.lost.insert(unit))).sum()
    }

    /// A unit is written anew. Returns whether it was lost. It is dirty until [`Self::cleaned`] says otherwise.
    pub fn mend(&mut self, unit: u64) -> bool {
        self.lost.remove(&unit)
    }

    /// Whether some of these units are lost.
    #[inline]
    pub fn has_lost(&self, units: Range<u64>) -> bool {
        !self.lost.is_empty() && self.lost.range(units).next().is_some()
    }

    /// All units that are lost, ascending.
    pub(super) fn lost(&self) -> impl Iterator<Item = u64> + '_ {
        self.lost.iter().copied()
    }

    /// The cache's device failed these units, which are not used again.
    pub(super) fn fail(&mut self, units: Range<u64>) {
        self.failed.extend(units);
    }

    /// Whether the cache's device has failed some of these units.
    #[inline]
    pub fn has_failed(&self, units: Range<u64>) -> bool {
        !self.failed.is_empty() && self.failed.range(units).next().is_some()
    }

    /// The runs of these units that have not failed.
    pub(super) fn without_failed(&self, units: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut start = units.start;
        let ends = self.failed.range(units.clone()).copied().chain([units.end]);
        let runs = ends.map(move |end| std::mem::replace(&mut start, end + 1)..end);
        runs.filter(|run| run.start < run.end)
    }

    /// The parts of `parts` that are not lost, in their order.
    pub fn without_lost(&self, parts: &[Part]) -> Vec<Part> {
        let mut out = Vec::new();
        for part in parts {
            let units = units_at(part);
            let mut start = units.start;
            for lost in self.lost.range(units.clone()).copied().chain([units.end]) {
                out.extend((start < lost).then(|| within(part, start..lost)));
                start = lost + 1;
            }
        }
        out
    }

    /// The parts of `parts` that are dirty, or those that are not, in their order.
    pub fn those_dirty(&self, parts: &[Part], is_dirty: bool) -> Vec<Part> {
        let runs = |part: &Part| {
            let part = *part;
            self.dirty.runs(units_at(&part), is_dirty).map(move |run| within(&part, run))
        };
        parts.iter().flat_map(runs).collect()
    }

    /// Bytes held, whatever is there.
    pub(super) fn metadata_bytes(&self) -> u64 {
        self.valid.bytes() + self.dirty.bytes()
    }
}

/// The runs of a range that are set, as far as there are units.
fn runs_of(bits: &RunBits, units: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
    let end = units.end.min(bits.bits());
    bits.runs(units.start.min(end)..end, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evict::lru::{Bump, Lru};
    use crate::extents::{Config, Extents, Fill, Geometry, Mode, Plan, Request, Sizing, Verdict, Volume};
    use tiermem_base::Rng;

    fn part(first: u64, units: u64) -> Part {
        Part { offset: (100 + first) * UNIT_BYTES, at: first * UNIT_BYTES, bytes: units * UNIT_BYTES }
    }

    #[test]
    fn what_is_dirty_is_counted_once_and_clean_again() {
        let mut units = Units::new(64);
        units.fill(0..10);
        units.make_dirty(2..6);
        units.make_dirty(4..8);
        assert_eq!(units.dirty_bytes(), 6 * UNIT_BYTES);
        units.cleaned(&[part(0, 4)]);
        assert!(units.dirty_runs(0..100).eq(std::iter::once(4..8)));
        let parts = [part(3, 3), part(6, 4)];
        assert_eq!(units.those_dirty(&parts, true), [part(4, 2), part(6, 2)]);
        assert_eq!(units.those_dirty(&parts, false), [part(3, 1), part(8, 2)]);
        units.invalidate(&[part(7, 2)]);
        assert_eq!(units.valid_runs(0..100).collect::<Vec<_>>(), [0..7, 9..10]);
        units.forget(0..64);
        assert_eq!((units.dirty_bytes(), units.valid_runs(0..64).count()), (0, 0));
    }

    #[test]
    fn what_is_lost_is_so_until_it_is_written_anew_or_its_block_goes() {
        let mut units = Units::new(64);
        units.fill(0..10);
        units.make_dirty(0..10);
        assert_eq!((units.lose(3..6), units.lose(5..7)), (3, 1));
        assert!(units.has_lost(6..9) && !units.has_lost(7..64) && !units.has_lost(0..3));
        assert_eq!(units.without_lost(&[part(0, 5), part(5, 4)]), [part(0, 3), part(7, 2)]);
        assert_eq!((units.mend(4), units.mend(4)), (true, false));
        assert_eq!(units.without_lost(&[part(3, 3)]), [part(4, 1)]);
        units.forget(5..6);
        assert!(!units.has_lost(4..6) && units.has_lost(0..64));
        assert_eq!(units.dirty_bytes(), 9 * UNIT_BYTES);
    }

    /// A cache of two groups of four blocks each, all of them written to; plans a write of one more block.
    fn write_more(lost: &[Range<u64>]) -> (Verdict, Plan) {
        const KIB: u64 = 1 << 10;
        let geometry = Geometry::new(&[16 * KIB], Some(64 * KIB), 128 * KIB).unwrap();
        let config = Config { fill: Fill::Units, sizing: Sizing::Request, shares: 1 };
        let mut cache = Extents::new(geometry, config, Lru::new([1.0, 1.0], Bump::Always), Rng::seeded(1));
        let mut plan = Plan::default();
        let write = |block: u64| {
            let write = Some(Mode::WriteBack);
            Request { volume: Volume(0), offset: block * 64 * KIB, bytes: 16 * KIB, write, bypass: false }
        };
        for block in 0..8 {
            assert_eq!(cache.plan(&write(block), &mut plan), Verdict::Ready);
            cache.finish(&mut plan);
        }
        lost.iter().for_each(|units| assert!(cache.units_mut().lose(units.clone()) > 0));
        // The eight blocks have four units each; those that are not lost have been written back.
        let all = Part { offset: 0, at: 0, bytes: 128 * KIB };
        let clean = cache.units().without_lost(&[all]);
        cache.units_mut().cleaned(&clean);
        let verdict = cache.plan(&write(100), &mut plan);
        assert!(lost.iter().all(|units| cache.units().has_lost(units.clone())));
        (verdict, plan)
    }

    #[test]
    fn a_write_waits_for_nothing_that_is_lost_and_takes_another_place() {
        let place = |lost: &[Range<u64>]| {
            let (verdict, plan) = write_more(lost);
            (verdict, plan.fill.first().map(|part| part.at / UNIT_BYTES), plan.through.len())
        };
        assert_eq!(place(&[]), (Verdict::Ready, Some(0), 0));
        assert_eq!(place(&[2..3, 5..6]), (Verdict::Ready, Some(8), 0));
        let (first, second) = (0..16, 17..18);
        assert_eq!(place(&[first.clone(), second]), (Verdict::Ready, Some(20), 0));
        assert_eq!(place(&[first, 16..32]), (Verdict::Ready, None, 1), "nowhere: it goes past the cache");
    }
}
