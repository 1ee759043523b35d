//! Driver of the [`Cleaner`] in simulated time: devices that take as long as the costs say, and a store that is away now and
//! then.
//!
//! Reads from the cache's device and writes to the stores on behalf of the cleaner queue at a link to each; requests of the trace
//! do not. All completions of one moment are taken before anything is decided on them: first those of the cache's device, then
//! those of the stores in their order, each in the order of the requests. Traces tell nothing of flushes, so all writes of a
//! volume are one epoch.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use tiermem_policy::evict::Evict;
use tiermem_policy::extents::cleaner::{Act, Cleaner, CleanerRules, Outcome, Token};
use tiermem_policy::extents::{Plan, Request, UNIT_BYTES, Verdict, Volume};

use super::costs::Link;
use super::{Contents, Costs, Troubles, units_at};

/// The stores' session: none of them ever loses what it took.
const SESSION: u64 = 0;

/// A completion of a device at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at_ns: u64,
    /// The cache's is 0, that of a volume's store its number and 1.
    device: u32,
    /// In the order of submission.
    number: u64,
    /// Of the act that it ends; a request's read ends none.
    token: Option<Token>,
    what: Done,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Done {
    /// These units of the cache were read for a request.
    Read {
        start: u64,
        end: u64,
    },
    /// No write is under way any more to units of a volume that are to be copied.
    Free {
        volume: u16,
        start: u64,
        end: u64,
    },
    Copied {
        start: u64,
        end: u64,
    },
    Sent {
        fails: bool,
    },
    Flushed {
        fails: bool,
    },
}

/// Units that a write is under way to.
struct Busy {
    of: Units,
    until_ns: u64,
}

/// Units of a volume.
#[derive(Clone, PartialEq)]
struct Units {
    volume: Volume,
    units: Range<u64>,
}

impl Units {
    fn overlaps(&self, other: &Units) -> bool {
        self.volume == other.volume
            && self.units.start < other.units.end
            && other.units.start < self.units.end
    }
}

/// The cleaner of a simulated cache, and the devices as it uses them.
pub struct Background {
    cleaner: Cleaner,
    acts: Vec<Act>,
    events: BinaryHeap<Reverse<Event>>,
    events_begun: u64,
    /// Up to when all has been done.
    clock_ns: u64,
    /// When time alone changes something.
    wake_ns: Option<u64>,
    cache: Link,
    cache_latency_ns: u64,
    core: Link,
    troubles: Troubles,
    busy: Vec<Busy>,
    /// Copies that are being read: a write to their units waits until they are.
    copying: Vec<(Token, Units)>,
    /// What the write is about that waits for copies. Copies that come later wait for it.
    waiting: Option<Units>,
    held_back: Vec<(Token, Units)>,
    /// The tenant of each volume.
    tenants: Vec<u32>,
    /// Copies that are complete, kept for its memory.
    copied: Vec<(Token, Range<u64>)>,
    /// What the stores have for good, and the log does not say yet.
    noted: Vec<(Volume, Vec<Range<u64>>)>,
}

fn bytes_of(units: &Range<u64>) -> Range<u64> {
    units.start * UNIT_BYTES..units.end * UNIT_BYTES
}

impl Background {
    pub fn new(rules: CleanerRules, capacity_bytes: u64, costs: &Costs, troubles: Troubles) -> Self {
        Background {
            cleaner: Cleaner::new(rules, capacity_bytes, u64::MAX),
            acts: Vec::new(),
            events: BinaryHeap::new(),
            events_begun: 0,
            clock_ns: 0,
            wake_ns: None,
            cache: costs.cache_link(),
            cache_latency_ns: costs.cache_latency_ns,
            core: costs.core_link(),
            troubles,
            busy: Vec::new(),
            copying: Vec::new(),
            waiting: None,
            held_back: Vec::new(),
            tenants: Vec::new(),
            copied: Vec::new(),
            noted: Vec::new(),
        }
    }

    /// A volume is seen for the first time; they come in the order of their numbers.
    pub fn add(&mut self, volume: Volume, tenant: u32) {
        debug_assert_eq!(usize::from(volume.0), self.tenants.len(), "volumes come in order");
        self.cleaner.add(volume, SESSION);
        self.tenants.push(tenant);
    }

    /// Does all that there is to do until the next request comes.
    pub fn run_until<O: Evict>(&mut self, now_ns: u64, cache: &mut Contents<O>) {
        while let Some(at_ns) = self.next_ns().filter(|at_ns| *at_ns <= now_ns) {
            self.arrive(at_ns, cache);
            self.step(cache);
        }
        self.clock_ns = self.clock_ns.max(now_ns);
        self.step(cache);
    }

    /// When something happens next.
    fn next_ns(&self) -> Option<u64> {
        let arrives_ns = self.events.peek().map(|Reverse(event)| event.at_ns);
        let has_room_ns = self.troubles.log_has_room_ns(self.clock_ns);
        // The log takes no time, but what it is to say is decided on before it has said it.
        let noted_ns = (!self.noted.is_empty()).then_some(self.clock_ns);
        arrives_ns.into_iter().chain(self.wake_ns).chain(has_room_ns).chain(noted_ns).min()
    }

    /// Takes what is done at a time. Returns whether something has become clean.
    fn arrive<O: Evict>(&mut self, at_ns: u64, cache: &mut Contents<O>) -> bool {
        self.clock_ns = self.clock_ns.max(at_ns);
        self.wake_ns = self.wake_ns.filter(|wake_ns| *wake_ns > self.clock_ns);
        let now_ns = self.clock_ns;
        let mut cleaned = self.settle_noted(cache);
        while let Some(Reverse(event)) = self.events.peek()
            && event.at_ns <= now_ns
        {
            let Some(Reverse(Event { token, what, .. })) = self.events.pop() else { break };
            let Some(token) = token else {
                if let Done::Read { start, end } = what {
                    cache.copies.insert(start..end, |_| {});
                }
                continue;
            };
            let outcome = match what {
                Done::Read { .. } => continue,
                Done::Free { volume, start, end } => {
                    self.copy(token, Units { volume: Volume(volume), units: start..end }, cache);
                    continue;
                }
                Done::Copied { start, end } => {
                    self.copying.retain(|(of, _)| *of != token);
                    self.copied.push((token, start..end));
                    continue;
                }
                Done::Sent { fails: false } => Outcome::Sent { session: SESSION },
                Done::Flushed { fails: false } => Outcome::Flushed { session: SESSION },
                Done::Sent { fails: true } | Done::Flushed { fails: true } => Outcome::Failed,
            };
            let first = self.acts.len();
            self.cleaner.done(now_ns, token, outcome, &mut self.acts);
            for act in self.acts.drain(first..) {
                if let Act::Clean { volume, runs } = act {
                    self.noted.push((volume, runs));
                }
            }
            if !self.troubles.has_log() {
                cleaned |= self.settle_noted(cache);
            }
        }
        for (token, units) in self.copied.drain(..) {
            self.cleaner.done(now_ns, token, Outcome::Copied(&[units]), &mut self.acts);
        }
        cleaned
    }

    /// Marks as clean all units that the stores have for good and the log has noted, unless they are dirty again. Returns whether
    /// there were any.
    fn settle_noted<O: Evict>(&mut self, cache: &mut Contents<O>) -> bool {
        let any = !self.noted.is_empty();
        for (volume, runs) in self.noted.drain(..) {
            let (mut clean, mut parts) = (Vec::new(), Vec::new());
            for run in runs {
                self.cleaner.lacks_nothing_of(volume, run, &mut clean);
            }
            for run in &clean {
                cache.extents.visit(volume, bytes_of(run), |part, _| parts.push(part));
            }
            cache.extents.units_mut().cleaned(&parts);
        }
        any
    }

    /// Has the cleaner decide, and carries that out.
    fn step<O: Evict>(&mut self, cache: &mut Contents<O>) {
        let now_ns = self.clock_ns;
        self.cleaner.set_log_room(self.troubles.log_has_room(now_ns));
        self.wake_ns = None;
        self.cleaner.step(now_ns, &cache.extents, &mut self.acts);
        let mut acts = std::mem::take(&mut self.acts);
        for act in acts.drain(..) {
            self.carry_out(act, cache);
        }
        self.acts = acts;
    }

    fn carry_out<O: Evict>(&mut self, act: Act, cache: &mut Contents<O>) {
        let now_ns = self.clock_ns;
        match act {
            Act::Copy { token, volume, units } => self.begin_copy(token, Units { volume, units }, cache),
            Act::Send { token, volume, units } => {
                let bytes = (units.end - units.start) * UNIT_BYTES;
                cache.counts[usize::from(volume.0)].1.sent(bytes);
                let at_ns = self.core.done_ns(now_ns, bytes);
                let fails = self.is_away(volume);
                self.will_be(at_ns, 1 + u32::from(volume.0), Some(token), Done::Sent { fails });
            }
            Act::Flush { token, volume } => {
                let at_ns = self.core.done_ns(now_ns, 0);
                let fails = self.is_away(volume);
                self.will_be(at_ns, 1 + u32::from(volume.0), Some(token), Done::Flushed { fails });
            }
            Act::Wait { until_ns } => self.wake_ns = Some(until_ns),
            // They follow from what arrived, and were carried out then.
            Act::Clean { .. } => {}
        }
    }

    /// Reads units as soon as no write is under way to them.
    fn begin_copy<O: Evict>(&mut self, token: Token, of: Units, cache: &mut Contents<O>) {
        if self.waiting.as_ref().is_some_and(|waiting| waiting.overlaps(&of)) {
            self.held_back.push((token, of));
            return;
        }
        let free_ns = self.free_ns(&of);
        if free_ns > self.clock_ns {
            let Units { volume: Volume(volume), units: Range { start, end } } = of;
            self.will_be(free_ns, 0, Some(token), Done::Free { volume, start, end });
        } else {
            self.copy(token, of, cache);
        }
    }

    /// Reads units, to write them back: out of DRAM what is there, the rest from the cache's device.
    fn copy<O: Evict>(&mut self, token: Token, of: Units, cache: &mut Contents<O>) {
        let Units { volume, units } = of.clone();
        self.copying.push((token, of));
        let Contents { extents, copies, counts } = cache;
        let (mut reads, mut read_bytes, mut bytes) = (0, 0, 0);
        extents.visit(volume, bytes_of(&units), |part, is_dirty| {
            debug_assert!(is_dirty, "what is leaving is dirty");
            bytes += part.bytes;
            if !copies.read(units_at(&part), |_| {}) {
                (reads, read_bytes) = (reads + 1, read_bytes + part.bytes);
            }
        });
        debug_assert_eq!(bytes, (units.end - units.start) * UNIT_BYTES, "all of it is there");
        counts[usize::from(volume.0)].1.copied(reads, read_bytes);
        let now_ns = self.clock_ns;
        let at_ns = if reads == 0 { now_ns } else { self.cache.done_ns(now_ns, read_bytes) };
        self.will_be(at_ns, 0, Some(token), Done::Copied { start: units.start, end: units.end });
    }

    /// The cache's device was asked for units for a request's sake, which are copied to DRAM when it gives them.
    pub fn reads(&mut self, units: Range<u64>) {
        let at_ns = self.clock_ns.saturating_add(self.cache_latency_ns);
        self.will_be(at_ns, 0, None, Done::Read { start: units.start, end: units.end });
    }

    fn is_away(&self, volume: Volume) -> bool {
        self.troubles.is_away(self.tenants[usize::from(volume.0)], self.clock_ns)
    }

    fn will_be(&mut self, at_ns: u64, device: u32, token: Option<Token>, what: Done) {
        self.events_begun += 1;
        self.events.push(Reverse(Event { at_ns, device, number: self.events_begun, token, what }));
    }

    /// From when on units may be read: when no write is under way to them.
    fn free_ns(&mut self, of: &Units) -> u64 {
        let now_ns = self.clock_ns;
        self.busy.retain(|busy| busy.until_ns > now_ns);
        let writes = self.busy.iter().filter(|busy| busy.of.overlaps(of));
        writes.map(|busy| busy.until_ns).fold(now_ns, u64::max)
    }

    /// Whether what is copied keeps a write waiting.
    fn is_copied(&self, of: &Units) -> bool {
        self.copying.iter().any(|(_, copied)| copied.overlaps(of))
    }

    /// A write has its units, or lets others have them for now: copies that it kept waiting go on.
    fn let_copies_go<O: Evict>(&mut self, cache: &mut Contents<O>) {
        self.waiting = None;
        for (token, of) in std::mem::take(&mut self.held_back) {
            self.begin_copy(token, of, cache);
        }
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
        loop {
            self.wait_for_copies(request, cache);
            let has_room = self.troubles.log_takes_requests(self.clock_ns);
            self.cleaner.set_log_room(has_room);
            if has_room {
                let may = self.cleaner.may_write(self.clock_ns, &cache.extents, request)
                    // It is never busy: no other plan is in flight.
                    && Verdict::Ready
                        == self.cleaner.plan(self.clock_ns, &mut cache.extents, request, plan, &mut self.acts);
                if may {
                    break;
                }
                waited = true;
            } else {
                // It waits for the log now.
                self.cleaner.nobody_waits();
            }
            self.let_copies_go(cache);
            self.step(cache);
            // Until something has become clean, or the log has room again.
            loop {
                let at_ns = self.next_ns().expect("what a request waits for is on its way, or tried again");
                let cleaned = self.arrive(at_ns, cache);
                if cleaned || !has_room && self.troubles.log_takes_requests(self.clock_ns) {
                    break;
                }
                self.step(cache);
            }
        }
        self.cleaner.nobody_waits();
        (self.clock_ns - came_ns, waited)
    }

    /// A write waits for the copies of what it is about that are being read.
    fn wait_for_copies<O: Evict>(&mut self, request: &Request, cache: &mut Contents<O>) {
        let of = Units { volume: request.volume, units: request.units() };
        if request.write.is_none() || !self.is_copied(&of) {
            return;
        }
        self.waiting = Some(of.clone());
        while self.is_copied(&of) {
            self.step(cache);
            let at_ns = self.next_ns().expect("what is being read arrives");
            self.arrive(at_ns, cache);
        }
    }

    /// A request is being carried out for this long: bytes that it writes are not copied before.
    pub fn begun<O: Evict>(
        &mut self,
        request: &Request,
        plan: &Plan,
        latency_ns: u64,
        cache: &mut Contents<O>,
    ) {
        if request.write.is_some() {
            let mut units = request.units();
            for part in &plan.fill {
                units.start = units.start.min(part.offset / UNIT_BYTES);
                units.end = units.end.max((part.offset + part.bytes) / UNIT_BYTES);
            }
            let until_ns = self.clock_ns.saturating_add(latency_ns);
            self.busy.push(Busy { of: Units { volume: request.volume, units }, until_ns });
            self.let_copies_go(cache);
        }
        self.step(cache);
    }

    /// The trace is over: what is on its way arrives, and is flushed.
    pub fn finish<O: Evict>(&mut self, cache: &mut Contents<O>) {
        self.troubles = Troubles::default();
        self.settle_noted(cache);
        for volume in (0..self.tenants.len()).map(|at| Volume(at as u16)) {
            while let Some(Reverse(event)) = self.events.peek() {
                let at_ns = event.at_ns;
                self.arrive(at_ns, cache);
                let mut acts = std::mem::take(&mut self.acts);
                for act in acts.drain(..) {
                    self.carry_out(act, cache);
                }
                self.acts = acts;
            }
            if let Some(token) = self.cleaner.begin_flush(volume) {
                self.carry_out(Act::Flush { token, volume }, cache);
            }
        }
        while let Some(Reverse(event)) = self.events.peek() {
            let at_ns = event.at_ns;
            self.arrive(at_ns, cache);
        }
        let volumes = (0..self.tenants.len()).map(|at| self.cleaner.standing(Volume(at as u16)));
        let dirty_bytes: u64 = volumes.map(|standing| standing.dirty_bytes).sum();
        debug_assert_eq!(dirty_bytes, cache.extents.units().dirty_bytes(), "both know of the same");
    }
}
