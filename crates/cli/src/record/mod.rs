//! `tiermem record`: a recording of a program's memory accesses.

mod live;
mod perf_lackey;
mod physical;
mod shown;
mod summary;
mod watch;

pub use live::{ended, slice};

use self::live::Source;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use tiermem_place::capture::CaptureError;
use tiermem_place::capture::live::SourceKind;
use tiermem_sys::inherited::forgo_huge_pages;

use crate::destination::Destination;
use crate::failure::Failure;
use crate::output::Format;

const HELP: &str = "\
Examples:
  tiermem record -o app.rec -- ./app --its-own flags           # pages referenced, 4 MiB granules, 1 s slices
  tiermem record --slice 100ms --granule 1MiB -o app.rec -- ./app
  tiermem record --watch -o app.rec -- ./app                   # look at it while it runs: a page, whose address is printed first
  tiermem record --delay 30s --duration 10s -o app.rec -- ./app # from 30 s after its start, for 10 s
  tiermem record --closer model.gguf=64KiB -o app.rec -- ./app # finer granules for one mapped file
  tiermem record --source refs --source writes -o app.rec -- ./app
  tiermem record --source lackey --granule 4KiB --slice 10ms -o small.rec -- ./small
  tiermem record --import mem.txt --granule 4MiB -o app.rec    # perf script of another machine's perf mem record
  tiermem record --pid 1234 --duration 30s -o app.rec          # a running process; whole mappings only
  tiermem record --pid 1234 --inject --duration 30s -o app.rec # the same in granules: it stands still for some milliseconds
  tiermem record --sites -o app.rec -- ./app                   # which code first touches memory: tiermem heatmap app.rec --sites
  tiermem record --machine --duration 30s -o machine.rec       # all physical memory, by DAMON
  tiermem record --physical --transactions 1M --llc 8MiB,16 -o pagerank.parquet -- ./pagerank --scale 20

What the program starts is recorded too, each process with regions of its own (`cc1: heap`), until the last process has ended. What ends
within 100 ms is listed alone. --no-children records the program alone. DAMON observes no children.

A recording lists the program's regions (mapped files, heap, stack, anonymous memory) and how often each granule of them was
accessed in each time slice. `tiermem heatmap` draws it, `tiermem plan` plans a placement from it. docs/observe.md describes what
each source sees and costs.

The program runs as without tiermem: its input, output, terminal and exit code are its own. The report comes after its end, on standard
error or in the file of --report. Ctrl-C, SIGTERM and SIGHUP end the recording, reach the program as well, and tiermem waits for its end; a
second one that is not the terminal's ends tiermem at once, and the program goes on. Exit code: the program's, or 128 and the signal that ended it; 125 if tiermem
itself fails, 126 if the program cannot be run, 127 if there is none.

Sources:
  refs     pages referenced, by accessed bits in page tables; an agent in the program's address space makes granules
  writes   pages written: needs the agent
  faults   page faults: where pages are first touched
  damon    the kernel's DAMON, if the kernel has it and nobody else uses it
  perf-mem samples of loads (--stores: of stores) with level and latency; needs hardware counters
  lackey   every access under Valgrind, through modelled caches; slices are of modelled time

--watch serves the recording so far: a page at /, the map as text at /map.txt (?region=NAME&columns=N), figures as JSON at /api/snapshot,
/metrics. One line on standard error has the address, before the program starts. From another terminal, and without --watch:
`tiermem heatmap OUT --text --watch`.

With --physical the program runs under Valgrind (Lackey), about a hundred times slower, and OUT is a trace of the transactions
between modelled caches and memory, with physical addresses: docs/record.md. Needs valgrind, and root (or CAP_SYS_ADMIN and
CAP_PERFMON).

Fields of the report:
  slices, seconds               number of slices; duration of the recording
  processes                     processes in the recording: the program and what it started
  regions, regions_touched      regions of the program; regions that were accessed
  mapped_bytes, touched_bytes   bytes of the regions; of the granules that were accessed, the bytes in memory
  working_set_min_bytes, working_set_p25_bytes, working_set_p50_bytes, working_set_p75_bytes, working_set_max_bytes
                                bytes touched in a slice: least, quartiles and most of the slices; upper bounds where heat is unknown
  rss_p50_bytes, rss_max_bytes  bytes of the processes in memory at the end of a slice: median and most; empty if unknown
  unknown_heat_share            share of the accesses to mappings that were looked at as wholes; 0 if below a tenth
  initialisation_slices         first slices in which the program touched most of its memory for the first time; 0 if not told apart
  samples                       rows of the recording
  recorder_cpu_s                processor time of this command
  agent_cpu_s                   processor time of the agent
  program_cpu_s                 processor time of the program; 0 if it was already running
  ended                         stopped, gone, or how the program ended
Fields of the report with --physical:
  transactions, loads, stores   in the trace
  unresolved                    transactions dropped because their page's frame was never known
  pages                         distinct pages of 4 KiB in the trace
  pages_at_once, pages_late, pages_unresolved
                                pages whose frame was known when first needed; later; never
  remapped                      how often a page was found in another frame than before
  faults, faults_lost           page faults observed, and lost because they came too fast; empty if faults cannot be observed
  instructions, accesses        of the program, skipped ones included: instructions; loads and stores
  seconds                       duration of the recording
  modelled_seconds              run time of the program in the model
  slow_down                     seconds over modelled_seconds
  ended                         transactions (there were enough), stopped, valgrind (it could not go on), or how the program ended";

/// Options of `tiermem record`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Recording to write; with --physical a trace in the Parquet form.
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Format of the report.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Write the report to FILE [default: standard error, after the program's end; standard output where no program is started].
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    live: live::LiveArgs,
    #[command(flatten)]
    perf: perf_lackey::PerfArgs,
    /// Trace transactions between modelled caches and memory, with physical addresses.
    #[arg(long, conflicts_with_all = ["source", "pid", "slice", "granule", "closer", "every_page", "small_pages", "duration"])]
    physical: bool,
    #[command(flatten)]
    with_physical: physical::PhysicalArgs,
    /// The program and its arguments.
    #[arg(value_name = "CMD", required_unless_present_any = ["pid", "import", "machine"], conflicts_with_all = ["pid", "import", "machine"], last = true)]
    command: Vec<OsString>,
}

/// Where the report about a recording goes, and its form.
#[derive(Clone, Debug)]
pub struct Report {
    format: Format,
    destination: Destination,
}

/// Records and writes the report.
pub fn run(options: Options) -> Result<(), Failure> {
    let runs_a_program = !options.command.is_empty();
    let done = record(options);
    if runs_a_program { done.map_err(Failure::with_program) } else { done }
}

fn record(options: Options) -> Result<(), Failure> {
    let Options { output, format, report, live, perf, physical, with_physical, command } = options;
    let destination = Destination::of_report(report.as_deref(), !command.is_empty());
    let report = Report { format, destination };
    if physical {
        return physical::run(with_physical, command, &output, &report);
    }
    forgo_huge_pages();
    if live.machine {
        return live::run_machine(&live, &output, &report);
    }
    if !perf.import.is_empty() {
        return perf_lackey::import(&perf, &live, &output, &report);
    }
    let kinds: Option<Vec<SourceKind>> = live
        .source
        .iter()
        .map(|source| match source {
            Source::Live(kind) => Some(*kind),
            Source::PerfMem | Source::Lackey => None,
        })
        .collect();
    if kinds.is_none() && live.sites {
        return Err(Failure::usage(anyhow!("perf-mem and lackey tell no sites; leave --sites out")));
    }
    if kinds.is_none() && live.watch.is_some() {
        return Err(Failure::usage(anyhow!(
            "perf-mem and lackey have no slices before the recording ends; leave --watch out"
        )));
    }
    if kinds.is_none() && live.delay.is_some() {
        return Err(Failure::usage(anyhow!(
            "perf-mem and lackey record from the program's start; leave --delay out"
        )));
    }
    match (kinds, live.source.as_slice()) {
        (Some(kinds), _) => live::run(live, kinds, command, &output, &report),
        (None, [Source::PerfMem]) => perf_lackey::perf_mem(&perf, &live, command, &output, &report),
        (None, [Source::Lackey]) if live.pid.is_none() => {
            perf_lackey::lackey(&live, command, &output, &report)
        }
        (None, [Source::Lackey]) => Err(Failure::usage(anyhow!(
            "lackey runs a program from its start; --pid is for the other sources"
        ))),
        (None, _) => {
            Err(Failure::usage(anyhow!("perf-mem and lackey cannot be combined with other sources")))
        }
    }
}

/// Failure for an error, and how to fix it.
pub fn advise(error: CaptureError) -> Failure {
    let advice = match &error {
        CaptureError::NoCommand | CaptureError::Caches(_) => return Failure::usage(error),
        CaptureError::Command { is_there, .. } => {
            let is_there = *is_there;
            return Failure::no_program(error, is_there);
        }
        // It is there, and the system refuses to run it.
        CaptureError::Program(source) => {
            let is_there = source.kind() != std::io::ErrorKind::NotFound;
            return Failure::no_program(error, is_there);
        }
        CaptureError::NoValgrind => "; install it (apt-get install valgrind)",
        CaptureError::NothingTraced(_) => "; what it said stands above",
        CaptureError::PageMap { .. } | CaptureError::Hidden => {
            "; run as root, or with CAP_SYS_ADMIN and CAP_PERFMON"
        }
        CaptureError::Machine(_) => {
            "; it takes root, and a kernel whose DAMON knows physical addresses and that nobody else uses (`tiermem doctor` says)"
        }
        CaptureError::NotOurs { .. } => "; run as its owner or as root",
        CaptureError::Source { name: "damon", .. } => "; another --source may do: refs works on every kernel",
        CaptureError::Source { name: "faults", .. } => {
            "; run as root, or lower kernel.perf_event_paranoid to 1"
        }
        CaptureError::Sites(source) => match source.kind() {
            std::io::ErrorKind::PermissionDenied => {
                "; run as root, or lower kernel.perf_event_paranoid to 2 (1 sees more)"
            }
            std::io::ErrorKind::Unsupported => "; --sites takes Linux on x86-64; leave it out",
            _ => "; leave --sites out, or raise the limit of open files (ulimit -n)",
        },
        CaptureError::Source { .. } => "; run as the program's owner or as root",
        _ => "",
    };
    Failure::failed(anyhow!("{error}{advice}"))
}
