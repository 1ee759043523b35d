//! Slow log: the slowest recent requests.

use std::collections::VecDeque;

use crate::resp::Args;
use crate::shards::Placement;

use super::redact::{REDACTED, is_secret};

/// Arguments kept of an entry, and bytes of each.
const ARGS_MAX: usize = 32;
const ARG_BYTES_MAX: usize = 128;

/// One slow request.
#[derive(Debug)]
pub struct Entry {
    /// Its number.
    pub id: u64,
    /// When it ran, in seconds of the store's time.
    pub at_s: u64,
    /// Duration in microseconds.
    pub us: u64,
    /// Excerpt of its arguments.
    pub args: Vec<Vec<u8>>,
    /// Address of the client.
    pub address: String,
    /// The client's name.
    pub name: Box<[u8]>,
}

/// The log.
#[derive(Debug)]
pub struct Slowlog {
    /// The newest first.
    pub entries: VecDeque<Entry>,
    next_id: u64,
    /// From one entry's number to the next: shards have numbers of their own.
    id_step: u64,
    /// Requests slower than this are logged, in microseconds; below 0 none (`slowlog-log-slower-than`).
    pub slower_than_us: i64,
    /// Entries kept (`slowlog-max-len`).
    pub entries_max: usize,
}

impl Default for Slowlog {
    fn default() -> Self {
        Slowlog { entries: VecDeque::new(), next_id: 0, id_step: 1, slower_than_us: -1, entries_max: 0 }
    }
}

/// Excerpt of the arguments: 32 of them, and 128 bytes of each, as in Redis.
fn excerpt(args: Args<'_>) -> Vec<Vec<u8>> {
    let count = args.len().min(ARGS_MAX);
    let kept = (0..count).map(|at| {
        if at + 1 == count && args.len() > count {
            return format!("... ({} more arguments)", args.len() - count + 1).into_bytes();
        }
        let arg = if is_secret(args, at) { REDACTED } else { &args[at] };
        match arg.len().checked_sub(ARG_BYTES_MAX) {
            None | Some(0) => arg.to_vec(),
            Some(more) => [&arg[..ARG_BYTES_MAX], format!("... ({more} more bytes)").as_bytes()].concat(),
        }
    });
    kept.collect()
}

impl Slowlog {
    /// Numbers entries so that none of another shard has the same number.
    pub fn number_for(&mut self, placement: Placement) {
        (self.next_id, self.id_step) = (placement.own as u64, placement.shards as u64);
    }

    /// Logs a request if it took long enough.
    pub fn note(&mut self, us: u64, now_s: u64, args: Args<'_>, address: String, name: &[u8]) {
        if !u64::try_from(self.slower_than_us).is_ok_and(|least| us >= least) {
            return;
        }
        let entry =
            Entry { id: self.next_id, at_s: now_s, us, args: excerpt(args), address, name: name.into() };
        self.next_id += self.id_step;
        self.entries.push_front(entry);
        self.forget_surplus();
    }

    /// Forgets the oldest entries beyond [`Self::entries_max`].
    pub fn forget_surplus(&mut self) {
        self.entries.truncate(self.entries_max);
    }
}
