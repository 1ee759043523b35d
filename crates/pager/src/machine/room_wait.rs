//! Waiting for room: while DRAM and flash are full, a program waits for some time in place of being killed at once (version 1).
//!
//! Version 1 lets a group's out-of-memory killer be turned off (`memory.oom_control`): a page fault that finds no memory then waits until there
//! is some. The kernel does not turn it on again when whoever turned it off is killed, and the program would wait for ever. So the one who
//! turns it off is a process of its own, beside tiermem, that turns it on again as soon as tiermem has ended; tiermem does so as soon as that
//! process has ended. Should both be killed at once, the next tiermem command does (`leftovers.rs`).

use std::path::Path;
use std::time::{Duration, Instant};

use tiermem_sys::control_group::{Group, GroupError, Hierarchy};
use tiermem_sys::own_memory;
use tiermem_sys::pidfd::PidFd;

use super::MachineError;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// A program that waits goes on for a moment whenever a page leaves. It has room if it went on for so long.
const CALM: Duration = Duration::from_secs(1);

/// How long a program has waited for room.
#[derive(Debug, Default)]
pub struct FullTime {
    since: Option<Instant>,
    last: Option<Instant>,
}

impl FullTime {
    /// Takes in whether it waits now. Returns for how long it has had no room; `None`: it has some.
    pub fn look(&mut self, waits: bool, now: Instant) -> Option<Duration> {
        if waits {
            self.last = Some(now);
            self.since.get_or_insert(now);
        } else if self.last.is_none_or(|last| now.duration_since(last) >= CALM) {
            *self = FullTime::default();
        }
        self.since.map(|since| now.duration_since(since))
    }
}

/// Has processes of a group that find no memory wait, each time for `patience` at most, as long as the group and its owner are there.
///
/// # Errors
/// If there is no such group, or it cannot have that.
pub fn wait_for_room(group: &Path, owner: u32, patience: Duration) -> Result<(), MachineError> {
    let group = Hierarchy::of_memory()?.group_at(group)?;
    let Ok(owner_end) = PidFd::open(owner) else { return Ok(()) };
    // Another process may have got the number of an owner that has ended meanwhile, but not this child.
    if std::os::unix::process::parent_id() != owner {
        return Ok(());
    }
    // It is there for when memory is short.
    let _ = own_memory::lock();
    let mut full = FullTime::default();
    let looked = loop {
        match look(&group, &mut full, patience) {
            Err(error) => break Err(error),
            Ok(()) if owner_end.wait(PAUSE) => break Ok(()),
            Ok(()) => {}
        }
    };
    // The group may have gone, and its waits with it.
    let ended = end_room_wait(&group);
    Ok(looked.and(ended)?)
}

fn look(group: &Group, full: &mut FullTime, patience: Duration) -> Result<(), GroupError> {
    let waits_now = group.events()?.waits_now == Some(true);
    let is_over = full.look(waits_now, Instant::now()).is_some_and(|time| time >= patience);
    // Looked at each time: a change of the limits turns it on and off, too.
    if group.out_of_memory_waits()? == is_over {
        group.set_out_of_memory_waits(!is_over)?;
    }
    Ok(())
}

/// Has the kernel kill a process of the group again where none finds memory.
///
/// # Errors
/// With version 2, where no process waits; the system's error.
pub fn end_room_wait(group: &Group) -> Result<(), GroupError> {
    match group.out_of_memory_waits()? {
        true => group.set_out_of_memory_waits(false),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_moments_of_going_on_are_no_room() {
        let (mut full, begun) = (FullTime::default(), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(full.look(false, at(0)), None);
        assert_eq!(full.look(true, at(50)), ms(0));
        assert_eq!(full.look(false, at(100)), ms(50));
        assert_eq!(full.look(true, at(900)), ms(850));
        assert_eq!(full.look(false, at(1850)), ms(1800));
        // A second without: it has found room, and a wait from here on is another.
        assert_eq!(full.look(false, at(1900)), None);
        assert_eq!(full.look(true, at(2000)), ms(0));
    }
}
