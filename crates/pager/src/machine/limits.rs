//! The limits of a run or an attachment.

use tiermem_sys::control_group::{Group, Limit};
use tiermem_sys::{memory, swap};

use super::error::MachineError;
use super::flash::Flash;

/// The least DRAM that a program can be given: less, and the kernel cannot reclaim in time.
pub const DRAM_BYTES_MIN: u64 = 16 << 20;

/// The least memory of each node of a pool.
pub const POOL_PART_BYTES_MIN: u64 = 4 << 20;

/// The limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// All that the group may be charged: memory with its file cache.
    pub dram_bytes: u64,
    /// What it may have in swap.
    pub flash: Flash,
}

/// The limits that a group has: of DRAM, and of flash if it is limited.
///
/// # Errors
/// If the group has gone.
pub fn of(group: &Group) -> Result<(u64, Option<u64>), MachineError> {
    let bytes = |limit| match limit {
        Limit::Bytes(bytes) => Some(bytes),
        Limit::Unlimited => None,
    };
    Ok((bytes(group.memory_limit()?).unwrap_or(u64::MAX), bytes(group.swap_limit()?)))
}

/// Whether there can be such a limit of DRAM.
///
/// # Errors
/// If not.
pub fn check(dram_bytes: u64) -> Result<(), MachineError> {
    let all_bytes = memory::total_bytes().unwrap_or(u64::MAX);
    if !(DRAM_BYTES_MIN..=all_bytes).contains(&dram_bytes) {
        return Err(MachineError::Dram { bytes: dram_bytes, least_bytes: DRAM_BYTES_MIN, all_bytes });
    }
    Ok(())
}

/// Whether a group that runs can have such a limit of flash.
///
/// # Errors
/// If more lies there, or the machine has not so much swap.
pub fn check_flash(bytes: u64, group: &Group) -> Result<(), MachineError> {
    let used_bytes = group.swap_usage_bytes()?;
    let all_bytes = swap::areas().unwrap_or_default().iter().map(|area| area.bytes).sum();
    if !(used_bytes..=all_bytes).contains(&bytes) {
        return Err(MachineError::Flash { bytes, used_bytes, all_bytes });
    }
    Ok(())
}
