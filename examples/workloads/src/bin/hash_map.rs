//! Counts random keys in the standard library's hash map.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use tiermem_workloads::{Rng, mix, settings};

/// A key, its count, and the byte that the table keeps of its hash.
const ENTRY_BYTES: u64 = 17;

/// A few instructions a key, for it is memory that is to be seen, and without random keys, so that a seed means one sequence of
/// accesses.
#[derive(Default)]
struct Scatter(u64);

impl Hasher for Scatter {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn main() {
    let [footprint, operations, seed] = settings(
        "Counts random keys in a hash map: one operation in eight is a look-up alone, the others write.",
        [
            ("footprint", 900 << 20, "bytes of the map"),
            ("operations", 100_000_000, "keys that are counted or looked up"),
            ("seed", 1, "of the random numbers"),
        ],
    );
    // The map fills seven of eight places, and has a power of two of them.
    let places = ((footprint / ENTRY_BYTES).max(16) + 1).next_power_of_two() / 2;
    let keys = places * 7 / 8;
    let mut map: HashMap<u64, u64, BuildHasherDefault<Scatter>> =
        HashMap::with_capacity_and_hasher(keys as usize, BuildHasherDefault::default());
    let mut rng = Rng::new(seed);
    let mut found = 0u64;
    for operation in 0..operations {
        let key = rng.below(keys);
        if operation % 8 == 0 {
            found = found.wrapping_add(map.get(&key).copied().unwrap_or(1));
        } else {
            *map.entry(key).or_insert(0) += 1;
        }
    }
    println!("hash_map: {} keys, checksum {:016x}", map.len(), mix(found));
}
