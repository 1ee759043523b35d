//! Maps of a recording under way, on request: `/map.txt`, `/api/map`, and `/api/end`, which answers when the recording ends.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::{Deserialize, Serialize};
use tiermem_trace::recording::{Follower, Recording};
use tokio::sync::watch;

use crate::failure::Failure;
use crate::heatmap::{text, under_way};

/// How long a request for the end waits; a connection without a byte for longer is closed, so the client asks again.
const END_PATIENCE: Duration = Duration::from_secs(20);
/// A map is made anew after this time at the earliest, and so that making maps takes this part of a processor at most: several who watch
/// share it.
const MAP_EVERY: Duration = Duration::from_millis(500);
const MAP_PART: u32 = 5;
/// Columns of a map as text.
const COLUMNS_MAX: usize = 1000;

/// The map as JSON that was made last.
struct Made {
    body: Arc<[u8]>,
    slices: u32,
    until: Instant,
}

/// What makes maps.
pub struct Maps {
    follower: Arc<Mutex<Follower>>,
    name: String,
    made: Mutex<Option<Made>>,
}

impl Maps {
    /// Of what the follower has; `output` names the recording.
    pub fn new(follower: Arc<Mutex<Follower>>, output: &Path) -> Arc<Self> {
        let name = output.file_name().unwrap_or(output.as_os_str()).to_string_lossy().into_owned();
        Arc::new(Maps { follower, name, made: Mutex::new(None) })
    }

    /// The recording so far: its slices, how many of them one here has, and what is kept; nothing before the first slice.
    fn recording(&self) -> (u32, u32, Option<Recording>) {
        let follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner);
        let recording = follower.recording().ok().filter(|_| follower.slices() > 0);
        (follower.slices(), follower.together(), recording)
    }

    /// The map as JSON. While it is made, others wait for it.
    fn json(&self) -> Result<Arc<[u8]>, String> {
        #[derive(Serialize)]
        struct Map {
            slices: u32,
            together: u32,
            data: Option<serde_json::Value>,
        }
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        let slices = self.follower.lock().unwrap_or_else(PoisonError::into_inner).slices();
        if let Some(made) = made.as_ref().filter(|made| made.slices == slices || begun < made.until) {
            return Ok(Arc::clone(&made.body));
        }
        let (slices, together, recording) = self.recording();
        let data = match recording.filter(|recording| !recording.samples.is_empty()) {
            Some(recording) => under_way::page_data_of(&self.name, &recording).map_err(words)?,
            None => None,
        };
        let body = serde_json::to_vec(&Map { slices, together, data }).map_err(|error| error.to_string())?;
        let body: Arc<[u8]> = body.into();
        let until = begun + MAP_EVERY.max(begun.elapsed() * MAP_PART);
        *made = Some(Made { body: Arc::clone(&body), slices, until });
        Ok(body)
    }

    /// The map as text.
    fn text(&self, wanted: &Wanted) -> Result<String, String> {
        let columns = wanted.columns.unwrap_or(text::COLUMNS).clamp(1, COLUMNS_MAX);
        let (_, together, recording) = self.recording();
        let Some(recording) = recording else { return Ok("There is no slice yet.\n".to_owned()) };
        if recording.samples.is_empty() {
            return Ok("No access was seen so far.\n".to_owned());
        }
        let map = under_way::text_of(&self.name, recording, wanted.region.clone(), columns).map_err(words)?;
        let notes = under_way::note_of_slices(together).into_iter();
        let left_out = (map.left_out > 0)
            .then(|| format!("{} colder regions are left out; map.txt?region=NAME takes any", map.left_out));
        let notes: String = notes.chain(left_out).map(|note| format!("({note})\n")).collect();
        Ok(map.text + &notes)
    }
}

fn words(failure: Failure) -> String {
    match failure {
        Failure::Usage(error) | Failure::Failed(error) => error.to_string(),
        _ => "the map cannot be made".to_owned(),
    }
}

/// What a request for text asks for.
#[derive(Debug, Deserialize)]
struct Wanted {
    region: Option<String>,
    columns: Option<usize>,
}

/// The routes. `ended` gets how the recording ended.
pub fn routes(maps: Arc<Maps>, ended: watch::Receiver<Option<String>>) -> Router {
    let end = Router::new().route("/api/end", get(end)).with_state(ended);
    Router::new()
        .route("/map.txt", get(map_text))
        .route("/api/map", get(map_json))
        .with_state(maps)
        .merge(end)
}

/// Makes something beside the port's own thread, which answers others meanwhile.
async fn made<T: Send + 'static>(
    make: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, (StatusCode, String)> {
    match tokio::task::spawn_blocking(make).await {
        Ok(Ok(made)) => Ok(made),
        Ok(Err(words)) => Err((StatusCode::BAD_REQUEST, format!("{words}\n"))),
        Err(_) => Err((StatusCode::INTERNAL_SERVER_ERROR, "the map cannot be made\n".to_owned())),
    }
}

async fn map_text(State(maps): State<Arc<Maps>>, Query(wanted): Query<Wanted>) -> Response {
    let headers = [(CONTENT_TYPE, "text/plain; charset=utf-8"), (CACHE_CONTROL, "no-store")];
    match made(move || maps.text(&wanted)).await {
        Ok(text) => (headers, text).into_response(),
        Err((status, words)) => (status, headers, words).into_response(),
    }
}

async fn map_json(State(maps): State<Arc<Maps>>) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    match made(move || maps.json()).await {
        Ok(body) => (headers, body.to_vec()).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

async fn end(State(mut ended): State<watch::Receiver<Option<String>>>) -> Response {
    #[derive(Serialize)]
    struct End {
        ended: Option<String>,
    }
    let waited = tokio::time::timeout(END_PATIENCE, ended.wait_for(Option::is_some)).await;
    let ended = waited.ok().and_then(Result::ok).and_then(|ended| ended.clone());
    tiermem_live::json(&End { ended })
}
