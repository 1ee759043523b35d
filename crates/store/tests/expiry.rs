//! Expiry that no request asks for: keys, and fields of hashes wherever these have come from, are taken out a piece at a time.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod world;

use std::slice;

use tiermem_base::TierKind;
use tiermem_store::engine::{Change, Condition, Engine, EngineConfig, Expiry, Holder, ValueKind};
use tiermem_store::hash::{self, Ttl};
use tiermem_store::snapshot::format::Taken;
use tiermem_store::snapshot::{Files, Load, Loaded, Saving};
use tiermem_tier::block::MemoryDisk;
use world::{START_MS, TempPath, attach_flash, name, tier};

const FLASH_BYTES: usize = 6 << 20;

fn engine() -> Engine {
    let mut engine = Engine::new(EngineConfig::new(vec![tier("dram", TierKind::Dram, 32)])).unwrap();
    engine.set_clock(START_MS);
    engine
}

/// Calls until nothing more is due, the first of which is a tick's; each takes at most `most` keys.
fn expire(engine: &mut Engine, most: u64) -> u64 {
    let (mut calls, mut before) = (1, engine.len(0));
    let mut more = engine.between_requests().tick();
    while more {
        calls += 1;
        before = engine.len(0);
        more = engine.between_requests().expire_piece();
        assert!(before - engine.len(0) <= most, "a piece is short");
    }
    assert!(engine.len(0) <= before);
    calls
}

/// A hash with fields that expire at these times; 0 is never.
fn hash_of(fields: &[u64]) -> Vec<u8> {
    let entries = fields.iter().map(|_| hash::entry_bytes(8, 3, true)).sum();
    let size = hash::plan(&[], fields.len(), entries, 1 << 20).unwrap().unwrap();
    let mut blob = vec![0; size.len];
    hash::rebuild(&[], &mut blob, size, 7, START_MS).unwrap();
    for (at, &expires_ms) in fields.iter().enumerate() {
        let ttl = if expires_ms == 0 { Ttl::Clear } else { Ttl::At(expires_ms) };
        hash::set(&mut blob, START_MS, format!("field{at:03}").as_bytes(), b"abc", ttl).unwrap();
    }
    blob
}

fn set_hash(engine: &mut Engine, key: impl std::fmt::Display, fields: &[u64]) {
    engine.flash_reads().prepare();
    let blob = hash_of(fields);
    engine.set_kind(0, &name(key), (ValueKind::Hash, &blob), Condition::Always, Expiry::Never).unwrap();
    engine.commit();
}

/// Fields that a hash has, those among them whose time is over.
fn count(engine: &mut Engine, key: impl std::fmt::Display) -> Option<usize> {
    engine.peek(0, &name(key)).map(|hit| hash::Hash::read(hit.value).unwrap().count())
}

#[test]
fn expired_keys_go_in_pieces_until_none_is_left_and_others_cost_nothing() {
    let mut engine = engine();
    for key in 0..100_000 {
        let expiry = if key < 20_000 { Expiry::AtUnixMs(START_MS + 500) } else { Expiry::Never };
        engine.set(0, &name(key), b"v", Condition::Always, expiry).unwrap();
    }
    assert_eq!(expire(&mut engine, 0), 1, "nothing is due");
    engine.set_clock(START_MS + 1000);
    assert!(engine.between_requests().expiry_late_ms() >= 300);
    let calls = expire(&mut engine, 64);
    assert_eq!((engine.len(0), engine.between_requests().expiry_late_ms()), (80_000, 0));
    assert!(calls <= 20_000 / 50, "{calls}");
    assert_eq!(expire(&mut engine, 0), 1, "a store without anything to expire is at rest");
}

#[test]
fn fields_go_without_a_request_and_the_hash_with_the_last_of_them() {
    let mut engine = engine();
    engine.changes().want(true);
    let (soon, later) = (START_MS + 500, START_MS + 60_000);
    for key in 0..2000 {
        set_hash(&mut engine, key, &[soon]);
    }
    set_hash(&mut engine, "some", &[soon, 0, later]);
    let many: Vec<u64> = (0..900).map(|at| [soon, later, 0][at % 3]).collect();
    set_hash(&mut engine, "table", &many);
    set_hash(&mut engine, "none", &[0, 0]);
    engine.changes().take();
    assert_eq!(expire(&mut engine, 0), 1, "nothing is due");
    engine.set_clock(START_MS + 1000);
    let requests = engine.requests();
    let calls = expire(&mut engine, 64);
    assert!((2000 / 64..2000 / 32).contains(&calls), "{calls}");
    assert_eq!((engine.len(0), engine.requests()), (3, requests), "it is nobody's request");
    assert_eq!(count(&mut engine, "some"), Some(2));
    assert_eq!((count(&mut engine, "table"), count(&mut engine, "none")), (Some(600), Some(2)));
    let changes = engine.changes().take();
    let of = |key: &str| {
        let key = name(key);
        changes.iter().filter(|it| it.2 == key.as_slice()).map(|it| it.0).collect::<Vec<_>>()
    };
    assert_eq!(
        (of("7"), of("some")),
        (vec![Change::FieldsExpired, Change::Removed], vec![Change::FieldsExpired])
    );
    // Those that remain have their own time.
    engine.set_clock(START_MS + 61_000);
    expire(&mut engine, 64);
    assert_eq!((count(&mut engine, "some"), count(&mut engine, "table")), (Some(1), Some(300)));
}

#[test]
fn a_pinned_hash_is_tried_again_and_what_was_one_before_is_left() {
    let mut engine = engine();
    let soon = START_MS + 500;
    set_hash(&mut engine, "pinned", &[soon, 0]);
    set_hash(&mut engine, "string", &[soon]);
    engine.set(0, &name("string"), b"text", Condition::Always, Expiry::Never).unwrap();
    set_hash(&mut engine, "gone", &[soon]);
    engine.remove(0, &name("gone"));
    let item = engine.get(0, &name("pinned")).unwrap().item;
    let pin = engine.pins().pin(item, Holder::Store).unwrap();
    engine.set_clock(START_MS + 1000);
    expire(&mut engine, 64);
    assert_eq!(
        (count(&mut engine, "pinned"), engine.len(0)),
        (Some(2), 2),
        "the reply goes on with the bytes"
    );
    engine.pins().unpin(pin);
    engine.set_clock(START_MS + 3000);
    expire(&mut engine, 64);
    assert_eq!(count(&mut engine, "pinned"), Some(1));
    assert_eq!(engine.get(0, &name("string")).unwrap().value, b"text");
}

#[test]
fn fields_of_hashes_that_a_start_has_found_go_too() {
    let (path, region) = (TempPath::new(), TempPath::new());
    let start = |session: u8| {
        let tiers = vec![tier("dram", TierKind::Dram, 1), tier("dax", TierKind::Dax, 4).at_path(&region.0)];
        let mut engine =
            Engine::new(EngineConfig { session: [session; 16], ..EngineConfig::new(tiers) }).unwrap();
        engine.warm_start().take_up(START_MS);
        let files = Files::open(&path.0).unwrap();
        let loaded = files.load(Load::Clean, slice::from_mut(&mut engine), |_| {});
        files.supersede().unwrap();
        (engine, loaded)
    };
    let (mut engine, _) = start(1);
    for key in 0..6000 {
        let mut fields = [0; 12];
        fields[0] = START_MS + 500;
        if key % 2 == 1 {
            fields.fill(START_MS + 500);
        }
        set_hash(&mut engine, key, &fields);
    }
    assert!(world::items_in(&engine, 0) > 100 && world::items_in(&engine, 1) > 100, "both have some");
    engine.warm_start().close().unwrap();
    Saving::run(&mut engine, &path.0, Taken::Stopped).unwrap();
    drop(engine);
    let (mut engine, loaded) = start(2);
    assert!(matches!(loaded, Loaded::Items(_)), "{loaded:?}");
    assert_eq!(engine.len(0), 6000);
    engine.set_clock(START_MS + 1000);
    expire(&mut engine, 64);
    assert_eq!(engine.len(0), 3000);
    assert!((0..6000).step_by(2).all(|key| count(&mut engine, key) == Some(11)));
    engine.commit();
    // What has changed in place is found as it is.
    drop(engine);
    let (mut engine, _) = start(3);
    assert!(engine.len(0) > 100);
    assert!((0..6000).filter_map(|key| count(&mut engine, key)).all(|fields| fields == 11));
}

#[test]
fn fields_of_a_hash_that_came_back_from_flash_go_and_do_not_return() {
    let disk = MemoryDisk::new(FLASH_BYTES);
    let mut engine = Engine::new(EngineConfig::new(vec![tier("dram", TierKind::Dram, 2)])).unwrap();
    attach_flash(&mut engine, &disk);
    engine.set_clock(START_MS);
    // So long that memory has room for some of them, with timers.
    let mut fields = [0; 31];
    fields[0] = START_MS + 500;
    for key in 0..8000 {
        set_hash(&mut engine, key, &fields);
        engine.flash().advance();
    }
    // Each is used until it is hot enough to be brought into memory.
    let hot: Vec<u32> = (0..50).collect();
    for key in hot.iter().chain(&hot).chain(&hot).chain(&hot) {
        engine.flash_reads().resolve(0, &name(key));
        engine.get(0, &name(key));
        engine.flash_reads().unstage();
        engine.commit();
        engine.flash().advance();
    }
    engine.set_clock(START_MS + 1000);
    expire(&mut engine, 64);
    let in_memory = world::items_in(&engine, 0);
    let expired = (0..8000).filter(|key| count(&mut engine, key) == Some(30)).count();
    assert!((500..7500).contains(&expired), "{expired}");
    assert_eq!(expired as u64, in_memory, "all of memory, and nothing of flash");
    let back = hot.iter().filter(|key| count(&mut engine, **key) == Some(30)).count();
    assert!(back > 5, "{back} of those that came back are among them");
    assert_eq!(engine.len(0), 8000);
}
