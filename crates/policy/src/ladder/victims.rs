//! Victims: the eviction orders of all tiers, which name the next victim of a class or of a tier.

use super::classes::SizeClasses;
use super::item_record::Place;
use super::item_table::Nodes;
use super::slots::Slots;
use super::tenants::Tenants;
use super::tier_order::{Draw, Order, Priority, Sampling, Uses};
use super::{Class, Context, LEVELS_MAX, LadderConfig, LevelConfig};
use crate::deferred_free::DeferredFree;
use crate::evict::{self, Departure, Domain, Evict, Lru, Origin, Touch};
use crate::{Id, Now};
use tiermem_base::Rng;

/// Used items that are passed over at once in search of a victim.
const PASSED_OVER: usize = 8;

/// The eviction order of each tier.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    lists: Lru,
    /// Lists of one tier: one for each class, and one for runs.
    lists_of_tier: usize,
    /// Of each tier; as many as there can be, so that a use needs no check.
    orders: [Order; LEVELS_MAX],
    samplings: Vec<Sampling>,
    uses: Uses,
    /// The policy of all tiers, where it is one by its name, with the same domains as the lists.
    policy: Option<evict::Order>,
    /// The tenants of the items, where they are told apart.
    tenants: Option<Tenants>,
}

impl Orders {
    pub fn new(config: &LadderConfig, classes: &SizeClasses) -> Self {
        let lists_of_tier = classes.count() + 1;
        let by_frequency = |order: &Order| matches!(order, Order::Sample { by: Priority::Frequency, .. });
        let sampling = |level: &LevelConfig| Sampling::new(level.insertion_point);
        let order = |tier: usize| config.levels.get(tier).map_or(Order::default(), |level| level.order);
        Orders {
            lists: config.lists(lists_of_tier),
            lists_of_tier,
            orders: std::array::from_fn(order),
            samplings: config.levels.iter().map(sampling).collect(),
            uses: Uses::new(config.levels.iter().any(|level| by_frequency(&level.order))),
            // How much a class comes to hold is not known.
            policy: config
                .policy()
                .map(|named| evict::Order::new(named, lists_of_tier * config.levels.len(), 0)),
            tenants: config.tenants.then(|| Tenants::new(config)),
        }
    }

    /// The tenants of the items, where they are told apart.
    #[inline]
    pub fn tenants(&self) -> Option<&Tenants> {
        self.tenants.as_ref()
    }

    /// The tenants, to change their shares and K.
    #[inline]
    pub fn tenants_mut(&mut self) -> Option<&mut Tenants> {
        self.tenants.as_mut()
    }

    /// The list of a tier and a class.
    #[inline]
    fn domain(&self, tier: usize, class: Class) -> Domain {
        Domain((tier * self.lists_of_tier + class.index()) as u32)
    }

    /// Whether each class of a tier has an order of its own: the coldest is found by a look at all of them.
    #[inline]
    pub fn has_order_by_class(&self, tier: usize) -> bool {
        !matches!(self.orders[tier], Order::Sample { .. })
    }

    /// A key was asked for that is not there, and is to enter a tier.
    #[inline]
    pub fn miss(&mut self, key: u64, tier: usize, class: Class) {
        let domain = self.domain(tier, class);
        if let Some(policy) = &mut self.policy {
            policy.miss(domain, key);
        }
    }

    /// A new item is a tenant's, and was not used yet.
    pub fn admit(&mut self, id: Id, tenant: u16) {
        self.uses.reset(id);
        if let Some(tenants) = &mut self.tenants {
            tenants.set_owner(id, tenant);
        }
    }

    /// Enters an item, whose place has `bytes`, in the order of its tier.
    #[inline]
    pub fn insert(
        &mut self,
        id: Id,
        (tier, class): (usize, Class),
        bytes: impl FnOnce() -> u64,
        origin: Origin,
    ) {
        if let Some(tenants) = &mut self.tenants {
            tenants.insert(id, tier, bytes());
        }
        let domain = self.domain(tier, class);
        match self.orders[tier] {
            Order::Lists => self.lists.insert(id, domain, origin),
            Order::Sample { .. } => {}
            Order::Policy(_) => {
                self.policy.iter_mut().for_each(|policy| policy.insert(id, domain, origin));
            }
        }
    }

    /// Takes an item, whose place has `bytes`, out of the order of its tier.
    pub fn remove(
        &mut self,
        id: Id,
        (tier, class): (usize, Class),
        bytes: impl FnOnce() -> u64,
        departure: Departure,
    ) {
        if let Some(tenants) = &mut self.tenants {
            tenants.remove(id, tier, bytes());
        }
        let domain = self.domain(tier, class);
        match self.orders[tier] {
            Order::Lists => self.lists.remove(id, domain, departure),
            Order::Sample { .. } => {}
            Order::Policy(_) => {
                self.policy.iter_mut().for_each(|policy| policy.remove(id, domain, departure));
            }
        }
    }

    /// Notes a use of an item that is not between two places, `age` ticks after the one before.
    #[inline]
    pub fn hit(&mut self, id: Id, place: Place, age: u32, touch: Touch, slots: &Slots) {
        let tier = usize::from(place.tier());
        match self.orders[tier] {
            Order::Lists => {
                let first = tier * self.lists_of_tier;
                let domain = || Domain((first + slots.pages().class_at(place.unit()).index()) as u32);
                self.lists.hit(id, touch, domain);
            }
            Order::Policy(_) => self.hit_policy(id, touch, place, slots),
            Order::Sample { by: Priority::Frequency, .. } => {
                self.uses.count(id, age, self.samplings[tier].half_life());
            }
            Order::Sample { .. } => {}
        }
    }

    #[inline(never)]
    fn hit_policy(&mut self, id: Id, touch: Touch, place: Place, slots: &Slots) {
        let domain = self.domain(usize::from(place.tier()), slots.pages().class_at(place.unit()));
        self.policy.iter_mut().for_each(|policy| policy.hit(id, touch, || domain));
    }

    /// The word that a hit writes in addition to the node.
    #[inline]
    pub fn mark(&self, id: Id) -> Option<&u64> {
        match &self.policy {
            None => self.lists.mark(id),
            Some(policy) => policy.mark(id),
        }
    }

    /// Draws from a tier that is sampled, and the tenants to draw from.
    fn draw<'a>(
        &'a mut self,
        tier: usize,
        (nodes, slots): (&'a Nodes, &'a Slots),
        now: Now,
    ) -> Option<(Draw<'a>, Option<&'a mut Tenants>)> {
        let Order::Sample { k, by } = self.orders[tier] else { return None };
        let sampling = &mut self.samplings[tier];
        let recency = nodes.ticks().recency(now);
        let draw = Draw { nodes, slots, uses: &self.uses, sampling, k, by, recency };
        Some((draw, self.tenants.as_mut()))
    }

    /// The item that should go next from a tier that is sampled, of a class or of any.
    fn sample(
        &mut self,
        tier: usize,
        class: Option<Class>,
        items: (&Nodes, &Slots),
        context: &mut Context<'_>,
    ) -> Option<Id> {
        match self.draw(tier, items, context.now)? {
            (mut draw, Some(tenants)) => {
                tenants.victim(tier, class, &mut draw, context.demand.tenant, context.rng)
            }
            (mut draw, None) => draw.first(class, context.rng),
        }
    }

    /// The item of this tier and class that should go next.
    pub fn victim(
        &mut self,
        tier: usize,
        class: Class,
        items: (&Nodes, &Slots),
        context: &mut Context<'_>,
    ) -> Option<Id> {
        let (domain, now) = (self.domain(tier, class), context.now.requests);
        let may_go = |id: Id| items.0.get(id).may_go();
        match self.orders[tier] {
            Order::Lists => self.lists.victim(domain, now, context.rng, may_go),
            Order::Sample { .. } => self.sample(tier, Some(class), items, context),
            Order::Policy(_) => self.policy.as_mut()?.victim(domain, now, context.rng, may_go),
        }
    }

    /// Whether the class's next victim is at hand, or some that were used have to be passed over first: a few are, at once.
    pub fn is_at_hand(&mut self, tier: usize, class: Class, nodes: &Nodes) -> bool {
        let may_go = |id: Id| nodes.get(id).may_go();
        self.orders[tier] != Order::Lists
            || self.lists.pass_over(self.domain(tier, class), PASSED_OVER, may_go)
    }

    /// The item of this tier that should go next, whatever its class. Where each class has an order of its own, it is the one of
    /// their victims that was not used for longest: one policy's orders cannot be compared otherwise.
    pub fn coldest(
        &mut self,
        tier: usize,
        (nodes, slots): (&Nodes, &Slots),
        context: &mut Context<'_>,
    ) -> Option<Id> {
        if !self.has_order_by_class(tier) {
            return self.sample(tier, None, (nodes, slots), context);
        }
        let mut coldest: Option<(u32, Id)> = None;
        // A class whose last items were used has none of the coldest items, unless all classes are like that.
        for at_hand in [true, false] {
            for class in (0..=slots.by_class().runs().0).map(Class) {
                if slots.by_class().class_use(class).items > 0
                    && (!at_hand || self.is_at_hand(tier, class, nodes))
                    && let Some(id) = self.victim(tier, class, (nodes, slots), context)
                    && coldest.is_none_or(|(age, _)| nodes.age(id, context.now) > age)
                {
                    coldest = Some((nodes.age(id, context.now), id));
                }
            }
            if coldest.is_some() {
                break;
            }
        }
        coldest.map(|(_, id)| id)
    }

    /// Classes of a tier that hold something, with their next victim and its age, coldest first. Where tenants are told apart,
    /// only items of tenants that are to give.
    pub fn donors(
        &mut self,
        tier: usize,
        (nodes, slots): (&Nodes, &Slots),
        context: &mut Context<'_>,
    ) -> Vec<(u32, Class, Id)> {
        let now = context.now;
        let coldness = |id: Id, class: Class| (nodes.age(id, now), class, id);
        let mut donors: Vec<(u32, Class, Id)> = Vec::new();
        if let Some(tenants) = &self.tenants {
            let may_go = |id: Id| nodes.get(id).may_go();
            let drawn = tenants.donors(tier, context.demand.tenant, may_go, context.rng);
            let class = |id: Id| slots.pages().class_at(nodes.get(id).unit());
            donors.extend(drawn.into_iter().map(|id| coldness(id, class(id))));
        } else {
            for class in (0..=slots.by_class().runs().0).map(Class) {
                if slots.by_class().class_use(class).items > 0
                    && let Some(id) = self.victim(tier, class, (nodes, slots), context)
                {
                    donors.push(coldness(id, class));
                }
            }
        }
        donors.sort_by_key(|&(age, class, _)| (std::cmp::Reverse(age), class));
        donors
    }

    /// The item at the cold end of a class's order, where it has one. Unlike [`Self::victim`] it changes nothing.
    pub fn last(&self, tier: usize, class: Class) -> Option<Id> {
        let (domain, mut last) = (self.domain(tier, class), None);
        match (self.orders[tier], &self.policy) {
            (Order::Lists, _) => self.lists.coldest(domain, 1, |id| last = Some(id)),
            (Order::Policy(_), Some(policy)) => policy.coldest(domain, 1, |id| last = Some(id)),
            _ => {}
        }
        last
    }

    /// Visits items from the hot end of a list.
    pub fn hottest(&self, tier: usize, class: Class, count: usize, visit: impl FnMut(Id)) {
        self.lists.hottest(self.domain(tier, class), count, visit);
    }

    /// How long the item in a tier has waited that would go for another one of its tenant, if that has its part there.
    pub fn own_coldest(
        &mut self,
        id: Id,
        (tier, class): (usize, Class),
        items: (&Nodes, &Slots),
        now: Now,
        rng: &mut Rng,
    ) -> Option<u32> {
        let (mut draw, tenants) = self.draw(tier, items, now)?;
        tenants?.own_coldest(id, tier, class, &mut draw, rng)
    }

    /// The item of a tenant that would go from a tier if as many as its K says were drawn.
    pub fn choose(
        &mut self,
        tenant: u16,
        tier: usize,
        items: (&Nodes, &Slots),
        now: Now,
        rng: &mut Rng,
    ) -> Option<Id> {
        let (mut draw, tenants) = self.draw(tier, items, now)?;
        tenants?.sample(usize::from(tenant), tier, None, &mut draw, rng)
    }

    /// There are numbers up to this one.
    pub fn grow_to(&mut self, last: Id) {
        self.uses.grow_to(last);
        if let Some(tenants) = &mut self.tenants {
            tenants.grow_to(last);
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        let policy = self.policy.as_ref().map_or(0, Evict::metadata_bytes);
        let tenants = self.tenants.as_ref().map_or(0, Tenants::bytes);
        self.lists.metadata_bytes() + policy + self.uses.bytes() + tenants
    }

    /// Forgets all items. Their memory is freed a little at a time.
    pub fn clear_into(&mut self, deferred_free: &mut DeferredFree) {
        self.lists.clear_into(deferred_free);
        self.uses.clear();
        self.policy.iter_mut().for_each(Evict::clear);
        if let Some(tenants) = &mut self.tenants {
            tenants.clear_into(deferred_free);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_world::{QUARTER, World};
    use super::super::{Residents, Setting};
    use super::*;
    use crate::evict::Named;
    use crate::evict::lru::Bump;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const TIERS: usize = 2;
    const SIZES: [u64; 4] = [1000, QUARTER, 40_000, 100_000];

    fn world(order: Order) -> World {
        let mut config = World::config(&[12, 12]);
        config.levels.iter_mut().for_each(|level| level.order = order);
        World::new(config)
    }

    /// The state of an item in a list of all items.
    #[derive(Clone, Copy, Debug)]
    struct Known {
        domain: (usize, Class),
        /// When it took its place in the order.
        since: u64,
        used: u64,
        may_go: bool,
    }

    /// The first of a tier and class, and when it was last used.
    fn first(all: &BTreeMap<Id, Known>, domain: (usize, Class)) -> Option<(u64, Id)> {
        let here = all.iter().filter(|(_, known)| known.domain == domain && known.may_go);
        here.min_by_key(|(_, known)| known.since).map(|(&id, known)| (known.used, id))
    }

    proptest! {
        /// With lists by recency and with a policy of another name, the first of a class, of a tier, and of each class of a tier
        /// are those that a look at all items finds.
        #[test]
        fn who_goes_next_is_first_in_its_class_and_not_used_for_longest_in_its_tier(
            is_fifo in any::<bool>(),
            ops in prop::collection::vec((0u8..10, 0usize..TIERS, 0usize..SIZES.len(), any::<prop::sample::Index>()), 1..120),
        ) {
            let mut world = world(if is_fifo { Order::Policy(Named::Fifo) } else { Order::Lists });
            let mut all = BTreeMap::<Id, Known>::new();
            for (what, tier, size, pick) in ops {
                let any = (!all.is_empty()).then(|| *all.keys().nth(pick.index(all.len())).unwrap());
                match (what, any) {
                    (0..4, _) => if let Some(id) = world.enter(tier, SIZES[size]) {
                        let domain = (tier, world.class(SIZES[size]));
                        let since = world.now.requests;
                        all.insert(id, Known { domain, since, used: since, may_go: true });
                    }
                    (4..7, Some(id)) => {
                        world.touch(id);
                        let known = all.get_mut(&id).unwrap();
                        known.used = world.now.requests;
                        if !is_fifo { known.since = known.used; }
                    }
                    (7, Some(id)) => {
                        world.transit.remove(id);
                        all.remove(&id);
                    }
                    (8, Some(id)) if all[&id].may_go => {
                        world.transit.pin(id, None);
                        all.get_mut(&id).unwrap().may_go = false;
                    }
                    _ => {}
                }
                let classes: Vec<Class> = world.classes().collect();
                let (transit, _, mut context) = world.parts();
                let Residents { nodes, levels, orders, .. } = &mut transit.residents;
                for (tier, level) in levels.iter().enumerate() {
                    let items = (&*nodes, &level.slots);
                    prop_assert!(orders.has_order_by_class(tier));
                    let mut firsts = Vec::new();
                    for &class in &classes {
                        let expected = first(&all, (tier, class));
                        prop_assert!(orders.is_at_hand(tier, class, nodes), "nobody has to be passed over");
                        prop_assert_eq!(orders.victim(tier, class, items, &mut context), expected.map(|(_, id)| id));
                        firsts.extend(expected.map(|(used, id)| (used, class, id)));
                        if !is_fifo {
                            let mut hottest = Vec::new();
                            orders.hottest(tier, class, 3, |id| hottest.push(id));
                            let mut here: Vec<_> = all.iter().filter(|(_, known)| known.domain == (tier, class)).collect();
                            here.sort_by_key(|(_, known)| std::cmp::Reverse(known.since));
                            prop_assert_eq!(hottest, here.iter().take(3).map(|&(&id, _)| id).collect::<Vec<_>>());
                        }
                    }
                    firsts.sort_by_key(|&(used, class, _)| (used, class));
                    let now = context.now.requests;
                    let donors: Vec<_> = firsts.iter().map(|&(used, class, id)| ((now - used) as u32, class, id)).collect();
                    prop_assert_eq!(orders.donors(tier, items, &mut context), donors);
                    prop_assert_eq!(orders.coldest(tier, items, &mut context), firsts.first().map(|&(.., id)| id));
                }
            }
        }
    }

    /// The coldest of the first tier.
    fn coldest(residents: &mut Residents, context: &mut Context<'_>) -> Option<Id> {
        let Residents { orders, nodes, levels, .. } = residents;
        orders.coldest(0, (nodes, &levels[0].slots), context)
    }

    #[test]
    fn a_class_whose_last_items_were_used_has_the_coldest_only_where_all_are_so() {
        let mut world = World::new(LadderConfig { bump: Bump::AtTail, ..World::config(&[12]) });
        let old: Vec<Id> = (0..20).filter_map(|_| world.enter(0, 1000)).collect();
        let young: Vec<Id> = (0..8).filter_map(|_| world.enter(0, QUARTER)).collect();
        let residents = &mut world.transit.residents;
        // Marked, and as old as before.
        for &id in &old {
            let place = residents.nodes.get(id);
            let touch = Touch { now: 0, write: false };
            residents.orders.hit(id, place, 0, touch, &residents.levels[0].slots);
        }
        let (transit, _, mut context) = world.parts();
        assert_eq!(coldest(&mut transit.residents, &mut context), Some(young[0]));
        for &id in &young {
            let place = transit.residents.nodes.get(id);
            let touch = Touch { now: 0, write: false };
            transit.residents.orders.hit(id, place, 0, touch, &transit.residents.levels[0].slots);
        }
        // Eight of each are passed over at a look, so neither has one at hand.
        assert_eq!(coldest(&mut transit.residents, &mut context), Some(old[0]));
    }

    #[test]
    fn a_sample_of_a_tier_or_a_class_is_of_those_that_may_go() {
        for by in [Priority::Recency, Priority::Frequency, Priority::Expiry] {
            let mut world = world(Order::Sample { k: 64, by });
            let quarters: Vec<Id> = (0..4).filter_map(|_| world.enter(0, QUARTER)).collect();
            let halves: Vec<Id> = (0..2).filter_map(|_| world.enter(0, 2 * QUARTER)).collect();
            let other_tier = world.enter(1, QUARTER).unwrap();
            let (quarter, half) = (world.class(QUARTER), world.class(2 * QUARTER));
            // Draws teach after which age a count of uses is worth half.
            let (transit, _, mut context) = world.parts();
            (0..32).for_each(|_| _ = coldest(&mut transit.residents, &mut context));
            // The first is used most often, and longest ago; so it goes by recency alone.
            (0..9).for_each(|_| _ = world.touch(quarters[0]));
            quarters[1..].iter().chain(&halves).for_each(|&id| _ = world.touch(id));
            let now = world.now;
            world.transit.residents.nodes.set_expires_at_ms(halves[1], Some(9), now);
            let (transit, _, mut context) = world.parts();
            let residents = &mut transit.residents;
            assert!(!residents.orders.has_order_by_class(0));
            let in_tier = match by {
                Priority::Recency => quarters[0],
                Priority::Frequency => quarters[1],
                Priority::Expiry => halves[1],
            };
            assert_eq!(coldest(residents, &mut context), Some(in_tier), "{by:?}");
            let of_class = if by == Priority::Frequency { quarters[1] } else { quarters[0] };
            assert_eq!(residents.victim(0, quarter, &mut context), Some(of_class), "{by:?}");
            let of_class = if by == Priority::Expiry { halves[1] } else { halves[0] };
            assert_eq!(residents.victim(0, half, &mut context), Some(of_class), "{by:?}");
            assert_eq!(residents.victim(1, quarter, &mut context), Some(other_tier));
            quarters.iter().for_each(|&id| _ = transit.pin(id, None));
            assert_eq!(transit.residents.victim(0, quarter, &mut context), None, "{by:?}");
        }
    }

    #[test]
    fn tenants_give_from_what_is_their_own() {
        let config = world(Order::Sample { k: 64, by: Priority::Recency }).transit.residents.config.clone();
        let mut world = World::new(LadderConfig { tenants: true, ..config });
        for tenant in [1, 2] {
            world.transit.residents.apply(Setting::Share { tenant, tier: 0, share_bytes: 1 << 20, k: 0 });
        }
        let poor = world.enter_of(1, 0, QUARTER).unwrap();
        let mut rich: Vec<Id> = (0..7).filter_map(|_| world.enter_of(2, 0, QUARTER)).collect();
        let class = world.class(QUARTER);
        let (transit, _, mut context) = world.parts();
        let Residents { nodes, levels, orders, .. } = &mut transit.residents;
        let (now, items) = (context.now, (&*nodes, &levels[0].slots));
        assert_eq!(
            orders.victim(0, class, items, &mut context),
            Some(rich[0]),
            "the fullest gives, not the oldest"
        );
        assert_eq!(orders.coldest(0, items, &mut context.wanted_by(Some(1))), Some(rich[0]));
        let donors = orders.donors(0, items, &mut context.wanted_by(Some(1)));
        assert!(donors.is_sorted_by_key(|&(age, ..)| std::cmp::Reverse(age)) && !donors.is_empty());
        assert!(
            donors
                .iter()
                .all(|&(age, of, id)| rich.contains(&id) && of == class && age == nodes.age(id, now))
        );
        assert_eq!(orders.choose(1, 0, items, now, context.rng), Some(poor));
        assert_eq!(orders.choose(2, 0, items, now, context.rng), Some(rich[0]));
        assert_eq!(orders.choose(3, 0, items, now, context.rng), None, "nobody has that number");
        let own = orders.own_coldest(rich[6], (0, class), items, now, context.rng);
        assert_eq!(own, Some(nodes.age(rich[0], now)), "that of the tenant who asks");
        assert!(
            orders.own_coldest(poor, (0, class), items, now, context.rng).is_some(),
            "it lacks less than a page"
        );
        rich.extend((0..32).filter_map(|_| world.enter_of(2, 0, QUARTER)));
        let (transit, _, context) = world.parts();
        let Residents { nodes, levels, orders, .. } = &mut transit.residents;
        let own = orders.own_coldest(poor, (0, class), (nodes, &levels[0].slots), context.now, context.rng);
        assert_eq!(own, None, "it has less than its part");
    }
}
