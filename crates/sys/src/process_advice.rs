//! Advice about another process's memory (`process_madvise`): which pages may leave, which are wanted.
//!
//! None of it changes what the memory holds. The caller needs CAP_SYS_NICE and the right to read the process (as `ptrace` has
//! it); for its own memory nothing.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::mapping::Pages;
use crate::pidfd::PidFd;

/// Ranges of one call (`UIO_MAXIOV`).
const RANGES_MAX: usize = 1024;

/// The advice about pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum ProcessAdvice {
    /// They will not be used soon: the kernel takes them first.
    Cold = 20,
    /// They are paged out now: anonymous ones to swap. Without swap they stay, and so do pages that two processes have mapped. Of pages
    /// just touched for the first time the last 31 of another processor stay too, in its batch of new pages: ask again later.
    PageOut = 21,
    /// They will be used: what is in swap or in a file is read.
    WillNeed = 3,
    /// They are to become huge pages, now (Linux 6.1).
    Collapse = 25,
}

impl ProcessAdvice {
    /// The first kernel that takes it about another process.
    pub const fn kernel(self) -> &'static str {
        match self {
            ProcessAdvice::Cold | ProcessAdvice::PageOut => "5.10",
            ProcessAdvice::WillNeed => "5.15",
            ProcessAdvice::Collapse => "6.1",
        }
    }

    const fn verb(self) -> &'static str {
        match self {
            ProcessAdvice::Cold => "mark as cold",
            ProcessAdvice::PageOut => "page out",
            ProcessAdvice::WillNeed => "fetch",
            ProcessAdvice::Collapse => "make huge pages of",
        }
    }
}

/// Why the kernel did not take the advice about one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A part of it is not mapped (any more). What is mapped behind the part may have been advised or not.
    Unmapped,
    /// It is locked, of explicit huge pages, or a device's.
    Unfit,
    /// The kernel is short of something at the moment.
    Later,
}

/// The outcome of advice about many ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advised {
    /// Bytes of ranges that were advised.
    pub bytes: u64,
    /// Ranges that were refused.
    pub refused: usize,
}

/// Why no advice can be given to a process.
#[derive(Debug, thiserror::Error)]
pub enum AdviceError {
    /// The kernel does not take it.
    #[error(
        "cannot {} memory of another process: this kernel does not take the advice; Linux {} is needed",
        advice.verb(),
        advice.kernel()
    )]
    Unsupported {
        /// The advice.
        advice: ProcessAdvice,
    },
    /// This process may not.
    #[error(
        "cannot {} memory of another process: {source}; it needs CAP_SYS_NICE and the right to read that process (the same \
         user, or CAP_SYS_PTRACE)",
        advice.verb()
    )]
    Forbidden {
        /// The advice.
        advice: ProcessAdvice,
        /// The system's error.
        source: io::Error,
    },
    /// It has gone.
    #[error("cannot {} memory of another process: it has gone", advice.verb())]
    Gone {
        /// The advice.
        advice: ProcessAdvice,
    },
    /// The system says something else.
    #[error("cannot {} memory of another process: {source}", advice.verb())]
    Io {
        /// The advice.
        advice: ProcessAdvice,
        /// The system's error.
        source: io::Error,
    },
}

impl AdviceError {
    fn of(advice: ProcessAdvice, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOSYS | libc::EINVAL) => AdviceError::Unsupported { advice },
            Some(libc::EPERM | libc::EACCES) => AdviceError::Forbidden { advice, source },
            Some(libc::ESRCH) => AdviceError::Gone { advice },
            _ => AdviceError::Io { advice, source },
        }
    }
}

impl PidFd {
    /// Whether this advice could be given to the process: asks for it about no range at all.
    ///
    /// # Errors
    /// Why not.
    pub fn may_advise(&self, advice: ProcessAdvice) -> Result<(), AdviceError> {
        self.advise_batch(&[], advice).map(drop).map_err(|error| AdviceError::of(advice, error))
    }

    /// Gives advice about many ranges, 1024 in a call. One that is refused is passed over and told, by its number in `ranges`.
    ///
    /// # Errors
    /// If the process takes none, or has gone; ranges before may have been advised.
    pub fn advise(
        &self,
        ranges: &[Pages<'_>],
        advice: ProcessAdvice,
        mut refused: impl FnMut(usize, Refusal),
    ) -> Result<Advised, AdviceError> {
        let mut advised = Advised::default();
        let mut next = 0;
        while let Some(left) = ranges.get(next..).filter(|left| !left.is_empty()) {
            let batch = left.get(..RANGES_MAX).unwrap_or(left);
            match self.advise_batch(batch, advice) {
                Ok(bytes) => {
                    // The kernel stops at the first range that it refuses, and says how many bytes of whole ranges are done.
                    let (whole, done) = whole_ranges(batch, bytes);
                    debug_assert!(whole > 0, "a call that succeeds does something: {bytes} bytes");
                    advised.bytes += done;
                    next += whole.max(1);
                }
                Err(error) => {
                    let why = match error.raw_os_error() {
                        Some(libc::ENOMEM | libc::EFAULT) => Refusal::Unmapped,
                        Some(libc::EAGAIN | libc::EBUSY | libc::EINTR) => Refusal::Later,
                        // The same number as for advice that is not known.
                        Some(libc::EINVAL) => self.may_advise(advice).map(|()| Refusal::Unfit)?,
                        _ => return Err(AdviceError::of(advice, error)),
                    };
                    refused(next, why);
                    advised.refused += 1;
                    next += 1;
                }
            }
        }
        Ok(advised)
    }

    /// A single call. Returns the bytes that are done.
    fn advise_batch(&self, ranges: &[Pages<'_>], advice: ProcessAdvice) -> io::Result<u64> {
        let vectors: Vec<libc::iovec> = ranges
            .iter()
            .map(|range| libc::iovec {
                iov_base: std::ptr::without_provenance_mut(range.start() as usize),
                iov_len: range.bytes() as usize,
            })
            .collect();
        let descriptor = self.as_fd().as_raw_fd();
        // SAFETY: the vectors are as many as the call is told and outlive it; none of the kinds of advice changes what the memory
        // that they name holds, whosever it is.
        let done = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                descriptor,
                vectors.as_ptr(),
                vectors.len(),
                advice as libc::c_int,
                0,
            )
        };
        u64::try_from(done).map_err(|_| io::Error::last_os_error())
    }
}

/// How many ranges from the first on these bytes are, and how many bytes those are.
fn whole_ranges(ranges: &[Pages<'_>], bytes: u64) -> (usize, u64) {
    let mut done = 0;
    for (number, range) in ranges.iter().enumerate() {
        match bytes.checked_sub(done) {
            Some(left) if left >= range.bytes() => done += range.bytes(),
            _ => return (number, done),
        }
    }
    (ranges.len(), done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::{pin_thread, thread_cores};
    use crate::forked::{Signal, end_with_starter, fork_and, status_of};
    use crate::mapping::SharedMapping;
    use crate::pagemap::{PageEntry, PageMap};
    use crate::swap::{SwapOptions, TestSwap};
    use std::os::fd::AsFd;

    const PAGE: usize = 4096;

    fn own() -> PidFd {
        PidFd::open(std::process::id()).unwrap()
    }

    #[test]
    fn a_child_is_paged_out_and_finds_its_bytes() {
        const PAGES: usize = 64;
        let Some(_swap) = TestSwap::on("pageout", 16 << 20, SwapOptions::default()) else { return };
        let mapping = SharedMapping::anonymous(PAGES * PAGE).unwrap();
        let (to_test, to_child) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let (ready, is_ready) = (Signal::of(to_test.0.as_fd()), Signal::of(to_test.1.as_fd()));
        let (check, may_check) = (Signal::of(to_child.0.as_fd()), Signal::of(to_child.1.as_fd()));
        let pid = fork_and(|| {
            // Written by the child, so that it alone has them.
            (0..PAGES).for_each(|page| mapping.store_u64(page * PAGE, page as u64 + 1));
            end_with_starter()
                && is_ready.send()
                && check.wait()
                && (0..PAGES).all(|page| mapping.load_u64(page * PAGE) == page as u64 + 1)
        });
        assert!(ready.wait());
        let child = PidFd::open(pid as u32).unwrap();
        let all = Pages::of_other_process(mapping.address(), (PAGES * PAGE) as u64).unwrap();
        let map = PageMap::open(pid as u32).unwrap();
        let absent = || {
            let first = all.start() / 4096;
            (first..first + PAGES as u64).filter(|page| map.page(*page) == PageEntry::Absent).count()
        };
        assert_eq!(absent(), 0);
        for advice in [ProcessAdvice::Cold, ProcessAdvice::PageOut] {
            match child.advise(&[all], advice, |_, why| panic!("{why:?}")) {
                Ok(advised) => assert_eq!(advised, Advised { bytes: all.bytes(), refused: 0 }),
                Err(error) => {
                    eprintln!("not run: {error}");
                    may_check.send();
                    status_of(pid);
                    return;
                }
            }
        }
        // A page that is being written at the moment is passed over, and so are the last few pages that another processor gave out: the
        // kernel keeps them in a batch, which the call empties for its own processor alone.
        let cores = thread_cores().unwrap();
        for core in cores.iter().cycle().take(100) {
            if absent() == PAGES {
                break;
            }
            pin_thread(*core as usize).unwrap();
            child.advise(&[all], ProcessAdvice::PageOut, |_, _| {}).unwrap();
        }
        assert_eq!(absent(), PAGES);
        let advised = child.advise(&[all], ProcessAdvice::WillNeed, |_, why| panic!("{why:?}")).unwrap();
        assert_eq!(advised.bytes, all.bytes());
        assert!(may_check.send());
        assert_eq!(status_of(pid), 0, "its bytes are what they were");
        assert!(matches!(
            child.advise(&[all], ProcessAdvice::Cold, |_, _| {}),
            Err(AdviceError::Gone { .. })
        ));
    }

    #[test]
    fn in_many_batches_what_is_refused_is_passed_over_and_told() {
        if let Err(error) = own().may_advise(ProcessAdvice::Cold) {
            return eprintln!("not run: {error}");
        }
        let mapping = SharedMapping::anonymous(5000 * PAGE).unwrap();
        let mut ranges: Vec<_> =
            (0..2500).map(|number| mapping.pages(2 * number * PAGE, PAGE).unwrap()).collect();
        // Over the end of the first batch and within the second one.
        for unmapped in [0, 1023, 1024, 1500] {
            ranges[unmapped] = Pages::of_other_process(0x1000, 4096).unwrap();
        }
        let locked = ranges[2000];
        // SAFETY: locking changes no contents, and ends with the mapping.
        let is_locked =
            unsafe { libc::mlock(std::ptr::without_provenance(locked.start() as usize), PAGE) } == 0;
        let mut refused = Vec::new();
        let advised = own().advise(&ranges, ProcessAdvice::Cold, |at, why| refused.push((at, why))).unwrap();
        let mut expected: Vec<_> = [0, 1023, 1024, 1500].map(|at| (at, Refusal::Unmapped)).into();
        if is_locked {
            expected.push((2000, Refusal::Unfit));
        }
        assert_eq!(refused, expected);
        let count = ranges.len() - expected.len();
        assert_eq!(advised, Advised { bytes: (count * PAGE) as u64, refused: expected.len() });
        assert_eq!(own().advise(&[], ProcessAdvice::Cold, |_, _| {}).unwrap(), Advised::default());
    }

    #[test]
    fn errors_say_what_is_needed() {
        let of =
            |errno| AdviceError::of(ProcessAdvice::PageOut, io::Error::from_raw_os_error(errno)).to_string();
        assert!(of(libc::EPERM).contains("cannot page out") && of(libc::EPERM).contains("CAP_SYS_NICE"));
        assert!(of(libc::ENOSYS).contains("Linux 5.10"));
        assert!(of(libc::ESRCH).contains("gone") && of(libc::EIO).contains("cannot page out"));
    }

    #[test]
    fn bytes_are_told_as_whole_ranges() {
        let range = |pages: u64| Pages::of_other_process(0, pages * 4096).unwrap();
        let ranges = [range(1), range(2), range(3)];
        assert_eq!(whole_ranges(&ranges, 0), (0, 0));
        assert_eq!(whole_ranges(&ranges, 4096), (1, 4096));
        assert_eq!(whole_ranges(&ranges, 4 * 4096), (2, 3 * 4096));
        assert_eq!(whole_ranges(&ranges, 6 * 4096), (3, 6 * 4096));
    }
}
