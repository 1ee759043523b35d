//! The ladder against a world that only remembers which key lies where. After every operation each live item's
//! key must lie at its place, no two items may share space, and the counters must equal a recount.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tiermem_base::Rng;
use tiermem_policy::evict::lru::Bump;
use tiermem_policy::ladder::{
    Act, Admission, Admit, Eviction, Ladder, LadderConfig, Loc, NewItem, Order, PAGE_BYTES, Priority,
    Reactive, SizeClasses, Ticket,
};
use tiermem_policy::promotion_rule::Promotion;
use tiermem_policy::{Id, Now};

struct World {
    ladder: Ladder,
    /// What lies at each place that was written and not overwritten by a neighbour since.
    memory: BTreeMap<Loc, u32>,
    /// Live keys: number, bytes, expiry.
    keys: BTreeMap<u32, (Id, u64, Option<u64>)>,
    pins: Vec<(Loc, u32)>,
    now: Now,
    rng: Rng,
    dropped: u64,
    drop_allowed: bool,
}

impl World {
    fn new(config: LadderConfig) -> Self {
        World {
            drop_allowed: config.eviction == Eviction::AllItems,
            ladder: Ladder::new(config),
            memory: BTreeMap::new(),
            keys: BTreeMap::new(),
            pins: Vec::new(),
            now: Now { requests: 0, unix_ms: 1_000_000 },
            rng: Rng::seeded(1),
            dropped: 0,
        }
    }

    fn execute(&mut self, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Move { from, to, .. } => {
                    let key = self.memory[&from];
                    self.memory.insert(to, key);
                }
                Act::Drop { id, loc, .. } => {
                    let key = self.memory[&loc];
                    let (live, _, expires) = self.keys.remove(&key).expect("a dropped item was live");
                    assert_eq!(live, id);
                    assert!(
                        self.drop_allowed || expires.is_some_and(|at| at <= self.now.unix_ms),
                        "{act:?} of {key}, {expires:?} at {:?}",
                        self.now
                    );
                    self.dropped += 1;
                }
                Act::Discard { .. } | Act::Populate { .. } => {}
            }
        }
    }

    fn admit(&mut self, key: u32, bytes: u64, expires_at_ms: Option<u64>, rewrites: Option<Id>) -> bool {
        let mut tries = 0;
        while tries < 8 {
            let mut acts = Vec::new();
            let answer = self.ladder.admit(
                &NewItem {
                    key: u64::from(key),
                    bytes,
                    expires_at_ms,
                    rewrites,
                    tenant: 0,
                    is_newcomer: true,
                },
                self.now,
                &mut self.rng,
                &mut acts,
            );
            self.execute(acts);
            match answer {
                Admit::Ready { id, loc } => {
                    self.memory.insert(loc, key);
                    self.keys.insert(key, (id, bytes, expires_at_ms));
                    return true;
                }
                Admit::After(ticket) => {
                    self.ladder.done(ticket, true, |_| {});
                    tries += 1;
                }
                Admit::Again => self.ladder.done(Ticket(u64::MAX), true, |_| {}),
                Admit::Full => return false,
            }
        }
        panic!("an admission ends");
    }

    fn set(&mut self, key: u32, bytes: u64, expires_at_ms: Option<u64>) {
        let Some(&(old, _, _)) = self.keys.get(&key) else {
            self.admit(key, bytes, expires_at_ms, None);
            return;
        };
        self.ladder.hit(None, old, self.now);
        if self.ladder.transit_mut().rewrite_in_place(old, bytes) {
            self.ladder.timers(self.now).set_expires_at_ms(old, expires_at_ms);
            self.keys.insert(key, (old, bytes, expires_at_ms));
            return;
        }
        let held = self.ladder.transit_mut().pin(old, None);
        let entered = self.admit(key, bytes, expires_at_ms, Some(old));
        self.ladder.transit_mut().unpin(held);
        if entered {
            self.ladder.transit_mut().remove(old);
        }
    }

    /// A piece of the room for a large item, which may never come.
    fn prepare(&mut self, bytes: u64) {
        let mut acts = Vec::new();
        self.ladder.prepare(bytes, self.now, &mut self.rng, &mut acts);
        self.execute(acts);
    }

    /// What an engine does on access: a key past its time is not there.
    fn expire(&mut self, key: u32) {
        if let Some(&(id, _, Some(at_ms))) = self.keys.get(&key)
            && at_ms <= self.now.unix_ms
        {
            self.ladder.transit_mut().remove(id);
            self.keys.remove(&key);
        }
    }

    fn step(&mut self) {
        if let Some(last) = self.ladder.transit().last_ticket() {
            let copied = self.rng.below(10) > 0;
            self.ladder.done(last, copied, |_| {});
        }
        let mut acts = Vec::new();
        self.ladder.step(self.now, &mut self.rng, &mut acts);
        self.execute(acts);
    }

    fn check(&self) {
        let mut places = BTreeMap::new();
        let mut per_tier = [0u64; 4];
        for (&key, &(id, bytes, expires)) in &self.keys {
            let loc = self.ladder.residents().nodes().loc(id);
            assert_eq!(self.memory[&loc], key, "the bytes of {key} lie at its place");
            assert!(self.ladder.residents().place_bytes(id) >= bytes);
            assert_eq!(self.ladder.residents().nodes().expires_at_ms(id), expires);
            places.insert(loc, self.ladder.residents().place_bytes(id));
            per_tier[usize::from(loc.tier)] += 1;
        }
        for (loc, key) in &self.pins {
            assert_eq!(self.memory[loc], *key, "a pinned place keeps its bytes");
        }
        let mut last: Option<(Loc, u64)> = None;
        for (&loc, &bytes) in &places {
            if let Some((before, end)) = last {
                assert!(before.tier != loc.tier || end <= loc.byte_offset(), "items do not overlap");
            }
            last = Some((loc, loc.byte_offset() + bytes));
        }
        for (tier, &items) in per_tier.iter().enumerate().take(self.ladder.residents().levels()) {
            assert_eq!(self.ladder.residents().level(tier).counters().items, items, "items of tier {tier}");
            let capacity = self.ladder.config().levels[tier].capacity_bytes;
            let pages: u64 =
                places.iter().filter(|(loc, _)| usize::from(loc.tier) == tier).map(|(_, b)| b).sum();
            assert!(pages <= capacity);
        }
        let counters = self.ladder.transit().counters();
        let evicted: u64 = (0..self.ladder.residents().levels())
            .map(|tier| self.ladder.residents().level(tier).counters().evictions)
            .sum();
        assert_eq!(evicted + counters.expired, self.dropped);
    }
}

const PROMOTIONS: [Promotion; 6] = [
    Promotion::None,
    Promotion::Naive,
    Promotion::ReuseTwice,
    Promotion::ReuseTime,
    Promotion::TailAge,
    Promotion::ReuseTimeScan,
];
const ORDERS: [Order; 6] = [
    Order::Lists,
    Order::Lists,
    Order::Sample { k: 1, by: Priority::Recency },
    Order::Sample { k: 5, by: Priority::Recency },
    Order::Sample { k: 5, by: Priority::Frequency },
    Order::Sample { k: 5, by: Priority::Expiry },
];

fn config() -> impl Strategy<Value = LadderConfig> {
    let levels = prop::collection::vec(2u64..20, 1..4);
    let modes =
        (0u8..4, 0usize..3, any::<bool>(), any::<bool>(), any::<bool>(), [0usize..6, 0usize..6], 0usize..3);
    (levels, modes, 1u64..4).prop_map(
        |(pages, (promotion, bump, reactive, forbid, marks, orders, admission), recency)| {
            let capacities: Vec<u64> = pages.iter().map(|pages| pages * PAGE_BYTES).collect();
            let mut config = LadderConfig::with_capacities(&capacities);
            config.class_factor = 1.6;
            config.charge_metadata = false;
            config.recency_requests = recency;
            config.scan_requests = 7;
            config.promotion = PROMOTIONS[usize::from(promotion)];
            config.bump = [Bump::Always, Bump::LowerOnly, Bump::AtTail][bump];
            config.reactive = if reactive { Reactive::Demote } else { Reactive::Drop };
            config.eviction = if forbid { Eviction::Forbidden } else { Eviction::AllItems };
            config.admission =
                [Admission::Fast, Admission::Proven, Admission::Interleaved { fast_share: 0.3 }][admission];
            for (tier, level) in config.levels.iter_mut().enumerate() {
                level.order = ORDERS[orders[tier.min(1)]];
            }
            if !marks {
                config.watermarks = None;
            }
            config
        },
    )
}

/// The number of cases: `PROPTEST_CASES`, or `default`.
fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1u64..600, 4 => 600u64..9_000, 1 => 9_000u64..350_000]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(300)))]

    #[test]
    fn bytes_follow_their_items(
        config in config(),
        ops in prop::collection::vec((0u8..17, 0u32..400, bytes(), any::<prop::sample::Index>()), 1..700),
    ) {
        let mut world = World::new(config);
        for (what, key, bytes, pick) in ops {
            world.now.requests += 1;
            world.now.unix_ms += bytes;
            world.expire(key);
            let live = world.keys.get(&key).map(|&(id, _, _)| id);
            match what {
                0..=5 => world.set(key, bytes, None),
                6 => world.set(key, bytes, Some(world.now.unix_ms + 40 * bytes)),
                7 => if let Some(id) = live {
                    world.ladder.transit_mut().remove(id);
                    world.keys.remove(&key);
                },
                8 => if let Some(id) = live {
                    let loc = world.ladder.transit_mut().pin(id, None);
                    world.pins.push((loc, key));
                },
                9 => if !world.pins.is_empty() {
                    let (loc, _) = world.pins.swap_remove(pick.index(world.pins.len()));
                    world.ladder.transit_mut().unpin(loc);
                },
                10 | 11 => world.step(),
                12 => world.prepare(bytes.max(250_000)),
                _ => if let Some(id) = live {
                    world.ladder.hit(None, id, world.now);
                },
            }
            world.check();
        }
        // Everything can be taken out again, and then all space is free.
        world.ladder.done(Ticket(u64::MAX), true, |_| {});
        for (loc, _) in std::mem::take(&mut world.pins) {
            world.ladder.transit_mut().unpin(loc);
        }
        for (_, (id, _, _)) in std::mem::take(&mut world.keys) {
            world.ladder.transit_mut().remove(id);
        }
        prop_assert_eq!(world.ladder.residents().items(), 0);
        // Nothing is held but the page that a class may keep, and even that is given when it is needed.
        let classes = SizeClasses::geometric(world.ladder.config().class_factor).count() as u64;
        for tier in 0..world.ladder.residents().levels() {
            prop_assert!(world.ladder.charged_bytes(tier) <= classes * PAGE_BYTES);
            let pages = world.ladder.config().levels[tier].capacity_bytes / PAGE_BYTES;
            let half = pages / 2 * PAGE_BYTES;
            prop_assert!(world.admit(1_000 + tier as u32, half, None, None), "half of tier {} is free", tier);
        }
        world.check();
    }
}

fn small(capacities_pages: &[u64]) -> LadderConfig {
    let capacities: Vec<u64> = capacities_pages.iter().map(|pages| pages * PAGE_BYTES).collect();
    LadderConfig { charge_metadata: false, recency_requests: 1, ..LadderConfig::with_capacities(&capacities) }
}

/// Items of 1000 bytes in a page.
const PER_PAGE: u32 = 62;

fn fill(world: &mut World, keys: std::ops::Range<u32>, bytes: u64) {
    for key in keys {
        world.now.requests += 1;
        world.set(key, bytes, None);
        if world.ladder.is_due(world.now) {
            world.step();
        }
    }
}

#[test]
fn a_full_fast_tier_demotes_and_never_makes_the_slow_one_evict_for_an_admission() {
    let mut world = World::new(LadderConfig { watermarks: None, ..small(&[2, 4]) });
    fill(&mut world, 0..6 * PER_PAGE, 1000);
    assert_eq!(world.keys.len(), 6 * PER_PAGE as usize);
    assert_eq!(
        world.ladder.residents().level(0).counters().evictions
            + world.ladder.residents().level(1).counters().evictions,
        0
    );
    fill(&mut world, 400..410, 1000);
    // The slow tier is full now: the fast one drops its own coldest.
    assert_eq!(
        (
            world.ladder.residents().level(0).counters().evictions,
            world.ladder.residents().level(1).counters().evictions
        ),
        (10, 0)
    );
}

#[test]
fn the_seeds_rule_drops_from_a_full_fast_tier() {
    let mut world = World::new(LadderConfig { watermarks: None, reactive: Reactive::Drop, ..small(&[2, 4]) });
    fill(&mut world, 0..2 * PER_PAGE + 70, 1000);
    assert_eq!(world.ladder.residents().level(0).counters().evictions, 70);
    assert_eq!(world.ladder.residents().level(1).counters().items, 0);
}

#[test]
fn watermarks_keep_space_free_in_both_tiers() {
    let mut world = World::new(small(&[8, 8]));
    fill(&mut world, 0..3000, 1000);
    world.step();
    world.step();
    // At least 2% and at most about 5% and a batch are free, in the last tier a quarter of it.
    for (tier, kept) in [(0, 9..=25 + 8), (1, 2..=7 + 8)] {
        let free = u64::from(8 * PER_PAGE) - world.ladder.residents().level(tier).counters().items;
        assert!(kept.contains(&free), "tier {tier} has {free} free");
    }
    assert!(world.ladder.residents().level(0).counters().demotions > 2000);
    assert!(world.ladder.residents().level(0).counters().evictions < 30, "admissions found room");
}

#[test]
fn what_is_reused_sooner_than_the_fast_tier_on_average_is_promoted() {
    let mut world = World::new(small(&[4, 8]));
    fill(&mut world, 0..500, 1000);
    let slow: Vec<u32> = world
        .keys
        .iter()
        .filter(|(_, (id, _, _))| world.ladder.residents().nodes().loc(*id).tier == 1)
        .map(|(&key, _)| key)
        .collect();
    let hot = &slow[..20];
    for _ in 0..20 {
        for key in hot {
            world.now.requests += 1;
            world.ladder.hit(None, world.keys[key].0, world.now);
            if world.ladder.is_due(world.now) {
                world.step();
            }
        }
    }
    world.step();
    assert!(hot.iter().all(|key| world.ladder.residents().nodes().loc(world.keys[key].0).tier == 0));
    assert_eq!(world.ladder.residents().level(1).counters().promotions, 20);
}

#[test]
fn a_hot_large_item_empties_no_page_above_where_it_finds_no_run() {
    let mut world = World::new(small(&[40, 200]));
    fill(&mut world, 0..60 * PER_PAGE, 1000);
    let large = 10_000;
    world.set(large, 16 * PAGE_BYTES - 100, None);
    assert_eq!(world.ladder.residents().nodes().loc(world.keys[&large].0).tier, 1);
    let in_use: Vec<u32> = world.keys.keys().copied().filter(|&key| key != large).collect();
    let before = world.ladder.residents().level(0).counters().items;
    for (at, key) in in_use.iter().chain(&in_use).enumerate() {
        for key in [*key].into_iter().chain((at % 3 == 0).then_some(large)) {
            world.now.requests += 1;
            world.ladder.hit(None, world.keys[&key].0, world.now);
            if world.ladder.is_due(world.now) {
                world.step();
            }
        }
    }
    let after = world.ladder.residents().level(0).counters().items;
    assert!(after + u64::from(2 * PER_PAGE) > before, "{before} items became {after}");
}

#[test]
fn a_scan_of_cold_items_promotes_nearly_all_naively_and_hardly_any_by_reuse_time() {
    let run = |promotion| {
        let mut world = World::new(LadderConfig { promotion, ..small(&[4, 16]) });
        fill(&mut world, 0..1000, 1000);
        let before = world.ladder.residents().level(1).counters().promotions;
        let fast: Vec<u32> = world
            .keys
            .iter()
            .filter(|(_, (id, _, _))| world.ladder.residents().nodes().loc(*id).tier == 0)
            .map(|(&key, _)| key)
            .collect();
        let slow: Vec<u32> = world
            .keys
            .iter()
            .filter(|(_, (id, _, _))| world.ladder.residents().nodes().loc(*id).tier == 1)
            .map(|(&key, _)| key)
            .collect();
        for (at, key) in slow.iter().enumerate() {
            for key in [&fast[at % 8], key] {
                world.now.requests += 1;
                world.ladder.hit(None, world.keys[key].0, world.now);
            }
            world.step();
        }
        (world.ladder.residents().level(1).counters().promotions - before, slow.len() as u64)
    };
    let (naive, slow) = run(Promotion::Naive);
    assert!(naive * 5 > slow * 4, "{naive} of {slow}");
    // A few at the start, while the fast tier's own reuse times are still as long.
    let (by_reuse_time, slow) = run(Promotion::ReuseTime);
    assert!(by_reuse_time * 50 < slow, "{by_reuse_time} of {slow}");
}

#[test]
fn a_class_without_a_page_gets_one_though_all_are_taken() {
    for eviction in [Eviction::AllItems, Eviction::Forbidden] {
        let mut world = World::new(LadderConfig { eviction, watermarks: None, ..small(&[4, 8]) });
        fill(&mut world, 0..4 * PER_PAGE, 1000);
        assert!(world.admit(9000, 5000, None, None), "{eviction:?}");
        assert!(world.admit(9001, 100_000, None, None), "{eviction:?}");
        world.check();
        assert_eq!(world.ladder.residents().nodes().loc(world.keys[&9000].0).tier, 0);
    }
}

#[test]
fn nothing_is_dropped_when_eviction_is_forbidden_and_writes_fail_at_the_end() {
    let mut world = World::new(LadderConfig { eviction: Eviction::Forbidden, ..small(&[2, 4]) });
    fill(&mut world, 0..1000, 1000);
    assert_eq!(world.dropped, 0);
    assert!(world.ladder.transit().counters().refused > 0);
    assert_eq!(world.keys.len(), 6 * PER_PAGE as usize, "every slot is used");
}

#[test]
fn expired_items_go_before_live_ones() {
    let mut world = World::new(LadderConfig { watermarks: None, ..small(&[2]) });
    for key in 0..2 * PER_PAGE {
        world.now.requests += 1;
        let expires = (key % 2 == 0).then_some(world.now.unix_ms + 10);
        world.set(key, 1000, expires);
    }
    world.now.unix_ms += 5000;
    for key in 1000..1000 + PER_PAGE {
        world.now.requests += 1;
        world.set(key, 1000, None);
    }
    assert_eq!(
        (world.ladder.transit().counters().expired, world.ladder.residents().level(0).counters().evictions),
        (u64::from(PER_PAGE), 0)
    );
}

#[test]
fn an_item_overwritten_or_removed_in_mid_move_voids_its_ticket() {
    let mut world = World::new(small(&[4, 8]));
    fill(&mut world, 0..4 * PER_PAGE, 1000);
    world.step();
    let moving = world.ladder.transit().last_ticket().expect("the fast tier is below its watermark");
    let before = world.ladder.residents().level(0).counters().demotions;
    let keys: Vec<u32> = world.keys.keys().copied().collect();
    for &key in &keys {
        world.set(key, 999, None);
    }
    world.ladder.done(moving, true, |_| {});
    assert_eq!(world.ladder.residents().level(0).counters().demotions, before);
    assert!(world.ladder.transit().counters().moves_aborted > 0);
    world.check();
}

#[test]
fn metadata_comes_out_of_the_fast_tier_and_bounds_the_number_of_items() {
    let mut config = LadderConfig::with_capacities(&[1 << 20, 64 << 20]);
    config.class_factor = 1.25;
    let mut world = World::new(config);
    fill(&mut world, 0..40_000, 64);
    assert!(world.ladder.metadata_bytes() <= (1 << 20) * 3 / 4, "{}", world.ladder.metadata_bytes());
    assert!(world.ladder.charged_bytes(0) <= 1 << 20);
    assert!(world.keys.len() > 10_000);
}
