//! Ring buffer into which the kernel writes the records of a processor's events.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const PAGE_BYTES: usize = 4096;
/// Where the kernel keeps the ends of the ring, in the page before it.
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;
pub(super) const RECORD_SAMPLE: u32 = 9;
/// Records that found no room were lost before this one.
pub(super) const RECORD_LOST: u32 = 2;
/// Less room than this may have been too little for a record.
const RECORD_ROOM: u64 = 128;
/// `_IO('$', 5)`: have the records of this event go into another one's ring.
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;

/// The ring of one processor: a page of the kernel's, then the records.
#[derive(Debug)]
pub(super) struct Ring {
    start: NonNull<u8>,
    /// A power of two.
    bytes: usize,
    /// The event that has the ring. Closed after the mapping has gone.
    event: OwnedFd,
    others: Vec<OwnedFd>,
}

// SAFETY: the mapping belongs to this value, and is reached only through `&mut self`.
unsafe impl Send for Ring {}

/// A record that lies in the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    ring: &'a Ring,
    at: u64,
    /// Its type.
    pub kind: u32,
    /// Flags of its kind.
    pub flags: u16,
    /// Words behind the header.
    words: u64,
}

impl Record<'_> {
    /// A word behind the header.
    pub fn word(&self, number: u64) -> u64 {
        self.ring.word(self.at + 8 + number * 8)
    }

    /// How many words are behind the header.
    pub fn words(&self) -> u64 {
        self.words
    }

    /// The text from a word on, which ends with a zero or `behind` words before the record's end.
    pub fn text(&self, from: u64, behind: u64) -> String {
        let words = from..self.words.saturating_sub(behind);
        let bytes: Vec<u8> = words.flat_map(|word| self.word(word).to_ne_bytes()).collect();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    /// The last word.
    pub fn last_word(&self) -> u64 {
        self.word(self.words.saturating_sub(1))
    }
}

impl Ring {
    /// A ring of `bytes`, a power of two of pages, for the records of an event.
    pub fn map(event: OwnedFd, bytes: usize) -> io::Result<Self> {
        debug_assert!(bytes.is_power_of_two() && bytes >= PAGE_BYTES);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses aliases no memory of this process.
        let start = unsafe {
            mmap(std::ptr::null_mut(), PAGE_BYTES + bytes, protection, MapFlags::SHARED, &event, 0)
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Ring { start, bytes, event, others: Vec::new() })
    }

    /// Takes in the records of another event of the same processor.
    pub fn share(&mut self, other: OwnedFd) -> io::Result<()> {
        // SAFETY: both are events of this process's, and the first has its ring by now, as the call demands; it changes
        // nothing but where the records of the second go.
        if unsafe { libc::ioctl(other.as_raw_fd(), IOC_SET_OUTPUT, self.event.as_raw_fd()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        self.others.push(other);
        Ok(())
    }

    /// How often the events have happened, whether there was room for a record or not.
    pub fn count(&self) -> u64 {
        let count = |event: &OwnedFd| {
            let mut count = [0; 8];
            // An event of this kind can always be read; one that cannot counts nothing.
            match rustix::io::read(event, &mut count) {
                Ok(8) => u64::from_ne_bytes(count),
                _ => 0,
            }
        };
        self.others.iter().chain([&self.event]).map(count).sum()
    }

    /// A counter of the kernel's in the first page.
    fn end(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the page is mapped as long as `self` is there; the field is 8 bytes at a multiple of 8 from its start,
        // and the kernel accesses it as one word, as this process does.
        unsafe { AtomicU64::from_ptr(self.start.add(at).cast().as_ptr()) }
    }

    /// The word at this place of the endless sequence of which the ring holds the last part.
    fn word(&self, at: u64) -> u64 {
        let offset = PAGE_BYTES + (at as usize & (self.bytes - 1) & !7);
        // SAFETY: the place lies in the mapping at a multiple of 8. The kernel may write to the ring meanwhile, but never
        // between tail and head, where its caller reads; a volatile read takes the bytes as they are.
        unsafe { self.start.add(offset).cast::<u64>().read_volatile() }
    }

    /// Whether a small record may have found no room since the last drain.
    pub fn is_full(&self) -> bool {
        let [head, tail] = [HEAD_AT, TAIL_AT].map(|at| self.end(at).load(Ordering::Relaxed));
        head.wrapping_sub(tail) + RECORD_ROOM > self.bytes as u64
    }

    /// Tells each record up to the head, and gives their room back. Returns how many were lost because there was none; where they are
    /// missing is told as a record of kind [`RECORD_LOST`].
    pub fn drain(&mut self, mut each: impl FnMut(Record<'_>)) -> u64 {
        // Acquire: the records were written before the head.
        let head = self.end(HEAD_AT).load(Ordering::Acquire);
        let mut tail = self.end(TAIL_AT).load(Ordering::Relaxed);
        let mut lost = 0;
        while tail < head {
            // The header: type of 32 bits, 16 bits of flags, length of 16 bits.
            let header = self.word(tail);
            let (kind, length) = (header as u32, header >> 48);
            let words = (length / 8).saturating_sub(1);
            let record = Record { ring: self, at: tail, kind, flags: (header >> 32) as u16, words };
            if kind == RECORD_LOST {
                // The event's number, then how many.
                lost += record.word(1);
            }
            each(record);
            // No record is shorter than its header; one that says so would keep this from ending.
            tail += length.max(8);
        }
        // Release: the records have been read before the kernel may write over them.
        self.end(TAIL_AT).store(head, Ordering::Release);
        lost
    }
}

impl AsFd for Ring {
    /// Readable when records have come for which the event was told to wake its waiter.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, and no reference into it outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), PAGE_BYTES + self.bytes) };
    }
}
