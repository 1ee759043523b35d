//! System under measurement: an engine with its tiers and policy.

use std::time::Instant;

use clap::ValueEnum;
use hdrhistogram::Histogram;
use tiermem_base::{Access, Bytes, Rng, TierKind, TierSpec};
use tiermem_model::advisor::Plan;
use tiermem_policy::evict::lru::Bump;
use tiermem_policy::ladder::{Admission, LadderConfig, Order, Priority, Reactive};
use tiermem_policy::promotion_rule::Promotion;
use tiermem_store::engine::{
    Aim, By, Condition, Division, Engine, EngineConfig, EngineStats, Expiry, Tenancy,
};
use tiermem_store::tiers::TierError;
use tiermem_sys::cpu_time::thread_cpu_time;

/// Bytes of an item beside its value: the engine's header and a key name of sixteen digits.
pub const ITEM_OVERHEAD_BYTES: u64 = 24;
/// One look-up in this number is timed: reading the clock on each would cost too much.
/// Not a multiple of the step period, as look-ups with a step would then all be timed.
const TIME_EVERY: usize = 17;
/// The longest value that is stored.
const VALUE_BYTES_MAX: usize = 16 << 20;

/// One request of the trace, as small as it can be kept.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// The key.
    pub key: u64,
    /// Bytes of its value.
    pub size: u32,
    /// The database that it lies in: its tenant's.
    pub db: u8,
}

/// Which system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SystemKind {
    /// Everything in DRAM.
    AllDram,
    /// Two tiers, promotion at every slow hit.
    Naive,
    /// Two tiers, promotion by reuse time.
    Tiermem,
    /// Two tiers, promotion by reuse time, candidates found by scanning: Wang's own way.
    TiermemScan,
    /// Two tiers, nothing is promoted.
    DemotionOnly,
    /// As tiermem, but items come up whether that has paid or not.
    AlwaysMoves,
    /// As tiermem, without background moves that keep space free.
    NoWatermarks,
    /// As tiermem, but new and demoted items enter at the head of their lists.
    HeadInsertion,
    /// As tiermem, but a full fast tier drops items instead of demoting them.
    ReactiveDrop,
    /// As tiermem, but every hit moves its item to the head of its list.
    PlainLru,
    /// As tiermem, with Wang's promotion rule: one short reuse time.
    ReuseTime,
    /// As tiermem, but every new item enters the fast tier.
    AdmitFast,
    /// As tiermem, with K-LRU (K = 5) instead of lists.
    Klru,
    /// As tiermem, but size classes keep their pages.
    NoRebalance,
    /// Wang 2024 as written: one short reuse time, everything admitted above, lists moved at each hit, a full fast tier
    /// dropping.
    #[value(name = "wang-2024")]
    Wang2024,
    /// Static placement by hash: three of four keys in DRAM, the others in the slow tier (Tang 2024, table 4.1).
    #[value(name = "interleaved-3-1")]
    Interleaved31,
    /// Every other key in DRAM.
    #[value(name = "interleaved-1-1")]
    Interleaved11,
    /// One of four keys in DRAM.
    #[value(name = "interleaved-1-3")]
    Interleaved13,
    /// As tiermem, with an equal share of the fast tier for each tenant of the trace.
    EqualTenants,
    /// As tiermem, with the fast tier divided among the trace's tenants at run time, by what each gains.
    DividedTenants,
    /// All items in the slow tier; index and nodes in DRAM.
    AllCxl,
}

/// Measurements of one slice of the trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    pub requests: u64,
    pub hits: u64,
    pub fast_hits: u64,
    pub promotions: u64,
    pub demotions: u64,
    pub evictions: u64,
    pub charged_ns: f64,
    pub cpu_s: f64,
}

impl Measured {
    pub fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.cpu_s.max(1e-9)
    }
}

impl std::ops::Add for Measured {
    type Output = Measured;
    fn add(self, other: Measured) -> Measured {
        Measured {
            requests: self.requests + other.requests,
            hits: self.hits + other.hits,
            fast_hits: self.fast_hits + other.fast_hits,
            promotions: self.promotions + other.promotions,
            demotions: self.demotions + other.demotions,
            evictions: self.evictions + other.evictions,
            charged_ns: self.charged_ns + other.charged_ns,
            cpu_s: self.cpu_s + other.cpu_s,
        }
    }
}

/// Places keys by hash, `fast_share` of them in the fast tier, and moves nothing.
fn interleave(ladder: &mut LadderConfig, fast_share: f64) {
    ladder.admission = Admission::Interleaved { fast_share };
    ladder.promotion = Promotion::None;
    ladder.watermarks = None;
}

/// How the engine assigns tenants, and divides by `plan` if it does.
fn tenancy(kind: SystemKind, plan: &Plan) -> Tenancy {
    let aim = match kind {
        SystemKind::EqualTenants => Aim::Off,
        SystemKind::DividedTenants => Aim::Divide(plan.objective),
        _ => return Tenancy::default(),
    };
    let division = Division { aim, window: plan.window, ..Division::default() };
    // Every database has an equal share: memory that one does not use is available to the others.
    Tenancy { by: By::Database, plan: plan.clone(), division, ..Tenancy::default() }
}

/// An engine and what it needs to answer a trace.
pub struct System {
    kind: SystemKind,
    engine: Engine,
    /// Values are slices of this.
    values: Vec<u8>,
    /// Values are copied here, as a server copies them to a reply.
    reply: Vec<u8>,
    latency: Histogram<u64>,
}

impl System {
    /// A system over `item_bytes` of items, `fast` of them in tier 0 where it is tiered. The slow tier has room for
    /// everything, as in Wang 2024; so has the only tier of the others.
    pub fn new(
        kind: SystemKind,
        (fast, items): (Bytes, Bytes),
        curve: &str,
        plan: &Plan,
    ) -> Result<Self, TierError> {
        // Slots are larger than items, pages are given to classes as a whole, and the watermarks keep some free.
        let roomy = Bytes(items.0 + items.0 / 4 + (256 << 20));
        let dram = |bytes| TierSpec::new(TierKind::Dram, bytes);
        let cxl = TierSpec::new(TierKind::Emulated, roomy).named("cxl").with_curve(curve);
        let tiers = match kind {
            SystemKind::AllDram => vec![dram(roomy)],
            SystemKind::AllCxl => vec![cxl],
            SystemKind::Interleaved31 | SystemKind::Interleaved11 | SystemKind::Interleaved13 => {
                vec![dram(roomy), cxl]
            }
            _ => vec![dram(fast), cxl],
        };
        let capacities: Vec<u64> = tiers.iter().filter_map(TierSpec::known_bytes).collect();
        // The fraction is one of item bytes, so metadata lies beside the tiers here; it is reported.
        let mut ladder =
            LadderConfig { charge_metadata: false, ..LadderConfig::with_capacities(&capacities) };
        match kind {
            SystemKind::Naive => {
                ladder.promotion = Promotion::Naive;
                ladder.admission = Admission::Fast;
            }
            SystemKind::TiermemScan => {
                ladder.promotion = Promotion::ReuseTimeScan;
                ladder.admission = Admission::Fast;
            }
            SystemKind::DemotionOnly => {
                ladder.promotion = Promotion::None;
                ladder.admission = Admission::Fast;
            }
            SystemKind::AlwaysMoves => ladder.weighs_moves = false,
            SystemKind::NoWatermarks => ladder.watermarks = None,
            SystemKind::HeadInsertion => {
                ladder.levels.iter_mut().for_each(|level| level.insertion_point = 1.0)
            }
            SystemKind::ReactiveDrop => ladder.reactive = Reactive::Drop,
            SystemKind::PlainLru => ladder.bump = Bump::Always,
            SystemKind::ReuseTime => ladder.promotion = Promotion::ReuseTime,
            SystemKind::AdmitFast => ladder.admission = Admission::Fast,
            SystemKind::Klru => ladder
                .levels
                .iter_mut()
                .for_each(|level| level.order = Order::Sample { k: 5, by: Priority::Recency }),
            SystemKind::NoRebalance => ladder.rebalance_batch = 0,
            SystemKind::Wang2024 => {
                ladder.promotion = Promotion::ReuseTime;
                ladder.admission = Admission::Fast;
                ladder.bump = Bump::Always;
                ladder.reactive = Reactive::Drop;
                ladder.rebalance_batch = 0;
            }
            SystemKind::Interleaved31 => interleave(&mut ladder, 0.75),
            SystemKind::Interleaved11 => interleave(&mut ladder, 0.5),
            SystemKind::Interleaved13 => interleave(&mut ladder, 0.25),
            SystemKind::AllDram
            | SystemKind::Tiermem
            | SystemKind::EqualTenants
            | SystemKind::DividedTenants
            | SystemKind::AllCxl => {}
        }
        let tenancy = tenancy(kind, plan);
        let config =
            EngineConfig { ladder, tenancy, value_bytes_max: VALUE_BYTES_MAX, ..EngineConfig::new(tiers) };
        let mut rng = Rng::seeded(1);
        let values = (0..VALUE_BYTES_MAX / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        let latency =
            Histogram::new_with_bounds(1, 10_000_000_000, 3).unwrap_or_else(|_| unreachable!("fixed bounds"));
        Ok(System { kind, engine: Engine::new(config)?, values, reply: Vec::new(), latency })
    }

    /// The word that chooses it on the command line.
    pub fn name(&self) -> String {
        self.kind.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub fn is_tiered(&self) -> bool {
        !matches!(self.kind, SystemKind::AllDram | SystemKind::AllCxl)
    }

    pub fn metadata_bytes(&self) -> u64 {
        self.engine.stats().metadata_bytes
    }

    /// Charged latency of look-ups at this quantile.
    pub fn latency_ns(&self, quantile: f64) -> u64 {
        self.latency.value_at_quantile(quantile)
    }

    /// Stores each of these.
    pub fn preload(&mut self, records: &[Record]) {
        for record in records {
            self.set(record.db, &Access::key_name(record.key), record.size);
        }
    }

    fn set(&mut self, db: u8, key: &[u8], size: u32) {
        let value = &self.values[..(size as usize).min(VALUE_BYTES_MAX)];
        // A refusal shows as a miss at the next look-up.
        let _ = self.engine.set(db, key, value, Condition::Always, Expiry::Never);
    }

    fn request(&mut self, record: &Record) {
        let key = Access::key_name(record.key);
        match self.engine.get(record.db, &key) {
            Some(hit) => {
                self.reply.clear();
                self.reply.extend_from_slice(hit.value);
                std::hint::black_box(&self.reply);
            }
            None => self.set(record.db, &key, record.size),
        }
        // A server has another thread answer; here it is answered at once, and its time is the requests'.
        if let Some(question) = self.engine.tenants_mut().take_question() {
            self.engine.tenants_mut().take_answer(question.answer());
        }
    }

    /// Answers a part of the trace without measuring.
    pub fn warm(&mut self, trace: &[Record]) {
        trace.iter().for_each(|record| self.request(record));
    }

    /// Answers a part of the trace.
    pub fn measure(&mut self, trace: &[Record]) -> Measured {
        let (before, charged) = (self.engine.stats(), self.engine.memory().charged_ns());
        let start = thread_cpu_time();
        for (at, record) in trace.iter().enumerate() {
            if at % TIME_EVERY == 0 {
                self.timed_request(record);
            } else {
                self.request(record);
            }
        }
        let cpu_s = (thread_cpu_time() - start).as_secs_f64();
        let after = self.engine.stats();
        let sum = |what: fn(&tiermem_store::engine::TierStats) -> u64| {
            let total = |stats: &EngineStats| stats.tiers.iter().map(what).sum::<u64>();
            total(&after) - total(&before)
        };
        let fast_hits = match self.kind {
            SystemKind::AllCxl => 0,
            _ => after.tiers[0].hits - before.tiers[0].hits,
        };
        Measured {
            requests: after.gets - before.gets,
            hits: after.hits - before.hits,
            fast_hits,
            promotions: sum(|tier| tier.promotions),
            demotions: sum(|tier| tier.demotions),
            evictions: sum(|tier| tier.evictions),
            charged_ns: self.engine.memory().charged_ns() - charged,
            cpu_s,
        }
    }

    /// A request with recorded charged latency: its own time plus
    /// its own charge, less the debt of others that it waited off.
    fn timed_request(&mut self, record: &Record) {
        let (charged, waited) = (self.engine.memory().charged_ns(), self.engine.memory().waited_ns());
        let start = Instant::now();
        self.request(record);
        let own = start.elapsed().as_nanos() as f64 - (self.engine.memory().waited_ns() - waited);
        let latency = own + self.engine.memory().charged_ns() - charged;
        self.latency.saturating_record(latency.max(1.0) as u64);
    }
}
