//! Changes of the limits of a group whose program runs. None of them has the kernel kill a process: what has to leave is made to leave first,
//! in steps, and if it cannot, the limits are put back.

use std::thread;
use std::time::{Duration, Instant};

use tiermem_sys::control_group::{Group, GroupError, Limit, Version};
use tiermem_sys::swap;

use super::attach_error::AttachError;
use super::error::MachineError;
use super::page_out::PageOut;
use super::saved_limits::SavedLimits;

/// A step of a limit on its way down: small enough that it can be stopped soon.
const STEP_BYTES: u64 = 64 << 20;
/// A group may be this much above a mark that it was brought down to: the kernel counts in batches for each processor.
const SLACK_BYTES: u64 = 2 << 20;
/// A step that does not succeed is tried again for so long: the program may use what is to leave.
const STEP_PATIENCE: Duration = Duration::from_secs(10);
const STEP_PAUSE: Duration = Duration::from_millis(20);
/// One part in this number of the room is kept for what the kernel needs, such as page tables.
const RESERVE_PART: u64 = 16;
/// A process is out of memory (`EBUSY`), or a call was cut short by a signal (`EINTR`): the step is tried again.
const TRY_AGAIN: [i32; 2] = [16, 4];

/// Sets the limits of memory and swap, and the high mark of version 2.
///
/// # Errors
/// If not enough can leave, or `is_stopped` says so; the limits are then what they were.
pub fn change(
    group: &Group,
    (memory, swap): (Limit, Limit),
    is_stopped: &dyn Fn() -> bool,
) -> Result<(), MachineError> {
    let before = SavedLimits::of(group)?;
    let changed = match memory {
        Limit::Bytes(bytes) if memory < before.memory() => {
            check_room(group, bytes, swap).and_then(|()| lower(group, &before, bytes, swap, is_stopped))
        }
        _ => Ok(group.set_limits(memory, swap)?),
    };
    if changed.is_err() {
        // What failed is told; this can fail only for the same reason.
        let _ =
            put_marks_back(group, &before).and_then(|()| group.set_limits(before.memory(), before.swap()));
    }
    changed
}

/// Gives a group back the limits that it had.
///
/// # Errors
/// If it needs more by now than they allow.
pub fn put_back(group: &Group, before: &SavedLimits) -> Result<(), MachineError> {
    let change_limits = || change(group, (before.memory(), before.swap()), &|| false);
    match group.version() {
        Version::Two => {
            put_marks_back(group, before)?;
            change_limits()
        }
        // A process that waits for room must find it before the kernel may kill it.
        Version::One => {
            let changed = change_limits();
            put_marks_back(group, before)?;
            changed
        }
    }
}

fn put_marks_back(group: &Group, before: &SavedLimits) -> Result<(), GroupError> {
    match group.version() {
        Version::Two => group.set_high(before.high()),
        Version::One if group.out_of_memory_waits()? != before.waits() => {
            group.set_out_of_memory_waits(before.waits())
        }
        Version::One => Ok(()),
    }
}

/// Whether what has to leave DRAM finds room, in the group's share of swap and in the machine's.
fn check_room(group: &Group, dram_bytes: u64, swap: Limit) -> Result<(), MachineError> {
    let names = match group.version() {
        Version::One => ["total_rss", "total_shmem", "total_unevictable"],
        Version::Two => ["anon", "shmem", "unevictable"],
    };
    let stat = group.stat()?;
    let [anonymous, shared, locked] = names.map(|name| stat.get(name).copied().unwrap_or(0));
    let dram_bytes = dram_bytes - dram_bytes / RESERVE_PART;
    if locked > dram_bytes {
        return Err(AttachError::Locked { group: group.path().to_owned(), bytes: locked }.into());
    }
    let leaves = (anonymous + shared).saturating_sub(dram_bytes);
    let areas = swap::areas().unwrap_or_default();
    let free = areas.iter().map(|area| area.bytes.saturating_sub(area.used_bytes)).sum();
    let allowed = match swap {
        Limit::Bytes(bytes) => bytes.saturating_sub(group.swap_usage_bytes().unwrap_or(0)),
        Limit::Unlimited => u64::MAX,
    };
    let room = allowed.min(free);
    match leaves > room {
        true => Err(AttachError::NoRoom { leaves_bytes: leaves, room_bytes: room }.into()),
        false => Ok(()),
    }
}

fn lower(
    group: &Group,
    before: &SavedLimits,
    to_bytes: u64,
    swap: Limit,
    is_stopped: &dyn Fn() -> bool,
) -> Result<(), MachineError> {
    match group.version() {
        Version::One => {
            // Should the program need more than there is in the middle of it, it waits. Some groups cannot have that.
            let waits = group.set_out_of_memory_waits(true).is_ok();
            step_down(group, to_bytes, is_stopped, |bytes| group.set_memory_limit(Limit::Bytes(bytes)))?;
            group.set_limits(Limit::Bytes(to_bytes), swap)?;
            if waits && !before.waits() {
                check_nobody_waits(group, to_bytes)?;
                group.set_out_of_memory_waits(false)?;
            }
        }
        Version::Two => {
            // The high mark reclaims and slows down, and never kills; the limit is set once the group is below it.
            group.set_limits(before.memory(), swap.max(before.swap()))?;
            step_down(group, to_bytes, is_stopped, |bytes| {
                group.set_high(Limit::Bytes(bytes))?;
                Ok(())
            })?;
            group.set_limits(Limit::Bytes(to_bytes), swap)?;
            group.set_high(before.high())?;
        }
    }
    Ok(())
}

/// Processes of version 1 that find no memory with the new limit would be killed as soon as they may be.
fn check_nobody_waits(group: &Group, to_bytes: u64) -> Result<(), MachineError> {
    let begun = Instant::now();
    while group.events()?.waits_now == Some(true) {
        if begun.elapsed() >= STEP_PATIENCE {
            let is_bytes = group.usage_bytes()?;
            return Err(AttachError::Stays { group: group.path().to_owned(), to_bytes, is_bytes }.into());
        }
        thread::sleep(STEP_PAUSE);
    }
    Ok(())
}

fn step_down(
    group: &Group,
    to_bytes: u64,
    is_stopped: &dyn Fn() -> bool,
    set: impl Fn(u64) -> Result<(), GroupError>,
) -> Result<(), MachineError> {
    let mut least_bytes = u64::MAX;
    let mut progress_at = Instant::now();
    let mut page_out = PageOut::default();
    loop {
        let is_bytes = group.usage_bytes()?;
        if is_stopped() {
            return Err(AttachError::Stopped.into());
        }
        let step_bytes = is_bytes.saturating_sub(STEP_BYTES).max(to_bytes);
        let is_set = match set(step_bytes) {
            Err(error) if error.raw_os_error().is_some_and(|code| TRY_AGAIN.contains(&code)) => false,
            other => other.map(|()| true)?,
        };
        let is_bytes = group.usage_bytes()?;
        if is_set && step_bytes == to_bytes && is_bytes <= to_bytes.saturating_add(SLACK_BYTES) {
            return Ok(());
        }
        if is_bytes.saturating_add(SLACK_BYTES) <= least_bytes {
            (least_bytes, progress_at) = (is_bytes, Instant::now());
        } else if progress_at.elapsed() >= STEP_PATIENCE {
            return Err(AttachError::Stays { group: group.path().to_owned(), to_bytes, is_bytes }.into());
        } else {
            page_out.go_on(group, STEP_BYTES);
            thread::sleep(STEP_PAUSE);
        }
    }
}
