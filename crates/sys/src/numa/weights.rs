//! How often each node is taken in turn by weighted interleaving. The weights are the machine's, not a program's: whoever sets
//! them sets them for all, so they are put back afterwards. From kernel 6.9 on; setting them needs root.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const WEIGHTS: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";

/// Why the weights are not as they were asked for.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: {source}", path.display())]
pub struct WeightError {
    /// What was tried: `read` or `write`.
    pub what: &'static str,
    /// The file of the weight.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// Whether the kernel knows weights.
pub fn are_known() -> bool {
    Path::new(WEIGHTS).is_dir()
}

/// Weights that are set until this is dropped, when those before are put back. A process that is killed (SIGKILL) leaves
/// them as they are.
#[derive(Debug)]
pub struct WeightsSet {
    before: Vec<(PathBuf, String)>,
}

impl WeightsSet {
    /// Sets the weight of each of these nodes.
    ///
    /// # Errors
    /// Not found if the kernel knows no weights or there is no such node, permission denied if this is not root, invalid input
    /// for a weight of 0. What was set before the failure is put back.
    pub fn set(weights: &[(u32, u8)]) -> Result<Self, WeightError> {
        WeightsSet::set_below(Path::new(WEIGHTS), weights)
    }

    fn set_below(root: &Path, weights: &[(u32, u8)]) -> Result<Self, WeightError> {
        let mut set = WeightsSet { before: Vec::new() };
        // Newer kernels work weights out themselves until somebody sets one; that is put back last.
        let auto = root.join("auto");
        if let Ok(before) = fs::read_to_string(&auto) {
            set.before.push((auto, before.trim().to_owned()));
        }
        for (node, weight) in weights {
            let path = root.join(format!("node{node}"));
            let failed = |what, path: &Path| {
                let path = path.to_owned();
                move |source| WeightError { what, path, source }
            };
            let before = fs::read_to_string(&path).map_err(failed("read", &path))?;
            fs::write(&path, weight.to_string()).map_err(failed("write", &path))?;
            set.before.push((path, before.trim().to_owned()));
        }
        Ok(set)
    }
}

impl Drop for WeightsSet {
    fn drop(&mut self) {
        for (path, before) in self.before.iter().rev() {
            // What could be written a moment ago can be written again; there is nobody to tell if not.
            let _ = fs::write(path, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_put_back() {
        let root = std::env::temp_dir().join(format!("tiermem-weights-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let read = |name: &str| fs::read_to_string(root.join(name)).unwrap();
        for (name, text) in [("node0", "18\n"), ("node1", "13\n"), ("auto", "true\n")] {
            fs::write(root.join(name), text).unwrap();
        }
        let set = WeightsSet::set_below(&root, &[(0, 3), (1, 1)]).unwrap();
        assert_eq!((read("node0"), read("node1")), ("3".into(), "1".into()));
        drop(set);
        assert_eq!((read("node0"), read("node1"), read("auto")), ("18".into(), "13".into(), "true".into()));
        let error = WeightsSet::set_below(&root, &[(0, 3), (7, 1)]).unwrap_err();
        assert!(error.to_string().contains("read") && error.to_string().contains("node7"), "{error}");
        assert_eq!(read("node0"), "18");
        fs::remove_dir_all(root).unwrap();
        assert!(WeightsSet::set(&[(1023, 1)]).is_err());
    }
}
