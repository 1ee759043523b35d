//! Memory check at the start: whether the tiers fit the memory that this process may use.

use tiermem_base::{Bytes, TierKind, TierSpec};
use tiermem_sys::memory::{LimitSource, MemoryLimit};

use super::{ConfigError, Misfit};

/// Memory of the process beside its tiers: the program, requests and replies under way.
pub const PROCESS_BYTES: u64 = 192 << 20;

/// Such memory of each further shard: its own buffers, bytes on their way
/// between two shards, and what the allocator has not given back yet of both.
pub const SHARD_BYTES: u64 = 192 << 20;

/// Most segments of a flash tier with bytes in memory: being filled, being written, or being emptied.
const FLASH_SEGMENTS_BUFFERED: u64 = 14;
/// Most bytes read from flash that wait to be used.
const FLASH_READ_BYTES: u64 = 32 << 20;

/// Memory of a flash tier beside its metadata, which is charged to tier 0.
fn flash_buffers(tiers: &[TierSpec], shards: u32) -> u64 {
    let flash = tiers.iter().filter_map(|tier| super::FlashTier::of(tier).ok());
    let buffers = flash.map(|flash| flash.segment_bytes() * FLASH_SEGMENTS_BUFFERED + FLASH_READ_BYTES);
    buffers.sum::<u64>() * u64::from(shards)
}

/// Memory of the process beside its tiers and their buffers.
fn process_bytes(shards: u32) -> u64 {
    PROCESS_BYTES + SHARD_BYTES * u64::from(shards.saturating_sub(1))
}

/// Memory of the process that tiers in memory cannot have.
pub(super) fn beside_tiers_bytes(tiers: &[TierSpec], shards: u32) -> u64 {
    process_bytes(shards) + flash_buffers(tiers, shards)
}

/// Checks the tiers against the cgroup's limit or the machine's memory, whichever is less. Where neither can be
/// read nothing is checked.
pub fn check_memory(tiers: &[TierSpec], shards: u32) -> Result<(), ConfigError> {
    match tiermem_sys::memory::limit() {
        Some(limit) => check_memory_against(tiers, shards, &limit),
        None => Ok(()),
    }
}

/// Checks the tiers against a limit.
pub fn check_memory_against(tiers: &[TierSpec], shards: u32, limit: &MemoryLimit) -> Result<(), ConfigError> {
    // A file's pages can be written back and taken again; a device's memory is its own.
    let in_memory = |kind| !matches!(kind, TierKind::Dax | TierKind::Flash | TierKind::Remote);
    let buffers = flash_buffers(tiers, shards);
    let process = process_bytes(shards);
    let tiers = tiers.iter().filter(|tier| in_memory(tier.kind));
    let tiers = tiers.fold(0u64, |sum, tier| sum.saturating_add(tier.known_bytes().unwrap_or(0)));
    let needed = tiers.saturating_add(process).saturating_add(buffers);
    if needed <= limit.bytes {
        return Ok(());
    }
    let limit_source = match &limit.source {
        LimitSource::Cgroup(file) => format!("the cgroup ({})", file.display()),
        LimitSource::Machine => "the machine".to_owned(),
    };
    Err(ConfigError::Server(Misfit::Memory {
        tiers: Bytes(tiers),
        process: Bytes(process),
        needed: Bytes(needed),
        limit: Bytes(limit.bytes),
        limit_source,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_that_do_not_fit_are_refused_with_both_figures() {
        let tiers: Vec<TierSpec> = vec!["dram=1GiB".parse().unwrap(), "emulated=1GiB".parse().unwrap()];
        let limit = |bytes| MemoryLimit { bytes, source: LimitSource::Machine };
        assert!(check_memory_against(&tiers, 1, &limit(3 << 30)).is_ok());
        let error = check_memory_against(&tiers, 1, &limit(2 << 30)).unwrap_err().to_string();
        assert!(error.contains("the machine allows 2GiB"), "{error}");
        // A flash tier's capacity is not memory, but its buffers are.
        let tiers: Vec<TierSpec> =
            vec!["dram=1GiB".parse().unwrap(), "flash:/srv/flash=100GiB".parse().unwrap()];
        assert!(check_memory_against(&tiers, 1, &limit(2 << 30)).is_ok());
        assert!(check_memory_against(&tiers, 1, &limit((1 << 30) + PROCESS_BYTES)).is_err());
    }
}
