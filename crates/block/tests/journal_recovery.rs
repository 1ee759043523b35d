//! Recovery interrupted at each of its steps, and checkpoints with other records added at each of theirs.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use tiermem_base::Rng;
use tiermem_block::journal::{
    self, Journal, LayoutConfig, Lsn, Record, UnitState, VolumeInfo, VolumeState, checksum,
};
use tiermem_tier::block::{BlockIo, Faults, Faulty, MemoryDisk};

fn config() -> LayoutConfig {
    LayoutConfig { block_bytes: vec![4096, 8192], group_bytes: None, log_bytes: Some(256 << 10) }
}

fn step(journal: &mut Journal, device: &mut dyn BlockIo) {
    let (mut requests, mut done) = (Vec::new(), Vec::new());
    journal.poll(1, &mut requests);
    device.submit_all(&mut requests);
    device.completed(&mut done);
    done.into_iter().for_each(|done| journal.complete(done));
}

fn until(journal: &mut Journal, device: &mut dyn BlockIo, is_done: impl Fn(&Journal) -> bool) {
    for _ in 0..100 {
        if is_done(journal) {
            return;
        }
        step(journal, device);
    }
    panic!("it never happens: {:?}", journal.stats());
}

fn sealed(journal: &mut Journal, device: &mut dyn BlockIo) {
    let lsn = journal.appended();
    journal.want_sealed(lsn);
    until(journal, device, |journal| journal.sealed() >= lsn);
}

fn write(journal: &Journal, device: &mut dyn BlockIo, slot: u32, byte: u8) -> u32 {
    let data = [byte; 4096];
    device.write_at(journal.layout().unit_at(slot.into()), &data).unwrap();
    checksum(0, u64::from(slot) * 4096, &data)
}

/// A cache with a unit for each case that recovery distinguishes, after the death of its process.
fn every_case() -> MemoryDisk {
    let disk = MemoryDisk::new(4 << 20);
    let mut device = disk.open();
    journal::format(&mut device, &config(), false).unwrap();
    let (mut journal, _) = journal::open(&mut device, &config(), None).unwrap();
    for slot in [0, 2, 4, 6, 8, 10] {
        journal.append(Record::Map { slot, class: 1, volume: 0, piece: slot.into() });
    }
    // Sealed: 0 dirty, 2 clean, 8 dirty, 10 lost.
    for (slot, dirty) in [(0, true), (2, false), (8, true)] {
        let sums = [write(&journal, &mut device, slot, 1)];
        journal.append(Record::Units { first: slot.into(), dirty, sums: &sums });
    }
    journal.append(Record::Poison(10..11));
    sealed(&mut journal, &mut device);
    // Overwritten in place without a record: 0 and 2. Recorded without their data: 4 dirty, 6 clean, 10 dirty.
    for slot in [0, 2, 10] {
        journal.append(Record::Open { slot });
    }
    journal.want_synced(journal.appended());
    until(&mut journal, &mut device, |journal| journal.synced() == journal.appended());
    write(&journal, &mut device, 0, 2);
    write(&journal, &mut device, 2, 2);
    for (slot, dirty) in [(4, true), (6, false), (10, true)] {
        journal.append(Record::Units { first: slot, dirty, sums: &[77] });
    }
    journal.want_written(journal.appended());
    until(&mut journal, &mut device, |journal| journal.written() == journal.appended());
    disk
}

fn states(journal: &Journal) -> Vec<(UnitState, Option<u32>)> {
    (0..12).map(|unit| (journal.state(unit), journal.sum(unit))).collect()
}

fn expected() -> Vec<(UnitState, Option<u32>)> {
    let mut states = vec![(UnitState::Invalid, None); 12];
    states[0] = (UnitState::Dirty, Some(checksum(0, 0, &[2; 4096])));
    states[8] = (UnitState::Dirty, Some(checksum(0, 8 * 4096, &[1; 4096])));
    states[10] = (UnitState::Poisoned, None);
    states
}

#[test]
fn each_case_ends_as_it_should() {
    let (journal, recovered) = journal::open(&mut every_case().open(), &config(), None).unwrap();
    assert_eq!(states(&journal), expected());
    assert!((0..12).all(|slot| !journal.is_open(slot)) && journal.is_recorded(4) && !journal.is_recorded(5));
    assert_eq!((recovered.blocks, recovered.kept_units), (6, 0));
    assert_eq!((recovered.taken_units, recovered.dropped_units, recovered.poisoned_units), (1, 3, 1));
}

#[test]
fn a_recovery_that_is_cut_off_is_done_again() {
    let mut failed = 0;
    for power in [false, true] {
        for spared in 0..60 {
            for again in [false, true] {
                let disk = every_case();
                disk.open().sync().unwrap();
                for spared in [spared].into_iter().chain(again.then_some(spared / 2)) {
                    let faults = Faults { error_after: Some(spared), ..Faults::default() };
                    let mut device = Faulty::new(disk.open(), faults, Rng::seeded(0));
                    failed += u32::from(journal::open(&mut device, &config(), None).is_err());
                    if power {
                        disk.lose_some_unsynced(&mut Rng::seeded(spared));
                    }
                }
                let (journal, _) = journal::open(&mut disk.open(), &config(), None).unwrap();
                assert_eq!(states(&journal), expected(), "power {power}, after {spared}, again {again}");
                // What was brought in order stays so.
                disk.lose_unsynced();
                let (journal, _) = journal::open(&mut disk.open(), &config(), None).unwrap();
                assert_eq!(states(&journal), expected());
            }
        }
    }
    assert!(failed > 50, "{failed}");
}

#[test]
fn recovery_in_a_loop_does_not_fill_the_log() {
    let disk = every_case();
    for _ in 0..300 {
        let (journal, _) = journal::open(&mut disk.open(), &config(), None).unwrap();
        assert_eq!(states(&journal), expected());
        assert!(journal.stats().log_used_bytes < 64 << 10, "{:?}", journal.stats());
    }
}

#[test]
fn a_volume_is_known_whenever_it_is_changed() {
    for at in 0..20 {
        let disk = MemoryDisk::new(4 << 20);
        let mut device = disk.open();
        journal::format(&mut device, &config(), false).unwrap();
        let (mut journal, _) = journal::open(&mut device, &config(), None).unwrap();
        let mut info = VolumeInfo {
            number: 3,
            name: "three".into(),
            size_bytes: 1,
            state: VolumeState::Writing { which: None },
            marks: None,
        };
        journal.append(Record::Volume(&info));
        sealed(&mut journal, &mut device);
        journal.append(Record::Map { slot: 0, class: 0, volume: 3, piece: 0 });
        journal.want_checkpoint();
        for _ in 0..at {
            step(&mut journal, &mut device);
        }
        info.size_bytes = 2;
        let lsn = journal.append(Record::Volume(&info));
        for _ in at..40 {
            step(&mut journal, &mut device);
        }
        assert!(journal.is_checkpointed() && lsn > Lsn(0));
        disk.lose_unsynced();
        let (mut journal, recovered) = journal::open(&mut disk.open(), &config(), None).unwrap();
        assert_eq!(recovered.volumes.len(), 1, "changed at step {at}");
        info.state = VolumeState::Removed;
        journal.append(Record::Volume(&info));
        assert_eq!(journal.volumes().count(), 0);
        sealed(&mut journal, &mut device);
        let (_, recovered) = journal::open(&mut disk.open(), &config(), None).unwrap();
        assert_eq!(recovered.volumes, []);
    }
}
