//! Importing what `perf mem record` saw: hardware samples of loads and stores, as text that perf makes of them.
//!
//! Two forms are read, and recognised line by line:
//!
//! - `perf script`, with the fields of [`PERF_SCRIPT`] or with those that it prints by itself:
//!   `app 1234 [000] 12.345678: 1 cpu/mem-loads,ldlat=30/P: 7f12345678 68100142 |OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2
//!   hit|LCK No|BLK N/A 30 5581234 main+0x10 (/usr/bin/app)`. The lines of `--show-mmap-events` tell the regions.
//! - `perf mem report -D`, which has no times: `1234 1234 0x5581234 0x7f12345678 30 0x68100142 /usr/bin/app:main`.
//!
//! With times, slices are of one length from the first sample on. Without, every file is one slice, as when one short
//! recording after the other was made (Fisher 2025, section 3.2).
//!
//! Lines are read in several threads, each of which counts into a table of its own; samples themselves are not kept, so that
//! memory is bounded however long the text is.

mod layout;
mod line;
mod source;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use foldhash::fast::FixedState;
use tiermem_trace::recording::{Cost, Head, Recording, Slice, Source, Unit};

use self::layout::{Events, Known};
use self::line::{Line, Parser, Sample};
use self::table::{Row, Table, What};
use super::CaptureError;
use super::maps;

/// The command that makes text which can be read, with all that is of use.
pub const PERF_SCRIPT: &str =
    "perf script -F comm,pid,tid,time,event,addr,data_src,weight,ip --show-mmap-events";

/// Bytes that one thread reads lines of at once.
const CHUNK_BYTES: usize = 4 << 20;
/// What a file begins with that perf wrote for itself.
const PERF_DATA: &[u8] = b"PERFILE2";
/// Different stretches of addresses, slices and kinds of access that are counted.
const ENTRIES_MAX: usize = 32 << 20;
/// Slices of a recording.
const SLICES_MAX: u64 = 1 << 20;
/// Processes that are told apart.
const PROCESSES_MAX: usize = 4096;
/// Granules of a recording.
const GRANULE_BYTES_MAX: u64 = 1 << 30;

/// How text is imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportOptions {
    /// The length of a slice; of a file without times, what its slice is taken to be long.
    pub slice_ns: u64,
    /// Bytes of a granule: a multiple of 4096 up to 1 GiB, or a power of two from 64 on.
    pub granule_bytes: u64,
    /// The program's `/proc/PID/maps`, saved while it ran. Without, regions are those that the text tells.
    pub maps: Option<PathBuf>,
    /// Samples of this process alone.
    pub pid: Option<u32>,
    /// So many lines that cannot be understood are left out.
    pub skip_bad: u64,
    /// Threads that read lines.
    pub threads: usize,
}

impl Default for ImportOptions {
    fn default() -> Self {
        ImportOptions {
            slice_ns: 1_000_000_000,
            granule_bytes: 4096,
            maps: None,
            pid: None,
            skip_bad: 0,
            threads: 1,
        }
    }
}

/// Imports files of text in their order.
///
/// # Errors
/// If a file cannot be read, if it has lines that are not understood beyond [`ImportOptions::skip_bad`], if there are no
/// samples in it, or if the options make no sense.
pub fn import(paths: &[PathBuf], options: &ImportOptions) -> Result<Recording, CaptureError> {
    // Before hours of reading, whether all of it is there.
    for path in paths {
        std::fs::metadata(path).map_err(|source| read_error(path, source))?;
    }
    let open =
        |path: &PathBuf| Ok((path.clone(), File::open(path).map_err(|source| read_error(path, source))?));
    import_chunks(paths.iter().map(open), options, CHUNK_BYTES)
}

/// [`import`] from whatever can be read, each under a name for errors.
///
/// # Errors
/// As [`import`].
pub fn import_from<R: Read>(
    inputs: impl IntoIterator<Item = (PathBuf, R)>,
    options: &ImportOptions,
) -> Result<Recording, CaptureError> {
    import_chunks(inputs.into_iter().map(Ok), options, CHUNK_BYTES)
}

fn read_error(path: &Path, source: std::io::Error) -> CaptureError {
    CaptureError::Read { path: path.to_owned(), source }
}

fn import_chunks<R: Read>(
    inputs: impl Iterator<Item = Result<(PathBuf, R), CaptureError>>,
    options: &ImportOptions,
    chunk_bytes: usize,
) -> Result<Recording, CaptureError> {
    let mut importer = Importer::new(options)?;
    for input in inputs {
        let (path, input) = input?;
        importer.file(&path, input, chunk_bytes)?;
    }
    importer.finish()
}

/// What the first sample says of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    /// There are some; slices begin here.
    From(u64),
    /// There are none.
    None,
}

/// What a worker has to know to read lines.
#[derive(Clone, Copy)]
struct Task<'a> {
    options: &'a ImportOptions,
    times: Option<Times>,
    /// The number of the file.
    file: i32,
}

/// A line that was not understood: its number in its part, from 0 on, and why.
#[derive(Clone, Copy, Debug)]
struct Bad {
    line: u64,
    reason: &'static str,
}

/// What became of one part of the text.
#[derive(Debug, Default)]
struct Part {
    lines: u64,
    bad: Vec<Bad>,
    events: Events,
    is_full: bool,
}

/// What was left out, and why.
#[derive(Clone, Copy, Debug, Default)]
struct LeftOut {
    no_op: u64,
    no_address: u64,
}

/// A thread's own.
struct Worker {
    table: Table,
    parser: Parser,
    /// Samples of each process, those of unknown ones and those beyond the bound under `None`.
    processes: HashMap<Option<u32>, u64, FixedState>,
    last: (Option<u32>, u64),
    left_out: LeftOut,
}

impl Worker {
    fn new(options: &ImportOptions) -> Self {
        Worker {
            table: new_table(options.granule_bytes.min(4096), options),
            parser: Parser::new(),
            processes: HashMap::default(),
            last: (None, 0),
            left_out: LeftOut::default(),
        }
    }

    /// Begins to count, in stretches of so many bytes.
    fn count_in(&mut self, unit_bytes: u64, options: &ImportOptions) {
        self.table = new_table(unit_bytes, options);
    }

    /// Reads whole lines.
    fn part(&mut self, text: &[u8], task: Task<'_>) -> Part {
        let mut part = Part::default();
        let mut from = 0;
        while from < text.len() {
            let end = memchr::memchr(b'\n', &text[from..]).map_or(text.len(), |at| from + at);
            if let Err(reason) = self.line(&text[from..end], task, &mut part) {
                part.bad.push(Bad { line: part.lines, reason });
                if part.bad.len() as u64 > task.options.skip_bad {
                    break;
                }
            }
            if part.is_full {
                break;
            }
            part.lines += 1;
            from = end + 1;
        }
        part
    }

    #[inline]
    fn line(&mut self, line: &[u8], task: Task<'_>, part: &mut Part) -> Result<(), &'static str> {
        match self.parser.line(line)? {
            Line::Note => {}
            Line::Mapping(mapping) => {
                // Those of a time before all samples were there already.
                let slice = slice_of(mapping.time_ns, task, true).unwrap_or(i32::MIN);
                part.events.push(slice, &mapping);
            }
            Line::Sample(sample) => self.sample(&sample, task, part)?,
        }
        Ok(())
    }

    #[inline]
    fn sample(&mut self, sample: &Sample, task: Task<'_>, part: &mut Part) -> Result<(), &'static str> {
        if let Some(pid) = task.options.pid {
            match sample.pid {
                Some(of) if of == pid => {}
                Some(_) => return Ok(()),
                None => return Err("the sample names no process"),
            }
        }
        let slice = slice_of(sample.time_ns, task, false)?;
        let Some(op) = sample.op else {
            self.left_out.no_op += 1;
            return Ok(());
        };
        if sample.address == 0 {
            self.left_out.no_address += 1;
            return Ok(());
        }
        if self.last.0 == sample.pid {
            self.last.1 += 1;
        } else {
            self.count_process();
            self.last = (sample.pid, 1);
        }
        let what = What { op, level: sample.level, mode: sample.mode };
        part.is_full = !self.table.add(slice, sample.address, what, sample.weight);
        Ok(())
    }

    fn count_process(&mut self) {
        let (pid, count) = self.last;
        if count == 0 {
            return;
        }
        let has_room = self.processes.len() < PROCESSES_MAX || self.processes.contains_key(&pid);
        *self.processes.entry(pid.filter(|_| has_room)).or_default() += count;
    }
}

fn new_table(unit_bytes: u64, options: &ImportOptions) -> Table {
    Table::new(unit_bytes, options.granule_bytes, ENTRIES_MAX / options.threads.max(1))
}

/// The slice of a time, counted from that of the first sample.
#[inline]
fn slice_of(time_ns: Option<u64>, task: Task<'_>, is_mapping: bool) -> Result<i32, &'static str> {
    match (task.times, time_ns) {
        (Some(Times::From(first)), Some(time)) => {
            let slice_ns = task.options.slice_ns;
            let distance = time.abs_diff(first);
            let (slice, is_before) = match time < first {
                true => (distance.div_ceil(slice_ns), true),
                false => (distance / slice_ns, false),
            };
            if slice >= SLICES_MAX {
                return Err("its time is too far from that of the first sample for slices of this length");
            }
            let slice = slice as i32;
            Ok(if is_before { -slice } else { slice })
        }
        (Some(Times::From(_)), None) => Err("it has no time, and samples before it have one"),
        (Some(Times::None), Some(_)) if !is_mapping => Err("it has a time, and samples before it have none"),
        (Some(Times::None) | None, _) => Ok(task.file),
    }
}

struct Importer<'a> {
    options: &'a ImportOptions,
    maps: Option<Vec<maps::MapLine>>,
    workers: Vec<Worker>,
    times: Option<Times>,
    /// What addresses are counted in as long as there is room.
    unit_wanted: u64,
    files: i32,
    events: Events,
    bad: u64,
    names: Vec<String>,
}

impl<'a> Importer<'a> {
    fn new(options: &'a ImportOptions) -> Result<Self, CaptureError> {
        let granule = options.granule_bytes;
        let is_granule = (granule.is_multiple_of(4096) && (4096..=GRANULE_BYTES_MAX).contains(&granule))
            || (granule.is_power_of_two() && (64..4096).contains(&granule));
        if !is_granule {
            return Err(CaptureError::Import(format!(
                "a granule of {granule} bytes cannot be counted; it must be a multiple of 4096 up to 1 GiB, or a power of \
                 two from 64 on"
            )));
        }
        if options.slice_ns == 0 {
            return Err(CaptureError::Import("a slice must be longer than nothing".to_owned()));
        }
        let maps = options.maps.as_ref().map(|path| read_maps(path)).transpose()?;
        let workers = (0..options.threads.max(1)).map(|_| Worker::new(options)).collect();
        Ok(Importer {
            options,
            maps,
            workers,
            times: None,
            unit_wanted: granule.min(4096),
            files: 0,
            events: Events::default(),
            bad: 0,
            names: Vec::new(),
        })
    }

    /// Reads one file. While threads read lines of some parts, the next ones are brought in.
    fn file(&mut self, path: &Path, input: impl Read, chunk_bytes: usize) -> Result<(), CaptureError> {
        let mut chunks = Chunks { input, carried: Vec::new(), chunk_bytes, is_over: false };
        let mut lines = 0;
        let count = self.workers.len();
        let (mut now, mut next) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        let failed = |source| read_error(path, source);
        chunks.fill(&mut now).map_err(failed)?;
        if now.first().is_some_and(|chunk| chunk.starts_with(PERF_DATA)) {
            let reason = "this is perf's own file, and not text that was made of it".to_owned();
            return Err(CaptureError::PerfText { path: path.to_owned(), line: 1, reason });
        }
        while now.iter().any(|chunk| !chunk.is_empty()) {
            self.find_times(&now);
            let task = Task { options: self.options, times: self.times, file: self.files };
            let (parts, filled) = work(&mut self.workers, &now, task, || chunks.fill(&mut next));
            for part in parts {
                self.take(path, part, &mut lines)?;
            }
            filled.map_err(failed)?;
            std::mem::swap(&mut now, &mut next);
        }
        self.files = self.files.saturating_add(1);
        self.names.push(path.display().to_string());
        Ok(())
    }

    /// Looks for the first sample, as long as there was none.
    fn find_times(&mut self, chunks: &[Vec<u8>]) {
        let (Some(worker), None) = (self.workers.first(), self.times) else { return };
        let lines = chunks.iter().flat_map(|chunk| chunk.split(|byte| *byte == b'\n'));
        let mut samples = lines.filter_map(|line| match worker.parser.line(line) {
            Ok(Line::Sample(sample)) if self.options.pid.is_none_or(|pid| sample.pid == Some(pid)) => {
                Some(sample)
            }
            _ => None,
        });
        let Some(first) = samples.next() else { return };
        self.times = Some(first.time_ns.map_or(Times::None, Times::From));
        if first.is_dump && self.maps.is_none() {
            // No borders of regions are to be found, so there is nothing finer than the granule.
            let granule_bytes = self.options.granule_bytes;
            self.unit_wanted = 1 << granule_bytes.trailing_zeros();
            self.workers.iter_mut().for_each(|worker| worker.count_in(self.unit_wanted, self.options));
        }
    }

    fn take(&mut self, path: &Path, part: Part, lines: &mut u64) -> Result<(), CaptureError> {
        let left = self.options.skip_bad - self.bad.min(self.options.skip_bad);
        if let Some(bad) = usize::try_from(left).ok().and_then(|left| part.bad.get(left)) {
            let (line, reason) = (*lines + bad.line + 1, bad.reason.to_owned());
            return Err(CaptureError::PerfText { path: path.to_owned(), line, reason });
        }
        if part.is_full {
            return Err(CaptureError::Import(format!(
                "{}: line {} is one too many: more than {ENTRIES_MAX} different granules and slices were accessed; a coarser \
                 --granule or a longer --slice helps",
                path.display(),
                *lines + part.lines + 1
            )));
        }
        self.bad += part.bad.len() as u64;
        *lines += part.lines;
        self.events.append(part.events);
        Ok(())
    }

    fn finish(mut self) -> Result<Recording, CaptureError> {
        let mut processes: HashMap<Option<u32>, u64> = HashMap::new();
        let mut left_out = LeftOut::default();
        let mut tables = Vec::new();
        for mut worker in std::mem::take(&mut self.workers) {
            worker.count_process();
            for (pid, count) in worker.processes {
                *processes.entry(pid).or_default() += count;
            }
            left_out.no_op += worker.left_out.no_op;
            left_out.no_address += worker.left_out.no_address;
            tables.push(worker.table);
        }
        let unit_bytes = tables.iter().map(Table::unit_bytes).max().unwrap_or(4096);
        let rows = Table::merge(tables);
        let mut notes = self.notes(&processes, left_out);
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            let said: Vec<String> = std::iter::once(self.nothing()).chain(notes).collect();
            return Err(CaptureError::Import(said.join("; ")));
        };
        let (first_slice, slices) = (first.slice, i64::from(last.slice) - i64::from(first.slice) + 1);
        if slices as u64 > SLICES_MAX {
            return Err(CaptureError::Import(format!(
                "the samples span {slices} slices, more than {SLICES_MAX}; a longer --slice helps"
            )));
        }
        if unit_bytes > self.unit_wanted {
            notes.push(format!(
                "there were so many granules that borders of regions are known to {unit_bytes} bytes only"
            ));
        }
        Ok(self.recording(&rows, first_slice, slices as u64, unit_bytes, &processes, notes))
    }

    fn recording(
        self,
        rows: &[Row],
        first_slice: i32,
        slices: u64,
        unit_bytes: u64,
        processes: &HashMap<Option<u32>, u64>,
        notes: Vec<String>,
    ) -> Recording {
        let pid = self.options.pid.or_else(|| {
            let known = processes.iter().filter_map(|(pid, count)| Some(((*pid)?, *count)));
            known.max_by_key(|(pid, count)| (*count, *pid)).map(|(pid, _)| pid)
        });
        let known = match self.maps {
            Some(lines) => Known::Maps(lines),
            None => Known::Events(self.events, pid),
        };
        let ImportOptions { slice_ns, granule_bytes, .. } = *self.options;
        let (regions, samples) = layout::build(rows, known, first_slice, unit_bytes, granule_bytes);
        let slice = |number: u64| Slice {
            start_ns: number.saturating_mul(slice_ns),
            end_ns: (number + 1).saturating_mul(slice_ns),
        };
        let wall_s = match self.times {
            Some(Times::From(_)) => slices as f64 * slice_ns as f64 / 1e9,
            _ => 0.0,
        };
        let head = Head {
            version: Head::VERSION,
            granule_bytes,
            slices: (0..slices).map(slice).collect(),
            sources: vec![Source {
                name: "perf-mem".to_owned(),
                unit: Unit::Samples,
                tells_stores: true,
                tells_level: true,
            }],
            regions,
            cost: Cost { wall_s, ..Cost::default() },
            notes,
            ..Head::default()
        };
        Recording { head, samples }
    }

    fn nothing(&self) -> String {
        let of = self.options.pid.map(|pid| format!(" of process {pid}")).unwrap_or_default();
        format!("there are no samples of memory accesses{of} in {}", self.names.join(", "))
    }

    fn notes(&self, processes: &HashMap<Option<u32>, u64>, left_out: LeftOut) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |count: u64, text: &str| {
            if count > 0 {
                notes.push(format!("{count} {text}"));
            }
        };
        note(self.bad, "lines could not be understood and are left out");
        note(left_out.no_op, "samples were neither loads nor stores and are left out");
        note(left_out.no_address, "samples had no address and are left out");
        note(self.events.left_out, "mappings were too many to be remembered");
        if processes.len() > 1 {
            note(
                processes.len() as u64,
                "processes were sampled and are taken together; --pid takes one of them",
            );
        }
        notes
    }
}

/// Lets every worker read its part, and does something else meanwhile.
fn work<T>(
    workers: &mut [Worker],
    chunks: &[Vec<u8>],
    task: Task<'_>,
    meanwhile: impl FnOnce() -> T,
) -> (Vec<Part>, T) {
    if let [worker] = workers {
        let parts = chunks.iter().map(|chunk| worker.part(chunk, task)).collect();
        return (parts, meanwhile());
    }
    std::thread::scope(|scope| {
        let pairs = workers.iter_mut().zip(chunks);
        let running: Vec<_> =
            pairs.map(|(worker, chunk)| scope.spawn(move || worker.part(chunk, task))).collect();
        let done = meanwhile();
        let parts = running.into_iter().map(|thread| match thread.join() {
            Ok(part) => part,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        (parts.collect(), done)
    })
}

fn read_maps(path: &Path) -> Result<Vec<maps::MapLine>, CaptureError> {
    let bytes = std::fs::read(path).map_err(|source| read_error(path, source))?;
    let broken = |reason| CaptureError::Maps { path: path.display().to_string(), reason };
    let lines = maps::parse(&String::from_utf8_lossy(&bytes)).map_err(broken)?;
    if lines.is_empty() {
        return Err(broken("there are no mappings in it".to_owned()));
    }
    Ok(lines)
}

/// A file in pieces of whole lines.
struct Chunks<R> {
    input: R,
    /// The begun line behind the last piece.
    carried: Vec<u8>,
    chunk_bytes: usize,
    is_over: bool,
}

impl<R: Read> Chunks<R> {
    /// Fills buffers one after the other; those for which nothing is left are empty.
    fn fill(&mut self, buffers: &mut [Vec<u8>]) -> std::io::Result<()> {
        for buffer in buffers {
            self.fill_one(buffer)?;
        }
        Ok(())
    }

    fn fill_one(&mut self, buffer: &mut Vec<u8>) -> std::io::Result<()> {
        buffer.clear();
        buffer.append(&mut self.carried);
        while !self.is_over {
            let wanted = self.chunk_bytes.saturating_sub(buffer.len()).max(1);
            let before = buffer.len();
            let got = self.input.by_ref().take(wanted as u64).read_to_end(buffer)?;
            self.is_over = got < wanted;
            if self.is_over {
                break;
            }
            if let Some(end) = memchr::memrchr(b'\n', &buffer[before..]) {
                self.carried.extend_from_slice(&buffer[before + end + 1..]);
                buffer.truncate(before + end + 1);
                break;
            }
            if buffer.len() > CHUNK_BYTES.max(self.chunk_bytes) * 2 {
                let long = "a line has no end; this is no text";
                return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, long));
            }
        }
        Ok(())
    }
}
