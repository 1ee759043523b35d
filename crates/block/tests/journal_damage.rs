//! Damaged cache devices with any contents: a difference from what
//! was written is reported or does not matter, and is never believed.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

#[path = "journal/world.rs"]
mod world;

use proptest::prelude::*;
use tiermem_base::Rng;
use tiermem_block::journal::{
    self, BlockState, Journal, JournalError, LayoutConfig, Lsn, Reader, Record, VolumeInfo, VolumeState,
};
use tiermem_tier::block::{BlockIo, MemoryDisk, Request};
use world::World;

const DISK_BYTES: usize = 4 << 20;

fn config() -> LayoutConfig {
    LayoutConfig { block_bytes: vec![4096, 8192, 16384], group_bytes: None, log_bytes: Some(256 << 10) }
}

/// A cache that has lived and was stopped in order, and where its data begin.
fn image(seed: u64) -> (Vec<u8>, u64) {
    let mut world = World::new(config(), None, DISK_BYTES, 150, seed);
    world.live(2000);
    world.settle();
    (world.disk.with_bytes(|bytes| bytes.to_vec()), world.journal.layout().data_at)
}

fn disk_of(bytes: &[u8]) -> MemoryDisk {
    let disk = MemoryDisk::new(bytes.len());
    disk.with_bytes(|it| it.copy_from_slice(bytes));
    disk
}

type State = (Vec<BlockState>, Vec<Option<u32>>, Vec<VolumeInfo>);

fn state(journal: &mut Journal, device: &mut dyn BlockIo) -> State {
    let mut blocks = Vec::new();
    journal.each_block(device, |block| blocks.push(block.clone())).unwrap();
    let units = 0..journal.layout().units();
    let sum = |unit: u64| {
        while !journal.has_sums(unit..unit + 1) {
            pump(journal, device, 0, 1);
        }
        journal.sum(unit)
    };
    let sums = units.map(sum).collect();
    (blocks, sums, journal.volumes().cloned().collect())
}

fn open(bytes: &[u8]) -> Result<State, JournalError> {
    let disk = disk_of(bytes);
    let mut device = disk.open();
    let (mut journal, _) = journal::open(&mut device, &config(), None)?;
    Ok(state(&mut journal, &mut device))
}

#[test]
fn a_flipped_bit_is_told_or_does_not_matter() {
    let (mut told, mut same) = (0, 0);
    for seed in 0..3 {
        let (mut bytes, end) = image(seed);
        let sound = open(&bytes).unwrap();
        let mut rng = Rng::seeded(seed);
        for round in 0..600 {
            // Often at the front, where everything depends on each bit.
            let end = if round % 4 == 0 { 256 } else { end };
            let bit = rng.below(end * 8);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            match open(&bytes) {
                Ok(found) => {
                    assert_eq!(found, sound, "seed {seed}, bit {bit}");
                    same += 1;
                }
                Err(error) => {
                    assert!(error.to_string().contains("--reset"), "what to do: {error}");
                    told += 1;
                }
            }
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }
    assert!(told > 100 && same > 100, "told {told}, same {same}");
}

#[test]
fn blocks_that_are_gone_or_swapped_are_told_or_do_not_matter() {
    for seed in 0..3 {
        let (bytes, end) = image(seed);
        let sound = open(&bytes).unwrap();
        let mut rng = Rng::seeded(seed);
        for _ in 0..200 {
            let mut bytes = bytes.clone();
            let block = |rng: &mut Rng| rng.below(end / 4096) as usize * 4096;
            let (one, other) = (block(&mut rng), block(&mut rng));
            let copy = bytes[other..other + 4096].to_vec();
            match rng.below(2) {
                0 => bytes[one..one + 4096].fill(0),
                _ => bytes[one..one + 4096].copy_from_slice(&copy),
            }
            if let Ok(found) = open(&bytes) {
                assert_eq!(found, sound, "seed {seed}, block {one} from {other}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_end_without_a_panic(
        patches in proptest::collection::vec((0usize..600 << 10, proptest::collection::vec(any::<u8>(), 1..80)), 1..8),
    ) {
        let (mut bytes, _) = image(7);
        for (at, patch) in patches {
            bytes[at..at + patch.len()].copy_from_slice(&patch);
        }
        let _ = open(&bytes);
    }
}

#[test]
fn nothing_is_formatted_over_what_is_not_known() {
    let disk = MemoryDisk::new(DISK_BYTES);
    assert_eq!(journal::open(&mut disk.open(), &config(), None).unwrap_err(), JournalError::NotFormatted);
    for at in [0, 1024, 65536, DISK_BYTES - 512] {
        disk.with_bytes(|bytes| {
            bytes.fill(0);
            bytes[at..at + 4].copy_from_slice(b"ext4");
        });
        let refused = journal::format(&mut disk.open(), &config(), false).unwrap_err();
        assert!(matches!(refused, JournalError::Occupied { .. }), "{at}: {refused}");
    }
    disk.with_bytes(|bytes| bytes[0] = 7);
    let refused = journal::open(&mut disk.open(), &config(), None).unwrap_err();
    assert!(matches!(refused, JournalError::Occupied { .. }), "{refused}");
    journal::format(&mut disk.open(), &config(), true).unwrap();
    journal::open(&mut disk.open(), &config(), None).unwrap();
    let refused = journal::format(&mut disk.open(), &config(), false).unwrap_err();
    assert!(matches!(refused, JournalError::Occupied { .. }), "{refused}");
    // Another version, and other sizes.
    let other = LayoutConfig { block_bytes: vec![4096, 16384], ..config() };
    let refused = journal::open(&mut disk.open(), &other, None).unwrap_err();
    assert!(matches!(refused, JournalError::OtherLayout { what: "block sizes", .. }), "{refused}");
    let other = LayoutConfig { log_bytes: Some(512 << 10), ..config() };
    let refused = journal::open(&mut disk.open(), &other, None).unwrap_err();
    assert!(matches!(refused, JournalError::OtherLayout { what: "a log", .. }), "{refused}");
    let unasked = LayoutConfig { log_bytes: None, ..config() };
    journal::open(&mut disk.open(), &unasked, None).unwrap();
    let short = disk.with_bytes(|bytes| bytes[..bytes.len() - 16384].to_vec());
    let refused = journal::open(&mut disk_of(&short).open(), &config(), None).unwrap_err();
    assert!(matches!(refused, JournalError::Shrunk { .. }), "{refused}");
    disk.with_bytes(|bytes| (bytes[8], bytes[4096 + 8]) = (9, 9));
    let refused = journal::open(&mut disk.open(), &config(), None).unwrap_err();
    assert_eq!(refused, JournalError::Version { found: 9 });
}

#[test]
fn formatting_that_was_cut_off_can_be_done_again() {
    for after in 0..9 {
        let disk = MemoryDisk::new(DISK_BYTES);
        let faults = tiermem_tier::block::Faults {
            error_after: Some(after),
            ..tiermem_tier::block::Faults::default()
        };
        let mut device = tiermem_tier::block::Faulty::new(disk.open(), faults, Rng::seeded(0));
        let failed = journal::format(&mut device, &config(), false).is_err();
        if failed && let Err(error) = journal::open(&mut disk.open(), &config(), None) {
            assert_eq!(error, JournalError::NotFormatted);
            journal::format(&mut disk.open(), &config(), false).unwrap();
        }
        journal::open(&mut disk.open(), &config(), None).unwrap();
    }
}

/// Does what the journal asks for, `rounds` times; whether it asked for nothing the last time.
fn pump(journal: &mut Journal, device: &mut dyn BlockIo, now_ns: u64, rounds: usize) -> bool {
    let mut is_quiet = true;
    for _ in 0..rounds {
        let (mut requests, mut done): (Vec<Request>, _) = (Vec::new(), Vec::new());
        journal.poll(now_ns, &mut requests);
        is_quiet = requests.is_empty();
        device.submit_all(&mut requests);
        device.completed(&mut done);
        done.into_iter().for_each(|done| journal.complete(done));
    }
    is_quiet
}

#[test]
fn batches_are_written_when_somebody_waits_or_some_time_has_passed() {
    let disk = MemoryDisk::new(DISK_BYTES);
    let mut device = disk.open();
    journal::format(&mut device, &config(), false).unwrap();
    let (mut journal, _) = journal::open(&mut device, &config(), None).unwrap();
    let start = journal.appended();
    assert!(pump(&mut journal, &mut device, 1, 3));
    assert_eq!(journal.deadline_ns(), None);
    let lsn = journal.append(Record::Map { slot: 0, class: 0, volume: 0, piece: 5 });
    assert!(pump(&mut journal, &mut device, 1, 3));
    assert_eq!(journal.written(), start);
    let due = journal.deadline_ns().unwrap();
    pump(&mut journal, &mut device, due, 3);
    assert_eq!((journal.written(), journal.synced()), (lsn, start));
    journal.want_synced(lsn);
    pump(&mut journal, &mut device, due, 3);
    assert_eq!((journal.synced(), journal.sealed()), (lsn, start));
    let lsn = journal.append(Record::Units { first: 0, dirty: true, sums: &[7] });
    assert!(journal.is_unsealed(0..1) && !journal.is_unsealed(1..2));
    assert!(journal.may_overwrite(0..1), "it was promised to nobody");
    journal.promise(lsn);
    assert!(!journal.may_overwrite(0..1) && journal.may_overwrite(1..2));
    // The last seal comes by itself, and then there is nothing more to do.
    pump(&mut journal, &mut device, due, 1);
    let due = journal.deadline_ns().unwrap();
    pump(&mut journal, &mut device, due, 3);
    let due = journal.deadline_ns().unwrap();
    pump(&mut journal, &mut device, due, 9);
    assert_eq!(journal.sealed(), lsn);
    assert!(journal.may_overwrite(0..1) && journal.deadline_ns().is_none());
    let writes = journal.stats();
    pump(&mut journal, &mut device, due * 9, 9);
    assert_eq!(journal.stats(), writes);
}

#[test]
fn a_log_that_cannot_be_written_fails_for_good() {
    for after in 0..2 {
        let disk = MemoryDisk::new(DISK_BYTES);
        journal::format(&mut disk.open(), &config(), false).unwrap();
        let (mut journal, _) = journal::open(&mut disk.open(), &config(), None).unwrap();
        let start = journal.appended();
        let faults = tiermem_tier::block::Faults {
            error_after: Some(after),
            ..tiermem_tier::block::Faults::default()
        };
        let mut device = tiermem_tier::block::Faulty::new(disk.open(), faults, Rng::seeded(0));
        let lsn = journal.append(Record::Map { slot: 0, class: 0, volume: 0, piece: 5 });
        journal.want_synced(lsn);
        assert!(pump(&mut journal, &mut device, 1, 5));
        assert!(journal.failed().unwrap().contains("metadata"), "{:?}", journal.failed());
        assert_eq!(journal.synced(), start);
        journal.append(Record::Unmap { slot: 0, class: 0 });
        journal.want_synced(journal.appended());
        assert!(pump(&mut journal, &mut device, 1 << 60, 5));
    }
}

#[test]
fn a_record_that_cannot_be_fails_and_does_not_panic() {
    let illegal = [
        Record::Map { slot: u32::MAX, class: 0, volume: 0, piece: 0 },
        Record::Map { slot: 0, class: 9, volume: 0, piece: 0 },
        Record::Map { slot: 1, class: 1, volume: 0, piece: 0 },
        Record::Map { slot: 0, class: 1, volume: 0, piece: 1 },
        Record::Map { slot: 0, class: 0, volume: 4096, piece: 0 },
        Record::Map { slot: 0, class: 0, volume: 0, piece: 1 << 36 },
        Record::Units { first: u64::MAX, dirty: true, sums: &[1] },
        Record::Open { slot: 3 },
        Record::Close { slot: u32::MAX },
        Record::Clean(0..u64::MAX),
        Record::Page { page: u32::MAX, version: 0, since: 0 },
    ];
    let disk = MemoryDisk::new(DISK_BYTES);
    journal::format(&mut disk.open(), &config(), false).unwrap();
    for record in illegal {
        let (mut journal, _) = journal::open(&mut disk.open(), &config(), None).unwrap();
        journal.append(record.clone());
        assert!(journal.failed().is_some(), "{record:?}");
    }
    let (mut journal, _) = journal::open(&mut disk.open(), &config(), None).unwrap();
    let mut volume = VolumeInfo {
        number: 1,
        name: "n".repeat(4097),
        size_bytes: 1,
        state: VolumeState::Writing { which: None },
        marks: None,
    };
    assert!(!journal.fits(&volume));
    volume.name.truncate(4096);
    assert!(journal.fits(&volume));
    journal.append(Record::Volume(&volume));
    volume.number = 2;
    volume.name.truncate(4000);
    journal.append(Record::Volume(&volume));
    assert_eq!(journal.failed(), None);
    let many = VolumeInfo { number: 3, ..volume.clone() };
    journal.append(Record::Volume(&many));
    let many = VolumeInfo { number: 4, ..volume.clone() };
    journal.append(Record::Volume(&many));
    assert_eq!(journal.failed(), None);
    let many = VolumeInfo { number: 5, ..volume.clone() };
    assert!(!journal.fits(&many));
    assert!(Reader::new(&[99]).read().is_none());
}

/// Small records fill the log many times over; checkpoints always make room, without help from a caller.
#[test]
fn the_log_never_fills_up() {
    fill_the_log(None);
}

/// Nor does it where few of the pages that lack something are in memory.
#[test]
fn the_log_never_fills_up_with_little_memory() {
    fill_the_log(Some(16 * 4096));
}

fn fill_the_log(table_bytes: Option<u64>) {
    let disk = MemoryDisk::new(256 << 20);
    let config = LayoutConfig { block_bytes: vec![4096], ..config() };
    let mut device = disk.open();
    journal::format(&mut device, &config, false).unwrap();
    let (mut journal, _) = journal::open(&mut device, &config, table_bytes).unwrap();
    let mut rng = Rng::seeded(3);
    let slots = u64::from(journal.layout().geometry.slots());
    let volume = VolumeInfo {
        number: 1,
        name: "one".into(),
        size_bytes: 1,
        state: VolumeState::Writing { which: None },
        marks: None,
    };
    journal.append(Record::Volume(&volume));
    let mut mapped = vec![false; slots as usize];
    for _ in 0..60 {
        // As much as may be appended once there was room, each record to a page of its own as far as there are any.
        let slack = journal.layout().log_bytes / 32;
        for _ in 0..slack / 16 {
            let slot = rng.below(slots) as u32;
            let is_mapped = std::mem::replace(&mut mapped[slot as usize], true);
            let lsn = match is_mapped {
                true => journal.append(Record::Units { first: slot.into(), dirty: true, sums: &[slot] }),
                false => journal.append(Record::Map { slot, class: 0, volume: 1, piece: slot.into() }),
            };
            assert!(lsn > Lsn(0));
        }
        let mut rounds = 0;
        while !journal.has_room() {
            pump(&mut journal, &mut device, 1, 1);
            assert_eq!(journal.failed(), None);
            rounds += 1;
            assert!(rounds < 10_000, "{:?}", journal.stats());
        }
        pump(&mut journal, &mut device, 1, 1);
    }
    let stats = journal.stats();
    assert!(stats.checkpoints > 3 && stats.log_written_bytes > 2 * stats.log_bytes, "{stats:?}");
    journal.want_sealed(journal.appended());
    pump(&mut journal, &mut device, 1, 200);
    let before = state(&mut journal, &mut device);
    drop(journal);
    let (mut journal, _) = journal::open(&mut device, &config, table_bytes).unwrap();
    assert_eq!(state(&mut journal, &mut device), before);
}
