//! Control API: requests to the engine from the HTTP port, for its current state and for an operator's commands.
//!
//! The event loop runs them between client requests, as control requests; the HTTP handler waits for the answer.

use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tiermem_live::Lines;
use tiermem_live::control_access::Control;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::command::{SetCommand, Which, Working, begin_flushes, drop_clean, flush, set};
use super::outcome::{ApiError, PATIENCE, Step};
use super::view::{Observer, View};
use crate::engine::Engine;
use crate::server::{ControlQueue, Progress};

/// Time between reports of progress.
const TELL_PERIOD: Duration = Duration::from_secs(1);
/// Commands are short.
const COMMAND_BYTES_MAX: usize = 64 << 10;

/// Passes questions and commands on to the event loop.
#[derive(Clone, Debug)]
pub(super) struct ControlApi {
    control_queue: ControlQueue<Engine>,
    observer: Observer,
    control: Control,
}

impl ControlApi {
    pub(super) fn new(control_queue: ControlQueue<Engine>, observer: Observer, control: Control) -> Self {
        ControlApi { control_queue, observer, control }
    }

    pub(super) fn routes(self) -> Router {
        Router::new()
            .route("/api/status", get(status))
            .route("/api/set", post(set_export))
            .route("/api/flush", post(flush_exports))
            .route("/api/drop", post(drop_exports))
            .layer(DefaultBodyLimit::max(COMMAND_BYTES_MAX))
            .with_state(self)
    }

    /// Makes the event loop run something, step by step, until it has an answer or the caller is gone.
    fn ask<T: Send + 'static>(
        &self,
        mut step: impl FnMut(&mut Engine) -> Step<T> + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, ApiError> {
        let (tell, told) = oneshot::channel();
        let mut tell = Some(tell);
        self.control_queue.send(Box::new(move |engine| {
            if tell.as_ref().is_none_or(oneshot::Sender::is_closed) {
                return Progress::Done;
            }
            match step(engine) {
                Err(progress) => progress,
                Ok(answer) => {
                    // The caller may have gone.
                    let _ = tell.take().map(|tell| tell.send(answer));
                    Progress::Done
                }
            }
        }))?;
        Ok(told)
    }

    /// The answer to what takes no time.
    async fn soon<T: Send + 'static>(
        &self,
        step: impl FnMut(&mut Engine) -> Step<T> + Send + 'static,
    ) -> Result<T, ApiError> {
        match timeout(PATIENCE, self.ask(step)?).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(ApiError::Stopping),
            Err(_) => Err(ApiError::Late),
        }
    }

    /// The current view.
    async fn view(&self) -> Result<View, ApiError> {
        let observer = self.observer.clone();
        self.soon(move |engine| Ok(observer.view(engine))).await
    }

    /// Parses a command, if its sender may give one.
    fn command<T: DeserializeOwned>(&self, headers: &HeaderMap, body: &[u8]) -> Result<T, ApiError> {
        self.control.check(headers)?;
        Ok(serde_json::from_slice(body)?)
    }

    /// Runs the step of each export, one after another, and sends a line for each; meanwhile it sends lines
    /// with the progress now and then. One at a time, as the event loop's queue of control requests is short.
    async fn report<T: Serialize + Send + Sync + 'static>(
        self,
        mut lines: Lines,
        wanted: Vec<(String, impl FnMut(&mut Engine) -> Step<Result<T, ApiError>> + Send + 'static)>,
    ) {
        for (export, step) in wanted {
            let sent = match self.wait(&mut lines, &export, step).await {
                Ok(done) => lines.send(&done).await,
                Err(error) => {
                    let error = error.to_string();
                    lines.send(&serde_json::json!({ "export": export, "error": error })).await
                }
            };
            if sent.is_err() {
                return;
            }
        }
    }

    /// The result of a step that may take a while.
    async fn wait<T: Send + 'static>(
        &self,
        lines: &mut Lines,
        export: &str,
        step: impl FnMut(&mut Engine) -> Step<Result<T, ApiError>> + Send + 'static,
    ) -> Result<T, ApiError> {
        let mut told = self.ask(step)?;
        loop {
            match timeout(TELL_PERIOD, &mut told).await {
                Ok(answer) => return answer.unwrap_or(Err(ApiError::Stopping)),
                Err(_) => {
                    let view = self.view().await.unwrap_or_default();
                    let found = view.exports.iter().find(|it| it.status.name == export);
                    let dirty_bytes = found.map_or(0, |it| it.status.dirty_bytes);
                    let working = Working { working_on: export, dirty_bytes };
                    lines.send(&working).await.map_err(|_| ApiError::Gone)?;
                }
            }
        }
    }
}

/// `/api/status`: the figures as they are when they are asked for. Those of `/api/snapshot` may be a second old.
async fn status(State(control_api): State<ControlApi>) -> Response {
    match control_api.view().await {
        Ok(view) => tiermem_live::json(&view),
        Err(error) => error.into_response(),
    }
}

/// `/api/set`: another mode, another quota.
async fn set_export(State(control_api): State<ControlApi>, headers: HeaderMap, body: Bytes) -> Response {
    let done = async {
        let command: SetCommand = control_api.command(&headers, &body)?;
        control_api.soon(move |engine| Ok(set(engine, &command))).await?
    };
    match done.await {
        Ok(state) => tiermem_live::json(&state),
        Err(error) => error.into_response(),
    }
}

/// `/api/flush`: has all that is dirty written back, of one export or of all.
async fn flush_exports(State(control_api): State<ControlApi>, headers: HeaderMap, body: Bytes) -> Response {
    let begun = async {
        let which: Which = control_api.command(&headers, &body)?;
        // All begin together, so that their stores work side by side.
        control_api
            .soon(move |engine| Ok(which.find(engine).map(|found| begin_flushes(engine, found))))
            .await?
    };
    match begun.await {
        Ok(begun) => tell(control_api, begun, flush),
        Err(error) => error.into_response(),
    }
}

/// `/api/drop`: forgets what the stores have too.
async fn drop_exports(State(control_api): State<ControlApi>, headers: HeaderMap, body: Bytes) -> Response {
    let found = async {
        let which: Which = control_api.command(&headers, &body)?;
        control_api.soon(move |engine| Ok(which.find(engine))).await?
    };
    match found.await {
        Ok(found) => tell(control_api, found, drop_clean),
        Err(error) => error.into_response(),
    }
}

/// An answer of lines: what comes of the steps that `how` makes of exports.
fn tell<A, T, S>(control_api: ControlApi, wanted: Vec<(String, A)>, how: impl Fn(String, A) -> S) -> Response
where
    T: Serialize + Send + Sync + 'static,
    S: FnMut(&mut Engine) -> Step<Result<T, ApiError>> + Send + 'static,
{
    let (lines, answer) = Lines::answer();
    let steps = wanted.into_iter().map(|(export, about)| (export.clone(), how(export, about))).collect();
    tokio::spawn(control_api.report(lines, steps));
    answer
}
