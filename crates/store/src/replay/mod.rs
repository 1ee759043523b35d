//! Replay: drives a RESP server with a trace, as the clients of a look-aside cache would, and measures it.
//!
//! It is a client: it shares nothing with the engine and works against any server that speaks RESP2. It is in
//! the server's crate because it has the same users and dependencies, and because the tests of each drive the
//! other. A look-up is a GET; a miss is followed by a SET of a value of the trace's size. The loop is closed,
//! where each connection keeps `pipeline` commands in flight and sends the next when one is answered, or
//! open, where every request has its send time, independent of the requests before it ([`Pace`]).
//!
//! One thread drives all connections. The server should limit the rate, so the path of a request
//! allocates nothing and sends and receives as many commands per system call as the pipeline allows.

mod address;
mod connection;
mod control;
mod error;
mod feed;
mod present;
mod reply;
mod tiers;
pub(crate) mod values;

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tiermem_base::Access;
use tiermem_live::Pace;
use tokio::net::{TcpStream, UnixStream};
use tokio::task::{JoinSet, LocalSet};

pub use address::Address;
pub use error::ReplayError;
pub use tiers::TierShare;

pub(crate) use connection::latency_histogram;
use connection::{Connection, Tally};
use feed::Feed;
use values::Values;

/// With no reply at all for this long, the server counts as stuck.
const STALL: Duration = Duration::from_secs(30);
/// Time between reports of progress and checks for a stall.
const TICK: Duration = Duration::from_millis(100);

/// Options of a replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the server listens.
    pub to: Address,
    /// Number of connections, at least 1. A key always goes to the same one, so that its order is kept.
    pub connections: usize,
    /// When requests are sent.
    pub pace: Pace,
    /// Commands in flight on each connection, at least 1; further requests wait. A request waits while an earlier one
    /// of its key is unanswered, unless that key was found a moment ago. So hits are those of a sequential look-aside
    /// cache for any pipeline, except for keys that the server evicts while several look-ups of them are in flight.
    pub pipeline: usize,
    /// The server's password.
    pub auth: Option<String>,
    /// Stop after this many requests of the trace.
    pub requests: Option<u64>,
    /// Every value's size is multiplied by this, and rounded.
    pub value_scale: f64,
}

/// Result of a replay.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Requests of the trace that were answered; the SETs that follow misses are not counted.
    pub requests: u64,
    /// Look-ups among the requests.
    pub gets: u64,
    /// Look-ups that found their key.
    pub hits: u64,
    /// Commands that the server answered with an error, SETs after misses among them.
    pub errors: u64,
    /// The first of those errors, as the server worded it.
    pub first_error: Option<String>,
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// Latencies of the GETs in nanoseconds: from the moment a command is handed to the socket (in an open loop: from
    /// the moment it was due) to the moment at which the read that completes its reply returns. With a pipeline that
    /// includes waiting behind the commands sent before it.
    pub latency_ns: Histogram<u64>,
    /// Figures of each tier of the server during the replay, for
    /// servers that have tiers. Other clients' traffic is included.
    pub tiers: Option<Vec<TierShare>>,
}

impl Outcome {
    /// Hits over look-ups; 0 when there were none.
    pub fn hit_ratio(&self) -> f64 {
        if self.gets == 0 { 0.0 } else { self.hits as f64 / self.gets as f64 }
    }

    /// Requests of the trace per second of wall time.
    pub fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The latency in microseconds that this share of the look-ups stayed below.
    pub fn latency_us(&self, quantile: f64) -> f64 {
        self.latency_ns.value_at_quantile(quantile) as f64 / 1000.0
    }
}

/// Sends the requests of `trace` to a server until the trace ends or an error occurs. `progress` is called about
/// ten times a second with the number of requests answered.
///
/// Blocks the calling thread; must not be called from within an asynchronous runtime.
pub fn run<I, E>(options: &Options, trace: I, progress: &mut dyn FnMut(u64)) -> Result<Outcome, ReplayError>
where
    I: Iterator<Item = Result<Access, E>> + 'static,
    E: Error + Send + Sync + 'static,
{
    let runtime =
        // A connection that waits for a time to come asks again and again; sockets must be looked at in between.
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .event_interval(4)
            .build()
            .map_err(ReplayError::Runtime)?;
    let limit = usize::try_from(options.requests.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let pace = options.pace;
    let (mut number, mut first_ns) = (0, None);
    let trace = trace.take(limit).map(move |access| {
        let mut access = access?;
        let since_ns = access.time_ns.saturating_sub(*first_ns.get_or_insert(access.time_ns));
        access.time_ns = pace.due_ns(number, since_ns).unwrap_or(0);
        number += 1;
        Ok(access)
    });
    LocalSet::new().block_on(&runtime, replay(options, Box::new(trace), progress))
}

/// A connection at work.
type Drive = Pin<Box<dyn Future<Output = Result<Tally, ReplayError>>>>;

/// Opens so many connections, which send nothing before they are driven.
async fn connect(
    options: &Options,
    connections: usize,
    feed: &Rc<RefCell<Feed>>,
    shared: &Rc<connection::Shared>,
) -> Result<Vec<Drive>, ReplayError> {
    let auth = options.auth.as_deref();
    let mut connected: Vec<Drive> = Vec::new();
    for number in 0..connections {
        match &options.to {
            Address::Tcp(_) => {
                let stream: TcpStream = control::connect_tcp(&options.to, auth).await?;
                let connection = Connection::new(stream, number, feed.clone(), shared.clone());
                connected.push(Box::pin(connection.drive()));
            }
            Address::Unix(_) => {
                let stream: UnixStream = control::connect_unix(&options.to, auth).await?;
                let connection = Connection::new(stream, number, feed.clone(), shared.clone());
                connected.push(Box::pin(connection.drive()));
            }
        }
    }
    Ok(connected)
}

async fn replay(
    options: &Options,
    trace: feed::Source,
    progress: &mut dyn FnMut(u64),
) -> Result<Outcome, ReplayError> {
    let mut control = control::open(&options.to, options.auth.as_deref()).await?;
    let tiers_before = control.tiers().await?;

    let connections = options.connections.max(1);
    let feed = Rc::new(RefCell::new(Feed::new(trace, connections)));
    let shared = Rc::new(connection::Shared {
        pipeline: options.pipeline.max(1),
        value_scale: options.value_scale,
        values: Values::new(),
        answered: Cell::new(0),
        under_way: Cell::new(0),
        open_since: Cell::new(None),
    });
    let mut running = JoinSet::new();
    let connected = connect(options, connections, &feed, &shared).await?;
    let start = Instant::now();
    shared.open_since.set((options.pace != Pace::Closed).then_some(start));
    for connection in connected {
        running.spawn_local(connection);
    }
    let mut total = Tally::default();
    let mut ticks = tokio::time::interval(TICK);
    let (mut answered_before, mut answered_at) = (0, start);
    loop {
        tokio::select! {
            done = running.join_next() => match done {
                Some(Ok(tally)) => total.add(tally?),
                Some(Err(error)) => return Err(ReplayError::Runtime(error.into())),
                None => break,
            },
            _ = ticks.tick() => {
                let answered = shared.answered.get();
                progress(answered);
                // In an open loop there may be nothing to answer for a long time.
                if answered != answered_before || shared.under_way.get() == 0 {
                    (answered_before, answered_at) = (answered, Instant::now());
                } else if answered_at.elapsed() > STALL {
                    return Err(ReplayError::Stalled { to: options.to.clone(), after: STALL });
                }
            }
        }
    }
    let elapsed = start.elapsed();
    progress(total.requests);
    if let Some(error) = feed.borrow_mut().take_error() {
        return Err(ReplayError::Trace(error));
    }
    let tiers = match tiers_before {
        Some(before) => control.tiers().await?.map(|after| tiers::shares(&before, &after, total.gets)),
        None => None,
    };
    Ok(Outcome {
        requests: total.requests,
        gets: total.gets,
        hits: total.hits,
        errors: total.errors,
        first_error: total.first_error,
        elapsed,
        latency_ns: total.latency_ns,
        tiers,
    })
}
