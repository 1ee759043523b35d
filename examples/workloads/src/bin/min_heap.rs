//! Fills a binary heap with events at random times, of which it takes one out now and then; when it is full, it takes the first one
//! out and puts a later one in, again and again.
#![forbid(unsafe_code)]

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use tiermem_workloads::{Rng, mix, settings};

/// As a simulator or a scheduler has it: a time, and what is to be done then. A cache line.
#[repr(align(64))]
struct Event {
    time: u64,
    work: [u64; 7],
}

impl Event {
    fn new(time: u64, rng: &mut Rng) -> Self {
        let work = rng.number();
        Event { time, work: [work, !work, work ^ time, time, work, !time, work] }
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.time == other.time
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        self.time.cmp(&other.time)
    }
}

fn main() {
    let [footprint, interval, operations, seed] = settings(
        "Fills a heap with events at random times, then takes the first out and puts a later one in.",
        [
            ("footprint", 1 << 30, "bytes of the heap"),
            ("interval", 32_768, "events put in for each that is taken out, until the heap is full"),
            ("operations", 50_000_000, "events taken out of the full heap"),
            ("seed", 1, "of the random numbers"),
        ],
    );
    let room = (footprint / size_of::<Event>() as u64).max(1) as usize;
    let mut rng = Rng::new(seed);
    let mut heap = BinaryHeap::with_capacity(room);
    let mut checksum = 0u64;
    for number in 1..=room as u64 {
        let time = rng.number();
        heap.push(Reverse(Event::new(time, &mut rng)));
        if number.is_multiple_of(interval.max(1)) {
            checksum = checksum.wrapping_add(heap.pop().map_or(0, |Reverse(first)| first.time));
        }
    }
    for _ in 0..operations {
        if let Some(Reverse(first)) = heap.pop() {
            checksum = checksum.wrapping_add(first.time ^ first.work[0]);
            let time = first.time.saturating_add(rng.number() >> 8);
            heap.push(Reverse(Event::new(time, &mut rng)));
        }
    }
    println!("min_heap: checksum {:016x}", mix(checksum));
}
