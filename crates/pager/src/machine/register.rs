//! Register of the runs on this machine: a folder with one file for each, and a lock. It says what each has made, so that it is found
//! when the run was killed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use serde::{Deserialize, Serialize};
use tiermem_sys::boot;
use tiermem_sys::control_group::{Group, GroupError, Version, number_of};
use tiermem_sys::disk;
use tiermem_sys::process_identity::ProcessIdentity;

use super::error::MachineError;
use super::saved_limits::SavedLimits;

/// Where the superuser's register is; gone with the boot, as all that it names but the files.
const FOLDER: &str = "/run/tiermem/pager";
const LOCK: &str = "lock";
const SUFFIX: &str = "json";
const SOCKET_SUFFIX: &str = "sock";

/// The register of this user.
#[derive(Debug)]
pub struct Register {
    folder: PathBuf,
    lock: File,
}

/// The register while nobody else has it.
#[derive(Debug)]
pub struct Locked<'a> {
    register: &'a Register,
}

/// What a run has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The name of the run, which no other of this boot has.
    pub id: String,
    /// The boot; what an earlier one made is gone, but for files.
    boot: Option<[u8; 16]>,
    /// The number of the process that takes care of it, and when that was started.
    owner: (u32, u64),
    /// The program that it is for, as lists name it.
    pub command: String,
    /// Its care is over: everything may be taken away.
    pub is_over: bool,
    /// The control group's folder, and whether it is of version 2.
    pub group: Option<(PathBuf, bool)>,
    /// What was turned on for it.
    pub swap: Option<EntrySwap>,
    /// What it is attached to, where the program runs in a group of somebody else's.
    #[serde(default)]
    pub attached: Option<Attached>,
}

/// What an attachment is to, and what has to be put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attached {
    /// A group that was there.
    Group {
        /// Its folder.
        path: PathBuf,
        /// Whether it is of version 2.
        is_second: bool,
        /// Its number: another group may come to have the name.
        number: u64,
        /// Its limits before; `None` once they are put back.
        before: Option<SavedLimits>,
    },
    /// A process: its number, and when it was started.
    Process(u32, u64),
}

impl Attached {
    /// To a group, which has these limits.
    pub fn group(group: &Group, before: SavedLimits) -> Result<Self, GroupError> {
        let (path, is_second) = (group.path().to_owned(), group.version() == Version::Two);
        Ok(Attached::Group { path, is_second, number: number_of(group)?, before: Some(before) })
    }

    /// To a process.
    pub fn process(identity: ProcessIdentity) -> Self {
        Attached::Process(identity.pid, identity.start_ticks)
    }
}

/// Swap that was turned on for a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntrySwap {
    /// The file or device.
    pub path: PathBuf,
    /// Whether the run has made the file, so that it is removed.
    pub is_made: bool,
}

impl Entry {
    /// The group, if it is there.
    pub fn group(&self) -> Option<Group> {
        let (path, is_second) = self.group.as_ref()?;
        let version = if *is_second { Version::Two } else { Version::One };
        Group::open(version, path.clone()).ok()
    }

    /// The group that is attached to, if it is still there.
    pub fn attached_group(&self) -> Option<Group> {
        let Some(Attached::Group { path, is_second, number, .. }) = &self.attached else { return None };
        let version = if *is_second { Version::Two } else { Version::One };
        let group = Group::open(version, path.clone()).ok()?;
        number_of(&group).is_ok_and(|is| is == *number).then_some(group)
    }

    /// The group whose limits are ours: the run's own, or the one that is attached to.
    pub fn limited_group(&self) -> Option<Group> {
        self.group().or_else(|| self.attached_group())
    }

    /// The process that is attached to, if it still runs.
    pub fn attached_process(&self) -> Option<ProcessIdentity> {
        let Some(Attached::Process(pid, start_ticks)) = self.attached else { return None };
        Some(ProcessIdentity { pid, start_ticks }).filter(|process| process.is_alive())
    }

    /// Whether a process is in the group.
    pub fn has_processes(&self) -> bool {
        self.group().is_some_and(|group| group.processes().is_ok_and(|all| !all.is_empty()))
    }

    /// Whether somebody needs what it names: who takes care of it, or a process of its group.
    pub fn is_live(&self) -> bool {
        let is_owned = !self.is_over && self.living_owner().is_some();
        self.boot == boot::id() && (is_owned || self.has_processes())
    }

    /// The process that takes care of it, if that runs.
    pub fn living_owner(&self) -> Option<u32> {
        let (pid, start_ticks) = self.owner;
        ProcessIdentity { pid, start_ticks }.is_alive().then_some(pid)
    }
}

impl Register {
    /// Opens it; it is made if there is none.
    ///
    /// # Errors
    /// If the folder cannot be made, or belongs to somebody else.
    pub fn open() -> Result<Self, MachineError> {
        let users = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !is_superuser());
        let folder =
            users.map_or_else(|| FOLDER.into(), |folder| PathBuf::from(folder).join("tiermem/pager"));
        Register::at(folder)
    }

    pub(super) fn at(folder: PathBuf) -> Result<Self, MachineError> {
        // Nobody else may write to it: what it names is removed.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(|error| MachineError::register("make", &folder, error))?;
        let path = folder.join(LOCK);
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = lock.map_err(|error| MachineError::register("open", &folder, error))?;
        Ok(Register { folder, lock })
    }

    /// Where requests about a run come in.
    pub fn socket(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.{SOCKET_SUFFIX}"))
    }

    /// Waits until nobody else has it.
    ///
    /// # Errors
    /// If it cannot be locked.
    pub fn lock(&self) -> Result<Locked<'_>, MachineError> {
        let failed = |error| MachineError::register("lock", &self.folder, error);
        // Each try takes a second: one that turns swap off has it for long.
        while !disk::lock(&self.lock).map_err(failed)? {}
        Ok(Locked { register: self })
    }
}

impl Locked<'_> {
    fn path_of(&self, id: &str) -> PathBuf {
        self.register.folder.join(format!("{id}.{SUFFIX}"))
    }

    /// A new entry, which names nothing yet.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin(&self, command: &str) -> Result<Entry, MachineError> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let owner = self.own()?;
        let id = format!("{}-{}", owner.0, NUMBER.fetch_add(1, Relaxed));
        let command = command.to_owned();
        let entry = Entry {
            id,
            boot: boot::id(),
            owner,
            command,
            is_over: false,
            group: None,
            swap: None,
            attached: None,
        };
        self.write(&entry)?;
        Ok(entry)
    }

    fn own(&self) -> Result<(u32, u64), MachineError> {
        let own = ProcessIdentity::own();
        let own = own.map_err(|error| MachineError::register("enter", &self.register.folder, error))?;
        Ok((own.pid, own.start_ticks))
    }

    /// Takes over the care of a run.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn adopt(&self, id: &str) -> Result<Entry, MachineError> {
        let found = self.entries()?.into_iter().find(|entry| entry.id == id);
        let mut entry = found.ok_or_else(|| MachineError::Unknown { id: id.to_owned() })?;
        entry.owner = self.own()?;
        self.write(&entry)?;
        Ok(entry)
    }

    /// Writes an entry in the place of what it was.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(&self, entry: &Entry) -> Result<(), MachineError> {
        let path = self.path_of(&entry.id);
        let write = || -> io::Result<()> {
            let text = serde_json::to_vec(entry)?;
            // Another name first: a run that is killed in the middle leaves the entry as it was.
            let new = path.with_extension("new");
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&text)?;
            fs::rename(&new, &path)
        };
        write().map_err(|error| MachineError::register("write to", &path, error))
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove(&self, entry: &Entry) -> Result<(), MachineError> {
        let path = self.path_of(&entry.id);
        // Nobody listens there any more.
        let _ = fs::remove_file(self.register.socket(&entry.id));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(MachineError::register("write to", &path, error))
            }
            _ => Ok(()),
        }
    }

    /// All entries, by name. A file that holds none is passed over: it names nothing that could be taken away.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>, MachineError> {
        let folder = &self.register.folder;
        let failed = |error| MachineError::register("read", folder, error);
        let files = fs::read_dir(folder).map_err(failed)?;
        let is_entry = |path: &Path| path.extension().is_some_and(|suffix| suffix == SUFFIX);
        let paths = files.filter_map(|file| file.ok().map(|file| file.path()));
        let read = |path: PathBuf| serde_json::from_slice::<Entry>(&fs::read(path).ok()?).ok();
        let mut entries: Vec<Entry> = paths.filter(|path| is_entry(path)).filter_map(read).collect();
        entries.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(entries)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // It is unlocked with the file at the latest.
        let _ = disk::unlock(&self.register.lock);
    }
}

fn is_superuser() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_sys::control_group::Limit;

    #[test]
    fn entries_come_back_until_they_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let register = Register::at(folder.path().join("a/b")).unwrap();
        let locked = register.lock().unwrap();
        let mut entry = locked.begin("true").unwrap();
        assert!(entry.is_live() && !entry.has_processes());
        entry.swap = Some(EntrySwap { path: "/x".into(), is_made: true });
        locked.write(&entry).unwrap();
        // Neither half an entry nor another file is one.
        fs::write(folder.path().join("a/b/7-1.json"), "{").unwrap();
        fs::write(folder.path().join("a/b/7-2.new"), "{}").unwrap();
        let second = locked.begin("true").unwrap();
        assert_eq!(locked.entries().unwrap(), [entry.clone(), second.clone()]);
        locked.remove(&second).unwrap();
        locked.remove(&second).unwrap();
        entry.is_over = true;
        assert!(!entry.is_live());
        entry.is_over = false;
        entry.boot = Some([1; 16]);
        assert!(!entry.is_live());
        assert_eq!(locked.adopt(&entry.id).unwrap().owner, entry.owner);
        assert!(locked.adopt("8-1").unwrap_err().to_string().contains("pager status"));
    }

    #[test]
    fn a_group_is_attached_to_as_long_as_it_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("group");
        let make = || {
            fs::create_dir(&path).unwrap();
            let limits = [("memory.max", "1048576"), ("memory.swap.max", "max"), ("memory.high", "max")];
            for (name, text) in limits.into_iter().chain([("cgroup.procs", "")]) {
                fs::write(path.join(name), text).unwrap();
            }
        };
        make();
        let group = Group::open(Version::Two, path.clone()).unwrap();
        let before = SavedLimits::of(&group).unwrap();
        let register = Register::at(folder.path().join("register")).unwrap();
        let locked = register.lock().unwrap();
        let mut entry = locked.begin("app").unwrap();
        entry.attached = Some(Attached::group(&group, before).unwrap());
        locked.write(&entry).unwrap();
        let read = locked.entries().unwrap().remove(0);
        assert_eq!(read, entry);
        assert_eq!(
            (read.group(), read.attached_group(), read.limited_group()),
            (None, Some(group.clone()), Some(group))
        );
        let Some(Attached::Group { before: Some(before), .. }) = &read.attached else { panic!("{read:?}") };
        let limits = (Limit::Bytes(1 << 20), Limit::Unlimited, Limit::Unlimited);
        assert_eq!((before.memory(), before.swap(), before.high()), limits);
        // Another one in its place has limits of its own.
        fs::rename(&path, folder.path().join("old")).unwrap();
        make();
        assert_eq!(read.attached_group(), None);
        // It needs its owner: its processes are not ours.
        fs::write(path.join("cgroup.procs"), std::process::id().to_string()).unwrap();
        entry.is_over = true;
        assert!(!entry.is_live());
        // Versions before had no attachments.
        let mut old: serde_json::Value = serde_json::to_value(&entry).unwrap();
        old.as_object_mut().unwrap().remove("attached");
        assert_eq!(serde_json::from_value::<Entry>(old).unwrap().attached, None);
    }

    #[test]
    fn a_process_is_attached_to_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let identity = ProcessIdentity::of(child.id()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let register = Register::at(folder.path().into()).unwrap();
        let mut entry = register.lock().unwrap().begin("app").unwrap();
        entry.attached = Some(Attached::process(identity));
        assert_eq!((entry.attached_process(), entry.limited_group()), (Some(identity), None));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(entry.attached_process(), None);
    }

    #[test]
    fn one_has_it_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (Register::at(folder.path().into()), Register::at(folder.path().into()));
        let (one, other) = (one.unwrap(), other.unwrap());
        let locked = one.lock().unwrap();
        assert!(!disk::lock(&other.lock).unwrap());
        drop(locked);
        drop(other.lock().unwrap());
    }
}
