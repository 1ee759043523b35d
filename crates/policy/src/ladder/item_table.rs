//! Item table: item numbers, and for each its place, last use and expiry.

use super::Loc;
use super::item_record::Place;
use super::ticks::Ticks;
use crate::column::{CHUNK_ITEMS, Column};
use crate::deferred_free::DeferredFree;
use crate::expiry::ExpiryWheel;
use crate::{Id, Now};

/// The nodes of all items, and their timers.
#[derive(Clone, Debug)]
pub struct Nodes {
    places: Column<Place>,
    /// Numbers that were ever given out.
    made: u32,
    /// The first free number; the node of each free number names the next.
    free: Id,
    timers: ExpiryWheel,
    /// Of items of which parts expire, such as fields of a hash: none may before its timer is due. A hint, which may be early.
    /// Made for the first of them.
    part_timers: Option<Box<ExpiryWheel>>,
    /// To which recency is known.
    ticks: Ticks,
}

impl Nodes {
    pub(super) fn new(tick_requests: u64) -> Self {
        Nodes {
            places: Column::default(),
            made: 0,
            free: Id::NONE,
            timers: ExpiryWheel::default(),
            part_timers: None,
            ticks: Ticks::of_requests(tick_requests),
        }
    }

    /// Where a live item's bytes lie.
    #[inline]
    pub fn loc(&self, id: Id) -> Loc {
        self.places.get(id).loc()
    }

    /// The node that [`Self::loc`] reads, for a driver that knows which items come and can bring memory near.
    #[inline]
    pub fn node(&self, id: Id) -> &impl Sized {
        self.places.cell(id)
    }

    /// When the item expires, in Unix milliseconds.
    #[inline]
    pub fn expires_at_ms(&self, id: Id) -> Option<u64> {
        self.places.get(id).expires().then(|| self.timers.at_ms(id))
    }

    /// Items that have an expiry.
    pub fn items_with_expiry(&self) -> u64 {
        self.timers.len()
    }

    /// Requests since the item was last used, to the tick and modulo the counter's wrap.
    pub fn idle_requests(&self, id: Id, now: Now) -> u64 {
        self.ticks.in_requests(u64::from(self.age(id, now)))
    }

    /// The node of an item.
    #[inline]
    pub(super) fn get(&self, id: Id) -> Place {
        self.places.get(id)
    }

    /// The place of an item, to change it.
    #[inline]
    pub(super) fn at(&mut self, id: Id) -> &mut Place {
        self.places.at(id)
    }

    /// To which recency is known.
    #[inline]
    pub(super) fn ticks(&self) -> Ticks {
        self.ticks
    }

    /// Ticks since the item was last used.
    #[inline]
    pub(super) fn age(&self, id: Id, now: Now) -> u32 {
        self.places.get(id).age(self.ticks.recency(now))
    }

    /// Whether the next number needs a chunk of its own.
    pub(super) fn needs_chunk(&self) -> bool {
        self.free == Id::NONE && (self.made as usize).is_multiple_of(CHUNK_ITEMS)
    }

    /// Makes another chunk of numbers; its last one.
    pub(super) fn grow(&mut self) -> Id {
        let last = Id(self.made + CHUNK_ITEMS as u32 - 1);
        self.places.grow_to(last);
        self.timers.grow_to(last);
        last
    }

    /// An unused number, of which there is one unless a chunk [is needed](Self::needs_chunk).
    pub(super) fn take_number(&mut self) -> Id {
        if self.free == Id::NONE {
            self.made += 1;
            return Id(self.made - 1);
        }
        let id = self.free;
        self.free = self.places.get(id).next_free();
        id
    }

    /// A new item has this number, and this node but for its expiry.
    pub(super) fn enter(&mut self, id: Id, place: Place, expires_at_ms: Option<u64>, now: Now) {
        *self.places.at(id) = place.with_expires(expires_at_ms.is_some());
        if let Some(at_ms) = expires_at_ms {
            self.timers.insert(id, at_ms, now.unix_ms);
        }
    }

    /// Frees a number: its item has left, or has not come in.
    pub(super) fn leave(&mut self, id: Id) {
        if self.places.get(id).expires() {
            self.timers.remove(id);
        }
        self.remove_part_timer(id);
        *self.places.at(id) = Place::free(self.free);
        self.free = id;
    }

    /// Sets or removes the item's expiry.
    pub(super) fn set_expires_at_ms(&mut self, id: Id, at_ms: Option<u64>, now: Now) {
        let place = self.places.get(id);
        if place.expires() {
            self.timers.remove(id);
        }
        if let Some(at_ms) = at_ms {
            self.timers.insert(id, at_ms, now.unix_ms);
        }
        *self.places.at(id) = place.with_expires(at_ms.is_some());
    }

    /// An item whose time is over, if one is found with at most `work` of work.
    pub(super) fn due(&mut self, now: Now, work: &mut u32) -> Option<Id> {
        self.timers.due(now.unix_ms, work)
    }

    /// Notes that the first of the item's parts expires at `at_ms`; `None`: none does.
    pub(super) fn set_parts_expire_at_ms(&mut self, id: Id, at_ms: Option<u64>, now: Now) {
        self.remove_part_timer(id);
        if let Some(at_ms) = at_ms {
            // An eighth of a byte for each item, from the first such timer on.
            let timers = self.part_timers.get_or_insert_default();
            timers.grow_to(Id(self.made - 1));
            timers.insert(id, at_ms, now.unix_ms);
        }
    }

    fn remove_part_timer(&mut self, id: Id) {
        if let Some(timers) = &mut self.part_timers
            && timers.has(id)
        {
            timers.remove(id);
        }
    }

    /// An item of which parts may have expired, if one is found with at most `work` of work. It has no timer for them any more.
    pub(super) fn parts_due(&mut self, now: Now, work: &mut u32) -> Option<Id> {
        let timers = self.part_timers.as_mut()?;
        let id = timers.due(now.unix_ms, work)?;
        timers.remove(id);
        Some(id)
    }

    /// For how long items or their parts have been due that are still there.
    pub(super) fn late_ms(&self, now: Now) -> u64 {
        let late_ms = |timers: &ExpiryWheel| timers.late_ms(now.unix_ms);
        late_ms(&self.timers).max(self.part_timers.as_deref().map_or(0, late_ms))
    }

    /// Bytes by which timers may grow if each item gets one of `timer_bytes`. `None`: all possible numbers exist.
    pub(super) fn timers_to_come(&self, timer_bytes: u64) -> Option<u64> {
        let to_come = (u64::from(self.made) * timer_bytes).saturating_sub(self.timers.bytes());
        (self.made != Id::COUNT_MAX).then_some(to_come)
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> u64 {
        self.places.bytes()
            + self.timers.bytes()
            + self.part_timers.as_ref().map_or(0, |timers| timers.bytes())
    }

    /// Forgets all items. Their memory is freed a little at a time.
    pub(super) fn clear_into(&mut self, deferred_free: &mut DeferredFree) {
        self.places.clear_into(deferred_free);
        self.timers.clear_into(deferred_free);
        if let Some(mut timers) = self.part_timers.take() {
            timers.clear_into(deferred_free);
        }
        (self.made, self.free) = (0, Id::NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(unit: u32) -> Place {
        Place::new(Loc { tier: 1, unit }, 3, false)
    }

    #[test]
    fn numbers_that_were_given_back_go_first() {
        let mut nodes = Nodes::new(16);
        assert!(nodes.needs_chunk());
        assert_eq!(nodes.grow(), Id(CHUNK_ITEMS as u32 - 1));
        let ids: Vec<Id> = (0..3).map(|_| nodes.take_number()).collect();
        assert_eq!(ids, [Id(0), Id(1), Id(2)]);
        nodes.enter(ids[1], place(7), None, Now::default());
        nodes.leave(ids[1]);
        nodes.leave(ids[0]);
        assert_eq!([nodes.take_number(), nodes.take_number(), nodes.take_number()], [Id(0), Id(1), Id(3)]);
        (4..CHUNK_ITEMS).for_each(|_| _ = nodes.take_number());
        assert!(nodes.needs_chunk());
        nodes.leave(Id(9));
        assert!(!nodes.needs_chunk());
    }

    #[test]
    fn an_expiry_goes_with_its_item() {
        let mut nodes = Nodes::new(16);
        nodes.grow();
        let (id, now) = (nodes.take_number(), Now { requests: 160, unix_ms: 1000 });
        nodes.enter(id, place(7), Some(2000), now);
        assert_eq!((nodes.expires_at_ms(id), nodes.items_with_expiry()), (Some(2000), 1));
        nodes.set_expires_at_ms(id, None, now);
        assert_eq!((nodes.expires_at_ms(id), nodes.items_with_expiry()), (None, 0));
        nodes.set_expires_at_ms(id, Some(3000), now);
        assert_eq!(nodes.expires_at_ms(id), Some(3000));
        assert_eq!(nodes.idle_requests(id, now), 7 * 16);
        nodes.leave(id);
        assert_eq!((nodes.items_with_expiry(), nodes.get(id).may_go()), (0, false));
    }

    #[test]
    fn a_timer_for_parts_goes_with_its_item_and_comes_once() {
        let mut nodes = Nodes::new(16);
        nodes.grow();
        let at = |unix_ms| Now { requests: 160, unix_ms };
        let ids: Vec<Id> = (0..3).map(|_| nodes.take_number()).collect();
        for &id in &ids {
            nodes.enter(id, place(7), None, at(1000));
            nodes.set_parts_expire_at_ms(id, Some(2000), at(1000));
        }
        nodes.set_parts_expire_at_ms(ids[1], Some(5000), at(1000));
        nodes.leave(ids[2]);
        assert_eq!((nodes.parts_due(at(1900), &mut 99), nodes.late_ms(at(1900))), (None, 0));
        assert!((900..=1000).contains(&nodes.late_ms(at(3000))));
        assert_eq!(nodes.parts_due(at(3000), &mut 99), Some(ids[0]));
        assert_eq!((nodes.parts_due(at(3000), &mut 99), nodes.late_ms(at(3000))), (None, 0));
        assert_eq!(nodes.parts_due(at(9000), &mut 99), Some(ids[1]));
        nodes.set_parts_expire_at_ms(ids[0], Some(10_000), at(9000));
        nodes.set_parts_expire_at_ms(ids[0], None, at(9000));
        assert_eq!(nodes.parts_due(at(99_000), &mut 99), None);
    }
}
