//! How long an item was not used, for those who ask.

use super::Ladder;
use crate::{Id, Now};

impl Ladder {
    /// Requests since the item was last used, to the tick and modulo the counter's wrap.
    pub fn idle_requests(&self, id: Id, now: Now) -> u64 {
        u64::from(self.age(id, now)) * self.config.recency_requests.max(1)
    }
}
