//! A complete shift of the mix of sizes: 100 B, then 1000 B, then 300 B, each phase with keys of its own. A store that has seen
//! the phases before must come to hit as often as one that starts with the phase, and no step may be long.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use tiermem_base::latency_curve::{A1000_CXL, LOCAL_DRAM};
use tiermem_base::{Access, Op};
use tiermem_policy::ladder::{LadderConfig, Order, Priority};
use tiermem_sim::cache::tiered::{TieredCache, TieredConfig};

/// Requests of a phase, and of the windows that are compared.
const PHASE: u64 = 400_000;
const WINDOW: u64 = 50_000;
/// Windows until it does: 100,000 requests, in which some 30,000 new items have come, two fillings of the store.
const SETTLED: usize = 2;
/// Acts that a request may have to wait for: a class's first page holds up to 1024 items, and the step's own batches.
const ACTS_MAX: usize = 1200;
const TIERS: [u64; 2] = [2 << 20, 6 << 20];
/// Keys per phase: a working set of three times the tiers.
const SIZES: [u32; 3] = [100, 1000, 300];

fn phase(at: usize) -> Vec<Access> {
    let size = SIZES[at];
    let objects = 3 * TIERS.iter().sum::<u64>() / u64::from(size + 24);
    let spec = format!("zipf:alpha=0.9,objects={objects},requests={PHASE},size={size},seed={at}");
    let trace = tiermem_trace::open(&spec).unwrap();
    trace
        .map(|access| {
            let access = access.unwrap();
            Access { key: access.key | (at as u64 + 1) << 60, op: Op::Get, ..access }
        })
        .collect()
}

fn cache(ladder: &LadderConfig) -> TieredCache {
    TieredCache::new(TieredConfig {
        ladder: ladder.clone(),
        overhead_bytes: 24,
        header_bytes: 8,
        tail: None,
        curves: vec![LOCAL_DRAM, A1000_CXL],
        sharing: None,
        seed: 1,
    })
}

/// Hit ratio and fast-tier hit share of each window, and the most acts at once.
fn run(cache: &mut TieredCache, trace: &[Access]) -> (Vec<[f64; 2]>, usize) {
    let windows = trace.chunks(WINDOW as usize).map(|window| {
        let before = [cache.figures().misses(), cache.shard().ladder().residents().level(0).counters().hits];
        window.iter().for_each(|access| {
            cache.access(access);
        });
        let [misses, fast] = [
            cache.figures().misses() - before[0],
            cache.shard().ladder().residents().level(0).counters().hits - before[1],
        ];
        [1.0 - misses as f64 / WINDOW as f64, fast as f64 / WINDOW as f64]
    });
    let windows = windows.collect();
    (windows, cache.figures_mut().take_acts_max())
}

fn ladders() -> Vec<(&'static str, LadderConfig)> {
    let lists = LadderConfig {
        charge_metadata: false,
        reuse_window_requests: WINDOW,
        ..LadderConfig::with_capacities(&TIERS)
    };
    let mut samples = lists.clone();
    samples.levels.iter_mut().for_each(|level| level.order = Order::Sample { k: 5, by: Priority::Recency });
    vec![("lists", lists), ("samples", samples)]
}

#[test]
fn a_store_whose_sizes_shift_hits_as_a_fresh_one_does() {
    for (name, ladder) in ladders() {
        let mut shifted = cache(&ladder);
        for at in 0..SIZES.len() {
            let trace = phase(at);
            let (seen, acts) = run(&mut shifted, &trace);
            let (fresh, fresh_acts) = run(&mut cache(&ladder), &trace);
            assert!(acts.max(fresh_acts) <= ACTS_MAX, "{name}, phase {at}: {acts} acts at once");
            for (window, (seen, fresh)) in seen.iter().zip(&fresh).enumerate().skip(SETTLED) {
                let behind = [fresh[0] - seen[0], fresh[1] - seen[1]];
                assert!(
                    behind.iter().all(|&by| by < 0.01),
                    "{name}, phase {at}, window {window}: {seen:?} of {fresh:?}"
                );
            }
        }
    }
}

#[test]
fn without_moving_pages_it_would_not() {
    let (_, lists) = ladders().swap_remove(0);
    let mut shifted = cache(&LadderConfig { rebalance_batch: 0, ..lists.clone() });
    run(&mut shifted, &phase(0));
    let (seen, _) = run(&mut shifted, &phase(1));
    let (fresh, _) = run(&mut cache(&lists), &phase(1));
    assert!(fresh[7][0] - seen[7][0] > 0.2, "{:?} of {:?}", seen[7], fresh[7]);
}
