//! Synchronous I/O at the start, with the same kind of requests as later: direct I/O where the device allows it.

use tiermem_tier::block::{AlignedBuffer, BlockError, BlockIo, Completion, Request};

use super::JournalError;

/// Bytes of a large read or write.
pub const LARGE_BYTES: usize = 1 << 20;

/// Does these requests, and waits for all of them.
pub fn all(device: &mut dyn BlockIo, mut requests: Vec<Request>) -> Vec<Completion> {
    let wanted = requests.len();
    let mut done = Vec::with_capacity(wanted);
    device.submit_all(&mut requests);
    while done.len() < wanted && device.in_flight() > 0 {
        device.wait(&mut done);
    }
    done
}

/// Reads.
pub fn read(device: &mut dyn BlockIo, offset: u64, len_bytes: usize) -> Result<AlignedBuffer, BlockError> {
    let request = Request::read(0, offset, AlignedBuffer::zeroed(len_bytes));
    match all(device, vec![request]).pop() {
        Some(Completion { result: Ok(()), buffer, .. }) => Ok(buffer),
        Some(Completion { result: Err(error), .. }) => Err(error),
        None => Err(BlockError::device(tiermem_tier::block::Op::Read, offset, len_bytes)),
    }
}

/// Writes.
pub fn write(device: &mut dyn BlockIo, requests: Vec<Request>) -> Result<(), JournalError> {
    all(device, requests)
        .into_iter()
        .try_for_each(|done| done.result)
        .map_err(JournalError::device("write to"))
}

/// Makes all durable.
pub fn sync(device: &mut dyn BlockIo) -> Result<(), JournalError> {
    device.sync().map_err(JournalError::device("make durable what was written to"))
}

/// Reads a range of the device piece by piece, with some of it in memory.
pub struct DeviceReader {
    start: u64,
    end: u64,
    at: u64,
    bytes: AlignedBuffer,
}

impl DeviceReader {
    /// Over these bytes of the device; both are multiples of a block.
    pub fn new(start: u64, end: u64) -> Self {
        DeviceReader { start, end, at: start, bytes: AlignedBuffer::empty() }
    }

    /// The bytes from `at` on, counted from the start of the range; shorter at its end. `at` is a multiple of a block.
    pub fn get(&mut self, device: &mut dyn BlockIo, at: u64, len_bytes: usize) -> Result<&[u8], BlockError> {
        let (from, end) = (self.start + at, (self.start + at + len_bytes as u64).min(self.end));
        if from < self.at || end > self.at + self.bytes.len() as u64 {
            let len = len_bytes.max(LARGE_BYTES).min(self.end.saturating_sub(from) as usize);
            self.bytes = AlignedBuffer::empty();
            self.bytes = read(device, from, len)?;
            self.at = from;
        }
        let first = (from - self.at) as usize;
        Ok(&self.bytes[first..first + end.saturating_sub(from) as usize])
    }
}
