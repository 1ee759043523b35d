//! Forged metadata with valid checksums and nonsensical contents: it must be refused or tolerated, never cause a panic.

use proptest::prelude::*;
use tiermem_tier::block::{BlockIo, MemoryDisk};

use super::batch::{self, HEADER_BYTES, Header};
use super::bytes::{crc, put};
use super::finish_recovery::drive;
use super::page::{self, PAGE_BYTES};
use super::superblock::{Superblock, SuperblockState};
use super::{Journal, LayoutConfig, Lsn, Record, VolumeInfo, VolumeState, format, open};

fn config() -> LayoutConfig {
    LayoutConfig { block_bytes: vec![4096, 8192], group_bytes: None, log_bytes: Some(256 << 10) }
}

fn sealed(device: &mut dyn BlockIo, journal: &mut Journal) -> Result<(), super::JournalError> {
    let lsn = journal.appended();
    journal.want_sealed(lsn);
    drive(device, journal, |journal| journal.sealed() >= lsn)
}

/// A cache with one batch of many records and one that seals it.
fn image() -> Vec<u8> {
    let disk = MemoryDisk::new(2 << 20);
    let mut device = disk.open();
    format(&mut device, &config(), false).unwrap();
    let (mut journal, _) = open(&mut device, &config(), None).unwrap();
    for slot in (0..40).step_by(2) {
        journal.append(Record::Map { slot, class: 1, volume: 0, piece: slot.into() });
        journal.append(Record::Units { first: slot.into(), dirty: slot % 4 == 0, sums: &[1, 2] });
        journal.append(Record::Open { slot });
    }
    let volume = VolumeInfo {
        number: 0,
        name: "v".into(),
        size_bytes: 1,
        state: VolumeState::Writing { which: None },
        marks: None,
    };
    journal.append(Record::Volume(&volume));
    sealed(&mut device, &mut journal).unwrap();
    disk.with_bytes(|bytes| bytes.to_vec())
}

/// Makes all checksums fit, from the batches to the superblocks that name one.
fn reseal(bytes: &mut [u8], uuid: &[u8; 16], log_at: usize, table_at: usize, pages: u32) {
    let mut at = log_at;
    let (mut first, mut previous) = (None, 0);
    while at + HEADER_BYTES <= table_at {
        let batch = &mut bytes[at..table_at];
        let sum = crc(uuid, &[&batch[4..HEADER_BYTES]]);
        put(batch, 0, &sum.to_le_bytes());
        let Some((header, _)) = Header::read(uuid, batch) else { break };
        let len = header.batch_bytes() as usize;
        if len > batch.len() || header.sequence == 0 {
            break;
        }
        let body_sum = batch::body_sum(uuid, &batch[HEADER_BYTES..HEADER_BYTES + header.body_bytes as usize]);
        previous = Header { body_sum, previous_sum: previous, ..header }.write(uuid, batch);
        first = first.or(Some((header.sequence, previous)));
        at += len;
    }
    for place in 0..2 * pages as usize {
        let image = &mut bytes[table_at + place * PAGE_BYTES..][..PAGE_BYTES];
        let version = page::version(image);
        page::seal(image, uuid, place as u32 / 2, version);
    }
    for copy in 0..2 {
        let block = &mut bytes[copy * PAGE_BYTES..][..PAGE_BYTES];
        if let Some((sequence, sum)) = first {
            put(block, 64, &0u64.to_le_bytes());
            put(block, 72, &sequence.to_le_bytes());
            put(block, 80, &sum.to_le_bytes());
        }
        put(block, 24, uuid);
        let sum = crc(uuid, &[&block[..12], &block[16..]]);
        put(block, 12, &sum.to_le_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nonsense_with_fitting_checksums_is_no_panic(
        patches in proptest::collection::vec(
            (0u8..6, any::<u16>(), proptest::collection::vec(prop_oneof![Just(0u8), Just(255), any::<u8>(), 0u8..13], 1..9)),
            1..5,
        ),
    ) {
        static IMAGE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let mut bytes = IMAGE.get_or_init(image).clone();
        let SuperblockState::Sound(superblock) = Superblock::read(&bytes[..PAGE_BYTES]) else { panic!("a superblock") };
        let layout = superblock.layout(bytes.len() as u64, &config()).unwrap();
        let (log_at, table_at) = (layout.log_at as usize, layout.table_at as usize);
        for (part, at, patch) in patches {
            let at = usize::from(at);
            let at = match part {
                0 => at % 2 * PAGE_BYTES + 16 + at / 2 % 116,
                1 => log_at + at % 3 * PAGE_BYTES + 8 + at / 3 % 48,
                2 => log_at + PAGE_BYTES + HEADER_BYTES + at % 600,
                3 => table_at + at % 2 * PAGE_BYTES + 8 + at / 2 % 20,
                _ => table_at + at % (2 * layout.pages as usize * PAGE_BYTES - 16),
            };
            put(&mut bytes, at, &patch);
        }
        reseal(&mut bytes, &superblock.uuid, log_at, table_at, layout.pages);
        let disk = MemoryDisk::new(bytes.len());
        disk.with_bytes(|it| it.copy_from_slice(&bytes));
        let mut device = disk.open();
        if let Ok((mut journal, _)) = open(&mut device, &config(), None) {
            let mut blocks = Vec::new();
            journal.each_block(&mut device, |block| blocks.push((block.slot, block.class))).unwrap();
            for (slot, class) in blocks {
                let lsn = journal.append(Record::Unmap { slot, class });
                prop_assert!(lsn > Lsn(0));
            }
            journal.want_checkpoint();
            let _ = sealed(&mut device, &mut journal);
            prop_assert!(open(&mut device, &config(), None).is_ok() || journal.failed().is_some());
        }
    }
}
