//! Flash: the swap file of a run, where it lies, and turning it on.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};

use tiermem_sys::swap::{self, SwapArea, SwapError, SwapOptions};

use super::absolute;
use super::error::MachineError;
use super::register::{Entry, EntrySwap, Locked};

/// Files of runs have names that begin and end so, and this label.
const PREFIX: &str = "tiermem-pager-";
const SUFFIX: &str = ".swap";
const LABEL: &str = "tiermem";
/// Where files lie unless a place is named.
const FOLDER: &str = "/var/lib/tiermem";
/// Above what is turned on without a thought, which has a priority below zero.
const PRIORITY: u16 = 1000;
const PRIORITY_MAX: i32 = 32767;

/// The swap of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flash {
    /// Swap that is on already, as much as there is.
    AlreadyOn,
    /// So many bytes.
    Limited {
        /// At most these.
        bytes: u64,
        /// A file in this folder, a file of this name, or a block device that holds swap. `None`: swap that is on already; where there is
        /// none, a file in the usual folder.
        place: Option<PathBuf>,
    },
}

impl Flash {
    /// The most that it may hold; `None`: all that there is.
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Flash::AlreadyOn => None,
            Flash::Limited { bytes, .. } => Some(*bytes),
        }
    }
}

/// Sees to it that there is swap for a run, and notes in its entry what was turned on for it.
pub fn provide(locked: &Locked<'_>, entry: &mut Entry, flash: &Flash) -> Result<(), MachineError> {
    let areas = areas()?;
    let entries = locked.entries()?;
    // What other runs have turned on goes with them.
    let is_ours = |area: &&SwapArea| {
        entries.iter().filter_map(|it| it.swap.as_ref()).any(|swap| swap.path == area.path)
    };
    let others: Vec<&SwapArea> = areas.iter().filter(|area| !is_ours(area)).collect();
    let Some(bytes) = flash.bytes() else {
        return if others.is_empty() { Err(MachineError::NoSwap) } else { Ok(()) };
    };
    let path = match flash {
        Flash::Limited { place: Some(path), .. } => {
            let path = absolute(path);
            if areas.iter().any(|area| area.path == path) {
                return Ok(());
            }
            path_at(&path, &entry.id)?
        }
        _ if others.is_empty() => usual_folder()?.join(name(&entry.id)),
        _ => {
            let free_bytes = others.iter().map(|area| area.bytes.saturating_sub(area.used_bytes)).sum();
            return match free_bytes >= bytes {
                true => Ok(()),
                false => Err(MachineError::SwapTooSmall { bytes, free_bytes }),
            };
        }
    };
    let is_device = is_device(&path);
    if let Some(folder) = path.parent().filter(|_| !is_device) {
        remove_orphans(folder, &entries, &areas);
    }
    entry.swap = Some(EntrySwap { path: path.clone(), is_made: !is_device });
    locked.write(entry)?;
    if !is_device {
        let made = swap::make_file(&path, bytes + swap::SWAP_HEADER_BYTES, uuid(&entry.id), LABEL);
        made.map_err(|error| forget(locked, entry, with_place(error, bytes)))?;
    }
    let ours = areas.iter().filter(is_ours).map(|area| area.priority).min();
    let options = SwapOptions { priority: Some(priority(&others, ours)), ..SwapOptions::default() };
    Ok(swap::turn_on(&path, options)?)
}

fn areas() -> Result<Vec<SwapArea>, MachineError> {
    let failed = |error| MachineError::register("read the swap areas for", Path::new("/proc/swaps"), error);
    swap::areas().map_err(failed)
}

/// Nothing was made: whatever is at that place is not ours.
fn forget(locked: &Locked<'_>, entry: &mut Entry, error: MachineError) -> MachineError {
    entry.swap = None;
    match locked.write(entry) {
        Ok(()) => error,
        Err(other) => other,
    }
}

/// A priority above that of all swap of others, and below that of other runs: their files are filled first, so that this one's holds as
/// little of others as can be.
fn priority(others: &[&SwapArea], ours: Option<i32>) -> u16 {
    let above = others.iter().map(|area| area.priority).max().unwrap_or(-1) + 1;
    let wanted = ours.map_or(i32::from(PRIORITY), |lowest| lowest - 1);
    wanted.max(above).clamp(0, PRIORITY_MAX) as u16
}

fn name(id: &str) -> String {
    format!("{PREFIX}{id}{SUFFIX}")
}

fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|it| it.file_type().is_block_device())
}

/// What a named place means.
fn path_at(path: &Path, id: &str) -> Result<PathBuf, MachineError> {
    let problem = |problem: &str| MachineError::Place { path: path.to_owned(), problem: problem.to_owned() };
    match fs::metadata(path) {
        Ok(it) if it.is_dir() => Ok(path.join(name(id))),
        Ok(it) if it.file_type().is_block_device() => Ok(path.to_owned()),
        Ok(_) => Err(problem(
            "there is a file, and files that are there are left alone; name a folder, or a new file",
        )),
        Err(_) if path.parent().is_some_and(Path::is_dir) => Ok(path.to_owned()),
        Err(_) => Err(problem("its folder is not there; make that first, or name another one")),
    }
}

fn usual_folder() -> Result<PathBuf, MachineError> {
    let folder = PathBuf::from(FOLDER);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(|error| MachineError::Place {
        path: folder.clone(),
        problem: format!("{error}; run as root, or name a folder: --flash DIR=SIZE"),
    })?;
    swap::check_place(&folder).map_err(|error| with_place(error, 0))?;
    Ok(folder)
}

/// Whether a run has made this file: by its name, also where it is not finished; by its label, where the user has named it.
pub fn is_made_by_a_run(path: &Path) -> bool {
    has_our_name(path) || swap::label_of(path).as_deref() == Some(LABEL)
}

fn has_our_name(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX))
}

/// Files that runs of an earlier boot have left in this folder: only those with our name and our label that are not in use.
fn remove_orphans(folder: &Path, entries: &[Entry], areas: &[SwapArea]) {
    let files = fs::read_dir(folder).into_iter().flatten().filter_map(|file| file.ok().map(|it| it.path()));
    let is_ours = |path: &PathBuf| has_our_name(path) && swap::label_of(path).as_deref() == Some(LABEL);
    let is_used = |path: &PathBuf| {
        areas.iter().any(|area| area.path == *path)
            || entries.iter().filter_map(|it| it.swap.as_ref()).any(|swap| swap.path == *path)
    };
    for path in files.filter(|path| is_ours(path) && !is_used(path)) {
        // One that cannot be removed takes room and does no harm.
        let _ = fs::remove_file(path);
    }
}

/// Says which place would do, where the file system cannot hold swap.
fn with_place(source: SwapError, bytes: u64) -> MachineError {
    let advice = match &source {
        SwapError::FileSystem { .. } => match place_for(bytes) {
            Some(place) => format!("; {} would do: --flash {}=SIZE", place.display(), place.display()),
            None => String::new(),
        },
        _ => String::new(),
    };
    MachineError::Swap { source, advice }
}

/// A folder that all users know, on a file system that can hold swap and has room.
fn place_for(bytes: u64) -> Option<PathBuf> {
    let known = ["/var/tmp", "/var/lib", "/srv", "/home", "/opt", "/mnt", "/"];
    let fits = |path: &Path| {
        let free = fs::File::open(path).and_then(|folder| tiermem_sys::disk::free_bytes(&folder));
        swap::check_place(path).is_ok() && free.is_ok_and(|free| free > bytes)
    };
    known.iter().map(PathBuf::from).find(|path| fits(path))
}

/// Tells areas apart: nobody looks swap of ours up by it.
fn uuid(id: &str) -> [u8; 16] {
    let mut uuid = tiermem_sys::boot::id().unwrap_or_default();
    id.bytes().enumerate().for_each(|(at, byte)| uuid[at % 16] ^= byte);
    uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(path: &str, priority: i32) -> SwapArea {
        SwapArea { path: path.into(), is_device: false, bytes: 1 << 30, used_bytes: 0, priority }
    }

    #[test]
    fn priorities_lie_above_others_and_below_older_runs() {
        let (low, high) = (area("/a", -2), area("/b", 2000));
        assert_eq!(priority(&[], None), 1000);
        assert_eq!(priority(&[&low], Some(1000)), 999);
        assert_eq!(priority(&[&low, &high], None), 2001);
        assert_eq!(priority(&[&high], Some(2001)), 2001);
        assert_eq!(priority(&[&area("/c", 32767)], None), 32767);
    }

    #[test]
    fn places_are_folders_new_files_or_devices() {
        let folder = tempfile::tempdir().unwrap();
        assert!(path_at(folder.path(), "7-1").unwrap().ends_with("tiermem-pager-7-1.swap"));
        let file = folder.path().join("file");
        assert_eq!(path_at(&file, "7-1").unwrap(), file);
        fs::write(&file, "not ours").unwrap();
        assert!(path_at(&file, "7-1").unwrap_err().to_string().contains("left alone"));
        assert!(path_at(&folder.path().join("a/b"), "7-1").unwrap_err().to_string().contains("folder"));
    }

    #[test]
    fn only_what_nobody_uses_and_is_ours_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["tiermem-pager-1-1.swap", "tiermem-pager-2-1.swap", "mine.swap"] {
            if let Err(SwapError::FileSystem { file_system, .. }) =
                swap::make_file(&path(name), 1 << 20, [0; 16], LABEL)
            {
                return eprintln!("not run: {file_system}");
            }
        }
        fs::write(path("tiermem-pager-3-1.swap"), "no swap").unwrap();
        let used = SwapArea { path: path("tiermem-pager-2-1.swap"), ..area("", 0) };
        remove_orphans(folder.path(), &[], &[used]);
        let left = ["tiermem-pager-2-1.swap", "mine.swap", "tiermem-pager-3-1.swap"];
        assert!(left.iter().all(|name| path(name).exists()) && !path("tiermem-pager-1-1.swap").exists());
    }
}
