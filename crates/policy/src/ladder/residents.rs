//! Residents: the items on the ladder, with their tiers, slots and eviction orders.
//!
//! [`Residents`] can be asked for the next victim, and about any item. The functions that change them are in
//! [`super::item_lifecycle`].

use std::ops::Range;
use std::sync::Arc;

use super::classes::{Class, Fit, SizeClasses};
use super::item_record::Place;
use super::item_table::Nodes;
use super::level::Level;
use super::slots::{Slots, distance_pages};
use super::tenants::{Setting, TenantLevel, Tenants};
use super::victims::Orders;
use super::{Context, Demand, LadderConfig, LevelConfig, Loc, PAGE_BYTES};
use crate::deferred_free::DeferredFree;
use crate::evict::Touch;
use crate::{Id, Now};
use tiermem_base::Rng;

/// The most pages of a tier: places are counted in 32 bits of 16 bytes each.
const PAGES_MAX: u64 = u32::MAX as u64 / 4096;

/// The space of a level, which may come to grow to [`LadderConfig::growth`] times its capacity.
fn slots(level: &LevelConfig, config: &LadderConfig, classes: Arc<SizeClasses>) -> Slots {
    let pages = level.capacity_bytes / PAGE_BYTES;
    let mut slots = Slots::new(classes, (pages * u64::from(config.growth.max(1))).min(PAGES_MAX) as u32);
    resize(&mut slots, level.capacity_bytes, config.ahead_bytes);
    slots
}

/// Has a level give out pages up to its capacity, and take `ahead_bytes` of memory ahead.
fn resize(slots: &mut Slots, capacity_bytes: u64, ahead_bytes: u64) {
    let (supply, pages) = slots.supply_mut();
    supply.set_end((capacity_bytes / PAGE_BYTES).min(PAGES_MAX) as u32, |page| pages.free_granules(page));
    let (touched, _, pages) = slots.touched_mut();
    touched.set_distance(distance_pages(ahead_bytes, capacity_bytes), pages);
}

/// An item that is to be admitted.
#[derive(Clone, Copy, Debug)]
pub struct NewItem {
    /// The hash of its key, the same whenever it comes.
    pub key: u64,
    /// Bytes that the driver will store: header, key and value.
    pub bytes: u64,
    /// When it expires.
    pub expires_at_ms: Option<u64>,
    /// The item that it replaces and whose tier and recency it inherits. The driver has pinned that one.
    pub rewrites: Option<Id>,
    /// Its tenant, below [`super::TENANTS_MAX`]; without meaning where tenants are not told apart.
    pub tenant: u16,
    /// Whether nothing is known of its use yet. [`super::Admission::Proven`] judges newcomers by what became of others, and others by
    /// what became of them; an item that was here before, as one of a snapshot was, enters the fast tier and counts for nobody.
    pub is_newcomer: bool,
}

/// A use of an item, as it was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    /// Its node before.
    pub place: Place,
    /// Ticks since the use before.
    pub age: u32,
    /// The ticks now.
    pub recency: u32,
}

/// The items on the ladder.
#[derive(Clone, Debug)]
pub struct Residents {
    pub(super) config: LadderConfig,
    pub(super) classes: Arc<SizeClasses>,
    pub(super) nodes: Nodes,
    pub(super) levels: Vec<Level>,
    pub(super) orders: Orders,
}

impl Residents {
    pub(super) fn new(config: LadderConfig) -> Self {
        let classes = Arc::new(SizeClasses::geometric(config.class_factor));
        let level = |level: &LevelConfig| Level::new(slots(level, &config, classes.clone()));
        Residents {
            nodes: Nodes::new(config.recency_requests),
            levels: config.levels.iter().map(level).collect(),
            orders: Orders::new(&config, &classes),
            classes,
            config,
        }
    }

    /// The nodes of the items.
    #[inline]
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// A tier.
    pub fn level(&self, tier: usize) -> &Level {
        &self.levels[tier]
    }

    /// The items with a place on these pages of a tier, also one that reaches into them only: it may come twice.
    pub fn items_on(&self, tier: usize, pages: Range<u32>) -> impl Iterator<Item = Id> + '_ {
        let slots = &self.levels[tier].slots;
        (pages.start..pages.end.min(self.pages(tier))).flat_map(|page| slots.pages().items(page))
    }

    /// Pages that there are places on in a tier, whether they may be given out or not.
    pub fn pages(&self, tier: usize) -> u32 {
        self.levels[tier].slots.supply().pages_total()
    }

    /// How many tiers there are.
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Live items.
    pub fn items(&self) -> u64 {
        self.levels.iter().map(|level| level.counters.items).sum()
    }

    /// The classes of slots.
    pub fn classes(&self) -> &SizeClasses {
        &self.classes
    }

    /// The tenants of the items, where they are told apart.
    pub fn tenants(&self) -> Option<&Tenants> {
        self.orders.tenants()
    }

    /// A tenant in a tier; nothing where tenants are not told apart.
    pub fn tenant_level(&self, tenant: u16, tier: usize) -> TenantLevel {
        self.orders.tenants().map_or(TenantLevel::default(), |tenants| tenants.level(tenant, tier))
    }

    /// Changes what tenants are to have. Where they are not told apart nothing happens.
    pub fn apply(&mut self, setting: Setting) {
        if let Some(tenants) = self.orders.tenants_mut() {
            tenants.apply(setting);
        }
    }

    /// The item of a tenant that would go from a tier if K of them were drawn. It stays: this is for knowing what choosing costs.
    pub fn choose_victim(&mut self, tenant: u16, tier: usize, k: u8, now: Now, rng: &mut Rng) -> Option<Id> {
        self.apply(Setting::K { tenant, tier, k });
        self.orders.choose(tenant, tier, (&self.nodes, &self.levels[tier].slots), now, rng)
    }

    /// The word that a hit writes in addition to the node.
    #[inline]
    pub fn mark(&self, id: Id) -> Option<&u64> {
        self.orders.mark(id)
    }

    /// Bytes that the item's place occupies.
    pub fn place_bytes(&self, id: Id) -> u64 {
        let loc = self.nodes.loc(id);
        self.levels[usize::from(loc.tier)].place_bytes(loc.unit)
    }

    /// Whether an item of `bytes` could be admitted if everything else left: a larger one never is.
    pub fn could_hold(&self, bytes: u64) -> bool {
        match self.classes.fit(bytes) {
            Fit::Slot(_) => true,
            fit => self.levels.iter().any(|level| level.can_hold(fit)),
        }
    }

    /// Notes a use of a live item, a look-up unless it is a write.
    #[inline]
    pub(super) fn touch(&mut self, id: Id, now: Now, write: bool) -> Use {
        let recency = self.nodes.ticks().recency(now);
        let cell = self.nodes.at(id);
        let place = *cell;
        debug_assert!(!place.is_free());
        *cell = place.used_at(recency);
        let age = place.age(recency);
        let level = &mut self.levels[usize::from(place.tier())];
        level.counters.hits += u64::from(!write);
        // A promoted or demoted item is between two orders until its move is done.
        if !place.is_moving() {
            self.orders.hit(id, place, age, Touch { now: now.requests, write }, &level.slots);
        }
        Use { place, age, recency }
    }

    /// The item of this tier and class that should go next.
    pub(super) fn victim(&mut self, tier: usize, class: Class, context: &mut Context<'_>) -> Option<Id> {
        self.orders.victim(tier, class, (&self.nodes, &self.levels[tier].slots), context)
    }

    /// Whether an item may not go for another tenant: its own is not above its part, and does not want the room.
    pub(super) fn is_protected(&self, id: Id, demand: Demand) -> bool {
        let tier = usize::from(self.nodes.loc(id).tier);
        self.orders.tenants().is_some_and(|tenants| {
            !demand.is_forced && tenants.is_protected(tenants.owner(id), tier, demand.tenant)
        })
    }

    /// Whether an item's place is one for this fit, with the free granules on both sides of it, and its tier may use it: not if
    /// metadata has grown, and the tier uses more pages than it may.
    pub(super) fn is_large_enough(&self, id: Id, fit: Fit) -> bool {
        let Fit::Run(granules) = fit else { return true };
        let Loc { tier, unit } = self.nodes.loc(id);
        self.levels[usize::from(tier)].slots.is_room_for(granules, unit)
    }

    /// Changes a tier's capacity, to at most what it was made for. Items beyond it leave in later steps.
    pub(super) fn set_capacity(&mut self, tier: usize, capacity_bytes: u64) {
        let slots = &mut self.levels[tier].slots;
        let most = u64::from(slots.supply().pages_total()) * PAGE_BYTES;
        let capacity_bytes = capacity_bytes.min(most);
        self.config.levels[tier].capacity_bytes = capacity_bytes;
        resize(slots, capacity_bytes, self.config.ahead_bytes);
    }

    /// Bytes of nodes, orders, tables and timers.
    pub(super) fn metadata_bytes(&self) -> u64 {
        let slots = self.levels.iter().map(|level| level.slots.metadata_bytes()).sum::<u64>();
        self.nodes.bytes() + self.orders.bytes() + slots
    }

    /// Forgets all items. Their memory is freed a little at a time.
    pub(super) fn clear_into(&mut self, deferred_free: &mut DeferredFree) {
        self.nodes.clear_into(deferred_free);
        self.orders.clear_into(deferred_free);
        self.levels.iter_mut().for_each(|level| level.clear(deferred_free));
    }
}

#[cfg(test)]
mod tests {
    use super::super::MoveKind;
    use super::super::classes::PAGE_GRANULES;
    use super::super::test_world::{QUARTER, World};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// An item, as a list of all knows it.
    #[derive(Clone, Copy, Debug)]
    struct Known {
        used: u64,
        /// When it took its place in the order: with its last use, or where it has moved since.
        since: usize,
        tier: usize,
    }

    proptest! {
        /// A use is found as the one before has left it, and counted in the tier. The item is the last to go from then on; one that is
        /// between two places will be when it has arrived.
        #[test]
        fn a_use_is_counted_and_makes_an_item_the_last_to_go(
            ops in prop::collection::vec((0u8..8, any::<prop::sample::Index>(), any::<bool>(), 1u64..9), 1..100),
        ) {
            let mut world = World::new(World::config(&[4, 4]));
            let (mut all, mut hits) = (BTreeMap::<Id, Known>::new(), [0; 2]);
            let (mut moving, mut since) = (Vec::new(), 0);
            let class = world.class(QUARTER);
            for (what, pick, yes, pause) in ops {
                world.now.requests += pause;
                since += 1;
                let any = (!all.is_empty()).then(|| *all.keys().nth(pick.index(all.len())).unwrap());
                match (what, any) {
                    (0..3, _) => if let Some(id) = world.enter(usize::from(yes), QUARTER) {
                        all.insert(id, Known { used: world.now.requests, since, tier: usize::from(yes) });
                    }
                    (3, Some(id)) if world.transit.residents.nodes.get(id).may_go() => {
                        let to = all[&id].tier ^ 1;
                        let kind = if to == 1 { MoveKind::Demote } else { MoveKind::Promote };
                        let (transit, _, mut context) = world.parts();
                        moving.extend(transit.open_move(id, to, kind, &mut context).map(|_| id));
                    }
                    (4, _) => {
                        world.settle();
                        for id in moving.drain(..) {
                            since += 1;
                            let known = all.get_mut(&id).unwrap();
                            (known.since, known.tier) = (since, known.tier ^ 1);
                        }
                    }
                    (_, Some(id)) => {
                        let (now, residents) = (world.now, &mut world.transit.residents);
                        let place = residents.nodes.get(id);
                        let found = residents.touch(id, now, yes);
                        let known = all.get_mut(&id).unwrap();
                        prop_assert_eq!((found.place, found.recency), (place, now.requests as u32));
                        prop_assert_eq!(u64::from(found.age), now.requests - known.used);
                        prop_assert!(residents.nodes.age(id, now) == 0 && !residents.nodes.get(id).is_fresh());
                        hits[known.tier] += u64::from(!yes);
                        (known.used, known.since) = (now.requests, since);
                    }
                    _ => {}
                }
                let residents = &world.transit.residents;
                prop_assert_eq!([0, 1].map(|tier| residents.level(tier).counters().hits), hits);
                prop_assert_eq!(residents.items(), all.len() as u64);
                for tier in 0..2 {
                    let here = all.iter().filter(|(id, known)| known.tier == tier && !moving.contains(id));
                    let first = here.min_by_key(|(_, known)| known.since).map(|(&id, _)| id);
                    let (transit, _, mut context) = world.parts();
                    prop_assert_eq!(transit.residents.victim(tier, class, &mut context), first);
                }
            }
        }

        /// Room for granules in a row: the place of an item must have as many, and what the tier uses above its limit besides.
        #[test]
        fn a_large_item_makes_room_for_what_its_place_and_the_limit_leave(
            runs in prop::collection::vec(2u32..6, 1..5), limit in 1u32..33, wanted in 2u32..8,
        ) {
            // The last one lies before the free rest of the tier.
            let runs = [runs, vec![9]].concat();
            let mut world = World::new(World::config(&[32]));
            let ids: Vec<Id> =
                runs.iter().filter_map(|&pages| world.enter(0, u64::from(pages) * PAGE_BYTES)).collect();
            let (runs, ids) = (&runs[..runs.len() - 1], &ids[..runs.len() - 1]);
            let residents = &mut world.transit.residents;
            residents.levels[0].slots.supply_mut().0.set_limit(limit);
            let used = runs.iter().sum::<u32>() + 9;
            for (&id, &pages) in ids.iter().zip(runs) {
                prop_assert_eq!(residents.place_bytes(id), u64::from(pages) * PAGE_BYTES);
                let left = used - pages;
                let expected = pages >= wanted && left + wanted <= limit;
                prop_assert_eq!(residents.is_large_enough(id, Fit::Run(wanted * PAGE_GRANULES)), expected);
                prop_assert!(residents.is_large_enough(id, Fit::Slot(Class(0))));
            }
            prop_assert_eq!(residents.could_hold(u64::from(wanted) * PAGE_BYTES), wanted <= limit / 2);
            prop_assert!(residents.could_hold(PAGE_BYTES));
        }
    }

    #[test]
    fn a_tier_grows_to_what_it_was_made_for() {
        let mut residents = Residents::new(LadderConfig { growth: 3, ..World::config(&[8]) });
        let limits = |residents: &Residents| {
            let supply = residents.levels[0].slots.supply();
            (supply.limit(), supply.free(), residents.config.levels[0].capacity_bytes / PAGE_BYTES)
        };
        assert_eq!(limits(&residents), (8, 8, 8));
        residents.set_capacity(0, 20 * PAGE_BYTES + 5);
        assert_eq!(limits(&residents), (20, 20, 20));
        residents.set_capacity(0, 25 * PAGE_BYTES);
        assert_eq!(limits(&residents), (24, 24, 24), "there are no more places");
        residents.set_capacity(0, 3 * PAGE_BYTES);
        assert_eq!(limits(&residents), (3, 3, 3));
    }

    #[test]
    fn what_is_a_tenants_part_is_its_own_unless_it_must_go() {
        let mut world = World::of_two_tenants(12);
        let poor = world.enter_of(1, 0, QUARTER).unwrap();
        let rich: Vec<Id> = (0..3).filter_map(|_| world.enter_of(2, 0, QUARTER)).collect();
        let residents = &mut world.transit.residents;
        let owner = |id| residents.tenants().map(|tenants| tenants.owner(id));
        assert_eq!((owner(poor), owner(rich[0])), (Some(1), Some(2)));
        let wanted_by = |tenant| Demand { tenant: Some(tenant), ..Demand::default() };
        assert!(residents.is_protected(poor, wanted_by(2)) && !residents.is_protected(rich[0], wanted_by(1)));
        assert!(!residents.is_protected(poor, wanted_by(1)), "it wants the room itself");
        assert!(!residents.is_protected(poor, Demand { is_forced: true, ..wanted_by(2) }));
        assert_eq!(residents.tenant_level(2, 0).items, 3);
        assert_eq!(residents.choose_victim(2, 0, 64, world.now, &mut world.rng), Some(rich[0]));
        assert_eq!(residents.tenant_level(2, 0).k, 64);
    }
}
