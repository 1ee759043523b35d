//! Several shards: threads that each own a part of the keys, an engine, a server, and nothing else.
//!
//! A key's shard follows from the key alone ([`Placement`]). A client's connection lives at one shard, its *home*. What it
//! asks of another shard travels as a request, in the protocol that clients speak, through a pipe in memory to a *guest* there:
//! a connection like any other, whose socket is that pipe. So whatever a connection can do (wait for flash, be held up, watch,
//! track, monitor) a guest can, and the hit path of a request that is at home already is the same code as with one shard,
//! behind one look at where its key belongs.
//!
//! ```text
//!   client ==socket== connection at its home shard                 guest at another shard
//!                       |  route: whose keys?                        |
//!                       |-- mine: run                                |
//!                       |-- another's: request ------- pipe -------> run
//!                       |                                            |
//!                       '<- replies in the order of the requests <---'
//! ```
//!
//! - `route` ([`crate::command::Route`]) decides from a command's name and keys where it runs; [`merge`] makes one reply of
//!   several shards'; `server/shard_pipes` is the home's side of the pipes, [`mailboxes`] how one shard reaches another.
//! - Requests of one connection to one shard stay in order, so whoever asks for one key sees its own writes. Requests in a
//!   pipeline for different shards run at the same time.
//! - A request over keys of several shards is cut up where that means the same for each key (`MGET`, `MSET`, `DEL`, `EXISTS`,
//!   `TOUCH`, `UNLINK`, `WATCH`); the parts are not one atomic step. Others, and transactions, need all their keys in one shard, as
//!   in a Redis cluster; keys with the same `{tag}` are.
//! - Nothing is shared but pipes, mailboxes, and the [`shard_stats`] that each shard publishes ten times a second.

pub mod mailboxes;
pub mod merge;
mod set;
pub mod shard_stats;

pub use set::{Several, ShardSet};

use tiermem_base::key_to_shard::shard_of;

/// The most shards: a scan's cursor has room for so many, and no machine has more cores worth it.
pub const SHARDS_MAX: usize = 256;

/// Which shard has which keys. Part of what lies on flash: a region holds the keys of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The shard that asks.
    pub own: usize,
    /// How many there are.
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
