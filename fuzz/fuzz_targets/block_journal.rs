//! A cache device may hold any bytes: opening it, and going on with it, must end without a panic. The first byte of an input says
//! how the rest is used: as records, or as patches to the image of a cache that has lived.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use tiermem_base::Rng;
use tiermem_block::journal::{self, Journal, LayoutConfig, Reader, Record, VolumeInfo, VolumeState};
use tiermem_tier::block::{BlockIo, MemoryDisk};

const DISK_BYTES: usize = 1 << 20;

fn config() -> LayoutConfig {
    LayoutConfig { block_bytes: vec![4096, 8192], group_bytes: None, log_bytes: Some(256 << 10) }
}

/// Opens what the disk holds, visits all of it, and appends `count` records more.
fn live(disk: &MemoryDisk, count: u64) {
    let mut device = disk.open();
    let Ok((mut journal, _)) = journal::open(&mut device, &config()) else { return };
    let mut blocks = Vec::new();
    journal.each_block(|block| blocks.push((block.slot, block.class, block.valid.clone())));
    let units = journal.layout().units();
    for (slot, class, valid) in blocks.drain(..).take(64) {
        for unit in valid.into_iter().flatten() {
            assert!(unit < units && journal.sum(unit).is_some());
        }
        journal.append(Record::Unmap { slot, class });
    }
    let mut rng = Rng::seeded(count);
    let slots = u64::from(journal.layout().geometry.slots());
    for number in 0..count {
        let slot = rng.below(slots) as u32 & !1;
        journal.append(Record::Unmap { slot, class: 0 });
        journal.append(Record::Map { slot, class: 1, volume: 1, piece: number * 2 });
        journal.append(Record::Units { first: slot.into(), dirty: number % 2 == 0, sums: &[1, 2] });
        if number % 9 == 0 {
            let (name, state) = (number.to_string(), VolumeState::Writing);
            journal.append(Record::Volume(&VolumeInfo { number: 1, name, size_bytes: 1, state }));
        }
        journal.want_sealed(journal.appended());
        pump(&mut journal, &mut device);
    }
}

fn pump(journal: &mut Journal, device: &mut dyn BlockIo) {
    let (mut requests, mut done) = (Vec::new(), Vec::new());
    journal.poll(0, &mut requests);
    device.submit_all(&mut requests);
    device.completed(&mut done);
    done.into_iter().for_each(|done| journal.complete(done));
}

/// A cache whose log has gone round, and which was killed.
fn image() -> &'static [u8] {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let disk = MemoryDisk::new(DISK_BYTES);
        journal::format(&mut disk.open(), &config(), false).expect("an empty disk");
        live(&disk, 400);
        disk.with_bytes(|bytes| bytes.to_vec())
    })
}

fuzz_target!(|input: &[u8]| {
    let Some((mode, rest)) = input.split_first() else { return };
    if mode % 2 == 0 {
        let mut reader = Reader::new(rest);
        while reader.read().is_some() {}
        return;
    }
    let disk = MemoryDisk::new(DISK_BYTES);
    disk.with_bytes(|bytes| {
        bytes.copy_from_slice(image());
        // Patches: three bytes of place, one of length, the bytes.
        let mut patches = rest;
        while let [a, b, c, len, behind @ ..] = patches {
            let at = u32::from_le_bytes([*a, *b, *c, 0]) as usize % bytes.len();
            let (new, next) = behind.split_at(usize::from(*len).min(behind.len()));
            for (byte, new) in bytes[at..].iter_mut().zip(new) {
                *byte = *new;
            }
            patches = next;
        }
    });
    live(&disk, 20);
});
