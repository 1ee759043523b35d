//! Statistics of traces: against an obvious implementation, on the real slices in `testdata`, and under sampling.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tiermem_base::{Access, Op};
use tiermem_trace::stat::{DistributionStat, StatOptions, TraceStat, collect};

fn stat_of(trace: &str, options: StatOptions) -> TraceStat {
    let accesses: Vec<Access> = tiermem_trace::open(trace).unwrap().map(|access| access.unwrap()).collect();
    collect(&accesses, options)
}

fn slice(name: &str) -> TraceStat {
    stat_of(&format!("{}/testdata/{name}", env!("CARGO_MANIFEST_DIR")), StatOptions::default())
}

fn close(got: f64, wanted: f64) {
    assert!((got - wanted).abs() <= 1e-6 * wanted.abs(), "{got} for {wanted}");
}

fn near(stat: &TraceStat) -> Vec<u64> {
    stat.spatial.near.iter().map(|near| (near.share * stat.requests as f64).round() as u64).collect()
}

// The figures of the two slices were found by a separate program that keeps every list and sorts it.

#[test]
fn the_twitter_slice_has_its_known_figures() {
    let stat = slice("twitter_cluster52-20k.csv.zst");
    assert_eq!((stat.requests, stat.unique_keys, stat.one_hit_keys), (20_000, 6116, 3551));
    assert_eq!((stat.working_set_bytes, stat.requested_bytes), (1_352_615, 4_166_150));
    assert_eq!((stat.reads, stat.writes, stat.deletes, stat.read_write_ratio), (20_000, 0, 0, None));
    close(stat.compulsory_miss_ratio, 0.3058);
    close(stat.one_hit_ratio, 3551.0 / 6116.0);
    assert_eq!((stat.duration_ns, stat.time_steps_back), (11_000_000_000, 0));
    close(stat.requests_per_second.unwrap(), 20_000.0 / 11.0);
    let sizes = stat.size_bytes.as_ref().unwrap();
    assert_eq!((sizes.min, sizes.p50, sizes.max), (12, 54, 4584));
    let reuse = stat.reuse_time_requests.as_ref().unwrap();
    assert_eq!((reuse.count, reuse.max), (13_884, 19_776));
    close(reuse.mean, 753.598_890_809_565);
    let stack = stat.stack_distance_keys.as_ref().unwrap();
    assert_eq!((stack.count, stack.max), (13_884, 6054));
    close(stack.mean, 300.956_280_610_774_97);
    assert_eq!(stat.accesses_per_key.as_ref().unwrap().max, 1196);
    assert_eq!(near(&stat), [6194; 5]);
    let zipf = stat.zipf.unwrap();
    close(zipf.alpha_least_squares, 0.978_688_163_910_883);
    close(zipf.r_squared, 0.984_357_618_175_433);
    close(zipf.alpha_likelihood.unwrap(), 0.860_492_563_530_282);
    assert!((zipf.ks_distance.unwrap() - 0.049_782_438).abs() < 1e-6);
}

#[test]
fn the_cloud_physics_slice_has_its_known_figures() {
    let stat = slice("cloudPhysicsIO-20k.oracleGeneral.bin.zst");
    assert_eq!((stat.requests, stat.unique_keys, stat.one_hit_keys), (20_000, 13_778, 11_570));
    assert_eq!((stat.working_set_bytes, stat.requested_bytes), (744_672_256, 860_103_168));
    assert_eq!(stat.duration_ns, 1_799_000_000_000);
    let reuse = stat.reuse_time_requests.as_ref().unwrap();
    assert_eq!((reuse.count, reuse.max), (6222, 13_492));
    close(reuse.mean, 2_669.551_108_968_177);
    let stack = stat.stack_distance_keys.as_ref().unwrap();
    assert_eq!(stack.max, 11_501);
    close(stack.mean, 2_582.438_283_510_125);
    assert_eq!(stat.accesses_per_key.as_ref().unwrap().max, 415);
    assert_eq!((stat.spatial.block, near(&stat)), (1, vec![2079, 3022, 3041, 4633, 4899]));
    assert_eq!((stat.spatial.sequential_share * 20_000.0).round(), 574.0);
    let zipf = stat.zipf.unwrap();
    close(zipf.alpha_least_squares, 0.974_555_802_691_236);
    close(zipf.alpha_likelihood.unwrap(), 0.614_811_829_402_231);
    assert!((zipf.ks_distance.unwrap() - 0.109_881_490).abs() < 1e-6);
}

/// Count, smallest, largest and mean.
fn outline(values: &[u64]) -> Option<(u64, u64, u64, f64)> {
    let (min, max) = (*values.iter().min()?, *values.iter().max()?);
    Some((values.len() as u64, min, max, values.iter().sum::<u64>() as f64 / values.len() as f64))
}

fn outlined(stat: &Option<DistributionStat>) -> Option<(u64, u64, u64, f64)> {
    stat.as_ref().map(|stat| (stat.count, stat.min, stat.max, stat.mean))
}

fn check_against_lists(accesses: &[Access]) -> Result<(), TestCaseError> {
    let stat = collect(accesses, StatOptions::default());
    let n = accesses.len() as u64;
    prop_assert_eq!(stat.requests, n);
    let of_key = |key: u64| accesses.iter().filter(move |access| access.key == key);
    let keys: BTreeSet<u64> = accesses.iter().map(|access| access.key).collect();
    prop_assert_eq!(stat.unique_keys, keys.len() as u64);
    prop_assert_eq!(stat.one_hit_keys, keys.iter().filter(|key| of_key(**key).count() == 1).count() as u64);
    let last_size = |key: u64| of_key(key).map(|a| u64::from(a.size)).rfind(|size| *size > 0).unwrap_or(0);
    prop_assert_eq!(stat.working_set_bytes, keys.iter().map(|key| last_size(*key)).sum::<u64>());
    let per_key: Vec<u64> = keys.iter().map(|key| of_key(*key).count() as u64).collect();
    prop_assert_eq!(outlined(&stat.accesses_per_key), outline(&per_key));

    let (mut reuse, mut stack) = (Vec::new(), Vec::new());
    for (at, access) in accesses.iter().enumerate() {
        if let Some(before) = accesses[..at].iter().rposition(|other| other.key == access.key) {
            reuse.push((at - before) as u64);
            let since: BTreeSet<u64> = accesses[before..at].iter().map(|other| other.key).collect();
            stack.push(since.len() as u64);
        }
    }
    prop_assert_eq!(outlined(&stat.reuse_time_requests), outline(&reuse));
    prop_assert_eq!(outlined(&stat.stack_distance_keys), outline(&stack));
    let gaps: Vec<u64> =
        accesses.windows(2).map(|pair| pair[1].time_ns.saturating_sub(pair[0].time_ns)).collect();
    prop_assert_eq!(outlined(&stat.inter_arrival_ns), outline(&gaps));
    let back = accesses.windows(2).filter(|pair| pair[1].time_ns < pair[0].time_ns).count();
    prop_assert_eq!(stat.time_steps_back, back as u64);
    let times = || accesses.iter().map(|access| access.time_ns);
    prop_assert_eq!(stat.duration_ns, times().max().unwrap_or(0) - times().min().unwrap_or(0));

    for op in Op::ALL {
        let own: Vec<u64> = accesses.iter().filter(|a| a.op == op).map(|a| u64::from(a.size)).collect();
        let found = stat.ops.iter().find(|found| found.op == op.name());
        prop_assert_eq!(found.map(|op| op.requests), (!own.is_empty()).then_some(own.len() as u64));
        prop_assert_eq!(found.map_or(0, |op| op.requested_bytes), own.iter().sum::<u64>());
    }
    prop_assert_eq!(stat.reads + stat.writes + stat.deletes, n);

    let mut owners: BTreeMap<u64, u32> = BTreeMap::new();
    for access in accesses {
        owners.entry(access.key).or_insert(access.tenant);
    }
    let tenants: BTreeSet<u32> = accesses.iter().map(|access| access.tenant).collect();
    prop_assert!(stat.tenants.iter().map(|tenant| tenant.tenant).eq(tenants));
    for tenant in &stat.tenants {
        let owned: Vec<u64> =
            owners.iter().filter(|(_, t)| **t == tenant.tenant).map(|(key, _)| *key).collect();
        prop_assert_eq!(tenant.unique_keys, owned.len() as u64);
        prop_assert_eq!(tenant.working_set_bytes, owned.iter().map(|key| last_size(*key)).sum::<u64>());
        let requests = accesses.iter().filter(|access| access.tenant == tenant.tenant).count();
        prop_assert_eq!(tenant.requests, requests as u64);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn everything_is_what_the_lists_say(
        rows in prop::collection::vec((0u64..1000, 0usize..8, 0u64..30, 0u32..5, 0u32..3), 0..200),
    ) {
        let accesses: Vec<Access> = rows
            .into_iter()
            .map(|(time_ns, op, key, size, tenant)| Access { tenant, ..Access::new(time_ns, Op::ALL[op], key, size) })
            .collect();
        check_against_lists(&accesses)?;
    }
}

#[test]
fn a_sample_estimates_what_needs_keys_and_leaves_the_rest_exact() {
    let trace = "zipf:alpha=0.8,objects=100k,requests=500k,size=100-200";
    let exact = stat_of(trace, StatOptions::default());
    let sampled = stat_of(trace, StatOptions { sample_rate: 0.1, block: None });
    let within = |got: f64, wanted: f64, share: f64| {
        assert!((got / wanted - 1.0).abs() < share, "{got} for {wanted}");
    };
    // 8,000 sampled keys: three deviations are 3.2%. Keys of a Zipf trace differ, so the others spread more.
    within(sampled.unique_keys as f64, exact.unique_keys as f64, 0.04);
    within(sampled.working_set_bytes as f64, exact.working_set_bytes as f64, 0.04);
    within(sampled.one_hit_ratio, exact.one_hit_ratio, 0.1);
    let mean = |stat: &Option<DistributionStat>| stat.as_ref().unwrap().mean;
    within(mean(&sampled.stack_distance_keys), mean(&exact.stack_distance_keys), 0.15);
    within(mean(&sampled.reuse_time_requests), mean(&exact.reuse_time_requests), 0.15);
    within(sampled.zipf.unwrap().alpha_least_squares, exact.zipf.unwrap().alpha_least_squares, 0.1);
    assert_eq!(sampled.zipf.unwrap().alpha_likelihood, None);
    assert_eq!(
        (&sampled.size_bytes, &sampled.inter_arrival_ns, &sampled.ops, &sampled.spatial),
        (&exact.size_bytes, &exact.inter_arrival_ns, &exact.ops, &exact.spatial)
    );
}

#[test]
fn generators_have_the_figures_that_they_were_asked_for() {
    let zipf = stat_of("zipf:alpha=0.9,objects=1000,requests=500k", StatOptions::default());
    let fit = zipf.zipf.unwrap();
    assert!((fit.alpha_likelihood.unwrap() - 0.9).abs() < 0.01, "{fit:?}");
    assert!((fit.alpha_least_squares - 0.9).abs() < 0.03, "{fit:?}");
    close(zipf.requests_per_second.unwrap(), 1e6 * 500.0 / 499.999);

    let cycle = stat_of("loop:objects=100,requests=1000", StatOptions::default());
    let distances = cycle.stack_distance_keys.unwrap();
    assert_eq!((distances.min, distances.max, distances.count), (100, 100, 900));
    assert!(cycle.spatial.sequential_share < 0.1);
    let scan = stat_of("scan:objects=100,requests=1000", StatOptions::default());
    assert_eq!(scan.spatial.run_length_max, 100);

    let mix = stat_of("mix:3*zipf(objects=100)+scan(objects=50),requests=40k", StatOptions::default());
    assert_eq!(mix.tenants.iter().map(|tenant| tenant.unique_keys).collect::<Vec<_>>(), [100, 50]);
    assert!((mix.tenants[0].share - 0.75).abs() < 0.011);
    let ycsb = stat_of("ycsb-a:objects=1k,requests=40k", StatOptions::default());
    assert!((ycsb.read_write_ratio.unwrap() - 1.0).abs() < 0.05);
    assert_eq!(ycsb.working_set_bytes, ycsb.unique_keys * 1000);
}

#[test]
fn an_empty_trace_has_figures_too() {
    let stat = stat_of("zipf:requests=0", StatOptions::default());
    assert_eq!((stat.requests, stat.unique_keys, stat.compulsory_miss_ratio), (0, 0, 0.0));
    assert_eq!((stat.size_bytes, stat.zipf, stat.requests_per_second), (None, None, None));
}
