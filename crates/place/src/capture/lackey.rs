//! Full trace of a small program: every access by Valgrind's Lackey, with or without modelled caches, as a recording.
//!
//! Nothing is sampled, so the sampling sources can be compared with it. It is slow (a
//! million or two accesses a second), and its time is a model ([`Timing`]). The program runs
//! within Valgrind's process at addresses of its own, so the mappings of that process are
//! the program's, with Valgrind's own among them; those can be told by having no accesses.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tiermem_base::{Access, Op};
use tiermem_trace::filter::hierarchy::{self, Hierarchy, Memory, Shapes};
use tiermem_trace::reader::FETCHES;
use tiermem_trace::recording::{Cost, Executable, Head, Level, Mode, Recording, Slice, Source, Unit};

use super::clock::{Progress, Timing};
use super::layout::Layout;
use super::mappings::maps;
use super::table::{Kind, Table};
use super::tracee::{self, Tracee};
use super::{CaptureError, Stop};

/// Least time between two looks at the mappings.
const MAPS_EVERY: Duration = Duration::from_millis(20);
/// At most such a part of the time goes into them.
const MAPS_SHARE: u32 = 20;
/// The most slices of a recording; what comes later falls into the last one.
const SLICES_MAX: u64 = 1 << 20;

/// Options of a recording.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The caches that are modelled. `None`: none, so that it is not known where an access is answered.
    pub caches: Option<Shapes>,
    /// The time model. Without caches, only instructions take time.
    pub timing: Timing,
    /// The length of a slice in nanoseconds of the modelled time, at least 1.
    pub slice_ns: u64,
    /// Bytes of a granule: a power of two from 64 to 1 GiB.
    pub granule_bytes: u64,
    /// Loads and stores after which the program is ended; `None`: it runs to its end.
    pub accesses_max: Option<u64>,
    /// Counts that are kept at a time, some 70 bytes each; when there are more, the granule doubles.
    pub entries_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            command: Vec::new(),
            caches: Some(Shapes::default()),
            timing: Timing::default(),
            slice_ns: 10_000_000,
            granule_bytes: 4096,
            accesses_max: None,
            entries_max: 16 << 20,
        }
    }
}

/// Records a program. `progress` gets the loads and stores so far, many times a second. When asked to
/// stop, it ends the program and returns the recording so far. The program never outlives this call.
///
/// # Errors
/// If the options are invalid, or Valgrind or the program cannot be run.
pub fn record(
    options: &Options,
    stop: &Stop,
    mut progress: impl FnMut(u64),
) -> Result<Recording, CaptureError> {
    if !options.granule_bytes.is_power_of_two() || !(64..=1 << 30).contains(&options.granule_bytes) {
        return Err(CaptureError::Options("the granule is a power of two from 64 bytes to 1 GiB"));
    }
    if options.slice_ns == 0 {
        return Err(CaptureError::Options("a slice has at least 1 ns"));
    }
    let caches = options.caches.as_ref().map(Hierarchy::new).transpose().map_err(CaptureError::Caches)?;
    let begun = Instant::now();
    let mut tracee = Tracee::start(&options.command, stop)?;
    let mut counter = Counter::new(caches, options);
    let mut mappings = Mappings::of(tracee.pid());
    let mut batch = Vec::new();
    while !stop.is_asked() && !counter.is_enough() && tracee.read(&mut batch)? {
        batch.iter().for_each(|access| counter.access(access));
        mappings.look(counter.slice, false);
        progress(counter.accesses);
    }
    mappings.look(counter.slice, true);
    let wall = begun.elapsed();
    let tracer_died = tracee.tracer_died;
    let status = tracee.finish(counter.is_enough(), counter.progress != Progress::default(), stop)?;
    let ended =
        if tracer_died { Some(TRACER_DIED.to_owned()) } else { ended(status, stop, counter.is_enough()) };
    Ok(counter.finish(options, mappings.layout, wall, ended))
}

const TRACER_DIED: &str = "Valgrind could not go on, most likely at an instruction that it does not know, such as AVX-512; the recording ends there";

/// Note on how the program ended, for the reader of the recording.
fn ended(status: ExitStatus, stop: &Stop, is_enough: bool) -> Option<String> {
    match () {
        () if is_enough => {
            Some("the program was ended when it had made as many accesses as were asked for".to_owned())
        }
        () if stop.is_asked() => Some("the recording was stopped before the program ended".to_owned()),
        () if !status.success() => Some(format!("the program did not end well: {status}")),
        () => None,
    }
}

/// Mappings of the process, from repeated looks. Lackey's output lags behind the program
/// by the contents of a pipe, so mappings are seen up to a thousandth of a second early.
struct Mappings {
    path: PathBuf,
    layout: Layout,
    seen: bool,
    looked: Instant,
    took: Duration,
}

impl Mappings {
    fn of(pid: u32) -> Self {
        let path = PathBuf::from(format!("/proc/{pid}/maps"));
        Mappings { path, layout: Layout::default(), seen: false, looked: Instant::now(), took: MAPS_EVERY }
    }

    fn look(&mut self, slice: u32, last: bool) {
        let since = self.looked.elapsed();
        if !last && self.seen && (since < MAPS_EVERY || since < self.took * MAPS_SHARE) {
            return;
        }
        let begun = Instant::now();
        // It has gone when the program has; then what was seen before stays.
        let text = std::fs::read(&self.path).unwrap_or_default();
        if let Ok(lines) = maps::parse(&String::from_utf8_lossy(&text))
            && !lines.is_empty()
        {
            lines.iter().for_each(|line| self.layout.map(line, slice));
            self.seen = true;
        }
        self.took = begun.elapsed();
        self.looked = Instant::now();
    }
}

/// The memory behind the caches keeps nothing.
struct NoMemory;

impl Memory for NoMemory {
    fn fill(&mut self, _: u64) -> u32 {
        0
    }

    fn write_back(&mut self, _: u64, _: u32) {}
}

/// Counts accesses.
struct Counter {
    caches: Option<Hierarchy>,
    timing: Timing,
    slice_ns: u64,
    progress: Progress,
    table: Table,
    slice: u32,
    accesses: u64,
    accesses_max: u64,
    /// The first word that was stored to. A function call stores its return address first, so this is on the stack.
    first_store: Option<u64>,
}

impl Counter {
    fn new(caches: Option<Hierarchy>, options: &Options) -> Self {
        Counter {
            caches,
            timing: options.timing,
            slice_ns: options.slice_ns,
            progress: Progress::default(),
            table: Table::new(options.granule_bytes, options.entries_max),
            slice: 0,
            accesses: 0,
            accesses_max: options.accesses_max.unwrap_or(u64::MAX),
            first_store: None,
        }
    }

    fn is_enough(&self) -> bool {
        self.accesses >= self.accesses_max
    }

    #[inline]
    fn access(&mut self, access: &Access) {
        let is_fetch = access.tenant == FETCHES;
        if is_fetch {
            self.progress.instructions += 1;
        }
        let kind = match access.op {
            _ if is_fetch => hierarchy::Kind::Fetch,
            Op::Store => hierarchy::Kind::Store,
            _ => hierarchy::Kind::Load,
        };
        let level = self.look_up(kind, access);
        // Time advances with instructions and misses; the access itself is in the slice in which it ends.
        if is_fetch {
            let slice = (self.timing.time_ns(&self.progress) / self.slice_ns).min(SLICES_MAX - 1);
            self.slice = self.slice.max(slice as u32);
            return;
        }
        if self.is_enough() {
            return;
        }
        self.accesses += 1;
        let op = if access.op == Op::Store { Op::Store } else { Op::Load };
        if op == Op::Store {
            self.first_store.get_or_insert(access.key);
        }
        self.table.add(0, i64::from(self.slice), access.key, Kind { op, level, mode: Mode::User }, 0);
    }

    /// Sends an access through the caches; an access to several lines was answered by the farthest.
    #[inline]
    fn look_up(&mut self, kind: hierarchy::Kind, access: &Access) -> Level {
        let Some(caches) = &mut self.caches else { return Level::Unknown };
        let mut level = Level::Cache;
        for line in tracee::lines_of(access) {
            match caches.access(kind, line, &mut NoMemory) {
                hierarchy::Level::L1 => {}
                hierarchy::Level::L2 => self.progress.l2_hits += 1,
                hierarchy::Level::Llc => self.progress.llc_hits += 1,
                hierarchy::Level::Memory => {
                    self.progress.fills += 1;
                    level = Level::Local;
                }
            }
        }
        level
    }

    fn finish(
        self,
        options: &Options,
        mut layout: Layout,
        wall: Duration,
        ended: Option<String>,
    ) -> Recording {
        if let Some(address) = self.first_store {
            layout.name(address, "stack");
        }
        let granule_bytes = self.table.granule_bytes();
        let counts = self.table.into_sorted(|_| true);
        let placed = layout.place(&counts, granule_bytes, false);
        let mut notes = Vec::from_iter(ended);
        if placed.unmapped > 0 {
            let unmapped = placed.unmapped;
            notes.push(format!(
                "{unmapped} accesses were to mappings that were gone before they were looked at"
            ));
        }
        if granule_bytes != options.granule_bytes {
            let asked = options.granule_bytes;
            notes.push(format!(
                "granules have {granule_bytes} bytes instead of {asked}, as there was no room for more"
            ));
        }
        notes.push(format!("time is modelled, from {} instructions", self.progress.instructions));
        let slices = u64::from(self.slice) + 1;
        let slice = |at: u64| Slice {
            start_ns: at.saturating_mul(options.slice_ns),
            end_ns: (at + 1).saturating_mul(options.slice_ns),
        };
        let words = options.command.iter().map(|word| word.to_string_lossy().into_owned());
        let name = options.command.first().cloned().unwrap_or_default();
        let head = Head {
            version: Head::VERSION,
            began_unix_ns: (SystemTime::now() - wall)
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_nanos() as u64,
            delay_ns: 0,
            command: words.collect(),
            executable: Executable { path: name.to_string_lossy().into_owned(), build_id: None },
            granule_bytes,
            slices: (0..slices).map(slice).collect(),
            sources: vec![Source {
                name: "lackey".to_owned(),
                unit: Unit::Accesses,
                tells_stores: true,
                tells_level: options.caches.is_some(),
            }],
            processes: Vec::new(),
            regions: placed.regions,
            sites: None,
            cost: Cost { wall_s: wall.as_secs_f64(), ..Cost::default() },
            notes,
        };
        Recording { head, samples: placed.samples }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_trace::filter::hierarchy::{LINE_BYTES, Shape};

    fn counter(caches: Option<Hierarchy>) -> Counter {
        Counter::new(caches, &Options { slice_ns: 1000, ..Options::default() })
    }

    fn fetch(counter: &mut Counter, times: u64) {
        (0..times).for_each(|_| {
            counter.access(&Access { tenant: FETCHES, ..Access::new(0, Op::Load, 0x40_0000, 4) })
        });
    }

    #[test]
    fn accesses_are_counted_by_granule_slice_op_and_level() {
        let shape = |lines: u64, ways| Shape { bytes: lines * LINE_BYTES, ways };
        let shapes = Shapes { l1i: shape(2, 2), l1d: shape(4, 2), l2: shape(8, 4), llc: shape(12, 3) };
        let mut counter = counter(Some(Hierarchy::new(&shapes).unwrap()));
        counter.access(&Access::new(0, Op::Store, 0x7000, 8));
        counter.access(&Access::new(0, Op::Load, 0x7000, 8));
        counter.access(&Access::new(0, Op::Load, 0x7fff, 8));
        // 96 ns for each of three fills and 1000 cycles: in the second slice.
        fetch(&mut counter, 6000);
        counter.access(&Access::new(0, Op::Load, 0x8000, 8));
        let recording = counter.finish(
            &Options { slice_ns: 1000, ..Options::default() },
            Layout::default(),
            Duration::ZERO,
            None,
        );
        let seen: Vec<_> =
            recording.samples.iter().map(|it| (it.slice, it.offset, it.op, it.level, it.weight)).collect();
        let wanted = [
            (0, 0, Op::Load, Level::Cache, 1.0),
            (0, 0, Op::Load, Level::Local, 1.0),
            (0, 0, Op::Store, Level::Local, 1.0),
            (1, 4096, Op::Load, Level::Cache, 1.0),
        ];
        assert_eq!(seen.len(), 4);
        assert!(wanted.iter().all(|it| seen.contains(it)), "{seen:?}");
        assert_eq!(recording.head.slices.len(), 2);
    }

    #[test]
    fn without_caches_nobody_knows_who_answered_and_the_end_is_kept_to() {
        let mut counter = counter(None);
        counter.accesses_max = 2;
        (0..5).for_each(|at| counter.access(&Access::new(0, Op::Load, at * 8, 8)));
        assert!(counter.is_enough() && counter.accesses == 2);
        let recording = counter.finish(&Options::default(), Layout::default(), Duration::ZERO, None);
        assert_eq!(recording.samples[0].level, Level::Unknown);
        assert_eq!(recording.samples[0].weight, 2.0);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |options: Options| record(&options, &Stop::default(), |_| {}).unwrap_err();
        assert!(matches!(
            refused(Options { granule_bytes: 100, ..Options::default() }),
            CaptureError::Options(_)
        ));
        assert!(matches!(refused(Options { slice_ns: 0, ..Options::default() }), CaptureError::Options(_)));
        assert!(matches!(refused(Options::default()), CaptureError::NoCommand));
    }
}
