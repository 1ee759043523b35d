//! Trims: they reach the store behind all that was written before them, and what is written meanwhile is not trimmed.

use std::collections::BTreeMap;
use std::ops::Range;

use proptest::prelude::*;
use tiermem_policy::extents::cleaner::{Act, CleanerRules, Token, TrimsLeft, WriteBackOrder};
use tiermem_policy::extents::{Fill, Mode, UNIT_BYTES, Verdict, Volume};

use crate::world::{KIB, MARKS, MIB, MS, S, World, is_copy, is_send};

const ORDERS: [WriteBackOrder; 3] = [WriteBackOrder::Group, WriteBackOrder::Flush, WriteBackOrder::None];
/// Units of 64 KiB.
const BLOCK_UNITS: u64 = 16;

/// A volume of which all is due at once.
fn at_once(order: WriteBackOrder) -> World {
    World::new(64 * MIB, 1, 1, CleanerRules { order, low_percent: 0, high_percent: 0, ..MARKS })
}

/// Writes a block.
fn write(world: &mut World, block: u64) {
    world.write(0, block * 64 * KIB..(block + 1) * 64 * KIB);
}

fn trim(world: &mut World, blocks: Range<u64>) {
    world.cleaner.trim(Volume(0), blocks.start * BLOCK_UNITS..blocks.end * BLOCK_UNITS);
}

/// The blocks that the store is being asked to trim, from one to another.
fn trimmed(world: &World) -> Vec<(u64, u64)> {
    let blocks = |act: &Act| match act {
        Act::Trim { units, .. } => Some((units.start / BLOCK_UNITS, units.end / BLOCK_UNITS)),
        _ => None,
    };
    world.pending.iter().filter_map(blocks).collect()
}

/// Whether the store lacks nothing, and has had all trims.
fn is_at_rest(world: &World) -> bool {
    world.cleaner.is_settled(Volume(0)) && world.cleaner.standing(Volume(0)).trims_left == TrimsLeft::None
}

fn is_trim(act: &Act) -> bool {
    matches!(act, Act::Trim { .. })
}

#[test]
fn a_trim_goes_at_once_where_the_store_lacks_nothing() {
    let mut world = at_once(WriteBackOrder::Group);
    trim(&mut world, 3..5);
    assert!(!is_at_rest(&world) && world.cleaner.is_settled(Volume(0)));
    world.step();
    assert_eq!(trimmed(&world), [(3, 5)]);
    world.assert_nothing_is_due();
    world.settle();
    world.step();
    assert!(trimmed(&world).is_empty() && is_at_rest(&world));
}

#[test]
fn a_trim_waits_until_the_store_has_all_that_was_written_before_it() {
    for order in ORDERS {
        let mut world = at_once(order);
        write(&mut world, 0);
        world.cleaner.close_epoch(Volume(0));
        write(&mut world, 1);
        // It is behind both, though a flush came between them.
        trim(&mut world, 0..1);
        world.cleaner.close_epoch(Volume(0));
        write(&mut world, 2);
        let mut flushes = 0;
        loop {
            world.step();
            let is_flushed = world.cleaner.is_flushed(Volume(0), 1);
            assert_eq!(trimmed(&world).is_empty(), !is_flushed, "{order:?}, {flushes} flushes");
            if is_flushed {
                break;
            }
            flushes += world.flushes().len();
            assert!(flushes < 10, "{order:?}");
            world.answer_all(false, |_| true);
        }
    }
}

#[test]
fn what_is_written_again_is_not_trimmed() {
    for order in ORDERS {
        let mut world = at_once(order);
        write(&mut world, 9);
        trim(&mut world, 0..4);
        write(&mut world, 1);
        world.cleaner.close_epoch(Volume(0));
        write(&mut world, 2);
        world.cleaner.close_epoch(Volume(0));
        world.clean_but_trims();
        let mut done = Vec::new();
        while !trimmed(&world).is_empty() {
            done.extend(trimmed(&world));
            world.answer_all(false, is_trim);
            world.step();
        }
        assert_eq!(done, [(0, 1), (3, 4)], "{order:?}");
    }
}

#[test]
fn what_a_write_makes_dirty_beside_its_own_bytes_is_not_trimmed() {
    let rules = CleanerRules { low_percent: 0, high_percent: 0, ..MARKS };
    let mut world = World::filling(Fill::Whole, 64 * MIB, 1, 1, rules);
    write(&mut world, 9);
    trim(&mut world, 0..2);
    world.write(0, 0..4 * KIB);
    world.clean_but_trims();
    assert_eq!(trimmed(&world), [(1, 2)]);
}

#[test]
fn writes_to_what_is_being_trimmed_go_on_and_leave_behind_the_trim() {
    for order in ORDERS {
        let mut world = at_once(order);
        trim(&mut world, 0..4);
        world.step();
        write(&mut world, 2);
        write(&mut world, 7);
        world.cleaner.close_epoch(Volume(0));
        assert_eq!(world.step(), [(0, 64 * KIB)], "{order:?}: the other one");
        world.answer_all(false, is_copy);
        world.answer_all(false, is_send);
        world.step();
        // The next write to it waits for no store, but where each flush is to be kept.
        let request = World::request(0, 2 * 64 * KIB..3 * 64 * KIB, Some(Mode::WriteBack));
        let verdict = world.cleaner.may_write(world.now_ns, &world.extents, &request);
        let expected = if order == WriteBackOrder::Flush { Verdict::Clean } else { Verdict::Ready };
        assert_eq!(verdict, expected, "{order:?}");
        world.answer_all(false, is_trim);
        world.clean();
        assert!(is_at_rest(&world) && world.taken.contains(&(0, 2 * BLOCK_UNITS)), "{order:?}");
    }
}

#[test]
fn a_write_that_goes_to_the_store_waits_for_the_trim_of_its_bytes() {
    for mode in [Mode::WriteThrough, Mode::WriteAround] {
        let mut world = at_once(WriteBackOrder::Group);
        trim(&mut world, 0..4);
        world.step();
        let may_write = |world: &mut World, at: u64| {
            world.cleaner.may_write(
                world.now_ns,
                &world.extents,
                &World::request(0, at..at + 512, Some(mode)),
            )
        };
        assert_eq!(may_write(&mut world, 4 * 64 * KIB - 512), Verdict::Busy);
        assert_eq!(may_write(&mut world, 4 * 64 * KIB), Verdict::Ready);
        world.answer_all(false, is_trim);
        assert_eq!(may_write(&mut world, 4 * 64 * KIB - 512), Verdict::Ready);
        // What is written through is not trimmed later either.
        trim(&mut world, 0..1);
        assert_eq!(world.ask(0, 0..64 * KIB, Some(mode)), Verdict::Ready);
        world.step();
        assert!(trimmed(&world).is_empty());
    }
}

#[test]
fn a_trim_that_fails_is_tried_again_after_a_while_and_writes_are_not_held_up() {
    let mut world = at_once(WriteBackOrder::Group);
    trim(&mut world, 0..4);
    for (number, wait_ms) in
        [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000].into_iter().enumerate()
    {
        world.step();
        assert_eq!(trimmed(&world).len(), 1);
        world.answer_all(true, is_trim);
        assert!(world.cleaner.standing(Volume(0)).trims_left == TrimsLeft::AfterPause);
        // A write of the store succeeds meanwhile, and changes nothing about that.
        write(&mut world, 8 + number as u64);
        world.clean();
        assert!(world.cleaner.is_settled(Volume(0)), "{wait_ms} ms");
        world.now_ns += wait_ms * MS - 1;
        world.step();
        world.settle();
        world.step();
        assert!(trimmed(&world).is_empty(), "{wait_ms} ms");
        world.assert_nothing_is_due();
        world.now_ns += 1;
    }
    world.clean();
    assert!(is_at_rest(&world));
    trim(&mut world, 0..4);
    world.step();
    world.answer_all(true, is_trim);
    world.step();
    assert_eq!(world.wake_ns, Some(world.now_ns + 100 * MS), "a trim that was done begins anew");
}

#[test]
fn nothing_is_trimmed_while_the_store_is_left_alone_or_the_log_is_full() {
    let mut world = at_once(WriteBackOrder::Group);
    world.cleaner.set_log_room(false);
    trim(&mut world, 0..4);
    world.step();
    assert!(trimmed(&world).is_empty());
    world.cleaner.set_log_room(true);
    write(&mut world, 9);
    world.step();
    world.answer_all(false, is_copy);
    world.answer_all(true, is_send);
    world.cleaner.lost(Volume(0), 9 * BLOCK_UNITS..10 * BLOCK_UNITS);
    world.step();
    assert!(trimmed(&world).is_empty() && world.cleaner.is_settled(Volume(0)));
    world.now_ns = 99 * MS;
    world.step();
    assert_eq!((trimmed(&world), world.wake_ns), (vec![], Some(100 * MS)));
    world.now_ns = 100 * MS;
    world.step();
    assert_eq!(trimmed(&world), [(0, 4)]);
}

/// Units of the volume.
const UNITS: u64 = 4 * BLOCK_UNITS;

/// What the cache and the store have of each unit, as numbers of the requests that brought it.
struct Model {
    world: World,
    requests: u64,
    cached: Vec<u64>,
    /// Since when nothing was written there but a trim.
    trimmed: Vec<Option<u64>>,
    /// All writes, by unit.
    writes: Vec<Vec<u64>>,
    /// In buffers, by unit: no unit leaves twice at a time.
    copies: BTreeMap<u64, u64>,
    taken: Vec<u64>,
    durable: Vec<u64>,
    /// What the store had taken when its flush began.
    flushing: BTreeMap<Token, Vec<u64>>,
    /// Up to which trim the store has trimmed.
    trims: Vec<u64>,
    seen: Vec<Token>,
}

impl Model {
    fn new(order: WriteBackOrder) -> Self {
        let units = UNITS as usize;
        Model {
            world: at_once(order),
            requests: 0,
            cached: vec![0; units],
            trimmed: vec![None; units],
            writes: vec![Vec::new(); units],
            copies: BTreeMap::new(),
            taken: vec![0; units],
            durable: vec![0; units],
            flushing: BTreeMap::new(),
            trims: vec![0; units],
            seen: Vec::new(),
        }
    }

    fn write(&mut self, units: Range<u64>) {
        let range = units.start * UNIT_BYTES..units.end * UNIT_BYTES;
        let request = World::request(0, range.clone(), Some(Mode::WriteBack));
        let world = &mut self.world;
        if world.cleaner.may_write(world.now_ns, &world.extents, &request) != Verdict::Ready {
            world.cleaner.nobody_waits();
            return;
        }
        if world.ask(0, range, Some(Mode::WriteBack)) == Verdict::Ready {
            self.requests += 1;
            for unit in units.map(|unit| unit as usize) {
                self.cached[unit] = self.requests;
                self.writes[unit].push(self.requests);
                self.trimmed[unit] = None;
            }
        }
        self.look();
    }

    fn trim(&mut self, units: Range<u64>) {
        self.requests += 1;
        self.world.cleaner.trim(Volume(0), units.clone());
        units.for_each(|unit| _ = self.trimmed[unit as usize].get_or_insert(self.requests));
    }

    /// Looks at the acts that have begun.
    fn look(&mut self) {
        for act in self.world.pending.clone() {
            let (Act::Flush { token, .. } | Act::Trim { token, .. }) = act else { continue };
            if self.seen.contains(&token) {
                continue;
            }
            self.seen.push(token);
            if let Act::Trim { units, .. } = act {
                self.assert_trim_is_due(units);
            } else {
                self.flushing.insert(token, self.taken.clone());
            }
        }
        let asked = |act: &Act| if let Act::Trim { units, .. } = act { Some(units.clone()) } else { None };
        let asked: Vec<_> = self.world.pending.iter().filter_map(asked).collect();
        for act in &self.world.pending {
            let (Act::Copy { units, .. } | Act::Send { units, .. }) = act else { continue };
            let meets = |trim: &Range<u64>| trim.start < units.end && units.start < trim.end;
            assert!(!asked.iter().any(meets), "what is being trimmed is not written at the same time");
        }
    }

    /// What is to be trimmed was not written since, and the store has all that was written before.
    fn assert_trim_is_due(&mut self, units: Range<u64>) {
        let since = |unit: u64| self.trimmed[unit as usize].expect("it was not written since it was trimmed");
        let last = units.clone().map(since).max().unwrap();
        for (unit, writes) in self.writes.iter().enumerate() {
            let before = writes.iter().rfind(|request| **request < last).copied().unwrap_or(0);
            assert!(
                self.durable[unit] >= before,
                "unit {unit}: the store lacks request {before}, before {last}"
            );
        }
        for unit in units.map(|unit| unit as usize) {
            self.trims[unit] = self.requests;
            (self.taken[unit], self.durable[unit]) = (self.requests, self.requests);
            self.flushing.values_mut().for_each(|taken| taken[unit] = self.requests);
        }
    }

    fn answer(&mut self, which: usize, fails: bool) {
        if self.world.pending.is_empty() {
            return;
        }
        let act = self.world.pending.remove(which % self.world.pending.len());
        match &act {
            Act::Copy { units, .. } => {
                self.copies.extend(units.clone().map(|unit| (unit, self.cached[unit as usize])));
            }
            Act::Send { units, .. } if !fails => {
                units.clone().for_each(|unit| self.taken[unit as usize] = self.copies[&unit]);
            }
            Act::Flush { token, .. } => {
                let taken = self.flushing.remove(token).unwrap();
                if !fails {
                    self.durable = taken;
                }
            }
            _ => {}
        }
        if let Act::Flush { token, .. } | Act::Trim { token, .. } = &act {
            self.seen.retain(|seen| seen != token);
        }
        let is_copy = is_copy(&act);
        self.world.answer(act, fails && !is_copy);
        self.look();
    }

    fn step(&mut self) {
        self.world.step();
        self.look();
    }

    /// All is answered, and goes well, until nothing is left to do.
    fn finish(&mut self) {
        self.world.cleaner.close_epoch(Volume(0));
        for _ in 0..10_000 {
            self.step();
            if self.world.pending.is_empty() {
                if is_at_rest(&self.world) {
                    break;
                }
                self.world.now_ns += S;
            }
            self.answer(0, false);
        }
        for unit in 0..UNITS as usize {
            assert!(
                self.trimmed[unit].is_none_or(|since| self.trims[unit] >= since),
                "unit {unit} is never trimmed"
            );
            assert!(self.durable[unit] >= self.cached[unit], "unit {unit} is never written");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(Range<u64>),
    Trim(Range<u64>),
    Flush,
    Decide,
    Answer(usize, bool),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let units = || (0..UNITS, 1u64..24).prop_map(|(at, len)| at..(at + len).min(UNITS));
    let step = prop_oneof![
        6 => units().prop_map(Step::Write),
        3 => units().prop_map(Step::Trim),
        2 => Just(Step::Flush),
        6 => Just(Step::Decide),
        12 => (any::<usize>(), prop::bool::weighted(0.1)).prop_map(|(which, fails)| Step::Answer(which, fails)),
        1 => (0u64..300).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..150)
}

proptest! {
    #[test]
    fn the_store_trims_nothing_else_and_nothing_too_soon(order in 0usize..3, steps in steps()) {
        let mut model = Model::new(ORDERS[order]);
        for step in steps {
            match step {
                Step::Write(units) => model.write(units),
                Step::Trim(units) => model.trim(units),
                Step::Flush => drop(model.world.cleaner.close_epoch(Volume(0))),
                Step::Decide => model.step(),
                Step::Answer(which, fails) => model.answer(which, fails),
                Step::Pass(ms) => model.world.now_ns += ms * MS,
            }
        }
        model.finish();
    }
}
