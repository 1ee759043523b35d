//! Event loop: accepting clients, taking outcomes, shutting down.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tiermem_live::tls::TlsError;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::ServerConfig;
use super::buffers::LOOKS;
use super::busy_poll::BusyPoll;
use super::connection::Connection;
use super::connections::Core;
use super::control_requests::{ControlQueue, ControlRequests};
use super::listener::{Entrance, Listeners, Peer};
use super::negotiation::{NegotiationEnd, negotiate};
use super::socket::Plain;
use super::stats::{ConnectionStats, ServerStats, Traffic};
use super::stream::Stream;
use super::tls_config::Policy;
use crate::disks::Disks;

/// Files that the process may have open beside connections.
const FILES_RESERVED: u64 = 256;
/// Pause of accepting when the system has no more files or memory.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Disks and what it takes to serve them.
#[derive(Debug)]
pub struct Server<D> {
    disks: D,
    shared: Rc<Shared>,
    control_requests: ControlRequests<D>,
    control_queue: ControlQueue<D>,
}

/// State that every connection observes.
#[derive(Debug)]
struct Shared {
    config: ServerConfig,
    policy: Policy,
    stats: Arc<ServerStats>,
}

/// Parts that every connection works with.
struct Acceptor<D> {
    core: Rc<RefCell<Core<D>>>,
    shared: Rc<Shared>,
    busy_poll: Rc<BusyPoll>,
    /// Turns true when the server is to end.
    stopping: watch::Receiver<bool>,
}

impl<D> Clone for Acceptor<D> {
    fn clone(&self) -> Self {
        Acceptor {
            core: Rc::clone(&self.core),
            shared: Rc::clone(&self.shared),
            busy_poll: Rc::clone(&self.busy_poll),
            stopping: self.stopping.clone(),
        }
    }
}

impl<D: Disks + 'static> Server<D> {
    /// A server of `disks`.
    ///
    /// # Errors
    /// When certificate or key cannot be used.
    pub fn new(disks: D, config: ServerConfig) -> Result<Self, TlsError> {
        let policy = Policy::load(config.tls.as_ref())?;
        let (control_requests, control_queue) = ControlRequests::new();
        let shared = Rc::new(Shared { config, policy, stats: Arc::default() });
        Ok(Server { disks, shared, control_requests, control_queue })
    }

    /// The server's counters.
    pub fn stats(&self) -> Arc<ServerStats> {
        Arc::clone(&self.shared.stats)
    }

    /// Where other threads hand in what is to be done with the disks while it serves.
    pub fn control_queue(&self) -> ControlQueue<D> {
        self.control_queue.clone()
    }

    /// Makes `publish` read the disks and the counters: when serving begins, and then
    /// at the given interval. It must not take long, since requests wait meanwhile.
    pub fn publish(&mut self, every: Duration, publish: impl FnMut(&D, &ServerStats) + 'static) {
        self.control_requests.publish(every, Box::new(publish));
    }

    /// Serves until `shutdown` is ready, in an event loop of its own on this thread; gives the disks back.
    ///
    /// # Errors
    /// When the system has no event loop to give.
    pub fn run(self, listeners: Listeners, shutdown: impl Future<Output = ()>) -> io::Result<D> {
        // A local runtime runs tasks that need not be `Send` from its own queue. A `LocalSet` in an ordinary one would wake the loop
        // through a file descriptor for every batch of events.
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
        runtime.block_on(self.serve(listeners, shutdown))
    }

    /// Serves until `shutdown` is ready, then waits for jobs in flight; returns
    /// the disks. It runs in a local runtime or a local set of tokio's.
    ///
    /// # Errors
    /// When waiting for sockets fails.
    pub async fn serve(mut self, listeners: Listeners, shutdown: impl Future<Output = ()>) -> io::Result<D> {
        // A connection each, and what the process has open besides.
        let files = self.shared.config.connections_max as u64 + FILES_RESERVED;
        if let Err(error) = tiermem_sys::limits::raise_open_files(files) {
            tracing::warn!(%error, "fewer connections than configured");
        }
        let entrance = listeners.start()?;
        let outcomes = Arc::new(Notify::new());
        let wake = Arc::clone(&outcomes);
        self.disks.notify(Arc::new(move || wake.notify_one()));
        let pollable = self.disks.pollable().map(registered).transpose()?;
        let ServerConfig { buffers_bytes_max, stall_timeout, .. } = self.shared.config;
        let core = Rc::new(RefCell::new(Core::new(self.disks, buffers_bytes_max)));
        let idle = Rc::new(Notify::new());
        let progressed = Rc::new(Notify::new());
        let told = [Rc::clone(&idle), Rc::clone(&progressed)];
        let mut helpers = self.control_requests.start(&core, &self.shared.stats, progressed);
        let busy_poll = Rc::new(BusyPoll::default());
        helpers.extend(pollable.map(|fd| spawn_local(watch(fd, Arc::clone(&outcomes)))));
        helpers.push(spawn_local(collect(Rc::clone(&core), outcomes, told, Rc::clone(&busy_poll))));
        helpers.push(spawn_local(Rc::clone(&busy_poll).keep()));
        helpers.push(spawn_local(look_around(Rc::clone(&core), stall_timeout)));
        drop(self.control_queue);
        let (stop, stopping) = watch::channel(false);
        let acceptor =
            Acceptor { core: Rc::clone(&core), shared: Rc::clone(&self.shared), busy_poll, stopping };
        let mut connections = JoinSet::new();
        acceptor.let_in(entrance, &mut connections, shutdown).await;

        // The sockets are closed, and no more clients can connect.
        stop.send_replace(true);
        core.borrow_mut().stop();
        let end = async {
            while connections.join_next().await.is_some() {}
            while core.borrow().under_way() > 0 {
                idle.notified().await;
            }
        };
        if timeout(self.shared.config.grace, end).await.is_err() {
            let jobs = core.borrow().under_way();
            tracing::warn!(jobs, connections = connections.len(), "cut off after the grace time");
        }
        connections.shutdown().await;
        for helper in helpers {
            helper.abort();
            // It says that it was aborted.
            let _ = helper.await;
        }
        drop(acceptor);
        let core = Rc::try_unwrap(core).map_err(|_| io::Error::other("a connection outlives its server"))?;
        Ok(core.into_inner().disks)
    }
}

/// A copy of a descriptor, for which the event loop waits from now on.
#[expect(
    deprecated,
    reason = "what replaces it is unsafe, as others may close the descriptor: this one is owned"
)]
fn registered(fd: BorrowedFd<'_>) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd.try_clone_to_owned()?, Interest::READABLE)
}

/// Has outcomes looked for whenever the disks' descriptor says that there may be some.
async fn watch(pollable: AsyncFd<OwnedFd>, outcomes: Arc<Notify>) {
    // It ends with the loop.
    while let Ok(mut readable) = pollable.readable().await {
        readable.clear_ready();
        outcomes.notify_one();
    }
}

/// Delivers outcomes to their connections whenever there may be some, and reports the disks' progress.
async fn collect<D: Disks>(
    core: Rc<RefCell<Core<D>>>,
    outcomes: Arc<Notify>,
    [idle, progressed]: [Rc<Notify>; 2],
    busy_poll: Rc<BusyPoll>,
) {
    loop {
        outcomes.notified().await;
        busy_poll.turn();
        let mut core = core.borrow_mut();
        core.collect(None);
        progressed.notify_one();
        if core.is_stopping() && core.under_way() == 0 {
            idle.notify_one();
        }
    }
}

/// Checks for clients without progress, often enough that one is shut out after `stall_timeout`.
async fn look_around<D: Disks>(core: Rc<RefCell<Core<D>>>, stall_timeout: Duration) {
    let mut ticks = interval((stall_timeout / LOOKS as u32).max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        core.borrow_mut().look_around();
    }
}

impl<D: Disks + 'static> Acceptor<D> {
    /// Accepts clients until `shutdown` is ready.
    async fn let_in(
        &self,
        mut entrance: Entrance,
        connections: &mut JoinSet<()>,
        shutdown: impl Future<Output = ()>,
    ) {
        let mut shutdown = pin!(shutdown);
        let mut crowded = false;
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut shutdown => return,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
                accepted = poll_fn(|cx| entrance.poll_accept(cx)) => accepted,
            };
            let stats = &self.shared.stats;
            match accepted {
                Ok((_, peer)) if connections.len() >= self.shared.config.connections_max => {
                    stats.refuse();
                    // Once is enough: there may be many of them.
                    if !crowded {
                        tracing::warn!(%peer, connections = connections.len(), "refused, and more like it: too many");
                    }
                    crowded = true;
                }
                Ok((socket, peer)) => {
                    crowded = false;
                    stats.accept();
                    connections.spawn_local(self.clone().attend(socket, peer));
                }
                // A client that went away before it was accepted is nothing to wait for; anything else is.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::select! {
                        () = &mut shutdown => return,
                        () = sleep(ACCEPT_REST) => {}
                    }
                }
            }
        }
    }

    /// One client, from its first byte to its last.
    async fn attend(mut self, socket: Plain, peer: Peer) {
        tracing::debug!(%peer, "connected");
        let _present = Present(Arc::clone(&self.shared.stats));
        let mut stream = Stream::Plain(socket);
        let session = tokio::select! {
            biased;
            _ = self.stopping.wait_for(|stopping| *stopping) => Err(NegotiationEnd::Stopping),
            negotiated = timeout(
                self.shared.config.handshake_timeout,
                negotiate(&mut stream, &self.core, &self.shared.policy, self.shared.config.options_max),
            ) => negotiated.unwrap_or(Err(NegotiationEnd::Late)),
        };
        let (session, bytes) = match session {
            Ok(agreed) => agreed,
            Err(end) => return tracing::debug!(%peer, %end, "no session"),
        };
        let id = self.core.borrow_mut().enter(session.export);
        let own = Arc::new(ConnectionStats {
            id,
            peer: peer.to_string(),
            export: session.export,
            tls: stream.is_tls(),
            traffic: Traffic::default(),
        });
        let name = self.core.borrow().disks.exports()[session.export].name.clone();
        tracing::info!(%peer, connection = id, export = name, tls = own.tls, "a session begins");
        let stats = Listed { stats: Arc::clone(&self.shared.stats), own: Arc::clone(&own) };
        let export = stats.stats.enter(&own);
        let counted = (Arc::clone(&own), export);
        let agreed = (session, bytes);
        let core = Rc::clone(&self.core);
        let mut connection = Connection::new(core, id, stream, agreed, &self.shared.config, counted);
        let busy_poll = &self.busy_poll;
        let served = poll_fn(|cx| {
            busy_poll.turn();
            connection.poll(cx)
        });
        let end = served.await;
        let total = own.traffic.totals();
        tracing::info!(
            %peer, connection = id, export = name, %end, requests = total.requests_total(),
            read_bytes = total.read_bytes, written_bytes = total.written_bytes, errors = total.errors,
            "a session ends"
        );
    }
}

/// Counts a connection as there for as long as it lives.
struct Present(Arc<ServerStats>);

impl Drop for Present {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Lists a connection for as long as it lives.
struct Listed {
    stats: Arc<ServerStats>,
    own: Arc<ConnectionStats>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.stats.leave(&self.own);
    }
}
