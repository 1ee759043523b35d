//! Exact LRU against a list, average eviction time against LRU.

mod common;

use common::*;
use proptest::prelude::*;
use tiermem_model::mrc::{Aet, LruStack, Model, Unit};

fn misses(model: &mut impl Model, workload: &[(u32, u32)], sizes: &[u64]) -> Vec<f64> {
    workload.iter().for_each(|&(id, size)| model.access(id, size));
    model.misses(sizes)
}

proptest! {
    /// Sizes change with accesses; few enough objects for moments to be numbered anew many times.
    #[test]
    fn every_size_misses_as_often_as_a_list(
        workload in prop::collection::vec((0u32..60, 0u32..50), 0..1500),
        bytes in any::<bool>(),
    ) {
        let (unit, step) = if bytes { (Unit::Bytes, 37) } else { (Unit::Objects, 3) };
        let sizes: Vec<u64> = (0..25).map(|at| at * step).collect();
        let expected: Vec<f64> = sizes.iter().map(|&size| lru_misses(&workload, unit, size) as f64).collect();
        prop_assert_eq!(misses(&mut LruStack::new(unit, 1.0), &workload, &sizes), expected);
    }

    #[test]
    fn removed_objects_leave_no_gap(
        steps in prop::collection::vec((0u32..40, any::<bool>()), 0..800),
    ) {
        let mut stack = LruStack::new(Unit::Objects, 1.0);
        let mut list: Vec<u32> = Vec::new();
        let (mut hits, mut accesses) = (0, 0);
        for (id, keep) in steps {
            let at = list.iter().position(|&other| other == id);
            if let Some(at) = at {
                list.remove(at);
            }
            if keep {
                list.insert(0, id);
                accesses += 1;
                hits += u32::from(at.is_some_and(|at| at < 10));
                stack.access(id, 1);
            } else {
                stack.remove(id);
            }
        }
        prop_assert_eq!(stack.misses(&[10]), [f64::from(accesses - hits)]);
    }
}

#[test]
fn reuse_times_tell_of_lru_in_steady_state() {
    for (unit, sizes) in
        [(Unit::Objects, [1u64, 100, 1_000, 3_000]), (Unit::Bytes, [500u64, 50_000, 500_000, 1_500_000])]
    {
        let workload = zipf(5_000, 200_000, 0.8, 4);
        let exact = misses(&mut LruStack::new(unit, 1.0), &workload, &sizes);
        let modelled = misses(&mut Aet::new(unit, 1.0), &workload, &sizes);
        for (at, (exact, modelled)) in exact.iter().zip(&modelled).enumerate() {
            let difference = (exact - modelled).abs() / workload.len() as f64;
            assert!(difference < 0.006, "{unit:?}, size {}: {exact} and {modelled}", sizes[at]);
        }
    }
}

#[test]
fn a_loop_has_one_reuse_time() {
    let workload = cycle(0, 100, 10_000);
    let sizes = [1, 50, 99, 100, 200];
    for modelled in [
        misses(&mut LruStack::new(Unit::Objects, 1.0), &workload, &sizes),
        misses(&mut Aet::new(Unit::Objects, 1.0), &workload, &sizes),
    ] {
        assert_eq!(modelled[..2], [10_000.0, 10_000.0]);
        assert_eq!(modelled[4], 100.0);
    }
}
