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
//!   several shards'; `server/links` is the home's side of the pipes, [`mailboxes`] how one shard reaches another.
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

use tiermem_base::hash::placement_hash;

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
    /// The shard of a key: by the hash of all of it or, as in a Redis cluster, of what stands between its first `{` and the next
    /// `}`, if that is anything.
    #[inline]
    pub fn shard_of(self, key: &[u8]) -> usize {
        let hash = placement_hash(tag(key));
        ((u128::from(hash) * self.shards as u128) >> 64) as usize
    }

    /// Whether a key is at home here.
    #[inline]
    pub fn owns(self, key: &[u8]) -> bool {
        self.shards == 1 || self.shard_of(key) == self.own
    }
}

/// Most keys have no tag, which a few words tell at once.
#[inline]
fn tag(key: &[u8]) -> &[u8] {
    if has_brace(key) { tag_behind_brace(key) } else { key }
}

/// Whether there is a `{`, eight bytes at a time: exact, as the lowest byte that borrows is one that became zero.
#[inline]
fn has_brace(key: &[u8]) -> bool {
    const ONES: u64 = u64::MAX / 255;
    let words = key.chunks_exact(8);
    let rest = words.remainder();
    let zero_byte = |word: u64| {
        let zeroed = word ^ (ONES * b'{' as u64);
        zeroed.wrapping_sub(ONES) & !zeroed & (ONES << 7)
    };
    let mut found = 0;
    for word in words {
        found |= zero_byte(word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
    }
    found != 0 || rest.contains(&b'{')
}

#[cold]
fn tag_behind_brace(key: &[u8]) -> &[u8] {
    let Some(open) = memchr::memchr(b'{', key) else { return key };
    let behind = &key[open + 1..];
    match memchr::memchr(b'}', behind) {
        None | Some(0) => key,
        Some(close) => &behind[..close],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_spread_and_tags_keep_together() {
        let placement = Placement { own: 0, shards: 3 };
        let mut counts = [0; 3];
        (0..30_000).for_each(|n| counts[placement.shard_of(format!("key:{n}").as_bytes())] += 1);
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
        for n in 0..100 {
            let keys = [format!("{{user{n}}}.a"), format!("b{{user{n}}}"), format!("user{n}")];
            let shards = keys.map(|key| placement.shard_of(key.as_bytes()));
            assert_eq!(shards, [shards[0]; 3]);
        }
        assert_eq!(tag(b"a{}b"), b"a{}b");
        assert_eq!(tag(b"a{b"), b"a{b");
        for len in 0..40 {
            for at in 0..len {
                let mut key = vec![b'|'; len];
                assert!(!has_brace(&key));
                key[at] = b'{';
                assert!(has_brace(&key), "{at} of {len}");
            }
        }
    }

    #[test]
    fn a_keys_shard_never_changes() {
        let placement = Placement { own: 0, shards: 8 };
        let shards = ["a", "b", "user:1", "user:2", "{x}y"].map(|key| placement.shard_of(key.as_bytes()));
        assert_eq!(shards, [3, 7, 2, 4, 6]);
    }
}
