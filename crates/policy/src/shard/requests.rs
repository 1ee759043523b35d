//! What requests do to one item.

use super::{Items, Shard};
use crate::Id;
use crate::ladder::Loc;

impl Shard {
    /// Whether a live item's time is over.
    #[inline]
    pub fn is_expired(&self, id: Id) -> bool {
        self.ladder().expires_at_ms(id).is_some_and(|at_ms| at_ms <= self.now.unix_ms)
    }

    /// Notes a look-up that found a live item, whose tenant may be known; returns its tier.
    #[inline]
    pub fn hit(&mut self, tenant: Option<u16>, id: Id) -> u8 {
        self.memory.ladder.hit_of(tenant, id, self.now)
    }

    /// Sets or removes the expiry of a live item.
    pub fn set_expires_at_ms(&mut self, id: Id, at_ms: Option<u64>) {
        self.memory.ladder.set_expires_at_ms(id, at_ms, self.now);
    }

    /// Takes a live item out; where its bytes were, which are nobody's now.
    pub fn forget<I: Items>(&mut self, id: Id, hash: u64, items: &I) -> Loc {
        let loc = self.ladder().loc(id);
        self.memory.remove(id, loc, hash, items.bytes(id, loc).here);
        self.memory.ladder.remove(id);
        loc
    }

    /// Keeps the bytes of a live item where they are, even beyond its removal, until [`Self::unpin`].
    pub fn pin(&mut self, id: Id) -> Loc {
        self.memory.ladder.pin(id)
    }

    /// Lets go of a pinned place.
    pub fn unpin(&mut self, loc: Loc) {
        self.memory.ladder.unpin(loc);
    }
}
