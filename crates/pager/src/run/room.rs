//! What happens where DRAM and flash are full: the program waits for room, if it may, and the user is told at once.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use tiermem_sys::control_group::{Group, Version};
use tiermem_sys::swap;

use super::note::Note;
use super::peaks::Peaks;
use super::target::Target;
use crate::machine::{Apart, FullTime, Kept, end_room_wait};

/// A program may wait from when so much less than this is left, or a quarter: one that is far from full is left as the kernel has it.
const NEAR_BYTES: u64 = 256 << 20;
const NEAR_PART: u64 = 4;

/// How a program may wait for room.
#[derive(Clone, Debug)]
pub struct WaitOptions {
    /// For how long at a time; none: it is not to wait.
    pub patience: Duration,
    /// A command that, with the folder of a group behind it, calls [`crate::machine::wait_for_room`] for this process and this patience.
    pub command: Vec<OsString>,
}

impl WaitOptions {
    /// It is not to wait.
    pub fn never() -> Self {
        WaitOptions { patience: Duration::ZERO, command: Vec::new() }
    }
}

/// The room of one program.
#[derive(Debug)]
pub struct Room {
    patience: Duration,
    waiter: Apart,
    full: FullTime,
    /// For how long it has had none, at the last look.
    waited: Option<Duration>,
    /// The user was told that it waits.
    is_told: bool,
}

impl Room {
    /// Of a program of which nothing is known yet.
    pub fn new(options: &WaitOptions) -> Self {
        Room {
            patience: options.patience,
            waiter: Apart::new(options.command.clone()),
            full: FullTime::default(),
            waited: None,
            is_told: false,
        }
    }

    /// Looks at a group with these limits of DRAM and flash. Returns what the user is to be told.
    pub fn look(
        &mut self,
        group: &Group,
        peaks: &Peaks,
        limits: (u64, Option<u64>),
        now: Instant,
    ) -> Option<Note> {
        if self.patience.is_zero() || group.version() == Version::Two {
            return None;
        }
        if !self.waiter.is_wanted() {
            // Where processes wait already, somebody else has decided so.
            if !is_near_full(peaks, limits) || group.out_of_memory_waits().unwrap_or(true) {
                return None;
            }
        }
        let mut note = None;
        match self.waiter.keep(group.path().as_os_str(), now) {
            Kept::Runs | Kept::Started => {}
            // Where nobody can end a wait there must be none.
            kept @ (Kept::Failed(_) | Kept::Paused) => {
                let _ = end_room_wait(group);
                if let Kept::Failed(error) = kept {
                    note = Some(Note::NoRoomWait(error.to_string()));
                }
            }
        }
        let waits = group.events().is_ok_and(|events| events.waits_now == Some(true));
        self.waited = self.full.look(waits, now);
        let was_told = std::mem::replace(&mut self.is_told, self.waited.is_some());
        match (was_told, self.is_told) {
            (false, true) => Some(Note::Full { limits, patience: self.patience }),
            (true, false) => Some(Note::HasRoom),
            _ => note,
        }
    }

    /// For how long it has waited by now; `None`: it does not.
    pub fn waits(&self) -> Option<Duration> {
        self.waited
    }

    /// Ends it. Returns for how long the program had waited at the end. In a group that was made for it, who finds no memory from here on is
    /// killed; another one gets back what it had, with its limits.
    pub fn end(self, target: &Target) -> Option<Duration> {
        let Room { waiter, waited, .. } = self;
        let is_ours = waiter.is_wanted();
        // First, so that it does not turn the wait on again.
        drop(waiter);
        if let (true, Target::OwnGroup(group)) = (is_ours, target) {
            let _ = end_room_wait(group);
        }
        waited
    }
}

fn is_near_full(peaks: &Peaks, (dram_bytes, flash_bytes): (u64, Option<u64>)) -> bool {
    let all_swap = || swap::areas().unwrap_or_default().iter().map(|area| area.bytes).sum();
    let all_bytes = dram_bytes.saturating_add(flash_bytes.unwrap_or_else(all_swap));
    let left_bytes = all_bytes.saturating_sub(peaks.charged_now() + peaks.swapped_now());
    left_bytes < NEAR_BYTES.max(all_bytes / NEAR_PART)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::memory_use::MemoryUse;
    use crate::run::peaks::Look;

    #[test]
    fn it_is_near_full_with_a_quarter_or_little_left() {
        let with = |charged_bytes, swap_bytes| {
            let mut peaks = Peaks::default();
            let group = MemoryUse { charged_bytes, swap_bytes, ..MemoryUse::default() };
            peaks.add(Look { group, ..Look::default() });
            peaks
        };
        let gib = 1 << 30;
        assert!(!is_near_full(&with(gib, gib), (gib, Some(3 * gib))));
        assert!(!is_near_full(&with(gib, 2 * gib), (gib, Some(3 * gib))));
        assert!(is_near_full(&with(gib, 2 * gib + 1), (gib, Some(3 * gib))));
        assert!(is_near_full(&with(0, 0), (64 << 20, Some(64 << 20))));
        // A limit that is lower than what is there.
        assert!(is_near_full(&with(gib, gib), (gib / 2, Some(0))));
    }
}
