//! Reads and writes words of a table at random.
#![forbid(unsafe_code)]

use tiermem_workloads::{Rng, mix, settings};

fn main() {
    let [footprint, accesses, seed] = settings(
        "Reads and writes words of a table at random.",
        [
            ("footprint", 4 << 30, "bytes of the table"),
            ("accesses", 200_000_000, "words read and written"),
            ("seed", 1, "of the random numbers"),
        ],
    );
    let mut table = vec![0u64; (footprint / 8).max(1) as usize];
    let mut rng = Rng::new(seed);
    let mut checksum = 0u64;
    for _ in 0..accesses {
        let word = &mut table[rng.below((footprint / 8).max(1)) as usize];
        *word = word.wrapping_add(checksum | 1);
        checksum = checksum.wrapping_add(*word);
    }
    println!("random: checksum {:016x}", mix(checksum));
}
