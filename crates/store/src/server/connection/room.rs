//! Replies for which there is no room: their requests wait in line, as [`tiermem_policy::reply_line`] says.

use std::task::Context as TaskContext;

use tiermem_policy::reply_line::{Piece, Turn};
use tiermem_policy::reply_room::Standing;

use super::{Connection, Core, Links};
use crate::clients::TIGHT_OUTPUT_BYTES;
use crate::host::Session;

/// What a connection of this shard has a part in. A guest's client has a number at home.
pub(super) fn piece_of(core: &Core, session: &Session) -> Piece {
    let home = core.host.clients.registry().client_info(session.slot).home;
    Piece { client: home.map_or(session.id, |(_, client)| client), shard: core.host.placement().own }
}

impl Connection {
    /// There is no room for the reply of the present request: whether it is tried again at once, to be put together or to be refused.
    #[cold]
    pub(super) fn tries_again(&mut self, core: &mut Core, cx: &TaskContext<'_>) -> bool {
        self.is_put_off = true;
        let needs_bytes = core.host.needed_reply_bytes;
        match core.reply_turns.wait(self.piece, needs_bytes, core.host.now_us, cx.waker()) {
            Turn::Now => core.grant_replies(Standing::Privileged),
            Turn::Never => core.host.may_wait_for_room = false,
            Turn::Later => {
                // Keys that were read for it would hold memory that others need.
                self.away.cancel(&mut core.engine);
                return false;
            }
        }
        true
    }

    /// The request that was put off is answered, or its client must read before it may run.
    #[cold]
    pub(super) fn leave_line(&mut self, core: &mut Core) {
        self.is_put_off = false;
        // Bytes that others need to know of before the next one is called.
        self.count_unsent(core);
        core.forget_piece(self.piece, false);
        core.host.may_wait_for_room = true;
        core.grant_replies(core.reply_turns.standing(self.piece));
    }

    /// The client may exceed the room no more once it was sent what it had asked for when the last piece of that was put together.
    #[inline]
    pub(super) fn end_privilege(&mut self, core: &mut Core) {
        if core.reply_turns.is_busy() {
            self.end_privilege_when_sent(core);
        }
    }

    #[cold]
    fn end_privilege_when_sent(&mut self, core: &mut Core) {
        let client = self.piece.client;
        let is_guest = client != self.session.id;
        if is_guest || !core.reply_turns.is_privileged(client) {
            self.privileged_until = None;
            return;
        }
        if core.reply_turns.has(client) {
            return;
        }
        let (first, next) = self.links.as_deref().map_or((0, 0), Links::numbers);
        let until = *self.privileged_until.get_or_insert(next);
        if first >= until && self.output.owned_bytes() <= TIGHT_OUTPUT_BYTES {
            self.privileged_until = None;
            core.forget_piece(self.piece, true);
        }
    }
}
