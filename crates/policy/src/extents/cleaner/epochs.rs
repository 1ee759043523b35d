//! Epochs: the order in which the dirty units of a volume are written to the backing store.
//!
//! Three orders ([`WriteBackOrder`]). What follows is `Flush`; [`list`] has `Group`. With `None` a unit goes in whatever epoch it
//! became dirty first, with its newest content: epochs say no more than which flush has which bytes.
//!
//! The guarantee, if the cache's device is lost at any time: the backing store has all writes before some acknowledged flush, and
//! any of the writes between that flush and the next. An *epoch* is the writes between two acknowledged flushes. Only units of
//! the oldest epoch are written back, and the store is flushed before units of the next epoch are; so the state of the store lies
//! between the flush before the oldest epoch and the flush after it.
//!
//! The idea is the journaled write-back of Koller et al., "Write Policies for Host-side Flash Caches", FAST 2013; but a cache
//! keeps only the newest content of a unit, and no journal of all writes. Hence the one rule for clients' writes: content that an
//! older epoch still needs is written back before it is overwritten ([`Epochs::conflict`]).
//!
//! What a driver does:
//! - Before it carries out a write it asks [`Epochs::conflict`], and keeps [`Epochs::current`]; when the write is done, and
//!   before it tells the client, it calls [`Epochs::dirtied`]. Two writes to a unit are never under way at once.
//! - When it acknowledges a flush it calls [`Epochs::boundary`].
//! - It takes units to write back with [`Epochs::next`], copies them while no write to them is under way ([`Epochs::copied`]),
//!   and sends them ([`Epochs::written`], [`Epochs::failed`]). When [`Epochs::must_flush`] it flushes the store.
//!
//! A write that is under way while a flush is acknowledged may count as before it or after it. If its units were dirty when it
//! began it counts as before, since their content from then is gone.

mod list;

use std::ops::Range;

use list::{Epoch, EpochList};

use super::watermarks::WriteBackOrder;
use crate::extents::geometry::UNIT_BYTES;
use crate::extents::unit_set::{UnitSet, absent, parts};

/// The dirty units of one volume, by epoch. Units are of the volume: byte `offset` lies in unit `offset / `[`UNIT_BYTES`].
///
/// A unit that was taken from the oldest epoch is *leaving* until it is *written*, and written until the store was flushed. It may
/// become dirty again meanwhile.
#[derive(Clone, Debug)]
pub struct Epochs {
    list: EpochList,
    /// Leaving units of the oldest epoch whose bytes are still only in the cache.
    taken: UnitSet,
    /// Leaving units of the oldest epoch whose bytes are in a buffer.
    copied: UnitSet,
    /// Units of the oldest epoch that the store took since the last flush began.
    written: UnitSet,
    /// The units that it took before the flush that is under way.
    flushing: UnitSet,
    /// Units that do not leave for now: something else is being done at their places in the store.
    pub(super) held_back: UnitSet,
    /// When the first unit that is not in any epoch's dirty set became dirty.
    leaving_since_ns: u64,
    /// Where the elevator is.
    cursor: u64,
    written_bytes: u64,
    epochs_max: usize,
    flush_every_bytes: u64,
}

impl Epochs {
    /// A volume without dirty units. Where flushes are kept in order at most `epochs_max` epochs wait in addition to the current one
    /// ([`Self::is_full`]); the store is flushed after every `flush_every_bytes` at the latest.
    pub fn new(order: WriteBackOrder, epochs_max: usize, flush_every_bytes: u64) -> Self {
        Epochs {
            list: EpochList::new(order),
            taken: UnitSet::default(),
            copied: UnitSet::default(),
            written: UnitSet::default(),
            flushing: UnitSet::default(),
            held_back: UnitSet::default(),
            leaving_since_ns: u64::MAX,
            cursor: 0,
            written_bytes: 0,
            epochs_max,
            flush_every_bytes,
        }
    }

    /// The epochs, and the group under way.
    pub fn list(&self) -> &EpochList {
        &self.list
    }

    /// Lets the group under way grow to the next flush.
    pub fn grow(&mut self) {
        self.list.grow();
    }

    /// Units are dirty of which the store may have a part already: they belong to a group that is under way.
    pub fn restore(&mut self, units: Range<u64>, now_ns: u64) {
        self.list.begin();
        self.dirtied(units, self.current(), now_ns);
    }

    /// The number of the current epoch.
    pub fn current(&self) -> u64 {
        self.list.epochs[self.list.newest()].last
    }

    /// Whether a write must wait: the range has units that an epoch before the current one needs, and that are only in the cache.
    pub fn conflict(&self, units: Range<u64>) -> bool {
        let has_older = match self.list.order() {
            WriteBackOrder::Flush => self.list.closed.any(units.clone()),
            WriteBackOrder::Group => self.list.must_end() && self.list.epochs[0].dirty.any(units.clone()),
            WriteBackOrder::None => return false,
        };
        has_older || self.list.newest() > 0 && self.taken.any(units)
    }

    /// Notes that a write is done which began when [`Self::current`] was `began`.
    ///
    /// A unit that an epoch before `began` needed is lost to it: the epochs from that one on are merged and counted
    /// ([`Self::merges`]). Drivers that heed [`Self::conflict`] see that only after a failure of the store.
    pub fn dirtied(&mut self, units: Range<u64>, began: u64, now_ns: u64) {
        if self.list.order() == WriteBackOrder::Group {
            if self.conflict(units.clone()) {
                // A driver that heeds it comes here only after a failure.
                self.list.grow();
            }
            self.list.take_over(units.clone());
        }
        let is_lost = |(at, epoch): (usize, &Epoch)| {
            let is_needed = epoch.dirty.any(units.clone()) || (at == 0 && self.taken.any(units.clone()));
            epoch.last < began && is_needed
        };
        if self.conflict(units.clone())
            && let Some(loser) = self.list.epochs.iter().enumerate().position(is_lost)
        {
            let to =
                self.list.epochs.iter().position(|epoch| epoch.last >= began).unwrap_or(self.list.newest());
            self.list.join(loser, to);
        }
        let newest = self.list.newest();
        for (frame, mask) in parts(units) {
            // The write began before these epochs were closed, and the content that it overwrote was theirs: so its own is as well.
            let kept = self.list.closed.mask(frame) & mask;
            let again = if newest > 0 { self.taken.mask(frame) & mask & !kept } else { 0 };
            self.list.closed.insert_mask(frame, again);
            self.list.add(0, frame, again, now_ns);
            self.list.add(newest, frame, mask & !kept & !again, now_ns);
        }
    }

    /// Notes that a flush is being acknowledged: the current epoch ends, if the store lacks anything of it.
    pub fn boundary(&mut self) {
        let newest = self.list.newest();
        // Bytes that were written and not flushed may still be lost: later writes must not be mixed with them.
        if self.list.epochs[newest].dirty.is_empty() && (newest > 0 || self.is_settled()) {
            return;
        }
        self.list.close_current();
    }

    /// Whether nothing is leaving, and all that was written has been flushed.
    fn is_settled(&self) -> bool {
        self.is_all_written() && self.written.is_empty() && self.flushing.is_empty()
    }

    fn is_all_written(&self) -> bool {
        self.taken.is_empty() && self.copied.is_empty()
    }

    /// Whether the largest number of epochs waits. New writes should then wait until one is written back, or [`Self::merge`] was
    /// called.
    pub fn is_full(&self) -> bool {
        self.list.order() == WriteBackOrder::Flush && self.list.newest() >= self.epochs_max
    }

    /// Joins the two oldest epochs, so that more of them fit; false where there is only one. The flush between them is none any
    /// more for the backing store, see [`Self::merges`].
    pub fn merge(&mut self) -> bool {
        let can = self.list.newest() > 0;
        if can {
            self.list.join(0, 1);
        }
        can
    }

    /// Takes the next dirty units of the oldest epoch, as runs of units appended to `out`: `max_bytes` at most, whole units,
    /// ascending from where the last call ended, then from the volume's begin. Returns their bytes.
    ///
    /// They are leaving from now on. Units whose earlier content is still leaving are left for later.
    pub fn next(&mut self, max_bytes: u64, out: &mut Vec<Range<u64>>) -> u64 {
        if !self.is_empty() {
            self.list.begin();
        }
        let (mut left, begun) = (max_bytes / UNIT_BYTES, out.len());
        for range in [self.cursor..u64::MAX, 0..self.cursor] {
            let stay = [&self.taken, &self.copied, &self.held_back];
            for run in self.list.epochs[0].dirty.runs(range, &stay) {
                if left == 0 {
                    break;
                }
                let end = run.end.min(run.start + left);
                left -= end - run.start;
                out.push(run.start..end);
            }
        }
        if let Some(last) = out[begun..].last() {
            self.cursor = last.end;
        }
        self.leave(&out[begun..])
    }

    /// Takes all dirty units of the oldest epoch in a range, like [`Self::next`]: the units that a write waits for. There may be
    /// none, where they belong to a later epoch or are leaving already.
    pub fn next_of(&mut self, units: Range<u64>, out: &mut Vec<Range<u64>>) -> u64 {
        let begun = out.len();
        if self.list.epochs[0].dirty.any(units.clone())
            || self.list.is_mixed() && self.is_dirty(units.clone())
        {
            self.list.begin();
        }
        let stay = [&self.taken, &self.copied, &self.held_back];
        out.extend(self.list.epochs[0].dirty.runs(units, &stay));
        self.leave(&out[begun..])
    }

    /// Lets dirty units of the oldest epoch leave. Returns how many bytes they are.
    fn leave(&mut self, runs: &[Range<u64>]) -> u64 {
        let oldest = &mut self.list.epochs[0];
        if !runs.is_empty() {
            self.leaving_since_ns = self.leaving_since_ns.min(oldest.since_ns);
        }
        for run in runs {
            oldest.dirty.remove(run.clone(), Some(&mut self.taken));
            self.list.closed.remove(run.clone(), None);
        }
        if oldest.dirty.is_empty() {
            oldest.since_ns = u64::MAX;
        }
        runs.iter().map(|run| (run.end - run.start) * UNIT_BYTES).sum()
    }

    /// Notes that the bytes of leaving units are in a buffer: a client may overwrite them in the cache.
    pub fn copied(&mut self, units: Range<u64>) {
        self.taken.remove(units, Some(&mut self.copied));
    }

    /// Notes that the store has taken leaving units.
    pub fn written(&mut self, units: Range<u64>) {
        let before = self.leaving_bytes();
        self.taken.remove(units.clone(), Some(&mut self.written));
        self.copied.remove(units, Some(&mut self.written));
        self.written_bytes += before - self.leaving_bytes();
    }

    /// Notes that the store did not take leaving units, or perhaps not: they are dirty again.
    ///
    /// Where one was overwritten in a later epoch since it was copied, the content that the oldest epoch needs is nowhere any more: the
    /// epochs up to the later one are merged and counted. A driver that keeps its buffers and tries again avoids that.
    pub fn failed(&mut self, units: Range<u64>) {
        let mut lost = UnitSet::default();
        self.taken.remove(units.clone(), Some(&mut lost));
        self.copied.remove(units, Some(&mut lost));
        self.take_back(&lost);
    }

    /// Whether the store should be flushed now: nothing of the oldest epoch is left to be written, or much was written since the
    /// last flush. False while a flush is under way.
    pub fn must_flush(&self) -> bool {
        let is_done = self.list.epochs[0].dirty.is_empty() && self.is_all_written();
        self.flushing.is_empty()
            && !self.written.is_empty()
            && (is_done || self.written_bytes >= self.flush_every_bytes)
    }

    /// Whether units were written and are not dirty again, so that a flush which begins now makes them clean.
    pub fn is_unflushed(&self, units: Range<u64>) -> bool {
        self.written.any(units.clone()) && !self.is_dirty(units)
    }

    /// Notes that a flush of the store begins. It covers the bytes written up to now. One at a time.
    pub fn flush_begins(&mut self) {
        self.flushing.insert_all(&self.written);
        self.written.clear();
        self.written_bytes = 0;
    }

    /// Notes that the flush that began last was done: appends to `clean` the runs of units which the store now has for good and
    /// that are not dirty again. Beware of writes that are under way and not [`Self::dirtied`] yet: their units are not clean.
    ///
    /// The oldest epoch goes when nothing of it is left and it is not the current one.
    pub fn flushed(&mut self, clean: &mut Vec<Range<u64>>) {
        let mut again = vec![&self.taken, &self.copied, &self.written];
        again.extend(self.list.epochs.iter().map(|epoch| &epoch.dirty));
        clean.extend(self.flushing.runs(0..u64::MAX, &again));
        self.flushing.clear();
        if self.is_settled() {
            self.leaving_since_ns = u64::MAX;
        }
        self.end_oldest();
    }

    /// The oldest epochs go of which nothing is left. What later ones had may be lost already.
    fn end_oldest(&mut self) {
        while self.list.newest() > 0
            && self.list.epochs[0].dirty.is_empty()
            && self.is_settled()
            && self.list.may_end()
        {
            self.list.epochs.remove(0);
            self.list.ended();
        }
        if self.is_empty() {
            self.list.ended();
        }
    }

    /// Notes that the bytes written and not flushed are in doubt: a flush failed, or the store is another session's now. All of
    /// them are dirty again, with the same consequence as in [`Self::failed`]. Units that are leaving have their own outcomes.
    pub fn lost_session(&mut self) {
        let mut lost = std::mem::take(&mut self.written);
        lost.insert_all(&self.flushing);
        self.flushing.clear();
        self.written_bytes = 0;
        self.take_back(&lost);
    }

    /// Makes units of the oldest epoch dirty again.
    fn take_back(&mut self, lost: &UnitSet) {
        if lost.is_empty() {
            return;
        }
        // In the oldest epoch itself newer content is as good.
        let overwritten =
            (1..self.list.epochs.len()).rev().find(|&at| self.list.epochs[at].dirty.meets(lost));
        if let Some(at) = overwritten {
            self.list.join(0, if self.list.is_mixed() { self.list.newest() } else { at });
        }
        let oldest = &mut self.list.epochs[0];
        oldest.dirty.insert_all(lost);
        oldest.since_ns = oldest.since_ns.min(self.leaving_since_ns);
        if self.list.newest() > 0 {
            self.list.closed.insert_all(lost);
        }
    }

    /// Drops the dirty units of a trimmed range, as far as that is allowed, and appends to `kept` the runs that are not dropped:
    /// an older epoch needs them, or they are on their way and may come back. The cache keeps those as if there had been no trim.
    ///
    /// A trimmed unit may hold anything. But an image from before the trim must have what was written there before that.
    pub fn forget(&mut self, units: Range<u64>, kept: &mut Vec<Range<u64>>) {
        let mut needed = UnitSet::default();
        for set in [&self.list.closed, &self.taken, &self.copied, &self.written, &self.flushing] {
            set.masks(units.clone()).for_each(|(frame, mask)| needed.insert_mask(frame, mask));
        }
        kept.extend(needed.runs(units.clone(), &[]));
        let newest = self.list.newest();
        let current = &mut self.list.epochs[newest];
        let mut dropped = UnitSet::default();
        current.dirty.remove(units, Some(&mut dropped));
        // Units kept of the current epoch were written again since they left: they stay dirty.
        for (frame, mask) in dropped.masks(0..u64::MAX) {
            current.dirty.insert_mask(frame, mask & needed.mask(frame));
        }
        if current.dirty.is_empty() {
            current.since_ns = u64::MAX;
        }
    }

    /// When the unit became dirty that is dirty for longest, among those that are not leaving; somewhat too early where a part of
    /// its epoch was written back since.
    pub fn first_dirty_ns(&self) -> Option<u64> {
        let first = self.list.epochs.iter().map(|epoch| epoch.since_ns).min();
        first.filter(|since_ns| *since_ns < u64::MAX)
    }

    /// Bytes that are dirty and not leaving.
    pub fn dirty_bytes(&self) -> u64 {
        (self.list.closed.units() + self.list.epochs[self.list.newest()].dirty.units()) * UNIT_BYTES
    }

    /// Bytes that are leaving.
    pub fn leaving_bytes(&self) -> u64 {
        (self.taken.units() + self.copied.units()) * UNIT_BYTES
    }

    /// Bytes that the store lacks or has not flushed; those twice that are dirty again.
    pub fn lacking_bytes(&self) -> u64 {
        let written_units = self.written.units() + self.flushing.units();
        self.dirty_bytes() + self.leaving_bytes() + written_units * UNIT_BYTES
    }

    /// Units that the flush under way covers.
    pub(super) fn flushing(&self) -> &UnitSet {
        &self.flushing
    }

    /// Units that the store has taken, and may lose.
    pub(super) fn unflushed(&self) -> [&UnitSet; 2] {
        [&self.written, &self.flushing]
    }

    /// Bytes that the store has taken and that no flush covers which has begun.
    pub fn unflushed_bytes(&self) -> u64 {
        self.written.units() * UNIT_BYTES
    }

    /// Whether some of these units are dirty and not leaving, in whichever epoch.
    pub fn is_dirty(&self, units: Range<u64>) -> bool {
        self.list.closed.any(units.clone()) || self.list.epochs[self.list.newest()].dirty.any(units)
    }

    /// Epochs that the store lacks something of, and the current one.
    pub fn epochs(&self) -> usize {
        self.list.epochs.len()
    }

    /// The numbers that each of these stands for, oldest first: more than one where epochs were merged.
    pub fn spans(&self) -> impl Iterator<Item = std::ops::RangeInclusive<u64>> + '_ {
        self.list.epochs.iter().map(|epoch| epoch.first..=epoch.last)
    }
}

impl Epochs {
    /// Whether the store lacks nothing: nothing is dirty or leaving, and all that was written has been flushed.
    pub fn is_empty(&self) -> bool {
        self.list.newest() == 0 && self.list.epochs[0].dirty.is_empty() && self.is_settled()
    }

    /// Whether the store has all of the epochs up to this number.
    pub fn is_flushed(&self, number: u64) -> bool {
        // An epoch that was merged with the current one has no end of its own.
        self.list.epochs[0].first > number || self.is_empty()
    }

    /// Notes that the cache no longer has these units, whatever they were: they cannot be written back.
    pub fn lost(&mut self, units: Range<u64>) {
        let Epochs { list: EpochList { epochs, closed, .. }, taken, copied, .. } = self;
        for set in [closed, taken, copied] {
            set.remove(units.clone(), None);
        }
        for epoch in epochs.iter_mut() {
            epoch.dirty.remove(units.clone(), None);
            if epoch.dirty.is_empty() {
                epoch.since_ns = u64::MAX;
            }
        }
        self.end_oldest();
    }

    /// Appends the runs of a range of which the store lacks nothing: not dirty, not leaving, and flushed.
    pub fn lacks_nothing_of(&self, units: Range<u64>, out: &mut Vec<Range<u64>>) {
        let mut lacking = vec![&self.taken, &self.copied, &self.written, &self.flushing];
        lacking.extend(self.list.epochs.iter().map(|epoch| &epoch.dirty));
        out.extend(absent(units, &lacking));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four epochs with a unit each, the last of them the current one.
    fn four() -> Epochs {
        let mut epochs = Epochs::new(WriteBackOrder::Flush, 16, u64::MAX);
        for unit in 0..4 {
            let current = epochs.current();
            epochs.dirtied(unit..unit + 1, current, unit);
            if unit < 3 {
                epochs.boundary();
            }
        }
        epochs
    }

    /// The store takes all of the oldest epoch, and is flushed.
    fn write_back(epochs: &mut Epochs) {
        let (mut runs, mut clean) = (Vec::new(), Vec::new());
        epochs.next(u64::MAX, &mut runs);
        for run in runs {
            epochs.copied(run.clone());
            epochs.written(run);
        }
        epochs.flush_begins();
        epochs.flushed(&mut clean);
    }

    #[test]
    fn epochs_of_which_all_was_lost_meanwhile_go_with_the_one_before_them() {
        let mut epochs = four();
        let (mut runs, mut clean) = (Vec::new(), Vec::new());
        epochs.next(u64::MAX, &mut runs);
        // The first is on its way; the writes of the next two have failed, and left nothing.
        epochs.lost(1..3);
        epochs.copied(0..1);
        epochs.written(0..1);
        epochs.flush_begins();
        epochs.flushed(&mut clean);
        assert_eq!((epochs.is_flushed(2), epochs.is_flushed(3)), (true, false));
        write_back(&mut epochs);
        assert!(epochs.is_empty());
    }

    #[test]
    fn an_epoch_that_was_merged_with_the_current_one_is_flushed_when_nothing_is_left() {
        let mut epochs = four();
        assert!(epochs.merge() && epochs.merge() && epochs.merge());
        assert!(!epochs.is_flushed(0) && !epochs.is_flushed(2));
        write_back(&mut epochs);
        assert!(epochs.is_flushed(0) && epochs.is_flushed(2));
    }
}
