//! Stalls: the longest single call of the engine during a large
//! operation. Other requests of the shard wait for that long.
//!
//!     cargo run --release -p tiermem-store --example stalls -- [ITEMS] [VALUE_BYTES] [MB_PER_S] [AHEAD_MIB]
//!
//! Fills a store in DRAM with a little room to spare, then runs one large operation after another while keys
//! are read and written at random. Prints for each operation: the number of calls, the longest call in
//! processor time and in elapsed time, the calls above one millisecond of processor time, and how many of
//! those waited for the kernel to give them memory. Needs about ITEMS times VALUE_BYTES + 100 bytes of memory.
//! The last rows are measured over a flash tier in a file of the temporary directory, an eighth as large.
//!
//! MB_PER_S limits the rate at which the store is filled. Without it, or with 0,
//! the store is filled at full speed, and the thread that populates memory may not
//! keep up. AHEAD_MIB is the memory populated ahead of use; 0 switches that off.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use tiermem_base::{Bytes, Rng, TierKind, TierSpec};
use tiermem_store::engine::{AHEAD_BYTES, Condition, Engine, EngineConfig, Expiry};
use tiermem_store::flash::FlashConfig;
use tiermem_sys::cpu_time::{thread_cpu_time, thread_faults};
use tiermem_tier::block::{self, Backend};

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Requests between two searches for expired keys. A server without requests does this by time.
const IDLE_EVERY: u64 = 256;
const SEGMENT_BYTES: u32 = 2 << 20;

/// What calls have taken.
#[derive(Default)]
struct Longest {
    calls: u64,
    cpu: Duration,
    wall: Duration,
    stalls: u64,
    faulted: u64,
}

impl Longest {
    fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let faults = thread_faults();
        let (wall, cpu) = (Instant::now(), thread_cpu_time());
        let done = call();
        let (cpu, wall) = (thread_cpu_time() - cpu, wall.elapsed());
        self.calls += 1;
        self.cpu = self.cpu.max(cpu);
        self.wall = self.wall.max(wall);
        let is_stall = cpu > Duration::from_millis(1);
        self.stalls += u64::from(is_stall);
        self.faulted += u64::from(is_stall && thread_faults() > faults);
        done
    }

    fn print(self, event: &str) {
        let us = |time: Duration| time.as_nanos() as f64 / 1e3;
        let Longest { calls, cpu, wall, stalls, faulted } = self;
        println!("{event:<34} {calls:>11} {:>12.1} {:>12.1} {stalls:>8} {faulted:>8}", us(cpu), us(wall));
    }
}

/// Fill rate of a store, and the memory populated ahead of it.
#[derive(Clone, Copy)]
struct Pace {
    bytes_per_s: Option<f64>,
    ahead_bytes: u64,
}

struct World {
    engine: Engine,
    rng: Rng,
    now_ms: u64,
    items: u64,
    value: Vec<u8>,
    requests: u64,
    pace: Pace,
}

impl World {
    fn new(items: u64, value_bytes: usize, pace: Pace) -> World {
        // About what they take, so that what comes on top has to drive something out.
        let capacity = (items as f64 * (value_bytes as f64 + 80.0) * 1.02) as u64;
        let tier = TierSpec::new(TierKind::Dram, Bytes(capacity + (24 << 20)));
        let mut config = EngineConfig::new(vec![tier]);
        config.ladder.ahead_bytes = pace.ahead_bytes;
        let engine = Engine::new(config).expect("there is memory");
        let value = vec![7; 20 << 20];
        World { engine, rng: Rng::seeded(1), now_ms: 1000, items, value, requests: 0, pace }
    }

    fn set(&mut self, longest: &mut Longest, key: u64, value_bytes: usize, expiry: Expiry) {
        let (engine, value) = (&mut self.engine, &self.value[..value_bytes]);
        longest.time(|| {
            engine.flash_reads().prepare();
            // A full store may refuse; that is not what is measured.
            let _ = engine.set(0, &key.to_le_bytes(), value, Condition::Always, expiry);
            engine.commit();
        });
        self.beside(longest);
    }

    fn get(&mut self, longest: &mut Longest) {
        let key = self.rng.below(self.items).to_le_bytes();
        let engine = &mut self.engine;
        longest.time(|| {
            engine.flash_reads().prepare();
            engine.get(0, &key).is_some()
        });
        self.beside(longest);
    }

    /// What a server does between requests.
    fn beside(&mut self, longest: &mut Longest) {
        self.requests += 1;
        if self.requests.is_multiple_of(IDLE_EVERY) {
            self.now_ms += 1;
            let (engine, now_ms) = (&mut self.engine, self.now_ms);
            longest.time(|| {
                engine.set_clock(now_ms);
                engine.between_requests().tick();
            });
        }
    }

    fn fill(&mut self, longest: &mut Longest, value_bytes: usize, expiry: Expiry) {
        let start = Instant::now();
        for key in 0..self.items {
            self.set(longest, key, value_bytes, expiry);
            let due = self.pace.bytes_per_s.map(|rate| (key * value_bytes as u64) as f64 / rate);
            let early = due.map_or(0.0, |due| due - start.elapsed().as_secs_f64());
            if early > 1e-3 {
                std::thread::sleep(Duration::from_secs_f64(early));
            }
        }
    }

    /// Runs `count` reads, measured as an event of their own.
    fn reads(&mut self, event: &str, count: u64) {
        let mut longest = Longest::default();
        for _ in 0..count {
            self.get(&mut longest);
        }
        longest.print(event);
    }
}

fn memory(items: u64, value_bytes: usize, pace: Pace) {
    let mut world = World::new(items, value_bytes, pace);
    let mut longest = Longest::default();
    world.fill(&mut longest, value_bytes, Expiry::Never);
    longest.print("fill (index grows)");
    println!("  {} items, {} MiB", world.engine.len(0), world.engine.stats().tiers[0].used_bytes >> 20);
    world.reads("reads", 1_000_000.min(items));

    let mut longest = Longest::default();
    for key in 0..items / 4 {
        world.set(&mut longest, items + key, value_bytes / 3, Expiry::Never);
    }
    longest.print("other sizes (pages move)");

    let mut longest = Longest::default();
    let large = 16 << 20;
    while !longest.time(|| world.engine.make_room(large + 16)) {
        world.get(&mut longest);
    }
    longest.print("room for 16 MiB");
    let mut longest = Longest::default();
    world.set(&mut longest, u64::MAX, large, Expiry::Never);
    longest.print("SET of 16 MiB, its room made");

    let mut longest = Longest::default();
    let due = world.now_ms + 1_000_000_000;
    let expiring = items.min(1_000_000);
    for key in 0..expiring {
        let engine = &mut world.engine;
        longest.time(|| engine.set_expires_at(0, &key.to_le_bytes(), Some(due)));
        world.beside(&mut longest);
    }
    longest.print("EXPIRE of a million keys");
    let before = world.engine.len(0);
    world.now_ms = due + 1;
    world.reads("they expire at once", 4 * expiring);
    println!("  {} of them are gone", before - world.engine.len(0));

    let mut longest = Longest::default();
    for key in 0..items {
        let engine = &mut world.engine;
        longest.time(|| engine.remove(0, &key.to_le_bytes()));
        world.beside(&mut longest);
    }
    longest.print("DEL of every key (index shrinks)");

    let mut longest = Longest::default();
    world.fill(&mut longest, value_bytes, Expiry::Never);
    longest.print("fill again");
    let mut longest = Longest::default();
    longest.time(|| world.engine.flush(None));
    longest.print("FLUSHALL");
    world.reads("reads after it", 1_000_000.min(items));
    let mut longest = Longest::default();
    for key in 0..items / 4 {
        world.set(&mut longest, key, value_bytes, Expiry::Never);
    }
    longest.print("writes after it");
}

fn flash(items: u64, value_bytes: usize, pace: Pace) {
    let mut world = World::new(items / 8, value_bytes, pace);
    let region_bytes = (items * (value_bytes as u64 + 48)) / 4096 * 4096 + (64 << 20);
    let config = FlashConfig::whole(region_bytes, SEGMENT_BYTES, 7);
    // As in a server, other threads read and write the file: a disk in memory would copy segments on this one.
    let path = std::env::temp_dir().join(format!("tiermem-stalls-{}", std::process::id()));
    let device =
        block::open(&path, region_bytes, Backend::Auto).expect("the temporary directory has room for it");
    world.engine.flash().attach("flash", None, device, &config).expect("it can be formatted");
    world.items = items;
    let mut longest = Longest::default();
    world.fill(&mut longest, value_bytes, Expiry::Never);
    longest.print("flash: fill");
    let mut longest = Longest::default();
    for _ in 0..items * 2 {
        let key = world.rng.below(items);
        while world.engine.flash().is_choked() {
            longest.time(|| world.engine.flash().advance());
        }
        world.set(&mut longest, key, value_bytes, Expiry::Never);
    }
    longest.print("flash: overwrites (compaction)");
    let mut longest = Longest::default();
    longest.time(|| world.engine.flush(None));
    longest.print("flash: FLUSHALL");
    drop(world);
    // It is not needed any more; the system cleans up what cannot be removed.
    let _ = std::fs::remove_file(path);
}

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse().unwrap_or(1_000_000));
    let (items, value_bytes) = (args.next().unwrap_or(1_000_000), args.next().unwrap_or(1024) as usize);
    let bytes_per_s = args.next().filter(|&mb_per_s| mb_per_s > 0).map(|mb_per_s| mb_per_s as f64 * 1e6);
    let ahead_bytes = args.next().map_or(AHEAD_BYTES, |mib| mib << 20);
    let pace = Pace { bytes_per_s, ahead_bytes };
    println!("{items} items of {value_bytes} bytes\n");
    println!(
        "{:<34} {:>11} {:>12} {:>12} {:>8} {:>8}",
        "event", "calls", "longest_cpu_us", "wall_us", "over_1ms", "faulted"
    );
    memory(items, value_bytes, pace);
    flash(items / 8, value_bytes, pace);
}
