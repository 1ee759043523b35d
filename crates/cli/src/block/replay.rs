//! `tiermem block replay`: drives NBD servers with a trace.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use clap::Args;
use tiermem_block::replay::{self, End, LayoutError, Outcome, ReplayError, Survey, Target};
use tiermem_live::Pace;

use super::replay_print::{in_words, print};
use super::replay_targets::{To, targets};
use crate::failure::Failure;
use crate::output::Format;
use crate::source::TraceArgs;

const HELP: &str = "\
Examples:
  tiermem block replay volume.csv --to 'nbd+unix:///disk?socket=/run/nbd.sock' --verify
  tiermem block replay hm_0.csv.gz --to nbd://10.0.0.5/hm --speed timed --workers 64
  tiermem block replay cloud.vscsi.zst --to 'nbd://localhost/disk-{volume}' --wrap --format json

Keys of the trace are byte offsets, sizes are lengths, tenants are volumes. The content of the exports is overwritten.

Fields, for all exports together and then, in csv and json, for each:
  requests, reads, writes   completed requests, without --warm-up
  read_bytes, written_bytes
  seconds, requests_per_second, mb_per_second
                            wall time from the first measured request to the last reply; a MB has 10^6 bytes
  read_mean_us, _p50_us, _p99_us, _p999_us, _max_us, and write_... alike
                            latency until the whole reply is read: with --speed all-at-once from sending the request, otherwise from
                            when it was due, so delays by an earlier slow request count
  late_mean_us, late_p99_us, late_max_us
                            how long after it was due a request was sent (all workers busy, or an overlapping request in flight)
  widened                   requests that were enlarged to align with sectors or the export's minimum block size
  wrapped                   requests beyond the export's end, moved by --wrap
  errors                    failed requests, warm-up included
  mismatches                with --verify: sectors of 512 bytes with wrong content, each time they were read
  connections               to the servers
  skipped                   records of zero bytes, or that neither read nor write (only for all exports together)
  export, volumes           for each export: its URI, and the volumes of the trace in it
Then the first mismatches: export, volume, op, offset, bytes, expected, found.
Exit code: 0 no errors, 1 errors, mismatches or a lost server, 2 wrong usage. Ctrl-C ends the replay and prints what was done
until then.";

const TO_HELP: &str = "\
Target: nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH

  URI                  all volumes of the trace, one after the other
  URI with {volume}    an export per volume: {volume} in its name is replaced by the volume's number
  N=URI                the export of volume N; repeat it for each. Volumes with the same export lie in it one after the other";

/// Options of `tiermem block replay`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    trace: TraceArgs,
    /// Target: an NBD URI, one with {volume} in the export's name, or N=URI for each volume.
    #[arg(long, value_name = "URI", required = true, long_help = TO_HELP)]
    to: Vec<To>,
    /// Requests in flight. Each worker has a connection of its own if the export allows several, up to 64.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    /// When to send requests: all-at-once (when a worker is free), timed (at the times of the trace), or X (X times as fast).
    #[arg(long, value_name = "WHEN", default_value = "all-at-once", value_parser = pace)]
    speed: Pace,
    /// Verify what is read: written data must come back, and data that was never written must not change.
    #[arg(long)]
    verify: bool,
    /// Send the first N requests without measuring them.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = crate::trace::count)]
    warm_up: u64,
    /// Take offsets beyond an export's end modulo its size.
    #[arg(long)]
    wrap: bool,
    /// Number that distinguishes this run's writes from earlier ones [default: the time].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

fn pace(text: &str) -> Result<Pace, String> {
    let times = match text {
        "all-at-once" => return Ok(Pace::Closed),
        "timed" => Some(1.0),
        times => times.parse::<f64>().ok().filter(|times| (1e-6..=1e9).contains(times)),
    };
    times
        .map(Pace::Speed)
        .ok_or_else(|| format!("{text:?} is none of all-at-once, timed and a number above 0, such as 10"))
}

/// Replays the trace and prints the results.
pub fn run(options: &Options) -> Result<(), Failure> {
    let survey = survey(options)?;
    let requests: u64 = survey.volumes.values().map(|volume| volume.requests).sum();
    if options.warm_up > 0 && options.warm_up >= requests {
        let warm_up = options.warm_up;
        return Err(Failure::usage(anyhow!(
            "--warm-up {warm_up} leaves nothing to measure of the trace's {requests} requests"
        )));
    }
    if matches!(options.speed, Pace::Speed(_)) && survey.last_ns == 0 && survey.records > 1 {
        return Err(Failure::usage(anyhow!(
            "{}: all of the trace's requests have the same time; replay it with --speed all-at-once",
            options.trace.trace
        )));
    }
    let targets = targets(&options.to, &survey)?;
    let driver = replay::Options {
        workers: options.workers as usize,
        pace: options.speed,
        warm_up: options.warm_up,
        wrap: options.wrap,
        verify: options.verify,
        seed: options.seed.unwrap_or_else(seed_of_now),
        ..replay::Options::new(targets)
    };
    let interrupt = crate::interrupt::watch();
    let source = options.trace.open()?;
    let unreadable = RefCell::new(None);
    let records = source.records().map(|record| {
        record.map_err(|failure| {
            unreadable.replace(Some(failure));
            std::io::Error::other("the trace cannot be read")
        })
    });
    let mut progress = |done| source.progress(done);
    let outcome = replay::run(&driver, &survey, records, &mut progress, &|| interrupt.is_set());
    source.finish();
    let outcome = outcome.map_err(|error| unreadable.take().unwrap_or_else(|| advise(&error)))?;
    print(options.format, &driver.targets, &outcome)
        .map_err(|error| Failure::writing("the result", error))?;
    verdict(&driver.targets, &outcome)
}

/// Reads the trace once: where each volume ends must be known before the first request, so that a trace that does not fit writes nothing.
fn survey(options: &Options) -> Result<Survey, Failure> {
    let source = options.trace.open()?;
    let mut survey = Survey::default();
    for access in source.records() {
        survey.add(&access?);
    }
    // The second reading reports skipped records.
    source.clear();
    Ok(survey)
}

/// Differs from run to run.
fn seed_of_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Whether it was a success.
fn verdict(targets: &[Target], outcome: &Outcome) -> Result<(), Failure> {
    if outcome.end == End::Stopped {
        eprintln!("tiermem: ended by a signal; this is what was done until then");
    }
    let mut words = Vec::new();
    if let End::Broken { under_way, why } = &outcome.end {
        words.push(format!(
            "{why}; {under_way} requests were under way, and the rest of the trace was not sent: is the server still running?"
        ));
    }
    let total = outcome.total();
    if total.errors > 0 || total.mismatches > 0 {
        words.push(format!("{} requests failed, {} sectors differ", total.errors, total.mismatches));
    }
    if let Some(first) = outcome.complaints.first() {
        let uri = targets.get(first.export).map(|target| target.uri.to_string()).unwrap_or_default();
        words.push(format!("the first: {uri}, {}", in_words(first)));
    }
    match outcome.is_clean() {
        true => Ok(()),
        false => Err(Failure::failed(anyhow!("{}", words.join("; ")))),
    }
}

/// Why there is no replay, and how to mend it.
fn advise(error: &ReplayError) -> Failure {
    let advice = match error {
        ReplayError::Layout(LayoutError::TooSmall { .. }) => {
            "; take a larger export, or bring what lies beyond its end in with --wrap"
        }
        ReplayError::Layout(LayoutError::NoExport(_)) => "; give it one with --to N=URI",
        ReplayError::Layout(LayoutError::TwoExports(_)) => "; give it --to once",
        _ => "",
    };
    let told = anyhow!("{error}{advice}");
    match error {
        ReplayError::Layout(LayoutError::NoExport(_) | LayoutError::TwoExports(_)) => Failure::usage(told),
        _ => Failure::failed(told),
    }
}
