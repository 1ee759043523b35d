//! Scan of written pages: the pages of a process that were written since the last call, by the `PAGEMAP_SCAN` of
//! `/proc/PID/pagemap`, over ranges that [`crate::agent`] has had watched. From kernel 6.7 on.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

const PAGEMAP_SCAN: libc::c_ulong = 0xC060_6610;
/// Protect again what is reported, and skip what is not watched.
const WRITE_PROTECT_MATCHING: u64 = 1 << 0;
const IS_WRITE_PROTECTABLE: u64 = 1 << 0;
const IS_WRITTEN: u64 = 1 << 1;
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

/// Pages that lie one behind the other and were written.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The first one's address.
    pub start: u64,
    /// Behind the last one.
    pub end: u64,
    categories: u64,
}

/// The page map of a process whose writes are watched.
#[derive(Debug)]
pub struct PageScan {
    file: File,
    found: Vec<Written>,
}

impl PageScan {
    /// Opens the page map of the address space that the process has now.
    pub fn open(pid: u32) -> io::Result<Self> {
        let file = File::open(format!("/proc/{pid}/pagemap"))?;
        Ok(PageScan { file, found: vec![Written::default(); RANGES_MAX] })
    }

    /// Tells which pages of a range were written since the last call, and watches them anew; the first call tells of all,
    /// for they have not been watched before. The range must not reach into mappings that are not watched.
    ///
    /// # Errors
    /// `ENOTTY` before kernel 6.7, `EPERM` if a part of the range is not watched, `ESRCH` if the process has gone.
    pub fn written(&mut self, start: u64, end: u64, mut each: impl FnMut(Written)) -> io::Result<()> {
        let mut from = start;
        while from < end {
            let mut arguments = Arguments {
                size: size_of::<Arguments>() as u64,
                flags: WRITE_PROTECT_MATCHING,
                start: from,
                end,
                walk_end: 0,
                ranges: self.found.as_mut_ptr().expose_provenance() as u64,
                ranges_max: RANGES_MAX as u64,
                pages_max: 0,
                inverted: 0,
                mask: IS_WRITE_PROTECTABLE | IS_WRITTEN,
                any_of: 0,
                returned: IS_WRITTEN,
            };
            // SAFETY: the arguments are as long as they say; the kernel writes at most `ranges_max` ranges to the vector,
            // which has as many and is not looked at meanwhile.
            let count = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut arguments) };
            let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
            self.found.iter().take(count).for_each(|written| each(*written));
            if arguments.walk_end <= from {
                break;
            }
            from = arguments.walk_end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;
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
            let each =
                |written: Written| pages.extend((written.start - start) / 4096..(written.end - start) / 4096);
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
}
