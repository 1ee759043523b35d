//! Arithmetic of the simulator that was published with Yang 2023 (MQSim_CXL at commit 3701f7b), event for event, so that results
//! can be compared with it.
//!
//! It is not how a device works; where it differs is listed in `docs/cxl-flash.md`. In short: latency counts from when the device
//! takes a request, not from its arrival; a fill costs one access of 46 ns and an eviction none; the channel's transfer time is
//! an integer division that gives 0 at the usual rate; a host of 32 requests, a DRAM queue of 8 and a flash queue of 1024 stop
//! and go as a whole; nothing is ever erased; addresses from 4 GiB on alias.

mod dram;
mod early;
mod model;
mod mshr;
pub mod prefetch;

use std::collections::{BTreeSet, VecDeque};

use tiermem_base::Access;
use tiermem_policy::evict::Evict;
use tiermem_policy::prefetch::Insertion;

pub use self::model::{Counts, Settings, transfer_ns_per_byte};

use self::dram::{Dram, For};
use self::model::Page;
use self::mshr::{Mshr, Row, Waiting};
use self::prefetch::{BestOffset, Leap, Sequential};
use super::TIME_NS_MAX;
use super::cache::{Cache, Line};
use super::flash::scheduler;
use super::flash::{Command, Operation, Origin, Scheduler};
use super::pages::Pages;
use crate::events::EventQueue;

/// Bytes of a page, which is also the cache's line.
const PAGE_BYTES: u32 = 4096;
/// Requests between trace and device.
const HOST_QUEUE: usize = 32;
/// Reads and writes of flash before the device stops.
const FLASH_QUEUE: u64 = 1024;
/// Prefetches on their way.
const PREFETCH_QUEUE: u64 = 1024;

/// The share of the device that its preconditioning fills, which leaves the turns of its planes where they are then.
const PRECONDITIONED: f64 = 0.3;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The trace's next request comes to the host's queue.
    Feed,
    /// The host's queue gives a request to the device.
    Give,
    /// The DRAM has done an access.
    Dram,
    /// The device looks at the requests that wait for DRAM.
    Wake,
    Flash(scheduler::Event),
}

impl From<scheduler::Event> for Event {
    fn from(event: scheduler::Event) -> Self {
        Event::Flash(event)
    }
}

struct Request {
    address: u64,
    write: bool,
}

/// The simulator, over a policy of replacement and a receiver of latencies.
struct Simulator<E, L> {
    settings: Settings,
    events: EventQueue<Event>,
    now_ns: u64,
    pages: Pages<Page>,
    cache: Cache<E>,
    flash: Scheduler,
    dram: Dram,
    mshr: Mshr,
    host: VecDeque<Request>,
    /// Times that the trace found the host's queue full, and the host the device.
    fed_in_vain: u64,
    given_in_vain: u64,
    dram_free: bool,
    mshr_free: bool,
    flash_free: bool,
    outstanding: u64,
    prefetching: u64,
    /// Pages that have come: partly answered, and not yet looked at, in the order of their numbers.
    answered: BTreeSet<u64>,
    unanswered: BTreeSet<u64>,
    /// Without registers: the requests that wait for each read, by page.
    alone: std::collections::BTreeMap<u64, VecDeque<Waiting>>,
    alone_ready: VecDeque<u64>,
    sequential: Sequential,
    best_offset: BestOffset,
    leap: Leap,
    wanted: Vec<u64>,
    finished: Vec<Command>,
    writes: u64,
    written_of_plane: Vec<u64>,
    counts: Counts,
    latency: L,
}

/// Simulates a trace. `cache` decides on evictions, `latency` takes the latency of each request in ns and whether its page was in
/// the cache, in the order of completion. Stops at the first error of the trace.
pub fn run<E: Evict, X>(
    settings: Settings,
    cache: Cache<E>,
    trace: impl Iterator<Item = Result<Access, X>>,
    latency: impl FnMut(u64, bool),
) -> Result<Counts, X> {
    let units = settings.geometry.units_per_plane() * u64::from(settings.geometry.plane_count());
    let mut simulator = Simulator {
        events: EventQueue::default(),
        now_ns: 0,
        pages: Pages::default(),
        cache,
        flash: Scheduler::new(settings.geometry, settings.timing),
        dram: Dram::default(),
        mshr: Mshr::default(),
        host: VecDeque::with_capacity(HOST_QUEUE),
        fed_in_vain: 0,
        given_in_vain: 0,
        dram_free: true,
        mshr_free: true,
        flash_free: true,
        outstanding: 0,
        prefetching: 0,
        answered: BTreeSet::new(),
        unanswered: BTreeSet::new(),
        alone: std::collections::BTreeMap::new(),
        alone_ready: VecDeque::new(),
        sequential: Sequential::default(),
        best_offset: BestOffset::default(),
        leap: Leap::default(),
        wanted: Vec::new(),
        finished: Vec::new(),
        writes: (PRECONDITIONED * units as f64) as u64,
        written_of_plane: vec![0; settings.geometry.plane_count() as usize],
        counts: Counts::default(),
        latency,
        settings,
    };
    simulator.run(trace)?;
    Ok(simulator.counts)
}

impl<E: Evict, L: FnMut(u64, bool)> Simulator<E, L> {
    fn run<X>(&mut self, mut trace: impl Iterator<Item = Result<Access, X>>) -> Result<(), X> {
        let mut next = trace.next().transpose()?;
        if let Some(first) = &next {
            self.counts.begin_ns = first.time_ns.min(TIME_NS_MAX);
            self.events.push(self.counts.begin_ns, Event::Feed);
        }
        while let Some((time_ns, event)) = self.events.pop() {
            self.now_ns = time_ns;
            match event {
                Event::Feed => {
                    if self.host.len() >= HOST_QUEUE {
                        self.fed_in_vain += 1;
                        continue;
                    }
                    let Some(access) = next else { continue };
                    self.host.push_back(Request { address: access.key, write: access.op.is_write() });
                    self.events.push(time_ns, Event::Give);
                    next = trace.next().transpose()?;
                    if let Some(access) = &next {
                        self.events.push(access.time_ns.min(TIME_NS_MAX).max(time_ns), Event::Feed);
                    }
                }
                Event::Give => self.give(),
                Event::Dram => self.dram_done(),
                Event::Wake => self.wake(),
                Event::Flash(event) => {
                    let mut finished = std::mem::take(&mut self.finished);
                    self.flash.begin(event, &mut finished);
                    for command in finished.drain(..) {
                        self.flash_done(command);
                    }
                    self.finished = finished;
                    self.flash.end(time_ns, event, &mut self.events);
                }
            }
        }
        self.counts.end_ns = self.now_ns;
        Ok(())
    }

    fn give(&mut self) {
        if !(self.mshr_free && self.dram_free && self.flash_free) {
            self.given_in_vain += 1;
            return;
        }
        if self.host.len() >= HOST_QUEUE {
            for _ in 0..std::mem::take(&mut self.fed_in_vain) {
                self.events.push(self.now_ns, Event::Feed);
            }
        }
        let Some(Request { address, write }) = self.host.pop_front() else { return };
        self.request(address, write);
    }

    /// Something that held requests back has room again.
    fn go_on(&mut self) {
        for _ in 0..std::mem::take(&mut self.given_in_vain) {
            self.events.push(self.now_ns, Event::Give);
        }
    }

    fn page(&mut self, number: u64) -> u32 {
        self.pages.place(number)
    }

    fn request(&mut self, address: u64, write: bool) {
        // The address travels in two words of 32 bits that are put together 31 bits apart.
        let number = ((address >> 32 << 31) | (address & 0xffff_ffff)) / u64::from(PAGE_BYTES);
        let number =
            if number > self.settings.last_page { number % self.settings.last_page.max(1) } else { number };
        let place = self.page(number);
        let waiting = Waiting { since_ns: self.now_ns, write };
        if !self.settings.cache {
            self.alone.entry(number).or_default().push_back(waiting);
            let operation = if write { Operation::Program } else { Operation::Read };
            self.submit(place, operation);
            return;
        }
        let Page { line, row, prefetched, in_flight, .. } = *self.pages.at(place);
        if line != Line::NONE {
            self.counts.hits += 1;
            self.send(For::Hit, self.now_ns);
            self.cache.hit(line, write);
            if prefetched {
                self.counts.prefetch_hits += 1;
                self.note_use(place);
                self.prefetch(place, false);
            }
        } else if !self.settings.mshr {
            let queue = self.alone.entry(number).or_default();
            self.counts.repeated_reads += u64::from(!queue.is_empty());
            queue.push_back(waiting);
            self.submit(place, Operation::Read);
        } else {
            if row == Row::NONE && !in_flight && std::mem::take(&mut self.pages.at_mut(place).polluted) {
                self.counts.feedback.polluted += 1;
            }
            let row_now = self.mshr.insert(row, waiting);
            self.pages.at_mut(place).row = row_now;
            if self.mshr.is_full() {
                self.mshr_free = false;
            }
            if row == Row::NONE && !in_flight {
                self.counts.feedback.misses += 1;
                self.prefetch(place, true);
                self.submit(place, Operation::Read);
            }
        }
    }

    fn send(&mut self, what: For, since_ns: u64) {
        let (started, full) = self.dram.send(dram::Access { what, since_ns });
        if started {
            self.events.push(self.now_ns + dram::ACCESS_NS, Event::Dram);
        }
        if full {
            self.dram_free = false;
        }
    }

    fn dram_done(&mut self) {
        let (done, started) = self.dram.done();
        if let Some(access) = done {
            match access.what {
                For::Hit => {}
                For::HitUnderMiss => self.counts.hits_under_miss += 1,
                For::Miss => {
                    self.counts.misses += 1;
                    self.counts.flash_reads += 1;
                }
                For::Prefetch => {
                    self.counts.prefetched += 1;
                    self.counts.flash_reads += 1;
                }
                For::LatePrefetch => {
                    self.counts.late += 1;
                    self.counts.prefetched += 1;
                    self.counts.flash_reads += 1;
                }
            }
            if access.what != For::Prefetch {
                self.counts.requests += 1;
                (self.latency)(self.now_ns - access.since_ns, access.what == For::Hit);
            }
        }
        if started {
            self.events.push(self.now_ns + dram::ACCESS_NS, Event::Dram);
            self.events.push(self.now_ns, Event::Wake);
        }
    }

    /// DRAM has room: requests wait whose pages have come.
    fn wake(&mut self) {
        if !self.settings.mshr {
            while self.dram.room() > 0
                && let Some(number) = self.alone_ready.pop_front()
            {
                self.answer_alone(number);
            }
        } else {
            while self.dram.room() > 0 {
                if let Some(&number) = self.answered.first() {
                    let place = self.page(number);
                    if self.answer(place, true) {
                        self.answered.remove(&number);
                    }
                } else if let Some(number) = self.unanswered.pop_first() {
                    let place = self.page(number);
                    if !self.answer(place, false) {
                        self.answered.insert(number);
                    }
                } else {
                    break;
                }
            }
        }
        if self.dram.room() > 0 {
            self.dram_free = true;
            self.go_on();
        }
    }

    fn submit(&mut self, place: u32, operation: Operation) {
        self.outstanding += 1;
        if self.outstanding >= FLASH_QUEUE {
            self.flash_free = false;
        }
        let geometry = self.settings.geometry;
        let number = self.pages.number(place);
        let page = self.pages.at_mut(place);
        let (at, page_number) = if operation == Operation::Program {
            let at = geometry.in_turn(self.writes);
            self.writes += 1;
            let plane = geometry.plane_number(at);
            let unit = &mut self.written_of_plane[plane as usize];
            let block_page =
                (*unit / u64::from(geometry.units_per_page)) % u64::from(geometry.pages_per_block);
            *unit += 1;
            page.written = Some((plane, block_page as u32));
            (at, block_page as u32)
        } else {
            // What was never written is read from the place that its number stands for.
            match page.written {
                Some((plane, page)) => (geometry.plane_at(plane), page),
                None => (geometry.in_turn(number), 0),
            }
        };
        let command = Command {
            operation,
            origin: Origin::Host,
            die: at.die,
            plane: at.plane,
            page: page_number,
            bytes: PAGE_BYTES,
            tag: place,
        };
        self.flash.submit(self.now_ns, command, &mut self.events);
    }

    fn leave_flash(&mut self) {
        if self.outstanding >= FLASH_QUEUE {
            self.flash_free = true;
            self.go_on();
        }
        self.outstanding -= 1;
    }

    fn flash_done(&mut self, command: Command) {
        let number = self.pages.number(command.tag);
        if !self.settings.cache {
            self.leave_flash();
            match command.operation {
                Operation::Program => self.counts.flash_writes += 1,
                _ => self.counts.flash_reads += 1,
            }
            if let Some(waiting) = self.take_alone(number) {
                self.counts.requests += 1;
                self.counts.misses += 1;
                (self.latency)(self.now_ns - waiting.since_ns, false);
            }
        } else if command.operation == Operation::Program {
            self.leave_flash();
        } else if !self.settings.mshr {
            if self.dram.room() > 0 && self.alone_ready.is_empty() {
                self.answer_alone(number);
            } else {
                self.alone_ready.push_back(number);
            }
        } else if self.dram.room() > 0 && self.answered.is_empty() {
            if !self.answer(command.tag, false) {
                self.answered.insert(number);
            }
        } else {
            self.unanswered.insert(number);
        }
    }

    fn take_alone(&mut self, number: u64) -> Option<Waiting> {
        let queue = self.alone.get_mut(&number)?;
        let waiting = queue.pop_front();
        if queue.is_empty() {
            self.alone.remove(&number);
        }
        waiting
    }

    /// Without registers of misses: one read has come, for one request.
    fn answer_alone(&mut self, number: u64) {
        let Some(waiting) = self.take_alone(number) else { return };
        self.send(For::Miss, waiting.since_ns);
        let place = self.page(number);
        let dirty = self.fill(place, waiting.write);
        self.leave_flash();
        self.flush(dirty);
    }

    /// A page has come: requests that wait for it are sent to DRAM as far as that has room. Returns whether none is left.
    /// `begun`: the page is in the cache already, and its first request answered.
    fn answer(&mut self, place: u32, begun: bool) -> bool {
        let mut room = self.dram.room();
        let row = self.pages.at(place).row;
        let mut first = None;
        let mut rest = (VecDeque::new(), VecDeque::new());
        let mut none_left = true;
        if row != Row::NONE {
            let mut frees = false;
            if !begun {
                (first, frees) = self.mshr.first(row);
                room -= 1;
            }
            for _ in 0..room {
                let Some(waiting) = self.mshr.next(row) else { break };
                let list = if waiting.write { &mut rest.1 } else { &mut rest.0 };
                list.push_back(waiting);
            }
            let (empty, frees_too) = self.mshr.release_if_empty(row);
            none_left = empty;
            if empty {
                self.pages.at_mut(place).row = Row::NONE;
            }
            if frees || frees_too {
                self.mshr_free = true;
                self.go_on();
            }
        }
        if !begun {
            self.bring_in(place, first);
        }
        // Reads are answered before writes.
        for waiting in rest.0.into_iter().chain(rest.1) {
            self.send(For::HitUnderMiss, waiting.since_ns);
            let Page { line, prefetched, .. } = *self.pages.at(place);
            if line != Line::NONE {
                self.cache.hit(line, waiting.write);
            }
            if prefetched {
                self.note_use(place);
            }
        }
        none_left
    }

    /// Puts a page that has come into the cache, and answers the first request that waits for it.
    fn bring_in(&mut self, place: u32, first: Option<Waiting>) {
        let page = self.pages.at_mut(place);
        let was_in_flight = std::mem::take(&mut page.in_flight);
        let what = match (first.is_some(), was_in_flight) {
            (false, _) => For::Prefetch,
            (true, true) => For::LatePrefetch,
            (true, false) => For::Miss,
        };
        if what != For::Miss && !page.counted {
            page.counted = true;
            self.counts.feedback.prefetched += 1;
        }
        if what == For::LatePrefetch && !page.late {
            page.late = true;
            self.counts.feedback.late += 1;
        }
        if what == For::LatePrefetch {
            self.note_use(place);
        }
        let since_ns = first.map_or(self.now_ns, |waiting| waiting.since_ns);
        self.send(what, since_ns);
        let dirty = self.fill(place, first.is_some_and(|waiting| waiting.write));
        self.leave_flash();
        self.prefetching -= u64::from(was_in_flight);
        self.flush(dirty);
    }

    fn note_use(&mut self, place: u32) {
        let page = self.pages.at_mut(place);
        if !std::mem::replace(&mut page.used, true) {
            self.counts.feedback.used += 1;
        }
    }

    /// Enters a page in the cache. Returns a page that must be written.
    fn fill(&mut self, place: u32, write: bool) -> Option<u32> {
        let Page { line, prefetched, .. } = *self.pages.at(place);
        let number = self.pages.number(place);
        if line != Line::NONE {
            self.cache.hit(line, write);
            return None;
        }
        let (line, evicted) = self.cache.fill(number, place, write, Insertion::Mru);
        self.pages.at_mut(place).line = line;
        let evicted = evicted?;
        let gone = self.pages.at_mut(evicted.page);
        gone.line = Line::NONE;
        if std::mem::take(&mut gone.prefetched) {
            gone.tagged = false;
        } else if prefetched {
            gone.polluted = true;
        }
        evicted.dirty.then_some(evicted.page)
    }

    fn flush(&mut self, dirty: Option<u32>) {
        if let Some(place) = dirty {
            self.counts.flash_writes += 1;
            self.submit(place, Operation::Program);
        }
    }
}
