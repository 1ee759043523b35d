//! Loading of a snapshot.

use std::fs::File;
use std::io::BufReader;
use std::str::FromStr;

use super::files::{Files, SnapshotFile};
use super::format::{Block, Blocks, Taken, read_item};
use crate::engine::{Engine, Restored};
use crate::shards::Placement;

/// Which snapshots to load.
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

/// Result of loading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Items that are in memory now.
    pub items: u64,
    /// Expired items.
    pub expired: u64,
    /// Items with a key that a persistent tier has.
    pub known: u64,
    /// Items for which there was no room, or that made no sense.
    pub refused: u64,
    /// Items lost in damaged blocks.
    pub damaged: u64,
    /// Whether a file ended before its end: how many items are missing is not known.
    pub cut: bool,
    /// Files that do not count and were left out, while others do.
    pub files_left_out: u64,
    /// Bytes read.
    pub bytes: u64,
}

/// Result of loading, or the reason why nothing was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// There is no file.
    Absent,
    /// It was taken while the store ran, and what came behind it is not in it.
    Running,
    /// It was loaded before, or a run that was told not to load it came since.
    Superseded,
    /// Another run came between it and what the other tiers hold.
    Stale,
    /// It was not asked for.
    Unwanted,
    /// This much.
    Items(Progress),
}

/// Bytes read from a file at a time.
const READ_BYTES: usize = 256 << 10;

/// A file that is being loaded.
struct Reading<'a> {
    blocks: Blocks<BufReader<&'a File>>,
    /// Whether it is of the moment in which the tiers that outlive the process were left.
    exact: bool,
    /// Items in the blocks so far.
    items: u64,
}

impl Files {
    /// Loads the items that count, each into the engine of its key's shard, from any shard's file. `report` is
    /// called after each block. The engines must have restored everything else. Damage costs only the damaged items.
    ///
    /// The files are not marked here: [`Self::supersede`] does that, when
    /// nothing can fail any more and before the first client changes anything.
    pub fn load(&self, which: Load, engines: &mut [Engine], mut report: impl FnMut(&Progress)) -> Loaded {
        let Some(newest) = self.newest(which) else { return Loaded::Absent };
        let follows = engines.iter().all(|engine| engine.kept().follows(newest.header.session));
        let counts = |file: &SnapshotFile| {
            let of_its_run =
                file.header.taken == Taken::Stopped && file.header.session == newest.header.session;
            of_its_run && follows || which == Load::Always
        };
        match (which, newest.header.taken) {
            (Load::Never, _) => return Loaded::Unwanted,
            (Load::Clean, Taken::Running) => return Loaded::Running,
            (Load::Clean, Taken::Superseded) => return Loaded::Superseded,
            (Load::Clean, Taken::Stopped) if !follows => return Loaded::Stale,
            _ => {}
        }
        let mut progress = Progress::default();
        let mut readings = Vec::new();
        for file in self.found.iter().filter(|file| file.shards == newest.shards) {
            if counts(file) {
                let blocks = Blocks::new(BufReader::with_capacity(READ_BYTES, &file.file));
                let stopped = file.header.taken == Taken::Stopped;
                let exact =
                    stopped && engines.iter().all(|engine| engine.kept().follows(file.header.session));
                readings.push(Reading { blocks, exact, items: 0 });
            } else {
                progress.files_left_out += 1;
            }
        }
        let mut buffer = Vec::new();
        // A block of each in turn, as each begins with what is cold and ends with what is hot.
        while !readings.is_empty() {
            readings.retain_mut(|reading| {
                let goes_on = reading.load_block(engines, &mut buffer, &mut progress);
                if goes_on {
                    report(&progress);
                }
                goes_on
            });
        }
        Loaded::Items(progress)
    }

    /// The file that says which of them count: those of other numbers of shards are older. Where only what an orderly stop
    /// wrote is loaded, and a clock was set back, that goes before time.
    fn newest(&self, which: Load) -> Option<&SnapshotFile> {
        let counts = |file: &SnapshotFile| which == Load::Clean && file.header.taken == Taken::Stopped;
        self.found.iter().max_by_key(|file| (counts(file), file.header.unix_ms))
    }
}

impl Reading<'_> {
    /// Loads the next block; `false`: there is none.
    fn load_block(&mut self, engines: &mut [Engine], buffer: &mut Vec<u8>, progress: &mut Progress) -> bool {
        let placement = Placement { own: 0, shards: engines.len() };
        match self.blocks.next(buffer) {
            Block::Items(count) => {
                let mut rest = &buffer[..];
                let mut read = 0;
                while let Some(item) = read_item(&mut rest) {
                    read += 1;
                    match engines[placement.shard_of(item.key)].restoring().restore(&item, self.exact) {
                        Restored::Taken => progress.items += 1,
                        Restored::Expired => progress.expired += 1,
                        Restored::Known => progress.known += 1,
                        Restored::Refused => progress.refused += 1,
                    }
                }
                self.items += u64::from(count);
                progress.damaged += u64::from(count).saturating_sub(read);
            }
            Block::Damaged(count) => {
                self.items += u64::from(count);
                progress.damaged += u64::from(count);
            }
            Block::End(items) => {
                progress.cut |= items != self.items;
                return false;
            }
            Block::Cut => {
                progress.cut = true;
                return false;
            }
        }
        progress.bytes += buffer.len() as u64;
        for engine in engines {
            engine.commit();
        }
        true
    }
}
