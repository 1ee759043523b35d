//! Items that leave the system by the ladder's own decision: evicted, or their time is over.

use super::{Act, Context, Ladder, Why};
use crate::evict::Departure;
use crate::{Id, Now};

impl Ladder {
    /// Takes an item out of the system and tells the driver. One whose time is over meanwhile counts as expired.
    pub(super) fn evict(&mut self, id: Id, context: &mut Context<'_>) {
        if self.expires_at_ms(id).is_some_and(|at_ms| at_ms <= context.now.unix_ms) {
            self.drop_item(id, Why::Expired, context.now, context.acts);
            return;
        }
        let tier = usize::from(self.loc(id).tier);
        self.levels[tier].counters.evictions += 1;
        self.note_evicted(self.place_bytes(id));
        if let Some(tenants) = &mut self.tenants {
            tenants.note_evicted(id, tier, context.demand.tenant);
        }
        self.drop_item(id, Why::Evicted, context.now, context.acts);
    }

    fn drop_item(&mut self, id: Id, why: Why, now: Now, acts: &mut Vec<Act>) {
        self.counters.expired += u64::from(why == Why::Expired);
        let (loc, expires_at_ms) = (self.loc(id), self.expires_at_ms(id));
        let last_used = now.requests.saturating_sub(self.idle_requests(id, now));
        acts.push(Act::Drop { id, loc, why, expires_at_ms, last_used });
        let departure = if why == Why::Evicted { Departure::Evicted } else { Departure::Deleted };
        self.leave(id, departure);
    }

    /// Drops up to `budget` items whose time is over; how many.
    pub(super) fn expire(&mut self, now: Now, budget: u32, acts: &mut Vec<Act>) -> u32 {
        let mut work = budget;
        let mut dropped = 0;
        while let Some(id) = self.expiry.due(now.unix_ms, &mut work) {
            self.drop_item(id, Why::Expired, now, acts);
            dropped += 1;
        }
        self.is_behind |= work == 0;
        dropped
    }
}
