//! Timers: when items expire, and parts of them such as fields of a hash, and which of those are due.

use super::{Act, Ladder};
use crate::{Id, Now};

/// Items that expire in one piece of work where the driver makes pieces until all are gone: a few, so that it can stop whenever
/// something comes.
const PIECE_EXPIRED: u32 = 64;

/// The timers of a ladder's items, at a moment.
#[derive(Debug)]
pub struct Timers<'a> {
    ladder: &'a mut Ladder,
    now: Now,
}

impl Ladder {
    /// The timers of its items.
    #[inline]
    pub fn timers(&mut self, now: Now) -> Timers<'_> {
        Timers { ladder: self, now }
    }
}

impl Timers<'_> {
    /// Sets or removes the item's expiry.
    #[inline]
    pub fn set_expires_at_ms(self, id: Id, at_ms: Option<u64>) {
        let nodes = &mut self.ladder.transit.residents.nodes;
        if at_ms.is_none() && !nodes.get(id).expires() {
            return;
        }
        nodes.set_expires_at_ms(id, at_ms, self.now);
        self.ladder.limit_pages();
    }

    /// Notes that no part of an item expires before `at_ms`, and one may then; `None`: none ever does. Without room for a timer they
    /// go when they are met.
    pub fn set_parts_expire_at_ms(self, id: Id, at_ms: Option<u64>) {
        let Timers { ladder, now } = self;
        let fits = ladder.charges.may_have_timer(ladder.metadata_bytes(), &ladder.transit.residents);
        ladder.transit.residents.nodes.set_parts_expire_at_ms(id, at_ms.filter(|_| fits), now);
        ladder.limit_pages();
    }

    /// A piece of the expiry that [`Ladder::idle`] has left. Returns whether that was not all.
    pub fn expire_piece(self, acts: &mut Vec<Act>) -> bool {
        self.ladder.transit.expire(self.now, PIECE_EXPIRED, acts).1
    }

    /// An item of which parts may have expired, found with at most `work` of work. The driver, to whom its bytes are known, takes
    /// them out and [says](Self::set_parts_expire_at_ms) when the next ones do.
    pub fn parts_due(self, work: &mut u32) -> Option<Id> {
        self.ladder.transit.residents.nodes.parts_due(self.now, work)
    }

    /// For how many milliseconds items or their parts have been due that are still there, to the tenth of a second.
    pub fn late_ms(self) -> u64 {
        self.ladder.transit.residents.nodes.late_ms(self.now)
    }
}
