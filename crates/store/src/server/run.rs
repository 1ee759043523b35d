//! The event loop: accepting, ticking, publishing, shutting down.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::MissedTickBehavior;

use super::bind::{ServeError, Server};
use super::connection::Connection;
use super::shard::{Core, Shard};
use super::snapshot::Snapshot;
use super::stream::Stream;
use super::tls::{TlsConfig, TlsStream};
use crate::clients::Peer;

const TICK: Duration = Duration::from_millis(100);
/// How long accepting rests when the system has no more files or memory to give.
const ACCEPT_REST: Duration = Duration::from_millis(100);

impl Server {
    /// Serves on this thread until `shutdown` is ready, then closes all connections. `shutdown` is polled within a
    /// tokio runtime, so it may await signals. Hands figures to `publish` every
    /// [`super::ServerConfig::snapshot_interval`] and once at the end.
    pub fn run(
        self,
        shutdown: impl Future<Output = ()>,
        publish: impl Fn(Snapshot) + 'static,
    ) -> Result<(), ServeError> {
        let publish = Rc::new(publish);
        let port = self.local_addr().map_or(0, |address| address.port());
        let tls_port = self.local_tls_addr().map_or(0, |address| address.port());
        let Server { config, engine, tcp, tls, unix, watcher } = self;
        let woken = Arc::new(AtomicBool::new(true));
        let flag = Arc::clone(&woken);
        // A local runtime runs tasks that need not be `Send` from its own queue. A `LocalSet` in an ordinary one
        // would wake the loop through a file descriptor for every batch of events: two system calls more.
        let runtime = Builder::new_current_thread()
            .enable_all()
            .on_thread_unpark(move || flag.store(true, Ordering::Relaxed))
            .build_local(LocalOptions::default())
            .map_err(ServeError::EventLoop)?;
        let mut core = Core::new(&config, engine, port, woken);
        core.host.settings_watcher = watcher;
        core.host.tls_port = tls_port;
        let shard = Rc::new(RefCell::new(core));
        let result = runtime.block_on(async {
            drive_flash(&shard);
            if let Some(listener) = tcp {
                let listener = TcpListener::from_std(listener).map_err(ServeError::EventLoop)?;
                spawn_local(accept_tcp(listener, Rc::clone(&shard)));
            }
            if let (Some((listener, certificate)), Some(config)) = (tls, config.tls.clone()) {
                let listener = TcpListener::from_std(listener).map_err(ServeError::EventLoop)?;
                let certificate = Rc::new(RefCell::new(certificate));
                spawn_local(accept_tls(listener, Rc::clone(&certificate), Rc::clone(&shard)));
                spawn_local(reload_on_hangup(config, certificate));
            }
            if let Some(listener) = unix {
                let listener = UnixListener::from_std(listener).map_err(ServeError::EventLoop)?;
                spawn_local(accept_unix(listener, Rc::clone(&shard)));
            }
            spawn_local(tick(Rc::clone(&shard)));
            spawn_local(publish_often(Rc::clone(&shard), Rc::clone(&publish), config.snapshot_interval));
            shutdown.await;
            Ok(())
        });
        // Connections end here and give their pins free.
        drop(runtime);
        if let Err(error) = shard.borrow_mut().engine.close_flash() {
            tracing::error!(%error, "the flash tier was not closed in order: a restart may find less");
        }
        publish(shard.borrow_mut().snapshot());
        if let Some(path) = &config.unix_socket
            && let Err(error) = std::fs::remove_file(path)
        {
            tracing::warn!(path = %path.display(), %error, "the unix socket was not removed");
        }
        result
    }
}

/// Has the engine take what the flash device did as soon as it says so.
fn drive_flash(shard: &Rc<Shard>) {
    let bell = Arc::new(Notify::new());
    let ring = Arc::clone(&bell);
    shard.borrow_mut().engine.notify_flash(Arc::new(move || ring.notify_one()));
    let shard = Rc::clone(shard);
    spawn_local(async move {
        loop {
            bell.notified().await;
            let engine = &mut shard.borrow_mut().engine;
            engine.advance_flash();
            engine.commit();
        }
    });
}

async fn tick(shard: Rc<Shard>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        shard.borrow_mut().tick();
    }
}

async fn publish_often(shard: Rc<Shard>, publish: Rc<impl Fn(Snapshot)>, every: Duration) {
    let mut interval = tokio::time::interval(every);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let snapshot = shard.borrow_mut().snapshot();
        publish(snapshot);
    }
}

async fn accept_tcp(listener: TcpListener, shard: Rc<Shard>) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                set_up(&stream, &shard);
                let peer = peer_of(&stream, address);
                welcome(Stream::Tcp(stream), peer, &shard);
            }
            Err(error) => rest_after(error).await,
        }
    }
}

/// The two ends of a connection.
fn peer_of(stream: &TcpStream, address: SocketAddr) -> Peer {
    stream.local_addr().map_or(Peer::None, |local| Peer::Tcp(address, local))
}

fn set_up(stream: &TcpStream, shard: &Shard) {
    // Replies are written whole; nothing is gained by waiting for more.
    let _ = stream.set_nodelay(true);
    // A peer that vanished without a word is noticed after some minutes.
    let keepalive_s = shard.borrow().host.settings.tcp_keepalive_s;
    if keepalive_s > 0 {
        let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(keepalive_s));
        let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
    }
}

/// The certificate that new connections are shown.
type Certificate = Rc<RefCell<Arc<rustls::ServerConfig>>>;

async fn accept_tls(listener: TcpListener, certificate: Certificate, shard: Rc<Shard>) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                set_up(&stream, &shard);
                let peer = peer_of(&stream, address);
                match TlsStream::new(stream, Arc::clone(&certificate.borrow())) {
                    Ok(stream) => welcome(Stream::Tls(Box::new(stream)), peer, &shard),
                    Err(error) => tracing::warn!(%error, "a connection was not accepted"),
                }
            }
            Err(error) => rest_after(error).await,
        }
    }
}

/// Reads certificate and key again at SIGHUP. Connections that are open keep theirs, and what cannot be used is told of
/// and changes nothing.
async fn reload_on_hangup(config: TlsConfig, certificate: Certificate) {
    let mut hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => hangup,
        Err(error) => return tracing::warn!(%error, "SIGHUP cannot be received"),
    };
    while hangup.recv().await.is_some() {
        match config.load() {
            Ok(loaded) => {
                *certificate.borrow_mut() = loaded;
                tracing::info!(certificate = %config.cert.display(), "read anew");
            }
            Err(error) => tracing::error!(%error, "the certificate is kept as it was"),
        }
    }
}

async fn accept_unix(listener: UnixListener, shard: Rc<Shard>) {
    let path: Rc<str> = shard.borrow().host.unix_socket.as_str().into();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => welcome(Stream::Unix(stream), Peer::Unix(Rc::clone(&path)), &shard),
            Err(error) => rest_after(error).await,
        }
    }
}

/// A client that went away before it was accepted is nothing to wait for; anything else is.
async fn rest_after(error: io::Error) {
    if error.kind() != io::ErrorKind::ConnectionAborted {
        tracing::warn!(%error, "a connection was not accepted");
        tokio::time::sleep(ACCEPT_REST).await;
    }
}

fn welcome(mut stream: Stream, peer: Peer, shard: &Rc<Shard>) {
    let session = {
        let core = &mut *shard.borrow_mut();
        core.host.stats.connections_received += 1;
        if core.host.stats.clients_connected >= core.host.settings.maxclients as u64 {
            core.host.stats.connections_rejected += 1;
            // A new socket has room for a line; a client that closed already misses nothing.
            let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
            return;
        }
        core.host.stats.clients_connected += 1;
        let id = core.next_client_id();
        let session = core.host.welcome(id, peer);
        core.host.clients.card_mut(session.slot).fd = stream.fd();
        session
    };
    // The shard is free again: a connection that is dropped at once borrows it.
    spawn_local(Connection::new(stream, Rc::clone(shard), session));
}
