//! What is asked of the engine itself: its state at this moment.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::view::{Observer, View};
use crate::engine::Engine;
use crate::server::{ErrandError, Errands, Progress};

/// The event loop is never this long without a moment for a question, unless the machine stands still.
const PATIENCE: Duration = Duration::from_secs(5);

/// Passes questions on to the event loop.
#[derive(Clone, Debug)]
pub(super) struct Desk {
    errands: Errands<Engine>,
    observer: Observer,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum DeskError {
    #[error(transparent)]
    Errand(#[from] ErrandError),
    #[error("the server is stopping")]
    Stopping,
    #[error("the server has not found the time for an answer in {} s: is the machine overloaded?", PATIENCE.as_secs())]
    Late,
}

impl IntoResponse for DeskError {
    fn into_response(self) -> Response {
        (StatusCode::SERVICE_UNAVAILABLE, format!("{self}\n")).into_response()
    }
}

impl Desk {
    pub(super) fn new(errands: Errands<Engine>, observer: Observer) -> Self {
        Desk { errands, observer }
    }

    pub(super) fn routes(self) -> Router {
        Router::new().route("/api/status", get(status)).with_state(self)
    }

    /// What there is to see now.
    async fn view(&self) -> Result<View, DeskError> {
        let (tell, told) = oneshot::channel();
        let (observer, mut tell) = (self.observer.clone(), Some(tell));
        self.errands.send(Box::new(move |engine| {
            if let Some(tell) = tell.take() {
                // Whoever asked may have gone.
                let _ = tell.send(observer.view(engine));
            }
            Progress::Done
        }))?;
        match timeout(PATIENCE, told).await {
            Ok(Ok(view)) => Ok(view),
            Ok(Err(_)) => Err(DeskError::Stopping),
            Err(_) => Err(DeskError::Late),
        }
    }
}

/// `/api/status`: the figures as they are when they are asked for. Those of `/api/snapshot` may be a second old.
async fn status(State(desk): State<Desk>) -> Response {
    match desk.view().await {
        Ok(view) => tiermem_live::json(&view),
        Err(error) => error.into_response(),
    }
}
