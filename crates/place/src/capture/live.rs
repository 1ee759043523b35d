//! Recording a program while it runs, slice by slice, with the sources that look at it again and again.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tiermem_sys::cpu_time;
use tiermem_trace::recording::{Cost, Head, Level, Mode, NODE_UNKNOWN, Recording, Sample, Slice};

use super::observer::{Observer, Piece};
use super::sampling::Source;
use super::sampling::damon::Damon;
use super::sampling::faults::Faults;
use super::sampling::refs::Refs;
use super::sampling::writes::Writes;
use super::{CaptureError, Stop};

/// The largest stretch that one sample stands for.
const SAMPLE_BYTES_MAX: u64 = 1 << 30;

/// Which source to look with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceKind {
    /// Pages referenced.
    Refs,
    /// Pages written.
    Writes,
    /// Page faults.
    Faults,
    /// The kernel's DAMON.
    Damon,
}

impl SourceKind {
    /// All of them.
    pub const ALL: [SourceKind; 4] =
        [SourceKind::Refs, SourceKind::Writes, SourceKind::Faults, SourceKind::Damon];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            SourceKind::Refs => "refs",
            SourceKind::Writes => "writes",
            SourceKind::Faults => "faults",
            SourceKind::Damon => "damon",
        }
    }

    pub(super) fn open(self, pid: u32) -> io::Result<Box<dyn Source>> {
        Ok(match self {
            SourceKind::Refs => Box::new(Refs::open(pid)?),
            SourceKind::Writes => Box::new(Writes::open(pid)?),
            SourceKind::Faults => Box::new(Faults::open(pid)?),
            SourceKind::Damon => Box::new(Damon::open(pid)?),
        })
    }
}

/// What is recorded.
#[derive(Clone, Debug)]
pub enum Target {
    /// A program that is started, and its arguments.
    Command(Vec<OsString>),
    /// A process that runs already.
    Process(u32),
}

/// A part of a program's memory that is looked at with another granule than the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closer {
    /// A mapped file's path ends with this, or it is `heap` or `stack`; `anon` is the largest mapping of no file.
    pub name: String,
    /// Bytes of its granules, a multiple of 4096.
    pub granule_bytes: u64,
}

/// How a program is to be recorded.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program.
    pub target: Target,
    /// What it is looked at with; the first one is what other tools take by default.
    pub sources: Vec<SourceKind>,
    /// The length of a slice.
    pub slice: Duration,
    /// Bytes of a granule, a multiple of 4096.
    pub granule_bytes: u64,
    /// A part that is looked at more closely.
    pub closer: Option<Closer>,
    /// Keep a program that is started here from having huge pages.
    pub small_pages: bool,
    /// The library with the agent; without it, what needs the agent is left out.
    pub preload: Option<PathBuf>,
    /// Stop after so long; a program that was started here is ended then.
    pub duration: Option<Duration>,
}

/// How a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The program ended by itself.
    Exited(ExitStatus),
    /// A process that was not started here ended.
    Gone,
    /// The recording was asked to stop, or its time was up.
    Stopped,
}

/// Records a program. `progress` is told the slices so far. A program that was started here does not outlive this call.
///
/// # Errors
/// If the program cannot be started or looked at, if a source cannot work here, or if it ended before anything was seen.
pub fn record(
    options: &Options,
    stop: &Stop,
    mut progress: impl FnMut(usize),
) -> Result<(Recording, Ending), CaptureError> {
    let mut recorder = Recorder {
        begun: Instant::now(),
        began_unix_ns: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64,
        cpu_before: cpu_time::thread_cpu_time(),
        observer: Observer::begin(options, stop)?,
        samples: Vec::new(),
        slices: Vec::new(),
    };
    let ended = loop {
        let Recorder { observer, samples, slices, begun, .. } = &mut recorder;
        let slice = slices.len() as u32;
        let Some(looked) = observer.slice(stop, |piece| samples.push((slice, piece)))? else { break true };
        let start_ns = (looked.begun - *begun).as_nanos() as u64;
        let start_ns = slices.last().map_or(start_ns, |last: &Slice| start_ns.max(last.start_ns + 1));
        slices.push(Slice { start_ns, end_ns: ((looked.end - *begun).as_nanos() as u64).max(start_ns) });
        progress(slices.len());
        if looked.ended || stop.is_asked() || options.duration.is_some_and(|most| begun.elapsed() >= most) {
            break looked.ended;
        }
    };
    let ending = recorder.observer.process.finish(ended)?;
    let recording = recorder.finish(options, ending)?;
    Ok((recording, ending))
}

struct Recorder<'a> {
    observer: Observer<'a>,
    begun: Instant,
    began_unix_ns: u64,
    cpu_before: Duration,
    /// What was seen, with its slice, before regions have their final form.
    samples: Vec<(u32, Piece)>,
    slices: Vec<Slice>,
}

impl Recorder<'_> {
    fn finish(self, options: &Options, ending: Ending) -> Result<Recording, CaptureError> {
        let Recorder { mut observer, begun, began_unix_ns, cpu_before, samples: pieces, slices } = self;
        observer.end_sources();
        let wall = begun.elapsed();
        if pieces.is_empty() {
            let milliseconds = wall.as_millis();
            return Err(match ending {
                Ending::Exited(_) | Ending::Gone => CaptureError::NothingSeen { milliseconds },
                Ending::Stopped => {
                    CaptureError::SawNothing { milliseconds, notes: observer.notes.join("; ") }
                }
            });
        }
        let children = cpu_time::children_spent();
        let spent = |spent: cpu_time::Spent| spent.user + spent.system;
        let cost = Cost {
            wall_s: wall.as_secs_f64(),
            recorder_cpu_s: (cpu_time::thread_cpu_time() - cpu_before).as_secs_f64(),
            program_cpu_s: match observer.process.program {
                Some(_) => {
                    spent(children).saturating_sub(spent(observer.process.children_before)).as_secs_f64()
                }
                None => 0.0,
            },
            agent_cpu_s: observer.agent_cpu().as_secs_f64(),
        };
        let notes = notes(&observer, slices.len());
        let (regions, places) = observer.regions.finish();
        let mut samples = Vec::with_capacity(pieces.len());
        for (slice, piece) in pieces {
            let region = places[piece.region as usize];
            let start = regions[region as usize].start;
            let (mut from, end) = (piece.address, piece.address + piece.bytes);
            while from < end {
                let bytes = (end - from).min(SAMPLE_BYTES_MAX);
                samples.push(Sample {
                    slice,
                    region,
                    offset: from - start,
                    bytes: bytes as u32,
                    weight: (piece.weight * bytes as f64 / piece.bytes as f64) as f32,
                    latency_cycles: 0.0,
                    source: piece.source,
                    op: piece.op,
                    level: Level::Unknown,
                    mode: Mode::Unknown,
                    node: NODE_UNKNOWN,
                });
                from += bytes;
            }
        }
        let command = match &options.target {
            Target::Command(words) => words.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            Target::Process(_) => Vec::new(),
        };
        let head = Head {
            version: Head::VERSION,
            command,
            executable: observer.executable,
            began_unix_ns,
            granule_bytes: options.granule_bytes,
            slices,
            sources: observer.infos,
            regions,
            cost,
            notes,
        };
        Ok(Recording { head, samples })
    }
}

/// What a reader of the recording should know.
fn notes(observer: &Observer<'_>, slices: usize) -> Vec<String> {
    let mut notes = observer.notes.clone();
    if !observer.others.is_empty() {
        let others = observer.others.len();
        notes.push(format!("{others} other processes that the program started were not recorded"));
    }
    if observer.late > 0 {
        let late = observer.late;
        notes.push(format!(
            "{late} of {slices} slices are longer than asked for, since looking at the program took so long; a coarser \
             --granule or a longer --slice helps"
        ));
    }
    if observer.outside > 0.0 {
        let share = observer.outside / observer.seen.max(f64::MIN_POSITIVE) * 100.0;
        notes.push(format!("{share:.2}% of what was seen lay in no region that was known, and is left out"));
    }
    notes
}
