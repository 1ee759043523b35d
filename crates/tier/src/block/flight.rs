//! Request in a ring, from when it is pushed until all of its bytes are transferred.

use std::io;

use tiermem_sys::uring::{Done, Ring, Work};

use super::file::BlockFile;
use super::{AlignedBuffer, BlockError, Completion, Op, Request};

/// Requests that the kernel sees at once; more wait in a queue.
pub(super) const ENTRIES: u32 = 256;

/// A request in a ring.
pub(super) struct Flight {
    token: u64,
    op: Op,
    offset: u64,
    /// Bytes transferred before.
    done: usize,
    len: usize,
}

impl Flight {
    /// Pushes a request into a ring that has room.
    pub(super) fn begin<P>(request: Request, ring: &mut Ring<Flight, P>) {
        let Request { token, op, offset, buffer } = request;
        Flight { token, op, offset, done: 0, len: buffer.len() }.push(ring, buffer);
    }

    /// Pushes what is left of it.
    pub(super) fn push<P>(self, ring: &mut Ring<Flight, P>, buffer: AlignedBuffer) {
        let work = match self.op {
            Op::Read => Work::Read,
            Op::Write => Work::Write,
            Op::Sync => Work::Sync,
        };
        let (offset, done) = (self.offset + self.done as u64, self.done);
        ring.push(self, work, offset, done, buffer);
    }

    fn end(self, buffer: AlignedBuffer, result: Result<(), BlockError>) -> Completion {
        Completion { token: self.token, op: self.op, offset: self.offset, buffer, result }
    }

    /// The ring is broken: the kernel may still use the buffer, which is lost.
    pub(super) fn fail(self) -> Completion {
        let error = BlockError::device(self.op, self.offset, self.len);
        self.end(AlignedBuffer::empty(), Err(error))
    }

    /// Whether a request of this file is complete, or must continue.
    pub(super) fn judge(file: &BlockFile, done: Done<Flight>) -> Result<Completion, (Flight, AlignedBuffer)> {
        let Done { what: mut flight, buffer, result } = done;
        let (op, offset, len_bytes) = (flight.op, flight.offset, flight.len as u64);
        let end = match result {
            Ok(got) if flight.done + got >= flight.len => Ok(()),
            Ok(got) => match file.advance(flight.done, got) {
                Some(now) => {
                    flight.done = now;
                    return Err((flight, buffer));
                }
                None => Err(BlockError::Short { op, offset, len_bytes, done_bytes: flight.done as u64 }),
            },
            Err(errno) => match io::Error::from_raw_os_error(errno).kind() {
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => return Err((flight, buffer)),
                _ => Err(BlockError::Os { op, offset, len_bytes, errno }),
            },
        };
        Ok(flight.end(buffer, end))
    }
}
