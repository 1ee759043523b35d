//! Observer of a running program, slice by slice: shared by recording it and by placing its memory.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use tiermem_sys::affinity::Precedence;
use tiermem_sys::agent::{self, Agent, Listener};
use tiermem_sys::cpu_time;
use tiermem_sys::perf::MappingWatch;
use tiermem_sys::pidfd::{PidFd, Woken};
use tiermem_trace::recording::{Executable, Source as SourceInfo};

use super::maps::{self, MapLine};
use super::options::{Closer, Ending, Options, Target};
use super::program::{self, Program};
use super::regions::Regions;
use super::sampling::{Granules, Seen, Shape, Source};
use super::{CaptureError, Stop, build_id};

/// Longest time until the agent in a program has begun; a statically linked program never has one.
const AGENT_PATIENCE: Duration = Duration::from_millis(500);
/// The system's error for a process that has ended (`ESRCH`).
const NO_PROCESS: i32 = 3;
/// The shortest window is such a part of a slice, or as long as looking takes.
const SHORTEST_WINDOW: u32 = 64;
/// Each window is so much longer than the one before.
const LONGER: u32 = 2;
/// Looking again, for another window, takes such a part of a slice at most: the kernel goes through all page tables for it, and what
/// that drives out of the processor's caches the program has to fetch again.
const LOOKING_PART: u32 = 12;
/// Looking once takes such a part at most, or the slice becomes longer.
const LOOKING_ONCE_PART: u32 = 2;

/// The process that is recorded.
pub(crate) struct Process {
    pub pid: u32,
    pub watch: PidFd,
    /// If it was started here.
    pub program: Option<Program>,
    pub children_before: cpu_time::Spent,
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

    pub fn finish(&mut self, ended: bool) -> Result<Ending, CaptureError> {
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

/// Accesses that were seen in one region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// The region, by its number in [`Regions`].
    pub region: u32,
    /// The source, by its number in the options.
    pub source: u8,
    /// Load or store.
    pub op: tiermem_base::Op,
    /// The first address.
    pub address: u64,
    /// Bytes that were observed as one.
    pub bytes: u64,
    /// Number of accesses.
    pub weight: f64,
}

/// A slice of time that was looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked {
    /// Its start.
    pub begun: Instant,
    /// Its end.
    pub end: Instant,
    /// Whether the program ended in it.
    pub ended: bool,
}

/// What looks at a program.
pub(crate) struct Observer<'a> {
    options: &'a Options,
    listener: Listener,
    /// The program.
    pub process: Process,
    /// The agent within it, if there is one.
    pub agent: Option<Agent>,
    agent_cpu: Duration,
    /// Other processes that agents have told of.
    pub others: BTreeSet<u32>,
    sources: Vec<Box<dyn Source>>,
    /// Facts about the sources.
    pub infos: Vec<SourceInfo>,
    /// The program's regions.
    pub regions: Regions,
    /// Its mappings, as of the last look, that sources can look at.
    pub lines: Vec<MapLine>,
    /// Its file.
    pub executable: Executable,
    /// Slices so far.
    slices: u32,
    /// When the next slice ends, if all is well.
    next: Instant,
    /// What looking took last, opening a window and closing it together.
    look: Duration,
    /// Slices that took longer than they should have.
    pub late: u32,
    /// Of all that was seen, what lay in no region.
    pub outside: f64,
    /// All that was seen.
    pub seen: f64,
    /// Whether the part that is to be looked at more closely was ever there.
    pub closer_found: bool,
    /// Windows that were more than twice as long as they should have been.
    pub long_windows: u32,
    /// Windows.
    pub windows: u32,
    /// Notes for the user.
    pub notes: Vec<String>,
    mappings: Option<MappingWatch>,
    _precedence: Option<Precedence>,
}

impl<'a> Observer<'a> {
    /// Starts the program, or attaches to it.
    pub fn begin(options: &'a Options, stop: &Stop) -> Result<Self, CaptureError> {
        options.check()?;
        let listener = Listener::open().map_err(CaptureError::Agent)?;
        // Programs map and touch memory within their first thousandths of a second.
        let mappings = options.tell_mappings.then(MappingWatch::before_start).transpose();
        let process = Process::begin(options, &listener, stop)?;
        // A recorder that has to wait for a processor sees long windows alone, in which all hot granules are alike. The program,
        // which was started before, has its own priority.
        let precedence = Precedence::take();
        let mut observer = Observer {
            options,
            listener,
            process,
            agent: None,
            agent_cpu: Duration::ZERO,
            others: BTreeSet::new(),
            sources: Vec::new(),
            infos: Vec::new(),
            regions: Regions::default(),
            lines: Vec::new(),
            executable: Executable::default(),
            slices: 0,
            next: Instant::now(),
            look: Duration::ZERO,
            late: 0,
            outside: 0.0,
            seen: 0.0,
            closer_found: false,
            long_windows: 0,
            windows: 0,
            notes: Vec::new(),
            mappings: None,
            _precedence: precedence,
        };
        match mappings {
            Ok(mappings) => observer.mappings = mappings,
            Err(error) => observer.notes.push(format!(
                "what the program maps is seen at the end of a slice, and not at once, as perf_event_open says: {error}; \
                 kernel.perf_event_paranoid of 2 or CAP_PERFMON allows it"
            )),
        }
        observer.open_sources()?;
        if options.preload.is_some() && matches!(options.target, Target::Command(_)) {
            let begun = Instant::now();
            while observer.agent.is_none() && begun.elapsed() < AGENT_PATIENCE {
                observer.meet();
                if observer.process.watch.wait(Duration::from_micros(200)) {
                    break;
                }
            }
        }
        observer.next = Instant::now();
        Ok(observer)
    }

    /// Processor time that the agent has taken from the program.
    pub fn agent_cpu(&self) -> Duration {
        self.agent_cpu + self.agent.as_ref().map_or(Duration::ZERO, |agent| agent.spent().cpu)
    }

    fn open_sources(&mut self) -> Result<(), CaptureError> {
        self.end_sources();
        for kind in &self.options.sources {
            let source = kind.open(self.process.pid, self.options).map_err(|source| match source.kind() {
                // It may have ended before it could be looked at.
                _ if source.raw_os_error() == Some(NO_PROCESS) && self.process.program.is_some() => {
                    CaptureError::NothingSeen { milliseconds: self.next.elapsed().as_millis() }
                }
                io::ErrorKind::NotFound
                    if !fs::exists(format!("/proc/{}", self.process.pid)).unwrap_or(true) =>
                {
                    CaptureError::NoProcess(self.process.pid)
                }
                _ => CaptureError::Source { name: kind.name(), pid: self.process.pid, source },
            })?;
            self.sources.push(source);
        }
        self.infos = self.sources.iter().map(|source| source.describe()).collect();
        self.executable = executable(self.process.pid);
        Ok(())
    }

    /// Ends the sources, and takes in what they have to say.
    pub fn end_sources(&mut self) {
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
    fn meet(&mut self) {
        for agent in self.listener.accept() {
            if agent.pid() == self.process.pid {
                self.agent_cpu += self.agent.as_ref().map_or(Duration::ZERO, |agent| agent.spent().cpu);
                self.agent = Some(agent);
            } else {
                self.others.insert(agent.pid());
            }
        }
    }

    /// Whether the process has begun another program since the last time, which has an address space of its own.
    fn has_begun_another(&self) -> bool {
        self.slices > 0 && {
            let now = exe_link(self.process.pid);
            now.is_some_and(|now| now != self.executable.path)
        }
    }

    /// Observes one slice and returns what was seen in it; `None` if the program has no memory any more. If the options
    /// say that mappings are reported at once, `mapped` is called as soon as there is a new one as large as a granule.
    pub fn slice(
        &mut self,
        stop: &Stop,
        mut each: impl FnMut(Piece),
        mapped: &mut dyn FnMut(&mut Self),
    ) -> Result<Option<Looked>, CaptureError> {
        self.meet();
        let slice = self.slices;
        let begun = Instant::now();
        if self.has_begun_another() {
            self.notes.push(format!("the process began another program in slice {slice}"));
            self.regions.begin_anew();
            self.open_sources()?;
        }
        if !self.look_at_mappings(slice)? {
            return Ok(None);
        }
        let close =
            self.options.closer.as_ref().map(|closer| close_ranges(closer, &self.lines)).unwrap_or_default();
        self.closer_found |= !close.is_empty();
        let granule_bytes = granule_of(self.options, &close);
        let regions = &self.regions;
        let granules = |address| {
            let origin = regions.find(address).map_or(address, |region| regions.origin(region));
            Granules { bytes: granule_bytes(address), origin }
        };
        let shape = Shape { mappings: &self.lines, granules: &granules };
        for (source, kind) in self.sources.iter_mut().zip(&self.options.sources) {
            let failed = |source| CaptureError::Source { name: kind.name(), pid: self.process.pid, source };
            source.begin(&shape, self.agent.as_mut()).map_err(failed)?;
        }
        let asked_for = self.next + self.options.slice;
        self.next = asked_for.max(begun + self.look * LOOKING_ONCE_PART);
        let ended = self.windows(stop, mapped);
        let end = Instant::now();
        if end > asked_for + self.options.slice / 2 {
            self.late += 1;
            self.next = end;
        }
        // What was mapped meanwhile has accesses too.
        self.look_at_mappings(slice)?;
        self.collect(end - begun, &mut each)?;
        self.slices += 1;
        Ok(Some(Looked { begun, end, ended }))
    }

    /// Opens and closes windows, from short to long, until the slice's end or the program's. Whether it ended.
    fn windows(&mut self, stop: &Stop, mapped: &mut dyn FnMut(&mut Self)) -> bool {
        let end = self.next;
        let most = self.sources.iter().map(|source| source.windows_max()).min().unwrap_or(1);
        let mut length = (self.options.slice / SHORTEST_WINDOW).max(self.look);
        for number in 0..most {
            let left = end.saturating_duration_since(Instant::now());
            let looks = (number + 2) * LOOKING_PART * self.look;
            let is_last =
                number + 1 == most || looks > self.options.slice || left < length * 2 + self.look * 2;
            let wait = if is_last { left.saturating_sub(self.look) } else { length };
            let before = Instant::now();
            // Sources of a process that has gone fail; the watch reports that.
            self.sources.iter_mut().for_each(|source| drop(source.open_window(before + wait)));
            let opening = before.elapsed();
            let ended = self.window(stop, before + wait, mapped);
            let waited = before.elapsed();
            self.windows += 1;
            self.long_windows += u32::from(waited > wait * 2 + self.options.slice / SHORTEST_WINDOW);
            let before = Instant::now();
            self.sources.iter_mut().for_each(|source| drop(source.close_window()));
            self.look = opening + before.elapsed();
            if ended || stop.is_asked() {
                return ended;
            }
            if is_last {
                return self.process.watch.wait(Duration::ZERO);
            }
            length *= LONGER;
        }
        false
    }

    /// Waits until a window's end, and lets sources act meanwhile. Returns whether the process ended.
    fn window(&mut self, stop: &Stop, until: Instant, mapped: &mut dyn FnMut(&mut Self)) -> bool {
        loop {
            let due = self.sources.iter().filter_map(|source| source.due()).min();
            let next = due.filter(|due| *due < until);
            let wait = next.unwrap_or(until).saturating_duration_since(Instant::now());
            let ended = self.wait(stop, wait, mapped);
            if ended || stop.is_asked() || next.is_none() {
                return ended;
            }
            self.sources.iter_mut().for_each(|source| drop(source.act()));
        }
    }

    /// Waits for this time, or until the process ends or the
    /// recording is asked to stop. Returns whether the process ended.
    fn wait(&mut self, stop: &Stop, wait: Duration, mapped: &mut dyn FnMut(&mut Self)) -> bool {
        /// Longest delay until a request to stop is noticed.
        const STEP: Duration = Duration::from_millis(100);
        /// A program often makes a mapping by several calls, and unmaps a part of it at once.
        const SETTLING: Duration = Duration::from_micros(300);
        /// A program that maps again and again, little each time, wakes its observer no more often.
        const PAUSE: Duration = Duration::from_millis(1);
        /// Nor does it take more of its observer's time than such a part.
        const MAPPINGS_PART: u32 = 10;
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let new = self.mappings.iter().flat_map(MappingWatch::events);
            let ended = match self.process.watch.wait_or(new, left.min(STEP)) {
                Woken::Ended => true,
                Woken::InTime => false,
                Woken::Readable if self.process.watch.wait(left.min(SETTLING)) => true,
                Woken::Readable => {
                    let begun = Instant::now();
                    if self.has_mapped_much() {
                        mapped(self);
                    }
                    let pause = PAUSE.max(begun.elapsed() * MAPPINGS_PART);
                    self.process.watch.wait(left.min(pause))
                }
            };
            if ended || stop.is_asked() || Instant::now() >= until {
                return ended;
            }
        }
    }

    /// Whether something as large as a granule has been mapped since the last time.
    fn has_mapped_much(&mut self) -> bool {
        let granule_bytes = self.options.granule_bytes;
        let mut has = false;
        if let Some(mappings) = &mut self.mappings {
            mappings.drain(self.process.pid, |_, bytes| has |= bytes >= granule_bytes);
        }
        has
    }

    /// Takes in what is mapped now, within a slice; false if the process has no memory any more.
    pub fn look_again(&mut self) -> Result<bool, CaptureError> {
        self.meet();
        self.look_at_mappings(self.slices)
    }

    /// Takes in what is mapped now; false if the process has no memory any more.
    fn look_at_mappings(&mut self, slice: u32) -> Result<bool, CaptureError> {
        let path = format!("/proc/{}/maps", self.process.pid);
        // A path may be of any bytes.
        let text = match fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(CaptureError::NotOurs { pid: self.process.pid, source: error });
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

    fn collect(&mut self, length: Duration, each: &mut dyn FnMut(Piece)) -> Result<(), CaptureError> {
        let Observer { sources, regions, outside, seen, options, process, .. } = self;
        for (number, source) in (0_u8..).zip(sources) {
            let mut covered: Vec<(u32, u64, u64)> = Vec::new();
            let collected = source.collect(length, &mut |it: Seen| {
                covered.clear();
                regions.overlapping(it.address, it.address.saturating_add(it.bytes), &mut covered);
                let all: u64 = covered.iter().map(|(_, from, to)| to - from).sum();
                *seen += it.weight;
                if all == 0 {
                    *outside += it.weight;
                }
                for (region, from, to) in covered.iter().copied() {
                    let weight = it.weight * (to - from) as f64 / all as f64;
                    each(Piece {
                        region,
                        source: number,
                        op: it.op,
                        address: from,
                        bytes: to - from,
                        weight,
                    });
                }
            });
            let name = options.sources[usize::from(number)].name();
            collected.map_err(|source| CaptureError::Source { name, pid: process.pid, source })?;
        }
        Ok(())
    }
}

/// The granule of each address: the closer look's in its mappings, the common one elsewhere.
fn granule_of(options: &Options, close: &[std::ops::Range<u64>]) -> impl Fn(u64) -> u64 {
    move |address| match &options.closer {
        Some(closer) if close.iter().any(|range| range.contains(&address)) => closer.granule_bytes,
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

fn exe_link(pid: u32) -> Option<String> {
    Some(fs::read_link(format!("/proc/{pid}/exe")).ok()?.to_string_lossy().into_owned())
}

fn executable(pid: u32) -> Executable {
    let path = exe_link(pid).unwrap_or_default();
    let build_id = build_id::of_path(Some(&path));
    Executable { path, build_id }
}
