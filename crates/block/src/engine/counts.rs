//! Counters of a volume.

use serde::{Deserialize, Serialize};
use tiermem_policy::extents::Plan;

use super::op::Kind;

/// Requests, hits, and what was moved where, since the start.
///
/// Requests are those of clients, counted when they are answered; a long one that the engine cuts is one. Bytes that devices move are those
/// of whole units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Reads that hit entirely.
    pub read_hits: u64,
    /// Writes, those of zeroes included.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Writes that hit entirely.
    pub write_hits: u64,
    /// Trims.
    pub trims: u64,
    /// Prefetches.
    pub prefetches: u64,
    /// Flushes.
    pub flushes: u64,
    /// Questions about what is where.
    pub describes: u64,
    /// Reads and writes that missed something.
    pub missed_requests: u64,
    /// Their bytes.
    pub missed_request_bytes: u64,
    /// Parts of reads that got no place for what they missed: by the rules of admission, or because all that would have had to go was
    /// dirty.
    pub bypassed_reads: u64,
    /// Blocks allocated.
    pub allocated_blocks: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Reads of the backing store.
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
    /// Number of times that an operation began to wait for a write-back.
    pub parked: u64,
    /// Reads and writes of the cache's device that failed or gave other bytes than were stored.
    pub cache_failures: u64,
    /// Units that could be read no more until they were written anew: dirty, and lost by the cache's device.
    pub poisoned_units: u64,
    /// Writes and flushes of write-back that the store failed.
    pub write_back_failures: u64,
    /// Parts of writes, and flushes, that failed because they would have had to wait for a store without room.
    pub full_refusals: u64,
}

impl Counts {
    /// A client's request of this kind is answered.
    pub(super) fn note_request(&mut self, kind: Kind, bytes: u64, missed: bool) {
        match kind {
            Kind::Read => {
                self.reads += 1;
                self.read_bytes += bytes;
                self.read_hits += u64::from(!missed);
            }
            Kind::Write | Kind::Zero => {
                self.writes += 1;
                self.written_bytes += bytes;
                self.write_hits += u64::from(!missed);
            }
            Kind::Trim => self.trims += 1,
            Kind::Prefetch => self.prefetches += 1,
            // The cleaner's own; no client asks for them.
            Kind::Copy | Kind::TrimStore => {}
        }
        if missed && (kind == Kind::Read || kind.is_write()) {
            self.missed_requests += 1;
            self.missed_request_bytes += bytes;
        }
    }

    /// An operation is planned.
    pub(super) fn note_plan(&mut self, kind: Kind, plan: &Plan) {
        self.bypassed_reads += u64::from(kind == Kind::Read && plan.bypassed && !plan.hit);
        self.allocated_blocks += plan.allocated_blocks;
        self.allocated_bytes += plan.allocated_bytes;
    }
}
