//! This process's own memory: kept in DRAM.

use std::fs;
use std::io::{self, ErrorKind};

use rustix::mm::{MlockAllFlags, mlockall};

/// The number of CAP_IPC_LOCK, with which memory is locked without a limit.
const IPC_LOCK: u32 = 14;

/// Locks the memory that this process has touched, and what it will touch: nothing of it is paged out from here on. It is not locked in
/// programs that are started.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] without CAP_IPC_LOCK: under a limit of locked memory, later allocations would fail. Else the
/// system's error.
pub fn lock() -> io::Result<()> {
    let status = fs::read_to_string("/proc/self/status")?;
    if !may_lock_without_limit(&status) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?)
}

/// Whether a process of this `/proc/PID/status` has CAP_IPC_LOCK.
pub(crate) fn may_lock_without_limit(status: &str) -> bool {
    let field = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = field.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    capabilities.unwrap_or(0) >> IPC_LOCK & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_is_one_bit_of_the_effective_set() {
        assert!(may_lock_without_limit("Name:\tx\nCapEff:\t0000000000004000\n"));
        assert!(!may_lock_without_limit("CapPrm:\t0000000000004000\nCapEff:\t000001ffffffbfff\n"));
        assert!(!may_lock_without_limit("CapEff:\tx\n") && !may_lock_without_limit(""));
    }
}
