//! Errors of the machine's side.

use std::io;
use std::path::{Path, PathBuf};

use tiermem_base::Bytes;
use tiermem_sys::control_group::GroupError;
use tiermem_sys::swap::SwapError;

use super::attach_error::AttachError;

/// Why a program cannot be given a group and swap, or why they are still there.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A limit that cannot be.
    #[error(
        "--dram {}: it is from {} to the machine's {}",
        Bytes(*bytes), Bytes(*least_bytes), Bytes(*all_bytes)
    )]
    Dram {
        /// The bytes that were asked for.
        bytes: u64,
        /// The least that can be asked for.
        least_bytes: u64,
        /// The machine's memory.
        all_bytes: u64,
    },
    /// A limit of flash that cannot be while the program runs.
    #[error(
        "flash={}: it is from {}, which lie there now, to {}, all swap that is on; `swapon` another file for more",
        Bytes(*bytes), Bytes(*used_bytes), Bytes(*all_bytes)
    )]
    Flash {
        /// The bytes that were asked for.
        bytes: u64,
        /// Bytes of the program in swap.
        used_bytes: u64,
        /// The machine's swap.
        all_bytes: u64,
    },
    /// Swap was not asked for, and there is none.
    #[error(
        "no swap is on, so that there is no room for what does not fit into DRAM; give it flash: --flash 8GiB"
    )]
    NoSwap,
    /// The swap that is on has too little room.
    #[error(
        "the swap that is on has {} free, less than --flash {}; name a place for more: --flash /var/tmp={}",
        Bytes(*free_bytes), Bytes(*bytes), Bytes(*bytes)
    )]
    SwapTooSmall {
        /// The bytes that were asked for.
        bytes: u64,
        /// Those that are free.
        free_bytes: u64,
    },
    /// A place where there is something already.
    #[error("cannot make a swap file {}: {problem}", path.display())]
    Place {
        /// The place.
        path: PathBuf,
        /// What is wrong with it, and what would do.
        problem: String,
    },
    /// Swap refused.
    #[error("{source}{advice}")]
    Swap {
        /// What it said.
        source: SwapError,
        /// Advice; empty or a part of the sentence.
        advice: String,
    },
    /// The counts of a group cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Counts {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Control groups refused.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// What lies in swap has nowhere to go.
    #[error(
        "{} stays on: {} lie there, and {whose} has room for {} in memory; it goes with the program, or once there is room",
        path.display(), Bytes(*used_bytes), Bytes(*room_bytes)
    )]
    SwapStays {
        /// The file or device.
        path: PathBuf,
        /// What lies there.
        used_bytes: u64,
        /// The room for it.
        room_bytes: u64,
        /// Whose room.
        whose: String,
    },
    /// What runs cannot be attached to, or its limits cannot be changed.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The register of runs cannot be used.
    #[error("cannot {attempted} the register of paged programs, {}: {source}{}", path.display(), rights(source))]
    Register {
        /// The operation that was attempted.
        attempted: &'static str,
        /// Where it is.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There is no such run.
    #[error("no paged program has the name {id:?}; `tiermem pager status` lists them")]
    Unknown {
        /// The name.
        id: String,
    },
}

/// What a user who may not do so needs.
fn rights(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "; run as root: swap takes CAP_SYS_ADMIN, a limit takes a control group that may be written; with both, and swap that is on, \
             a user's own XDG_RUNTIME_DIR will do"
        }
        _ => "",
    }
}

impl MachineError {
    pub(super) fn register(attempted: &'static str, path: &Path, source: io::Error) -> Self {
        MachineError::Register { attempted, path: path.to_owned(), source }
    }
}

impl From<SwapError> for MachineError {
    fn from(source: SwapError) -> Self {
        MachineError::Swap { source, advice: String::new() }
    }
}
