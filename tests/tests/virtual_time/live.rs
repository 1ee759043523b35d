//! The live engine over a trace in virtual time: when it is sent what, and what it counts.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use tiermem_base::{Access, Op};
use tiermem_block::disks::{Asker, Disks, Job, Task};
use tiermem_block::engine::{Counts, Engine, EngineConfig, LogStatus, VolumeConfig};
use tiermem_block::journal::LOG_BYTES_MIN;
use tiermem_policy::extents::UNIT_BYTES;
use tiermem_policy::extents::cleaner::OrderCounts;
use tiermem_sim::block::LogFull;
use tiermem_tier::backing::MemoryStore;
use tiermem_tier::block::{self, BlockIo, MemoryDisk, Simulated, Simulation};

use super::case::{BLOCK_BYTES, Case, METADATA_BYTES, S, VOLUME_BYTES, VOLUMES};
use super::log_device::LogDevice;
use super::told::{Told, order_of_live};

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

/// A flush that was acknowledged.
pub struct Flush {
    pub volume: u32,
    /// Requests that were sent before it.
    pub behind: usize,
    pub done_ns: u64,
}

/// What the live engine did, and the simulator's input from that.
pub struct Ran {
    pub told: Vec<Told>,
    pub capacity_bytes: u64,
    /// The requests at the times at which they were sent.
    pub sent: Vec<Access>,
    pub flushes: Vec<Flush>,
    /// When the log had no room; none without a log.
    pub log_full: Option<Vec<LogFull>>,
    /// How often a request found none.
    pub log_refusals: u64,
    /// The most requests that were under way at a time, their answers included.
    pub deepest: usize,
    /// How often a store did not take what was written back.
    pub write_back_failures: u64,
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

    /// What the order of write-back has counted of each volume, since the start.
    fn order_counts(&self) -> Vec<OrderCounts> {
        self.engine.status().exports.iter().map(order_of_live).collect()
    }

    /// Has a volume flushed, and sends nothing until that is acknowledged.
    fn flush(&mut self, volume: u32, cookie: u64) {
        let asker = Asker { connection: 1, cookie };
        let disk = volume as usize;
        self.under_way.push(UnderWay { cookie, volume, groups: 0..0, free_ns: None });
        self.engine.submit(Job { asker, disk, task: Task::Flush, offset: 0, bytes: 0, durable: false });
        self.take();
        while self.under_way.iter().any(|it| it.cookie == cookie && it.free_ns.is_none()) {
            let at_ns = self.next_ns().unwrap_or_else(|| panic!("flush {cookie} is never answered"));
            self.set_time(at_ns);
            self.take();
        }
        self.under_way.retain(|it| it.cookie != cookie);
    }
}

/// Runs the live engine over a trace.
pub fn live(case: &Case, records: &[Access]) -> Ran {
    let mut live = Live::new(case);
    // The flushes with which service begins are none of the trace's.
    let order_before = live.order_counts();
    let mut sent = Vec::new();
    let (mut waited, mut unflushed) = (vec![0; VOLUMES as usize], vec![0; VOLUMES as usize]);
    let mut flushes = Vec::new();
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
        unflushed[at] += u64::from(record.op == Op::Write);
        if case.flush_every.is_some_and(|every| unflushed[at] >= every) {
            unflushed[at] = 0;
            live.flush(record.tenant, records.len() as u64 + cookie);
            let done_ns = live.simulation.now_ns();
            flushes.push(Flush { volume: record.tenant, behind: sent.len(), done_ns });
        }
        deepest = deepest.max(live.under_way.len());
    }
    // The last one is answered.
    live.run_until(live.simulation.now_ns() + case.core_ns + case.cache_ns);
    let capacity_bytes = live.engine.status().cache.capacity_bytes;
    let order: Vec<_> =
        live.order_counts().iter().zip(&order_before).map(|(now, before)| now.since(before)).collect();
    let told = (0..VOLUMES as usize).map(|at| Told::of_live(live.engine.counts(at), waited[at], order[at]));
    let told = told.collect();
    let failures = (0..VOLUMES as usize).map(|at| live.engine.counts(at).write_back_failures).sum();
    let (log_full, log_refusals) = (case.log_page_ns.map(|_| live.log_full), live.log.refusals);
    Ran {
        told,
        capacity_bytes,
        sent,
        flushes,
        log_full,
        log_refusals,
        deepest,
        write_back_failures: failures,
    }
}
