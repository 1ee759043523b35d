//! Process descriptor (pidfd): waits for the end of a process that need not be a child.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process, whatever becomes of its number.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// Opens the process that has this number now.
    ///
    /// # Errors
    /// Not found if there is none.
    pub fn open(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
        Ok(PidFd(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Waits until it has ended, at most `at_most`. Returns whether it has; its parent may not have taken that in yet.
    pub fn wait(&self, at_most: Duration) -> bool {
        self.wait_or([], at_most) == Woken::Ended
    }

    /// Waits like [`Self::wait`], or until one of `others` can be read.
    pub fn wait_or<'a>(
        &'a self,
        others: impl IntoIterator<Item = BorrowedFd<'a>>,
        at_most: Duration,
    ) -> Woken {
        let timeout = Timespec::try_from(at_most).ok();
        let all = [self.0.as_fd()].into_iter().chain(others);
        let mut all: Vec<PollFd<'_>> =
            all.map(|each| PollFd::from_borrowed_fd(each, PollFlags::IN)).collect();
        // A wait that a signal cuts short is a short wait.
        match poll(&mut all, timeout.as_ref()) {
            Ok(0) | Err(_) => Woken::InTime,
            Ok(_) if all.first().is_some_and(|end| !end.revents().is_empty()) => Woken::Ended,
            Ok(_) => Woken::Readable,
        }
    }
}

impl PidFd {
    /// Sends it a signal.
    ///
    /// # Errors
    /// `ESRCH` if it has gone, `EPERM` if it belongs to another user.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.0, signal)?)
    }
}

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The process has ended.
    Ended,
    /// Something else can be read.
    Readable,
    /// The time is up.
    InTime,
}

impl From<OwnedFd> for PidFd {
    /// A process from a descriptor that the kernel made for it.
    fn from(descriptor: OwnedFd) -> Self {
        PidFd(descriptor)
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_process_is_seen() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let process = PidFd::open(child.id()).unwrap();
        assert!(!process.wait(Duration::from_millis(1)));
        child.kill().unwrap();
        assert!(process.wait(Duration::from_secs(60)));
        child.wait().unwrap();
        assert!(PidFd::open(0).is_err() && PidFd::open(u32::MAX).is_err());
    }
}
