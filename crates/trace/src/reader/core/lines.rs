//! Reader of lines, which all text formats share.
//!
//! Lines are read in place where they lie within one buffer. A line longer than its format allows is not kept, so that a file
//! without line ends costs time but no memory. Every line gives accesses, a note that it is none, or an error with its number.

use std::collections::VecDeque;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

use tiermem_base::Access;

use super::source::read_error;
use crate::trace::{Notes, Records};
use crate::{BadRecord, RecordPosition, TraceError};

/// The parser of a text format's lines. `Err` means the line is broken; the next one may be good.
pub(crate) trait LineFormat: Send {
    /// Reads line `number` (from 1), without its end, and puts what it says into `out`. A broken line puts nothing.
    fn line(&mut self, number: u64, line: &[u8], out: &mut LineOut<'_>) -> Result<(), BadRecord>;

    /// The longest line that can be of this format, in bytes.
    fn line_bytes_max(&self) -> usize {
        1024
    }

    /// Records so far whose time lies before that of the record before them.
    fn steps_back(&self) -> u64 {
        0
    }
}

/// Where a line's accesses go.
pub(crate) struct LineOut<'a> {
    records: &'a mut Vec<Access>,
    limit: usize,
    pending: &'a mut Pending,
}

/// Accesses of a line beyond those that its reader was asked for.
#[derive(Default)]
struct Pending {
    /// Single accesses: as many as keys in one line.
    queue: VecDeque<Access>,
    /// Accesses that follow from one another, so that a line that stands for a billion of them costs no memory.
    run: Option<Run>,
    not_accesses: u64,
}

struct Run {
    next: Access,
    left: u64,
    key_step: u64,
}

impl LineOut<'_> {
    /// Adds an access.
    #[inline]
    pub fn push(&mut self, access: Access) {
        if self.records.len() < self.limit && self.pending.queue.is_empty() {
            self.records.push(access);
        } else {
            self.pending.queue.push_back(access);
        }
    }

    /// `count` accesses, the key of each `key_step` above the one before. One run per line, and nothing behind it.
    #[inline]
    pub fn push_run(&mut self, first: Access, count: u64, key_step: u64) {
        debug_assert!(self.pending.run.is_none(), "a line is read only when the one before is used up");
        match count {
            0 => self.note(),
            1 => self.push(first),
            _ => self.pending.run = Some(Run { next: first, left: count, key_step }),
        }
    }

    /// The line belongs to the format but is no access.
    pub fn note(&mut self) {
        self.pending.not_accesses += 1;
    }
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.run.is_none()
    }

    fn drain(&mut self, records: &mut Vec<Access>, limit: usize) {
        while records.len() < limit {
            match self.queue.pop_front() {
                Some(access) => records.push(access),
                None => break,
            }
        }
        while records.len() < limit
            && let Some(run) = &mut self.run
        {
            records.push(run.next);
            run.next.key = run.next.key.wrapping_add(run.key_step);
            run.left -= 1;
            if run.left == 0 {
                self.run = None;
            }
        }
    }
}

/// Reads the lines of one file.
pub(crate) struct Lines<R> {
    path: PathBuf,
    input: R,
    format: Box<dyn LineFormat>,
    line_bytes_max: usize,
    /// The start of a line that began in an earlier buffer.
    carry: Vec<u8>,
    too_long: bool,
    line_number: u64,
    finished: bool,
    pending: Pending,
}

impl<R: BufRead> Lines<R> {
    /// A reader of `input`; `path` names it in errors.
    pub fn new(path: &Path, input: R, format: Box<dyn LineFormat>) -> Self {
        Lines {
            path: path.to_owned(),
            input,
            line_bytes_max: format.line_bytes_max(),
            format,
            carry: Vec::new(),
            too_long: false,
            line_number: 0,
            finished: false,
            pending: Pending::default(),
        }
    }

    fn record_error(&self, reason: BadRecord) -> TraceError {
        TraceError::Record { path: self.path.clone(), place: RecordPosition::Line(self.line_number), reason }
    }
}

/// The part of a line that its buffer ended with.
struct Cut<'a> {
    carry: &'a mut Vec<u8>,
    too_long: &'a mut bool,
    limit_bytes: usize,
}

impl Cut<'_> {
    fn keep(&mut self, part: &[u8]) {
        if *self.too_long || self.carry.len() + part.len() > self.limit_bytes {
            *self.too_long = true;
            self.carry.clear();
        } else {
            self.carry.extend_from_slice(part);
        }
    }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

impl<R: BufRead + Send> Records for Lines<R> {
    fn read(&mut self, out: &mut Vec<Access>, max: usize) -> Result<(), TraceError> {
        let start = out.len();
        let limit = start.saturating_add(max);
        self.pending.drain(out, limit);
        while out.len() < limit && !self.finished {
            let available = match self.input.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.finished = true;
                    return Err(read_error(&self.path, RecordPosition::Line(self.line_number), error));
                }
            };
            let mut used = 0;
            let mut result = Ok(());
            let at_end = available.is_empty();
            let mut cut = Cut {
                carry: &mut self.carry,
                too_long: &mut self.too_long,
                limit_bytes: self.line_bytes_max,
            };
            self.finished = at_end;
            while result.is_ok() && out.len() < limit && self.pending.is_empty() {
                let rest = &available[used..];
                let part = match memchr::memchr(b'\n', rest) {
                    Some(length) => &rest[..length],
                    // The last line may lack its end.
                    None if at_end && (!cut.carry.is_empty() || *cut.too_long) => rest,
                    None => {
                        cut.keep(rest);
                        used = available.len();
                        break;
                    }
                };
                used = (used + part.len() + 1).min(available.len());
                self.line_number += 1;
                let mut line_out = LineOut { records: out, limit, pending: &mut self.pending };
                let too_long = *cut.too_long || cut.carry.len() + part.len() > cut.limit_bytes;
                result = if too_long {
                    Err(BadRecord::LineTooLong { limit_bytes: cut.limit_bytes })
                } else if cut.carry.is_empty() {
                    self.format.line(self.line_number, without_return(part), &mut line_out)
                } else {
                    cut.carry.extend_from_slice(part);
                    self.format.line(self.line_number, without_return(cut.carry), &mut line_out)
                };
                cut.carry.clear();
                *cut.too_long = false;
                if at_end {
                    break;
                }
            }
            self.input.consume(used);
            result.map_err(|reason| self.record_error(reason))?;
            self.pending.drain(out, limit);
            // What a pipe has said so far is handed out before it is asked to wait for more.
            if out.len() > start {
                break;
            }
        }
        Ok(())
    }

    fn notes(&self) -> Notes {
        Notes { not_accesses: self.pending.not_accesses, steps_back: self.format.steps_back() }
    }
}

/// Tries a format on a text, line by line, for guessing formats: how many lines it takes, and how many not.
pub(crate) fn lines_taken(format: &mut dyn LineFormat, lines: &[&[u8]]) -> (usize, usize) {
    let mut pending = Pending::default();
    let (mut taken, mut refused) = (0, 0);
    for (number, line) in (1..).zip(lines) {
        let mut records = Vec::new();
        let mut out = LineOut { records: &mut records, limit: 1, pending: &mut pending };
        let result = match line.len() <= format.line_bytes_max() {
            true => format.line(number, without_return(line), &mut out),
            false => continue,
        };
        let access = !records.is_empty() || !pending.is_empty();
        pending = Pending::default();
        match result {
            Ok(()) => taken += usize::from(access),
            Err(_) => refused += 1,
        }
    }
    (taken, refused)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Everything that a format makes of `text`, errors as they are printed, from a file called `t`.
    pub(crate) fn read_with(format: Box<dyn LineFormat>, text: &[u8]) -> Vec<Result<Access, String>> {
        let mut lines = Lines::new(Path::new("t"), text, format);
        let mut items = Vec::new();
        loop {
            let mut records = Vec::new();
            // An odd batch, so that lines with many records are cut.
            let result = lines.read(&mut records, 3);
            let nothing = records.is_empty();
            items.extend(records.into_iter().map(Ok));
            match result {
                Err(error) => items.push(Err(error.to_string())),
                Ok(()) if nothing => return items,
                Ok(()) => {}
            }
        }
    }
}
