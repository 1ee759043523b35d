//! `tiermem sim cxl-flash`: a flash-backed memory expander under a trace.

mod compat;
mod fields;
mod sweep;
mod table;

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use tiermem_sim::cxl_flash::config::{ConfigError, Layers, PRESETS};

use crate::columns;
use crate::failure::Failure;
use crate::output::{self, Format, Rows};
use crate::print_text::print_text;
use crate::source::TraceArgs;
use fields::FIELDS;
use sweep::{Axis, Point};

const HELP: &str = "\
Examples:
  tiermem sim cxl-flash program.parquet --addresses physical
  tiermem sim cxl-flash program.parquet --preset table6 --set prefetch=best-offset
  tiermem sim cxl-flash program.parquet --config device.toml --window 1000000 --format csv
  tiermem sim cxl-flash program.parquet --sweep cache=0,64MiB,8GiB --sweep prefetch=none,best-offset -o grid.parquet
  tiermem sim cxl-flash random.trace --compat atc23

Settings apply in this order: defaults, --preset, --config, --set; --print-config shows the result. docs/cxl-flash.md describes
every key. Short names: cache, capacity, line, mshr, policy, prefetch, technology, ways, window, write_log, and parallelism=8x4.

Fields (of --format csv and json, and of -o; the table has the most common ones):
  trace, setting            what was simulated: the trace, and what --sweep set
  window                    the number of the window, from 0, or all
  cache_bytes ... hint_probability  the most commonly varied settings of the device
  requests                  requests answered
  sub_us_percent            share of requests answered in less than a microsecond
  mean_latency_ns, p10_ns ... p9999_ns, max_ns  latency (percentiles for the whole trace only)
  queue_ns, link_ns, dram_ns, flash_ns  parts of the mean latency: waiting for a place in host and device, link, DRAM, flash
  hits, hits_under_miss, misses  requests whose line was in the cache, already being fetched, neither
  mean_miss_latency_ns      mean latency of hits under miss and misses
  repeated_reads            flash reads of a line that was already being fetched
  prefetches, prefetch_accuracy, prefetch_coverage, prefetch_lateness, prefetch_pollution
                            lines prefetched; share of them used; hits on them over requests; share that a request had to wait
                            for; misses on lines evicted by prefetches over misses
  hints                     lines fetched because of a hint
  flash_reads, flash_writes lines read and written for the host
  flash_interarrival_ns     mean time between two of these
  log_hits                  reads served by the write log
  gc_moves, erases, write_amplification  lines moved by cleaning, blocks erased, all lines written over lines of the host
  wear_max, wear_min        erases of the most and of the least worn block
  lifetime_years, lifetime_years_unamplified  endurance x capacity / write rate over duration_ns, with and
                            without what cleaning moves
  performance_per_dollar, performance_per_dollar_all  sub_us_percent per price, relative to all DRAM: price of the flash; with the
                            device's DRAM included
  duration_ns               from the first request until the last answer
  simulated_requests_per_second  speed of the simulator";

/// Options of `tiermem sim cxl-flash`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    trace: TraceArgs,
    /// File that describes the device (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Device of a published table.
    #[arg(long, value_name = "NAME", long_help = preset_help())]
    preset: Option<String>,
    /// Set one key of the device; repeat it for several.
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// Simulate each of these values of a key, combined with every other sweep; repeat it for several keys.
    #[arg(long, value_name = "KEY=V1,V2,...", value_parser = assignment)]
    sweep: Vec<(String, String)>,
    /// Compute as a published simulator does, for comparison.
    #[arg(long, value_enum, value_name = "WHAT")]
    compat: Option<Compat>,
    /// Also print one row per N requests of the trace.
    #[arg(long, value_name = "N", default_value_t = 0)]
    window: u64,
    /// Number of threads for a sweep [default: one per processor].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Write the rows to a Parquet file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the device's configuration and exit.
    #[arg(long)]
    print_config: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// The arithmetic to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Compat {
    /// MQSim_CXL, published with Yang 2023 at USENIX ATC.
    Atc23,
}

fn preset_help() -> String {
    let lines: String =
        PRESETS.iter().map(|preset| format!("\n  {:8} {}", preset.name, preset.about)).collect();
    format!("A device of a published table\n{lines}")
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not a key, = and a value"))?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

fn wrong(error: ConfigError) -> Failure {
    Failure::usage(anyhow!("{error}"))
}

/// Simulates and prints.
pub fn run(options: &Options) -> Result<(), Failure> {
    let mut layers = Layers::default();
    if let Some(preset) = &options.preset {
        layers.preset(preset).map_err(wrong)?;
    }
    if let Some(path) = &options.config {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(anyhow!("cannot read {}: {error}", path.display())))?;
        layers.text(path, &text).map_err(wrong)?;
    }
    for (key, value) in &options.set {
        layers.set(key, value).map_err(wrong)?;
    }
    if options.print_config {
        let printed = print_text(&layers.to_toml());
        return printed.map_err(|error| Failure::writing("the configuration", error));
    }
    let axes: Vec<Axis> = options.sweep.iter().map(|(key, values)| Axis::new(key, values)).collect();
    let points = Point::grid(&layers, &axes).map_err(wrong)?;
    if options.compat.is_some() && options.window > 0 {
        return Err(Failure::usage(anyhow!("--window: --compat atc23 has no windows")));
    }
    if options.compat.is_some()
        && let Some(refused) = points.iter().find_map(|point| compat::refused(&point.device))
    {
        return Err(wrong(refused));
    }
    let found = sweep::run(options, &points)?;
    if found.rows.is_empty() {
        return Err(Failure::failed(anyhow!("{} was not simulated: interrupted", options.trace.trace)));
    }
    let missing = points.len() - found.finished;
    let rows = Rows { fields: FIELDS, rows: found.rows };
    if let Some(path) = &options.output {
        columns::write(path, &rows)
            .map_err(|error| Failure::failed(anyhow!("cannot write {}: {error}", path.display())))?;
    }
    let printed = match options.format {
        Format::Table => table::print(&rows.rows, options.output.is_some()),
        // Rows that are in a file need not be twice.
        _ if options.output.is_some() && points.len() > 1 => Ok(()),
        format => output::print_rows(format, &rows),
    };
    printed.map_err(|error| Failure::writing("the result", error))?;
    if let Some(requests) = found.cut_short {
        return Err(Failure::failed(anyhow!(
            "interrupted: the rows are of the first {requests} requests; those after them are missing"
        )));
    }
    if missing > 0 {
        let settings: Vec<_> = found.missing.iter().map(|number| points[*number].setting.clone()).collect();
        return Err(Failure::failed(anyhow!(
            "interrupted: {missing} of {} points are missing: {}",
            points.len(),
            settings.join("; ")
        )));
    }
    Ok(())
}
