//! Fields of a row: the device's configuration and the results.

use tiermem_policy::prefetch::Named as Prefetcher;
use tiermem_sim::cxl_flash::config::Device;
use tiermem_sim::cxl_flash::outcome::{Counts, Outcome};

use crate::output::Cell;

/// The names, stable.
pub const FIELDS: &[&str] = &[
    "trace",
    "setting",
    "window",
    "start_ns",
    "cache_bytes",
    "cache_ways",
    "policy",
    "prefetch",
    "degree",
    "offset",
    "technology",
    "channels",
    "flash_ways",
    "mshr",
    "hint_percent",
    "hint_probability",
    "requests",
    "sub_us_percent",
    "mean_latency_ns",
    "p10_ns",
    "p25_ns",
    "p50_ns",
    "p75_ns",
    "p90_ns",
    "p95_ns",
    "p99_ns",
    "p999_ns",
    "p9999_ns",
    "max_ns",
    "queue_ns",
    "link_ns",
    "dram_ns",
    "flash_ns",
    "hits",
    "hits_under_miss",
    "misses",
    "mean_miss_latency_ns",
    "repeated_reads",
    "prefetches",
    "prefetch_accuracy",
    "prefetch_coverage",
    "prefetch_lateness",
    "prefetch_pollution",
    "hints",
    "flash_reads",
    "flash_writes",
    "flash_interarrival_ns",
    "log_hits",
    "gc_moves",
    "erases",
    "write_amplification",
    "wear_max",
    "wear_min",
    "lifetime_years",
    "lifetime_years_unamplified",
    "performance_per_dollar",
    "performance_per_dollar_all",
    "duration_ns",
    "simulated_requests_per_second",
];

/// The percentiles of [`FIELDS`].
const PERCENTILES: [f64; 9] = [10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99];

fn text(text: impl ToString) -> Cell {
    Cell::Text(text.to_string())
}

fn count(count: impl Into<u64>) -> Cell {
    Cell::Count(count.into())
}

/// A field that does not apply: null in JSON, empty elsewhere.
fn nothing() -> Cell {
    Cell::Number(f64::NAN, 0)
}

fn what(trace: &str, setting: &str, window: &str, start_ns: u64, device: &Device) -> Vec<Cell> {
    let config = &device.config;
    let (degree, offset) = match device.prefetcher {
        Prefetcher::NextN(parameters) => (count(parameters.degree), count(parameters.offset)),
        _ => (nothing(), nothing()),
    };
    vec![
        text(trace),
        text(setting),
        text(window),
        count(start_ns),
        count(config.cache.size.0),
        count(device.ways),
        text(device.policy),
        text(device.prefetcher),
        degree,
        offset,
        text(device.technology.name()),
        count(device.geometry.channels),
        count(device.geometry.ways),
        text(if config.mshr.enabled { "on" } else { "off" }),
        Cell::Number(config.hints.top_percent, 3),
        Cell::Number(config.hints.probability, 3),
    ]
}

/// The row of a whole trace; `seconds`: what the simulation took.
pub fn whole(trace: &str, setting: &str, device: &Device, outcome: &Outcome, seconds: f64) -> Vec<Cell> {
    let counts = &outcome.counts;
    let mut row = what(trace, setting, "all", 0, device);
    row.extend(head(counts));
    row.extend(PERCENTILES.map(|percent| count(outcome.percentile_ns(percent))));
    row.push(count(outcome.latency.max()));
    row.extend(body(counts));
    row.extend([
        count(counts.flash_reads),
        count(counts.flash_writes),
        Cell::Number(outcome.flash_interarrival_ns(), 1),
    ]);
    row.extend(tail(counts));
    let amplification = counts.write_amplification();
    row.extend([
        count(outcome.wear.0),
        count(outcome.wear.1),
        Cell::Number(outcome.lifetime_years(device, amplification), 3),
        Cell::Number(outcome.lifetime_years(device, 1.0), 3),
        Cell::Number(outcome.performance_per_dollar(device, false), 2),
        Cell::Number(outcome.performance_per_dollar(device, true), 2),
        count(outcome.duration_ns),
        Cell::Number(counts.requests as f64 / seconds, 0),
    ]);
    row
}

/// Takes the parts of the latency out of a row: the published simulator does not tell them.
pub fn leave_out_parts(row: &mut [Cell]) {
    for (field, cell) in FIELDS.iter().zip(row) {
        if ["queue_ns", "link_ns", "dram_ns", "flash_ns"].contains(field) {
            *cell = nothing();
        }
    }
}

/// The row of a window.
pub fn window(
    trace: &str,
    setting: &str,
    device: &Device,
    number: usize,
    start_ns: u64,
    counts: &Counts,
) -> Vec<Cell> {
    let mut row = what(trace, setting, &number.to_string(), start_ns, device);
    row.extend(head(counts));
    row.extend(std::iter::repeat_with(nothing).take(PERCENTILES.len() + 1));
    row.extend(body(counts));
    row.extend([count(counts.flash_reads), count(counts.flash_writes), nothing()]);
    row.extend(tail(counts));
    row.extend(std::iter::repeat_with(nothing).take(FIELDS.len() - row.len()));
    row
}

fn head(counts: &Counts) -> [Cell; 3] {
    [
        count(counts.requests),
        Cell::Number(counts.sub_us_percent(), 4),
        Cell::Number(counts.per_request(counts.answers.latency_ns), 1),
    ]
}

fn body(counts: &Counts) -> Vec<Cell> {
    let part = |sum: u64| Cell::Number(counts.per_request(sum), 1);
    vec![
        part(counts.answers.queue_ns),
        part(counts.answers.link_ns),
        part(counts.answers.dram_ns),
        part(counts.answers.flash_ns),
        count(counts.hits),
        count(counts.hits_under_miss),
        count(counts.misses),
        Cell::Number(counts.mean_miss_latency_ns(), 1),
        count(counts.repeated_reads),
        count(counts.prefetches),
        Cell::Number(counts.accuracy(), 4),
        Cell::Number(counts.coverage(), 4),
        Cell::Number(counts.lateness(), 4),
        Cell::Number(counts.pollution(), 4),
        count(counts.hints),
    ]
}

fn tail(counts: &Counts) -> [Cell; 4] {
    [
        count(counts.log_hits),
        count(counts.moves),
        count(counts.erases),
        Cell::Number(counts.write_amplification(), 4),
    ]
}
