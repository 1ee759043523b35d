//! Recorded programs: finding their file, starting them as if nobody were there, and waiting for their end.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tiermem_sys::agent::{self, Agent, NoAgent};
use tiermem_sys::child::{self, Usage};
use tiermem_sys::inherited;

use super::CaptureError;

/// Time between checks whether a silent program has ended.
const WAIT: Duration = Duration::from_millis(20);

/// Asks a recording to stop, from another thread; what has been recorded is kept, and the program goes on.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    asked: AtomicBool,
    started: Mutex<Option<Started>>,
}

/// A program that was started here.
#[derive(Clone, Copy, Debug)]
struct Started {
    pid: u32,
    /// The system's report of its end, which it gives only once; from then on its number may mean another process.
    end: Option<(ExitStatus, Usage)>,
}

impl Stop {
    /// Asks for it.
    pub fn stop(&self) {
        self.0.asked.store(true, Relaxed);
    }

    /// Whether it was asked for.
    pub fn is_asked(&self) -> bool {
        self.0.asked.load(Relaxed)
    }

    /// Sends the program a signal that was meant for it, if it runs.
    pub fn pass_on(&self, signal: i32) {
        if let Some(Started { pid, end: None }) = *self.started() {
            child::signal(pid, signal);
        }
    }

    /// Whether a program that was started here runs, or its end has not been taken in.
    pub fn has_program(&self) -> bool {
        matches!(*self.started(), Some(Started { end: None, .. }))
    }

    /// Ends the program and its descendants, if it runs.
    pub fn end_program(&self) {
        if let Some(Started { pid, end: None }) = *self.started() {
            child::end_tree(pid);
        }
    }

    /// Waits for the end of the program, which may take as long as it likes; `None` if none was started here.
    ///
    /// # Errors
    /// If the system does not let it be waited for.
    pub fn wait_for_program(&self) -> io::Result<Option<ExitStatus>> {
        loop {
            match self.end_of_program()? {
                None => return Ok(None),
                Some(Started { end: Some((status, _)), .. }) => return Ok(Some(status)),
                Some(Started { end: None, .. }) => {
                    agent::leave_late();
                    std::thread::sleep(WAIT);
                }
            }
        }
    }

    /// The program, with its end if it has ended.
    fn end_of_program(&self) -> io::Result<Option<Started>> {
        // Under the lock, so that no other process of the same number gets a signal once this one has been reaped.
        let mut started = self.started();
        if let Some(Started { pid, end: end @ None }) = started.as_mut() {
            *end = child::take_end(*pid)?;
        }
        Ok(*started)
    }

    fn started(&self) -> MutexGuard<'_, Option<Started>> {
        self.0.started.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A program that was started here. Dropped, it goes on.
#[derive(Debug)]
pub struct Program {
    pid: u32,
    stop: Stop,
}

impl Program {
    /// Starts a command made by [`command`]. With an agent, if it can have one.
    ///
    /// # Errors
    /// If the system does not run it.
    pub fn start(
        command: Command,
        stop: &Stop,
        with_agent: bool,
    ) -> io::Result<(Self, Option<Result<Agent, NoAgent>>)> {
        let mut started = stop.started();
        let agent::Started { child, agent } = agent::start(command, with_agent)?;
        let pid = child.id();
        *started = Some(Started { pid, end: None });
        drop(started);
        Ok((Program { pid, stop: stop.clone() }, agent))
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Resources used by it and by all descendants that it waited for; known once it has ended.
    pub fn usage(&self) -> Option<Usage> {
        self.stop.started().and_then(|it| it.end).map(|(_, usage)| usage)
    }

    /// Waits for its end, which may take as long as it likes.
    ///
    /// # Errors
    /// If the system does not let it be waited for.
    pub fn wait(&self) -> io::Result<ExitStatus> {
        self.stop.wait_for_program()?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// A command: the file of its first word, under the name that was given, and its arguments. It has all that it would have if the user had
/// started it: standard input, output and error, the terminal and its process group, signals, environment.
///
/// # Errors
/// If there is no such program.
pub fn command(words: &[OsString]) -> Result<Command, CaptureError> {
    let (file, arguments) = resolve(words)?;
    let mut command = Command::new(file);
    command.arg0(&words[0]).args(arguments);
    inherited::pass_on(&mut command);
    Ok(command)
}

/// The file of a command and its arguments.
pub(crate) fn resolve(command: &[OsString]) -> Result<(PathBuf, &[OsString]), CaptureError> {
    let (name, arguments) = command.split_first().ok_or(CaptureError::NoCommand)?;
    Ok((find_program(Path::new(name))?, arguments))
}

/// The file of a command: itself if it has a slash, else the first in PATH.
fn find_program(command: &Path) -> Result<PathBuf, CaptureError> {
    let failed = |reason: &str, is_there: bool| CaptureError::Command {
        command: command.to_owned(),
        reason: reason.to_owned(),
        is_there,
    };
    let is_path = command.as_os_str().as_encoded_bytes().contains(&b'/');
    if !is_path {
        // Without a PATH, the C library's.
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        let mut found = std::env::split_paths(&path).map(|folder| folder.join(command));
        return found.find(|file| runnable(file).is_ok()).ok_or_else(|| failed("it is not in PATH", false));
    }
    runnable(command).map_err(|reason| failed(&reason, command.exists()))?;
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
    fn a_program_gets_the_name_that_it_was_called_by() {
        let words: Vec<OsString> = ["sh", "-c", "test $0 = sh"].map(OsString::from).to_vec();
        let (program, agent) = Program::start(command(&words).unwrap(), &Stop::default(), false).unwrap();
        assert!(program.wait().unwrap().success() && agent.is_none());
    }

    #[test]
    fn a_signal_for_the_program_reaches_it() {
        let stop = Stop::default();
        let mut command = Command::new("sleep");
        command.arg("1000");
        let (program, _) = Program::start(command, &stop, false).unwrap();
        stop.stop();
        assert!(stop.has_program(), "asking to stop is about the recording");
        stop.pass_on(15);
        let status = program.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
        // It has gone.
        assert!(!stop.has_program());
        stop.pass_on(15);
        stop.end_program();
    }
}
