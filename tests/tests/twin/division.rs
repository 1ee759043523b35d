//! Division of memory while a trace runs: the tenants' shares, and their effect,
//! are the same in the simulator and in the live engine at the end of every window.

use std::collections::BTreeMap;

use tiermem_base::{Access, Op};
use tiermem_model::advisor::{Advisor, Aim, Declared, Division, Plan};
use tiermem_model::partition::TenantTerms;
use tiermem_policy::ladder::LadderConfig;
use tiermem_policy::log;
use tiermem_policy::partition::Objective;
use tiermem_sim::cache::Sharing;
use tiermem_sim::cache::tiered::TieredCache;
use tiermem_store::engine::{By, EngineStats};

use super::{Counts, FlashTier, live_with, simulated_with};

/// The division of memory, and its effect.
#[derive(Debug, Default, PartialEq)]
pub struct State {
    windows: u64,
    verdict: String,
    divided_after: Option<u64>,
    /// What misses cost a look-up: as predicted before and after the last division, and as measured.
    predicted_ns: (f64, f64),
    measured_ns: (f64, Option<f64>),
    metadata_bytes: u64,
    /// By name: look-ups, hits and writes.
    asked: BTreeMap<String, [u64; 3]>,
    /// Of each tenant in each tier: items, bytes, share, K, evictions, trespasses.
    tiers: BTreeMap<String, Vec<[u64; 6]>>,
}

impl State {
    pub fn of_engine(stats: &EngineStats) -> State {
        let tenants = || stats.tenants.iter();
        let tiers = |tenant: &tiermem_store::engine::TenantStats| {
            let counts = tenant
                .tiers
                .iter()
                .map(|it| [it.items, it.bytes, it.share_bytes, u64::from(it.k), it.evictions, it.trespasses]);
            (tenant.name.clone(), counts.collect())
        };
        let mut state = State {
            asked: tenants().map(|it| (it.name.clone(), [it.gets, it.hits, it.sets])).collect(),
            tiers: tenants().map(tiers).collect(),
            ..State::default()
        };
        if let Some(division) = &stats.division {
            state.windows = division.windows;
            state.verdict.clone_from(&division.verdict);
            state.divided_after = division.divided_after;
            state.predicted_ns = (division.predicted_before_ns, division.predicted_after_ns);
            state.measured_ns = (division.measured_before_ns, division.measured_after_ns);
            state.metadata_bytes = division.metadata_bytes;
        }
        state
    }

    pub fn of_simulator(cache: &TieredCache) -> State {
        let Some(divider) = cache.divider() else { return State::default() };
        let mut state = State::default();
        for ((name, tally), number) in divider.tenants().tallies().zip(0..) {
            let level = |tier| cache.shard().ladder().residents().tenant_level(number, tier);
            let asked = [tally.lookups, tally.hits, tally.writes];
            let items: u64 =
                (0..cache.shard().ladder().residents().levels()).map(|tier| level(tier).items).sum();
            // The engine names only tenants that exist.
            if asked[0] + asked[2] + items == 0 && !divider.tenants().has_declared_share(number) {
                continue;
            }
            let counts = (0..cache.shard().ladder().residents().levels()).map(level).map(|it| {
                let (evictions, trespasses) = (it.counters.evictions, it.counters.trespasses);
                [it.items, it.bytes, it.share_bytes, u64::from(it.k), evictions, trespasses]
            });
            let name = String::from_utf8_lossy(name).into_owned();
            state.tiers.insert(name.clone(), counts.collect());
            state.asked.insert(name, asked);
        }
        divider.advisor().into_iter().for_each(|advisor| state.take(advisor));
        state
    }

    fn take(&mut self, advisor: &Advisor) {
        let history = advisor.history();
        self.windows = advisor.windows();
        let verdict = history.verdict.as_ref().map(ToString::to_string);
        self.verdict = verdict.unwrap_or_else(|| "no window has ended yet".to_owned());
        self.divided_after = history.divided_after;
        (self.predicted_ns, self.measured_ns) = (history.predicted_ns, history.measured_ns);
        self.metadata_bytes = advisor.metadata_bytes();
    }

    /// Shares of the first tier.
    pub fn shares(&self) -> Vec<u64> {
        self.tiers.values().map(|tiers| tiers[0][2]).collect()
    }
}

/// When the last tenant comes, by when memory was divided.
const COMES_AT: usize = 50_000;
/// The tenant with keys that live only a few seconds.
const SHORT_LIVED: u32 = 2;
const WINDOW: u64 = 12_000;

/// Look-ups, writes and removals of three tenants, and of a fourth after a while. A request
/// each millisecond. Keys are sixteen digits: the first is the tenant, the second ends it.
fn trace() -> Vec<Access> {
    let mix = "mix:0.35*zipf(alpha=0.8,objects=20k,size=64-1024)+0.35*zipf(alpha=1.1,objects=20k,size=300)\
               +0.15*scan(objects=30k,size=2000)+0.15*zipf(alpha=0.9,objects=10k,size=500),requests=100k";
    let trace: Vec<Access> = tiermem_trace::open(mix).unwrap().collect::<Result<_, _>>().unwrap();
    let prepared = |(at, access): (usize, Access)| {
        let tenant = access.tenant + 1;
        let op = match at % 50 {
            49 => Op::Del,
            7 | 30 => Op::Set,
            _ => access.op,
        };
        let key = (u64::from(tenant) << 60) | (0xF << 56) | (access.key & 0xFF_FFFF);
        let ttl_s = if tenant == SHORT_LIVED || key % 8 == 0 { 3 + key as u32 % 20 } else { 0 };
        Access { time_ns: at as u64 * 1_000_000, op, key, tenant, ttl_s, ..access }
    };
    let trace = trace.into_iter().enumerate().map(prepared);
    trace.filter(|access| access.tenant < 4 || access.time_ns >= COMES_AT as u64 * 1_000_000).collect()
}

/// Facts about tenants: declared shares, and the time that each takes to fetch a missed value.
fn sharing(aim: Aim) -> Sharing {
    let terms = ["1:weight=2,min=256KiB", "2:hits=0.9,max=3MiB", "3:miss=300us,latency=250us"];
    let terms = terms.iter().map(|text| text.parse::<TenantTerms>().unwrap()).collect();
    Sharing {
        plan: Plan { rate: 0.2, ..Plan::default() },
        division: Division { aim, window: WINDOW, terms, ..Division::default() },
        names: vec!["(others)".to_owned()],
        declared: vec![Declared { name: "1".to_owned(), share: Some(0.4), k: 12 }],
        reload_ns: [(1, 2_000_000), (2, 7_000_000), (3, 1_000_000), (4, 500_000)].into(),
        ..Sharing::default()
    }
}

const AIMS: [Aim; 6] = [
    Aim::Divide(Objective::Latency),
    Aim::Divide(Objective::Mean),
    Aim::Divide(Objective::Hits),
    Aim::Divide(Objective::Fair),
    Aim::Divide(Objective::Slo),
    Aim::ChooseK,
];

/// Runs both and holds all they count against each other.
fn compare(aim: Aim, ladder: &LadderConfig, flash: Option<FlashTier>, trace: &[Access]) -> Counts {
    let shared = (By::Prefix(b'f'), sharing(aim));
    let live = live_with(ladder, flash, trace, Some(&shared));
    let simulated = simulated_with(ladder, flash, trace, Some(&shared));
    for (live, simulated) in live.windows.iter().zip(&simulated.windows) {
        assert_eq!(live, simulated, "{aim}, after window {}", live.windows);
    }
    assert_eq!(live, simulated, "{aim}");
    assert!(live.windows.len() >= 6, "{aim}: {} windows", live.windows.len());
    assert!(live.expired > 100, "{aim}: {} have expired", live.expired);
    live
}

/// The state after the first window in which the last tenant is there.
fn with_newcomer(counts: &Counts) -> &State {
    counts.windows.iter().find(|state| state.tiers.contains_key("4")).unwrap()
}

#[test]
fn memory_is_divided_the_same_way_in_both() {
    let trace = trace();
    for (at, aim) in AIMS.into_iter().enumerate() {
        let capacities = [&[4 << 20][..], &[1 << 20, 4 << 20], &[1 << 20, 40 << 20]][at % 3];
        let ladder = LadderConfig { charge_metadata: false, ..LadderConfig::with_capacities(capacities) };
        let counts = compare(aim, &ladder, None, &trace);
        if aim == Aim::ChooseK {
            let ks = counts.division.tiers.values().map(|tiers| tiers[0][3]);
            assert!(ks.max() > Some(0), "K is chosen");
        } else {
            assert!(
                with_newcomer(&counts).divided_after.is_some(),
                "{aim}: it came after the first division"
            );
            let shares = counts.division.shares();
            assert!(shares.iter().max() > shares.iter().min(), "{aim}: {shares:?} are not equal");
        }
    }
}

/// With metadata charged and over a flash tier as well.
#[test]
fn memory_over_flash_is_divided_the_same_way_in_both() {
    let mut trace = trace();
    // Enough for the flash tier to overflow.
    trace.iter_mut().for_each(|access| access.size *= 3);
    let flash =
        FlashTier { region_bytes: 16 << 20, segment_bytes: 64 << 10, admission: log::Admission::Seen };
    for aim in AIMS {
        let ladder = LadderConfig::with_capacities(&[4 << 20, 3 << 20]);
        assert!(ladder.charge_metadata);
        let counts = compare(aim, &ladder, Some(flash), &trace);
        let on_flash = counts.flash.as_ref().unwrap();
        let works = [on_flash.hits, on_flash.promotions, on_flash.evictions, on_flash.segments_emptied];
        assert!(works.iter().all(|&count| count > 0), "{aim}: {works:?}");
        let [hits, _, demotions, ..] = counts.tiers[0];
        assert!(hits > 0 && demotions > 0 && counts.tiers[1][1] + counts.tiers[0][1] > 0, "{aim}");
        if aim != Aim::ChooseK {
            assert!(
                with_newcomer(&counts).divided_after.is_some(),
                "{aim}: it came after the first division"
            );
        }
    }
}
