//! What the engine's own requests say about how its memory should be divided: an [`Advisor`] is told of them, and what it advises is
//! done.
//!
//! Questions are taken out, answered wherever there is time for it, and brought back ([`Engine::take_question`],
//! [`Engine::take_answer`]). Shares change at once and memory with the requests that want it: nobody waits for a division.

use std::sync::Arc;

use serde::Serialize;
use tiermem_model::advisor::{Advisor, Answer, Part, Plan, Question, Room, Verdict, tiers};
use tiermem_model::mrc::Curve;
use tiermem_model::partition::TenantTerms;

use tiermem_policy::Id;
use tiermem_policy::choose_k::Overheads;

use super::{Division, Engine};

/// An engine's advisor, and what it last said.
#[derive(Debug)]
pub(super) struct Advice {
    advisor: Advisor,
    question: Option<Question>,
    /// By tenant.
    told: Vec<Option<Arc<TenantAdvice>>>,
}

/// How memory was divided lately.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DivisionStats {
    /// What is to be small.
    pub objective: String,
    /// Windows that have ended, of all shards.
    pub windows: u64,
    /// What was found after the last one; of shards that found different things, all of it.
    pub verdict: String,
    /// After which one memory was last divided anew.
    pub divided_after: Option<u64>,
    /// Nanoseconds that misses cost a look-up on average, as curves said: as memory was then ...
    pub predicted_before_ns: f64,
    /// ... and as it was to be.
    pub predicted_after_ns: f64,
    /// The same as it was in the window before ...
    pub measured_before_ns: f64,
    /// ... and in the last one since; the first window after a division does not count.
    pub measured_after_ns: Option<f64>,
    /// Bytes that curves and samples take.
    pub metadata_bytes: u64,
    /// The share of the keys that is sampled.
    pub sample_rate: f64,
    /// Shards that this is of.
    pub shards: u64,
}

impl DivisionStats {
    /// Adds another shard's: what is counted is added, what is a mean becomes the mean of both.
    pub(super) fn add(&mut self, other: &DivisionStats) {
        self.windows += other.windows;
        if !self.verdict.split("; ").any(|one| one == other.verdict) {
            self.verdict = format!("{}; {}", self.verdict, other.verdict);
        }
        self.divided_after = self.divided_after.max(other.divided_after);
        let (own, others) = (self.shards as f64, other.shards as f64);
        let mean_of = |a: f64, b: f64| (a * own + b * others) / (own + others);
        let mean = |a: &mut f64, b: f64| *a = mean_of(*a, b);
        mean(&mut self.predicted_before_ns, other.predicted_before_ns);
        mean(&mut self.predicted_after_ns, other.predicted_after_ns);
        mean(&mut self.measured_before_ns, other.measured_before_ns);
        self.measured_after_ns = match (self.measured_after_ns, other.measured_after_ns) {
            (Some(a), Some(b)) => Some(mean_of(a, b)),
            (a, b) => a.or(b),
        };
        self.metadata_bytes += other.metadata_bytes;
        mean(&mut self.sample_rate, other.sample_rate);
        self.shards += other.shards;
    }
}

/// What is known of a tenant's requests and advised for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TenantAdvice {
    /// Look-ups of a window, later windows weighing more.
    pub rate: f64,
    /// What a miss costs it, in nanoseconds.
    pub miss_ns: f64,
    /// Whether that was measured or declared; assumed otherwise.
    pub is_miss_known: bool,
    /// Keys that were sampled.
    pub keys_sampled: u64,
    /// Bytes of each tier that would be best.
    pub bytes: Vec<u64>,
    /// The K that would be best in each tier.
    pub ks: Vec<u8>,
    /// Its miss ratio with all that, and with what it had; of memory alone.
    pub miss_ratio: Option<f64>,
    /// The miss ratio as curves said with what it had.
    pub miss_ratio_before: Option<f64>,
    /// The lowest of its miss-ratio curves: bytes and miss ratio.
    pub curve: Vec<(u64, f64)>,
}

impl TenantAdvice {
    fn of(part: &Part) -> Self {
        let points =
            |curve: &Curve| curve.points.iter().map(|point| (point.size, point.miss_ratio)).collect();
        TenantAdvice {
            rate: part.rate,
            miss_ns: part.miss_ns,
            is_miss_known: part.is_miss_known,
            keys_sampled: part.keys_sampled,
            bytes: part.bytes.clone(),
            ks: part.ks.clone(),
            miss_ratio: part.miss_ratio,
            miss_ratio_before: part.miss_ratio_before,
            curve: part.curve.as_ref().map(points).unwrap_or_default(),
        }
    }

    /// With another shard's advice for the same tenant: its keys are another part of the tenant's, so bytes are added, and
    /// ratios are means by rate.
    pub(super) fn and(&self, other: &TenantAdvice) -> TenantAdvice {
        let rate = self.rate + other.rate;
        let weight = if rate > 0.0 { self.rate / rate } else { 0.5 };
        let mean = |a: f64, b: f64| a * weight + b * (1.0 - weight);
        let both = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(mean(a, b)),
            (a, b) => a.or(b),
        };
        let point = |(a, b): (&(u64, f64), &(u64, f64))| (a.0 + b.0, mean(a.1, b.1));
        TenantAdvice {
            rate,
            miss_ns: mean(self.miss_ns, other.miss_ns),
            is_miss_known: self.is_miss_known || other.is_miss_known,
            keys_sampled: self.keys_sampled + other.keys_sampled,
            bytes: self.bytes.iter().zip(&other.bytes).map(|(a, b)| a + b).collect(),
            ks: self.ks.clone(),
            miss_ratio: both(self.miss_ratio, other.miss_ratio),
            miss_ratio_before: both(self.miss_ratio_before, other.miss_ratio_before),
            curve: if other.curve.is_empty() {
                self.curve.clone()
            } else {
                self.curve.iter().zip(&other.curve).map(point).collect()
            },
        }
    }
}

impl Advice {
    pub fn tenant(&self, tenant: u16) -> Option<Arc<TenantAdvice>> {
        self.told.get(usize::from(tenant))?.clone()
    }

    /// A key is gone, and not for want of room.
    #[inline]
    pub fn note_gone(&mut self, tenant: u16, hash: u64) {
        if self.advisor.follows(hash) {
            self.advisor.removed(tenant, hash);
        }
    }

    /// All keys are gone.
    pub fn forget(&mut self) {
        self.advisor.forget();
    }

    /// Whether memory is divided as an answer said, and not by what was declared.
    pub fn is_in_force(&self) -> bool {
        self.advisor.history().divided_after.is_some()
    }

    pub fn metadata_bytes(&self) -> u64 {
        self.advisor.metadata_bytes()
    }

    fn stats(&self) -> DivisionStats {
        let history = self.advisor.history();
        let plan = self.advisor.plan();
        DivisionStats {
            objective: if plan.divides { plan.objective.to_string() } else { "k".to_owned() },
            windows: self.advisor.windows(),
            verdict: history
                .verdict
                .as_ref()
                .map_or_else(|| "no window has ended yet".to_owned(), Verdict::to_string),
            divided_after: history.divided_after,
            predicted_before_ns: history.predicted_ns.0,
            predicted_after_ns: history.predicted_ns.1,
            measured_before_ns: history.measured_ns.0,
            measured_after_ns: history.measured_ns.1,
            metadata_bytes: self.metadata_bytes(),
            sample_rate: self.advisor.rate(),
            shards: 1,
        }
    }
}

impl Engine {
    /// Counts a look-up for its tenant, which is returned, and the advisor; `found` is what it found in memory.
    #[inline]
    pub(super) fn note_look_up(&mut self, db: u8, key: &[u8], hash: u64, found: Option<Id>) -> u16 {
        let tenant = self.tenants.note_get(db, key, found.is_some());
        if let Some(advice) = &mut self.advice {
            let is_last = advice.advisor.note_lookup();
            if advice.advisor.follows_misses(hash) {
                let found = found.map(|id| self.ladder.place_bytes(id).min(u64::from(u32::MAX)) as u32);
                if found.is_none() {
                    advice.advisor.missed(tenant, hash, self.now_us * 1000);
                }
                if advice.advisor.follows(hash) {
                    advice.advisor.looked_up(tenant, hash, found);
                }
            }
            if is_last {
                self.end_window();
            }
        }
        tenant
    }

    /// Counts a look-up of what is not in memory: `found` says whether it is on flash. For the division of memory it has missed.
    pub(super) fn note_look_up_below(&mut self, db: u8, key: &[u8], hash: u64, found: bool) {
        self.note_look_up(db, key, hash, None);
        if found {
            self.tenants.note_found(db, key);
        }
    }

    /// Counts a write of an item of so many bytes for its tenant and the advisor.
    #[inline]
    pub(super) fn note_write(&mut self, tenant: u16, hash: u64, bytes: u64) {
        self.tenants.note_set(tenant);
        if let Some(advice) = &mut self.advice
            && advice.advisor.follows_misses(hash)
        {
            advice.advisor.set_back(tenant, hash, self.now_us * 1000);
            if advice.advisor.follows(hash) {
                // As look-ups see it: what its place takes.
                let place_bytes = self.ladder.place_bytes_for(bytes);
                advice.advisor.wrote(tenant, hash, place_bytes.min(u64::from(u32::MAX)) as u32);
            }
        }
    }

    /// Tells the advisor of a key that is gone, and not for want of room.
    #[inline]
    pub(super) fn note_gone(&mut self, db: u8, key: &[u8], hash: u64) {
        if let Some(advice) = &mut self.advice {
            advice.note_gone(self.tenants.of(db, key), hash);
        }
    }

    #[cold]
    fn end_window(&mut self) {
        let rooms = self.rooms();
        let standings = self.tenants.standings(|tenant| tiers::held_bytes(&self.ladder, tenant));
        if let Some(advice) = &mut self.advice {
            advice.question = Some(advice.advisor.end_window(&standings, &rooms));
        }
        self.charge_tenants();
    }

    /// Has tier 0 charged with what is kept about tenants.
    pub(super) fn charge_tenants(&mut self) {
        self.tenants_bytes =
            self.tenants.bytes() + self.advice.as_ref().map_or(0, |advice| advice.metadata_bytes());
        self.charge_index();
    }

    /// The tiers, as a division sees them: without the metadata, which the first one holds.
    pub(super) fn rooms(&self) -> Vec<Room> {
        // Every kind that an engine serves is taken to have a curve.
        let slower_ns =
            |tier: usize| self.config.tiers.get(tier).and_then(|it| it.slower_ns().ok()).unwrap_or(0.0);
        tiers::rooms(&self.ladder, slower_ns)
    }

    /// Begins to watch, if anything is to be divided.
    pub(super) fn begin_advice(&mut self) {
        let rooms = self.rooms();
        let plan = self.config.tenancy.division.apply(&self.config.tenancy.plan);
        self.advice = plan.map(|plan| {
            // Each shard sees its part of the look-ups.
            let window = (plan.window / self.shards()).max(1);
            let advisor = Advisor::new(Plan { window, ..plan }, &rooms, self.config.seed);
            Box::new(Advice { advisor, question: None, told: Vec::new() })
        });
    }

    /// The K that are chosen from, where tenants are told apart.
    pub fn k_candidates(&self) -> Option<&[u8]> {
        let tenancy = &self.config.tenancy;
        tenancy.tells_apart().then_some(&*tenancy.plan.ks)
    }

    /// Says what choosing a victim costs here; what was watched so far is forgotten.
    pub fn set_draw_costs(&mut self, overheads: &Overheads) {
        self.config.tenancy.plan.overheads = overheads.clone();
        self.begin_advice();
    }

    /// Tenants are promised this shard's part of what they were.
    pub(super) fn promise(&mut self) {
        let shards = self.shards();
        let terms = self.config.tenancy.division.effective();
        let own: Vec<TenantTerms> = terms.map(|one| one.part(shards)).collect();
        self.tenants.promise(&own);
    }

    fn shards(&self) -> u64 {
        u64::from(self.config.growth.max(1))
    }

    /// What divides memory, as it is.
    pub fn division(&self) -> Division {
        self.config.tenancy.division.clone()
    }

    /// Changes it; what was declared holds again where memory is no longer divided. It was checked ([`Division::check`]).
    pub fn divide_by(&mut self, division: Division) {
        let before = std::mem::replace(&mut self.config.tenancy.division, division);
        self.promise();
        let division = &self.config.tenancy.division;
        if (before.aim, before.window) != (division.aim, division.window) {
            self.begin_advice();
            self.ladder.share_anew();
            self.share_out();
        }
    }

    /// What a window's end asks, if one has ended. Whoever takes it brings the answer ([`Self::take_answer`]).
    pub fn take_question(&mut self) -> Option<Question> {
        self.advice.as_mut()?.question.take()
    }

    /// Does what an answer says.
    pub fn take_answer(&mut self, answer: Answer) {
        // What another advisor was asked, or a window before the last, says nothing of now.
        let Some(advice) = self.advice.as_mut().filter(|it| it.advisor.windows() == answer.window) else {
            return;
        };
        advice.advisor.note(&answer);
        let tenants = &self.tenants;
        answer.carry_out(&mut self.ladder, tenants.count(), |tenant| tenants.declared_k(tenant));
        if !answer.parts.is_empty() {
            advice.told.clear();
        }
        for part in &answer.parts {
            let at = usize::from(part.tenant);
            if at >= advice.told.len() {
                advice.told.resize(at + 1, None);
            }
            advice.told[at] = Some(Arc::new(TenantAdvice::of(part)));
        }
        // Of those in no part as well.
        self.set_declared_ks();
    }

    /// Figures of the division, where there is one.
    pub(super) fn division_stats(&self) -> Option<DivisionStats> {
        self.advice.as_ref().map(|advice| advice.stats())
    }
}
