//! The flash tier as a user describes it.

use std::path::PathBuf;

use tiermem_base::Bytes;
use tiermem_policy::log::{Admission, RESERVE};
use tiermem_tier::block::Backend;
use tiermem_tier::flash::{Durability, FlashConfig};

use super::{ConfigError, TierConfig};

/// What is written at once and emptied at once; the largest item on flash is a little smaller.
const SEGMENT_BYTES: u64 = 2 << 20;
/// Segments that a flash tier has at least: fewer leave no room between those that are open, kept free and emptied.
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
    pub(super) fn of(tier: &TierConfig) -> Result<Self, ConfigError> {
        let error = |problem: String| ConfigError::Tier { name: tier.name.clone(), problem };
        let path = tier.path.clone().ok_or_else(|| {
            error("a flash tier needs a file or block device: path = \"/srv/tiermem.flash\", or --tier flash:/srv/tiermem.flash=8GiB".into())
        })?;
        let segment = tier.segment.unwrap_or(Bytes(SEGMENT_BYTES)).0;
        if !(64 << 10..=256 << 20).contains(&segment) || !segment.is_power_of_two() {
            return Err(error("segment must be a power of two between 64KiB and 256MiB".into()));
        }
        if tier.capacity.0 / segment < SEGMENTS_MIN {
            let least = Bytes(SEGMENTS_MIN * segment);
            return Err(error(format!(
                "{} is too small: give at least {least}, or make segments smaller",
                tier.capacity
            )));
        }
        let reserve = tier.reserve.unwrap_or(RESERVE);
        if !(0.02..=0.5).contains(&reserve) {
            return Err(error("reserve must be between 0.02 and 0.5".into()));
        }
        let admission = tier
            .admission
            .as_deref()
            .unwrap_or("seen")
            .parse()
            .map_err(|it| error(format!("admission: {it}")))?;
        let durability = tier
            .durability
            .as_deref()
            .unwrap_or("process")
            .parse()
            .map_err(|it| error(format!("durability: {it}")))?;
        let backend = match tier.io.as_deref().unwrap_or("auto") {
            "auto" => Backend::Auto,
            "uring" => Backend::Uring,
            "threads" => Backend::Threads,
            other => return Err(error(format!("io: {other:?} is none of auto, uring, threads"))),
        };
        Ok(FlashTier {
            name: tier.name.clone(),
            path,
            capacity: tier.capacity,
            backend,
            endurance: tier.endurance,
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

    /// What the engine of shard `shard` among `shards` needs of it; before the file is opened, which makes it as long as it
    /// has to be. `entropy` makes a new region's identity and seed.
    pub fn region(&self, shard: u32, shards: u32, entropy: [u64; 3]) -> FlashConfig {
        let region_bytes = self.capacity.0 / u64::from(shards.max(1)) / 4096 * 4096;
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
            found_bytes: std::fs::metadata(&self.path).ok().filter(|it| it.is_file()).map(|it| it.len()),
            reset: self.reset,
            // Where the kernel does not tell, each start counts as another boot: rather too cautious.
            boot_id: tiermem_sys::boot::id().unwrap_or(uuid),
            uuid,
            ..FlashConfig::whole(region_bytes, self.segment_bytes, entropy[2])
        }
    }
}
