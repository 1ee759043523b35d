//! `tiermem sim block`: the block cache over a trace, in several set-ups at once.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread::available_parallelism;

use anyhow::anyhow;
use clap::Args;
use tiermem_base::latency_curve::{NETWORK_STORE, NVME_FLASH};
use tiermem_base::{Access, Bandwidth, Bytes, Nanos};
use tiermem_policy::evict::Named;
use tiermem_policy::extents::admission::AdmissionRules;
use tiermem_policy::extents::cleaner::{CleanerRules, WriteBackOrder};
use tiermem_policy::extents::{Around, Fill, MIB_PRICE_NS, Mode, Observation, Sizing};
use tiermem_sim::block::{self, BlockError, Costs, Counts, Setup, Troubles};

use crate::columns;
use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::size::Size;
use crate::source::{self, TraceArgs};

const HELP: &str = "\
Examples:
  tiermem sim block volume.csv
  tiermem sim block volume.csv --cache 10% --blocks 32KiB --blocks 256KiB --blocks 32KiB,64KiB,128KiB,256KiB --fill whole --fill units
  tiermem sim block volumes.csv --apart --volumes --format csv

Every --blocks is simulated with every --fill, --sizing and --cache. Several sizes in one --blocks make an adaptive cache: each miss
gets the largest blocks that fit it.

Fields (of --format csv and json, and of -o; the table has the most common ones):
  cache, blocks, fill, sizing, volume   what was simulated, and for which volume (all: the sum)
  capacity_bytes            the cache's size
  reads, writes             requests
  read_hit_ratio, write_hit_ratio   share of reads with all bytes, of writes with all blocks, in the cache
  core_read_bytes, core_written_bytes, cache_read_bytes, cache_written_bytes   bytes moved (core: backing store)
  core_reads, core_writes, cache_reads, cache_writes   requests to the backing store and the cache's device
  bypassed_reads            reads that did not fill the cache (--sequential-cutoff, --promote-after, or all victims were dirty)
  waited_requests           requests that waited for write-back
  dirty_at_end_bytes        the part of core_written_bytes that was written back at the end
  mean_missed_request_bytes, mean_block_bytes   mean size of requests that missed, and of the blocks allocated for them
  metadata_bytes, blocks_held, metadata_bytes_per_block   of the whole cache, mean over the run
  memory_reads, memory_read_bytes   reads that copies in DRAM served instead of the cache's device (--memory)
  read_latency_us, write_latency_us   means, computed from the --core-* and --cache-* options
  store_flushes             flushes of the backing store (--cleaning background)
  write_back_groups, write_back_groups_grown, epoch_merges   groups that the backing store has got as a whole, groups that grew to a later
                            flush, and flushes whose order was not kept (--order)
  copies_out, copied_out_bytes   copies of what a write was to change and a group needed (--order group)";

const FIELDS: &[&str] = &[
    "cache",
    "blocks",
    "fill",
    "sizing",
    "volume",
    "capacity_bytes",
    "reads",
    "writes",
    "read_hit_ratio",
    "write_hit_ratio",
    "core_read_bytes",
    "core_written_bytes",
    "cache_read_bytes",
    "cache_written_bytes",
    "core_reads",
    "core_writes",
    "cache_reads",
    "cache_writes",
    "bypassed_reads",
    "waited_requests",
    "dirty_at_end_bytes",
    "mean_missed_request_bytes",
    "mean_block_bytes",
    "metadata_bytes",
    "blocks_held",
    "metadata_bytes_per_block",
    "read_latency_us",
    "write_latency_us",
    "memory_reads",
    "memory_read_bytes",
    "store_flushes",
    "write_back_groups",
    "write_back_groups_grown",
    "epoch_merges",
    "copies_out",
    "copied_out_bytes",
];

/// Options of `tiermem sim block`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    trace: TraceArgs,
    /// Cache size, or a percentage of the working set; repeat it for several.
    #[arg(long, value_name = "SIZE", default_value = "10%")]
    cache: Vec<Size>,
    /// Block sizes of a cache, ascending: powers of two from 4KiB to 4MiB; repeat it for several caches.
    #[arg(long, value_name = "SIZE,...", default_value = "32KiB,64KiB,128KiB,256KiB")]
    blocks: Vec<Sizes>,
    /// What a miss fetches: whole blocks (also before a partial write), or only the 4 KiB units it needs; repeat it for both.
    #[arg(long, value_enum, value_name = "WHAT", default_values_t = [FillArg::Units])]
    fill: Vec<FillArg>,
    /// How much a miss fetches: `request` (what it needs), around=SIZE (the whole aligned range around it), read-around=SIZE (the
    /// same for reads only), or `observed` (whichever would have cost least recently); repeat it for several.
    #[arg(long, value_name = "RULE", default_value = "request")]
    sizing: Vec<SizingArg>,
    /// How much longer clients may wait, in all, for each MiB less that is moved from and to the store: for --sizing observed.
    #[arg(long, value_name = "TIME", default_value_t = Nanos(MIB_PRICE_NS))]
    store_price: Nanos,
    /// Write mode.
    #[arg(long, value_enum, value_name = "MODE", default_value_t = ModeArg::Back)]
    mode: ModeArg,
    /// Eviction policy of blocks and groups.
    #[arg(long, value_name = "NAME", default_value = "lru")]
    policy: Named,
    /// Size of the groups that blocks of one size share [default: the largest block].
    #[arg(long, value_name = "SIZE")]
    group: Option<Bytes>,
    /// DRAM above the cache's device, for copies of the 4 KiB units that are read from it [default: none].
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// Once the cache is full, reads of sequential streams at least this long do not fill it.
    #[arg(long, value_name = "SIZE")]
    sequential_cutoff: Option<Bytes>,
    /// Once the cache is full, a read fills it only after its blocks have been missed N times recently.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    promote_after: u8,
    /// When dirty data is written back: at eviction, by the request that needs the space (none), or by the trace's clock, when it is
    /// old or there is much of it (background).
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = CleaningArg::None)]
    cleaning: CleaningArg,
    /// Age at which background cleaning writes dirty data back.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    cleaning_age: Nanos,
    /// Order in which background cleaning writes dirty data back, as the server's `order`: it matters with --flush-every.
    #[arg(long, value_enum, value_name = "ORDER", default_value_t = OrderArg::Group)]
    order: OrderArg,
    /// Each volume is flushed after every N writes to it: traces tell of no flushes [default: never].
    #[arg(long, value_name = "N")]
    flush_every: Option<NonZeroU32>,
    /// Give each volume a cache of its own, with this share of its own working set.
    #[arg(long)]
    apart: bool,
    /// Also print a row for each volume.
    #[arg(long)]
    volumes: bool,
    /// Latency of the backing store.
    #[arg(long, value_name = "TIME", default_value_t = NETWORK_STORE.read.latency())]
    core_latency: Nanos,
    /// Bandwidth of the backing store, per second.
    #[arg(long, value_name = "SIZE", default_value_t = NETWORK_STORE.read.bandwidth())]
    core_bandwidth: Bandwidth,
    /// Latency of the cache's device.
    #[arg(long, value_name = "TIME", default_value_t = NVME_FLASH.read.latency())]
    cache_latency: Nanos,
    /// Bandwidth of the cache's device, per second.
    #[arg(long, value_name = "SIZE", default_value_t = NVME_FLASH.read.bandwidth())]
    cache_bandwidth: Bandwidth,
    /// Do not count the first N requests; they are simulated all the same.
    #[arg(long, value_name = "N", default_value_t = 0)]
    warm_up: u64,
    /// Seed of random policies.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Number of threads [default: one per processor].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Write the rows to a Parquet file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Block sizes of one cache.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sizes(Vec<u64>);

impl std::str::FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = |text: &str| text.parse::<Bytes>().map(|bytes| bytes.0).map_err(|error| error.to_string());
        text.split(',').map(size).collect::<Result<_, _>>().map(Sizes)
    }
}

impl std::fmt::Display for Sizes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let texts: Vec<_> = self.0.iter().map(|size| Bytes(*size).to_string()).collect();
        f.write_str(&texts.join(","))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FillArg {
    Whole,
    Units,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ModeArg {
    #[value(name = "write-back")]
    Back,
    #[value(name = "write-through")]
    Through,
    #[value(name = "write-around")]
    Around,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum CleaningArg {
    None,
    Background,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum OrderArg {
    Group,
    Flush,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SizingArg {
    Request,
    Observed,
    /// For reads, and whether for writes as well.
    Around(u64, bool),
}

impl std::str::FromStr for SizingArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "request" => Ok(SizingArg::Request),
            None if text == "observed" => Ok(SizingArg::Observed),
            Some((name @ ("around" | "read-around"), size)) => size
                .parse::<Bytes>()
                .map(|size| SizingArg::Around(size.0, name == "around"))
                .map_err(|error| error.to_string()),
            _ => Err(format!("{text:?} is none of request, observed, around=SIZE and read-around=SIZE")),
        }
    }
}

impl std::fmt::Display for SizingArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SizingArg::Request => f.write_str("request"),
            SizingArg::Observed => f.write_str("observed"),
            SizingArg::Around(size, true) => write!(f, "around={}", Bytes(*size)),
            SizingArg::Around(size, false) => write!(f, "read-around={}", Bytes(*size)),
        }
    }
}

impl SizingArg {
    /// In a cache of these block sizes.
    fn within(self, sizes: &[u64], by: Observation) -> Result<Sizing, Failure> {
        match self {
            SizingArg::Observed => Ok(Sizing::Observed(by)),
            SizingArg::Request => Ok(Sizing::Request),
            SizingArg::Around(size, writes) => match sizes.iter().position(|other| *other == size) {
                Some(class) => {
                    let read = Some(class as u8);
                    Ok(Sizing::Around(Around { read, write: read.filter(|_| writes) }))
                }
                None => Err(Failure::usage(anyhow!(
                    "--sizing {}: no block of --blocks {} has that size",
                    self,
                    Sizes(sizes.to_vec())
                ))),
            },
        }
    }
}

/// One set-up, and what it is called in the rows.
struct Point {
    labels: [String; 4],
    setup: Setup,
    /// The volume that has the cache for itself.
    volume: Option<u32>,
}

/// Simulates and prints.
pub fn run(options: &Options) -> Result<(), Failure> {
    let source = options.trace.open()?;
    let records = source.records().collect::<Result<Vec<Access>, Failure>>()?;
    source.finish();
    let is_timeless = records.len() > 1 && records.windows(2).all(|pair| pair[0].time_ns == pair[1].time_ns);
    if options.cleaning == CleaningArg::Background && is_timeless {
        return Err(Failure::usage(anyhow!(
            "--cleaning background goes by the trace's time, and {} states none",
            options.trace.trace
        )));
    }
    if options.flush_every.is_some() && options.cleaning != CleaningArg::Background {
        return Err(Failure::usage(anyhow!(
            "--flush-every is about the order in which dirty data is written back in the background: give --cleaning background as well"
        )));
    }
    let points = points(options, &block::working_sets(&records))?;
    let threads = options.threads.map_or_else(|| available_parallelism().map_or(1, usize::from), usize::from);
    let interrupt = crate::interrupt::watch();
    let bar = Mutex::new(source::steps_bar(points.len() as u64 * records.len() as u64, "requests"));
    let progress = |done| {
        if let Ok(bar) = bar.lock() {
            bar.inc(done);
        }
    };
    let caches: Vec<_> = points.iter().map(|point| (point.setup.clone(), point.volume)).collect();
    let outcomes = block::run(
        &records,
        &caches,
        options.warm_up,
        options.seed,
        threads,
        &|| interrupt.is_set(),
        &progress,
    );
    if let Ok(bar) = bar.lock() {
        bar.finish_and_clear();
    }
    let rows = rows(options, &points, outcomes)?;
    let rows = Rows { fields: FIELDS, rows };
    if let Some(path) = &options.output {
        columns::write(path, &rows)
            .map_err(|error| Failure::failed(anyhow!("cannot write {}: {error}", path.display())))?;
    }
    match options.format {
        Format::Table => print_table(&rows.rows),
        format => output::print_rows(format, &rows),
    }
    .map_err(|error| Failure::writing("the result", error))
}

/// Every combination, in the order of the options.
fn points(options: &Options, working_sets: &BTreeMap<u32, u64>) -> Result<Vec<Point>, Failure> {
    let costs = Costs {
        core_latency_ns: options.core_latency.0,
        core_bandwidth: options.core_bandwidth.0,
        cache_latency_ns: options.cache_latency.0,
        cache_bandwidth: options.cache_bandwidth.0,
    };
    // The speed of the store is measured, as on a server.
    let by = Observation { mib_price_ns: options.store_price.0, ..Observation::default() };
    let all: u64 = working_sets.values().sum();
    let owners: Vec<(Option<u32>, u64)> = match options.apart {
        false => vec![(None, all)],
        true => working_sets.iter().map(|(volume, bytes)| (Some(*volume), *bytes)).collect(),
    };
    let mut points = Vec::new();
    for cache in &options.cache {
        for blocks in &options.blocks {
            for fill in &options.fill {
                for sizing in &options.sizing {
                    for (volume, working_set) in &owners {
                        let setup = Setup {
                            sizes_bytes: blocks.0.clone(),
                            group_bytes: options.group.map(|group| group.0),
                            fill: match fill {
                                FillArg::Whole => Fill::Whole,
                                FillArg::Units => Fill::Units,
                            },
                            sizing: sizing.within(&blocks.0, by)?,
                            mode: match options.mode {
                                ModeArg::Back => Mode::WriteBack,
                                ModeArg::Through => Mode::WriteThrough,
                                ModeArg::Around => Mode::WriteAround,
                            },
                            admission: AdmissionRules {
                                sequential_cutoff_bytes: options.sequential_cutoff.map(|size| size.0),
                                promote_after: options.promote_after,
                            },
                            cleaning: match options.cleaning {
                                CleaningArg::None => None,
                                CleaningArg::Background => Some(CleanerRules {
                                    order: match options.order {
                                        OrderArg::Group => WriteBackOrder::Group,
                                        OrderArg::Flush => WriteBackOrder::Flush,
                                        OrderArg::None => WriteBackOrder::None,
                                    },
                                    age_ns: options.cleaning_age.0,
                                    ..CleanerRules::default()
                                }),
                            },
                            flush_every: options.flush_every.map(|writes| u64::from(writes.get())),
                            troubles: Troubles::default(),
                            quotas: Vec::new(),
                            memory_bytes: options.memory.map_or(0, |size| size.0),
                            policy: options.policy,
                            capacity_bytes: cache.units(*working_set),
                            costs,
                        };
                        let fill = match fill {
                            FillArg::Whole => "whole",
                            FillArg::Units => "units",
                        };
                        let labels = [label(*cache), blocks.to_string(), fill.to_owned(), sizing.to_string()];
                        points.push(Point { labels, setup, volume: *volume });
                    }
                }
            }
        }
    }
    Ok(points)
}

fn label(size: Size) -> String {
    match size {
        Size::Units(bytes) => Bytes(bytes).to_string(),
        Size::Share(share) => format!("{}%", (share * 1e6).round() / 1e4),
    }
}

/// A row for the sum over the volumes of each set-up, and one for each volume if that was asked.
fn rows(
    options: &Options,
    points: &[Point],
    outcomes: Vec<block::Outcome>,
) -> Result<Vec<Vec<Cell>>, Failure> {
    let mut rows = Vec::new();
    let mut of_setup: Vec<(u32, Counts)> = Vec::new();
    let mut capacity_bytes = 0;
    let failure = |error: BlockError| match error {
        BlockError::Geometry(error) => Failure::usage(anyhow!("{error}")),
        other => Failure::failed(anyhow!("{}: {other}", options.trace.trace)),
    };
    for (at, (point, outcome)) in points.iter().zip(outcomes).enumerate() {
        of_setup.extend(outcome.map_err(failure)?);
        capacity_bytes += point.setup.capacity_bytes;
        // The points of a set-up stand together, one for each volume that has a cache for itself.
        if points.get(at + 1).is_some_and(|next| next.labels == point.labels && options.apart) {
            continue;
        }
        let sum = of_setup.iter().fold(Counts::default(), |sum, (_, counts)| sum.plus(counts));
        rows.push(row(&point.labels, "all", capacity_bytes, &sum));
        if options.volumes {
            for (volume, counts) in &of_setup {
                rows.push(row(&point.labels, &volume.to_string(), capacity_bytes, counts));
            }
        }
        of_setup.clear();
        capacity_bytes = 0;
    }
    Ok(rows)
}

fn row(labels: &[String; 4], volume: &str, capacity_bytes: u64, counts: &Counts) -> Vec<Cell> {
    let share = |part: u64, of: u64| Cell::Number(part as f64 / of as f64, 6);
    let mean = |sum: u64, of: u64| Cell::Number(sum as f64 / of as f64, 1);
    let mean_us = |sum: u64, of: u64| Cell::Number(sum as f64 / of as f64 / 1e3, 2);
    let (metadata_bytes, blocks) = counts.metadata();
    let mut cells: Vec<Cell> = labels.iter().cloned().map(Cell::Text).collect();
    cells.extend([
        Cell::Text(volume.to_owned()),
        Cell::Count(capacity_bytes),
        Cell::Count(counts.reads),
        Cell::Count(counts.writes),
        share(counts.read_hits, counts.reads),
        share(counts.write_hits, counts.writes),
        Cell::Count(counts.core_read_bytes),
        Cell::Count(counts.core_written_bytes),
        Cell::Count(counts.cache_read_bytes),
        Cell::Count(counts.cache_written_bytes),
        Cell::Count(counts.core_reads),
        Cell::Count(counts.core_writes),
        Cell::Count(counts.cache_reads),
        Cell::Count(counts.cache_writes),
        Cell::Count(counts.bypassed_reads),
        Cell::Count(counts.waited_requests),
        Cell::Count(counts.dirty_at_end_bytes),
        mean(counts.missed_request_bytes, counts.missed_requests),
        mean(counts.allocated_bytes, counts.allocated_blocks),
        Cell::Count(metadata_bytes),
        Cell::Count(blocks),
        mean(metadata_bytes, blocks),
        mean_us(counts.read_latency_ns, counts.reads),
        mean_us(counts.write_latency_ns, counts.writes),
        Cell::Count(counts.memory_reads),
        Cell::Count(counts.memory_read_bytes),
        Cell::Count(counts.order.store_flushes),
        Cell::Count(counts.order.groups),
        Cell::Count(counts.order.grown_groups),
        Cell::Count(counts.order.merges),
        Cell::Count(counts.order.copies_out),
        Cell::Count(counts.order.copied_out_bytes),
    ]);
    cells
}

/// Table for people: the labels that differ, hits, volumes in MiB, latencies.
fn print_table(rows: &[Vec<Cell>]) -> std::io::Result<()> {
    const SHOWN: &[&str] = &[
        "cache",
        "blocks",
        "fill",
        "sizing",
        "volume",
        "read_hits",
        "write_hits",
        "from_core",
        "to_core",
        "from_cache",
        "to_cache",
        "read_us",
        "write_us",
    ];
    const FROM: &[&str] = &[
        "cache",
        "blocks",
        "fill",
        "sizing",
        "volume",
        "read_hit_ratio",
        "write_hit_ratio",
        "core_read_bytes",
        "core_written_bytes",
        "cache_read_bytes",
        "cache_written_bytes",
        "read_latency_us",
        "write_latency_us",
    ];
    let cell = |row: &Vec<Cell>, name: &str| {
        let found = FIELDS.iter().position(|field| *field == name).and_then(|at| row.get(at).cloned());
        match (found, name) {
            (Some(Cell::Count(bytes)), name) if name.ends_with("_bytes") => Cell::Text(in_words(bytes)),
            (Some(Cell::Number(ratio, _)), name) if name.ends_with("_ratio") => Cell::Number(ratio, 4),
            (Some(cell), _) => cell,
            (None, _) => Cell::Number(f64::NAN, 0),
        }
    };
    let few = rows.iter().map(|row| FROM.iter().map(|name| cell(row, name)).collect()).collect();
    output::print_rows(Format::Table, &Rows { fields: SHOWN, rows: few })
}

/// Bytes with three digits or so.
fn in_words(bytes: u64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}
