//! Scan of pages: which pages of a process are in memory, and which were written since the last call (over ranges that
//! [`crate::agent`] has had watched), by the `PAGEMAP_SCAN` of `/proc/PID/pagemap`. From kernel 6.7 on.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

const PAGEMAP_SCAN: libc::c_ulong = 0xC060_6610;
/// Protect again what is reported, and skip what is not watched.
const WRITE_PROTECT_MATCHING: u64 = 1 << 0;
const IS_WRITE_PROTECTABLE: u64 = 1 << 0;
const IS_WRITTEN: u64 = 1 << 1;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
/// The page of zeros that stands for what was read and never written: no memory of the process's own.
const IS_ZEROS: u64 = 1 << 5;
/// Ranges that one call can report.
const RANGES_MAX: usize = 1024;

#[repr(C)]
struct Arguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    ranges: u64,
    ranges_max: u64,
    pages_max: u64,
    inverted: u64,
    mask: u64,
    any_of: u64,
    returned: u64,
}

/// Pages that lie one behind the other.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageRange {
    /// The first one's address.
    pub start: u64,
    /// Behind the last one.
    pub end: u64,
    categories: u64,
}

/// Where the content of a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupied {
    /// In memory, and mapped.
    Memory,
    /// In swap.
    Swap,
}

/// What is asked for: categories of pages.
#[derive(Clone, Copy, Debug, Default)]
struct Question {
    flags: u64,
    /// Those of which the opposite is meant.
    inverted: u64,
    /// Those that a page must have.
    mask: u64,
    /// Those of which it must have one, if there are any.
    any_of: u64,
    /// Those that are returned: pages that differ in them are not one range.
    returned: u64,
}

/// The page map of a process.
#[derive(Debug)]
pub struct PageScan {
    file: File,
    found: Vec<PageRange>,
}

impl PageScan {
    /// Opens the page map of the address space that the process has now.
    pub fn open(pid: u32) -> io::Result<Self> {
        let file = File::open(format!("/proc/{pid}/pagemap"))?;
        Ok(PageScan { file, found: vec![PageRange::default(); RANGES_MAX] })
    }

    /// Tells which pages of a range were written since the last call, and watches them anew; the first call tells of all that there
    /// are, for they have not been watched before. The range must not reach into mappings that are not watched.
    ///
    /// The kernel says of a page that was given back (`MADV_DONTNEED`) that it was written. It has no content, or that of the page of
    /// zeros if it was read since, so that is no write. It is watched all the same.
    ///
    /// # Errors
    /// `ENOTTY` before kernel 6.7, `EPERM` if a part of the range is not watched, `ESRCH` if the process has gone.
    pub fn written(&mut self, start: u64, end: u64, mut each: impl FnMut(PageRange)) -> io::Result<()> {
        let question = Question {
            flags: WRITE_PROTECT_MATCHING,
            inverted: 0,
            mask: IS_WRITE_PROTECTABLE | IS_WRITTEN,
            any_of: 0,
            returned: IS_PRESENT | IS_SWAPPED | IS_ZEROS,
        };
        self.scan(question, start, end, |range| {
            let has_content = range.categories & (IS_PRESENT | IS_SWAPPED) != 0;
            if has_content && range.categories & IS_ZEROS == 0 {
                each(range);
            }
        })
    }

    /// Tells which pages of a range are in memory, but for those that stand for zeros: what `Rss` in `/proc/PID/smaps` counts. 12 ns
    /// for each page; what holds nothing, and huge pages, take next to no time. The range may reach over mappings and gaps.
    ///
    /// # Errors
    /// `ENOTTY` before kernel 6.7, `ESRCH` if the process has gone.
    pub fn present(&mut self, start: u64, end: u64, each: impl FnMut(PageRange)) -> io::Result<()> {
        let (mask, returned) = (IS_PRESENT | IS_ZEROS, IS_PRESENT);
        self.scan(Question { inverted: IS_ZEROS, mask, returned, ..Question::default() }, start, end, each)
    }

    /// Tells which pages of a range hold something, but for those that stand for zeros: whether they are in memory, or else in swap. A page
    /// that was brought from swap ahead of its use counts as in swap. The range may reach over mappings and gaps.
    ///
    /// # Errors
    /// As [`Self::present`].
    pub fn occupied(
        &mut self,
        start: u64,
        end: u64,
        mut each: impl FnMut(PageRange, Occupied),
    ) -> io::Result<()> {
        let returned = IS_PRESENT | IS_SWAPPED;
        let question = Question {
            inverted: IS_ZEROS,
            mask: IS_ZEROS,
            any_of: returned,
            returned,
            ..Question::default()
        };
        self.scan(question, start, end, |range| {
            let is_present = range.categories & IS_PRESENT != 0;
            each(range, if is_present { Occupied::Memory } else { Occupied::Swap });
        })
    }

    fn scan(
        &mut self,
        question: Question,
        start: u64,
        end: u64,
        mut each: impl FnMut(PageRange),
    ) -> io::Result<()> {
        let Question { flags, inverted, mask, any_of, returned } = question;
        let mut from = start;
        while from < end {
            let mut arguments = Arguments {
                size: size_of::<Arguments>() as u64,
                flags,
                start: from,
                end,
                walk_end: 0,
                ranges: self.found.as_mut_ptr().expose_provenance() as u64,
                ranges_max: RANGES_MAX as u64,
                pages_max: 0,
                inverted,
                mask,
                any_of,
                returned,
            };
            // SAFETY: the arguments are as long as they say; the kernel writes at most `ranges_max` ranges to the vector,
            // which has as many and is not looked at meanwhile.
            let count = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut arguments) };
            let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
            self.found.iter().take(count).for_each(|range| each(*range));
            // Where there is no more room, the kernel may say that it ended before the last range that it tells of (6.18 does).
            let last = self.found.last().filter(|_| count == self.found.len());
            let walked = last.map_or(arguments.walk_end, |last| last.end);
            if walked <= from {
                break;
            }
            from = walked;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Mapping, Pages};
    use crate::pidfd::PidFd;
    use crate::process_advice::ProcessAdvice;
    use crate::swap::{SwapOptions, TestSwap};
    use crate::userfaultfd::{Features, Modes, Options, Userfault};

    #[test]
    fn pages_are_reported_once_for_each_time_that_they_are_written() {
        let mut mapping = Mapping::anonymous(1 << 20).unwrap();
        mapping.bytes_mut().fill(1);
        let (start, end) =
            (mapping.bytes().as_ptr().addr() as u64, mapping.bytes().as_ptr_range().end.addr() as u64);
        let options = Options { features: Features::WATCH_WRITES, user_mode_is_enough: true };
        let watch = match Userfault::open(options) {
            Ok(watch) => watch,
            Err(error) => {
                eprintln!("skipped: writes cannot be watched here: {error}");
                return;
            }
        };
        watch.register_range(start, end - start, Modes::WRITE_PROTECT).unwrap();
        let mut scan = PageScan::open(std::process::id()).unwrap();
        let pages = |scan: &mut PageScan| {
            let mut pages = Vec::new();
            let each = |written: PageRange| {
                pages.extend((written.start - start) / 4096..(written.end - start) / 4096)
            };
            scan.written(start, end, each).unwrap();
            pages
        };
        pages(&mut scan);
        assert_eq!(pages(&mut scan), [0_u64; 0]);
        for page in [3, 4, 200] {
            mapping.bytes_mut()[page * 4096 + 5] = 2;
        }
        assert_eq!(pages(&mut scan), [3, 4, 200]);
        assert_eq!(pages(&mut scan), [0_u64; 0]);
        // What was given back was not written, nor what was read since, until it is written again.
        mapping.bytes_mut()[7 * 4096] = 2;
        mapping.discard(0, 1 << 20);
        assert_eq!(pages(&mut scan), [0_u64; 0]);
        assert_eq!(mapping.bytes()[9 * 4096] + mapping.bytes()[10 * 4096], 0);
        assert_eq!(pages(&mut scan), [0_u64; 0]);
        mapping.bytes_mut()[10 * 4096] = 2;
        mapping.bytes_mut()[11 * 4096] = 2;
        assert_eq!(pages(&mut scan), [10, 11]);
        // More ranges than one call can report.
        let mut large = Mapping::anonymous(16 << 20).unwrap();
        let first = large.bytes().as_ptr().addr() as u64;
        watch.register_range(first, 16 << 20, Modes::WRITE_PROTECT).unwrap();
        scan.written(first, first + (16 << 20), |_| {}).unwrap();
        (0..4096).step_by(2).for_each(|page| large.bytes_mut()[page * 4096] = 1);
        let mut count = 0;
        scan.written(first, first + (16 << 20), |written| count += (written.end - written.start) / 4096)
            .unwrap();
        assert_eq!(count, 2048);
    }

    #[test]
    fn pages_that_hold_something_are_in_memory_or_in_swap() {
        let Some(_swap) = TestSwap::on("occupied", 16 << 20, SwapOptions::default()) else { return };
        let mut mapping = Mapping::anonymous(256 * 4096).unwrap();
        let start = mapping.bytes().as_ptr().addr() as u64;
        (16..128).for_each(|page| mapping.bytes_mut()[page * 4096] = 1);
        // Reading makes no memory.
        assert_eq!(mapping.bytes()[200 * 4096], 0);
        let own = PidFd::open(std::process::id()).unwrap();
        let half = Pages::of_this_process(start + 64 * 4096, 64 * 4096).unwrap();
        let paged_out = own.advise(&[half], ProcessAdvice::PageOut, |_, _| {});
        let mut scan = PageScan::open(std::process::id()).unwrap();
        let mut pages = [0_u64; 2];
        let scanned = scan.occupied(start, start + 256 * 4096, |range, occupied| {
            assert!(range.start >= start + 16 * 4096 && range.end <= start + 128 * 4096, "{range:?}");
            pages[usize::from(occupied == Occupied::Swap)] += (range.end - range.start) / 4096;
        });
        if let Some(error) =
            scanned.map_err(|error| error.to_string()).and(paged_out.map_err(|it| it.to_string())).err()
        {
            return eprintln!("skipped: {error}");
        }
        assert_eq!(pages[0] + pages[1], 112);
        // A few pages that another processor gave out may stay.
        assert!((16..=64).contains(&pages[1]), "{pages:?}");
    }

    #[test]
    fn pages_in_memory_are_those_that_were_written() {
        let mut mapping = Mapping::anonymous(64 << 20).unwrap();
        let start = mapping.bytes().as_ptr().addr() as u64;
        let end = start + (64 << 20);
        // SAFETY: the range is the mapping's own, and the call changes no content.
        let done = unsafe {
            libc::madvise(mapping.bytes_mut().as_mut_ptr().cast(), 64 << 20, libc::MADV_NOHUGEPAGE)
        };
        assert_eq!(done, 0);
        let mut scan = PageScan::open(std::process::id()).unwrap();
        let mut bytes = || {
            let mut sum = 0;
            match scan.present(start, end, |range| sum += range.end - range.start) {
                Ok(()) => Some(sum),
                Err(error) => {
                    eprintln!("skipped: pages cannot be scanned here: {error}");
                    None
                }
            }
        };
        let Some(before) = bytes() else { return };
        assert_eq!(before, 0);
        // Every other page, so that there are more ranges than one call tells of.
        (0..4096).step_by(2).for_each(|page| mapping.bytes_mut()[page * 4096] = 1);
        // What is read is zeros, in no memory of its own.
        assert_eq!(mapping.bytes()[(8192 * 4096) + 1], 0);
        assert_eq!(bytes(), Some(2048 * 4096));
        mapping.discard(0, 32 << 20);
        assert_eq!(bytes(), Some(0));
    }
}
