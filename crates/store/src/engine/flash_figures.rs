//! Figures of the flash tier, as the store reports them.

use crate::flash::{Flash, FlashStats};
use serde::Serialize;
use tiermem_policy::shard::Shard;

use super::TierStats;

const MS_PER_YEAR: f64 = 365.25 * 86_400_000.0;

/// The flash tier's figures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FlashFigures {
    /// Bytes that live items may fill.
    pub room_bytes: u64,
    /// Items appended from memory.
    pub admitted: u64,
    /// Bytes of those items.
    pub admitted_bytes: u64,
    /// Items turned away to spare the device.
    pub rejected: u64,
    /// Items that left memory and were there still, unchanged.
    pub unchanged: u64,
    /// Offers refused because segments were not emptied in time.
    pub refused: u64,
    /// Items appended again because their segment was emptied.
    pub kept: u64,
    /// Segments emptied.
    pub segments_emptied: u64,
    /// Reads for look-ups.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written: items, journal and checkpoints.
    pub written_bytes: u64,
    /// Bytes of items among them, rounded up to whole blocks.
    pub item_written_bytes: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// How often the journal was full before its checkpoint was complete.
    pub journal_overruns: u64,
    /// Bytes written for each byte that came from memory.
    pub write_amplification: f64,
    /// Years until the device has been written as often as it bears, at the rate since the start; where that is configured.
    pub lifetime_years: Option<f64>,
    /// Items that were not kept because tier 0 has no memory for their index entries.
    pub unindexed: u64,
    /// Items that the last restart found.
    pub recovered_items: u64,
    /// Items that a restart would find if the process died now.
    pub recoverable_items: u64,
    /// Syncs done, so that replies outlive power loss.
    pub syncs: u64,
    /// Reads and writes that failed.
    pub io_errors: u64,
    /// Items that could not be read or written.
    pub lost_items: u64,
    /// Whether the device was given up.
    pub broken: bool,
    /// Whether a restart will find what is there now.
    pub recoverable: bool,
    /// The last error, in words.
    pub last_error: Option<String>,
}

impl FlashFigures {
    fn of(stats: &FlashStats) -> Self {
        FlashFigures {
            lifetime_years: None,
            unindexed: 0,
            room_bytes: stats.room_bytes,
            admitted: stats.log.admitted,
            admitted_bytes: stats.log.admitted_bytes,
            rejected: stats.log.rejected,
            unchanged: stats.log.unchanged,
            refused: stats.log.refused,
            kept: stats.log.kept,
            segments_emptied: stats.log.segments_emptied,
            reads: stats.reads,
            read_bytes: stats.read_bytes,
            written_bytes: stats.write_bytes + stats.journal_bytes + stats.checkpoint_bytes,
            item_written_bytes: stats.write_bytes,
            checkpoints: stats.checkpoints,
            journal_overruns: stats.journal_overruns,
            write_amplification: stats.write_amplification(),
            recovered_items: stats.recovered_items,
            recoverable_items: stats.recoverable_items,
            syncs: stats.syncs,
            io_errors: stats.read_errors + stats.write_errors,
            lost_items: stats.lost_items,
            broken: stats.broken,
            recoverable: !stats.unrecoverable,
            last_error: stats.last_error.clone(),
        }
    }
}

impl FlashFigures {
    /// Adds another shard's figures.
    pub fn add(&mut self, other: &FlashFigures) {
        let FlashFigures {
            room_bytes,
            admitted,
            admitted_bytes,
            rejected,
            unchanged,
            refused,
            kept,
            segments_emptied,
            reads,
            read_bytes,
            written_bytes,
            item_written_bytes,
            checkpoints,
            journal_overruns,
            write_amplification: _,
            lifetime_years,
            unindexed,
            recovered_items,
            recoverable_items,
            syncs,
            io_errors,
            lost_items,
            broken,
            recoverable,
            last_error,
        } = other;
        self.room_bytes += room_bytes;
        self.admitted += admitted;
        self.admitted_bytes += admitted_bytes;
        self.rejected += rejected;
        self.unchanged += unchanged;
        self.refused += refused;
        self.kept += kept;
        self.segments_emptied += segments_emptied;
        self.reads += reads;
        self.read_bytes += read_bytes;
        self.written_bytes += written_bytes;
        self.item_written_bytes += item_written_bytes;
        self.checkpoints += checkpoints;
        self.journal_overruns += journal_overruns;
        self.write_amplification = match self.admitted_bytes {
            0 => 0.0,
            bytes => self.written_bytes as f64 / bytes as f64,
        };
        // Each is of the whole device, worn by one shard's writes alone: the wear adds up.
        self.lifetime_years = match (self.lifetime_years, *lifetime_years) {
            (Some(one), Some(other)) => Some(1.0 / (1.0 / one + 1.0 / other)),
            (one, other) => one.or(other),
        };
        self.unindexed += unindexed;
        self.recovered_items += recovered_items;
        self.recoverable_items += recoverable_items;
        self.syncs += syncs;
        self.io_errors += io_errors;
        self.lost_items += lost_items;
        self.broken |= broken;
        self.recoverable &= recoverable;
        if self.last_error.is_none() {
            self.last_error.clone_from(last_error);
        }
    }
}

/// What is known of the flash tier beside what it counts itself.
#[derive(Debug, Default)]
pub(super) struct FlashDescription {
    /// Its name in figures.
    name: String,
    /// Bytes that the device bears to be written.
    endurance_bytes: Option<u64>,
    /// When it was attached, in Unix milliseconds; 0 before the clock was set.
    since_ms: u64,
}

impl FlashDescription {
    pub fn new(name: &str, endurance_bytes: Option<u64>) -> Self {
        FlashDescription { name: name.to_owned(), endurance_bytes, since_ms: 0 }
    }

    /// Its time begins with the first call.
    #[inline]
    pub fn begin(&mut self, now_ms: u64) {
        if self.since_ms == 0 {
            self.since_ms = now_ms;
        }
    }

    /// Its figures.
    pub fn figures(&self, flash: &Flash, shard: &Shard) -> Option<FlashFigures> {
        let mut figures = FlashFigures::of(&flash.stats(shard.log()?));
        figures.unindexed = shard.log()?.unindexed();
        figures.lifetime_years = self.lifetime_years(figures.written_bytes, shard.now().unix_ms);
        Some(figures)
    }

    /// Years until it is worn out, at the rate since it was attached.
    fn lifetime_years(&self, written_bytes: u64, now_ms: u64) -> Option<f64> {
        let years = now_ms.saturating_sub(self.since_ms) as f64 / MS_PER_YEAR;
        let worn = written_bytes as f64 / self.endurance_bytes? as f64;
        (worn > 0.0 && years > 0.0).then(|| years / worn)
    }

    /// The flash tier as one more tier.
    pub fn tier_stats(&self, flash: &Flash, shard: &Shard) -> Option<TierStats> {
        let stats = flash.stats(shard.log()?);
        Some(TierStats {
            name: self.name.clone(),
            kind: "flash".to_owned(),
            capacity_bytes: stats.capacity_bytes,
            used_bytes: stats.used_bytes,
            item_bytes: stats.live_bytes,
            items: stats.items,
            hits: stats.log.hits,
            promotions: stats.log.promotions,
            demotions: 0,
            evictions: stats.log.evictions,
            charged_ns: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_lives_as_long_as_its_writes_leave_it() {
        let year_ms = MS_PER_YEAR as u64;
        let mut flash = FlashDescription::new("flash", Some(1000));
        flash.begin(0);
        flash.begin(5);
        flash.begin(9);
        assert_eq!(flash.lifetime_years(0, 5 + year_ms), None, "nothing was written");
        assert_eq!(flash.lifetime_years(100, 5), None, "no time has passed");
        let years = flash.lifetime_years(250, 5 + year_ms).unwrap();
        assert!((years - 4.0).abs() < 1e-9, "{years}");
        assert_eq!(FlashDescription::new("flash", None).lifetime_years(250, year_ms), None);
    }
}
