//! Bandwidth of memory under a strategy: the four loops of McCalpin's STREAM, in our own code,
//! over arrays placed as the program's memory is, with one thread on each of its processors.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, mpsc};
use std::time::Instant;

use tiermem_sys::mapping::Mapping;
use tiermem_sys::numa::{self, Policy, Weights};
use tiermem_sys::{affinity, caches, memory};

use super::error::RunError;
use super::strategy::Placement;

/// Size of an array in last-level caches, as STREAM's own rule has it, where memory allows.
const CACHES: u64 = 4;
/// The three arrays together take at most half of what is free.
const SHARE: u64 = 6;
/// Rounds of each loop; the first one does not count.
const ROUNDS: u32 = 6;
/// The factor of `scale` and `triad`.
const FACTOR: f64 = 3.0;

/// Bandwidth of the loops in MB (10^6 bytes) a second, the best of all rounds. As in STREAM, bytes
/// are those that the loop reads and writes; the read of a line before a store is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bandwidth {
    /// c = a
    pub copy: f64,
    /// b = 3 c
    pub scale: f64,
    /// c = a + b
    pub add: f64,
    /// a = b + 3 c
    pub triad: f64,
}

/// Bytes of each of the three arrays: four times the last-level cache, or less where
/// memory is short; and the factor to the last-level cache, if its size is known.
pub fn array_bytes(placements: &[Placement], cpus: &[u32]) -> (u64, Option<f64>) {
    let cache = cpus.first().and_then(|&cpu| caches::last_level_bytes(cpu)).filter(|bytes| *bytes > 0);
    let free =
        placements.iter().flat_map(|placement| &placement.nodes).filter_map(|&node| numa::free_bytes(node));
    let limit = memory::limit().map(|limit| limit.bytes);
    let room = free.chain(limit).min().unwrap_or(1 << 30) / SHARE;
    let wanted = cache.unwrap_or(64 << 20).saturating_mul(CACHES);
    let bytes = wanted.min(room).max(1 << 20);
    (bytes, cache.map(|cache| bytes as f64 / cache as f64))
}

/// Measures the bandwidth. `array_bytes` are divided among the threads.
///
/// # Errors
/// If memory, a thread, the policy or the weights are not available.
pub fn measure(placement: &Placement, cpus: &[u32], array_bytes: u64) -> Result<Bandwidth, RunError> {
    let weights = match placement.weights.is_empty() {
        true => None,
        false => Some(Weights::set(&placement.weights)?),
    };
    let team = Team {
        policy: &placement.policy,
        share_bytes: (array_bytes as usize / cpus.len().max(1)).next_multiple_of(4096),
        barrier: Barrier::new(cpus.len().max(1)),
        failed: AtomicBool::new(false),
    };
    let team = &team;
    let best = std::thread::scope(|scope| {
        // No thread begins before all are there: the others would wait
        // for ever for one that the system refuses to start.
        let (starts, waits): (Vec<_>, Vec<_>) = cpus.iter().map(|_| mpsc::channel::<()>()).unzip();
        let started: std::io::Result<Vec<_>> = cpus
            .iter()
            .zip(waits)
            .map(|(&cpu, wait)| {
                let member = move || match wait.recv() {
                    Ok(()) => team.member(cpu),
                    Err(_) => Err("another thread could not be started".to_owned()),
                };
                std::thread::Builder::new().spawn_scoped(scope, member)
            })
            .collect();
        let threads = started.map_err(|error| format!("a thread could not be started: {error}"))?;
        for start in &starts {
            // One that has ended already says so when it is joined.
            let _ = start.send(());
        }
        let results: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread ended".to_owned())))
            .collect();
        // All threads leave each barrier together, so the slowest one's time is the time of all.
        results
            .into_iter()
            .reduce(|a, b| Ok(slower(a?, b?)))
            .unwrap_or_else(|| Err("no processor".to_owned()))
    });
    drop(weights);
    let best_s = best.map_err(RunError::Bandwidth)?;
    let bytes = (team.share_bytes * cpus.len()) as f64;
    let rate = |arrays: f64, seconds: f64| arrays * bytes / seconds.max(1e-9) / 1e6;
    let [copy, scale, add, triad] = best_s;
    Ok(Bandwidth {
        copy: rate(2.0, copy),
        scale: rate(2.0, scale),
        add: rate(3.0, add),
        triad: rate(3.0, triad),
    })
}

fn slower(a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
    std::array::from_fn(|at| a[at].max(b[at]))
}

/// State shared by the threads.
struct Team<'a> {
    policy: &'a Policy,
    share_bytes: usize,
    barrier: Barrier,
    failed: AtomicBool,
}

impl Team<'_> {
    /// One thread: the best time of each loop, in seconds.
    fn member(&self, cpu: u32) -> Result<[f64; 4], String> {
        let arrays = self.arrays(cpu);
        self.failed.fetch_or(arrays.is_err(), Ordering::Relaxed);
        // All threads meet here, so that none waits below for one that has given up.
        self.barrier.wait();
        let mut arrays = arrays?;
        if self.failed.load(Ordering::Relaxed) {
            return Err("another thread failed".to_owned());
        }
        let [a, b, c] = arrays.each_mut().map(Mapping::doubles_mut);
        let mut best = [f64::INFINITY; 4];
        for round in 0..ROUNDS {
            let times = [
                self.time(|| c.copy_from_slice(black_box(a))),
                self.time(|| b.iter_mut().zip(c.iter()).for_each(|(b, c)| *b = FACTOR * c)),
                self.time(|| c.iter_mut().zip(a.iter().zip(b.iter())).for_each(|(c, (a, b))| *c = a + b)),
                self.time(|| {
                    a.iter_mut().zip(b.iter().zip(c.iter())).for_each(|(a, (b, c))| *a = b + FACTOR * c)
                }),
            ];
            if round > 0 {
                best = std::array::from_fn(|at| best[at].min(times[at]));
            }
        }
        black_box((&a, &b, &c));
        Ok(best)
    }

    /// The three arrays, on a thread that takes memory as the program does, and touched, so that they have their pages.
    fn arrays(&self, cpu: u32) -> Result<[Mapping; 3], String> {
        affinity::pin_thread(cpu as usize).map_err(|error| format!("processor {cpu}: {error}"))?;
        // A kernel without nodes places memory by default.
        if *self.policy != Policy::Default {
            numa::set_thread_policy(self.policy).map_err(|error| error.to_string())?;
        }
        let mut arrays = [(); 3].map(|()| Mapping::anonymous(self.share_bytes));
        for (array, first) in arrays.iter_mut().zip([1.0, 2.0, 0.0]) {
            if let Ok(array) = array {
                array.doubles_mut().fill(first);
            }
        }
        let [a, b, c] = arrays.map(|array| array.map_err(|error| error.to_string()));
        Ok([a?, b?, c?])
    }

    /// Time of a loop until all threads have done their part.
    fn time(&self, run: impl FnOnce()) -> f64 {
        self.barrier.wait();
        let begun = Instant::now();
        run();
        self.barrier.wait();
        begun.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::strategy::Strategy;
    use tiermem_sys::numa::Topology;

    #[test]
    fn all_loops_have_a_bandwidth_under_every_strategy_that_there_is() {
        let topology = Topology::read();
        let cpus = affinity::thread_cores().unwrap();
        for strategy in [Strategy::Default, Strategy::Local, Strategy::Remote, Strategy::Interleave] {
            let Ok(placement) = strategy.resolve(&topology, &cpus, true) else { continue };
            let bandwidth = measure(&placement, &cpus, 3 << 20).unwrap();
            for rate in [bandwidth.copy, bandwidth.scale, bandwidth.add, bandwidth.triad] {
                assert!(rate > 0.0 && rate.is_finite(), "{strategy}: {bandwidth:?}");
            }
        }
    }

    #[test]
    fn a_thread_that_cannot_begin_ends_all() {
        let placement = Placement::default_on(&Topology::read());
        let error = measure(&placement, &[0, 100_000], 1 << 20).unwrap_err();
        assert!(matches!(error, RunError::Bandwidth(_)));
        assert!(measure(&placement, &[], 1 << 20).is_err());
    }

    #[test]
    fn arrays_fit_into_what_is_free() {
        let placement = Placement::default_on(&Topology::read());
        let (bytes, caches) = array_bytes(std::slice::from_ref(&placement), &[0]);
        assert!(bytes >= 1 << 20);
        assert!(caches.is_none_or(|times| times > 0.0 && times <= 4.0 || bytes == 1 << 20));
    }
}
