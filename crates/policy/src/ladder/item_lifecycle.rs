//! Life cycle of items: entry, moves and departure.
//!
//! [`Transit`] owns all that has to agree whenever an item enters, moves or leaves: the [residents](Residents) with their nodes,
//! slots and orders, the tickets of moves under way, the places that replies hold, and the state of the outlet below the last
//! tier.

use super::below_last_tier::Outlet;
use super::item_record::Place;
use super::pending_moves::{Ticket, Tickets};
use super::pins::{Pins, Released};
use super::residents::{NewItem, Residents};
use super::slots::Holder;
use super::{Demand, LadderConfig, LadderCounters, Loc, UNIT_BYTES};
use crate::deferred_free::DeferredFree;
use crate::evict::{Item, Origin};
use crate::{Id, Now};

/// The items on the ladder, and their moves and pins under way.
#[derive(Clone, Debug)]
pub struct Transit {
    pub(super) residents: Residents,
    pub(super) tickets: Tickets,
    pub(super) pins: Pins,
    pub(super) outlet: Outlet,
    pub(super) counters: LadderCounters,
}

impl Transit {
    pub(super) fn new(config: LadderConfig) -> Self {
        Transit {
            residents: Residents::new(config),
            tickets: Tickets::default(),
            pins: Pins::default(),
            outlet: Outlet::default(),
            counters: LadderCounters::default(),
        }
    }

    /// The counters of the whole ladder.
    pub fn counters(&self) -> LadderCounters {
        self.counters
    }

    /// The outlet below the last tier as it was reported, less what was dropped there since.
    #[inline]
    pub fn outlet(&self) -> Outlet {
        self.outlet
    }

    /// The last move under way.
    #[inline]
    pub fn last_ticket(&self) -> Option<Ticket> {
        self.tickets.last()
    }

    /// Whether live items may leave the last tier in the background.
    pub(super) fn may_evict(&self) -> bool {
        self.outlet.may_evict(self.residents.config.eviction)
    }

    /// Bytes of live items' places that may go for one that is admitted now.
    pub(super) fn evictable_bytes_for_admission(&self, demand: Demand) -> u64 {
        self.outlet.evictable_bytes_for_admission(self.residents.config.eviction, demand.overflows)
    }

    /// Notes that an item leaves a place. Returns whether a reply holds the place; then it is charged to the tenant whose client
    /// reads it, and is free when the reply releases it.
    pub(super) fn is_held(&mut self, loc: Loc, owner: u16) -> bool {
        let Some(tenant) = self.pins.note_left(loc, owner) else { return false };
        let Residents { levels, orders, .. } = &mut self.residents;
        let tier = usize::from(loc.tier);
        if let Some(tenants) = orders.tenants_mut() {
            tenants.charge(tenant, tier, levels[tier].slots.pages().bytes_at(loc.unit));
        }
        true
    }

    /// An item has a place.
    pub(super) fn enter(&mut self, id: Id, loc: Loc, item: &NewItem, now: Now) {
        let Residents { nodes, levels, orders, .. } = &mut self.residents;
        let tier = usize::from(loc.tier);
        let is_fresh = item.rewrites.is_none() && item.is_newcomer;
        let place = Place::new(loc, nodes.ticks().recency(now), false).with_fresh(is_fresh);
        nodes.enter(id, place, item.expires_at_ms, now);
        orders.admit(id, item.tenant);
        levels[tier].counters.items += 1;
        let pages = levels[tier].slots.pages();
        // Sizes beyond 64 GiB are not told apart.
        let size = u32::try_from(item.bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let known = Item { key: item.key, size, dirty: true, now: now.requests };
        let origin = if item.rewrites.is_some() { Origin::Rewritten(known) } else { Origin::Admitted(known) };
        orders.insert(id, (tier, pages.class_at(loc.unit)), || pages.bytes_at(loc.unit), origin);
    }

    /// Whether `bytes` fit the place that the item has, so that it can be rewritten there; a move under way is
    /// given up then. Never while the item is pinned.
    #[inline]
    pub fn rewrite_in_place(&mut self, id: Id, bytes: u64) -> bool {
        let place = self.residents.nodes.get(id);
        let pages = self.residents.levels[usize::from(place.tier())].slots.pages();
        if place.is_pinned() || pages.fit_at(place.unit()) != self.residents.classes.fit(bytes) {
            return false;
        }
        self.abort_move(id);
        true
    }

    /// Keeps the item's bytes where they are, even beyond its removal, until `unpin` of its place. A move under
    /// way is given up. A place that its item has left is charged to `tenant`, or to the item's where there is none.
    pub fn pin(&mut self, id: Id, tenant: Option<u16>) -> Loc {
        self.abort_move(id);
        let place = self.residents.nodes.get(id);
        *self.residents.nodes.at(id) = place.with_pinned(true);
        self.pins.hold(place.loc(), tenant);
        place.loc()
    }

    /// Lets go of a pinned place.
    pub fn unpin(&mut self, loc: Loc) {
        let Residents { nodes, levels, orders, .. } = &mut self.residents;
        let tier = usize::from(loc.tier);
        let slots = &mut levels[tier].slots;
        match self.pins.release(loc) {
            Released::Held => {}
            Released::Left(tenant) => {
                if let Some(tenants) = orders.tenants_mut() {
                    tenants.discharge(tenant, tier, slots.pages().bytes_at(loc.unit));
                }
                slots.release(loc.unit);
            }
            Released::Unpinned => {
                if let Holder::Item(id) = slots.pages().holder_at(loc.unit) {
                    let place = nodes.get(id);
                    *nodes.at(id) = place.with_pinned(false);
                }
            }
        }
    }

    /// Takes all items out at once. `false`, and nothing done, while a place is pinned.
    pub(super) fn clear_into(&mut self, deferred_free: &mut DeferredFree) -> bool {
        let clears = self.pins.is_empty();
        if clears {
            self.tickets.clear();
            self.residents.clear_into(deferred_free);
        }
        clears
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_world::World;
    use super::super::{MoveKind, PAGE_BYTES};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const TIERS: usize = 2;

    proptest! {
        /// Over any sequence of entries, moves, pins and departures, each item holds its place, each tier counts its items, and
        /// in the end all space is free again.
        #[test]
        fn an_item_holds_one_place_until_it_leaves(
            ops in prop::collection::vec((0u8..12, 1u64..90_000, any::<prop::sample::Index>(), any::<bool>()), 1..300),
        ) {
            let config = LadderConfig {
                charge_metadata: false,
                ..LadderConfig::with_capacities(&[16 * PAGE_BYTES, 24 * PAGE_BYTES])
            };
            let mut world = World::new(config);
            let (mut live, mut pins) = (BTreeMap::<Id, u64>::new(), Vec::new());
            for (at, (what, bytes, pick, copied)) in ops.into_iter().enumerate() {
                let any = (!live.is_empty()).then(|| *live.keys().nth(pick.index(live.len())).unwrap());
                match (what, any) {
                    (0..5, _) => {
                        let bytes = if what == 0 { bytes } else { bytes % 3000 + 1 };
                        live.extend(world.enter(at % TIERS, bytes).map(|id| (id, bytes)));
                    }
                    (5 | 6, Some(id)) if world.transit.residents.nodes.get(id).may_go() => {
                        let (transit, _, mut context) = world.parts();
                        let kinds = [MoveKind::Promote, MoveKind::Demote, MoveKind::Relocate];
                        let from = usize::from(transit.residents.nodes.loc(id).tier);
                        let kind = if copied { kinds[2] } else { kinds[from ^ 1] };
                        let to = if copied { from } else { from ^ 1 };
                        transit.open_move(id, to, kind, &mut context);
                    }
                    (7, Some(id)) => pins.push(world.transit.pin(id, None)),
                    (8, _) => pins.pop().into_iter().for_each(|loc| world.transit.unpin(loc)),
                    (9, Some(id)) => {
                        world.transit.remove(id);
                        live.remove(&id);
                    }
                    (10, Some(id)) => {
                        let (transit, _, mut context) = world.parts();
                        transit.evict(id, &mut context);
                        live.remove(&id);
                    }
                    _ => {
                        if let Some(last) = world.transit.last_ticket() {
                            world.transit.end_moves(last, copied, |_| {});
                        }
                    }
                }
                let transit = &world.transit;
                let mut items = [0; TIERS];
                for (&id, &bytes) in &live {
                    let loc = transit.residents.nodes.loc(id);
                    let pages = transit.residents.levels[usize::from(loc.tier)].slots.pages();
                    prop_assert_eq!(pages.holder_at(loc.unit), Holder::Item(id));
                    prop_assert_eq!(pages.fit_at(loc.unit), transit.residents.classes.fit(bytes));
                    items[usize::from(loc.tier)] += 1;
                }
                prop_assert_eq!([0, 1].map(|tier| transit.residents.levels[tier].counters.items), items);
            }
            let transit = &mut world.transit;
            pins.into_iter().for_each(|loc| transit.unpin(loc));
            live.into_keys().for_each(|id| transit.remove(id));
            world.settle();
            for level in &mut world.transit.residents.levels {
                while level.slots.close_empty_page() {}
                prop_assert_eq!((level.slots.supply().used(), level.has_leaving()), (0, false));
            }
        }
    }
}
