//! LHD, least hit density: N. Beckmann, H. Chen, A. Cidon, "LHD: improving cache hit rate by maximizing hit density", NSDI 2018,
//! sections 4 and 5.
//!
//! The value of an item is its hit density: the hits expected from it per unit of space and time that it will still take. It is
//! estimated from past items of the same age (requests since last use, in coarse steps) and class (by the sum of the last two
//! reuse times). The victim is the item with the least density among [`SAMPLES`] drawn at random. Counts decay by [`DECAY`] at
//! each recomputation.
//!
//! Left out of the paper's implementation: explorer items, and classes per application. It costs a table of densities per policy,
//! and looking them up takes 64 KiB and more of processor cache. Do not use it for small caches: under a few thousand items there
//! is too little to learn from.

use super::sample::Sampled;
use super::{Departure, Domain, Evict, Origin, Touch};
use crate::Id;
use tiermem_base::Rng;

/// Items drawn for a victim, as in the paper.
pub const SAMPLES: u32 = 32;
/// Share of the old counts that is kept at each recomputation, as in the paper.
pub const DECAY: f32 = 0.9;
const CLASSES: usize = 16;
const AGES: usize = 1024;
/// Requests between recomputations: twice the items, within these.
const PERIOD: std::ops::RangeInclusive<u64> = 4096..=1 << 20;
/// The share of events beyond the last age step at which steps are made twice as long.
const OVERFLOW_MAX: f32 = 0.01;

#[derive(Clone, Copy, Debug, Default)]
struct State {
    last: u32,
    size: u32,
    /// The last two reuse times, in requests; 0: not used again yet.
    reuses: [u32; 2],
}

/// Hits and evictions of the items of one class, by age step.
#[derive(Clone, Debug)]
struct Class {
    hits: Vec<f32>,
    evictions: Vec<f32>,
    density: Vec<f32>,
}

/// Items with ages, one array per domain, and densities common to all.
#[derive(Clone, Debug)]
pub struct Lhd {
    items: Sampled<State>,
    classes: Vec<Class>,
    /// Requests per age step, as a power of two.
    step_log2: u32,
    next_recompute: u64,
    now: u64,
}

/// Before anything is known an item is worth less the older it is, and less if it was never used again.
fn unlearned(class: usize) -> Class {
    let density = |age: usize| (class + 1) as f32 / (age + 1) as f32;
    Class { hits: vec![0.0; AGES], evictions: vec![0.0; AGES], density: (0..AGES).map(density).collect() }
}

impl Class {
    fn recompute(&mut self) {
        // From the oldest age down: hits still to come over the time still to be spent.
        let (mut hits, mut events, mut lifetimes) = (0.0f32, 0.0f32, 0.0f32);
        for age in (0..AGES).rev() {
            self.hits[age] *= DECAY;
            self.evictions[age] *= DECAY;
            hits += self.hits[age];
            events += self.hits[age] + self.evictions[age];
            lifetimes += events;
            self.density[age] = if lifetimes > 1e-5 { hits / lifetimes } else { 0.0 };
        }
    }

    fn coarsen(&mut self) {
        for counts in [&mut self.hits, &mut self.evictions] {
            for age in 0..AGES / 2 {
                counts[age] = counts[2 * age] + counts[2 * age + 1];
            }
            counts[AGES / 2..].fill(0.0);
        }
    }

    fn overflow_share(&self) -> f32 {
        let events: f32 = self.hits.iter().chain(&self.evictions).sum();
        (self.hits[AGES - 1] + self.evictions[AGES - 1]) / events.max(1.0)
    }
}

impl Lhd {
    /// An array for each of `domains`.
    pub fn new(domains: usize) -> Self {
        Lhd {
            items: Sampled::new(domains),
            classes: (0..CLASSES).map(unlearned).collect(),
            step_log2: 0,
            next_recompute: *PERIOD.start(),
            now: 0,
        }
    }

    /// Class and age step of an item.
    #[inline]
    fn cell(step_log2: u32, state: &State, now: u64) -> (usize, usize) {
        let age = (now as u32).wrapping_sub(state.last) >> step_log2;
        let class = match state.reuses {
            [0, _] => 0,
            // Short reuse times make high classes; each step of the class is a factor of two.
            [a, b] => {
                let steps = (u64::from(a) + u64::from(b)) >> step_log2;
                let shorter = (2 * AGES as u64 / (steps + 1)).max(1).ilog2() as usize;
                (shorter + 1).min(CLASSES - 1)
            }
        };
        (class, (age as usize).min(AGES - 1))
    }

    fn recompute(&mut self, held: usize, now: u64) {
        if self.classes.iter().any(|class| class.overflow_share() > OVERFLOW_MAX) && self.step_log2 < 31 {
            self.classes.iter_mut().for_each(Class::coarsen);
            self.step_log2 += 1;
        }
        self.classes.iter_mut().for_each(Class::recompute);
        self.next_recompute = now + (2 * held as u64).clamp(*PERIOD.start(), *PERIOD.end());
    }
}

impl Evict for Lhd {
    fn insert(&mut self, id: Id, domain: Domain, origin: Origin) {
        let state = match origin.new_item() {
            Some(item) => {
                self.now = item.now;
                State { last: item.now as u32, size: item.size, reuses: [0, 0] }
            }
            None => self.items.parked(id),
        };
        self.items.insert(id, domain.0 as usize, state);
    }

    fn hit(&mut self, id: Id, touch: Touch, domain: impl FnOnce() -> Domain) {
        self.now = touch.now;
        let state = self.items.at(id, domain().0 as usize);
        let (class, age) = Self::cell(self.step_log2, state, touch.now);
        self.classes[class].hits[age] += 1.0;
        let reuse = (touch.now as u32).wrapping_sub(state.last).max(1);
        state.reuses = [reuse, state.reuses[0]];
        state.last = touch.now as u32;
    }

    fn resize(&mut self, id: Id, domain: Domain, size: u32) {
        self.items.at(id, domain.0 as usize).size = size;
    }

    fn remove(&mut self, id: Id, domain: Domain, departure: Departure) {
        let state = self.items.remove(id, domain.0 as usize);
        match departure {
            Departure::Evicted => {
                let (class, age) = Self::cell(self.step_log2, &state, self.now);
                self.classes[class].evictions[age] += 1.0;
            }
            Departure::Moved => self.items.park(id, state),
            Departure::Deleted => {}
        }
    }

    fn victim(&mut self, domain: Domain, now: u64, rng: &mut Rng, may_go: impl Fn(Id) -> bool) -> Option<Id> {
        self.now = now;
        let domain = domain.0 as usize;
        if now >= self.next_recompute {
            self.recompute(self.items.len(domain), now);
        }
        let density = |state: &State| {
            let (class, age) = Self::cell(self.step_log2, state, now);
            self.classes[class].density[age] / state.size.max(1) as f32
        };
        self.items.least_of(domain, SAMPLES, rng, may_go, |a, b| density(a) < density(b))
    }

    fn clear(&mut self) {
        *self = Lhd::new(self.items.domains());
    }

    fn len(&self, domain: Domain) -> u32 {
        self.items.len(domain.0 as usize) as u32
    }

    fn metadata_bytes(&self) -> u64 {
        self.items.bytes() + (CLASSES * (size_of::<Class>() + 3 * AGES * size_of::<f32>())) as u64
    }
}
