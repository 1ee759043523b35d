//! Engine against a map: with room for everything it behaves as one, and without room it may only forget.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tiermem_base::{Bytes, Rng, TierKind, TierSpec};
use tiermem_policy::ladder::{Eviction, Tuning};
use tiermem_store::engine::{Condition, Engine, EngineConfig, Expiry, Holder, Pin, StoreError, ValueKind};

fn engine(dram: u64, emulated: u64) -> Engine {
    let mut tiers = vec![TierSpec::new(TierKind::Dram, Bytes(dram))];
    if emulated > 0 {
        tiers.push(TierSpec::new(TierKind::Emulated, Bytes(emulated)));
    }
    let mut config = EngineConfig { spin: false, ..EngineConfig::new(tiers) };
    config.ladder.class_factor = 1.5;
    let mut engine = Engine::new(config).unwrap();
    engine.set_clock(1_000_000);
    engine
}

/// `PROPTEST_CASES`, or `default`.
fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}

#[derive(Clone, Debug)]
enum Step {
    Set(u8, u16, usize, Option<u64>, Condition),
    Get(u8, u16),
    Remove(u8, u16),
    Expire(u8, u16, Option<u64>),
    Wait(u64),
    Pin(u8, u16),
    Unpin(prop::sample::Index),
    Change(u8, u16),
    Build(u8, u16, usize),
    Flush(Option<u8>),
    Scan(u8),
}

fn step(keys: u16, value: usize) -> impl Strategy<Value = Step> {
    let db = 0u8..3;
    let condition = prop_oneof![8 => Just(Condition::Always), 1 => Just(Condition::IfAbsent), 1 => Just(Condition::IfPresent)];
    let ttl = prop_oneof![3 => Just(None), 1 => (1u64..5000).prop_map(Some)];
    let value = prop_oneof![8 => 0..value, 1 => 0..value * 20].boxed();
    prop_oneof![
        10 => (db.clone(), 0..keys).prop_map(|(db, key)| Step::Change(db, key)),
        10 => (db.clone(), 0..keys, value.clone()).prop_map(|(db, key, len)| Step::Build(db, key, len)),
        30 => (db.clone(), 0..keys, value, ttl.clone(), condition).prop_map(|(db, key, len, ttl, condition)| Step::Set(db, key, len, ttl, condition)),
        30 => (db.clone(), 0..keys).prop_map(|(db, key)| Step::Get(db, key)),
        5 => (db.clone(), 0..keys).prop_map(|(db, key)| Step::Remove(db, key)),
        4 => (db.clone(), 0..keys, ttl).prop_map(|(db, key, ttl)| Step::Expire(db, key, ttl)),
        4 => (1u64..2000).prop_map(Step::Wait),
        3 => (db.clone(), 0..keys).prop_map(|(db, key)| Step::Pin(db, key)),
        3 => any::<prop::sample::Index>().prop_map(Step::Unpin),
        1 => prop_oneof![Just(None), db.clone().prop_map(Some)].prop_map(Step::Flush),
        2 => db.prop_map(Step::Scan),
    ]
}

fn value(seed: u16, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u16).wrapping_mul(31).wrapping_add(seed) as u8).collect()
}

/// Runs the steps; `forgetful` allows the engine to miss keys that the map has.
fn run(engine: Engine, steps: Vec<Step>, forgetful: bool) -> Result<(), TestCaseError> {
    let mut world =
        World { engine, model: BTreeMap::new(), pins: Vec::new(), now: 1_000_000, forgetful, number: 0 };
    for (number, step) in steps.into_iter().enumerate() {
        world.number = number;
        let now = world.now;
        world.model.retain(|_, (_, at)| at.is_none_or(|at| at > now));
        world.step(step)?;
        for (pin, bytes) in &world.pins {
            prop_assert_eq!(world.engine.pinned(pin), Some(&bytes[..]), "a pinned value stays");
        }
        for tier in &world.engine.stats().tiers {
            prop_assert!(tier.used_bytes <= tier.capacity_bytes, "at any time: {:?}", tier);
        }
    }
    let stats = world.engine.stats();
    prop_assert!(forgetful || stats.evicted == 0);
    for tier in &stats.tiers {
        prop_assert!(tier.item_bytes <= tier.used_bytes);
    }
    prop_assert_eq!(stats.keys, stats.tiers.iter().map(|tier| tier.items).sum::<u64>());
    Ok(())
}

fn name(key: u16) -> Vec<u8> {
    format!("key:{key}").into_bytes()
}

/// The engine beside the map that it is compared with.
struct World {
    engine: Engine,
    /// Values, and when they expire.
    model: BTreeMap<(u8, u16), (Vec<u8>, Option<u64>)>,
    /// What must stay as it is, and what it is.
    pins: Vec<(Pin, Vec<u8>)>,
    now: u64,
    forgetful: bool,
    /// The step's number, from which values are made.
    number: usize,
}

impl World {
    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Set(db, key, len, ttl, condition) => self.set(db, key, len, ttl, condition),
            Step::Get(db, key) => self.get(db, key),
            Step::Remove(db, key) => {
                let removed = self.engine.remove(db, &name(key));
                let was = self.model.remove(&(db, key)).is_some();
                prop_assert!(removed == was || self.forgetful && !removed);
                Ok(())
            }
            Step::Expire(db, key, ttl) => {
                let at = ttl.map(|ttl| self.now + ttl);
                if self.engine.set_expires_at(db, &name(key), at) {
                    self.model.get_mut(&(db, key)).expect("known").1 = at;
                }
                Ok(())
            }
            Step::Wait(ms) => {
                self.now += ms;
                self.engine.set_clock(self.now);
                self.engine.between_requests().tick();
                Ok(())
            }
            Step::Pin(db, key) => {
                if let Some(item) = self.engine.get(db, &name(key)).map(|hit| hit.item)
                    && let Some(pin) = self.engine.pins().pin(item, Holder::Client(key.into(), None))
                {
                    self.pins.push((pin, self.model[&(db, key)].0.clone()));
                }
                Ok(())
            }
            Step::Unpin(at) => {
                if !self.pins.is_empty() {
                    let (pin, _) = self.pins.swap_remove(at.index(self.pins.len()));
                    self.engine.pins().unpin(pin);
                }
                Ok(())
            }
            Step::Change(db, key) => self.change(db, key),
            Step::Build(db, key, len) => self.build(db, key, len),
            Step::Flush(db) => {
                self.engine.flush(db);
                self.model.retain(|key, _| db.is_some_and(|db| db != key.0));
                Ok(())
            }
            Step::Scan(db) => self.scan(db),
        }
    }

    fn set(
        &mut self,
        db: u8,
        key: u16,
        len: usize,
        ttl: Option<u64>,
        condition: Condition,
    ) -> Result<(), TestCaseError> {
        let bytes = value(self.number as u16, len);
        let expiry = ttl.map_or(Expiry::Never, |ttl| Expiry::AtUnixMs(self.now + ttl));
        let present = self.engine.peek(db, &name(key)).is_some();
        prop_assert!(!present || self.model.contains_key(&(db, key)), "a key appears from nowhere");
        match self.engine.set(db, &name(key), &bytes, condition, expiry) {
            Ok(stored) => {
                let wanted = match condition {
                    Condition::Always => true,
                    Condition::IfAbsent => !present,
                    Condition::IfPresent => present,
                };
                // The step before the request may drop the key that was just seen.
                let dropped = self.forgetful && present && stored == (condition == Condition::IfAbsent);
                prop_assert!(stored == wanted || dropped);
                if stored {
                    self.model.insert((db, key), (bytes, ttl.map(|ttl| self.now + ttl)));
                }
            }
            // The old value may be gone, but must not be mixed with the new one.
            Err(error) => {
                prop_assert!(self.forgetful && error == StoreError::OutOfMemory, "{}", error);
            }
        }
        Ok(())
    }

    fn get(&mut self, db: u8, key: u16) -> Result<(), TestCaseError> {
        let found = self.engine.get(db, &name(key)).map(|hit| hit.value.to_vec());
        let wanted = self.model.get(&(db, key)).map(|(bytes, _)| bytes.clone());
        prop_assert!(found == wanted || self.forgetful && found.is_none(), "{:?}", (db, key));
        if found.is_some() {
            let expires = self.engine.expires_at(db, &name(key));
            prop_assert_eq!(expires, Some(self.model[&(db, key)].1));
        }
        Ok(())
    }

    fn change(&mut self, db: u8, key: u16) -> Result<(), TestCaseError> {
        let number = self.number as u8;
        match self.engine.in_place().change(db, &name(key)) {
            Ok(Some(found)) => {
                prop_assert_eq!(found.kind, ValueKind::String);
                let (bytes, _) = self.model.get_mut(&(db, key)).expect("known");
                prop_assert_eq!(&found.bytes[..], &bytes[..]);
                for bytes in [found.bytes, &mut bytes[..]] {
                    bytes.iter_mut().step_by(3).for_each(|byte| *byte = number);
                }
            }
            Ok(None) => prop_assert!(self.forgetful || !self.model.contains_key(&(db, key))),
            Err(error) => prop_assert!(self.forgetful && error == StoreError::OutOfMemory, "{}", error),
        }
        Ok(())
    }

    fn build(&mut self, db: u8, key: u16, len: usize) -> Result<(), TestCaseError> {
        let old = self.engine.peek(db, &name(key)).map(|hit| hit.value.to_vec());
        let known = self.model.get(&(db, key)).cloned();
        prop_assert!(old.is_none() || old == known.as_ref().map(|(bytes, _)| bytes.clone()));
        let bytes = value(self.number as u16, len);
        let mut told = None;
        let built = self.engine.in_place().build(db, &name(key), ValueKind::String, len, |old, new| {
            told = Some(old.to_vec());
            new.copy_from_slice(&bytes);
        });
        match built {
            Ok(()) => {
                let told = told.expect("it was built");
                let dropped = self.forgetful && told.is_empty();
                prop_assert!(dropped || told == old.clone().unwrap_or_default());
                let kept = old.is_some_and(|old| told == old && !old.is_empty()) || !self.forgetful;
                let found = self.engine.expires_at(db, &name(key));
                let expiry = match known.filter(|_| kept) {
                    Some((_, at)) => at,
                    // An empty value may exist or not: both look the same to the builder.
                    None => found.flatten(),
                };
                prop_assert_eq!(found, Some(expiry));
                self.model.insert((db, key), (bytes, expiry));
            }
            Err(error) => {
                prop_assert!(self.forgetful && error == StoreError::OutOfMemory, "{}", error);
                prop_assert!(told.is_none());
            }
        }
        Ok(())
    }

    fn scan(&mut self, db: u8) -> Result<(), TestCaseError> {
        let (mut seen, mut cursor) = (Vec::new(), 0);
        loop {
            cursor = self.engine.keyspace().scan(db, cursor, 10, &mut |key, _| seen.push(key.to_vec()));
            if cursor == 0 {
                break;
            }
        }
        seen.sort();
        let here = self.model.keys().filter(|key| key.0 == db);
        let mut wanted: Vec<_> = here.map(|key| name(key.1)).collect();
        wanted.sort();
        prop_assert!(seen == wanted || self.forgetful && seen.iter().all(|key| wanted.contains(key)));
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(150)))]

    #[test]
    fn with_room_it_is_a_map(steps in prop::collection::vec(step(300, 800), 1..800)) {
        run(engine(16 << 20, 16 << 20), steps, false)?;
    }

    #[test]
    fn without_room_it_only_forgets(steps in prop::collection::vec(step(800, 4000), 1..1500)) {
        run(engine(1 << 20, 1 << 20), steps, true)?;
    }

    #[test]
    fn one_tier_is_enough(steps in prop::collection::vec(step(800, 4000), 1..800)) {
        run(engine(1 << 20, 0), steps, true)?;
    }
}

/// Few keys beside many of another database, which were many once: what a scan and a random key cost is counted in calls and in
/// entries, and no key is missed.
#[test]
fn a_database_costs_by_its_own_keys() {
    let mut engine = engine(64 << 20, 0);
    for key in 0..200_000u32 {
        engine.set(0, &key.to_le_bytes(), b"", Condition::Always, Expiry::Never).unwrap();
    }
    let scan = |engine: &mut Engine| {
        let (mut calls, mut seen, mut cursor) = (0, Vec::new(), 0);
        loop {
            calls += 1;
            cursor = engine.keyspace().scan(1, cursor, 10, &mut |key, _| seen.push(key.to_vec()));
            if cursor == 0 {
                return (calls, seen);
            }
        }
    };
    assert_eq!(scan(&mut engine), (1, vec![]));
    assert_eq!(engine.keyspace().random_key(1, &mut |_| true), None);
    let set = |engine: &mut Engine, key: u32| {
        engine.set(1, &key.to_le_bytes(), b"", Condition::Always, Expiry::Never).unwrap();
    };
    for key in 0..20 {
        set(&mut engine, key);
        let (calls, mut seen) = scan(&mut engine);
        seen.sort();
        let mut wanted: Vec<_> = (0..=key).map(|key| key.to_le_bytes().to_vec()).collect();
        wanted.sort();
        assert_eq!(seen, wanted);
        assert!(calls <= 2 + key, "{calls} calls for {key} keys");
        for _ in 0..20 {
            let found = engine.keyspace().random_key(1, &mut |_| true).unwrap();
            assert!(wanted.contains(&found));
        }
    }
    (20..20_000).for_each(|key| set(&mut engine, key));
    assert!((1..20_000u32).all(|key| engine.remove(1, &key.to_le_bytes())));
    let one = 0u32.to_le_bytes().to_vec();
    for _ in 0..300 {
        assert_eq!(engine.keyspace().random_key(1, &mut |_| true).as_ref(), Some(&one));
    }
    // Nearly everywhere where there is nothing any more it is not looked again.
    let (calls, seen) = scan(&mut engine);
    assert!(calls <= 20 && seen == [one], "{calls} calls");
}

#[test]
fn values_survive_demotion_and_promotion() {
    let mut engine = engine(4 << 20, 32 << 20);
    for key in 0..20_000u16 {
        engine.set(0, &key.to_le_bytes(), &value(key, 700), Condition::Always, Expiry::Never).unwrap();
    }
    for _ in 0..20 {
        for key in (0..20_000u16).step_by(97) {
            assert_eq!(engine.get(0, &key.to_le_bytes()).unwrap().value, value(key, 700));
        }
    }
    let stats = engine.stats();
    assert_eq!((stats.keys, stats.evicted, stats.hits), (20_000, 0, stats.gets));
    assert!(stats.tiers[0].demotions > 1000 && stats.tiers[1].promotions > 100, "{stats:?}");
    assert!(stats.tiers[1].charged_ns > 0 && stats.tiers[0].charged_ns == 0);
}

/// Index, nodes, timers: every part that grows has its memory before it does.
#[test]
fn metadata_never_grows_beyond_its_tier() {
    for (dram, emulated, len) in [(3 << 20, 64 << 20, 8), (2 << 20, 0, 8), (6 << 20, 32 << 20, 300)] {
        let mut engine = engine(dram, emulated);
        for key in 0..120_000u32 {
            // A burst of expiries now and then, after long times without.
            let expiry = if key / 5000 % 4 == 3 { Expiry::AtUnixMs(9_000_000) } else { Expiry::Never };
            engine.set(0, &key.to_le_bytes(), &value(7, len), Condition::Always, expiry).unwrap();
            if key % 3 == 0 {
                engine.set_expires_at(0, &(key / 2).to_le_bytes(), Some(8_000_000));
            }
            let tier = &engine.stats().tiers[0];
            assert!(tier.used_bytes <= tier.capacity_bytes, "key {key}: {tier:?}");
        }
    }
}

/// Room for a large value is made in steps, whether it is asked for beforehand or not.
#[test]
fn a_large_value_finds_room_among_small_ones() {
    for asks in [true, false] {
        let mut engine = engine(8 << 20, 64 << 20);
        for key in 0..90_000u32 {
            engine
                .set(0, &key.to_le_bytes(), &value(key as u16, 1000), Condition::Always, Expiry::Never)
                .unwrap();
        }
        assert!(engine.stats().evicted > 0, "it is full");
        let large = value(9, 16 << 20);
        let mut pieces = 0;
        while asks && !engine.make_room(large.len() + 16) {
            pieces += 1;
            // Requests of others come in between, and none of them is harmed.
            let key = pieces as u32;
            engine.set(0, &key.to_le_bytes(), &value(7, 1000), Condition::Always, Expiry::Never).unwrap();
            assert_eq!(engine.get(0, &key.to_le_bytes()).unwrap().value, value(7, 1000));
        }
        assert!(!asks || pieces > 50, "{pieces} pieces");
        assert_eq!(engine.set(0, b"large", &large, Condition::Always, Expiry::Never), Ok(true));
        assert_eq!(engine.get(0, b"large").unwrap().value, large);
        let stats = engine.stats();
        for tier in &stats.tiers {
            assert!(tier.used_bytes <= tier.capacity_bytes, "{tier:?}");
        }
        assert!(stats.keys > 40_000, "no more had to go than lay there: {}", stats.keys);
    }
}

#[test]
fn without_eviction_writes_fail_and_nothing_is_lost() {
    let mut engine = engine(1 << 20, 2 << 20);
    let tuning = engine.memory().tuning();
    engine.memory_mut().tune(Tuning { eviction: Eviction::Forbidden, ..tuning });
    let mut stored = 0u32;
    while engine.set(0, &stored.to_le_bytes(), &[7; 500], Condition::Always, Expiry::Never).is_ok() {
        stored += 1;
    }
    assert!(stored > 2500, "{stored}");
    assert_eq!(
        engine.set(0, b"x", &[7; 500], Condition::Always, Expiry::Never),
        Err(StoreError::OutOfMemory)
    );
    for key in 0..stored {
        assert!(engine.get(0, &key.to_le_bytes()).is_some());
    }
    assert!(engine.remove(0, &0u32.to_le_bytes()));
    assert_eq!(engine.set(0, b"x", &[7; 500], Condition::Always, Expiry::Never), Ok(true));
}

#[test]
fn limits_are_errors() {
    let mut engine = engine(1 << 20, 0);
    let long_key = vec![b'k'; 70_000];
    assert_eq!(engine.set(0, &long_key, b"", Condition::Always, Expiry::Never), Err(StoreError::KeyTooLarge));
    let long_value = vec![0; (16 << 20) + 1];
    let limit_bytes = 16 << 20;
    assert_eq!(
        engine.set(0, b"k", &long_value, Condition::Always, Expiry::Never),
        Err(StoreError::ValueTooLarge { limit_bytes })
    );
    assert_eq!(
        engine.set(0, b"k", &long_value[..8 << 20], Condition::Always, Expiry::Never),
        Err(StoreError::OutOfMemory)
    );
}

#[test]
fn writes_are_no_hits() {
    let mut engine = engine(16 << 20, 0);
    for len in [10, 10, 5000, 20] {
        engine.set(0, b"a", &vec![1; len], Condition::Always, Expiry::Never).unwrap();
    }
    assert!(engine.get(0, b"a").is_some() && engine.get(0, b"b").is_none());
    let stats = engine.stats();
    assert_eq!((stats.gets, stats.hits, stats.tiers[0].hits), (2, 1, 1));
}

/// An index of which most is empty, as mass deletes leave it, is gone over to its end.
#[test]
fn a_flush_of_one_database_reaches_its_last_key_behind_thousands_of_empty_segments() {
    const KEYS: u32 = 500_000;
    let mut engine = engine(128 << 20, 0);
    for key in 0..KEYS {
        engine.set(1, &key.to_le_bytes(), b"v", Condition::Always, Expiry::Never).unwrap();
    }
    (0..KEYS).filter(|key| key % 5000 != 0).for_each(|key| assert!(engine.remove(1, &key.to_le_bytes())));
    engine.set(0, b"of another", b"v", Condition::Always, Expiry::Never).unwrap();
    assert_eq!((engine.len(1), engine.stats().evicted), (u64::from(KEYS / 5000), 0));
    engine.flush(Some(1));
    let left = (0..KEYS).filter(|key| engine.get(1, &key.to_le_bytes()).is_some()).count();
    assert_eq!((left, engine.len(1), engine.len(0)), (0, 0, 1));
    let items: u64 = engine.stats().tiers.iter().map(|tier| tier.items).sum();
    assert_eq!(items, 1, "nor does any take memory");
    assert!(engine.get(0, b"of another").is_some());
}

/// Each key that is looked at is charged a read, so that steps are counted and not timed.
#[test]
fn a_random_key_is_found_in_a_few_steps_after_mass_deletes() {
    const KEYS: u32 = 200_000;
    let mut engine = engine(24 << 20, 256 << 20);
    for key in 0..KEYS {
        for db in [0, 1] {
            engine.set(db, &key.to_le_bytes(), &[1; 200], Condition::Always, Expiry::Never).unwrap();
        }
    }
    (1..KEYS).for_each(|key| assert!(engine.remove(1, &key.to_le_bytes())));
    assert_eq!((engine.len(1), engine.stats().evicted), (1, 0));
    let mut random_key = |db| {
        let before = engine.memory().charged_ns();
        let key = engine.keyspace().random_key(db, &mut |_| true);
        (key, engine.memory().charged_ns() - before)
    };
    // Keys of the full database, and of the one that others have left: in each search the first sample, or a piece more.
    let (_, full_ns) = (0..50).map(|_| random_key(0)).max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    for _ in 0..50 {
        let (key, ns) = random_key(1);
        assert_eq!(key.as_deref(), Some(&0u32.to_le_bytes()[..]));
        assert!(ns < 100.0 * full_ns, "{ns} ns beside {full_ns}");
    }
}

/// Values of every magnitude, each as likely, three times as many bytes as there is room: each is taken, as others may be evicted.
/// Large ones need pages in a row, which are made free in whichever tier is colder.
#[test]
fn no_value_of_a_flood_is_refused() {
    const MIB: u64 = 1 << 20;
    let bytes = vec![0; 4 << 20];
    for (seed, makes_room_before) in (5..12).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut engine = engine(96 * MIB, 160 * MIB);
        let mut random = Rng::seeded(seed);
        let mut written = 0;
        for number in 0.. {
            let len = (random.unit_f64() * 22.0).exp2() as usize;
            let key = format!("{number}");
            while makes_room_before && !engine.make_room(len + key.len()) {}
            let set = engine.set(0, key.as_bytes(), &bytes[..len], Condition::Always, Expiry::Never);
            assert_eq!(set, Ok(true), "seed {seed}, value {number} of {len} bytes, after {written}");
            written += len as u64;
            if written > 768 * MIB {
                break;
            }
        }
    }
}
