//! Errors of calls about pages.

use std::io;

use super::abi::Range;
use crate::mapping::Pages;

/// A call that was refused. Answers that a server of faults has to expect are no errors but [`Outcome`](super::Outcome)s.
#[derive(Debug, thiserror::Error)]
pub enum UserfaultError {
    /// The kernel refused.
    #[error(
        "cannot {attempted} {bytes} bytes at {start:#x} through userfaultfd: {source}{}",
        advice(source, needs)
    )]
    Refused {
        /// The operation that was attempted.
        attempted: &'static str,
        /// The first address.
        start: u64,
        /// The length.
        bytes: u64,
        /// The requirement of the call.
        needs: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The pages belong to this process and the descriptor to another one, or the other way round.
    #[error(
        "cannot {attempted} {bytes} bytes at {start:#x}: they are not of the process whose userfaultfd this is"
    )]
    OtherProcess {
        /// The operation that was attempted.
        attempted: &'static str,
        /// The first address.
        start: u64,
        /// The length.
        bytes: u64,
    },
    /// The source is not as long as what is to be filled.
    #[error("cannot {attempted} {bytes} bytes from {given}: the lengths differ")]
    Length {
        /// The operation that was attempted.
        attempted: &'static str,
        /// Bytes to be filled.
        bytes: u64,
        /// Bytes that were given.
        given: u64,
    },
}

/// How to mend it, by what the kernel said.
fn advice(source: &io::Error, needs: &str) -> String {
    match source.raw_os_error() {
        Some(libc::EINVAL | libc::ENOTTY | libc::EOPNOTSUPP) => format!("; it needs {needs}"),
        Some(libc::EBUSY) => "; another userfaultfd has this range, which is left to it".to_owned(),
        Some(libc::EPERM) => {
            "; the mapping may not be written, or the file is sealed: map it to read and write".to_owned()
        }
        Some(libc::ENOMEM | libc::ENOSPC) => {
            "; memory is used up, or its group's limit is reached".to_owned()
        }
        _ => String::new(),
    }
}

impl UserfaultError {
    pub(super) fn refused(
        attempted: &'static str,
        pages: Pages<'_>,
        needs: &'static str,
        source: io::Error,
    ) -> Self {
        UserfaultError::Refused { attempted, start: pages.start(), bytes: pages.bytes(), needs, source }
    }

    pub(super) fn other_process(attempted: &'static str, pages: Pages<'_>) -> Self {
        UserfaultError::OtherProcess { attempted, start: pages.start(), bytes: pages.bytes() }
    }

    /// The system's error, if it was one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            UserfaultError::Refused { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

impl From<Pages<'_>> for Range {
    fn from(pages: Pages<'_>) -> Self {
        Range { start: pages.start(), bytes: pages.bytes() }
    }
}
