//! Disks that a server exports, independent of how their bytes are stored.
//!
//! This is the seam between the network side and the cache. The server parses requests and submits them
//! as [`Job`]s; the disks answer with [`Outcome`]s, in any order. Neither side waits for the other.

mod memory;
mod pool;
mod slow;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use tiermem_tier::block::AlignedBuffer;

pub use memory::MemoryDisks;
pub use pool::BufferPool;
pub use slow::{Gate, SlowDisks, Trouble};

use crate::nbd::{Contexts, Errno, Export, Extent};

/// A unit: buffers of jobs begin and end at multiples of this number of bytes of the disk.
pub const UNIT_BYTES: u64 = 4096;

/// Called, on any thread, when an outcome may be there. It must not block, nor call the disks.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// The origin of a job: a connection, and its name for the request. The server never uses one for two jobs at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Asker {
    /// The server's number for the connection.
    pub connection: u64,
    /// The server's number for the request; the client's own cookie may repeat while it is under way.
    pub cookie: u64,
}

/// Operation on a range of a disk.
#[derive(Debug)]
pub enum Task {
    /// Give its bytes.
    Read,
    /// Store these. The buffer begins at the range's first unit, so the bytes lie `offset % UNIT_BYTES` behind its begin, and it ends
    /// with the range's last unit; what lies around the bytes is the disks' to fill.
    Write(AlignedBuffer),
    /// Makes durable every write of this disk with an outcome taken before, from any connection. No range.
    Flush,
    /// Its bytes need not be kept.
    Trim,
    /// Store zeroes.
    Zero,
    /// It will be wanted soon.
    Prefetch,
    /// Say what each of its parts is, as far as somebody wants to know: in these contexts.
    Describe(Contexts),
}

/// One request of a client, which keeps the disk's rules (its size, not read-only where it writes).
#[derive(Debug)]
pub struct Job {
    /// Whom to answer.
    pub asker: Asker,
    /// The disk's number: its place in [`Disks::exports`].
    pub disk: usize,
    /// The operation.
    pub task: Task,
    /// The first byte that it is about.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Whether its effect must be durable before the outcome.
    pub durable: bool,
}

/// Bytes of a disk in a buffer.
#[derive(Debug)]
pub struct Piece {
    /// The buffer.
    pub buffer: AlignedBuffer,
    /// Where in it the bytes begin.
    pub from: usize,
    /// Number of bytes.
    pub bytes: usize,
}

/// Result of a job.
#[derive(Debug)]
pub enum Answer {
    /// It is done.
    Done,
    /// The bytes of a read, in order.
    Data(Vec<Piece>),
    /// The parts of the range, in order, by what the disk holds (`base:allocation`) and by what the cache does (`tiermem:cache`).
    Parts {
        /// `base:allocation`.
        allocation: Vec<Extent>,
        /// `tiermem:cache`.
        cache: Vec<Extent>,
    },
}

/// A job that is done.
#[derive(Debug)]
pub struct Outcome {
    /// The origin of the job.
    pub asker: Asker,
    /// The answer; otherwise the error's number and a message.
    pub result: Result<Answer, (Errno, String)>,
}

/// Disks on one thread.
pub trait Disks {
    /// The exported disks. The number of a disk is its index; sizes may change, and new disks may be added at the end.
    fn exports(&self) -> &[Export];
    /// Never blocks. Outcomes come in any order.
    fn submit(&mut self, job: Job);
    /// Appends what is done; never blocks.
    fn take(&mut self, done: &mut Vec<Outcome>);
    /// Sets the waker to call when `take` may have new outcomes since its last call, or when a disk's size has
    /// changed. Outcomes ready when `submit` returns need no call, as the caller takes outcomes afterwards.
    fn notify(&mut self, waker: Waker);
    /// A descriptor, the same at all times, that polls as readable where the waker is not called.
    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// All outcomes have been delivered: time for work that no answer depends on. It must not take long.
    fn rest(&mut self) {}
    /// Bytes of a disk's jobs that should be under way at most; the server reads no further requests of a connection meanwhile.
    fn bytes_in_flight_max(&self) -> u64 {
        64 << 20
    }
    /// A buffer of at least `bytes` for a write to come, rounded up to units; what it holds is anything.
    fn lend(&mut self, bytes: usize) -> AlignedBuffer {
        AlignedBuffer::zeroed(bytes)
    }
    /// Takes back a buffer that was lent and is not needed, or that came with an answer.
    fn give_back(&mut self, buffer: AlignedBuffer) {
        drop(buffer);
    }
}
