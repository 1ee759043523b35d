//! The simulator against the live engine: one trace, one ladder, every count equal.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::path::Path;

use tiermem_base::curve::{Curve, DEFAULT_CURVE};
use tiermem_base::{Access, Bytes, Op};
use tiermem_policy::evict::lru::Bump;
use tiermem_policy::ladder::{Admission, LadderConfig, LevelCounters, Order, Priority, Reactive};
use tiermem_policy::promote::Promotion;
use tiermem_sim::cache::tiered::{TieredCache, TieredConfig};
use tiermem_store::engine::{Condition, Engine, EngineConfig, Expiry};
use tiermem_tier::{Kind, TierSpec};

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
    metadata_bytes: u64,
    charged_us: u64,
}

fn live(ladder: &LadderConfig, trace: &[Access]) -> Counts {
    let cxl = Curve::named(DEFAULT_CURVE).unwrap();
    let spec = |(at, level): (usize, &tiermem_policy::ladder::LevelConfig)| TierSpec {
        name: format!("tier{at}"),
        kind: if at == 0 { Kind::Dram } else { Kind::Emulated(cxl) },
        capacity: Bytes(level.capacity_bytes),
        price_per_gb: None,
    };
    let tiers = ladder.levels.iter().enumerate().map(spec).collect();
    let config = EngineConfig { ladder: ladder.clone(), spin: false, seed: 7, ..EngineConfig::new(tiers) };
    let mut engine = Engine::new(config).unwrap();
    let value = vec![0xA5; trace.iter().map(|access| access.size as usize).max().unwrap()];
    for access in trace {
        engine.set_clock(access.time_ns / 1_000_000);
        let key = Access::key_name(access.key);
        let value = &value[..access.size as usize];
        let found = match access.op {
            Op::Get | Op::Read | Op::Load | Op::Scan => engine.get(0, &key).is_some(),
            Op::Set | Op::Write | Op::Store => false,
            Op::Del => {
                engine.remove(0, &key);
                continue;
            }
        };
        if !found {
            // A value that no tier can take is refused; the simulator sees the same refusal.
            let _ = engine.set(0, &key, value, Condition::Always, Expiry::Never);
        }
    }
    let stats = engine.stats();
    Counts {
        gets: stats.gets,
        misses: stats.gets - stats.hits,
        tiers: stats
            .tiers
            .iter()
            .map(|t| [t.hits, t.promotions, t.demotions, t.evictions, t.items])
            .collect(),
        aborted: stats.moves_aborted,
        expired: stats.expired,
        metadata_bytes: stats.metadata_bytes,
        charged_us: (engine.charged_ns() / 1e3) as u64,
    }
}

fn simulated(ladder: &LadderConfig, trace: &[Access]) -> Counts {
    let slow = Curve::named(DEFAULT_CURVE).unwrap();
    let config = TieredConfig { ladder: ladder.clone(), overhead_bytes: OVERHEAD_BYTES, slow, seed: 7 };
    let mut cache = TieredCache::new(config);
    for access in trace {
        cache.access(access);
    }
    let tier = |at| {
        let LevelCounters { hits, promotions, demotions, evictions, items, .. } = cache.level(at);
        [hits, promotions, demotions, evictions, items]
    };
    Counts {
        gets: cache.requests,
        misses: cache.misses,
        tiers: (0..cache.levels()).map(tier).collect(),
        aborted: cache.counters().moves_aborted,
        expired: cache.counters().expired,
        metadata_bytes: cache.metadata_bytes(),
        charged_us: (cache.charged_ns() / 1e3) as u64,
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

fn compare(name: &str, trace: &[Access], fast: u64, slow: u64) {
    for (what, ladder) in ladders(fast, slow) {
        let (live, simulated) = (live(&ladder, trace), simulated(&ladder, trace));
        assert_eq!(live, simulated, "{name}, {what}");
        let [hits, _, demotions, ..] = live.tiers[0];
        assert!(hits > 0 && demotions > 0, "{name}, {what}: the slice moves items");
    }
}

#[test]
fn twitter() {
    let mut trace = slice("twitter_cluster52-20k.csv.zst");
    // Its second half writes and removes too, which the trace itself does not tell.
    let half = trace.len() / 2;
    for (at, access) in trace[half..].iter_mut().enumerate() {
        access.op = [Op::Get, Op::Get, Op::Get, Op::Get, Op::Set, Op::Get, Op::Get, Op::Del][at % 8];
        access.size += if at % 3 == 0 { 900 } else { 0 };
    }
    compare("twitter", &trace, 1 << 20, 3 << 20);
    compare("twitter, tight", &trace, 512 << 10, 1 << 20);
}

#[test]
fn cloudphysics() {
    let trace = slice("cloudPhysicsIO-20k.oracleGeneral.bin.zst");
    compare("cloudphysics", &trace, 16 << 20, 64 << 20);
    compare("cloudphysics, tight", &trace, 8 << 20, 16 << 20);
}
