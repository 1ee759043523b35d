//! Requests to one item that is in memory.

use super::{Items, Shard};
use crate::ladder::{Ladder, Loc};
use crate::{Id, Now};

/// A live item in memory, for as long as nothing else happens to the shard.
#[derive(Debug)]
pub struct Item<'a> {
    ladder: &'a mut Ladder,
    id: Id,
    now: Now,
}

impl Item<'_> {
    /// Notes a look-up that found it, whose tenant may be known. Returns its tier.
    #[inline]
    pub fn hit(self, tenant: Option<u16>) -> u8 {
        self.ladder.hit(tenant, self.id, self.now)
    }

    /// Sets or removes its expiry.
    pub fn set_expires_at_ms(self, at_ms: Option<u64>) {
        self.ladder.timers(self.now).set_expires_at_ms(self.id, at_ms);
    }

    /// Notes that no part of it expires before this time, and one may then; `None`: none ever does.
    pub fn set_parts_expire_at_ms(self, at_ms: Option<u64>) {
        self.ladder.timers(self.now).set_parts_expire_at_ms(self.id, at_ms);
    }

    /// Keeps its bytes where they are, even beyond its removal, until [`Shard::unpin`]; then at this tenant's charge.
    pub fn pin(self, tenant: Option<u16>) -> Loc {
        self.ladder.transit_mut().pin(self.id, tenant)
    }

    /// Whether it can be changed where it lies, its length staying the same; a move under way is given up then. It counts as used
    /// either way.
    pub fn change_in_place(self) -> bool {
        self.ladder.touch(self.id, self.now);
        self.change_unused()
    }

    /// The same for a change that is no use of it.
    pub fn change_unused(self) -> bool {
        let place_bytes = self.ladder.residents().place_bytes(self.id);
        self.ladder.transit_mut().rewrite_in_place(self.id, place_bytes)
    }
}

impl Shard {
    /// A live item, to do something with it.
    #[inline]
    pub fn item(&mut self, id: Id) -> Item<'_> {
        Item { ladder: self.contents.memory_mut().ladder_mut(), id, now: self.now }
    }

    /// Whether a live item's time is over.
    #[inline]
    pub fn is_expired(&self, id: Id) -> bool {
        self.ladder().residents().nodes().expires_at_ms(id).is_some_and(|at_ms| at_ms <= self.now.unix_ms)
    }

    /// Takes a live item out. Returns the place where its bytes were, which is free now.
    pub fn forget<I: Items>(&mut self, id: Id, hash: u64, items: &I) -> Loc {
        self.contents.forget(id, hash, items)
    }

    /// Lets go of a pinned place.
    pub fn unpin(&mut self, loc: Loc) {
        self.contents.memory_mut().ladder_mut().transit_mut().unpin(loc);
    }
}
