//! Reads words of a table of which some granules are hotter than others, and says in the end how often it read each.
#![forbid(unsafe_code)]

use std::io::Write;
use std::time::{Duration, Instant};

use tiermem_workloads::{Rng, mix, settings};

fn main() {
    let [footprint, granule, seconds, per_s, seed] = settings(
        "Reads words of a table of which some granules are hotter than others: the n-th hottest is read 1/n as often as the \
         hottest, and which one that is goes by the seed. Prints granule,reads for each.",
        [
            ("footprint", 1 << 30, "bytes of the table"),
            ("granule", 4 << 20, "bytes of a granule"),
            ("seconds", 10, "how long it reads"),
            ("per-second", 1_000_000, "words read in a second, at most"),
            ("seed", 1, "of the random numbers"),
        ],
    );
    let granule_words = (granule / 8).max(1) as usize;
    let granules = (footprint / granule.max(8)).max(1) as usize;
    // Written, so that no page is the kernel's one page of zeros.
    let table: Vec<u64> = (0..granules * granule_words).map(|word| word as u64).collect();
    let mut rng = Rng::new(seed);
    let mut by_rank: Vec<usize> = (0..granules).collect();
    (1..granules).rev().for_each(|at| by_rank.swap(at, rng.below(at as u64 + 1) as usize));
    let mut reach = 0.0;
    let reaches: Vec<f64> = (1..=granules)
        .map(|rank| {
            reach += 1.0 / rank as f64;
            reach
        })
        .collect();
    let mut reads = vec![0_u64; granules];
    let (mut checksum, mut count, begun) = (0_u64, 0_u64, Instant::now());
    // A batch, then a rest if it is ahead of its time.
    let batch = (per_s / 1000).max(1);
    while begun.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..batch {
            let aim = rng.share() * reach;
            let granule = by_rank[reaches.partition_point(|it| *it < aim).min(granules - 1)];
            reads[granule] += 1;
            let word = granule * granule_words + rng.below(granule_words as u64) as usize;
            checksum = checksum.wrapping_add(table[word]);
        }
        count += batch;
        let due = begun + Duration::from_nanos((count as f64 / per_s.max(1) as f64 * 1e9) as u64);
        if let Some(early) =
            due.checked_duration_since(Instant::now()).filter(|it| *it > Duration::from_micros(200))
        {
            std::thread::sleep(early);
        }
    }
    let mut out = std::io::stdout().lock();
    let lines: String =
        reads.iter().enumerate().map(|(granule, reads)| format!("{granule},{reads}\n")).collect();
    // Who does not want to read on has what was wanted.
    let _ = out.write_all(format!("granule,reads\n{lines}").as_bytes());
    eprintln!("skewed: checksum {:016x}", mix(checksum));
}
