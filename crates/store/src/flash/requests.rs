//! Requests to the device: those waiting to be submitted, their results, and how far writes are durable.

use std::sync::Arc;

use super::fetch::FetchId;
use super::syncs::Syncs;
use tiermem_tier::block::{BlockError, BlockIo, Completion, OpenError, Request};

/// Purpose of a request to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// An item is read back.
    Fetch(FetchId),
    /// A piece of a segment is written.
    Chunk {
        /// The segment.
        segment: u32,
        /// The first byte.
        start: u32,
    },
    /// A segment is read to be emptied.
    Victim,
    /// A part of a checkpoint is written.
    Checkpoint,
    /// What was written is made durable.
    Sync,
}

impl Purpose {
    /// The number by which a request carries it.
    pub fn token(self) -> u64 {
        match self {
            Purpose::Fetch(id) => id.0 << 2,
            Purpose::Chunk { segment, start } => u64::from(segment) << 32 | u64::from(start) | 1,
            Purpose::Victim => 2,
            Purpose::Checkpoint => 3,
            Purpose::Sync => 7,
        }
    }

    /// Chunks start at multiples of a block, so the lowest bits are free.
    pub fn of(token: u64) -> Purpose {
        match token & 3 {
            0 => Purpose::Fetch(FetchId(token >> 2)),
            1 => Purpose::Chunk { segment: (token >> 32) as u32, start: token as u32 & !3 },
            2 => Purpose::Victim,
            _ if token == Purpose::Sync.token() => Purpose::Sync,
            _ => Purpose::Checkpoint,
        }
    }
}

/// Requests of one region. What they write counts as unsynced until a sync that began later is done.
pub struct Requests {
    io: Box<dyn BlockIo>,
    waiting: Vec<Request>,
    completions: Vec<Completion>,
    syncs: Syncs,
}

impl Requests {
    /// To a device.
    pub fn new(io: Box<dyn BlockIo>, syncs: Syncs) -> Self {
        Requests { io, waiting: Vec::new(), completions: Vec::new(), syncs }
    }

    /// Whom to wake when the device has done something.
    pub fn notify(&mut self, waker: Arc<dyn Fn() + Send + Sync>) {
        self.io.notify(waker);
    }

    /// Queues a request until it is [submitted](Self::submit).
    pub fn push(&mut self, request: Request) {
        self.waiting.push(request);
    }

    /// Whether there is something to hand over.
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.waiting.is_empty() || self.syncs.is_due()
    }

    /// Begins a sync if one is due; whether it is.
    pub fn begin_sync(&mut self) -> bool {
        let is_due = self.syncs.is_due();
        if is_due {
            self.syncs.begin();
            self.waiting.push(Request::sync(Purpose::Sync.token()));
        }
        is_due
    }

    /// Hands everything over that waits.
    pub fn submit(&mut self) {
        self.io.submit_all(&mut self.waiting);
    }

    /// Whether the device has something to do.
    pub fn is_busy(&self) -> bool {
        self.io.in_flight() > 0
    }

    /// Waits until the device has done something, if it has anything to do.
    pub fn wait(&mut self) {
        if self.is_busy() {
            self.io.wait(&mut self.completions);
        }
    }

    /// Takes completed requests. Return the memory by [`Self::give_back`].
    pub fn take_completions(&mut self) -> Vec<Completion> {
        let mut completions = std::mem::take(&mut self.completions);
        self.io.completed(&mut completions);
        completions
    }

    /// Gives the memory of what was taken back for reuse.
    pub fn give_back(&mut self, mut completions: Vec<Completion>) {
        completions.clear();
        if self.completions.is_empty() {
            self.completions = completions;
        }
    }

    /// Writes at once, through the page cache.
    ///
    /// # Errors
    /// When the device cannot.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.io.write_at(offset, bytes)
    }

    /// Makes all that was written durable, and waits for that.
    ///
    /// # Errors
    /// When the device cannot.
    pub fn sync_now(&mut self) -> Result<(), BlockError> {
        self.io.sync()
    }

    /// Sees to it that the device has so many bytes, and waits for that.
    ///
    /// # Errors
    /// When it cannot.
    pub fn grow(&mut self, capacity_bytes: u64) -> Result<(), OpenError> {
        self.io.grow(capacity_bytes)
    }

    /// Durability of writes.
    #[inline]
    pub fn syncs(&self) -> &Syncs {
        &self.syncs
    }

    /// The same, to ask for more.
    #[inline]
    pub fn syncs_mut(&mut self) -> &mut Syncs {
        &mut self.syncs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_sys::aligned::AlignedBuffer;
    use tiermem_tier::block::Immediate;

    #[test]
    fn a_purpose_is_known_by_its_token() {
        let purposes = [
            Purpose::Fetch(FetchId(0)),
            Purpose::Fetch(FetchId(u64::MAX >> 2)),
            Purpose::Chunk { segment: u32::MAX, start: 4096 * 99 },
            Purpose::Victim,
            Purpose::Checkpoint,
            Purpose::Sync,
        ];
        purposes.into_iter().for_each(|purpose| assert_eq!(Purpose::of(purpose.token()), purpose));
    }

    #[test]
    fn what_waits_is_handed_over_with_the_sync_that_is_due() {
        let mut requests = Requests::new(Box::new(Immediate::new(1 << 16)), Syncs::new(true));
        assert!(!requests.is_due() && !requests.begin_sync());
        requests.push(Request::write(Purpose::Victim.token(), 4096, AlignedBuffer::zeroed(4096)));
        let moment = requests.syncs_mut().ask();
        assert!(requests.is_due() && requests.begin_sync() && !requests.begin_sync());
        requests.submit();
        requests.wait();
        let done = requests.take_completions();
        let purposes: Vec<Purpose> = done.iter().map(|it| Purpose::of(it.token)).collect();
        assert_eq!(purposes, [Purpose::Victim, Purpose::Sync]);
        requests.give_back(done);
        requests.syncs_mut().end();
        assert!(requests.syncs().is_past(moment) && !requests.is_due() && !requests.is_busy());
    }
}
