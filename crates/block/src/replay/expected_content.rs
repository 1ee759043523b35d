//! Expected content of an export's sectors.
//!
//! Kept by units of 4 KiB, since most writes cover whole ones: such a unit costs 16
//! bytes and its place in the table, any other 64 bytes more. A sector that was never
//! written is unknown; the first read of it defines its content, which must then stay.

use std::collections::HashMap;
use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use super::pattern::{SECTOR, SECTOR_BYTES, Stamp};

/// Sectors of a unit.
const UNIT_SECTORS: u64 = 8;

/// Known state of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sector {
    Unknown,
    /// By the write of this version.
    Written(u32),
    /// Not by the replay; the low half of the xxh3 of its bytes.
    Learned(u32),
}

#[derive(Debug)]
enum Unit {
    /// All sectors by one write.
    Written(u32),
    Mixed(Box<[Sector; UNIT_SECTORS as usize]>),
}

/// Content that should have been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedSector {
    /// What the replay's write of this number had written.
    Version(u32),
    /// What an earlier read has found, by its checksum.
    Checksum(u32),
}

/// Content that was read instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundContent {
    /// Zeroes.
    Zeroes,
    /// What another write of this replay to this sector had written.
    Version(u32),
    /// What a replay has written elsewhere or in another run.
    Stranger(Stamp),
    /// Anything else, by its checksum.
    Checksum(u32),
}

impl fmt::Display for ExpectedSector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExpectedSector::Version(version) => write!(f, "what write {version} has written"),
            ExpectedSector::Checksum(sum) => write!(f, "what was read before (checksum {sum:08x})"),
        }
    }
}

impl fmt::Display for FoundContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FoundContent::Zeroes => f.write_str("zeroes"),
            FoundContent::Version(version) => write!(f, "what write {version} has written"),
            FoundContent::Stranger(Stamp { export, sector, version, seed }) => write!(
                f,
                "what write {version} of run {seed:x} has written at offset {} of export {export}",
                sector.saturating_mul(SECTOR_BYTES)
            ),
            FoundContent::Checksum(sum) => write!(f, "other bytes (checksum {sum:08x})"),
        }
    }
}

/// A sector that does not hold what it must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Its first byte in the export.
    pub offset: u64,
    /// Its expected content.
    pub expected: ExpectedSector,
    /// Its content.
    pub found: FoundContent,
}

/// The sectors of one export.
#[derive(Debug)]
pub struct ExpectedContent {
    seed: u64,
    export: u32,
    units: HashMap<u64, Unit>,
}

fn checksum(bytes: &[u8; SECTOR]) -> u32 {
    xxh3_64(bytes) as u32
}

impl ExpectedContent {
    /// Nothing is known of the export of this number yet.
    pub fn new(seed: u64, export: u32) -> Self {
        ExpectedContent { seed, export, units: HashMap::new() }
    }

    /// The stamp of a sector after the write of this version.
    pub fn stamp(&self, sector: u64, version: u32) -> Stamp {
        Stamp { seed: self.seed, export: self.export, sector, version }
    }

    /// The sectors from `first` on hold what this version writes.
    pub fn written(&mut self, first: u64, sectors: u64, version: u32) {
        self.put(first, sectors, Sector::Written(version));
    }

    /// A write of the sectors from `first` on has failed: their content is unknown.
    pub fn lost(&mut self, first: u64, sectors: u64) {
        self.put(first, sectors, Sector::Unknown);
    }

    /// Holds what was read from sector `first` on against what must be there, and learns what was not known. Gives the number of sectors
    /// that differ, and the first of them. A part of a sector at the end is not looked at.
    pub fn check(&mut self, first: u64, bytes: &[u8]) -> (u64, Option<Mismatch>) {
        let (mut differing, mut first_mismatch) = (0, None);
        let (sectors, _) = bytes.as_chunks::<SECTOR>();
        for (sector, bytes) in (first..).zip(sectors) {
            let expected = match self.get(sector) {
                Sector::Unknown => {
                    self.put(sector, 1, Sector::Learned(checksum(bytes)));
                    continue;
                }
                Sector::Written(version) if self.stamp(sector, version).is(bytes) => continue,
                Sector::Learned(sum) if checksum(bytes) == sum => continue,
                Sector::Written(version) => ExpectedSector::Version(version),
                Sector::Learned(sum) => ExpectedSector::Checksum(sum),
            };
            differing += 1;
            first_mismatch.get_or_insert_with(|| {
                let found = self.recognise(sector, bytes);
                Mismatch { offset: sector.saturating_mul(SECTOR_BYTES), expected, found }
            });
        }
        (differing, first_mismatch)
    }

    fn recognise(&self, sector: u64, bytes: &[u8; SECTOR]) -> FoundContent {
        match Stamp::of(bytes) {
            Some(stamp) if stamp == self.stamp(sector, stamp.version) => FoundContent::Version(stamp.version),
            Some(stamp) => FoundContent::Stranger(stamp),
            None if bytes.iter().all(|byte| *byte == 0) => FoundContent::Zeroes,
            None => FoundContent::Checksum(checksum(bytes)),
        }
    }

    fn get(&self, sector: u64) -> Sector {
        match self.units.get(&(sector / UNIT_SECTORS)) {
            None => Sector::Unknown,
            Some(Unit::Written(version)) => Sector::Written(*version),
            Some(Unit::Mixed(sectors)) => sectors[(sector % UNIT_SECTORS) as usize],
        }
    }

    fn put(&mut self, first: u64, sectors: u64, state: Sector) {
        let (mut at, end) = (first, first.saturating_add(sectors));
        while at < end {
            let (unit, from) = (at / UNIT_SECTORS, at % UNIT_SECTORS);
            let to = (from + (end - at)).min(UNIT_SECTORS);
            at += to - from;
            match state {
                Sector::Written(version) if to - from == UNIT_SECTORS => {
                    self.units.insert(unit, Unit::Written(version));
                    continue;
                }
                _ => {}
            }
            let held = self
                .units
                .entry(unit)
                .or_insert_with(|| Unit::Mixed(Box::new([Sector::Unknown; UNIT_SECTORS as usize])));
            if let Unit::Written(version) = *held {
                *held = Unit::Mixed(Box::new([Sector::Written(version); UNIT_SECTORS as usize]));
            }
            if let Unit::Mixed(sectors) = held {
                sectors[from as usize..to as usize].fill(state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn bytes_of(expected_content: &ExpectedContent, first: u64, sectors: u64, version: u32) -> Vec<u8> {
        let mut bytes = vec![0; sectors as usize * SECTOR];
        for (sector, bytes) in (first..).zip(bytes.as_chunks_mut::<SECTOR>().0) {
            expected_content.stamp(sector, version).fill(bytes);
        }
        bytes
    }

    #[test]
    fn what_differs_is_named() {
        let mut expected_content = ExpectedContent::new(1, 0);
        expected_content.written(3, 20, 5);
        let good = bytes_of(&expected_content, 3, 20, 5);
        assert_eq!(expected_content.check(3, &good), (0, None));
        let elsewhere = expected_content.stamp(99, 5);
        for (with, found) in [
            (vec![0; SECTOR], FoundContent::Zeroes),
            (bytes_of(&expected_content, 10, 1, 4), FoundContent::Version(4)),
            (bytes_of(&expected_content, 99, 1, 5), FoundContent::Stranger(elsewhere)),
            (vec![1; SECTOR], FoundContent::Checksum(checksum(&[1; SECTOR]))),
        ] {
            let mut bad = good.clone();
            bad[7 * SECTOR..8 * SECTOR].copy_from_slice(&with);
            let expected = ExpectedSector::Version(5);
            let mismatch = Mismatch { offset: 10 * SECTOR_BYTES, expected, found };
            assert_eq!(expected_content.check(3, &bad), (1, Some(mismatch)));
        }
    }

    #[test]
    fn what_was_never_written_is_learned_and_must_stay() {
        let mut expected_content = ExpectedContent::new(1, 0);
        assert_eq!(expected_content.check(0, &[9; 4 * SECTOR]), (0, None));
        assert_eq!(expected_content.check(2, &[9; 4 * SECTOR]), (0, None));
        let (differing, first) = expected_content.check(0, &[8; 6 * SECTOR]);
        assert_eq!((differing, first.unwrap().offset), (6, 0));
        assert!(matches!(first.unwrap().expected, ExpectedSector::Checksum(_)));
        // After a write that failed, it may be either; and then it stays again.
        expected_content.lost(0, 1);
        assert_eq!(expected_content.check(0, &[8; SECTOR]), (0, None));
        assert_eq!(expected_content.check(0, &[9; SECTOR]).0, 1);
    }

    proptest! {
        #[test]
        fn it_knows_what_a_plain_table_knows(
            writes in prop::collection::vec((0u64..40, 1u64..30, 0u32..8), 1..40)
        ) {
            let (mut expected_content, mut plain) = (ExpectedContent::new(1, 2), BTreeMap::new());
            for (first, sectors, version) in writes {
                let state = if version == 0 { Sector::Unknown } else { Sector::Written(version) };
                match version {
                    0 => expected_content.lost(first, sectors),
                    version => expected_content.written(first, sectors, version),
                }
                plain.extend((first..first + sectors).map(|sector| (sector, state)));
                for sector in 0..72 {
                    let expected = plain.get(&sector).copied().unwrap_or(Sector::Unknown);
                    prop_assert_eq!(expected_content.get(sector), expected, "sector {}", sector);
                }
            }
        }
    }
}
