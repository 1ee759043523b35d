//! Block sizes by observation beside every fixed size, with cleaning in the background: the short form of the table that
//! `experiments/block/sizing.py` prints. The first 2,000 requests are not counted.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::path::Path;

use tiermem_base::{Access, Op, Rng};
use tiermem_policy::evict::Named;
use tiermem_policy::extents::admission::AdmissionRules;
use tiermem_policy::extents::cleaner::CleanerRules;
use tiermem_policy::extents::{Fill, Mode, Observation, Sizing};
use tiermem_sim::block::{Costs, Counts, Setup, Troubles, run, working_sets};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SIZES: [u64; 4] = [32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB];
const WARM_UP: u64 = 2000;

/// The store, 1 ms and 1.25 GB/s away, or a slower one of which the sizing knows nothing.
const STORES: [Costs; 2] = [
    Costs { core_latency_ns: 1_000_000, core_bandwidth: 1_250_000_000, ..CACHE },
    Costs { core_latency_ns: 10_000_000, core_bandwidth: 100_000_000, ..CACHE },
];
const CACHE: Costs =
    Costs { core_latency_ns: 0, core_bandwidth: 0, cache_latency_ns: 80_000, cache_bandwidth: 3_000_000_000 };

/// Four thousand small writes anywhere in 0.4 s, then sequential reads for 8 s.
fn burst(rounds: u64) -> Vec<Access> {
    let (mut rng, mut time_ns, mut records) = (Rng::seeded(6), 0, Vec::new());
    for at in 0..rounds {
        for _ in 0..4000 {
            time_ns += 100_000;
            records.push(Access::new(time_ns, Op::Write, rng.below(262_144) * 4096, 4096));
        }
        for step in 0..400 {
            time_ns += 20_000_000;
            let offset = (at * 400 + step) * 64 * KIB % (1 << 30);
            records.push(Access::new(time_ns, Op::Read, offset, 64 << 10));
        }
    }
    records
}

fn slice(name: &str) -> Vec<Access> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/testdata").join(name);
    tiermem_trace::open(path.to_str().unwrap()).unwrap().collect::<Result<_, _>>().unwrap()
}

/// A cache's outcome: mean times in microseconds, and MiB moved from and to the store.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    reads_us: u64,
    writes_us: u64,
    all_us: u64,
    mib: u64,
}

impl Row {
    fn of(counts: &Counts) -> Self {
        let mean = |ns: u64, requests: u64| ns / requests.max(1) / 1000;
        let all_ns = counts.read_latency_ns + counts.write_latency_ns;
        Row {
            reads_us: mean(counts.read_latency_ns, counts.reads),
            writes_us: mean(counts.write_latency_ns, counts.writes),
            all_us: mean(all_ns, counts.reads + counts.writes),
            mib: (counts.core_read_bytes + counts.core_written_bytes) / MIB,
        }
    }
}

/// Ours, then each fixed size with sub-block bits and with whole fills.
fn rows(records: &[Access], capacity_bytes: u64, costs: Costs, by: Observation) -> Vec<Row> {
    let setup = |sizes: &[u64], fill, sizing| Setup {
        sizes_bytes: sizes.to_vec(),
        group_bytes: None,
        fill,
        sizing,
        mode: Mode::WriteBack,
        admission: AdmissionRules::default(),
        cleaning: Some(CleanerRules::default()),
        flush_every: None,
        troubles: Troubles::default(),
        quotas: Vec::new(),
        memory_bytes: 0,
        policy: Named::Lru,
        capacity_bytes,
        costs,
    };
    let fills = [Fill::Units, Fill::Whole];
    let fixed = SIZES.iter().flat_map(|size| fills.map(|fill| setup(&[*size], fill, Sizing::Request)));
    let ours = setup(&SIZES, Fill::Units, Sizing::Observed(by));
    let caches: Vec<_> = std::iter::once(ours).chain(fixed).map(|setup| (setup, None)).collect();
    let outcomes = run(records, &caches, WARM_UP, 0, 2, &|| false, &|_| ());
    let sum =
        |volumes: Vec<(u32, Counts)>| volumes.iter().fold(Counts::default(), |sum, (_, one)| sum.plus(one));
    outcomes.into_iter().map(|outcome| Row::of(&sum(outcome.unwrap()))).collect()
}

/// At most a twentieth more.
fn is_near(ours_us: u64, best_us: u64) -> bool {
    ours_us * 20 <= best_us * 21
}

#[test]
fn sizes_by_observation_are_as_quick_as_the_best_fixed_size() {
    let traces = [
        ("burst", burst(6), 64 * MIB),
        ("cloudPhysicsIO-20k.vscsi.zst", slice("cloudPhysicsIO-20k.vscsi.zst"), 0),
        ("msr-slice-rw20-10k.trace.zst", slice("msr-slice-rw20-10k.trace.zst"), 0),
    ];
    let mut found = String::new();
    for (name, records, capacity_bytes) in &traces {
        let capacity_bytes = match capacity_bytes {
            0 => (working_sets(records).values().sum::<u64>() / 10).max(2 * MIB),
            bytes => *bytes,
        };
        for costs in STORES {
            let rows = rows(records, capacity_bytes, costs, Observation::default());
            let (ours, fixed) = rows.split_first().unwrap();
            let best = fixed.iter().min_by_key(|row| row.all_us).unwrap();
            assert!(
                is_near(ours.reads_us, best.reads_us) && is_near(ours.writes_us, best.writes_us),
                "{name} with {costs:?}: {ours:?}, and the best fixed size {best:?}"
            );
            found += &format!(
                "{name}, {} ms: ours {} {} {}, best {} {} {}\n",
                costs.core_latency_ns / 1_000_000,
                ours.reads_us,
                ours.writes_us,
                ours.mib,
                best.reads_us,
                best.writes_us,
                best.mib
            );
        }
    }
    assert_eq!(found, FOUND, "mean times of reads and writes in microseconds, and MiB moved");
}

const FOUND: &str = "\
burst, 1 ms: ours 470 81 238, best 1052 81 242
burst, 10 ms: ours 4246 122 236, best 10651 128 242
cloudPhysicsIO-20k.vscsi.zst, 1 ms: ours 405 423 1548, best 405 422 1995
cloudPhysicsIO-20k.vscsi.zst, 10 ms: ours 3531 2901 1553, best 3531 2940 2006
msr-slice-rw20-10k.trace.zst, 1 ms: ours 527 132 55, best 642 145 29
msr-slice-rw20-10k.trace.zst, 10 ms: ours 4926 368 55, best 6149 506 29
";

#[test]
fn where_bytes_are_dear_no_more_are_moved_than_by_the_best_fixed_size() {
    let records = burst(6);
    let dear = Observation { mib_price_ns: 40_000_000, ..Observation::default() };
    let rows = rows(&records, 64 * MIB, STORES[0], dear);
    let best = rows[1..].iter().min_by_key(|row| row.all_us).unwrap();
    assert!(rows[0].mib <= best.mib && is_near(rows[0].reads_us, best.reads_us), "{rows:?}");
}
