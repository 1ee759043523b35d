//! Groups: all epochs that wait go to the store together, so that flushes need not wait for it ([`WriteBackOrder::Group`]).
//!
//! While no group is under way the store has all writes before some acknowledged flush and none after it, or all there are. While
//! one is, only the cache and the store together are such an image: what a restart finds dirty is one group, under way, so nothing of
//! a group need survive a crash beside what the cache has of every unit anyway, its newest content.
//!
//! There are at most three epochs: the group under way, what waits for the next, and the current one.
//!
//! - **What waits** is what was dirty at the last acknowledged flush. A write over a unit of it takes the unit over into the current
//!   epoch; the content as of that flush is gone then, and the next group takes the current epoch in as well ([`Epochs::mixed`]).
//! - **A group begins** with the first unit that leaves. Without anything taken over it is what waits, which ends with a flush: it is
//!   closed. Else, and where nothing waits, it is open: it goes on to the next flush, and what is written until then belongs to it.
//! - **A write over what a closed group under way needs** waits until that is copied ([`Epochs::conflict`]), and never for the store:
//!   where no more copies may be held the group *grows* to the next flush instead ([`Epochs::grow`]), and needs the old content no more.
//! - **A group ends** when all of it was flushed.

use std::ops::Range;

use super::{Epoch, Epochs};
use crate::extents::cleaner::watermarks::WriteBackOrder;

impl Epochs {
    /// In which order its epochs go.
    pub fn order(&self) -> WriteBackOrder {
        self.order
    }

    /// Whether a group is under way.
    pub fn is_under_way(&self) -> bool {
        self.begun
    }

    /// Whether a group is under way that ends with a flush which was acknowledged: it is carried to its end.
    pub fn must_end(&self) -> bool {
        self.order == WriteBackOrder::Group && self.begun && self.newest() > 0
    }

    /// Groups that have ended.
    pub fn groups(&self) -> u64 {
        self.groups
    }

    /// Groups that have grown to a later flush than the one that they began with.
    pub fn grown(&self) -> u64 {
        self.grown
    }

    /// Units were dirty before anything else happened: they are one group, under way, as the store may have a part of it already.
    pub fn restore(&mut self, units: Range<u64>) {
        self.begun = self.order != WriteBackOrder::Flush;
        self.dirtied(units, 0, 0);
    }

    /// Whether some of these units are in the group under way and only in the cache, and no copy of them has begun.
    pub fn lacks_copy(&self, units: Range<u64>) -> bool {
        self.epochs[0].dirty.any(units)
    }

    /// Lets the group under way grow: it goes on to the next flush, with all that is dirty.
    pub fn grow(&mut self) {
        if self.begun && self.newest() > 0 {
            self.grown += 1;
            self.join(0, self.newest());
        }
    }

    /// A group begins, unless one is under way.
    pub(super) fn begin(&mut self) {
        if self.begun || self.order == WriteBackOrder::Flush {
            return;
        }
        if self.mixed {
            self.join(0, self.newest());
        }
        self.begun = true;
    }

    /// Takes units over into the current epoch from those that wait.
    pub(super) fn take_over(&mut self, units: Range<u64>) {
        if self.order != WriteBackOrder::Group {
            return;
        }
        if self.conflict(units.clone()) {
            // A driver that heeds it comes here only after a failure.
            self.grow();
        }
        if !self.closed.any(units.clone()) {
            return;
        }
        self.closed.remove(units.clone(), None);
        let newest = self.newest();
        for epoch in &mut self.epochs[..newest] {
            epoch.dirty.remove(units.clone(), None);
        }
        self.mixed = true;
    }

    /// What the current epoch has joins what waits, rather than waiting behind it: the flush between them is over for both.
    pub(super) fn close_current(&mut self) {
        let (newest, waits) = (self.newest(), usize::from(self.begun));
        self.mixed = false;
        if self.order == WriteBackOrder::Flush || newest <= waits {
            return;
        }
        let Epoch { last, dirty, since_ns, .. } = self.epochs.remove(newest);
        let waiting = &mut self.epochs[waits];
        waiting.dirty.insert_all(&dirty);
        (waiting.last, waiting.since_ns) = (last, waiting.since_ns.min(since_ns));
    }

    /// Whether the oldest epoch may end with nothing left of it: not where it waits and the current one has taken units over from it.
    pub(super) fn may_end(&self) -> bool {
        self.begun || !self.mixed
    }

    /// The group under way has ended.
    pub(super) fn ended(&mut self) {
        self.groups += u64::from(std::mem::take(&mut self.begun));
    }
}
