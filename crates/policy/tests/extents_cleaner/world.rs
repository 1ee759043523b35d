//! A cache whose cleaner is driven by hand: acts are begun, and answered when a test says so.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tiermem_base::Rng;
use tiermem_policy::evict::lru::{Bump, Lru};
use tiermem_policy::extents::cleaner::{
    Act, BATCH_BYTES, Cleaner, CleanerRules, Outcome, Token, WriteBackOrder,
};
use tiermem_policy::extents::{
    Config, Extents, Fill, Geometry, Mode, Plan, Request, Sizing, UNIT_BYTES, Verdict, Volume,
};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000 * MS;
pub const NEVER: u64 = u64::MAX / 2;

/// Nothing becomes old by itself.
pub const MARKS: CleanerRules = CleanerRules {
    order: WriteBackOrder::Flush,
    age_ns: NEVER,
    low_percent: 50,
    high_percent: 75,
    full_wait_ns: Some(60 * S),
};

pub struct World {
    pub cleaner: Cleaner,
    pub extents: Extents<Lru>,
    pub now_ns: u64,
    /// Acts that were begun and not answered, in order.
    pub pending: Vec<Act>,
    pub wake_ns: Option<u64>,
    /// What each store was given, and of that what is flushed, by volume and unit.
    pub taken: BTreeSet<(u16, u64)>,
}

impl World {
    pub fn new(capacity_bytes: u64, volumes: u16, shares: u16, rules: CleanerRules) -> Self {
        World::filling(Fill::Units, capacity_bytes, volumes, shares, rules)
    }

    pub fn filling(fill: Fill, capacity_bytes: u64, volumes: u16, shares: u16, rules: CleanerRules) -> Self {
        let geometry = Geometry::new(&[64 * KIB], None, capacity_bytes).unwrap();
        let config = Config { fill, sizing: Sizing::Request, shares };
        let order = Lru::new(vec![1.0; Extents::<Lru>::domains(shares)], Bump::Always);
        let mut cleaner = Cleaner::new(rules, geometry.capacity_bytes(), u64::MAX);
        (0..volumes).for_each(|volume| cleaner.add(Volume(volume), 0));
        let extents = Extents::new(geometry, config, order, Rng::seeded(1));
        let (pending, taken) = (Vec::new(), BTreeSet::new());
        World { cleaner, extents, now_ns: 0, pending, wake_ns: None, taken }
    }

    pub fn request(volume: u16, range: Range<u64>, write: Option<Mode>) -> Request {
        let (offset, bytes) = (range.start, range.end - range.start);
        Request { volume: Volume(volume), offset, bytes, write, bypass: false }
    }

    pub fn may_write(&mut self, volume: u16) -> bool {
        let request = Self::request(volume, 0..4096, Some(Mode::WriteBack));
        self.cleaner.may_write(self.now_ns, &self.extents, &request) == Verdict::Ready
    }

    /// Plans a request; acts that follow are begun.
    pub fn ask(&mut self, volume: u16, range: Range<u64>, write: Option<Mode>) -> Verdict {
        let (mut plan, mut acts) = (Plan::default(), Vec::new());
        let mut request = Self::request(volume, range, write);
        let verdict = self.cleaner.plan(self.now_ns, &mut self.extents, &mut request, &mut plan, &mut acts);
        self.extents.finish(&mut plan);
        self.begin(acts);
        verdict
    }

    pub fn write(&mut self, volume: u16, range: Range<u64>) {
        assert_eq!(self.ask(volume, range, Some(Mode::WriteBack)), Verdict::Ready);
    }

    pub fn begin(&mut self, acts: Vec<Act>) {
        for act in acts {
            if let Act::Copy { volume, units, .. } = &act {
                let range = units.start * UNIT_BYTES..units.end * UNIT_BYTES;
                assert!(range.end - range.start <= BATCH_BYTES);
                let mut dirty = 0;
                self.extents.visit(*volume, range.clone(), |part, is_dirty| {
                    dirty += if is_dirty { part.bytes } else { 0 };
                });
                assert_eq!(dirty, range.end - range.start, "all that leaves is dirty");
            }
            match act {
                Act::Wait { until_ns } => self.wake_ns = Some(until_ns),
                act => self.pending.push(act),
            }
        }
    }

    /// Has it decide; the bytes of each volume that begin to leave.
    pub fn step(&mut self) -> Vec<(u16, u64)> {
        let first = self.pending.len();
        let mut acts = Vec::new();
        self.wake_ns = None;
        self.cleaner.step(self.now_ns, &self.extents, &mut acts);
        self.begin(acts);
        let mut bytes: BTreeMap<u16, u64> = BTreeMap::new();
        for act in &self.pending[first..] {
            if let Act::Copy { volume, units, .. } = act {
                *bytes.entry(volume.0).or_default() += (units.end - units.start) * UNIT_BYTES;
            }
        }
        bytes.into_iter().collect()
    }

    /// Nothing happens until it asked to be called again, so nothing is to be done before.
    pub fn assert_nothing_is_due(&mut self) {
        let wake_ns = self.wake_ns;
        let now_ns = self.now_ns;
        for early_ns in [now_ns, wake_ns.map_or(now_ns + S, |wake_ns| now_ns.max(wake_ns - 1))] {
            let mut cleaner = self.cleaner.clone();
            let mut acts = Vec::new();
            cleaner.step(early_ns, &self.extents, &mut acts);
            acts.retain(|act| !matches!(act, Act::Wait { .. }));
            assert_eq!(acts, [], "at {early_ns}, called for at {wake_ns:?}");
        }
    }

    pub fn answer(&mut self, act: Act, fails: bool) {
        let mut acts = Vec::new();
        let (token, outcome) = match &act {
            Act::Copy { token, units, .. } => {
                self.done(*token, Outcome::Copied(std::slice::from_ref(units)), &mut acts);
                return self.begin(acts);
            }
            Act::Send { token, volume, units } => {
                // What failed may have been taken.
                self.taken.extend(units.clone().map(|unit| (volume.0, unit)));
                (*token, Outcome::Sent { session: 0 })
            }
            Act::Flush { token, .. } => (*token, Outcome::Flushed { session: 0 }),
            Act::Trim { token, .. } => (*token, Outcome::Trimmed),
            other => panic!("{other:?} has no answer"),
        };
        self.done(token, if fails { Outcome::Failed } else { outcome }, &mut acts);
        for act in acts {
            let Act::Clean { volume, runs } = act else { panic!("{act:?} follows") };
            let mut parts = Vec::new();
            for run in runs {
                assert!(run.clone().all(|unit| self.taken.contains(&(volume.0, unit))), "the store has it");
                let range = run.start * UNIT_BYTES..run.end * UNIT_BYTES;
                self.extents.visit(volume, range, |part, _| parts.push(part));
            }
            self.extents.units_mut().cleaned(&parts);
        }
    }

    pub fn done(&mut self, token: Token, outcome: Outcome<'_>, acts: &mut Vec<Act>) {
        self.cleaner.done(self.now_ns, token, outcome, acts);
    }

    /// Answers what is under way that `which` accepts, once.
    pub fn answer_all(&mut self, fails: bool, which: impl Fn(&Act) -> bool) -> usize {
        let (now, later) = std::mem::take(&mut self.pending).into_iter().partition(|act| which(act));
        self.pending = later;
        let now: Vec<Act> = now;
        let count = now.len();
        now.into_iter().for_each(|act| self.answer(act, fails));
        count
    }

    /// The store has no room for what is sent to it, or finds that out when it is flushed.
    pub fn has_no_room(&mut self, which: impl Fn(&Act) -> bool) {
        let (now, later) = std::mem::take(&mut self.pending).into_iter().partition(|act| which(act));
        self.pending = later;
        let now: Vec<Act> = now;
        for act in now {
            let (Act::Send { token, .. } | Act::Flush { token, .. }) = act else {
                panic!("{act:?} needs no room")
            };
            self.done(token, Outcome::Full, &mut Vec::new());
        }
    }

    /// Answers everything, again and again, until nothing is under way; without deciding anything anew.
    pub fn settle(&mut self) {
        while self.answer_all(false, |_| true) > 0 {}
    }

    /// Has it decide and answers everything, until nothing is due.
    pub fn clean(&mut self) {
        loop {
            self.step();
            if self.answer_all(false, |_| true) == 0 {
                return;
            }
        }
    }

    /// The same, but trims stay under way.
    pub fn clean_but_trims(&mut self) {
        loop {
            self.step();
            if self.answer_all(false, |act| !matches!(act, Act::Trim { .. })) == 0 {
                return;
            }
        }
    }

    pub fn flushes(&self) -> Vec<u16> {
        let flush = |act: &Act| if let Act::Flush { volume, .. } = act { Some(volume.0) } else { None };
        self.pending.iter().filter_map(flush).collect()
    }
}

pub fn is_copy(act: &Act) -> bool {
    matches!(act, Act::Copy { .. })
}

pub fn is_send(act: &Act) -> bool {
    matches!(act, Act::Send { .. })
}

/// Of a volume.
pub fn of(number: u16) -> impl Fn(&Act) -> bool {
    move |act| matches!(act, Act::Copy { volume, .. } | Act::Send { volume, .. } | Act::Flush { volume, .. } if volume.0 == number)
}

/// Writes so much, a megabyte at a time, from the volume's begin on.
pub fn dirty(world: &mut World, volume: u16, megabytes: Range<u64>) {
    for megabyte in megabytes {
        world.write(volume, megabyte * MIB..(megabyte + 1) * MIB);
    }
}
