//! Errors of running a program as requested.

use std::io;
use std::path::PathBuf;

use tiermem_sys::numa::WeightsError;

use super::strategy::StrategyError;
use crate::capture::CaptureError;

/// Errors of running a program.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program is not there, is none, or could not be started or waited for.
    #[error(transparent)]
    Program(#[from] CaptureError),
    /// The machine cannot place memory like that.
    #[error(transparent)]
    Strategy(#[from] StrategyError),
    /// The kernel does not take the policy.
    #[error("the kernel refuses the placement {strategy}: {source}")]
    Policy {
        /// The strategy.
        strategy: String,
        /// What the system said.
        source: io::Error,
    },
    /// The weights of interleaving could not be set.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// None of the processors can be used.
    #[error("the program cannot be kept on the processors {cpus:?}: {source}")]
    Cpus {
        /// The processors.
        cpus: Vec<u32>,
        /// What the system said.
        source: io::Error,
    },
    /// The page cache could not be dropped.
    #[error("the page cache cannot be dropped ({}): {source}", path.display())]
    Cold {
        /// The file that was to be dropped, or through which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The arrays of the bandwidth test could not be had.
    #[error("no memory for the arrays of the bandwidth test: {0}")]
    Bandwidth(String),
}
