//! Client info: the facts about one client that `CLIENT LIST` reports.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::resp::Version;
use crate::users::DEFAULT;

/// The two ends of a connection.
#[derive(Clone, Debug, Default)]
pub enum Peer {
    /// There is no socket.
    #[default]
    None,
    /// TCP: the client's address and the server's.
    Tcp(SocketAddr, SocketAddr),
    /// A unix socket's path.
    Unix(Arc<str>),
}

impl Peer {
    /// The client's address as Redis writes it.
    pub fn address(&self) -> String {
        match self {
            Peer::None => "?:0".to_owned(),
            Peer::Tcp(address, _) => shown(*address),
            Peer::Unix(path) => format!("{path}:0"),
        }
    }

    /// The server's address as Redis writes it.
    pub fn local_address(&self) -> String {
        match self {
            Peer::Tcp(_, local) => shown(*local),
            other => other.address(),
        }
    }
}

/// IPv6 in brackets, IPv4 that came over an IPv6 socket as itself.
fn shown(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

/// Facts about a client. The connection updates them after each batch of requests.
#[derive(Debug, Default)]
pub struct ClientInfo {
    /// Its number.
    pub id: u64,
    /// The ends of its connection.
    pub peer: Peer,
    /// The file descriptor, or -1.
    pub fd: i32,
    /// The name that it has given itself.
    pub name: Box<[u8]>,
    /// The user that it has logged in as; `None`: `default`.
    pub user: Option<Arc<str>>,
    /// Unix time in microseconds when it connected.
    pub created_us: u64,
    /// The same, of its last requests.
    pub active_us: u64,
    /// The database it has chosen.
    pub db: u8,
    /// The protocol it speaks.
    pub version: Version,
    /// Its last command: container and name.
    pub command: (&'static str, &'static str),
    /// Requests queued in a transaction, -1 outside of one.
    pub queued: i64,
    /// Bytes of them.
    pub queued_bytes: usize,
    /// Bytes of an unfinished request.
    pub pending_bytes: usize,
    /// Of these, those that were looked at.
    pub parsed_bytes: usize,
    /// Bytes of the arguments that were found there.
    pub argument_bytes: usize,
    /// Bytes that its buffer has room for beside.
    pub pending_free_bytes: usize,
    /// It asked that its reads leave no trace.
    pub no_touch: bool,
    /// It asked not to be evicted.
    pub no_evict: bool,
    /// Its home shard, which reports it, and its number there; `None`: this shard.
    pub home: Option<(usize, u64)>,
}

impl ClientInfo {
    pub(super) fn new(id: u64, peer: Peer, now_us: u64) -> Self {
        ClientInfo {
            id,
            peer,
            fd: -1,
            created_us: now_us,
            active_us: now_us,
            queued: -1,
            ..ClientInfo::default()
        }
    }

    /// The name of its last command, with the container's before it; `NULL` before the first.
    pub fn command_name(&self) -> String {
        match self.command {
            ("", "") => "NULL".to_owned(),
            ("", name) => name.to_owned(),
            (container, name) => format!("{container}|{name}"),
        }
    }

    /// The name of its user.
    pub fn user_name(&self) -> &str {
        self.user.as_deref().unwrap_or(DEFAULT)
    }
}
