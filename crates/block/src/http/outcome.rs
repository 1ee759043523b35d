//! Outcome of a command or query to the engine: an answer, a wait, or an error that tells the operator what to do.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tiermem_live::control_access::ControlRefusal;

use crate::engine::ControlError;
use crate::server::{ControlQueueError, Progress};

/// The event loop is never this long without a moment for a question, unless the machine stands still.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Why something was not answered or not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error(transparent)]
    Queue(#[from] ControlQueueError),
    #[error("the server is stopping")]
    Stopping,
    #[error("the server has not found the time for an answer in {} s: is its machine overloaded?", PATIENCE.as_secs())]
    Late,
    #[error(transparent)]
    Refused(#[from] ControlRefusal),
    #[error("the client that asked has disconnected")]
    Gone,
    #[error("this is not a valid command: {0}")]
    Command(#[from] serde_json::Error),
    #[error("there is no export {name:?}; there are: {}", there.join(", "))]
    NoExport { name: String, there: Vec<String> },
    #[error(
        "an export becomes read-only when the server is started: --mode read-only, or mode = \"read-only\" for the export"
    )]
    ReadOnly,
    #[error(transparent)]
    Engine(#[from] ControlError),
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = match self {
            ApiError::Refused(refusal) => return refusal.into_response(),
            ApiError::Queue(_) | ApiError::Stopping | ApiError::Late | ApiError::Gone => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            ApiError::Command(_) => StatusCode::BAD_REQUEST,
            ApiError::NoExport { .. } => StatusCode::NOT_FOUND,
            ApiError::ReadOnly | ApiError::Engine(_) => StatusCode::CONFLICT,
        };
        (status, format!("{self}\n")).into_response()
    }
}

/// A step of a control request: an answer, or how to continue.
pub(super) type Step<T> = Result<T, Progress>;
