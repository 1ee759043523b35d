//! Memory bandwidth under a policy, as the STREAM benchmark measures it (McCalpin 1995): copy, scale, add, triad.

use std::hint::black_box;
use std::io;
use std::time::Instant;

use tiermem_sys::affinity;
use tiermem_sys::numa::{self, Policy};

/// The kernels, in the order of their figures.
pub const KERNELS: [&str; 4] = ["copy", "scale", "add", "triad"];
/// Numbers of an array: 64 MiB, several times the last-level cache of most processors.
const NUMBERS: usize = 8 << 20;
/// Each kernel runs so often, and its best time counts.
const ROUNDS: usize = 5;

/// Bytes in a second of each kernel, with one thread that runs on these processors and takes memory as the policy says.
///
/// # Errors
/// If the kernel refuses the policy or the processors.
pub fn measure(policy: &Policy, cpus: &[u32]) -> io::Result<[f64; 4]> {
    let (policy, cpu) = (policy.clone(), cpus.first().copied().unwrap_or(0));
    let measured = std::thread::Builder::new().spawn(move || {
        affinity::pin_thread(cpu as usize)?;
        numa::set_thread_policy(&policy)?;
        Ok(kernels())
    })?;
    measured.join().unwrap_or_else(|_| Err(io::Error::other("the thread that measured has failed")))
}

fn kernels() -> [f64; 4] {
    let (mut a, mut b, mut c) = (vec![1.0_f64; NUMBERS], vec![2.0_f64; NUMBERS], vec![0.0_f64; NUMBERS]);
    let scalar = black_box(3.0_f64);
    let mut best = [f64::INFINITY; 4];
    let mut time = |kernel: usize, work: &mut dyn FnMut()| {
        let begun = Instant::now();
        work();
        best[kernel] = best[kernel].min(begun.elapsed().as_secs_f64());
    };
    for _ in 0..ROUNDS {
        time(0, &mut || black_box(&mut c).copy_from_slice(black_box(&a)));
        time(1, &mut || black_box(&mut b).iter_mut().zip(black_box(&c)).for_each(|(b, c)| *b = scalar * c));
        time(2, &mut || {
            let sums = black_box(&a).iter().zip(black_box(&b));
            black_box(&mut c).iter_mut().zip(sums).for_each(|(c, (a, b))| *c = a + b);
        });
        time(3, &mut || {
            let sums = black_box(&b).iter().zip(black_box(&c));
            black_box(&mut a).iter_mut().zip(sums).for_each(|(a, (b, c))| *a = b + scalar * c);
        });
    }
    let bytes = (NUMBERS * size_of::<f64>()) as f64;
    let arrays = [2.0, 2.0, 3.0, 3.0];
    std::array::from_fn(|kernel| arrays[kernel] * bytes / best[kernel])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_some_bandwidth() {
        let measured = measure(&Policy::Default, &affinity::thread_cores().unwrap()).unwrap();
        assert!(
            measured.iter().all(|bytes_per_s| bytes_per_s.is_finite() && *bytes_per_s > 1e6),
            "{measured:?}"
        );
    }
}
