//! The HTTP port: `/metrics` for Prometheus, `/ready` for whoever routes traffic, and the live page at `/` with
//! its data at `/api/snapshot` and `/api/history`.
//!
//! It has its own thread with its own event loop, and sees the store only through a channel of finished views:
//! nobody who asks for a page can slow down a request to the store.

mod history;
mod listener;
mod metrics;
mod page;
pub mod view;

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use tokio::sync::{oneshot, watch};

use history::{History, Sample};
use view::View;

/// How long requests under way may take when the server is stopped.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);
/// Connections at a time, and how long one may be silent: pages ask every second, Prometheus every minute or so.
const CONNECTIONS_MAX: usize = 64;
const SILENCE_MAX: Duration = Duration::from_secs(30);
const SAMPLE_PERIOD: Duration = Duration::from_secs(1);

/// Why the HTTP port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Another program listens there.
    #[error("the HTTP address {0} is in use: stop what listens there, or choose another one")]
    AddressInUse(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on the HTTP address {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The thread or its event loop could not be started.
    #[error("cannot start the HTTP server: {0}")]
    Start(io::Error),
}

/// A running HTTP server. It stops when dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    ready: Arc<AtomicBool>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct Shared {
    views: watch::Receiver<Arc<View>>,
    ready: Arc<AtomicBool>,
    history: Arc<Mutex<History>>,
}

impl HttpServer {
    /// Listens on `address` (port 0 takes any free one) and serves the newest of `views` from a thread of its
    /// own. It answers at once, but is not [ready](Self::set_ready) yet.
    pub fn start(address: SocketAddr, views: watch::Receiver<Arc<View>>) -> Result<HttpServer, HttpError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => HttpError::AddressInUse(address),
            _ => HttpError::Listen { address, source },
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(HttpError::Start)?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(HttpError::Start)?
        };
        let ready = Arc::new(AtomicBool::new(false));
        let shared = Shared { views, ready: ready.clone(), history: Arc::default() };
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("http".to_owned())
            .spawn(move || runtime.block_on(serve(listener, shared, stopped)))
            .map_err(HttpError::Start)?;
        Ok(HttpServer { address, ready, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tells whether the store serves requests now: what `/ready` answers with 200, and without with 503.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Relaxed);
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.ready.store(false, Relaxed);
        // Dropping the sender tells the thread to end.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic over there has been reported already and must not become a second one here.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: tokio::net::TcpListener, shared: Shared, stopped: oneshot::Receiver<()>) {
    let sampling = tokio::spawn(sample(shared.clone()));
    let (stop_serving, serving_stopped) = oneshot::channel::<()>();
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/ready", get(ready))
        .route("/api/snapshot", get(snapshot))
        .route("/api/history", get(history))
        .merge(page::routes())
        .with_state(shared);
    let listener = listener::Bounded::new(listener, CONNECTIONS_MAX, SILENCE_MAX);
    let server = axum::serve(listener, router).with_graceful_shutdown(async {
        let _ = serving_stopped.await;
    });
    let grace = async {
        let _ = stopped.await;
        drop(stop_serving);
        tokio::time::sleep(SHUTDOWN_GRACE).await;
    };
    // Open connections, such as that of a page which asks every second, must not hold up the end.
    tokio::select! {
        result = server => if let Err(error) = result {
            tracing::error!(%error, "the HTTP server ended");
        },
        () = grace => {}
    }
    sampling.abort();
}

/// The time now, in seconds since 1970.
fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Keeps the history.
async fn sample(shared: Shared) {
    let mut ticks = tokio::time::interval(SAMPLE_PERIOD);
    loop {
        ticks.tick().await;
        let view = shared.views.borrow().clone();
        let mut history = shared.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.push(&view, unix_s());
    }
}

async fn metrics(State(shared): State<Shared>) -> Response {
    let view = shared.views.borrow().clone();
    let text = metrics::render(&view, shared.ready.load(Relaxed));
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

async fn ready(State(shared): State<Shared>) -> (StatusCode, &'static str) {
    match shared.ready.load(Relaxed) {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    }
}

/// `/api/snapshot`: the newest view.
#[derive(Serialize)]
struct Snapshot<'a> {
    ready: bool,
    /// The server's clock, in seconds since 1970: the page's may be wrong.
    unix_s: f64,
    #[serde(flatten)]
    view: &'a View,
}

async fn snapshot(State(shared): State<Shared>) -> Response {
    let view = shared.views.borrow().clone();
    let snapshot = Snapshot { ready: shared.ready.load(Relaxed), unix_s: unix_s(), view: &view };
    json(&snapshot)
}

/// `/api/history`: samples and views of the last minutes, oldest first.
async fn history(State(shared): State<Shared>) -> Response {
    #[derive(Serialize)]
    struct Past<'a> {
        samples: &'a VecDeque<Sample>,
        views: Vec<&'a View>,
    }
    let history = shared.history.lock().unwrap_or_else(PoisonError::into_inner).clone();
    json(&Past { samples: history.samples(), views: history.views().collect() })
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
