//! Errors of requests to an agent.

use std::io;

/// Why an agent did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The kernel refused.
    #[error("the kernel refused: {0}")]
    Refused(io::Error),
    /// The agent has been ended, or its address space is no program's any more.
    #[error("the agent in the program does not answer: {0}")]
    Lost(io::Error),
}

/// Why a program's memory was not locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The program may not lock so much.
    #[error(
        "cannot lock {bytes} bytes at {address:#x} of process {pid}: it may lock {left_bytes} more; start it with a higher limit \
         (ulimit -l, RLIMIT_MEMLOCK) or with CAP_IPC_LOCK"
    )]
    Limit {
        /// The process.
        pid: u32,
        /// The first address.
        address: u64,
        /// Bytes that were to be locked.
        bytes: u64,
        /// Bytes that it may still lock.
        left_bytes: u64,
    },
    /// The kernel refused for another reason: a part of the range is not mapped, or memory is used up.
    #[error("cannot lock {bytes} bytes at {address:#x} of process {pid}: {source}")]
    Agent {
        /// The process.
        pid: u32,
        /// The first address.
        address: u64,
        /// Bytes that were to be locked.
        bytes: u64,
        /// Its error.
        source: AgentError,
    },
}
