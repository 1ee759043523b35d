//! Processor-sampled accesses: `perf mem` (Fisher 2025, section 3.2), recorded here or on another machine.
//!
//! perf's text of a recording is read in one pass ([`import`]); [`record`] makes a recording where there are
//! counters and reads its text as it is printed. Levels: L1, L2, L3 and fill buffers are cached, RAM is
//! local, and accesses answered by another node, by CXL or by persistent memory are remote. Fisher 2025 lists
//! the line fill buffer (LFB) separately, and so do the notes of the recording. Among levels it is cached,
//! since such an access waits for a line that another one has already requested, and moves none itself.

mod collect;
mod data_src;
mod dump;
mod error;
mod form;
mod line;
mod record;
mod script;
mod summary;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tiermem_trace::recording::Recording;

use self::collect::{Clock, Collected, FileRange, FileRangeEnd, Plan, Shared};
use self::form::{HEAD_BYTES, Head};

pub use self::error::{PRINT_COMMAND, PerfMemError};
pub use self::record::{RecordOptions, Target, record};

use super::Stop;

/// Bytes of a part that one thread reads at a time.
const PART_BYTES: u64 = 32 << 20;
/// Time between checks whether threads are done, and between reports of progress.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// The shortest slice, in nanoseconds: what perf's times tell apart.
const SLICE_NS_MIN: u64 = 1000;
/// The largest granule, in bytes.
const GRANULE_BYTES_MAX: u64 = 1 << 30;

/// How samples are assigned to slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slicing {
    /// By their times where they have any, else by file.
    #[default]
    Auto,
    /// By their times.
    Time,
    /// Each file is a slice, in the order in which they were named: a loop of short recordings.
    File,
}

/// Options of an import.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// The process; `None`: that with most samples.
    pub pid: Option<u32>,
    /// Bytes of a granule: a power of two from 64 to 1 GiB.
    pub granule_bytes: u64,
    /// The length of a slice in nanoseconds, at least 1000.
    pub slice_ns: u64,
    /// How samples are assigned to slices.
    pub slicing: Slicing,
    /// A copy of the process's `/proc/PID/maps`. `None`: what the text says of mappings, else stretches of addresses.
    pub maps: Option<PathBuf>,
    /// Broken lines that are skipped.
    pub skip_bad: u64,
    /// Threads that read side by side.
    pub threads: usize,
    /// Counts that are kept at a time, some 70 bytes each; when there are more, the granule doubles.
    pub entries_max: usize,
    /// The program and its arguments, for the recording's head.
    pub command: Vec<String>,
}

impl Default for ImportOptions {
    /// Slices of ten seconds, as in Fisher 2025, figure 4.7.
    fn default() -> Self {
        ImportOptions {
            pid: None,
            granule_bytes: 4096,
            slice_ns: 10_000_000_000,
            slicing: Slicing::Auto,
            maps: None,
            skip_bad: 0,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            entries_max: 16 << 20,
            command: Vec::new(),
        }
    }
}

impl ImportOptions {
    fn check(&self) -> Result<(), PerfMemError> {
        let wrong = |what: &str| Err(PerfMemError::Options(what.to_owned()));
        match () {
            () if !self.granule_bytes.is_power_of_two()
                || !(64..=GRANULE_BYTES_MAX).contains(&self.granule_bytes) =>
            {
                wrong("the granule is a power of two from 64 bytes to 1 GiB")
            }
            () if self.slice_ns < SLICE_NS_MIN => wrong("a slice has at least 1 us"),
            () => Ok(()),
        }
    }
}

/// Reads texts of perf, in the order of time if they are slices. `-` is standard input.
///
/// # Errors
/// If a file cannot be read or is none of perf's texts, at a line that is not understood, or if there is nothing in them.
pub fn import(files: &[PathBuf], options: &ImportOptions) -> Result<Recording, PerfMemError> {
    import_with(files, options, &Stop::default(), |_, _| {})
}

/// [`import`] that can be stopped and reports a few times a second
/// how many bytes it has read, and of how many if that is known.
///
/// # Errors
/// As [`import`], and if it was stopped.
pub fn import_with(
    files: &[PathBuf],
    options: &ImportOptions,
    stop: &Stop,
    progress: impl FnMut(u64, Option<u64>),
) -> Result<Recording, PerfMemError> {
    options.check()?;
    let inputs = files.iter().map(|path| Input::open(path)).collect::<Result<Vec<_>, _>>()?;
    import_inputs(inputs, options, stop, progress)
}

/// Reads a text that is in memory: for tests, and for what arrives by other ways.
///
/// # Errors
/// As [`import`].
pub fn import_bytes(text: &[u8], options: &ImportOptions) -> Result<Recording, PerfMemError> {
    options.check()?;
    let input = Input::stream(Path::new("text"), text)?;
    import_inputs(vec![input], &ImportOptions { threads: 1, ..options.clone() }, &Stop::default(), |_, _| {})
}

/// Something to read.
struct Input<'a> {
    path: PathBuf,
    head: Head,
    from: Origin<'a>,
}

enum Origin<'a> {
    /// A file that can be read anywhere, and its size.
    File(File, u64),
    /// What has been read already, and the rest.
    Stream(Vec<u8>, Mutex<Box<dyn Read + Send + 'a>>),
}

impl<'a> Input<'a> {
    fn open(path: &Path) -> Result<Self, PerfMemError> {
        if path == Path::new("-") {
            return Input::stream(path, std::io::stdin());
        }
        let file = File::open(path).map_err(|source| PerfMemError::Open { path: path.to_owned(), source })?;
        let failed = |source| PerfMemError::Read { path: path.to_owned(), source };
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() {
            return Input::stream(path, file);
        }
        let mut head = Vec::new();
        (&file).take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(failed)?;
        let head = look_at(path, &head)?;
        Ok(Input { path: path.to_owned(), head, from: Origin::File(file, meta.len()) })
    }

    fn stream(path: &Path, mut input: impl Read + Send + 'a) -> Result<Self, PerfMemError> {
        let mut head = Vec::new();
        let failed = |source| PerfMemError::Read { path: path.to_owned(), source };
        input.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(failed)?;
        let known = look_at(path, &head)?;
        let from = Origin::Stream(head, Mutex::new(Box::new(input)));
        Ok(Input { path: path.to_owned(), head: known, from })
    }
}

/// The last line of a head may be cut, and is then no sample.
fn look_at(path: &Path, head: &[u8]) -> Result<Head, PerfMemError> {
    let refused = |(reason, advice)| PerfMemError::Form { path: path.to_owned(), reason, advice };
    form::look_at(head).map_err(refused)
}

fn import_inputs(
    inputs: Vec<Input<'_>>,
    options: &ImportOptions,
    stop: &Stop,
    progress: impl FnMut(u64, Option<u64>),
) -> Result<Recording, PerfMemError> {
    if inputs.is_empty() {
        return Err(PerfMemError::NoInput);
    }
    let maps = options.maps.as_deref().map(summary::read_maps).transpose()?;
    let has_time = inputs.iter().any(|input| input.head.time_ns.is_some());
    let origin_ns = inputs.iter().filter_map(|input| input.head.time_ns).min().unwrap_or(0);
    let by_time = Clock::Time { origin_ns, slice_ns: options.slice_ns };
    let clock = match options.slicing {
        Slicing::Time => by_time,
        // Without a sample in its head a file may have times later.
        Slicing::Auto if has_time || !inputs.iter().any(|input| input.head.has_sample) => by_time,
        Slicing::Auto | Slicing::File => Clock::File,
    };
    let threads = options.threads.clamp(1, 64);
    let plan = Plan {
        pid: options.pid,
        clock,
        granule_bytes: options.granule_bytes,
        entries_max: options.entries_max,
        skip_bad: options.skip_bad,
    };
    let shared = Shared::default();
    let (mut collected, mut ends) = read_all(&inputs, &plan, &shared, threads, stop, progress)?;
    ends.sort_by_key(|end| (end.part.file, end.part.start));
    if shared.bad.load(Relaxed) > options.skip_bad {
        return Err(first_bad(&inputs, &ends, options.skip_bad));
    }
    if stop.is_asked() {
        return Err(PerfMemError::Stopped);
    }
    collected.mappings.sort_by_key(|(file, place, _)| (*file, *place));
    if shared.overfull.load(Relaxed) {
        let what = format!(
            "there are more slices, processes or mappings than {} counts can hold: choose a process, or longer slices",
            options.entries_max
        );
        return Err(PerfMemError::TooMany(what));
    }
    let bad = shared.bad.load(Relaxed);
    summary::finish(collected, maps, &plan, options, inputs.len(), bad)
}

/// The line that is one too many.
fn first_bad(inputs: &[Input<'_>], ends: &[FileRangeEnd], skip_bad: u64) -> PerfMemError {
    let mut left = skip_bad;
    let mut lines_before = 0;
    let mut file = 0;
    let mut last = None;
    for end in ends {
        if end.part.file != file {
            (file, lines_before) = (end.part.file, 0);
        }
        let wanted = usize::try_from(left).unwrap_or(usize::MAX);
        last = end.kept.get(wanted).or(end.kept.last()).map(|bad| (file, lines_before, bad)).or(last);
        if end.bad > left {
            break;
        }
        left -= end.bad;
        lines_before += end.lines;
    }
    match last {
        Some((file, before, bad)) => PerfMemError::Line {
            path: inputs[file].path.clone(),
            line: before + bad.line + 1,
            reason: bad.reason,
            text: bad.text.clone(),
        },
        None => PerfMemError::Stopped,
    }
}

/// The parts of all inputs, in their order.
fn parts_of(inputs: &[Input<'_>]) -> Vec<FileRange> {
    let mut parts = Vec::new();
    for (file, input) in inputs.iter().enumerate() {
        match &input.from {
            Origin::Stream(..) => parts.push(FileRange { file, start: 0, end: u64::MAX }),
            Origin::File(_, bytes) => {
                let mut start = 0;
                while start < *bytes {
                    // The last one takes what the file may have grown by.
                    let end = start + PART_BYTES;
                    let end = if end >= *bytes { u64::MAX } else { end };
                    parts.push(FileRange { file, start, end });
                    start = end;
                }
            }
        }
    }
    parts
}

fn read_all(
    inputs: &[Input<'_>],
    plan: &Plan,
    shared: &Shared,
    threads: usize,
    stop: &Stop,
    mut progress: impl FnMut(u64, Option<u64>),
) -> Result<(Collected, Vec<FileRangeEnd>), PerfMemError> {
    let parts = parts_of(inputs);
    let sizes = inputs.iter().map(|input| match &input.from {
        Origin::File(_, bytes) => Some(*bytes),
        Origin::Stream(..) => None,
    });
    let total: Option<u64> = sizes.sum();
    let threads = threads.min(parts.len().max(1));
    let next = AtomicUsize::new(0);
    let work = || {
        let mut collected = Collected::new(plan, plan.entries_max / threads);
        let mut ends = Vec::new();
        while !shared.stopped.load(Relaxed) && !shared.enough.load(Relaxed) {
            let Some(part) = parts.get(next.fetch_add(1, Relaxed)) else { break };
            let Input { path, head, from } = &inputs[part.file];
            let end = match from {
                Origin::File(file, _) => collected.read_part(file, head.form, *part, plan, shared),
                Origin::Stream(begun, rest) => {
                    let mut rest = rest.lock().unwrap_or_else(PoisonError::into_inner);
                    collected.read_stream(begun, &mut **rest, head.form, part.file, plan, shared)
                }
            };
            match end {
                Ok(end) => ends.push(end),
                Err(source) => {
                    shared.stopped.store(true, Relaxed);
                    return Err(PerfMemError::Read { path: path.clone(), source });
                }
            }
        }
        Ok((collected, ends))
    };
    let results = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        // Each thread ends what it has begun soon after it was asked to.
        while !handles.iter().all(|handle| handle.is_finished()) {
            if stop.is_asked() {
                shared.stopped.store(true, Relaxed);
            }
            progress(shared.bytes.load(Relaxed), total);
            std::thread::sleep(LOOK_EVERY);
        }
        handles.into_iter().map(|handle| handle.join()).collect::<Vec<_>>()
    });
    let mut all = Collected::new(plan, plan.entries_max);
    let mut ends = Vec::new();
    for result in results {
        // A thread that panicked is a bug of this code: the panic continues in the caller's thread.
        let (collected, more) = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        ends.extend(more);
        all.merge(collected);
    }
    Ok((all, ends))
}

#[cfg(test)]
mod tests;
