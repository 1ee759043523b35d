//! Fresh counts: a process that reads a group's `memory.stat` all the time, since reading makes the kernel sum its counts.
//!
//! Reclaim of a group asks its counts whether active pages are to become inactive, and these counts are summed every two seconds, or when
//! somebody reads them. A page that was paged out by advice comes back as an active one. So when tiermem is killed or stopped while it drops
//! pages, the program can use up all inactive pages before the counts say so. Then reclaim finds nothing, and the kernel kills the
//! program although swap is free: in 9 of 10 trials with a limit of 32 MiB, and in none of 50 while this process ran (Linux 6.18;
//! `shrink_lruvec` and `inactive_is_low` of `mm/vmscan.c`). It must be another process than tiermem's own, and survives that.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use tiermem_sys::control_group::{Hierarchy, Limit, all_processes};
use tiermem_sys::own_memory;

use super::MachineError;

/// The inactive pages are half of all or less, and a program that faults brings in no more than this in a second. The counts are read four times
/// until they could be used up.
const FAULTED_BYTES_PER_S: f64 = (1 << 30) as f64;
const READS: u32 = 4;
const APART_MIN: Duration = Duration::from_millis(5);
const APART_MAX: Duration = Duration::from_millis(250);
/// How often is looked whether anybody needs it.
const LOOKS_APART: Duration = Duration::from_secs(1);

/// Reads the counts until the group is gone or has no process.
///
/// # Errors
/// If there is no such group.
pub fn keep_counts_fresh(group: &Path) -> Result<(), MachineError> {
    let group = Hierarchy::of_memory()?.group_at(group)?;
    // It is there for when memory is short.
    let _ = own_memory::lock();
    let file = group.path().join("memory.stat");
    let stat = File::open(&file).map_err(|source| MachineError::Counts { file, source })?;
    let mut text = [0; 8192];
    let (mut apart, mut next_look) = (APART_MIN, Instant::now());
    // The group's files cannot be read any more once it was removed.
    while stat.read_at(&mut text, 0).is_ok() {
        if Instant::now() >= next_look {
            // Where it is needed again, it is started again.
            if all_processes(&group).is_ok_and(|all| all.is_empty()) {
                break;
            }
            apart = apart_of(group.memory_limit().unwrap_or(Limit::Unlimited));
            next_look = Instant::now() + LOOKS_APART;
        }
        std::thread::sleep(apart);
    }
    Ok(())
}

/// The time between two reads, for a group of this limit.
fn apart_of(limit: Limit) -> Duration {
    let Limit::Bytes(bytes) = limit else { return APART_MAX };
    let used_up = Duration::from_secs_f64(bytes as f64 / 2.0 / FAULTED_BYTES_PER_S);
    (used_up / READS).clamp(APART_MIN, APART_MAX)
}
