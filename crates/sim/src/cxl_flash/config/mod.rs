//! Configuration of the simulated device: one TOML form, in layers: defaults, a preset, a file, single settings.

mod check;
mod layers;
mod prefetch;
mod presets;

pub use layers::{ConfigError, Layers};
pub use prefetch::Prefetch;
pub use presets::{PRESETS, Preset};

use serde::{Deserialize, Serialize};
use tiermem_base::latency_curve::{A1000_CXL, LOCAL_DRAM};
use tiermem_base::tier::{FLASH_USD_PER_GB, Price};
use tiermem_base::units::{Bytes, Nanos};
use tiermem_policy::evict::Named as Policy;
use tiermem_policy::evict::named::K_DEFAULT;
use tiermem_policy::prefetch::Named as Prefetcher;

use super::flash::garbage_collection::Rules;
use super::flash::{Geometry, Parameters, Technology, Timing};

/// A device and the host before it. Each key is described where it stands; sizes and times carry their units.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The host and its link.
    pub host: Host,
    /// The device's DRAM.
    pub dram: Dram,
    /// The cache in it.
    pub cache: Cache,
    /// The registers of outstanding misses.
    pub mshr: Mshr,
    /// Prefetching ahead of requests.
    pub prefetch: Prefetch,
    /// Hints of the host about later accesses.
    pub hints: Hints,
    /// The flash back end.
    pub flash: Flash,
    /// How room is made on flash.
    pub cleaning: Cleaning,
    /// The prices of its memories.
    pub price: MemoryPrices,
    /// Seed of everything that is drawn.
    pub seed: u64,
}

/// The host and its link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Host {
    /// `open`: requests come when the trace says. `paced`: after as long as the trace has between them, but not before fewer
    /// than `outstanding` are unanswered, and later ones come later by that. `closed`: as soon as fewer are unanswered.
    pub mode: Mode,
    /// Requests that are sent and not yet answered, at most.
    pub outstanding: u32,
    /// One way over the link, without data. 0: no link.
    pub link_latency: Nanos,
    /// Of each direction, in GB/s. 0: without bound.
    pub link_gb_per_s: f64,
}

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// At the trace's times.
    Open,
    /// With the trace's distances, when the host has a place free.
    Paced,
    /// When the host has a place free.
    Closed,
}

impl Default for Host {
    fn default() -> Self {
        // 16 cores with 16 line fill buffers each. They wait, for traces are of programs that ran on DRAM: with their times as
        // they are a device that falls behind would never be seen to hit. The link is what CXL adds to a DRAM access, measured, halved;
        // x16 at 32 GT/s.
        let link_ns = (A1000_CXL.read.latency_ns - LOCAL_DRAM.read.latency_ns) / 2.0;
        let link_latency = Nanos(link_ns.round() as u64);
        Host { mode: Mode::Paced, outstanding: 256, link_latency, link_gb_per_s: 64.0 }
    }
}

/// The device's DRAM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dram {
    /// From the start of an access until its first byte.
    pub latency: Nanos,
    /// In GB/s. 0: without bound.
    pub gb_per_s: f64,
}

impl Default for Dram {
    fn default() -> Self {
        // Table 1 of Yang 2023; one channel of DDR4-3200.
        Dram { latency: Nanos(46), gb_per_s: 25.6 }
    }
}

/// The cache in the device's DRAM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cache {
    /// 0: none.
    pub size: Bytes,
    /// Also the unit in which flash is mapped, read and written.
    pub line: Bytes,
    /// Lines of a set; `full` for one set of all.
    pub ways: Ways,
    /// The eviction policy: any policy of `tiermem sim cache`.
    pub policy: String,
    /// The K of klru and redis.
    pub k: u32,
    /// The share of a set that cflru looks for clean lines in.
    pub window: f64,
}

impl Default for Cache {
    fn default() -> Self {
        // Table 6 of Yang 2023, with the policy and associativity of section 5.2.
        Cache {
            size: Bytes(64 << 20),
            line: Bytes(4096),
            ways: Ways("16".to_owned()),
            policy: "cflru".to_owned(),
            k: K_DEFAULT,
            window: 0.5,
        }
    }
}

/// How many lines a set has: a number, or `full`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WaysForm", into = "WaysForm")]
pub struct Ways(String);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WaysForm {
    Number(u32),
    Word(String),
}

impl From<WaysForm> for Ways {
    fn from(form: WaysForm) -> Self {
        match form {
            WaysForm::Number(ways) => Ways(ways.to_string()),
            WaysForm::Word(word) => Ways(word),
        }
    }
}

impl From<Ways> for WaysForm {
    fn from(ways: Ways) -> Self {
        WaysForm::Word(ways.0)
    }
}

/// The registers of outstanding misses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mshr {
    /// Without them each miss reads flash for itself.
    pub enabled: bool,
    /// Lines that may be on their way for requests.
    pub entries: u32,
    /// Requests that may wait for one line.
    pub merges: u32,
}

impl Default for Mshr {
    fn default() -> Self {
        Mshr { enabled: true, entries: 1024, merges: 65 }
    }
}

/// Hints of the host to the device about later accesses (Yang 2023, Observation 7).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hints {
    /// The most accessed frames of the trace that are hinted at, in percent of all.
    pub top_percent: f64,
    /// With which probability an access to one of them is told beforehand.
    pub probability: f64,
    /// How many requests before.
    pub lead_requests: u32,
}

impl Default for Hints {
    fn default() -> Self {
        Hints { top_percent: 0.0, probability: 0.1, lead_requests: 64 }
    }
}

/// The flash back end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Flash {
    /// The capacity that the host sees.
    pub capacity: Bytes,
    /// ull, slc, mlc, tlc.
    pub technology: String,
    /// Buses.
    pub channels: u32,
    /// Chips on a bus.
    pub ways: u32,
    /// Dies of a chip.
    pub dies: u32,
    /// Planes of a die.
    pub planes: u32,
    /// The bytes that are programmed at once.
    pub page: Bytes,
    /// The pages that are erased at once.
    pub pages_per_block: u32,
    /// Million transfers a second of a bus, of one byte each.
    pub mega_transfers: u32,
    /// Reads and writes that may be queued before requests are held back.
    pub queue: u32,
    /// Blocks beyond the capacity, as a share of it.
    pub over_provisioning: f64,
    /// DRAM that gathers evicted lines into whole pages. 0: each line is programmed for itself.
    pub write_log: Bytes,
    /// Reads go before programs that came earlier.
    pub read_priority: bool,
    /// Programs give way to reads.
    pub suspend_program: bool,
    /// Erases give way to reads and programs.
    pub suspend_erase: bool,
    /// Time to stop a program, and what must be left of it for that to be worth while.
    pub suspend_program_time: Nanos,
    /// Time to stop an erase, and what must be left of it for that to be worth while.
    pub suspend_erase_time: Nanos,
}

impl Default for Flash {
    fn default() -> Self {
        Flash {
            capacity: Bytes(1 << 40),
            technology: "ull".to_owned(),
            channels: 8,
            ways: 8,
            dies: 1,
            planes: 4,
            page: Bytes(16384),
            pages_per_block: 512,
            mega_transfers: 1200,
            queue: 1024,
            over_provisioning: 0.127,
            write_log: Bytes(1 << 20),
            read_priority: true,
            suspend_program: false,
            suspend_erase: true,
            suspend_program_time: Nanos(20_000),
            suspend_erase_time: Nanos(100_000),
        }
    }
}

/// How room is made on flash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cleaning {
    /// greedy, cost-benefit.
    pub policy: String,
    /// A plane is cleaned when it has fewer free blocks than this share of its blocks, and no fewer than two.
    pub free_share: f64,
    /// none, dynamic (the least worn free block is written next), static (cold blocks move onto worn ones as well).
    pub wear_levelling: String,
    /// Erases by which a plane's blocks may differ before static wear levelling moves one.
    pub wear_difference: u32,
    /// The share of the capacity that holds data before the first request.
    pub filled: f64,
}

impl Default for Cleaning {
    fn default() -> Self {
        Cleaning {
            policy: "greedy".to_owned(),
            free_share: 0.02,
            wear_levelling: "dynamic".to_owned(),
            wear_difference: 100,
            filled: 1.0,
        }
    }
}

/// Prices of the device's memories, each as the price of a tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryPrices {
    /// DRAM.
    pub dram: Price,
    /// Flash.
    pub flash: Price,
}

/// Dollars for a GB of DRAM in Figure 14 of Yang 2023, to whose figure this device's is compared. Its flash costs 0.05 to 0.30.
const FIGURE_14_DRAM_USD_PER_GB: f64 = 5.0;

impl Default for MemoryPrices {
    fn default() -> Self {
        MemoryPrices {
            dram: Price::dollars_per_gb(FIGURE_14_DRAM_USD_PER_GB),
            flash: Price::dollars_per_gb(FLASH_USD_PER_GB),
        }
    }
}

/// A configuration that was found possible, in the numbers that the simulator reckons with.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// The configuration as it was written.
    pub config: Config,
    /// Lines of the capacity.
    pub units: u64,
    /// Sets of the cache; 0: no cache.
    pub sets: u32,
    /// Lines of a set.
    pub ways: u32,
    /// The eviction policy.
    pub policy: Policy,
    /// The prefetcher.
    pub prefetcher: Prefetcher,
    /// The back end.
    pub geometry: Geometry,
    /// Its times.
    pub timing: Timing,
    /// Its technology.
    pub technology: Technology,
    /// Lines that the write log holds.
    pub log_units: u32,
    /// How room is made.
    pub cleaning: Rules,
}

impl Config {
    /// The device, or which key cannot be and why.
    pub fn device(&self) -> Result<Device, ConfigError> {
        check::device(self)
    }
}

impl Device {
    /// The parameters of its back end.
    pub fn back_end(&self) -> Parameters {
        Parameters {
            geometry: self.geometry,
            timing: self.timing,
            cleaning: self.cleaning,
            log_units: self.log_units,
            queue: self.config.flash.queue,
        }
    }
}
