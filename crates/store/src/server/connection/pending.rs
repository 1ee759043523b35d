//! Requests of a connection that are not complete, or wait: the memory that they take, and who knows of it.

use std::task::Context as TaskContext;

use super::{Connection, Core, Gone};
use crate::clients::ClientInfo;
use crate::server::request_budget::{FREE_BYTES, next_capacity_bytes};

/// Places of arguments kept between requests; more are given back.
const ARGS_KEPT: usize = 64;

impl Connection {
    /// Sees to it that `pending` can take more; `false` when that must wait for others' requests.
    pub(super) fn make_room(&mut self, core: &mut Core, cx: &mut TaskContext<'_>) -> Result<bool, Gone> {
        let held = self.pending.len();
        let more = self.bytes_min.saturating_sub(held).max(1);
        if self.pending.capacity() - held >= more.min(FREE_BYTES) {
            return Ok(true);
        }
        let capacity = next_capacity_bytes(held, self.bytes_min, core.limits.request_bytes_max);
        let beside = self.parser.memory_bytes() + self.queued_bytes();
        if !core.budget.grow(&mut self.share, capacity + beside, cx.waker()) {
            return Ok(false);
        }
        self.pending.try_reserve_exact(capacity - held).map_err(|_| Gone)?;
        Ok(true)
    }

    /// Shows what is pending: of an unfinished request the arguments that are whole, and what is not looked at yet.
    #[inline]
    pub(super) fn note_pending(&self, client_info: &mut ClientInfo) {
        client_info.pending_bytes = self.pending.len();
        client_info.pending_free_bytes = self.pending.capacity() - self.pending.len();
        (client_info.parsed_bytes, client_info.argument_bytes) = (0, 0);
        if self.parser.is_midway() && !self.pending.is_empty() {
            client_info.parsed_bytes = self.parser.consumed();
            client_info.argument_bytes = self.parser.argument_bytes();
        }
    }

    /// Bytes of the requests that wait for `EXEC`, and of what is on its way to and from other shards.
    #[inline]
    pub(super) fn queued_bytes(&self) -> usize {
        let links = self.links.as_deref().map_or(0, |links| links.memory_bytes());
        self.session.transaction.as_ref().map_or(0, |queue| queue.memory_bytes()) + links
    }

    /// Books what is pending or queued, and gives memory back that is no longer needed.
    #[inline]
    pub(super) fn settle_pending(&mut self, core: &mut Core) {
        let queued = self.queued_bytes();
        if self.pending.is_empty() {
            if self.pending.capacity() > FREE_BYTES {
                self.pending = Vec::new();
            }
            if queued > 0 {
                core.budget.charge(&mut self.share, queued);
            } else if self.share.is_charged() {
                core.budget.release(&mut self.share);
            }
        } else if self.pending.capacity() > FREE_BYTES || queued > 0 || self.share.is_charged() {
            if self.pending.len() * 4 < self.pending.capacity()
                && self.bytes_min <= self.pending.capacity() / 2
            {
                self.pending.shrink_to_fit();
            }
            let bytes = self.pending.capacity() + self.parser.memory_bytes() + queued;
            core.budget.charge(&mut self.share, bytes);
        }
    }

    /// An idle connection keeps no buffers.
    #[inline]
    pub(super) fn release_memory(&mut self) {
        if self.pending.capacity() > 0 {
            self.pending = Vec::new();
        }
        if !self.parser.is_midway() {
            self.parser.shrink(ARGS_KEPT);
        }
    }
}
