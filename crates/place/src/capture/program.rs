//! Recorded programs: finding their file, starting them, ending them with all their descendants.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tiermem_sys::child::{self, Usage};

use super::CaptureError;

/// Time between checks whether a silent program has ended.
const WAIT: Duration = Duration::from_millis(20);

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
    pub(crate) fn end(&self) {
        if let Some(leader) = *self.leader() {
            child::end_group(leader);
        }
    }

    fn leader(&self) -> MutexGuard<'_, Option<u32>> {
        self.0.leader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A program that was started here. Dropped, it is ended.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    stop: Stop,
    /// The system's report of its end, which it gives only once.
    end: Option<(ExitStatus, Usage)>,
}

impl Program {
    /// Starts a command as the first of a process group of its own, with this process's standard input unless that is a
    /// terminal. All that it prints goes to this process's standard error, since standard output has the results of the
    /// recording.
    pub fn start(mut command: Command, stop: &Stop) -> io::Result<Self> {
        command.process_group(0).stdout(io::stderr());
        child::end_with_parent(&mut command);
        // A group of its own is no terminal's foreground, so that reading from one would stop it for ever.
        if io::IsTerminal::is_terminal(&io::stdin()) {
            command.stdin(Stdio::null());
        }
        let mut leader = stop.leader();
        let child = command.spawn()?;
        *leader = Some(child.id());
        drop(leader);
        let program = Program { child, stop: stop.clone(), end: None };
        if stop.is_asked() {
            program.end();
        }
        Ok(program)
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it and all that it has started.
    pub fn end(&self) {
        self.stop.end();
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        // Under the lock, so that no other process of the same number is ended once this one has been reaped.
        let mut leader = self.stop.leader();
        if self.end.is_none() {
            self.end = child::take_end(self.child.id())?;
        }
        if self.end.is_some() {
            *leader = None;
        }
        Ok(self.end.map(|(status, _)| status))
    }

    /// Resources used by it and by all descendants that it waited for; known once it has ended.
    pub fn usage(&self) -> Option<Usage> {
        self.end.map(|(_, usage)| usage)
    }

    /// Waits for its end, which may take as long as it likes unless it is asked to stop.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            std::thread::sleep(WAIT);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // After a wait there is no leader, and the second wait gives the same status at once.
        self.end();
        let _ = self.wait();
    }
}

/// The file of a command and its arguments.
pub(crate) fn resolve(command: &[OsString]) -> Result<(PathBuf, &[OsString]), CaptureError> {
    let (name, arguments) = command.split_first().ok_or(CaptureError::NoCommand)?;
    Ok((find_program(Path::new(name))?, arguments))
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
        false => Err("it is not a file".to_owned()),
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
            ("/", "cannot run /: it is not a file"),
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
        assert!(matches!(resolve(&[]), Err(CaptureError::NoCommand)));
    }

    #[test]
    fn a_program_that_was_asked_to_stop_before_it_began_ends() {
        let stop = Stop::default();
        stop.stop();
        let mut command = Command::new("sleep");
        command.arg("1000");
        assert!(!Program::start(command, &stop).unwrap().wait().unwrap().success());
    }
}
