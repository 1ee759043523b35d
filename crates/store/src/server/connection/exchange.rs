//! Exchange of a connection with other shards: the requests that it sends them, and the order of its replies.

use std::task::Context as TaskContext;

use super::{Connection, Core, Gone, Links, Writer};
use crate::clients::TIGHT_OUTPUT_BYTES;
use crate::server::shard_pipes::Broken;

impl Connection {
    /// Sends what is for other shards, and takes their replies; whether it left some for want of room.
    pub(super) fn exchange(&mut self, core: &mut Core, cx: &mut TaskContext<'_>) -> Result<bool, Gone> {
        let Some(links) = self.links.as_deref_mut().filter(|links| !links.is_alone()) else {
            return Ok(false);
        };
        // Where all clients together have too much, a reply is read once those before it are sent: it waits in its shard meanwhile,
        // which is counted there, and refuses more.
        let is_tight = core.reply_buffer_bytes() >= core.host.output_total_bytes_max();
        let output_bytes_max =
            if is_tight { TIGHT_OUTPUT_BYTES } else { core.host.settings.output_bytes_max };
        let output = &mut self.output;
        let exchanged = links
            .advance(cx, &mut core.input, output, output_bytes_max, self.session.version)
            .map_err(|Broken| Gone)?;
        if exchanged.got_on {
            self.waiting = false;
            self.settle_pending(core);
        }
        self.count_unsent(core);
        Ok(exchanged.left)
    }

    /// Whether replies from other shards are still to come.
    pub(super) fn awaits_replies(&self) -> bool {
        self.links.as_deref().is_some_and(|links| !links.is_idle())
    }

    /// An error behind all replies that are owed.
    pub(super) fn put_out_error(&mut self, text: &str) {
        let mut reply = Vec::new();
        Writer::new(&mut reply, self.session.version).error(text.as_bytes());
        self.put_out(reply);
    }

    /// Puts bytes behind all replies that are owed.
    pub(super) fn put_out(&mut self, bytes: Vec<u8>) {
        if let Some(links) = self.links.as_deref_mut().filter(|links| !links.is_idle()) {
            links.hold(bytes, &mut self.output);
        } else if self.output.is_empty() {
            *self.output.bytes() = bytes;
        } else {
            self.output.bytes().extend_from_slice(&bytes);
        }
    }

    /// Puts the time of the last run into the slow log and the latencies, unless another shard does so.
    #[cold]
    pub(super) fn note_run(&self, core: &mut Core, requests: &[u8]) {
        if self.links.as_deref().is_some_and(Links::last_was_away) {
            core.pass_run();
        } else {
            core.note_run(&self.session, requests);
        }
    }
}
