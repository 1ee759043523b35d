//! Wang 2024, tables 2.1 to 2.3: six keys in turn, a cache of five, under 16-, 2- and 1-LRU.

mod common;

use common::*;
use tiermem_model::mrc::klru::{EvictionLaw, SampledCaches};
use tiermem_model::mrc::krr::{Correction, KrrStack};
use tiermem_model::mrc::{LruStack, Model, Unit};

const KEYS: u32 = 6;
const CACHE: u64 = 5;
const REQUESTS: usize = 60_000;

/// The steady state, exactly: the state is which of the six keys is missing, told by how many requests lie between its
/// turn and now. A hit moves every key one turn on; a miss brings the key in and lets rank r of the five by age go with
/// probability (r^K − (r−1)^K)/5^K, from 1 for the youngest.
fn expected_hit_ratio(k: i32) -> f64 {
    let goes = |rank: f64| (rank.powi(k) - (rank - 1.0).powi(k)) / 5f64.powi(k);
    // missing[d]: the missing key's turn comes after d more requests.
    let mut missing = [1.0 / 6.0; 6];
    let mut misses = 0.0;
    for _ in 0..20_000 {
        misses = missing[0];
        let mut next = [0.0; 6];
        (1..6).for_each(|turns| next[turns - 1] += missing[turns]);
        // The five cached keys were last used 1 to 5 requests ago; the one used r ago comes again after 6 - r more, and
        // of these the request under way is one.
        for rank in 1..=5u8 {
            next[usize::from(5 - rank)] += misses * goes(f64::from(rank));
        }
        missing = next;
    }
    1.0 - misses
}

fn hit_ratio(misses: f64) -> f64 {
    1.0 - misses / REQUESTS as f64
}

fn by_simulation(k: u32) -> f64 {
    hit_ratio(k_lru_misses(&cycle(0, KEYS, REQUESTS), Unit::Objects, CACHE, k, 3) as f64)
}

fn by(mut model: impl Model) -> f64 {
    cycle(0, KEYS, REQUESTS).iter().for_each(|&(id, size)| model.access(id, size));
    hit_ratio(model.misses(&[CACHE])[0])
}

/// Table 2.1: LRU, to which 16-LRU of five keys is practically equal, misses every time.
#[test]
fn sixteen_samples_never_hit() {
    assert_eq!(by(LruStack::new(Unit::Objects, 1.0)), 0.0);
    assert!(expected_hit_ratio(16) < 0.05);
    assert!((by_simulation(16) - expected_hit_ratio(16)).abs() < 0.005);
}

/// Tables 2.2 and 2.3 show single runs; these are their expectations.
#[test]
fn two_samples_and_one_hit_as_often_as_the_chain_says() {
    for k in [1, 2] {
        let difference = by_simulation(k) - expected_hit_ratio(k as i32);
        assert!(difference.abs() < 0.01, "K = {k}: {difference}");
    }
    assert!(expected_hit_ratio(1) > expected_hit_ratio(2) + 0.05);
    let random = by(KrrStack::new(Unit::Objects, 1.0, Correction::None, 1.0, 5));
    assert!((random - expected_hit_ratio(1)).abs() < 0.01, "{random}");
}

/// Five keys are few for a law of large numbers, yet the order is right and the ends are.
#[test]
fn models_order_the_three_as_the_tables_do() {
    for make in [
        (|k| by(SampledCaches::new(EvictionLaw::k_lru(k), Unit::Objects, &[CACHE], 1.0))) as fn(f64) -> f64,
        |k| by(KrrStack::new(Unit::Objects, k, Correction::Power, 1.0, 5)),
    ] {
        let (one, two, sixteen) = (make(1.0), make(2.0), make(16.0));
        assert!(one > two + 0.03 && two > sixteen + 0.1 && sixteen < 0.2, "{one} {two} {sixteen}");
        assert!((one - expected_hit_ratio(1)).abs() < 0.06, "{one}");
    }
}
