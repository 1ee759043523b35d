//! Several shards: keys go to the same shards in the simulator and in
//! the live engine, and memory moves between them at the same time.

use std::collections::VecDeque;

use tiermem_base::key_to_shard::shard_of;
use tiermem_base::{Access, Op, Rng};
use tiermem_policy::ladder::{LadderConfig, Order, Priority};
use tiermem_policy::shard_memory::{Member, Shown, Ticks, Word, shares_of};
use tiermem_sim::cache::ShardedCache;
use tiermem_store::engine::{By, Engine};

use super::{ADMISSIONS, Counts, FlashTier, Live, Sharing, by_database, counts_of_simulator, simulation};

/// Counters of every shard, and its capacities at the end.
type Shards = Vec<(Counts, Vec<u64>)>;

/// Engines, and what each has told the others.
struct Engines {
    live: Vec<Live>,
    members: Vec<Member>,
    shown: Vec<Shown>,
    told: VecDeque<(usize, Word)>,
}

impl Engines {
    /// A server tick of all shards, one after another.
    fn tick(&mut self, now_ns: u64) {
        for (number, (live, member)) in self.live.iter_mut().zip(&mut self.members).enumerate() {
            let shown = |tier| shares_of(tier, &self.shown);
            member.tick(now_ns, &mut live.engine.memory_mut(), shown, |to, word| {
                self.told.push_back((to, word))
            });
            self.shown[number] = shown_by(&live.engine, member);
        }
        while let Some((to, word)) = self.told.pop_front() {
            let told = &mut self.told;
            let memory = &mut self.live[to].engine.memory_mut();
            self.members[to].hear(word, memory, |to, word| told.push_back((to, word)));
        }
    }
}

/// Figures that a server publishes of its engine.
fn shown_by(engine: &Engine, member: &Member) -> Shown {
    let tiers = engine.stats().tiers;
    let capacities = tiers.iter().take(engine.memory().count()).map(|tier| tier.capacity_bytes).collect();
    Shown { capacities, tail_ages_ms: member.tail_ages_ms().to_vec() }
}

fn live(
    ladder: &LadderConfig,
    flash: Option<FlashTier>,
    trace: &[Access],
    shared: Option<&(By, Sharing)>,
) -> Shards {
    let shards = ladder.growth as usize;
    let mut engines = Engines {
        live: (0..shards).map(|_| Live::new(ladder, flash, trace, shared)).collect(),
        members: (0..shards).map(Member::new).collect(),
        shown: vec![Shown::default(); shards],
        told: VecDeque::new(),
    };
    let mut ticks = Ticks::default();
    for access in trace {
        while let Some(now_ns) = ticks.next_due(access.time_ns) {
            engines.tick(now_ns);
        }
        engines.live[shard_of(&Access::key_name(access.key), shards)].access(access, shared);
    }
    let capacities = |live: &Live| {
        (0..live.engine.memory().count()).map(|tier| live.engine.memory().capacity_bytes(tier)).collect()
    };
    engines.live.into_iter().map(|live| (capacities(&live), live.counts())).map(|(of, it)| (it, of)).collect()
}

fn simulated(
    ladder: &LadderConfig,
    flash: Option<FlashTier>,
    trace: &[Access],
    shared: Option<&(By, Sharing)>,
) -> Shards {
    let mut cache = ShardedCache::new(&simulation(ladder, flash, shared), ladder.growth as usize);
    trace.iter().for_each(|access| _ = cache.access(access));
    let shard = |cache: &tiermem_sim::cache::TieredCache| {
        let ladder = cache.shard().ladder();
        let capacities = (0..ladder.residents().levels())
            .map(|tier| ladder.config().levels[tier].capacity_bytes)
            .collect();
        (counts_of_simulator(cache, Vec::new()), capacities)
    };
    cache.shards().iter().map(shard).collect()
}

/// Requests over some minutes. What belongs to some shards is large and seldom asked for again.
fn requests(shards: usize, seed: u64) -> Vec<Access> {
    let mut rng = Rng::seeded(seed);
    let mut time_ns = 5_000_000_000;
    let access = |_| {
        let key = rng.below(12_000) * rng.below(12_000) / 12_000;
        let is_large = shard_of(&Access::key_name(key), shards) % 2 == 1;
        let op = [Op::Get, Op::Get, Op::Get, Op::Set, Op::Set, Op::Del][rng.below(6) as usize];
        let size = if is_large { 2000 + rng.below(4000) } else { rng.below(600) } as u32;
        let ttl_s = if rng.below(10) == 0 { 1 + rng.below(60) as u32 } else { 0 };
        // Now and then there are no requests for a while.
        time_ns += 1 + rng.below(6_000_000) + if rng.below(5000) == 0 { 20_000_000_000 } else { 0 };
        Access { time_ns, op, key, size, ttl_s, tenant: (key % 3) as u32, ..Access::default() }
    };
    (0..40_000).map(access).collect()
}

/// Memory has moved, and all shards together have what they began with.
fn check_moves(shards: &Shards, ladder: &LadderConfig) {
    for (tier, level) in ladder.levels.iter().enumerate() {
        let capacities: Vec<u64> = shards.iter().map(|(_, capacities)| capacities[tier]).collect();
        assert!(capacities.iter().sum::<u64>() <= level.capacity_bytes * shards.len() as u64);
        assert!(capacities.iter().any(|&bytes| bytes != level.capacity_bytes), "{capacities:?}");
    }
}

#[test]
fn memory_moves_between_shards_in_both() {
    for (seed, shards) in [2, 3, 5].into_iter().enumerate() {
        let trace = requests(shards, seed as u64);
        for order in [None, Some(Order::Sample { k: 5, by: Priority::Recency })] {
            let mut ladder = LadderConfig {
                charge_metadata: false,
                growth: shards as u32,
                ..LadderConfig::with_capacities(&[2 << 20, 3 << 20])
            };
            if let Some(order) = order {
                ladder.levels.iter_mut().for_each(|level| level.order = order);
            }
            let live = live(&ladder, None, &trace, None);
            assert_eq!(live, simulated(&ladder, None, &trace, None), "{shards} shards, {order:?}");
            check_moves(&live, &ladder);
        }
    }
}

#[test]
fn memory_over_flash_moves_between_shards_in_both() {
    for (seed, admission) in ADMISSIONS.into_iter().enumerate() {
        let trace = requests(2, 10 + seed as u64);
        let tier = Some(FlashTier { region_bytes: 8 << 20, segment_bytes: 64 << 10, admission });
        let ladder = LadderConfig { growth: 2, ..LadderConfig::with_capacities(&[4 << 20]) };
        let live = live(&ladder, tier, &trace, None);
        assert_eq!(live, simulated(&ladder, tier, &trace, None), "{admission:?}");
        check_moves(&live, &ladder);
        let flash = || live.iter().map(|(counts, _)| counts.flash.as_ref().unwrap());
        assert!(flash().all(|it| it.hits > 100) && flash().any(|it| it.evictions > 0));
    }
}

/// Tenants' parts are of what a shard has.
#[test]
fn tenants_have_parts_of_memory_that_moves_in_both() {
    let trace = requests(2, 20);
    let ladder =
        LadderConfig { charge_metadata: false, growth: 2, ..LadderConfig::with_capacities(&[3 << 20]) };
    let shared = by_database();
    let without_metadata = |mut shards: Shards| {
        shards.iter_mut().for_each(|(counts, _)| counts.metadata_bytes = 0);
        shards
    };
    let live = without_metadata(live(&ladder, None, &trace, Some(&shared)));
    assert_eq!(live, without_metadata(simulated(&ladder, None, &trace, Some(&shared))));
    check_moves(&live, &ladder);
}
