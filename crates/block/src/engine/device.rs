//! Requests to the cache's device, and the owner of each request in flight.

use std::os::fd::BorrowedFd;

use slab::Slab;
use tiermem_policy::extents::cleaner::Token;
use tiermem_tier::block::{self as device, AlignedBuffer, BlockIo};

use crate::disks::Waker;

/// The owner of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Io {
    /// Reads what `held` at this place of an operation is to hold.
    Gather { op: u32, held: u32 },
    /// Stores a part of an operation's plan in the cache.
    Store { op: u32, fill: u32 },
    /// Writes what an operation brings to the store.
    Through { op: u32 },
    /// Trims the store.
    Trim { op: u32 },
    /// Writes back.
    WriteBack { volume: u16, act: Token },
    /// Asks a store what a range is.
    Describe { number: u32 },
    /// Flushes a volume's store.
    Flush { volume: u16, act: Token },
}

/// The cache's device, and the names of requests.
pub(super) struct Device {
    cache: Box<dyn BlockIo>,
    /// Where on the device the cache's space begins.
    data_at: u64,
    /// Requests that are yet to be submitted.
    outgoing: Vec<device::Request>,
    /// What is done, and not taken yet; the first one last.
    arrived: Vec<device::Completion>,
    ios: Slab<Io>,
}

impl Device {
    /// A device on which the cache's space begins at a byte.
    pub fn new(cache: Box<dyn BlockIo>, data_at: u64) -> Self {
        Device { cache, data_at, outgoing: Vec::new(), arrived: Vec::new(), ios: Slab::new() }
    }

    /// A name for a request to the device or to a store.
    pub fn name(&mut self, io: Io) -> u64 {
        self.ios.insert(io) as u64
    }

    /// The owner of a completed request, by its token.
    pub fn owner(&mut self, token: u64) -> Option<Io> {
        self.ios.try_remove(token as usize)
    }

    /// Whether no request is under way, the log's own excepted.
    pub fn is_idle(&self) -> bool {
        self.ios.is_empty()
    }

    /// Reads from byte `at` of the cache's space on.
    pub fn read(&mut self, io: Io, at: u64, buffer: AlignedBuffer) {
        let token = self.name(io);
        self.outgoing.push(device::Request::read(token, self.data_at + at, buffer));
    }

    /// Writes from byte `at` of the cache's space on.
    pub fn write(&mut self, io: Io, at: u64, buffer: AlignedBuffer) {
        let token = self.name(io);
        self.outgoing.push(device::Request::write(token, self.data_at + at, buffer));
    }

    /// Requests that are yet to be submitted, for the log to add its own.
    pub fn outgoing(&mut self) -> &mut Vec<device::Request> {
        &mut self.outgoing
    }

    /// The device itself, for what is read before anything is under way.
    pub fn cache(&mut self) -> &mut Box<dyn BlockIo> {
        &mut self.cache
    }

    /// Hands the device all requests at once.
    pub fn submit(&mut self) {
        if !self.outgoing.is_empty() {
            self.cache.submit_all(&mut self.outgoing);
        }
    }

    /// Asks the device what it has done; whether there is anything.
    pub fn collect(&mut self) -> bool {
        debug_assert!(self.arrived.is_empty(), "all is taken before more is asked for");
        self.cache.completed(&mut self.arrived);
        self.arrived.reverse();
        !self.arrived.is_empty()
    }

    /// Takes the oldest completion.
    pub fn arrived(&mut self) -> Option<device::Completion> {
        self.arrived.pop()
    }

    /// Whom to call when something is done.
    pub fn notify(&mut self, waker: Waker) {
        self.cache.notify(waker);
    }

    /// What polls as readable when something is done and nobody is called.
    pub fn pollable(&self) -> Option<BorrowedFd<'_>> {
        self.cache.pollable()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_tier::block::MemoryDisk;

    #[test]
    fn requests_are_submitted_together_and_taken_in_their_order() {
        let mut device = Device::new(Box::new(MemoryDisk::new(1 << 20).open()), 8192);
        let (store, gather) = (Io::Store { op: 7, fill: 0 }, Io::Gather { op: 7, held: 1 });
        let mut bytes = AlignedBuffer::zeroed(4096);
        bytes.fill(5);
        device.write(store, 4096, bytes);
        device.read(gather, 4096, AlignedBuffer::zeroed(4096));
        assert!(!device.collect() && !device.is_idle(), "nothing was submitted");
        device.submit();
        assert!(device.collect());
        let (first, second) = (device.arrived().unwrap(), device.arrived().unwrap());
        assert!(device.arrived().is_none());
        assert_eq!((device.owner(first.token), device.owner(second.token)), (Some(store), Some(gather)));
        assert_eq!((second.offset, second.buffer[0]), (12288, 5));
        assert!(device.is_idle() && device.owner(second.token).is_none());
    }
}
