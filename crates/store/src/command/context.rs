//! What a command handler sees.

use crate::clients::{Card, Clients, Peer, Slot, TooMuch};
use crate::engine::{Engine, StoreError};
use crate::resp::{Version, Writer};
use crate::stats::ServerStats;

use super::mode::Mode;
use super::observing::Observing;
use super::timing::{Timeline, Timing};
use super::transaction::Transaction;
use super::{Output, Spec};

/// One client's standing with the server.
#[derive(Debug, Default)]
pub struct Session {
    /// Grows with each connection, never used twice.
    pub id: u64,
    /// The database that `SELECT` chose.
    pub db: u8,
    /// The protocol that `HELLO` chose.
    pub version: Version,
    /// Whether the password, if there is one, was given.
    pub authenticated: bool,
    /// Its place in the registry of clients.
    pub slot: Slot,
    /// What is unusual about it.
    pub mode: Mode,
    /// The requests queued since `MULTI`.
    pub transaction: Option<Box<Transaction>>,
    /// The last command.
    pub command: Option<&'static Spec>,
    /// The client asked to be disconnected after the replies are sent.
    pub closing: bool,
}

impl Session {
    /// Brings what is told of the client up to date.
    #[inline]
    pub fn note(&self, card: &mut Card, now_us: u64) {
        card.active_us = now_us;
        card.db = self.db;
        card.command = self.command.map_or(("", ""), |spec| (spec.container, spec.name));
        let queue = self.transaction.as_ref();
        card.queued = queue.map_or(-1, |queue| queue.len() as i64);
        card.queued_bytes = queue.map_or(0, |queue| queue.memory_bytes());
    }
}

/// What one shard's server knows that commands report or change.
#[derive(Debug, Default)]
pub struct Host {
    /// Counters.
    pub stats: ServerStats,
    /// The password, if one is wanted.
    pub password: Option<Box<[u8]>>,
    /// The TCP port, 0 without one.
    pub tcp_port: u16,
    /// The unix socket's path, empty without one.
    pub unix_socket: String,
    /// The most connections at a time.
    pub maxclients: usize,
    /// Seconds after which an idle client is dropped; 0 is never.
    pub timeout_s: u64,
    /// The longest reply to one request, in bytes.
    pub reply_bytes_max: usize,
    /// What the transaction of the present client may hold, in bytes.
    pub queue_bytes_max: usize,
    /// Who is connected.
    pub clients: Clients,
    /// Slow requests and latencies.
    pub timing: Timing,
    /// When the store had served how many requests.
    pub timeline: Timeline,
    /// The parameters of both and of notifications; change them through [`Host::observe`].
    pub observing: Observing,
    /// Unix time in microseconds when the server started.
    pub started_us: u64,
    /// Unix time in microseconds of the present batch.
    pub now_us: u64,
    /// Requests per second lately.
    pub ops_per_sec: u64,
    /// Forty hexadecimal digits that tell one run of the server from another.
    pub run_id: String,
    /// Memory for values that are put together, kept between commands.
    pub scratch: Vec<u8>,
}

impl Host {
    /// The state of a client that has just connected.
    pub fn new_session(&self, id: u64) -> Session {
        Session { id, authenticated: self.password.is_none(), ..Session::default() }
    }

    /// Lets a client in: notes it, and makes its session.
    pub fn welcome(&mut self, id: u64, peer: Peer) -> Session {
        let slot = self.clients.enter(id, peer, self.now_us);
        Session { slot, ..self.new_session(id) }
    }
}

/// Everything a handler may touch.
#[derive(Debug)]
pub struct Context<'a> {
    /// Keys and values.
    pub engine: &'a mut Engine,
    /// The client that asks.
    pub session: &'a mut Session,
    /// Where the reply goes.
    pub output: &'a mut Output,
    /// The server.
    pub host: &'a mut Host,
}

impl Context<'_> {
    /// The writer for the reply.
    #[inline]
    pub fn reply(&mut self) -> Writer<'_> {
        Writer::new(self.output.bytes(), self.session.version)
    }

    /// Has the engine note changes exactly while somebody wants to know. Call it where that may have changed.
    pub fn refresh(&mut self) {
        self.engine.note_changes(self.host.clients.wants_changes());
    }
}

/// An error reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A fixed text, the code first.
    Text(&'static str),
    /// A text made for the occasion; may hold bytes that the client sent.
    Built(Vec<u8>),
    /// The engine refused.
    Store(StoreError),
}

impl Refusal {
    pub(super) const SYNTAX: Self = Refusal::Text("ERR syntax error");
    pub(super) const NOT_AN_INTEGER: Self = Refusal::Text("ERR value is not an integer or out of range");

    /// Writes the error.
    pub fn write(&self, mut reply: Writer<'_>) {
        match self {
            Refusal::Text(text) => reply.error(text.as_bytes()),
            Refusal::Built(text) => reply.error(text),
            Refusal::Store(StoreError::OutOfMemory) => {
                reply.error(b"OOM command not allowed when used memory > 'maxmemory'.");
            }
            Refusal::Store(error) => reply.error(format!("ERR {error}").as_bytes()),
        }
    }
}

impl From<TooMuch> for Refusal {
    fn from(_: TooMuch) -> Self {
        Refusal::Text(
            "ERR the server remembers too many names, subscriptions and watched keys for its clients: use fewer or \
             shorter ones",
        )
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Refusal::Store(error)
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Self {
        Refusal::Built(text.into_bytes())
    }
}

/// What a handler returns: the reply is written, or this error is to be.
pub(super) type Outcome = Result<(), Refusal>;
