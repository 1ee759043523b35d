//! Taking away what runs have made and nobody needs any more, whether they ended well or were killed.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tiermem_sys::swap::{self, SwapArea};

use super::error::MachineError;
use super::register::{Attached, Entry, EntrySwap, Locked};
use super::room_wait::end_room_wait;
use super::{flash, limit_change, swap_return};

/// The kernel takes a process out of its group a little after its end.
const GROUP_PATIENCE: Duration = Duration::from_secs(2);
const GROUP_PAUSE: Duration = Duration::from_millis(2);

/// What is left of a run, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// Its swap stays on until other paged programs have ended: pages of theirs may lie there.
    SwapOfOthers(PathBuf),
    /// Its swap stays on for this reason.
    SwapStays(String),
}

/// What was left of all.
#[derive(Debug, Default)]
pub struct AllLeft {
    /// Runs that live: found so before anything was taken away.
    pub live: Vec<Entry>,
    left: Vec<(String, Left)>,
}

impl AllLeft {
    /// What of one run.
    pub fn of(&self, entry: &Entry) -> Left {
        let found = self.left.iter().find(|(id, _)| *id == entry.id);
        found.map_or(Left::Nothing, |(_, left)| left.clone())
    }
}

/// Takes away all that no run needs.
///
/// # Errors
/// The first thing that could not be taken away; the others were all the same.
pub fn sweep(locked: &Locked<'_>) -> Result<AllLeft, MachineError> {
    let entries = locked.entries()?;
    let (live, dead): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(Entry::is_live);
    live.iter().for_each(end_wait_without_owner);
    let mut left = AllLeft { live, ..AllLeft::default() };
    let mut first_error = None;
    for mut entry in dead {
        if let Err(error) = take_away(locked, &mut entry, &mut left) {
            first_error = first_error.or(Some(error));
        }
    }
    first_error.map_or(Ok(left), Err)
}

/// A program must not wait for room where nobody is left to end that. (Groups that are attached to get back what they had.)
fn end_wait_without_owner(entry: &Entry) {
    if let (None, Some(group)) = (entry.living_owner(), entry.group()) {
        // Version 2 has no such wait.
        let _ = end_room_wait(&group);
    }
}

fn take_away(locked: &Locked<'_>, entry: &mut Entry, left: &mut AllLeft) -> Result<(), MachineError> {
    put_limits_back(locked, entry)?;
    remove_group(entry)?;
    if let Some(swap) = &entry.swap {
        let area = area_of(swap)?;
        // What holds no page is turned off at once, whoever runs.
        if area.as_ref().is_some_and(|area| area.used_bytes > 0) && !left.live.is_empty() {
            left.left.push((entry.id.clone(), Left::SwapOfOthers(swap.path.clone())));
            (entry.group, entry.attached) = (None, None);
            return locked.write(entry);
        }
        let used_bytes = area.as_ref().map_or(0, |area| area.used_bytes);
        if let Err(error) = swap_return::check(entry, &swap.path, used_bytes) {
            left.left.push((entry.id.clone(), Left::SwapStays(error.to_string())));
            return Ok(());
        }
        remove_swap(swap, area.is_some())?;
    }
    locked.remove(entry)
}

/// Before the swap goes: what lies there comes back to the group. It is done once, so that what somebody sets later stays.
fn put_limits_back(locked: &Locked<'_>, entry: &mut Entry) -> Result<(), MachineError> {
    let group = entry.attached_group();
    let Some(Attached::Group { before: before @ Some(_), .. }) = &mut entry.attached else { return Ok(()) };
    // One that has gone took its limits with it.
    if let (Some(group), Some(limits)) = (group, &before) {
        limit_change::put_back(&group, limits)?;
    }
    *before = None;
    locked.write(entry)
}

fn remove_group(entry: &Entry) -> Result<(), MachineError> {
    let begin = Instant::now();
    while let Some(group) = entry.group() {
        match group.remove() {
            Err(error) if error.raw_os_error() == Some(EBUSY) && begin.elapsed() < GROUP_PATIENCE => {
                std::thread::sleep(GROUP_PAUSE);
            }
            other => return Ok(other?),
        }
    }
    Ok(())
}

/// A device or group that is in use (`EBUSY`).
const EBUSY: i32 = 16;

fn area_of(swap: &EntrySwap) -> Result<Option<SwapArea>, MachineError> {
    let areas =
        swap::areas().map_err(|error| MachineError::register("read the swap of", &swap.path, error))?;
    Ok(areas.into_iter().find(|area| area.path == swap.path))
}

fn remove_swap(swap: &EntrySwap, is_on: bool) -> Result<(), MachineError> {
    if is_on {
        swap::turn_off(&swap.path)?;
    }
    // Pages may lie in a file as long as the kernel names it. A run that was killed before it made the file may have found another's there
    // afterwards.
    let is_ours = swap.is_made && flash::is_made_by_a_run(&swap.path);
    if area_of(swap)?.is_none() && is_ours {
        match fs::remove_file(&swap.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(MachineError::register("remove a file of", &swap.path, error));
            }
            _ => {}
        }
    }
    Ok(())
}
