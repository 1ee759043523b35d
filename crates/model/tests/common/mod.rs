//! Naive caches, slow and obvious, and workloads to run them on.
#![allow(dead_code, reason = "every test program takes what it needs")]

use tiermem_base::Rng;
use tiermem_model::mrc::Unit;

/// Accesses as (object, size).
pub type Workload = Vec<(u32, u32)>;

/// Misses of a cache of `capacity` that evicts the least recently used of `k` objects, drawn with replacement, until
/// what it brings in fits.
pub fn k_lru_misses(workload: &[(u32, u32)], unit: Unit, capacity: u64, k: u32, seed: u64) -> u64 {
    let mut rng = Rng::seeded(seed);
    let objects = workload.iter().map(|access| access.0 as usize + 1).max().unwrap_or(0);
    let (mut last, mut size, mut place) =
        (vec![0usize; objects], vec![0u64; objects], vec![usize::MAX; objects]);
    let mut cached: Vec<usize> = Vec::new();
    let (mut used, mut misses) = (0, 0);
    for (now, &(id, bytes)) in workload.iter().enumerate() {
        let id = id as usize;
        last[id] = now;
        if place[id] != usize::MAX {
            continue;
        }
        misses += 1;
        size[id] = unit.charge(bytes);
        while used + size[id] > capacity && !cached.is_empty() {
            let drawn = (0..k).map(|_| rng.below(cached.len() as u64) as usize);
            let victim = drawn.min_by_key(|&at| last[cached[at]]).expect("k is at least 1");
            used -= size[cached[victim]];
            place[cached[victim]] = usize::MAX;
            cached.swap_remove(victim);
            if let Some(&moved) = cached.get(victim) {
                place[moved] = victim;
            }
        }
        if size[id] <= capacity {
            used += size[id];
            place[id] = cached.len();
            cached.push(id);
        }
    }
    misses
}

/// Misses of an LRU cache.
pub fn lru_misses(workload: &[(u32, u32)], unit: Unit, capacity: u64) -> u64 {
    let mut stack: Vec<(u32, u32)> = Vec::new();
    let mut misses = 0;
    for &(id, bytes) in workload {
        let at = stack.iter().rposition(|entry| entry.0 == id);
        // The size that an object had when it was last accessed is what it takes of the cache until then.
        let above = |at: usize| stack[at..].iter().map(|entry| unit.charge(entry.1)).sum::<u64>();
        misses += u64::from(at.is_none_or(|at| above(at) > capacity));
        if let Some(at) = at {
            stack.remove(at);
        }
        stack.push((id, bytes));
    }
    misses
}

/// `count` accesses to `objects` objects, object i with a weight of 1/(i+1)^`alpha`; sizes from 1 to 1000.
pub fn zipf(objects: u32, count: usize, alpha: f64, seed: u64) -> Workload {
    let mut rng = Rng::seeded(seed);
    let mut sum = 0.0;
    let below: Vec<f64> = (1..=objects)
        .map(|rank| {
            sum += f64::from(rank).powf(-alpha);
            sum
        })
        .collect();
    let mut draw = || rng.unit_f64() * sum;
    (0..count).map(|_| draw()).map(|at| sized(below.partition_point(|&edge| edge < at) as u32)).collect()
}

/// The objects from `from` up to `to` in turn, `count` accesses.
pub fn cycle(from: u32, to: u32, count: usize) -> Workload {
    (from..to).cycle().take(count).map(sized).collect()
}

/// One access of each workload in turn.
pub fn interleave(a: &[(u32, u32)], b: &[(u32, u32)]) -> Workload {
    a.iter().zip(b).flat_map(|(&a, &b)| [a, b]).collect()
}

/// An object with a size of its own.
pub fn sized(id: u32) -> (u32, u32) {
    (id, 1 + (u64::from(id).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u32 % 1000)
}
