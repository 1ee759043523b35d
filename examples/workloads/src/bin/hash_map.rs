//! Fills the standard library's hash map with rows under ascending keys, then goes through it and looks rows up by key.
//!
//! The hash of a key is the key with its bits turned over, so that neighbours by key are neighbours in memory, in the same order,
//! as in libraries where whole numbers are their own hashes: an index of rows by their number.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use tiermem_workloads::{mix, settings};

/// What is kept under a key. A cache line.
type Row = [u64; 8];
/// A row, its key, and the byte that the table keeps of its hash.
const ENTRY_BYTES: u64 = 73;

#[derive(Default)]
struct TurnedOver(u64);

impl Hasher for TurnedOver {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.rotate_left(8) ^ number;
    }

    fn finish(&self) -> u64 {
        // The standard library's table has its first place at its highest address.
        !self.0
    }
}

fn main() {
    let [footprint, rounds, seed] = settings(
        "Fills a hash map with rows under ascending keys, then goes through it and looks them up, again and again.",
        [
            ("footprint", 900 << 20, "bytes of the map"),
            ("rounds", 10, "how often it is gone through"),
            ("seed", 1, "of what is in the rows"),
        ],
    );
    // The map fills seven of eight places, and has a power of two of them.
    let places = ((footprint / ENTRY_BYTES).max(16) + 1).next_power_of_two() / 2;
    let keys = places * 7 / 8;
    let mut map: HashMap<u64, Row, BuildHasherDefault<TurnedOver>> =
        HashMap::with_capacity_and_hasher(keys as usize, BuildHasherDefault::default());
    for key in 0..keys {
        map.insert(key, [key ^ seed; 8]);
    }
    let mut checksum = 0u64;
    for _ in 0..rounds {
        checksum = map.values().fold(checksum, |sum, row| sum.wrapping_add(row[0]));
        for key in 0..keys {
            checksum = checksum.wrapping_add(map.get(&key).map_or(0, |row| row[7]));
        }
    }
    println!("hash_map: {} rows, checksum {:016x}", map.len(), mix(checksum));
}
