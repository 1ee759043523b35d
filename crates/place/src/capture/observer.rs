//! Observer of a running program, slice by slice: shared by recording it and by placing its memory.

use std::fs;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use tiermem_policy::accessed_bits::Pacing;
use tiermem_sys::affinity::Precedence;
use tiermem_sys::agent::{self, Agent, NoAgent};
use tiermem_sys::perf::MappingWatch;
use tiermem_sys::pidfd::PidFd;
use tiermem_sys::process_claim::ProcessClaim;
use tiermem_trace::recording::{Executable, Source as SourceInfo};

use super::mappings::mapping_news::MappingNews;
use super::mappings::maps::{self, MapLine};
use super::mappings::origins::Origins;
use super::mappings::regions::Regions;
use super::options::{Ending, Options, SourceKind, Target};
use super::program::{self, Program};
use super::sampling::{Granules, Seen, Shape, Source};
use super::schedule::Due;
use super::{CaptureError, Stop, build_id};

mod slice_windows;

use slice_windows::{STEP, Used};

/// The system's error for a process that has ended (`ESRCH`).
const NO_PROCESS: i32 = 3;
/// So long, in so many moments, a process is waited for that has no memory as it is about to begin another program.
const MOMENTS: u32 = 100;
const MOMENT: Duration = Duration::from_millis(1);
/// So often what the kernel tells is taken in while nothing is observed.
const DRAINED_EACH: Duration = Duration::from_millis(100);

/// The process that is recorded.
pub(crate) struct Process {
    pub pid: u32,
    pub watch: PidFd,
    /// If it was started here.
    pub program: Option<Program>,
}

impl Process {
    /// Starts it, or opens it; with its agent, if it has one, or the reason why it has none.
    fn begin(options: &Options, stop: &Stop) -> Result<(Self, Option<Result<Agent, NoAgent>>), CaptureError> {
        let (pid, program, agent) = match &options.target {
            Target::Process(pid) => (*pid, None, options.agent.then(|| agent::attach(*pid))),
            Target::Command(words) => {
                let mut command = program::command(words)?;
                if options.small_pages {
                    tiermem_sys::inherited::without_huge_pages(&mut command);
                }
                let started = Program::start(command, stop, options.agent).map_err(CaptureError::Program)?;
                let (program, agent) = started;
                (program.pid(), Some(program), agent)
            }
        };
        Ok((Process::of(pid, program)?, agent))
    }

    fn of(pid: u32, program: Option<Program>) -> Result<Self, CaptureError> {
        let watch = PidFd::open(pid).map_err(|_| CaptureError::NoProcess(pid))?;
        Ok(Process { pid, watch, program })
    }

    /// How it ended, if it did; else it goes on, and can be waited for if it was started here.
    pub fn finish(&mut self, ended: bool) -> Result<Ending, CaptureError> {
        match self.program.as_ref().filter(|_| ended) {
            Some(program) => program.wait().map(Ending::Exited).map_err(CaptureError::Wait),
            None if ended => Ok(Ending::Gone),
            None => Ok(Ending::Stopped),
        }
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
    /// The program.
    pub process: Process,
    /// The agent within it, if there is one.
    pub agent: Option<Agent>,
    agent_cpu: Duration,
    /// The processes of all agents that there were.
    pub agents: Vec<u32>,
    sources: Vec<Box<dyn Source>>,
    /// Facts about the sources.
    pub infos: Vec<SourceInfo>,
    /// The program's regions.
    pub regions: Regions,
    /// Whose memory it is.
    origins: Origins,
    /// Its mappings, as of the last look, that sources can look at.
    pub lines: Vec<MapLine>,
    /// Before the last look at them.
    used: Option<Used>,
    /// Since when it does not run, as far as is known.
    quiet: Used,
    /// Its file.
    pub executable: Executable,
    /// Whether there was a slice.
    has_looked: bool,
    /// The slice under way.
    slice: u32,
    /// What looking took last, opening a window and closing it together.
    look: Duration,
    /// Of all that was seen, what lay in no region.
    pub outside: f64,
    /// All that was seen.
    pub seen: f64,
    /// The regions that were looked at more closely last, by number.
    closer: Vec<u32>,
    /// Windows that were more than twice as long as they should have been.
    pub long_windows: u32,
    /// Windows.
    pub windows: u32,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Whether the process has left the address space that its agent was in.
    has_left: bool,
    /// The slices in which the process began another program.
    pub begun_anew: Vec<u32>,
    mappings: Option<MappingWatch>,
    /// What was mapped, as large as a granule, that nobody was told of.
    news: MappingNews,
    _precedence: Option<Precedence>,
    /// Keeps other recorders away.
    _claim: Option<ProcessClaim>,
}

impl<'a> Observer<'a> {
    /// Starts the program, or attaches to it.
    pub fn begin(options: &'a Options, stop: &Stop) -> Result<Self, CaptureError> {
        options.check()?;
        // Programs map and touch memory within their first thousandths of a second.
        let mappings = match options.target {
            Target::Command(_) => MappingWatch::before_start().map(Some),
            Target::Process(_) => Ok(None),
        };
        // Before an agent is brought in.
        let claim = match options.target {
            Target::Process(pid) => options.claim(pid)?,
            Target::Command(_) => None,
        };
        let (process, agent) = Process::begin(options, stop)?;
        let claim = claim.map_or_else(|| options.claim(process.pid), |claim| Ok(Some(claim)))?;
        let mut observer = Observer { _claim: claim, ..Observer::of(options, process) };
        match mappings {
            Ok(mappings) => observer.mappings = mappings,
            // Where nobody acts on them, regions are coarser without.
            Err(_) if !options.tell_mappings => {}
            Err(error) => observer.notes.push(format!(
                "what the program maps is seen at the end of a slice, and not at once, as perf_event_open says: {error}; \
                 kernel.perf_event_paranoid of 2 or CAP_PERFMON allows it"
            )),
        }
        observer.take_agent(agent);
        observer.let_run(stop, options.delay);
        observer.open_sources()?;
        Ok(observer)
    }

    /// Lets the program run for a while, unobserved.
    fn let_run(&mut self, stop: &Stop, time: Duration) {
        let until = Instant::now() + time;
        while !stop.is_asked() {
            let left = until.saturating_duration_since(Instant::now());
            let step = left.min(DRAINED_EACH);
            // One that has begun another program is not waited for by its agent any more.
            let ended = if self.has_left {
                self.process.watch.wait(step)
            } else {
                self.wait(stop, step, STEP, &mut |_| {})
            };
            if ended || left.is_zero() {
                return;
            }
            // The kernel has little room for what it tells.
            self.drain_mappings();
        }
    }

    /// Attaches to a process that runs, from this slice on.
    pub fn follow(options: &'a Options, pid: u32, slice: u32) -> Result<Self, CaptureError> {
        let claim = options.claim(pid)?;
        let mut observer =
            Observer { slice, _claim: claim, ..Observer::of(options, Process::of(pid, None)?) };
        observer.take_agent(options.agent.then(|| agent::attach(pid)));
        observer.open_sources()?;
        Ok(observer)
    }

    fn of(options: &'a Options, process: Process) -> Self {
        let pid = process.pid;
        Observer {
            options,
            process,
            agent: None,
            agent_cpu: Duration::ZERO,
            agents: Vec::new(),
            sources: Vec::new(),
            infos: Vec::new(),
            regions: Regions::default(),
            origins: Origins::default(),
            lines: Vec::new(),
            used: None,
            quiet: Used::of(pid),
            executable: Executable::default(),
            has_looked: false,
            slice: 0,
            look: Duration::ZERO,
            outside: 0.0,
            seen: 0.0,
            closer: Vec::new(),
            long_windows: 0,
            windows: 0,
            notes: Vec::new(),
            has_left: false,
            begun_anew: Vec::new(),
            mappings: None,
            news: MappingNews::default(),
            // A recorder that has to wait for a processor sees long windows alone, in which all hot granules are alike. The program,
            // which was started before, has its own priority.
            _precedence: Precedence::take(),
            _claim: None,
        }
    }

    /// Processor time that the agent has taken from the program.
    pub fn agent_cpu(&self) -> Duration {
        self.agent_cpu + self.agent.as_ref().map_or(Duration::ZERO, |agent| agent.spent().cpu)
    }

    fn open_sources(&mut self) -> Result<(), CaptureError> {
        self.end_sources();
        for kind in &self.options.sources {
            let opened = self.open(*kind);
            // It may have ended before it could be looked at.
            let has_gone = |error: &io::Error| error.raw_os_error() == Some(NO_PROCESS);
            if self.process.program.is_some() && opened.as_ref().is_err_and(has_gone) {
                break;
            }
            let source = opened.map_err(|source| match source.kind() {
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

    /// Opens a source. A process that is about to begin another program has no memory for a moment.
    fn open(&self, kind: SourceKind) -> io::Result<Box<dyn Source>> {
        let mut opened = kind.open(self.process.pid, self.options);
        for _ in 0..MOMENTS {
            if !matches!(&opened, Err(error) if error.raw_os_error() == Some(NO_PROCESS))
                || self.process.watch.wait(MOMENT)
            {
                break;
            }
            opened = kind.open(self.process.pid, self.options);
        }
        opened
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

    /// Takes in the agent of the program, or says why there is none.
    fn take_agent(&mut self, agent: Option<Result<Agent, NoAgent>>) {
        match agent {
            Some(Ok(agent)) => {
                self.agents.extend(agent.own_pid());
                self.agent = Some(agent);
            }
            Some(Err(reason)) => {
                let note = format!("there is no agent in the program: {reason}");
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
            }
            None => {}
        }
    }

    /// Drops the agent once its address space is the program's no more, which keeps that from being given back.
    fn let_agent_go(&mut self) {
        agent::leave_late();
        if self.agent.as_ref().is_some_and(|agent| agent.is_in() == Some(false)) {
            self.agent_cpu = self.agent_cpu();
            self.agent = None;
            self.has_left = true;
        }
    }

    /// Whether the process has begun another program since the last time, which has an address space of its own.
    fn has_begun_another(&mut self) -> bool {
        self.let_agent_go();
        std::mem::take(&mut self.has_left)
            || self.has_looked && exe_link(self.process.pid).is_some_and(|now| now != self.executable.path)
    }

    /// Begins anew with another program in the same process.
    fn begin_another(&mut self) -> Result<(), CaptureError> {
        self.begun_anew.push(self.slice);
        self.used = None;
        self.regions.begin_anew();
        self.origins.begin_anew();
        if self.options.agent {
            let agent = agent::attach(self.process.pid);
            self.take_agent(Some(agent));
        }
        self.open_sources()
    }

    /// Observes one slice and returns what was seen in it; `None` if the program has no memory any more. If the options
    /// say that mappings are reported at once, `mapped` is called as soon as there is a new one as large as a granule.
    pub fn slice(
        &mut self,
        stop: &Stop,
        due: Due,
        mut each: impl FnMut(Piece),
        mapped: &mut dyn FnMut(&mut Self),
    ) -> Result<Option<Looked>, CaptureError> {
        self.slice = due.number;
        let begun = Instant::now();
        // A process that has ended has no program to begin with.
        if !self.process.watch.wait(Duration::ZERO) && self.has_begun_another() {
            self.begin_another()?;
        }
        if !self.look_if_it_ran()? {
            return Ok(None);
        }
        let close = self.close_ranges();
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
        let least_s = Pacing::least_slice_s(self.look.as_secs_f64());
        let until = due.until.max(begun + Duration::from_secs_f64(least_s));
        let ended = self.windows(stop, until, mapped);
        let end = Instant::now();
        // What was mapped meanwhile has accesses too.
        self.look_if_it_ran()?;
        self.collect(end - begun, &mut each)?;
        self.has_looked = true;
        Ok(Some(Looked { begun, end, ended }))
    }

    /// Where it is to be looked at more closely now. Mappings are divided at the ends.
    fn close_ranges(&mut self) -> Vec<Range<u64>> {
        let Some(closer) = &self.options.closer else { return Vec::new() };
        self.closer = self.regions.choose(closer, self.closer.first().copied(), false);
        let mapped = self.closer.iter().flat_map(|region| self.regions.mapped(*region));
        let mut close: Vec<Range<u64>> = mapped.map(|(start, end)| start..end).collect();
        close.sort_unstable_by_key(|range| range.start);
        for at in close.iter().flat_map(|range| [range.start, range.end]) {
            let behind = self.lines.partition_point(|line| line.end <= at);
            if let Some(line) = self.lines.get_mut(behind).filter(|line| line.start < at) {
                let rest = MapLine { start: at, offset: line.offset + (at - line.start), ..line.clone() };
                line.end = at;
                self.lines.insert(behind + 1, rest);
            }
        }
        close
    }

    /// Whether the program never had what was to be looked at more closely.
    pub fn is_closer_missing(&self) -> bool {
        let closer = self.options.closer.as_ref();
        closer.is_some_and(|closer| self.regions.choose(closer, None, true).is_empty())
    }

    /// The mappings of the process now; none if it has no memory any more.
    fn map_lines(&self) -> Result<Vec<MapLine>, CaptureError> {
        let path = format!("/proc/{}/maps", self.process.pid);
        for _ in 0..MOMENTS {
            // A path may be of any bytes.
            let text = match fs::read(&path) {
                Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(CaptureError::NotOurs { pid: self.process.pid, source: error });
                }
                Err(_) => String::new(),
            };
            let lines =
                maps::parse(&text).map_err(|reason| CaptureError::Maps { path: path.clone(), reason })?;
            if !lines.is_empty() || self.process.watch.wait(MOMENT) {
                return Ok(lines);
            }
        }
        Ok(Vec::new())
    }

    /// Takes in what is mapped now, unless the process has not run since the last look: what does not run maps nothing. One that has just
    /// begun to may not be counted as running yet, and is looked at the next time; so this is not for those that the kernel has told of.
    fn look_if_it_ran(&mut self) -> Result<bool, CaptureError> {
        let used = Used::of(self.process.pid);
        if self.used.is_some_and(|before| before.is_same(used)) && !self.lines.is_empty() {
            self.regions.remain(self.slice);
            return Ok(true);
        }
        self.look_again()
    }

    /// Takes in what is mapped now; false if the process has no memory any more.
    pub fn look_again(&mut self) -> Result<bool, CaptureError> {
        self.used = Some(Used::of(self.process.pid));
        let mut lines = self.map_lines()?;
        if lines.is_empty() {
            return Ok(false);
        }
        // After the mappings were read, so that it is known who made them.
        self.drain_mappings();
        let owners = self.origins.tell(self.process.pid, &mut lines);
        self.regions.update(&lines, &owners, self.slice);
        let regions = &self.regions;
        self.lines = lines
            .into_iter()
            .filter(|line| regions.find(line.start).is_some_and(|region| regions.is_memory(region)))
            .collect();
        Ok(true)
    }

    fn collect(&mut self, length: Duration, each: &mut dyn FnMut(Piece)) -> Result<(), CaptureError> {
        let Observer { sources, regions, outside, seen, options, process, .. } = self;
        regions.cool();
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
                    if number == 0 {
                        regions.heat(region, weight);
                    }
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
fn granule_of(options: &Options, close: &[Range<u64>]) -> impl Fn(u64) -> u64 {
    move |address| match &options.closer {
        Some(closer) if close.iter().any(|range| range.contains(&address)) => closer.granule_bytes,
        _ => options.granule_bytes,
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
