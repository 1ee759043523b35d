//! How a program has ended, and whether its limits ended it.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use tiermem_base::{Bytes, Nanos};

/// A page is not there that was: its file is shorter, or swap cannot be read.
const SIGBUS: i32 = 7;

/// The end of a program under limits, or of an attachment to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What has ended.
    pub cause: Cause,
    /// The kernel has ended a process of the group because DRAM and flash were full: what each may hold.
    pub full: Option<Full>,
}

/// What has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The program that was started here: what the system says of it.
    Program(ExitStatus),
    /// The last process of what was attached to.
    LastProcess,
    /// The attachment; the program goes on without a limit of ours.
    Detached,
}

impl Ended {
    /// What the system says of a program that was started here.
    pub fn status(&self) -> Option<ExitStatus> {
        match self.cause {
            Cause::Program(status) => Some(status),
            _ => None,
        }
    }
}

/// Tiers that were full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// The limit of DRAM.
    pub dram_bytes: u64,
    /// The limit of flash; `None`: all of the machine's swap.
    pub flash_bytes: Option<u64>,
    /// The most that lay on flash.
    pub flash_peak_bytes: u64,
    /// How long it had waited for room; `None`: it did not.
    pub waited: Option<Duration>,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::Program(status) => {
                write!(f, "{status}")?;
                if status.signal() == Some(SIGBUS) {
                    f.write_str(
                        "; a page may not have been readable from swap: `dmesg` has its read errors",
                    )?;
                }
            }
            Cause::LastProcess => f.write_str("its last process has ended")?,
            Cause::Detached => f.write_str("detached")?,
        }
        match self.full {
            Some(full) => write!(f, "; {full}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Full { dram_bytes, flash_bytes, flash_peak_bytes, waited } = *self;
        let dram = Bytes(dram_bytes);
        let flash = flash_bytes.map_or_else(
            || "all of the machine's swap".to_owned(),
            |bytes| format!("{} of flash", Bytes(bytes)),
        );
        write!(f, "the kernel killed it for want of memory: it had {dram} of DRAM and {flash}")?;
        if let Some(waited) = waited {
            write!(f, ", and waited {} for room", Nanos(waited.as_nanos() as u64))?;
        }
        // Flash that was far from full: what was wanted could not go there, such as locked pages.
        match flash_bytes.is_some_and(|bytes| flash_peak_bytes < bytes / 2) {
            true => write!(
                f,
                ", of which {} were used: pages that cannot be paged out need DRAM, or somebody has turned its swap off",
                Bytes(flash_peak_bytes)
            ),
            false => write!(f, "; give it more of one"),
        }
    }
}
