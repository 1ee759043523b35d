//! Driver of the [`Cleaner`] in simulated time: devices that take as long as the costs say, a store that is away now and then,
//! and the requests under way.
//!
//! Reads from the cache's device and writes to the stores on behalf of the cleaner queue at a link to each; requests of the trace
//! do not. All completions of one moment are taken before anything is decided on them: first those of the cache's device, then
//! those of the stores in their order, each in the order of the requests. Then all goes on that was waiting for one of them, in
//! that order, and behind it whoever waited for these ([`Ready`]). Then the cleaner decides. Traces tell nothing of flushes: without
//! those that a setup adds, all writes of a volume are one epoch.

use std::collections::VecDeque;
use std::ops::Range;

use tiermem_policy::evict::Evict;
use tiermem_policy::extents::cleaner::{Act, Cleaner, CleanerRules, OrderCounts, Outcome, Token};
use tiermem_policy::extents::store_speed::Measured;
use tiermem_policy::extents::{Plan, Request, UNIT_BYTES, Verdict, Volume};

use super::costs::{Link, Step};
use super::events::{self, Done, Events};
use super::flights::{Flights, Units};
use super::troubles::{Log, Troubles};
use super::{Contents, Costs, units_at};

/// The stores' session: none of them ever loses what it took.
const SESSION: u64 = 0;

/// What goes on now, for a device has done its part or somebody else is done.
#[derive(Debug)]
enum Ready {
    /// This request has all that it needs.
    Gathered(u32),
    /// This request has stored all that it has.
    Stored(u32),
    /// This copy is in memory.
    Copied(Token),
    /// Copies that were held back try again.
    HeldBack,
    /// The request that waits tries again.
    Waiting,
}

/// What a request waits for that cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// That its units are not copied any more.
    Copies,
    /// That something becomes clean.
    Clean,
    /// That a plan or a copy is finished.
    Plans,
    /// That the log has room.
    Log,
}

/// A copy that waits.
struct HeldBack {
    token: Token,
    of: Units,
    /// It came after the write that waits for copies, which goes first.
    is_behind: bool,
}

/// The cleaner of a simulated cache, the requests under way, and the devices as both use them.
pub struct Background {
    cleaner: Cleaner,
    acts: Vec<Act>,
    events: Events,
    flights: Flights,
    /// In the order in which it goes on.
    ready: VecDeque<Ready>,
    /// What the request waits for that has come and cannot begin; nothing once it was called.
    awaited: Option<Wait>,
    /// Up to when all has been done.
    clock_ns: u64,
    /// When time alone changes something.
    wake_ns: Option<u64>,
    cache: Link,
    cache_latency_ns: u64,
    core: Link,
    log: Log,
    troubles: Troubles,
    /// Copies that are being read: a write to their units waits until they are.
    copying: Vec<(Token, Units)>,
    /// What the write is about that waits for copies. Copies that come later wait for it.
    waiting: Option<Units>,
    /// Copies that wait, for that write or for writes under way.
    held_back: Vec<HeldBack>,
    /// The tenant of each volume.
    tenants: Vec<u32>,
    /// What the cleaner had counted of each volume when counts began.
    counted_before: Vec<OrderCounts>,
    /// What the stores have for good, and the log does not say yet.
    noted: Vec<(Volume, Vec<Range<u64>>)>,
}

/// The number of a volume's store among the devices.
fn store_of(volume: Volume) -> u32 {
    events::CACHE + 1 + u32::from(volume.0)
}

impl Background {
    pub fn new(rules: CleanerRules, capacity_bytes: u64, costs: &Costs, troubles: Troubles) -> Self {
        Background {
            cleaner: Cleaner::new(rules, capacity_bytes, u64::MAX),
            acts: Vec::new(),
            events: Events::default(),
            flights: Flights::default(),
            ready: VecDeque::new(),
            awaited: None,
            clock_ns: 0,
            wake_ns: None,
            cache: costs.cache_link(),
            cache_latency_ns: costs.cache_latency_ns,
            core: costs.core_link(),
            log: Log::new(&troubles),
            troubles,
            copying: Vec::new(),
            waiting: None,
            held_back: Vec::new(),
            tenants: Vec::new(),
            counted_before: Vec::new(),
            noted: Vec::new(),
        }
    }

    /// A volume is seen for the first time; they come in the order of their numbers.
    pub fn add(&mut self, volume: Volume, tenant: u32) {
        debug_assert_eq!(usize::from(volume.0), self.tenants.len(), "volumes come in order");
        self.cleaner.add(volume, SESSION);
        self.tenants.push(tenant);
        self.counted_before.push(OrderCounts::default());
    }

    /// Does all that there is to do until the next request comes.
    pub fn run_until<O: Evict>(&mut self, now_ns: u64, cache: &mut Contents<O>) {
        while let Some(at_ns) = self.next_ns().filter(|at_ns| *at_ns <= now_ns) {
            self.arrive(at_ns, cache);
            self.go_on(cache);
            self.step(cache);
        }
        self.clock_ns = self.clock_ns.max(now_ns);
        self.step(cache);
    }

    /// When something happens next.
    fn next_ns(&self) -> Option<u64> {
        let has_room_ns = self.log.has_room_ns(self.clock_ns);
        // The log takes no time, but what it is to say is decided on before it has said it. What is copied out of DRAM takes none.
        let is_left = !self.noted.is_empty() || !self.ready.is_empty();
        let left_ns = is_left.then_some(self.clock_ns);
        self.events.next_ns().into_iter().chain(self.wake_ns).chain(has_room_ns).chain(left_ns).min()
    }

    /// Takes all that devices have done by a time.
    fn arrive<O: Evict>(&mut self, at_ns: u64, cache: &mut Contents<O>) {
        self.clock_ns = self.clock_ns.max(at_ns);
        self.wake_ns = self.wake_ns.filter(|wake_ns| *wake_ns > self.clock_ns);
        self.settle_noted(cache);
        while let Some(done) = self.events.take(self.clock_ns) {
            match done {
                Done::Read { start, end } => cache.copies.insert(start..end, |_| {}),
                Done::Gathered(request) => self.ready.push_back(Ready::Gathered(request)),
                Done::Stored(request) => self.ready.push_back(Ready::Stored(request)),
                Done::Copied { token } => self.ready.push_back(Ready::Copied(token)),
                Done::Sent { token, fails: false } => self.tell(token, Outcome::Sent { session: SESSION }),
                Done::Flushed { token, fails: false } => {
                    self.tell(token, Outcome::Flushed { session: SESSION });
                    if !self.log.is_kept() {
                        self.settle_noted(cache);
                    }
                }
                Done::Sent { token, .. } | Done::Flushed { token, .. } => self.tell(token, Outcome::Failed),
            }
        }
        if self.log.takes_requests(self.clock_ns) {
            self.call(Wait::Log);
        }
    }

    /// A store has ended an act.
    fn tell(&mut self, token: Token, outcome: Outcome<'_>) {
        let first = self.acts.len();
        self.log.note_news();
        self.cleaner.done(self.clock_ns, token, outcome, &mut self.acts);
        for act in self.acts.drain(first..) {
            if let Act::Clean { volume, runs } = act {
                self.noted.push((volume, runs));
            }
        }
    }

    /// The request that waits for this tries again in its turn.
    fn call(&mut self, come: Wait) {
        if self.awaited.take_if(|awaited| *awaited == come).is_some() {
            self.ready.push_back(Ready::Waiting);
        }
    }

    /// Lets those go on that can, in their order, up to the request that waits: whether it is its turn.
    fn go_on<O: Evict>(&mut self, cache: &mut Contents<O>) -> bool {
        while let Some(ready) = self.ready.pop_front() {
            match ready {
                Ready::Gathered(request) => self.store(request, cache),
                Ready::Stored(request) => self.end(request, cache),
                Ready::Copied(token) => {
                    let Some(at) = self.copying.iter().position(|(of, _)| *of == token) else { continue };
                    let (_, Units { units, .. }) = self.copying.swap_remove(at);
                    self.log.note_news();
                    self.cleaner.done(self.clock_ns, token, Outcome::Copied(&[units]), &mut self.acts);
                    self.call(Wait::Copies);
                    self.call(Wait::Plans);
                }
                Ready::HeldBack => {
                    for copy in std::mem::take(&mut self.held_back) {
                        self.try_to_copy(copy, cache);
                    }
                }
                Ready::Waiting => return true,
            }
        }
        false
    }

    /// Marks as clean all units that the stores have for good and the log has noted, unless they are dirty again.
    fn settle_noted<O: Evict>(&mut self, cache: &mut Contents<O>) {
        if self.noted.is_empty() {
            return;
        }
        for (volume, runs) in self.noted.drain(..) {
            let (mut clean, mut parts) = (Vec::new(), Vec::new());
            for run in runs {
                self.cleaner.lacks_nothing_of(volume, run, &mut clean);
            }
            for units in clean {
                cache.extents.visit(volume, Units { volume, units }.bytes(), |part, _| parts.push(part));
            }
            cache.extents.units_mut().cleaned(&parts);
        }
        self.call(Wait::Clean);
    }

    /// Has the cleaner decide, and carries that out.
    fn step<O: Evict>(&mut self, cache: &mut Contents<O>) {
        let now_ns = self.clock_ns;
        if self.awaited != Some(Wait::Clean) {
            self.cleaner.nobody_waits();
        }
        self.cleaner.set_log_room(self.log.decide(now_ns));
        self.wake_ns = None;
        self.cleaner.step(now_ns, &cache.extents, &mut self.acts);
        self.carry_out_all(cache);
    }

    fn carry_out_all<O: Evict>(&mut self, cache: &mut Contents<O>) {
        let mut acts = std::mem::take(&mut self.acts);
        for act in acts.drain(..) {
            self.carry_out(act, cache);
        }
        self.acts = acts;
    }

    fn carry_out<O: Evict>(&mut self, act: Act, cache: &mut Contents<O>) {
        let now_ns = self.clock_ns;
        match act {
            Act::Copy { token, volume, units } => {
                let of = Units { volume, units };
                let is_behind = self.waiting.as_ref().is_some_and(|waiting| waiting.overlaps(&of));
                self.try_to_copy(HeldBack { token, of, is_behind }, cache);
            }
            Act::Send { token, volume, units } => {
                let bytes = (units.end - units.start) * UNIT_BYTES;
                cache.counts[usize::from(volume.0)].1.sent(bytes);
                let at_ns = self.core.done_ns(now_ns, bytes);
                let fails = self.is_away(volume);
                self.events.add(at_ns, store_of(volume), Done::Sent { token, fails });
            }
            Act::Flush { token, volume } => {
                let at_ns = self.core.done_ns(now_ns, 0);
                let fails = self.is_away(volume);
                self.events.add(at_ns, store_of(volume), Done::Flushed { token, fails });
            }
            Act::Wait { until_ns } => self.wake_ns = Some(until_ns),
            Act::Trim { .. } => debug_assert!(false, "traces have no trims"),
            // They follow from what arrived, and were carried out then.
            Act::Clean { .. } => {}
        }
    }

    /// Reads units, to write them back, as soon as no write is under way to them or has been waiting for them.
    fn try_to_copy<O: Evict>(&mut self, copy: HeldBack, cache: &mut Contents<O>) {
        if copy.is_behind || self.flights.write(&copy.of) {
            return self.held_back.push(copy);
        }
        let HeldBack { token, of, .. } = copy;
        let Contents { extents, copies, counts } = cache;
        let (mut reads, mut read_bytes, mut bytes) = (0, 0, 0);
        // Out of DRAM what is there, the rest from the cache's device.
        extents.visit(of.volume, of.bytes(), |part, is_dirty| {
            debug_assert!(is_dirty, "what is leaving is dirty");
            bytes += part.bytes;
            if !copies.read(units_at(&part), |_| {}) {
                (reads, read_bytes) = (reads + 1, read_bytes + part.bytes);
            }
        });
        debug_assert_eq!(bytes, of.bytes().end - of.bytes().start, "all of it is there");
        counts[usize::from(of.volume.0)].1.copied(reads, read_bytes);
        self.copying.push((token, of));
        if reads == 0 {
            self.ready.push_back(Ready::Copied(token));
        } else {
            let at_ns = self.cache.done_ns(self.clock_ns, read_bytes);
            self.events.add(at_ns, events::CACHE, Done::Copied { token });
        }
    }

    /// The cache's device was asked for units for a request's sake, which are copied to DRAM when it gives them.
    pub fn reads(&mut self, units: Range<u64>) {
        let at_ns = self.clock_ns.saturating_add(self.cache_latency_ns);
        self.events.add(at_ns, events::CACHE, Done::Read { start: units.start, end: units.end });
    }

    fn is_away(&self, volume: Volume) -> bool {
        self.troubles.is_away(self.tenants[usize::from(volume.0)], self.clock_ns)
    }

    /// Whether copies keep a write waiting: those that are being read, and those that came before it.
    fn is_copied(&self, of: &Units) -> bool {
        self.copying.iter().any(|(_, copied)| copied.overlaps(of))
            || self.held_back.iter().any(|copy| !copy.is_behind && copy.of.overlaps(of))
    }

    /// The write that waits for copies has its units, or lets others have them for now.
    fn end_waiting(&mut self) {
        self.waiting = None;
        self.held_back.iter_mut().for_each(|copy| copy.is_behind = false);
        self.call_held_back();
    }

    /// Copies that were held back try again: whoever held them has let go.
    fn call_held_back(&mut self) {
        if !self.held_back.is_empty() {
            self.ready.push_back(Ready::HeldBack);
        }
    }

    /// A flush of a volume is acknowledged, as a cache that outlives the process does when its log has what was written: what comes from
    /// now on is another epoch.
    pub fn flush<O: Evict>(&mut self, volume: Volume, cache: &mut Contents<O>) {
        self.cleaner.close_epoch(volume);
        self.log.note_news();
        self.step(cache);
    }

    /// Plans a request that has come, letting it wait as long as it must: for how long that was, in nanoseconds, and whether it was for
    /// something to be written back.
    pub fn plan<O: Evict>(
        &mut self,
        request: &mut Request,
        plan: &mut Plan,
        cache: &mut Contents<O>,
    ) -> (u64, bool) {
        let came_ns = self.clock_ns;
        let mut waited = false;
        while let Some(wait) = self.try_to_plan(request, plan, cache) {
            waited |= wait == Wait::Clean;
            if wait != Wait::Copies {
                self.end_waiting();
            }
            self.awaited = Some(wait);
            while !self.go_on(cache) {
                self.step(cache);
                let at_ns = self.next_ns().expect("what a request waits for is on its way, or tried again");
                self.arrive(at_ns, cache);
            }
        }
        (self.clock_ns - came_ns, waited)
    }

    /// Plans a request if that can be done now; what it waits for otherwise.
    fn try_to_plan<O: Evict>(
        &mut self,
        request: &mut Request,
        plan: &mut Plan,
        cache: &mut Contents<O>,
    ) -> Option<Wait> {
        let of = Units { volume: request.volume, units: request.units() };
        if request.write.is_some() && self.is_copied(&of) {
            self.waiting = Some(of);
            return Some(Wait::Copies);
        }
        if !self.log.admit(self.clock_ns) {
            return Some(Wait::Log);
        }
        self.cleaner.set_log_room(true);
        match self.cleaner.may_write(self.clock_ns, &cache.extents, request) {
            Verdict::Ready => {}
            // Simulated stores have room.
            Verdict::Clean | Verdict::Full => return Some(Wait::Clean),
            Verdict::Busy => return Some(Wait::Plans),
        }
        match self.cleaner.plan(self.clock_ns, &mut cache.extents, request, plan, &mut self.acts) {
            Verdict::Ready => None,
            Verdict::Clean | Verdict::Full => Some(Wait::Clean),
            Verdict::Busy => Some(Wait::Plans),
        }
    }

    /// A request whose plan can be carried out begins. What it writes is not copied before it is over. `plan` is another's from then
    /// on, to be used again.
    pub fn begin<O: Evict>(
        &mut self,
        request: &Request,
        plan: &mut Plan,
        (gather, store): (Step, Step),
        fetch: Option<Measured>,
        cache: &mut Contents<O>,
    ) {
        let Request { volume, write, .. } = *request;
        let written = write.map(|_| {
            let mut units = request.units();
            for part in &plan.fill {
                units.start = units.start.min(part.offset / UNIT_BYTES);
                units.end = units.end.max((part.offset + part.bytes) / UNIT_BYTES);
            }
            Units { volume, units }
        });
        let number = self.flights.begin(plan, volume, written, (fetch, store));
        if gather.ns == 0 {
            self.ready.push_back(Ready::Gathered(number));
        } else {
            self.will_be(gather, volume, Done::Gathered(number));
        }
        if self.waiting.is_some() {
            self.end_waiting();
        }
        self.go_on(cache);
        self.step(cache);
    }

    /// A step of a request begins now.
    fn will_be(&mut self, step: Step, volume: Volume, done: Done) {
        let device = if step.ends_in_core { store_of(volume) } else { events::CACHE };
        self.events.add(self.clock_ns.saturating_add(step.ns), device, done);
    }

    /// A request has all that it needs: it stores, or is over.
    fn store<O: Evict>(&mut self, request: u32, cache: &mut Contents<O>) {
        let (fetch, store, volume) = self.flights.gathered(request);
        if let Some(fetch) = fetch {
            cache.extents.sizer_mut().measured(volume, fetch);
        }
        if store.ns == 0 {
            self.end(request, cache);
        } else {
            self.will_be(store, volume, Done::Stored(request));
        }
    }

    /// All of a request's work is done: others may have its blocks, and what it wrote.
    fn end<O: Evict>(&mut self, request: u32, cache: &mut Contents<O>) {
        if self.flights.end(request, &mut cache.extents) {
            self.call_held_back();
        }
        self.call(Wait::Plans);
    }

    /// What the cleaner has counted of each volume, since the start.
    fn counted(&self) -> impl Iterator<Item = OrderCounts> + '_ {
        (0..self.tenants.len()).map(|at| self.cleaner.standing(Volume(at as u16)).counts)
    }

    /// Counts from now on only.
    pub fn forget_counts(&mut self) {
        self.counted_before = self.counted().collect();
    }

    /// The trace is over: what is on its way arrives, and is flushed.
    pub fn finish<O: Evict>(&mut self, cache: &mut Contents<O>) {
        // The flushes of the end are not the trace's.
        let counted = self.counted().zip(&self.counted_before);
        for ((now, before), (_, counts)) in counted.zip(&mut cache.counts) {
            counts.order = now.since(before);
        }
        self.troubles = Troubles::default();
        self.log = Log::default();
        self.settle_noted(cache);
        for volume in (0..self.tenants.len()).map(|at| Volume(at as u16)) {
            self.drain(cache);
            if let Some(token) = self.cleaner.begin_flush(volume) {
                self.carry_out(Act::Flush { token, volume }, cache);
            }
        }
        self.drain(cache);
        debug_assert!(self.flights.is_empty() && self.held_back.is_empty(), "all is over");
        let volumes = (0..self.tenants.len()).map(|at| self.cleaner.standing(Volume(at as u16)));
        let dirty_bytes: u64 = volumes.map(|standing| standing.dirty_bytes).sum();
        debug_assert_eq!(dirty_bytes, cache.extents.units().dirty_bytes(), "both know of the same");
    }

    /// What is on its way arrives, and nothing new is decided.
    fn drain<O: Evict>(&mut self, cache: &mut Contents<O>) {
        loop {
            self.go_on(cache);
            self.carry_out_all(cache);
            let now_ns = (!self.ready.is_empty()).then_some(self.clock_ns);
            let Some(at_ns) = now_ns.or(self.events.next_ns()) else { return };
            self.arrive(at_ns, cache);
        }
    }
}
