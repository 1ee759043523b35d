//! Claim on a process: who observes it in a way that only one can, says so by a lock (`flock`) on its file `/proc/PID/clear_refs`. The
//! lock goes with the one who holds it, however that ends, and leaves no trace. Only those who may observe the process can take it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FlockOperation, flock};

/// Nobody else has one on this process, as long as this one lives.
#[derive(Debug)]
pub struct ProcessClaim {
    _file: File,
}

/// Why there is no claim.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Somebody else has one.
    #[error("{}", holder.map_or("another process has it".to_owned(), |pid| format!("process {pid} has it")))]
    Taken {
        /// Who, if that can be seen.
        holder: Option<u32>,
    },
    /// The process has gone, or may not be observed.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl ProcessClaim {
    /// Claims a process.
    ///
    /// # Errors
    /// If somebody else has claimed it, if it has gone, or if this user may not observe it.
    pub fn take(pid: u32) -> Result<Self, ClaimError> {
        let file = OpenOptions::new().write(true).open(format!("/proc/{pid}/clear_refs"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(ProcessClaim { _file: file }),
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => {
                Err(ClaimError::Taken { holder: holder(&file) })
            }
            Err(error) => Err(io::Error::from(error).into()),
        }
    }
}

/// The process that has a file locked, as `/proc/locks` tells it.
fn holder(file: &File) -> Option<u32> {
    let inode = file.metadata().ok()?.ino();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let of_line = |line: &str| {
        // `5: FLOCK  ADVISORY  WRITE 29059 00:15:114439 0 EOF`; those who wait have `->` behind the number.
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "FLOCK", _, _, pid, place, ..] = fields[..] else { return None };
        let its_inode: u64 = place.rsplit(':').next()?.parse().ok()?;
        (its_inode == inode).then(|| pid.parse().ok()).flatten()
    };
    locks.lines().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_has_a_claim_until_it_is_given_back() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let claim = ProcessClaim::take(child.id()).unwrap();
        match ProcessClaim::take(child.id()).unwrap_err() {
            // This process has it itself.
            ClaimError::Taken { holder } => assert_eq!(holder, Some(std::process::id())),
            ClaimError::System(error) => panic!("{error}"),
        }
        drop(claim);
        drop(ProcessClaim::take(child.id()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(ProcessClaim::take(child.id()), Err(ClaimError::System(_))));
    }
}
