//! `tiermem sim frames`: page faults of a trace, for eviction policies and prefetchers.

mod by_tier;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread::available_parallelism;

use anyhow::anyhow;
use clap::Args;
use tiermem_base::tier::Capacity;
use tiermem_base::{Bytes, Nanos, TierKind, TierSpec};
use tiermem_policy::Id;
use tiermem_policy::evict::named::K_DEFAULT;
use tiermem_policy::frames::{Arrival, TIERS_MAX, TierConfig};
use tiermem_policy::paging::{PageRange, Role};
use tiermem_policy::prefetch;
use tiermem_sim::frames::{
    self, Counts, Cut, FirstTouch, Look, Memory, Order, References, Setup, Touches, TouchesError,
};
use tiermem_trace::{Spec, recording};

use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::pool::Pool;
use crate::run::references::granule;
use crate::source::TraceArgs;
use crate::{plan, tiers};

const HELP: &str = "\
Examples:
  tiermem sim frames app.rec --dram 512MiB --evict kernel --evict belady
  tiermem sim frames app.rec --overcommit 2 --evict kernel --evict clock --evict belady
  tiermem sim frames trace.parquet --dram 50% --evict klru --prefetch none --prefetch leap
  tiermem sim frames app.rec --tier dram=256MiB --tier numa=256MiB --tier flash=2GiB --evict lru
  tiermem sim frames app.rec --overcommit 2 --pool 50:50 --by-tier
  tiermem sim frames trace.parquet --dram 1GiB --evict lru --more-dram 25% --more-dram 1GiB
  tiermem sim frames app.rec --dram 512MiB --plan app.plan.json --evict kernel --prefetch plan
  tiermem sim frames app.rec --config store.toml                        # over its [[tier]] tables

Counts the page faults of a program whose memory is DRAM and slower tiers. Use it to find out how much DRAM a program needs, and
which eviction policy and prefetcher suit it, before you run it with less. It decides with the code of the live pager.

TRACE is a recording of `tiermem record` or any trace whose keys are addresses or byte offsets. An access touches every frame that it
reaches into; a deletion discards them. A row of a recording is one touch of each of its frames: its weight is not used. An access of
which is not known whether it wrote counts as a write.

DRAM, one of these:
  --dram SIZE       in bytes, or in percent of the working set (all frames that the trace touches)
  --overcommit R    the required memory over R: --required SIZE, or the most that is touched and not discarded at one time.
                    Repeat it for several R
Tiers, fastest first, two to four of them, as KIND=SIZE:
  dram, numa, dax, emulated   memory: a program uses what lies there without a fault
  compressed, flash, remote   a frame must be fetched into the first tier to be used: a fault
  --dram SIZE is short for --tier dram=SIZE in the first place. Without a slower tier there is flash with room for everything; in a pool, below its memory.
  Sizes are rounded down to whole frames.
  --config FILE takes kinds and capacities from the [[tier]] tables of a file that the servers read too.

Several tiers of memory: a frame comes to the first one, whose coldest frame goes to the next. Used twice there, it goes up again. Or,
with --pool, a hybrid pool of local DRAM, memory of another node, and flash:
  --pool LOCAL:REMOTE   divides DRAM (--dram, --overcommit) into dram and numa in these parts, such as 50:50
  --pool tiers          the tiers are as they are given, two of memory at least
  A frame comes to the first tier of memory that has room; where none has, to the last one, whose coldest frame goes to flash. So what
  lies in local DRAM never leaves for flash. A frame that has at least 4 uses more than twice those of the least used frame of the
  next faster tier changes places with it; uses in a row count once, and all counts are halved now and then. --evict says which
  frames leave the last tier of memory.

Policies (--evict): fifo, clock, clock2, lru, lru-lazy, slru, s4lru, klru, redis, random, lfu, lfu-da, arc, 2q, s3-fifo, sieve, lhd,
  hyperbolic, cflru; the kernel's own reclaim; and two that know the trace:
  kernel   what `tiermem run --evict kernel` leaves it to, taken for LRU: it sees for each page whether it was used, whatever
           --references says
  belady   evicts the frame whose next touch is farthest: none has fewer faults over two tiers without a prefetcher
  fixed    DRAM holds the same frames all the time, those that fault most otherwise; any other faults at each run of its touches.
           It fetches nothing ahead, so it is one row whatever --prefetch says
Prefetchers (--prefetch): none, next-n, feedback-directed, best-offset, leap, readahead, plan (with --plan: what the plan says comes
  next; else as readahead).

What the policy hears (--references):
  told             each touch, in the order of the trace; DRAM is full to the last frame. The default for traces
  faults           what `tiermem run --evict NAME` hears: faults, and first uses of what was fetched ahead. It keeps 1/64 to 1/32 of
                   DRAM free. The default for recordings
  granule[=SIZE]   the same, and at each look (--look) which granules were touched: each of their pages is spared once

A demoted frame that was not written since it was fetched needs no write: its copy on flash is kept while there is room. Moves take
no time, except that a frame can be fetched ahead for --fetch-delay touches. The trace is held in memory, 8 bytes a touch (belady:
12).

Fields:
  evict, prefetch       what was simulated
  overcommit            required memory over dram_bytes
  dram_bytes            capacity of the first tier, in whole frames; with --pool, of all tiers of memory
  touches               frames touched
  faults                touches whose frame had to be fetched; the first touch of a frame is none, unless --first-touch fetch
  faults_low,           a recording does not tell the order of touches within a slice. They are the least and the most faults of three
  faults_high           orders: as in the file; in each slice what is in DRAM first; in each slice what faults first. That is an
                        estimate: the best and the worst order of the whole recording may be better and worse. Without slices all
                        three are equal
  fault_ratio           faults over touches
  prefetch_accuracy     frames fetched ahead that were used, over all that were fetched ahead
  prefetch_coverage     the same over themselves and faults
  prefetch_lateness     those that were used before they had come, over those that were used; 0 without --fetch-delay
  prefetch_pollution    faults for frames that left to make room for one fetched ahead, over faults
  read_bytes            bytes fetched from compressed, flash and remote tiers, for faults and ahead of them
  written_bytes         bytes sent to such tiers

With --by-tier there is a row for each tier:
  evict, prefetch       as above
  tier                  its name
  capacity_bytes        what it can hold, in whole frames
  peak_bytes            what lay there at one time, at most
  touches               touches that found their frame there; first touches of frames that came there
  moved_up              frames that went from there to a faster tier, for a fault, ahead of one, or because they are used much
  moved_down            frames that went from there to a slower tier, or were dropped
  read_bytes            bytes that were read there to move them to another tier
  written_bytes         bytes that were written there to move them to it

--evicted FILE writes a line of CSV for each frame that leaves memory: touch (how many there were until then) and address. Frames that leave
at one touch are in the order of their addresses.

With --more-dram the rows say what more DRAM would save, from one simulation: each frame that comes back after it has left DRAM tells how
much more would have kept it. For lru and kernel with --references told that is what a simulation with that DRAM counts. For other orders
it is what a second DRAM behind the first would save, which keeps what has left the first until others have left after it.
  evict, prefetch, dram_bytes
                        as above; dram_bytes is the sum, and the first row is without more
  faults                faults that are left
  prefetch_used         frames fetched ahead and used that are left";

const FIELDS: &[&str] = &[
    "evict",
    "prefetch",
    "overcommit",
    "dram_bytes",
    "touches",
    "faults",
    "faults_low",
    "faults_high",
    "fault_ratio",
    "prefetch_accuracy",
    "prefetch_coverage",
    "prefetch_lateness",
    "prefetch_pollution",
    "read_bytes",
    "written_bytes",
];

/// With `--more-dram`.
const MORE_FIELDS: &[&str] = &["evict", "prefetch", "dram_bytes", "faults", "prefetch_used"];

/// Frames of these sizes can be simulated.
const FRAME_BYTES: std::ops::RangeInclusive<u64> = 64..=1 << 30;

/// Options of `tiermem sim frames`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    trace: TraceArgs,
    /// Capacity of the first tier, DRAM.
    #[arg(long, value_name = "SIZE", required_unless_present_any = ["tier", "config", "overcommit"])]
    dram: Option<Capacity>,
    /// DRAM is the required memory over R; repeat it for several.
    #[arg(long, value_name = "R", conflicts_with = "dram", value_parser = overcommit)]
    overcommit: Vec<f64>,
    /// Memory that the program requires [default: the most that is touched and not discarded at one time].
    #[arg(long, value_name = "SIZE")]
    required: Option<Bytes>,
    /// A tier, such as dram=1GiB or flash=8GiB; fastest first; repeat it.
    #[arg(long, value_name = "KIND=SIZE")]
    tier: Vec<TierSpec>,
    /// File with [[tier]] tables, as `store serve` reads it; --dram and --tier replace its list.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Use memory as a hybrid pool does: LOCAL:REMOTE, such as 50:50, divides DRAM; tiers takes the tiers as they are given.
    #[arg(long, value_name = "SPLIT", conflicts_with = "more_dram")]
    pool: Option<Pool>,
    /// Print a row for each tier: what it held, served, and moved.
    #[arg(long, conflicts_with = "more_dram")]
    by_tier: bool,
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
    /// What the policy hears of touches: told, faults or granule[=SIZE] [default: faults for recordings, else told].
    #[arg(long, value_name = "HOW", value_parser = references)]
    references: Option<Heard>,
    /// When granules are looked at: a time of the trace such as 1s, or a number of touches.
    #[arg(long, value_name = "EVERY", default_value = "1s", value_parser = look)]
    look: Look,
    /// Pages that a sweep has passed leave first, where they are needed later than others, as with `tiermem run --dram`.
    #[arg(long)]
    drop_behind: bool,
    /// Follow a plan of `tiermem plan` for the recorded program, as with `tiermem run --dram --plan`; kernel and the other policies do,
    /// belady and fixed do not. Its prefetcher is `plan`.
    #[arg(long, value_name = "PLAN")]
    plan: Option<PathBuf>,
    /// Touches until a frame that is fetched ahead has come.
    #[arg(long, value_name = "TOUCHES", default_value_t = 0, value_parser = crate::trace::count)]
    fetch_delay: u64,
    /// Size of a frame, a power of two.
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = frame_bytes)]
    frame: Bytes,
    /// Seed of the policies that draw at random.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Print what so much more DRAM would save, as a size or in percent of DRAM; repeat it for several.
    #[arg(long, value_name = "SIZE")]
    more_dram: Vec<Capacity>,
    /// Write the frames that leave memory, in their order; for one policy, one prefetcher and one size of DRAM.
    #[arg(long, value_name = "FILE")]
    evicted: Option<PathBuf>,
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
            "kernel" => Ok(EvictName(Order::Kernel)),
            "belady" => Ok(EvictName(Order::Belady)),
            "fixed" => Ok(EvictName(Order::Fixed)),
            _ => {
                let named = text.parse().map(Order::Named);
                named.map(EvictName).map_err(|error: String| format!("{error}, kernel, belady, fixed"))
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

fn overcommit(text: &str) -> Result<f64, String> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| ratio.is_finite() && *ratio > 0.0);
    ratio.ok_or_else(|| "R is a number above 0, such as 1.5; DRAM is the required memory over it".to_owned())
}

/// What was asked for by `--references`; a granule has bytes here.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Heard {
    Told,
    Faults,
    ByGranule(Bytes),
}

fn references(text: &str) -> Result<Heard, String> {
    match text {
        "told" => Ok(Heard::Told),
        "faults" => Ok(Heard::Faults),
        _ => granule(text)
            .unwrap_or_else(|| {
                Err(format!("{text:?} is neither told nor faults nor granule nor granule=SIZE"))
            })
            .map(Heard::ByGranule),
    }
}

fn look(text: &str) -> Result<Look, String> {
    let wrong = || "give a time of at least 1ns, such as 1s, or a number of touches of at least 1".to_owned();
    if let Ok(touches) = text.parse::<u32>() {
        return if touches > 0 { Ok(Look::Touches(touches)) } else { Err(wrong()) };
    }
    text.parse::<Nanos>().ok().filter(|every| every.0 > 0).map(|every| Look::Nanos(every.0)).ok_or_else(wrong)
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
        let has_dram = self.dram.is_some() || !self.overcommit.is_empty();
        self.config.as_deref().filter(|_| !has_dram && self.tier.is_empty())
    }

    /// The tiers: those that were given, or the file's. One list for each R, or one.
    fn tiers(&self, required: Bytes, working_set_bytes: u64) -> Result<Vec<Vec<TierSpec>>, Failure> {
        let lists = self.undivided_tiers(required)?;
        let Some(pool) = self.pool else { return Ok(lists) };
        lists.into_iter().map(|tiers| pool.divide(tiers, self.frame, working_set_bytes)).collect()
    }

    fn undivided_tiers(&self, required: Bytes) -> Result<Vec<Vec<TierSpec>>, Failure> {
        if let Some(path) = self.file() {
            return Ok(vec![tiers::read(path)?]);
        }
        let sized = |capacity| TierSpec { capacity: Some(capacity), ..TierSpec::unsized_of(TierKind::Dram) };
        let with =
            |first: Option<Capacity>| first.map(sized).into_iter().chain(self.tier.iter().cloned()).collect();
        if self.overcommit.is_empty() {
            return Ok(vec![with(self.dram)]);
        }
        let dram = |ratio: &f64| Capacity::Bytes(Bytes((required.0 as f64 / ratio) as u64));
        Ok(self.overcommit.iter().map(|ratio| with(Some(dram(ratio)))).collect())
    }

    /// What the policy hears, in frames.
    fn references(&self, is_recording: bool) -> Result<References, Failure> {
        let default = if is_recording { Heard::Faults } else { Heard::Told };
        match self.references.unwrap_or(default) {
            Heard::Told => Ok(References::Told),
            Heard::Faults => Ok(References::Faults),
            Heard::ByGranule(size) if size.0 >= self.frame.0 => {
                Ok(References::ByGranule { frames_log2: (size.0 / self.frame.0).ilog2() })
            }
            Heard::ByGranule(size) => Err(Failure::usage(anyhow!(
                "a granule of {size} is smaller than a frame of {}; make it larger, or set --frame",
                self.frame
            ))),
        }
    }

    /// What the plan says of the pages of the recorded program, if there is one.
    fn plan_pages(&self, is_recording: bool) -> Result<Vec<(PageRange, Role)>, Failure> {
        let Some(file) = &self.plan else { return Ok(Vec::new()) };
        if !is_recording {
            return Err(Failure::usage(anyhow!(
                "a plan is for a recorded program, and {} is no recording of `tiermem record`",
                self.trace.trace
            )));
        }
        let recording = recording::read(Path::new(&self.trace.trace)).map_err(Failure::failed)?;
        plan::pages(&plan::read(file)?, &recording, self.frame.0)
            .map_err(|misfit| Failure::failed(anyhow!("{}: {misfit}", file.display())))
    }

    fn setups(&self) -> Vec<Setup> {
        let mut setups = Vec::new();
        for &EvictName(order) in &self.evict {
            let order = match order {
                Order::Named(named) => Order::Named(named.with_k(self.k)),
                Order::Fixed => {
                    setups.push(Setup { order, prefetch: prefetch::Named::None });
                    continue;
                }
                Order::Kernel | Order::Belady => order,
            };
            setups.extend(self.prefetch.iter().map(|&prefetch| Setup { order, prefetch }));
        }
        setups
    }
}

/// Simulates and prints.
pub fn run(options: &Options) -> Result<(), Failure> {
    let is_recording = is_recording(&options.trace.trace);
    let references = options.references(is_recording)?;
    let cut = Cut { frame_bytes: options.frame.0 as u32, in_slices: is_recording, look: options.look };
    let source = options.trace.open()?;
    let touches = Touches::of(source.records(), cut).map_err(failure)?;
    source.finish();
    if matches!(references, References::ByGranule { .. }) && !is_recording && touches.looks().is_empty() {
        return Err(Failure::usage(anyhow!(
            "the trace ends before the first look; say with --look after how many touches there shall be one"
        )));
    }
    let required = options.required.unwrap_or(Bytes(touches.required_bytes()));
    let setups = options.setups();
    let threads = options.threads.map_or_else(|| available_parallelism().map_or(1, usize::from), usize::from);
    let plan = options.plan_pages(is_recording)?;
    let mut rows = Vec::new();
    let sizes = options.tiers(required, touches.working_set_bytes())?;
    if options.by_tier && setups.iter().any(|setup| setup.order == Order::Fixed) {
        return Err(Failure::usage(anyhow!(
            "--by-tier: fixed places frames once and has no counts of its tiers; leave --evict fixed out"
        )));
    }
    if options.evicted.is_some() && (setups.len() > 1 || sizes.len() > 1) {
        return Err(Failure::usage(anyhow!(
            "--evicted is for one simulation: give one --evict, one --prefetch and one size of DRAM"
        )));
    }
    for tiers in sizes {
        let memory = Memory {
            tiers: configure(&tiers, options.file(), options.pool.is_some(), &touches)?,
            arrival: if options.pool.is_some() { Arrival::Spill } else { Arrival::First },
            first_touch: options.first_touch,
            references,
            fetch_delay: options.fetch_delay,
            // A plan's sweeps do.
            drop_behind: options.drop_behind || options.plan.is_some(),
            plan: plan.clone(),
            tells_evictions: options.evicted.is_some(),
            seed: options.seed,
        };
        let in_place = memory.tiers.iter().take_while(|tier| tier.in_place);
        if options.pool == Some(Pool::Tiers) && in_place.clone().count() < 2 {
            return Err(Failure::usage(anyhow!(
                "--pool tiers needs two tiers of memory, such as --tier dram=1GiB --tier numa=1GiB; or divide DRAM with --pool 50:50"
            )));
        }
        let memory_tiers = if options.pool.is_some() { in_place.clone().count() } else { 1 };
        let dram_frames: u64 = in_place.take(memory_tiers).map(|tier| u64::from(tier.frames)).sum();
        let dram_bytes = dram_frames * options.frame.0;
        let outcomes = frames::run(&touches, &memory, &setups, threads);
        for (setup, outcome) in setups.iter().zip(outcomes) {
            let counts = outcome.map_err(|error| {
                Failure::failed(anyhow!(
                    "{error}; the trace touches {}: give the last --tier more than what the others lack",
                    Bytes(touches.working_set_bytes())
                ))
            })?;
            if let Some(path) = &options.evicted {
                write_evictions(path, options.frame, &counts)
                    .map_err(|error| Failure::writing(&path.display().to_string(), error))?;
            }
            if options.by_tier {
                rows.extend(by_tier::rows(*setup, options.frame.0, (&tiers, &memory.tiers), &counts));
            } else if options.more_dram.is_empty() {
                rows.push(row(*setup, required, dram_bytes, &counts));
            } else {
                rows.extend(more_rows(*setup, dram_bytes, options, &counts));
            }
        }
    }
    let fields = match (options.by_tier, options.more_dram.is_empty()) {
        (true, _) => by_tier::FIELDS,
        (false, true) => FIELDS,
        (false, false) => MORE_FIELDS,
    };
    let rows = Rows { fields, rows };
    output::print_rows(options.format, &rows).map_err(|error| Failure::writing("the faults", error))
}

fn write_evictions(path: &Path, frame: Bytes, counts: &Counts) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    writeln!(out, "touch,address")?;
    for eviction in &counts.evictions {
        writeln!(out, "{},{}", eviction.touch, eviction.page * frame.0)?;
    }
    out.flush()
}

fn names(setup: Setup) -> [Cell; 2] {
    [setup.order.name(), setup.prefetch.name()].map(|name| Cell::Text(name.to_owned()))
}

/// A row for each size of DRAM, the first without more.
fn more_rows(setup: Setup, dram_bytes: u64, options: &Options, counts: &Counts) -> Vec<Vec<Cell>> {
    let more = options.more_dram.iter().map(|more| more.of_working_set(dram_bytes));
    let row = |more_bytes: u64| {
        let saved = counts.more_dram.saved_by(more_bytes / options.frame.0);
        let mut row = names(setup).to_vec();
        row.push(Cell::Count(dram_bytes + more_bytes / options.frame.0 * options.frame.0));
        row.push(Cell::Count(counts.faults.saturating_sub(saved.faults)));
        row.push(Cell::Count(counts.paging.prefetch_used.saturating_sub(saved.fetches)));
        row
    };
    std::iter::once(0).chain(more).map(row).collect()
}

fn row(setup: Setup, required: Bytes, dram_bytes: u64, counts: &Counts) -> Vec<Cell> {
    let [evict, prefetch] = names(setup);
    vec![
        evict,
        prefetch,
        Cell::Number(required.0 as f64 / dram_bytes as f64, 6),
        Cell::Count(dram_bytes),
        Cell::Count(counts.touches),
        Cell::Count(counts.faults),
        Cell::Count(counts.faults_low),
        Cell::Count(counts.faults_high),
        Cell::Number(counts.fault_ratio(), 6),
        Cell::Number(counts.paging.accuracy(), 6),
        Cell::Number(counts.paging.coverage(), 6),
        Cell::Number(counts.paging.lateness(), 6),
        Cell::Number(counts.paging.pollution(), 6),
        Cell::Count(counts.read_bytes),
        Cell::Count(counts.written_bytes),
    ]
}

/// Whether a trace is a recording, complete or not, whose touches are told by the slice.
fn is_recording(trace: &str) -> bool {
    let path = Path::new(trace);
    !Spec::looks_like_one(trace) && recording::looks_like_one(path) && recording::read(path).is_ok()
}

/// The tiers, which stand in `file` or were given as flags, in whole frames; flash below a single one, and below the memory of a pool.
fn configure(
    tiers: &[TierSpec],
    file: Option<&Path>,
    is_pool: bool,
    touches: &Touches,
) -> Result<Vec<TierConfig>, Failure> {
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
    let is_all_memory = configs.iter().all(|tier| tier.in_place);
    if configs.len() == 1 || (is_pool && is_all_memory) {
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
        TouchesError::Size(error) => Failure::failed(anyhow!(
            "{error}; --requests N cuts the trace, and larger frames (--frame) are fewer"
        )),
    }
}
