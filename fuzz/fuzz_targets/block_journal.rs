//! A cache device may hold any bytes: opening it, and going on with it, must end without a panic. The first byte of an input says
//! how the rest is used: as records, or as patches to the image of a cache that has lived; and how much of its table is kept in
//! memory.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use tiermem_base::Rng;
use tiermem_block::journal::{self, Journal, Layout, LayoutConfig, Reader, Record, VolumeInfo, VolumeState};
use tiermem_tier::block::{BlockIo, MemoryDisk};

/// The table has three pages then, of which the least that may be kept in memory is two.
const DISK_BYTES: usize = 4 << 20;
/// Patches may fall into so much of the data as well: opening reads data that power loss may have spoiled.
const DATA_BYTES: usize = 64 << 10;

fn config() -> LayoutConfig {
    LayoutConfig { block_bytes: vec![4096, 8192], group_bytes: None, log_bytes: Some(256 << 10) }
}

/// Opens what the disk holds, visits all of it, and appends `count` rounds of records more. How many blocks there were; `None` if
/// it is refused.
fn live(disk: &MemoryDisk, table_bytes: Option<u64>, count: u64) -> Option<usize> {
    let mut device = disk.open();
    let (mut journal, _) = journal::open(&mut device, &config(), table_bytes).ok()?;
    let mut blocks = Vec::new();
    // What was just recovered can be read.
    journal.each_block(&mut device, |block| blocks.push(block.clone())).expect("a cache that could be opened");
    let units = journal.layout().units();
    for block in blocks.iter().take(64) {
        for unit in block.valid.iter().cloned().flatten() {
            assert!(unit < units, "unit {unit} of {units}");
            while !journal.has_sums(unit..unit + 1) {
                pump(&mut journal, &mut device);
            }
            assert!(journal.sum(unit).is_some() || journal.has_lost_sums(unit..unit + 1), "unit {unit}");
        }
        journal.append(Record::Unmap { slot: block.slot, class: block.class });
    }
    let mut rng = Rng::seeded(count);
    let slots = u64::from(journal.layout().geometry.slots());
    for number in 0..count {
        let slot = rng.below(slots) as u32 & !1;
        journal.append(Record::Unmap { slot, class: 0 });
        journal.append(Record::Map { slot, class: 1, volume: 1, piece: number * 2 });
        journal.append(Record::Units { first: slot.into(), dirty: number % 2 == 0, sums: &[1, 2] });
        if number % 9 == 0 {
            let (name, state) = (number.to_string(), VolumeState::Writing { which: None });
            journal.append(Record::Volume(&VolumeInfo { number: 1, name, size_bytes: 1, state, marks: None }));
        }
        journal.want_sealed(journal.appended());
        pump(&mut journal, &mut device);
    }
    Some(blocks.len())
}

fn pump(journal: &mut Journal, device: &mut dyn BlockIo) {
    let (mut requests, mut done) = (Vec::new(), Vec::new());
    journal.poll(0, &mut requests);
    device.submit_all(&mut requests);
    device.completed(&mut done);
    done.into_iter().for_each(|done| journal.complete(done));
}

/// The front of a cache whose log has gone round, and which was killed. It holds no data behind that.
fn image() -> &'static [u8] {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let disk = MemoryDisk::new(DISK_BYTES);
        journal::format(&mut disk.open(), &config(), false).expect("an empty disk");
        live(&disk, None, 400);
        let layout = Layout::plan(DISK_BYTES as u64, &config()).expect("a disk that was formatted");
        assert!(layout.pages > 2, "{} pages", layout.pages);
        let image = disk.with_bytes(|bytes| bytes[..layout.data_at as usize + DATA_BYTES].to_vec());
        // Patches to what is refused anyway would try nothing.
        assert!(live(&disk, Some(0), 0).is_some_and(|blocks| blocks > 0), "the image is no cache that has lived");
        image
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
        let bytes = &mut bytes[..image().len()];
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
    // All of the table, or as little as can be.
    live(&disk, (mode % 4 == 3).then_some(0), 20);
});
