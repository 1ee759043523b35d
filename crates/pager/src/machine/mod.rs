//! The machine's side of a run: its control group and its swap, made before the program starts, taken away after the last of its
//! processes has ended. Knows nothing of programs and decisions.
//!
//! Whatever is made stands in the [`register`] before it is made, so that the next run finds what a killed one has left.

mod error;
mod flash;
mod group;
mod leftovers;
mod register;

pub use error::MachineError;
pub use flash::Flash;
pub use leftovers::Left;
pub use register::Register;

use std::path::{Path, PathBuf};

use tiermem_sys::control_group::{Group, Hierarchy, Limit, Version, avoid_oom_daemon};
use tiermem_sys::memory;

use register::Entry;

/// The least DRAM that a program can be given: less, and the kernel cannot reclaim in time.
pub const DRAM_BYTES_MIN: u64 = 16 << 20;

/// The limits of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// All that the group may be charged: memory with its file cache.
    pub dram_bytes: u64,
    /// What it may have in swap.
    pub flash: Flash,
}

/// A control group with limits, and swap, for one program. Dropping this leaves both as they are: call [`Self::end`].
#[derive(Debug)]
pub struct Reservation {
    register: Register,
    entry: Entry,
    group: Group,
}

impl Reservation {
    /// Makes them, for a program that lists of runs name so. First takes away what runs that were killed have left.
    ///
    /// # Errors
    /// If the limits cannot be, or the machine refuses; then nothing is left.
    pub fn make(limits: &Limits, command: &str) -> Result<Self, MachineError> {
        check(limits)?;
        let register = Register::open()?;
        let locked = register.lock()?;
        // What cannot be taken away now is tried again at the end, and by the next run.
        let _ = leftovers::sweep(&locked);
        let mut entry = locked.begin(command)?;
        match make(&locked, &mut entry, limits) {
            Ok(group) => {
                drop(locked);
                Ok(Reservation { register, entry, group })
            }
            Err(error) => {
                entry.is_over = true;
                let _ = locked.write(&entry);
                let _ = leftovers::sweep(&locked);
                Err(error)
            }
        }
    }

    /// Its name in the register.
    pub fn id(&self) -> &str {
        &self.entry.id
    }

    /// The control group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The swap file or device that was turned on for this run; none where swap was on already.
    pub fn swap(&self) -> Option<&Path> {
        self.entry.swap.as_ref().map(|swap| swap.path.as_path())
    }

    /// Takes both away, if the group has no process any more.
    ///
    /// # Errors
    /// If something is left that should not be. It is tried again by the next run.
    pub fn end(self) -> Result<Left, MachineError> {
        let Reservation { register, mut entry, .. } = self;
        let locked = register.lock()?;
        entry.is_over = true;
        locked.write(&entry)?;
        leftovers::sweep(&locked).map(|all| all.of(&entry))
    }
}

/// Waits until the group of a run has no process, and takes everything away: for a process that stays behind the run's own.
///
/// # Errors
/// If there is no such run, or something is left that should not be.
pub fn keep(id: &str) -> Result<(), MachineError> {
    let register = Register::open()?;
    let mut entry = register.lock()?.adopt(id)?;
    while entry.has_processes() {
        std::thread::sleep(KEEPER_PAUSE);
    }
    let locked = register.lock()?;
    entry.is_over = true;
    locked.write(&entry)?;
    leftovers::sweep(&locked).map(drop)
}

/// A run that lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveRun {
    /// Its name in the register.
    pub id: String,
    /// Its program.
    pub command: String,
    /// The process that takes care of it; `None` if that was killed, and the program goes on.
    pub owner: Option<u32>,
    /// Its control group.
    pub group: Group,
    /// Swap that was turned on for it.
    pub swap: Option<PathBuf>,
}

/// The runs that live. First takes away what runs that were killed have left.
///
/// # Errors
/// If the register cannot be read, or something is left that should not be.
pub fn live_runs() -> Result<Vec<LiveRun>, MachineError> {
    let register = Register::open()?;
    let locked = register.lock()?;
    let live = leftovers::sweep(&locked)?.live;
    Ok(live
        .into_iter()
        .filter_map(|entry| {
            let group = entry.group()?;
            let owner = entry.living_owner();
            let Entry { id, command, swap, .. } = entry;
            Some(LiveRun { id, command, owner, group, swap: swap.map(|swap| swap.path) })
        })
        .collect())
}

/// Between two looks of a keeper.
const KEEPER_PAUSE: std::time::Duration = std::time::Duration::from_millis(500);

fn check(limits: &Limits) -> Result<(), MachineError> {
    let all_bytes = memory::total_bytes().unwrap_or(u64::MAX);
    if !(DRAM_BYTES_MIN..=all_bytes).contains(&limits.dram_bytes) {
        return Err(MachineError::Dram { bytes: limits.dram_bytes, all_bytes });
    }
    Ok(())
}

fn make(locked: &register::Locked<'_>, entry: &mut Entry, limits: &Limits) -> Result<Group, MachineError> {
    flash::provide(locked, entry, &limits.flash)?;
    let hierarchy = Hierarchy::of_memory()?;
    let group = group::make(&hierarchy, locked, entry)?;
    let flash = limits.flash.bytes().map_or(Limit::Unlimited, Limit::Bytes);
    group.set_limits(Limit::Bytes(limits.dram_bytes), flash)?;
    if group.version() == Version::Two {
        // A program of which a part was killed does not work any more. Kernels before 4.19 have no such thing.
        let _ = group.set_killed_together(true);
        // It may not be there, or not listen.
        let _ = avoid_oom_daemon(&group);
    }
    Ok(group)
}

/// A path that nobody has to interpret from here on.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
