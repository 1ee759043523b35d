//! Curves of several policies at once, each on a thread. No decision depends on it: every curve is what it would be alone, on
//! whatever thread it is computed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::available_parallelism;

use super::{Curve, Kind, Survey, Unit};

/// The curves of each kind, by window, in the order of `kinds`. The kinds are dealt out to as many threads as there are
/// processors; after each kind its thread calls `done` with the number of kinds that are done.
pub fn curves_in_parallel(
    survey: &Survey,
    kinds: &[Kind],
    unit: Unit,
    sizes: &[u64],
    done: &(dyn Fn(usize) + Sync),
) -> Vec<Vec<Curve>> {
    let next = AtomicUsize::new(0);
    let finished = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Vec<Curve>)>> = Mutex::new(Vec::with_capacity(kinds.len()));
    let threads = available_parallelism().map_or(1, usize::from).min(kinds.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    let Some(kind) = kinds.get(at) else { break };
                    let curves = survey.curves(*kind, unit, sizes);
                    results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((at, curves));
                    done(finished.fetch_add(1, Relaxed) + 1);
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, curves)| curves).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_base::Access;

    #[test]
    fn curves_come_in_the_order_of_their_kinds() {
        let mut survey = Survey::new(1.0, 0);
        (0..5000u64).for_each(|n| assert!(survey.access(&Access::get(0, n * n % 101, 10))));
        let kinds: Vec<Kind> = ["klru:1", "lru", "fifo", "sieve"].map(|name| name.parse().unwrap()).into();
        let sizes = [10, 50, 101];
        let count = AtomicUsize::new(0);
        let together = curves_in_parallel(&survey, &kinds, Unit::Objects, &sizes, &|done| {
            count.fetch_max(done, Relaxed);
        });
        let alone: Vec<_> = kinds.iter().map(|kind| survey.curves(*kind, Unit::Objects, &sizes)).collect();
        assert_eq!((together, count.into_inner()), (alone, kinds.len()));
    }
}
