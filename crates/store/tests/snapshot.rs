//! Snapshots of the engine against a map: at rest, during changes, damaged, and beside tiers with newer items.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod world;

use std::collections::BTreeMap;
use std::path::Path;
use std::slice;

use proptest::prelude::*;
use tiermem_base::TierKind;
use tiermem_store::engine::{Condition, Engine, EngineConfig, Expiry};
use tiermem_store::shards::Placement;
use tiermem_store::snapshot::format::Taken;
use tiermem_store::snapshot::{Files, Load, LoadError, Loaded, Progress, Saving, Step, path_of};
use tiermem_tier::block::MemoryDisk;
use world::{START_MS, TempPath, attach_flash, items_in, look, name, tier, value};

const FLASH_BYTES: usize = 16 << 20;

fn engine(session: u8, fast_mib: u64, slow_mib: u64) -> Engine {
    let tiers = vec![tier("dram", TierKind::Dram, fast_mib), tier("more", TierKind::Dram, slow_mib)];
    let config = EngineConfig { session: [session; 16], spin: false, ..EngineConfig::new(tiers) };
    let mut engine = Engine::new(config).unwrap();
    engine.set_clock(START_MS);
    engine
}

fn with_flash(session: u8, disk: &MemoryDisk) -> Engine {
    let mut engine = engine(session, 1, 1);
    attach_flash(&mut engine, disk);
    engine.warm_start().take_up(START_MS);
    engine
}

fn set(engine: &mut Engine, key: u16, value: &[u8], expiry: Expiry) {
    engine.flash_reads().prepare();
    world::set(engine, key, value, expiry);
    engine.commit();
}

fn read(engine: &mut Engine, key: u16) -> Option<Vec<u8>> {
    let found = look(engine, key).map(|found| found.value);
    engine.flash_reads().unstage();
    found
}

/// A start that goes well.
fn load(path: &Path, which: Load, engine: &mut Engine) -> Result<Loaded, LoadError> {
    let files = Files::open(path)?;
    let loaded = files.load(which, slice::from_mut(engine), |_| {});
    files.supersede().map(|()| loaded)
}

fn loaded(path: &TempPath, which: Load, engine: &mut Engine) -> Progress {
    match load(&path.0, which, engine).unwrap() {
        Loaded::Items(progress) => progress,
        other => panic!("{other:?}"),
    }
}

#[derive(Clone, Debug)]
enum Change {
    Set(u16, usize),
    SetForAWhile(u16, usize, u64),
    Remove(u16),
    Get(u16),
    Flush,
    Save,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    // Some are copied in parts.
    let len = || prop_oneof![30 => 0usize..2000, 1 => 100_000usize..700_000];
    let change = prop_oneof![
        20 => (0u16..300, len()).prop_map(|(key, len)| Change::Set(key, len)),
        3 => (0u16..300, len(), 1u64..5000).prop_map(|(key, len, ms)| Change::SetForAWhile(key, len, ms)),
        5 => (0u16..300).prop_map(Change::Remove),
        10 => (0u16..300).prop_map(Change::Get),
        1 => Just(Change::Flush),
        20 => Just(Change::Save),
    ];
    prop::collection::vec(change, 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Written amid changes, a snapshot has of each key that was there all the time a value that it had meanwhile; and none
    /// that it had only before. Nothing is held for it afterwards.
    #[test]
    fn each_key_has_a_value_that_it_had_meanwhile(before in changes(), amid in changes()) {
        let path = TempPath::new();
        let mut engine = engine(1, 8, 64);
        // What each key was at some time since the snapshot was begun.
        let mut was: BTreeMap<u16, Vec<Option<Vec<u8>>>> = BTreeMap::new();
        let mut now: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
        let mut saving = None;
        for (version, change) in before.into_iter().map(|it| (false, it)).chain(amid.into_iter().map(|it| (true, it))).enumerate() {
            let (begun, change) = change;
            if begun && saving.is_none() {
                was = now.iter().map(|(&key, value)| (key, vec![Some(value.clone())])).collect();
                saving = Some(Saving::begin(&mut engine, &path.0, Taken::Running).unwrap());
            }
            let changed = match change {
                Change::Set(key, len) => {
                    let value = value(version, len);
                    set(&mut engine, key, &value, Expiry::Never);
                    now.insert(key, value);
                    vec![key]
                }
                Change::SetForAWhile(key, len, ms) => {
                    let value = value(version, len);
                    set(&mut engine, key, &value, Expiry::AtUnixMs(START_MS + ms));
                    now.insert(key, value);
                    vec![key]
                }
                Change::Remove(key) => {
                    engine.remove(0, &name(key));
                    now.remove(&key);
                    vec![key]
                }
                Change::Get(key) => {
                    let found = read(&mut engine, key);
                    prop_assert_eq!(found.as_ref(), now.get(&key));
                    vec![]
                }
                Change::Flush => {
                    engine.flush(None);
                    std::mem::take(&mut now).into_keys().collect()
                }
                Change::Save => {
                    if let Some(saving) = &mut saving {
                        saving.step(&mut engine);
                    }
                    vec![]
                }
            };
            for key in changed {
                was.entry(key).or_insert_with(|| vec![None]).push(now.get(&key).cloned());
            }
        }
        let Some(mut saving) = saving else { return Ok(()) };
        loop {
            match saving.step(&mut engine) {
                Step::Go => {}
                Step::Wait => std::thread::yield_now(),
                Step::Finish => break,
            }
        }
        saving.finish(&mut engine).unwrap();
        prop_assert_eq!(engine.stats().pinned_bytes, 0);
        let mut again = self::engine(2, 8, 64);
        prop_assert_eq!(load(&path.0, Load::Clean, &mut again).unwrap(), Loaded::Running);
        prop_assert_eq!(again.len(0), 0);
        let progress = loaded(&path, Load::Always, &mut again);
        prop_assert_eq!((progress.damaged, progress.cut, progress.refused), (0, false, 0));
        for key in 0..300 {
            let found = read(&mut again, key);
            let may = was.get(&key).cloned().unwrap_or(vec![None]);
            prop_assert!(may.contains(&found), "key {key} has what it never had meanwhile");
        }
    }

    /// With any damage, the items read are those written.
    #[test]
    fn damage_never_makes_a_value(at in any::<prop::sample::Index>(), flip in 1u8..=255, cut in any::<bool>()) {
        let path = TempPath::new();
        let mut engine = engine(1, 4, 4);
        for key in 0..2000 {
            set(&mut engine, key, &value(usize::from(key), 300), Expiry::Never);
        }
        Saving::run(&mut engine, &path.0, Taken::Stopped).unwrap();
        let mut bytes = std::fs::read(&path.0).unwrap();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] ^= flip }
        std::fs::write(&path.0, &bytes).unwrap();
        let mut again = self::engine(2, 4, 4);
        match load(&path.0, Load::Clean, &mut again) {
            Err(error) => prop_assert!(at < 64 && error.to_string().contains("move the file away"), "{error}"),
            Ok(Loaded::Absent) => prop_assert!(cut && at == 0),
            Ok(found) => {
                let Loaded::Items(progress) = found else { panic!("{found:?}") };
                prop_assert!(progress.cut || progress.items + progress.damaged == 2000);
                for key in 0..2000 {
                    let found = read(&mut again, key);
                    prop_assert!(found.is_none_or(|found| found == value(usize::from(key), 300)));
                }
            }
        }
    }
}

/// Two keys that a transaction writes together: one in the background may have the one as it was before and the other as it is
/// after; one that is written at once never.
#[test]
fn what_is_written_together_may_be_apart_in_one_that_is_written_amid_work() {
    let pairs = |which: u16| (0..1000).map(move |pair| 2 * pair + which);
    let apart = |save: &dyn Fn(&mut Engine, &Path)| {
        let (path, mut engine) = (TempPath::new(), engine(1, 8, 8));
        pairs(0).chain(pairs(1)).for_each(|key| set(&mut engine, key, b"before", Expiry::Never));
        save(&mut engine, &path.0);
        let mut again = self::engine(2, 8, 8);
        loaded(&path, Load::Always, &mut again);
        pairs(0)
            .zip(pairs(1))
            .filter(|&(one, other)| read(&mut again, one) != read(&mut again, other))
            .count()
    };
    // What `EXEC` does: no piece of the snapshot comes in between.
    let exec = |engine: &mut Engine| (0..2000).for_each(|key| set(engine, key, b"after", Expiry::Never));
    let amid_work = (0..160).step_by(8).map(|pieces_before| {
        apart(&|engine, path| {
            let mut saving = Saving::begin(engine, path, Taken::Running).unwrap();
            for _ in 0..pieces_before {
                saving.step(engine);
            }
            exec(engine);
            while saving.step(engine) != Step::Finish {}
            saving.finish(engine).unwrap();
        })
    });
    assert!(amid_work.max() > Some(0));
    let at_once = apart(&|engine, path| {
        Saving::run(engine, path, Taken::Running).unwrap();
        exec(engine);
    });
    assert_eq!(at_once, 0);
}

/// Any number of shards writes it and any number reads it: each key ends up in its
/// shard. This holds as often as a start fails, and not again once one has succeeded.
#[test]
fn any_number_of_shards_reads_what_any_other_wrote() {
    for (before, after) in [(1, 1), (1, 3), (3, 1), (2, 5), (5, 2), (4, 4)] {
        let path = TempPath::new();
        let shard_of = |key: u16, shards: usize| Placement { own: 0, shards }.shard_of(&name(key));
        let engines = |shards: usize| (0..shards).map(|_| self::engine(1, 1, 1)).collect::<Vec<_>>();
        let mut writers = engines(before);
        for key in 0..500 {
            set(&mut writers[shard_of(key, before)], key, &value(usize::from(key), 200), Expiry::Never);
        }
        for (shard, engine) in writers.iter_mut().enumerate() {
            Saving::run(engine, &path_of(&path.0, shard, before), Taken::Stopped).unwrap();
        }
        for _ in 0..2 {
            let mut readers = engines(after);
            let found = Files::open(&path.0).unwrap().load(Load::Clean, &mut readers, |_| {});
            assert!(
                matches!(found, Loaded::Items(Progress { items: 500, files_left_out: 0, .. })),
                "{found:?}"
            );
            for key in 0..500 {
                assert_eq!(read(&mut readers[shard_of(key, after)], key), Some(value(usize::from(key), 200)));
            }
        }
        // By a run that loads nothing.
        Files::open(&path.0).unwrap().supersede().unwrap();
        let found = Files::open(&path.0).unwrap().load(Load::Clean, &mut engines(after), |_| {});
        assert_eq!(found, Loaded::Superseded);
        for shard in 0..before {
            std::fs::remove_file(path_of(&path.0, shard, before)).unwrap();
        }
    }
}

#[test]
fn what_was_stopped_is_back_once_and_the_hot_is_in_the_fast_tier() {
    let path = TempPath::new();
    let mut engine = engine(1, 3, 8);
    for key in 0..5000 {
        let expiry = if key % 10 == 0 { Expiry::AtUnixMs(5000) } else { Expiry::Never };
        set(&mut engine, key, &value(usize::from(key), 500), expiry);
    }
    engine.set(3, b"elsewhere", b"too", Condition::Always, Expiry::Never).unwrap();
    let mut before = 0;
    for _ in 0..4 {
        before = engine.stats().tiers[0].hits;
        for key in 0..1000 {
            read(&mut engine, key);
        }
    }
    let fast_then = engine.stats().tiers[0].hits - before;
    Saving::run(&mut engine, &path.0, Taken::Stopped).unwrap();
    let keys = engine.len(0);
    assert!(items_in(&engine, 0) > 1000 && keys == 5000);

    let mut again = self::engine(2, 3, 8);
    again.set_clock(6000);
    let progress = loaded(&path, Load::Clean, &mut again);
    assert_eq!((progress.items, progress.expired), (4501, 500));
    assert_eq!(again.len(0), 4500);
    assert_eq!(again.get(3, b"elsewhere").unwrap().value, b"too");
    // The hot items, except the expired ones, are in the upper tier.
    before = again.stats().tiers[0].hits;
    for key in 0..1000 {
        assert_eq!(read(&mut again, key).is_none(), key % 10 == 0);
    }
    let fast = again.stats().tiers[0].hits - before;
    assert!(fast_then > 700 && fast * 1000 > fast_then * 600, "{fast} of 900, {fast_then} of 1000");
    assert_eq!(load(&path.0, Load::Clean, &mut self::engine(3, 2, 8)).unwrap(), Loaded::Superseded);
    assert_eq!(loaded(&path, Load::Always, &mut self::engine(4, 2, 8)).items, 5001);
    assert_eq!(load(&path.0, Load::Never, &mut self::engine(5, 2, 8)).unwrap(), Loaded::Unwanted);
}

/// Flash continues while the snapshot stays: after an orderly stop both are of one time, otherwise flash is right.
#[test]
fn over_flash_the_newer_wins() {
    let (path, disk) = (TempPath::new(), MemoryDisk::new(FLASH_BYTES));
    let mut engine = with_flash(1, &disk);
    for key in 0..4000 {
        set(&mut engine, key, &value(1, 1000), Expiry::Never);
    }
    for key in 0..200 {
        read(&mut engine, key);
        read(&mut engine, key);
    }
    engine.flash().close().unwrap();
    let keys = engine.len(0);
    Saving::run(&mut engine, &path.0, Taken::Stopped).unwrap();
    let saved = std::fs::read(&path.0).unwrap();
    drop(engine);

    let mut engine = with_flash(2, &disk);
    let on_flash = engine.len(0);
    let progress = loaded(&path, Load::Clean, &mut engine);
    assert_eq!(progress.refused, 0);
    assert_eq!(engine.len(0), keys, "{on_flash} on flash, {progress:?}");
    assert!((0..4000).all(|key| read(&mut engine, key) == Some(value(1, 1000))));
    for key in 0..4000 {
        set(&mut engine, key, &value(2, 1000), Expiry::Never);
    }
    engine.flash().close().unwrap();
    drop(engine);

    // The old file again, without the mark.
    std::fs::write(&path.0, &saved).unwrap();
    let mut engine = with_flash(3, &disk);
    assert_eq!(load(&path.0, Load::Clean, &mut engine).unwrap(), Loaded::Stale);
    let there: Vec<u16> = (0..4000).filter(|&key| read(&mut engine, key) == Some(value(2, 1000))).collect();
    assert!(there.len() > 1000);
    drop(engine);
    let mut engine = with_flash(4, &disk);
    loaded(&path, Load::Always, &mut engine);
    assert!(there.iter().all(|&key| read(&mut engine, key) == Some(value(2, 1000))));
}

#[test]
fn a_strangers_file_is_refused_before_anything_is_written() {
    let path = TempPath::new();
    Files::open(&path.0).unwrap();
    std::fs::write(&path.0, b"").unwrap();
    Files::open(&path.0).unwrap();
    std::fs::write(&path.0, b"REDIS0009 and more").unwrap();
    let error = Files::open(&path.0).unwrap_err().to_string();
    assert!(error.contains("something else") && error.contains("move the file away"), "{error}");
    let mut engine = engine(1, 1, 1);
    assert!(load(&path.0, Load::Never, &mut engine).is_err());
    let nowhere = path.0.join("no/such/file");
    let error = Saving::run(&mut engine, &nowhere, Taken::Stopped).unwrap_err().to_string();
    assert!(error.contains("no/such/file"), "{error}");
}
