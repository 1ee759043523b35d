//! Counters of the flash tier beside the log's own. All only grow, except where noted.

use tiermem_policy::log::LogCounters;

use tiermem_policy::shard::LogWork;

use super::Flash;

/// Counters of one shard's flash tier.
#[derive(Clone, Debug, Default)]
pub struct FlashStats {
    /// Decisions of the log.
    pub log: LogCounters,
    /// Bytes of the region.
    pub capacity_bytes: u64,
    /// Items now.
    pub items: u64,
    /// Bytes of those items, as far as they are known.
    pub live_bytes: u64,
    /// Bytes that items may fill.
    pub room_bytes: u64,
    /// Bytes of segments that are not empty.
    pub used_bytes: u64,
    /// Bytes of memory for segment states and the table of recent keys.
    pub metadata_bytes: u64,
    /// Bytes of memory for buffers.
    pub buffer_bytes: u64,
    /// Items that a restart found.
    pub recovered_items: u64,
    /// Items that a restart would find if the process died now.
    pub recoverable_items: u64,
    /// Reads for look-ups.
    pub reads: u64,
    /// Bytes read, for look-ups and to empty segments.
    pub read_bytes: u64,
    /// Bytes of items written.
    pub write_bytes: u64,
    /// Bytes of journal written.
    pub journal_bytes: u64,
    /// Bytes of checkpoints written.
    pub checkpoint_bytes: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Checkpoints that could not be written.
    pub checkpoints_failed: u64,
    /// How often the journal was full before its checkpoint was complete.
    pub journal_overruns: u64,
    /// Syncs done, so that replies outlive power loss.
    pub syncs: u64,
    /// Items of segments that could not be read.
    pub lost_items: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Whether the device was given up after too many write errors.
    pub broken: bool,
    /// Whether a restart would find nothing, because the journal cannot be written.
    pub unrecoverable: bool,
    /// The last error of the device, in words.
    pub last_error: Option<String>,
}

impl FlashStats {
    /// Bytes written to the device for each byte of items that came from memory; 0 before the first.
    pub fn write_amplification(&self) -> f64 {
        let written = self.write_bytes + self.journal_bytes + self.checkpoint_bytes;
        if self.log.admitted_bytes == 0 { 0.0 } else { written as f64 / self.log.admitted_bytes as f64 }
    }
}

impl Flash {
    /// The run that left the contents restored at opening; `None` where it began empty.
    pub fn found_session(&self) -> Option<[u8; 16]> {
        self.found_session
    }

    /// All counters now, those of the log among them.
    pub fn stats(&self, work: &LogWork) -> FlashStats {
        let (log, written, checkpoints) = (work.log(), self.restart.written(), work.checkpoints().counters());
        let given_up = self.restart.given_up();
        FlashStats {
            log: log.counters(),
            capacity_bytes: self.growths.region_capacity_bytes(),
            items: self.items.iter().sum(),
            live_bytes: log.live_bytes(),
            room_bytes: log.room_bytes(),
            recoverable_items: if work.checkpoints().is_blank() || given_up.is_some() {
                0
            } else {
                self.restart.items()
            },
            used_bytes: u64::from(log.segments_used()) * u64::from(self.layout.segment_bytes),
            metadata_bytes: log.metadata_bytes(),
            buffer_bytes: self.segments.buffer_bytes() + self.fetches.bytes() as u64,
            journal_bytes: written.journal_bytes,
            checkpoint_bytes: written.checkpoint_bytes,
            checkpoints: checkpoints.completed,
            checkpoints_failed: checkpoints.failed,
            journal_overruns: checkpoints.overruns,
            write_errors: self.stats.write_errors + written.errors,
            unrecoverable: given_up.is_some(),
            last_error: given_up.map(str::to_owned).or_else(|| self.stats.last_error.clone()),
            ..self.stats.clone()
        }
    }
}
