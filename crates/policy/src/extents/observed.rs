//! Observed sizing: which blocks a miss should bring in, by what each rule would have cost lately.
//!
//! Every rule has a miniature of the cache: a sample of the address space, in regions large enough to keep their inner order,
//! runs through a cache that is smaller by the same factor (Waldspurger 2017, section 3, "miniature simulation"). What clients
//! would have waited for is charged, volume by volume: requests to the store, and clean places where the cleaner is behind
//! ([`Miniature`]); and, where they have a price, the bytes moved. A volume follows the rule that was cheapest over the last window.
//! The published rule, no more than the request needs, is one of them: it is followed wherever no other is cheaper. No rule is followed
//! by which reads would gain at the expense of writes, or writes of reads, beside the published one.
//!
//! How long a store takes is measured while it serves ([`StoreSpeed`]).
//!
//! No request waits for this: requests are noted, and observed when the driver has time.

use std::collections::VecDeque;

use tiermem_base::hash::sample_hash;

use super::cleaner::CleanerRules;
use super::geometry::Geometry;
use super::miniature::{Cost, Miniature};
use super::plan::{Plan, Request};
use super::sizing::{Around, Observation, Sizing};
use super::store_speed::{Measured, StoreSpeed};
use super::{Fill, Volume};

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
/// By how much reads, or writes, may take longer than by the published rule, in 1/256.
const MARGIN_EACH: u64 = 8;
/// More may be lost of the one where so many times as much is gained of the other.
const GAIN_PER_LOSS: u64 = 16;
/// What a request takes in addition to what it waits for the store: about as long as flash takes.
const HIT_NS: u64 = 80_000;
/// Rules whose costs differ by less than this part, in 1/256, cost the same.
const MARGIN_EQUAL: u64 = 1;
/// What may be noted and not observed yet.
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
            Sizing::Observed(by) => {
                let observer = Some(Box::new(Observer::new(geometry, fill, by)));
                Sizer { around: Around::default(), observer }
            }
        }
    }

    /// The rule that a volume's requests follow.
    pub(super) fn rule(&self, volume: Volume) -> Around {
        self.observer.as_ref().map_or(self.around, |observer| observer.rule(volume))
    }

    /// What is dirty is written back in the background by these rules: call it before anything is planned.
    pub fn clean_by(&mut self, rules: CleanerRules) {
        if let Some(observer) = &mut self.observer {
            observer.minis.iter_mut().for_each(|mini| mini.clean_by(rules));
        }
    }

    /// The driver's clock has come to this time.
    pub(super) fn tick(&mut self, now_ns: u64) {
        if let Some(observer) = &mut self.observer {
            observer.now_ns = now_ns;
        }
    }

    /// A volume's store has done something. Drivers tell what it has read; what is written back the cleaner tells.
    pub fn measured(&mut self, volume: Volume, measured: Measured) {
        if let Some(observer) = &mut self.observer {
            observer.push(Noted::Measured(volume, measured));
        }
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
    /// The recent cost of each rule.
    costs: Vec<Cost>,
    /// Recent reads and writes; they become fewer as the costs do.
    reads: u64,
    writes: u64,
    requests: u32,
    period: u32,
}

/// What was noted, and waits to be observed. The outcome is the same however long it waits.
#[derive(Clone, Copy, Debug)]
enum Noted {
    /// A part of a request that is in the sample, and when it came.
    Request(Request, u64),
    /// What a volume's store has done.
    Measured(Volume, Measured),
}

/// Miniatures of a cache, one for each rule.
#[derive(Debug)]
pub struct Observer {
    rules: Vec<Around>,
    minis: Vec<Miniature>,
    volumes: Vec<Seen>,
    /// The costs of all volumes together, for a volume that has seen too little itself.
    all: Seen,
    by: Observation,
    /// The speed of each volume's store.
    stores: Vec<StoreSpeed>,
    now_ns: u64,
    /// Those that wait, the oldest first.
    noted: VecDeque<Noted>,
    /// A region is in the sample when its hash lies below.
    threshold: u64,
    region_bytes: u64,
    plan: Plan,
}

impl Observer {
    /// For a cache of this geometry that fills so.
    pub fn new(geometry: &Geometry, fill: Fill, by: Observation) -> Self {
        let classes = geometry.classes() as u8;
        let none = Around::default();
        let each = (0..classes)
            .flat_map(|class| [None, Some(class)].map(|write| Around { read: Some(class), write }));
        // A block of the smallest class around a write is the one that the request gets anyway.
        let differs = |rule: &Around| rule.write != Some(0) && !(fill == Fill::Whole && rule.read == Some(0));
        let rules: Vec<Around> = std::iter::once(none).chain(each.filter(differs)).collect();
        let share = (GROUPS as f64 / f64::from(geometry.groups())).min(1.0);
        let mini = geometry.smaller(((f64::from(geometry.groups()) * share) as u32).max(classes.into()));
        let times = u64::from(geometry.groups() / mini.groups()).max(1);
        let largest = geometry.class_bytes(geometry.classes() - 1);
        Observer {
            minis: rules.iter().map(|rule| Miniature::new(mini.clone(), fill, *rule, times)).collect(),
            volumes: Vec::new(),
            all: Seen::new(rules.len()),
            by,
            stores: Vec::new(),
            now_ns: 0,
            noted: VecDeque::with_capacity(NOTED_MAX),
            // All of the address space where the share is 1: the conversion ends at the largest number.
            threshold: (share * u64::MAX as f64) as u64,
            region_bytes: REGION_BYTES.max(4 * largest),
            plan: Plan::default(),
            rules,
        }
    }

    fn store_of(&mut self, volume: Volume) -> &mut StoreSpeed {
        let at = usize::from(volume.0);
        if self.stores.len() <= at {
            self.stores.resize(at + 1, StoreSpeed::new(&self.by.believed));
        }
        &mut self.stores[at]
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
                self.push(Noted::Request(Request { offset: at, bytes: to - at, ..*request }, self.now_ns));
            }
            at = to;
        }
    }

    /// Notes something. Where too much waits the oldest of it is observed first.
    fn push(&mut self, noted: Noted) {
        if self.noted.len() == NOTED_MAX {
            self.observe_oldest();
        }
        self.noted.push_back(noted);
    }

    /// Shows the miniatures at most `most` of the requests that were noted.
    pub fn catch_up(&mut self, most: usize) {
        let mut seen = 0;
        while seen < most && !self.noted.is_empty() {
            seen += usize::from(self.observe_oldest());
        }
    }

    /// Observes what was noted first; whether that was a request.
    fn observe_oldest(&mut self) -> bool {
        match self.noted.pop_front() {
            Some(Noted::Request(part, at_ns)) => {
                self.see(&part, at_ns);
                true
            }
            Some(Noted::Measured(volume, measured)) => {
                self.store_of(volume).learn(measured);
                false
            }
            None => false,
        }
    }

    fn see(&mut self, part: &Request, at_ns: u64) {
        let volume = usize::from(part.volume.0);
        while self.volumes.len() <= volume {
            self.volumes.push(Seen::new(self.rules.len()));
        }
        self.store_of(part.volume);
        let seen = &mut self.volumes[volume];
        let costs = seen.costs.iter_mut().zip(&mut self.all.costs);
        for (mini, (own, all)) in self.minis.iter_mut().zip(costs) {
            let cost = mini.see(part, at_ns, &mut self.plan, &self.stores);
            own.add(&cost);
            all.add(&cost);
        }
        seen.pass(part.write.is_some(), &self.rules, &self.by);
        self.all.pass(part.write.is_some(), &self.rules, &self.by);
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        let minis = self.minis.iter().map(Miniature::metadata_bytes);
        let noted = self.noted.capacity() * size_of::<Noted>();
        let seen = self.volumes.len() * self.rules.len() * size_of::<Cost>();
        minis.sum::<u64>() + (seen + self.stores.len() * size_of::<StoreSpeed>() + noted) as u64
    }
}

impl Cost {
    fn add(&mut self, other: &Cost) {
        self.reads_ns = self.reads_ns.saturating_add(other.reads_ns);
        self.writes_ns = self.writes_ns.saturating_add(other.writes_ns);
        self.bytes += other.bytes;
    }

    fn halved(&self) -> Self {
        Cost { reads_ns: self.reads_ns / 2, writes_ns: self.writes_ns / 2, bytes: self.bytes / 2 }
    }

    fn priced(&self, by: &Observation) -> u64 {
        let bytes_ns = (u128::from(self.bytes) * u128::from(by.mib_price_ns)) >> 20;
        let time_ns = self.reads_ns.saturating_add(self.writes_ns);
        time_ns.saturating_add(u64::try_from(bytes_ns).unwrap_or(u64::MAX))
    }
}

/// At most this much more than another.
fn is_close(value: u64, least: u64, margin: u64) -> bool {
    value <= least.saturating_add(least / 256 * margin)
}

impl Seen {
    fn new(rules: usize) -> Self {
        Seen {
            rule: None,
            costs: vec![Cost::default(); rules],
            reads: 0,
            writes: 0,
            requests: 0,
            period: PERIOD_FIRST,
        }
    }

    /// Counts a request, and chooses when it is time.
    fn pass(&mut self, is_write: bool, rules: &[Around], by: &Observation) {
        self.requests += 1;
        self.writes += u64::from(is_write);
        self.reads += u64::from(!is_write);
        if self.requests >= self.period {
            self.requests = 0;
            self.period = (2 * self.period).min(PERIOD_LAST);
            self.choose(rules, by);
        }
    }

    fn choose(&mut self, rules: &[Around], by: &Observation) {
        let priced: Vec<u64> = self.costs.iter().map(|cost| cost.priced(by)).collect();
        // The first rule is the published one.
        let published = self.costs.first().copied().unwrap_or_default();
        let (reads, writes) = (self.reads, self.writes);
        // What is lost of the one is little, or little beside what is gained of the other.
        let is_small = |lost_ns: u64, ns: u64, requests: u64, gained_ns: u64| {
            let took_ns = ns.saturating_add(requests.saturating_mul(HIT_NS));
            lost_ns <= (took_ns / 256 * MARGIN_EACH).max(gained_ns / GAIN_PER_LOSS)
        };
        let is_fair = |cost: &Cost| {
            let (gained_of_reads_ns, gained_of_writes_ns) = (
                published.reads_ns.saturating_sub(cost.reads_ns),
                published.writes_ns.saturating_sub(cost.writes_ns),
            );
            let lost_of_reads_ns = cost.reads_ns.saturating_sub(published.reads_ns);
            let lost_of_writes_ns = cost.writes_ns.saturating_sub(published.writes_ns);
            is_small(lost_of_reads_ns, published.reads_ns, reads, gained_of_writes_ns)
                && is_small(lost_of_writes_ns, published.writes_ns, writes, gained_of_reads_ns)
        };
        let fair = || (0..rules.len()).filter(|&rule| is_fair(&self.costs[rule]));
        let least = fair().map(|rule| priced[rule]).min().unwrap_or(0);
        let close = || fair().filter(|&rule| is_close(priced[rule], least, MARGIN));
        // Of rules that cost as much those that move as little as any.
        let fewest = close().map(|rule| self.costs[rule].bytes).min().unwrap_or(0);
        let is_good = |rule: usize| is_close(self.costs[rule].bytes, fewest, MARGIN);
        let good = || close().filter(|&rule| is_good(rule));
        if !self.rule.is_some_and(|rule| good().any(|other| other == rule)) {
            let best = good().map(|rule| priced[rule]).min().unwrap_or(0);
            // What a write allocates around itself costs nothing if it is not read: of equal rules the one with the largest blocks.
            self.rule = good()
                .filter(|&rule| is_close(priced[rule], best, MARGIN_EQUAL))
                .max_by_key(|&rule| (rules[rule].write, std::cmp::Reverse(priced[rule])));
        }
        self.costs.iter_mut().for_each(|cost| *cost = cost.halved());
        (self.reads, self.writes) = (self.reads / 2, self.writes / 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extents::Mode;

    const MS: u64 = 1_000_000;
    const RULES: [Around; 3] = [
        Around { read: None, write: None },
        Around { read: Some(1), write: None },
        Around { read: Some(1), write: Some(1) },
    ];

    /// What a volume of a thousand reads and as many writes chooses.
    fn chosen(costs: [(u64, u64, u64); 3], mib_price_ns: u64) -> usize {
        let cost = |(reads_ms, writes_ms, mib): (u64, u64, u64)| Cost {
            reads_ns: reads_ms * MS,
            writes_ns: writes_ms * MS,
            bytes: mib << 20,
        };
        let mut seen = Seen::new(3);
        (seen.reads, seen.writes, seen.costs) = (1000, 1000, costs.map(cost).to_vec());
        seen.choose(&RULES, &Observation { mib_price_ns, ..Observation::default() });
        seen.rule.unwrap()
    }

    #[test]
    fn the_cheapest_in_time_is_chosen_and_bytes_have_their_price() {
        let costs = [(1000, 100, 100), (500, 100, 300), (450, 100, 900)];
        assert_eq!([0, 20 * MS].map(|price| chosen(costs, price)), [2, 0]);
        assert_eq!(chosen(costs, MS), 1, "600 MiB more are 50 ms sooner");
        assert_eq!(chosen([(1000, 100, 100), (500, 100, 300), (495, 100, 900)], 0), 1, "as quick with less");
        assert_eq!(chosen([(0, 0, 0); 3], 0), 2, "of equal ones that with the largest blocks");
    }

    #[test]
    fn reads_do_not_gain_at_the_expense_of_writes() {
        assert_eq!(chosen([(1000, 0, 1), (900, 0, 1), (700, 30, 1)], 0), 1, "30 us a write, 300 us a read");
        assert_eq!(chosen([(1000, 0, 1), (900, 0, 1), (700, 15, 1)], 0), 2, "little beside what is gained");
        assert_eq!(chosen([(10, 1000, 1), (14, 900, 1), (90, 100, 1)], 0), 1, "nor the other way round");
    }

    #[test]
    fn a_write_that_finds_no_clean_place_waits_for_the_store_as_measured() {
        let geometry = Geometry::new(&[64 << 10], None, 4 << 20).unwrap();
        let write = |at: u64| Request {
            volume: Volume(0),
            offset: at * (64 << 10),
            bytes: 4096,
            write: Some(Mode::WriteBack),
            bypass: false,
        };
        let waited_ns = |latency_ns: u64, every_ns: u64, times: u64| {
            let mut mini = Miniature::new(geometry.clone(), Fill::Units, Around::default(), times);
            mini.clean_by(CleanerRules::default());
            let believed = super::super::RequestCost { request_ns: latency_ns, kib_ns: 0 };
            let stores = [StoreSpeed::new(&believed)];
            let mut plan = Plan::default();
            let costs = (0..256).map(|at| mini.see(&write(at), at * every_ns, &mut plan, &stores));
            costs.map(|cost| cost.writes_ns).sum::<u64>()
        };
        // 192 of them need a place that was dirty; all that is dirty goes in one trip: to be taken, and to be flushed.
        assert_eq!([MS, 7 * MS].map(|latency_ns| waited_ns(latency_ns, 0, 1)), [3 * 2 * MS, 3 * 14 * MS]);
        assert_eq!(waited_ns(MS, 100 * MS, 1), 0, "the cleaner is in time");
    }
}
