//! KRR against its definition, against simulation, and at its two ends.

mod common;

use common::*;
use proptest::prelude::*;
use tiermem_base::Rng;
use tiermem_model::mrc::krr::{Correction, KrrStack};
use tiermem_model::mrc::{LruStack, Model, Unit};

/// The definition, position by position.
fn naive(workload: &[(u32, u32)], exponent: f64, sizes: &[u64], seed: u64) -> Vec<f64> {
    let mut rng = Rng::seeded(seed);
    let mut stack: Vec<u32> = Vec::new();
    let mut misses = vec![0.0; sizes.len()];
    for &(id, _) in workload {
        let found = stack.iter().position(|&other| other == id);
        let distance = found.map_or(u64::MAX, |at| at as u64 + 1);
        misses
            .iter_mut()
            .zip(sizes)
            .for_each(|(misses, &size)| *misses += f64::from(u8::from(distance > size)));
        let at = found.unwrap_or_else(|| {
            stack.push(id);
            stack.len() - 1
        });
        let mut moving = id;
        for position in 1..=at {
            let stays = (position as f64 - 1.0) / position as f64;
            if position == 1 || rng.unit_f64() >= stays.powf(exponent) {
                std::mem::swap(&mut moving, &mut stack[position - 1]);
            }
        }
        stack[at] = moving;
    }
    misses
}

fn modelled(
    workload: &[(u32, u32)],
    unit: Unit,
    k: f64,
    correction: Correction,
    sizes: &[u64],
    seed: u64,
) -> Vec<f64> {
    let mut stack = KrrStack::new(unit, k, correction, 1.0, seed);
    workload.iter().for_each(|&(id, size)| stack.access(id, size));
    stack.misses(sizes)
}

/// Mean and standard error of miss ratios over seeds.
fn over_seeds(seeds: u64, requests: usize, run: impl Fn(u64) -> Vec<f64>) -> Vec<(f64, f64)> {
    let runs: Vec<Vec<f64>> = (0..seeds).map(run).collect();
    let count = seeds as f64;
    (0..runs[0].len())
        .map(|at| {
            let values: Vec<f64> = runs.iter().map(|run| run[at] / requests as f64).collect();
            let mean = values.iter().sum::<f64>() / count;
            let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
            (mean, (variance / count).sqrt())
        })
        .collect()
}

#[track_caller]
fn agree(a: &[(f64, f64)], b: &[(f64, f64)], tolerance: f64) {
    for (a, b) in a.iter().zip(b) {
        let noise = 4.5 * (a.1 * a.1 + b.1 * b.1).sqrt();
        assert!((a.0 - b.0).abs() <= noise + tolerance, "{a:?} and {b:?}");
    }
}

fn mixed() -> Workload {
    interleave(&zipf(300, 3_000, 0.8, 7), &cycle(1_000, 1_150, 3_000))
}

#[test]
fn walking_backward_is_the_definition() {
    let (workload, sizes) = (mixed(), [1, 10, 50, 150, 300, 400]);
    for k in [1.0, 2.0, 5.0, 6.3] {
        let slow = over_seeds(12, workload.len(), |seed| naive(&workload, k, &sizes, seed));
        let fast = over_seeds(12, workload.len(), |seed| {
            modelled(&workload, Unit::Objects, k, Correction::None, &sizes, 100 + seed)
        });
        agree(&slow, &fast, 1e-4);
    }
}

#[test]
fn one_sample_is_random_replacement() {
    let (workload, sizes) = (mixed(), [10, 50, 150, 300, 400]);
    let random = over_seeds(12, workload.len(), |seed| {
        sizes.iter().map(|&size| k_lru_misses(&workload, Unit::Objects, size, 1, seed) as f64).collect()
    });
    let stack = over_seeds(12, workload.len(), |seed| {
        modelled(&workload, Unit::Objects, 1.0, Correction::Power, &sizes, 100 + seed)
    });
    agree(&random, &stack, 1e-4);
}

#[test]
fn many_samples_are_lru() {
    let (workload, sizes) = (mixed(), [10, 50, 150, 300, 400]);
    let mut exact = LruStack::new(Unit::Objects, 1.0);
    workload.iter().for_each(|&(id, size)| exact.access(id, size));
    // So large that all positions swap: the object at each goes one down.
    assert_eq!(modelled(&workload, Unit::Objects, 1e9, Correction::None, &sizes, 1), exact.misses(&sizes));
}

#[test]
fn independent_references_come_close_to_k_lru() {
    let (workload, sizes) = (zipf(2_000, 40_000, 0.9, 8), [100, 400, 800, 1_200, 1_600]);
    for k in [2u32, 5, 16] {
        let simulated = over_seeds(4, workload.len(), |seed| {
            sizes.iter().map(|&size| k_lru_misses(&workload, Unit::Objects, size, k, seed) as f64).collect()
        });
        let stack = over_seeds(4, workload.len(), |seed| {
            modelled(&workload, Unit::Objects, f64::from(k), Correction::Power, &sizes, 100 + seed)
        });
        agree(&simulated, &stack, 3e-3);
    }
}

#[test]
fn bytes_come_close_to_k_lru_too() {
    let workload = zipf(2_000, 40_000, 0.9, 9);
    let sizes = [50_000, 200_000, 400_000, 800_000];
    let simulated = over_seeds(4, workload.len(), |seed| {
        sizes.iter().map(|&size| k_lru_misses(&workload, Unit::Bytes, size, 5, seed) as f64).collect()
    });
    let stack = over_seeds(4, workload.len(), |seed| {
        modelled(&workload, Unit::Bytes, 5.0, Correction::Power, &sizes, seed)
    });
    agree(&simulated, &stack, 5e-3);
}

proptest! {
    /// Accesses, changes of size and removals: the stack stays a permutation and its partial sums stay exact.
    #[test]
    fn partial_sums_are_exact_at_their_boundaries(
        steps in prop::collection::vec((0u32..80, 0u32..100, 0u8..5), 0..400),
        k in 1.0f64..20.0,
    ) {
        let mut stack = KrrStack::new(Unit::Bytes, k, Correction::None, 1.0, 3);
        let mut live = std::collections::BTreeMap::new();
        for (id, size, kind) in steps {
            if kind == 0 {
                stack.remove(id);
                live.remove(&id);
            } else {
                stack.access(id, size);
                live.insert(id, u64::from(size));
                prop_assert_eq!(stack.objects().next(), Some(id));
            }
            let mut objects: Vec<u32> = stack.objects().collect();
            objects.sort_unstable();
            prop_assert_eq!(objects, live.keys().copied().collect::<Vec<_>>());
            let sizes: Vec<u64> = stack.sizes().collect();
            let exact: Vec<u64> = (0..).map(|bit| 1usize << bit).take_while(|&end| end <= sizes.len())
                .map(|end| sizes[..end].iter().sum()).collect();
            prop_assert_eq!(stack.partial_sums(), &exact[..]);
        }
    }
}
