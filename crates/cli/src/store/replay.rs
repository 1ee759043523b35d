//! `tiermem store replay`: drives a server with a trace.

use anyhow::anyhow;
use clap::Args;
use tiermem_live::Pace;
use tiermem_store::replay::{self, Address, Outcome, ReplayError, TierShare};
use tiermem_trace::TraceError;

use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::source::{TraceArgs, advise_on_trace};

const FIELDS: &[&str] = &[
    "requests",
    "hits",
    "hit_ratio",
    "requests_per_second",
    "p50_us",
    "p99_us",
    "p999_us",
    "p9999_us",
    "max_us",
];
const TIER_FIELDS: &[&str] = &["name", "hits", "hit_share", "promotions", "demotions", "evictions"];

const HELP: &str = "\
Example:
  tiermem store replay twitter_cluster52.csv.zst --to 127.0.0.1:7379
  tiermem store replay zipf:alpha=0.99,objects=1M,requests=10M,size=64-1024 --to unix:store.sock
  tiermem store replay ycsb-a:objects=1M,requests=10M --to 127.0.0.1:7379 --rate 50000

Fields:
  requests             requests of the trace that were answered
  hits                 look-ups that found their key
  hit_ratio            hits over look-ups
  requests_per_second  over wall time; SETs after misses are not counted
  p50_us ... p9999_us, max_us
                       latency of GETs until the reply is read. In a closed loop (the default) it starts when the command
                       is written to the socket; with a pipeline it includes waiting for earlier commands. With --rate
                       or --speed it starts when the request was due, so delays by an earlier slow reply count
For a server with tiers, also for each tier, during the replay:
  name, hits, hit_share (hits over look-ups), promotions, demotions, evictions";

/// Options of `tiermem store replay`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    trace: TraceArgs,
    /// The server: HOST:PORT or unix:PATH. Any server that speaks RESP.
    #[arg(long, value_name = "ADDR")]
    to: Address,
    /// Number of connections; a key always uses the same one.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Open loop: send this many requests per second at even intervals, whenever replies come.
    #[arg(long, value_name = "N", value_parser = above_zero, conflicts_with = "speed")]
    rate: Option<f64>,
    /// Open loop: send requests at the times of the trace, X times as fast.
    #[arg(long, value_name = "X", value_parser = above_zero)]
    speed: Option<f64>,
    /// Commands in flight on each connection.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pipeline: u32,
    /// The server's password.
    #[arg(long, value_name = "PASS")]
    auth: Option<String>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Replays the trace and prints the results.
pub fn run(options: Options) -> Result<(), Failure> {
    let source = options.trace.open()?;
    let records = source.raw_records();
    let driver = replay::Options {
        to: options.to,
        connections: options.connections as usize,
        pace: match (options.rate, options.speed) {
            (Some(per_second), _) => Pace::Rate(per_second),
            (None, Some(times)) => Pace::Speed(times),
            (None, None) => Pace::Closed,
        },
        pipeline: options.pipeline as usize,
        auth: options.auth,
        requests: options.trace.reading.requests,
        value_scale: options.trace.reading.value_scale,
    };
    let mut progress = |answered| source.progress(answered);
    let result = replay::run(&driver, records, &mut progress);
    let outcome = result.map_err(advise)?;

    print(options.format, &outcome).map_err(Failure::failed)?;
    source.finish();
    match (outcome.errors, &outcome.first_error) {
        (0, _) | (_, None) => Ok(()),
        (errors, Some(first)) => Err(Failure::failed(anyhow!(
            "the server answered {errors} commands with an error, the first: {first}"
        ))),
    }
}

fn above_zero(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if number.is_finite() && number > 0.0 { Ok(number) } else { Err("must be above 0".to_owned()) }
}

fn print(format: Format, outcome: &Outcome) -> std::io::Result<()> {
    let record = Rows {
        fields: FIELDS,
        rows: vec![vec![
            Cell::Count(outcome.requests),
            Cell::Count(outcome.hits),
            Cell::Number(outcome.hit_ratio(), 6),
            Cell::Number(outcome.requests_per_second(), 0),
            Cell::Number(outcome.latency_us(0.5), 1),
            Cell::Number(outcome.latency_us(0.99), 1),
            Cell::Number(outcome.latency_us(0.999), 1),
            Cell::Number(outcome.latency_us(0.9999), 1),
            Cell::Number(outcome.latency_us(1.0), 1),
        ]],
    };
    let tier = |tier: &TierShare| {
        vec![
            Cell::Text(tier.name.clone()),
            Cell::Count(tier.hits),
            Cell::Number(tier.hit_share, 6),
            Cell::Count(tier.promotions),
            Cell::Count(tier.demotions),
            Cell::Count(tier.evictions),
        ]
    };
    let rows = |tiers: &Vec<TierShare>| Rows { fields: TIER_FIELDS, rows: tiers.iter().map(tier).collect() };
    let lists: Vec<_> = outcome.tiers.iter().map(|tiers| ("tiers", rows(tiers))).collect();
    output::print_record(format, &record, &lists)
}

/// Failure for an error during the replay, and how to fix it.
fn advise(error: ReplayError) -> Failure {
    let advice = match &error {
        ReplayError::Connect { .. } => "; is the server running there?",
        ReplayError::Auth(_) => "; give the password with --auth",
        ReplayError::Garbage(_) | ReplayError::Unexpected { .. } => "; is this a RESP server's port?",
        ReplayError::ValueTooLarge { .. } => "; choose a smaller --value-scale",
        ReplayError::Trace(source) => {
            return match source.downcast_ref::<TraceError>() {
                Some(error) => advise_on_trace(error),
                None => Failure::failed(anyhow!("{source}")),
            };
        }
        _ => "",
    };
    Failure::failed(anyhow!("{error}{advice}"))
}
