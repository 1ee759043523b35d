//! Recordings without repeated scans: from the processor's samples (perf), and of every access (Lackey).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use tiermem_place::capture::perf_mem::{self, ImportOptions, PerfMemError, RecordOptions};
use tiermem_place::capture::{Stop, lackey};
use tiermem_trace::parse_count;
use tiermem_trace::recording::{Journal, Recording};

use super::Report;
use super::live::LiveArgs;
use super::summary::keep;
use crate::failure::Failure;
use crate::interrupt;
use crate::source::CountingBar;

/// What concerns texts of perf.
#[derive(Debug, Args)]
#[command(next_help_heading = "With --import or --source perf-mem")]
pub struct PerfArgs {
    /// Import samples of loads and stores, as text from `perf script`. Several files are slices in order, unless the samples
    /// have times. `-` is standard input.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["source", "physical", "duration", "closer"])]
    pub import: Vec<PathBuf>,
    /// Copy of the program's /proc/PID/maps, for texts without mappings.
    #[arg(long, value_name = "FILE", requires = "import")]
    maps: Option<PathBuf>,
    /// Skip up to this many broken lines.
    #[arg(long, value_name = "N", default_value = "0", value_parser = count)]
    skip_bad: u64,
    /// Sample stores instead of loads.
    #[arg(long)]
    stores: bool,
}

fn count(text: &str) -> Result<u64, String> {
    parse_count(text).ok_or_else(|| "this is a number such as 100 or 10k".to_owned())
}

/// Makes a recording of texts.
pub fn import(args: &PerfArgs, live: &LiveArgs, output: &Path, report: &Report) -> Result<(), Failure> {
    let options = import_options(args, live);
    let (stop, bar) = begin(output)?;
    let imported = perf_mem::import_with(&args.import, &options, &stop, |bytes, _| bar.set(bytes));
    bar.finish(0);
    keep(&imported.map_err(advise)?, "end of the text", output, report)
}

/// Records with perf.
pub fn perf_mem(
    args: &PerfArgs,
    live: &LiveArgs,
    command: Vec<OsString>,
    output: &Path,
    report: &Report,
) -> Result<(), Failure> {
    let options = RecordOptions {
        target: live.pid.map_or(perf_mem::Target::Command(command), perf_mem::Target::Process),
        duration: live.duration,
        loads: !args.stores,
        stores: args.stores,
        import: import_options(args, live),
        ..RecordOptions::default()
    };
    let (stop, bar) = begin(output)?;
    let recorded = perf_mem::record(&options, &stop, |bytes, _| bar.set(bytes));
    bar.finish(0);
    keep(&recorded.map_err(advise)?, "perf", output, report)
}

/// Records every access under Valgrind.
pub fn lackey(
    live: &LiveArgs,
    command: Vec<OsString>,
    output: &Path,
    report: &Report,
) -> Result<(), Failure> {
    let slice_ns = live.slice.as_nanos() as u64;
    let options =
        lackey::Options { command, slice_ns, granule_bytes: live.granule, ..lackey::Options::default() };
    let (stop, bar) = begin(output)?;
    let recorded: Result<Recording, _> = lackey::record(&options, &stop, |accesses| bar.set(accesses));
    bar.finish(0);
    keep(&recorded.map_err(super::advise)?, "valgrind", output, report)
}

fn import_options(args: &PerfArgs, live: &LiveArgs) -> ImportOptions {
    ImportOptions {
        pid: live.pid,
        granule_bytes: live.granule,
        slice_ns: live.slice.as_nanos() as u64,
        maps: args.maps.clone(),
        skip_bad: args.skip_bad,
        ..ImportOptions::default()
    }
}

fn begin(output: &Path) -> Result<(Stop, CountingBar), Failure> {
    // What cannot be written is no reason to start a program.
    Journal::create(output).map(drop).map_err(Failure::failed)?;
    let stop = Stop::default();
    interrupt::pass_on(&stop, Stop::stop, interrupt::Second::Ends);
    Ok((stop, CountingBar::new(None)))
}

fn advise(error: PerfMemError) -> Failure {
    let advice = error.advice();
    let dash = if advice.is_empty() { "" } else { "; " };
    Failure::failed(anyhow!("{error}{dash}{advice}"))
}
