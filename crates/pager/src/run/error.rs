//! Errors of a run.

use std::io;

use tiermem_model::placement::Misfit;
use tiermem_place::capture::CaptureError;

use crate::machine::{AttachError, MachineError};
use crate::steer::SteerError;

/// Why a program was not run under limits, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program cannot be run.
    #[error(transparent)]
    Program(#[from] CaptureError),
    /// The plan is not for this program.
    #[error("{0}")]
    Misfit(Misfit),
    /// The limits cannot be had.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The nodes of a pool cannot be used.
    #[error("the program cannot have memory of the other node: {0}")]
    Pool(#[source] io::Error),
    /// It cannot be steered, as it was asked to be.
    #[error(transparent)]
    Steer(#[from] SteerError),
}

impl From<AttachError> for RunError {
    fn from(error: AttachError) -> Self {
        RunError::Machine(error.into())
    }
}
