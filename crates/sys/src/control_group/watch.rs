//! Notifications of events in a group.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::error::GroupError;
use super::files::{self, NEEDS_VERSION_1, NEEDS_VERSION_2};
use super::group::Group;
use super::version::Version;

const ATTEMPTED: &str = "watch";

/// How hard the kernel has to try to reclaim in a group (version 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PressureLevel {
    /// It reclaims.
    Low,
    /// It swaps and drops pages that are in use.
    Medium,
    /// It is about to run out.
    Critical,
}

impl PressureLevel {
    const fn name(self) -> &'static str {
        match self {
            PressureLevel::Low => "low",
            PressureLevel::Medium => "medium",
            PressureLevel::Critical => "critical",
        }
    }
}

/// Tells when something has happened; ends with this value.
#[derive(Debug)]
pub struct Watch(How);

#[derive(Debug)]
enum How {
    /// A counter that the kernel adds to, and the file that is watched.
    Counter { counter: OwnedFd, _watched: File },
    /// A file that has something urgent to say.
    Urgent(File),
}

impl Group {
    /// Tells when a process of the group finds no memory (version 1), or when one of the group's [`super::Events`] has happened
    /// (version 2).
    ///
    /// # Errors
    /// The system's error.
    pub fn watch_out_of_memory(&self) -> Result<Watch, GroupError> {
        match self.version() {
            Version::One => self.watch_by_counter("memory.oom_control", None),
            Version::Two => {
                let path = self.existing(ATTEMPTED, "memory.events", "it needs a group below the root")?;
                let mut file = open(&path)?;
                // What was read last is what the kernel compares with.
                read_all(&mut file).map_err(|error| GroupError::io(ATTEMPTED, &path, error))?;
                Ok(Watch(How::Urgent(file)))
            }
        }
    }

    /// Tells when the kernel has trouble to reclaim in the group.
    ///
    /// # Errors
    /// With version 2, whose measure is time lost ([`Group::watch_stalls`]); the system's error.
    pub fn watch_pressure(&self, level: PressureLevel) -> Result<Watch, GroupError> {
        self.existing(ATTEMPTED, "memory.pressure_level", NEEDS_VERSION_1)?;
        self.watch_by_counter("memory.pressure_level", Some(level))
    }

    /// Tells when processes of the group have waited for memory for `stall` in all within a `window` (half a second to ten).
    ///
    /// # Errors
    /// With version 1; without pressure stall information (CONFIG_PSI); for times that the kernel does not take (`EINVAL`).
    pub fn watch_stalls(&self, stall: Duration, window: Duration) -> Result<Watch, GroupError> {
        let path = self.existing(ATTEMPTED, "memory.pressure", NEEDS_VERSION_2)?;
        let trigger = format!("some {} {}", stall.as_micros(), window.as_micros());
        let opened = File::options().read(true).write(true).open(&path);
        let file = opened.map_err(|error| GroupError::io(ATTEMPTED, &path, error))?;
        io::Write::write_all(&mut &file, trigger.as_bytes())
            .map_err(|error| GroupError::io(ATTEMPTED, &path, error))?;
        Ok(Watch(How::Urgent(file)))
    }

    fn watch_by_counter(
        &self,
        name: &'static str,
        level: Option<PressureLevel>,
    ) -> Result<Watch, GroupError> {
        let path = self.existing(ATTEMPTED, name, "it needs a group of version 1")?;
        let watched = open(&path)?;
        let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| GroupError::io(ATTEMPTED, &path, error.into()))?;
        let level = level.map(|level| format!(" {}", level.name())).unwrap_or_default();
        let text = format!("{} {}{level}", counter.as_raw_fd(), watched.as_raw_fd());
        files::write(ATTEMPTED, &self.file("cgroup.event_control"), &text)?;
        Ok(Watch(How::Counter { counter, _watched: watched }))
    }
}

impl Watch {
    /// Waits for the event, at most `at_most`. Returns whether it has happened since the last call. A group that goes away counts
    /// as an event, too.
    ///
    /// # Errors
    /// The system's error.
    pub fn wait(&mut self, at_most: Duration) -> io::Result<bool> {
        let timeout = Timespec::try_from(at_most).ok();
        let flags = self.poll_flags();
        let mut polled = [PollFd::from_borrowed_fd(self.as_fd(), flags)];
        let has_happened = match poll(&mut polled, timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => false,
            Ok(_) => true,
            Err(error) => return Err(error.into()),
        };
        if has_happened {
            self.reset()?;
        }
        Ok(has_happened)
    }

    /// The flags to poll for, in a loop of the caller's own.
    pub fn poll_flags(&self) -> PollFlags {
        match self.0 {
            How::Counter { .. } => PollFlags::IN,
            How::Urgent(_) => PollFlags::PRI,
        }
    }

    /// Forgets the events that were reported.
    fn reset(&mut self) -> io::Result<()> {
        match &mut self.0 {
            How::Counter { counter, .. } => match rustix::io::read(counter, &mut [0; 8]) {
                Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
                Err(error) => Err(error.into()),
            },
            How::Urgent(file) => read_all(file),
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            How::Counter { counter, .. } => counter.as_fd(),
            How::Urgent(file) => file.as_fd(),
        }
    }
}

fn open(path: &Path) -> Result<File, GroupError> {
    File::open(path).map_err(|error| GroupError::io(ATTEMPTED, path, error))
}

fn read_all(file: &mut File) -> io::Result<()> {
    file.rewind()?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).map(drop)
}
