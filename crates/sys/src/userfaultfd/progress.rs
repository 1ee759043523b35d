//! Progress of a call about many pages: how much of it was done.
//!
//! The kernel answers with a result and a count. The count is bytes, or an error below zero (with EAGAIN it often is -11, which
//! read as a size would be 2^64 - 11 bytes); and a call that did a part fails with EAGAIN and the part's bytes as its count.

use std::io;

/// How far a call got, and why no farther.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that are done, from the first on.
    pub done_bytes: u64,
    /// The outcome at the page behind them, where it stopped.
    pub outcome: Outcome,
}

/// Why a call went no farther.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is done.
    Done,
    /// Ask again for the rest. With a part done, that tells the reason; with nothing done, an event (fork, remap, remove, unmap)
    /// is under way: its message must be read first, and the thread that caused it go on.
    Again,
    /// The page is there already.
    Exists,
    /// Nothing is registered there (any more); of a move, also: there is no page to move.
    Absent,
    /// The page has another user that keeps it where it is: a child that once shared it, or a device that it is pinned for. Of
    /// moves alone.
    Busy,
    /// The file has no such page. Of mapping a file's pages alone.
    NoPage,
    /// The process has gone.
    Gone,
}

impl Progress {
    /// The kernel's result as progress, if it is an answer.
    ///
    /// # Errors
    /// The kernel's error, if it is none.
    pub(super) fn of(
        result: io::Result<()>,
        count: i64,
        asked_bytes: u64,
        no_page: Option<i32>,
    ) -> io::Result<Self> {
        let error = match result {
            Ok(()) => return Ok(Progress { done_bytes: asked_bytes, outcome: Outcome::Done }),
            Err(error) => error,
        };
        let done_bytes = u64::try_from(count).unwrap_or(0);
        debug_assert!(
            done_bytes < asked_bytes,
            "a call that failed has not done all: {count} of {asked_bytes}"
        );
        let outcome = match error.raw_os_error() {
            number if number.is_some() && number == no_page => Outcome::NoPage,
            Some(libc::EAGAIN) => Outcome::Again,
            Some(libc::EEXIST) => Outcome::Exists,
            Some(libc::ENOENT) => Outcome::Absent,
            Some(libc::EBUSY) => Outcome::Busy,
            Some(libc::ESRCH) => Outcome::Gone,
            _ => return Err(error),
        };
        Ok(Progress { done_bytes, outcome })
    }

    /// Whether all is done.
    pub fn is_done(self) -> bool {
        self.outcome == Outcome::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_below_zero_is_never_a_size() {
        let failed = |errno| Err(io::Error::from_raw_os_error(errno));
        let of = |errno, count| Progress::of(failed(errno), count, 16 << 12, None).unwrap();
        assert_eq!(
            Progress::of(Ok(()), 16 << 12, 16 << 12, None).unwrap(),
            Progress { done_bytes: 16 << 12, outcome: Outcome::Done }
        );
        assert_eq!(of(libc::EAGAIN, -11), Progress { done_bytes: 0, outcome: Outcome::Again });
        assert_eq!(of(libc::EAGAIN, 3 << 12), Progress { done_bytes: 3 << 12, outcome: Outcome::Again });
        assert_eq!(of(libc::EEXIST, -17).outcome, Outcome::Exists);
        assert_eq!(of(libc::ENOENT, 0).outcome, Outcome::Absent);
        assert_eq!(of(libc::EBUSY, i64::MIN), Progress { done_bytes: 0, outcome: Outcome::Busy });
        assert_eq!(of(libc::ESRCH, 0).outcome, Outcome::Gone);
        assert!(Progress::of(failed(libc::EFAULT), -14, 4096, None).is_err());
        let no_page = Progress::of(failed(libc::EFAULT), -14, 4096, Some(libc::EFAULT)).unwrap();
        assert_eq!(no_page.outcome, Outcome::NoPage);
    }
}
