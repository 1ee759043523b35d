//! Live recording of a program: its options, and the summary at its end.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use tiermem_base::{Bytes, Nanos};
use tiermem_place::capture::live::{self, Closer, Ending, Recorded, SourceKind, Target};
use tiermem_place::capture::{CaptureError, Stop, machine};
use tiermem_trace::TraceError;
use tiermem_trace::recording::{self, Journal, Recording};

use crate::failure::Failure;
use crate::interrupt;
use crate::output::{self, Cell, Format, Rows};
use crate::print_lines;
use crate::source::CountingBar;

/// Where the library with the agent is, if not beside the program.
const PRELOAD_VARIABLE: &str = "TIERMEM_PRELOAD";
const PRELOAD_LIBRARY: &str = "libtiermem_preload.so";

const FIELDS: &[&str] = &[
    "slices",
    "seconds",
    "regions",
    "regions_touched",
    "mapped_bytes",
    "touched_bytes",
    "samples",
    "recorder_cpu_s",
    "agent_cpu_s",
    "program_cpu_s",
    "ended",
];

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
    /// Stop after this time, and end the program unless it was already running.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
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

/// The library with the agent, beside this program's file.
pub fn preload() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(PRELOAD_VARIABLE) {
        return Some(PathBuf::from(path));
    }
    let folder = std::env::current_exe().ok()?.parent()?.to_owned();
    [folder.join(PRELOAD_LIBRARY), folder.join("../lib/tiermem").join(PRELOAD_LIBRARY)]
        .into_iter()
        .find(|path| path.is_file())
}

/// Records and prints the summary.
pub fn run(
    args: LiveArgs,
    sources: Vec<SourceKind>,
    command: Vec<OsString>,
    output: &Path,
    format: Format,
) -> Result<(), Failure> {
    let preload = preload();
    if preload.is_none() && args.pid.is_none() {
        eprintln!(
            "tiermem: {PRELOAD_LIBRARY} is not beside this program, so mappings are looked at as wholes; build it (cargo build \
             -p tiermem-preload) or say where it is with {PRELOAD_VARIABLE}"
        );
    }
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
        preload,
        duration: args.duration,
    };
    // What cannot be written is no reason to start a program.
    let mut journal = Journal::create(output).map_err(Failure::failed)?;
    let recorded = watched(&args, |stop, progress| live::record(&options, &mut journal, stop, progress));
    let Recorded { recording, ending, cut_short, closer_missing } =
        recorded.map_err(|error| kept_until(error, &journal, output))?;
    let replaced = replace(journal, &recording, cut_short, output);
    print(&recording, &self::ended(&ending), format)?;
    replaced?;
    if let Some(error) = closer_missing {
        return Err(super::advise(error));
    }
    match ending {
        Ending::Exited(status) if status.signal().is_some() => {
            Err(Failure::failed(anyhow!("the program was ended ({status}); the recording ends there")))
        }
        _ => Ok(()),
    }
}

/// Records the machine and prints the summary.
pub fn run_machine(args: &LiveArgs, output: &Path, format: Format) -> Result<(), Failure> {
    let options = machine::Options {
        slice: args.duration.map_or(args.slice, |duration| args.slice.min(duration)),
        granule_bytes: args.granule,
        duration: args.duration,
    };
    let mut journal = Journal::create(output).map_err(Failure::failed)?;
    let recorded = watched(args, |stop, progress| machine::record(&options, &mut journal, stop, progress));
    let (recording, cut_short) = recorded.map_err(|error| kept_until(error, &journal, output))?;
    let replaced = replace(journal, &recording, cut_short, output);
    print(&recording, "stopped", format)?;
    replaced
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
    let replaced = journal.replace(recording);
    if replaced.is_err() && !was_in_place {
        return replaced.map_err(Failure::failed);
    }
    let Some(error) = cut_short.or(replaced.err()) else { return Ok(()) };
    Err(Failure::failed(anyhow!(
        "{error}; the recording ended there, and {} has its {slices} slices until then",
        output.display()
    )))
}

/// Records something under a bar of slices, until it is interrupted.
fn watched<T>(
    args: &LiveArgs,
    record: impl FnOnce(&Stop, &dyn Fn(usize)) -> Result<T, CaptureError>,
) -> Result<T, CaptureError> {
    let stop = Stop::default();
    let stopped = stop.clone();
    interrupt::then(move || stopped.stop(), interrupt::Second::Ends);
    interrupt::outlive_file_limit();
    let slices = args.duration.map(|duration| (duration.as_nanos() / args.slice.as_nanos()) as u64);
    let bar = CountingBar::new(slices);
    let recorded = record(&stop, &|slices| bar.set(slices as u64));
    bar.finish(0);
    recorded
}

/// Writes a recording and prints a summary.
pub fn keep(recording: &Recording, ended: &str, output: &Path, format: Format) -> Result<(), Failure> {
    recording::write(output, recording).map_err(Failure::failed)?;
    print(recording, ended, format)
}

fn print(recording: &Recording, ended: &str, format: Format) -> Result<(), Failure> {
    for note in &recording.head.notes {
        eprintln!("tiermem: {note}");
    }
    let printed = match format {
        Format::Table => print_table(recording, ended),
        format => output::print_rows(format, &rows(recording, ended)),
    };
    printed.map_err(|error| Failure::writing("the summary", error))
}

/// How a recording ended, in a word.
pub fn ended(ending: &Ending) -> String {
    match ending {
        Ending::Exited(status) => status.to_string(),
        Ending::Gone => "gone".to_owned(),
        Ending::Stopped => "stopped".to_owned(),
    }
}

/// Regions that were accessed, and the bytes of the granules in which they were.
fn touched(recording: &Recording) -> (usize, u64) {
    let granules: BTreeSet<(u32, u64, u32)> =
        recording.samples.iter().map(|sample| (sample.region, sample.offset, sample.bytes)).collect();
    let regions: BTreeSet<u32> = granules.iter().map(|(region, ..)| *region).collect();
    // Stretches of one region may overlap where two sources told of them.
    let (mut bytes, mut last) = (0, (u32::MAX, 0));
    for (region, offset, length) in granules {
        let end = offset + u64::from(length);
        let from = if last.0 == region { offset.max(last.1) } else { offset };
        bytes += end.saturating_sub(from);
        last = (region, if last.0 == region { end.max(last.1) } else { end });
    }
    (regions.len(), bytes)
}

fn rows(recording: &Recording, ended: &str) -> Rows {
    let head = &recording.head;
    let (regions, bytes) = touched(recording);
    let row = vec![
        Cell::Count(head.slices.len() as u64),
        Cell::Number(head.cost.wall_s, 3),
        Cell::Count(head.regions.len() as u64),
        Cell::Count(regions as u64),
        Cell::Count(head.regions.iter().map(|region| region.bytes).sum()),
        Cell::Count(bytes),
        Cell::Count(recording.samples.len() as u64),
        Cell::Number(head.cost.recorder_cpu_s, 3),
        Cell::Number(head.cost.agent_cpu_s, 3),
        Cell::Number(head.cost.program_cpu_s, 3),
        Cell::Text(ended.to_owned()),
    ];
    Rows { fields: FIELDS, rows: vec![row] }
}

fn print_table(recording: &Recording, ended: &str) -> io::Result<()> {
    let head = &recording.head;
    let (regions, bytes) = touched(recording);
    let mapped: u64 = head.regions.iter().map(|region| region.bytes).sum();
    let mut out = io::stdout().lock();
    let mut line =
        |name: &str, value: String, remark: String| print_lines::line(&mut out, name, value, remark);
    let cost = &head.cost;
    let samples = format!("{} samples", recording.samples.len());
    line("slices", head.slices.len().to_string(), format!("in {:.1} s; {samples}", cost.wall_s))?;
    line(
        "regions",
        head.regions.len().to_string(),
        format!("{} of them, {regions} accessed", Bytes(mapped)),
    )?;
    let granule = Bytes(head.granule_bytes);
    line("accessed", Bytes(bytes).to_string(), format!("in granules of {granule}, or whole mappings"))?;
    let share = |seconds: f64| format!("{:.1}% of one processor", 100.0 * seconds / cost.wall_s.max(1e-9));
    line("recorder", format!("{:.2} s", cost.recorder_cpu_s), share(cost.recorder_cpu_s))?;
    line("agent", format!("{:.3} s", cost.agent_cpu_s), "within the program".to_owned())?;
    if cost.program_cpu_s > 0.0 {
        line("program", format!("{:.2} s", cost.program_cpu_s), "of processor time".to_owned())?;
    }
    line("ended by", ended.to_owned(), String::new())?;
    out.flush()
}
