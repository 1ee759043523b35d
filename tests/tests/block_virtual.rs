//! Block cache twin in virtual time: the simulator against the live engine with all kinds of cleaning. One
//! clock, devices and stores that complete a request some time after its submission, and every count the same.
//!
//! The live engine runs first. A request is sent at its time in the trace, or later: when fewer than `depth` requests are in flight and none
//! of them touches the same groups of blocks. A request is in flight until its answer, and as long after it as storing what a read brought may
//! take. The simulator then gets the requests at the times at which they were sent.
//!
//! Both hold the blocks of a plan until the work of its request is done, which for a read may be after its answer: blocks of requests under
//! way are not evicted. A request that cannot begin at once is the only one that waits, since the simulator begins nothing else meanwhile:
//! for clean room, for plans in flight that hold all the room there is, for room in the log, or for its bytes to be copied.
//! In the engine, a request that touches the range of another one waits for its claim. The simulator has no claims of requests on each other,
//! so such requests are sent later.
//!
//! There are only reads and writes. Trace records know no flush, no write that must be durable and no trim. So the simulator has none, and
//! all writes of a volume are one epoch there. What these do in the engine is checked against a map of acknowledged data
//! (`crates/block/tests/engine.rs`); what the cleaner makes of epochs is checked against an oracle (`crates/policy/tests/extents_epochs.rs`).
//!
//! A persistent cache has a log, the engine's own, and it is full now and then: pages of its table are written
//! slowly, and the log itself in no time, so operations wait only for room. The filling of the log is not
//! simulated. *When* it was full, and how many requests and decisions of the cleaner found room at the moment at which it was
//! filled, is an event that the live engine reports and the simulator is given; both decide what follows from that (which requests
//! wait, what the cleaner leaves, when either continues).
//!
//! One corner is not compared: where so much becomes clean at one moment that the log takes it in several batches, the engine frees the
//! units batch by batch. A request that waits tries again after the first batch, and may find no clean room though the next batch brings
//! it at that very moment. For the cleaner that is one more look at what goes next. The simulator has no batches, and frees all at once.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

#[path = "virtual_time/log_device.rs"]
mod log_device;
#[path = "virtual_time/told.rs"]
mod told;

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tiermem_base::{Access, Op};
use tiermem_block::disks::{Asker, Disks, Job, Task};
use tiermem_block::engine::{Counts, Engine, EngineConfig, LogStatus, VolumeConfig};
use tiermem_block::journal::LOG_BYTES_MIN;
use tiermem_policy::evict::Named;
use tiermem_policy::extents::admission::AdmissionRules;
use tiermem_policy::extents::cleaner::{CleanerRules, WriteBackOrder};
use tiermem_policy::extents::{Fill, Mode, Observation, Sizing, UNIT_BYTES};
use tiermem_sim::block::{Costs, LogFull, Setup, Troubles};
use tiermem_tier::backing::MemoryStore;
use tiermem_tier::block::{self, BlockIo, MemoryDisk, Simulated, Simulation};

use log_device::LogDevice;
use told::Told;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
const VOLUMES: u32 = 3;
const VOLUME_BYTES: u64 = 64 << 20;
/// Most bytes of a log and its table on the device beside that.
const METADATA_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: [u64; 4] = [32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB];

#[derive(Clone, Debug)]
struct Case {
    cache_bytes: u64,
    fill: Fill,
    sizing: Sizing,
    rules: CleanerRules,
    /// Between two requests.
    every_ns: u64,
    /// Requests under way at a time, at most.
    depth: usize,
    cache_ns: u64,
    core_ns: u64,
    /// What volume 2 may have, in a share of its own.
    quota_bytes: Option<u64>,
    outages: Vec<(u32, Range<u64>)>,
    /// DRAM for copies.
    memory_bytes: u64,
    policy: Named,
    /// The cache is persistent: its log is as small as possible, and this is the time
    /// of writing a page of its table, without which no space of the log is freed.
    log_page_ns: Option<u64>,
}

fn case() -> Case {
    Case {
        cache_bytes: 24 * MIB,
        fill: Fill::Units,
        sizing: Sizing::Request,
        rules: CleanerRules { age_ns: 2 * S, ..CleanerRules::default() },
        every_ns: 4 * MS,
        depth: 1,
        cache_ns: 80_000,
        core_ns: MS,
        quota_bytes: None,
        outages: Vec::new(),
        memory_bytes: 0,
        policy: Named::Lru,
        log_page_ns: None,
    }
}

/// A trace's reads and writes, none of them across a cut, of three volumes by turns, and one read more.
fn records(name: &str, case: &Case) -> Vec<Access> {
    // The engine cuts requests at multiples of a sixteenth of the cache, or of 1 MiB, and each part is planned by itself.
    let cut_bytes = MIB.min(1 << (case.cache_bytes / 16).ilog2());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/trace/testdata").join(name);
    let trace = tiermem_trace::open(path.to_str().unwrap()).unwrap();
    let mut records = Vec::new();
    for record in trace.map(Result::unwrap).filter(|record| record.size > 0) {
        let (mut at, mut left) = (record.key % VOLUME_BYTES, u64::from(record.size));
        while left > 0 {
            let bytes = left.min(cut_bytes - at % cut_bytes);
            let number = records.len() as u64;
            // The first requests name the volumes in their order; then one is asked more than the others.
            let tenant = [0, 1, 2, 1][(number % 4) as usize];
            let (key, size, time_ns) = (at, bytes as u32, number * case.every_ns);
            records.push(Access { key, size, tenant, time_ns, ..record });
            (at, left) = ((at + bytes) % VOLUME_BYTES, left - bytes);
        }
    }
    records.push(Access { key: 0, size: 4096, tenant: 0, op: Op::Read, ..records[records.len() - 1] });
    records
}

fn simulated(case: &Case, ran: &Ran) -> Vec<Told> {
    let (outages, log_full) = (case.outages.clone(), ran.log_full.clone());
    let setup = Setup {
        sizes_bytes: BLOCK_BYTES.to_vec(),
        group_bytes: None,
        fill: case.fill,
        sizing: case.sizing,
        mode: Mode::WriteBack,
        admission: AdmissionRules::default(),
        cleaning: Some(case.rules),
        troubles: Troubles { outages, log_full, ..Troubles::default() },
        quotas: case.quota_bytes.map(|quota| (2, quota)).into_iter().collect(),
        policy: case.policy,
        memory_bytes: case.memory_bytes,
        capacity_bytes: ran.capacity_bytes,
        costs: Costs {
            core_latency_ns: case.core_ns,
            core_bandwidth: u64::MAX,
            cache_latency_ns: case.cache_ns,
            cache_bandwidth: u64::MAX,
        },
    };
    let mut cache = setup.build(0).unwrap();
    cache.run(&ran.sent).unwrap();
    let told = |(_, counts)| Told::of_simulated(&counts);
    cache.finish().into_iter().map(told).collect()
}

/// The times at which a store fails what changes something, and how to have it fail.
type Outages = (Vec<Range<u64>>, Arc<Mutex<block::Troubles>>);

/// A request that was sent.
struct UnderWay {
    cookie: u64,
    volume: u32,
    /// The groups of blocks that it may touch.
    groups: Range<u64>,
    /// When all is done that is done for it; none before its answer.
    free_ns: Option<u64>,
}

/// The groups of blocks that a request may touch.
fn groups(record: &Access) -> Range<u64> {
    let group_bytes = BLOCK_BYTES[BLOCK_BYTES.len() - 1];
    record.key / group_bytes..(record.key + u64::from(record.size)).div_ceil(group_bytes)
}

/// Input for the simulator from a run of the live engine.
struct Ran {
    told: Vec<Told>,
    capacity_bytes: u64,
    /// The requests at the times at which they were sent.
    sent: Vec<Access>,
    /// When the log had no room; none without a log.
    log_full: Option<Vec<LogFull>>,
    /// How often a request found none.
    log_refusals: u64,
    /// The most requests that were under way at a time, their answers included.
    deepest: usize,
    /// How often a store did not take what was written back.
    write_back_failures: u64,
}

struct Live {
    engine: Engine,
    simulation: Simulation,
    /// When the log had no room; that which has no end yet ends at the largest time.
    log_full: Vec<LogFull>,
    /// As it was looked at last; nothing without a log.
    log: LogStatus,
    /// As it was before this moment.
    log_before: LogStatus,
    /// Of each store.
    outages: Vec<Outages>,
    done: Vec<tiermem_block::disks::Outcome>,
    under_way: Vec<UnderWay>,
    /// For how long an answer may be followed by work for its request: what a read brought is stored then.
    after_ns: u64,
}

impl Live {
    fn new(case: &Case) -> Self {
        let simulation = Simulation::new(0);
        let (clock, pause) = (simulation.clone(), simulation.clone());
        let config = EngineConfig {
            sizes_bytes: BLOCK_BYTES.to_vec(),
            fill: case.fill,
            sizing: case.sizing,
            cleaning: case.rules,
            shares: 2,
            memory_bytes: case.memory_bytes,
            policy: case.policy,
            log_bytes: case.log_page_ns.map(|_| LOG_BYTES_MIN),
            clock: Arc::new(move || clock.now_ns()),
            pause: Arc::new(move |time| pause.pass(time.as_nanos() as u64)),
            ..EngineConfig::default()
        };
        let mut engine = match case.log_page_ns {
            None => {
                let cache = MemoryDisk::new(case.cache_bytes as usize);
                let cache = Simulated::steady(cache, &simulation, case.cache_ns);
                Engine::new(Box::new(cache), config).unwrap()
            }
            Some(page_ns) => {
                let cache = MemoryDisk::new((case.cache_bytes + METADATA_BYTES) as usize);
                let cache: Box<dyn BlockIo> =
                    Box::new(LogDevice::new(cache, &simulation, &BLOCK_BYTES, (case.cache_ns, page_ns)));
                Engine::open(cache, config, false).unwrap().0
            }
        };
        let mut outages = Vec::new();
        for number in 0..VOLUMES {
            let store = Simulated::steady(MemoryStore::new(VOLUME_BYTES), &simulation, case.core_ns);
            let away = case.outages.iter().filter(|(of, _)| *of == number).map(|(_, times)| times.clone());
            outages.push((away.collect(), store.troubles()));
            let mut volume = VolumeConfig::new(format!("v{number}"));
            if number == 2 && case.quota_bytes.is_some() {
                (volume.share, volume.quota_bytes) = (1, case.quota_bytes);
            }
            engine.add(volume, Box::new(store)).unwrap();
        }
        engine.begin_service().unwrap();
        // The stores are flushed when service begins, and the cleaner hears of it. Nothing else happens until then.
        simulation.pass(case.core_ns);
        engine.take(&mut Vec::new());
        let (log_full, log) = (Vec::new(), engine.log_status().unwrap_or_default());
        let (under_way, after_ns) = (Vec::new(), case.cache_ns);
        let log_before = log.clone();
        Live { engine, simulation, log_full, log, log_before, outages, done: Vec::new(), under_way, after_ns }
    }

    /// Runs the engine as far as it goes now.
    fn take(&mut self) {
        self.engine.take(&mut self.done);
        self.look_at_log();
        let now_ns = self.simulation.now_ns();
        for outcome in self.done.drain(..) {
            let cookie = outcome.asker.cookie;
            assert!(outcome.result.is_ok(), "request {cookie}");
            let request = self.under_way.iter_mut().find(|it| it.cookie == cookie);
            request.unwrap().free_ns = Some(now_ns + self.after_ns);
        }
        self.under_way.retain(|it| it.free_ns.is_none_or(|free_ns| free_ns > now_ns));
    }

    /// Notes when the log is filled, and when it has room again.
    fn look_at_log(&mut self) {
        let Some(log) = self.engine.log_status() else { return };
        let (now_ns, before) = (self.simulation.now_ns(), &self.log_before);
        let (requests, decisions) =
            (log.admissions - before.admissions, log.cleaner_steps - before.cleaner_steps);
        // There may have been room, and none again by now.
        let found_room = |log: &LogStatus| log.admissions + log.cleaner_steps;
        let had_room = log.has_room || found_room(&log) > found_room(&self.log);
        if had_room && let Some(full) = self.log_full.last_mut().filter(|full| full.until_ns == u64::MAX) {
            full.until_ns = now_ns;
        }
        // Filled and emptied in one moment, it was not full.
        self.log_full.pop_if(|full| full.until_ns == full.from_ns);
        if !log.has_room && self.log_full.last().is_none_or(|full| full.until_ns < u64::MAX) {
            self.log_full.push(LogFull { from_ns: now_ns, until_ns: u64::MAX, requests, decisions });
        }
        self.log = log;
    }

    /// It is that time now, if it was not later already.
    fn set_time(&mut self, now_ns: u64) {
        if now_ns > self.simulation.now_ns() {
            self.log_before = self.log.clone();
        }
        self.simulation.pass(now_ns.saturating_sub(self.simulation.now_ns()));
        let now_ns = self.simulation.now_ns();
        for (times, troubles) in &self.outages {
            troubles.lock().unwrap().refuses_writes = times.iter().any(|times| times.contains(&now_ns));
        }
    }

    /// Does all that happens up to a time.
    fn run_until(&mut self, until_ns: u64) {
        while let Some(at_ns) = self.next_ns().filter(|at_ns| *at_ns <= until_ns) {
            self.set_time(at_ns);
            self.take();
        }
        self.set_time(until_ns);
        self.take();
    }

    fn next_ns(&self) -> Option<u64> {
        self.simulation.next_due_ns().into_iter().chain(self.engine.wakes_at_ns()).min()
    }

    /// Waits until a request may be sent.
    fn wait_for_turn(&mut self, record: &Access, depth: usize) {
        let is_in_its_way = |it: &UnderWay| {
            let (one, other) = (&it.groups, groups(record));
            it.volume == record.tenant && one.start < other.end && other.start < one.end
        };
        while self.under_way.len() >= depth || self.under_way.iter().any(is_in_its_way) {
            let freed_ns = self.under_way.iter().filter_map(|it| it.free_ns);
            let at_ns = freed_ns.chain(self.next_ns()).min().expect("a request is never over");
            self.run_until(at_ns);
        }
    }

    /// Sends a request. If it cannot begin, waits for its answer.
    fn send(&mut self, record: &Access, cookie: u64) {
        let task = match record.op {
            Op::Write => {
                let from = record.key % UNIT_BYTES;
                Task::Write(self.engine.lend((from + u64::from(record.size)) as usize))
            }
            _ => Task::Read,
        };
        let (asker, disk) = (Asker { connection: 1, cookie }, record.tenant as usize);
        let (offset, bytes) = (record.key, u64::from(record.size));
        let before = *self.engine.counts(disk);
        self.under_way.push(UnderWay {
            cookie,
            volume: record.tenant,
            groups: groups(record),
            free_ns: None,
        });
        self.engine.submit(Job { asker, disk, task, offset, bytes, durable: false });
        // What has begun has been answered, or has asked a device for something.
        let has_begun = Counts { parked: before.parked, ..*self.engine.counts(disk) } != before;
        self.take();
        let is_answered = |it: &UnderWay| it.cookie != cookie || it.free_ns.is_some();
        while !has_begun && !self.under_way.iter().all(is_answered) {
            let at_ns = self.next_ns().unwrap_or_else(|| panic!("request {cookie} is never answered"));
            self.set_time(at_ns);
            self.take();
        }
        self.engine.rest();
    }
}

/// Runs the live engine over a trace.
fn live(case: &Case, records: &[Access]) -> Ran {
    let mut live = Live::new(case);
    let mut sent = Vec::new();
    let mut waited = vec![0; VOLUMES as usize];
    let mut deepest = 0;
    for (record, cookie) in records.iter().zip(0..) {
        live.run_until(record.time_ns.max(live.simulation.now_ns()));
        live.wait_for_turn(record, case.depth);
        if cookie + 1 == records.len() as u64 {
            // The last one comes when all that is dirty is old, and has gone.
            live.run_until(live.simulation.now_ns() + 2 * case.rules.age_ns + 100 * S);
        }
        let at = record.tenant as usize;
        let parked = live.engine.counts(at).parked;
        sent.push(Access { time_ns: live.simulation.now_ns(), ..*record });
        live.send(record, cookie);
        waited[at] += u64::from(live.engine.counts(at).parked > parked);
        deepest = deepest.max(live.under_way.len());
    }
    // The last one is answered.
    live.run_until(live.simulation.now_ns() + case.core_ns + case.cache_ns);
    let capacity_bytes = live.engine.status().cache.capacity_bytes;
    let told = (0..VOLUMES as usize).map(|at| Told::of_live(live.engine.counts(at), waited[at]));
    let told = told.collect();
    let failures = (0..VOLUMES as usize).map(|at| live.engine.counts(at).write_back_failures).sum();
    let (log_full, log_refusals) = (case.log_page_ns.map(|_| live.log_full), live.log.refusals);
    Ran { told, capacity_bytes, sent, log_full, log_refusals, deepest, write_back_failures: failures }
}

fn sum(told: &[Told], of: impl Fn(&Told) -> u64) -> u64 {
    told.iter().map(of).sum()
}

/// Both count the same; what the live engine did.
fn agree(case: &Case, trace: &str) -> Ran {
    let records = records(trace, case);
    let ran = live(case, &records);
    let simulated = simulated(case, &ran);
    let live = &ran.told;
    for (volume, (live, simulated)) in live.iter().zip(&simulated).enumerate() {
        assert_eq!(simulated, live, "volume {volume}: {case:?} on {trace}");
    }
    assert!(
        sum(live, |told| told.allocated_bytes) > ran.capacity_bytes,
        "it is full, and blocks go: {live:?}"
    );
    ran
}

const ORDERS: [WriteBackOrder; 3] = [WriteBackOrder::Group, WriteBackOrder::Flush, WriteBackOrder::None];
const AGES_AND_MARKS: [(u64, u8); 3] = [(2 * S, 75), (1000 * S, 30), (20 * MS, 75)];
const TRACES: [&str; 2] = ["cloudPhysicsIO-20k.vscsi.zst", "msr-slice-rw20-10k.trace.zst"];

#[test]
fn cleaning_by_age_and_by_marks_agrees() {
    for trace in TRACES {
        for fill in [Fill::Units, Fill::Whole] {
            for (order, (age_ns, high_percent)) in ORDERS.into_iter().zip(AGES_AND_MARKS) {
                let rules = CleanerRules { order, age_ns, low_percent: 10, high_percent, ..case().rules };
                agree(&Case { fill, rules, ..case() }, trace);
            }
        }
    }
}

#[test]
fn requests_that_come_faster_than_the_stores_take_agree_and_wait() {
    let mut waited = 0;
    for trace in TRACES {
        let rules = CleanerRules { age_ns: 1000 * S, low_percent: 80, high_percent: 90, ..case().rules };
        let told = agree(&Case { rules, every_ns: 0, core_ns: 30 * MS, ..case() }, trace).told;
        waited += sum(&told, |told| told.waited_requests);
    }
    assert!(waited > 0, "somebody waits");
}

#[test]
fn two_shares_agree() {
    for trace in TRACES {
        agree(&Case { quota_bytes: Some(5 * MIB), ..case() }, trace);
    }
}

#[test]
fn a_store_that_fails_and_comes_back_agrees() {
    for trace in TRACES {
        let outages = vec![(1, 5 * S..15 * S), (2, 12 * S..13 * S), (0, 20 * S..20 * S + 50 * MS)];
        for quota_bytes in [None, Some(5 * MIB)] {
            agree(&Case { outages: outages.clone(), quota_bytes, ..case() }, trace);
        }
    }
}

#[test]
fn every_order_of_eviction_agrees() {
    let outages = vec![(1, 5 * S..8 * S)];
    for policy in Named::ALL {
        let case = Case { policy, outages: outages.clone(), quota_bytes: Some(5 * MIB), ..case() };
        agree(&case, TRACES[1]);
    }
}

#[test]
fn copies_in_dram_agree_with_all_of_it_going_on() {
    for trace in TRACES {
        let plain = agree(&case(), trace).told;
        for memory_bytes in [64 * KIB, 2 * MIB, 32 * MIB] {
            let outages = vec![(1, 5 * S..8 * S)];
            let case = Case { memory_bytes, outages, quota_bytes: Some(5 * MIB), ..case() };
            let told = agree(&case, trace).told;
            if memory_bytes == 32 * MIB {
                let reads = |told: &[Told]| sum(told, |told| told.cache_reads);
                assert!(reads(&told) < reads(&plain), "some are spared the device");
            }
        }
    }
}

#[test]
fn a_log_that_is_full_now_and_then_agrees_with_all_of_it_going_on() {
    for trace in TRACES {
        let cases =
            [(Fill::Units, 0, 200 * MS), (Fill::Whole, 2 * MIB, 200 * MS), (Fill::Units, 2 * MIB, 800 * MS)];
        for (fill, memory_bytes, page_ns) in cases {
            let (outages, quota_bytes) = (vec![(1, 5 * S..8 * S)], Some(5 * MIB));
            let case =
                Case { fill, memory_bytes, outages, quota_bytes, log_page_ns: Some(page_ns), ..case() };
            let ran = agree(&case, trace);
            let full = ran.log_full.unwrap_or_default();
            assert!(full.len() > 50, "it is full now and then: {full:?}");
            assert!(ran.log_refusals > full.len() as u64 / 2, "and requests wait for room: {full:?}");
        }
    }
}

/// All of it at once: two shares, three volumes, copies in DRAM, ageing, and outages of several seconds, without a log and with one that is
/// full now and then. In the small cache, requests under way hold all blocks that a write could replace.
#[test]
fn requests_that_are_under_way_at_once_agree() {
    let cases = [
        (4, 24 * MIB, Fill::Units),
        (8, 24 * MIB, Fill::Whole),
        (32, 24 * MIB, Fill::Units),
        (32, 4 * MIB, Fill::Units),
        (32, 4 * MIB, Fill::Whole),
    ];
    for (trace, log_page_ns) in TRACES.iter().flat_map(|trace| [(trace, None), (trace, Some(200 * MS))]) {
        for (depth, cache_bytes, fill) in cases {
            let timing = Case { every_ns: 0, cache_ns: MS, core_ns: 4 * MS, depth, log_page_ns, ..case() };
            let room = Case { cache_bytes, quota_bytes: Some(cache_bytes / 4), memory_bytes: MIB, ..timing };
            let rules = CleanerRules { age_ns: 300 * MS, ..CleanerRules::default() };
            let outages = vec![(1, S / 2..5 * S), (0, 3 * S..7 * S), (2, 6 * S..9 * S)];
            let case = Case { fill, rules, outages, ..room };
            let ran = agree(&case, trace);
            assert_eq!(ran.deepest, depth, "so many are under way at once");
            assert!(
                sum(&ran.told, |told| told.waited_requests) > 0,
                "requests wait until something is clean"
            );
            assert!(ran.write_back_failures > 100, "stores fail");
            if let Some(full) = &ran.log_full {
                assert!(full.len() > 50 && ran.log_refusals > 100, "the log is full now and then: {full:?}");
            }
        }
    }
}

/// Both bodies tell the sizing the same of their requests and of their stores, which are slower than is believed at first; the cleaner of each
/// miniature is behind now and then.
#[test]
fn sizes_by_observation_agree() {
    let mut differ = 0;
    for trace in TRACES {
        let cases = [
            (4 * MS, 1, Fill::Units, None),
            (4 * MS, 1, Fill::Units, Some(200 * MS)),
            (0, 8, Fill::Units, None),
            (0, 8, Fill::Whole, None),
        ];
        for (every_ns, depth, fill, log_page_ns) in cases {
            let outages = vec![(1, 5 * S..8 * S)];
            let room = Case { quota_bytes: Some(6 * MIB), memory_bytes: MIB, outages, ..case() };
            let by_request = Case { every_ns, depth, fill, log_page_ns, core_ns: 20 * MS, ..room };
            let ran = agree(
                &Case { sizing: Sizing::Observed(Observation::default()), ..by_request.clone() },
                trace,
            );
            let blocks = |told: &[Told]| sum(told, |told| told.allocated_blocks);
            differ += usize::from(blocks(&ran.told) != blocks(&simulated(&by_request, &ran)));
        }
    }
    assert!(differ > 4, "other sizes than the requests' are chosen in {differ} cases");
}

/// Young bytes are copied while requests under way write others of the same batch. A write that comes then waits for copies that wait
/// themselves.
#[test]
fn writes_behind_copies_that_wait_agree() {
    let timing = Case { every_ns: 200_000, depth: 8, cache_ns: 5 * MS, core_ns: 30 * MS, ..case() };
    let rules = CleanerRules { age_ns: 20 * MS, low_percent: 80, high_percent: 90, ..case().rules };
    let case = Case { fill: Fill::Whole, rules, policy: Named::Clock2, memory_bytes: 64 * KIB, ..timing };
    for log_page_ns in [None, Some(800 * MS)] {
        agree(&Case { log_page_ns, ..case.clone() }, TRACES[0]);
    }
}
