//! Files of a snapshot: one for each shard at the time of writing.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::format::{FormatError, HEADER_BYTES, Header, Taken};
use crate::shards::SHARDS_MAX;
use tiermem_sys::disk;

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// What is there is none of ours.
    #[error("{}: {source}: choose another path for the snapshot, or move the file away", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: FormatError,
    },
    /// Another process writes it, perhaps as the last thing that it does.
    #[error("the snapshot {} belongs to a store that still runs: wait until it has stopped, or choose another path", .0.display())]
    InUse(PathBuf),
}

/// The file to which one of `shards` shards writes the snapshot `name`. Each shard
/// has a file of its own, and the files of another number of shards have other names.
pub fn path_of(name: &Path, shard: usize, shards: usize) -> PathBuf {
    let mut path = name.as_os_str().to_owned();
    if shards > 1 {
        path.push(format!(".{shard}-of-{shards}"));
    }
    path.into()
}

/// Of how many shards a file is a part that has this behind the snapshot's name. `None`: it is something else.
fn shards_of(suffix: &[u8]) -> Option<usize> {
    if suffix.is_empty() {
        return Some(1);
    }
    let (shard, shards) = std::str::from_utf8(suffix).ok()?.strip_prefix('.')?.split_once("-of-")?;
    let (shard, shards): (usize, usize) = (shard.parse().ok()?, shards.parse().ok()?);
    // Written in no other way than here, as `path_of` does it.
    let ours = format!(".{shard}-of-{shards}").as_bytes() == suffix;
    (ours && shard < shards && (2..=SHARDS_MAX).contains(&shards)).then_some(shards)
}

/// A file, read up to its first block.
#[derive(Debug)]
pub(super) struct SnapshotFile {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) header: Header,
    /// How many shards there were when it was written.
    pub(super) shards: usize,
}

/// All files of one snapshot, of any number of shards.
#[derive(Debug)]
pub struct Files {
    pub(super) found: Vec<SnapshotFile>,
    /// Held while this process may write the files: a stopping store writes its last snapshot after it has closed
    /// its sockets, and the next store must not start before that. `None` where there is no directory yet.
    _lock: Option<File>,
}

impl Files {
    /// Opens the files of the snapshot `name`. Changes none of them.
    ///
    /// # Errors
    /// When one of them is not a snapshot of this version: a foreign file
    /// is never overwritten later, and no file is skipped that might count.
    pub fn open(name: &Path) -> Result<Self, LoadError> {
        let error = |path: &Path, source| LoadError::File { path: path.to_owned(), source };
        let lock = lock(name)?;
        let mut found = Vec::new();
        for (path, shards) in list(name).map_err(|source| error(name, source.into()))? {
            if let Some((file, header)) = open(&path).map_err(|source| error(&path, source))? {
                found.push(SnapshotFile { path, file, header, shards });
            }
        }
        Ok(Files { found, _lock: lock })
    }

    /// Notes on the disk that what they hold counts no more: from here on keys may change of which they know nothing. Loaded
    /// or not, of this number of shards or another.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn supersede(&self) -> Result<(), LoadError> {
        for SnapshotFile { path, file, header, .. } in &self.found {
            if header.taken == Taken::Stopped {
                let header = Header { taken: Taken::Superseded, ..*header }.to_bytes();
                file.write_all_at(&header, 0)
                    .and_then(|()| file.sync_all())
                    .map_err(|source| LoadError::File { path: path.clone(), source: source.into() })?;
            }
        }
        Ok(())
    }
}

/// Takes all files of a snapshot for this process.
fn lock(name: &Path) -> Result<Option<File>, LoadError> {
    let mut path = name.as_os_str().to_owned();
    path.push(".lock");
    let path = PathBuf::from(path);
    let taken = match disk::open(&path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        other => other.and_then(|file| Ok(disk::lock(&file)?.then_some(file))),
    };
    match taken {
        Ok(Some(file)) => Ok(Some(file)),
        Ok(None) => Err(LoadError::InUse(name.to_owned())),
        Err(source) => Err(LoadError::File { path, source: source.into() }),
    }
}

/// The paths of `name`'s files, each with the number of shards, in the order of both.
fn list(name: &Path) -> io::Result<Vec<(PathBuf, usize)>> {
    let directory = name.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let base = name.file_name().unwrap_or_default();
    let entries = match std::fs::read_dir(directory) {
        // The same as an empty one: a later write reports the error.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        other => other?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry?.file_name();
        let suffix = entry.as_bytes().strip_prefix(base.as_bytes());
        if let Some(shards) = suffix.and_then(shards_of) {
            paths.push((name.with_file_name(&entry), shards));
        }
    }
    paths.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
    Ok(paths)
}

fn open(path: &Path) -> Result<Option<(File, Header)>, FormatError> {
    let mut file = match File::options().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut head = Vec::with_capacity(HEADER_BYTES);
    file.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut head)?;
    // An empty file is not a foreign one.
    if head.is_empty() { Ok(None) } else { Ok(Some((file, Header::read(&head)?))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        let name = Path::new("/srv/it");
        for (shard, shards) in [(0, 1), (0, 2), (1, 2), (9, 16), (255, 256)] {
            let path = path_of(name, shard, shards);
            let suffix = path.as_os_str().as_bytes().strip_prefix(b"/srv/it").unwrap();
            assert_eq!(shards_of(suffix), Some(shards), "{path:?}");
        }
        for other in
            [".new", ".lock", ".0-of-2.new", ".2-of-2", ".0-of-1", ".00-of-2", ".0-of-257", "x", ".+0-of-2"]
        {
            assert_eq!(shards_of(other.as_bytes()), None, "{other}");
        }
    }
}
