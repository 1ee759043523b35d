//! Counters of served requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::counter::Counter;
use super::latency::{OpTimes, OpTimesTotals};
use crate::nbd::Command;

/// Requests and bytes of a connection or of an export, while they are counted.
#[derive(Debug, Default)]
pub struct Traffic {
    requests: [Counter; Command::ALL.len()],
    read_bytes: Counter,
    written_bytes: Counter,
    errors: Counter,
}

/// Counters up to some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficTotals {
    /// Requests that were taken, by [`Command::code`].
    pub requests: [u64; Command::ALL.len()],
    /// Bytes that reads brought.
    pub read_bytes: u64,
    /// Bytes that writes stored.
    pub written_bytes: u64,
    /// Requests that were refused or failed.
    pub errors: u64,
}

impl Traffic {
    pub(super) fn request(&self, command: Command) {
        self.requests[usize::from(command.code())].add(1);
    }

    /// A request of `bytes` was done.
    pub(super) fn done(&self, command: Command, bytes: u64) {
        match command {
            Command::Read => self.read_bytes.add(bytes),
            Command::Write => self.written_bytes.add(bytes),
            _ => {}
        }
    }

    pub(super) fn error(&self) {
        self.errors.add(1);
    }

    /// The counters so far.
    pub fn totals(&self) -> TrafficTotals {
        TrafficTotals {
            requests: std::array::from_fn(|at| self.requests[at].get()),
            read_bytes: self.read_bytes.get(),
            written_bytes: self.written_bytes.get(),
            errors: self.errors.get(),
        }
    }
}

impl TrafficTotals {
    /// All requests.
    pub fn requests_total(&self) -> u64 {
        self.requests.iter().sum()
    }
}

/// A connection in transmission.
#[derive(Debug)]
pub struct ConnectionStats {
    /// The server's number for it.
    pub id: u64,
    /// Where it comes from.
    pub peer: String,
    /// The export's place.
    pub export: usize,
    /// Whether it is encrypted.
    pub tls: bool,
    /// Its requests.
    pub traffic: Traffic,
}

/// What is counted of an export.
#[derive(Debug, Default)]
pub(super) struct ExportStats {
    pub(super) traffic: Traffic,
    pub(super) times: OpTimes,
}

/// Counters of a server. They may be read on any thread while it runs.
#[derive(Debug, Default)]
pub struct ServerStats {
    accepted: Counter,
    refused: Counter,
    ended: Counter,
    connections: Mutex<Vec<Arc<ConnectionStats>>>,
    exports: Mutex<Vec<Arc<ExportStats>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ServerStats {
    /// Clients that were let in.
    pub fn accepted(&self) -> u64 {
        self.accepted.get()
    }

    /// Clients that were too many.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// Connections that are there, negotiating ones included.
    pub fn open(&self) -> u64 {
        self.accepted.get().saturating_sub(self.ended.get())
    }

    /// Connections in transmission.
    pub fn connections(&self) -> Vec<Arc<ConnectionStats>> {
        lock(&self.connections).clone()
    }

    /// Requests to each export since the start, by its index; exports beyond the end have had no client yet.
    pub fn exports(&self) -> Vec<TrafficTotals> {
        lock(&self.exports).iter().map(|export| export.traffic.totals()).collect()
    }

    /// Latency of requests to an export since the start.
    pub fn times(&self, export: usize) -> OpTimesTotals {
        let export = lock(&self.exports).get(export).map(Arc::clone);
        export.map(|export| export.times.totals()).unwrap_or_default()
    }

    pub(super) fn accept(&self) {
        self.accepted.add(1);
    }

    pub(super) fn refuse(&self) {
        self.refused.add(1);
    }

    pub(super) fn end(&self) {
        self.ended.add(1);
    }

    pub(super) fn enter(&self, connection: &Arc<ConnectionStats>) -> Arc<ExportStats> {
        lock(&self.connections).push(Arc::clone(connection));
        let mut exports = lock(&self.exports);
        if exports.len() <= connection.export {
            exports.resize_with(connection.export + 1, Arc::default);
        }
        Arc::clone(&exports[connection.export])
    }

    pub(super) fn leave(&self, connection: &ConnectionStats) {
        lock(&self.connections).retain(|present| present.id != connection.id);
    }
}
