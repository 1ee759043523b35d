//! Observed sizing: which blocks a miss should bring in, by what each rule would have cost lately.
//!
//! Every rule has a miniature of the cache: a sample of the address space, in regions large enough to keep their inner order,
//! runs through a cache that is smaller by the same factor (Waldspurger 2017, section 3, "miniature simulation"). The requests
//! that each rule causes at the backing store are priced, volume by volume, and a volume follows the rule that was cheapest over
//! the last window. The published rule, no more than the request needs, is one of them: it is followed wherever no other is
//! cheaper.
//!
//! No request waits for this: requests are noted, and observed when the driver has time.

use std::collections::VecDeque;

use crate::evict::Lru;
use crate::evict::lru::Bump;
use tiermem_base::Rng;
use tiermem_base::hash::sample_hash;

use super::geometry::{Geometry, UNIT_BYTES};
use super::plan::{Plan, Request, Verdict};
use super::sizing::{Around, RequestCost, Sizing};
use super::{Config, Extents, Fill, Volume};

/// Groups of a miniature: with fewer its order of eviction is not that of the cache.
const GROUPS: u64 = 256;
/// Bytes of a region of the sample, or four of the largest blocks where that is more.
const REGION_BYTES: u64 = 1 << 20;
/// Requests of a volume in the sample before it first chooses. The time until it does so again doubles, and earlier costs count
/// half from then on.
const PERIOD_FIRST: u32 = 64;
/// The longest such time.
const PERIOD_LAST: u32 = 4096;
/// Another rule must be cheaper by this part, in 1/256.
const MARGIN: u64 = 8;
/// Requests that may be noted and not observed yet.
const NOTED_MAX: usize = 64;

/// How large the blocks are that a miss allocates: the rule that is set, or the one that serves a volume best.
#[derive(Debug)]
pub struct Sizer {
    around: Around,
    observer: Option<Box<Observer>>,
}

impl Sizer {
    pub(super) fn new(geometry: &Geometry, fill: Fill, sizing: Sizing) -> Self {
        match sizing {
            Sizing::Request => Sizer { around: Around::default(), observer: None },
            Sizing::Around(around) => Sizer { around, observer: None },
            Sizing::Observed(cost) => {
                let observer = Some(Box::new(Observer::new(geometry, fill, cost)));
                Sizer { around: Around::default(), observer }
            }
        }
    }

    /// The rule that a volume's requests follow.
    pub(super) fn rule(&self, volume: Volume) -> Around {
        self.observer.as_ref().map_or(self.around, |observer| observer.rule(volume))
    }

    /// A request is planned whose misses get places.
    pub(super) fn note(&mut self, request: &Request) {
        if let Some(observer) = &mut self.observer {
            observer.note(request);
        }
    }

    /// Observes at most `most` requests that were planned and not observed yet. Call it when no request waits.
    pub fn observe(&mut self, most: usize) {
        if let Some(observer) = &mut self.observer {
            observer.catch_up(most);
        }
    }

    /// Bytes held.
    pub(super) fn metadata_bytes(&self) -> u64 {
        self.observer.as_ref().map_or(0, |observer| observer.metadata_bytes())
    }
}

/// Costs that were seen of a volume, or of all volumes together.
#[derive(Clone, Debug)]
struct Seen {
    /// The rule it follows, once it has chosen one.
    rule: Option<usize>,
    /// The recent cost of each rule, in nanoseconds.
    costs: Vec<u64>,
    requests: u32,
    period: u32,
}

/// Miniatures of a cache, one for each rule.
#[derive(Debug)]
pub struct Observer {
    rules: Vec<Around>,
    minis: Vec<Extents<Lru>>,
    volumes: Vec<Seen>,
    /// The costs of all volumes together, for a volume that has seen too little itself.
    all: Seen,
    cost: RequestCost,
    /// Parts of requests that are in the sample and wait, the oldest first.
    noted: VecDeque<Request>,
    /// A region is in the sample when its hash lies below.
    threshold: u64,
    region_bytes: u64,
    plan: Plan,
}

impl Observer {
    /// For a cache of this geometry that fills so.
    pub fn new(geometry: &Geometry, fill: Fill, cost: RequestCost) -> Self {
        let classes = geometry.classes() as u8;
        let none = Around::default();
        let each = (0..classes)
            .flat_map(|class| [None, Some(class)].map(|write| Around { read: Some(class), write }));
        // A block of the smallest class around a write is the one that the request gets anyway.
        let differs = |rule: &Around| rule.write != Some(0) && !(fill == Fill::Whole && rule.read == Some(0));
        let rules: Vec<Around> = std::iter::once(none).chain(each.filter(differs)).collect();
        let share = (GROUPS as f64 / f64::from(geometry.groups())).min(1.0);
        let mini = geometry.smaller(((f64::from(geometry.groups()) * share) as u32).max(classes.into()));
        let minis = rules.iter().map(|rule| {
            let config = Config { fill, sizing: Sizing::Around(*rule), shares: 1 };
            let order = Lru::new([1.0, 1.0], Bump::Always);
            Extents::new(mini.clone(), config, order, Rng::seeded(0))
        });
        let largest = geometry.class_bytes(geometry.classes() - 1);
        Observer {
            minis: minis.collect(),
            volumes: Vec::new(),
            all: Seen::new(rules.len()),
            cost,
            noted: VecDeque::with_capacity(NOTED_MAX),
            // All of the address space where the share is 1: the conversion ends at the largest number.
            threshold: (share * u64::MAX as f64) as u64,
            region_bytes: REGION_BYTES.max(4 * largest),
            plan: Plan::default(),
            rules,
        }
    }

    /// The rule that a volume follows.
    #[inline]
    pub fn rule(&self, volume: Volume) -> Around {
        let own = self.volumes.get(usize::from(volume.0)).and_then(|seen| seen.rule);
        self.rules[own.or(self.all.rule).unwrap_or(0)]
    }

    /// Notes a request, as far as it is in the sample. Where too many wait the oldest of them is observed first.
    pub fn note(&mut self, request: &Request) {
        let end = request.offset + request.bytes;
        let mut at = request.offset;
        while at < end {
            let region = at / self.region_bytes;
            let to = end.min((region + 1) * self.region_bytes);
            if sample_hash(u64::from(request.volume.0) << 48 ^ region) <= self.threshold {
                if self.noted.len() == NOTED_MAX {
                    self.catch_up(1);
                }
                self.noted.push_back(Request { offset: at, bytes: to - at, ..*request });
            }
            at = to;
        }
    }

    /// Shows the miniatures at most `most` of the requests that were noted.
    pub fn catch_up(&mut self, most: usize) {
        for _ in 0..most {
            let Some(part) = self.noted.pop_front() else { return };
            self.see(&part);
        }
    }

    fn see(&mut self, part: &Request) {
        let volume = usize::from(part.volume.0);
        while self.volumes.len() <= volume {
            self.volumes.push(Seen::new(self.rules.len()));
        }
        let seen = &mut self.volumes[volume];
        let costs = seen.costs.iter_mut().zip(&mut self.all.costs);
        for (mini, (own, all)) in self.minis.iter_mut().zip(costs) {
            let price = price(mini, part, &mut self.plan, &self.cost);
            *own += price;
            *all += price;
        }
        seen.pass(&self.rules);
        self.all.pass(&self.rules);
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        let minis = self.minis.iter().map(Extents::metadata_bytes).map(|(growing, flat)| growing + flat);
        let noted = self.noted.capacity() * size_of::<Request>();
        minis.sum::<u64>() + (self.volumes.len() * self.rules.len() * 8 + noted) as u64
    }
}

impl Seen {
    fn new(rules: usize) -> Self {
        Seen { rule: None, costs: vec![0; rules], requests: 0, period: PERIOD_FIRST }
    }

    /// Counts a request, and chooses when it is time.
    fn pass(&mut self, rules: &[Around]) {
        self.requests += 1;
        if self.requests >= self.period {
            self.requests = 0;
            self.period = (2 * self.period).min(PERIOD_LAST);
            self.choose(rules);
        }
    }

    fn choose(&mut self, rules: &[Around]) {
        let least = self.costs.iter().copied().min().unwrap_or(0);
        let close = |cost: u64| cost <= least + least / 256 * MARGIN;
        if !self.rule.is_some_and(|rule| close(self.costs[rule])) {
            // What a write allocates around itself costs nothing if it is not read: of equal rules the one with the largest blocks.
            self.rule = (0..rules.len())
                .filter(|&rule| close(self.costs[rule]))
                .max_by_key(|&rule| (rules[rule].write, std::cmp::Reverse(self.costs[rule])));
        }
        for cost in &mut self.costs {
            *cost /= 2;
        }
    }
}

/// The cost of a request in a cache.
fn price(mini: &mut Extents<Lru>, part: &Request, plan: &mut Plan, cost: &RequestCost) -> u64 {
    let mut bytes = 0;
    plan.again = false;
    while mini.plan(part, plan) == Verdict::Clean {
        // Written back later: its bytes count, but no request waits for its latency.
        bytes += plan.clean.iter().map(|part| part.bytes).sum::<u64>();
        mini.units_mut().cleaned(&plan.clean);
        plan.again = true;
    }
    mini.finish(plan);
    bytes += plan.fetch.iter().map(|range| range.end - range.start).sum::<u64>();
    let requests = u64::from(!plan.fetch.is_empty());
    requests * cost.request_ns + bytes / UNIT_BYTES * (UNIT_BYTES / 1024) * cost.kib_ns
}
