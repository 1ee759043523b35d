//! Live recording of a program: its options, and its end.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use tiermem_base::{Bytes, Nanos};
use tiermem_place::capture::live::{self, Closer, Ending, Recorded, SourceKind, Target};
use tiermem_place::capture::{CaptureError, Stop, machine};
use tiermem_sys::{disk, memory};
use tiermem_trace::TraceError;
use tiermem_trace::recording::{self, Journal, Recording};

use super::Report;
use super::shown::Shown;
use super::summary::tell;
use super::watch;
use crate::failure::Failure;
use crate::interrupt;

/// `SIGTERM`.
const TERMINATE: i32 = 15;

/// How to look at the program.
#[derive(Debug, Args)]
pub struct LiveArgs {
    /// Source of observations; repeat it for several. Other commands use the first by default.
    #[arg(long, value_name = "SOURCE", default_value = "refs", value_parser = source)]
    pub source: Vec<Source>,
    /// Observe a running process.
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Observe all memory of the machine by physical address. Needs root and DAMON.
    #[arg(long, conflicts_with_all = ["source", "pid", "closer", "every_page", "small_pages", "physical", "import"])]
    pub machine: bool,
    /// Length of a time slice.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = slice)]
    pub slice: Duration,
    /// Granule size, a multiple of 4 KiB.
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = granule)]
    pub granule: u64,
    /// A finer granule for some regions: one by name, `heap`, `stack` or `anon` (all of that kind), the end of a mapped file's path,
    /// `largest`, or `hottest` (so far).
    #[arg(long, value_name = "NAME=SIZE", value_parser = closer)]
    closer: Option<Closer>,
    /// Scan every page of each granule, not a sample of adjacent pages: costs the program more.
    #[arg(long)]
    every_page: bool,
    /// Disable huge pages for the program; a huge page has a single accessed bit.
    #[arg(long)]
    small_pages: bool,
    /// Begin the recording so long after the program's start; with --pid, after the command's start.
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with_all = ["machine", "physical", "import"])]
    pub delay: Option<Duration>,
    /// Record for this time; the program goes on.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// With --duration: end the program when the time is over (SIGTERM).
    #[arg(long, requires = "duration", conflicts_with_all = ["pid", "machine", "import"])]
    end_program: bool,
    /// Do without the agent process in the program's address space: whole mappings only.
    #[arg(long, conflicts_with_all = ["machine", "physical", "import"])]
    no_agent: bool,
    /// Observe the process alone, and not the processes that it starts.
    #[arg(long, conflicts_with_all = ["machine", "physical", "import"])]
    no_children: bool,
    /// Tell which code first touches memory: `tiermem heatmap OUT --sites` prints it. Samples page faults by perf_event_open.
    #[arg(long, conflicts_with_all = ["machine", "physical", "import"])]
    pub sites: bool,
    /// Serve the recording so far as a page that follows it, at this address [default: a free port of 127.0.0.1].
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:0",
        value_parser = watch::address, conflicts_with_all = ["physical", "import"])]
    pub watch: Option<SocketAddr>,
    /// With --pid: give the process an agent, to see granules. It stands still for some milliseconds meanwhile.
    #[arg(long, requires = "pid", conflicts_with = "no_agent")]
    inject: bool,
}

/// A way of looking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Again and again while the program runs.
    Live(SourceKind),
    /// Samples of loads and stores by the processor's counters.
    PerfMem,
    /// Every access, under Valgrind.
    Lackey,
}

fn source(text: &str) -> Result<Source, String> {
    let live = SourceKind::ALL.into_iter().find(|kind| kind.name() == text).map(Source::Live);
    live.or(match text {
        "perf-mem" => Some(Source::PerfMem),
        "lackey" => Some(Source::Lackey),
        _ => None,
    })
    .ok_or_else(|| {
        let live = SourceKind::ALL.map(SourceKind::name).join(", ");
        format!("there is no source `{text}`; the sources are {live}, perf-mem, lackey")
    })
}

fn duration(text: &str) -> Result<Duration, String> {
    let nanos: Nanos = text.parse().map_err(|error: tiermem_base::units::UnitError| error.to_string())?;
    Ok(Duration::from_nanos(nanos.0))
}

/// Reads the length of a slice.
pub fn slice(text: &str) -> Result<Duration, String> {
    let slice = duration(text)?;
    if slice < Duration::from_millis(1) { Err("a slice is 1ms long at least".to_owned()) } else { Ok(slice) }
}

fn granule(text: &str) -> Result<u64, String> {
    let Bytes(bytes) = text.parse().map_err(|error: tiermem_base::units::UnitError| error.to_string())?;
    let is_one = bytes > 0 && bytes.is_multiple_of(64) && bytes <= 1 << 30;
    is_one.then_some(bytes).ok_or_else(|| {
        "a granule is a multiple of 4KiB (of 64B with --source lackey), at most 1GiB".to_owned()
    })
}

fn closer(text: &str) -> Result<Closer, String> {
    let (name, size) = text.rsplit_once('=').ok_or("this is NAME=SIZE, such as model.gguf=64KiB")?;
    Ok(Closer { name: name.to_owned(), granule_bytes: granule(size)? })
}

/// Records and writes the report.
pub fn run(
    args: LiveArgs,
    sources: Vec<SourceKind>,
    command: Vec<OsString>,
    output: &Path,
    report: &Report,
) -> Result<(), Failure> {
    let options = live::Options {
        target: args.pid.map_or(Target::Command(command), Target::Process),
        sources,
        // What is looked at for less than a slice is one slice.
        slice: args.duration.map_or(args.slice, |duration| args.slice.min(duration)),
        granule_bytes: args.granule,
        every_page: args.every_page,
        tell_mappings: false,
        closer: args.closer.clone(),
        small_pages: args.small_pages,
        // A process that runs is left alone unless that is asked for.
        agent: if args.pid.is_some() { args.inject } else { !args.no_agent },
        children: !args.no_children,
        sites: args.sites,
        delay: args.delay.unwrap_or_default(),
        duration: args.duration,
    };
    // What cannot be written, or watched as it was asked for, is no reason to start a program.
    let port = args.watch.map(watch::Port::take).transpose()?;
    let mut journal = begun(output)?.with_rss(memory::resident_bytes_of_process);
    let view = port.map(|port| port.show(&journal, output, options.slice)).transpose()?;
    let stop = Stop::default();
    let begun = Instant::now() + options.delay;
    let record =
        |stop: &Stop, progress: &dyn Fn(&Journal)| live::record(&options, &mut journal, stop, progress);
    let recorded = watched(&args, &stop, record);
    let is_time_over = args.duration.is_some_and(|duration| begun.elapsed() >= duration) && !stop.is_asked();
    let kept = match recorded {
        Ok(Recorded { recording, ending, cut_short, closer_missing }) => {
            let replaced = replace(journal, &recording, cut_short, output);
            let found = closer_missing.map_or(Ok(()), |error| Err(super::advise(error)));
            Ok((recording, ending, replaced.and(found)))
        }
        Err(error) => Err(kept_until(error, &journal, output)),
    };
    if let Some(view) = view {
        view.end(&kept.as_ref().map_or("failed".to_owned(), |(_, ending, _)| self::ended(ending)));
    }
    // What the user sees of us comes after the program's end, whatever has become of the recording. When the time is over, the program goes on.
    if is_time_over && args.end_program {
        stop.pass_on(TERMINATE);
    }
    let waited = if is_time_over && !args.end_program { None } else { wait_for_program(&stop)? };
    let (recording, ending, replaced) = kept?;
    tell(&recording, &self::ended(&ending), report)?;
    replaced?;
    match (ending, waited) {
        (Ending::Exited(status), _) => Failure::of_program(status),
        (_, Some(status)) if !is_time_over => Failure::of_program(status),
        _ => Ok(()),
    }
}

fn wait_for_program(stop: &Stop) -> Result<Option<ExitStatus>, Failure> {
    stop.wait_for_program()
        .map_err(|error| Failure::failed(anyhow!("cannot wait for the end of the program: {error}")))
}

/// Records the machine and prints the summary.
pub fn run_machine(args: &LiveArgs, output: &Path, report: &Report) -> Result<(), Failure> {
    let options = machine::Options {
        slice: args.duration.map_or(args.slice, |duration| args.slice.min(duration)),
        granule_bytes: args.granule,
        duration: args.duration,
    };
    let port = args.watch.map(watch::Port::take).transpose()?;
    let mut journal = begun(output)?;
    let view = port.map(|port| port.show(&journal, output, options.slice)).transpose()?;
    let recorded = watched(args, &Stop::default(), |stop, progress| {
        machine::record(&options, &mut journal, stop, progress)
    });
    let kept = match recorded {
        Ok((recording, cut_short)) => {
            let replaced = replace(journal, &recording, cut_short, output);
            Ok((recording, replaced))
        }
        Err(error) => Err(kept_until(error, &journal, output)),
    };
    if let Some(view) = view {
        view.end(if kept.is_ok() { "stopped" } else { "failed" });
    }
    let (recording, replaced) = kept?;
    tell(&recording, "stopped", report)?;
    replaced
}

/// Begins a journal. Its lock tells who reads it that its recorder lives; a file system without locks does not tell.
fn begun(output: &Path) -> Result<Journal, Failure> {
    let journal = Journal::create(output).map_err(Failure::failed)?;
    let _ = disk::lock(journal.file());
    Ok(journal)
}

/// The failure of a recording that has perhaps begun, whose slices are then kept.
fn kept_until(error: CaptureError, journal: &Journal, output: &Path) -> Failure {
    let slices = journal.slices();
    match super::advise(error) {
        Failure::Failed(error) if journal.is_in_place() => {
            Failure::failed(anyhow!("{error}; {} has the {slices} slices until then", output.display()))
        }
        other => other,
    }
}

/// Puts the recording in the place of its journal. A recording that could not be written to its end is a failure, and what there is of
/// it is kept: in its final form, which is smaller, or as the journal.
fn replace(
    journal: Journal,
    recording: &Recording,
    cut_short: Option<TraceError>,
    output: &Path,
) -> Result<(), Failure> {
    let (slices, was_in_place) = (journal.slices(), journal.is_in_place());
    drop(journal);
    let replaced = recording::write(output, recording);
    if replaced.is_err() && !was_in_place {
        return replaced.map_err(Failure::failed);
    }
    let Some(error) = cut_short.or(replaced.err()) else { return Ok(()) };
    Err(Failure::failed(anyhow!(
        "{error}; the recording ended there, and {} has its {slices} slices until then",
        output.display()
    )))
}

/// Records something until it is interrupted, and shows how far it is where no program needs the terminal.
fn watched<T>(
    args: &LiveArgs,
    stop: &Stop,
    record: impl FnOnce(&Stop, &dyn Fn(&Journal)) -> Result<T, CaptureError>,
) -> Result<T, CaptureError> {
    interrupt::pass_on(stop, Stop::stop, interrupt::Second::Ends);
    let is_alone = args.pid.is_some() || args.machine;
    let shown = is_alone.then(|| Shown::new(args.delay.unwrap_or_default(), args.duration));
    let recorded = record(stop, &|journal| shown.iter().for_each(|shown| shown.set(journal)));
    shown.iter().for_each(Shown::finish);
    recorded
}

/// How a recording ended, in a word.
pub fn ended(ending: &Ending) -> String {
    match ending {
        Ending::Exited(status) => status.to_string(),
        Ending::Gone => "gone".to_owned(),
        Ending::Stopped => "stopped".to_owned(),
    }
}
