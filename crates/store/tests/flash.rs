//! Engine over a small flash tier against a map: items are moved, the process crashes and restarts.
//! A key always has its newest value or, where it may have been evicted or lost in the crash, none.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;

use proptest::prelude::*;
use tiermem_base::{Rng, TierKind};
use tiermem_policy::ladder::{Eviction, Tuning};
use tiermem_store::engine::{Condition, Engine, EngineConfig, Expiry, StoreError};
use tiermem_store::flash::{Durability, Moment};
use tiermem_tier::block::MemoryDisk;
use world::{Change, Known, Model, START_MS, attach_flash_in_boot, look, name, set, tier, value};

fn engine(disk: &MemoryDisk) -> Engine {
    engine_in_boot(disk, 1, Durability::Process)
}

fn engine_in_boot(disk: &MemoryDisk, boot: u8, durability: Durability) -> Engine {
    let tiers = vec![tier("dram", TierKind::Dram, 1), tier("more", TierKind::Dram, 1)];
    let mut engine = Engine::new(EngineConfig::new(tiers)).unwrap();
    attach_flash_in_boot(&mut engine, disk, boot, durability);
    engine.set_clock(START_MS);
    engine
}

#[derive(Clone, Debug)]
enum Step {
    Plain(Change),
    SetIfAbsent(u16, usize),
    Restart { in_order: bool },
    PowerLoss(u64),
}

fn steps(keys: u16) -> impl Strategy<Value = Vec<Step>> {
    let len = || (0usize..6000).boxed();
    let step = prop_oneof![
        102 => world::changes(keys, len()).prop_map(Step::Plain),
        5 => (0..keys, len()).prop_map(|(key, len)| Step::SetIfAbsent(key, len)),
        2 => any::<bool>().prop_map(|in_order| Step::Restart { in_order }),
        1 => any::<u64>().prop_map(Step::PowerLoss),
    ];
    prop::collection::vec(step, 1..1500)
}

/// All replies have been sent, each as soon as that was allowed.
fn await_replies(engine: &mut Engine, promised: Moment) {
    let promised = promised.max(engine.commit());
    while !engine.flash().is_durable(promised) {
        engine.flash().advance();
    }
}

fn run(steps: Vec<Step>, flash_bytes: usize, durability: Durability) {
    let disk = MemoryDisk::new(flash_bytes);
    let mut boot = 1;
    let mut engine = engine_in_boot(&disk, boot, durability);
    let mut model = Model::new();
    // What the replies sent so far wait for: each step's own, and of those the last.
    let mut promised = Moment::default();
    for (version, step) in steps.into_iter().enumerate() {
        model.set_clock(&mut engine);
        match step {
            Step::Plain(change) => model.apply(&mut engine, change, version),
            Step::SetIfAbsent(key, len) => {
                engine.flash_reads().resolve(0, &name(key));
                let (there, value) = (engine.peek(0, &name(key)).is_some(), value(version, len));
                let set = engine.set(0, &name(key), &value, Condition::IfAbsent, Expiry::Never).unwrap();
                assert_eq!(set, !there);
                if set {
                    model.known.insert(key, Known { value, expires_at_ms: None });
                }
            }
            Step::Restart { in_order } => {
                await_replies(&mut engine, promised);
                if in_order {
                    engine.flash().close().unwrap();
                }
                drop(engine);
                engine = engine_in_boot(&disk, boot, durability);
                promised = Moment::default();
            }
            Step::PowerLoss(seed) => {
                await_replies(&mut engine, promised);
                disk.lose_some_unsynced(&mut Rng::seeded(seed));
                drop(engine);
                boot += 1;
                engine = engine_in_boot(&disk, boot, durability);
                promised = Moment::default();
            }
        }
        engine.flash_reads().unstage();
        promised = promised.max(engine.commit());
        if version % 10 == 0 {
            engine.between_requests().tick();
            engine.flash().tick();
        }
        if version % 30 == 0 {
            // A stop that was given up.
            engine.flash().write_back().unwrap();
        }
    }
    // The count includes keys in memory, keys on flash, and expired keys that no request has met yet.
    let count = engine.len(0);
    let mut found = 0;
    for key in model.known.keys() {
        engine.flash_reads().resolve(0, &name(key));
        found += u64::from(engine.peek(0, &name(key)).is_some());
        engine.flash_reads().unstage();
    }
    assert!(found <= count, "{found} keys found, {count} counted");
    if boot > 1 {
        // What was promised a place and is not there counts until it is met.
        return;
    }
    let expired = engine.stats().keys_with_expiry;
    assert!(count <= found + expired + 200, "{found} keys found, {count} counted");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// 2000 keys of 3 KB: a third in memory, a third on flash, a third evicted.
    #[test]
    fn a_full_store_is_never_wrong(steps in steps(2000)) {
        run(steps, 3 << 20, Durability::Process);
    }

    /// 300 keys that are overwritten all the time.
    #[test]
    fn a_busy_store_is_never_wrong(steps in steps(300)) {
        run(steps, 4 << 20, Durability::Process);
    }

    /// The same where replies wait for the device.
    #[test]
    fn a_store_that_outlives_power_loss_is_never_wrong(steps in steps(1000)) {
        run(steps, 4 << 20, Durability::Power);
    }
}

/// Counts how often it was woken.
#[derive(Default)]
struct Alarm(AtomicU32);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn who_waits_for_the_device_is_woken_when_it_has_taken_the_promise() {
    let disk = MemoryDisk::new(16 << 20);
    let mut engine = engine_in_boot(&disk, 1, Durability::Power);
    for key in 0..6000 {
        set(&mut engine, key, &value(key, 992), Expiry::Never);
        engine.commit();
        engine.flash().advance();
    }
    let cold = (0..6000).find(|key| engine.flash_reads().seek(0, &name(key)).is_some()).unwrap();
    let alarm = Arc::new(Alarm::default());
    set(&mut engine, cold, &value(1, 100), Expiry::Never);
    let promised = engine.commit();
    assert!(!engine.flash().is_durable(promised), "what lay on flash is gone, and may not be for good");
    engine.flash().wake_when_durable(promised, &Arc::clone(&alarm).into());
    assert_eq!(alarm.0.load(Ordering::Relaxed), 0);
    for _ in 0..4 {
        engine.flash().advance();
    }
    assert!(engine.flash().is_durable(promised));
    assert_eq!(alarm.0.load(Ordering::Relaxed), 1);
    engine.get(0, &name(cold)).unwrap();
    let promised = engine.commit();
    assert!(engine.flash().is_durable(promised), "a read promises nothing");
}

#[test]
fn everything_that_fits_is_there_and_counted_once() {
    let disk = MemoryDisk::new(32 << 20);
    let mut engine = engine(&disk);
    for key in 0..15_000 {
        set(&mut engine, key, &value(key, 992), Expiry::Never);
        if key % 16 == 0 {
            engine.flash().advance();
            engine.commit();
        }
    }
    assert_eq!(engine.len(0), 15_000);
    let mut cold = 0;
    for round in 0..2 {
        for key in 0..15_000 {
            cold += u64::from(engine.flash_reads().seek(0, &name(key)).is_some());
            engine.flash_reads().resolve(0, &name(key));
            let hit = engine.get(0, &name(key)).unwrap_or_else(|| panic!("key {key}, round {round}"));
            assert_eq!(hit.value, value(key, 992));
            engine.flash_reads().unstage();
            engine.commit();
        }
        assert_eq!(engine.len(0), 15_000);
    }
    assert!(cold > 20_000, "most lie on flash: {cold}");
    let stats = engine.stats();
    assert_eq!(stats.evicted, 0);
    let flash = stats.flash.unwrap();
    assert!(
        flash.unchanged > 0 || stats.tiers[2].promotions == 0,
        "what was read and not changed is not written again"
    );
    // A scan sees each of them.
    let mut seen = std::collections::BTreeSet::new();
    let mut cursor = 0;
    loop {
        for away in engine.flash_reads().seek_scan(cursor, 50) {
            let id = engine.flash_reads().ask(away).unwrap();
            while !engine.flash_reads().is_answered(id, std::task::Waker::noop()) {
                engine.commit();
                engine.flash().advance();
            }
            assert!(engine.flash_reads().stage(away, id));
        }
        cursor = engine.keyspace().scan(0, cursor, 50, &mut |key, _| {
            seen.insert(key.to_vec());
        });
        engine.flash_reads().unstage();
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(seen.len(), 15_000);
}

#[test]
fn where_nothing_may_be_evicted_writes_fail_before_anything_is_lost() {
    let disk = MemoryDisk::new(4 << 20);
    let mut engine = engine(&disk);
    let tuning = engine.memory().tuning();
    engine.memory_mut().tune(Tuning { eviction: Eviction::Forbidden, ..tuning });
    let mut stored = 0;
    let refused = loop {
        match engine.set(0, &name(stored), &value(stored, 992), Condition::Always, Expiry::Never) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        engine.flash().advance();
        engine.commit();
        assert!(stored < 100_000, "at some point it is full");
    };
    assert_eq!(refused, StoreError::OutOfMemory);
    assert_eq!(engine.stats().refused, 1);
    assert!(stored > 2500, "memory and flash are used: {stored}");
    for key in 0..stored {
        assert_eq!(look(&mut engine, key).map(|found| found.value), Some(value(key, 992)), "key {key}");
        engine.flash_reads().unstage();
        engine.commit();
    }
    assert_eq!(engine.stats().evicted, 0);
    // Some more than the new one: reading has moved items to flash, where ends of segments are lost to each.
    for key in stored - 100..stored {
        engine.flash_reads().resolve(0, &name(key));
        assert!(engine.remove(0, &name(key)));
        engine.flash_reads().unstage();
    }
    assert!(engine.set(0, b"again", &[0; 900], Condition::Always, Expiry::Never).is_ok());
}

/// Hot keys of one request want to move into memory, and there is no room for them: each has its own value all the same.
#[test]
fn keys_read_together_keep_their_own_values_where_memory_has_no_room() {
    let disk = MemoryDisk::new(4 << 20);
    let mut engine = engine(&disk);
    let tuning = engine.memory().tuning();
    engine.memory_mut().tune(Tuning { eviction: Eviction::Forbidden, ..tuning });
    let sizes = [992, 40_000, 5000];
    let mut stored = 0;
    while engine
        .set(0, &name(stored), &value(stored, sizes[stored % 3]), Condition::Always, Expiry::Never)
        .is_ok()
    {
        stored += 1;
        engine.flash().advance();
        engine.commit();
    }
    let cold: Vec<usize> =
        (0..stored).filter(|key| engine.flash_reads().seek(0, &name(key)).is_some()).take(6).collect();
    assert_eq!(cold.len(), 6);
    for round in 0..200 {
        cold.iter().for_each(|key| engine.flash_reads().resolve(0, &name(key)));
        for &key in &cold {
            let hit = engine.get(0, &name(key)).unwrap();
            assert!(hit.value == value(key, sizes[key % 3]), "key {key}, round {round}");
        }
        engine.flash_reads().unstage();
        engine.commit();
    }
}

/// An item that a request has found in memory is still there when it
/// runs, no matter which items the step before it sends to flash.
#[test]
fn a_key_in_memory_does_not_go_to_flash_under_its_request() {
    let disk = MemoryDisk::new(32 << 20);
    let mut engine = engine(&disk);
    for key in 0..15_000 {
        engine.flash_reads().prepare();
        set(&mut engine, key, &value(key as usize, 992), Expiry::Never);
        engine.commit();
    }
    let mut rng = tiermem_base::Rng::seeded(1);
    let (mut in_memory, mut fresh) = (0, 15_000);
    for _ in 0..300_000 {
        // New keys, so that something leaves memory at every step.
        fresh += 1;
        engine.flash_reads().prepare();
        set(&mut engine, fresh, &value(0, 992), Expiry::Never);
        set(&mut engine, fresh, b"", Expiry::Never);
        engine.remove(0, &name(fresh));
        let key = name(rng.below(15_000));
        engine.flash_reads().prepare();
        if engine.flash_reads().seek(0, &key).is_none() {
            in_memory += 1;
            assert!(engine.get(0, &key).is_some(), "it is there");
        }
        engine.commit();
    }
    assert!(in_memory > 10_000);
}

/// Keys in memory and on flash count once, no matter which copy is removed first.
#[test]
fn copies_that_go_one_by_one_are_counted_once() {
    let disk = MemoryDisk::new(3 << 20);
    let mut engine = engine(&disk);
    let mut rng = tiermem_base::Rng::seeded(2);
    let expiry =
        |key: u64| if key.is_multiple_of(4) { Expiry::AtUnixMs(1000 + key / 2) } else { Expiry::Never };
    for key in 0..20_000u64 {
        engine.set_clock(1000 + key / 4);
        // A writer waits while the flash tier has to catch up.
        while engine.set(0, &name(key), &value(key as usize, 600), Condition::Always, expiry(key)).is_err() {
            engine.between_requests().tick();
        }
        // The newest are read again and again, so that they come back from flash, and flash is full.
        for _ in 0..3 {
            let key = name(key.saturating_sub(rng.below(4000)));
            engine.flash_reads().resolve(0, &key);
            engine.get(0, &key);
            engine.flash_reads().unstage();
        }
        engine.commit();
        if key % 50 == 0 {
            engine.between_requests().tick();
        }
    }
    let stats = engine.stats();
    assert!(stats.tiers[2].promotions > 1000 && stats.tiers[2].evictions > 1000, "{stats:?}");
    // Expired keys that are met are removed.
    engine.set_clock(1_000_000);
    engine.between_requests().tick();
    let mut found = 0;
    for key in 0..20_000 {
        engine.flash_reads().resolve(0, &name(key));
        found += u64::from(engine.peek(0, &name(key)).is_some());
        engine.flash_reads().unstage();
    }
    assert_eq!(engine.len(0), found);
}
