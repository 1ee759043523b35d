//! Counts of a simulated block cache for one volume.

use tiermem_policy::extents::cleaner::OrderCounts;
use tiermem_policy::extents::{Part, Plan, Request};

/// Requests, hits, and bytes moved. Bytes are those of whole units that devices move.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Reads of clients.
    pub reads: u64,
    /// Writes of clients.
    pub writes: u64,
    /// Reads whose bytes were all in the cache.
    pub read_hits: u64,
    /// Writes whose blocks were all in the cache.
    pub write_hits: u64,
    /// Bytes that clients read.
    pub read_bytes: u64,
    /// Bytes that clients wrote.
    pub written_bytes: u64,
    /// Requests to the backing store and their bytes.
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
    /// Reads that were spared the cache's device by copies in DRAM; of requests, not of what is written back.
    pub memory_reads: u64,
    /// Their bytes.
    pub memory_read_bytes: u64,
    /// Of the bytes written to the backing store, those that were dirty at the end.
    pub dirty_at_end_bytes: u64,
    /// Requests that missed something.
    pub missed_requests: u64,
    /// Their bytes.
    pub missed_request_bytes: u64,
    /// Reads that got no place for what they missed.
    pub bypassed_reads: u64,
    /// Requests that waited until something else had been written back.
    pub waited_requests: u64,
    /// Blocks allocated.
    pub allocated_blocks: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Sum of the reads' latencies, as the costs say.
    pub read_latency_ns: u64,
    /// Sum of the writes'.
    pub write_latency_ns: u64,
    /// What the order of write-back has kept, and at which price: with cleaning in the background.
    pub order: OrderCounts,
    metadata_looks: u64,
    metadata_bytes: u64,
    blocks: u64,
}

impl Counts {
    /// Counts a request and what was done for it.
    pub(super) fn add(&mut self, request: &Request, plan: &Plan, latency_ns: u64) {
        if request.write.is_some() {
            self.writes += 1;
            self.write_hits += u64::from(plan.hit);
            self.written_bytes += request.bytes;
            self.write_latency_ns += latency_ns;
        } else {
            self.reads += 1;
            self.read_hits += u64::from(plan.hit);
            self.read_bytes += request.bytes;
            self.read_latency_ns += latency_ns;
        }
        if !plan.hit {
            self.missed_requests += 1;
            self.missed_request_bytes += request.bytes;
        }
        self.bypassed_reads += u64::from(plan.bypassed);
        self.allocated_blocks += plan.allocated_blocks;
        self.allocated_bytes += plan.allocated_bytes;
        let parts = |parts: &[Part]| (parts.len() as u64, parts.iter().map(|part| part.bytes).sum::<u64>());
        let (ios, bytes) = parts(&plan.cached);
        self.cache_reads += ios;
        self.cache_read_bytes += bytes;
        let (ios, bytes) = parts(&plan.fill);
        self.cache_writes += ios;
        self.cache_written_bytes += bytes;
        self.core_reads += plan.fetch.len() as u64;
        self.core_read_bytes += plan.fetch.iter().map(|range| range.end - range.start).sum::<u64>();
        self.core_writes += plan.through.len() as u64;
        self.core_written_bytes += plan.through.iter().map(|range| range.end - range.start).sum::<u64>();
    }

    /// Counts a read that was spared the cache's device.
    pub(super) fn spared(&mut self, bytes: u64) {
        self.memory_reads += 1;
        self.memory_read_bytes += bytes;
        self.cache_reads -= 1;
        self.cache_read_bytes -= bytes;
    }

    /// Counts what was written back: read from the cache, written to the backing store.
    pub(super) fn write_back(&mut self, parts: &[Part]) {
        let (ios, bytes) = (parts.len() as u64, parts.iter().map(|part| part.bytes).sum::<u64>());
        self.cache_reads += ios;
        self.cache_read_bytes += bytes;
        self.core_writes += ios;
        self.core_written_bytes += bytes;
    }

    /// Counts what was read from the cache to be written back.
    pub(super) fn copied(&mut self, requests: u64, bytes: u64) {
        self.cache_reads += requests;
        self.cache_read_bytes += bytes;
    }

    /// Counts a write to the backing store of what was written back.
    pub(super) fn sent(&mut self, bytes: u64) {
        self.core_writes += 1;
        self.core_written_bytes += bytes;
    }

    pub(super) fn note_metadata(&mut self, bytes: u64, blocks: u64) {
        self.metadata_looks += 1;
        self.metadata_bytes += bytes;
        self.blocks += blocks;
    }

    /// Metadata in the mean over the run, in bytes, and blocks in the mean; of the whole cache.
    pub fn metadata(&self) -> (u64, u64) {
        let looks = self.metadata_looks.max(1);
        (self.metadata_bytes / looks, self.blocks / looks)
    }

    /// The sum with another volume's counts of the same cache.
    pub fn plus(&self, other: &Counts) -> Counts {
        Counts {
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            read_hits: self.read_hits + other.read_hits,
            write_hits: self.write_hits + other.write_hits,
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
            core_reads: self.core_reads + other.core_reads,
            core_read_bytes: self.core_read_bytes + other.core_read_bytes,
            core_writes: self.core_writes + other.core_writes,
            core_written_bytes: self.core_written_bytes + other.core_written_bytes,
            cache_reads: self.cache_reads + other.cache_reads,
            cache_read_bytes: self.cache_read_bytes + other.cache_read_bytes,
            cache_writes: self.cache_writes + other.cache_writes,
            cache_written_bytes: self.cache_written_bytes + other.cache_written_bytes,
            memory_reads: self.memory_reads + other.memory_reads,
            memory_read_bytes: self.memory_read_bytes + other.memory_read_bytes,
            dirty_at_end_bytes: self.dirty_at_end_bytes + other.dirty_at_end_bytes,
            missed_requests: self.missed_requests + other.missed_requests,
            missed_request_bytes: self.missed_request_bytes + other.missed_request_bytes,
            bypassed_reads: self.bypassed_reads + other.bypassed_reads,
            waited_requests: self.waited_requests + other.waited_requests,
            allocated_blocks: self.allocated_blocks + other.allocated_blocks,
            allocated_bytes: self.allocated_bytes + other.allocated_bytes,
            read_latency_ns: self.read_latency_ns + other.read_latency_ns,
            write_latency_ns: self.write_latency_ns + other.write_latency_ns,
            order: self.order.plus(&other.order),
            metadata_looks: self.metadata_looks + other.metadata_looks,
            metadata_bytes: self.metadata_bytes + other.metadata_bytes,
            blocks: self.blocks + other.blocks,
        }
    }
}
