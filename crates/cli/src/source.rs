//! TRACE argument of many commands: opening it, limiting it, and showing progress.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tiermem_base::Access;
use tiermem_trace::{
    Addresses, OptionalColumn, OptionalRow, OptionalSet, ReadOptions, Spec, Trace, TraceError,
};

use crate::failure::Failure;

/// The generators, for help texts; they are described in full in `docs/generators.md`.
pub const GENERATORS_HELP: &str = "\
A generator such as zipf:alpha=0.99,objects=1M

Generators and their keys:
  zipf               alpha, objects, requests, size, seed, scramble
  uniform            objects, requests, size, seed
  scan               objects, requests, size, seed: keys in ascending order, repeatedly
  loop               objects, requests, size, seed: the same in a shuffled order
  streams            alpha, objects, length, requests, size, seed: files of `length` keys, each read sequentially
  phase              alpha, alpha-then, objects, requests, size, seed: the hot keys change at half of the requests, and the skew
                     to alpha-then
  ycsb-a to ycsb-f   objects, requests, size, seed: YCSB's core workloads
  mix                requests, seed: several tenants, 'mix:0.7*zipf(alpha=0.9)+0.3*scan(objects=10k),requests=5M'

Sizes: 300, 4KiB, 64-1024, 'lognormal(300,1.2)', 'pareto(64,1.5)', 'choice(64:0.7,4KiB:0.3)'
Quote descriptions with parentheses.";

/// Requests between two looks at the bar.
const BAR_EVERY: u64 = 1 << 16;

/// Which trace, and how much of it.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// A trace file, or a generator such as zipf:alpha=0.99,objects=1M.
    #[arg(value_name = "TRACE", value_parser = trace_argument, long_help = trace_help())]
    pub trace: String,
    #[command(flatten)]
    pub reading: Reading,
}

/// How traces are read, and how much of each.
#[derive(Clone, Debug, Args)]
pub struct Reading {
    /// Stop after this many requests.
    #[arg(long, value_name = "N", value_parser = crate::trace::count)]
    pub requests: Option<u64>,
    /// Multiply the size of every value by this.
    #[arg(long, value_name = "F", default_value_t = 1.0, value_parser = scale)]
    pub value_scale: f64,
    /// Skip up to N broken records of the trace.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip_bad: u64,
    /// Format of the trace file, if it is not detected.
    #[arg(long, value_name = "FORMAT", long_help = format_help())]
    pub trace_format: Option<tiermem_trace::Format>,
    /// Columns of a text file: key=2,size=3,time=1,unit=ms,...
    #[arg(long, value_name = "COLUMNS", long_help = COLUMNS_HELP)]
    pub columns: Option<tiermem_trace::CsvColumns>,
    /// Address that is the key of a memory trace: virtual, or physical if `tiermem record --physical` wrote it.
    #[arg(long, value_name = "WHICH", default_value = "virtual")]
    pub addresses: Addresses,
}

impl Default for Reading {
    fn default() -> Self {
        Reading {
            requests: None,
            value_scale: 1.0,
            skip_bad: 0,
            trace_format: None,
            columns: None,
            addresses: Addresses::Virtual,
        }
    }
}

const COLUMNS_HELP: &str = "\
Columns of a text file, counted from 1, such as key=2,size=3,time=1,unit=ms,header

  key, time, op, size, tenant, key-size, ttl   number of the column; key is required
  unit=s|ms|us|ns|filetime                     of the time (default s)
  delimiter=comma|semicolon|tab|space|pipe|blanks";

/// The formats and what they are, a line each.
fn format_help() -> String {
    let line = |format: tiermem_trace::Format| format!("\n  {:16} {}", format.name(), format.about());
    let lines: String = tiermem_trace::Format::all().map(line).collect();
    format!("Format of the trace file, if it is not detected from its name and content\n{lines}")
}

fn trace_help() -> String {
    format!(
        "A trace file (plain or .gz, .zst, .xz, .bz2; formats: see --trace-format), or a generator.\n\n{GENERATORS_HELP}"
    )
}

/// A description of a generator is checked here, where a mistake counts as wrong use.
pub fn trace_argument(text: &str) -> Result<String, String> {
    if Spec::looks_like_one(text) {
        text.parse::<Spec>().map_err(|error| error.to_string())?;
    }
    Ok(text.to_owned())
}

fn scale(text: &str) -> Result<f64, String> {
    let scale = text.parse::<f64>().ok().filter(|scale| scale.is_finite() && *scale >= 0.0);
    scale.ok_or_else(|| "a factor is a number from 0 on, such as 10 or 0.5".to_owned())
}

/// A sampling rate, or another share that is not 0.
pub fn sample_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| *rate > 0.0 && *rate <= 1.0);
    rate.ok_or_else(|| "a share is above 0 and at most 1, such as 0.01".to_owned())
}

/// The K of K-LRU.
pub fn positive_k(text: &str) -> Result<f64, String> {
    let k = text.parse::<f64>().ok().filter(|k| k.is_finite() && *k >= 1.0);
    k.ok_or_else(|| "K is a number from 1 on, such as 5 or 2.5".to_owned())
}

impl TraceArgs {
    /// The whole of a trace as it is.
    pub fn of(trace: String) -> Self {
        TraceArgs { trace, reading: Reading::default() }
    }

    /// The same trace, but for how many of its requests.
    pub fn with_requests(&self, requests: Option<u64>) -> Self {
        TraceArgs { trace: self.trace.clone(), reading: Reading { requests, ..self.reading.clone() } }
    }

    /// Opens the trace itself, as it is.
    pub fn open_trace(&self) -> Result<Trace, Failure> {
        self.try_open().map_err(|error| advise_on_trace(&error))
    }

    /// Opens the trace, for callers that report the error themselves.
    pub fn try_open(&self) -> Result<Trace, TraceError> {
        self.try_open_with(OptionalSet::NONE)
    }

    fn try_open_with(&self, optional: OptionalSet) -> Result<Trace, TraceError> {
        let read = ReadOptions {
            format: self.reading.trace_format,
            skip_bad: self.reading.skip_bad,
            columns: self.reading.columns.clone(),
            addresses: self.reading.addresses,
            optional,
            ..ReadOptions::default()
        };
        tiermem_trace::open_with(&self.trace, &read)
    }

    /// Opens the trace and puts up a progress bar.
    pub fn open(&self) -> Result<Source, Failure> {
        self.open_with(OptionalSet::NONE)
    }

    /// The same, with those of these columns that the trace has. Where physical addresses are the keys, the column of frames has
    /// gone into them.
    pub fn open_with(&self, optional: OptionalSet) -> Result<Source, Failure> {
        let is_left = |column: &OptionalColumn| {
            self.reading.addresses == Addresses::Virtual || *column != OptionalColumn::Frame
        };
        let optional = optional.columns().filter(is_left).collect();
        let trace = self.try_open_with(optional).map_err(|error| advise_on_trace(&error))?;
        let Reading { requests: limit, value_scale: scale, .. } = self.reading;
        let bar = progress_bar(&trace, limit);
        // The consumer of the records also shows the progress; one thread does both.
        Ok(Source { trace: Rc::new(RefCell::new(trace)), limit, scale, bar })
    }
}

/// An open trace and its progress bar.
#[derive(Debug)]
pub struct Source {
    trace: Rc<RefCell<Trace>>,
    limit: Option<u64>,
    scale: f64,
    bar: ProgressBar,
}

impl Source {
    /// The records as they are in the trace.
    pub fn raw_records(&self) -> impl Iterator<Item = Result<Access, TraceError>> + use<> {
        let trace = self.trace.clone();
        std::iter::from_fn(move || trace.borrow_mut().next())
    }

    /// The records that were asked for, their values scaled, moving the bar on.
    pub fn records(&self) -> impl Iterator<Item = Result<Access, Failure>> + '_ {
        let limit = self.limit.map_or(usize::MAX, |limit| limit as usize);
        (0u64..).zip(self.raw_records().take(limit)).map(move |(number, record)| {
            if number % BAR_EVERY == 0 {
                self.progress(number);
            }
            let access = record.map_err(|error| advise_on_trace(&error))?;
            Ok(Access { size: (f64::from(access.size) * self.scale) as u32, ..access })
        })
    }

    /// The optional columns that come with the records.
    pub fn optional(&self) -> OptionalSet {
        self.trace.borrow().optional()
    }

    /// Optional columns of the last record.
    pub fn optional_row(&self) -> OptionalRow {
        self.trace.borrow().optional_row()
    }

    /// Moves the bar to this number of answered requests.
    pub fn progress(&self, answered: u64) {
        show_progress(&self.bar, &self.trace.borrow(), self.limit, answered);
    }

    /// Removes the bar and reports skipped records.
    pub fn finish(&self) {
        self.clear();
        tell_skipped(self.trace.borrow().skipped());
    }

    /// Removes only the bar: for callers that read the trace again.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

fn tell_skipped(skipped: u64) {
    if skipped > 0 {
        eprintln!("tiermem: broken records of the trace that were skipped: {skipped}");
    }
}

/// A bar for commands that read traces by themselves: over the requests if their number is known.
#[derive(Debug)]
pub struct CountingBar(ProgressBar);

impl CountingBar {
    /// Puts the bar up.
    pub fn new(requests: Option<u64>) -> Self {
        CountingBar(styled_bar(requests))
    }

    /// Moves the bar to where the request with this number, from 0, is done.
    pub fn moved_to(&self, number: u64) {
        if number.is_multiple_of(BAR_EVERY) {
            self.0.set_position(number);
            show_rate(&self.0, number);
        }
    }

    /// Moves the bar to this number of requests; call it now and then.
    pub fn set(&self, done: u64) {
        self.0.set_position(done);
        show_rate(&self.0, done);
    }

    /// Removes the bar and reports skipped records.
    pub fn finish(&self, skipped: u64) {
        self.0.finish_and_clear();
        tell_skipped(skipped);
    }
}

/// A bar over the requests where their number is known, over the file's bytes where not. It is drawn on standard
/// error and only if that is a terminal.
fn progress_bar(trace: &Trace, limit: Option<u64>) -> ProgressBar {
    styled_bar(expected(trace, limit))
}

fn styled_bar(expected: Option<u64>) -> ProgressBar {
    let bar = ProgressBar::new(expected.unwrap_or(0));
    let template = "{bar:40} {percent:>3}%  {msg}  {eta} left";
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// A bar over `steps` steps of any kind.
pub fn steps_bar(steps: u64, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(steps).with_message(what);
    let template = "{bar:40} {pos}/{len} {msg}  {elapsed}";
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
    // Parts per thousand of the file, where the number of requests is unknown.
    const SHARES: f64 = 1000.0;
    match (expected(trace, limit), trace.share_read()) {
        (Some(_), _) | (None, None) => bar.set_position(answered),
        (None, Some(share)) => {
            bar.set_length(SHARES as u64);
            bar.set_position((share * SHARES) as u64);
        }
    }
    show_rate(bar, answered);
}

fn show_rate(bar: &ProgressBar, answered: u64) {
    bar.set_message(format!("{answered} requests, {:.0}/s", answered as f64 / bar.elapsed().as_secs_f64()));
}

/// Failure for an error of the trace, and how to fix it.
pub fn advise_on_trace(error: &TraceError) -> Failure {
    let advice = match error {
        TraceError::UnknownFormat { .. } => {
            "; say which with --trace-format, or what its columns are with --columns"
        }
        TraceError::Record { .. } => "; --skip-bad N passes over N such records",
        _ => "",
    };
    Failure::failed(anyhow!("{error}{advice}"))
}
