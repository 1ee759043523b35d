//! Physical memory traces of a program, without a patched kernel and without a patched Valgrind.
//!
//! Yang 2023, section 3.1, filters the accesses that Valgrind sees through
//! modelled caches, and translates the remaining ones with the page table updates
//! that a patched kernel reports. Here the parts are those that every machine has:
//!
//! - Valgrind's Lackey writes every access as a line of text into a pipe;
//! - [`tiermem_trace::filter::hierarchy`] lets through the accesses that reach memory;
//! - Valgrind runs the program within its own process, so the program's addresses are that process's, and
//!   `/proc/PID/pagemap` has their frames;
//! - software events of `perf` report each page fault as it happens, so that [`frames`] knows when to look up a page
//!   again;
//! - [`Timing`] computes when an access would have happened without Valgrind.

pub mod frames;
mod queue;

use std::ffi::OsString;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use tiermem_base::{Access, Op};
use tiermem_sys::pagemap::{PAGE_BYTES, PageEntry, PageMap};
use tiermem_sys::perf::FaultWatch;
use tiermem_trace::filter::hierarchy::{Hierarchy, Kind, LINE_BYTES, Level, Memory, Shapes};
use tiermem_trace::reader::FETCHES;
use tiermem_trace::writer::Writer;

pub use crate::capture::Timing;

use crate::capture::clock::Progress;
use crate::capture::tracee::{self, Tracee};
use crate::capture::{CaptureError, Stop};

use self::frames::{FrameCounts, Frames, PageLookup, PageTable};
use self::queue::Queue;

/// Least time between two looks at all pages.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// At most such a part of the time goes into them.
const SWEEP_SHARE: u32 = 50;
/// Batches that are read behind the last transaction, so that its access has happened when its page is looked at.
const BATCHES_BEHIND: u32 = 2;

/// Options of a recording.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The caches that are modelled.
    pub caches: Shapes,
    /// The time model.
    pub timing: Timing,
    /// Transactions between the last-level cache and memory after which the program is ended.
    pub transactions: u64,
    /// Instructions before recording starts; the caches see them.
    pub skip_instructions: u64,
    /// Whether instruction fetches go through the caches.
    pub fetches: bool,
}

/// How a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All transactions that were asked for are there, and the program was ended.
    Enough,
    /// It was asked to stop.
    Stopped,
    /// The program ended by itself.
    Exited(ExitStatus),
    /// Valgrind could not continue, most often because the program used an instruction that it does not know.
    TracerDied,
}

/// Summary of a recording.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Lines read from memory in the trace.
    pub loads: u64,
    /// Lines written to memory in the trace.
    pub stores: u64,
    /// Transactions left out because their frame never became known.
    pub left_out: u64,
    /// Counts of resolved pages.
    pub pages: FrameCounts,
    /// Page faults that were watched; `None` if that was not possible, and why.
    pub faults: Result<u64, String>,
    /// Page faults that were lost because too many came at once; all pages were looked at anew.
    pub faults_lost: u64,
    /// Instructions of the program, skipped ones with them.
    pub instructions: u64,
    /// Loads and stores of the program.
    pub accesses: u64,
    /// Duration of the recording.
    pub wall: Duration,
    /// Modelled time of the program for the same work, in nanoseconds.
    pub modelled_ns: u64,
    /// Why it ended.
    pub ending: Ending,
}

/// Records a program. `progress` gets the transactions so far, many times a second. The program never
/// outlives this call. The writer is not finished: after an error, the caller keeps or drops its contents.
pub fn record(
    options: &Options,
    writer: &mut dyn Writer,
    stop: &Stop,
    mut progress: impl FnMut(u64),
) -> Result<Summary, CaptureError> {
    let caches = Hierarchy::new(&options.caches).map_err(CaptureError::Caches)?;
    let begun = Instant::now();
    let mut tracee = Tracee::start(&options.command, stop)?;
    let mut recorder = Recorder::new(caches, options, tracee.pid());
    let mut batch = Vec::new();
    let mut behind = 0;
    while !stop.is_asked() && behind < BATCHES_BEHIND && tracee.read(&mut batch)? {
        recorder.open_table(tracee.pid())?;
        recorder.look_at_pages();
        if recorder.traffic.is_enough() {
            behind += 1;
        } else {
            batch.iter().for_each(|access| recorder.access(access));
        }
        if recorder.traffic.table.is_hidden {
            return Err(CaptureError::Hidden);
        }
        recorder.traffic.queue.write(&recorder.traffic.frames, false, writer)?;
        progress(recorder.traffic.transactions);
    }
    // The last ones, as far as the program is still there to be looked at.
    recorder.look_at_pages();
    let wall = begun.elapsed();
    let is_enough = recorder.traffic.is_enough();
    let tracer_died = tracee.tracer_died;
    let status = tracee.finish(is_enough, recorder.traffic.progress != Progress::default(), stop)?;
    recorder.traffic.queue.write(&recorder.traffic.frames, true, writer)?;
    let ending = match () {
        () if is_enough => Ending::Enough,
        () if tracer_died => Ending::TracerDied,
        () if stop.is_asked() => Ending::Stopped,
        () => Ending::Exited(status),
    };
    Ok(recorder.summary(wall, ending))
}

/// The program's page table; empty until there is one.
#[derive(Default)]
struct Table {
    map: Option<PageMap>,
    /// Whether frames were kept from us.
    is_hidden: bool,
    entries: Vec<PageEntry>,
}

impl Table {
    fn found(&mut self, entry: PageEntry) -> PageLookup {
        self.is_hidden |= entry == PageEntry::Hidden;
        match entry {
            PageEntry::Frame(frame) => PageLookup::Frame(frame),
            PageEntry::Absent | PageEntry::Hidden => PageLookup::Absent,
            PageEntry::Gone => PageLookup::NoTable,
        }
    }
}

impl PageTable for Table {
    fn page(&mut self, page: u64) -> PageLookup {
        let entry = self.map.as_ref().map_or(PageEntry::Gone, |map| map.page(page));
        self.found(entry)
    }

    fn pages(&mut self, first: u64, found: &mut [PageLookup]) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.clear();
        entries.resize(found.len(), PageEntry::Gone);
        if let Some(map) = &mut self.map {
            map.pages(first, &mut entries);
        }
        for (found, entry) in found.iter_mut().zip(&entries) {
            *found = self.found(*entry);
        }
        self.entries = entries;
    }
}

/// The parts behind the caches: translation, time, and the queue to the writer.
struct Traffic {
    frames: Frames,
    table: Table,
    queue: Queue,
    timing: Timing,
    progress: Progress,
    /// Transactions so far, and how many are wanted.
    transactions: u64,
    wanted: u64,
    /// The time of the model when recording began; `None` before.
    origin_ns: Option<u64>,
}

impl Traffic {
    fn is_enough(&self) -> bool {
        self.transactions >= self.wanted
    }

    fn push(&mut self, op: Op, line: u64, mapping: u32) {
        let Some(origin_ns) = self.origin_ns else { return };
        if self.is_enough() {
            return;
        }
        let time_ns = self.timing.time_ns(&self.progress) - origin_ns;
        self.queue.push(Access::new(time_ns, op, line * LINE_BYTES, LINE_BYTES as u32), mapping);
        self.transactions += 1;
    }
}

impl Memory for Traffic {
    fn fill(&mut self, line: u64) -> u32 {
        let mapping = self.frames.mapping(line * LINE_BYTES / PAGE_BYTES, &mut self.table);
        self.push(Op::Load, line, mapping);
        mapping
    }

    fn write_back(&mut self, line: u64, mapping: u32) {
        self.push(Op::Store, line, mapping);
    }
}

struct Recorder {
    caches: Hierarchy,
    traffic: Traffic,
    pid: u32,
    watch: Result<FaultWatch, String>,
    faults: u64,
    faults_lost: u64,
    accesses: u64,
    skip_instructions: u64,
    fetches: bool,
    swept: Instant,
    sweep_took: Duration,
}

impl Recorder {
    fn new(caches: Hierarchy, options: &Options, pid: u32) -> Self {
        let traffic = Traffic {
            frames: Frames::default(),
            table: Table::default(),
            queue: Queue::default(),
            timing: options.timing,
            progress: Progress::default(),
            transactions: 0,
            wanted: options.transactions,
            origin_ns: (options.skip_instructions == 0).then_some(0),
        };
        Recorder {
            caches,
            traffic,
            pid,
            watch: FaultWatch::open(&[pid]).map_err(|error| error.to_string()),
            faults: 0,
            faults_lost: 0,
            accesses: 0,
            skip_instructions: options.skip_instructions,
            fetches: options.fetches,
            swept: Instant::now(),
            sweep_took: Duration::ZERO,
        }
    }

    /// Opens the page map once the program is there: before, it would be that of what started it.
    fn open_table(&mut self, pid: u32) -> Result<(), CaptureError> {
        if self.traffic.table.map.is_none() {
            let failed = |source| CaptureError::PageMap { path: format!("/proc/{pid}/pagemap"), source };
            self.traffic.table.map = Some(PageMap::open(pid).map_err(failed)?);
        }
        Ok(())
    }

    /// Processes changes of the program's pages: faults, awaited frames, and now and then all pages.
    fn look_at_pages(&mut self) {
        let Traffic { frames, table, queue, .. } = &mut self.traffic;
        let mut lost = 0;
        if let Ok(watch) = &mut self.watch {
            lost = watch.drain(|fault| {
                // Processes that it forks are watched too, but have pages of their own.
                if fault.pid == self.pid {
                    self.faults += 1;
                    frames.fault(fault.address / PAGE_BYTES, table);
                }
            });
        }
        self.faults_lost += lost;
        let since = self.swept.elapsed();
        if lost > 0 || (since > SWEEP_EVERY && since > self.sweep_took * SWEEP_SHARE) {
            let begun = Instant::now();
            frames.sweep(table);
            self.swept = Instant::now();
            self.sweep_took = begun.elapsed();
        }
        frames.retry(table);
        queue.settle();
        self.drop_moved();
    }

    /// Lines of a page that now lies elsewhere are not what the program finds at its address: they leave the caches.
    fn drop_moved(&mut self) {
        while let Some(pages) = self.traffic.frames.take_moved() {
            for page in pages {
                self.caches.drop_page(page, &mut self.traffic);
            }
        }
    }

    #[inline]
    fn access(&mut self, access: &Access) {
        let kind = match (access.tenant, access.op) {
            (FETCHES, _) => {
                self.traffic.progress.instructions += 1;
                if self.traffic.origin_ns.is_none()
                    && self.traffic.progress.instructions > self.skip_instructions
                {
                    self.traffic.origin_ns = Some(self.traffic.timing.time_ns(&self.traffic.progress));
                }
                if !self.fetches {
                    return;
                }
                Kind::Fetch
            }
            (_, Op::Store) => Kind::Store,
            _ => Kind::Load,
        };
        self.accesses += u64::from(kind != Kind::Fetch);
        for line in tracee::lines_of(access) {
            let level = self.caches.access(kind, line, &mut self.traffic);
            let progress = &mut self.traffic.progress;
            match level {
                Level::L1 => continue,
                Level::L2 => progress.l2_hits += 1,
                Level::Llc => progress.llc_hits += 1,
                Level::Memory => {
                    progress.fills += 1;
                    self.drop_moved_but(line);
                }
            }
        }
    }

    /// After a fill: its page may have been found elsewhere just then. Its older lines go; the one just filled is new, and
    /// stays with the rest of the access.
    fn drop_moved_but(&mut self, line: u64) {
        let Some(pages) = self.traffic.frames.take_moved() else { return };
        for page in pages {
            self.caches.drop_page_but(page, line, &mut self.traffic);
        }
    }

    fn summary(self, wall: Duration, ending: Ending) -> Summary {
        let Traffic { frames, queue, timing, progress, .. } = &self.traffic;
        Summary {
            loads: queue.loads,
            stores: queue.stores,
            left_out: queue.left_out,
            pages: frames.counts(),
            faults: self.watch.map(|_| self.faults),
            faults_lost: self.faults_lost,
            instructions: progress.instructions,
            accesses: self.accesses,
            wall,
            modelled_ns: timing.time_ns(progress),
            ending,
        }
    }
}
