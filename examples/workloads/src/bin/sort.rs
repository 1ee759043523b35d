//! Fills memory with random numbers and sorts them, and says how long that took.
#![forbid(unsafe_code)]

use std::process::exit;
use std::time::Instant;

use tiermem_workloads::{major_faults, mix, settings};

fn main() {
    let [size, seed] = settings(
        "Fills memory with random numbers and sorts them in place. Prints the seconds of both, and the major faults. Exits with 1 if they are \
         not in order, or not those that they were.",
        [("size", 1 << 30, "bytes of memory"), ("seed", 1, "of the random numbers")],
    );
    let count = (size / size_of::<u64>() as u64).max(1);
    let begun = Instant::now();
    let mut numbers: Vec<u64> = (0..count).map(|at| mix(seed << 40 ^ at)).collect();
    let (fill_s, before) = (begun.elapsed().as_secs_f64(), sum(&numbers));
    let (begun, faults_before) = (Instant::now(), major_faults());
    numbers.sort_unstable();
    let sort_s = begun.elapsed().as_secs_f64();
    let faults = faults_before.zip(major_faults()).map_or(0, |(before, after)| after - before);
    if !numbers.is_sorted() || sum(&numbers) != before {
        eprintln!("sort: the numbers are not in order, or not those that they were");
        exit(1);
    }
    println!(
        "sort: {count} numbers, fill {fill_s:.6} s, sort {sort_s:.6} s, major faults {faults}, checksum {before:016x} ok"
    );
}

/// The same in any order.
fn sum(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum, number| sum.wrapping_add(mix(*number)))
}
