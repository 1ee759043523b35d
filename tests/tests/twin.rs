//! Store twin: the simulator against the live engine, with one trace, one ladder, every count equal.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

#[path = "twin/division.rs"]
mod division;
#[path = "twin/growth.rs"]
mod growth;
#[path = "twin/payoff.rs"]
mod payoff;
#[path = "twin/shards.rs"]
mod shards;
#[path = "twin/tenants.rs"]
mod tenants;

use std::path::Path;

use growth::large_twitter_trace;
use tiermem_base::{Access, Bytes, Op, Rng, TierKind, TierSpec};
use tiermem_policy::evict::Named;
use tiermem_policy::evict::lru::Bump;
use tiermem_policy::ladder::{Admission, LadderConfig, LevelCounters, Order, Priority, Reactive};
use tiermem_policy::log::{self, LogConfig};
use tiermem_policy::promotion_rule::Promotion;
use tiermem_sim::cache::Sharing;
use tiermem_sim::cache::tiered::{TieredCache, TieredConfig};
use tiermem_store::engine::{By, Condition, DATABASES, Declared, Engine, EngineConfig, Expiry, Tenancy};
use tiermem_store::flash::FlashConfig;
use tiermem_tier::block::Immediate;

/// Header and key name of an item in the engine.
const OVERHEAD_BYTES: u64 = 8 + 16;

fn slice(name: &str) -> Vec<Access> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/trace/testdata").join(name);
    let trace = tiermem_trace::open(path.to_str().unwrap()).unwrap();
    trace.collect::<Result<_, _>>().unwrap()
}

/// Every count that both worlds have.
#[derive(Debug, PartialEq)]
struct Counts {
    gets: u64,
    misses: u64,
    tiers: Vec<[u64; 5]>,
    aborted: u64,
    expired: u64,
    /// In the end, and at the end of each window.
    division: division::State,
    windows: Vec<division::State>,
    metadata_bytes: u64,
    charged_us: u64,
    flash: Option<FlashCounts>,
}

#[derive(Debug, Default, PartialEq)]
struct FlashCounts {
    hits: u64,
    promotions: u64,
    evictions: u64,
    items: u64,
    capacity_bytes: u64,
    admitted: [u64; 2],
    rejected: u64,
    refused: u64,
    unchanged: u64,
    unindexed: u64,
    kept: u64,
    segments_emptied: u64,
    reads: u64,
    written_bytes: u64,
    checkpoints: [u64; 2],
    waits: u64,
}

/// A flash tier: bytes of its device, and the admission rule when it is full.
#[derive(Clone, Copy, Debug)]
struct FlashTier {
    region_bytes: u64,
    segment_bytes: u32,
    admission: log::Admission,
}

impl FlashTier {
    fn log(&self) -> LogConfig {
        let log = LogConfig::in_region(self.region_bytes, self.segment_bytes).unwrap();
        LogConfig { admission: self.admission, ..log }
    }
}

/// Tenants with declarations: their number, their share of every tier, their K.
const SHARES: [(u16, f64, u8); 2] = [(1, 0.5, 16), (2, 0.125, 0)];

fn declared() -> Vec<Declared> {
    SHARES.map(|(tenant, share, k)| Declared { name: tenant.to_string(), share: Some(share), k }).into()
}

/// Tenants that are databases, and share what is theirs as it was declared.
fn by_database() -> (By, Sharing) {
    let names = (0..DATABASES).map(|db| db.to_string()).collect();
    (By::Database, Sharing { names, declared: declared(), ..Sharing::default() })
}

/// DRAM, and emulated memory below it.
fn tiers(ladder: &LadderConfig) -> Vec<TierSpec> {
    let spec = |(at, level): (usize, &tiermem_policy::ladder::LevelConfig)| {
        let kind = if at == 0 { TierKind::Dram } else { TierKind::Emulated };
        TierSpec::new(kind, Bytes(level.capacity_bytes)).named(&format!("tier{at}"))
    };
    ladder.levels.iter().enumerate().map(spec).collect()
}

fn live(ladder: &LadderConfig, flash: Option<FlashTier>, trace: &[Access]) -> Counts {
    live_with(ladder, flash, trace, None)
}

fn live_with(
    ladder: &LadderConfig,
    flash: Option<FlashTier>,
    trace: &[Access],
    shared: Option<&(By, Sharing)>,
) -> Counts {
    let mut live = Live::new(ladder, flash, trace, shared);
    trace.iter().for_each(|access| live.access(access, shared));
    live.counts()
}

/// An engine, and what its driver counts.
struct Live {
    engine: Engine,
    flash: Option<FlashTier>,
    value: Vec<u8>,
    waits: u64,
    windows: Vec<division::State>,
}

impl Live {
    /// One of as many shards as its tiers may grow for.
    fn new(
        ladder: &LadderConfig,
        flash: Option<FlashTier>,
        trace: &[Access],
        shared: Option<&(By, Sharing)>,
    ) -> Live {
        let tenancy = |(by, sharing): &(By, Sharing)| {
            let Sharing { plan, division, declared, .. } = sharing.clone();
            Tenancy { by: *by, declared, plan, division, owners: Vec::new() }
        };
        let tenancy = shared.map(tenancy).unwrap_or_default();
        let (tiers, growth) = (tiers(ladder), ladder.growth);
        let with = EngineConfig { ladder: ladder.clone(), growth, tenancy, ..EngineConfig::new(tiers) };
        let config = EngineConfig { spin: false, seed: 7, ..with };
        let mut engine = Engine::new(config).unwrap();
        if let Some(FlashTier { region_bytes, segment_bytes, admission }) = flash {
            let config = FlashConfig { admission, ..FlashConfig::whole(region_bytes, segment_bytes, 7) };
            let device = Box::new(Immediate::new(region_bytes as usize));
            engine.flash().attach("flash", None, device, &config).unwrap();
        }
        let value = vec![0xA5; trace.iter().map(|access| access.size as usize).max().unwrap()];
        Live { engine, flash, value, waits: 0, windows: Vec::new() }
    }

    /// One access, as a server and its client make it.
    fn access(&mut self, access: &Access, shared: Option<&(By, Sharing)>) {
        let engine = &mut self.engine;
        engine.set_clock_us(access.time_ns / 1000);
        let key = Access::key_name(access.key);
        let value = &self.value[..access.size as usize];
        let db = if shared.is_some_and(|(by, _)| *by == By::Database) { access.tenant as u8 } else { 0 };
        let found = match access.op {
            Op::Get | Op::Read | Op::Load | Op::Scan | Op::Unknown => {
                engine.flash_reads().resolve(db, &key);
                let found = engine.get(db, &key).is_some();
                // A client that missed needs time to fetch the value.
                let reload_ns = shared.and_then(|(_, sharing)| sharing.reload_ns.get(&access.tenant));
                if !found && let Some(reload_ns) = reload_ns {
                    engine.set_clock_us((access.time_ns + reload_ns) / 1000);
                }
                found
            }
            Op::Set | Op::Write | Op::Store => false,
            Op::Del => {
                engine.flash_reads().resolve(db, &key);
                engine.remove(db, &key);
                true
            }
        };
        if !found {
            loop {
                engine.flash_reads().prepare();
                // A server has writers wait while flash has to catch up.
                for _ in 0..4096 {
                    if engine.flash().is_choked() {
                        engine.commit();
                        engine.flash().advance();
                        self.waits += 1;
                    }
                }
                // And until there is room for a large value.
                if engine.make_room(OVERHEAD_BYTES as usize + value.len()) {
                    break;
                }
            }
            // A value that no tier can take is refused; the simulator sees the same refusal.
            let ttl_ms = u64::from(access.ttl_s) * 1000;
            let expiry =
                if ttl_ms > 0 { Expiry::AtUnixMs(engine.clock_ms() + ttl_ms) } else { Expiry::Never };
            let _ = engine.set(db, &key, value, Condition::Always, expiry);
        }
        if let Some(question) = engine.tenants_mut().take_question() {
            engine.tenants_mut().take_answer(question.answer());
            self.windows.push(division::State::of_engine(&engine.stats()));
        }
        engine.flash_reads().unstage();
        engine.commit();
    }

    fn counts(self) -> Counts {
        let Live { engine, flash, waits, windows, .. } = self;
        counts_of(&engine, engine.memory().count(), flash, (waits, windows))
    }
}

/// Counters of an engine, in the words of both. `waits` and `windows` come from its driver.
fn counts_of(
    engine: &Engine,
    levels: usize,
    flash: Option<FlashTier>,
    (waits, windows): (u64, Vec<division::State>),
) -> Counts {
    let stats = engine.stats();
    Counts {
        gets: stats.gets,
        misses: stats.gets - stats.hits,
        tiers: stats
            .tiers
            .iter()
            .take(levels)
            .map(|t| [t.hits, t.promotions, t.demotions, t.evictions, t.items])
            .collect(),
        aborted: stats.moves_aborted,
        expired: stats.expired,
        division: division::State::of_engine(&stats),
        windows,
        metadata_bytes: stats.metadata_bytes,
        charged_us: (engine.memory().charged_ns() / 1e3) as u64,
        flash: stats.flash.map(|figures| {
            let tier = stats.tiers.last().unwrap();
            FlashCounts {
                hits: tier.hits,
                promotions: tier.promotions,
                evictions: tier.evictions,
                items: tier.items,
                capacity_bytes: flash.map_or(0, |flash| {
                    let log = flash.log();
                    u64::from(log.segments) * u64::from(log.segment_bytes)
                }),
                admitted: [figures.admitted, figures.admitted_bytes],
                rejected: figures.rejected,
                refused: figures.refused,
                unchanged: figures.unchanged,
                unindexed: figures.unindexed,
                kept: figures.kept,
                segments_emptied: figures.segments_emptied,
                reads: figures.reads,
                written_bytes: figures.item_written_bytes,
                checkpoints: [figures.checkpoints, figures.journal_overruns],
                waits,
            }
        }),
    }
}

fn simulation(
    ladder: &LadderConfig,
    flash: Option<FlashTier>,
    shared: Option<&(By, Sharing)>,
) -> TieredConfig {
    let tiers = tiers(ladder);
    let slower_ns: Vec<f64> = tiers.iter().map(|tier| tier.slower_ns().unwrap()).collect();
    let sharing = |(_, sharing): &(By, Sharing)| Sharing { slower_ns, ..sharing.clone() };
    TieredConfig {
        ladder: ladder.clone(),
        overhead_bytes: OVERHEAD_BYTES,
        header_bytes: 8,
        tail: flash.map(|flash| flash.log()),
        curves: tiers.iter().map(|tier| tier.curve().unwrap()).collect(),
        sharing: shared.map(sharing),
        seed: 7,
    }
}

fn simulated(ladder: &LadderConfig, flash: Option<FlashTier>, trace: &[Access]) -> Counts {
    simulated_with(ladder, flash, trace, None)
}

fn simulated_with(
    ladder: &LadderConfig,
    flash: Option<FlashTier>,
    trace: &[Access],
    shared: Option<&(By, Sharing)>,
) -> Counts {
    let mut cache = TieredCache::new(simulation(ladder, flash, shared));
    let mut windows = Vec::new();
    let ended = |cache: &TieredCache| {
        let advisor = cache.divider().and_then(|divider| divider.advisor());
        advisor.map_or(0, |advisor| advisor.windows())
    };
    for access in trace {
        let before = ended(&cache);
        cache.access(access);
        if ended(&cache) > before {
            windows.push(division::State::of_simulator(&cache));
        }
    }
    counts_of_simulator(&cache, windows)
}

/// Counters of a simulation, in the words of both.
fn counts_of_simulator(cache: &TieredCache, windows: Vec<division::State>) -> Counts {
    let (ladder, figures) = (cache.shard().ladder(), cache.figures());
    let tier = |at| {
        let LevelCounters { hits, promotions, demotions, evictions, items, .. } =
            ladder.residents().level(at).counters();
        let sunk = cache.shard().log().map_or(0, |log| log.sunk(at));
        [hits, promotions, demotions + sunk, evictions - sunk, items]
    };
    Counts {
        gets: figures.requests(),
        misses: figures.misses(),
        tiers: (0..ladder.residents().levels()).map(tier).collect(),
        aborted: ladder.transit().counters().moves_aborted,
        expired: cache.shard().ladder().transit().counters().expired + cache.figures().expired_met(),
        division: division::State::of_simulator(cache),
        windows,
        metadata_bytes: ladder.metadata_bytes(),
        charged_us: (figures.charged_ns() / 1e3) as u64,
        flash: cache.tail().map(|tail| {
            let log = tail.counters();
            FlashCounts {
                hits: log.hits,
                promotions: log.promotions,
                evictions: log.evictions,
                items: tail.items(),
                capacity_bytes: tail.capacity_bytes(),
                admitted: [log.admitted, log.admitted_bytes],
                rejected: log.rejected,
                refused: log.refused,
                unchanged: log.unchanged,
                unindexed: tail.unindexed(),
                kept: log.kept,
                segments_emptied: log.segments_emptied,
                reads: tail.reads(),
                written_bytes: tail.written_bytes(),
                checkpoints: [tail.checkpoints().completed, tail.checkpoints().overruns],
                waits: figures.waits(),
            }
        }),
    }
}

/// Ladders small enough that the slices move, evict and reclaim.
fn ladders(fast: u64, slow: u64) -> Vec<(&'static str, LadderConfig)> {
    let base = LadderConfig { charge_metadata: false, ..LadderConfig::with_capacities(&[fast, slow]) };
    let three =
        LadderConfig { charge_metadata: false, ..LadderConfig::with_capacities(&[fast, slow / 4, slow]) };
    let charged =
        LadderConfig { charge_metadata: true, ..LadderConfig::with_capacities(&[fast + (2 << 20), slow]) };
    let sampled = |k, by| {
        let mut ladder = base.clone();
        ladder.levels.iter_mut().for_each(|level| level.order = Order::Sample { k, by });
        ladder
    };
    let mut mixed = base.clone();
    mixed.levels[1].order = Order::Sample { k: 5, by: Priority::Recency };
    vec![
        ("klru", sampled(5, Priority::Recency)),
        ("klfu", sampled(8, Priority::Frequency)),
        ("kttl", sampled(3, Priority::Expiry)),
        ("lists over samples", mixed),
        ("proven", LadderConfig { admission: Admission::Proven, ..base.clone() }),
        (
            "interleaved",
            LadderConfig { admission: Admission::Interleaved { fast_share: 0.25 }, ..base.clone() },
        ),
        ("tail age", LadderConfig { promotion: Promotion::TailAge, ..base.clone() }),
        ("default", base.clone()),
        ("reuse time", LadderConfig { promotion: Promotion::ReuseTime, ..base.clone() }),
        ("naive", LadderConfig { promotion: Promotion::Naive, ..base.clone() }),
        ("scan", LadderConfig { promotion: Promotion::ReuseTimeScan, ..base.clone() }),
        ("drop", LadderConfig { reactive: Reactive::Drop, ..base.clone() }),
        ("no watermarks", LadderConfig { watermarks: None, ..base.clone() }),
        ("plain lists", LadderConfig { bump: Bump::Always, ..base.clone() }),
        ("lazy lists", LadderConfig { bump: Bump::LowerOnly, ..base }),
        ("three tiers", three),
        ("metadata charged", charged),
    ]
}

/// The same with their tiers ordered by each policy that has a name.
fn named_ladders(fast: u64, slow: u64) -> Vec<(&'static str, LadderConfig)> {
    let ordered = |named: Named| {
        let mut ladder = LadderConfig::with_capacities(&[fast, slow]);
        ladder.levels.iter_mut().for_each(|level| level.order = Order::Policy(named));
        (named.name(), ladder)
    };
    Named::ALL.map(ordered).into()
}

fn compare(name: &str, trace: &[Access], ladders: Vec<(&'static str, LadderConfig)>) {
    for (what, ladder) in ladders {
        let (live, simulated) = (live(&ladder, None, trace), simulated(&ladder, None, trace));
        assert_eq!(live, simulated, "{name}, {what}");
        let [hits, _, demotions, ..] = live.tiers[0];
        assert!(hits > 0 && demotions > 0, "{name}, {what}: the slice moves items");
    }
}

/// Its second half writes and removes too, which the trace itself does not tell.
fn twitter_trace() -> Vec<Access> {
    let mut trace = slice("twitter_cluster52-20k.csv.zst");
    let half = trace.len() / 2;
    for (at, access) in trace[half..].iter_mut().enumerate() {
        access.op = [Op::Get, Op::Get, Op::Get, Op::Get, Op::Set, Op::Get, Op::Get, Op::Del][at % 8];
        access.size += if at % 3 == 0 { 900 } else { 0 };
    }
    trace
}

#[test]
fn twitter() {
    let trace = twitter_trace();
    compare("twitter", &trace, ladders(1 << 20, 3 << 20));
    compare("twitter, tight", &trace, ladders(512 << 10, 1 << 20));
}

#[test]
fn cloudphysics() {
    let trace = slice("cloudPhysicsIO-20k.oracleGeneral.bin.zst");
    compare("cloudphysics", &trace, ladders(16 << 20, 64 << 20));
    compare("cloudphysics, tight", &trace, ladders(8 << 20, 16 << 20));
}

/// With what the policies keep charged to the fast tier: they grow and forget in the same way too.
#[test]
fn every_order_of_eviction_is_the_same_in_both() {
    compare("twitter, named orders", &twitter_trace(), named_ladders(2 << 20, 1 << 20));
    let trace = slice("cloudPhysicsIO-20k.oracleGeneral.bin.zst");
    compare("cloudphysics, named orders", &trace, named_ladders(10 << 20, 16 << 20));
}

/// Values that need many pages in a row: room for them is made a piece at a time, before they are written.
#[test]
fn large_values_find_room_in_the_same_way() {
    let mut rng = Rng::seeded(3);
    let access = |at: u64| {
        let op = [Op::Get, Op::Get, Op::Set, Op::Set, Op::Del][rng.below(5) as usize];
        let size = if rng.below(12) == 0 { (256 << 10) + rng.below(1 << 20) } else { rng.below(6000) };
        Access { time_ns: at * 1000, op, key: rng.below(3000), size: size as u32, ..Access::default() }
    };
    let trace: Vec<Access> = (0..12_000).map(access).collect();
    for (what, ladder) in ladders(6 << 20, 12 << 20) {
        let (live, simulated) = (live(&ladder, None, &trace), simulated(&ladder, None, &trace));
        assert_eq!(live, simulated, "{what}");
    }
    let flash = FlashTier { region_bytes: 48 << 20, segment_bytes: 2 << 20, admission: log::Admission::All };
    let ladder =
        LadderConfig { charge_metadata: false, ..LadderConfig::with_capacities(&[4 << 20, 8 << 20]) };
    assert_eq!(live(&ladder, Some(flash), &trace), simulated(&ladder, Some(flash), &trace));
}

/// The engine has memory taken ahead by another thread, and the simulator knows nothing of it.
#[test]
fn memory_taken_ahead_changes_nothing() {
    let trace = slice("cloudPhysicsIO-20k.oracleGeneral.bin.zst");
    for charge_metadata in [false, true] {
        let capacities = [32 << 20, 48 << 20];
        let ladder = LadderConfig { charge_metadata, ..LadderConfig::with_capacities(&capacities) };
        let ahead = LadderConfig { ahead_bytes: 2 << 20, ..ladder.clone() };
        let (live, simulated) = (live(&ahead, None, &trace), simulated(&ladder, None, &trace));
        assert_eq!(live, simulated);
        let [hits, _, demotions, ..] = live.tiers[0];
        assert!(hits > 0 && demotions > 0, "the slice moves items");
    }
}

/// Over a flash tier: every count of it too. Its device is so small that it overflows. How often writers had to wait.
fn compare_over_flash(
    name: &str,
    trace: &[Access],
    ladders: Vec<(&'static str, LadderConfig)>,
    flash: FlashTier,
) -> u64 {
    let mut waits = 0;
    for (what, ladder) in ladders {
        let (live, simulated) = (live(&ladder, Some(flash), trace), simulated(&ladder, Some(flash), trace));
        assert_eq!(live, simulated, "{name}, {what}");
        let counts = live.flash.unwrap();
        let works = [counts.hits, counts.promotions, counts.evictions, counts.segments_emptied, counts.reads];
        assert!(works.iter().all(|&count| count > 0), "{name}, {what}: {counts:?}");
        waits += counts.waits;
    }
    waits
}

const ADMISSIONS: [log::Admission; 2] = [log::Admission::All, log::Admission::Seen];

#[test]
fn twitter_over_flash() {
    let trace = large_twitter_trace();
    for admission in ADMISSIONS {
        let flash = FlashTier { region_bytes: 24 << 20, segment_bytes: 128 << 10, admission };
        let waits = compare_over_flash("twitter", &trace, ladders(1 << 20, 4 << 20), flash);
        assert!(waits > 0, "writers have to wait now and then");
    }
}

#[test]
fn every_order_of_eviction_is_the_same_in_both_over_flash() {
    let admission = log::Admission::Seen;
    let flash = FlashTier { region_bytes: 24 << 20, segment_bytes: 128 << 10, admission };
    compare_over_flash("named orders", &large_twitter_trace(), named_ladders(2 << 20, 4 << 20), flash);
}

#[test]
fn cloudphysics_over_flash() {
    let mut trace = slice("cloudPhysicsIO-20k.oracleGeneral.bin.zst");
    trace.iter_mut().for_each(|access| access.size /= 4);
    for admission in ADMISSIONS {
        let flash = FlashTier { region_bytes: 24 << 20, segment_bytes: 256 << 10, admission };
        compare_over_flash("cloudphysics", &trace, ladders(2 << 20, 4 << 20), flash);
    }
}

#[test]
fn random_requests_over_flash() {
    for seed in 0..6 {
        let mut rng = Rng::seeded(seed);
        let keys = 2000 + rng.below(4000);
        let size_max = 1000 + rng.below(12_000);
        let trace: Vec<Access> = (0..14_000u64)
            .map(|at| {
                let op = [Op::Get, Op::Get, Op::Get, Op::Set, Op::Set, Op::Del][rng.below(6) as usize];
                // Small numbers are the more frequent ones.
                let below = rng.below(keys) + 1;
                let (key, size) = (rng.below(below), rng.below(size_max) as u32);
                Access { time_ns: at * 1000, op, key, size, ..Access::default() }
            })
            .collect();
        let admission = ADMISSIONS[seed as usize % 2];
        let region_bytes = [16 << 20, 20 << 20, 24 << 20][seed as usize % 3];
        for charge_metadata in [false, true] {
            let flash = FlashTier { region_bytes, segment_bytes: 64 << 10, admission };
            let fast = if charge_metadata { 2 << 20 } else { 1 << 20 };
            let ladder = LadderConfig { charge_metadata, ..LadderConfig::with_capacities(&[fast, 2 << 20]) };
            let (live, simulated) =
                (live(&ladder, Some(flash), &trace), simulated(&ladder, Some(flash), &trace));
            assert_eq!(
                live, simulated,
                "seed {seed}, {region_bytes} bytes, metadata charged: {charge_metadata}"
            );
            assert!(live.flash.unwrap().hits > 100, "seed {seed}");
        }
    }
}

/// Regions small enough for the journal to fill again and again: each
/// checkpoint borrows segments for a while, and pads those being filled.
#[test]
fn small_regions_are_left_for_checkpoints_in_both() {
    let mut checkpoints = 0;
    for seed in 0..8 {
        let mut rng = Rng::seeded(seed);
        let keys = 4000 + rng.below(12_000);
        let size_max = 40 + rng.below(600);
        let trace: Vec<Access> = (0..40_000u64)
            .map(|at| {
                let op = [Op::Get, Op::Get, Op::Set, Op::Set, Op::Set, Op::Del][rng.below(6) as usize];
                let (key, size) = (rng.below(keys), rng.below(size_max) as u32);
                let ttl_s = if rng.below(8) == 0 { 1 + rng.below(20) as u32 } else { 0 };
                Access { time_ns: at * 1_000_000, op, key, size, ttl_s, ..Access::default() }
            })
            .collect();
        let region_bytes = (1 << 20) + rng.below(2 << 20) / 4096 * 4096;
        let segment_bytes = [32 << 10, 64 << 10][seed as usize % 2];
        let flash = FlashTier { region_bytes, segment_bytes, admission: ADMISSIONS[seed as usize / 4] };
        let ladder =
            LadderConfig { charge_metadata: false, ..LadderConfig::with_capacities(&[512 << 10, 512 << 10]) };
        let (live, simulated) = (live(&ladder, Some(flash), &trace), simulated(&ladder, Some(flash), &trace));
        assert_eq!(live, simulated, "seed {seed}, {flash:?}");
        checkpoints += live.flash.unwrap().checkpoints[0];
    }
    assert!(checkpoints > 30, "{checkpoints} checkpoints");
}
