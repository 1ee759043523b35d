//! Items that leave the system by the ladder's own decision: evicted, or their time is over.

use super::{Act, Ladder, Why};
use crate::evict::Departure;
use crate::{Id, Now};

impl Ladder {
    /// Takes an item out of the system and tells the driver.
    pub(super) fn drop_item(&mut self, id: Id, mut why: Why, now: Now, acts: &mut Vec<Act>) {
        let loc = self.loc(id);
        if self.expires_at_ms(id).is_some_and(|at_ms| at_ms <= now.unix_ms) {
            why = Why::Expired;
        }
        match why {
            Why::Evicted => {
                self.levels[usize::from(loc.tier)].counters.evictions += 1;
                self.note_evicted(self.place_bytes(id));
                let tier = usize::from(loc.tier);
                self.tenants.as_mut().into_iter().for_each(|tenants| tenants.note_evicted(id, tier));
            }
            Why::Expired => self.counters.expired += 1,
        }
        let expires_at_ms = self.expires_at_ms(id);
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
