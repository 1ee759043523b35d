//! Weights of weighted interleaving: how many pages it takes from each node. The kernel has one table for the whole machine.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

const FOLDER: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";

/// Weights of nodes, set for the whole machine; dropped, they are what they were before.
#[derive(Debug)]
pub struct Weights {
    /// Files and what was in them, in the order in which they were changed.
    before: Vec<(PathBuf, String)>,
    /// Locked, so that no other process that uses this type changes them meanwhile.
    _lock: File,
}

/// Why weights were not set. They are what they were before, but for what `left` says.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The kernel has none.
    #[error("the kernel has no weighted interleaving ({}); Linux 6.9 or newer has", path.display())]
    Missing {
        /// The folder that is not there.
        path: PathBuf,
    },
    /// Another run has set them.
    #[error(
        "the weights of nodes hold for the whole machine, and another run has set them ({} is locked); wait for its end",
        path.display()
    )]
    InUse {
        /// The folder that is locked.
        path: PathBuf,
    },
    /// One could not be read or written.
    #[error("the weight of a node cannot be set ({}): {source}{left}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
        /// The settings that could not be put back, and how to mend them; empty if all were.
        left: String,
    },
}

impl Weights {
    /// Sets the weights of some nodes.
    ///
    /// # Errors
    /// If the kernel has no weights, if another process has set them in this way, or if one cannot be written, which needs
    /// root.
    pub fn set(weights: &[(u32, u8)]) -> Result<Self, WeightsError> {
        Self::set_below(Path::new(FOLDER), weights)
    }

    fn set_below(folder: &Path, weights: &[(u32, u8)]) -> Result<Self, WeightsError> {
        let lock = File::open(folder).map_err(|_| WeightsError::Missing { path: folder.to_owned() })?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| WeightsError::InUse { path: folder.to_owned() })?;
        let mut set = Weights { before: Vec::new(), _lock: lock };
        let before = set.before_all(folder, weights);
        let written = before.and_then(|()| {
            weights.iter().try_for_each(|(node, weight)| {
                let path = folder.join(format!("node{node}"));
                write(&path, &weight.to_string()).map_err(|source| (path, source))
            })
        });
        written.map_err(|(path, source)| {
            let left = set.restore().map(|how| format!("; {how}")).unwrap_or_default();
            WeightsError::Refused { path, source, left }
        })?;
        Ok(set)
    }

    /// Reads what is going to be changed.
    fn before_all(&mut self, folder: &Path, weights: &[(u32, u8)]) -> Result<(), (PathBuf, io::Error)> {
        for (node, _) in weights {
            let path = folder.join(format!("node{node}"));
            let text = fs::read_to_string(&path).map_err(|source| (path.clone(), source))?;
            self.before.push((path, text.trim().to_owned()));
        }
        // Where the kernel derives weights from bandwidths (6.16 or newer), a weight that is written ends that, until it is
        // asked for again: last, since it replaces the weights. Some builds of the kernel have the file by its second name.
        for name in ["auto", "__auto_type"] {
            let path = folder.join(name);
            match fs::read_to_string(&path) {
                Ok(text) if text.trim() == "true" => self.before.push((path, "true".to_owned())),
                _ => {}
            }
        }
        Ok(())
    }

    /// Puts back what was there before. What could not be put back, and how to mend it.
    pub fn restore(&mut self) -> Option<String> {
        let mut left = Vec::new();
        for (path, text) in self.before.drain(..) {
            let is_so = fs::read_to_string(&path).is_ok_and(|now| now.trim() == text);
            if !is_so && let Err(error) = write(&path, &text) {
                left.push(format!("echo {text} >{} ({error})", path.display()));
            }
        }
        let how = left.join("; ");
        (!left.is_empty())
            .then(|| format!("weights of nodes are not what they were before; mend them: {how}"))
    }
}

impl Drop for Weights {
    fn drop(&mut self) {
        let _ = self.restore();
    }
}

/// Files of the kernel exist already, and take what is written as one.
fn write(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    fs::OpenOptions::new().write(true).truncate(true).open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tiermem-weights-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        files.iter().for_each(|(file, text)| fs::write(folder.join(file), text).unwrap());
        folder
    }

    fn read(folder: &Path, file: &str) -> String {
        fs::read_to_string(folder.join(file)).unwrap()
    }

    #[test]
    fn weights_are_set_and_put_back() {
        let folder =
            folder("set", &[("node0", "5\n"), ("node1", "2\n"), ("node2", "7\n"), ("auto", "true\n")]);
        let weights = Weights::set_below(&folder, &[(0, 3), (1, 1)]).unwrap();
        assert_eq!((read(&folder, "node0"), read(&folder, "node1")), ("3".to_owned(), "1".to_owned()));
        let again = Weights::set_below(&folder, &[(0, 9)]).unwrap_err();
        assert!(again.to_string().contains("another run has set them"), "{again}");
        fs::write(folder.join("auto"), "false").unwrap();
        drop(weights);
        assert_eq!((read(&folder, "node0"), read(&folder, "node1")), ("5".to_owned(), "2".to_owned()));
        assert_eq!((read(&folder, "node2"), read(&folder, "auto")), ("7\n".to_owned(), "true".to_owned()));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_failure_leaves_things_as_they_were() {
        let folder = folder("half", &[("node0", "5")]);
        // There is no such node.
        let error = Weights::set_below(&folder, &[(0, 3), (1, 1)]).unwrap_err();
        assert!(error.to_string().contains("node1"), "{error}");
        assert_eq!(read(&folder, "node0"), "5");
        fs::remove_dir_all(&folder).unwrap();
        let error = Weights::set_below(&folder, &[(0, 3)]).unwrap_err();
        assert!(error.to_string().contains("Linux 6.9"), "{error}");
    }

    #[test]
    fn what_cannot_be_put_back_is_told() {
        let folder = folder("gone", &[("node0", "5")]);
        let mut weights = Weights::set_below(&folder, &[(0, 3)]).unwrap();
        fs::remove_file(folder.join("node0")).unwrap();
        let left = weights.restore().unwrap();
        assert!(left.contains("mend them: echo 5 >") && left.contains("node0"), "{left}");
        assert_eq!(weights.restore(), None);
        drop(weights);
        fs::remove_dir_all(&folder).unwrap();
    }
}
