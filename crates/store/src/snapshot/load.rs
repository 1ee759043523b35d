//! Loading a snapshot, once.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::format::{Block, Blocks, FormatError, HEADER_BYTES, Header, Taken, read_item};
use crate::engine::{Engine, Restored};

/// Which snapshots are loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Load {
    /// One that was taken when the store stopped, once. Nothing comes back that was deleted or overwritten.
    #[default]
    Clean,
    /// Any: what was deleted or overwritten behind it comes back.
    Always,
    /// None.
    Never,
}

impl FromStr for Load {
    type Err = String;
    /// Reads `clean`, `always` or `never`.
    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "clean" => Ok(Load::Clean),
            "always" => Ok(Load::Always),
            "never" => Ok(Load::Never),
            _ => Err(format!("{word:?} is none of clean, always, never")),
        }
    }
}

/// Why what is there is not a snapshot of ours.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}: choose another path for the snapshot, or move the file away", path.display())]
pub struct LoadError {
    path: PathBuf,
    source: FormatError,
}

/// What came of loading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Items that are in memory now.
    pub items: u64,
    /// Items whose time was over.
    pub expired: u64,
    /// Items whose key a tier that outlives the process has.
    pub known: u64,
    /// Items for which there was no room, or that made no sense.
    pub refused: u64,
    /// Items lost in damaged blocks.
    pub damaged: u64,
    /// Whether the file ended before its end: how many items are missing is not known.
    pub cut: bool,
    /// Bytes read.
    pub bytes: u64,
}

/// What was loaded, or why nothing was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// There is no file.
    Absent,
    /// It was taken while the store ran, and what came behind it is not in it.
    Running,
    /// It was loaded before.
    Already,
    /// Another run came between it and what the other tiers hold.
    Stale,
    /// It was not asked for.
    Unwanted,
    /// This much.
    Items(Progress),
}

fn open(path: &Path) -> Result<Option<(File, Header)>, FormatError> {
    let mut file = match File::options().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut head = Vec::with_capacity(HEADER_BYTES);
    file.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut head)?;
    // One that nothing was written to is nobody's.
    if head.is_empty() { Ok(None) } else { Ok(Some((file, Header::read(&head)?))) }
}

/// Looks whether a snapshot may be written to `path` later: nobody else's file is overwritten.
///
/// # Errors
/// When there is something else.
pub fn check(path: &Path) -> Result<(), LoadError> {
    open(path).map(|_| ()).map_err(|source| LoadError { path: path.to_owned(), source })
}

/// Loads the snapshot at `path`, if it counts, and notes in it that it was loaded. `report` is told after each block.
/// The engine has taken up everything else.
///
/// # Errors
/// When the file is no snapshot of this version. Damage further on costs the items that are damaged.
pub fn load(
    path: &Path,
    which: Load,
    engine: &mut Engine,
    mut report: impl FnMut(&Progress),
) -> Result<Loaded, LoadError> {
    let error = |source| LoadError { path: path.to_owned(), source };
    let Some((file, header)) = open(path).map_err(error)? else { return Ok(Loaded::Absent) };
    let exact = header.taken == Taken::Stopped && engine.follows(header.session);
    match (which, header.taken) {
        (Load::Never, _) => return Ok(Loaded::Unwanted),
        (Load::Clean, Taken::Running) => return Ok(Loaded::Running),
        (Load::Clean, Taken::Loaded) => return Ok(Loaded::Already),
        (Load::Clean, Taken::Stopped) if !exact => return Ok(Loaded::Stale),
        _ => {}
    }
    let mut blocks = Blocks::new(BufReader::with_capacity(1 << 20, &file));
    let (mut progress, mut buffer, mut total) = (Progress::default(), Vec::new(), 0u64);
    engine.restoring(true);
    loop {
        match blocks.next(&mut buffer) {
            Block::Items(count) => {
                let mut rest = &buffer[..];
                let mut read = 0;
                while let Some(item) = read_item(&mut rest) {
                    read += 1;
                    match engine.restore(&item, exact) {
                        Restored::Taken => progress.items += 1,
                        Restored::Expired => progress.expired += 1,
                        Restored::Known => progress.known += 1,
                        Restored::Refused => progress.refused += 1,
                    }
                }
                total += u64::from(count);
                progress.damaged += u64::from(count).saturating_sub(read);
            }
            Block::Damaged(count) => {
                total += u64::from(count);
                progress.damaged += u64::from(count);
            }
            Block::End(items) => {
                progress.cut = items != total;
                break;
            }
            Block::Cut => {
                progress.cut = true;
                break;
            }
        }
        progress.bytes += buffer.len() as u64;
        engine.commit();
        report(&progress);
    }
    engine.restoring(false);
    // From here on its items change, so it counts no more; and that before the first client can change one.
    let marked = Header { taken: Taken::Loaded, ..header }.to_bytes();
    file.write_all_at(&marked, 0).and_then(|()| file.sync_all()).map_err(|source| error(source.into()))?;
    Ok(Loaded::Items(progress))
}
