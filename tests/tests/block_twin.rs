//! Block cache twin: the simulator against the live engine, with one trace and the same hits, blocks and bytes.
//!
//! Requests are sequential, and each completes before the next. Dirty data are written back
//! at once in the engine, and on eviction in the simulator: in both no request is ever
//! refused for lack of clean space, so the time of the write-back decides nothing else. Sizes by observation go by time: that they
//! agree is for the twin in virtual time (`block_virtual.rs`).
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod block_trace;

use tiermem_base::{Access, Op, Rng};
use tiermem_block::disks::{Asker, Disks, Job, Task};
use tiermem_block::engine::{Counts, Engine, EngineConfig, VolumeConfig};
use tiermem_policy::evict::Named;
use tiermem_policy::extents::admission::AdmissionRules;
use tiermem_policy::extents::cleaner::CleanerRules;
use tiermem_policy::extents::{Around, Fill, Mode, Sizing, UNIT_BYTES};
use tiermem_sim::block::{Costs, Setup, Troubles};
use tiermem_tier::backing::MemoryStore;
use tiermem_tier::block::{self, BadPlace, BadPlaces, Failing, Faults, Faulty, MemoryDisk};

use block_trace::cut_trace;

const VOLUME_BYTES: u64 = 256 << 20;
const CACHE_BYTES: u64 = 24 << 20;
/// The engine cuts requests at multiples of this, and each part is planned by itself.
const CUT_BYTES: u64 = 1 << 20;
/// The cache's device has its log beside its space; this is enough for both.
const DEVICE_BYTES: u64 = CACHE_BYTES + (96 << 20);

#[derive(Clone, Copy, Debug)]
struct Case {
    sizes: &'static [u64],
    fill: Fill,
    sizing: Sizing,
    mode: Mode,
    admission: AdmissionRules,
    /// Whether the cache has a log.
    durable: bool,
    /// Where the cache's device fails whatever it is asked, in MiB from its begin on: 4 KiB each.
    bad_mib: &'static [u64],
}

const KIB: u64 = 1 << 10;
const CASE: Case = Case {
    sizes: &[32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB],
    fill: Fill::Units,
    sizing: Sizing::Request,
    mode: Mode::WriteBack,
    admission: AdmissionRules { sequential_cutoff_bytes: None, promote_after: 0 },
    durable: false,
    bad_mib: &[],
};

/// The bad places of a case.
fn bad_places(case: Case) -> impl Iterator<Item = std::ops::Range<u64>> {
    case.bad_mib.iter().map(|mib| (mib << 20)..(mib << 20) + UNIT_BYTES)
}

/// Counters common to both bodies.
#[derive(Debug, PartialEq)]
struct Told {
    reads: u64,
    writes: u64,
    read_hits: u64,
    write_hits: u64,
    missed_request_bytes: u64,
    allocated_blocks: u64,
    allocated_bytes: u64,
    core_read_bytes: u64,
    /// Where nothing is written back later.
    core_written_bytes: Option<u64>,
}

fn simulated(case: Case, capacity_bytes: u64, records: &[Access]) -> Told {
    let setup = Setup {
        sizes_bytes: case.sizes.to_vec(),
        group_bytes: None,
        fill: case.fill,
        sizing: case.sizing,
        mode: case.mode,
        admission: case.admission,
        cleaning: None,
        flush_every: None,
        troubles: Troubles { bad_places: bad_places(case).collect(), ..Troubles::default() },
        quotas: Vec::new(),
        memory_bytes: 0,
        policy: Named::Lru,
        capacity_bytes,
        costs: Costs::default(),
    };
    let mut cache = setup.build(0).unwrap();
    cache.run(records).unwrap();
    let counts = cache.finish()[0].1;
    Told {
        reads: counts.reads,
        writes: counts.writes,
        read_hits: counts.read_hits,
        write_hits: counts.write_hits,
        missed_request_bytes: counts.missed_request_bytes,
        allocated_blocks: counts.allocated_blocks,
        allocated_bytes: counts.allocated_bytes,
        core_read_bytes: counts.core_read_bytes,
        core_written_bytes: (case.mode != Mode::WriteBack).then_some(counts.core_written_bytes),
    }
}

/// The engine's counts, and how large its cache is.
fn live(case: Case, records: &[Access]) -> (Told, u64) {
    let clock = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let ticks = std::sync::Arc::clone(&clock);
    let config = EngineConfig {
        sizes_bytes: case.sizes.to_vec(),
        fill: case.fill,
        sizing: case.sizing,
        admission: case.admission,
        cleaning: CleanerRules { age_ns: 0, ..CleanerRules::default() },
        clock: std::sync::Arc::new(move || ticks.fetch_add(1_000_000, std::sync::atomic::Ordering::Relaxed)),
        ..EngineConfig::default()
    };
    let mut engine = if case.durable {
        Engine::open(Box::new(MemoryDisk::new(DEVICE_BYTES as usize).open()), config, true).unwrap().0
    } else {
        let mut bad = BadPlaces::default();
        for bytes in bad_places(case) {
            for op in [block::Op::Read, block::Op::Write] {
                bad.add(BadPlace { op, bytes: bytes.clone(), failing: Failing::Io, times: None });
            }
        }
        let faults = Faults { bad_places: bad, ..Faults::default() };
        let device = MemoryDisk::new(CACHE_BYTES as usize).open();
        Engine::new(Box::new(Faulty::new(device, faults, Rng::seeded(1))), config).unwrap()
    };
    let volume = VolumeConfig { mode: case.mode, ..VolumeConfig::new("disk") };
    engine.add(volume, Box::new(MemoryStore::new(VOLUME_BYTES).open())).unwrap();
    engine.begin_service().unwrap();
    let mut done = Vec::new();
    for (record, cookie) in records.iter().zip(0..) {
        let task = match record.op {
            Op::Write => {
                let from = record.key % UNIT_BYTES;
                Task::Write(engine.lend((from + u64::from(record.size)) as usize))
            }
            _ => Task::Read,
        };
        let asker = Asker { connection: 1, cookie };
        let (offset, bytes) = (record.key, u64::from(record.size));
        engine.submit(Job { asker, disk: 0, task, offset, bytes, durable: false });
        for tries in 0.. {
            engine.take(&mut done);
            if !done.is_empty() && engine.is_idle() && engine.dirty_bytes() == 0 {
                break;
            }
            assert!(tries < 10_000, "request {cookie} does not end");
        }
        done.drain(..).for_each(|outcome| assert!(outcome.result.is_ok()));
        engine.rest();
    }
    let Counts {
        reads,
        writes,
        read_hits,
        write_hits,
        missed_request_bytes,
        allocated_blocks,
        allocated_bytes,
        ..
    } = *engine.counts(0);
    let told = Told {
        reads,
        writes,
        read_hits,
        write_hits,
        missed_request_bytes,
        allocated_blocks,
        allocated_bytes,
        core_read_bytes: engine.counts(0).core_read_bytes,
        core_written_bytes: (case.mode != Mode::WriteBack).then_some(engine.counts(0).core_written_bytes),
    };
    (told, engine.status().cache.capacity_bytes)
}

fn agree(case: Case, trace: &str) {
    let records = cut_trace(trace, VOLUME_BYTES, CUT_BYTES);
    let (live, capacity_bytes) = live(case, &records);
    let is_full = live.allocated_bytes > capacity_bytes;
    assert!(is_full || !case.bad_mib.is_empty(), "it is full, and blocks go: {live:?}");
    assert_eq!(simulated(case, capacity_bytes, &records), live, "{case:?} on {trace}");
}

const TRACES: [&str; 2] = ["cloudPhysicsIO-20k.vscsi.zst", "msr-slice-rw20-10k.trace.zst"];

#[test]
fn the_published_rule_and_reading_around_agree() {
    let around = Around { read: Some(3), write: Some(1) };
    for trace in TRACES {
        for sizing in [Sizing::Request, Sizing::Around(around)] {
            for fill in [Fill::Units, Fill::Whole] {
                agree(Case { sizing, fill, ..CASE }, trace);
            }
        }
    }
}

#[test]
fn a_cache_with_a_log_agrees() {
    let sizing = Sizing::Around(Around { read: Some(3), write: Some(3) });
    TRACES.iter().for_each(|trace| agree(Case { sizing, durable: true, ..CASE }, trace));
}

#[test]
fn fixed_sizes_modes_and_admission_agree() {
    let admission = AdmissionRules { sequential_cutoff_bytes: Some(512 * KIB), promote_after: 2 };
    for trace in TRACES {
        agree(Case { sizes: &[64 * KIB], ..CASE }, trace);
        agree(Case { mode: Mode::WriteThrough, ..CASE }, trace);
        agree(Case { mode: Mode::WriteAround, ..CASE }, trace);
        agree(Case { admission, ..CASE }, trace);
    }
}

#[test]
fn a_device_that_fails_in_places_costs_both_the_same_and_both_give_it_up() {
    for trace in TRACES {
        for mode in [Mode::WriteThrough, Mode::WriteAround] {
            // Twenty-four MiB are 96 groups: at six of them the cache goes out of use.
            for bad_mib in [&[3][..], &[0, 5, 9, 13, 22], &[1, 2, 4, 8, 16, 20]] {
                agree(Case { mode, bad_mib, ..CASE }, trace);
            }
        }
    }
}
