//! Forked children for tests, which share nothing with the test but copies of its memory.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Starts a child that runs `work` and ends with 0 if that is true. The work must make no call that takes a lock or memory:
/// another thread of the test may have held the lock when it was copied.
pub fn fork_and(work: impl FnOnce() -> bool) -> libc::c_int {
    // SAFETY: the child runs the work alone, which takes no locks, and ends at once.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = i32::from(!work());
        // SAFETY: ends the child without the parent's handlers.
        unsafe { libc::_exit(code) };
    }
    assert!(pid > 0);
    pid
}

/// In a child: has it end when the thread that started it does, so that a failed test leaves no child behind.
pub fn end_with_starter() -> bool {
    // SAFETY: the call changes an attribute of the calling process and takes numbers alone.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0 }
}

/// How a child ended, as `waitpid` has it.
pub fn status_of(pid: libc::c_int) -> libc::c_int {
    let mut status = 0;
    // SAFETY: the status outlives the call.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

/// Both ends of a wait, without memory or locks: for children.
#[derive(Clone, Copy)]
pub struct Signal(RawFd);

impl Signal {
    pub fn of(descriptor: BorrowedFd<'_>) -> Self {
        Signal(descriptor.as_raw_fd())
    }

    /// Says that it is time.
    pub fn send(self) -> bool {
        // SAFETY: one byte that is there is written.
        unsafe { libc::write(self.0, b"x".as_ptr().cast(), 1) == 1 }
    }

    /// Waits until the other end says so.
    pub fn wait(self) -> bool {
        let mut byte = 0_u8;
        // SAFETY: one byte is read to where there is one.
        unsafe { libc::read(self.0, (&raw mut byte).cast(), 1) == 1 }
    }
}
