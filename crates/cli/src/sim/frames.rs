//! `tiermem sim frames`: page faults of a trace, for eviction policies and prefetchers.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread::available_parallelism;

use anyhow::anyhow;
use clap::Args;
use tiermem_base::tier::Capacity;
use tiermem_base::{Bytes, TierKind, TierSpec};
use tiermem_policy::Id;
use tiermem_policy::evict::named::K_DEFAULT;
use tiermem_policy::frames::{TIERS_MAX, TierConfig};
use tiermem_policy::prefetch;
use tiermem_sim::frames::{self, FirstTouch, Memory, Order, Setup, TooLarge, Touches, TouchesError};

use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::source::TraceArgs;
use crate::tiers;

const HELP: &str = "\
Examples:
  tiermem sim frames app.rec --dram 512MiB --evict lru --evict belady
  tiermem sim frames app.rec --dram 50% --evict klru --prefetch none --prefetch leap
  tiermem sim frames app.rec --tier dram=256MiB --tier numa=256MiB --tier flash=2GiB --evict lru
  tiermem sim frames app.rec --config store.toml                        # over its [[tier]] tables

Counts the page faults of a program whose memory is DRAM and slower tiers. Use it to find out how much DRAM a program needs, and
which eviction policy and prefetcher suit it, before you run it with less.

TRACE is a recording of `tiermem record` or any trace whose keys are addresses or byte offsets. An access touches every frame that it
reaches into; a deletion discards them. A row of a recording is one touch of each of its frames: its weight is not used. The
trace's tenants own the frames that they touch first.

Tiers, fastest first, two to four of them, as KIND=SIZE:
  dram, numa, dax, emulated   memory: a program uses what lies there without a fault
  compressed, flash, remote   a frame must be fetched into the first tier to be used: a fault
  --dram SIZE is short for --tier dram=SIZE in the first place. Without a slower tier there is flash with room for everything.
  SIZE is in bytes or a percentage of the working set (all frames that the trace touches). It is rounded down to whole frames.
  --config FILE takes kinds and capacities from the [[tier]] tables of a file that the servers read too.

Policies (--evict): fifo, clock, clock2, lru, lru-lazy, slru, s4lru, klru, redis, random, lfu, lfu-da, arc, 2q, s3-fifo, sieve, lhd,
  hyperbolic, cflru, and belady, which knows the trace: none has fewer faults over two tiers without a prefetcher.
Prefetchers (--prefetch): none, next-n, feedback-directed, best-offset, leap, readahead.

A demoted frame that was not written since it was fetched needs no write: its copy on flash is kept while there is room. Moves take
no time. The trace is held in memory, 8 bytes a touch (belady: 12).

Fields:
  evict, prefetch   what was simulated
  dram_bytes        capacity of the first tier, in whole frames
  touches           frames touched
  faults            touches whose frame had to be fetched; the first touch of a frame is none, unless --first-touch fetch
  fault_ratio       faults over touches
  read_bytes        bytes fetched from compressed, flash and remote tiers, for faults and ahead of them
  written_bytes     bytes sent to such tiers";

const FIELDS: &[&str] =
    &["evict", "prefetch", "dram_bytes", "touches", "faults", "fault_ratio", "read_bytes", "written_bytes"];

/// Frames of these sizes can be simulated.
const FRAME_BYTES: std::ops::RangeInclusive<u64> = 64..=1 << 30;

/// Options of `tiermem sim frames`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    trace: TraceArgs,
    /// Capacity of the first tier, DRAM.
    #[arg(long, value_name = "SIZE", required_unless_present_any = ["tier", "config"])]
    dram: Option<Capacity>,
    /// A tier, such as dram=1GiB or flash=8GiB; fastest first; repeat it.
    #[arg(long, value_name = "KIND=SIZE")]
    tier: Vec<TierSpec>,
    /// File with [[tier]] tables, as `store serve` reads it; --dram and --tier replace its list.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Eviction policy; repeat it for several.
    #[arg(long, value_name = "NAME", default_value = "lru")]
    evict: Vec<EvictName>,
    /// The K of klru and redis.
    #[arg(long, value_name = "K", default_value_t = K_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=4096))]
    k: u32,
    /// Prefetcher; repeat it for several. Each is combined with each policy.
    #[arg(long, value_name = "NAME", default_value = "none")]
    prefetch: Vec<prefetch::Named>,
    /// What the first touch of a frame finds: zero (it is filled with zeros) or fetch (data in the last tier, a fault).
    #[arg(long, value_name = "WHAT", default_value = "zero", value_parser = first_touch)]
    first_touch: FirstTouch,
    /// Size of a frame, a power of two.
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = frame_bytes)]
    frame: Bytes,
    /// Seed of the policies that draw at random.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Threads that simulate [default: one per processor].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Properties of a tier's kind: whether a program can use its bytes in place, and
/// whether it keeps copies of fetched frames. A compressed copy would take DRAM.
fn ways(kind: TierKind) -> (bool, bool) {
    (kind.is_memory(), matches!(kind, TierKind::Flash | TierKind::Remote))
}

/// One `--evict`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct EvictName(Order);

impl FromStr for EvictName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "belady" => Ok(EvictName(Order::Belady)),
            _ => {
                let named = text.parse().map(Order::Named);
                named.map(EvictName).map_err(|error: String| format!("{error}, belady"))
            }
        }
    }
}

fn first_touch(text: &str) -> Result<FirstTouch, String> {
    match text {
        "zero" => Ok(FirstTouch::Zero),
        "fetch" => Ok(FirstTouch::Fetch),
        _ => Err(format!("{text:?} is neither zero nor fetch")),
    }
}

fn frame_bytes(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    if bytes.0.is_power_of_two() && FRAME_BYTES.contains(&bytes.0) {
        return Ok(bytes);
    }
    let (least, most) = (Bytes(*FRAME_BYTES.start()), Bytes(*FRAME_BYTES.end()));
    Err(format!("a frame has a power of two of bytes between {least} and {most}, such as 4KiB"))
}

impl Options {
    /// The file whose tiers are simulated, if none was given as a flag.
    fn file(&self) -> Option<&Path> {
        self.config.as_deref().filter(|_| self.dram.is_none() && self.tier.is_empty())
    }

    /// The tiers: those that were given, or the file's.
    fn tiers(&self) -> Result<Vec<TierSpec>, Failure> {
        if let Some(path) = self.file() {
            return tiers::read(path);
        }
        let sized = |capacity| TierSpec { capacity: Some(capacity), ..TierSpec::unsized_of(TierKind::Dram) };
        Ok(self.dram.map(sized).into_iter().chain(self.tier.iter().cloned()).collect())
    }
}

/// Simulates and prints.
pub fn run(options: &Options) -> Result<(), Failure> {
    let tiers = options.tiers()?;
    let source = options.trace.open()?;
    let touches = Touches::of(source.records(), options.frame.0 as u32).map_err(failure)?;
    source.finish();
    let tiers = configure(&tiers, options.file(), &touches)?;
    let memory = Memory { tiers, first_touch: options.first_touch, seed: options.seed };
    let with_k = |order| match order {
        Order::Named(named) => Order::Named(named.with_k(options.k)),
        Order::Belady => Order::Belady,
    };
    let setups: Vec<Setup> = options
        .evict
        .iter()
        .flat_map(|EvictName(order)| {
            options.prefetch.iter().map(|&prefetch| Setup { order: with_k(*order), prefetch })
        })
        .collect();
    let threads = options.threads.map_or_else(|| available_parallelism().map_or(1, usize::from), usize::from);
    let outcomes = frames::run(&touches, &memory, &setups, threads);
    let dram_bytes = u64::from(memory.tiers[0].frames) * options.frame.0;
    let mut rows = Vec::new();
    for (setup, outcome) in setups.iter().zip(outcomes) {
        let counts = outcome.map_err(|error| {
            Failure::failed(anyhow!(
                "{error}; the trace touches {}: give the last --tier more than what the others lack",
                Bytes(touches.working_set_bytes())
            ))
        })?;
        let evict = match setup.order {
            Order::Named(named) => named.name(),
            Order::Belady => "belady",
        };
        rows.push(vec![
            Cell::Text(evict.to_owned()),
            Cell::Text(setup.prefetch.name().to_owned()),
            Cell::Count(dram_bytes),
            Cell::Count(counts.touches),
            Cell::Count(counts.faults),
            Cell::Number(counts.fault_ratio(), 6),
            Cell::Count(counts.read_bytes),
            Cell::Count(counts.written_bytes),
        ]);
    }
    let rows = Rows { fields: FIELDS, rows };
    output::print_rows(options.format, &rows).map_err(|error| Failure::writing("the faults", error))
}

/// The tiers, which stand in `file` or were given as flags, in whole frames; flash below a single one.
fn configure(tiers: &[TierSpec], file: Option<&Path>, touches: &Touches) -> Result<Vec<TierConfig>, Failure> {
    let frame_bytes = u64::from(touches.frame_bytes());
    let mut configs = Vec::new();
    for (at, tier) in tiers.iter().enumerate() {
        let capacity =
            tier.capacity.ok_or_else(|| tiers::unfit(file, tier.error("capacity", "is missing")))?;
        let bytes = match capacity {
            // A percentage of a trace that touches nothing is nothing; a frame changes nothing there.
            Capacity::Percent(_) if touches.frames() == 0 => frame_bytes,
            capacity => capacity.of_working_set(touches.working_set_bytes()),
        };
        let frames = (bytes / frame_bytes).min(u64::from(u32::MAX)) as u32;
        if frames == 0 {
            return Err(Failure::usage(anyhow!(
                "tier {at} holds {}, which is less than one frame of {}; make it larger, or set --frame",
                Bytes(bytes),
                Bytes(frame_bytes)
            )));
        }
        let (in_place, keeps_copies) = ways(tier.kind);
        configs.push(TierConfig { frames, in_place, keeps_copies, low: 0, high: 0 });
    }
    if configs.len() == 1 {
        configs.push(TierConfig::storage(Id::COUNT_MAX));
    }
    if configs.len() > TIERS_MAX {
        return Err(Failure::usage(anyhow!("{} tiers: at most {TIERS_MAX} can be simulated", configs.len())));
    }
    let config = tiermem_policy::frames::Config::of(&configs);
    config.check().map_err(|error| {
        Failure::usage(anyhow!("{error}; give the tiers fastest first, memory before the others"))
    })?;
    Ok(configs)
}

fn failure(error: TouchesError<Failure>) -> Failure {
    match error {
        TouchesError::Trace(failure) => failure,
        TouchesError::Size(error @ TooLarge::Owners { .. }) => {
            Failure::failed(anyhow!("{error}; --requests N cuts the trace"))
        }
        TouchesError::Size(error) => Failure::failed(anyhow!(
            "{error}; --requests N cuts the trace, and larger frames (--frame) are fewer"
        )),
    }
}
