//! The program under Valgrind: starting it, what Lackey says of it, and ending it.

use std::ffi::OsString;
use std::io::{self, BufReader, PipeReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tiermem_sys::child;
use tiermem_trace::{BadRecord, Format, ReadOptions, Trace, TraceError, reader};

use super::error::CaptureError;

/// How often the end of a program is looked for that no longer says anything.
const WAIT: Duration = Duration::from_millis(20);
/// How long a pipe is left to fill; at its fastest Lackey fills a fifth of it.
const PAUSE: Duration = Duration::from_micros(300);
/// What is read from the pipe at once: all that a pipe holds.
const BUFFER_BYTES: usize = 64 << 10;

/// Asks a recording to stop, from another thread. The program is ended, and what has been recorded is kept.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    asked: AtomicBool,
    /// The process to end, as long as its number means it: from its start until its end has been waited for.
    leader: Mutex<Option<u32>>,
}

impl Stop {
    /// Asks for it.
    pub fn stop(&self) {
        self.0.asked.store(true, Relaxed);
        self.end();
    }

    /// Whether it was asked for.
    pub fn is_asked(&self) -> bool {
        self.0.asked.load(Relaxed)
    }

    /// Ends the program, if it runs.
    fn end(&self) {
        if let Some(leader) = *self.leader() {
            child::end_group(leader);
        }
    }

    fn leader(&self) -> MutexGuard<'_, Option<u32>> {
        self.0.leader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A program that runs under Lackey. Dropped, it is ended.
#[derive(Debug)]
pub(super) struct Tracee {
    child: Child,
    stop: Stop,
    /// What Lackey says, as a trace.
    pub accesses: Trace,
}

impl Tracee {
    /// Starts it, with this process's standard input unless that is a terminal. All that it prints goes to this process's
    /// standard error, since standard output has the results of the recording.
    pub fn start(command: &[OsString], stop: &Stop) -> Result<Self, CaptureError> {
        let (name, arguments) = command.split_first().ok_or(CaptureError::NoCommand)?;
        let program = find_program(Path::new(name))?;
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
        valgrind.arg(program).args(arguments).process_group(0);
        valgrind.stdout(io::stderr());
        child::end_with_parent(&mut valgrind);
        // A group of its own is no terminal's foreground, so that reading from one would stop it for ever.
        if io::IsTerminal::is_terminal(&io::stdin()) {
            valgrind.stdin(Stdio::null());
        }
        let mut leader = stop.leader();
        let child = valgrind.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => CaptureError::NoValgrind,
            _ => CaptureError::Start(error),
        })?;
        *leader = Some(child.id());
        drop(leader);
        let mut tracee = Tracee { child, stop: stop.clone(), accesses: lines(reader)? };
        if stop.is_asked() {
            tracee.end();
        }
        Ok(tracee)
    }

    /// The number of the process, which is the program's: Valgrind runs it within itself.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it and all that it has started.
    pub fn end(&mut self) {
        self.stop.end();
    }

    /// Waits for its end, which may take as long as it likes unless it is asked to stop.
    pub fn wait(&mut self) -> Result<ExitStatus, CaptureError> {
        loop {
            // Under the lock, so that nobody ends a process of the same number once this one's end has been taken in.
            let mut leader = self.stop.leader();
            if let Some(status) = self.child.try_wait().map_err(CaptureError::Wait)? {
                *leader = None;
                return Ok(status);
            }
            drop(leader);
            std::thread::sleep(WAIT);
        }
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // After a wait there is no leader, and the second wait gives the same status at once.
        self.end();
        let _ = self.wait();
    }
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

/// Whether a line that is none of an access is what Valgrind says when it cannot go on: a failed assertion of its own.
pub(super) fn is_last_word(error: &TraceError) -> bool {
    let TraceError::Record { reason: BadRecord::Malformed { text, .. }, .. } = error else { return false };
    ["Lackey: ", "valgrind: "].iter().any(|start| text.starts_with(start))
}

/// The file of a command: itself if it has a slash, else the first in PATH.
fn find_program(command: &Path) -> Result<PathBuf, CaptureError> {
    let failed =
        |reason: &str| CaptureError::Command { command: command.to_owned(), reason: reason.to_owned() };
    let is_path = command.as_os_str().as_encoded_bytes().contains(&b'/');
    if !is_path {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut found = std::env::split_paths(&path).map(|folder| folder.join(command));
        return found.find(|file| runnable(file).is_ok()).ok_or_else(|| failed("it is not in PATH"));
    }
    runnable(command).map_err(|reason| failed(&reason))?;
    Ok(command.to_owned())
}

fn runnable(file: &Path) -> Result<(), String> {
    let meta = file.metadata().map_err(|error| error.to_string())?;
    match meta.is_file() {
        true if meta.permissions().mode() & 0o111 != 0 => Ok(()),
        true => Err("the file is not executable".to_owned()),
        false => Err("it is no file".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_as_a_shell_does() {
        assert!(find_program(Path::new("sh")).unwrap().ends_with("sh"));
        assert_eq!(find_program(Path::new("/bin/sh")).unwrap(), Path::new("/bin/sh"));
        for (command, reason) in [
            ("no-such-program", "cannot run no-such-program: it is not in PATH"),
            ("/proc/self/maps", "cannot run /proc/self/maps: the file is not executable"),
            ("/", "cannot run /: it is no file"),
            ("", "cannot run : it is not in PATH"),
        ] {
            assert_eq!(find_program(Path::new(command)).unwrap_err().to_string(), reason);
        }
        assert!(
            find_program(Path::new("./no-such-program")).unwrap_err().to_string().contains("No such file")
        );
    }

    #[test]
    fn a_recording_without_a_command_is_refused() {
        assert!(matches!(Tracee::start(&[], &Stop::default()), Err(CaptureError::NoCommand)));
    }
}
