//! Accepting of clients: distributes them over the shards, and refuses those beyond the limit.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tiermem_live::tls::{TlsFiles, TlsStream};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_local;

use super::connection::Connection;
use super::shard_context::Shard;
use super::stream::{Pipe, Stream};
use crate::clients::Peer;
use crate::command::Mode;
use crate::shards::mailboxes::{Mailboxes, Message, Socket};

/// How long accepting rests when the system has no more files or memory to give.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// The certificate that new connections are shown; all shards look at it, and only then.
#[derive(Clone, Debug)]
pub(super) struct Certificate(Arc<RwLock<Arc<rustls::ServerConfig>>>);

impl Certificate {
    pub(super) fn new(loaded: Arc<rustls::ServerConfig>) -> Self {
        Certificate(Arc::new(RwLock::new(loaded)))
    }

    fn present(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, loaded: Arc<rustls::ServerConfig>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = loaded;
    }
}

/// A shard's entrance.
#[derive(Clone)]
pub(super) struct Entrance {
    pub(super) shard: Rc<Shard>,
    pub(super) certificate: Option<Certificate>,
    /// The other shards, if there are any.
    pub(super) mailboxes: Option<Mailboxes>,
    /// The shard that gets the next client; counted over all listening sockets.
    pub(super) turn: Rc<std::cell::Cell<usize>>,
}

impl Entrance {
    /// Accepts from a TCP socket for as long as the server runs.
    pub(super) async fn accept_tcp(self, listener: TcpListener, tls: bool) {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => match self.next_door() {
                    None if tls => self.welcome_tls(stream, address),
                    None => self.welcome_tcp(stream, address),
                    Some((mailboxes, shard)) => match stream.into_std() {
                        Ok(stream) if tls => {
                            mailboxes.send(shard, Message::Client(Socket::Tls(stream, address)))
                        }
                        Ok(stream) => mailboxes.send(shard, Message::Client(Socket::Tcp(stream, address))),
                        Err(error) => rest_after(error).await,
                    },
                },
                Err(error) => rest_after(error).await,
            }
        }
    }

    /// Accepts from a unix socket.
    pub(super) async fn accept_unix(self, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => match self.next_door() {
                    None => self.welcome_unix(stream),
                    Some((mailboxes, shard)) => match stream.into_std() {
                        Ok(stream) => mailboxes.send(shard, Message::Client(Socket::Unix(stream))),
                        Err(error) => rest_after(error).await,
                    },
                },
                Err(error) => rest_after(error).await,
            }
        }
    }

    /// The shard that gets the next client, if it is another one.
    fn next_door(&self) -> Option<(&Mailboxes, usize)> {
        let mailboxes = self.mailboxes.as_ref()?;
        let turn = self.turn.get();
        self.turn.set((turn + 1) % mailboxes.placement.shards);
        (turn != mailboxes.placement.own).then_some((mailboxes, turn))
    }

    /// Receives clients and messages from other shards, until the store stops.
    pub(super) async fn receive(&self, messages: &mut UnboundedReceiver<Message>) {
        while let Some(visit) = messages.recv().await {
            match visit {
                Message::Client(socket) => {
                    if let Err(error) = self.receive_client(socket) {
                        tracing::warn!(%error, "a connection was not accepted");
                    }
                }
                Message::Guest { pipe, peer, home } => self.welcome_guest(Pipe::new(pipe), peer, home),
                Message::Drop { client } => {
                    let clients = &mut self.shard.borrow_mut().host.clients;
                    if let Some(slot) = clients.registry().find(client) {
                        clients.output_mut().kill(slot);
                    }
                }
                Message::Event { class, event, db, key } => {
                    let clients = &mut self.shard.borrow_mut().host.clients;
                    clients.publish_event_here(class, &event, db, &key);
                }
                Message::Show(shown) => {
                    self.shard.borrow_mut().show_all();
                    // The receiver may be gone.
                    let _ = shown.send(());
                }
                Message::Memory(word) => {
                    let core = &mut *self.shard.borrow_mut();
                    if let Some(mailboxes) = &core.host.mailboxes {
                        let tell = |to, word| mailboxes.send(to, Message::Memory(word));
                        core.member.hear(word, &mut core.engine.memory_mut(), tell);
                    }
                }
                Message::TakePartInStop(attempt) => {
                    let core = &mut *self.shard.borrow_mut();
                    if core.host.take_part_in_stop(&mut core.engine, &attempt).is_ok() {
                        return;
                    }
                }
                Message::End => return,
            }
        }
    }

    fn receive_client(&self, socket: Socket) -> io::Result<()> {
        match socket {
            Socket::Tcp(stream, address) => self.welcome_tcp(TcpStream::from_std(stream)?, address),
            Socket::Tls(stream, address) => self.welcome_tls(TcpStream::from_std(stream)?, address),
            Socket::Unix(stream) => self.welcome_unix(UnixStream::from_std(stream)?),
        }
        Ok(())
    }

    fn welcome_tcp(&self, stream: TcpStream, address: SocketAddr) {
        self.set_up(&stream);
        let peer = peer_of(&stream, address);
        self.welcome(Stream::Tcp(stream), peer);
    }

    fn welcome_tls(&self, stream: TcpStream, address: SocketAddr) {
        self.set_up(&stream);
        let peer = peer_of(&stream, address);
        let Some(certificate) = &self.certificate else { return };
        match TlsStream::new(stream, certificate.present()) {
            Ok(stream) => self.welcome(Stream::Tls(Box::new(stream)), peer),
            Err(error) => tracing::warn!(%error, "a connection was not accepted"),
        }
    }

    fn welcome_unix(&self, stream: UnixStream) {
        let path: Arc<str> = self.shard.borrow().host.unix_socket.as_str().into();
        self.welcome(Stream::Unix(stream), Peer::Unix(path));
    }

    fn set_up(&self, stream: &TcpStream) {
        // Replies are written whole; nothing is gained by waiting for more.
        let _ = stream.set_nodelay(true);
        // A peer that vanished without a word is noticed after some minutes.
        let keepalive_s = self.shard.borrow().host.settings.tcp_keepalive_s;
        if keepalive_s > 0 {
            let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(keepalive_s));
            let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
        }
    }

    fn welcome(&self, stream: Stream, peer: Peer) {
        let session = {
            let core = &mut *self.shard.borrow_mut();
            core.host.stats.connections_received += 1;
            if !core.host.count_in() {
                core.host.stats.connections_rejected += 1;
                stream.send_last(b"-ERR max number of clients reached\r\n");
                return;
            }
            let id = core.next_client_id();
            let session = core.host.welcome(id, peer);
            core.host.clients.registry_mut().client_info_mut(session.slot).fd = stream.fd();
            session
        };
        // The shard is free again: a connection that is dropped at once borrows it.
        spawn_local(Connection::new(stream, Rc::clone(&self.shard), session));
    }

    /// A guest was let in where it is at home, and is no client of this shard's own.
    fn welcome_guest(&self, pipe: Pipe, peer: Peer, home: (usize, u64)) {
        let session = {
            let core = &mut *self.shard.borrow_mut();
            let id = core.next_client_id();
            let mut session = core.host.welcome(id, peer);
            session.authenticated = true;
            session.mode.set(Mode::GUEST, true);
            core.host.clients.registry_mut().client_info_mut(session.slot).home = Some(home);
            session
        };
        spawn_local(Connection::new(Stream::Pipe(pipe), Rc::clone(&self.shard), session));
    }
}

/// The two ends of a connection.
fn peer_of(stream: &TcpStream, address: SocketAddr) -> Peer {
    stream.local_addr().map_or(Peer::None, |local| Peer::Tcp(address, local))
}

/// Reads certificate and key again at SIGHUP. Open connections
/// keep theirs. Unusable files are reported and change nothing.
pub(super) async fn reload_on_hangup(files: TlsFiles, certificate: Certificate) {
    let mut hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => hangup,
        Err(error) => return tracing::warn!(%error, "SIGHUP cannot be received"),
    };
    while hangup.recv().await.is_some() {
        match files.load() {
            Ok(loaded) => {
                certificate.replace(loaded);
                tracing::info!(certificate = %files.cert.display(), "read anew");
            }
            Err(error) => tracing::error!(%error, "the certificate is kept as it was"),
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
