//! Sampling cost: the measured time of choosing a victim on this machine,
//! by K. It is part of the cost of a miss (Wang 2024, section 3.1.2).
//!
//! A running store can observe only one K, so all of them are measured before
//! it starts, on a ladder of moderate size that is discarded afterwards.

use std::time::Instant;

use tiermem_base::Rng;
use tiermem_base::latency_curve::LOCAL_DRAM;
use tiermem_policy::Now;
use tiermem_policy::choose_k::Overheads;
use tiermem_policy::ladder::{Admit, INSERTION_POINT_FAST, Ladder, LadderConfig, LevelConfig, NewItem};

/// Items that are drawn from: their nodes and lists are larger than a core's own caches.
const ITEMS: u64 = 1 << 17;
/// Draws timed together, and the number of trials; the fastest counts, as other programs only make a trial slower.
const DRAWS: u32 = 512;
const TRIALS: u32 = 5;
const ITEM_BYTES: u64 = 64;

/// The costs of choosing with each of these K; what was measured elsewhere if nothing sensible comes of it here.
pub(super) fn measure(ks: &[u8]) -> Overheads {
    let level = LevelConfig {
        capacity_bytes: 4 * ITEMS * ITEM_BYTES,
        insertion_point: INSERTION_POINT_FAST,
        order: Default::default(),
        curve: LOCAL_DRAM,
    };
    let mut ladder =
        Ladder::new(LadderConfig { levels: vec![level], tenants: true, ..LadderConfig::default() });
    let (mut rng, mut acts, mut now) = (Rng::seeded(1), Vec::new(), Now::default());
    for key in 0..ITEMS {
        now.requests += 1;
        let item = NewItem {
            key,
            bytes: ITEM_BYTES,
            expires_at_ms: None,
            rewrites: None,
            tenant: 0,
            is_newcomer: true,
        };
        let answer = ladder.admit(&item, now, &mut rng, &mut acts);
        acts.clear();
        if !matches!(answer, Admit::Ready { .. }) {
            return Overheads::default();
        }
    }
    let mut cost = |k: u8| {
        let mut trial = || {
            let start = Instant::now();
            for _ in 0..DRAWS {
                std::hint::black_box(ladder.residents_mut().choose_victim(0, 0, k, now, &mut rng));
            }
            start.elapsed().as_nanos() as f64 / f64::from(DRAWS)
        };
        (0..TRIALS).map(|_| trial()).fold(f64::INFINITY, f64::min)
    };
    let mut ks: Vec<u8> = ks.iter().copied().chain([1]).collect();
    ks.sort_unstable();
    ks.dedup();
    let costs = ks.into_iter().map(|k| (k, cost(k))).collect();
    Overheads::measured(costs).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_k_has_its_own() {
        let overheads = measure(&[16, 4]);
        assert_eq!(overheads.ratios().iter().map(|&(k, _)| k).collect::<Vec<_>>(), [1, 4, 16]);
        assert_ne!(overheads, Overheads::default());
    }
}
