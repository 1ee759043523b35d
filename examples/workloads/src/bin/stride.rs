//! Reads and writes memory at a fixed distance, from front to end, again and again.
#![forbid(unsafe_code)]

use std::time::Duration;

use tiermem_workloads::{mix, settings};

fn main() {
    let about = "Reads and writes a word every STRIDE bytes of a table, again and again.";
    let [footprint, stride, accesses, rounds, hold_s, seed] = settings(
        about,
        [
            ("footprint", 8 << 30, "bytes of the table"),
            ("stride", 1024, "bytes from a word to the next"),
            ("accesses", 200_000_000, "words read and written in each round"),
            ("rounds", 1, "how often a table is made, used and given back"),
            ("hold", 0, "seconds to wait before the last table is given back, for those who look at it"),
            ("seed", 1, "what is written"),
        ],
    );
    let words = (footprint / 8).max(1) as usize;
    let step = (stride / 8).max(1) as usize;
    let mut checksum = 0u64;
    for round in 0..rounds {
        let mut table = vec![0u64; words];
        let mut at = 0;
        for _ in 0..accesses {
            let word = table[at].wrapping_add(seed ^ round);
            table[at] = word;
            checksum = checksum.wrapping_add(word);
            at += step;
            if at >= words {
                at = 0;
            }
        }
        if hold_s > 0 && round + 1 == rounds {
            eprintln!("stride: holding {} bytes at {:p}", words * 8, table.as_ptr());
            std::thread::sleep(Duration::from_secs(hold_s));
        }
    }
    println!("stride: checksum {:016x}", mix(checksum));
}
