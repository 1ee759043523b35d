//! `tiermem store replay`: drives a server with a trace.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tiermem_store::replay::{self, Address, Outcome, ReplayError, TierShare};
use tiermem_trace::{ReadOptions, Spec, Trace, TraceError};

use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};

const FIELDS: &[&str] =
    &["requests", "hits", "hit_ratio", "requests_per_second", "p50_us", "p99_us", "p999_us"];
const TIER_FIELDS: &[&str] = &["name", "hits", "hit_share", "promotions", "demotions", "evictions"];

const HELP: &str = "\
Example:
  tiermem store replay twitter_cluster52.csv.zst --to 127.0.0.1:7379
  tiermem store replay zipf:alpha=0.99,objects=1M,requests=10M,size=64-1024 --to unix:store.sock

TRACE is a file (Twitter text or oracleGeneral, plain or .zst), or a generator:
  zipf     alpha, objects, requests, size, seed, scramble
  uniform  objects, requests, size, seed
  scan     objects, requests, size, seed
  phase    alpha, objects, requests, size, seed

Fields:
  requests             requests of the trace that were answered
  hits                 look-ups that found their key
  hit_ratio            hits over look-ups
  requests_per_second  over wall time; SETs after misses are not counted
  p50_us ... p999_us   latency of GETs, from handing the command to the socket until its reply is read:
                       closed loop, so with a pipeline it includes waiting behind the commands before it
For a server with tiers also, for each tier, what happened during the replay:
  name, hits, hit_share (hits over look-ups), promotions, demotions, evictions";

/// What `tiermem store replay` takes.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// A trace file, or a generator such as zipf:alpha=0.99,objects=1M.
    #[arg(value_name = "TRACE", value_parser = trace_argument)]
    trace: String,
    /// The server: HOST:PORT or unix:PATH. Any server that speaks RESP.
    #[arg(long, value_name = "ADDR")]
    to: Address,
    /// Connections; a key always goes to the same one.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Commands under way on each connection.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pipeline: u32,
    /// The server's password.
    #[arg(long, value_name = "PASS")]
    auth: Option<String>,
    /// Stop after so many requests.
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Multiply the size of every value by this.
    #[arg(long, value_name = "F", default_value_t = 1.0, value_parser = scale)]
    value_scale: f64,
    /// Pass over up to N broken records of the trace.
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip_bad: u64,
    /// The format of the trace file, where it cannot be guessed: twitter or oracle-general.
    #[arg(long, value_name = "FORMAT")]
    trace_format: Option<tiermem_trace::Format>,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// A description of a generator is checked here, where a mistake counts as wrong use.
fn trace_argument(text: &str) -> Result<String, String> {
    if Spec::looks_like_one(text) {
        text.parse::<Spec>().map_err(|error| error.to_string())?;
    }
    Ok(text.to_owned())
}

fn scale(text: &str) -> Result<f64, String> {
    let scale = text.parse::<f64>().ok().filter(|scale| scale.is_finite() && *scale >= 0.0);
    scale.ok_or_else(|| "a factor is a number from 0 on, such as 10 or 0.5".to_owned())
}

/// Replays the trace and prints what came of it.
pub fn run(options: Options) -> Result<(), Failure> {
    let read = ReadOptions { format: options.trace_format, skip_bad: options.skip_bad };
    let trace = tiermem_trace::open_with(&options.trace, &read).map_err(advise_on_trace)?;
    // The driver takes the trace's records while the progress bar asks how far it is; one thread does both.
    let trace = Rc::new(RefCell::new(trace));
    let records = trace.clone();
    let records = std::iter::from_fn(move || records.borrow_mut().next());

    let bar = progress_bar(&trace.borrow(), options.requests);
    let driver = replay::Options {
        to: options.to,
        connections: options.connections as usize,
        pipeline: options.pipeline as usize,
        auth: options.auth,
        requests: options.requests,
        value_scale: options.value_scale,
    };
    let mut progress = |answered| show_progress(&bar, &trace.borrow(), options.requests, answered);
    let result = replay::run(&driver, records, &mut progress);
    bar.finish_and_clear();
    let outcome = result.map_err(advise)?;

    print(options.format, &outcome).map_err(Failure::failed)?;
    let skipped = trace.borrow().skipped();
    if skipped > 0 {
        eprintln!("tiermem: broken records of the trace that were passed over: {skipped}");
    }
    match (outcome.errors, &outcome.first_error) {
        (0, _) | (_, None) => Ok(()),
        (errors, Some(first)) => Err(Failure::failed(anyhow!(
            "the server answered {errors} commands with an error, the first: {first}"
        ))),
    }
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

/// A bar over the requests where their number is known, over the file's bytes where not. It is drawn on standard
/// error and only if that is a terminal.
fn progress_bar(trace: &Trace, limit: Option<u64>) -> ProgressBar {
    let bar = ProgressBar::new(expected(trace, limit).unwrap_or(0));
    let template = "{bar:40} {percent:>3}%  {msg}  {eta} left";
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

fn expected(trace: &Trace, limit: Option<u64>) -> Option<u64> {
    match (trace.len_hint(), limit) {
        (Some(len), Some(limit)) => Some(len.min(limit)),
        (len, limit) => len.or(limit),
    }
}

fn show_progress(bar: &ProgressBar, trace: &Trace, limit: Option<u64>, answered: u64) {
    // Parts per thousand of the file stand in for requests whose number nobody knows.
    const SHARES: f64 = 1000.0;
    match (expected(trace, limit), trace.share_read()) {
        (Some(_), _) | (None, None) => bar.set_position(answered),
        (None, Some(share)) => {
            bar.set_length(SHARES as u64);
            bar.set_position((share * SHARES) as u64);
        }
    }
    bar.set_message(format!("{answered} requests, {:.0}/s", answered as f64 / bar.elapsed().as_secs_f64()));
}

/// What went wrong with the trace, and how to mend it.
fn advise_on_trace(error: TraceError) -> Failure {
    let advice = match &error {
        TraceError::UnknownFormat { .. } => "; say which with --trace-format",
        TraceError::Record { .. } => "; --skip-bad N passes over N such records",
        _ => "",
    };
    Failure::failed(anyhow!("{error}{advice}"))
}

/// What went wrong on the way, and how to mend it.
fn advise(error: ReplayError) -> Failure {
    let advice = match &error {
        ReplayError::Connect { .. } => "; is the server running there?",
        ReplayError::Auth(_) => "; give the password with --auth",
        ReplayError::Garbage(_) | ReplayError::Unexpected { .. } => "; is this a RESP server's port?",
        ReplayError::ValueTooLarge { .. } => "; choose a smaller --value-scale",
        ReplayError::Trace(source) => {
            return match source.downcast_ref::<TraceError>() {
                Some(TraceError::Record { .. }) => {
                    Failure::failed(anyhow!("{source}; --skip-bad N passes over N such records"))
                }
                _ => Failure::failed(anyhow!("{source}")),
            };
        }
        _ => "",
    };
    Failure::failed(anyhow!("{error}{advice}"))
}
