//! A store without room for what is written back: until when writes that wait for it wait, and when they are refused instead.
//!
//! Writes that find room in the cache go on. One that must wait does so for a while, in which somebody may give the store room; after
//! that it is refused, and so is each later one that would have to wait, since an error tells its client more than silence does. As soon
//! as the store takes anything that it had refused, writes wait again.

use std::ops::Range;

use crate::extents::unit_set::{UnitSet, parts};

/// What a volume's store had no room for, and who waits for it.
#[derive(Clone, Debug, Default)]
pub(super) struct NoRoom {
    /// Units that it had no room for, and has not taken for good since. Other units say nothing: a store that is full still takes what lies
    /// where it has bytes already.
    units: UnitSet,
    /// Since when there are any.
    since_ns: Option<u64>,
    /// When a request waited for the store, the first since the store took anything.
    waited_ns: Option<u64>,
    refuses: bool,
}

impl NoRoom {
    /// The store had no room for some of these units.
    pub fn refused(&mut self, now_ns: u64, units: Range<u64>) {
        parts(units).for_each(|(frame, mask)| self.units.insert_mask(frame, mask));
        self.since_ns.get_or_insert(now_ns);
    }

    /// The store has these units for good.
    pub fn taken(&mut self, units: &UnitSet) {
        if self.units.is_empty() || self.units.meets(units) {
            self.units.remove_all(units);
            self.has_moved();
        }
    }

    /// The store is not to take these units any more.
    pub fn forgotten(&mut self, units: Range<u64>) {
        if self.units.any(units.clone()) {
            self.units.remove(units, None);
            self.has_moved();
        }
    }

    /// Who waits has hope again.
    fn has_moved(&mut self) {
        (self.refuses, self.waited_ns) = (false, None);
        if self.units.is_empty() {
            self.since_ns = None;
        }
    }

    /// A request waits for the store.
    pub fn waits(&mut self, now_ns: u64) {
        self.waited_ns.get_or_insert(now_ns);
    }

    /// When requests are refused that wait, if the store takes nothing; `wait_ns` after the first of them.
    pub fn refuses_at_ns(&self, wait_ns: Option<u64>) -> Option<u64> {
        if self.refuses {
            return None;
        }
        Some(self.since_ns?.max(self.waited_ns?).saturating_add(wait_ns?))
    }

    /// Requests that wait are refused from now on, if it is time. Returns whether it is.
    pub fn look(&mut self, now_ns: u64, wait_ns: Option<u64>) -> bool {
        let begins = self.refuses_at_ns(wait_ns).is_some_and(|at_ns| at_ns <= now_ns);
        self.refuses |= begins;
        begins
    }

    /// Since when the store has had no room.
    pub fn since_ns(&self) -> Option<u64> {
        self.since_ns
    }

    /// Whether requests that would have to wait are refused.
    pub fn refuses(&self) -> bool {
        self.refuses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Option<u64> = Some(60);

    fn set(units: Range<u64>) -> UnitSet {
        let mut set = UnitSet::default();
        parts(units).for_each(|(frame, mask)| set.insert_mask(frame, mask));
        set
    }

    #[test]
    fn who_waits_is_refused_after_a_while_of_both() {
        let mut full = NoRoom::default();
        full.refused(10, 0..4);
        assert_eq!((full.since_ns(), full.refuses_at_ns(WAIT)), (Some(10), None), "nobody waits");
        full.waits(100);
        full.waits(120);
        assert_eq!((full.refuses_at_ns(WAIT), full.refuses_at_ns(None)), (Some(160), None));
        assert!(!full.look(159, WAIT) && !full.refuses() && full.look(160, WAIT) && full.refuses());
        assert!(!full.look(161, WAIT), "once");
        // One that waited before the store was full waits as long.
        let mut full = NoRoom::default();
        full.waits(100);
        full.refused(130, 0..4);
        assert_eq!(full.refuses_at_ns(WAIT), Some(190));
    }

    #[test]
    fn a_store_has_room_when_it_has_taken_all_that_it_refused() {
        let mut full = NoRoom::default();
        full.refused(10, 0..4);
        full.waits(10);
        assert!(full.look(70, WAIT));
        // Where it had bytes already it goes on taking them.
        full.taken(&set(4..9));
        assert_eq!((full.refuses(), full.since_ns()), (true, Some(10)));
        full.taken(&set(3..9));
        assert_eq!((full.refuses(), full.since_ns()), (false, Some(10)));
        full.waits(90);
        assert_eq!(full.refuses_at_ns(WAIT), Some(150));
        full.forgotten(0..3);
        assert_eq!((full.since_ns(), full.refuses_at_ns(WAIT)), (None, None));
    }
}
