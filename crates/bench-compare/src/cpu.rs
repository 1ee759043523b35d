//! Processor time of the server per request, compared with Redis's.
//!
//! Where the client is the bottleneck, throughput says nothing about the server; its
//! processor time per request does. Both servers run during the whole comparison; each
//! pair of measurements drives one right after the other, with alternating order.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::Common;
use crate::client::Client;
use crate::output::{Cell, Rows, print_record};
use crate::server::{Kind, Server, pinned, shown};
use crate::summary::{command_rows, median};

/// The fields of one result.
const FIELDS: &[&str] = &[
    "command",
    "pipeline",
    "redis_us",
    "tiermem_us",
    "cpu_ratio",
    "cpu_ratio_low",
    "cpu_ratio_high",
    "redis_user_us",
    "tiermem_user_us",
    "redis_rps",
    "tiermem_rps",
    "throughput_ratio",
    "redis_p99_us",
    "tiermem_p99_us",
    "p99_ratio",
];
/// Requests of one measurement at a pipeline of one, and at deeper ones, where each costs a tenth.
const REQUESTS_FLAT: u64 = 300_000;
const REQUESTS_DEEP: u64 = 3_000_000;

/// Options of `cpu`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Interleaved pairs that count; one more warms up.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Bytes of a value.
    #[arg(long, value_name = "N", default_value_t = 100)]
    value_bytes: usize,
    /// Requests that a client sends before it waits for replies.
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [1, 16])]
    pipelines: Vec<u32>,
    /// Requests of one measurement [default: 300000 at a pipeline of 1, else 3000000].
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Keys, all of them set before the measurements begin.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    keys: u64,
    /// Connections.
    #[arg(long, value_name = "N", default_value_t = 50)]
    connections: u32,
    /// The program that drives both servers.
    #[arg(long, value_name = "PATH", default_value = "redis-benchmark")]
    redis_benchmark: PathBuf,
    /// The core that clients run on.
    #[arg(long, value_name = "N", default_value_t = 1)]
    client_core: usize,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
struct Sample {
    us: f64,
    user_us: f64,
    rps: f64,
    p99_us: f64,
}

/// The measurements of one pair.
#[derive(Clone, Copy, Debug)]
struct Pair {
    redis: Sample,
    tiermem: Sample,
}

/// Measures and prints.
pub fn run(options: &Options) -> Result<()> {
    let mut commands = Vec::new();
    let mut servers = Vec::new();
    for kind in Kind::BOTH {
        let server = Server::start(kind, &options.common)?;
        commands.push(server.command().to_owned());
        Client::connect(server.port())?.fill(options.keys, options.value_bytes)?;
        servers.push(server);
    }
    let [redis, tiermem] = &servers[..] else { bail!("two servers are compared") };
    let tests: Vec<(u32, &str)> =
        options.pipelines.iter().flat_map(|&pipeline| ["set", "get"].map(|test| (pipeline, test))).collect();
    let progress = ProgressBar::new(tests.len() as u64 * u64::from(options.pairs + 1));
    progress.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} pairs, {eta} left")?);
    let mut pairs = vec![Vec::new(); tests.len()];
    for round in 0..=options.pairs {
        for (&(pipeline, test), pairs) in tests.iter().zip(&mut pairs) {
            let mut measure = |server| measure(options, server, test, pipeline, &mut commands);
            let pair = if round % 2 == 0 {
                let redis = measure(redis)?;
                Pair { redis, tiermem: measure(tiermem)? }
            } else {
                let tiermem = measure(tiermem)?;
                Pair { redis: measure(redis)?, tiermem }
            };
            // The first round warms up.
            if round > 0 {
                pairs.push(pair);
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let rows =
        tests.iter().zip(&pairs).map(|(&(pipeline, test), pairs)| row(test, pipeline, pairs)).collect();
    let record = Rows {
        fields: &["pairs", "value_bytes", "keys", "connections"],
        rows: vec![vec![
            Cell::Count(options.pairs.into()),
            Cell::Count(options.value_bytes as u64),
            Cell::Count(options.keys),
            Cell::Count(options.connections.into()),
        ]],
    };
    let lists = [("results", Rows { fields: FIELDS, rows }), ("commands", command_rows(&commands))];
    Ok(print_record(options.common.format, &record, &lists)?)
}

/// Drives one server once.
fn measure(
    options: &Options,
    server: &Server,
    test: &str,
    pipeline: u32,
    commands: &mut Vec<String>,
) -> Result<Sample> {
    let requests = options.requests.unwrap_or(if pipeline == 1 { REQUESTS_FLAT } else { REQUESTS_DEEP });
    let mut command = pinned(options.client_core, &options.redis_benchmark);
    command.args(["-p", &server.port().to_string(), "-t", test, "-d", &options.value_bytes.to_string()]);
    command.args(["-r", &options.keys.to_string(), "-n", &requests.to_string()]);
    command.args(["-c", &options.connections.to_string(), "-P", &pipeline.to_string(), "--csv"]);
    let shown = shown(&command);
    let before = server.cpu_time()?;
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("start {shown}"))?;
    let used = server.cpu_time()?.since(before);
    if !output.status.success() {
        bail!("{shown} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let told = |column| told(&text, test, column).with_context(|| format!("{shown} answered {text:?}"));
    let (rps, p99_us) = (told("rps")?, told("p99_latency_ms")? * 1000.0);
    commands.push(shown);
    let us = |seconds: f64| seconds * 1e6 / requests as f64;
    Ok(Sample { us: us(used.total_s()), user_us: us(used.user_s), rps, p99_us })
}

/// A column of a test in the CSV of `redis-benchmark`.
fn told(csv: &str, test: &str, column: &str) -> Option<f64> {
    let mut lines = csv.lines().map(|line| line.split(',').map(|field| field.trim_matches('"')));
    let at = lines.next()?.position(|name| name == column)?;
    let mut line =
        lines.find(|line| line.clone().next().is_some_and(|name| name.eq_ignore_ascii_case(test)))?;
    line.nth(at)?.parse().ok()
}

fn row(test: &str, pipeline: u32, pairs: &[Pair]) -> Vec<Cell> {
    let of_both = |value: fn(&Sample) -> f64| {
        (
            median(pairs.iter().map(|pair| value(&pair.redis))),
            median(pairs.iter().map(|pair| value(&pair.tiermem))),
        )
    };
    let ratios: Vec<f64> = pairs.iter().map(|pair| pair.tiermem.us / pair.redis.us).collect();
    let (redis_us, tiermem_us) = of_both(|sample| sample.us);
    let (redis_user_us, tiermem_user_us) = of_both(|sample| sample.user_us);
    let (redis_rps, tiermem_rps) = of_both(|sample| sample.rps);
    let (redis_p99_us, tiermem_p99_us) = of_both(|sample| sample.p99_us);
    vec![
        Cell::Text(test.to_uppercase()),
        Cell::Count(pipeline.into()),
        Cell::Number(redis_us, 3),
        Cell::Number(tiermem_us, 3),
        Cell::Number(median(ratios.iter().copied()), 3),
        Cell::Number(ratios.iter().copied().fold(f64::INFINITY, f64::min), 3),
        Cell::Number(ratios.iter().copied().fold(0.0, f64::max), 3),
        Cell::Number(redis_user_us, 3),
        Cell::Number(tiermem_user_us, 3),
        Cell::Number(redis_rps, 0),
        Cell::Number(tiermem_rps, 0),
        Cell::Number(median(pairs.iter().map(|pair| pair.tiermem.rps / pair.redis.rps)), 3),
        Cell::Number(redis_p99_us, 0),
        Cell::Number(tiermem_p99_us, 0),
        Cell::Number(median(pairs.iter().map(|pair| pair.tiermem.p99_us / pair.redis.p99_us)), 3),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_line_of_the_test_and_the_column_of_their_name() {
        let csv =
            "\"test\",\"rps\",\"p99_latency_ms\"\n\"SET\",\"80000.50\",\"0.3\"\n\"GET\",\"90000\",\"0.2\"\n";
        assert_eq!(told(csv, "set", "rps"), Some(80000.5));
        assert_eq!(told(csv, "get", "rps"), Some(90000.0));
        assert_eq!(told(csv, "get", "p99_latency_ms"), Some(0.2));
        assert_eq!(told(csv, "incr", "rps"), None);
        assert_eq!(told(csv, "set", "p50_latency_ms"), None);
    }

    #[test]
    fn a_row_has_every_field_and_the_range_of_the_ratios() {
        let sample = |us| Sample { us, user_us: 0.5, rps: 1000.0, p99_us: 500.0 };
        let pairs = [(10.0, 8.0), (10.0, 9.0), (10.0, 12.0)]
            .map(|(redis, tiermem)| Pair { redis: sample(redis), tiermem: sample(tiermem) });
        let row = row("set", 16, &pairs);
        assert_eq!(row.len(), FIELDS.len());
        let numbers = [0.9, 0.8, 1.2].map(|ratio| Cell::Number(ratio, 3));
        assert_eq!(row[4..7], numbers);
    }
}
