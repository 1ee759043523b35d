//! Look-ups below memory. They take two calls: the first says where the item is, the second, once its bytes are at hand, whether
//! they are still current. Many can be under way at once; whatever happens meanwhile, a look-up that is not stale gives the key's
//! present bytes.

use super::{Items, Shard};
use crate::Id;
use crate::log::LogPlace;

/// A key that lies in the log alone: what to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Away {
    /// The hash of the key; of one that a scan met only the first 40 bits.
    pub hash: u64,
    /// Where it lies.
    pub place: LogPlace,
    /// The filling of its segment.
    pub sequence: u32,
    /// Whether the driver has the segment's bytes in memory.
    pub is_in_memory: bool,
}

impl Away {
    /// Whether both mean the same bytes, however often they were hit.
    pub fn is_same(&self, other: &Away) -> bool {
        self.hash >> 24 == other.hash >> 24 && self.place.is_same(other.place)
    }
}

/// The answer of [`Shard::stage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staged {
    /// The bytes read are those of the key.
    Here,
    /// It has moved, or something else has taken its place: look again.
    Elsewhere,
}

impl Shard {
    /// Whether the log must be read before a request that looks at this key can run.
    #[inline]
    pub fn seek<I: Items>(&self, hash: u64, key: I::Key<'_>, items: &I) -> Option<Away> {
        let log = self.contents.log()?;
        let place = self.memory().keys().place_below(hash)?;
        self.memory().find(hash, key, items).is_none().then(|| log.away(hash, place))
    }

    /// Whether the bytes read for a look-up are still those of its key.
    pub fn stage(&self, away: &Away) -> Staged {
        let now = self.memory().keys().place_below(away.hash).filter(|place| place.is_same(away.place));
        let now = self.contents.log().zip(now).map(|(log, place)| log.away(away.hash, place));
        // A segment may have been filled anew; and an item in memory may not be there any more.
        let is_current =
            |now: Away| now.sequence == away.sequence && (!away.is_in_memory || now.is_in_memory);
        if now.is_some_and(is_current) { Staged::Here } else { Staged::Elsewhere }
    }

    /// Notes a look-up that found its item in the log, whose bytes in memory would be `bytes`. Returns whether it is to be
    /// promoted: [enter](Self::enter) it then, and call [`Self::promoted`].
    pub fn hit_below(&mut self, hash: u64, bytes: u64) -> bool {
        let now = self.now.requests;
        let Some((work, memory)) = self.contents.log_mut() else { return false };
        let Some(place) = memory.keys().place_below(hash) else { return false };
        let (warmer, reuse) = work.hit(hash, place, now);
        if warmer != place {
            memory.keys_mut().put_below(hash, warmer);
        }
        memory.ladder().wants(reuse, bytes)
    }

    /// Notes that an item of the log was copied into memory.
    pub fn promoted(&mut self) {
        if let Some((work, _)) = self.contents.log_mut() {
            work.promoted();
        }
    }

    /// Forgets the log's copy of a key that gets other bytes or is removed. Returns where it was.
    pub fn forget_below(&mut self, hash: u64) -> Option<LogPlace> {
        self.contents.forget_below(hash)
    }

    /// Forgets the log's copy of an item in memory that is about to change or leave. Returns where it was.
    pub fn forget_copy<I: Items>(&mut self, id: Id, hash: u64, items: &mut I) -> Option<LogPlace> {
        let loc = self.ladder().residents().nodes().loc(id);
        self.contents.forget_copy(id, loc, hash, items)
    }
}
