//! Configuration, durability and errors of the flash tier.

use std::str::FromStr;

use tiermem_policy::log::{Admission, CannotGrow, RESERVE};

use super::{SharedGrowths, VERSION};
use tiermem_tier::block::{BlockError, OpenError};

/// Why a flash tier cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FlashError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] BlockError),
    /// The region is too small for its segments.
    #[error(
        "{region_bytes} bytes are too small for a flash tier with segments of {segment_bytes}: give it more, or make segments smaller"
    )]
    TooSmall {
        /// Bytes of the region.
        region_bytes: u64,
        /// Bytes of a segment.
        segment_bytes: u32,
    },
    /// The device was written by another version.
    #[error(
        "it was written by version {found} of the format, this is version {}: start that version, or give --reset to begin empty",
        VERSION
    )]
    Version {
        /// The version found.
        found: u32,
    },
    /// The device holds something else.
    #[error(
        "it holds data that are not tiermem's: give another file or device, or --reset to overwrite them"
    )]
    Foreign,
    /// The file is shorter than what was written to it.
    #[error(
        "it has {found_bytes} bytes of {region_bytes}: a part is missing. Bring the whole file back, or give --reset to begin empty"
    )]
    Truncated {
        /// Bytes there are.
        found_bytes: u64,
        /// Bytes there should be.
        region_bytes: u64,
    },
    /// It was written for another division.
    #[error(
        "it was written as {found}, and is opened as {wanted}: give the same shards and sizes as before, or --reset to begin empty"
    )]
    Mismatch {
        /// What the superblock says.
        found: String,
        /// What the configuration says.
        wanted: String,
    },
    /// It cannot grow.
    #[error(transparent)]
    CannotGrow(#[from] CannotGrow),
    /// The file or device cannot grow.
    #[error(transparent)]
    NoRoom(#[from] OpenError),
    /// A restart would not find what is there.
    #[error("{0}")]
    Unrecoverable(String),
}

/// Durability that a reply promises: deleted or overwritten items do not come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// After the death of the process. After that of the machine the tier begins empty, unless it was closed in order.
    #[default]
    Process,
    /// After power loss too: replies wait until the device has taken what they promise for good.
    Power,
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "process" => Ok(Durability::Process),
            "power" => Ok(Durability::Power),
            other => Err(format!("{other:?} is none of process, power")),
        }
    }
}

/// Configuration of a flash tier.
#[derive(Clone, Debug)]
pub struct FlashConfig {
    /// Where this shard's region begins on the device, in bytes.
    pub start: u64,
    /// Bytes of the region.
    pub region_bytes: u64,
    /// Bytes of a segment, a multiple of 4096; the largest item that flash takes is a little smaller.
    pub segment_bytes: u32,
    /// Admission rule when the log is full.
    pub admission: Admission,
    /// Share of the segments that live items never fill.
    pub reserve: f64,
    /// The number of this shard.
    pub shard: u32,
    /// Number of shards.
    pub shards: u32,
    /// Growths of the device, which all shards share.
    pub growths: SharedGrowths,
    /// Length of the file before it was opened, where it is one.
    pub found_bytes: Option<u64>,
    /// Whether to overwrite existing contents.
    pub reset: bool,
    /// Identifies the boot of this machine: a region written in another boot, and not closed, does not count.
    pub boot_id: [u8; 16],
    /// What the flash tier must survive.
    pub durability: Durability,
    /// Names the run that opens it: data with the same name belong to the same run.
    pub session: [u8; 16],
    /// For a new region: its identity.
    pub uuid: [u8; 16],
    /// For a new region: the seed of the hash of keys.
    pub hash_seed: u64,
}

impl FlashConfig {
    /// A whole device of `region_bytes`, with the defaults. The seed makes a new region's identity too.
    pub fn whole(region_bytes: u64, segment_bytes: u32, hash_seed: u64) -> Self {
        FlashConfig {
            start: 0,
            region_bytes,
            segment_bytes,
            admission: Admission::default(),
            reserve: RESERVE,
            shard: 0,
            shards: 1,
            growths: SharedGrowths::default(),
            found_bytes: None,
            reset: false,
            boot_id: [0; 16],
            durability: Durability::default(),
            session: [0; 16],
            uuid: (u128::from(hash_seed) << 64 | u128::from(!hash_seed)).to_le_bytes(),
            hash_seed,
        }
    }
}
