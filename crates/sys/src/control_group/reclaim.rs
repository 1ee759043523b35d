//! Proactive reclaim: memory is reclaimed from a group before its limit does it.

use super::error::GroupError;
use super::files::{self, NEEDS_VERSION_1};
use super::group::Group;
use super::limits::Limit;
use super::version::Version;

const ATTEMPTED: &str = "reclaim memory of";
const OOM_1: &str = "memory.oom_control";
const PAGE_BYTES: u64 = 4096;

impl Group {
    /// Has the kernel take back `bytes` of the group, as far as it can (anonymous memory goes to swap, and stays where there is
    /// none). Returns how much less is charged afterwards; memory that is charged meanwhile reduces that.
    ///
    /// Version 1 has no file for it: its limit is lowered for a moment. A process that needs more meanwhile waits and is not
    /// killed.
    ///
    /// # Errors
    /// The system's error, or that version 2 has no `memory.reclaim` before Linux 5.19.
    pub fn reclaim(&self, bytes: u64) -> Result<u64, GroupError> {
        let before = self.usage_bytes()?;
        match self.version() {
            Version::One => {
                self.lower_for_a_moment(before.saturating_sub(bytes) / PAGE_BYTES * PAGE_BYTES)?
            }
            Version::Two => {
                let file = self.existing(
                    ATTEMPTED,
                    "memory.reclaim",
                    "it needs Linux 5.19, and a group below the root",
                )?;
                match files::write(ATTEMPTED, &file, &bytes.to_string()) {
                    // Less than that could be taken: an answer.
                    Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                    other => other?,
                }
            }
        }
        Ok(before.saturating_sub(self.usage_bytes()?))
    }

    fn lower_for_a_moment(&self, to_bytes: u64) -> Result<(), GroupError> {
        let limit = self.memory_limit()?;
        if limit <= Limit::Bytes(to_bytes) {
            return Ok(());
        }
        let kills = !self.out_of_memory_waits()?;
        if kills {
            self.set_out_of_memory_waits(true)?;
        }
        let lowered = match self.set_memory_limit(Limit::Bytes(to_bytes)) {
            // Not all of it could be taken, and the limit stays what it was.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(()),
            other => other,
        };
        // Both are put back whatever became of it; the first thing that failed is told. A limit that somebody has set meanwhile stays.
        let is_anothers = self.memory_limit().is_ok_and(|now| now > Limit::Bytes(to_bytes));
        let restored = if is_anothers { Ok(()) } else { self.set_memory_limit(limit) };
        let kills_again = if kills { self.set_out_of_memory_waits(false) } else { Ok(()) };
        lowered.and(restored).and(kills_again)
    }

    /// Has the kernel take back all that it can.
    ///
    /// # Errors
    /// The system's error.
    pub fn reclaim_all(&self) -> Result<u64, GroupError> {
        let before = self.usage_bytes()?;
        match self.version() {
            Version::One => {
                let file =
                    self.existing(ATTEMPTED, "memory.force_empty", "it needs a group below the root")?;
                match files::write(ATTEMPTED, &file, "0") {
                    Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EINTR)) => {}
                    other => other?,
                }
                Ok(before.saturating_sub(self.usage_bytes()?))
            }
            Version::Two => self.reclaim(before),
        }
    }

    /// Whether processes that find no memory wait instead of being killed.
    ///
    /// # Errors
    /// With version 2, where no process waits; the system's error.
    pub fn out_of_memory_waits(&self) -> Result<bool, GroupError> {
        let file = self.existing("read what happens out of memory in", OOM_1, NEEDS_VERSION_1)?;
        let table = files::table(&file, &files::read(ATTEMPTED, &file)?)?;
        Ok(table.get("oom_kill_disable") == Some(&1))
    }

    /// Has processes that find no memory wait until there is some, or be killed.
    ///
    /// # Errors
    /// With version 2, where no process waits; the system's error.
    pub fn set_out_of_memory_waits(&self, waits: bool) -> Result<(), GroupError> {
        const ATTEMPTED: &str = "set what happens out of memory in";
        let file = self.existing(ATTEMPTED, OOM_1, NEEDS_VERSION_1)?;
        files::write(ATTEMPTED, &file, if waits { "1" } else { "0" })
    }

    /// Has the kernel kill all processes of the group when it has to kill one.
    ///
    /// # Errors
    /// With version 1; the system's error.
    pub fn set_killed_together(&self, together: bool) -> Result<(), GroupError> {
        const ATTEMPTED: &str = "set what is killed out of memory in";
        let file = self.existing(ATTEMPTED, "memory.oom.group", files::NEEDS_VERSION_2)?;
        files::write(ATTEMPTED, &file, if together { "1" } else { "0" })
    }
}
