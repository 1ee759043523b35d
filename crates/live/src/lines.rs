//! Answers in lines of JSON, for commands that take a while: one line now and then, the last of
//! them when all is done. So the client sees progress, and the connection does not look idle.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use http_body_util::channel::{Channel, Sender};
use serde::Serialize;

/// Lines that wait for a slow reader.
const LINES_MAX: usize = 4;

/// Sends the lines.
#[derive(Debug)]
pub struct Lines(Sender<Bytes, Infallible>);

/// The reader has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl Lines {
    /// An answer, and the sender of its lines. It ends, in order, when the sender is dropped.
    pub fn answer() -> (Self, Response) {
        let (sender, body) = Channel::new(LINES_MAX);
        let headers = [(CONTENT_TYPE, "application/x-ndjson"), (CACHE_CONTROL, "no-store")];
        (Lines(sender), (headers, Body::new(body)).into_response())
    }

    /// Sends a line.
    ///
    /// # Errors
    /// When the client has gone.
    pub async fn send(&mut self, line: &impl Serialize) -> Result<(), Gone> {
        let mut text = serde_json::to_vec(line).map_err(|_| Gone)?;
        text.push(b'\n');
        self.0.send_data(text.into()).await.map_err(|_| Gone)
    }
}
