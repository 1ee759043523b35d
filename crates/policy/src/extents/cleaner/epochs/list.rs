//! Epochs in their order, and groups of them: all epochs that wait go to the store together, so that flushes need not wait for it ([`WriteBackOrder::Group`]).
//!
//! While no group is under way the store has all writes before some acknowledged flush and none after it, or all there are. While
//! one is, only the cache and the store together are such an image: what a restart finds dirty is one group, under way, so nothing of
//! a group need survive a crash beside what the cache has of every unit anyway, its newest content.
//!
//! There are at most three epochs: the group under way, what waits for the next, and the current one.
//!
//! - **What waits** is what was dirty at the last acknowledged flush. A write over a unit of it takes the unit over into the current
//!   epoch; the content as of that flush is gone then, and the next group takes the current epoch in as well ([`EpochList::is_mixed`]).
//! - **A group begins** with the first unit that leaves. Without anything taken over it is what waits, which ends with a flush: it is
//!   closed. Else, and where nothing waits, it is open: it goes on to the next flush, and what is written until then belongs to it.
//! - **A write over what a closed group under way needs** waits until that is copied ([`super::Epochs::conflict`]), and never for the store:
//!   where no more copies may be held the group *grows* to the next flush instead ([`EpochList::grow`]), and needs the old content no more.
//! - **A group ends** when all of it was flushed.

use std::ops::Range;

use crate::extents::cleaner::watermarks::WriteBackOrder;
use crate::extents::unit_set::UnitSet;

/// The writes between two acknowledged flushes, or, where epochs were merged, several such.
#[derive(Clone, Debug)]
pub(super) struct Epoch {
    /// The number of the first epoch that is merged into this one.
    pub first: u64,
    /// Its number: that of the last one.
    pub last: u64,
    /// Units whose newest content belongs to this epoch, and is not on its way. No unit is dirty in two epochs.
    pub dirty: UnitSet,
    /// When the first of them became dirty; the largest number where there are none.
    pub since_ns: u64,
}

impl Epoch {
    fn new(number: u64) -> Self {
        Epoch { first: number, last: number, dirty: UnitSet::default(), since_ns: u64::MAX }
    }
}

/// The epochs of one volume.
#[derive(Clone, Debug)]
pub struct EpochList {
    /// Oldest first; the last is the current one, and there is always one.
    pub(super) epochs: Vec<Epoch>,
    /// All that is dirty in epochs before the current one.
    pub(super) closed: UnitSet,
    order: WriteBackOrder,
    /// A group is under way: the oldest epoch.
    begun: bool,
    /// The current epoch has taken units over from those that wait.
    mixed: bool,
    merges: u64,
    groups: u64,
    grown: u64,
}

impl EpochList {
    /// An empty epoch.
    pub(super) fn new(order: WriteBackOrder) -> Self {
        EpochList {
            epochs: vec![Epoch::new(0)],
            closed: UnitSet::default(),
            order,
            begun: false,
            mixed: false,
            merges: 0,
            groups: 0,
            grown: 0,
        }
    }

    /// The place of the current epoch.
    pub(super) fn newest(&self) -> usize {
        self.epochs.len() - 1
    }

    /// Makes units dirty in an epoch.
    pub(super) fn add(&mut self, at: usize, frame: u64, mask: u64, since_ns: u64) {
        if mask != 0 {
            let epoch = &mut self.epochs[at];
            epoch.dirty.insert_mask(frame, mask);
            epoch.since_ns = epoch.since_ns.min(since_ns);
        }
    }

    /// Joins the epochs of these positions, `first` and `last` inclusive.
    pub(super) fn join(&mut self, first: usize, last: usize) {
        let has_current = last == self.newest();
        let later: Vec<Epoch> = self.epochs.drain(first + 1..=last).collect();
        self.merges += if self.order == WriteBackOrder::Flush { later.len() as u64 } else { 0 };
        let joined = &mut self.epochs[first];
        for epoch in later {
            joined.last = epoch.last;
            joined.since_ns = joined.since_ns.min(epoch.since_ns);
            joined.dirty.insert_all(&epoch.dirty);
        }
        if has_current {
            self.closed.remove_all(&joined.dirty);
            self.mixed = false;
        }
    }

    /// In which order they go.
    pub fn order(&self) -> WriteBackOrder {
        self.order
    }

    /// How many acknowledged flushes the order has not heeded, where it is to heed each.
    pub fn merges(&self) -> u64 {
        self.merges
    }

    /// Whether the current epoch has taken units over from those that wait.
    pub(super) fn is_mixed(&self) -> bool {
        self.mixed
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

    /// How often a group has grown to a later flush than the one that it was to end with.
    pub fn grown(&self) -> u64 {
        self.grown
    }

    /// Lets the group under way grow: it goes on to the next flush, with all that is dirty.
    pub(super) fn grow(&mut self) {
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

    /// Takes units over into the current epoch from those that wait. The group under way needs none of them.
    pub(super) fn take_over(&mut self, units: Range<u64>) {
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

    /// The current epoch ends, and the next begins. In groups it joins what waits rather than waiting behind it: the flush between them
    /// is over for both.
    pub(super) fn close_current(&mut self) {
        let (newest, waits) = (self.newest(), usize::from(self.begun));
        let number = self.epochs[newest].last + 1;
        self.closed.insert_all(&self.epochs[newest].dirty);
        self.mixed = false;
        if self.order != WriteBackOrder::Flush && newest > waits {
            let Epoch { last, dirty, since_ns, .. } = self.epochs.remove(newest);
            let waiting = &mut self.epochs[waits];
            waiting.dirty.insert_all(&dirty);
            (waiting.last, waiting.since_ns) = (last, waiting.since_ns.min(since_ns));
        }
        self.epochs.push(Epoch::new(number));
    }

    /// Whether the oldest epoch may end with nothing left of it: not where it waits and the current one has taken units over from it.
    pub(super) fn may_end(&self) -> bool {
        self.begun || !self.mixed
    }

    /// The group under way has ended. Without an order it was none: the store was no image as of a flush.
    pub(super) fn ended(&mut self) {
        let is_group = std::mem::take(&mut self.begun) && self.order == WriteBackOrder::Group;
        self.groups += u64::from(is_group);
    }
}
