//! The simulated device: host and link, cache, miss registers, prefetcher, flash.
//!
//! Requests are taken in the order of the trace. Everything that they pass through is first come, first served, so a request that
//! finds its line is answered with a few additions and no event; only flash has events. A request that needs flash when registers
//! or queues are full holds back the requests behind it, as a device without credits left does.

use std::collections::VecDeque;

use hdrhistogram::Histogram;
use tiermem_base::{Access, Rng};
use tiermem_policy::evict::Evict;
use tiermem_policy::evict::any_policy::WithPolicy;
use tiermem_policy::prefetch::{Demand, Insertion, Prefetch, Prefetcher, Why};

use super::TIME_NS_MAX;
use super::cache::{Cache, Line};
use super::config::{Device, Mode};
use super::flash::{Backend, Places, Read, scheduler};
use super::mshr::{Flights, NONE, Waiting};
use super::outcome::{Counts, Outcome};
use super::pages::Pages;
use super::windows::Windows;
use crate::events::EventQueue;
use crate::link::Link;

/// Bytes that a request and its answer take of the link in addition to the data: a slot of a flit.
const HEADER_BYTES: u32 = 16;
/// Bytes that a request reads or writes.
const DATA_BYTES: u32 = 64;
/// Answers within less than this count as fast.
const FAST_NS: u64 = 1000;
/// Longer latencies, of some 18 minutes, count as this.
const LATENCY_NS_MAX: u64 = 1 << 40;

#[derive(Clone, Copy, Debug)]
enum Event {
    Flash(scheduler::Event),
    /// A line that was still in the write log has been found there.
    Found(u32),
}

impl From<scheduler::Event> for Event {
    fn from(event: scheduler::Event) -> Self {
        Event::Flash(event)
    }
}

/// The record of a page of the device.
#[derive(Clone, Copy, Debug)]
struct Page {
    line: Line,
    flight: u32,
    /// It is in the cache because it was prefetched or announced, and whether it was used since.
    prefetched: bool,
    used: bool,
    /// It was the host that announced it, and not the prefetcher that wished for it.
    hinted: bool,
    /// A prefetched line threw it out.
    polluted: bool,
}

impl Default for Page {
    fn default() -> Self {
        Page {
            line: Line::NONE,
            flight: NONE,
            prefetched: false,
            used: false,
            hinted: false,
            polluted: false,
        }
    }
}

impl Places for Pages<Page> {
    fn place_of(&mut self, number: u64) -> u32 {
        self.place(number)
    }

    fn find_place(&self, number: u64) -> Option<u32> {
        self.find(number)
    }

    fn number_of(&self, place: u32) -> u64 {
        self.number(place)
    }
}

/// Windows and hints of a simulation.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Requests of a window; 0: no windows.
    pub window: u64,
    /// The numbers of lines that are hinted at, in ascending order.
    pub hinted: Vec<u64>,
}

/// Simulates a trace on a device. Stops at the first error of the trace.
pub fn simulate<X>(
    device: &Device,
    wishes: Wishes,
    trace: impl Iterator<Item = Result<Access, X>>,
) -> Result<Outcome, X> {
    let sets = device.sets as usize;
    device.policy.build(sets, u64::from(device.ways), Run { device, wishes, trace })
}

struct Run<'a, I> {
    device: &'a Device,
    wishes: Wishes,
    trace: I,
}

impl<X, I: Iterator<Item = Result<Access, X>>> WithPolicy for Run<'_, I> {
    type Output = Result<Outcome, X>;

    fn with<E: Evict + Send + std::fmt::Debug + 'static>(self, policy: E) -> Self::Output {
        let Run { device, wishes, trace } = self;
        let cache =
            (device.sets > 0).then(|| Cache::new(policy, device.sets, device.ways, device.config.seed));
        Machine::new(device, wishes, cache).run(trace)
    }
}

/// The outcome of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Early {
    /// It was sent for.
    Sent,
    /// It is there, on its way, or nowhere.
    Needless,
    /// There is no room for more.
    NoRoom,
}

struct Machine<'a, E> {
    device: &'a Device,
    wishes: Wishes,
    events: EventQueue<Event>,
    now_ns: u64,
    pages: Pages<Page>,
    cache: Option<Cache<E>>,
    flights: Flights,
    backend: Backend,
    dram: Link,
    down: Link,
    up: Link,
    prefetcher: Prefetcher,
    /// Requests that were sent, and the times at which those with a foreseen answer will have it, in this order.
    outstanding: usize,
    answers: VecDeque<u64>,
    /// When the last request was sent, and taken by the device.
    sent_ns: u64,
    /// What the trace says of when the last request came.
    trace_ns: u64,
    accepted_ns: u64,
    first_ns: Option<u64>,
    last_answer_ns: u64,
    last_arrival_ns: u64,
    flash_span: Option<(u64, u64)>,
    rng: Rng,
    wanted: Vec<u64>,
    fetched: Vec<u32>,
    counts: Counts,
    latency: Histogram<u64>,
    windows: Windows,
}

impl<'a, E: Evict> Machine<'a, E> {
    fn new(device: &'a Device, wishes: Wishes, cache: Option<Cache<E>>) -> Self {
        let config = &device.config;
        let link = Link::new(config.host.link_latency.0, config.host.link_gb_per_s);
        Machine {
            device,
            events: EventQueue::default(),
            now_ns: 0,
            pages: Pages::default(),
            cache,
            flights: Flights::default(),
            backend: Backend::new(device.back_end()),
            dram: Link::new(config.dram.latency.0, config.dram.gb_per_s),
            down: link,
            up: link,
            windows: Windows::new(wishes.window),
            wishes,
            prefetcher: device.prefetcher.build(),
            outstanding: 0,
            answers: VecDeque::new(),
            sent_ns: 0,
            trace_ns: 0,
            accepted_ns: 0,
            first_ns: None,
            last_answer_ns: 0,
            last_arrival_ns: 0,
            flash_span: None,
            rng: Rng::seeded(config.seed),
            wanted: Vec::new(),
            fetched: Vec::new(),
            counts: Counts::default(),
            latency: Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
                .expect("bounds and digits are in range"),
        }
    }

    fn run<X>(mut self, mut trace: impl Iterator<Item = Result<Access, X>>) -> Result<Outcome, X> {
        let lead =
            if self.wishes.hinted.is_empty() { 0 } else { self.device.config.hints.lead_requests as usize };
        let mut ahead: VecDeque<Access> = VecDeque::with_capacity(lead + 1);
        loop {
            while ahead.len() <= lead {
                let Some(access) = trace.next().transpose()? else { break };
                let open = self.device.config.host.mode != Mode::Closed;
                if open && self.first_ns.is_none() && ahead.is_empty() {
                    // The host announces nothing before the trace begins.
                    self.now_ns = access.time_ns.min(TIME_NS_MAX);
                }
                self.hint(&access);
                ahead.push_back(access);
            }
            let Some(access) = ahead.pop_front() else { break };
            self.request(&access);
        }
        while self.step() {}
        debug_assert_eq!(self.counts.requests, self.latency.len(), "each request is answered once");
        #[cfg(debug_assertions)]
        self.backend.check(&self.pages);
        Ok(self.outcome())
    }

    fn outcome(mut self) -> Outcome {
        self.take_backend_counts();
        Outcome {
            counts: self.counts,
            windows: self.windows.finish(&self.counts),
            duration_ns: self.last_answer_ns - self.first_ns.unwrap_or(0).min(self.last_answer_ns),
            sent_span_ns: self.last_arrival_ns - self.first_ns.unwrap_or(0).min(self.last_arrival_ns),
            flash_span_ns: self.flash_span.map_or(0, |(first, last)| last - first),
            wear: self.backend.wear(),
            suspensions: self.backend.suspensions(),
            metadata_bytes: self.backend.metadata_bytes(),
            latency: self.latency,
        }
    }

    fn take_backend_counts(&mut self) {
        let flash = self.backend.counts();
        self.counts.flash_writes = flash.host_writes;
        self.counts.moves = flash.moves;
        self.counts.erases = flash.erases;
        self.counts.log_hits = self.backend.log_hits();
    }

    /// The next event happens, if there is one.
    fn step(&mut self) -> bool {
        let Some((time_ns, event)) = self.events.pop() else { return false };
        self.now_ns = time_ns;
        match event {
            Event::Found(flight) => self.landed(flight),
            Event::Flash(event) => {
                let mut fetched = std::mem::take(&mut self.fetched);
                let Machine { backend, pages, events, .. } = self;
                backend.happened(time_ns, event, pages, events, &mut fetched);
                for flight in fetched.drain(..) {
                    self.landed(flight);
                }
                self.fetched = fetched;
            }
        }
        true
    }

    /// When the next request can be sent at the earliest: waits for answers while too many are outstanding.
    fn wait_for_place(&mut self, wanted_ns: u64) -> u64 {
        let mut sent_ns = wanted_ns.max(self.sent_ns);
        loop {
            while self.answers.front().is_some_and(|answer_ns| *answer_ns <= sent_ns) {
                self.answers.pop_front();
                self.outstanding -= 1;
            }
            if self.outstanding < self.device.config.host.outstanding as usize {
                return sent_ns;
            }
            match (self.answers.front(), self.events.next_ns()) {
                (Some(answer_ns), next_ns) if next_ns.is_none_or(|next_ns| *answer_ns <= next_ns) => {
                    sent_ns = *answer_ns;
                }
                _ => {
                    if !self.step() {
                        debug_assert!(false, "requests wait for nothing");
                        return sent_ns;
                    }
                }
            }
        }
    }

    fn request(&mut self, access: &Access) {
        let write = access.op.is_write();
        let mode = self.device.config.host.mode;
        let time_ns = access.time_ns.min(TIME_NS_MAX);
        let pause_ns = time_ns.saturating_sub(std::mem::replace(&mut self.trace_ns, time_ns));
        let sent_ns = self.wait_for_place(match mode {
            Mode::Open => time_ns,
            Mode::Paced => self.sent_ns + pause_ns,
            Mode::Closed => 0,
        });
        self.sent_ns = sent_ns;
        self.outstanding += 1;
        let arrival_ns = if mode == Mode::Open { time_ns } else { sent_ns };
        self.first_ns.get_or_insert(arrival_ns);
        self.last_arrival_ns = arrival_ns;
        let down_bytes = HEADER_BYTES + if write { DATA_BYTES } else { 0 };
        let there_ns = self.down.serve(sent_ns, down_bytes);
        let at_ns = there_ns.max(self.accepted_ns);
        while self.events.next_ns().is_some_and(|next_ns| next_ns <= at_ns) {
            self.step();
        }
        self.now_ns = at_ns;
        if self.windows.is_due(self.counts.requests) {
            self.take_backend_counts();
            self.windows.begin(arrival_ns, self.counts);
        }
        self.counts.requests += 1;
        self.counts.reads += u64::from(!write);
        let link_ns = there_ns - sent_ns;
        let window = self.windows.current();
        let waiting = Waiting { arrival_ns, sent_ns, accepted_ns: at_ns, link_ns, window, write };
        // Addresses beyond the capacity are folded into it.
        let number = access.key / u64::from(self.device.geometry.unit_bytes);
        let number = if number < self.device.units { number } else { number % self.device.units };
        let place = self.pages.place_of(number);
        self.serve(place, number, waiting);
        self.accepted_ns = self.now_ns.max(at_ns);
    }

    /// The device takes a request, as soon as it can.
    fn serve(&mut self, place: u32, number: u64, mut waiting: Waiting) {
        let mshr = &self.device.config.mshr;
        loop {
            waiting.accepted_ns = self.now_ns;
            let Page { line, flight, prefetched, used, hinted, .. } = *self.pages.at(place);
            if line != Line::NONE
                && let Some(cache) = &mut self.cache
            {
                cache.hit(line, waiting.write);
                self.counts.hits += 1;
                let mut found = Demand::Hit;
                if prefetched {
                    self.counts.prefetch_hits += 1;
                    if !used {
                        self.pages.at_mut(place).used = true;
                        self.counts.prefetches_used += 1;
                        found = if hinted { Demand::Hit } else { Demand::PrefetchHit };
                    }
                }
                let done_ns = self.dram.serve(self.now_ns, DATA_BYTES);
                self.answer(waiting, 0, done_ns, false);
                return self.prefetch(number, found);
            }
            let merges = flight != NONE && (mshr.enabled || self.flights.at(flight).why != Why::Demand);
            if merges && self.flights.at(flight).waiting < mshr.merges {
                let first = self.flights.at(flight).waiting == 0;
                let why = self.flights.at(flight).why;
                self.flights.wait(flight, waiting);
                self.counts.hits_under_miss += 1;
                self.counts.prefetches_late += u64::from(first && why != Why::Demand);
                let late = first && why == Why::Prefetch;
                let found = if late { Demand::LatePrefetch } else { Demand::UnderMiss };
                return self.prefetch(number, found);
            }
            let has_entry = !mshr.enabled || self.flights.demanded() < mshr.entries as usize;
            if !merges && has_entry && !self.backend.is_full() {
                return self.miss(place, number, waiting);
            }
            // No register, no place to merge, or no room in the queues: those behind wait as well.
            if !self.step() {
                debug_assert!(false, "a request waits for nothing");
                return self.miss(place, number, waiting);
            }
        }
    }

    fn miss(&mut self, place: u32, number: u64, waiting: Waiting) {
        self.counts.misses += 1;
        if std::mem::take(&mut self.pages.at_mut(place).polluted) {
            self.counts.polluted += 1;
        }
        if let Some(cache) = &mut self.cache {
            cache.miss(number);
        }
        self.wish(number, Demand::Miss);
        let again = self.pages.at(place).flight != NONE;
        self.counts.repeated_reads += u64::from(again);
        let flight = self.fetch(place, number, Why::Demand);
        self.flights.wait(flight, waiting);
        self.fetch_wanted();
    }

    /// Sends for a line.
    fn fetch(&mut self, place: u32, number: u64, why: Why) -> u32 {
        let flight = self.flights.begin(place, why);
        self.pages.at_mut(place).flight = flight;
        match self.backend.read(self.now_ns, place, number, flight, &mut self.events) {
            Read::Sent => {
                self.counts.flash_reads += 1;
                self.note_flash();
            }
            Read::InLog => self.events.push(self.now_ns, Event::Found(flight)),
        }
        flight
    }

    fn note_flash(&mut self) {
        let (first, _) = *self.flash_span.get_or_insert((self.now_ns, self.now_ns));
        self.flash_span = Some((first, self.now_ns));
    }

    /// A line has come: it goes into the cache, and the requests that wait for it are answered.
    fn landed(&mut self, id: u32) {
        let flight = *self.flights.at(id);
        let place = flight.place;
        if self.pages.at(place).flight == id {
            self.pages.at_mut(place).flight = NONE;
        }
        let flash_from = self.now_ns;
        let first = self.flights.next_waiting(id);
        if self.cache.is_some() {
            self.fill(place, flight.why, first);
        }
        let mut next = first;
        while let Some(waiting) = next {
            let done_ns = match &mut self.cache {
                Some(_) => self.dram.serve(self.now_ns, DATA_BYTES),
                None => {
                    // What was read is written back with the new data.
                    if waiting.write {
                        self.write_back(place);
                    }
                    self.now_ns
                }
            };
            self.answer(waiting, flash_from - waiting.accepted_ns, done_ns, true);
            next = self.flights.next_waiting(id);
            if let (Some(waiting), Some(cache)) = (next, &mut self.cache) {
                cache.hit(self.pages.at(place).line, waiting.write);
            }
        }
        self.flights.end(id);
    }

    fn fill(&mut self, place: u32, why: Why, first: Option<Waiting>) {
        let Page { line, .. } = *self.pages.at(place);
        let number = self.pages.number(place);
        let Some(cache) = &mut self.cache else { return };
        let write = first.is_some_and(|waiting| waiting.write);
        if line != Line::NONE {
            // Without registers of misses another read of the same line came before.
            if first.is_some() {
                cache.hit(line, write);
            }
            return;
        }
        // A prefetched line that a request waits for is in use.
        let steered = why == Why::Prefetch && first.is_none();
        let insertion = if steered { self.prefetcher.insertion() } else { Insertion::Mru };
        let (line, evicted) = cache.fill(number, place, write, insertion);
        let line_bytes = self.device.geometry.unit_bytes;
        if let Some(evicted) = evicted {
            let gone = self.pages.at_mut(evicted.page);
            gone.line = Line::NONE;
            let unused = gone.prefetched && !gone.used;
            gone.polluted = why != Why::Demand && !unused;
            let unused = unused && !gone.hinted;
            (gone.prefetched, gone.used, gone.hinted) = (false, false, false);
            let gone_number = self.pages.number(evicted.page);
            self.prefetcher.evicted(gone_number, why, unused);
            if evicted.dirty {
                // It is read from DRAM before the new line overwrites it.
                self.dram.serve(self.now_ns, line_bytes);
                self.write_back(evicted.page);
            }
        }
        self.dram.serve(self.now_ns, line_bytes);
        let page = self.pages.at_mut(place);
        page.line = line;
        page.polluted = false;
        page.prefetched = why != Why::Demand;
        page.hinted = why == Why::Hint;
        page.used = page.prefetched && first.is_some();
        self.counts.prefetches_used += u64::from(page.used);
        self.prefetcher.filled(number, why);
    }

    fn write_back(&mut self, place: u32) {
        let Machine { backend, pages, events, now_ns, .. } = self;
        backend.write(*now_ns, place, pages, events);
        self.note_flash();
    }

    /// A request is answered when what it asked for is there at `done_ns`.
    fn answer(&mut self, waiting: Waiting, flash_ns: u64, done_ns: u64, missed: bool) {
        let up_bytes = HEADER_BYTES + if waiting.write { 0 } else { DATA_BYTES };
        let answer_ns = self.up.serve(done_ns, up_bytes);
        self.answers.push_back(answer_ns);
        self.last_answer_ns = answer_ns;
        let latency_ns = answer_ns - waiting.arrival_ns;
        let link_ns = waiting.link_ns + (answer_ns - done_ns);
        let queue_ns = waiting.accepted_ns - waiting.arrival_ns - waiting.link_ns;
        let dram_ns = latency_ns - link_ns - queue_ns - flash_ns;
        for answers in
            [Some(&mut self.counts.answers), self.windows.answers(waiting.window)].into_iter().flatten()
        {
            answers.sub_us += u64::from(latency_ns < FAST_NS);
            answers.latency_ns += latency_ns;
            answers.link_ns += link_ns;
            answers.queue_ns += queue_ns;
            answers.flash_ns += flash_ns;
            answers.dram_ns += dram_ns;
            answers.miss_latency_ns += if missed { latency_ns } else { 0 };
        }
        self.latency.saturating_record(latency_ns);
    }

    /// A demand that needs no fetch of its own may make the prefetcher wish for lines.
    #[inline]
    fn prefetch(&mut self, number: u64, found: Demand) {
        if !matches!(self.prefetcher, Prefetcher::None) {
            self.wish(number, found);
            self.fetch_wanted();
        }
    }

    fn wish(&mut self, number: u64, found: Demand) {
        self.wanted.clear();
        self.prefetcher.demand(number, found, &mut self.wanted);
    }

    fn fetch_wanted(&mut self) {
        let wanted = std::mem::take(&mut self.wanted);
        for &number in &wanted {
            match self.fetch_early(number, Why::Prefetch) {
                Early::Sent => self.prefetcher.issued(number),
                Early::Needless => {}
                Early::NoRoom => break,
            }
        }
        self.wanted = wanted;
    }

    /// Sends for a line that no request has asked for.
    fn fetch_early(&mut self, number: u64, why: Why) -> Early {
        if number >= self.device.units || self.cache.is_none() {
            return Early::Needless;
        }
        let bound = self.device.config.prefetch.outstanding as usize;
        // One place is left to requests.
        if self.flights.early() >= bound || self.backend.room() < 2 || self.backend.is_full() {
            return Early::NoRoom;
        }
        let place = self.pages.place_of(number);
        let Page { line, flight, .. } = *self.pages.at(place);
        if line != Line::NONE || flight != NONE {
            return Early::Needless;
        }
        self.counts.prefetches += 1;
        self.fetch(place, number, why);
        Early::Sent
    }

    /// The host knows of an access to come and may tell of it (Yang 2023, Observation 7).
    fn hint(&mut self, access: &Access) {
        if self.wishes.hinted.is_empty() {
            return;
        }
        let number = access.key / u64::from(self.device.geometry.unit_bytes) % self.device.units;
        let is_hinted = self.wishes.hinted.binary_search(&number).is_ok();
        if is_hinted && self.rng.unit_f64() < self.device.config.hints.probability {
            self.counts.hints += u64::from(self.fetch_early(number, Why::Hint) == Early::Sent);
        }
    }
}
