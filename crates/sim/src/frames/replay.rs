//! Replay of a trace's touches on one machine. Every move is done as soon as it is asked for, so that a touch waits for nothing
//! but its own fault.

use std::fmt::Debug;

use tiermem_base::{Interner, Rng};
use tiermem_policy::evict::Evict;
use tiermem_policy::evict::any_policy::WithPolicy;
use tiermem_policy::frames::{
    Act, Config, ConfigError, End, Fault, Frame, Frames, Outcome, Touch, Wish, domains,
};
use tiermem_policy::moves::Ticket;
use tiermem_policy::prefetch::{Demand, Prefetch, Prefetcher, Why};

use super::belady::{Belady, Future};
use super::touches::{Touches, Use};
use super::{FirstTouch, Memory, Order, Setup};

/// Moves that a step begins at most, each time that one is due.
const STEP_BUDGET: u32 = 16;

/// Counts of the replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Touches of frames.
    pub touches: u64,
    /// Touches that had to wait for their frame to be fetched.
    pub faults: u64,
    /// Bytes fetched from tiers that cannot be used in place.
    pub read_bytes: u64,
    /// Bytes sent to such tiers.
    pub written_bytes: u64,
}

impl Counts {
    /// Faults over touches; 0 without.
    pub fn fault_ratio(&self) -> f64 {
        self.faults as f64 / self.touches.max(1) as f64
    }
}

/// Why a simulation cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The tiers cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// All tiers are full.
    #[error(
        "the tiers are full at touch {touch}: they hold {capacity} frames together, {held} hold data, and one more must be free for two to change places"
    )]
    Full {
        /// Counted from 1.
        touch: u64,
        /// Frames of all tiers.
        capacity: u64,
        /// Frames that hold something.
        held: u64,
    },
}

/// Runs one setup. `future` is the trace's where the order is Belady's.
pub fn replay(
    touches: &Touches,
    memory: &Memory,
    setup: Setup,
    future: &Future,
) -> Result<Counts, ReplayError> {
    let config = memory.config(touches);
    config.check()?;
    let run = Run { touches, memory, setup, config: &config };
    // Orders that divide a capacity are told it where there is one.
    let capacity = if domains(&config) == 1 { u64::from(config.tiers[0].frames) } else { 0 };
    match setup.order {
        Order::Named(named) => named.build(domains(&config), capacity, run),
        Order::Belady => run.over(Belady::new(domains(&config), future, touches.touches())),
    }
}

struct Run<'a> {
    touches: &'a Touches,
    memory: &'a Memory,
    setup: Setup,
    config: &'a Config,
}

impl WithPolicy for Run<'_> {
    type Output = Result<Counts, ReplayError>;

    fn with<E: Evict + Send + Debug + 'static>(self, policy: E) -> Self::Output {
        self.over(policy)
    }
}

impl Run<'_> {
    fn over<E: Evict>(self, policy: E) -> Result<Counts, ReplayError> {
        let mut frames = Frames::new(self.config.clone(), policy)?;
        frames.grow_to(self.touches.frames());
        let mut driver = Driver {
            frames,
            touches: self.touches,
            ahead: Ahead {
                prefetcher: self.setup.prefetch.build(),
                wanted: Vec::new(),
                untouched: Interner::new(),
                untouched_pages: Vec::new(),
                extent: self.touches.extent().filter(|_| self.memory.first_touch == FirstTouch::Fetch),
            },
            rng: Rng::seeded(self.memory.seed),
            now: 0,
            acts: Vec::new(),
            counts: Counts { touches: self.touches.count(), ..Counts::default() },
            in_place: self.config.tiers.iter().map(|tier| tier.in_place).collect(),
        };
        if self.memory.first_touch == FirstTouch::Fetch {
            driver.store_all()?;
        }
        for number in 0..self.touches.touches().len() {
            driver.touch(number)?;
        }
        driver.counts.faults = driver.frames.counters().fetches;
        Ok(driver.counts)
    }
}

/// The prefetcher and the pages that only it knows.
struct Ahead {
    prefetcher: Prefetcher,
    wanted: Vec<u64>,
    /// Pages that no access touches but that hold data: their frames come after all others.
    untouched: Interner,
    untouched_pages: Vec<u64>,
    /// Between which pages there is data, where a first touch finds some.
    extent: Option<(u64, u64)>,
}

struct Driver<'a, E> {
    frames: Frames<E>,
    touches: &'a Touches,
    ahead: Ahead,
    rng: Rng,
    /// The number of the touch, from 1.
    now: u64,
    acts: Vec<Act>,
    counts: Counts,
    in_place: Vec<bool>,
}

impl<E: Evict> Driver<'_, E> {
    /// All data lies in the last tier.
    fn store_all(&mut self) -> Result<(), ReplayError> {
        for frame in 0..self.touches.frames() {
            if !self.store(Frame(frame)) {
                return Err(self.full());
            }
        }
        Ok(())
    }

    fn store(&mut self, frame: Frame) -> bool {
        let last = self.frames.space().tiers() - 1;
        let is_stored = self.frames.adopt(frame, last, self.now, &mut self.acts);
        self.acts.clear();
        is_stored
    }

    fn touch(&mut self, number: usize) -> Result<(), ReplayError> {
        let touched = self.touches.touches()[number];
        self.now = number as u64 + 1;
        let frame = touched.frame;
        if touched.what == Use::Discard {
            // No frame is pinned here.
            self.frames.discard(frame, &mut self.acts);
            self.acts.clear();
            return Ok(());
        }
        let is_write = touched.what == Use::Write;
        let found = self.frames.demand_of(frame);
        let touch = match is_write {
            true => self.frames.wrote(frame, self.now, &mut self.acts),
            false => self.frames.touch(frame, self.now),
        };
        self.acts.clear();
        self.ahead.prefetcher.demand(self.touches.page_of(frame), found, &mut self.ahead.wanted);
        if touch == Touch::Away {
            // It belongs to the owner of its first touch, and again after it was given up.
            self.frames.assign(frame, touched.owner);
            self.fault(frame, is_write)?;
        }
        debug_assert!(found != Demand::LatePrefetch && found != Demand::UnderMiss, "moves are done at once");
        self.fetch_ahead(touched.owner);
        if self.frames.is_due() {
            self.frames.step(self.now, STEP_BUDGET, &mut self.rng, &mut self.acts);
            self.carry_out();
        }
        Ok(())
    }

    fn fault(&mut self, frame: Frame, is_write: bool) -> Result<(), ReplayError> {
        loop {
            let fault = self.frames.fault(frame, is_write, self.now, &mut self.rng, &mut self.acts);
            self.carry_out();
            match fault {
                Fault::Here | Fault::After(_) => return Ok(()),
                Fault::Room(_) => {}
                Fault::Busy | Fault::Full => return Err(self.full()),
            }
        }
    }

    fn full(&self) -> ReplayError {
        let space = self.frames.space();
        let tiers = 0..space.tiers();
        ReplayError::Full {
            touch: self.now,
            capacity: tiers.clone().map(|tier| u64::from(space.capacity(tier))).sum(),
            held: tiers.map(|tier| u64::from(space.used(tier))).sum(),
        }
    }

    fn fetch_ahead(&mut self, owner: u16) {
        let mut wanted = std::mem::take(&mut self.ahead.wanted);
        for page in wanted.drain(..) {
            let Some(frame) = self.wished(page, owner) else { continue };
            loop {
                let insertion = self.ahead.prefetcher.insertion();
                match self.frames.prefetch(frame, insertion, self.now, &mut self.rng, &mut self.acts) {
                    Wish::Sent(_) => {
                        self.ahead.prefetcher.issued(page);
                        self.carry_out();
                        break;
                    }
                    Wish::Room(_) => self.carry_out(),
                    Wish::No => break,
                }
            }
            self.acts.clear();
        }
        self.ahead.wanted = wanted;
    }

    /// The frame of a page that is wished for, if it may hold anything.
    fn wished(&mut self, page: u64, owner: u16) -> Option<Frame> {
        if let Some(frame) = self.touches.frame_of(page) {
            return Some(frame);
        }
        let (first, last) = self.ahead.extent?;
        if !(first..=last).contains(&page) {
            return None;
        }
        let (number, is_new) = self.ahead.untouched.intern(page);
        let frame = Frame(self.touches.frames().checked_add(number)?);
        if is_new {
            self.ahead.untouched_pages.push(page);
            self.frames.grow_to(frame.0 + 1);
            if frame.0 < self.frames.len() {
                self.frames.assign(frame, owner);
                self.store(frame);
            }
        }
        (frame.0 < self.frames.len()).then_some(frame)
    }

    fn page_of(&self, frame: Frame) -> u64 {
        match frame.0.checked_sub(self.touches.frames()) {
            Some(untouched) => self.ahead.untouched_pages[untouched as usize],
            None => self.touches.page_of(frame),
        }
    }

    /// Does all that is asked for.
    fn carry_out(&mut self) {
        let mut acts = std::mem::take(&mut self.acts);
        let mut at = 0;
        while let Some(act) = acts.get(at).copied() {
            at += 1;
            match act {
                Act::Fill { ticket, .. } | Act::Drop { ticket, .. } => self.settle(ticket, &mut acts),
                Act::Fetch { ticket, from, .. } => {
                    self.counts.read_bytes += self.bytes_of(from);
                    self.settle(ticket, &mut acts);
                }
                Act::Demote { ticket, to, .. } | Act::WriteBack { ticket, to, .. } => {
                    self.counts.written_bytes += self.bytes_of(to);
                    self.settle(ticket, &mut acts);
                }
                Act::Recall { .. } | Act::Free { .. } => {}
            }
        }
        acts.clear();
        self.acts = acts;
    }

    /// The bytes that a transfer to or from a tier counts: none where it is memory.
    fn bytes_of(&self, tier: u8) -> u64 {
        if self.in_place[usize::from(tier)] { 0 } else { u64::from(self.touches.frame_bytes()) }
    }

    fn settle(&mut self, ticket: Ticket, acts: &mut Vec<Act>) {
        let Some(settled) = self.frames.done(ticket, Outcome::Done, self.now, acts) else { return };
        if !matches!(settled.end, End::Arrived { .. } | End::Zero) {
            return;
        }
        let page = self.page_of(settled.frame);
        if settled.to == Some(0) {
            self.ahead.prefetcher.filled(page, settled.why);
        } else if settled.from == Some(0) {
            let for_why: Why = settled.why;
            self.ahead.prefetcher.evicted(page, for_why, settled.unused_prefetch);
        }
    }
}
