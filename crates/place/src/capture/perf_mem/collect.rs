//! Collector: reads perf's text line by line, in parallel parts, into counts.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::error::BadLine;
use super::form::Form;
use super::line::{Mapped, Parsed, Reason, Seen};
use crate::capture::table::{Kind, Table};

/// Bytes of one read.
const BLOCK_BYTES: usize = 1 << 20;
/// The longest line; symbols of C++ may be long, these are longer.
pub(super) const LINE_BYTES_MAX: usize = 64 << 10;
/// Broken lines of a part that are kept to be shown.
const BAD_KEPT: usize = 1000;
/// Mappings that are kept: a program has at most 65530 at a time, unless told otherwise.
const MAPPINGS_MAX: usize = 1 << 20;

/// How accesses are put into slices.
#[derive(Clone, Copy, Debug)]
pub(super) enum Clock {
    /// By their time.
    Time { origin_ns: u64, slice_ns: u64 },
    /// By the file that they are in.
    File,
}

/// What all parts are read with.
#[derive(Debug)]
pub(super) struct Plan {
    pub pid: Option<u32>,
    pub clock: Clock,
    pub granule_bytes: u64,
    pub entries_max: usize,
    pub skip_bad: u64,
}

/// What the parts tell each other.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub bytes: AtomicU64,
    pub bad: AtomicU64,
    /// Whether to end at once.
    pub stopped: AtomicBool,
    /// Whether to begin no further part, since there are too many broken lines already.
    pub enough: AtomicBool,
    /// Whether there is no room for what the text has.
    pub overfull: AtomicBool,
}

/// Where a part begins in a file and where the next one does: lines that begin between.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileRange {
    pub file: usize,
    pub start: u64,
    pub end: u64,
}

/// What a part had in it, for the numbers of lines.
#[derive(Clone, Debug)]
pub(super) struct FileRangeEnd {
    pub part: FileRange,
    pub lines: u64,
    pub bad: u64,
    pub kept: Vec<BadLine>,
}

/// What one thread has gathered.
#[derive(Debug)]
pub(super) struct Collected {
    pub table: Table,
    /// Samples by [`super::data_src::Answer`].
    pub answers: [u64; 14],
    /// Samples without an address of data.
    pub without_address: u64,
    /// Samples of other processes than the one that was asked for.
    pub of_others: u64,
    /// Whether there are samples of which the process is not known.
    pub one_number: bool,
    pub times: Option<(u64, u64)>,
    /// Mappings with the file that they were in, by the part and the place in it.
    pub mappings: Vec<(usize, u64, Mapped)>,
}

impl Collected {
    /// No counts yet, and room for `entries_max`.
    pub fn new(plan: &Plan, entries_max: usize) -> Self {
        Collected {
            table: Table::new(plan.granule_bytes, entries_max),
            answers: [0; 14],
            without_address: 0,
            of_others: 0,
            one_number: false,
            times: None,
            mappings: Vec::new(),
        }
    }

    /// Adds what another thread has.
    pub fn merge(&mut self, other: Collected) {
        self.table.merge(other.table);
        self.answers.iter_mut().zip(other.answers).for_each(|(sum, more)| *sum += more);
        self.without_address += other.without_address;
        self.of_others += other.of_others;
        self.one_number |= other.one_number;
        self.times = match (self.times, other.times) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        self.mappings.extend(other.mappings);
    }

    #[inline]
    fn sample(&mut self, seen: &Seen, file: usize, plan: &Plan) -> Result<(), Reason> {
        if plan.pid.is_some() {
            match seen.pid {
                None => return Err("it has one number for process and thread (print both, with -F pid,tid)"),
                pid if pid != plan.pid => {
                    self.of_others += 1;
                    return Ok(());
                }
                _ => {}
            }
        }
        let slice = match plan.clock {
            Clock::File => file as i64,
            Clock::Time { origin_ns, slice_ns } => {
                let time = seen.time_ns.ok_or("it has no time, which samples before it have")?;
                self.times = Some(self.times.map_or((time, time), |(a, b)| (a.min(time), b.max(time))));
                // A slice has at least 1000 ns ([`super::ImportOptions`]), so that a number of slices fits.
                match time.checked_sub(origin_ns) {
                    Some(since) => (since / slice_ns.max(1)) as i64,
                    None => -((origin_ns - time).div_ceil(slice_ns.max(1)) as i64),
                }
            }
        };
        if seen.address == 0 {
            self.without_address += 1;
            return Ok(());
        }
        self.one_number |= seen.pid.is_none();
        self.answers[seen.answer as usize] += 1;
        let kind = Kind { op: seen.op, level: seen.answer.level(), mode: seen.mode };
        self.table.add(seen.pid.unwrap_or(0), slice, seen.address, kind, seen.cycles);
        Ok(())
    }

    /// Reads a part of a file that can be read anywhere.
    pub fn read_part(
        &mut self,
        input: &File,
        form: Form,
        part: FileRange,
        plan: &Plan,
        shared: &Shared,
    ) -> io::Result<FileRangeEnd> {
        let mut reader = Lines::new(self, form, part, plan, shared);
        // The line that the part before ends with is not begun here. A byte earlier is looked at, which may be its end.
        reader.skips = part.start > 0;
        let mut at = part.start.saturating_sub(1);
        loop {
            let into = reader.room();
            let count = match input.read_at(into, at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                count => count?,
            };
            let from = at;
            at += count as u64;
            let is_over = reader.filled(count, from);
            if count == 0 || is_over || shared.stopped.load(Relaxed) {
                return Ok(reader.end());
            }
        }
    }

    /// Reads a stream to its end. `head` was read from it before.
    pub fn read_stream(
        &mut self,
        head: &[u8],
        mut input: impl Read,
        form: Form,
        file: usize,
        plan: &Plan,
        shared: &Shared,
    ) -> io::Result<FileRangeEnd> {
        let part = FileRange { file, start: 0, end: u64::MAX };
        let mut reader = Lines::new(self, form, part, plan, shared);
        let mut at = 0;
        let mut head = head;
        loop {
            let into = reader.room();
            let result = if head.is_empty() { input.read(into) } else { head.read(into) };
            let count = match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                count => count?,
            };
            let from = at;
            at += count as u64;
            let is_over = reader.filled(count, from);
            if count == 0 || is_over || shared.stopped.load(Relaxed) {
                return Ok(reader.end());
            }
        }
    }
}

/// Lines out of blocks.
struct Lines<'a> {
    to: &'a mut Collected,
    form: Form,
    plan: &'a Plan,
    shared: &'a Shared,
    buffer: Vec<u8>,
    /// Bytes at the buffer's start that are an unfinished line.
    held: usize,
    /// Whether the rest of a line is skipped: it began before the part, or is too long.
    skips: bool,
    end: FileRangeEnd,
}

impl<'a> Lines<'a> {
    fn new(to: &'a mut Collected, form: Form, part: FileRange, plan: &'a Plan, shared: &'a Shared) -> Self {
        let end = FileRangeEnd { part, lines: 0, bad: 0, kept: Vec::new() };
        let buffer = vec![0; BLOCK_BYTES + LINE_BYTES_MAX];
        Lines { to, form, plan, shared, buffer, held: 0, skips: false, end }
    }

    fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.held..]
    }

    /// Adds `count` bytes that were read, the first of them from
    /// position `at` of the file; returns whether the part is complete.
    fn filled(&mut self, count: usize, at: u64) -> bool {
        self.shared.bytes.fetch_add(count as u64, Relaxed);
        let buffer = std::mem::take(&mut self.buffer);
        let (filled, first) = (self.held + count, at - self.held as u64);
        let mut start = 0;
        let mut is_over = false;
        for end in memchr::memchr_iter(b'\n', &buffer[..filled]) {
            if first + start as u64 >= self.end.part.end {
                is_over = true;
                break;
            }
            if std::mem::take(&mut self.skips) {
                start = end + 1;
                continue;
            }
            self.line(&buffer[start..end]);
            start = end + 1;
        }
        let rest = start..filled;
        is_over |= first + start as u64 >= self.end.part.end;
        if count == 0 && !is_over && !rest.is_empty() && !self.skips {
            self.bad("the text ends within it", &buffer[rest.clone()]);
            self.end.lines += 1;
        }
        self.buffer = buffer;
        // What is left over when the part is over is the next part's.
        if self.skips || is_over {
            self.held = 0;
        } else if rest.len() > LINE_BYTES_MAX {
            let line = self.buffer[rest.start..rest.start + LINE_BYTES_MAX].to_vec();
            self.bad("it is longer than 65536 bytes", &line);
            self.end.lines += 1;
            (self.held, self.skips) = (0, true);
        } else {
            self.held = rest.len();
            self.buffer.copy_within(rest, 0);
        }
        if self.to.table.is_overfull() || self.to.mappings.len() > MAPPINGS_MAX {
            self.shared.overfull.store(true, Relaxed);
            self.shared.stopped.store(true, Relaxed);
        }
        is_over
    }

    #[inline]
    fn line(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let parsed = self.form.parse(line).and_then(|parsed| match parsed {
            Parsed::Sample(seen) => self.to.sample(&seen, self.end.part.file, self.plan),
            Parsed::Mapping(mapped) => {
                self.to.mappings.push((self.end.part.file, self.end.part.start, *mapped));
                Ok(())
            }
            Parsed::Nothing => Ok(()),
        });
        if let Err(reason) = parsed {
            self.bad(reason, line);
        }
        self.end.lines += 1;
    }

    #[cold]
    fn bad(&mut self, reason: Reason, line: &[u8]) {
        if self.end.kept.len() < BAD_KEPT {
            self.end.kept.push(BadLine::new(self.end.lines, reason, line));
        }
        self.end.bad += 1;
        if self.shared.bad.fetch_add(1, Relaxed) >= self.plan.skip_bad {
            // Parts that have begun are read to their end: which line is reported must not depend on their timing.
            self.shared.enough.store(true, Relaxed);
        }
    }

    fn end(self) -> FileRangeEnd {
        self.end
    }
}
