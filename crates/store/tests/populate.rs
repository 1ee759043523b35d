//! Populating of memory as seen in the whole process's figures:
//! alone in its program, so that no other test's memory is in them.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.
#![cfg(target_arch = "x86_64")]

use std::time::{Duration, Instant};

use tiermem_base::{Bytes, TierKind, TierSpec};
use tiermem_store::engine::{Condition, Engine, EngineConfig, Expiry};
use tiermem_sys::memory::resident_bytes;

const MIB: u64 = 1 << 20;

fn engine(capacity: u64) -> Engine {
    let dram = TierSpec::new(TierKind::Dram, Bytes(capacity));
    let mut engine = Engine::new(EngineConfig::new(vec![dram])).unwrap();
    engine.set_clock(1_000_000);
    engine
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn has_thread() -> bool {
    let mut threads = std::fs::read_dir("/proc/self/task").unwrap();
    threads.any(|thread| {
        let name = std::fs::read_to_string(thread.unwrap().path().join("comm"));
        name.is_ok_and(|name| name.trim() == "populate")
    })
}

#[test]
fn memory_is_there_before_it_is_written_and_counts_when_it_is() {
    let mut small = engine(16 * MIB);
    small.between_requests().tick();
    small.set(0, b"key", &[1; 100], Condition::Always, Expiry::Never).unwrap();
    (0..100).for_each(|_| assert!(small.get(0, b"key").is_some()));
    assert!(!has_thread(), "a small tier takes nothing ahead");

    let before = resident_bytes().unwrap();
    let mut engine = engine(256 * MIB);
    engine.between_requests().tick();
    wait_until("the thread starts", has_thread);
    wait_until("there is memory before the first item", || resident_bytes().unwrap() >= before + 2 * MIB);
    let used = engine.stats().tiers[0].used_bytes;
    engine.set(0, b"key", &[1; 100], Condition::Always, Expiry::Never).unwrap();
    // A sixteenth of the tier follows, in a step.
    (0..100).for_each(|_| assert!(engine.get(0, b"key").is_some()));
    wait_until("there is more behind it", || resident_bytes().unwrap() >= before + 16 * MIB);
    assert!(resident_bytes().unwrap() < before + 24 * MIB);
    assert!(engine.stats().tiers[0].used_bytes < used + MIB, "only what items hold is used");
    assert_eq!(engine.get(0, b"key").unwrap().value, [1; 100]);
    // The thread ends with the engine, and all the memory goes.
    drop(engine);
    wait_until("the thread ends", || !has_thread());
    wait_until("the memory goes", || resident_bytes().unwrap() < before + 4 * MIB);
}
