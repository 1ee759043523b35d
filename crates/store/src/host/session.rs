//! Session: the state of one client.

use crate::clients::{ClientInfo, Slot};
use crate::command::{Mode, Spec};
use crate::resp::Version;
use crate::shards::ShardSet;
use crate::users::Login;

use super::Transaction;

/// One client's standing with the server.
#[derive(Debug, Default)]
pub struct Session {
    /// Grows with each connection, never used twice.
    pub id: u64,
    /// The database that `SELECT` chose.
    pub db: u8,
    /// The protocol that `HELLO` chose.
    pub version: Version,
    /// Whether it has logged in, or need not.
    pub authenticated: bool,
    /// The user that it is logged in as.
    pub login: Login,
    /// Its place in the registry of clients.
    pub slot: Slot,
    /// What is unusual about it.
    pub mode: Mode,
    /// The requests queued since `MULTI`.
    pub transaction: Option<Box<Transaction>>,
    /// The shards of the keys that it watches, if there are several shards.
    pub watched_shards: ShardSet,
    /// The last command.
    pub command: Option<&'static Spec>,
    /// The present request gets no reply (`CLIENT REPLY SKIP` came before it).
    pub is_skipped: bool,
    /// The client asked to be disconnected after the replies are sent.
    pub closing: bool,
}

impl Session {
    /// Updates the facts about the client.
    #[inline]
    pub fn note(&self, client_info: &mut ClientInfo, now_us: u64) {
        client_info.active_us = now_us;
        client_info.db = self.db;
        client_info.command = self.command.map_or(("", ""), |spec| (spec.container, spec.name));
        let queue = self.transaction.as_ref();
        client_info.queued = queue.map_or(-1, |queue| queue.len() as i64);
        client_info.queued_bytes = queue.map_or(0, |queue| queue.memory_bytes());
    }
}
