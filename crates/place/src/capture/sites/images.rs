//! The files of code that programs have mapped, each once.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use tiermem_stacks::Image;

/// Files that are kept open, at most. Those beyond have a path and no names.
const OPEN_MAX: usize = 512;

/// What makes a file another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    path: String,
    /// Device, number, and when it was changed; `None` if it could not be opened.
    file: Option<(u64, u64, i64, i64)>,
}

/// All of them, by number.
#[derive(Debug, Default)]
pub(super) struct Images {
    all: Vec<Arc<Image>>,
    numbers: HashMap<Identity, u32>,
    open: usize,
}

impl Images {
    /// The file at a path as a process sees it, and its number.
    pub fn of(&mut self, pid: u32, path: &str) -> (u32, Arc<Image>) {
        // The process may have another root; and it may have ended.
        let file = [format!("/proc/{pid}/root{path}"), path.to_owned()].into_iter().find_map(open);
        let file = file.filter(|_| self.open < OPEN_MAX);
        let identity = file.as_ref().and_then(|file| file.metadata().ok());
        let identity = identity.map(|it| (it.dev(), it.ino(), it.mtime(), it.mtime_nsec()));
        let identity = Identity { path: path.to_owned(), file: identity };
        if let Some(number) = self.numbers.get(&identity) {
            return (*number, Arc::clone(&self.all[*number as usize]));
        }
        self.open += usize::from(file.is_some());
        let image = Arc::new(Image::open(path.to_owned(), file));
        let number = self.all.len() as u32;
        self.all.push(Arc::clone(&image));
        self.numbers.insert(identity, number);
        (number, image)
    }

    /// In the order of numbers.
    pub fn into_all(self) -> Vec<Arc<Image>> {
        self.all
    }
}

/// A file, and nothing that would wait to be opened.
fn open(path: String) -> Option<File> {
    fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
    File::open(path).ok()
}
