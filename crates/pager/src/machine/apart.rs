//! Processes that are started beside tiermem's own: they live on where that is killed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Between the starts of a process that ends at once, or cannot be started: it doubles from the one to the other.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Starts a process that has nothing of this one's: neither its streams nor its group of processes, which may get signals of a terminal.
///
/// # Errors
/// If it cannot be started.
pub fn start_apart(command: &[OsString], argument: &OsStr) -> io::Result<Child> {
    let (file, arguments) = command.split_first().ok_or(io::ErrorKind::NotFound)?;
    let mut command = Command::new(file);
    command.arg0("tiermem").args(arguments).arg(argument).process_group(0).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn()
}

/// A process apart that is started again where it has ended. It ends with this value, unless that is left.
#[derive(Debug)]
pub struct Apart {
    command: Vec<OsString>,
    child: Option<Child>,
    /// Not before then, and so long after that.
    next_start: Option<Instant>,
    pause: Duration,
    has_failed: bool,
}

/// What became of a process apart at a look.
#[derive(Debug)]
pub enum Kept {
    /// It runs, since the look before.
    Runs,
    /// It was started now.
    Started,
    /// It does not run: for the first time since it did, and why it cannot be started.
    Failed(io::Error),
    /// It does not run, and is started later.
    Paused,
}

impl Apart {
    /// Not started yet: a command that gets an argument behind it.
    pub fn new(command: Vec<OsString>) -> Self {
        Apart { command, child: None, next_start: None, pause: PAUSE_MIN, has_failed: false }
    }

    /// Whether it was ever started, or should have been.
    pub fn is_wanted(&self) -> bool {
        self.next_start.is_some()
    }

    /// Has it run from now on. Where it ends at once, again and again, or cannot be started, it is tried ever more seldom.
    pub fn keep(&mut self, argument: &OsStr, now: Instant) -> Kept {
        if self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
            return Kept::Runs;
        }
        self.child = None;
        if self.next_start.is_some_and(|next| now < next) {
            return Kept::Paused;
        }
        // One that has lived for long begins anew.
        let lived_long = self.next_start.is_some_and(|next| now.duration_since(next) > PAUSE_MAX);
        self.pause = if lived_long { PAUSE_MIN } else { self.pause };
        self.next_start = Some(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        match start_apart(&self.command, argument) {
            Ok(child) => {
                (self.child, self.has_failed) = (Some(child), false);
                Kept::Started
            }
            Err(_) if std::mem::replace(&mut self.has_failed, true) => Kept::Paused,
            Err(error) => Kept::Failed(error),
        }
    }

    /// Lets it go on by itself.
    pub fn leave(mut self) {
        self.child = None;
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It has ended, or ends.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(apart: &mut Apart, now: Instant) -> Kept {
        apart.keep("1000".as_ref(), now)
    }

    #[test]
    fn what_cannot_be_started_is_told_once_and_tried_ever_more_seldom() {
        let begun = Instant::now();
        let mut apart = Apart::new(vec!["/no/such/program".into()]);
        assert!(!apart.is_wanted());
        assert!(matches!(keep(&mut apart, begun), Kept::Failed(_)));
        let looks = Duration::from_millis(50);
        let mut starts = 1;
        for look in 1..20 * 60 {
            let before = apart.next_start;
            assert!(matches!(keep(&mut apart, begun + looks * look), Kept::Paused), "it is told once");
            starts += usize::from(apart.next_start != before);
        }
        // 0.1 s, 0.3 s, 0.7 s, ... within a minute.
        assert_eq!(starts, 10);
        // Once it could be started, the next failure is news.
        apart.command = vec!["sleep".into()];
        let later = begun + Duration::from_secs(300);
        assert!(matches!(keep(&mut apart, later), Kept::Started));
        assert!(matches!(keep(&mut apart, later), Kept::Runs));
        apart.child.as_mut().unwrap().kill().unwrap();
        apart.child.as_mut().unwrap().wait().unwrap();
        apart.command = vec!["/no/such/program".into()];
        let again = later + Duration::from_secs(300);
        assert!(matches!(keep(&mut apart, again), Kept::Failed(_)));
        // It has run for long, and is tried again as soon as at first.
        let before = apart.next_start;
        assert!(
            matches!(keep(&mut apart, again + 2 * PAUSE_MIN), Kept::Paused) && apart.next_start != before
        );
    }

    #[test]
    fn what_has_ended_is_started_again_and_what_is_left_goes_on() {
        let begun = Instant::now();
        let mut apart = Apart::new(vec!["sleep".into()]);
        assert!(matches!(keep(&mut apart, begun), Kept::Started));
        let child = apart.child.as_mut().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(keep(&mut apart, begun), Kept::Paused));
        assert!(matches!(keep(&mut apart, begun + PAUSE_MIN), Kept::Started));
        let id = apart.child.as_ref().unwrap().id();
        apart.leave();
        // Only one that runs can be ended.
        assert!(Command::new("kill").arg(id.to_string()).status().unwrap().success());
    }
}
