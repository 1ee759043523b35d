//! `tiermem trace stat`: statistics of a trace.

use clap::Args;
use tiermem_trace::OptionalSet;
use tiermem_trace::stat::{Collector, StatOptions, TraceStat, ValueStat};

use super::{positive_count, stat_table};
use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::print_text::print_text;
use crate::source::{TraceArgs, sample_rate};

const HELP: &str = "\
Examples:
  tiermem trace stat twitter_cluster52.csv.zst
  tiermem trace stat ycsb-a:objects=1M,requests=10M --sample 0.01
  tiermem trace stat twitter_cluster52.csv.zst --format json | jq .zipf

One pass. Memory: 3 MiB, and at most 100 bytes for each key (and page of a memory trace), or for each sampled one with --sample.

Fields (nested in json; in csv separate tables, or names with a dot, as in zipf.r_squared):
  requests, unique_keys       accesses, and distinct keys
  sample_rate                 share of keys followed; below 1, figures about keys are estimates
  working_set_bytes           sum of the last known size of every key
  requested_bytes             sum of the sizes of all accesses
  reads, writes, deletes      get, read, load, scan; set, write, store; del
  read_write_ratio            reads over writes
  compulsory_miss_ratio       unique_keys over requests
  one_hit_keys, one_hit_ratio keys with one access, and their share of all keys
  duration_ns                 from the earliest to the latest access
  requests_per_second         requests over the duration
  time_steps_back             accesses with an earlier time than the previous one
  zipf.alpha_least_squares    exponent of popularity: line through log rank and log accesses, down to five accesses
  zipf.r_squared              goodness of fit of that line: 1 is perfect
  zipf.alpha_likelihood       exponent by maximum likelihood over the keys seen; not with --sample
  zipf.ks_distance            largest error of that fit, as a share of requests: 0 is perfect
  spatial.block               units of the key per block
  spatial.sequential_share    share of accesses that begin where the previous one ended
  spatial.run_length_mean, spatial.run_length_max
                              accesses in sequential runs
  addresses.footprint_bytes   memory traces: accessed pages of 4 KiB, in bytes
  addresses.spatial_locality, addresses.temporal_locality
                              memory traces: from 0 (none) to 1; defined in docs/traces.md
  ops, tenants                per operation and tenant: requests, their share and requested_bytes; per tenant also
                              unique_keys and working_set_bytes (a key counts for the first tenant that accessed it)
  spatial.near                share of accesses within this many blocks of one of the previous 32
  popularity                  accesses of the key at each rank, 1 is the most popular; ranks grow by 5%
  growth                      for up to 128 equal parts of the trace: requests and time_ns at its end, keys_total and
                              bytes_total until then, keys_in_use and bytes_in_use during it, keys_new in it
  columns                     if the trace has them (frame, node, level, pc): smallest and largest value; of nodes and levels
                              also values: requests of each value and their share
  size_bytes                  sizes of accesses
  inter_arrival_ns            time from an access to the next
  reuse_time_requests         requests from an access to a key to the next access to it
  stack_distance_keys         distinct keys between the two, itself included: the smallest LRU cache that hits
  accesses_per_key            popularity
                              Each of these five has count, min, mean, p50, p90, p99, p999 (percentiles to three
                              digits), max, and a histogram by powers of two: from, to (both included), count";

const RECORD_FIELDS: &[&str] = &[
    "requests",
    "sample_rate",
    "unique_keys",
    "working_set_bytes",
    "requested_bytes",
    "reads",
    "writes",
    "deletes",
    "read_write_ratio",
    "compulsory_miss_ratio",
    "one_hit_keys",
    "one_hit_ratio",
    "duration_ns",
    "requests_per_second",
    "time_steps_back",
    "zipf.alpha_least_squares",
    "zipf.r_squared",
    "zipf.alpha_likelihood",
    "zipf.ks_distance",
    "spatial.block",
    "spatial.sequential_share",
    "spatial.run_length_mean",
    "spatial.run_length_max",
    "addresses.footprint_bytes",
    "addresses.spatial_locality",
    "addresses.temporal_locality",
];
const OP_FIELDS: &[&str] = &["op", "requests", "share", "requested_bytes"];
const TENANT_FIELDS: &[&str] =
    &["tenant", "requests", "share", "requested_bytes", "unique_keys", "working_set_bytes"];
const POPULARITY_FIELDS: &[&str] = &["rank", "accesses"];
const GROWTH_FIELDS: &[&str] =
    &["requests", "time_ns", "keys_total", "bytes_total", "keys_in_use", "bytes_in_use", "keys_new"];
const NEAR_FIELDS: &[&str] = &["blocks", "share"];
const COLUMN_FIELDS: &[&str] = &["column", "min", "max"];
const COLUMN_VALUE_FIELDS: &[&str] = &["column", "value", "requests", "share"];
const DISTRIBUTION_FIELDS: &[&str] =
    &["distribution", "count", "min", "mean", "p50", "p90", "p99", "p999", "max"];
const HISTOGRAM_FIELDS: &[&str] = &["distribution", "from", "to", "count"];

/// Options of `tiermem trace stat`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    trace: TraceArgs,
    /// Follow only this share of the keys (spatial sampling): saves memory and time; figures about keys become estimates.
    #[arg(long, value_name = "R", value_parser = sample_rate, default_value_t = 1.0)]
    sample: f64,
    /// Units of the key per block, for spatial locality [default: 4096 for block traces, 64 for memory traces, 1 for
    /// others].
    #[arg(long, value_name = "N", value_parser = positive_count)]
    block: Option<u64>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Measures and prints.
pub fn run(options: Options) -> Result<(), Failure> {
    let source = options.trace.open_with(OptionalSet::ALL)?;
    let mut collector = Collector::new(StatOptions { sample_rate: options.sample, block: options.block });
    let has_columns = !source.optional().is_empty();
    for record in source.records() {
        collector.observe(&record?);
        if has_columns {
            collector.observe_columns(&source.optional_row());
        }
    }
    source.finish();
    let stat = collector.finish();
    let printed = match options.format {
        Format::Table => stat_table::print(&stat),
        Format::Csv => output::print_record(Format::Csv, &record(&stat), &lists(&stat)),
        Format::Json => {
            let text = serde_json::to_string(&stat).map_err(Failure::failed)?;
            print_text(&format!("{text}\n"))
        }
    };
    printed.map_err(|error| Failure::writing("the statistics", error))
}

/// An unknown number is an empty field.
fn optional(number: Option<f64>) -> Cell {
    number.map_or_else(|| Cell::Text(String::new()), |number| Cell::Number(number, 6))
}

fn record(stat: &TraceStat) -> Rows {
    let (zipf, addresses) = (stat.zipf, stat.addresses);
    let row = vec![
        Cell::Count(stat.requests),
        Cell::Number(stat.sample_rate, 6),
        Cell::Count(stat.unique_keys),
        Cell::Count(stat.working_set_bytes),
        Cell::Count(stat.requested_bytes),
        Cell::Count(stat.reads),
        Cell::Count(stat.writes),
        Cell::Count(stat.deletes),
        optional(stat.read_write_ratio),
        Cell::Number(stat.compulsory_miss_ratio, 6),
        Cell::Count(stat.one_hit_keys),
        Cell::Number(stat.one_hit_ratio, 6),
        Cell::Count(stat.duration_ns),
        optional(stat.requests_per_second),
        Cell::Count(stat.time_steps_back),
        optional(zipf.map(|zipf| zipf.alpha_least_squares)),
        optional(zipf.map(|zipf| zipf.r_squared)),
        optional(zipf.and_then(|zipf| zipf.alpha_likelihood)),
        optional(zipf.and_then(|zipf| zipf.ks_distance)),
        Cell::Count(stat.spatial.block),
        Cell::Number(stat.spatial.sequential_share, 6),
        Cell::Number(stat.spatial.run_length_mean, 6),
        Cell::Count(stat.spatial.run_length_max),
        addresses.map_or_else(|| Cell::Text(String::new()), |it| Cell::Count(it.footprint_bytes)),
        optional(addresses.map(|it| it.spatial_locality)),
        optional(addresses.map(|it| it.temporal_locality)),
    ];
    Rows { fields: RECORD_FIELDS, rows: vec![row] }
}

fn lists(stat: &TraceStat) -> Vec<(&'static str, Rows)> {
    let share = |share| Cell::Number(share, 6);
    let ops = stat.ops.iter().map(|op| {
        let (requests, bytes) = (Cell::Count(op.requests), Cell::Count(op.requested_bytes));
        vec![Cell::Text(op.op.to_owned()), requests, share(op.share), bytes]
    });
    let tenants = stat.tenants.iter().map(|tenant| {
        vec![
            Cell::Count(u64::from(tenant.tenant)),
            Cell::Count(tenant.requests),
            share(tenant.share),
            Cell::Count(tenant.requested_bytes),
            Cell::Count(tenant.unique_keys),
            Cell::Count(tenant.working_set_bytes),
        ]
    });
    let near = stat.spatial.near.iter().map(|near| vec![Cell::Count(near.blocks), share(near.share)]);
    let popularity = stat
        .popularity
        .iter()
        .map(|point| vec![Cell::Count(point.rank), Cell::Count(u64::from(point.accesses))]);
    let growth = stat.growth.iter().map(|at| {
        let keys = [at.requests, at.time_ns, at.keys_total, at.bytes_total, at.keys_in_use, at.bytes_in_use];
        keys.into_iter().chain([at.keys_new]).map(Cell::Count).collect()
    });
    let known = || stat.distributions().into_iter().filter_map(|(name, d)| d.as_ref().map(|d| (name, d)));
    let rows = known().map(|(name, d)| {
        let counts = [d.p50, d.p90, d.p99, d.p999, d.max].map(Cell::Count);
        let head =
            [Cell::Text(name.to_owned()), Cell::Count(d.count), Cell::Count(d.min), Cell::Number(d.mean, 6)];
        head.into_iter().chain(counts).collect()
    });
    let buckets = known().flat_map(|(name, d)| {
        d.histogram.iter().map(move |bucket| {
            let counts = [bucket.from, bucket.to, bucket.count].map(Cell::Count);
            std::iter::once(Cell::Text(name.to_owned())).chain(counts).collect()
        })
    });
    let columns = stat.columns.iter().map(|column| {
        vec![Cell::Text(column.column.to_owned()), Cell::Count(column.min), Cell::Count(column.max)]
    });
    let column_values = stat.columns.iter().flat_map(|column| {
        let row = |value: &ValueStat| {
            let name = Cell::Text(column.column.to_owned());
            vec![name, Cell::Count(value.value), Cell::Count(value.requests), share(value.share)]
        };
        column.values.iter().map(row).collect::<Vec<_>>()
    });
    let of_columns = [
        ("columns", Rows { fields: COLUMN_FIELDS, rows: columns.collect() }),
        ("columns.values", Rows { fields: COLUMN_VALUE_FIELDS, rows: column_values.collect() }),
    ];
    let mut lists = vec![
        ("ops", Rows { fields: OP_FIELDS, rows: ops.collect() }),
        ("tenants", Rows { fields: TENANT_FIELDS, rows: tenants.collect() }),
        ("spatial.near", Rows { fields: NEAR_FIELDS, rows: near.collect() }),
        ("popularity", Rows { fields: POPULARITY_FIELDS, rows: popularity.collect() }),
        ("growth", Rows { fields: GROWTH_FIELDS, rows: growth.collect() }),
        ("distributions", Rows { fields: DISTRIBUTION_FIELDS, rows: rows.collect() }),
        ("histograms", Rows { fields: HISTOGRAM_FIELDS, rows: buckets.collect() }),
    ];
    // Most traces have none.
    lists.extend(of_columns.into_iter().filter(|_| !stat.columns.is_empty()));
    lists
}
