//! `tiermem record --physical`: a trace of the traffic between a program's caches and its memory.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use anyhow::anyhow;
use clap::Args;
use tiermem_base::{Bytes, Nanos};
use tiermem_place::capture::Stop;
use tiermem_place::capture::physical::{self, Ending, Summary, Timing};

use tiermem_trace::filter::hierarchy::{Shape, Shapes};
use tiermem_trace::writer::{self, WriteOptions};
use tiermem_trace::{Format as TraceFormat, OptionalColumn, OptionalSet};

use super::Report;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{self, Cell, Format, Rows};
use crate::print_lines;
use crate::trace::{count, positive_count};

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

/// What is special to this kind of recording.
#[derive(Debug, Args)]
#[command(next_help_heading = "With --physical")]
pub struct PhysicalArgs {
    /// End the program after this many transactions between the last-level cache and memory.
    #[arg(long, value_name = "N", default_value = "20M", value_parser = positive_count)]
    transactions: u64,
    /// Skip this many instructions before recording; the cache models still see them.
    #[arg(long, value_name = "N", default_value = "0", value_parser = count)]
    skip_instructions: u64,
    /// Do not pass instruction fetches through the caches.
    #[arg(long)]
    data_only: bool,
    #[command(flatten)]
    caches: CacheArgs,
    #[command(flatten)]
    timing: TimingArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Caches with --physical, each as its size and its ways")]
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
#[command(next_help_heading = "Time with --physical")]
struct TimingArgs {
    /// Cycles per nanosecond.
    #[arg(long, value_name = "GHZ", default_value_t = Timing::default().ghz, value_parser = positive)]
    ghz: f64,
    /// Instructions per cycle.
    #[arg(long, value_name = "IPC", default_value_t = Timing::default().ipc, value_parser = positive)]
    ipc: f64,
    /// Latency of L2, in nanoseconds.
    #[arg(long, value_name = "NS", default_value_t = Timing::default().l2_ns, value_parser = duration)]
    l2_ns: f64,
    /// Latency of the last-level cache, in nanoseconds.
    #[arg(long, value_name = "NS", default_value_t = Timing::default().llc_ns, value_parser = duration)]
    llc_ns: f64,
    /// Latency of memory, in nanoseconds.
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
pub fn run(
    options: PhysicalArgs,
    command: Vec<OsString>,
    output: &Path,
    report: &Report,
) -> Result<(), Failure> {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let write = WriteOptions {
        format: Some(TraceFormat::PARQUET),
        source: words.join(" "),
        optional: OptionalSet::of(OptionalColumn::Frame),
    };
    let CacheArgs { l1i, l1d, l2, llc } = options.caches;
    let TimingArgs { ghz, ipc, l2_ns, llc_ns, memory_ns } = options.timing;
    let what = physical::Options {
        command,
        caches: Shapes { l1i, l1d, l2, llc },
        timing: Timing { ghz, ipc, l2_ns, llc_ns, memory_ns },
        transactions: options.transactions,
        skip_instructions: options.skip_instructions,
        fetches: !options.data_only,
    };
    let mut writer = writer::create(output, &write).map_err(Failure::failed)?;
    let stop = Stop::default();
    interrupt::pass_on(&stop, Stop::stop, interrupt::Second::Ends);
    let recorded = physical::record(&what, &mut *writer, &stop, |_| {});
    let summary = recorded.map_err(super::advise)?;
    writer.finish().map_err(Failure::failed)?;
    if let Err(reason) = &summary.faults {
        eprintln!(
            "tiermem: page faults cannot be watched ({reason}), so pages that changed their frame were found late; \
             run as root, or lower kernel.perf_event_paranoid"
        );
    }
    let written = report.destination.open().and_then(|mut out| match report.format {
        Format::Table => write_table(&mut out, &summary),
        format => output::write_rows(&mut out, format, &rows(&summary)),
    });
    written.map_err(|error| Failure::writing("the report", error))?;
    died(&summary.ending)
}

/// A program that was killed was not recorded as it would have run; what there is of it has been kept.
fn died(ending: &Ending) -> Result<(), Failure> {
    match ending {
        Ending::TracerDied => {}
        Ending::Exited(status) if status.signal() == Some(SIGILL) => {}
        Ending::Exited(status) => return Failure::of_program(*status),
        Ending::Enough | Ending::Stopped => return Ok(()),
    }
    Err(Failure::failed(anyhow!(
        "Valgrind could not go on, most likely at an instruction that it does not know, such as AVX-512 (the trace ends \
         there); build the program for x86-64-v3 at most (-march=x86-64-v3, RUSTFLAGS=-Ctarget-cpu=x86-64-v3)"
    )))
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

fn write_table(mut out: &mut impl Write, summary: &Summary) -> io::Result<()> {
    let pages = &summary.pages;
    let mut line =
        |name: &str, value: String, remark: String| print_lines::line(&mut out, name, value, remark);
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
