//! Pins: places that must stay as they are while a reply is sent from them.
//!
//! A client may read its replies never, so what they hold is bounded ([`may_hold`]). A place whose item has left it is *left*: only
//! replies hold it. It belongs to the store no more, is charged to the tenant whose client reads it, and goes before any item that
//! is in the store: [`HeldPlaces::first_to_give`].

use std::collections::BTreeMap;

use super::{LEVELS_MAX, Ladder, Loc};

/// The part of a tier that replies may hold, where nothing else is configured.
pub const PINNED_SHARE: f64 = 1.0 / 16.0;
/// One client's replies may hold this part of what all may.
const CLIENT_PART: u64 = 4;

/// Whether a reply may hold a place of `bytes` in a tier of which all replies may hold `bytes_max` and hold `held_bytes`, those of
/// its client `client_bytes`. A client that holds nothing may hold one place of any length.
pub fn may_hold(bytes_max: u64, held_bytes: u64, client_bytes: u64, bytes: u64) -> bool {
    held_bytes + bytes <= bytes_max && (client_bytes == 0 || client_bytes + bytes <= bytes_max / CLIENT_PART)
}

/// The state of a place after a reply releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    /// Another reply still holds it, or none did.
    Held,
    /// It is its item's alone again.
    Unpinned,
    /// Its item has left it meanwhile: it is free. It was charged to this tenant.
    Left(u16),
}

/// A place that is held.
#[derive(Clone, Copy, Debug)]
struct Held {
    count: u32,
    /// Orders places by when they were first held.
    since: u64,
    /// Who is charged once its item has left it; `None`: the item's tenant.
    tenant: Option<u16>,
    /// Who is charged, as its item has left it.
    left: Option<u16>,
}

/// Places held by replies under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Pins {
    places: BTreeMap<Loc, Held>,
    /// Of each tier, the places that are left, by when they were first held.
    left: [BTreeMap<u64, Loc>; LEVELS_MAX],
    holds: u64,
}

impl Pins {
    /// Another one holds a place, perhaps a client's of a certain tenant.
    pub fn hold(&mut self, loc: Loc, tenant: Option<u16>) {
        self.holds += 1;
        let since = self.holds;
        self.places.entry(loc).or_insert(Held { count: 0, since, tenant, left: None }).count += 1;
    }

    /// A reply releases a place.
    pub fn release(&mut self, loc: Loc) -> Released {
        let Some(held) = self.places.get_mut(&loc) else { return Released::Held };
        held.count -= 1;
        if held.count > 0 {
            return Released::Held;
        }
        let Held { since, left, .. } = *held;
        self.places.remove(&loc);
        match left {
            None => Released::Unpinned,
            Some(tenant) => {
                self.left[usize::from(loc.tier)].remove(&since);
                Released::Left(tenant)
            }
        }
    }

    /// Notes that the item of a place leaves, which is `owner`'s. Returns the tenant to charge, if a reply holds the place.
    pub fn note_left(&mut self, loc: Loc, owner: u16) -> Option<u16> {
        let held = self.places.get_mut(&loc)?;
        let tenant = held.tenant.unwrap_or(owner);
        held.left = Some(tenant);
        self.left[usize::from(loc.tier)].insert(held.since, loc);
        Some(tenant)
    }

    /// Whether no place is held.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The left place of a tier that has been held for longest.
    pub fn first_left(&self, tier: usize) -> Option<Loc> {
        self.left[tier].first_key_value().map(|(_, loc)| *loc)
    }
}

/// The places that are held, and how much their room is needed.
#[derive(Clone, Copy, Debug)]
pub struct HeldPlaces<'a>(&'a Ladder);

impl<'a> HeldPlaces<'a> {
    /// Those of a ladder.
    #[inline]
    pub fn of(ladder: &'a Ladder) -> Self {
        HeldPlaces(ladder)
    }

    /// The place that is to be given up next, of those that only replies hold: the one held for longest in a tier in which others
    /// need the room, or with `refused` in any, since an item was refused.
    pub fn first_to_give(self, refused: bool) -> Option<Loc> {
        let mut tiers = 0..self.0.transit.residents.levels.len();
        tiers.find_map(|tier| {
            let first = self.0.transit.pins.first_left(tier)?;
            (refused || self.needs_room(tier)).then_some(first)
        })
    }

    /// Whether room of a tier is needed: items leave it in the background, or for an admission, or beyond its limit.
    pub fn needs_room(self, tier: usize) -> bool {
        let level = &self.0.transit.residents.levels[tier];
        let supply = level.slots.supply();
        let low = self.0.config().watermarks_of(tier).map_or(0.0, |marks| marks.low);
        level.will_be_free_bytes() <= (level.usable_bytes() as f64 * low) as u64
            || level.short() != 0 && supply.free() == 0
            || supply.used() > supply.limit()
            || self.0.clearings.is_under_way(tier)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Admit, LadderConfig, NewItem, PAGE_BYTES};
    use super::*;
    use crate::{Id, Now};
    use tiermem_base::Rng;

    #[test]
    fn the_last_to_let_go_is_told_what_became_of_the_place() {
        let (mut pins, loc) = (Pins::default(), Loc { tier: 1, unit: 16 });
        assert_eq!(pins.release(loc), Released::Held);
        assert_eq!(pins.note_left(loc, 3), None);
        pins.hold(loc, None);
        pins.hold(loc, Some(9));
        assert_eq!((pins.release(loc), pins.release(loc)), (Released::Held, Released::Unpinned));
        assert!(pins.is_empty());
        for (tenant, charged) in [(None, 3), (Some(5), 5)] {
            pins.hold(loc, tenant);
            assert_eq!((pins.note_left(loc, 3), pins.first_left(1)), (Some(charged), Some(loc)));
            assert!(!pins.is_empty() && pins.first_left(0).is_none());
            assert_eq!(pins.release(loc), Released::Left(charged));
            assert!(pins.is_empty() && pins.first_left(1).is_none());
        }
    }

    #[test]
    fn replies_hold_a_part_of_a_tier_and_a_client_a_part_of_that() {
        assert!(may_hold(1600, 0, 0, 1600) && !may_hold(1600, 1, 0, 1600), "one of any length");
        assert!(may_hold(1600, 300, 300, 100) && !may_hold(1600, 300, 300, 101));
        assert!(may_hold(1600, 1500, 0, 100) && !may_hold(1600, 1501, 0, 100));
    }

    #[test]
    fn a_left_place_is_given_up_once_others_need_room_the_oldest_first() {
        let config =
            LadderConfig { charge_metadata: false, ..LadderConfig::with_capacities(&[16 * PAGE_BYTES]) };
        let mut ladder = Ladder::new(config);
        let (mut rng, mut acts) = (Rng::seeded(1), Vec::new());
        let mut enter = |ladder: &mut Ladder, key: u64| {
            let (expires_at_ms, rewrites, tenant, is_newcomer) = (None, None, 0, true);
            let item = NewItem { key, bytes: PAGE_BYTES, expires_at_ms, rewrites, tenant, is_newcomer };
            match ladder.admit(&item, Now::default(), &mut rng, &mut acts) {
                Admit::Ready { id, loc } => Some((id, loc)),
                _ => None,
            }
        };
        let items: Vec<(Id, Loc)> = (0..4).filter_map(|key| enter(&mut ladder, key)).collect();
        for &(id, _) in [&items[2], &items[1], &items[3]] {
            ladder.transit_mut().pin(id, None);
        }
        for &(id, _) in &items[1..3] {
            ladder.transit_mut().remove(id);
        }
        assert_eq!(HeldPlaces::of(&ladder).first_to_give(false), None, "there is room");
        assert_eq!(HeldPlaces::of(&ladder).first_to_give(true), Some(items[2].1));
        while !HeldPlaces::of(&ladder).needs_room(0) {
            assert!(enter(&mut ladder, 9).is_some());
        }
        assert_eq!(HeldPlaces::of(&ladder).first_to_give(false), Some(items[2].1), "the first that was held");
        ladder.transit_mut().unpin(items[2].1);
        assert_eq!(HeldPlaces::of(&ladder).first_to_give(true), Some(items[1].1));
        ladder.transit_mut().unpin(items[1].1);
        assert_eq!(HeldPlaces::of(&ladder).first_to_give(true), None, "what is in the store is not given up");
    }

    #[test]
    fn what_only_a_reply_holds_is_charged_to_the_tenant_of_its_client() {
        let capacities = [16 * PAGE_BYTES];
        let config = LadderConfig {
            charge_metadata: false,
            tenants: true,
            ..LadderConfig::with_capacities(&capacities)
        };
        let mut ladder = Ladder::new(config);
        let (mut rng, mut acts) = (Rng::seeded(1), Vec::new());
        let mut enter = |ladder: &mut Ladder, key: u64| {
            let (bytes, expires_at_ms, rewrites, is_newcomer) = (PAGE_BYTES, None, None, true);
            let item = NewItem { key, bytes, expires_at_ms, rewrites, tenant: 1, is_newcomer };
            let Admit::Ready { id, .. } = ladder.admit(&item, Now::default(), &mut rng, &mut acts) else {
                panic!("there is room")
            };
            id
        };
        let bytes = |ladder: &Ladder| [1, 2].map(|tenant| ladder.residents().tenant_level(tenant, 0).bytes);
        let (own, others) = (enter(&mut ladder, 1), enter(&mut ladder, 2));
        let locs = [ladder.transit_mut().pin(own, None), ladder.transit_mut().pin(others, Some(2))];
        assert_eq!(bytes(&ladder), [2 * PAGE_BYTES, 0], "both are in the store");
        [own, others].into_iter().for_each(|id| ladder.transit_mut().remove(id));
        assert_eq!(bytes(&ladder), [PAGE_BYTES; 2]);
        locs.into_iter().for_each(|loc| ladder.transit_mut().unpin(loc));
        assert_eq!(bytes(&ladder), [0; 2]);
    }
}
