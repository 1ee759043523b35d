//! What the cache has done for a volume.

use tiermem_policy::extents::{Plan, Request};

/// Requests, hits, and what was moved where. Bytes are those of whole units that devices move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads, in operations of at most 1 MiB.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Reads whose bytes were all in the cache.
    pub read_hits: u64,
    /// Writes whose blocks were all in the cache.
    pub write_hits: u64,
    /// Requests to the backing store.
    pub core_reads: u64,
    /// Bytes read from the backing store.
    pub core_read_bytes: u64,
    /// Writes to the backing store.
    pub core_writes: u64,
    /// Bytes written to the backing store.
    pub core_written_bytes: u64,
    /// Reads of the cache's device.
    pub cache_reads: u64,
    /// Bytes read from the cache's device.
    pub cache_read_bytes: u64,
    /// Writes to the cache's device.
    pub cache_writes: u64,
    /// Bytes written to the cache's device.
    pub cache_written_bytes: u64,
    /// Requests that missed something.
    pub missed_requests: u64,
    /// Their bytes.
    pub missed_request_bytes: u64,
    /// Blocks allocated.
    pub allocated_blocks: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Requests that waited for something to be written back.
    pub parked: u64,
    /// Reads and writes of the cache's device that failed or gave other bytes than were stored.
    pub cache_failures: u64,
    /// Units that can be read no more until they are written anew: dirty, and lost by the cache's device.
    pub poisoned_units: u64,
    /// Writes and flushes of write-back that the store failed.
    pub write_back_failures: u64,
}

impl Counts {
    pub(super) fn note_plan(&mut self, request: &Request, plan: &Plan) {
        if request.write.is_some() {
            self.writes += 1;
            self.write_hits += u64::from(plan.hit);
        } else {
            self.reads += 1;
            self.read_hits += u64::from(plan.hit);
        }
        if !plan.hit {
            self.missed_requests += 1;
            self.missed_request_bytes += request.bytes;
        }
        self.allocated_blocks += plan.allocated_blocks;
        self.allocated_bytes += plan.allocated_bytes;
    }
}
