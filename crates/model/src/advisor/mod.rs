//! Advisor: how a running system should divide its memory among tenants, and with which K, as its requests show (Wang 2024,
//! chapters 3 and 4).
//!
//! An [`Advisor`] is told of the look-ups and writes of a sample of the keys, each with its tenant. It keeps every tenant's
//! curves ([`online_curves`]), one for each K of a few, and the cost of its misses ([`tiermem_policy::miss_cost`]). After a fixed
//! number of look-ups a window ends: the advisor gives a [`Question`], which contains all that is needed and can be answered on
//! any thread, so that no request waits for the answer. It reads no clock and draws no random numbers. The [`Divider`] stands
//! between it and a ladder of tiers: it decides what the advisor is told and when, and carries out its answers.
//!
//! Choosing K alone (DLRU, section 3.1) and dividing memory by merged curves (kRedis, section 4.1) are the same question with and
//! without [`Plan::divides`]; where curves come from is [`Plan::way`].

mod config;
mod divider;
mod live_config;
mod online_curves;
mod solver;
mod tenants;
mod tiers;

use tiermem_base::hash::Sample;
use tiermem_policy::choose_k::K_DEFAULT;
use tiermem_policy::miss_cost::MissCosts;

use crate::partition::Profile;
pub use config::{Plan, Room, Standing, Way};
pub use divider::{Divider, DividerConfig, Outcome};
pub use live_config::{Aim, Division};
use online_curves::TenantCurves;
pub use solver::{Answer, Question, TenantPart, Verdict};
pub use tenants::{Declared, OTHERS, Tally, Tenants};

/// Sizes at which curves are kept, in addition to those of the tiers: this many in equal steps ...
const EVEN_SIZES: u64 = 16;
/// ... and from a 256th of all memory on to the first of these, each larger than the one before by the root of two.
const SMALLEST: u64 = 256;
/// A tenant with evictions that its curves cannot explain yet keeps what it has and this part more, 1 in `SPARE`.
const SPARE: u64 = 8;

/// All samples together may hold as many keys as fill all memory at this size; shorter keys are forgotten sooner.
const KEY_BYTES: u64 = 64;
/// Keys that samples may have however little memory there is.
const KEYS_LEAST_OF_ALL: u64 = 8192;
/// A tenant that is watched has room for at least this many keys, ...
const KEYS_LEAST: usize = 512;
/// ... and at most this many tenants are watched: the others keep what they have.
const WATCHED_MAX: usize = 512;
/// From this many keys on a sample of `RATE_MANY` is enough (Wang 2024, section 4.2.7).
const MANY_KEYS: f64 = 8e6;
const RATE_MANY: f64 = 0.001;
/// A tenant with fewer recent look-ups is no longer watched, where all places are taken.
const FORGOTTEN_BELOW: f64 = 1.0;

/// How many keys all samples may have.
fn keys_max(rate: f64, rooms: &[Room]) -> usize {
    let total: u64 = rooms.iter().map(|room| room.capacity_bytes).sum();
    ((total as f64 * rate) as u64 / KEY_BYTES).max(KEYS_LEAST_OF_ALL) as usize
}

/// How a tenant's requests weigh: earlier windows less than later ones.
#[derive(Clone, Copy, Debug, Default)]
struct Weights {
    before: (u64, u64, u64),
    lookups: f64,
    misses: f64,
    accesses: f64,
    /// Misses of the last window alone.
    misses_last: f64,
}

impl Weights {
    fn end_window(&mut self, standing: &Standing, keep: f64) {
        let (lookups, hits, writes) = (standing.lookups, standing.hits, standing.writes);
        // Counters begin anew where statistics are forgotten.
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now) as f64;
        let asked = since(lookups, self.before.0);
        self.misses_last = asked - since(hits, self.before.1).min(asked);
        // A write that answers a miss is that look-up's end, and no access of its own.
        let own = (since(writes, self.before.2) - self.misses_last).max(0.0);
        self.before = (lookups, hits, writes);
        self.lookups = self.lookups * keep + asked;
        self.misses = self.misses * keep + self.misses_last;
        self.accesses = self.accesses * keep + asked + own;
    }
}

/// Watches requests and asks, at the end of each window, how memory should be divided; see the [module](self).
#[derive(Debug)]
pub struct Advisor {
    plan: Plan,
    seed: u64,
    sample: Sample,
    costs: MissCosts,
    tenants: Vec<Option<Box<TenantCurves>>>,
    weights: Vec<Weights>,
    /// Sizes of the curves, ascending; empty until the size of memory is known.
    sizes: Vec<u64>,
    /// Keys that all samples may have together.
    keys_max: usize,
    /// Tenants that have curves.
    watched: usize,
    lookups_left: u64,
    windows: u64,
    /// What each tenant was last given of each tier; nothing as long as nothing was.
    in_force: Vec<(u16, Vec<u64>)>,
    /// By number: the K that each tenant was last given, in the last tier; 0 where none was.
    chosen: Vec<u8>,
    history: History,
}

/// The history of divisions: predictions, and measurements afterwards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The last window's verdict.
    pub verdict: Option<Verdict>,
    /// The window after which memory was last divided anew.
    pub divided_after: Option<u64>,
    /// Nanoseconds that misses cost a look-up on average, as curves said: as memory was then, and as it was to be.
    pub predicted_ns: (f64, f64),
    /// The same as it was: in the window before, and in the last one since (the first after a division does not count).
    pub measured_ns: (f64, Option<f64>),
}

impl Advisor {
    /// An advisor for tiers of these sizes.
    pub fn new(plan: Plan, rooms: &[Room], seed: u64) -> Self {
        let mut advisor = Advisor {
            seed,
            sample: Sample::with_rate(plan.rate),
            costs: MissCosts::new(plan.rate.max(0.01), seed),
            tenants: Vec::new(),
            weights: Vec::new(),
            sizes: Vec::new(),
            keys_max: keys_max(plan.rate, rooms),
            watched: 0,
            lookups_left: plan.window,
            windows: 0,
            in_force: Vec::new(),
            chosen: Vec::new(),
            history: History::default(),
            plan,
        };
        advisor.sizes = advisor.sizes_for(rooms);
        advisor
    }

    /// The sizes at which curves are wanted.
    fn sizes_for(&self, rooms: &[Room]) -> Vec<u64> {
        let total: u64 = rooms.iter().map(|room| room.capacity_bytes).sum();
        let even = (1..=EVEN_SIZES).map(|step| total * step / EVEN_SIZES);
        let steps = 2 * (SMALLEST / EVEN_SIZES).ilog2();
        let rising =
            (0..steps).map(|step| (total as f64 / SMALLEST as f64 * 2f64.powf(f64::from(step) / 2.0)) as u64);
        let upto = rooms.iter().scan(0, |sum, room| {
            *sum += room.capacity_bytes;
            Some(*sum)
        });
        let mut sizes: Vec<u64> = even.chain(rising).chain(upto).filter(|&size| size > 0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Whether the advisor is to be told of a key of this hash. Hashes must be the same for the same key, and spread evenly.
    #[inline]
    pub fn follows(&self, hash: u64) -> bool {
        self.sample.holds(hash)
    }

    /// Whether the cost of this key's misses is to be told of; of more keys than [`Self::follows`] where few are sampled.
    #[inline]
    pub fn follows_misses(&self, hash: u64) -> bool {
        self.costs.follows(hash)
    }

    /// Counts a look-up, of whatever key; true when it is the last of a window.
    #[inline]
    pub fn note_lookup(&mut self) -> bool {
        self.lookups_left = self.lookups_left.saturating_sub(1);
        self.lookups_left == 0
    }

    /// A look-up of a followed key, and the bytes of the item that was found.
    pub fn looked_up(&mut self, tenant: u16, hash: u64, found: Option<u32>) {
        let (window, most) = (self.window(), self.keys_most());
        if let Some(curves) = self.of(tenant) {
            curves.looked_up(hash, found, window);
            curves.bound(most, window);
        }
    }

    /// A write of a followed key.
    pub fn wrote(&mut self, tenant: u16, hash: u64, bytes: u32) {
        let (window, most) = (self.window(), self.keys_most());
        if let Some(curves) = self.of(tenant) {
            curves.wrote(hash, bytes, window);
            curves.bound(most, window);
        }
    }

    /// A followed key was deleted, or its time was over.
    pub fn removed(&mut self, tenant: u16, hash: u64) {
        if let Some(Some(curves)) = self.tenants.get_mut(usize::from(tenant)) {
            curves.removed(hash);
        }
    }

    /// A look-up of a key of [`Self::follows_misses`] found nothing.
    pub fn missed(&mut self, tenant: u16, hash: u64, now_ns: u64) {
        self.costs.missed(hash, tenant, now_ns);
    }

    /// A key of [`Self::follows_misses`] was written.
    pub fn set_back(&mut self, tenant: u16, hash: u64, now_ns: u64) {
        self.costs.set(hash, tenant, now_ns);
    }

    /// Keys that a tenant's sample may have: an equal part.
    fn keys_most(&self) -> usize {
        self.keys_max / self.watched.max(1)
    }

    /// The window under way, in 15 bits.
    fn window(&self) -> u16 {
        (self.windows & 0x7FFF) as u16
    }

    #[inline]
    fn of(&mut self, tenant: u16) -> Option<&mut TenantCurves> {
        let at = usize::from(tenant);
        if at >= self.tenants.len() {
            self.tenants.resize_with(at + 1, || None);
        }
        let Advisor { plan, sample, sizes, seed, tenants, keys_max, watched, .. } = self;
        if tenants[at].is_none() {
            if *watched >= WATCHED_MAX.min(*keys_max / KEYS_LEAST) {
                return None;
            }
            *watched += 1;
        }
        let make = || {
            // Until a window has ended, the future share of a tenant is not known.
            let from = if plan.is_at_one_size() { sizes.len().saturating_sub(1) } else { 0 };
            Box::new(TenantCurves::new(plan, sample.rate(), &sizes[from..], *seed ^ u64::from(tenant)))
        };
        Some(tenants[at].get_or_insert_with(make))
    }

    /// Ends the window: what is to be asked about the tenants that there are, in tiers of these sizes.
    pub fn end_window(&mut self, standings: &[Standing], rooms: &[Room]) -> Question {
        self.lookups_left = self.plan.window;
        self.windows += 1;
        self.costs.end_window();
        let rate = self.sample.rate();
        // Everything misses once in a cache that begins empty, and never again for that reason.
        let keep = if self.windows == 1 { 0.0 } else { self.plan.keep };
        self.weights.resize(self.weights.len().max(self.tenants.len()), Weights::default());
        let mut known = Vec::new();
        let mut unknown = Vec::new();
        let (mut lookups, mut lost_ns) = (0.0, 0.0);
        for standing in standings {
            let at = usize::from(standing.tenant);
            if at >= self.weights.len() {
                self.weights.resize(at + 1, Weights::default());
            }
            let asked = standing.lookups.saturating_sub(self.weights[at].before.0) as f64;
            self.weights[at].end_window(standing, keep);
            let weights = self.weights[at];
            let measured = self.costs.mean_ns(standing.tenant);
            let miss_ns = standing.miss_ns.or(measured).unwrap_or(self.plan.miss_ns);
            (lookups, lost_ns) = (lookups + asked, lost_ns + weights.misses_last * miss_ns);
            let chosen = self.chosen.get(at).copied().filter(|&k| k > 0).unwrap_or(K_DEFAULT);
            let curves = self.tenants.get_mut(at).and_then(Option::as_mut);
            let profile = curves.map(|curves| Profile {
                curves: curves.curves(&self.sizes, weights.accesses, rate),
                keys_sampled: curves.keys_sampled(),
                rate: weights.lookups,
                miss_ns,
                k: chosen,
                terms: standing.terms,
            });
            if let Some(curves) = self.tenants.get_mut(at).and_then(Option::as_mut) {
                curves.end_window(keep);
                if self.plan.is_at_one_size() {
                    curves.resize(&[standing.held_bytes.iter().sum::<u64>().max(1)]);
                }
            }
            let held_bytes: u64 = standing.held_bytes.iter().sum();
            let tenant = solver::Tenant {
                tenant: standing.tenant,
                held: standing.held_bytes.clone(),
                given: self.given(standing.tenant),
                wants_bytes: held_bytes + held_bytes / SPARE,
                terms: standing.terms,
                is_miss_known: standing.miss_ns.is_some() || measured.is_some(),
                keys_sampled: self.keys_sampled(standing.tenant),
            };
            match profile.filter(|profile| profile.keys_sampled >= tiermem_policy::choose_k::DISTINCT_LEAST) {
                Some(profile) => known.push((tenant, profile)),
                None if held_bytes + standing.terms.least_bytes > 0 => unknown.push(tenant),
                // A tenant that has nothing gets no part: if it comes it has a newcomer's share.
                None => {}
            }
        }
        let lost_ns = lost_ns / lookups.max(1.0);
        self.forget_idle();
        self.thin(rooms);
        if self.history.divided_after.is_some_and(|after| self.windows > after + 1) {
            self.history.measured_ns.1 = Some(lost_ns);
        }
        Question {
            window: self.windows,
            plan: self.plan.clone(),
            rooms: rooms.to_vec(),
            known,
            unknown,
            lost_ns,
        }
    }

    /// Stops watching tenants without recent look-ups where all places are taken.
    fn forget_idle(&mut self) {
        if self.watched < WATCHED_MAX.min(self.keys_max / KEYS_LEAST) {
            return;
        }
        for (curves, weights) in self.tenants.iter_mut().zip(&self.weights) {
            if curves.is_some() && weights.lookups < FORGOTTEN_BELOW {
                *curves = None;
                self.watched -= 1;
            }
        }
    }

    /// Samples fewer keys where there are many of them: what was sampled so far is forgotten, and known anew after a window.
    fn thin(&mut self, rooms: &[Room]) {
        let followed: u64 = self.tenants.iter().flatten().map(|curves| curves.keys_sampled()).sum();
        let rate = self.sample.rate();
        let can = self.plan.thins && self.plan.way != Way::Miniature && rate > RATE_MANY;
        if can && followed as f64 / rate >= MANY_KEYS {
            self.sample = Sample::with_rate(RATE_MANY);
            self.keys_max = keys_max(RATE_MANY, rooms);
            self.forget();
        }
    }

    /// All keys are gone: what was sampled is forgotten, and what was decided stays.
    pub fn forget(&mut self) {
        self.tenants.clear();
        self.watched = 0;
    }

    /// The share of the keys that is sampled now.
    pub fn rate(&self) -> f64 {
        self.sample.rate()
    }

    fn given(&self, tenant: u16) -> Option<Vec<u64>> {
        let found = self.in_force.binary_search_by_key(&tenant, |&(tenant, _)| tenant).ok()?;
        Some(self.in_force[found].1.clone())
    }

    /// Takes note of an answer; the caller carries it out.
    pub fn note(&mut self, answer: &Answer) {
        self.history.verdict = Some(answer.verdict.clone());
        for part in &answer.parts {
            let at = usize::from(part.tenant);
            if at >= self.chosen.len() {
                self.chosen.resize(at + 1, 0);
            }
            self.chosen[at] = part.ks.last().copied().unwrap_or(0);
        }
        if answer.is_applied() {
            self.in_force = answer.parts.iter().map(|part| (part.tenant, part.bytes.clone())).collect();
            self.in_force.sort_unstable();
            self.history.divided_after = Some(answer.window);
            self.history.predicted_ns = answer.predicted_ns;
            self.history.measured_ns = (answer.lost_ns, None);
        }
    }

    /// Windows that have ended.
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// The history of the last division.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// How it works.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Keys of a tenant that are in the sample.
    pub fn keys_sampled(&self, tenant: u16) -> u64 {
        self.tenants
            .get(usize::from(tenant))
            .and_then(Option::as_ref)
            .map_or(0, |curves| curves.keys_sampled())
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        let curves: u64 = self.tenants.iter().flatten().map(|curves| curves.metadata_bytes()).sum();
        curves + (self.weights.capacity() * size_of::<Weights>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::Terms;

    const KEYS: u64 = 1000;
    const ITEM_BYTES: u32 = 100;
    /// Room for all keys.
    const ROOM: Room = Room { capacity_bytes: 1 << 20, slower_ns: 0.0 };

    fn advisor() -> Advisor {
        let plan = Plan { way: Way::Lru, ks: vec![5], rate: 1.0, keep: 0.5, ..Plan::default() };
        Advisor::new(plan, &[ROOM], 1)
    }

    /// Looks each key up once.
    fn go_round(advisor: &mut Advisor) {
        for hash in (1..=KEYS).map(|key| key.wrapping_mul(0x9E37_79B9_7F4A_7C15)) {
            advisor.looked_up(0, hash, Some(ITEM_BYTES));
            advisor.wrote(0, hash, ITEM_BYTES);
        }
    }

    /// Ends a window when the tenant has asked so many times in all; the profile that the question has of it.
    fn end_window(advisor: &mut Advisor, lookups: u64) -> Profile {
        let standing = Standing {
            tenant: 0,
            lookups,
            hits: lookups,
            writes: 0,
            held_bytes: vec![KEYS * u64::from(ITEM_BYTES)],
            terms: Terms::default(),
            miss_ns: Some(1e6),
        };
        let mut question = advisor.end_window(&[standing], &[ROOM]);
        question.known.pop().expect("enough keys are sampled").1
    }

    #[test]
    fn a_window_weighs_half_of_the_one_behind_it() {
        let mut advisor = advisor();
        go_round(&mut advisor);
        // Nothing is counted in the first window.
        assert_eq!(end_window(&mut advisor, 0).rate, 0.0);
        assert_eq!(end_window(&mut advisor, 1000).rate, 1000.0);
        assert_eq!(end_window(&mut advisor, 3000).rate, 2500.0);
        assert_eq!(end_window(&mut advisor, 3000).rate, 1250.0);
    }

    #[test]
    fn a_tenant_of_too_few_keys_has_room_for_an_eighth_more_than_it_holds() {
        let standing = Standing {
            tenant: 0,
            lookups: 10,
            hits: 10,
            writes: 0,
            held_bytes: vec![8000],
            terms: Terms::default(),
            miss_ns: None,
        };
        let question = advisor().end_window(&[standing], &[ROOM]);
        assert!(question.known.is_empty());
        assert_eq!(question.unknown[0].wants_bytes, 9000);
    }

    #[test]
    fn misses_of_a_cold_start_are_forgotten_with_its_window() {
        let mut advisor = advisor();
        let mut least = |lookups| {
            go_round(&mut advisor);
            end_window(&mut advisor, lookups).curves[0].1.miss_ratio(ROOM.capacity_bytes)
        };
        assert!(least(KEYS) > 0.9, "no key was seen before");
        assert_eq!(least(2 * KEYS), 0.0, "all keys have room");
    }
}
