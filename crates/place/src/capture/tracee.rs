//! Traced program under Valgrind: starting it, reading Lackey's output, and ending it.

use std::ffi::OsString;
use std::io::{self, BufReader, PipeReader, Read};
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use tiermem_base::Access;
use tiermem_sys::{child, inherited};
use tiermem_trace::filter::hierarchy::LINE_BYTES;
use tiermem_trace::{BadRecord, Format, ReadOptions, Trace, TraceError, reader};

use crate::capture::CaptureError;
use crate::capture::program::{self, Program, Stop};

/// Time that a pipe is left to fill; at its fastest Lackey fills a fifth of it.
const PAUSE: Duration = Duration::from_micros(300);
/// Bytes of one read from the pipe: all that a pipe holds.
const BUFFER_BYTES: usize = 64 << 10;

/// Accesses that are read between two looks at anything else.
const BATCH: usize = 4096;
/// Lines of one access: no instruction touches more, and a line of text that says so is not to take hours.
const LINES_MAX: u64 = 64;

/// A program that runs under Lackey. Dropped, it is ended.
#[derive(Debug)]
pub(super) struct Tracee {
    program: Program,
    /// What Lackey says, as a trace.
    accesses: Trace,
    /// Whether Valgrind could not continue, most often because the program used an instruction that it does not know.
    pub tracer_died: bool,
}

impl Tracee {
    /// Starts it.
    pub fn start(command: &[OsString], stop: &Stop) -> Result<Self, CaptureError> {
        let (program, arguments) = program::resolve(command)?;
        let (reader, writer) = io::pipe().map_err(CaptureError::Start)?;
        child::inherit(&writer).map_err(CaptureError::Start)?;
        let mut valgrind = Command::new("valgrind");
        valgrind.args([
            "--tool=lackey",
            "--trace-mem=yes",
            "--trace-children=no",
            "--child-silent-after-fork=yes",
        ]);
        valgrind.args(["--vgdb=no".to_owned(), format!("--log-fd={}", writer.as_raw_fd())]);
        // What the user has set for other tools of Valgrind's does not belong here.
        valgrind.env_remove("VALGRIND_OPTS");
        valgrind.arg(program).args(arguments);
        inherited::pass_on(&mut valgrind);
        let (program, _) = Program::start(valgrind, stop, false).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => CaptureError::NoValgrind,
            _ => CaptureError::Start(error),
        })?;
        Ok(Tracee { program, accesses: lines(reader)?, tracer_died: false })
    }

    /// Reads the next accesses into `batch`, replacing its contents; returns whether there are any.
    pub fn read(&mut self, batch: &mut Vec<Access>) -> Result<bool, CaptureError> {
        batch.clear();
        match self.accesses.next_batch(batch, BATCH) {
            Ok(count) => Ok(count > 0),
            Err(error) if is_last_word(&error) => {
                self.tracer_died = true;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The number of the process, which is the program's: Valgrind runs it within itself.
    pub fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Waits for its end without a limit of time, unless it is asked to stop; or ends
    /// it and all its descendants, if that is wanted or if the tracing has stopped.
    ///
    /// # Errors
    /// Without a single access, unless it was asked to stop, and if it cannot be waited for.
    pub fn finish(self, ends: bool, has_traced: bool, stop: &Stop) -> Result<ExitStatus, CaptureError> {
        if ends || self.tracer_died || stop.is_asked() {
            stop.end_program();
        }
        let status = self.program.wait().map_err(CaptureError::Wait)?;
        if !has_traced && !stop.is_asked() {
            return Err(CaptureError::NothingTraced(status.to_string()));
        }
        Ok(status)
    }
}

/// The lines of a cache that an access touches.
#[inline]
pub(super) fn lines_of(access: &Access) -> RangeInclusive<u64> {
    let first = access.key / LINE_BYTES;
    let last = access.key.saturating_add(u64::from(access.size.max(1)) - 1) / LINE_BYTES;
    first..=last.min(first + LINES_MAX)
}

/// Reads a pipe in large pieces. Lackey writes every line by itself, and a reader that sleeps on an empty pipe is woken by
/// each; that costs Lackey more than all the rest of its work.
struct Unhurried {
    pipe: PipeReader,
    was_short: bool,
}

impl Read for Unhurried {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.was_short {
            std::thread::sleep(PAUSE);
        }
        let count = self.pipe.read(buffer)?;
        self.was_short = count < buffer.len() / 2;
        Ok(count)
    }
}

fn lines(pipe: PipeReader) -> Result<Trace, CaptureError> {
    let input = BufReader::with_capacity(BUFFER_BYTES, Unhurried { pipe, was_short: false });
    // A line may be cut where the program was ended, and one is empty before Valgrind's last words.
    let options = ReadOptions { skip_bad: 1, ..ReadOptions::default() };
    Ok(reader::read_stream(Path::new("valgrind"), input, Format::LACKEY, &options)?)
}

/// Whether a line that is not an access is Valgrind's message when it cannot continue: a failed assertion of its own.
fn is_last_word(error: &TraceError) -> bool {
    let TraceError::Record { reason: BadRecord::Malformed { text, .. }, .. } = error else { return false };
    ["Lackey: ", "valgrind: "].iter().any(|start| text.starts_with(start))
}
