//! The engine over a tier that outlives the process, with and without flash below, against a map: it is dropped at any step,
//! as a kill does, and opened again over the same file. What lay in that tier is back, as it was; nothing else ever is.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use tiermem_base::Bytes;
use tiermem_policy::log::Admission;
use tiermem_store::engine::{Condition, Engine, EngineConfig, Expiry, TakenUp, ValueKind};
use tiermem_tier::block::MemoryDisk;
use tiermem_tier::device::MappedSpec;
use tiermem_tier::flash::FlashConfig;
use tiermem_tier::{Kind, TierSpec};

const SEGMENT_BYTES: u32 = 64 << 10;
const FLASH_BYTES: u64 = 6 << 20;

/// A machine whose store may die.
struct Machine {
    path: PathBuf,
    disk: Option<MemoryDisk>,
    sessions: u8,
}

impl Machine {
    fn new(flash: bool) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tiermem-keep-{}-{number}", std::process::id()));
        Machine { path, disk: flash.then(|| MemoryDisk::new(FLASH_BYTES as usize)), sessions: 0 }
    }

    fn start(&mut self, now_ms: u64) -> (Engine, TakenUp) {
        self.sessions = self.sessions.wrapping_add(1);
        let spec = MappedSpec { path: self.path.clone(), layout: 0, reset: false };
        let tier = |name: &str, kind: Kind, mib: u64| TierSpec {
            name: name.to_owned(),
            kind,
            capacity: Bytes(mib << 20),
            price_per_gb: None,
        };
        let tiers = vec![tier("dram", Kind::Dram, 1), tier("dax", Kind::Mapped(spec), 2)];
        let session = [self.sessions; 16];
        let mut engine = Engine::new(EngineConfig { session, ..EngineConfig::new(tiers) }).unwrap();
        if let Some(disk) = &self.disk {
            let config = FlashConfig {
                admission: Admission::All,
                boot_id: [1; 16],
                ..FlashConfig::whole(FLASH_BYTES, SEGMENT_BYTES, 99)
            };
            engine.attach_flash("flash", None, Box::new(disk.open()), &config).unwrap();
        }
        let found = engine.take_up(now_ms);
        (engine, found)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn items(engine: &Engine, tier: usize) -> u64 {
    engine.stats().tiers[tier].items
}

fn name(key: u16) -> Vec<u8> {
    format!("key:{key}").into_bytes()
}

fn value(version: usize, len: usize) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    value.resize(len + 8, version as u8);
    value
}

#[derive(Clone, Debug)]
enum Step {
    Set(u16, usize),
    SetForAWhile(u16, usize, u64),
    /// A value that is changed where it lies.
    Change(u16),
    /// A value that is built anew, longer.
    Build(u16, usize),
    Get(u16),
    Remove(u16),
    Expire(u16, Option<u64>),
    Wait(u64),
    FlushDb,
    Restart {
        in_order: bool,
    },
    /// A request dies with the store, unanswered.
    DieSetting(u16, usize),
    DieRemoving(u16),
}

fn steps(keys: u16) -> impl Strategy<Value = Vec<Step>> {
    // Some take pages of their own.
    let len = || prop_oneof![20 => 0usize..3000, 1 => 50_000usize..200_000];
    let step = prop_oneof![
        40 => (0..keys, len()).prop_map(|(key, len)| Step::Set(key, len)),
        5 => (0..keys, len(), 1u64..5000).prop_map(|(key, len, ms)| Step::SetForAWhile(key, len, ms)),
        8 => (0..keys).prop_map(Step::Change),
        5 => (0..keys, len()).prop_map(|(key, len)| Step::Build(key, len)),
        30 => (0..keys).prop_map(Step::Get),
        8 => (0..keys).prop_map(Step::Remove),
        5 => (0..keys, prop::option::of(1u64..5000)).prop_map(|(key, ms)| Step::Expire(key, ms)),
        3 => (1u64..1000).prop_map(Step::Wait),
        1 => Just(Step::FlushDb),
        1 => any::<bool>().prop_map(|in_order| Step::Restart { in_order }),
        1 => (0..keys, len()).prop_map(|(key, len)| Step::DieSetting(key, len)),
        1 => (0..keys).prop_map(Step::DieRemoving),
    ];
    prop::collection::vec(step, 1..1500)
}

#[derive(Clone, Debug, PartialEq)]
struct Known {
    value: Vec<u8>,
    expires_at_ms: Option<u64>,
}

fn look(engine: &mut Engine, key: u16) -> Option<Known> {
    engine.resolve(0, &name(key));
    let expiry = engine.expires_at(0, &name(key));
    let value = engine.get(0, &name(key))?.value.to_vec();
    Some(Known { value, expires_at_ms: expiry.unwrap() })
}

fn run(steps: Vec<Step>, flash: bool) -> u64 {
    let mut machine = Machine::new(flash);
    let mut now_ms = 1000;
    let mut engine = machine.start(now_ms).0;
    let mut model: BTreeMap<u16, Known> = BTreeMap::new();
    let mut taken_up = 0;
    for (version, step) in steps.into_iter().enumerate() {
        engine.set_clock(now_ms);
        model.retain(|_, known| known.expires_at_ms.is_none_or(|at_ms| at_ms > now_ms));
        let mut unsure = None;
        let mut dies = None;
        match step {
            Step::Set(key, len) => {
                let value = value(version, len);
                engine.set(0, &name(key), &value, Condition::Always, Expiry::Never).unwrap();
                model.insert(key, Known { value, expires_at_ms: None });
            }
            Step::SetForAWhile(key, len, ms) => {
                let (value, at_ms) = (value(version, len), now_ms + ms);
                engine.set(0, &name(key), &value, Condition::Always, Expiry::AtUnixMs(at_ms)).unwrap();
                model.insert(key, Known { value, expires_at_ms: Some(at_ms) });
            }
            Step::Change(key) => {
                engine.resolve(0, &name(key));
                let there = engine.value_mut(0, &name(key)).unwrap().map(|found| {
                    found.bytes[0] ^= 0xFF;
                    found.item
                });
                if let Some(item) = there {
                    *engine.value_again_mut(item).last_mut().unwrap() ^= 0xFF;
                    let known = model.get_mut(&key).expect("no key comes back");
                    known.value[0] ^= 0xFF;
                    *known.value.last_mut().unwrap() ^= 0xFF;
                } else {
                    model.remove(&key);
                }
            }
            Step::Build(key, len) => {
                engine.resolve(0, &name(key));
                let value = value(version, len);
                engine
                    .build(0, &name(key), ValueKind::String, value.len(), |_, new| {
                        new.copy_from_slice(&value)
                    })
                    .unwrap();
                let expires_at_ms = engine.expires_at(0, &name(key)).unwrap();
                model.insert(key, Known { value, expires_at_ms });
            }
            Step::Get(key) => match (look(&mut engine, key), model.get(&key)) {
                (Some(found), known) => assert_eq!(Some(&found), known, "key {key}"),
                // Evicted, or lost with the memory that it was in.
                (None, _) => {
                    model.remove(&key);
                }
            },
            Step::Remove(key) => {
                engine.resolve(0, &name(key));
                let was = engine.remove(0, &name(key));
                assert!(!was || model.contains_key(&key), "key {key} was back");
                model.remove(&key);
            }
            Step::Expire(key, ms) => {
                engine.resolve(0, &name(key));
                let at_ms = ms.map(|ms| now_ms + ms);
                if engine.set_expires_at(0, &name(key), at_ms) {
                    model.get_mut(&key).expect("no key comes back").expires_at_ms = at_ms;
                }
            }
            Step::Wait(ms) => now_ms += ms,
            Step::FlushDb => {
                engine.flush((version % 2 == 0).then_some(0));
                model.clear();
            }
            Step::Restart { in_order } => dies = Some(in_order),
            Step::DieSetting(key, len) => {
                let value = value(version, len);
                engine.set(0, &name(key), &value, Condition::Always, Expiry::Never).unwrap();
                unsure = Some((key, Some(Known { value, expires_at_ms: None })));
                dies = Some(false);
            }
            Step::DieRemoving(key) => {
                engine.resolve(0, &name(key));
                engine.remove(0, &name(key));
                unsure = Some((key, None));
                dies = Some(false);
            }
        }
        engine.unstage();
        if unsure.is_none() {
            engine.commit();
        }
        if version % 10 == 0 && unsure.is_none() {
            engine.idle();
            engine.tick_flash();
            engine.commit();
        }
        if let Some(in_order) = dies {
            if in_order {
                engine.close_flash().unwrap();
                engine.close_kept().unwrap();
            }
            let before = items(&engine, 1);
            drop(engine);
            let found;
            (engine, found) = machine.start(now_ms);
            assert!(!found.disagree);
            assert_eq!((found.items + found.expired, found.dropped), (before, 0));
            assert_eq!(items(&engine, 1), found.items);
            taken_up += found.items;
            if let Some((key, made)) = unsure {
                let found = look(&mut engine, key);
                let was = model.get(&key).cloned();
                assert!(found.is_none() || found == made || found == was, "key {key}");
                model.remove(&key);
                model.extend(found.map(|found| (key, found)));
                engine.unstage();
            }
        }
    }
    // Expired keys are not taken up, so what is counted then is there.
    drop(engine);
    engine = machine.start(now_ms).0;
    let (mut found, count) = (0, engine.len(0));
    for key in 0..400 {
        let there = look(&mut engine, key);
        engine.unstage();
        assert!(there.is_none() || there.as_ref() == model.get(&key), "key {key}");
        found += u64::from(there.is_some());
    }
    assert!(found <= count && (flash || found == count), "{found} of {count}");
    taken_up
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_outlives_the_process_is_back_as_it_was(steps in steps(400)) {
        run(steps, false);
    }

    #[test]
    fn over_flash_the_newer_of_two_is_back(steps in steps(400)) {
        run(steps, true);
    }
}

fn fill(engine: &mut Engine, keys: std::ops::Range<u16>) {
    for key in keys {
        engine.set(0, &name(key), &value(7, 2000), Condition::Always, Expiry::Never).unwrap();
        engine.commit();
    }
}

#[test]
fn a_full_tier_is_taken_up_whole_and_twice() {
    let mut machine = Machine::new(false);
    let mut engine = machine.start(1000).0;
    fill(&mut engine, 0..1000);
    let before = items(&engine, 1);
    assert!(before > 500);
    for _ in 0..2 {
        drop(engine);
        let found;
        (engine, found) = machine.start(1000);
        assert_eq!(found, TakenUp { items: before, ..TakenUp::default() });
        assert_eq!(engine.len(0), before);
    }
    engine.flush(None);
    drop(engine);
    assert_eq!(machine.start(1000).1, TakenUp::default(), "what was flushed stays away");
}

/// Somebody went on with the flash tier alone: the file is of another time then, and its values may be older.
#[test]
fn a_file_that_missed_a_run_is_not_believed() {
    let mut machine = Machine::new(true);
    let mut engine = machine.start(1000).0;
    fill(&mut engine, 0..700);
    assert!(items(&engine, 1) > 100);
    engine.close_flash().unwrap();
    drop(engine);
    let aside = machine.path.with_extension("aside");
    std::fs::rename(&machine.path, &aside).unwrap();
    let mut engine = machine.start(1000).0;
    for key in 0..700 {
        engine.remove(0, &name(key));
        engine.commit();
    }
    engine.close_flash().unwrap();
    drop(engine);
    std::fs::rename(&aside, &machine.path).unwrap();
    let (mut engine, found) = machine.start(1000);
    assert_eq!(found, TakenUp { disagree: true, ..TakenUp::default() });
    assert!((0..700).all(|key| look(&mut engine, key).is_none()));
}

/// An engine that nobody told to take anything up does not mix old items with new ones.
#[test]
fn what_is_not_taken_up_is_gone_when_something_is_stored() {
    let mut machine = Machine::new(false);
    let mut engine = machine.start(1000).0;
    fill(&mut engine, 0..1000);
    drop(engine);
    let spec = MappedSpec { path: machine.path.clone(), layout: 0, reset: false };
    let tier = |name: &str, kind, mib: u64| TierSpec {
        name: name.to_owned(),
        kind,
        capacity: Bytes(mib << 20),
        price_per_gb: None,
    };
    let tiers = vec![tier("dram", Kind::Dram, 1), tier("dax", Kind::Mapped(spec), 2)];
    let mut careless = Engine::new(EngineConfig::new(tiers)).unwrap();
    fill(&mut careless, 2000..3000);
    let left = items(&careless, 1);
    drop(careless);
    let (mut engine, found) = machine.start(1000);
    assert_eq!(found, TakenUp { items: left, ..TakenUp::default() });
    assert!((0..1000).all(|key| look(&mut engine, key).is_none()));
}
