//! A miniature of the cache: a small cache of its own with a cleaner of its own, both the code of the cache itself, and a store
//! that takes as long as the cache's store was measured to take.
//!
//! Its requests are over as soon as they are planned; so nothing holds its blocks, and nothing waits for its copies. What is left to
//! wait for is a clean place, and that a store takes time. The store's bandwidth and the cleaner's amounts are smaller by the same
//! factor as the cache and the number of requests: what is cleaned in time there is so here. Reading what is written back from the
//! cache's device takes no time, and clients' flushes are not shown to it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::evict::Lru;
use crate::evict::lru::Bump;
use tiermem_base::Rng;

use super::cleaner::{Act, Cleaner, CleanerRules, Outcome, Token};
use super::geometry::{Geometry, UNIT_BYTES};
use super::plan::{Plan, Request, Verdict};
use super::sizing::{Around, RequestCost, Sizing};
use super::store_speed::StoreSpeed;
use super::{Config, Extents, Fill, Volume};

/// The stores' session: none of them loses what it took.
const SESSION: u64 = 0;
/// Events until a write gets no place for which it waits. It waits for a trip to the store, which takes a few.
const WAIT_EVENTS_MAX: u32 = 10_000;

/// What requests cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// How long reads waited for the store, in nanoseconds.
    pub reads_ns: u64,
    /// How long writes did.
    pub writes_ns: u64,
    /// Bytes from the store and to it.
    pub bytes: u64,
}

/// What a store will have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Coming {
    Sent(Token),
    Flushed(Token),
}

/// A small cache, the cleaner of it, and its stores.
#[derive(Debug)]
pub(super) struct Miniature {
    cache: Extents<Lru>,
    /// None: what is dirty is written back by the request that drives it out.
    cleaner: Option<Cleaner>,
    /// How many times as large the cache is.
    times: u64,
    clock_ns: u64,
    /// When time alone changes something for the cleaner.
    wake_ns: Option<u64>,
    /// By time, and in the order in which they began.
    coming: BinaryHeap<Reverse<(u64, u64, Coming)>>,
    begun: u64,
    /// When the store of each volume has taken all that it was sent.
    free_ns: Vec<u64>,
    acts: Vec<Act>,
    /// Bytes written back since they were charged last.
    sent_bytes: u64,
}

/// How long so many bytes take.
fn bytes_ns(bytes: u64, cost: &RequestCost) -> u64 {
    (bytes / UNIT_BYTES * (UNIT_BYTES / 1024)).saturating_mul(cost.kib_ns)
}

impl Miniature {
    /// Of a cache `times` as large; the miniature's geometry is given.
    pub fn new(geometry: Geometry, fill: Fill, rule: Around, times: u64) -> Self {
        let config = Config { fill, sizing: Sizing::Around(rule), shares: 1 };
        let order = Lru::new([1.0, 1.0], Bump::Always);
        Miniature {
            cache: Extents::new(geometry, config, order, Rng::seeded(0)),
            cleaner: None,
            times,
            clock_ns: 0,
            wake_ns: None,
            coming: BinaryHeap::new(),
            begun: 0,
            free_ns: Vec::new(),
            acts: Vec::new(),
            sent_bytes: 0,
        }
    }

    /// It is cleaned by these rules from now on; call it before anything is dirty.
    pub fn clean_by(&mut self, rules: CleanerRules) {
        debug_assert_eq!(self.cache.units().dirty_bytes(), 0, "nothing is dirty yet");
        let capacity_bytes = self.cache.geometry().capacity_bytes();
        self.cleaner = Some(Cleaner::miniature(rules, capacity_bytes, u64::MAX, self.times));
    }

    /// A request comes: what it cost, and what was written back before it was over.
    pub fn see(&mut self, part: &Request, now_ns: u64, plan: &mut Plan, stores: &[StoreSpeed]) -> Cost {
        self.add_volumes(stores.len());
        self.run_until(now_ns, stores);
        let began_ns = self.clock_ns;
        let mut request = *part;
        plan.again = false;
        let unaided_ns = match self.cleaner.is_some() {
            true => {
                self.plan(&mut request, plan, stores);
                0
            }
            false => self.plan_alone(&request, plan, stores),
        };
        self.cache.finish(plan);
        self.step_after_request(stores);
        let cost = stores[usize::from(part.volume.0)].read();
        let fetched_bytes = plan.fetch.iter().map(|range| range.end - range.start).sum::<u64>();
        let fetch_ns = if fetched_bytes > 0 { cost.request_ns + bytes_ns(fetched_bytes, &cost) } else { 0 };
        let time_ns = self.clock_ns - began_ns + unaided_ns + fetch_ns;
        let bytes = fetched_bytes + std::mem::take(&mut self.sent_bytes);
        match part.write {
            None => Cost { reads_ns: time_ns, writes_ns: 0, bytes },
            Some(_) => Cost { reads_ns: 0, writes_ns: time_ns, bytes },
        }
    }

    fn add_volumes(&mut self, count: usize) {
        for at in self.free_ns.len()..count {
            self.free_ns.push(0);
            if let Some(cleaner) = &mut self.cleaner {
                cleaner.add(Volume(at as u16), SESSION);
            }
        }
    }

    /// Plans a request, which writes back what it drives out; how long that takes.
    fn plan_alone(&mut self, request: &Request, plan: &mut Plan, stores: &[StoreSpeed]) -> u64 {
        let mut waited_ns = 0;
        while self.cache.plan(request, plan) == Verdict::Clean {
            let bytes = plan.clean.iter().map(|part| part.bytes).sum::<u64>();
            let cost = stores[usize::from(request.volume.0)].write();
            waited_ns = cost.request_ns.max(waited_ns) + bytes_ns(bytes, &cost);
            self.sent_bytes += bytes;
            self.cache.units_mut().cleaned(&plan.clean);
            plan.again = true;
        }
        waited_ns
    }

    /// Plans a request, which waits until it can begin.
    fn plan(&mut self, request: &mut Request, plan: &mut Plan, stores: &[StoreSpeed]) {
        let mut events = 0;
        while !self.try_to_plan(request, plan) {
            self.step(true, stores);
            if events == WAIT_EVENTS_MAX || !self.arrive(stores) {
                // The cache would find it some place; here it goes past the cache.
                request.bypass = true;
            }
            events += 1;
        }
    }

    /// Plans a request if that can be done now.
    fn try_to_plan(&mut self, request: &mut Request, plan: &mut Plan) -> bool {
        let Some(cleaner) = &mut self.cleaner else { return true };
        if !request.bypass && cleaner.may_write(self.clock_ns, &self.cache, request) != Verdict::Ready {
            return false;
        }
        cleaner.plan(self.clock_ns, &mut self.cache, request, plan, &mut self.acts) == Verdict::Ready
    }

    /// All that there is to do until a time is done.
    fn run_until(&mut self, now_ns: u64, stores: &[StoreSpeed]) {
        while self.next_ns().is_some_and(|at_ns| at_ns <= now_ns) && self.arrive(stores) {
            self.step(false, stores);
        }
        self.clock_ns = self.clock_ns.max(now_ns);
    }

    /// When something happens next.
    fn next_ns(&self) -> Option<u64> {
        let coming_ns = self.coming.peek().map(|Reverse((at_ns, ..))| *at_ns);
        coming_ns.into_iter().chain(self.wake_ns).min()
    }

    /// Time passes until something happens, and that is taken. False where nothing will.
    fn arrive(&mut self, stores: &[StoreSpeed]) -> bool {
        let (Some(at_ns), Some(cleaner)) = (self.next_ns(), &mut self.cleaner) else { return false };
        self.clock_ns = self.clock_ns.max(at_ns);
        self.wake_ns = self.wake_ns.filter(|wake_ns| *wake_ns > self.clock_ns);
        while let Some(Reverse((at_ns, _, coming))) = self.coming.peek().copied()
            && at_ns <= self.clock_ns
        {
            self.coming.pop();
            let (token, outcome) = match coming {
                Coming::Sent(token) => (token, Outcome::Sent { session: SESSION }),
                Coming::Flushed(token) => (token, Outcome::Flushed { session: SESSION }),
            };
            cleaner.done(self.clock_ns, token, outcome, &mut self.acts);
        }
        self.carry_out(stores);
        true
    }

    /// Lets the cleaner decide.
    fn step(&mut self, is_waited_for: bool, stores: &[StoreSpeed]) {
        let Some(cleaner) = &mut self.cleaner else { return };
        if !is_waited_for {
            cleaner.nobody_waits();
        }
        self.wake_ns = None;
        cleaner.step(self.clock_ns, &self.cache, &mut self.acts);
        self.carry_out(stores);
    }

    /// Lets the cleaner decide where the request may have made something due, or has begun something.
    fn step_after_request(&mut self, stores: &[StoreSpeed]) {
        let Some(cleaner) = &self.cleaner else { return };
        let is_watched = self.wake_ns.is_some() || self.cache.units().dirty_bytes() == 0;
        if !self.acts.is_empty() || !is_watched || cleaner.is_due_after_request(&self.cache) {
            self.step(false, stores);
        }
    }

    fn carry_out(&mut self, stores: &[StoreSpeed]) {
        let mut acts = std::mem::take(&mut self.acts);
        // A copy is there at once, and what follows from it comes behind.
        let mut at = 0;
        while let Some(act) = acts.get(at).cloned() {
            at += 1;
            let Some(cleaner) = &mut self.cleaner else { break };
            match act {
                Act::Copy { token, units, .. } => {
                    cleaner.done(self.clock_ns, token, Outcome::Copied(&[units]), &mut acts);
                }
                Act::Send { token, volume, units } => {
                    let (bytes, of) = ((units.end - units.start) * UNIT_BYTES, usize::from(volume.0));
                    let cost = stores[of].write();
                    let taken_ns = bytes_ns(bytes, &cost).saturating_mul(self.times);
                    self.free_ns[of] = self.free_ns[of].max(self.clock_ns).saturating_add(taken_ns);
                    self.sent_bytes += bytes;
                    self.will_be(self.free_ns[of].saturating_add(cost.request_ns), Coming::Sent(token));
                }
                Act::Flush { token, volume } => {
                    let flush_ns = stores[usize::from(volume.0)].flush_ns();
                    self.will_be(self.clock_ns.saturating_add(flush_ns), Coming::Flushed(token));
                }
                Act::Clean { volume, runs } => {
                    let mut parts = Vec::new();
                    for run in runs {
                        let range = run.start * UNIT_BYTES..run.end * UNIT_BYTES;
                        self.cache.visit(volume, range, |part, _| parts.push(part));
                    }
                    self.cache.units_mut().cleaned(&parts);
                }
                Act::Wait { until_ns } => self.wake_ns = Some(until_ns),
                Act::Trim { .. } => debug_assert!(false, "a miniature gets reads and writes alone"),
            }
        }
        acts.clear();
        self.acts = acts;
    }

    fn will_be(&mut self, at_ns: u64, coming: Coming) {
        self.begun += 1;
        self.coming.push(Reverse((at_ns, self.begun, coming)));
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        let (growing, flat) = self.cache.metadata_bytes();
        growing + flat + (self.free_ns.len() * 8) as u64
    }
}
