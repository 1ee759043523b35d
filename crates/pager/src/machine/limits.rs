//! The limits of a run or an attachment.

use tiermem_sys::memory;

use super::error::MachineError;
use super::flash::Flash;

/// The least DRAM that a program can be given: less, and the kernel cannot reclaim in time.
pub const DRAM_BYTES_MIN: u64 = 16 << 20;

/// The limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// All that the group may be charged: memory with its file cache.
    pub dram_bytes: u64,
    /// What it may have in swap.
    pub flash: Flash,
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
