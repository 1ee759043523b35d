//! A flash tier's region may hold any bytes: opening it, reading every item that it claims to have, and going on with it must
//! end without a panic. The first byte of an input says how the rest is used: as what a reader of the format is given, as
//! patches to the image of a region that has lived, or as the fields of a sound superblock and checkpoint over such patches.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use tiermem_policy::index::Found;
use tiermem_policy::log::Admission;
use tiermem_policy::shard::Staged;
use tiermem_tier::block::MemoryDisk;
use tiermem_store::flash::FlashConfig;
use tiermem_store::flash::format::{
    BLOCK_BYTES, CheckpointHeader, ItemHeader, Layout, SegmentHeader, Superblock, find_item,
};
use world::World;

/// What the tests of the flash tier drive it with.
#[path = "../../crates/store/tests/flash_world/mod.rs"]
mod world;

const SEGMENT_BYTES: u32 = 16 << 10;
const REGION_BYTES: u64 = 512 << 10;

fn config() -> FlashConfig {
    FlashConfig { admission: Admission::All, ..FlashConfig::whole(REGION_BYTES, SEGMENT_BYTES, 3) }
}

/// Opens what the disk holds, reads all of it, and writes `count` items more.
fn live(disk: &MemoryDisk, count: u32) {
    let Ok(mut world) = World::open(Box::new(disk.open()), config()) else { return };
    let mut hashes = Vec::new();
    world.shard.memory().keys().entries(0, usize::MAX, |hash, found| {
        if let Found::Log(_) = found {
            hashes.push(hash);
        }
    });
    for hash in hashes {
        if world.place(hash).is_none() {
            continue;
        }
        let (away, id) = world.ask(hash);
        world.advance();
        if world.shard.stage(&away) == Staged::Here && world.flash.is_ready(id, None) {
            let _ = world.flash.take(id).map(|item| (item.key().len(), item.value().len()));
        } else {
            world.flash.cancel(id);
        }
    }
    for number in 0..count {
        let db = number as u8 % 3;
        if number % 5 == 0 {
            world.delete(db, number / 2);
        }
        let _ = world.offer(db, number, &[7; 90], None);
        world.advance();
        world.flash.commit();
    }
    let _ = world.close();
}

/// A region with a checkpoint or two behind it.
fn image() -> &'static [u8] {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let disk = MemoryDisk::new(REGION_BYTES as usize);
        live(&disk, 6000);
        disk.with_bytes(|bytes| bytes.to_vec())
    })
}

/// Patches: three bytes of place, one of length, the bytes.
fn patch(bytes: &mut [u8], mut patches: &[u8]) {
    while let [a, b, c, len, rest @ ..] = patches {
        let at = u32::from_le_bytes([*a, *b, *c, 0]) as usize % bytes.len();
        let (new, behind) = rest.split_at(usize::from(*len).min(rest.len()));
        for (byte, new) in bytes[at..].iter_mut().zip(new) {
            *byte = *new;
        }
        patches = behind;
    }
}

/// Sound blocks that say what the input says.
fn seal(bytes: &mut [u8], fields: &[u8; 32]) {
    let word = |at: usize| u32::from_le_bytes([fields[at], fields[at + 1], fields[at + 2], fields[at + 3]]);
    let Some(layout) = Layout::divide(0, REGION_BYTES, SEGMENT_BYTES) else { return };
    for which in 0..2 {
        let at = which * BLOCK_BYTES;
        let mut block = [0; BLOCK_BYTES];
        block.copy_from_slice(&bytes[at..at + BLOCK_BYTES]);
        let Ok(Some(found)) = Superblock::read(&block) else { continue };
        let checkpoint = word(0) % (layout.segments + 2);
        let sealed = Superblock {
            checkpoint,
            journal_half: word(4) % 3,
            journal_skipped: word(8) >> (fields[30] % 32),
            journal_sequence: found.journal_sequence.wrapping_add(word(12) >> (fields[31] % 32)),
            next_sequence: word(16),
            flushed: [word(20); 16],
            items: [u64::from(word(24)); 16],
            ..found
        };
        bytes[at..at + BLOCK_BYTES].copy_from_slice(&sealed.write());
        if checkpoint < layout.segments {
            let start = layout.segment(checkpoint) as usize;
            let segments = u32::from(fields[28]) % 64;
            let entries = u32::from(fields[29]) * 4;
            let next = if fields[28] > 250 { checkpoint } else { u32::MAX };
            CheckpointHeader { uuid: found.uuid, epoch: 1, next, segments, entries }
                .seal(&mut bytes[start..start + SEGMENT_BYTES as usize]);
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((mode, rest)) = input.split_first() else { return };
    if mode % 4 == 0 {
        let sequence = rest.get(4..8).map_or(0, |it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]));
        let _ = ItemHeader::read(rest, sequence).map(|header| assert!(header.item_len() <= rest.len()));
        let hash = rest
            .get(8..16)
            .map_or(0, |it| it.iter().rev().fold(0, |hash, &byte| hash << 8 | u64::from(byte)));
        let _ = find_item(rest, usize::from(*mode), hash, sequence);
        let _ = SegmentHeader::read(rest);
        let _ = CheckpointHeader::read(rest);
        return;
    }
    let disk = MemoryDisk::new(REGION_BYTES as usize);
    disk.with_bytes(|bytes| {
        bytes.copy_from_slice(image());
        match rest.split_first_chunk::<32>() {
            Some((fields, patches)) if mode % 4 == 1 => {
                patch(bytes, patches);
                seal(bytes, fields);
            }
            _ => patch(bytes, rest),
        }
    });
    live(&disk, 200);
});
