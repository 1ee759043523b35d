//! Registers ranges for the faults that are to be reported.

use std::io;
use std::ops::BitOr;
use std::os::fd::AsFd;

use super::abi::{self, Range, Register};
use super::error::UserfaultError;
use super::open::Userfault;
use crate::mapping::Pages;

/// The kinds of faults of a range that are reported; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes(u64);

impl Modes {
    /// Touches of pages that are not there.
    pub const MISSING: Modes = Modes(abi::REGISTER_MISSING);
    /// Writes to pages that [`Userfault::write_protect`] has protected.
    pub const WRITE_PROTECT: Modes = Modes(abi::REGISTER_WRITE_PROTECT);
    /// Touches of pages that the file has and this mapping has not mapped yet.
    pub const MINOR: Modes = Modes(abi::REGISTER_MINOR);

    /// Whether all of `others` are among these.
    pub const fn contains(self, others: Modes) -> bool {
        self.0 & others.0 == others.0
    }
}

impl BitOr for Modes {
    type Output = Modes;

    fn bitor(self, other: Modes) -> Modes {
        Modes(self.0 | other.0)
    }
}

const NEEDS: &str = "one mapping or several without holes between, of no file, of shared memory or of huge pages; and a kernel \
                     that has these faults for them (minor and write-protect faults of shared memory: Linux 5.14 and 5.19)";

impl Userfault {
    /// Has faults of a range told from now on. Registering again replaces the kinds.
    ///
    /// # Errors
    /// `EINVAL` for holes, for memory of a kind that has no such faults, or for features that were not asked for when this was
    /// opened; `EBUSY` for a range that another `userfaultfd` has.
    pub fn register(&self, pages: Pages<'_>, modes: Modes) -> Result<(), UserfaultError> {
        self.check("register", pages)?;
        self.register_range(pages.start(), pages.bytes(), modes)
            .map_err(|error| UserfaultError::refused("register", pages, NEEDS, error))
    }

    /// Registers memory of this process that belongs to other code than this crate: what the agent does for the program that it
    /// is in.
    ///
    /// Write protection that the kernel lifts by itself changes no contents and makes no access wait, so such a range is no risk;
    /// a caller that registers it for more must serve the threads that will wait.
    pub(crate) fn register_range(&self, start: u64, bytes: u64, modes: Modes) -> io::Result<()> {
        let range = Range { start, bytes };
        let mut argument = Register { range, mode: modes.0, ioctls: 0 };
        // SAFETY: registering changes no contents.
        unsafe { abi::call(self.as_fd(), abi::REQUEST_REGISTER, &mut argument) }
    }

    /// Leaves a range to the kernel again, and wakes threads that wait there. Pages that are missing then read as zero.
    ///
    /// # Errors
    /// `EINVAL` for memory of a kind that cannot be registered at all.
    pub fn unregister(&self, pages: Pages<'_>) -> Result<(), UserfaultError> {
        self.check("unregister", pages)?;
        let mut range = Range::from(pages);
        // SAFETY: no references to the contents of missing pages exist: the pages are of a shared mapping or of another process.
        unsafe { abi::call(self.as_fd(), abi::REQUEST_UNREGISTER, &mut range) }
            .map_err(|error| UserfaultError::refused("unregister", pages, NEEDS, error))
    }

    /// Whether the pages are of the memory that this is about.
    pub(super) fn check(&self, attempted: &'static str, pages: Pages<'_>) -> Result<(), UserfaultError> {
        if pages.space() == self.space() {
            Ok(())
        } else {
            Err(UserfaultError::other_process(attempted, pages))
        }
    }
}
