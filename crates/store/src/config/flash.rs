//! Configuration of the flash tier.

use std::path::PathBuf;

use crate::flash::{Durability, FlashConfig, SharedGrowths, found_region_bytes};
use tiermem_base::tier::TierError;
use tiermem_base::{Bytes, TierSpec};
use tiermem_policy::log::{Admission, RESERVE};
use tiermem_tier::block::Backend;

/// Bytes written at once and emptied at once; the largest item on flash is a little smaller.
const SEGMENT_BYTES: u64 = 2 << 20;
/// Least number of segments of a flash tier: fewer leave no room beside the open, the free and the emptied segments.
const SEGMENTS_MIN: u64 = 16;

/// A flash tier, checked.
#[derive(Clone, Debug)]
pub struct FlashTier {
    /// Its name in figures.
    pub name: String,
    /// The file or block device.
    pub path: PathBuf,
    /// Bytes of it that are used.
    pub capacity: Bytes,
    /// How it is read and written.
    pub backend: Backend,
    /// Bytes that the device bears to be written, where that is known.
    pub endurance: Option<Bytes>,
    admission: Admission,
    durability: Durability,
    segment_bytes: u32,
    reserve: f64,
    reset: bool,
}

impl FlashTier {
    /// Reads the description of a tier of kind `flash`.
    pub(super) fn of(tier: &TierSpec) -> Result<Self, TierError> {
        let options = &tier.flash;
        let (path, capacity) = (tier.path()?.to_owned(), Bytes(tier.bytes()?));
        let segment = options.segment.unwrap_or(Bytes(SEGMENT_BYTES)).0;
        if !(64 << 10..=256 << 20).contains(&segment) || !segment.is_power_of_two() {
            return Err(tier.error("segment", "must be a power of two between 64KiB and 256MiB"));
        }
        if capacity.0 / segment < SEGMENTS_MIN {
            let least = Bytes(SEGMENTS_MIN * segment);
            let problem = format!("{capacity} is too small: give at least {least}, or make segments smaller");
            return Err(tier.error("capacity", problem));
        }
        let reserve = options.reserve.unwrap_or(RESERVE);
        if !(0.02..=0.5).contains(&reserve) {
            return Err(tier.error("reserve", format!("{reserve} must be between 0.02 and 0.5")));
        }
        let admission = options.admission.as_deref().unwrap_or("seen").parse();
        let durability = options.durability.as_deref().unwrap_or("process").parse();
        let backend = match options.io.as_deref().unwrap_or("auto") {
            "auto" => Backend::Auto,
            "uring" => Backend::Uring,
            "threads" => Backend::Threads,
            other => return Err(tier.error("io", format!("{other:?} is none of auto, uring, threads"))),
        };
        let admission = admission.map_err(|problem: String| tier.error("admission", problem))?;
        let durability = durability.map_err(|problem: String| tier.error("durability", problem))?;
        Ok(FlashTier {
            name: tier.name.clone(),
            path,
            capacity,
            backend,
            endurance: options.endurance,
            admission,
            durability,
            segment_bytes: segment as u32,
            reserve,
            reset: tier.reset,
        })
    }

    /// Bytes of a segment.
    pub(super) fn segment_bytes(&self) -> u64 {
        u64::from(self.segment_bytes)
    }

    /// Bytes of each of `shards` regions: what they were made with, if the file holds such, since what it got later lies behind all
    /// of them. Must be asked before the file is opened, which extends it to its size.
    pub fn region_bytes(&self, shards: u32) -> u64 {
        let found =
            if self.reset { None } else { found_region_bytes(&self.path, shards, self.segment_bytes) };
        found.unwrap_or(self.capacity.0 / u64::from(shards.max(1)) / 4096 * 4096)
    }

    /// The flash configuration for the engine of shard `shard` among `shards`, each with `region_bytes`. Must be computed before the
    /// file is opened. `entropy` makes a new region's identity and seed. All shards get the same `growths`.
    pub fn region(
        &self,
        (shard, shards): (u32, u32),
        region_bytes: u64,
        growths: &SharedGrowths,
        entropy: [u64; 3],
    ) -> FlashConfig {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&entropy[0].to_le_bytes());
        uuid[8..].copy_from_slice(&entropy[1].to_le_bytes());
        FlashConfig {
            start: region_bytes * u64::from(shard),
            admission: self.admission,
            durability: self.durability,
            reserve: self.reserve,
            shard,
            shards,
            growths: growths.clone(),
            found_bytes: std::fs::metadata(&self.path).ok().filter(|it| it.is_file()).map(|it| it.len()),
            reset: self.reset,
            // Where the kernel does not tell, each start counts as another boot: rather too cautious.
            boot_id: tiermem_sys::boot::id().unwrap_or(uuid),
            uuid,
            ..FlashConfig::whole(region_bytes, self.segment_bytes, entropy[2])
        }
    }
}
