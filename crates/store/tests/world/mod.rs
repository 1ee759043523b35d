//! Shared code of tests with engines that are closed and opened
//! again: tiers, keys, values, and the expected value of each key.
#![allow(clippy::unwrap_used, dead_code)] // Helpers of tests are tests, and not every test needs all of them.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use tiermem_base::{Bytes, TierKind, TierSpec};
use tiermem_policy::log::Admission;
use tiermem_store::engine::{Condition, Engine, Expiry};
use tiermem_store::flash::{Durability, FlashConfig};
use tiermem_tier::block::{BlockIo, MemoryDisk};

/// The time at which everything begins.
pub const START_MS: u64 = 1000;

const SEGMENT_BYTES: u32 = 64 << 10;

/// A file that is removed on drop.
pub struct TempPath(pub PathBuf);

impl TempPath {
    pub fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        TempPath(std::env::temp_dir().join(format!("tiermem-store-{}-{number}", std::process::id())))
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub fn tier(name: &str, kind: TierKind, mib: u64) -> TierSpec {
    TierSpec::new(kind, Bytes(mib << 20)).named(name)
}

/// Gives an engine the whole of a disk, which admits every item that leaves memory.
pub fn attach_flash(engine: &mut Engine, disk: &MemoryDisk) {
    attach_flash_in_boot(engine, disk, 1, Durability::Process);
}

/// The same in a certain boot of the machine.
pub fn attach_flash_in_boot(engine: &mut Engine, disk: &MemoryDisk, boot: u8, durability: Durability) {
    let device = disk.open();
    // Where nothing is found a region is made anew, never with the seed of a former one.
    let hash_seed = 99 + (u64::from(boot) << 33);
    let config = FlashConfig {
        admission: Admission::All,
        boot_id: [boot; 16],
        durability,
        ..FlashConfig::whole(device.capacity_bytes(), SEGMENT_BYTES, hash_seed)
    };
    engine.flash().attach("flash", None, Box::new(device), &config).unwrap();
}

pub fn items_in(engine: &Engine, tier: usize) -> u64 {
    engine.stats().tiers[tier].items
}

pub fn name(key: impl Display) -> Vec<u8> {
    format!("key:{key}").into_bytes()
}

/// A value that says which version it is, `len` bytes beside that.
pub fn value(version: usize, len: usize) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    value.resize(len + 8, version as u8);
    value
}

/// Stores a value, replacing an older one without reading it from flash.
pub fn set(engine: &mut Engine, key: impl Display, value: &[u8], expiry: Expiry) {
    assert!(engine.set(0, &name(key), value, Condition::Always, expiry).unwrap());
}

/// State of an existing key.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    pub value: Vec<u8>,
    pub expires_at_ms: Option<u64>,
}

/// Brings a key near, from wherever it lies, and looks at it.
pub fn look(engine: &mut Engine, key: impl Display) -> Option<Known> {
    let name = name(key);
    engine.flash_reads().resolve(0, &name);
    let expiry = engine.expires_at(0, &name);
    let value = engine.get(0, &name)?.value.to_vec();
    Some(Known { value, expires_at_ms: expiry.unwrap() })
}

/// A change made to an engine and to a map alike.
#[derive(Clone, Debug)]
pub enum Change {
    Set(u16, usize),
    SetForAWhile(u16, usize, u64),
    Get(u16),
    Remove(u16),
    Expire(u16, Option<u64>),
    Wait(u64),
    FlushDb,
}

/// Changes of `keys` different keys with values of such lengths.
pub fn changes(keys: u16, len: BoxedStrategy<usize>) -> impl Strategy<Value = Change> {
    prop_oneof![
        40 => (0..keys, len.clone()).prop_map(|(key, len)| Change::Set(key, len)),
        5 => (0..keys, len, 1u64..5000).prop_map(|(key, len, ms)| Change::SetForAWhile(key, len, ms)),
        35 => (0..keys).prop_map(Change::Get),
        8 => (0..keys).prop_map(Change::Remove),
        5 => (0..keys, prop::option::of(1u64..5000)).prop_map(|(key, ms)| Change::Expire(key, ms)),
        3 => (1u64..1000).prop_map(Change::Wait),
        1 => Just(Change::FlushDb),
    ]
}

/// The expected state of each key, if it exists at all.
pub struct Model {
    pub known: BTreeMap<u16, Known>,
    pub now_ms: u64,
}

impl Model {
    pub fn new() -> Self {
        Model { known: BTreeMap::new(), now_ms: START_MS }
    }

    /// Sets the engine's clock, and forgets expired keys.
    pub fn set_clock(&mut self, engine: &mut Engine) {
        engine.set_clock(self.now_ms);
        self.known.retain(|_, known| known.expires_at_ms.is_none_or(|at_ms| at_ms > self.now_ms));
    }

    /// Does to the engine what is to be done, checks what it finds, and remembers what the key must be from now on.
    pub fn apply(&mut self, engine: &mut Engine, change: Change, version: usize) {
        match change {
            Change::Set(key, len) => {
                let value = value(version, len);
                set(engine, key, &value, Expiry::Never);
                self.known.insert(key, Known { value, expires_at_ms: None });
            }
            Change::SetForAWhile(key, len, ms) => {
                let (value, at_ms) = (value(version, len), self.now_ms + ms);
                set(engine, key, &value, Expiry::AtUnixMs(at_ms));
                self.known.insert(key, Known { value, expires_at_ms: Some(at_ms) });
            }
            Change::Get(key) => match look(engine, key) {
                Some(found) => assert_eq!(Some(&found), self.known.get(&key), "key {key}"),
                // Evicted, or lost with the memory that it was in.
                None => {
                    self.known.remove(&key);
                }
            },
            Change::Remove(key) => {
                engine.flash_reads().resolve(0, &name(key));
                let was = engine.remove(0, &name(key));
                assert!(!was || self.known.contains_key(&key), "key {key} was back");
                self.known.remove(&key);
            }
            Change::Expire(key, ms) => {
                engine.flash_reads().resolve(0, &name(key));
                let at_ms = ms.map(|ms| self.now_ms + ms);
                if engine.set_expires_at(0, &name(key), at_ms) {
                    self.known.get_mut(&key).expect("no key comes back").expires_at_ms = at_ms;
                }
            }
            Change::Wait(ms) => self.now_ms += ms,
            Change::FlushDb => {
                engine.flush(version.is_multiple_of(2).then_some(0));
                self.known.clear();
                assert_eq!(engine.len(0), 0);
            }
        }
    }
}
