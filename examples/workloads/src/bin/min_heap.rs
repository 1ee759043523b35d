//! Fills a binary heap with random numbers, then takes the least and puts a new one in, again and again.
#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tiermem_workloads::{Rng, mix, settings};

fn main() {
    let [footprint, operations, seed] = settings(
        "Fills a heap with random numbers, then takes the least out and puts another in.",
        [
            ("footprint", 1 << 30, "bytes of the heap"),
            ("operations", 50_000_000, "numbers that are taken out"),
            ("seed", 1, "of the random numbers"),
        ],
    );
    let room = (footprint / 8).max(1) as usize;
    let mut rng = Rng::new(seed);
    let mut heap = BinaryHeap::with_capacity(room);
    for _ in 0..room {
        heap.push(Reverse(rng.number()));
    }
    let mut checksum = 0u64;
    for _ in 0..operations {
        if let Some(Reverse(least)) = heap.pop() {
            checksum = checksum.wrapping_add(least);
            // Later than what was taken out, as in a queue of events.
            heap.push(Reverse(least.saturating_add(rng.number() >> 8)));
        }
    }
    println!("min_heap: checksum {:016x}", mix(checksum));
}
