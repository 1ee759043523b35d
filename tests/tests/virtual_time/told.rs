//! What both bodies count, to be compared.

use tiermem_block::engine::{Counts as Live, ExportStatus};
use tiermem_policy::extents::cleaner::OrderCounts;
use tiermem_sim::block::Counts as Simulated;

/// Counters common to both bodies, for each volume.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Told {
    pub reads: u64,
    pub writes: u64,
    pub read_hits: u64,
    pub write_hits: u64,
    pub missed_request_bytes: u64,
    pub bypassed_reads: u64,
    pub waited_requests: u64,
    pub allocated_blocks: u64,
    pub allocated_bytes: u64,
    pub core_reads: u64,
    pub core_read_bytes: u64,
    pub core_writes: u64,
    pub core_written_bytes: u64,
    pub cache_reads: u64,
    pub cache_read_bytes: u64,
    pub cache_writes: u64,
    pub cache_written_bytes: u64,
    pub order: OrderCounts,
}

/// What a live volume's order of write-back has counted.
pub fn order_of_live(status: &ExportStatus) -> OrderCounts {
    OrderCounts {
        store_flushes: status.store_flushes,
        merges: status.epoch_merges,
        groups: status.write_back_groups,
        grown_groups: status.write_back_groups_grown,
        copies_out: status.copies_out,
        copied_out_bytes: status.copied_out_bytes,
    }
}

impl Told {
    pub fn of_simulated(counts: &Simulated) -> Self {
        assert_eq!(counts.dirty_at_end_bytes, 0, "all of it was old");
        Told {
            reads: counts.reads,
            writes: counts.writes,
            read_hits: counts.read_hits,
            write_hits: counts.write_hits,
            missed_request_bytes: counts.missed_request_bytes,
            bypassed_reads: counts.bypassed_reads,
            waited_requests: counts.waited_requests,
            allocated_blocks: counts.allocated_blocks,
            allocated_bytes: counts.allocated_bytes,
            core_reads: counts.core_reads,
            core_read_bytes: counts.core_read_bytes,
            core_writes: counts.core_writes,
            core_written_bytes: counts.core_written_bytes,
            cache_reads: counts.cache_reads,
            cache_read_bytes: counts.cache_read_bytes,
            cache_writes: counts.cache_writes,
            cache_written_bytes: counts.cache_written_bytes,
            order: counts.order,
        }
    }

    pub fn of_live(counts: &Live, waited_requests: u64, order: OrderCounts) -> Self {
        Told {
            reads: counts.reads,
            writes: counts.writes,
            read_hits: counts.read_hits,
            write_hits: counts.write_hits,
            missed_request_bytes: counts.missed_request_bytes,
            bypassed_reads: counts.bypassed_reads,
            waited_requests,
            allocated_blocks: counts.allocated_blocks,
            allocated_bytes: counts.allocated_bytes,
            core_reads: counts.core_reads,
            core_read_bytes: counts.core_read_bytes,
            core_writes: counts.core_writes,
            core_written_bytes: counts.core_written_bytes,
            cache_reads: counts.cache_reads,
            cache_read_bytes: counts.cache_read_bytes,
            cache_writes: counts.cache_writes,
            cache_written_bytes: counts.cache_written_bytes,
            order,
        }
    }
}
