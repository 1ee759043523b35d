//! Block devices for a flash tier.
//!
//! The seam is [`BlockIo`]: requests of whole blocks that never make the caller wait, and beside them
//! small buffered reads and writes for rare metadata. Siblings: [`UringFile`], [`PolledFile`] and [`ThreadedFile`]
//! on a file or device, [`Immediate`] in memory and [`Simulated`] in virtual time; and wrappers around any of
//! them: [`Faulty`], [`Throttled`], [`Counted`]. `tests/block_conformance.rs` runs against every one.

mod bad_places;
pub mod completion_queue;
mod counted;
mod delays;
mod error;
pub(crate) mod fault_source;
mod faulty;
mod file;
mod flight;
mod immediate;
mod medium;
mod open;
mod polled;
mod seeds;
mod served;
mod simulated;
mod threads;
mod throttled;
mod troubles;
mod uring;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

pub use bad_places::{BadPlace, BadPlaces, Failing, spoil};
pub use counted::{Counted, Counters};
pub use delays::Delays;
pub use error::{BlockError, OpenError};
pub use faulty::{Faults, Faulty};
pub use immediate::{Immediate, MemoryDisk};
pub use medium::Medium;
pub use open::{Backend, Existing, open, open_existing, open_polled, open_shared};
pub use polled::PolledFile;
pub use seeds::for_each_seed;
pub use simulated::{Applied, Fate, Simulated, Simulation, Target, copy_some};
pub use threads::ThreadedFile;
pub use throttled::Throttled;
pub use tiermem_sys::aligned::AlignedBuffer;
pub use troubles::Troubles;
pub use uring::UringFile;

/// Offsets and lengths of requests are multiples of this many bytes.
pub const BLOCK_BYTES: usize = tiermem_sys::aligned::ALIGN_BYTES;

/// Bytes that a disk writes atomically; a torn write ends after some such sectors.
const SECTOR_BYTES: u64 = 512;

/// Called, on any thread, when something may have been completed. It must not block, nor call the device.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fill the buffer from the device.
    Read,
    /// Write the buffer to the device.
    Write,
    /// Makes writes durable against power loss: every write with a completion that was taken before this was submitted.
    Sync,
}

/// One request. The buffer travels with it and comes back with the completion.
#[derive(Debug)]
pub struct Request {
    /// The caller's name for it, handed back unchanged.
    pub token: u64,
    /// The operation.
    pub op: Op,
    /// Where on the device, in bytes: a multiple of [`BLOCK_BYTES`].
    pub offset: u64,
    /// The bytes to write, or the buffer to read into. Empty for [`Op::Sync`].
    pub buffer: AlignedBuffer,
}

/// A request that is done.
#[derive(Debug)]
pub struct Completion {
    /// As in the request.
    pub token: u64,
    /// As in the request.
    pub op: Op,
    /// As in the request.
    pub offset: u64,
    /// The request's buffer. After a read that failed its contents are anything. It is empty when the kernel's interface
    /// itself broke down and the memory could not be had back.
    pub buffer: AlignedBuffer,
    /// Whether all bytes were transferred. After a write that failed, any part of them may be on the device.
    pub result: Result<(), BlockError>,
}

impl Request {
    /// Fills `buffer` from byte `offset` on.
    pub fn read(token: u64, offset: u64, buffer: AlignedBuffer) -> Self {
        Request { token, op: Op::Read, offset, buffer }
    }

    /// Writes `buffer` from byte `offset` on.
    pub fn write(token: u64, offset: u64, buffer: AlignedBuffer) -> Self {
        Request { token, op: Op::Write, offset, buffer }
    }

    /// Makes durable what was written.
    pub fn sync(token: u64) -> Self {
        Request { token, op: Op::Sync, offset: 0, buffer: AlignedBuffer::empty() }
    }

    fn done(self, result: Result<(), BlockError>) -> Completion {
        let Request { token, op, offset, buffer } = self;
        Completion { token, op, offset, buffer, result }
    }

    /// Whether a device of this capacity can be asked this at all.
    fn check(&self, capacity_bytes: u64) -> Result<(), BlockError> {
        let (op, offset, len_bytes) = (self.op, self.offset, self.buffer.len() as u64);
        // The buffer's length is a multiple by its type.
        if !offset.is_multiple_of(BLOCK_BYTES as u64) {
            return Err(BlockError::Unaligned { op, offset });
        }
        check_range(op, offset, len_bytes, capacity_bytes)
    }
}

fn check_range(op: Op, offset: u64, len_bytes: u64, capacity_bytes: u64) -> Result<(), BlockError> {
    match offset.checked_add(len_bytes) {
        Some(end) if end <= capacity_bytes => Ok(()),
        _ => Err(BlockError::OutOfRange { op, offset, len_bytes, capacity_bytes }),
    }
}

/// A device of blocks. Written bytes are read back until overwritten; bytes never written read as anything.
///
/// Requests in flight may be done in any order, also relative to `write_at`, `read_at` and `sync`: a caller
/// that needs an order waits. Bytes of a write in flight must not be covered by another request in flight.
pub trait BlockIo: Send {
    /// Never blocks (queues without bound; callers bound what they have in flight). No order is promised between requests
    /// in flight.
    fn submit(&mut self, request: Request);
    /// Submits all of these, with at most one system call; leaves the vector empty.
    fn submit_all(&mut self, requests: &mut Vec<Request>) {
        for request in requests.drain(..) {
            self.submit(request);
        }
    }
    /// Appends what is done; never blocks.
    fn completed(&mut self, out: &mut Vec<Completion>);
    /// Waits until at least one request is done or none is in flight, and appends what is done.
    fn wait(&mut self, out: &mut Vec<Completion>);
    /// Requests submitted with completions that were not taken yet.
    fn in_flight(&self) -> usize;
    /// Sets the waker to call, once per batch and on any thread, whenever something
    /// may have completed since the last `completed`. It replaces the one set before.
    /// What is told by [`Self::pollable`] alone needs no call.
    fn notify(&mut self, waker: Waker);
    /// A descriptor, the same at all times, that polls as readable when something may have completed: whoever waits for the waker's
    /// call waits for this as well.
    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Writes through the page cache, synchronously, at any alignment: for the small things at the device's front. What was
    /// written survives the death of the process once this returns. Where the process dies in it, a front part may be
    /// written, and nothing behind a part that is not: Linux copies into the page cache in order.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError>;
    /// Reads through the page cache, synchronously, at any alignment.
    fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), BlockError>;
    /// Makes everything written durable against power loss, and waits for that.
    fn sync(&mut self) -> Result<(), BlockError>;
    /// The bytes that requests may lie in.
    fn capacity_bytes(&self) -> u64;
    /// Makes the device at least this large, for all its users, who ask one at a time. The space is reserved, and durably the
    /// device's; waits for that.
    fn grow(&mut self, capacity_bytes: u64) -> Result<(), OpenError> {
        let has_bytes = self.capacity_bytes();
        if capacity_bytes <= has_bytes {
            return Ok(());
        }
        Err(OpenError::DeviceTooSmall {
            path: self.describe().into(),
            has_bytes,
            wanted_bytes: capacity_bytes,
        })
    }
    /// The implementation, for the log: a few words.
    fn describe(&self) -> &'static str {
        "a device"
    }
}

impl<B: BlockIo + ?Sized> BlockIo for Box<B> {
    fn submit(&mut self, request: Request) {
        (**self).submit(request);
    }
    fn submit_all(&mut self, requests: &mut Vec<Request>) {
        (**self).submit_all(requests);
    }
    fn completed(&mut self, out: &mut Vec<Completion>) {
        (**self).completed(out);
    }
    fn wait(&mut self, out: &mut Vec<Completion>) {
        (**self).wait(out);
    }
    fn in_flight(&self) -> usize {
        (**self).in_flight()
    }
    fn notify(&mut self, waker: Waker) {
        (**self).notify(waker);
    }
    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        (**self).pollable()
    }
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        (**self).write_at(offset, bytes)
    }
    fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        (**self).read_at(offset, bytes)
    }
    fn sync(&mut self) -> Result<(), BlockError> {
        (**self).sync()
    }
    fn capacity_bytes(&self) -> u64 {
        (**self).capacity_bytes()
    }
    fn grow(&mut self, capacity_bytes: u64) -> Result<(), OpenError> {
        (**self).grow(capacity_bytes)
    }
    fn describe(&self) -> &'static str {
        (**self).describe()
    }
}
