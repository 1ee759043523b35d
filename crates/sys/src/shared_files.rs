//! A child process that shares this process's table of descriptors, but not its memory.
//!
//! A descriptor that one of the two opens has the same number in the other, and is closed only when both have ended (or one of
//! them has closed it). So the child keeps descriptors that must not be closed when its parent dies: when the last descriptor of
//! a `userfaultfd` is closed its missing pages read as zeros, and a forked process's descriptor is created only in the process
//! that reads the message. A copy of the table, as `fork` makes it, would lack all descriptors that are opened later.
//!
//! The program may also begin another one (`exec`), which gives it a table of its own: the child keeps the old one, with the
//! descriptors that the kernel closes at `exec`. For the same reason the child itself must not begin another program, and so it
//! runs a function.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::pidfd::PidFd;

/// The code with which a child ends whose function panicked.
const PANICKED: u8 = 101;

/// Why there is no such child.
#[derive(Debug, thiserror::Error)]
pub enum SharedFilesError {
    /// A copy of this process would have the locks that its other threads hold now, without a thread to release them.
    #[error(
        "cannot start a child that shares descriptors: this process has {0} threads; start it before the first of them"
    )]
    Threads(usize),
    /// The system refused.
    #[error("cannot start a child that shares descriptors: {0}")]
    Io(#[from] io::Error),
}

/// A child that shares the table of descriptors.
#[derive(Debug)]
pub struct SharedFilesChild {
    pid: u32,
    process: PidFd,
}

impl SharedFilesChild {
    /// Starts a child that runs `work` and ends with its result as its code. The child has a copy of this process's memory as it is
    /// now; what `work` refers to is that copy.
    ///
    /// `work` is `Copy`, so it owns no descriptor: the child closes none of its parent's when it ends. It can lend them
    /// (`BorrowedFd`). What it opens itself stays open for both if it forgets it ([`std::os::fd::IntoRawFd`]), and is closed for both if it
    /// drops it.
    ///
    /// # Errors
    /// If this process has more than one thread, or may have no more children.
    pub fn start(work: impl FnOnce() -> u8 + Copy) -> Result<Self, SharedFilesError> {
        let threads = std::fs::read_dir("/proc/self/task")?.count();
        if threads != 1 {
            return Err(SharedFilesError::Threads(threads));
        }
        let mut pidfd: libc::c_int = -1;
        let flags = libc::CLONE_FILES | libc::CLONE_PIDFD | libc::SIGCHLD;
        // SAFETY: without a stack and without CLONE_VM this is `fork` with a shared table: the child goes on from here in a copy
        // of the memory. There is no other thread, so every lock in the copy has a thread that releases it. The descriptor is
        // written to a variable that outlives the call.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut pidfd, 0, 0) };
        if pid == 0 {
            // Nothing of the parent's is dropped here, whatever happens: its descriptors are the child's, too.
            let code = catch_unwind(AssertUnwindSafe(work)).unwrap_or(PANICKED);
            // SAFETY: ends the child alone, without the handlers and destructors that are the parent's.
            unsafe { libc::_exit(code.into()) };
        }
        let pid = u32::try_from(pid).map_err(|_| io::Error::last_os_error())?;
        // SAFETY: the kernel has just made this descriptor, and no other code knows of it: the child had ended its copy of this
        // function before.
        let process = PidFd::from(unsafe { OwnedFd::from_raw_fd(pidfd) });
        Ok(SharedFilesChild { pid, process })
    }

    /// Its number. Its end is taken in with [`crate::child::take_end`].
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The process, to wait for its end and to send it signals.
    pub fn process(&self) -> &PidFd {
        &self.process
    }
}
