//! Engine over a persistent tier, with and without flash below, against a map: it is dropped at any step, as a
//! kill does, and opened again over the same file. The items of that tier are back, unchanged, and no others. The file may be shortened
//! at any step: what was there is gone, and nothing else.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod world;

use proptest::prelude::*;
use tiermem_base::{TierKind, TierSpec};
use tiermem_store::engine::{Condition, Engine, EngineConfig, Expiry, TakenUp, ValueKind};
use tiermem_tier::block::MemoryDisk;
use world::{Change, Known, Model, START_MS, TempPath, attach_flash, items_in, look, name, set, tier, value};

const FLASH_BYTES: usize = 6 << 20;

/// A machine with a store that may die.
struct Machine {
    path: TempPath,
    disk: Option<MemoryDisk>,
    sessions: u8,
}

impl Machine {
    fn new(flash: bool) -> Self {
        Machine { path: TempPath::new(), disk: flash.then(|| MemoryDisk::new(FLASH_BYTES)), sessions: 0 }
    }

    fn tiers(&self) -> Vec<TierSpec> {
        let dax = tier("dax", TierKind::Dax, 2).at_path(&self.path.0);
        vec![tier("dram", TierKind::Dram, 1), dax]
    }

    fn start(&mut self, now_ms: u64) -> (Engine, TakenUp) {
        self.sessions = self.sessions.wrapping_add(1);
        let session = [self.sessions; 16];
        let mut engine = Engine::new(EngineConfig { session, ..EngineConfig::new(self.tiers()) }).unwrap();
        if let Some(disk) = &self.disk {
            attach_flash(&mut engine, disk);
        }
        let found = engine.warm_start().take_up(now_ms);
        (engine, found)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Plain(Change),
    /// A value that is changed where it lies.
    Change(u16),
    /// A value that is built anew, longer.
    Build(u16, usize),
    Restart {
        in_order: bool,
    },
    /// Somebody shortens the file to a part of its bytes, and makes it longer again if it is `refilled`.
    Shorten {
        part: u8,
        refilled: bool,
    },
    /// A request dies with the store, unanswered.
    DieSetting(u16, usize),
    DieRemoving(u16),
}

fn steps(keys: u16) -> impl Strategy<Value = Vec<Step>> {
    // Some take pages of their own.
    let len = || prop_oneof![20 => 0usize..3000, 1 => 50_000usize..200_000].boxed();
    let step = prop_oneof![
        92 => world::changes(keys, len()).prop_map(Step::Plain),
        8 => (0..keys).prop_map(Step::Change),
        5 => (0..keys, len()).prop_map(|(key, len)| Step::Build(key, len)),
        1 => any::<bool>().prop_map(|in_order| Step::Restart { in_order }),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(part, refilled)| Step::Shorten { part, refilled }),
        1 => (0..keys, len()).prop_map(|(key, len)| Step::DieSetting(key, len)),
        1 => (0..keys).prop_map(Step::DieRemoving),
    ];
    prop::collection::vec(step, 1..1500)
}

/// Changes a value where it lies, at both ends.
fn change(engine: &mut Engine, model: &mut Model, key: u16) {
    engine.flash_reads().resolve(0, &name(key));
    let there = engine.in_place().change(0, &name(key)).unwrap().map(|found| {
        found.bytes[0] ^= 0xFF;
        found.item
    });
    if let Some(item) = there {
        *engine.in_place().change_on(item).last_mut().unwrap() ^= 0xFF;
        let known = model.known.get_mut(&key).expect("no key comes back");
        known.value[0] ^= 0xFF;
        *known.value.last_mut().unwrap() ^= 0xFF;
    } else {
        model.known.remove(&key);
    }
}

/// Builds a value anew; its expiry stays.
fn build(engine: &mut Engine, model: &mut Model, key: u16, value: Vec<u8>) {
    engine.flash_reads().resolve(0, &name(key));
    engine
        .in_place()
        .build(0, &name(key), ValueKind::String, value.len(), |_, new| new.copy_from_slice(&value))
        .unwrap();
    let expires_at_ms = engine.expires_at(0, &name(key)).unwrap();
    model.known.insert(key, Known { value, expires_at_ms });
}

/// Shortens the file of an engine.
fn shorten(machine: &Machine, engine: &mut Engine, part: u8, refilled: bool) {
    let file = std::fs::File::options().write(true).open(&machine.path.0).unwrap();
    let bytes = file.metadata().unwrap().len();
    file.set_len(bytes * u64::from(part) / 256 + u64::from(part) * 7).unwrap();
    if refilled {
        file.set_len(bytes).unwrap();
        // No access shows it.
        engine.between_requests().lost_parts().look();
    }
}

/// As before replies leave. Where something was lost, keys count that are somewhere, and the file is whole again.
fn check_losses(machine: &Machine, engine: &mut Engine) {
    engine.between_requests().lost_parts().may_be_in_replies();
    if engine.between_requests().lost_parts().take_reports().is_empty() {
        return;
    }
    let stats = engine.stats();
    assert_eq!(stats.missing_bytes, 0);
    if machine.disk.is_none() {
        assert_eq!(engine.len(0), stats.tiers.iter().map(|tier| tier.items).sum::<u64>());
        let (mut found, mut cursor) = (0, 0);
        loop {
            cursor = engine.keyspace().scan(0, cursor, 50, &mut |key, _| {
                assert!(!key.is_empty(), "an item that is zeros");
                found += 1;
            });
            if cursor == 0 {
                break;
            }
        }
        assert!(found <= engine.len(0), "some may have expired");
    }
    assert_eq!(std::fs::metadata(&machine.path.0).unwrap().len(), 2 << 20);
}

fn run(steps: Vec<Step>, flash: bool) -> u64 {
    let mut machine = Machine::new(flash);
    let mut model = Model::new();
    let mut engine = machine.start(START_MS).0;
    let mut taken_up = 0;
    for (version, step) in steps.into_iter().enumerate() {
        model.set_clock(&mut engine);
        let mut unsure = None;
        let mut dies = None;
        if matches!(step, Step::Restart { .. } | Step::DieSetting(..) | Step::DieRemoving(_)) {
            engine.between_requests().lost_parts().look();
        }
        match step {
            Step::Shorten { part, refilled } => {
                shorten(&machine, &mut engine, part, refilled);
                // Whatever comes next meets it.
                continue;
            }
            Step::Plain(change) => model.apply(&mut engine, change, version),
            Step::Change(key) => change(&mut engine, &mut model, key),
            Step::Build(key, len) => build(&mut engine, &mut model, key, value(version, len)),
            Step::Restart { in_order } => dies = Some(in_order),
            Step::DieSetting(key, len) => {
                let value = value(version, len);
                set(&mut engine, key, &value, Expiry::Never);
                unsure = Some((key, Some(Known { value, expires_at_ms: None })));
                dies = Some(false);
            }
            Step::DieRemoving(key) => {
                engine.flash_reads().resolve(0, &name(key));
                engine.remove(0, &name(key));
                unsure = Some((key, None));
                dies = Some(false);
            }
        }
        engine.flash_reads().unstage();
        if unsure.is_none() {
            engine.commit();
        }
        check_losses(&machine, &mut engine);
        if version % 10 == 0 && unsure.is_none() {
            engine.between_requests().tick();
            engine.flash().tick();
            engine.commit();
        }
        if let Some(in_order) = dies {
            if in_order {
                engine.flash().close().unwrap();
                engine.warm_start().close().unwrap();
            }
            let before = items_in(&engine, 1);
            drop(engine);
            let found;
            (engine, found) = machine.start(model.now_ms);
            assert!(!found.disagree);
            assert_eq!((found.items + found.expired, found.dropped), (before, 0));
            assert_eq!(items_in(&engine, 1), found.items);
            taken_up += found.items;
            if let Some((key, made)) = unsure {
                let found = look(&mut engine, key);
                let was = model.known.get(&key).cloned();
                assert!(found.is_none() || found == made || found == was, "key {key}");
                model.known.remove(&key);
                model.known.extend(found.map(|found| (key, found)));
                engine.flash_reads().unstage();
            }
        }
    }
    // Expired keys are not restored, so the keys counted then exist. A file that is too short at the start is refused.
    engine.between_requests().lost_parts().look();
    drop(engine);
    engine = machine.start(model.now_ms).0;
    let (mut found, count) = (0, engine.len(0));
    let evicted = engine.stats().evicted;
    for key in 0..400 {
        let there = look(&mut engine, key);
        engine.flash_reads().unstage();
        assert!(there.is_none() || there.as_ref() == model.known.get(&key), "key {key}");
        found += u64::from(there.is_some());
    }
    // A look promotes an item, and that may evict another, before or after it was looked at.
    let evicted = engine.stats().evicted - evicted;
    assert!(found <= count && (flash || count <= found + evicted), "{found} of {count}, {evicted} evicted");
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

fn assert_right(key: u16, found: &Known, known: Option<&Known>) {
    let Some(known) = known else { panic!("key {key} is back") };
    let differs = found.value.iter().zip(&known.value).position(|(one, other)| one != other);
    let at = differs.map(|at| (at, found.value[at]));
    assert!(
        found == known,
        "key {key}: {} bytes of {}, first at {at:?}",
        found.value.len(),
        known.value.len()
    );
}

/// The file is shortened and made longer again at once: until somebody looks, all of it reads as zeros, and nothing says so. Items are moved
/// and evicted meanwhile.
#[test]
fn a_file_that_is_emptied_unseen_costs_its_items() {
    for flash in [false, true] {
        let mut machine = Machine::new(flash);
        let mut engine = machine.start(START_MS).0;
        let file = std::fs::File::options().write(true).open(&machine.path.0).unwrap();
        let bytes = file.metadata().unwrap().len();
        let set = |engine: &mut Engine, at: usize| {
            engine.between_requests().lost_parts().begin();
            let value = value(at, [100, 1500, 9000, 70_000][at % 4]);
            let kept = engine.set(0, &name(at as u16 % 500), &value, Condition::Always, Expiry::Never);
            engine.commit();
            engine.between_requests().lost_parts().may_be_in_replies();
            kept.is_ok()
        };
        for round in 0..20 {
            (0..600).for_each(|at| _ = set(&mut engine, round * 7 + at));
            assert!(items_in(&engine, 1) > 0);
            file.set_len(0).unwrap();
            file.set_len(bytes).unwrap();
            let kept = (0..300).filter(|at| set(&mut engine, round * 11 + at)).count();
            assert!(kept > 0);
            engine.between_requests().lost_parts().look();
            check_losses(&machine, &mut engine);
        }
        drop(engine);
        machine.start(START_MS);
    }
}

/// Has the file of an engine lose all behind a part of it, and no access shows it.
fn shorten_unseen(machine: &Machine, part: u64) {
    let file = std::fs::File::options().write(true).open(&machine.path.0).unwrap();
    let bytes = file.metadata().unwrap().len();
    file.set_len(bytes * part / 4).unwrap();
    file.set_len(bytes).unwrap();
}

/// Fills the tiers with values of several pages, the ends of which may be lost alone. Says the version of each key.
fn fill_large(engine: &mut Engine, version: usize) {
    for key in 0..120u16 {
        let large = value(version, [9000, 70_000, 20_000][usize::from(key) % 3]);
        set(engine, key, &large, Expiry::Never);
        engine.commit();
    }
}

/// What is there is right, and each item has a key.
fn check_large(engine: &mut Engine, version: usize) -> usize {
    let mut found = 0;
    for key in 0..120u16 {
        let there = look(engine, key);
        engine.flash_reads().unstage();
        if let Some(there) = there {
            let right = value(version, [9000, 70_000, 20_000][usize::from(key) % 3]);
            assert!(there.value == right, "key {key} has {} bytes that are others", there.value.len());
            found += 1;
        }
    }
    let mut cursor = 0;
    loop {
        cursor =
            engine.keyspace().scan(0, cursor, 50, &mut |key, _| assert!(!key.is_empty(), "an item of zeros"));
        if cursor == 0 {
            return found;
        }
    }
}

/// A stop, or a death, within the second in which nobody has looked: what a restart finds is right.
#[test]
fn a_restart_finds_no_zeros_of_a_loss_that_nobody_saw() {
    for (flash, part, in_order) in [false, true]
        .into_iter()
        .flat_map(|flash| (0..4).flat_map(move |part| [true, false].map(|in_order| (flash, part, in_order))))
    {
        let mut machine = Machine::new(flash);
        let mut engine = machine.start(START_MS).0;
        fill_large(&mut engine, 3);
        assert!(items_in(&engine, 1) > 10);
        shorten_unseen(&machine, part);
        if in_order {
            engine.flash().close().unwrap();
            engine.warm_start().close().unwrap();
            assert!(!engine.between_requests().lost_parts().take_reports().is_empty(), "it is told");
        }
        drop(engine);
        if part == 0 && !in_order {
            // A file without its header is taken for an empty one.
            assert!(std::fs::read(&machine.path.0).unwrap()[..64].iter().all(|byte| *byte == 0));
        }
        let (mut engine, found) = machine.start(START_MS);
        assert_eq!(found.items, 0, "flash: {flash}, part {part}, in order: {in_order}");
        let found = check_large(&mut engine, 3);
        assert!(flash || found == 0);
        fill_large(&mut engine, 4);
        assert!(check_large(&mut engine, 4) > 10);
    }
}

/// What is copied in that second, to another tier or to flash, would show zeros for ever.
#[test]
fn nothing_is_moved_from_where_it_was_lost_unseen() {
    for flash in [false, true] {
        for part in 0..4 {
            let mut machine = Machine::new(flash);
            let mut engine = machine.start(START_MS).0;
            fill_large(&mut engine, 3);
            for key in 0..120u16 {
                // Some are about to be promoted.
                let _ = (look(&mut engine, key), look(&mut engine, key));
                engine.flash_reads().unstage();
            }
            engine.commit();
            shorten_unseen(&machine, part);
            for key in 1000..1100 {
                // One that meets the loss is refused.
                let _ = engine.set(0, &name(key), &value(9, 9000), Condition::Always, Expiry::Never);
                engine.commit();
                engine.between_requests().tick();
            }
            engine.between_requests().lost_parts().look();
            check_losses(&machine, &mut engine);
            check_large(&mut engine, 3);
        }
    }
}

/// The file is shortened while requests run, at any instruction of them. What the engine says is good is right, then and later.
#[test]
fn a_file_that_is_shortened_amid_requests_gives_no_wrong_value() {
    for flash in [false, true] {
        let mut machine = Machine::new(flash);
        let mut model = Model::new();
        let mut engine = machine.start(START_MS).0;
        let path = machine.path.0.clone();
        let (tell, told) = std::sync::mpsc::channel::<u64>();
        let (answer, answered) = std::sync::mpsc::channel();
        let shortens = std::thread::spawn(move || {
            let file = std::fs::File::options().write(true).open(path).unwrap();
            for bytes in told {
                file.set_len(bytes).unwrap();
                answer.send(()).unwrap();
            }
        });
        let (mut doubtful, mut lost) = (0, 0);
        for round in 0..200 {
            let before = engine.stats().lost;
            for at in 0..120 {
                if at == 40 {
                    tell.send((round * 7919) % 2048 * 1024 + round % 3 * 100).unwrap();
                }
                engine.between_requests().lost_parts().begin();
                let key = (round * 31 + at * 7) as u16 % 400;
                let new =
                    value(round as usize * 1000 + at as usize, [100, 1500, 9000, 70_000][(at % 4) as usize]);
                let found = look(&mut engine, key);
                let set = at % 3 == 0;
                let outcome = set.then(|| {
                    let appended = found.as_ref().map(|known| [&known.value[..], b"!"].concat());
                    let new = appended.filter(|it| it.len() < 100_000).unwrap_or(new);
                    let outcome = engine.set(0, &name(key), &new, Condition::Always, Expiry::Never);
                    (new, outcome)
                });
                engine.flash_reads().unstage();
                engine.commit();
                let in_doubt = engine.between_requests().lost_parts().may_be_in_replies();
                doubtful += u64::from(in_doubt);
                if !in_doubt && let Some(found) = found {
                    assert_right(key, &found, model.known.get(&key));
                }
                match outcome {
                    Some((value, Ok(_))) => {
                        model.known.insert(key, Known { value, expires_at_ms: None });
                    }
                    Some((_, Err(_))) => _ = model.known.remove(&key),
                    None => {}
                }
            }
            answered.recv().unwrap();
            engine.between_requests().lost_parts().look();
            lost += u64::from(engine.stats().lost > before);
        }
        drop(tell);
        shortens.join().unwrap();
        engine.between_requests().lost_parts().look();
        assert!(lost > 50, "items were lost in {lost} rounds");
        println!("flash: {flash}, losses in {lost} rounds, {doubtful} replies in doubt");
        let before = items_in(&engine, 1);
        drop(engine);
        let (mut engine, found) = machine.start(START_MS);
        assert_eq!((found.items, found.dropped), (before, 0));
        for key in 0..400 {
            let there = look(&mut engine, key);
            engine.flash_reads().unstage();
            assert!(there.is_none() || there.as_ref() == model.known.get(&key), "key {key}");
        }
    }
}

fn fill(engine: &mut Engine, keys: std::ops::Range<u16>) {
    for key in keys {
        set(engine, key, &value(7, 2000), Expiry::Never);
        engine.commit();
    }
}

#[test]
fn a_full_tier_is_taken_up_whole_and_twice() {
    let mut machine = Machine::new(false);
    let mut engine = machine.start(START_MS).0;
    fill(&mut engine, 0..1000);
    let before = items_in(&engine, 1);
    assert!(before > 500);
    for _ in 0..2 {
        drop(engine);
        let found;
        (engine, found) = machine.start(START_MS);
        assert_eq!(found, TakenUp { items: before, ..TakenUp::default() });
        assert_eq!(engine.len(0), before);
    }
    engine.flush(None);
    drop(engine);
    assert_eq!(machine.start(START_MS).1, TakenUp::default(), "what was flushed stays away");
}

/// A run continued with the flash tier alone: the file is of another time then, and its values may be older.
#[test]
fn a_file_that_missed_a_run_is_not_believed() {
    let mut machine = Machine::new(true);
    let mut engine = machine.start(START_MS).0;
    fill(&mut engine, 0..700);
    assert!(items_in(&engine, 1) > 100);
    engine.flash().close().unwrap();
    drop(engine);
    let aside = machine.path.0.with_extension("aside");
    std::fs::rename(&machine.path.0, &aside).unwrap();
    let mut engine = machine.start(START_MS).0;
    for key in 0..700 {
        engine.remove(0, &name(key));
        engine.commit();
    }
    engine.flash().close().unwrap();
    drop(engine);
    std::fs::rename(&aside, &machine.path.0).unwrap();
    let (mut engine, found) = machine.start(START_MS);
    assert_eq!(found, TakenUp { disagree: true, ..TakenUp::default() });
    assert!((0..700).all(|key| look(&mut engine, key).is_none()));
}

/// An engine that was not told to restore anything does not mix old items with new ones.
#[test]
fn what_is_not_taken_up_is_gone_when_something_is_stored() {
    let mut machine = Machine::new(false);
    let mut engine = machine.start(START_MS).0;
    fill(&mut engine, 0..1000);
    drop(engine);
    let mut careless = Engine::new(EngineConfig::new(machine.tiers())).unwrap();
    fill(&mut careless, 2000..3000);
    let left = items_in(&careless, 1);
    drop(careless);
    let (mut engine, found) = machine.start(START_MS);
    assert_eq!(found, TakenUp { items: left, ..TakenUp::default() });
    assert!((0..1000).all(|key| look(&mut engine, key).is_none()));
}
