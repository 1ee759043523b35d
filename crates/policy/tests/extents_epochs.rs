//! Order of write-back on a model of a volume, a cache and a backing store that may lose what it was not asked to flush. Over any
//! sequence of events the store holds all writes before some acknowledged flush and any of those between that and the next.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::ops::Range;

use proptest::prelude::*;
use tiermem_policy::extents::UNIT_BYTES;
use tiermem_policy::extents::cleaner::WriteBackOrder;
use tiermem_policy::extents::cleaner::epochs::Epochs;

/// Units of the volume: three frames.
const UNITS: u64 = 150;

/// A write to a unit, or that a trim allowed anything there.
#[derive(Clone, Copy, Debug)]
struct Version {
    /// Flushes acknowledged before it began.
    began: u64,
    /// Flushes acknowledged before it was done; none yet.
    done: Option<u64>,
    is_trim: bool,
}

/// A write of a client that is under way: its bytes are in the cache, the client has not been told.
struct Writing {
    units: Range<u64>,
    began: u64,
}

/// Something on its way to the store.
struct Leaving {
    units: Range<u64>,
    /// What was copied, unit by unit.
    buffer: Option<Vec<usize>>,
}

/// A write that the store was given since it was flushed last.
struct Sent {
    unit: u64,
    version: usize,
    /// Whether the store said that it took it, in this session.
    is_sure: bool,
}

struct Model {
    epochs: Epochs,
    /// For each unit its versions in order; the first is what was there at the begin.
    versions: Vec<Vec<Version>>,
    /// What the cache holds: always the last that was written.
    cache: Vec<usize>,
    /// What the store may hold of a unit if it loses all that it can.
    durable: Vec<Vec<usize>>,
    sent: Vec<Sent>,
    /// How many of these the flush under way covers.
    flushing: Option<usize>,
    writing: Vec<Writing>,
    leaving: Vec<Leaving>,
    flushes: u64,
    /// For each epoch by number, the flush that ended it.
    ended_by: Vec<u64>,
    /// Whether the first epoch stands for all before a restart.
    restarted: bool,
    now_ns: u64,
}

/// Whether another of these touches any of the same units.
fn meets(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

fn cells(units: &Range<u64>) -> Range<usize> {
    units.start as usize..units.end as usize
}

fn epochs() -> Epochs {
    Epochs::new(WriteBackOrder::Flush, 4, 20 * UNIT_BYTES)
}

impl Model {
    fn new() -> Self {
        let units = UNITS as usize;
        let first = Version { began: 0, done: Some(0), is_trim: false };
        Model {
            epochs: epochs(),
            versions: vec![vec![first]; units],
            cache: vec![0; units],
            durable: vec![vec![0]; units],
            sent: Vec::new(),
            flushing: None,
            writing: Vec::new(),
            leaving: Vec::new(),
            flushes: 0,
            ended_by: Vec::new(),
            restarted: false,
            now_ns: 0,
        }
    }

    fn is_written_to(&self, units: &Range<u64>) -> bool {
        self.writing.iter().any(|writing| meets(&writing.units, units))
    }

    /// A client's write begins; one that should wait does so only if it is `polite`.
    fn begin(&mut self, units: Range<u64>, polite: bool) {
        if self.is_written_to(&units) || (polite && self.epochs.conflict(units.clone())) {
            return;
        }
        for unit in cells(&units) {
            let version = Version { began: self.flushes, done: None, is_trim: false };
            self.versions[unit].push(version);
            self.cache[unit] = self.versions[unit].len() - 1;
        }
        self.writing.push(Writing { units, began: self.epochs.current() });
    }

    fn end(&mut self, which: usize) {
        if self.writing.is_empty() {
            return;
        }
        let Writing { units, began } = self.writing.swap_remove(which % self.writing.len());
        for unit in cells(&units) {
            self.versions[unit].last_mut().unwrap().done = Some(self.flushes);
        }
        self.epochs.dirtied(units.clone(), began, self.now_ns);
    }

    fn boundary(&mut self) {
        let before = self.epochs.current();
        self.epochs.boundary();
        self.flushes += 1;
        if self.epochs.current() != before {
            self.ended_by.push(self.flushes);
            assert_eq!(self.ended_by.len() as u64, self.epochs.current());
        }
    }

    fn next(&mut self, max_units: u64) {
        let mut runs = Vec::new();
        let bytes = self.epochs.next(max_units * UNIT_BYTES + 17, &mut runs);
        assert!(bytes <= max_units * UNIT_BYTES);
        self.leave(runs, bytes);
    }

    fn next_of(&mut self, units: Range<u64>) {
        let mut runs = Vec::new();
        let bytes = self.epochs.next_of(units.clone(), &mut runs);
        assert!(runs.iter().all(|run| units.start <= run.start && run.end <= units.end));
        self.leave(runs, bytes);
    }

    fn leave(&mut self, runs: Vec<Range<u64>>, bytes: u64) {
        assert_eq!(bytes, runs.iter().map(|run| (run.end - run.start) * UNIT_BYTES).sum::<u64>());
        for units in runs {
            assert!(!self.leaving.iter().any(|leaving| meets(&leaving.units, &units)));
            self.leaving.push(Leaving { units, buffer: None });
        }
    }

    fn copy(&mut self, which: usize) {
        let count = self.leaving.len().max(1);
        let Some(leaving) = self.leaving.get(which % count) else { return };
        if leaving.buffer.is_none() && !self.is_written_to(&leaving.units) {
            let units = leaving.units.clone();
            self.leaving[which % count].buffer = Some(self.cache[cells(&units)].to_vec());
            self.epochs.copied(units);
        }
    }

    /// A write to the store ends. One that fails may have been taken nevertheless.
    fn write(&mut self, which: usize, fails: bool) {
        self.copy(which);
        let count = self.leaving.len().max(1);
        let Some(leaving) = self.leaving.get(which % count) else { return };
        if leaving.buffer.is_none() && !fails {
            return;
        }
        let Leaving { units, buffer } = self.leaving.swap_remove(which % count);
        for (unit, version) in units.clone().zip(buffer.into_iter().flatten()) {
            self.sent.push(Sent { unit, version, is_sure: !fails });
        }
        if fails {
            self.epochs.failed(units);
        } else {
            self.epochs.written(units);
        }
    }

    fn flush_begins(&mut self) {
        if self.flushing.is_none() {
            self.flushing = Some(self.sent.len());
            self.epochs.flush_begins();
        }
    }

    fn flushed(&mut self) {
        let Some(covered) = self.flushing.take() else { return };
        for Sent { unit, version, is_sure } in self.sent.drain(..covered) {
            let durable = &mut self.durable[unit as usize];
            if is_sure {
                durable.clear();
            }
            durable.push(version);
        }
        let mut clean = Vec::new();
        self.epochs.flushed(&mut clean);
        for units in clean {
            for unit in units.filter(|unit| !self.is_written_to(&(*unit..unit + 1))) {
                let unit = unit as usize;
                assert!(!self.is_trimmed(unit));
                assert_eq!(self.durable[unit], [self.cache[unit]], "unit {unit} is not clean");
            }
        }
    }

    fn lost_session(&mut self) {
        self.flushing = None;
        self.sent.iter_mut().for_each(|sent| sent.is_sure = false);
        self.epochs.lost_session();
    }

    fn trim(&mut self, units: Range<u64>) {
        if self.is_written_to(&units) {
            return;
        }
        let mut kept = Vec::new();
        self.epochs.forget(units.clone(), &mut kept);
        for unit in units.filter(|unit| !kept.iter().any(|run| run.contains(unit))) {
            let unit = unit as usize;
            let version = Version { began: self.flushes, done: Some(self.flushes), is_trim: true };
            self.versions[unit].push(version);
            // The cache has nothing, and any content of the store is allowed.
            self.cache[unit] = self.versions[unit].len() - 1;
        }
    }

    fn is_trimmed(&self, unit: usize) -> bool {
        self.versions[unit][self.cache[unit]].is_trim
    }

    /// The process dies and comes back: all that is not known to be clean is dirty.
    fn restart(&mut self) {
        self.lost_session();
        for Leaving { units, buffer } in std::mem::take(&mut self.leaving) {
            for (unit, version) in units.zip(buffer.into_iter().flatten()) {
                self.sent.push(Sent { unit, version, is_sure: false });
            }
        }
        self.writing.clear();
        self.epochs = epochs();
        self.ended_by.clear();
        self.restarted = true;
        for unit in 0..UNITS as usize {
            let is_in_doubt = self.sent.iter().any(|sent| sent.unit == unit as u64);
            if !self.is_trimmed(unit) && (is_in_doubt || self.durable[unit] != [self.cache[unit]]) {
                // A client that was not told that the write was done cannot say that it was not.
                self.versions[unit].last_mut().unwrap().done.get_or_insert(self.flushes);
                self.epochs.dirtied(unit as u64..unit as u64 + 1, 0, self.now_ns);
            }
        }
    }

    /// All that the store may hold of a unit.
    fn possible(&self, unit: usize) -> impl Iterator<Item = usize> + '_ {
        let sent = self.sent.iter().filter(move |sent| sent.unit == unit as u64).map(|sent| sent.version);
        let on_the_way = self.leaving.iter().filter_map(move |leaving| {
            let behind = (unit as u64).checked_sub(leaving.units.start)?;
            leaving.buffer.as_ref()?.get(behind as usize).copied()
        });
        self.durable[unit].iter().copied().chain(sent).chain(on_the_way)
    }

    /// Whether a unit may hold this when the store has all before flush `from`, and any of what began before flush `to` was followed by
    /// another.
    fn is_legal(&self, unit: usize, held: usize, from: u64, to: u64) -> bool {
        let versions = &self.versions[unit];
        let is_required = |version: &Version| version.done.is_some_and(|done| done < from);
        let least = versions.iter().rposition(is_required).unwrap_or(0);
        let trim = versions[least..].iter().find(|version| version.is_trim && version.began <= to);
        let least = if trim.is_some() { 0 } else { least };
        held >= least && versions[held].began <= to
    }

    fn assert_legal(&self) {
        let oldest = self.epochs.spans().next().unwrap();
        let is_merged = oldest.start() != oldest.end() || (self.restarted && *oldest.start() == 0);
        let merged_to = match self.ended_by.get(*oldest.end() as usize) {
            _ if !is_merged => 0,
            Some(flush) => flush - 1,
            None => self.flushes,
        };
        let is_legal = |from: u64| {
            (0..UNITS as usize).all(|unit| {
                self.possible(unit).all(|held| self.is_legal(unit, held, from, from.max(merged_to)))
            })
        };
        assert!((0..=self.flushes).rev().any(is_legal), "the store may hold what it never should");
    }

    fn assert_adds_up(&self) {
        let on_the_way: u64 =
            self.leaving.iter().map(|leaving| leaving.units.end - leaving.units.start).sum();
        assert_eq!(self.epochs.leaving_bytes(), on_the_way * UNIT_BYTES);
        assert_eq!(self.epochs.first_dirty_ns().is_some(), self.epochs.dirty_bytes() > 0);
        assert!(self.epochs.epochs() > 1 || !self.epochs.conflict(0..UNITS), "one epoch needs nothing old");
        let spans: Vec<_> = self.epochs.spans().collect();
        assert_eq!(spans.len(), self.epochs.epochs());
        assert!(spans.windows(2).all(|pair| pair[0].end() + 1 == *pair[1].start()));
    }

    /// Writes back all there is.
    fn drain(&mut self) {
        while !self.writing.is_empty() {
            self.end(0);
        }
        let mut rounds = 0;
        loop {
            self.next(7);
            while !self.leaving.is_empty() {
                self.write(0, false);
            }
            if self.flushing.is_some() || self.epochs.must_flush() {
                self.flush_begins();
                self.flushed();
            }
            self.assert_legal();
            if self.epochs.dirty_bytes() == 0 && !self.epochs.must_flush() {
                break;
            }
            rounds += 1;
            assert!(rounds < 1000, "it does not end");
        }
        for unit in (0..UNITS as usize).filter(|unit| !self.is_trimmed(*unit)) {
            assert!(self.possible(unit).all(|held| held == self.cache[unit]), "the store lacks unit {unit}");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Begin(Range<u64>, bool),
    End(usize),
    Write(Range<u64>),
    Boundary,
    Next(u64),
    NextOf(Range<u64>),
    Copy(usize),
    Written(usize),
    Failed(usize),
    FlushBegins,
    Flushed,
    MustFlush,
    LostSession,
    Trim(Range<u64>),
    Merge,
    Restart,
}

fn units() -> impl Strategy<Value = Range<u64>> {
    let short = (0..UNITS, 1u64..6).prop_map(|(at, len)| at..(at + len).min(UNITS));
    // A few units that are written again and again, over the border of a frame.
    let hot = (60u64..68, 1u64..4).prop_map(|(at, len)| at..at + len);
    prop_oneof![2 => short, 3 => hot, 1 => (0..UNITS, 1u64..100).prop_map(|(at, len)| at..(at + len).min(UNITS))]
}

fn step() -> impl Strategy<Value = Step> {
    let polite = prop::bool::weighted(0.7);
    prop_oneof![
        4 => (units(), polite).prop_map(|(units, polite)| Step::Begin(units, polite)),
        4 => any::<usize>().prop_map(Step::End),
        6 => units().prop_map(Step::Write),
        5 => Just(Step::Boundary),
        5 => (0u64..40).prop_map(Step::Next),
        1 => units().prop_map(Step::NextOf),
        3 => any::<usize>().prop_map(Step::Copy),
        8 => any::<usize>().prop_map(Step::Written),
        1 => any::<usize>().prop_map(Step::Failed),
        1 => Just(Step::FlushBegins),
        2 => Just(Step::Flushed),
        3 => Just(Step::MustFlush),
        1 => Just(Step::LostSession),
        1 => units().prop_map(Step::Trim),
        1 => Just(Step::Merge),
        1 => Just(Step::Restart),
    ]
}

fn run(steps: &[Step]) -> u64 {
    let mut model = Model::new();
    for step in steps {
        model.now_ns += 1;
        match step.clone() {
            Step::Begin(units, polite) => model.begin(units, polite),
            Step::End(which) => model.end(which),
            Step::Write(units) => {
                let before = model.writing.len();
                model.begin(units, true);
                if model.writing.len() > before {
                    model.end(before);
                }
            }
            Step::Boundary => model.boundary(),
            Step::Next(units) => model.next(units),
            Step::NextOf(units) => model.next_of(units),
            Step::Copy(which) => model.copy(which),
            Step::Written(which) => model.write(which, false),
            Step::Failed(which) => model.write(which, true),
            Step::FlushBegins => model.flush_begins(),
            Step::Flushed => model.flushed(),
            Step::MustFlush if model.epochs.must_flush() => {
                model.flush_begins();
                model.flushed();
            }
            Step::MustFlush => (),
            Step::LostSession => model.lost_session(),
            Step::Trim(units) => model.trim(units),
            Step::Merge => drop(model.epochs.merge()),
            Step::Restart => model.restart(),
        }
        model.assert_legal();
        model.assert_adds_up();
    }
    let merges = model.epochs.list().merges();
    model.drain();
    merges
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_store_is_always_between_two_flushes(steps in prop::collection::vec(step(), 1..120)) {
        run(&orderly(steps));
    }

    #[test]
    fn nothing_is_lost_unsaid_where_order_is_given_up(steps in prop::collection::vec(step(), 1..120)) {
        run(&steps);
    }

    #[test]
    fn without_failures_nothing_is_merged(steps in prop::collection::vec(step(), 1..120)) {
        let mut steps = orderly(steps);
        steps.retain(|step| !matches!(step, Step::Failed(_) | Step::LostSession));
        prop_assert_eq!(run(&steps), 0);
    }
}

/// The steps of a driver that heeds conflicts, merges nothing and does not die.
fn orderly(mut steps: Vec<Step>) -> Vec<Step> {
    steps.retain(|step| !matches!(step, Step::Merge | Step::Restart));
    for step in &mut steps {
        if let Step::Begin(_, polite) = step {
            *polite = true;
        }
    }
    steps
}

/// What is taken, in one go.
fn next(epochs: &mut Epochs, max_units: u64) -> Vec<Range<u64>> {
    let mut runs = Vec::new();
    epochs.next(max_units * UNIT_BYTES, &mut runs);
    runs
}

fn write(epochs: &mut Epochs, units: Range<u64>) {
    assert!(!epochs.conflict(units.clone()));
    epochs.dirtied(units, epochs.current(), 0);
}

/// The store takes what is leaving, and flushes if it should.
fn write_back(epochs: &mut Epochs, runs: Vec<Range<u64>>) {
    for run in runs {
        epochs.copied(run.clone());
        epochs.written(run);
    }
    if epochs.must_flush() {
        epochs.flush_begins();
        epochs.flushed(&mut Vec::new());
    }
}

#[test]
fn runs_ascend_from_where_the_last_ended_and_are_whole() {
    let mut epochs = epochs();
    write(&mut epochs, 60..70);
    write(&mut epochs, 200..203);
    write(&mut epochs, 5..6);
    assert_eq!(next(&mut epochs, 3), [5..6, 60..62]);
    assert_eq!(next(&mut epochs, 9), [62..70, 200..201]);
    write(&mut epochs, 0..3);
    assert_eq!(next(&mut epochs, 9), [201..203, 0..3]);
    assert_eq!(next(&mut epochs, 9), []);
}

#[test]
fn an_epoch_goes_only_when_the_one_before_is_flushed() {
    let mut epochs = epochs();
    write(&mut epochs, 0..4);
    epochs.boundary();
    write(&mut epochs, 2..2);
    write(&mut epochs, 8..9);
    epochs.boundary();
    assert_eq!(epochs.epochs(), 3);
    let first = next(&mut epochs, 100);
    assert_eq!(first, std::slice::from_ref(&(0..4)));
    assert_eq!(next(&mut epochs, 100), [], "8 is of a later epoch");
    assert!(!epochs.must_flush());
    write_back(&mut epochs, first);
    assert_eq!(epochs.epochs(), 2);
    assert_eq!(next(&mut epochs, 100), std::slice::from_ref(&(8..9)));
}

#[test]
fn what_an_older_epoch_needs_may_be_overwritten_once_it_is_copied() {
    let mut epochs = epochs();
    write(&mut epochs, 0..4);
    assert!(!epochs.conflict(0..4), "one epoch");
    epochs.boundary();
    assert!(epochs.conflict(3..9) && !epochs.conflict(4..9));
    next(&mut epochs, 2);
    assert!(epochs.conflict(0..1), "taken, but not copied");
    epochs.copied(0..2);
    assert!(!epochs.conflict(0..2) && epochs.conflict(2..3));
    write(&mut epochs, 0..2);
    // The copy did not arrive, and the cache has something newer.
    epochs.failed(0..1);
    assert_eq!((epochs.list().merges(), epochs.epochs()), (1, 1));
}

#[test]
fn a_write_under_way_over_a_boundary_belongs_before_it_where_it_took_something_away() {
    let mut epochs = epochs();
    write(&mut epochs, 0..2);
    let began = epochs.current();
    next(&mut epochs, 1);
    epochs.boundary();
    epochs.dirtied(0..3, began, 0);
    assert_eq!(epochs.dirty_bytes(), 3 * UNIT_BYTES);
    assert!(epochs.conflict(0..1) && epochs.conflict(1..2) && !epochs.conflict(2..3));
    epochs.failed(0..1);
    assert_eq!(epochs.list().merges(), 0);
    assert_eq!(next(&mut epochs, 3), [1..2, 0..1]);
}

#[test]
fn the_bound_on_epochs_is_said_and_merging_makes_room() {
    let mut epochs = Epochs::new(WriteBackOrder::Flush, 2, u64::MAX);
    for at in 0..2 {
        assert!(!epochs.is_full());
        write(&mut epochs, at..at + 1);
        epochs.boundary();
        epochs.boundary();
    }
    assert!(epochs.is_full());
    assert!(epochs.merge());
    assert!(!epochs.is_full());
    assert_eq!(epochs.spans().collect::<Vec<_>>(), [0..=1, 2..=2]);
    assert_eq!(next(&mut epochs, 100), std::slice::from_ref(&(0..2)));
}

#[test]
fn a_trim_drops_what_no_older_epoch_needs() {
    let mut epochs = epochs();
    write(&mut epochs, 0..4);
    epochs.boundary();
    write(&mut epochs, 4..8);
    let mut kept = Vec::new();
    epochs.forget(0..u64::MAX, &mut kept);
    assert_eq!(kept, std::slice::from_ref(&(0..4)));
    assert_eq!(epochs.dirty_bytes(), 4 * UNIT_BYTES);
}

#[test]
fn the_time_is_that_of_the_oldest_and_comes_back_with_it() {
    let mut epochs = epochs();
    assert_eq!(epochs.first_dirty_ns(), None);
    epochs.dirtied(0..1, 0, 10);
    epochs.boundary();
    epochs.dirtied(1..2, 1, 20);
    assert_eq!(epochs.first_dirty_ns(), Some(10));
    next(&mut epochs, 1);
    assert_eq!(epochs.first_dirty_ns(), Some(20));
    epochs.failed(0..1);
    assert_eq!(epochs.first_dirty_ns(), Some(10));
}
