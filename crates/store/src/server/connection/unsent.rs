//! Replies that a connection has not sent: how they count, and when no more requests are read for them.

use super::{Connection, Core, Links};
use crate::clients::TIGHT_OUTPUT_BYTES;

impl Connection {
    /// Whether the client must take replies before it is read from again.
    pub(super) fn is_over_limit(&self, core: &Core) -> bool {
        // Pinned values take no memory of the buffers, but it is no use to read requests whose replies are not read.
        let settings = &core.host.settings;
        let own = self.output.uncounted_bytes();
        self.output.len() >= settings.output_bytes_max
            || (self.output.owned_bytes() >= TIGHT_OUTPUT_BYTES
                && core.reply_buffer_bytes() + own >= core.host.output_total_bytes_max())
    }

    pub(super) fn set_blocked(&mut self, core: &mut Core) {
        let blocked = !self.output.is_empty() && self.is_over_limit(core);
        if blocked != self.blocked {
            self.blocked = blocked;
            let count = &mut core.host.stats.clients_blocked_on_output;
            *count = if blocked { *count + 1 } else { *count - 1 };
        }
    }

    /// Brings the shard's total of unsent bytes up to date.
    #[inline]
    pub(super) fn count_unsent(&mut self, core: &mut Core) {
        let (before, now) = self.output.count();
        // Parts of replies that wait for other shards' parts are replies too.
        let held = self.links.as_deref().map_or(0, Links::held_reply_bytes);
        if before != now || self.counted_held_bytes != held {
            self.counted_held_bytes = held;
            core.host.clients.output_mut().set_unsent(self.session.slot, now + held, core.host.now_us);
            core.note_unsent();
        }
    }
}
