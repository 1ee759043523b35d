//! Removal of items from the system: by the driver, by eviction, or by expiry.

use super::item_lifecycle::Transit;
use super::pending_moves::MoveState;
use super::slots::Holder;
use super::{Act, Context, MoveKind, Why};
use crate::evict::Departure;
use crate::{Id, Now};

/// Items of a tenant that gives which go at most for one that stays.
const SLOT_TRIES: u32 = 8;

impl Transit {
    /// Takes a live item out. Its place is free at once, or when a move or a pin lets go of it.
    pub fn remove(&mut self, id: Id) {
        self.leave(id, Departure::Deleted);
    }

    fn leave(&mut self, id: Id, departure: Departure) {
        let place = self.residents.nodes.get(id);
        debug_assert!(!place.is_free());
        let (loc, tier) = (place.loc(), usize::from(place.tier()));
        let mut listed = true;
        if place.is_moving()
            && let Some(one) = self.tickets.live_of(id)
        {
            // Only the copy's target has to wait for `done`: an item that is still read from here goes nowhere.
            listed = one.kind == MoveKind::Relocate;
            one.state = MoveState::Void;
            self.counters.moves_aborted += 1;
        }
        let level = &mut self.residents.levels[tier];
        if listed {
            let pages = level.slots.pages();
            let bytes = || pages.bytes_at(loc.unit);
            self.residents.orders.remove(id, (tier, pages.class_at(loc.unit)), bytes, departure);
        }
        level.counters.items -= 1;
        let owner = self.residents.tenants().map_or(0, |tenants| tenants.owner(id));
        let is_held = self.is_held(loc, owner);
        let level = &mut self.residents.levels[tier];
        if is_held {
            level.slots.pages_mut().set_holder(loc.unit, Holder::Ghost);
        } else {
            level.slots.release(loc.unit);
        }
        self.residents.nodes.leave(id);
    }

    /// Evicts an item from the system and tells the driver. An item whose time is over meanwhile counts as expired.
    pub(super) fn evict(&mut self, id: Id, context: &mut Context<'_>) {
        if self.residents.nodes.expires_at_ms(id).is_some_and(|at_ms| at_ms <= context.now.unix_ms) {
            self.drop_item(id, Why::Expired, context.now, context.acts);
            return;
        }
        let tier = usize::from(self.residents.nodes.loc(id).tier);
        self.residents.levels[tier].counters.evictions += 1;
        self.counters.overflowed += u64::from(self.outlet.take_in(self.residents.place_bytes(id)));
        if let Some(tenants) = self.residents.orders.tenants_mut() {
            tenants.note_evicted(id, tier, context.demand.tenant);
        }
        self.drop_item(id, Why::Evicted, context.now, context.acts);
    }

    fn drop_item(&mut self, id: Id, why: Why, now: Now, acts: &mut Vec<Act>) {
        self.counters.expired += u64::from(why == Why::Expired);
        let (loc, expires_at_ms) = (self.residents.nodes.loc(id), self.residents.nodes.expires_at_ms(id));
        let last_used = now.requests.saturating_sub(self.residents.nodes.idle_requests(id, now));
        acts.push(Act::Drop { id, loc, why, expires_at_ms, last_used });
        let departure = if why == Why::Evicted { Departure::Evicted } else { Departure::Deleted };
        self.leave(id, departure);
    }

    /// Drops items whose time is over, up to `budget` of work. Returns how many, and whether more was to be done.
    pub(super) fn expire(&mut self, now: Now, budget: u32, acts: &mut Vec<Act>) -> (u32, bool) {
        let mut work = budget;
        let mut dropped = 0;
        while let Some(id) = self.residents.nodes.due(now, &mut work) {
            self.drop_item(id, Why::Expired, now, acts);
            dropped += 1;
        }
        (dropped, work == 0)
    }

    /// Drops an item of the tenant that is to give, and moves this one of another's to its slot.
    pub(super) fn give_slot_to(&mut self, id: Id, context: &mut Context<'_>) -> bool {
        let loc = self.residents.nodes.loc(id);
        let tier = usize::from(loc.tier);
        let class = self.residents.levels[tier].slots.pages().class_at(loc.unit);
        // Some items drawn lie on the page that is being emptied: they are evicted, but make no room.
        for _ in 0..SLOT_TRIES {
            let budget = self.evictable_bytes_for_admission(context.demand);
            let may_go = |items: &Self, victim| victim != id && items.residents.place_bytes(victim) <= budget;
            let victim = self.residents.victim(tier, class, context);
            let Some(victim) = victim.filter(|&victim| may_go(self, victim)) else { return false };
            self.evict(victim, context);
            if self.open_move(id, tier, MoveKind::Relocate, context).is_some() {
                return true;
            }
        }
        false
    }
}
