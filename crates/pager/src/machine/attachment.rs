//! The machine's side of an attachment: the limits of a group of somebody else's, which are put back, and swap.

use std::path::Path;

use tiermem_sys::control_group::{Group, Hierarchy, Limit, all_processes};
use tiermem_sys::page_scan::PageScan;
use tiermem_sys::process_identity::ProcessIdentity;
use tiermem_sys::process_stat::{ProcessMemory, ProcessStat};

use super::attach_error::AttachError;
use super::error::MachineError;
use super::leftovers::{self, Left};
use super::limits::{self, Limits};
use super::register::{Attached, Entry, Locked, Register};
use super::saved_limits::SavedLimits;
use super::{flash, limit_change};

/// What is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A control group, by its folder or its name.
    Group(std::path::PathBuf),
    /// A process, with its descendants.
    Process(u32),
}

/// An attachment. Dropping this leaves it to the next pager command: call [`Self::end`].
#[derive(Debug)]
pub struct Attachment {
    register: Register,
    entry: Entry,
    limits: Limits,
}

impl Attachment {
    /// Notes what the limits are, and sees to it that there is swap; no limit is changed. First takes away what others that were killed have
    /// left.
    ///
    /// # Errors
    /// If it cannot be attached to; then nothing is left.
    pub fn make(subject: &Subject, limits: &Limits) -> Result<Self, MachineError> {
        limits::check(limits.dram_bytes)?;
        let register = Register::open()?;
        let locked = register.lock()?;
        let _ = leftovers::sweep(&locked);
        let (attached, name) = match subject {
            Subject::Group(path) => to_group(path, &locked)?,
            Subject::Process(pid) => to_process(*pid, &locked)?,
        };
        let mut entry = locked.begin(&name)?;
        entry.attached = Some(attached);
        let made = locked.write(&entry).and_then(|()| flash::provide(&locked, &mut entry, &limits.flash));
        if let Err(error) = made {
            entry.is_over = true;
            let _ = locked.write(&entry);
            let _ = leftovers::sweep(&locked);
            return Err(error);
        }
        drop(locked);
        Ok(Attachment { register, entry, limits: limits.clone() })
    }

    /// Its name in the register.
    pub fn id(&self) -> &str {
        &self.entry.id
    }

    /// The group that is limited; `None`: a process is attached to.
    pub fn group(&self) -> Option<Group> {
        self.entry.attached_group()
    }

    /// The swap file or device that was turned on for it.
    pub fn swap(&self) -> Option<&Path> {
        self.entry.swap.as_ref().map(|swap| swap.path.as_path())
    }

    /// Where requests about it come in.
    pub fn socket(&self) -> std::path::PathBuf {
        self.register.socket(&self.entry.id)
    }

    /// Sets the limits of the group. What is above them leaves meanwhile, which can take long.
    ///
    /// # Errors
    /// If not enough can leave, or `is_stopped` says so.
    pub fn limit(&self, is_stopped: &dyn Fn() -> bool) -> Result<(), MachineError> {
        let Some(group) = self.group() else { return Ok(()) };
        let swap = self.limits.flash.bytes().map_or(Limit::Unlimited, Limit::Bytes);
        limit_change::change(&group, (Limit::Bytes(self.limits.dram_bytes), swap), is_stopped)
    }

    /// Puts the limits back, and takes the swap away.
    ///
    /// # Errors
    /// If something is left. It is tried again by the next pager command.
    pub fn end(self) -> Result<Left, MachineError> {
        let Attachment { register, mut entry, .. } = self;
        let locked = register.lock()?;
        entry.is_over = true;
        locked.write(&entry)?;
        leftovers::sweep(&locked).map(|all| all.of(&entry))
    }
}

fn to_group(path: &Path, locked: &Locked<'_>) -> Result<(Attached, String), MachineError> {
    let hierarchy = Hierarchy::of_memory()?;
    let group = hierarchy.group_at(path)?;
    let path = group.path().to_owned();
    if hierarchy.is_top(&group) {
        return Err(AttachError::Top { path }.into());
    }
    if hierarchy.own_group()?.path().starts_with(&path) {
        return Err(AttachError::OwnGroup { path }.into());
    }
    let has_it =
        |entry: &&Entry| entry.is_live() && entry.limited_group().is_some_and(|it| it.path() == path);
    if let Some(entry) = locked.entries()?.iter().find(has_it) {
        let what = path.display().to_string();
        return Err(AttachError::Taken { what, id: entry.id.clone() }.into());
    }
    if all_processes(&group)?.is_empty() {
        return Err(AttachError::Empty { path }.into());
    }
    let before = SavedLimits::of(&group)?;
    let attached = Attached::group(&group, before)?;
    Ok((attached, path.display().to_string()))
}

fn to_process(pid: u32, locked: &Locked<'_>) -> Result<(Attached, String), MachineError> {
    let identity = ProcessIdentity::of(pid).ok_or(AttachError::Gone { pid })?;
    if lineage(std::process::id()).contains(&pid) {
        return Err(AttachError::Ancestor { pid }.into());
    }
    if ProcessMemory::of(pid).is_none() {
        return Err(AttachError::NoMemory { pid }.into());
    }
    let ancestors = lineage(pid);
    let has_it = |entry: &&Entry| {
        let is_attached = || entry.attached_process().is_some_and(|it| ancestors.contains(&it.pid));
        let is_in_group = || {
            let group = entry.limited_group();
            group.is_some_and(|group| all_processes(&group).is_ok_and(|all| all.contains(&pid)))
        };
        entry.is_live() && (is_attached() || is_in_group())
    };
    if let Some(entry) = locked.entries()?.iter().find(has_it) {
        return Err(AttachError::Taken { what: format!("process {pid}"), id: entry.id.clone() }.into());
    }
    // Nothing is asked of the pages: only whether it may be.
    let scanned = PageScan::open(pid).and_then(|mut scan| scan.occupied(0, 4096, |_, _| {}));
    scanned.map_err(|source| AttachError::NoScan { pid, source })?;
    let name = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let name = String::from_utf8_lossy(&name).replace('\0', " ").trim_end().to_owned();
    Ok((Attached::process(identity), name))
}

/// A process and its ancestors.
fn lineage(pid: u32) -> Vec<u32> {
    let parent = |pid: &u32| ProcessStat::of(*pid).map(|stat| stat.parent).filter(|parent| *parent != 0);
    // Numbers that pass to other processes meanwhile cannot make it endless.
    std::iter::successors(Some(pid), parent).take(1 << 12).collect()
}
