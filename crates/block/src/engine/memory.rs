//! Bytes of the cache's upper tier: units of the cache's device that are in DRAM as well. [`Copies`]
//! decides which, and where. Bytes are verified against their checksums when they are copied in.

use std::ops::Range;

use tiermem_policy::extents::{Copies, UNIT_BYTES};
use tiermem_tier::block::AlignedBuffer;

const UNIT: usize = UNIT_BYTES as usize;

/// The copies, by unit of the cache.
pub(super) struct Memory {
    copies: Copies,
    /// Those of each place that was ever used.
    bytes: Vec<AlignedBuffer>,
}

impl Memory {
    /// Copies in `capacity_bytes` of DRAM, none of it used yet.
    pub(super) fn new(capacity_bytes: u64) -> Self {
        Memory { copies: Copies::new(capacity_bytes), bytes: Vec::new() }
    }

    /// Copies units out, if all of them are here.
    pub(super) fn read(&mut self, units: Range<u64>, into: &mut [u8]) -> bool {
        let Memory { copies, bytes } = self;
        let mut into = into.chunks_exact_mut(UNIT);
        copies.read(units, |place| {
            if let Some(into) = into.next() {
                into.copy_from_slice(&bytes[place as usize]);
            }
        })
    }

    /// The device gave these units.
    pub(super) fn insert(&mut self, units: Range<u64>, from: &[u8]) {
        let Memory { copies, bytes } = self;
        let mut from = from.chunks_exact(UNIT);
        copies.insert(units, |place| {
            if place as usize == bytes.len() {
                bytes.push(AlignedBuffer::zeroed(UNIT));
            }
            if let Some(from) = from.next() {
                bytes[place as usize].copy_from_slice(from);
            }
        });
    }

    /// The device holds these bytes there from now on.
    pub(super) fn update(&mut self, units: Range<u64>, bytes: &[u8]) {
        if self.copies.is_unused() {
            return;
        }
        for (unit, bytes) in units.zip(bytes.chunks_exact(UNIT)) {
            if let Some(place) = self.copies.place(unit) {
                self.bytes[place as usize].copy_from_slice(bytes);
            }
        }
    }

    /// The device's bytes there are unknown.
    pub(super) fn forget(&mut self, units: Range<u64>) {
        self.copies.forget(units);
    }

    /// Bytes of copies.
    pub(super) fn held_bytes(&self) -> u64 {
        self.copies.held_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// It gives what the device has, or nothing; and it holds no more than it may.
        #[test]
        fn it_gives_what_the_device_has(
            places in 0u64..6, steps in prop::collection::vec((0u64..12, 1u64..4, 0u8..4), 1..200),
        ) {
            let mut memory = Memory::new(places * UNIT_BYTES);
            let mut device = [0u8; 16];
            for (at, (first, count, what)) in steps.into_iter().enumerate() {
                let units = first..first + count;
                let bytes_of = |device: &[u8; 16]| -> Vec<u8> {
                    units.clone().flat_map(|unit| vec![device[unit as usize]; UNIT]).collect()
                };
                match what {
                    0 => {
                        let mut read = vec![0; count as usize * UNIT];
                        if memory.read(units.clone(), &mut read) {
                            prop_assert_eq!(read, bytes_of(&device));
                        }
                    }
                    1 => memory.insert(units.clone(), &bytes_of(&device)),
                    2 => {
                        units.clone().for_each(|unit| device[unit as usize] = at as u8);
                        memory.update(units.clone(), &bytes_of(&device));
                    }
                    _ => {
                        units.clone().for_each(|unit| device[unit as usize] = at as u8);
                        memory.forget(units.clone());
                    }
                }
                prop_assert!(memory.held_bytes() <= places * UNIT_BYTES);
            }
        }
    }
}
