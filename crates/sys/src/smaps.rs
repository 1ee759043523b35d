//! Memory map statistics of a process: for each mapping how much is in memory, and how much was referenced since that was last
//! cleared (`/proc/PID/smaps`, `/proc/PID/clear_refs`).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::time::Instant;

/// Bytes that are read at once. The kernel fills at most a page of text for a call, or one mapping's.
const CHUNK_BYTES: usize = 64 << 10;

/// Usage of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Its first address.
    pub start: u64,
    /// Behind its last one.
    pub end: u64,
    /// Whether it is memory of no file that this process alone has, until it forks, and not the kernel's own.
    pub is_private_memory: bool,
    /// Bytes of it that are in memory.
    pub resident_bytes: u64,
    /// Bytes of pages that were referenced since the last [`Smaps::clear`].
    pub referenced_bytes: u64,
    /// Bytes that lie in huge pages.
    pub huge_bytes: u64,
    /// Whether the kernel may put huge pages there.
    pub may_be_huge: bool,
    /// Bytes of pages that other processes have mapped too.
    pub shared_bytes: u64,
    /// When the kernel had told it.
    pub told: Instant,
}

/// The pages whose references are cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clear {
    /// All.
    All,
    /// Anonymous pages.
    Anonymous,
    /// Pages of files.
    Mapped,
}

/// The mappings of a process.
#[derive(Debug)]
pub struct Smaps {
    smaps: File,
    clear: File,
    buffer: Vec<u8>,
    parser: Parser,
}

impl Smaps {
    /// Opens both files. They describe the address space that the process has now.
    ///
    /// # Errors
    /// Permission denied if the process belongs to another user; not found if it has gone.
    pub fn open(pid: u32) -> io::Result<Self> {
        let smaps = File::open(format!("/proc/{pid}/smaps"))?;
        let clear = OpenOptions::new().write(true).open(format!("/proc/{pid}/clear_refs"))?;
        Ok(Smaps { smaps, clear, buffer: Vec::new(), parser: Parser::default() })
    }

    /// Forgets which pages were referenced: 13 ns for each page of 4 KiB. The program pays more when it touches them next,
    /// since its processor has to set the bits again: 0.4 us a page in a virtual machine.
    ///
    /// # Errors
    /// Not found (`ESRCH`) if the process has gone.
    pub fn clear(&mut self, of: Clear) -> io::Result<()> {
        self.clear.write_all(match of {
            Clear::All => b"1",
            Clear::Anonymous => b"2",
            Clear::Mapped => b"3",
        })
    }

    /// Tells of each mapping that has pages in memory, or may have huge ones, in the order of addresses: 60 ns for each page, and
    /// 3 us for each mapping.
    ///
    /// # Errors
    /// If the process has gone, or the text is not what the kernel writes.
    pub fn read(&mut self, mut each: impl FnMut(Usage)) -> io::Result<()> {
        self.rewind()?;
        while self.read_some(&mut each)? {}
        Ok(())
    }

    /// The next [`Self::read_some`] begins with the first mapping.
    ///
    /// # Errors
    /// If the process has gone.
    pub fn rewind(&mut self) -> io::Result<()> {
        self.smaps.seek(SeekFrom::Start(0))?;
        self.buffer.clear();
        self.parser = Parser::default();
        Ok(())
    }

    /// Tells of the next few mappings, of those that [`Self::read`] tells of: as many as fit a page of text, four to six. The kernel
    /// goes through their pages within this call, so its end is when all of them are told. False if there are none left.
    ///
    /// # Errors
    /// If the process has gone, or the text is not what the kernel writes.
    pub fn read_some(&mut self, mut each: impl FnMut(Usage)) -> io::Result<bool> {
        let Smaps { smaps, buffer, parser, .. } = self;
        let old = buffer.len();
        buffer.resize(old + CHUNK_BYTES, 0);
        let count = smaps.read(&mut buffer[old..])?;
        buffer.truncate(old + count);
        if count == 0 {
            return Ok(false);
        }
        let told = Instant::now();
        let whole = buffer.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        for line in buffer[..whole].split(|byte| *byte == b'\n') {
            parser.line(line, told, &mut each);
        }
        buffer.drain(..whole);
        Ok(true)
    }
}

/// The mapping that is being read.
#[derive(Debug, Default)]
struct Parser {
    usage: Option<Usage>,
}

impl Parser {
    fn line(&mut self, line: &[u8], told: Instant, each: &mut impl FnMut(Usage)) {
        // A mapping begins with its range, in small hexadecimal digits; its fields have names with a capital.
        if line.first().is_some_and(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte)) {
            self.usage = range(line).map(|(start, end)| Usage {
                start,
                end,
                is_private_memory: is_private_memory(line),
                resident_bytes: 0,
                referenced_bytes: 0,
                huge_bytes: 0,
                may_be_huge: false,
                shared_bytes: 0,
                told,
            });
            return;
        }
        let Some(usage) = &mut self.usage else { return };
        match line.split(|byte| *byte == b':').next() {
            Some(b"Rss") => usage.resident_bytes = kib(line),
            Some(b"Referenced") => usage.referenced_bytes = kib(line),
            Some(b"AnonHugePages" | b"ShmemPmdMapped" | b"FilePmdMapped") => usage.huge_bytes += kib(line),
            Some(b"Shared_Clean" | b"Shared_Dirty") => usage.shared_bytes += kib(line),
            Some(b"THPeligible") => usage.may_be_huge = line.ends_with(b"1"),
            // The last field of every mapping.
            Some(b"VmFlags") => {
                let is_told = |usage: &Usage| usage.resident_bytes > 0 || usage.may_be_huge;
                if let Some(mut usage) = self.usage.take().filter(is_told) {
                    usage.told = told;
                    each(usage);
                }
            }
            _ => {}
        }
    }
}

fn range(line: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(line.split(|byte| *byte == b' ').next()?).ok()?;
    let (start, end) = text.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

/// By the line with which a mapping begins: range, permissions, offset, device, inode, and a name if there is one.
fn is_private_memory(line: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(line) else { return false };
    let mut words = text.split_ascii_whitespace().skip(1);
    let is_private = words.next().is_some_and(|permissions| permissions.ends_with('p'));
    let is_of_no_file = words.nth(2) == Some("0");
    let is_the_kernels = words.next().is_some_and(|name| name.starts_with("[v"));
    is_private && is_of_no_file && !is_the_kernels
}

/// The bytes of `Name:   123 kB`.
fn kib(line: &[u8]) -> u64 {
    let digits = line.iter().filter(|byte| byte.is_ascii_digit());
    digits
        .fold(0_u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
        .saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;

    #[test]
    fn what_was_touched_since_the_last_clear_is_referenced() {
        let mut mapping = Mapping::anonymous(8 << 20).unwrap();
        mapping.bytes_mut().fill(1);
        let start = mapping.bytes().as_ptr().addr() as u64;
        let mut smaps = Smaps::open(std::process::id()).unwrap();
        // A neighbouring mapping may be merged with it by the kernel.
        let referenced = |smaps: &mut Smaps| {
            let mut found = None;
            smaps
                .read(|usage| {
                    if usage.start <= start && usage.end > start {
                        found = Some(usage);
                    }
                })
                .unwrap();
            found.unwrap()
        };
        smaps.clear(Clear::All).unwrap();
        let before = referenced(&mut smaps);
        for page in 0..100 {
            mapping.bytes_mut()[page * 4096] = 2;
        }
        let after = referenced(&mut smaps);
        assert!(after.resident_bytes >= 8 << 20);
        // Huge pages are referenced as a whole, and what else this process does may touch a neighbour.
        assert!(after.referenced_bytes >= before.referenced_bytes + 100 * 4096, "{before:?} {after:?}");
    }

    #[test]
    fn a_process_that_has_gone_is_an_error() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let mut smaps = Smaps::open(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(smaps.clear(Clear::All).is_err());
        let mut mappings = 0;
        assert!(smaps.read(|_| mappings += 1).is_err() || mappings == 0);
        assert!(Smaps::open(u32::MAX).is_err());
    }

    #[test]
    fn fields_are_read_and_noise_is_not() {
        let mut parser = Parser::default();
        let mut found = Vec::new();
        let text = "Rss: 1 kB\nzz-1 r\n7f00-8f00 rw-p 00000000 00:00 0 [heap]\nSize: 4 kB\nRss:    8 kB\nReferenced: 4 kB\n\
                    AnonHugePages: 2048 kB\nShared_Clean: 4 kB\nTHPeligible:    1\nVmFlags: rd wr\nVmFlags: rd\n9000-a000 r--p 0 0 0\nRss: 0 kB\nVmFlags: rd\n";
        for line in text.lines() {
            parser.line(line.as_bytes(), Instant::now(), &mut |usage| found.push(usage));
        }
        let [usage] = found[..] else { panic!("{found:?}") };
        assert_eq!((usage.start, usage.end), (0x7f00, 0x8f00));
        assert_eq!((usage.resident_bytes, usage.referenced_bytes, usage.huge_bytes), (8192, 4096, 2 << 20));
        assert_eq!((usage.shared_bytes, usage.may_be_huge), (4096, true));
        assert!(usage.is_private_memory);
    }

    #[test]
    fn files_shared_memory_and_what_the_kernel_maps_are_no_private_memory() {
        let is = |line: &str| is_private_memory(line.as_bytes());
        assert!(is("7f00-8f00 rw-p 00000000 00:00 0 [stack]") && is("7f00-8f00 ---p 00000000 00:00 0"));
        assert!(is("7f00-8f00 rw-p 00000000 00:00 0 [anon: arena]"));
        assert!(!is("7f00-8f00 rw-s 00000000 00:01 1025 /dev/zero (deleted)"));
        assert!(!is("7f00-8f00 r-xp 00002000 fe:00 247766 /usr/bin/sleep"));
        assert!(
            !is("7f00-8f00 r-xp 00000000 00:00 0 [vdso]") && !is("7f00-8f00 r--p 00000000 00:00 0 [vvar]")
        );
        assert!(!is("7f00-8f00") && !is(""));
    }
}
