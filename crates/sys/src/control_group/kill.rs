//! Killing of all processes of a group.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::error::GroupError;
use super::files;
use super::group::Group;
use super::version::Version;
use crate::pidfd::PidFd;

const ATTEMPTED: &str = "end the processes of";
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(1);

impl Group {
    /// Ends (SIGKILL) all processes of the group, and those that they start meanwhile, and waits until none is left; with version
    /// 2 those of groups below as well.
    ///
    /// # Errors
    /// If some are left after `at_most`; the system's error.
    pub fn kill(&self, at_most: Duration) -> Result<(), GroupError> {
        let begin = Instant::now();
        let at_once = self.file("cgroup.kill");
        // From Linux 5.14 on.
        let has_one_call = self.version() == Version::Two && at_once.exists();
        if has_one_call {
            files::write(ATTEMPTED, &at_once, "1")?;
        }
        loop {
            let left = self.processes()?;
            if left.is_empty() {
                return Ok(());
            }
            if !has_one_call {
                left.iter().try_for_each(|pid| self.kill_one(*pid))?;
            }
            let waited = begin.elapsed();
            if waited >= at_most {
                let group = self.path().to_owned();
                return Err(GroupError::StillThere {
                    group,
                    left: left.len(),
                    waited_ms: waited.as_millis(),
                });
            }
            thread::sleep(PAUSE);
        }
    }

    /// Ends a process that is still in the group: its number may have passed to another one since it was listed.
    fn kill_one(&self, pid: u32) -> Result<(), GroupError> {
        let Ok(process) = PidFd::open(pid) else { return Ok(()) };
        if !self.processes()?.contains(&pid) {
            return Ok(());
        }
        match process.signal(Signal::KILL) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                Err(GroupError::io(ATTEMPTED, self.path(), error))
            }
            _ => Ok(()),
        }
    }
}
