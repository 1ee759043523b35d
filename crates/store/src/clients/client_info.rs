//! What `CLIENT LIST` reports about a client.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use super::{Clients, Kind, Slot};
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

/// What is told of a client. The connection brings it up to date after each batch of requests.
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
    /// Whom it has logged in as; `None`: nobody but `default`.
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
    /// It asked that its reads leave no trace.
    pub no_touch: bool,
    /// It asked not to be evicted.
    pub no_evict: bool,
    /// The shard where it is at home, which tells of it, and its number there; `None`: here.
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

    /// The name of its user.
    pub fn user_name(&self) -> &str {
        self.user.as_deref().unwrap_or(DEFAULT)
    }
}

impl Clients {
    /// The letters that Redis has for what a client is and does.
    fn letters(&self, slot: Slot) -> String {
        let entry = self.entry(slot);
        let tracking = entry.tracking.as_deref();
        let letters = [
            (self.monitors.contains(&entry.id), 'O'),
            (self.is_subscriber(slot), 'P'),
            (entry.client_info.queued >= 0, 'x'),
            (tracking.is_some(), 't'),
            (tracking.is_some_and(|it| it.broken), 'R'),
            (tracking.is_some_and(|it| it.broadcast), 'B'),
            (entry.dirty, 'd'),
            (matches!(entry.client_info.peer, Peer::Unix(_)), 'U'),
            (entry.client_info.no_evict, 'e'),
            (entry.client_info.no_touch, 'T'),
        ];
        let text: String = letters.into_iter().filter_map(|(on, letter)| on.then_some(letter)).collect();
        if text.is_empty() { "N".to_owned() } else { text }
    }

    /// Whether a client is there to be told things, and cannot be called idle.
    pub fn only_listens(&self, slot: Slot) -> bool {
        self.is_subscriber(slot) || self.monitors.contains(&self.entry(slot).id)
    }

    /// Redis's line about a client, without its end.
    pub fn describe(&self, slot: Slot, now_us: u64) -> Vec<u8> {
        let entry = self.entry(slot);
        let client_info = &entry.client_info;
        let seconds = |since: u64| now_us.saturating_sub(since) / 1_000_000;
        let mut line = format!(
            "id={} addr={} laddr={} fd={} name=",
            entry.id,
            client_info.peer.address(),
            client_info.peer.local_address(),
            client_info.fd
        )
        .into_bytes();
        line.extend_from_slice(&client_info.name);
        let waiting = entry.unsent + entry.outbox.len();
        let command = match client_info.command {
            ("", "") => "NULL".to_owned(),
            ("", name) => name.to_owned(),
            (container, name) => format!("{container}|{name}"),
        };
        let redirect = entry.tracking.as_ref().map_or(-1, |it| it.redirect as i64);
        let mut rest = String::new();
        // Writing to a string does not fail.
        let _ = write!(
            rest,
            " age={} idle={} flags={} db={} sub={} psub={} ssub=0 multi={} qbuf={} qbuf-free=0 argv-mem=0 multi-mem={} \
             rbs=0 rbp=0 obl={} oll=0 omem={} tot-mem={} events=r cmd={command} user={} redir={redirect} resp={}",
            seconds(client_info.created_us),
            seconds(client_info.active_us),
            self.letters(slot),
            client_info.db,
            self.subscription_count(slot, Kind::Channel),
            self.subscription_count(slot, Kind::Pattern),
            client_info.queued,
            client_info.pending_bytes,
            client_info.queued_bytes,
            entry.unsent,
            waiting,
            waiting + client_info.pending_bytes + client_info.queued_bytes + size_of::<super::Entry>(),
            client_info.user_name(),
            if client_info.version == Version::Resp3 { 3 } else { 2 },
        );
        line.extend_from_slice(rest.as_bytes());
        line
    }
}
