//! Why a program that runs cannot be attached to, or its limits not be changed.

use std::path::PathBuf;

use tiermem_base::Bytes;

/// The reason, with what would help.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The group at the top.
    #[error("{} is the group at the top, which has no limits; name the group of the program: `cat /proc/PID/cgroup`", path.display())]
    Top {
        /// The group.
        path: PathBuf,
    },
    /// The group has no limits of memory.
    #[error(
        "{} has no limits of memory; have the group above hand the controller on: echo +memory >{}/cgroup.subtree_control",
        path.display(), path.parent().unwrap_or(path).display()
    )]
    NoController {
        /// The group.
        path: PathBuf,
    },
    /// This process is in it.
    #[error(
        "tiermem itself runs in {}, and would be limited with it; name a group that holds the program alone, or start tiermem in \
         another one: systemd-run --scope tiermem pager attach ...",
        path.display()
    )]
    OwnGroup {
        /// The group.
        path: PathBuf,
    },
    /// Nobody is in it.
    #[error("{} has no process; start its program first", path.display())]
    Empty {
        /// The group.
        path: PathBuf,
    },
    /// Somebody limits it already.
    #[error("{what} is paged by {id} already; `tiermem pager set {id} dram=SIZE` changes its limit")]
    Taken {
        /// The group or the process.
        what: String,
        /// The run or attachment.
        id: String,
    },
    /// There is no such process.
    #[error("there is no process {pid}; it may have ended")]
    Gone {
        /// Its number.
        pid: u32,
    },
    /// It has no memory of its own.
    #[error(
        "process {pid} is a thread of the kernel, or is ending: it has no memory that could be paged; name a program's process"
    )]
    NoMemory {
        /// Its number.
        pid: u32,
    },
    /// This process descends from it.
    #[error(
        "process {pid} is tiermem itself or has started it, and tiermem must not be paged; name another process, or start tiermem from \
         another terminal"
    )]
    Ancestor {
        /// Its number.
        pid: u32,
    },
    /// Pages cannot be scanned.
    #[error(
        "the pages of process {pid} cannot be scanned, so that its size cannot be held: {source}; it takes Linux 6.7, and the right to \
         read that process (the same user, or CAP_SYS_PTRACE); --cgroup PATH limits its group instead"
    )]
    NoScan {
        /// Its number.
        pid: u32,
        /// The system's error.
        source: std::io::Error,
    },
    /// What has to leave finds no room.
    #[error(
        "{} would have to leave DRAM, and there is room for {} on flash; give it more of one: a larger --dram, or --flash /var/tmp=SIZE",
        Bytes(*leaves_bytes), Bytes(*room_bytes)
    )]
    NoRoom {
        /// What has to leave.
        leaves_bytes: u64,
        /// The room for it.
        room_bytes: u64,
    },
    /// Locked memory alone is more.
    #[error("{} of the memory of {} are locked and cannot leave DRAM; give it more DRAM than that", Bytes(*bytes), group.display())]
    Locked {
        /// The group.
        group: PathBuf,
        /// Bytes that are locked.
        bytes: u64,
    },
    /// It does not shrink.
    #[error(
        "{} stays at {}, above {}: what it has cannot leave DRAM as fast as it is used; its limits are what they were; give it more DRAM",
        group.display(), Bytes(*is_bytes), Bytes(*to_bytes)
    )]
    Stays {
        /// The group.
        group: PathBuf,
        /// What it still has.
        is_bytes: u64,
        /// What it was to have.
        to_bytes: u64,
    },
    /// Nothing holds a process at its size any more.
    #[error("process {pid} is not held at its size any more: {reason}")]
    NotHeld {
        /// Its number.
        pid: u32,
        /// Why.
        reason: String,
    },
    /// The user has stopped it.
    #[error("stopped before the limit was set; the limits are what they were")]
    Stopped,
}
