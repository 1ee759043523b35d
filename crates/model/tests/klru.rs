//! The model of sampling caches against simulated caches that sample.

mod common;

use common::*;
use tiermem_model::mrc::klru::{EvictionLaw, SampledCaches};
use tiermem_model::mrc::{Model, Unit};

const SEEDS: u64 = 6;

/// The largest and the mean difference of miss ratios over sizes and K.
fn compare(workload: &[(u32, u32)], unit: Unit) -> (f64, f64) {
    let mut sizes_of = std::collections::HashMap::new();
    workload.iter().for_each(|&(id, size)| _ = sizes_of.insert(id, unit.charge(size)));
    let working_set: u64 = sizes_of.values().sum();
    let sizes: Vec<u64> = (1..=8).map(|part| working_set * part / 8).collect();
    let (mut worst, mut sum) = (0f64, 0.0);
    for k in [1, 2, 5, 16] {
        let mut model = SampledCaches::new(EvictionLaw::k_lru(f64::from(k)), unit, &sizes, 1.0);
        workload.iter().for_each(|&(id, size)| model.access(id, size));
        for (&size, modelled) in sizes.iter().zip(model.misses(&sizes)) {
            let runs = (0..SEEDS).map(|seed| k_lru_misses(workload, unit, size, k, seed));
            let simulated = runs.sum::<u64>() as f64 / SEEDS as f64;
            let difference = (modelled - simulated).abs() / workload.len() as f64;
            worst = worst.max(difference);
            sum += difference / 32.0;
        }
    }
    (worst, sum)
}

#[track_caller]
fn holds(workload: &[(u32, u32)], worst: f64, mean: f64) {
    for unit in [Unit::Objects, Unit::Bytes] {
        let differences = compare(workload, unit);
        assert!(differences.0 < worst && differences.1 < mean, "{unit:?}: {differences:?}");
    }
}

#[test]
fn independent_references() {
    holds(&zipf(5_000, 60_000, 0.9, 1), 0.002, 0.0008);
}

#[test]
fn loops_under_a_skewed_load() {
    holds(&interleave(&zipf(5_000, 40_000, 0.8, 2), &cycle(10_000, 13_000, 40_000)), 0.003, 0.001);
}

#[test]
fn phases_and_scans() {
    let mut workload = zipf(4_000, 30_000, 0.7, 3);
    workload.extend(cycle(20_000, 24_000, 4_000));
    workload.extend(zipf(4_000, 30_000, 0.7, 3).iter().map(|&(id, _)| sized(id + 2_000)));
    holds(&workload, 0.003, 0.001);
}

#[test]
fn a_removed_object_is_new_again() {
    let mut model = SampledCaches::new(EvictionLaw::k_lru(5.0), Unit::Bytes, &[100, 1000], 1.0);
    model.access(0, 10);
    model.access(0, 10);
    assert_eq!(model.misses(&[100, 1000]), [1.0, 1.0]);
    model.remove(0);
    model.remove(7);
    model.access(0, 10);
    assert_eq!(model.misses(&[100, 1000]), [2.0, 2.0]);
    model.decay(0.5);
    assert_eq!(model.misses(&[100, 500, 1000]), [1.0, 1.0, 1.0]);
}

/// Wang 2024, section 2.2.2: a cycle of six keys, a cache of five. LRU never hits; the less is sampled, the more hits.
#[test]
fn a_cycle_that_does_not_fit() {
    let workload = cycle(0, 600, 60_000);
    let ratio = |k: f64| {
        let mut model = SampledCaches::new(EvictionLaw::k_lru(k), Unit::Objects, &[500], 1.0);
        workload.iter().for_each(|&(id, size)| model.access(id, size));
        model.misses(&[500])[0] / workload.len() as f64
    };
    let ratios = [1.0, 1.5, 2.0, 5.0, 16.0, 64.0].map(ratio);
    assert!(ratios.is_sorted(), "{ratios:?}");
    assert!(ratios[0] < 0.4 && ratios[5] > 0.8, "{ratios:?}");
}
