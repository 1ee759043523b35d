//! A divider beside a ladder: the quotas of tenants after each event, and what the advisor was told of requests, compared with a
//! plain list of them.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use tiermem_base::Rng;
use tiermem_base::hash::sample_hash;
use tiermem_model::advisor::{
    Advisor, Aim, Answer, Declared, Divider, DividerConfig, Division, Outcome, Plan, Room, Standing,
    TenantPart, Verdict,
};
use tiermem_model::partition::{TenantTerms, Terms};
use tiermem_policy::ladder::{Admit, Ladder, LadderConfig, NewItem};
use tiermem_policy::partition::Objective;
use tiermem_policy::{Id, Now};

const DRAM: u64 = 4 << 20;
const SLOW: u64 = 16 << 20;
const WINDOW: u64 = 1000;

fn ladder() -> Ladder {
    Ladder::new(LadderConfig {
        tenants: true,
        charge_metadata: false,
        ..LadderConfig::with_capacities(&[DRAM, SLOW])
    })
}

/// The first tenant has the keys that belong to no other; `a` has half of all memory, and a K.
fn config() -> DividerConfig {
    DividerConfig {
        plan: Plan { rate: 1.0, ..Plan::default() },
        division: Division { aim: Aim::Divide(Objective::Latency), window: WINDOW, ..Division::default() },
        names: vec!["(others)".to_owned()],
        declared: vec![Declared { name: "a".to_owned(), share: Some(0.5), k: 9 }],
        slower_ns: vec![0.0, 300.0],
        shards: 1,
        seed: 3,
    }
}

/// A divider and its ladder, which does at once what it says.
struct World {
    divider: Divider,
    ladder: Ladder,
}

impl World {
    fn new(config: DividerConfig) -> World {
        let ladder = ladder();
        let mut world = World { divider: Divider::new(config, &ladder), ladder };
        world.apply();
        world
    }

    fn apply(&mut self) {
        self.divider.take_settings().for_each(|setting| self.ladder.residents_mut().apply(setting));
    }

    fn enter(&mut self, name: &str) -> u16 {
        let number = self.divider.enter(name.as_bytes(), &self.ladder);
        self.apply();
        number
    }

    /// Look-ups of keys that belong to no tenant until a window ends. Returns their number.
    fn end_window(&mut self) -> u64 {
        let mut lookups = 1;
        while !self.divider.looked_up(0, sample_hash(lookups), Outcome::Nowhere, None, &self.ladder) {
            lookups += 1;
        }
        self.apply();
        lookups
    }

    /// Has tenants given these bytes of each tier, with K 1 and 2.
    fn answer(&mut self, parts: &[(u16, [u64; 2])]) {
        self.end_window();
        let question = self.divider.take_question().unwrap();
        let part = |&(tenant, bytes): &(u16, [u64; 2])| TenantPart {
            tenant,
            bytes: bytes.into(),
            ks: vec![1, 2],
            miss_ratio: None,
            miss_ratio_before: None,
            rate: 0.0,
            miss_ns: 0.0,
            is_miss_known: false,
            keys_sampled: 0,
            curve: None,
        };
        let parts = parts.iter().map(part).collect();
        let answer = Answer { verdict: Verdict::Divide, parts, ..question.answer() };
        assert!(self.divider.answered(&answer, &self.ladder));
        self.apply();
    }

    /// Share and K of a tenant in both tiers.
    fn has(&self, tenant: u16) -> [(u64, u8); 2] {
        [0, 1].map(|tier| {
            let level = self.ladder.residents().tenant_level(tenant, tier);
            (level.share_bytes, level.k)
        })
    }

    fn shares(&self, tenant: u16) -> [u64; 2] {
        self.has(tenant).map(|(share_bytes, _)| share_bytes)
    }
}

#[test]
fn before_a_division_who_is_undeclared_shares_what_is_left() {
    let mut world = World::new(config());
    assert_eq!(world.has(1), [(DRAM / 2, 9), (SLOW / 2, 9)], "as declared");
    assert_eq!(world.shares(0), [DRAM / 2, SLOW / 2], "alone");
    // As if there were as many as the next power of two.
    for (name, among) in [("b", 2), ("c", 4), ("d", 4), ("e", 8)] {
        let tenant = world.enter(name);
        for one in [0, tenant] {
            assert_eq!(world.shares(one), [DRAM / 2 / among, SLOW / 2 / among], "{name}");
        }
    }
    assert_eq!(world.enter("b"), 2, "a tenant that has come stays");
    assert_eq!(world.has(1), [(DRAM / 2, 9), (SLOW / 2, 9)]);
}

#[test]
fn a_division_is_done_and_newcomers_have_a_part_as_one_more_than_all() {
    let mut world = World::new(config());
    let b = world.enter("b");
    world.answer(&[(0, [100_000, 400_000]), (1, [300_000, 900_000]), (b, [200_000, 800_000])]);
    assert_eq!(world.has(0), [(100_000, 1), (400_000, 2)]);
    assert_eq!(world.has(1), [(300_000, 9), (900_000, 9)], "its K was declared");
    assert_eq!(world.has(b), [(200_000, 1), (800_000, 2)]);
    let c = world.enter("c");
    assert_eq!(world.has(c), [(DRAM / 5, 0), (SLOW / 5, 0)], "the fourth, and one more");
    assert_eq!(world.has(b), [(200_000, 1), (800_000, 2)], "nobody else is concerned");
    // A tenant in no part has a newcomer's share, and the tier's K.
    world.answer(&[(0, [1_000_000, 2_000_000]), (c, [500_000, 0])]);
    assert_eq!(world.has(b), [(DRAM / 5, 0), (SLOW / 5, 0)]);
    assert_eq!(world.has(1), [(DRAM / 5, 9), (SLOW / 5, 9)], "its K was declared");
    assert_eq!(world.has(c), [(500_000, 1), (1, 2)], "no share is nothing");
}

/// A newcomer's share is set before all others are forgotten: otherwise a tenant in no part would keep what it had before the
/// first division.
#[test]
fn who_is_in_no_part_has_what_a_newcomer_has() {
    let mut world = World::new(config());
    let (b, c) = (world.enter("b"), world.enter("c"));
    assert_eq!(world.shares(b), [DRAM / 8, SLOW / 8]);
    world.answer(&[(0, [100_000, 400_000]), (c, [200_000, 800_000])]);
    assert_eq!(world.shares(b), [DRAM / 5, SLOW / 5]);
    assert_eq!(world.has(1), [(DRAM / 5, 9), (SLOW / 5, 9)]);
    assert_eq!(world.shares(c), [200_000, 800_000]);
}

#[test]
fn choosing_k_leaves_shares_alone() {
    let mut world = World::new(config());
    let before = [0, 1].map(|tenant| world.shares(tenant));
    world.end_window();
    let mut answer = world.divider.take_question().unwrap().answer();
    answer.verdict = Verdict::ChooseK;
    let part = TenantPart {
        tenant: 0,
        bytes: vec![5, 5],
        ks: vec![3, 4],
        miss_ratio: None,
        miss_ratio_before: None,
        rate: 0.0,
        miss_ns: 0.0,
        is_miss_known: false,
        keys_sampled: 0,
        curve: None,
    };
    answer.parts = vec![part.clone(), TenantPart { tenant: 1, ..part }];
    assert!(world.divider.answered(&answer, &world.ladder));
    world.apply();
    assert_eq!(world.has(0), [(before[0][0], 3), (before[0][1], 4)]);
    assert_eq!(world.has(1), [(before[1][0], 9), (before[1][1], 9)], "its K was declared");
}

#[test]
fn tiers_that_change_their_size_change_shares_only_before_a_division() {
    let mut world = World::new(config());
    world.ladder.set_capacity(0, DRAM / 2);
    world.divider.resized(&world.ladder);
    world.apply();
    assert_eq!((world.shares(0)[0], world.shares(1)[0]), (DRAM / 4, DRAM / 4));
    world.answer(&[(0, [100_000, 400_000]), (1, [300_000, 900_000])]);
    world.ladder.set_capacity(0, DRAM);
    world.divider.resized(&world.ladder);
    world.apply();
    assert_eq!((world.shares(0)[0], world.shares(1)[0]), (100_000, 300_000));
    // What was declared holds again where nothing is divided any more.
    world.divider.divide_by(Division::default(), &world.ladder);
    world.apply();
    assert_eq!((world.shares(0)[0], world.has(1)[0]), (DRAM / 2, (DRAM / 2, 9)));
    assert!(world.divider.advisor().is_none());
}

#[test]
fn an_answer_to_another_window_does_nothing() {
    let mut world = World::new(config());
    world.end_window();
    let old = world.divider.take_question().unwrap().answer();
    world.end_window();
    assert!(!world.divider.answered(&old, &world.ladder));
    assert_eq!(world.divider.take_settings().count(), 0);
    let division = Division { window: 10, ..world.divider.division().clone() };
    world.divider.divide_by(division, &world.ladder);
    assert!(world.divider.take_question().is_none(), "of another advisor");
    assert!(!world.divider.answered(&old, &world.ladder));
}

#[test]
#[should_panic(expected = "a tenant has one part")]
fn an_answer_that_gives_twice_is_refused() {
    let mut world = World::new(config());
    world.answer(&[(0, [1, 1]), (0, [2, 2])]);
}

#[test]
fn a_shard_has_its_part_of_windows_and_promises() {
    let terms: TenantTerms = "a:min=1MiB,max=8MiB".parse().unwrap();
    let division = Division { terms: vec![terms], ..config().division };
    let mut world = World::new(DividerConfig { shards: 4, division, ..config() });
    assert_eq!(world.end_window(), WINDOW / 4);
    assert_eq!(world.end_window(), WINDOW / 4);
    // No tenant is known; promises are kept all the same: a quarter of it.
    let answer = world.divider.take_question().unwrap().answer();
    let part = answer.parts.iter().find(|part| part.tenant == 1).unwrap();
    assert_eq!(part.bytes.iter().sum::<u64>().div_ceil(2), (1 << 20) / 4 / 2);
}

#[test]
fn what_is_kept_about_tenants_is_known_when_one_comes_and_when_a_window_ends() {
    let mut world = World::new(config());
    let before = world.divider.metadata_bytes();
    assert!(before > 0);
    for name in 0..100 {
        world.enter(&format!("tenant{name}"));
    }
    let tenants = world.divider.metadata_bytes();
    assert!(tenants > before + 100 * 16, "{tenants}");
    for key in 0..WINDOW / 2 {
        world.divider.wrote(0, sample_hash(key), 500, None, &world.ladder);
    }
    assert_eq!(world.divider.metadata_bytes(), tenants);
    world.end_window();
    assert!(world.divider.metadata_bytes() > tenants + WINDOW / 2 * 16);
}

/// What a request comes to.
#[derive(Clone, Copy, Debug)]
enum Event {
    LookUp { key: u64, is_below: bool },
    Write { key: u64, bytes: u64 },
    Remove { key: u64 },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0u64..600, any::<bool>()).prop_map(|(key, is_below)| Event::LookUp { key, is_below }),
        3 => (0u64..600, 1u64..3000).prop_map(|(key, bytes)| Event::Write { key, bytes }),
        1 => (0u64..600).prop_map(|key| Event::Remove { key }),
    ]
}

/// An advisor that is told of a plain list of requests by the rules, beside a divider: every look-up counts in its window, and
/// only items in memory were found; a miss begins where nothing was found in any tier, and ends with the next write; every write
/// counts; a removed key is gone.
struct Told {
    world: World,
    plain: Advisor,
    /// Of each tenant: look-ups, hits, writes.
    tallies: [[u64; 3]; 2],
    held: BTreeMap<u64, Id>,
    rng: Rng,
    /// Whether enough misses ended in a window for their cost to be known.
    are_costs_known: bool,
}

fn rooms() -> [Room; 2] {
    [Room { capacity_bytes: DRAM, slower_ns: 300.0 }, Room { capacity_bytes: SLOW, slower_ns: -300.0 }]
}

fn tenant_of(key: u64) -> u16 {
    (key % 2) as u16
}

impl Told {
    fn new(seed: u64) -> Told {
        let config = config();
        let plan = Plan { window: WINDOW, ..config.plan.clone() };
        Told {
            world: World::new(config),
            plain: Advisor::new(plan, &rooms(), 3),
            tallies: [[0; 3]; 2],
            held: BTreeMap::new(),
            rng: Rng::seeded(seed),
            are_costs_known: false,
        }
    }

    /// Whether the look-up was the last of its window.
    fn look_up(&mut self, key: u64, is_below: bool, now_ns: u64) -> Result<bool, TestCaseError> {
        let Told { world, plain, tallies, held, .. } = self;
        let (tenant, hash) = (tenant_of(key), sample_hash(key));
        let outcome = match held.get(&key) {
            Some(&id) => Outcome::Memory(id),
            None if is_below => Outcome::Below,
            None => Outcome::Nowhere,
        };
        let is_last = world.divider.looked_up(tenant, hash, outcome, Some(now_ns), &world.ladder);
        tallies[usize::from(tenant)][0] += 1;
        tallies[usize::from(tenant)][1] += u64::from(outcome != Outcome::Nowhere);
        if outcome == Outcome::Nowhere {
            plain.missed(tenant, hash, now_ns);
        }
        let bytes = held.get(&key).map(|&id| world.ladder.residents().place_bytes(id) as u32);
        plain.looked_up(tenant, hash, bytes);
        if is_last {
            self.end_window()?;
        }
        Ok(is_last)
    }

    fn end_window(&mut self) -> Result<(), TestCaseError> {
        let Told { world, plain, tallies, .. } = self;
        let standing = |tenant: u16| {
            let [lookups, hits, writes] = tallies[usize::from(tenant)];
            let held = [0, 1].map(|tier| world.ladder.residents().tenant_level(tenant, tier).bytes);
            let held_bytes = held.into();
            Standing { tenant, lookups, hits, writes, held_bytes, terms: Terms::default(), miss_ns: None }
        };
        let expected = plain.end_window(&[0, 1].map(standing), &rooms()).answer();
        let found = world.divider.take_question().unwrap().answer();
        prop_assert_eq!(&found, &expected);
        self.are_costs_known |= found.parts.iter().any(|part| part.is_miss_known);
        plain.note(&expected);
        prop_assert!(world.divider.answered(&found, &world.ladder));
        world.apply();
        Ok(())
    }

    fn write(&mut self, key: u64, bytes: u64, now_ns: u64) {
        let Told { world, plain, tallies, held, rng, .. } = self;
        let (tenant, hash) = (tenant_of(key), sample_hash(key));
        world.divider.wrote(tenant, hash, bytes, Some(now_ns), &world.ladder);
        tallies[usize::from(tenant)][2] += 1;
        plain.set_back(tenant, hash, now_ns);
        plain.wrote(tenant, hash, world.ladder.residents().classes().place_bytes(bytes) as u32);
        if let Some(old) = held.remove(&key) {
            world.ladder.transit_mut().remove(old);
        }
        let item =
            NewItem { key: hash, bytes, expires_at_ms: None, rewrites: None, tenant, is_newcomer: true };
        if let Admit::Ready { id, .. } = world.ladder.admit(&item, Now::default(), rng, &mut Vec::new()) {
            held.insert(key, id);
        }
    }

    fn remove(&mut self, key: u64) {
        if let Some(id) = self.held.remove(&key) {
            self.world.ladder.transit_mut().remove(id);
            self.world.divider.removed(tenant_of(key), sample_hash(key));
            self.plain.removed(tenant_of(key), sample_hash(key));
        }
    }

    /// All events; the divider's advisor says and keeps what the other one does.
    fn check(&mut self, events: Vec<Event>) -> Result<(), TestCaseError> {
        let mut lookups = 0;
        for (at, event) in events.into_iter().enumerate() {
            let now_ns = at as u64 * 50_000 + self.rng.below(20_000);
            match event {
                Event::LookUp { key, is_below } => {
                    lookups += 1;
                    prop_assert_eq!(self.look_up(key, is_below, now_ns)?, lookups % WINDOW == 0);
                }
                Event::Write { key, bytes } => self.write(key, bytes, now_ns),
                Event::Remove { key } => self.remove(key),
            }
            let sampled = |advisor: &Advisor| [0, 1].map(|tenant| advisor.keys_sampled(tenant));
            prop_assert_eq!(sampled(self.world.divider.advisor().unwrap()), sampled(&self.plain));
        }
        prop_assert!(lookups >= WINDOW);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_advisor_is_told_what_the_rules_say(events in prop::collection::vec(event(), 2500), seed in any::<u64>()) {
        Told::new(seed).check(events)?;
    }
}

/// Of random events a case may have too few misses that end; of these it has enough.
#[test]
fn the_advisor_is_told_what_misses_cost() {
    let mut rng = Rng::seeded(7);
    let mut event = |_| match (rng.below(10), rng.below(600)) {
        (0..6, key) => Event::LookUp { key, is_below: rng.below(2) == 0 },
        (6..9, key) => Event::Write { key, bytes: 1 + rng.below(3000) },
        (_, key) => Event::Remove { key },
    };
    let events = (0..5000).map(&mut event).collect();
    let mut told = Told::new(7);
    told.check(events).unwrap();
    assert!(told.are_costs_known, "costs were measured");
}
