//! What a command handler sees.

use std::path::PathBuf;
use std::rc::Rc;

use crate::engine::{Engine, EngineStats, StoreError};
use crate::resp::{Version, Writer};
use crate::settings::Settings;
use crate::stats::ServerStats;

use super::Output;

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
    /// The name that `CLIENT SETNAME` gave; empty is none.
    pub name: Box<[u8]>,
    /// The client asked to be disconnected after the replies are sent.
    pub closing: bool,
}

/// What one shard's server knows that commands report or change.
#[derive(Debug, Default)]
pub struct Host {
    /// Counters.
    pub stats: ServerStats,
    /// The counters, the server's and the engine's, when `CONFIG RESETSTAT` was last called.
    pub stats_base: Box<(ServerStats, EngineStats)>,
    /// What `CONFIG SET` changes; change it through [`Host::change_settings`].
    pub settings: Settings,
    /// Told of changed settings.
    pub settings_watcher: SettingsWatcher,
    /// The file that the server was configured with, for `CONFIG REWRITE`.
    pub config_file: Option<PathBuf>,
    /// The address listened on, empty without one.
    pub bind: String,
    /// Whether listening beyond this machine without a password is refused.
    pub protected_mode: bool,
    /// The TCP port, 0 without one.
    pub tcp_port: u16,
    /// The unix socket's path, empty without one.
    pub unix_socket: String,
    /// The longest reply to one request, in bytes.
    pub reply_bytes_max: usize,
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
        Session { id, authenticated: self.settings.requirepass.is_none(), ..Session::default() }
    }

    /// Replaces the settings and tells whoever must act on it.
    pub fn change_settings(&mut self, settings: Settings) {
        self.settings = settings;
        if let SettingsWatcher(Some(watcher)) = &self.settings_watcher {
            watcher(&self.settings);
        }
    }

    /// Begins the statistics that `INFO` shows anew; `engine` are the engine's now.
    pub fn forget_statistics(&mut self, engine: EngineStats) {
        *self.stats_base = (self.stats.clone(), engine);
    }
}

/// Is called with changed settings.
pub type WatchSettings = dyn Fn(&Settings);

/// What a host calls with changed settings.
#[derive(Clone, Default)]
pub struct SettingsWatcher(pub Option<Rc<WatchSettings>>);

impl std::fmt::Debug for SettingsWatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SettingsWatcher({})", if self.0.is_some() { "some" } else { "none" })
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
    pub(super) const WRONG_TYPE: Self =
        Refusal::Text("WRONGTYPE Operation against a key holding the wrong kind of value");
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
