//! HTTP server: its thread, its answers, its shutdown.

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
use tiermem_sys::memory::resident_bytes;
use tokio::sync::{oneshot, watch};

use crate::history::{History, Sample};
use crate::listener::{Bounded, Bounds, Wait};
use crate::page;
use crate::requests::{bounded, named};
use crate::view::View;

/// Time for requests in progress when the server is stopped.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);
/// Pages ask every second, Prometheus every minute or so.
const BOUNDS: Bounds =
    Bounds { connections_max: 64, silence_max: Duration::from_secs(30), request_max: Duration::from_secs(5) };
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

struct Shared<V: View> {
    views: watch::Receiver<Arc<V>>,
    ready: Arc<AtomicBool>,
    history: Arc<Mutex<History<V>>>,
}

impl<V: View> Clone for Shared<V> {
    fn clone(&self) -> Self {
        let (ready, history) = (Arc::clone(&self.ready), Arc::clone(&self.history));
        Shared { views: self.views.clone(), ready, history }
    }
}

/// An address that is bound and not served yet: nothing can take the port from its owner later.
#[derive(Debug)]
pub struct HttpPort {
    listener: TcpListener,
    address: SocketAddr,
    /// Further names, where a configuration can have some.
    names: Option<Vec<String>>,
}

impl HttpPort {
    /// Listens on `address`; port 0 takes any free one. Clients wait until it is [served](Self::serve).
    ///
    /// # Errors
    /// When it cannot listen there.
    pub fn bind(address: SocketAddr) -> Result<Self, HttpError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => HttpError::AddressInUse(address),
            _ => HttpError::Listen { address, source },
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(HttpPort { listener, address, names: None })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets requests name the server by any of `names` as well. Where it listens on this machine, they must name it by an address, as
    /// localhost, or so; but for `/metrics` and `/ready`.
    #[must_use]
    pub fn known_as(self, names: Vec<String>) -> Self {
        HttpPort { names: Some(names), ..self }
    }

    /// Serves the newest of `views`, and nothing else: [`Self::serve`].
    ///
    /// # Errors
    /// When the system has no thread or event loop to give.
    pub fn show<V: View>(self, views: watch::Receiver<Arc<V>>) -> Result<HttpServer, HttpError> {
        self.serve(views, Router::new())
    }

    /// Serves the newest of `views`, and `routes` of the server's own, from a thread of its own. It answers at once, but is not
    /// [ready](HttpServer::set_ready) yet.
    ///
    /// # Errors
    /// When the system has no thread or event loop to give.
    pub fn serve<V: View>(
        self,
        views: watch::Receiver<Arc<V>>,
        routes: Router,
    ) -> Result<HttpServer, HttpError> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(HttpError::Start)?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(self.listener).map_err(HttpError::Start)?
        };
        let ready = Arc::new(AtomicBool::new(false));
        let shared = Shared { views, ready: ready.clone(), history: Arc::default() };
        let router = named(self::routes(shared.clone()).merge(routes), self.address, self.names);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("http".to_owned())
            .spawn(move || runtime.block_on(serve(listener, shared, router, stopped)))
            .map_err(HttpError::Start)?;
        Ok(HttpServer { address: self.address, ready, stop: Some(stop), thread: Some(thread) })
    }
}

impl HttpServer {
    /// Listens on `address` and serves the newest of `views`: [`HttpPort`]'s two steps in one.
    ///
    /// # Errors
    /// As those.
    pub fn start<V: View>(
        address: SocketAddr,
        views: watch::Receiver<Arc<V>>,
    ) -> Result<HttpServer, HttpError> {
        HttpPort::bind(address)?.show(views)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tells whether the server proper serves requests now: what `/ready` answers with 200 where its view has no
    /// [trouble](View::trouble), and without with 503.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Relaxed);
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.ready.store(false, Relaxed);
        // Dropping the sender ends the thread.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic over there has been reported already and must not become a second one here.
            let _ = thread.join();
        }
    }
}

async fn serve<V: View>(
    listener: tokio::net::TcpListener,
    shared: Shared<V>,
    router: Router,
    stopped: oneshot::Receiver<()>,
) {
    let sampling = tokio::spawn(sample(shared.clone()));
    let (stop_serving, serving_stopped) = oneshot::channel::<()>();
    let service = bounded(router).into_make_service_with_connect_info::<Wait>();
    let server = axum::serve(Bounded::new(listener, BOUNDS), service).with_graceful_shutdown(async {
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

/// What every server answers.
fn routes<V: View>(shared: Shared<V>) -> Router {
    Router::new()
        .route("/metrics", get(metrics::<V>))
        .route("/ready", get(ready::<V>))
        .route("/api/snapshot", get(snapshot::<V>))
        .route("/api/history", get(history::<V>))
        .merge(page::routes(V::PAGE))
        .with_state(shared)
}

/// The time now, in seconds since 1970.
fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Keeps the history.
async fn sample<V: View>(shared: Shared<V>) {
    let mut ticks = tokio::time::interval(SAMPLE_PERIOD);
    loop {
        ticks.tick().await;
        let view = shared.views.borrow().clone();
        let mut history = shared.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.push(&view, unix_s());
    }
}

async fn metrics<V: View>(State(shared): State<Shared<V>>) -> Response {
    let view = shared.views.borrow().clone();
    let text = view.metrics(shared.ready.load(Relaxed) && view.trouble().is_none());
    ([(CONTENT_TYPE, crate::metrics::CONTENT_TYPE)], text).into_response()
}

async fn ready<V: View>(State(shared): State<Shared<V>>) -> (StatusCode, &'static str) {
    let trouble = shared.views.borrow().trouble();
    match (shared.ready.load(Relaxed), trouble) {
        (true, None) => (StatusCode::OK, "ready\n"),
        (true, Some(trouble)) => (StatusCode::SERVICE_UNAVAILABLE, trouble),
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    }
}

/// `/api/snapshot`: the newest view.
#[derive(Serialize)]
struct Snapshot<'a, V> {
    ready: bool,
    /// The server's clock, in seconds since 1970: the page's may be wrong.
    unix_s: f64,
    /// Bytes of the process that are in memory.
    resident_bytes: u64,
    #[serde(flatten)]
    view: &'a V,
}

async fn snapshot<V: View>(State(shared): State<Shared<V>>) -> Response {
    let view = shared.views.borrow().clone();
    json(&Snapshot {
        ready: shared.ready.load(Relaxed) && view.trouble().is_none(),
        unix_s: unix_s(),
        resident_bytes: resident_bytes().unwrap_or(0),
        view: &*view,
    })
}

/// `/api/history`: samples and views of the last minutes, oldest first.
async fn history<V: View>(State(shared): State<Shared<V>>) -> Response {
    #[derive(Serialize)]
    struct Past<'a, V, C> {
        samples: &'a VecDeque<Sample<C>>,
        views: Vec<&'a V>,
    }
    let history = shared.history.lock().unwrap_or_else(PoisonError::into_inner).clone();
    json(&Past { samples: history.samples(), views: history.views().collect() })
}

/// An answer of JSON that must not be cached.
pub fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
