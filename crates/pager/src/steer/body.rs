//! The steering thread: drains faults, scans pages, steps the core, carries out its acts; another thread fetches ([`super::fetcher`]).

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tiermem_model::placement::Plan;
use tiermem_policy::frames::ConfigError;
use tiermem_policy::paging::{
    Act, Counts, Event, LookPace, MoreDram, PageRange, PageState, Saved, ScanPace, Watermarks,
};
use tiermem_sys::cpu_time;
use tiermem_sys::own_memory;
use tiermem_sys::perf::{Fault, FaultWatch, FaultWatchError};
use tiermem_sys::pidfd::PidFd;
use tiermem_sys::process_advice::{AdviceError, ProcessAdvice};

use super::advice::{Batch, CarriedOut};
use super::fetcher::Fetcher;
use super::logged::{CoreOptions, Logged};
use super::looks::{Looks, Seen, Told as LookTold};
use super::nodes::Nodes;
use super::plan::PlanFound;
use super::spaces::Spaces;
use super::uses::Uses;

/// Between two drains while pages are fetched or leave, and while nothing does at most: whoever only listens wakes seldom. Where faults fill
/// their room it wakes earlier.
const PAUSE_MIN: Duration = Duration::from_micros(500);
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// Between two tellings of what was done so far.
const TOLD_APART: Duration = Duration::from_millis(100);
/// A charge that was told to the core, or was never looked at.
const UNKNOWN_BYTES: u64 = u64::MAX;
const PAGE_BYTES: u64 = 4096;
/// Moves that a step may begin.
const STEP_BUDGET: u32 = 2048;

/// Why a program is not steered.
#[derive(Debug, thiserror::Error)]
pub enum SteerError {
    /// Its faults cannot be watched.
    #[error(transparent)]
    Faults(#[from] FaultWatchError),
    /// The kernel takes no advice about it.
    #[error(transparent)]
    Advice(#[from] AdviceError),
    /// The log cannot be made.
    #[error("cannot make the log {}: {source}", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The core cannot be made so.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system gives no thread, or no memory that can be locked.
    #[error("cannot start steering: {0}")]
    System(#[from] io::Error),
}

/// Whether programs can be steered here.
///
/// # Errors
/// Why not.
pub fn can_steer() -> Result<(), SteerError> {
    let own = PidFd::open(std::process::id())?;
    own.may_advise(ProcessAdvice::PageOut)?;
    own.may_advise(ProcessAdvice::WillNeed)?;
    Ok(FaultWatch::open(&[std::process::id()]).map(drop)?)
}

/// What steering has done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steered {
    /// Whether there was anything to steer.
    pub has_begun: bool,
    /// What the core has counted.
    pub counts: Counts,
    /// What more DRAM would have saved.
    pub more_dram: MoreDram,
    /// What a quarter more would have saved.
    pub quarter_more: Saved,
    /// Faults of which nothing is known but that there were some.
    pub events_lost: u64,
    /// What was seen of uses, where references are told.
    pub uses: Option<Uses>,
    /// How the plan was followed, if there is one.
    pub plan: Option<PlanFound>,
    /// Why references are not told of each process, if they are asked for and a policy chooses who leaves.
    pub references_failed: Option<String>,
    /// Why the log is not whole.
    pub log_failed: Option<String>,
    /// Why it ended before the program, if it did: the program went on, unsteered.
    pub gave_up: Option<String>,
}

/// How a program is steered.
#[derive(Clone, Debug)]
pub struct SteeringOptions {
    /// What is decided, and how.
    pub core: CoreOptions,
    /// A plan to follow.
    pub plan: Option<Arc<Plan>>,
    /// Where events and acts are written.
    pub log: Option<PathBuf>,
    /// The granules by which references are told, where a policy chooses who leaves; `None`: it hears of page faults alone.
    pub granule_bytes: Option<u64>,
    /// The nodes of a pool.
    pub nodes: Option<Nodes>,
}

/// A thread that steers a program. Dropped without [`Self::end`], it ends by itself with the process.
#[derive(Debug)]
pub struct Steering {
    stop: Arc<AtomicBool>,
    charged_bytes: Arc<AtomicU64>,
    told: Arc<Mutex<Told>>,
    orders: Sender<Order>,
    thread: JoinHandle<Steered>,
}

/// What the thread tells while it steers.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    counts: Counts,
    quarter_more: Saved,
}

/// What the thread is told while it steers.
#[derive(Clone, Debug)]
enum Order {
    /// Who leaves, what is fetched ahead and how much DRAM there is from now on.
    Change(CoreOptions),
    /// The processes of the program, some of which may not be known.
    Processes(Vec<u32>),
}

impl Steering {
    /// Starts to steer these processes, and those that they start from now on.
    ///
    /// # Errors
    /// If their faults cannot be watched, the core cannot be made so, or there is no thread.
    pub fn start(pids: &[u32], options: SteeringOptions) -> Result<Self, SteerError> {
        // One who waits for its own pages would steer too late. Without the right it is steered all the same.
        let _ = own_memory::lock();
        let SteeringOptions { core: options, plan, log, granule_bytes, nodes } = options;
        let mut core = Logged::new(&options)?;
        if let Some(path) = log {
            core.log_to(&path, &options).map_err(|source| SteerError::Log { path, source })?;
        }
        let (stop, charged_bytes) = (Arc::<AtomicBool>::default(), Arc::new(AtomicU64::new(UNKNOWN_BYTES)));
        let (told, (orders, received)) = (Arc::<Mutex<Told>>::default(), mpsc::channel());
        let mut body = Body {
            watch: FaultWatch::open(pids)?,
            fetcher: Fetcher::start(nodes.map(|nodes| nodes.remote))?,
            core,
            looks: granule_bytes.map(Looks::start).transpose()?,
            uses: granule_bytes.map(Uses::of),
            look_pace: if nodes.is_some() { LookPace::of_pool() } else { LookPace::default() },
            spaces: Spaces::new(plan),
            nodes,
            is_new_core: false,
            misplaced_from: 0,
            options,
            begun: Instant::now(),
            acts: Vec::new(),
            faults: Vec::new(),
            steered: Steered { has_begun: true, ..Steered::default() },
            charged_bytes: charged_bytes.clone(),
            told: told.clone(),
            orders: received,
        };
        // What is in memory and in swap already is told by a scan of each process.
        pids.iter().for_each(|pid| body.spaces.watch(*pid));
        let stopped = stop.clone();
        let thread =
            std::thread::Builder::new().name("steer".to_owned()).spawn(move || body.run(&stopped))?;
        Ok(Steering { stop, charged_bytes, told, orders, thread })
    }

    /// Tells what the group is charged now: what is not the program's pages, such as its file cache, takes room from them.
    pub fn charged(&self, bytes: u64) {
        self.charged_bytes.store(bytes, Relaxed);
    }

    /// Changes who leaves, what is fetched ahead and how much DRAM there is.
    pub fn change(&self, options: CoreOptions) {
        // A thread that has given up needs to know nothing.
        let _ = self.orders.send(Order::Change(options));
    }

    /// Tells which processes the program has now.
    pub fn processes(&self, pids: Vec<u32>) {
        let _ = self.orders.send(Order::Processes(pids));
    }

    /// Whether the thread has given up.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// What it has counted so far.
    pub fn now(&self) -> Steered {
        let Told { counts, quarter_more } = *self.told.lock().unwrap_or_else(PoisonError::into_inner);
        Steered { has_begun: true, counts, quarter_more, ..Steered::default() }
    }

    /// Ends it, and tells what it has done.
    pub fn end(self) -> Steered {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap_or_else(|_| Steered {
            gave_up: Some("the steering thread has ended".to_owned()),
            ..Steered::default()
        })
    }
}

struct Body {
    watch: FaultWatch,
    fetcher: Fetcher,
    /// If references are to be told, and when.
    looks: Option<Looks>,
    look_pace: LookPace,
    uses: Option<Uses>,
    core: Logged,
    spaces: Spaces,
    nodes: Option<Nodes>,
    /// The core in place of another knows no page yet.
    is_new_core: bool,
    /// Where the search for pages on another node goes on.
    misplaced_from: u64,
    options: CoreOptions,
    begun: Instant,
    acts: Vec<Act>,
    faults: Vec<Fault>,
    steered: Steered,
    charged_bytes: Arc<AtomicU64>,
    told: Arc<Mutex<Told>>,
    orders: Receiver<Order>,
}

impl Body {
    fn run(mut self, stop: &AtomicBool) -> Steered {
        let (mut pause, mut scans, mut next_told) = (PAUSE_MIN, ScanPace::default(), Instant::now());
        while !stop.load(Relaxed) {
            self.watch.wait(pause);
            if self.obey() {
                scans.hurry();
            }
            // What has come is told before its use is.
            let fetched = self.fetcher.done();
            self.settle(fetched);
            let has_faulted = self.drain();
            self.tell_charged();
            self.look();
            let used_pages = self.core.counts().prefetch_used;
            if scans.is_due(self.now_ns(), used_pages, self.options.evict.is_some()) {
                let before = cpu_time::thread_cpu_time();
                self.scan();
                let took = cpu_time::thread_cpu_time().saturating_sub(before);
                scans.has_scanned(self.now_ns(), took.as_nanos() as u64, used_pages);
            }
            if Instant::now() >= next_told {
                *self.told.lock().unwrap_or_else(PoisonError::into_inner) = self.now();
                next_told = Instant::now() + TOLD_APART;
            }
            if self.core.is_due() {
                self.tell(Event::Step { budget: STEP_BUDGET });
            }
            let is_busy = self.carry_out() || self.fetcher.is_busy();
            pause = if is_busy { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
            if self.steered.gave_up.is_some() {
                break;
            }
            if has_faulted {
                self.core.flush();
            }
        }
        self.drain();
        let Told { counts, quarter_more } = self.now();
        (self.steered.counts, self.steered.quarter_more) = (counts, quarter_more);
        self.steered.more_dram = self.core.more_dram();
        self.steered.plan = self.spaces.plan_found();
        self.steered.uses = self.uses.map(|mut uses| {
            uses.close();
            uses
        });
        if let Err(error) = self.core.end() {
            self.steered.log_failed = Some(error.to_string());
        }
        self.steered
    }

    /// Does as it is told. Returns whether all pages have to be looked at. Another core takes the place of this one
    /// once no act is under way.
    fn obey(&mut self) -> bool {
        let orders: Vec<Order> = self.orders.try_iter().collect();
        let is_told = !orders.is_empty();
        for order in orders {
            match order {
                Order::Processes(pids) => {
                    pids.iter().for_each(|pid| self.spaces.watch(*pid));
                    // Those of which no more files can be open are known by their scans alone.
                    let _ = self.watch.cover(&pids);
                }
                Order::Change(options) => {
                    let before = std::mem::replace(&mut self.options, options);
                    let is_other_core = CoreOptions { dram_pages: before.dram_pages, ..options } != before;
                    if is_other_core {
                        self.settle_all();
                    }
                    if is_other_core && self.core.begin_again(&options).is_ok() {
                        self.spaces.tell_plan_anew();
                        self.is_new_core = true;
                        continue;
                    }
                    let dram_pages = options.dram_pages;
                    self.tell(Event::Capacity { dram_pages, watermarks: Watermarks::of(dram_pages) });
                }
            }
        }
        is_told
    }

    fn tell(&mut self, event: Event) {
        let now_ms = self.now_ms();
        self.core.on(event, now_ms, &mut self.acts);
    }

    fn now(&self) -> Told {
        let CoreOptions { local_pages, dram_pages, .. } = self.options;
        let quarter_pages = (u64::from(local_pages) + u64::from(dram_pages)) / 4;
        Told { counts: self.core.counts(), quarter_more: self.core.saved_by(quarter_pages) }
    }

    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    fn now_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// Brings the core the faults since the last time. Returns whether there were any.
    fn drain(&mut self) -> bool {
        let mut faults = std::mem::take(&mut self.faults);
        self.steered.events_lost += self.watch.drain(|fault| faults.push(fault));
        // Each processor tells its own in order.
        faults.sort_by_key(|fault| fault.at);
        let has_faulted = !faults.is_empty();
        let now_ms = self.now_ms();
        for fault in faults.drain(..) {
            if let Some(page) = self.spaces.page(fault.pid, fault.address) {
                self.uses.iter_mut().for_each(|uses| uses.page(page));
                let event = Event::Fault { page, major: fault.is_major, write: false };
                self.core.on(event, now_ms, &mut self.acts);
            }
        }
        self.faults = faults;
        has_faulted
    }

    /// Brings the core what the group is charged, if that was looked at.
    fn tell_charged(&mut self) {
        let bytes = self.charged_bytes.swap(UNKNOWN_BYTES, Relaxed);
        if bytes != UNKNOWN_BYTES {
            self.tell(Event::Charged { pages: bytes / PAGE_BYTES });
        }
    }

    /// Brings the core where all pages are.
    fn scan(&mut self) {
        let now_ms = self.now_ms();
        let Body { core, acts, spaces, nodes, is_new_core, misplaced_from, fetcher, .. } = self;
        let Some(nodes) = nodes else { return spaces.scan(|event| core.on(event, now_ms, acts)) };
        let mut events = Vec::new();
        spaces.scan(|event| events.push(event));
        let present = events.iter().filter_map(|event| match event {
            Event::Found { pages, state: PageState::Present } => Some(*pages),
            _ => None,
        });
        let present: Vec<PageRange> = present.collect();
        if std::mem::take(is_new_core) {
            // It has those local that it hears of first.
            for pages in nodes.on_local(&present, spaces) {
                core.on(Event::Found { pages, state: PageState::Present }, now_ms, acts);
            }
        }
        events.into_iter().for_each(|event| core.on(event, now_ms, acts));
        // A page that moves is on its way to where it shall be.
        let tier_of = |page| if core.is_moving(page) { None } else { core.tier(page) };
        let (misplaced, next) = nodes.misplaced(&present, *misplaced_from, spaces, tier_of);
        *misplaced_from = next;
        for batch in Batch::of_moves(misplaced, spaces) {
            // Without the thread the next scan finds them again.
            let _ = fetcher.fetch(batch);
        }
    }

    /// Brings the core which granules were used, and has them looked at again when that is due.
    fn look(&mut self) {
        let now_ms = self.now_ms();
        let Body { looks: Some(looks), look_pace, uses, core, acts, spaces, steered, .. } = self else {
            return;
        };
        // What has to come to DRAM by itself or is fetched takes the room of what is in it.
        let come_pages =
            |counts: Counts| counts.first_touches + counts.faults + counts.returned + counts.prefetched;
        for told in looks.told() {
            match told {
                LookTold::Agent(pid) => spaces.leave_out(pid, |event| core.on(event, now_ms, acts)),
                LookTold::Looked(Seen { ranges, took, refused }) => {
                    let now_ns = self.begun.elapsed().as_nanos() as u64;
                    look_pace.has_looked(now_ns, took.as_nanos() as u64, come_pages(core.counts()));
                    steered.references_failed = refused.or(steered.references_failed.take());
                    let pages = ranges.into_iter().filter_map(|(pid, range)| spaces.pages_of(pid, range));
                    let pages: Vec<PageRange> = pages.collect();
                    uses.iter_mut().for_each(|uses| uses.looked(pages.iter().copied()));
                    for (first, pages_log2) in pages.into_iter().flat_map(PageRange::aligned) {
                        core.on(Event::Referenced { first, pages_log2 }, now_ms, acts);
                    }
                }
            }
        }
        let now_ns = self.begun.elapsed().as_nanos() as u64;
        let is_due = look_pace.is_due(now_ns, come_pages(core.counts()), self.options.dram_pages);
        // The kernel knows better than granules tell.
        if is_due && !looks.is_looking() && self.options.evict.is_some() {
            looks.look(spaces.living());
        }
    }

    /// Carries out what the core asks for: pages leave memory at once, and are fetched and moved by the other thread. Returns whether it asks for anything.
    fn carry_out(&mut self) -> bool {
        let has_acts = !self.acts.is_empty();
        // What is told of acts may bring more of them, until nothing is wished for.
        while !self.acts.is_empty() {
            for batch in Batch::of(&mut self.acts, &self.spaces, self.nodes.as_ref()) {
                let own = if batch.makes_room() { Some(batch) } else { self.fetcher.fetch(batch) };
                self.settle(own.map(Batch::carry_out));
            }
        }
        has_acts
    }

    /// Tells the core how acts ended. Without leave to advise or to move, steering gives up.
    fn settle(&mut self, ended: impl IntoIterator<Item = CarriedOut>) {
        let now_ms = self.now_ms();
        let Body { core, acts, steered, .. } = self;
        for carried_out in ended {
            if let Err(error) = carried_out.tell(|event| core.on(event, now_ms, acts)) {
                steered.gave_up = Some(error.to_string());
            }
        }
    }

    /// Waits until no act is under way.
    fn settle_all(&mut self) {
        loop {
            self.carry_out();
            let Some(fetched) = self.fetcher.next() else { return };
            self.settle([fetched]);
        }
    }
}
