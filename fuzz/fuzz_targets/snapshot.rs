//! A snapshot may hold any bytes: reading all of it, and loading what it claims to have, must end without a panic. The first
//! byte of an input says how the rest is used: as a file, as a header's bytes, or as the items of a sound block.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tiermem_base::{Bytes, TierKind, TierSpec};
use tiermem_store::engine::{Engine, EngineConfig};
use tiermem_store::snapshot::format::{Block, Blocks, Header, block_header, read_item};

fn engine() -> Engine {
    let tier = |name: &str, mib: u64| TierSpec::new(TierKind::Dram, Bytes(mib << 20)).named(name);
    let config = EngineConfig { spin: false, ..EngineConfig::new(vec![tier("dram", 1), tier("more", 1)]) };
    Engine::new(config).expect("memory")
}

/// Takes everything in, and goes over all of it.
fn read(file: &[u8]) {
    let mut blocks = Blocks::new(file);
    let mut buffer = Vec::new();
    let mut engine = engine();
    engine.set_clock(1000);
    loop {
        match blocks.next(&mut buffer) {
            Block::Items(_) => {
                let mut rest = &buffer[..];
                while let Some(item) = read_item(&mut rest) {
                    engine.restoring().restore(&item, item.on_flash);
                    let found = engine.get(item.db % 16, item.key).map(|hit| hit.value.len());
                    assert!(found.is_none_or(|len| len <= buffer.len()));
                }
            }
            Block::Damaged(_) => {}
            Block::End(_) | Block::Cut => break,
        }
    }
    engine.between_requests().tick();
}

fuzz_target!(|input: &[u8]| {
    let Some((&how, bytes)) = input.split_first() else { return };
    match how % 3 {
        0 => read(bytes),
        1 => {
            let _ = Header::read(bytes);
        }
        _ => read(&[&block_header(bytes, 1, 0)[..], bytes].concat()),
    }
});
