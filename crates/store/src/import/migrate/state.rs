//! Progress of a migration, saved so that it can resume.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Options;
use crate::import::LoadError;

const VERSION: u32 = 1;

/// Contents of the file, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Saved {
    version: u32,
    /// From where to where, without passwords, and which keys.
    migration: String,
    /// Which run of the source the cursor belongs to.
    run_id: String,
    cursor: u64,
    /// Keys looked at.
    keys: u64,
    /// A hash of which only a part may have been copied, in hexadecimal digits.
    unfinished: Option<String>,
}

/// The state, and its file if there is one.
#[derive(Debug)]
pub(super) struct State {
    path: Option<PathBuf>,
    saved: Saved,
}

fn failed(path: &Path, source: io::Error) -> LoadError {
    LoadError::State { path: path.to_owned(), source }
}

fn hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl State {
    /// The state in the file, or a new one.
    pub(super) fn begin(options: &Options) -> Result<Self, LoadError> {
        let pattern = options.pattern.as_ref().map_or(String::new(), |pattern| format!(" of {pattern}"));
        let to = &options.target;
        let migration = format!("{} to {}/{}{pattern}", options.from, to.to, to.login.db);
        let fresh = Saved { version: VERSION, migration, ..Saved::default() };
        let Some(path) = &options.state else { return Ok(State { path: None, saved: fresh }) };
        let saved = match fs::read(path) {
            Ok(bytes) => {
                let saved: Saved =
                    serde_json::from_slice(&bytes).map_err(|error| failed(path, io::Error::other(error)))?;
                if (saved.version, &saved.migration) != (VERSION, &fresh.migration) {
                    let (found, wanted) = (saved.migration, fresh.migration);
                    return Err(LoadError::OtherState { path: path.clone(), found, wanted });
                }
                saved
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => fresh,
            Err(error) => return Err(failed(path, error)),
        };
        let state = State { path: Some(path.clone()), saved };
        // That it cannot be written is better known before than after.
        state.save()?;
        Ok(state)
    }

    /// Notes which run of the source answers. When that is another one than before the scan starts from its beginning;
    /// whether it is so.
    pub(super) fn belongs_to(&mut self, run_id: &str) -> bool {
        let other = self.saved.cursor != 0 && self.saved.run_id != run_id;
        if other {
            (self.saved.cursor, self.saved.keys) = (0, 0);
        }
        self.saved.run_id = run_id.to_owned();
        other
    }

    pub(super) fn cursor(&self) -> u64 {
        self.saved.cursor
    }

    pub(super) fn keys(&self) -> u64 {
        self.saved.keys
    }

    /// All keys before this cursor are copied.
    pub(super) fn advance(&mut self, cursor: u64, keys: u64) -> Result<(), LoadError> {
        self.saved.cursor = cursor;
        self.saved.keys += keys;
        self.save()
    }

    /// A part of this hash is about to be copied.
    pub(super) fn begin_hash(&mut self, key: &[u8]) -> Result<(), LoadError> {
        self.saved.unfinished = Some(hex(key));
        self.save()
    }

    /// The whole of it is.
    pub(super) fn end_hash(&mut self) -> Result<(), LoadError> {
        self.saved.unfinished = None;
        self.save()
    }

    /// Whether what the target has under this key may be a part only.
    pub(super) fn is_unfinished(&self, key: &[u8]) -> bool {
        self.saved.unfinished.as_ref().is_some_and(|unfinished| *unfinished == hex(key))
    }

    /// Writes a new file and puts it in the place of the old one: whenever the process dies, one of them is whole.
    fn save(&self) -> Result<(), LoadError> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let new = PathBuf::from(name);
        let bytes = serde_json::to_vec(&self.saved).map_err(|error| failed(path, io::Error::other(error)))?;
        fs::write(&new, bytes).and_then(|()| fs::rename(&new, path)).map_err(|error| failed(path, error))
    }

    /// All is copied: the file has served its purpose.
    pub(super) fn finish(&self) -> Result<(), LoadError> {
        match &self.path {
            Some(path) => fs::remove_file(path).map_err(|error| failed(path, error)),
            None => Ok(()),
        }
    }
}
