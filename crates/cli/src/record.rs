//! `tiermem record`: a trace of what a program does with its memory.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use tiermem_base::{Bytes, Nanos};
use tiermem_place::capture::physical::{self, Ending, Summary, Timing};
use tiermem_place::capture::{CaptureError, Stop};
use tiermem_trace::Format as TraceFormat;
use tiermem_trace::filter::hierarchy::{Shape, Shapes};
use tiermem_trace::writer::{self, WriteOptions};

use crate::failure::Failure;
use crate::interrupt;
use crate::output::{self, Cell, Format, Rows};
use crate::source::CountingBar;
use crate::trace::{count, positive_count};
use crate::words;

const HELP: &str = "\
Examples:
  tiermem record --physical -o sort.parquet -- sort /etc/services
  tiermem record --physical --transactions 1M --llc 8MiB,16 -o pagerank.parquet -- ./pagerank --scale 20
  tiermem trace stat sort.parquet --addresses physical

The program runs under Valgrind (Lackey), some hundred times slower than by itself. Its accesses go through modelled caches
(LRU, inclusive, write-back, lines of 64 bytes); the trace has what passes between the last one and memory: lines read (load) and
lines written back (store), with virtual addresses and physical frames. Times are a model: instructions / (GHz x IPC), and the
wait for the level that has the line. docs/record.md says how it works and where it errs.

Needs valgrind, and root (or CAP_SYS_ADMIN and CAP_PERFMON) for physical addresses. The program's output goes to standard
error. Ctrl-C ends the program and keeps what has been recorded.

Fields of the summary:
  transactions, loads, stores   in the trace
  unresolved                    transactions left out, since the frame of their page never became known
  pages                         pages of 4 KiB that transactions went to
  pages_at_once, pages_late, pages_unresolved
                                their frame was known when first needed; became known later; never did
  remapped                      how often a page was found in another frame than before
  faults, faults_lost           page faults that were watched, and those that came too fast; empty if they cannot be watched
  instructions, accesses        of the program, skipped ones included: instructions; loads and stores
  seconds                       what the recording took
  modelled_seconds              what the program would have taken by the model
  slow_down                     seconds over modelled_seconds
  ended                         transactions (there were enough), stopped, valgrind (it could not go on), or how the program ended";

const FIELDS: &[&str] = &[
    "transactions",
    "loads",
    "stores",
    "unresolved",
    "pages",
    "pages_at_once",
    "pages_late",
    "pages_unresolved",
    "remapped",
    "faults",
    "faults_lost",
    "instructions",
    "accesses",
    "seconds",
    "modelled_seconds",
    "slow_down",
    "ended",
];

/// The signal of an instruction that the processor, or Valgrind, does not know.
const SIGILL: i32 = 4;

/// What `tiermem record` takes.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Trace what passes between the caches and memory, with physical addresses; the one kind of recording there is.
    #[arg(long, required = true)]
    physical: bool,
    /// The trace to write, in the Parquet form.
    #[arg(short, long, value_name = "OUT.parquet")]
    output: PathBuf,
    /// End the program after so many transactions between the last cache and memory.
    #[arg(long, value_name = "N", default_value = "20M", value_parser = positive_count)]
    transactions: u64,
    /// Record nothing before so many instructions; the caches see them.
    #[arg(long, value_name = "N", default_value = "0", value_parser = count)]
    skip_instructions: u64,
    /// Leave instruction fetches out of the caches: data alone.
    #[arg(long)]
    data_only: bool,
    /// How to print the summary.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    caches: CacheArgs,
    #[command(flatten)]
    timing: TimingArgs,
    /// The program and its arguments.
    #[arg(value_name = "CMD", required = true, last = true)]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Caches, each as its size and its ways")]
struct CacheArgs {
    /// First level, instructions.
    #[arg(long, value_name = "SIZE,WAYS", default_value_t = Shapes::default().l1i)]
    l1i: Shape,
    /// First level, data.
    #[arg(long, value_name = "SIZE,WAYS", default_value_t = Shapes::default().l1d)]
    l1d: Shape,
    /// Second level.
    #[arg(long, value_name = "SIZE,WAYS", default_value_t = Shapes::default().l2)]
    l2: Shape,
    /// Last level.
    #[arg(long, value_name = "SIZE,WAYS", default_value_t = Shapes::default().llc)]
    llc: Shape,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Time")]
struct TimingArgs {
    /// Cycles in a nanosecond.
    #[arg(long, value_name = "GHZ", default_value_t = Timing::default().ghz, value_parser = positive)]
    ghz: f64,
    /// Instructions in a cycle.
    #[arg(long, value_name = "IPC", default_value_t = Timing::default().ipc, value_parser = positive)]
    ipc: f64,
    /// The wait for L2, in nanoseconds.
    #[arg(long, value_name = "NS", default_value_t = Timing::default().l2_ns, value_parser = duration)]
    l2_ns: f64,
    /// The wait for the last-level cache.
    #[arg(long, value_name = "NS", default_value_t = Timing::default().llc_ns, value_parser = duration)]
    llc_ns: f64,
    /// The wait for memory.
    #[arg(long, value_name = "NS", default_value_t = Timing::default().memory_ns, value_parser = duration)]
    memory_ns: f64,
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (1e-3..=1e3).contains(number));
    number.ok_or_else(|| "this is a number from 0.001 to 1000".to_owned())
}

fn duration(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1e6).contains(number));
    number.ok_or_else(|| "this is a number of nanoseconds from 0 to 1000000".to_owned())
}

/// Records and prints the summary.
pub fn run(options: Options) -> Result<(), Failure> {
    let words: Vec<_> = options.command.iter().map(|word| word.to_string_lossy()).collect();
    let write = WriteOptions { format: Some(TraceFormat::PARQUET), source: words.join(" "), frames: true };
    let CacheArgs { l1i, l1d, l2, llc } = options.caches;
    let TimingArgs { ghz, ipc, l2_ns, llc_ns, memory_ns } = options.timing;
    let what = physical::Options {
        command: options.command,
        caches: Shapes { l1i, l1d, l2, llc },
        timing: Timing { ghz, ipc, l2_ns, llc_ns, memory_ns },
        transactions: options.transactions,
        skip_instructions: options.skip_instructions,
        fetches: !options.data_only,
    };
    let mut writer = writer::create(&options.output, &write).map_err(Failure::failed)?;
    let stop = Stop::default();
    let stopped = stop.clone();
    interrupt::then(move || stopped.stop());
    let bar = CountingBar::new(Some(options.transactions));
    let recorded = physical::record(&what, &mut *writer, &stop, |transactions| bar.set(transactions));
    bar.finish(0);
    let summary = recorded.map_err(advise)?;
    writer.finish().map_err(Failure::failed)?;
    if let Err(reason) = &summary.faults {
        eprintln!(
            "tiermem: page faults cannot be watched ({reason}), so pages that changed their frame were found late; \
             run as root, or lower kernel.perf_event_paranoid"
        );
    }
    let printed = match options.format {
        Format::Table => print_table(&summary),
        format => output::print_rows(format, &rows(&summary)),
    };
    printed.map_err(|error| Failure::writing("the summary", error))?;
    died(&summary.ending)
}

/// What went wrong, and how to mend it.
fn advise(error: CaptureError) -> Failure {
    let advice = match &error {
        CaptureError::NoCommand | CaptureError::Command { .. } | CaptureError::Caches(_) => {
            return Failure::usage(error);
        }
        CaptureError::NoValgrind => "; install it (apt-get install valgrind)",
        CaptureError::NothingTraced(_) => "; what it said stands above",
        CaptureError::PageMap { .. } | CaptureError::Hidden => {
            "; run as root, or with CAP_SYS_ADMIN and CAP_PERFMON"
        }
        _ => "",
    };
    Failure::failed(anyhow!("{error}{advice}"))
}

/// A program that was killed was not recorded as it would have run; what there is of it has been kept.
fn died(ending: &Ending) -> Result<(), Failure> {
    let signal = match ending {
        Ending::TracerDied => SIGILL,
        Ending::Exited(status) => match status.signal() {
            Some(signal) => signal,
            None => return Ok(()),
        },
        Ending::Enough | Ending::Stopped => return Ok(()),
    };
    Err(Failure::failed(match signal {
        SIGILL => anyhow!(
            "Valgrind could not go on, most likely at an instruction that it does not know, such as AVX-512 (the trace ends \
             there); build the program for x86-64-v3 at most (-march=x86-64-v3, RUSTFLAGS=-Ctarget-cpu=x86-64-v3)"
        ),
        signal => anyhow!("the program was ended by signal {signal}; the trace ends there"),
    }))
}

fn ended(ending: &Ending) -> String {
    match ending {
        Ending::Enough => "transactions".to_owned(),
        Ending::Stopped => "stopped".to_owned(),
        Ending::TracerDied => "valgrind".to_owned(),
        Ending::Exited(status) => status.to_string(),
    }
}

fn slow_down(summary: &Summary) -> f64 {
    summary.wall.as_secs_f64() / (summary.modelled_ns as f64 / 1e9)
}

fn rows(summary: &Summary) -> Rows {
    let pages = &summary.pages;
    let faults = summary.faults.as_ref().map_or(Cell::Text(String::new()), |faults| Cell::Count(*faults));
    let row = vec![
        Cell::Count(summary.loads + summary.stores),
        Cell::Count(summary.loads),
        Cell::Count(summary.stores),
        Cell::Count(summary.left_out),
        Cell::Count(pages.pages),
        Cell::Count(pages.at_once),
        Cell::Count(pages.late),
        Cell::Count(pages.unresolved()),
        Cell::Count(pages.remapped),
        faults,
        Cell::Count(summary.faults_lost),
        Cell::Count(summary.instructions),
        Cell::Count(summary.accesses),
        Cell::Number(summary.wall.as_secs_f64(), 3),
        Cell::Number(summary.modelled_ns as f64 / 1e9, 6),
        Cell::Number(slow_down(summary), 1),
        Cell::Text(ended(&summary.ending)),
    ];
    Rows { fields: FIELDS, rows: vec![row] }
}

fn print_table(summary: &Summary) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let pages = &summary.pages;
    let mut line = |name: &str, value: String, remark: String| words::line(&mut out, name, value, remark);
    let Summary { loads, stores, left_out, instructions, accesses, .. } = summary;
    let mut remark = format!("loads {loads}, stores {stores}");
    if *left_out > 0 {
        remark += &format!("; {left_out} left out, their pages have no known frame");
    }
    line("transactions", (loads + stores).to_string(), remark)?;
    let size = Bytes(pages.pages.saturating_mul(4096));
    let (at_once, late, unresolved) = (pages.at_once, pages.late, pages.unresolved());
    let remark = format!("{size}; frames known at once {at_once}, late {late}, never {unresolved}");
    line("pages", pages.pages.to_string(), remark)?;
    let faults = match &summary.faults {
        Ok(faults) => format!("{faults} page faults watched, {} lost", summary.faults_lost),
        Err(_) => "page faults could not be watched".to_owned(),
    };
    line("remapped", pages.remapped.to_string(), faults)?;
    line("instructions", instructions.to_string(), format!("with {accesses} loads and stores"))?;
    let wall = Nanos(summary.wall.as_nanos() as u64);
    let modelled = Nanos(summary.modelled_ns);
    line("took", wall.to_string(), format!("{:.0} times the {modelled} of the model", slow_down(summary)))?;
    line("ended by", ended(&summary.ending), String::new())?;
    out.flush()
}
