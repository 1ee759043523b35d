//! io_uring on one file, made safe by ownership: a buffer goes into the ring with its request and comes out with the completion.
//! In between no code can reach it, and whatever happens to the ring, the memory outlives the kernel's use of it: dropping a ring
//! waits for requests in flight, or leaks their memory where it cannot.
//!
//! Source: J. Axboe, "Efficient IO with io_uring", 2019; `io_uring_enter(2)`.

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, Probe, opcode, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use slab::Slab;

use crate::aligned::AlignedBuffer;

/// The ring's files by their registered numbers: the kernel need not look them up for every request.
const FILE: types::Fixed = types::Fixed(0);
const BELL: types::Fixed = types::Fixed(1);
/// The tag of the completion of the bell's read; requests carry their slot's number.
const BELL_RUNG: u64 = u64::MAX;
/// The kernel transfers at most 2 GiB less a page in one request. What is longer ends short and is continued.
const TRANSFER_BYTES_MAX: usize = 1 << 30;

/// The work of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Fill the buffer from the file.
    Read,
    /// Write the buffer to the file.
    Write,
    /// Make what was written durable (`fdatasync`).
    Sync,
}

/// A request that is done. `T` is what the caller gave with it.
#[derive(Debug)]
pub struct Done<T> {
    /// As given.
    pub what: T,
    /// As given; a read has filled a part of it.
    pub buffer: AlignedBuffer,
    /// Bytes transferred, perhaps fewer than asked, or the system's error number.
    pub result: Result<usize, i32>,
}

/// Ends a ring's wait, from any thread.
#[derive(Clone, Debug)]
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    /// A bell for one ring.
    pub fn new() -> io::Result<Self> {
        Ok(Bell(Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?)))
    }

    /// Ends the wait that is under way, or the next one. One system call.
    pub fn ring(&self) {
        // It only fails when the count is at its end, and then the bell is ringing.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// A ring that stays on the thread that made it: the kernel is told so, which spares it locks.
#[derive(Debug)]
pub struct OneThread(PhantomData<*const ()>);

/// A ring that may move to another thread. What a thread has submitted ends there, when it makes a system call or waits.
#[derive(Debug)]
pub struct AnyThread;

/// A ring of reads, writes and syncs on one file.
pub struct Ring<T, Place = OneThread> {
    ring: IoUring,
    slots: Slab<Slot<T>>,
    entries: usize,
    /// What else ends a wait.
    bell: Option<Bell>,
    /// Where the kernel puts the bell's count. Not touched while `bell_armed`.
    bell_word: AlignedBuffer,
    bell_armed: bool,
    /// Kept open while the kernel may use it.
    _file: Arc<File>,
    _place: PhantomData<Place>,
}

#[derive(Debug)]
struct Slot<T> {
    what: T,
    buffer: AlignedBuffer,
}

impl<T> Ring<T> {
    /// A ring for at most `entries` requests in flight, and its bell. An error where the kernel has no io_uring or forbids it
    /// (seccomp, `kernel.io_uring_disabled`).
    pub fn new(file: Arc<File>, entries: u32, bell: Bell) -> io::Result<Self> {
        // Completions are then handled only when this thread asks for them, not in the midst of its work (Linux 6.1).
        Ring::with(file, entries, Some(bell), |builder| {
            _ = builder.setup_single_issuer().setup_defer_taskrun()
        })
    }
}

impl<T> Ring<T, AnyThread> {
    /// A ring for at most `entries` requests in flight, which polls as readable ([`AsFd`]) when something is done. An error as with
    /// [`Ring::new`].
    pub fn movable(file: Arc<File>, entries: u32) -> io::Result<Self> {
        // Completions do not interrupt the thread: they are there after its next system call (Linux 5.19).
        Ring::with(file, entries, None, |builder| _ = builder.setup_coop_taskrun())
    }
}

impl<T> AsFd for Ring<T, AnyThread> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open for as long as it lives, and with it the borrow.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl<T, Place> Ring<T, Place> {
    /// With what `set_up` asks of the kernel, or without where it does not know that.
    fn with(
        file: Arc<File>,
        entries: u32,
        bell: Option<Bell>,
        set_up: impl FnOnce(&mut io_uring::Builder),
    ) -> io::Result<Self> {
        let entries = entries.clamp(1, 4096);
        // One more for the bell, so that a place in the queue is always free when a slot is.
        let size = (entries + 1).next_power_of_two();
        let mut builder = IoUring::builder();
        set_up(&mut builder);
        let ring = match builder.build(size) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => IoUring::new(size)?,
            other => other?,
        };
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE];
        if !needed.iter().all(|code| probe.is_supported(*code)) {
            let reason = "this kernel's io_uring cannot read and write; it needs Linux 5.6";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        let files: Vec<_> =
            std::iter::once(file.as_raw_fd()).chain(bell.as_ref().map(|bell| bell.0.as_raw_fd())).collect();
        ring.submitter().register_files(&files)?;
        Ok(Ring {
            ring,
            slots: Slab::with_capacity(entries as usize),
            entries: entries as usize,
            bell,
            bell_word: AlignedBuffer::zeroed(8),
            bell_armed: false,
            _file: file,
            _place: PhantomData,
        })
    }

    /// Requests pushed and not yet taken back.
    pub fn in_flight(&self) -> usize {
        self.slots.len()
    }

    /// Whether no request can be pushed before one is taken back.
    pub fn is_full(&self) -> bool {
        self.slots.len() == self.entries
    }

    /// Queues a request; the kernel sees it at the next [`enter`](Self::enter). The transfer is between the buffer from
    /// byte `from` on and the file from byte `offset` on; `from` beyond the end transfers nothing.
    ///
    /// # Panics
    /// When the ring is full.
    pub fn push(&mut self, what: T, work: Work, offset: u64, from: usize, buffer: AlignedBuffer) {
        assert!(!self.is_full(), "the caller asked is_full");
        let number = self.slots.insert(Slot { what, buffer });
        let part = &mut self.slots[number].buffer;
        let from = from.min(part.len());
        let part = &mut part[from..];
        let len = part.len().min(TRANSFER_BYTES_MAX) as u32;
        let entry = match work {
            Work::Read => opcode::Read::new(FILE, part.as_mut_ptr(), len).offset(offset).build(),
            Work::Write => opcode::Write::new(FILE, part.as_ptr(), len).offset(offset).build(),
            Work::Sync => opcode::Fsync::new(FILE).flags(types::FsyncFlags::DATASYNC).build(),
        };
        self.queue(&entry.user_data(number as u64));
    }

    fn queue(&mut self, entry: &io_uring::squeue::Entry) {
        // SAFETY: the entry's file is registered with the ring and its memory is that of an `AlignedBuffer` owned by
        // `slots` or of `bell_word`. That memory neither moves nor is reached by anyone until the completion has been
        // taken; `drop` and `abandon` wait for it, or leak the memory.
        let queued = unsafe { self.ring.submission().push(entry) };
        assert!(queued.is_ok(), "the queue has a place for every slot and the bell");
    }

    /// Whether the kernel has seen all that was pushed.
    pub fn is_submitted(&mut self) -> bool {
        self.ring.submission().is_empty()
    }

    /// Hands what was pushed to the kernel and, with `wait`, returns only when something is done or the bell was rung.
    /// It may also return early. An error means that the ring is broken: [`abandon`](Self::abandon) it.
    pub fn enter(&mut self, wait: bool) -> io::Result<()> {
        if wait && self.bell.is_some() && !self.bell_armed {
            let word = self.bell_word.as_mut_ptr();
            self.bell_armed = true;
            self.queue(&opcode::Read::new(BELL, word, 8).build().user_data(BELL_RUNG));
        }
        match self.ring.submit_and_wait(usize::from(wait)) {
            Ok(_) => Ok(()),
            // Signals; not enough memory for now; completions that must be taken first.
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Takes back what is done. No system call.
    pub fn take(&mut self, mut each: impl FnMut(Done<T>)) {
        for entry in self.ring.completion() {
            if entry.user_data() == BELL_RUNG {
                self.bell_armed = false;
                continue;
            }
            let Some(Slot { what, buffer }) = self.slots.try_remove(entry.user_data() as usize) else {
                continue;
            };
            let result = usize::try_from(entry.result()).map_err(|_| -entry.result());
            each(Done { what, buffer, result });
        }
    }

    /// Gives up a broken ring. Returns its requests in flight, whose memory is leaked, since the kernel may still use it.
    pub fn abandon(mut self) -> Vec<T> {
        self.leak()
    }

    fn leak(&mut self) -> Vec<T> {
        if self.bell_armed {
            self.bell_armed = false;
            std::mem::forget(std::mem::take(&mut self.bell_word));
        }
        let lost = self.slots.drain().map(|Slot { what, buffer }| {
            std::mem::forget(buffer);
            what
        });
        lost.collect()
    }
}

impl<T, Place> Drop for Ring<T, Place> {
    fn drop(&mut self) {
        if let (true, Some(bell)) = (self.bell_armed, &self.bell) {
            bell.ring();
        }
        while self.bell_armed || !self.slots.is_empty() {
            if self.ring.submit_and_wait(1).is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
                drop(self.leak());
                return;
            }
            self.take(|_| {});
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring over a fresh file, or nothing where this machine has no io_uring.
    fn ring(name: &str, entries: u32) -> Option<(Ring<u32>, Bell)> {
        let path = std::env::temp_dir().join(format!("tiermem-uring-{name}-{}", std::process::id()));
        let file = crate::disk::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let bell = Bell::new().unwrap();
        Some((Ring::new(Arc::new(file), entries, bell.clone()).ok()?, bell))
    }

    fn wait_all(ring: &mut Ring<u32>) -> Vec<Done<u32>> {
        let mut done = Vec::new();
        while ring.in_flight() > 0 {
            ring.enter(true).unwrap();
            ring.take(|it| done.push(it));
        }
        done.sort_by_key(|it| it.what);
        done
    }

    #[test]
    fn what_is_written_is_read_and_buffers_come_back() {
        let Some((mut ring, _)) = ring("write", 4) else { return };
        for number in 0..4u8 {
            let mut buffer = AlignedBuffer::zeroed(8192);
            buffer.fill(number + 1);
            ring.push(u32::from(number), Work::Write, u64::from(number) * 8192, 0, buffer);
        }
        assert!(ring.is_full());
        let done = wait_all(&mut ring);
        assert_eq!(done.iter().map(|it| it.result).collect::<Vec<_>>(), [Ok(8192); 4]);
        assert!(done.iter().all(|it| it.buffer[0] == it.what as u8 + 1));
        ring.push(0, Work::Sync, 0, 0, AlignedBuffer::empty());
        assert_eq!(wait_all(&mut ring)[0].result, Ok(0));
        // From the middle of the buffer, and at the end of the file.
        ring.push(0, Work::Read, 8192, 4096, AlignedBuffer::zeroed(8192));
        ring.push(1, Work::Read, 7 * 4096, 0, AlignedBuffer::zeroed(8192));
        ring.push(2, Work::Read, 8 * 4096, 0, AlignedBuffer::zeroed(8192));
        let done = wait_all(&mut ring);
        assert_eq!((done[0].buffer[0], done[0].buffer[4096], done[0].result), (0, 2, Ok(4096)));
        assert_eq!((done[1].buffer[0], done[1].result, done[2].result), (4, Ok(4096), Ok(0)));
    }

    #[test]
    fn the_bell_ends_a_wait_whether_it_is_rung_before_or_while() {
        let Some((mut ring, bell)) = ring("bell", 1) else { return };
        bell.ring();
        bell.ring();
        ring.enter(true).unwrap();
        ring.take(|_| {});
        let ringer = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            bell.ring();
        });
        ring.enter(true).unwrap();
        ring.take(|_| {});
        ringer.join().unwrap();
    }

    #[test]
    fn a_ring_may_be_dropped_and_abandoned_with_requests_in_flight() {
        for abandon in [false, true] {
            let Some((mut ring, _)) = ring("drop", 64) else { return };
            for number in 0..64 {
                ring.push(number, Work::Write, u64::from(number) * 4096, 0, AlignedBuffer::zeroed(4096));
            }
            ring.enter(false).unwrap();
            if abandon {
                assert!(ring.abandon().len() <= 64);
            }
        }
    }
}
