//! Recording a program while it runs, slice by slice, with the sources that look at it again and again.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tiermem_sys::agent::{self, Agent, Listener};
use tiermem_sys::cpu_time;
use tiermem_sys::pidfd::PidFd;
use tiermem_trace::recording::{
    Cost, Executable, Head, Level, Mode, NODE_UNKNOWN, Recording, Sample, Slice, Source as SourceInfo,
};

use super::maps::{self, MapLine};
use super::program::{self, Program};
use super::regions::Regions;
use super::sampling::damon::Damon;
use super::sampling::faults::Faults;
use super::sampling::refs::Refs;
use super::sampling::writes::Writes;
use super::sampling::{Granules, Seen, Shape, Source};
use super::{CaptureError, Stop, build_id};

/// How long a program may take until the agent in it has begun; one that is linked statically never has one.
const AGENT_PATIENCE: Duration = Duration::from_millis(500);
/// The shortest window is such a part of a slice, or as long as looking takes.
const SHORTEST_WINDOW: u32 = 32;
/// Windows of one slice.
const WINDOWS_MAX: u32 = 6;
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

    fn open(self, pid: u32) -> io::Result<Box<dyn Source>> {
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
    let listener = Listener::open().map_err(CaptureError::Agent)?;
    let mut process = Process::begin(options, &listener, stop)?;
    let mut recorder = Recorder::new(options, process.pid);
    recorder.open_sources()?;
    if options.preload.is_some() && matches!(options.target, Target::Command(_)) {
        let begun = Instant::now();
        while recorder.agent.is_none() && begun.elapsed() < AGENT_PATIENCE {
            recorder.meet(&listener);
            if process.watch.wait(Duration::from_micros(200)) {
                break;
            }
        }
    }
    let mut next = recorder.begun;
    let ended = loop {
        recorder.meet(&listener);
        if !recorder.slice(&process.watch, stop, &mut next)? {
            break true;
        }
        progress(recorder.slices.len());
        if stop.is_asked() || options.duration.is_some_and(|most| recorder.begun.elapsed() >= most) {
            break process.watch.wait(Duration::ZERO);
        }
    };
    let ending = process.finish(ended)?;
    let recording = recorder.finish(&process)?;
    Ok((recording, ending))
}

/// The process that is recorded.
struct Process {
    pid: u32,
    watch: PidFd,
    /// If it was started here.
    program: Option<Program>,
    children_before: cpu_time::Spent,
}

impl Process {
    fn begin(options: &Options, listener: &Listener, stop: &Stop) -> Result<Self, CaptureError> {
        let children_before = cpu_time::children_spent();
        let (pid, program) = match &options.target {
            Target::Process(pid) => (*pid, None),
            Target::Command(words) => {
                let (file, arguments) = program::resolve(words)?;
                let mut command = Command::new(file);
                command.args(arguments);
                if let Some(library) = &options.preload {
                    let mut libraries = OsString::from(library);
                    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
                        libraries.push(":");
                        libraries.push(others);
                    }
                    command.env("LD_PRELOAD", libraries).env(agent::SOCKET_VARIABLE, listener.name());
                }
                if options.small_pages {
                    tiermem_sys::child::without_huge_pages(&mut command);
                }
                let program = Program::start(command, stop).map_err(CaptureError::Program)?;
                (program.pid(), Some(program))
            }
        };
        let watch = PidFd::open(pid).map_err(|_| CaptureError::NoProcess(pid))?;
        Ok(Process { pid, watch, program, children_before })
    }

    fn finish(&mut self, ended: bool) -> Result<Ending, CaptureError> {
        let Some(program) = &mut self.program else {
            return Ok(if ended { Ending::Gone } else { Ending::Stopped });
        };
        if !ended {
            program.end();
        }
        let status = program.wait().map_err(CaptureError::Wait)?;
        Ok(if ended { Ending::Exited(status) } else { Ending::Stopped })
    }
}

/// Accesses that were seen, before regions have their final form.
struct RawSample {
    slice: u32,
    region: u32,
    source: u8,
    op: tiermem_base::Op,
    address: u64,
    bytes: u32,
    weight: f32,
}

struct Recorder<'a> {
    options: &'a Options,
    pid: u32,
    begun: Instant,
    began_unix_ns: u64,
    cpu_before: Duration,
    agent: Option<Agent>,
    agent_cpu: Duration,
    /// Other processes that agents have told of.
    others: BTreeMap<u32, ()>,
    sources: Vec<Box<dyn Source>>,
    infos: Vec<SourceInfo>,
    regions: Regions,
    lines: Vec<MapLine>,
    executable: Executable,
    samples: Vec<RawSample>,
    slices: Vec<Slice>,
    /// What looking took last, opening a window and closing it together.
    look: Duration,
    late: u32,
    outside: f64,
    seen: f64,
    notes: Vec<String>,
}

impl<'a> Recorder<'a> {
    fn new(options: &'a Options, pid: u32) -> Self {
        Recorder {
            options,
            pid,
            begun: Instant::now(),
            began_unix_ns: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64,
            cpu_before: cpu_time::thread_cpu_time(),
            agent: None,
            agent_cpu: Duration::ZERO,
            others: BTreeMap::new(),
            sources: Vec::new(),
            infos: Vec::new(),
            regions: Regions::default(),
            lines: Vec::new(),
            executable: Executable::default(),
            samples: Vec::new(),
            slices: Vec::new(),
            look: Duration::ZERO,
            late: 0,
            outside: 0.0,
            seen: 0.0,
            notes: Vec::new(),
        }
    }

    fn open_sources(&mut self) -> Result<(), CaptureError> {
        self.end_sources();
        for kind in &self.options.sources {
            let source = kind.open(self.pid).map_err(|source| match source.kind() {
                io::ErrorKind::NotFound if !fs::exists(format!("/proc/{}", self.pid)).unwrap_or(true) => {
                    CaptureError::NoProcess(self.pid)
                }
                _ => CaptureError::Source { name: kind.name(), pid: self.pid, source },
            })?;
            self.sources.push(source);
        }
        self.infos = self.sources.iter().map(|source| source.describe()).collect();
        self.executable = executable(self.pid);
        Ok(())
    }

    fn end_sources(&mut self) {
        for mut source in self.sources.drain(..) {
            source.finish();
            for note in source.notes() {
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
            }
        }
    }

    /// Takes in agents that have connected: the program's own, or that of one which it has started.
    fn meet(&mut self, listener: &Listener) {
        for agent in listener.accept() {
            if agent.pid() == self.pid {
                self.agent_cpu += self.agent.as_ref().map_or(Duration::ZERO, |agent| agent.spent().cpu);
                self.agent = Some(agent);
            } else {
                self.others.insert(agent.pid(), ());
            }
        }
    }

    /// Whether the process has begun another program since the last time, which has an address space of its own.
    fn has_begun_another(&self) -> bool {
        !self.slices.is_empty() && {
            let now = exe_link(self.pid);
            now.is_some_and(|now| now != self.executable.path)
        }
    }

    /// Records one slice. False if the program ended in it.
    fn slice(&mut self, watch: &PidFd, stop: &Stop, next: &mut Instant) -> Result<bool, CaptureError> {
        let slice = self.slices.len() as u32;
        let begun = Instant::now();
        if self.has_begun_another() {
            self.notes.push(format!("the process began another program in slice {slice}"));
            self.regions.begin_anew();
            self.open_sources()?;
        }
        if !self.look_at_mappings(slice)? {
            return Ok(false);
        }
        let granule_bytes = granule_of(self.options, &self.lines);
        let regions = &self.regions;
        let granules = |address| {
            let origin = regions.find(address).map_or(address, |region| regions.origin(region));
            Granules { bytes: granule_bytes(address), origin }
        };
        let shape = Shape { mappings: &self.lines, granules: &granules };
        for (source, kind) in self.sources.iter_mut().zip(&self.options.sources) {
            let failed = |source| CaptureError::Source { name: kind.name(), pid: self.pid, source };
            source.begin(&shape, self.agent.as_mut()).map_err(failed)?;
        }
        *next = (*next + self.options.slice).max(begun + self.look);
        let ended = self.windows(watch, stop, *next);
        let end = Instant::now();
        if end > *next + self.options.slice / 2 {
            self.late += 1;
            *next = end;
        }
        // What was mapped meanwhile has accesses too.
        self.look_at_mappings(slice)?;
        self.collect(slice, end - begun)?;
        let start_ns = (begun - self.begun).as_nanos() as u64;
        let start_ns = self.slices.last().map_or(start_ns, |last| start_ns.max(last.start_ns + 1));
        self.slices.push(Slice { start_ns, end_ns: ((end - self.begun).as_nanos() as u64).max(start_ns) });
        Ok(!ended)
    }

    /// Opens and closes windows, from short to long, until `end` or the program's end. Whether it ended.
    fn windows(&mut self, watch: &PidFd, stop: &Stop, end: Instant) -> bool {
        let mut length = (self.options.slice / SHORTEST_WINDOW).max(self.look);
        for number in 0..WINDOWS_MAX {
            let before = Instant::now();
            // Those of a process that has gone fail, which the watch tells.
            self.sources.iter_mut().for_each(|source| drop(source.open_window()));
            let opening = before.elapsed();
            let left = end.saturating_duration_since(Instant::now());
            let is_last = number + 1 == WINDOWS_MAX || left < length * 2 + self.look * 2;
            let wait = if is_last { left.saturating_sub(self.look) } else { length };
            let ended = wait_for_end(watch, stop, wait);
            let before = Instant::now();
            self.sources.iter_mut().for_each(|source| drop(source.close_window()));
            self.look = opening + before.elapsed();
            if ended || stop.is_asked() {
                return ended;
            }
            if is_last {
                return watch.wait(Duration::ZERO);
            }
            length *= 2;
        }
        false
    }

    /// Takes in what is mapped now; false if the process has no memory any more.
    fn look_at_mappings(&mut self, slice: u32) -> Result<bool, CaptureError> {
        let path = format!("/proc/{}/maps", self.pid);
        // A path may be of any bytes.
        let text = match fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(CaptureError::NotOurs { pid: self.pid, source: error });
            }
            Err(_) => return Ok(false),
        };
        let lines = maps::parse(&text).map_err(|reason| CaptureError::Maps { path, reason })?;
        if lines.is_empty() {
            return Ok(false);
        }
        self.regions.update(&lines, slice);
        let regions = &self.regions;
        self.lines = lines
            .into_iter()
            .filter(|line| regions.find(line.start).is_some_and(|region| regions.is_memory(region)))
            .collect();
        Ok(true)
    }

    fn collect(&mut self, slice: u32, length: Duration) -> Result<(), CaptureError> {
        let Recorder { sources, regions, samples, outside, seen, options, pid, .. } = self;
        for (number, source) in (0_u8..).zip(sources) {
            let collected = source.collect(length, &mut |it: Seen| {
                let mut covered: Vec<(u32, u64, u64)> = Vec::new();
                regions.overlapping(it.address, it.address.saturating_add(it.bytes), &mut covered);
                let all: u64 = covered.iter().map(|(_, from, to)| to - from).sum();
                *seen += it.weight;
                if all == 0 {
                    *outside += it.weight;
                }
                for (region, mut from, to) in covered {
                    while from < to {
                        let bytes = (to - from).min(SAMPLE_BYTES_MAX);
                        let weight = (it.weight * bytes as f64 / all as f64) as f32;
                        let (address, bytes, op) = (from, bytes as u32, it.op);
                        samples.push(RawSample { slice, region, source: number, op, address, bytes, weight });
                        from += u64::from(bytes);
                    }
                }
            });
            let name = options.sources[usize::from(number)].name();
            collected.map_err(|source| CaptureError::Source { name, pid: *pid, source })?;
        }
        Ok(())
    }

    fn finish(mut self, process: &Process) -> Result<Recording, CaptureError> {
        self.end_sources();
        let wall = self.begun.elapsed();
        if self.samples.is_empty() {
            return Err(CaptureError::NothingSeen { milliseconds: wall.as_millis() });
        }
        if !self.others.is_empty() {
            let others = self.others.len();
            self.notes.push(format!("{others} other processes that the program started were not recorded"));
        }
        if self.late > 0 {
            self.notes.push(format!(
                "{} of {} slices are longer than asked for, since looking at the program took so long; a coarser --granule or a \
                 longer --slice helps",
                self.late,
                self.slices.len()
            ));
        }
        if self.outside > 0.0 {
            let share = self.outside / self.seen.max(f64::MIN_POSITIVE) * 100.0;
            self.notes.push(format!(
                "{share:.2}% of what was seen lay in no region that was known, and is left out"
            ));
        }
        let children = cpu_time::children_spent();
        let spent = |spent: cpu_time::Spent| spent.user + spent.system;
        let agent_cpu =
            self.agent_cpu + self.agent.as_ref().map_or(Duration::ZERO, |agent| agent.spent().cpu);
        let cost = Cost {
            wall_s: wall.as_secs_f64(),
            recorder_cpu_s: (cpu_time::thread_cpu_time() - self.cpu_before).as_secs_f64(),
            program_cpu_s: match process.program {
                Some(_) => spent(children).saturating_sub(spent(process.children_before)).as_secs_f64(),
                None => 0.0,
            },
            agent_cpu_s: agent_cpu.as_secs_f64(),
        };
        let (regions, places) = self.regions.finish();
        let sample = |raw: RawSample| {
            let region = places[raw.region as usize];
            Sample {
                slice: raw.slice,
                region,
                offset: raw.address - regions[region as usize].start,
                bytes: raw.bytes,
                weight: raw.weight,
                latency_cycles: 0.0,
                source: raw.source,
                op: raw.op,
                level: Level::Unknown,
                mode: Mode::Unknown,
                node: NODE_UNKNOWN,
            }
        };
        let samples = self.samples.into_iter().map(sample).collect();
        let command = match &self.options.target {
            Target::Command(words) => words.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            Target::Process(_) => Vec::new(),
        };
        let head = Head {
            version: Head::VERSION,
            command,
            executable: self.executable,
            began_unix_ns: self.began_unix_ns,
            granule_bytes: self.options.granule_bytes,
            slices: self.slices,
            sources: self.infos,
            regions,
            cost,
            notes: self.notes,
        };
        Ok(Recording { head, samples })
    }
}

/// The granule of each address: the closer look's in its mappings, the common one elsewhere.
fn granule_of<'a>(options: &'a Options, lines: &[MapLine]) -> impl Fn(u64) -> u64 + use<'a> {
    let close = options.closer.as_ref().map(|closer| (closer.granule_bytes, close_ranges(closer, lines)));
    move |address| match &close {
        Some((granule_bytes, ranges)) if ranges.iter().any(|range| range.contains(&address)) => {
            *granule_bytes
        }
        _ => options.granule_bytes,
    }
}

fn close_ranges(closer: &Closer, lines: &[MapLine]) -> Vec<std::ops::Range<u64>> {
    if closer.name == "anon" {
        let anonymous = lines.iter().filter(|line| line.path.is_none());
        // Granules of one mapping lie one behind the other, and are one for this purpose.
        let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
        for line in anonymous {
            match runs.last_mut() {
                Some(run) if run.end == line.start => run.end = line.end,
                _ => runs.push(line.start..line.end),
            }
        }
        return runs.into_iter().max_by_key(|run| run.end - run.start).into_iter().collect();
    }
    let is_meant = |path: &str| path.trim_matches(['[', ']']) == closer.name || path.ends_with(&closer.name);
    let meant = lines.iter().filter(|line| line.path.as_deref().is_some_and(is_meant));
    meant.map(|line| line.start..line.end).collect()
}

/// Waits so long, or until the process ends or the recording is asked to stop. Whether the process ended.
fn wait_for_end(watch: &PidFd, stop: &Stop, wait: Duration) -> bool {
    const STEP: Duration = Duration::from_millis(100);
    let until = Instant::now() + wait;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if watch.wait(left.min(STEP)) {
            return true;
        }
        if left <= STEP || stop.is_asked() {
            return false;
        }
    }
}

fn exe_link(pid: u32) -> Option<String> {
    Some(fs::read_link(format!("/proc/{pid}/exe")).ok()?.to_string_lossy().into_owned())
}

fn executable(pid: u32) -> Executable {
    let path = exe_link(pid).unwrap_or_default();
    let build_id = build_id::of_path(Some(&path));
    Executable { path, build_id }
}
