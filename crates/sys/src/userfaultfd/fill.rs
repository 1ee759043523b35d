//! Filling pages with content, moving them, and protecting them.

use std::os::fd::AsFd;

use super::abi::{self, Fill, FromTo, Range, WriteProtect};
use super::error::UserfaultError;
use super::open::Userfault;
use super::progress::Progress;
use crate::mapping::Pages;

/// Whether threads that wait for a page are woken once it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wake {
    /// They go on.
    #[default]
    Yes,
    /// They wait for [`Userfault::wake`], so that several calls need one.
    Later,
}

impl Wake {
    fn bits(self) -> u64 {
        match self {
            Wake::Yes => 0,
            Wake::Later => abi::DONT_WAKE,
        }
    }
}

/// Whether a page may be written once it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// It may.
    #[default]
    None,
    /// A write is told first; the range is registered for that.
    Writes,
}

const WHOLE: &str = "a range within one registered mapping, whole huge pages where it is of those";

impl Userfault {
    /// Fills missing pages with these bytes, as many as the pages have.
    ///
    /// # Errors
    /// If the lengths differ or the kernel gives no answer that is an [`Outcome`](super::Outcome).
    pub fn copy(
        &self,
        to: Pages<'_>,
        from: &[u8],
        protection: Protection,
        wake: Wake,
    ) -> Result<Progress, UserfaultError> {
        const ATTEMPTED: &str = "copy";
        if from.len() as u64 != to.bytes() {
            let given = from.len() as u64;
            return Err(UserfaultError::Length { attempted: ATTEMPTED, bytes: to.bytes(), given });
        }
        self.check(ATTEMPTED, to)?;
        let protect = if protection == Protection::Writes { abi::COPY_WRITE_PROTECT } else { 0 };
        let mut argument = FromTo {
            to: to.start(),
            from: from.as_ptr().expose_provenance() as u64,
            bytes: to.bytes(),
            mode: protect | wake.bits(),
            done: 0,
        };
        // SAFETY: the kernel reads the source, which outlives the call, and writes missing pages of a shared mapping or of another
        // process, to which no reference exists.
        let result = unsafe { abi::call(self.as_fd(), abi::REQUEST_COPY, &mut argument) };
        Progress::of(result, argument.done, to.bytes(), None)
            .map_err(|error| UserfaultError::refused(ATTEMPTED, to, WHOLE, error))
    }

    /// Maps zeros into missing pages, without memory until they are written. Not for huge pages.
    ///
    /// # Errors
    /// Those of [`Userfault::copy`].
    pub fn zero_pages(&self, pages: Pages<'_>, wake: Wake) -> Result<Progress, UserfaultError> {
        let needs = "a range of small pages within one registered mapping";
        self.fill("map zeros into", abi::REQUEST_ZERO_PAGE, pages, wake.bits(), None, needs)
    }

    /// Maps what the file has in these pages, after a minor fault.
    ///
    /// # Errors
    /// Those of [`Userfault::copy`]; `EINVAL` for protection before Linux 6.4.
    pub fn map_file_pages(
        &self,
        pages: Pages<'_>,
        protection: Protection,
        wake: Wake,
    ) -> Result<Progress, UserfaultError> {
        let protect = if protection == Protection::Writes { abi::CONTINUE_WRITE_PROTECT } else { 0 };
        let needs = "a range of one mapping of shared memory that is registered for minor faults (Linux 5.13; protected: 6.4)";
        let no_page = Some(libc::EFAULT);
        self.fill(
            "map the file's pages into",
            abi::REQUEST_CONTINUE,
            pages,
            protect | wake.bits(),
            no_page,
            needs,
        )
    }

    /// Poisons missing pages: a thread that touches one gets SIGBUS, and a system call that does EFAULT.
    ///
    /// # Errors
    /// Those of [`Userfault::copy`]; `EINVAL` before Linux 6.6.
    pub fn poison(&self, pages: Pages<'_>, wake: Wake) -> Result<Progress, UserfaultError> {
        let needs = "a range within one registered mapping, and Linux 6.6";
        self.fill("poison", abi::REQUEST_POISON, pages, wake.bits(), None, needs)
    }

    fn fill(
        &self,
        attempted: &'static str,
        request: u8,
        pages: Pages<'_>,
        mode: u64,
        no_page: Option<i32>,
        needs: &'static str,
    ) -> Result<Progress, UserfaultError> {
        self.check(attempted, pages)?;
        let mut argument = Fill { range: pages.into(), mode, done: 0 };
        // SAFETY: the request takes this structure; it changes what missing pages of a shared mapping or of another process hold,
        // to which no reference exists.
        let result = unsafe { abi::call(self.as_fd(), request, &mut argument) };
        Progress::of(result, argument.done, pages.bytes(), no_page)
            .map_err(|error| UserfaultError::refused(attempted, pages, needs, error))
    }

    /// Moves pages of this process into missing ones, without a copy: where they were they are missing afterwards. The target is
    /// registered with this descriptor; both mappings are of no file and have the same rights. Pages that are not there are passed
    /// over if `holes` says so.
    ///
    /// # Errors
    /// Those of [`Userfault::copy`]; `EINVAL` before Linux 6.8, for unequal rights, and from any other process than the memory's own.
    pub fn shift(
        &self,
        to: Pages<'_>,
        from: Pages<'_>,
        holes: bool,
        wake: Wake,
    ) -> Result<Progress, UserfaultError> {
        const ATTEMPTED: &str = "move";
        if from.bytes() != to.bytes() {
            return Err(UserfaultError::Length {
                attempted: ATTEMPTED,
                bytes: to.bytes(),
                given: from.bytes(),
            });
        }
        self.check(ATTEMPTED, to)?;
        self.check(ATTEMPTED, from)?;
        let holes = if holes { abi::MOVE_ALLOW_HOLES } else { 0 };
        let mode = holes | wake.bits();
        let mut argument = FromTo { to: to.start(), from: from.start(), bytes: to.bytes(), mode, done: 0 };
        // SAFETY: both ranges are of shared mappings (the kernel refuses another process's), to whose bytes no reference exists.
        let result = unsafe { abi::call(self.as_fd(), abi::REQUEST_MOVE, &mut argument) };
        let needs = "private mappings of no file with equal rights, the target registered with this descriptor, a caller \
                     within the process itself, and Linux 6.8";
        Progress::of(result, argument.done, to.bytes(), None)
            .map_err(|error| UserfaultError::refused(ATTEMPTED, to, needs, error))
    }

    /// Protects present pages from writes, or lifts that and wakes threads that wait to write. All or nothing: the kernel tells
    /// no part.
    ///
    /// # Errors
    /// Those of [`Userfault::copy`].
    pub fn write_protect(
        &self,
        pages: Pages<'_>,
        protection: Protection,
        wake: Wake,
    ) -> Result<Progress, UserfaultError> {
        const ATTEMPTED: &str = "write-protect";
        self.check(ATTEMPTED, pages)?;
        let mode = match (protection, wake) {
            (Protection::Writes, _) => abi::WRITE_PROTECT,
            (Protection::None, Wake::Yes) => 0,
            (Protection::None, Wake::Later) => abi::WRITE_PROTECT_DONT_WAKE,
        };
        let mut argument = WriteProtect { range: pages.into(), mode };
        // SAFETY: protection changes no contents.
        let result = unsafe { abi::call(self.as_fd(), abi::REQUEST_WRITE_PROTECT, &mut argument) };
        let needs = "a range that is registered for write-protect faults";
        Progress::of(result, 0, pages.bytes(), None)
            .map_err(|error| UserfaultError::refused(ATTEMPTED, pages, needs, error))
    }

    /// Wakes threads that wait in a range; they touch their page again.
    ///
    /// # Errors
    /// Those of [`Userfault::copy`].
    pub fn wake(&self, pages: Pages<'_>) -> Result<(), UserfaultError> {
        self.check("wake threads in", pages)?;
        let mut range = Range::from(pages);
        // SAFETY: waking changes no contents.
        unsafe { abi::call(self.as_fd(), abi::REQUEST_WAKE, &mut range) }
            .map_err(|error| UserfaultError::refused("wake threads in", pages, WHOLE, error))
    }
}
