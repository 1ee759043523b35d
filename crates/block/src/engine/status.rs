//! Status of the cache at one moment, for the live page and metrics.

use serde::{Deserialize, Serialize};
use tiermem_policy::extents::{Mode, Service};

use super::shared::Shared;
use super::{Counts, Engine};
use crate::config::ExportMode;

/// All figures at one moment. Making it costs some microseconds for each export, independent of the cache's contents.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The cache.
    pub cache: CacheStatus,
    /// The exports, in the server's order.
    pub exports: Vec<ExportStatus>,
}

/// The cache, and what all exports have of it together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheStatus {
    /// Bytes that blocks may fill.
    pub capacity_bytes: u64,
    /// Bytes of the blocks that there are.
    pub held_bytes: u64,
    /// Number of blocks of each size, ascending.
    pub blocks: Vec<BlockSize>,
    /// Bytes that a store is not known to have for good.
    pub dirty_bytes: u64,
    /// Memory that the map, the order of eviction and the log's table take.
    pub metadata_bytes: u64,
    /// Bytes of memory for each GiB of blocks that there are; none while the cache is less than 1% full, for most of this memory does
    /// not depend on what is cached.
    pub metadata_bytes_per_gib: Option<f64>,
    /// Requests' parts that wait for something to be written back, now.
    pub parked: u64,
    /// Bytes that get nothing more before a restart, because the device has failed somewhere among them.
    pub retired_bytes: u64,
    /// Dirty bytes that the device has not taken: they are in memory until the stores have them.
    pub unstored_bytes: u64,
    /// Dirty bytes that the start took as they were, since they were being overwritten when the process before ended: what of them was
    /// damaged cannot be told.
    pub unchecked_bytes: u64,
    /// Whether the device has failed in so many places that the stores serve alone.
    pub out_of_use: bool,
    /// The log; none where nothing outlives the process.
    pub log: Option<LogStatus>,
}

/// Blocks of a size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockSize {
    /// The size.
    pub block_bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
}

/// The log of what is cached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStatus {
    /// Its size.
    pub capacity_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes written since the start.
    pub written_bytes: u64,
    /// Batches of records written since the start.
    pub batches: u64,
    /// Times that the cache's device was asked to make all durable, since the start.
    pub syncs: u64,
    /// Seals since the start.
    pub seals: u64,
    /// Checkpoints since the start.
    pub checkpoints: u64,
    /// Pages of its table that were read again since the start, for want of memory for all of them.
    pub table_reads: u64,
    /// Whether it takes new work now: where not, no operation begins, and nothing is begun to be written back.
    pub has_room: bool,
    /// Number of times that a part of a request found no room since the start: on arrival, and at each retry.
    pub refusals: u64,
    /// Number of times that one found room since the start.
    pub admissions: u64,
    /// Number of the cleaner's decisions since the start while there was room, on something new: a later time, a request, or an
    /// outcome.
    pub cleaner_steps: u64,
    /// Why nothing can be written to it any more.
    pub failure: Option<String>,
}

/// An export.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExportStatus {
    /// Its name.
    pub name: String,
    /// Where its writes go.
    pub mode: ExportMode,
    /// Its size.
    pub size_bytes: u64,
    /// Where it lives.
    pub store: String,
    /// Counters since the start.
    #[serde(flatten)]
    pub counts: Counts,
    /// The share of reads that were hits; none before the first.
    pub read_hit_ratio: Option<f64>,
    /// The share of writes that were.
    pub write_hit_ratio: Option<f64>,
    /// Mean bytes of requests that missed something.
    pub missed_request_mean_bytes: Option<f64>,
    /// Mean bytes of the blocks that were allocated.
    pub allocated_block_mean_bytes: Option<f64>,
    /// Bytes that were not written to the store yet.
    pub dirty_bytes: u64,
    /// For how long the oldest of these have been dirty, seconds; none where nothing is, or all is on its way.
    pub dirty_age_s: Option<f64>,
    /// Groups of writes between two flushes that wait to go to the store one after another.
    pub epochs: u64,
    /// Flushes of its store.
    pub store_flushes: u64,
    /// Flushes that the order of write-back has not heeded.
    pub epoch_merges: u64,
    /// Groups of flushes that the store has got as a whole, where they go in groups.
    pub write_back_groups: u64,
    /// How often such a group grew to a later flush.
    pub write_back_groups_grown: u64,
    /// Copies of what a write was to change and a group needed.
    pub copies_out: u64,
    /// Their bytes.
    pub copied_out_bytes: u64,
    /// For how long the store has been whole, seconds: an image as of a flush. None while a group is under way, and in other orders.
    pub store_whole_s: Option<f64>,
    /// For how long its store has had no room for some of what is written back, seconds. None while it has.
    pub store_full_s: Option<f64>,
    /// Whether writes fail that would have to wait for its store, which has no room.
    pub refuses_writes: bool,
    /// Its quota of the cache.
    pub quota_bytes: Option<u64>,
    /// The number of the owner of its space: exports without a quota share number 0.
    pub share: u16,
    /// Bytes of the cache that this owner holds.
    pub share_held_bytes: u64,
    /// Requests' parts that wait for something to be written back, now.
    pub parked_now: u64,
    /// Clients that are there now.
    pub clients: u64,
    /// Requests that were refused or failed, since the start.
    pub errors: u64,
}

/// A quotient, where there is something to divide by.
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl Engine {
    /// Status of the cache. Clients and their errors are the server's figures, and 0 here.
    pub fn status(&self) -> Status {
        let now_ns = (self.clock)();
        let exports = (0..self.shared.volumes.len()).map(|at| self.export_status(at, now_ns)).collect();
        Status { cache: self.cache_status(), exports }
    }

    /// The log; none where nothing outlives the process.
    pub fn log_status(&self) -> Option<LogStatus> {
        let Shared { log, write_back, .. } = &self.shared;
        self.log_stats().map(|stats| LogStatus {
            capacity_bytes: stats.log_bytes,
            used_bytes: stats.log_used_bytes,
            written_bytes: stats.log_written_bytes,
            batches: stats.batches,
            syncs: stats.syncs,
            seals: stats.seals,
            checkpoints: stats.checkpoints,
            table_reads: stats.pages_read,
            has_room: log.has_room(),
            refusals: log.refusals(),
            admissions: log.admissions(),
            cleaner_steps: write_back.steps(),
            failure: log.failure().map(str::to_owned),
        })
    }

    fn cache_status(&self) -> CacheStatus {
        let extents = &self.shared.extents;
        let geometry = extents.geometry();
        let blocks: Vec<_> = (extents.map().blocks().iter().enumerate())
            .map(|(class, blocks)| BlockSize { block_bytes: geometry.class_bytes(class), blocks: *blocks })
            .collect();
        let held_bytes = blocks.iter().map(|size| size.block_bytes * size.blocks).sum();
        let (growing, fixed) = extents.metadata_bytes();
        let metadata_bytes = growing + fixed + self.log_stats().map_or(0, |stats| stats.memory_bytes);
        CacheStatus {
            capacity_bytes: geometry.capacity_bytes(),
            held_bytes,
            blocks,
            dirty_bytes: extents.units().dirty_bytes(),
            metadata_bytes,
            metadata_bytes_per_gib: ratio(metadata_bytes, held_bytes)
                .filter(|_| held_bytes >= geometry.capacity_bytes() / 100)
                .map(|ratio| ratio * (1u64 << 30) as f64),
            parked: self.ops.parked(),
            retired_bytes: extents.map().retired_bytes(),
            unstored_bytes: self.shared.unstored.bytes(),
            unchecked_bytes: self.shared.unchecked_bytes,
            out_of_use: extents.service() == Service::OutOfUse,
            log: self.log_status(),
        }
    }

    fn export_status(&self, at: usize, now_ns: u64) -> ExportStatus {
        let Shared { volumes, extents, write_back, .. } = &self.shared;
        let (volume, export) = (&volumes[at], &volumes.exports()[at]);
        let counts = volume.counts;
        let standing = write_back.cleaner().standing(volume.number);
        let order = standing.counts;
        let age_ns = standing.first_dirty_ns.map(|since_ns| now_ns.saturating_sub(since_ns));
        ExportStatus {
            name: export.name.clone(),
            mode: match volume.mode {
                _ if export.read_only => ExportMode::ReadOnly,
                Mode::WriteBack => ExportMode::WriteBack,
                Mode::WriteThrough => ExportMode::WriteThrough,
                Mode::WriteAround => ExportMode::WriteAround,
            },
            size_bytes: export.size_bytes,
            store: volume.backing.describe(),
            read_hit_ratio: ratio(counts.read_hits, counts.reads),
            write_hit_ratio: ratio(counts.write_hits, counts.writes),
            missed_request_mean_bytes: ratio(counts.missed_request_bytes, counts.missed_requests),
            allocated_block_mean_bytes: ratio(counts.allocated_bytes, counts.allocated_blocks),
            counts,
            dirty_bytes: standing.unwritten_bytes(),
            dirty_age_s: age_ns.map(|ns| ns as f64 / 1e9),
            epochs: standing.epochs,
            store_flushes: order.store_flushes,
            epoch_merges: order.merges,
            write_back_groups: order.groups,
            write_back_groups_grown: order.grown_groups,
            copies_out: order.copies_out,
            copied_out_bytes: order.copied_out_bytes,
            store_whole_s: standing
                .whole_since_ns
                .map(|since_ns| now_ns.saturating_sub(since_ns) as f64 / 1e9),
            store_full_s: standing.full_since_ns.map(|since_ns| now_ns.saturating_sub(since_ns) as f64 / 1e9),
            refuses_writes: standing.refuses,
            quota_bytes: volume.quota_bytes,
            share: volume.share.0,
            share_held_bytes: extents.shares().held_bytes(volume.share),
            parked_now: self.ops.parked_of(at),
            clients: 0,
            errors: 0,
        }
    }
}
