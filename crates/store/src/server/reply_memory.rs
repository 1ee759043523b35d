//! Memory for replies that are not sent yet: how long the next one may be, who waits for it, and who is disconnected for it.

use core::sync::atomic::Ordering;

use tiermem_policy::reply_line::Piece;
use tiermem_policy::reply_room::{ReplyRoom, Standing};

use super::shard_context::Core;
use crate::clients::{Slot, TIGHT_OUTPUT_BYTES};
use crate::settings::Settings;

impl Core {
    /// Replies that wait to be sent, but for values that are sent from their places, in bytes.
    #[inline]
    pub(super) fn reply_buffer_bytes(&self) -> usize {
        self.host.clients.output().waiting_bytes() + self.engine.copied_bytes()
    }

    #[inline]
    fn reply_room(&self) -> ReplyRoom {
        let Settings { output_bytes_max, output_total_bytes_max, .. } = self.host.settings;
        ReplyRoom {
            total_bytes_max: output_total_bytes_max,
            client_bytes_max: output_bytes_max,
            value_reply_bytes: self.value_reply_bytes,
            short_reply_bytes: TIGHT_OUTPUT_BYTES,
            reply_bytes_max: self.reply_bytes_max,
            has_shards: self.host.mailboxes.is_some(),
        }
    }

    /// Says how long the next reply may be, and how much may be copied for others to have room: what is left of the memory for
    /// replies.
    #[inline]
    pub(super) fn grant_replies(&mut self, standing: Standing) {
        let waiting = self.reply_buffer_bytes();
        let all_waiting = self.share_reply_bytes(waiting);
        let room = self.reply_room();
        self.host.reply_bytes_max = room.grant(all_waiting, standing);
        self.host.replies_are_short = self.host.reply_bytes_max < room.reply_bytes_max;
        let copied_bytes_max =
            self.host.output_total_bytes_max().saturating_sub(waiting - self.engine.copied_bytes());
        self.engine.pins().set_copied_bytes_max(copied_bytes_max);
    }

    /// A connection has more or fewer unsent bytes than before.
    #[inline]
    pub(super) fn note_unsent(&mut self) {
        let waiting = self.reply_buffer_bytes();
        self.share_reply_bytes(waiting);
        if self.reply_turns.is_busy() {
            self.call_next();
        }
    }

    /// Tells other shards how many bytes of replies wait here. Returns how many wait in all shards. Whatever changes that number
    /// must lead here: a shard that falls idle would go on counting what it has sent, and others would refuse replies for it.
    #[inline]
    fn share_reply_bytes(&mut self, waiting: usize) -> usize {
        let shared = core::mem::replace(&mut self.shared_reply_bytes, waiting);
        let Some(mailboxes) = &self.host.mailboxes else { return waiting };
        // A reply is often sent at once, so that mostly nothing has changed, and other shards' caches are left alone.
        if waiting != shared {
            mailboxes.reply_bytes.fetch_add(waiting.wrapping_sub(shared), Ordering::Relaxed);
        }
        mailboxes.reply_bytes.load(Ordering::Relaxed)
    }

    /// How long the reply may be that is first in line.
    fn room_bytes(&mut self) -> usize {
        let waiting = self.reply_buffer_bytes();
        let all_waiting = self.share_reply_bytes(waiting);
        self.reply_room().grant(all_waiting, Standing::First)
    }

    /// Wakes who waits for room and has it now.
    #[cold]
    pub(super) fn call_next(&mut self) {
        let room_bytes = self.room_bytes();
        self.reply_turns.call(room_bytes);
    }

    /// Whether a reply that was put off is to be put together again.
    #[cold]
    pub(super) fn is_called(&mut self, piece: Piece) -> bool {
        let room_bytes = self.room_bytes();
        self.reply_turns.is_called(piece, room_bytes)
    }

    /// A piece waits no more; where `is_all`, nor does its client, which is privileged no more.
    #[cold]
    pub(super) fn forget_piece(&mut self, piece: Piece, is_all: bool) {
        self.reply_turns.leave(piece);
        if is_all {
            self.reply_turns.end(piece.client);
        }
        self.call_next();
    }

    /// Ends the waiting of those who have waited for too long, at a tick.
    pub(super) fn tick_reply_turns(&mut self) {
        if self.reply_turns.is_busy() {
            self.reply_turns.give_up(self.stalled_since_us());
            self.call_next();
        }
    }

    fn stalled_since_us(&self) -> u64 {
        self.host.now_us.saturating_sub(self.host.settings.stall_timeout_ms.saturating_mul(1000))
    }

    /// Where replies wait for room or were refused since the last tick, disconnects clients that have not read theirs for too long. One whose
    /// own reply waits has nothing to read.
    pub(super) fn drop_stalled(&mut self) {
        let refused = self.host.stats.replies_refused;
        let were_refused = core::mem::replace(&mut self.known_refused, refused) != refused;
        if !were_refused && !self.reply_turns.is_waited_in() {
            return;
        }
        let stalled: Vec<Slot> = self.host.clients.output().stalled_since(self.stalled_since_us()).collect();
        for slot in stalled {
            let client_info = self.host.clients.registry().client_info(slot);
            if self.reply_turns.has(client_info.home.map_or(client_info.id, |(_, client)| client)) {
                let now_us = self.host.now_us;
                self.host.clients.output_mut().excuse(slot, now_us);
            } else {
                self.drop_client(slot, "it does not read its replies, and others want memory for theirs");
            }
        }
    }

    /// Disconnects clients whose replies held room that others needed, and for which there was no memory elsewhere. Whether there
    /// were any.
    #[inline]
    pub(super) fn drop_robbed(&mut self) -> bool {
        let robbed = self.engine.pins().take_robbed();
        let reason = "its replies held values that others have replaced, and there is no memory to copy them";
        robbed.iter().for_each(|slot| self.drop_client(*slot, reason));
        !robbed.is_empty()
    }

    /// Disconnects a client for what it does not read.
    fn drop_client(&mut self, slot: Slot, reason: &str) {
        let client_info = self.host.clients.registry().client_info(slot);
        let who = (client_info.id, client_info.home);
        self.host.clients.output_mut().drop_for(slot, who, reason);
    }
}
