//! Shards: threads that each own a part of the keys, an engine, a server, and nothing else.
//!
//! A key's shard follows from the key alone ([`Placement`]). A client's connection belongs to one shard,
//! its *home*. Its request to another shard travels in the client protocol, through a pipe in memory, to
//! a *guest* there: a connection like any other, with that pipe as its socket. So a guest can do
//! everything that a connection can (wait for flash, be paused, watch, track, monitor). The hit path of
//! a request at its home shard is the same code as with one shard, after one test of the key's shard.
//!
//! ```text
//!   client ==socket== connection at its home shard                 guest at another shard
//!                       |  route: which shards?                      |
//!                       |-- home: run                                |
//!                       |-- another: request --------- pipe -------> run
//!                       |                                            |
//!                       '<- replies in the order of the requests <---'
//! ```
//!
//! - `route` ([`crate::command::Route`]) decides from a command's name and keys where it runs; [`merge`] combines the
//!   replies of several shards; `server/shard_pipes` is the home's side of the pipes; [`mailboxes`] carry clients and
//!   messages from shard to shard.
//! - Requests of one connection to one shard stay in order, so a client that asks for one key sees its own writes.
//!   Requests in a pipeline for different shards run at the same time.
//! - A request over keys of several shards is split where that means the same for each key (`MGET`, `MSET`, `DEL`,
//!   `EXISTS`, `TOUCH`, `UNLINK`, `WATCH`); the parts are not one atomic step. Other requests, and transactions, need
//!   all their keys in one shard, as in a Redis cluster; keys with the same `{tag}` are in one shard.
//! - Shards share only pipes, mailboxes, and the [`shard_stats`] that each shard publishes ten times a second.

pub mod mailboxes;
pub mod merge;
pub mod reply_turns;
mod set;
pub mod shard_stats;
pub mod stop;

pub use set::{Several, ShardSet};

use tiermem_base::key_to_shard::shard_of;

/// Most shards: a scan's cursor has room for this number, and no machine has more cores worth it.
pub const SHARDS_MAX: usize = 256;

/// Placement of keys in shards. Part of the format on flash: a region holds the keys of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The shard that asks.
    pub own: usize,
    /// Number of shards.
    pub shards: usize,
}

impl Default for Placement {
    fn default() -> Self {
        Placement { own: 0, shards: 1 }
    }
}

impl Placement {
    /// The shard of a key; keys with the same `{tag}` are in the same one.
    #[inline]
    pub fn shard_of(self, key: &[u8]) -> usize {
        shard_of(key, self.shards)
    }

    /// Whether a key is at home here.
    #[inline]
    pub fn owns(self, key: &[u8]) -> bool {
        self.shards == 1 || self.shard_of(key) == self.own
    }
}
