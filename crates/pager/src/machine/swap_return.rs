//! Room for what comes back when swap is turned off while a program goes on that has pages there. Where a group on the way has less, the kernel
//! would kill a process of it.

use std::path::Path;

use tiermem_sys::control_group::{Group, Hierarchy, Limit, Version};
use tiermem_sys::memory;

use super::error::MachineError;
use super::register::Entry;

/// One part in this number is kept free.
const RESERVE_PART: u64 = 16;

/// Whether `used_bytes` of swap can come back.
///
/// # Errors
/// Who has no room for them.
pub fn check(entry: &Entry, swap: &Path, used_bytes: u64) -> Result<(), MachineError> {
    let refused = |room_bytes: u64, whose: String| {
        Err(MachineError::SwapStays { path: swap.to_owned(), used_bytes, room_bytes, whose })
    };
    let available_bytes = memory::available_bytes().unwrap_or(u64::MAX);
    if used_bytes > available_bytes - available_bytes / RESERVE_PART {
        return refused(available_bytes, "the machine".to_owned());
    }
    for group in groups(entry) {
        let in_swap_bytes = group.swap_usage_bytes().unwrap_or(0).min(used_bytes);
        let room_bytes = room(&group);
        if in_swap_bytes > room_bytes {
            return refused(room_bytes, group.path().display().to_string());
        }
    }
    Ok(())
}

/// The group of a program that goes on, and those above it.
fn groups(entry: &Entry) -> Vec<Group> {
    let Ok(hierarchy) = Hierarchy::of_memory() else { return Vec::new() };
    let of_process = || hierarchy.group_of(entry.attached_process()?.pid).ok();
    let group = entry.attached_group().or_else(of_process);
    group.map_or_else(Vec::new, |group| hierarchy.lineage(&group))
}

/// What may still be charged to a group, with its file cache given up.
fn room(group: &Group) -> u64 {
    let Ok(Limit::Bytes(limit)) = group.memory_limit() else { return u64::MAX };
    let names = match group.version() {
        Version::One => ["total_inactive_file", "total_active_file"],
        Version::Two => ["inactive_file", "active_file"],
    };
    let stat = group.stat().unwrap_or_default();
    let cache: u64 = names.iter().map(|name| stat.get(*name).copied().unwrap_or(0)).sum();
    let used = group.usage_bytes().unwrap_or(0).saturating_sub(cache);
    limit.saturating_sub(used)
}
