//! Promotions: items of slower tiers whose uses show that they are worth a place in the tier above (Wang 2024, section 5.1.4).

use super::classes::{Class, Fit};
use super::item_lifecycle::Transit;
use super::payoff::{CLOSENESS, Cause};
use super::reclaim::Reclaim;
use super::residents::{Residents, Use};
use super::reuse_stats::{Learnt, is_roomy};
use super::{Context, LadderConfig, MoveKind};
use crate::column::Column;
use crate::promotion_rule::{Candidate, Candidates, Promotion, packed_reuse};
use crate::{Id, Now};

/// The hits of one tick in this many tell how soon a tenant's items are used again.
const TENANT_REUSE_EVERY: u32 = 8;
/// A copy costs a fixed part and one per byte, a slow hit hardly anything per byte: at about this size it takes twice as
/// many hits to pay for a promotion as at the smallest.
const PROMOTE_TWICE_BYTES: u64 = 10 << 10;
/// Of K items that are all used alike, the longest unused one has waited about this many times their mean reuse time: the K-th
/// harmonic number, 3.4 for 16.
const WAITS_LONGER: u32 = 4;

/// The items that may go up.
#[derive(Clone, Debug)]
pub(super) struct Promotions {
    candidates: Candidates,
    /// Last reuse time per item, only for promotion by scanning.
    reuse: Option<Column<u8>>,
    next_scan: u64,
    /// [`LadderConfig::promote_below`] in parts of [`crate::promotion_rule::WHOLE`].
    below: u32,
}

impl Promotions {
    pub fn new(config: &LadderConfig) -> Self {
        Promotions {
            candidates: Candidates::new(config.candidates.max(1)),
            reuse: (config.promotion == Promotion::ReuseTimeScan).then(Column::default),
            next_scan: 0,
            below: config.promote_below_parts(),
        }
    }

    /// The parameters have changed.
    pub fn tune(&mut self, config: &LadderConfig) {
        self.below = config.promote_below_parts();
    }

    /// Learns from a use, and notes whether the item should go up.
    #[inline]
    pub fn note_use(
        &mut self,
        id: Id,
        tenant: Option<u16>,
        used: &Use,
        learnt: &mut Learnt,
        residents: &mut Residents,
    ) {
        let Use { place, age, recency } = *used;
        let tier = usize::from(place.tier());
        match residents.config.promotion {
            Promotion::None => return,
            Promotion::Naive if tier > 0 => return self.candidates.push(Candidate { id, reuse: 0 }),
            Promotion::Naive => return,
            Promotion::ReuseTwice | Promotion::ReuseTime | Promotion::ReuseTimeScan | Promotion::TailAge => {}
        }
        // In ticks; a reuse within one counts as one.
        let reuse = u64::from(age).max(1);
        learnt.note_reuse(tier, reuse);
        // A few hits show the mean of a tenant, and each costs a place in memory.
        let has_tiers = residents.levels.len() > 1;
        if let Some(tenants) = residents.orders.tenants_mut()
            && has_tiers
            && recency.is_multiple_of(TENANT_REUSE_EVERY)
        {
            tenants.note_reuse(tenant.unwrap_or_else(|| tenants.owner(id)), tier, reuse);
        }
        if tier == 0 {
            return;
        }
        if let Some(column) = &mut self.reuse {
            // 0 there means never reused.
            *column.at(id) = packed_reuse::pack(reuse);
            return;
        }
        let twice = residents.config.promotion == Promotion::ReuseTwice;
        let tenant = tenant.unwrap_or_else(|| residents.tenants().map_or(0, |tenants| tenants.owner(id)));
        if !self.is_hot(tenant, used, reuse, learnt, residents) {
            if twice {
                // The next use is the first of two again.
                let cell = residents.nodes.at(id);
                *cell = cell.with_fresh(true);
            }
        } else if !(twice && place.is_fresh()) && self.may_pay(id, tenant, used, learnt, residents) {
            self.candidates.push(Candidate { id, reuse: age.max(1) });
        }
    }

    /// Whether the reuse time of a tenant's item is short enough for the tier above.
    #[inline]
    fn is_hot(&self, tenant: u16, used: &Use, reuse: u64, learnt: &Learnt, residents: &Residents) -> bool {
        let tier = usize::from(used.place.tier());
        match residents.config.promotion {
            Promotion::TailAge => learnt.is_below_tail_age(tier - 1, reuse, self.below),
            Promotion::ReuseTwice => {
                let reuse = weighed(reuse, residents.levels[tier].place_bytes(used.place.unit()));
                is_below_mean((tenant, tier - 1), reuse, self.below, learnt, residents)
            }
            _ => is_below_mean((tenant, tier - 1), reuse, self.below, learnt, residents),
        }
    }

    /// Whether the promotion of a hot item of a tenant may pay.
    fn may_pay(&self, id: Id, tenant: u16, used: &Use, learnt: &Learnt, residents: &Residents) -> bool {
        if residents.config.promotion != Promotion::ReuseTwice || learnt.payoff().is_sampled(id) {
            return true;
        }
        let (tier, above) = (usize::from(used.place.tier()), usize::from(used.place.tier()) - 1);
        let bytes = residents.levels[tier].place_bytes(used.place.unit());
        let cause = self.cause(tenant, above, bytes, used.age, learnt, residents);
        learnt.pays(above, bytes, cause)
            || is_roomy(above, residents.levels[tier].slots.pages().fit_at(used.place.unit()), residents)
    }

    /// The cause of a promotion to the tier `above`: how much sooner than the bound the item was used again.
    fn cause(
        &self,
        tenant: u16,
        above: usize,
        bytes: u64,
        reuse: u32,
        learnt: &Learnt,
        residents: &Residents,
    ) -> Cause {
        let reuse = weighed(u64::from(reuse).max(1), bytes);
        let is_closer =
            |&closer: &u8| is_below_mean((tenant, above), reuse, self.below >> closer, learnt, residents);
        Cause::Promoted((1..CLOSENESS as u8).take_while(is_closer).last().unwrap_or(0))
    }

    /// A new item comes in, perhaps with the new bytes of another.
    pub fn note_entered(&mut self, id: Id, rewrites: Option<Id>) {
        if let Some(column) = &mut self.reuse {
            *column.at(id) = 0;
        }
        if let Some(old) = rewrites {
            self.candidates.rename_last(old, id);
        }
    }

    /// Wang's own way to find candidates: the heads of the slow lists, now and then.
    #[inline]
    pub fn scan(&mut self, learnt: &Learnt, residents: &Residents, now: Now) {
        let Some(column) = &self.reuse else { return };
        if now.requests < self.next_scan {
            return;
        }
        self.next_scan = now.requests + residents.config.scan_requests;
        for tier in 1..residents.levels.len() {
            for class in 0..=residents.classes.count() {
                residents.orders.hottest(tier, Class(class as u8), residents.config.scan_depth, |id| {
                    let reuse = packed_reuse::unpack(column.get(id));
                    if reuse != 0 && learnt.is_below_mean(tier - 1, reuse, self.below) {
                        let reuse = reuse.min(u64::from(u32::MAX)) as u32;
                        self.candidates.push(Candidate { id, reuse });
                    }
                });
            }
        }
    }

    /// Moves candidates up, making room by demoting where the faster tier has none. Returns whether some wait for the next step.
    #[inline]
    pub fn promote(&mut self, transit: &mut Transit, learnt: &mut Learnt, context: &mut Context<'_>) -> bool {
        let mut budget = transit.residents.config.promote_batch;
        let mut reclaimed = false;
        let mut is_behind = false;
        for _ in 0..self.candidates.len() {
            if budget == 0 {
                return true;
            }
            let Some(candidate) = self.candidates.pop() else { break };
            let Candidate { id, reuse } = candidate;
            let place = transit.residents.nodes.get(id);
            // The number may have been given to another item since; that one is judged on its own merits.
            if place.is_free() || place.tier() == 0 || !place.may_go() {
                continue;
            }
            let (tier, above) = (usize::from(place.tier()), usize::from(place.tier()) - 1);
            let fit = transit.residents.levels[tier].slots.pages().fit_at(place.unit());
            if !transit.residents.levels[above].can_hold(fit) {
                continue;
            }
            let class = transit.residents.classes.class(fit);
            let wanted_by = transit.residents.tenants().map(|tenants| tenants.owner(id));
            let context = &mut context.wanted_by(wanted_by);
            if transit.residents.config.promotion == Promotion::Naive
                && let Some(coldest) = transit.residents.victim(above, class, context)
                && transit.residents.nodes.age(coldest, context.now)
                    <= transit.residents.nodes.age(id, context.now)
            {
                continue;
            }
            budget -= 1;
            if deserves_less(id, reuse, (above, class), &mut transit.residents, context) {
                continue;
            }
            if transit.open_move(id, above, MoveKind::Promote, context).is_some() {
                if learnt.payoff().is_sampled(id) {
                    let bytes = transit.residents.place_bytes(id);
                    let tenant = wanted_by.unwrap_or(0);
                    let cause = self.cause(tenant, above, bytes, reuse, learnt, &transit.residents);
                    learnt.payoff_mut().watch(id, above as u8, bytes, cause);
                }
                continue;
            }
            if make_room(fit, (tier, above), &mut reclaimed, transit, context) {
                // There will be room at the next step.
                self.candidates.push(candidate);
                is_behind = true;
            }
        }
        is_behind
    }

    /// There are numbers up to this one.
    pub fn grow_to(&mut self, last: Id) {
        if let Some(column) = &mut self.reuse {
            column.grow_to(last);
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.reuse.as_ref().map_or(0, Column::bytes)
    }

    /// There are no items any more.
    pub fn clear(&mut self, config: &LadderConfig) {
        self.reuse = self.reuse.is_some().then(Column::default);
        self.candidates = Candidates::new(config.candidates.max(1));
    }
}

/// A reuse time with the price of the item's copies: a larger item must save more hits to be worth them.
#[inline]
fn weighed(reuse: u64, bytes: u64) -> u64 {
    reuse + reuse * bytes / PROMOTE_TWICE_BYTES
}

/// Whether a reuse time is sooner than `factor` in 1/256 of the mean of a tier, of the tenant's items there if tenants are told apart.
#[inline]
fn is_below_mean(
    (tenant, tier): (u16, usize),
    reuse: u64,
    factor: u32,
    learnt: &Learnt,
    residents: &Residents,
) -> bool {
    match residents.orders.tenants() {
        Some(tenants) => tenants.is_below_mean(tenant, tier, reuse, factor),
        None => learnt.is_below_mean(tier, reuse, factor),
    }
}

/// Whether an item is no hotter than its tenant's victim in the tier above, where the tenant has its part of that tier already.
///
/// The items that a tenant has above are not all hotter than its others: in a loop or a scan all are alike, and would only change
/// places.
fn deserves_less(
    id: Id,
    reuse: u32,
    (above, class): (usize, Class),
    residents: &mut Residents,
    context: &mut Context<'_>,
) -> bool {
    let level = &residents.levels[above];
    let kept =
        residents.config.watermarks_of(above).map_or(0.0, |marks| marks.high) * level.usable_bytes() as f64;
    if level.slots.free_bytes() as f64 > kept {
        return false;
    }
    let items = (&residents.nodes, &level.slots);
    let coldest = residents.orders.own_coldest(id, (above, class), items, context.now, context.rng);
    coldest.is_some_and(|age| age <= reuse.saturating_mul(WAITS_LONGER))
}

/// Makes room for an item that is promoted, by demoting another or, once in a step, taking a page back. Returns whether there
/// will be room.
fn make_room(
    fit: Fit,
    (tier, above): (usize, usize),
    reclaimed: &mut bool,
    transit: &mut Transit,
    context: &mut Context<'_>,
) -> bool {
    let class = transit.residents.classes.class(fit);
    let victim = transit.residents.victim(above, class, context);
    match victim.filter(|&id| transit.residents.is_large_enough(id, fit)) {
        Some(coldest) => transit.open_move(coldest, tier, MoveKind::Demote, context).is_some(),
        // A page here and a page there make no run.
        None if fit.pages() > 1 => false,
        None => {
            !std::mem::replace(reclaimed, true)
                && Reclaim::in_background(above, transit).page(transit, context)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_world::{QUARTER, World};
    use super::super::{PAGE_BYTES, Watermarks};
    use super::*;
    use proptest::prelude::*;

    fn config(promotion: Promotion) -> LadderConfig {
        LadderConfig { promotion, promote_below: Some(1.0), promote_batch: 64, ..World::config(&[4, 4]) }
    }

    /// A use of an item, of which the promotions learn.
    fn touch(promotions: &mut Promotions, world: &mut World, id: Id) -> Use {
        let used = world.touch(id);
        promotions.note_use(id, None, &used, &mut world.learnt, &mut world.transit.residents);
        used
    }

    /// A step's promotions. Returns the items that were told to go up, and whether some candidates wait.
    fn promote(promotions: &mut Promotions, world: &mut World) -> (Vec<Id>, bool) {
        let (transit, learnt, mut context) = world.parts();
        let is_behind = promotions.promote(transit, learnt, &mut context);
        let (moved, _) = world.decided();
        let up = moved.into_iter().filter(|&(_, kind)| kind == MoveKind::Promote);
        (up.map(|(id, _)| id).collect(), is_behind)
    }

    proptest! {
        /// An item is promoted exactly if it was used again sooner than the items above are on average: once, or twice in a row.
        /// The mean is over all uses that the tier above has had.
        #[test]
        fn who_goes_up_was_used_sooner_than_those_above(
            rule in 0usize..3,
            ops in prop::collection::vec((any::<bool>(), 0usize..3, 1u64..30), 1..80),
        ) {
            let rules = [Promotion::None, Promotion::ReuseTime, Promotion::ReuseTwice];
            let config = LadderConfig { reuse_window_requests: 1 << 20, ..config(rules[rule]) };
            let mut promotions = Promotions::new(&config);
            let mut world = World::new(config);
            let above: Vec<Id> = (0..3).filter_map(|_| world.enter(0, 64)).collect();
            let below: Vec<Id> = (0..3).filter_map(|_| world.enter(1, 64)).collect();
            let (mut sum, mut hits) = (0, 0);
            let mut hot_before = [false; 3];
            let mut up = Vec::new();
            for (is_above, which, pause) in ops {
                world.now.requests += pause;
                let id = if is_above { above[which] } else { below[which] };
                let used = touch(&mut promotions, &mut world, id);
                let age = u64::from(used.age);
                if is_above {
                    (sum, hits) = (sum + age, hits + 1);
                    continue;
                }
                // Where it costs a copy of 64 bytes the bound is tighter by less than a hundredth.
                let cost = if rule == 2 { age * 64 / PROMOTE_TWICE_BYTES } else { 0 };
                let is_hot = hits == 0 || (age + cost) * hits < sum;
                let goes = match rule {
                    0 => false,
                    1 => is_hot,
                    _ => is_hot && hot_before[which],
                };
                hot_before[which] = is_hot;
                if goes && up.last() != Some(&id) {
                    up.push(id);
                }
            }
            // An item goes up once, with its first candidate.
            let mut expected = Vec::new();
            for id in up {
                if !expected.contains(&id) {
                    expected.push(id);
                }
            }
            prop_assert_eq!(promote(&mut promotions, &mut world), (expected, false));
        }

        /// With the naive rule an item is promoted unless it was used before the victim that would make room for it.
        #[test]
        fn naively_who_was_used_later_than_the_tail_above(order in Just([0usize, 1, 2, 3, 4, 5]).prop_shuffle()) {
            let config = config(Promotion::Naive);
            let mut promotions = Promotions::new(&config);
            let mut world = World::new(config);
            let mut ids: Vec<Id> = (0..3).filter_map(|_| world.enter(0, PAGE_BYTES)).collect();
            ids.extend((0..3).filter_map(|_| world.enter(1, PAGE_BYTES)));
            order.iter().for_each(|&at| _ = touch(&mut promotions, &mut world, ids[at]));
            let tail = order.iter().position(|&at| at < 3).unwrap();
            let expected: Vec<Id> = order[tail..].iter().filter(|&&at| at >= 3).map(|&at| ids[at]).collect();
            // There is space for one more above. Items promoted later find the next of them at the tail.
            let (up, _) = promote(&mut promotions, &mut world);
            prop_assert_eq!(up.first(), expected.first());
            prop_assert!(up.iter().all(|id| expected.contains(id)));
        }
    }

    /// Every item that is used below is a candidate from the first use on.
    fn eager(pages: &[u64]) -> (Promotions, World) {
        let config = LadderConfig { levels: World::config(pages).levels, ..config(Promotion::ReuseTime) };
        (Promotions::new(&config), World::new(config))
    }

    #[test]
    fn a_full_tier_makes_room_by_its_coldest_and_the_candidate_goes_up_in_the_next_step() {
        let (mut promotions, mut world) = eager(&[1, 4]);
        let above = world.fill(0, QUARTER);
        let below = world.enter(1, QUARTER).unwrap();
        touch(&mut promotions, &mut world, below);
        let (transit, learnt, mut context) = world.parts();
        assert!(promotions.promote(transit, learnt, &mut context), "it waits");
        assert_eq!(world.decided().0, [(above[0], MoveKind::Demote)]);
        world.settle();
        assert_eq!(promote(&mut promotions, &mut world), (vec![below], false));
    }

    #[test]
    fn a_page_is_taken_back_above_once_in_a_step() {
        let (mut promotions, mut world) = eager(&[2, 4]);
        world.fill(0, PAGE_BYTES);
        let below: Vec<Id> = (0..2).filter_map(|_| world.enter(1, QUARTER)).collect();
        below.iter().for_each(|&id| _ = touch(&mut promotions, &mut world, id));
        let (transit, learnt, mut context) = world.parts();
        assert!(promotions.promote(transit, learnt, &mut context));
        assert_eq!(world.decided().0.len(), 1, "one of the two pages");
        world.settle();
        let (up, is_behind) = promote(&mut promotions, &mut world);
        assert_eq!((up.len(), is_behind), (1, false), "the other one has found no room and is forgotten");
    }

    #[test]
    fn a_step_moves_no_more_than_its_budget() {
        let (mut promotions, mut world) = eager(&[4, 4]);
        world.transit.residents.config.promote_batch = 2;
        let below: Vec<Id> = (0..5).filter_map(|_| world.enter(1, QUARTER)).collect();
        below.iter().for_each(|&id| _ = touch(&mut promotions, &mut world, id));
        for (step, waits) in [(&below[..2], true), (&below[2..4], true), (&below[4..], false)] {
            assert_eq!(promote(&mut promotions, &mut world), (step.to_vec(), waits));
        }
    }

    #[test]
    fn who_is_gone_held_up_there_or_too_large_is_passed_over() {
        let (mut promotions, mut world) = eager(&[4, 12]);
        let ids: Vec<Id> = (0..4).filter_map(|_| world.enter(1, QUARTER)).collect();
        let large = world.enter(1, 3 * PAGE_BYTES).unwrap();
        ids.iter().chain([&large]).for_each(|&id| _ = touch(&mut promotions, &mut world, id));
        world.transit.remove(ids[0]);
        world.transit.pin(ids[1], None);
        let (transit, _, mut context) = world.parts();
        transit.open_move(ids[2], 0, MoveKind::Promote, &mut context);
        world.settle();
        world.acts.clear();
        assert_eq!(promote(&mut promotions, &mut world), (vec![ids[3]], false));
    }

    #[test]
    fn new_bytes_take_over_the_candidacy_and_clearing_ends_all() {
        let (mut promotions, mut world) = eager(&[4, 4]);
        let ids: Vec<Id> = (0..2).filter_map(|_| world.enter(1, QUARTER)).collect();
        touch(&mut promotions, &mut world, ids[0]);
        promotions.note_entered(ids[1], Some(ids[0]));
        assert_eq!(promote(&mut promotions, &mut world), (vec![ids[1]], false));
        touch(&mut promotions, &mut world, ids[0]);
        promotions.clear(&world.transit.residents.config);
        assert_eq!(promote(&mut promotions, &mut world), (vec![], false));
    }

    #[test]
    fn a_scan_finds_candidates_at_the_heads_of_the_lists() {
        let config = LadderConfig { scan_requests: 100, scan_depth: 1, ..config(Promotion::ReuseTimeScan) };
        let mut promotions = Promotions::new(&config);
        let mut world = World::new(config);
        let ids: Vec<Id> = (0..3).filter_map(|_| world.enter(1, QUARTER)).collect();
        promotions.grow_to(ids[2]);
        let before = promotions.bytes();
        assert!(before > 0);
        ids[..2].iter().for_each(|&id| _ = touch(&mut promotions, &mut world, id));
        world.touch(ids[2]);
        // The head of the list was used, and its uses were not told; so nothing is known of it.
        promotions.scan(&world.learnt, &world.transit.residents, world.now);
        assert_eq!(promote(&mut promotions, &mut world), (vec![], false));
        touch(&mut promotions, &mut world, ids[1]);
        promotions.scan(&world.learnt, &world.transit.residents, world.now);
        assert_eq!(promote(&mut promotions, &mut world).0, [], "it is not time yet");
        world.now.requests += 100;
        promotions.scan(&world.learnt, &world.transit.residents, world.now);
        assert_eq!(promote(&mut promotions, &mut world).0, [ids[1]], "and no other: a scan looks at one");
        promotions.note_entered(ids[0], None);
        world.touch(ids[0]);
        world.now.requests += 100;
        promotions.scan(&world.learnt, &world.transit.residents, world.now);
        assert_eq!(promote(&mut promotions, &mut world).0, [], "of new bytes no use is known");
    }

    #[test]
    fn larger_items_must_be_used_sooner() {
        let config = LadderConfig { promotion: Promotion::ReuseTwice, ..config(Promotion::ReuseTwice) };
        let mut promotions = Promotions::new(&config);
        let mut world = World::new(LadderConfig { levels: World::config(&[8, 8]).levels, ..config });
        let above = world.enter(0, 64).unwrap();
        let (small, large) = (world.enter(1, 64).unwrap(), world.enter(1, PAGE_BYTES).unwrap());
        // Those above are used again after a hundred requests on average, these after ninety.
        for _ in 0..3 {
            world.now.requests += 90;
            touch(&mut promotions, &mut world, small);
            touch(&mut promotions, &mut world, large);
            world.now.requests += 7;
            touch(&mut promotions, &mut world, above);
        }
        assert_eq!(promote(&mut promotions, &mut world).0, [small]);
    }

    #[test]
    fn what_is_kept_free_above_goes_to_whoever_is_hot() {
        let mut config = config(Promotion::ReuseTime);
        config.watermarks = Some(Watermarks { low: 0.1, high: 0.5 });
        config.tenants = true;
        config.order_for_tenants();
        let mut promotions = Promotions::new(&config);
        let mut world = World::new(config);
        for tenant in [1, 2] {
            let share = super::super::Setting::Share { tenant, tier: 0, share_bytes: 1 << 17, k: 16 };
            world.transit.residents.apply(share);
        }
        let mine: Vec<Id> = (0..8).filter_map(|_| world.enter_of(1, 0, QUARTER)).collect();
        let below = world.enter_of(1, 1, QUARTER).unwrap();
        // Half of the tier above is free, which is the part that is kept free: its own items are no colder than this one, so it
        // stays.
        world.now.requests += 1000;
        mine.iter().for_each(|&id| _ = world.touch(id));
        touch(&mut promotions, &mut world, below);
        assert_eq!(promote(&mut promotions, &mut world).0, []);
        world.transit.remove(mine[0]);
        touch(&mut promotions, &mut world, below);
        assert_eq!(promote(&mut promotions, &mut world).0, [below], "now there is more than is kept");
    }
}
