//! Replay of a trace's touches on one machine. Every move but a fetch that is delayed is done as soon as it is asked for, so that
//! a touch waits for nothing but its own fault.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Debug;

use tiermem_base::Rng;
use tiermem_policy::evict::any_policy::WithPolicy;
use tiermem_policy::evict::{Evict, Named};
use tiermem_policy::frames::{ConfigError, Frame, domains};
use tiermem_policy::paging::{Act, Event, Outcome, PageRange, PageState, Paging, Ticket};
use tiermem_policy::prefetch::Why;

use super::belady::{Belady, Future};
use super::counts::{Counts, Eviction, TierCounts};
use super::slices::{self, SliceOrder};
use super::touches::{Touches, Use};
use super::world::World;
use super::{FirstTouch, Memory, Order, References, Setup, fixed};

/// Moves that a step begins at most, each time that one is due.
const STEP_BUDGET: u32 = 16;

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
    memory.config(touches, setup).frames().check()?;
    if setup.order == Order::Fixed {
        return Ok(fixed::count(touches, memory));
    }
    let replay = |order| Run { touches, memory, setup, order, future }.with_order();
    let told = replay(SliceOrder::AsTold)?;
    let mut counts = Counts { faults_low: told.faults, faults_high: told.faults, ..told };
    if !touches.slice_ends().is_empty() {
        for order in [SliceOrder::HitsFirst, SliceOrder::FaultsFirst] {
            let faults = replay(order)?.faults;
            counts.faults_low = counts.faults_low.min(faults);
            counts.faults_high = counts.faults_high.max(faults);
        }
    }
    Ok(counts)
}

struct Run<'a> {
    touches: &'a Touches,
    memory: &'a Memory,
    setup: Setup,
    order: SliceOrder,
    future: &'a Future,
}

impl WithPolicy for Run<'_> {
    type Output = Result<Counts, ReplayError>;

    fn with<E: Evict + Send + Debug + 'static>(self, policy: E) -> Self::Output {
        self.over(policy)
    }
}

impl Run<'_> {
    fn with_order(self) -> Result<Counts, ReplayError> {
        let config = self.memory.config(self.touches, self.setup).frames();
        // Orders that divide a capacity are told it where there is one.
        let capacity = if domains(&config) == 1 { u64::from(config.tiers[0].frames) } else { 0 };
        match self.setup.order {
            Order::Named(named) => named.build(domains(&config), capacity, self),
            Order::Kernel => Named::Lru.build(domains(&config), capacity, self),
            Order::Belady => {
                let belady = Belady::new(domains(&config), self.future, self.touches.touches());
                self.over(belady)
            }
            Order::Fixed => Ok(fixed::count(self.touches, self.memory)),
        }
    }

    fn over<E: Evict>(self, policy: E) -> Result<Counts, ReplayError> {
        let config = self.memory.config(self.touches, self.setup);
        let has_data = self.memory.first_touch == FirstTouch::Fetch;
        let mut driver = Driver {
            world: (!config.writes_told).then(|| World::new(self.touches.frames(), has_data)),
            granule_log2: match self.memory.references_of(self.setup) {
                References::ByGranule { frames_log2 } => Some(frames_log2),
                References::Told | References::Faults => None,
            },
            in_place: config.tiers.iter().map(|tier| tier.in_place).collect(),
            counts: Counts {
                touches: self.touches.count(),
                tiers: vec![TierCounts::default(); config.tiers.len()],
                ..Counts::default()
            },
            paging: Paging::new(config, policy)?,
            touches: self.touches,
            numbers_are_times: self.setup.order == Order::Belady,
            fetch_delay: self.memory.fetch_delay,
            tells_evictions: self.memory.tells_evictions,
            rng: Rng::seeded(self.memory.seed),
            now: 0,
            done: 0,
            looks: 0,
            granules: BTreeSet::new(),
            fetches: VecDeque::new(),
            acts: Vec::new(),
        };
        driver.number_pages(has_data)?;
        driver.note_peaks();
        let knows_trace = matches!(self.setup.order, Order::Belady | Order::Fixed);
        for (pages, role) in self.memory.plan.iter().copied().filter(|_| !knows_trace) {
            driver.tell(Event::Planned { pages, role });
        }
        let mut begin = 0;
        let all = [self.touches.touches().len() as u32];
        let ends = if self.touches.slice_ends().is_empty() { &all } else { self.touches.slice_ends() };
        for &end in ends {
            slices::in_order(self.order, begin..end, &mut driver, Driver::would_fault, Driver::touch)?;
            begin = end;
        }
        driver.counts.paging = driver.paging.counts();
        driver.counts.faults = driver.counts.paging.faults;
        driver.counts.more_dram = driver.paging.more_dram().clone();
        Ok(driver.counts)
    }
}

struct Driver<'a, E> {
    paging: Paging<E>,
    touches: &'a Touches,
    /// Where the machine hears no more than a live pager.
    world: Option<World>,
    /// Where references are told by granule.
    granule_log2: Option<u32>,
    /// Belady's order knows a touch by its number, whatever the order in which touches of a slice are replayed.
    numbers_are_times: bool,
    fetch_delay: u64,
    tells_evictions: bool,
    rng: Rng,
    now: u64,
    /// Touches done, and looks.
    done: u32,
    looks: usize,
    /// Granules touched since the last look.
    granules: BTreeSet<u64>,
    /// Fetches under way, and when they are done.
    fetches: VecDeque<(u32, Ticket)>,
    acts: Vec<Act>,
    counts: Counts,
    in_place: Vec<bool>,
}

impl<E: Evict> Driver<'_, E> {
    /// Pages get their frames in the order of the trace, so that the machine's numbers are those of the touches. With data they
    /// lie in the last tier.
    fn number_pages(&mut self, has_data: bool) -> Result<(), ReplayError> {
        let last = self.paging.space().tiers() - 1;
        for frame in (0..self.touches.frames()).map(Frame) {
            if has_data && self.paging.space().free(last) == 0 {
                return Err(self.full());
            }
            let pages = PageRange::one(self.touches.page_of(frame));
            self.tell(Event::Found { pages, state: PageState::Swapped });
            if !has_data {
                self.tell(Event::Discarded { pages });
            }
        }
        Ok(())
    }

    fn would_fault(&self, number: u32) -> bool {
        let touched = self.touches.touches()[number as usize];
        touched.what != Use::Discard && !self.is_in_place(self.touches.page_of(touched.frame))
    }

    fn is_in_place(&self, page: u64) -> bool {
        self.paging.tier(page).is_some_and(|tier| self.in_place[usize::from(tier)])
    }

    fn touch(&mut self, number: u32) -> Result<(), ReplayError> {
        self.look();
        self.done += 1;
        let touched = self.touches.touches()[number as usize];
        self.now = u64::from(if self.numbers_are_times { number + 1 } else { self.done });
        self.end_fetches();
        let (frame, page) = (touched.frame, self.touches.page_of(touched.frame));
        if touched.what == Use::Discard {
            self.world.iter_mut().for_each(|world| world.discard(frame));
            self.tell(Event::Discarded { pages: PageRange::one(page) });
            return Ok(());
        }
        let write = touched.what == Use::Write;
        self.granules.extend(self.granule_log2.map(|log2| page >> log2));
        // What faults can leave again at once, for what is fetched ahead.
        let serves = self.paging.tier(page).unwrap_or(self.paging.arrival_tier());
        if !self.is_in_place(page) {
            self.fault(frame, page, write)?;
        } else if self.world.is_none() {
            self.tell(Event::Used { page, write });
        } else if self.paging.is_prefetched(page) {
            self.tell(Event::Fault { page, major: false, write });
        }
        if write {
            self.world.iter_mut().for_each(|world| world.wrote(frame));
        }
        self.counts.tiers[usize::from(serves)].touches += 1;
        if self.paging.is_due() {
            self.tell(Event::Step { budget: STEP_BUDGET });
        }
        self.note_peaks();
        Ok(())
    }

    fn note_peaks(&mut self) {
        let space = self.paging.space();
        for (tier, counts) in (0..).zip(&mut self.counts.tiers) {
            counts.peak_frames = counts.peak_frames.max(space.used(tier).into());
        }
    }

    fn fault(&mut self, frame: Frame, page: u64, write: bool) -> Result<(), ReplayError> {
        let space = self.paging.space();
        if (0..space.tiers()).all(|tier| space.free(tier) == 0) {
            return Err(self.full());
        }
        let from = self.paging.tier(page);
        let has_data = self.world.as_ref().is_none_or(|world| world.is_below(frame));
        let major = from.is_some() && has_data && !self.paging.is_moving(page);
        if let Some(from) = from.filter(|_| major) {
            self.counts.tiers[usize::from(from)].moved_up += 1;
            self.copied(from, self.paging.arrival_tier());
        }
        self.tell(Event::Fault { page, major, write });
        Ok(())
    }

    fn full(&self) -> ReplayError {
        let space = self.paging.space();
        let tiers = 0..space.tiers();
        ReplayError::Full {
            touch: self.now,
            capacity: tiers.clone().map(|tier| u64::from(space.capacity(tier))).sum(),
            held: tiers.map(|tier| u64::from(space.used(tier))).sum(),
        }
    }

    /// Tells of the granules that were touched, if it is time.
    fn look(&mut self) {
        let Some(log2) = self.granule_log2 else { return };
        if self.touches.looks().get(self.looks).is_none_or(|look| *look > self.done) {
            return;
        }
        self.looks += 1;
        for granule in std::mem::take(&mut self.granules) {
            self.tell(Event::Referenced { first: granule << log2, pages_log2: log2 });
        }
    }

    /// Tells the machine, and does all that it asks for.
    fn tell(&mut self, event: Event) {
        let mut acts = std::mem::take(&mut self.acts);
        self.paging.on(event, self.now, &mut self.rng, &mut acts);
        let mut at = 0;
        while let Some(act) = acts.get(at).copied() {
            at += 1;
            match act {
                Act::Fetch { ticket, from, to, why, .. } => {
                    self.counts.tiers[usize::from(from)].moved_up += 1;
                    self.copied(from, to);
                    if why == Why::Prefetch && self.fetch_delay > 0 {
                        let done = u64::from(self.done) + self.fetch_delay;
                        self.fetches.push_back((u32::try_from(done).unwrap_or(u32::MAX), ticket));
                        continue;
                    }
                }
                Act::PageOut { page, from, to, clean, .. } => {
                    self.counts.tiers[usize::from(from)].moved_down += 1;
                    let leaves = to.is_none_or(|to| !self.in_place[usize::from(to)]);
                    if self.tells_evictions && leaves {
                        self.counts.evictions.push(Eviction { touch: u64::from(self.done), page });
                    }
                    let is_write = match (&mut self.world, self.touches.frame_of(page)) {
                        // From memory to memory all is copied, and nothing is known below that was not before.
                        _ if !leaves => true,
                        (None, _) => !clean,
                        (Some(world), Some(frame)) => world.page_out(frame),
                        // Nobody touches it: it is as it was read.
                        (Some(_), None) => false,
                    };
                    if let Some(to) = to.filter(|_| is_write) {
                        self.copied(from, to);
                    }
                }
            }
            self.settle(act.ticket(), &mut acts);
        }
        acts.clear();
        self.acts = acts;
    }

    fn settle(&mut self, ticket: Ticket, acts: &mut Vec<Act>) {
        let event = Event::Settled { ticket, outcome: Outcome::Done };
        self.paging.on(event, self.now, &mut self.rng, acts);
    }

    /// Settles the fetches whose time has come.
    fn end_fetches(&mut self) {
        while let Some((_, ticket)) = self.fetches.front().copied().filter(|(done, _)| *done <= self.done) {
            self.fetches.pop_front();
            self.tell(Event::Settled { ticket, outcome: Outcome::Done });
        }
    }

    /// Counts the copy of a frame. The sums are of tiers that cannot be used in place.
    fn copied(&mut self, from: u8, to: u8) {
        let (from, to) = (usize::from(from), usize::from(to));
        let frame_bytes = u64::from(self.touches.frame_bytes());
        self.counts.tiers[from].read_bytes += frame_bytes;
        self.counts.tiers[to].written_bytes += frame_bytes;
        self.counts.read_bytes += if self.in_place[from] { 0 } else { frame_bytes };
        self.counts.written_bytes += if self.in_place[to] { 0 } else { frame_bytes };
    }
}
