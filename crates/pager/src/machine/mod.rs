//! The machine's side of a run: its control group and its swap, made before the program starts, taken away after the last of its
//! processes has ended. Knows nothing of programs and decisions.
//!
//! Whatever is made stands in the [`register`] before it is made, so that the next run finds what a killed one has left.

mod apart;
mod attach_error;
mod attachment;
mod error;
mod flash;
mod flash_speed;
mod fresh_counts;
mod group;
mod leftovers;
mod limit_change;
mod limits;
mod page_out;
mod register;
mod room_wait;
mod saved_limits;
mod swap_return;

pub use apart::{Apart, Kept, start_apart};
pub use attach_error::AttachError;
pub use attachment::{Attachment, Subject};
pub use error::MachineError;
pub use flash::Flash;
pub use flash_speed::flash_read_speed;
pub use fresh_counts::keep_counts_fresh;
pub use leftovers::Left;
pub use limit_change::change as change_limits;
pub use limits::{
    DRAM_BYTES_MIN, Limits, POOL_PART_BYTES_MIN, check as check_dram, check_flash, of as limits_of,
};
pub use register::Register;
pub use room_wait::{FullTime, end_room_wait, wait_for_room};

use std::path::{Path, PathBuf};

use tiermem_sys::control_group::{Group, Hierarchy, Limit, Version, avoid_oom_daemon};

use register::Entry;

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
        limits::check(limits.dram_bytes)?;
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

    /// Takes over the care of a run whose program has ended, and of which processes are left.
    ///
    /// # Errors
    /// If there is no such run, or its group has gone.
    pub fn adopt(id: &str) -> Result<Self, MachineError> {
        let register = Register::open()?;
        let entry = register.lock()?.adopt(id)?;
        let group = entry.group().ok_or_else(|| MachineError::Unknown { id: id.to_owned() })?;
        Ok(Reservation { register, entry, group })
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

    /// Where requests about it come in.
    pub fn socket(&self) -> PathBuf {
        self.register.socket(&self.entry.id)
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

/// A run or an attachment that lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveRun {
    /// Its name in the register.
    pub id: String,
    /// Its program.
    pub command: String,
    /// The process that takes care of it; `None` if that was killed, and the program goes on.
    pub owner: Option<u32>,
    /// Its control group; `None`: a process is attached to, in whichever group it is.
    pub group: Option<Group>,
    /// The process that is attached to.
    pub process: Option<u32>,
    /// Whether it is an attachment, whose end is none of the program's.
    pub is_attachment: bool,
    /// Where requests about it come in, while somebody takes care of it.
    pub socket: PathBuf,
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
            let (group, process) = (entry.limited_group(), entry.attached_process().map(|it| it.pid));
            // One that is being made has neither yet.
            if group.is_none() && process.is_none() {
                return None;
            }
            let (owner, socket) = (entry.living_owner(), register.socket(&entry.id));
            let is_attachment = entry.attached.is_some();
            let Entry { id, command, swap, .. } = entry;
            let swap = swap.map(|swap| swap.path);
            Some(LiveRun { id, command, owner, group, process, is_attachment, socket, swap })
        })
        .collect())
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
