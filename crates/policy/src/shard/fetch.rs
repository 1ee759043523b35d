//! Look-ups below memory, which take two calls: where the item is, and, once its bytes are at hand, whether they are still the
//! ones. Many can be under way at once; whatever happens meanwhile, one that is not stale says what the key has.

use super::{Items, Shard};
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

/// What [`Shard::stage`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staged {
    /// What was read is what the key has.
    Here,
    /// It has moved, or something else has taken its place: look again.
    Elsewhere,
}

impl Shard {
    /// Whether the log must be read before a request that looks at this key can run.
    #[inline]
    pub fn seek<I: Items>(&self, hash: u64, key: I::Key<'_>, items: &I) -> Option<Away> {
        self.log_work.as_ref()?;
        let place = self.memory.index.find_log(hash)?;
        self.memory.find(hash, key, items).is_none().then(|| self.away(hash, place)).flatten()
    }

    /// What to read for an entry of the log.
    pub fn away(&self, hash: u64, place: LogPlace) -> Option<Away> {
        let work = self.log_work.as_ref()?;
        let (segment, sequence) = work.filling_of(place);
        Some(Away { hash, place, sequence, is_in_memory: work.is_in_memory(segment) })
    }

    /// Whether what was read for a look-up is still what its key has.
    pub fn stage(&self, away: &Away) -> Staged {
        let now = self.memory.index.find_log(away.hash).filter(|place| place.is_same(away.place));
        let now = now.and_then(|place| self.away(away.hash, place));
        // A segment may have been filled anew; and what was in memory may not be there any more.
        let is_current =
            |now: Away| now.sequence == away.sequence && (!away.is_in_memory || now.is_in_memory);
        if now.is_some_and(is_current) { Staged::Here } else { Staged::Elsewhere }
    }

    /// Notes a look-up that found its item in the log, whose bytes in memory would be so many; whether it is to be promoted:
    /// [enter](Self::enter) it then, and say [so](Self::promoted).
    pub fn hit_below(&mut self, hash: u64, bytes: u64) -> bool {
        let Some(work) = &mut self.log_work else { return false };
        let Some(place) = self.memory.index.find_log(hash) else { return false };
        let (warmer, reuse) = work.log.hit(hash, place, self.now.requests);
        if warmer != place {
            self.memory.index.put_log(hash, warmer);
        }
        self.memory.ladder.wants(reuse, bytes)
    }

    /// Notes that an item of the log was copied into memory.
    pub fn promoted(&mut self) {
        if let Some(work) = &mut self.log_work {
            work.log.promoted();
        }
    }
}
