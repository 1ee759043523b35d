//! How long an item was not used, for those who ask; and what nobody uses any more.

use super::Ladder;
use crate::waste::Waste;
use crate::{Id, Now};

impl Ladder {
    /// Where the caller leaves tables that it needs no longer: steps give their memory back by and by.
    pub fn waste(&mut self) -> &mut Waste {
        &mut self.waste
    }

    /// Requests since the item was last used, to the tick and modulo the counter's wrap.
    pub fn idle_requests(&self, id: Id, now: Now) -> u64 {
        u64::from(self.age(id, now)) * self.config.recency_requests.max(1)
    }
}
