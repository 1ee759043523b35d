//! Counters of the server, apart from the engine's own figures.

mod activity;
mod calls;

pub use activity::{Activity, ClientActivity, SlowRequest};
pub use calls::{CallFigures, CommandStatistics};
use serde::Serialize;

/// Counters of one shard's server since its start, and what it holds now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServerStats {
    /// Requests answered, errors among them.
    pub commands_processed: u64,
    /// Replies that were errors.
    pub error_replies: u64,
    /// Connections accepted.
    pub connections_received: u64,
    /// Connections refused because there were `maxclients`.
    pub connections_rejected: u64,
    /// Connections open now.
    pub clients_connected: u64,
    /// Connections not read from because the client does not read its replies.
    pub clients_blocked_on_output: u64,
    /// Connections whose request waits for the end of a pause.
    pub clients_paused: u64,
    /// Connections with a large request that waits for buffer space.
    pub clients_waiting_for_buffer: u64,
    /// Connections closed because they were idle, stalled, or broke the protocol.
    pub clients_dropped: u64,
    /// Logins refused.
    pub access_denied_auth: u64,
    /// Requests refused since the user may not run the command ...
    pub access_denied_cmd: u64,
    /// ... or not touch a key ...
    pub access_denied_key: u64,
    /// ... or not use a channel.
    pub access_denied_channel: u64,
    /// Bytes read from sockets.
    pub net_input_bytes: u64,
    /// Bytes written to sockets.
    pub net_output_bytes: u64,
    /// Bytes of unfinished requests held now.
    pub request_buffer_bytes: u64,
    /// Bytes of replies not yet sent held now; pinned values, which are in their tiers, do not count.
    pub reply_buffer_bytes: u64,
    /// Requests refused because replies that clients had not read left no memory for theirs.
    pub replies_refused: u64,
}

impl ServerStats {
    /// Adds another shard's.
    pub fn add(&mut self, other: &ServerStats) {
        let ServerStats {
            commands_processed,
            error_replies,
            connections_received,
            connections_rejected,
            clients_connected,
            clients_blocked_on_output,
            clients_paused,
            clients_waiting_for_buffer,
            clients_dropped,
            access_denied_auth,
            access_denied_cmd,
            access_denied_key,
            access_denied_channel,
            net_input_bytes,
            net_output_bytes,
            request_buffer_bytes,
            reply_buffer_bytes,
            replies_refused,
        } = other;
        self.commands_processed += commands_processed;
        self.error_replies += error_replies;
        self.connections_received += connections_received;
        self.connections_rejected += connections_rejected;
        self.clients_connected += clients_connected;
        self.clients_blocked_on_output += clients_blocked_on_output;
        self.clients_paused += clients_paused;
        self.clients_waiting_for_buffer += clients_waiting_for_buffer;
        self.clients_dropped += clients_dropped;
        self.access_denied_auth += access_denied_auth;
        self.access_denied_cmd += access_denied_cmd;
        self.access_denied_key += access_denied_key;
        self.access_denied_channel += access_denied_channel;
        self.net_input_bytes += net_input_bytes;
        self.net_output_bytes += net_output_bytes;
        self.request_buffer_bytes += request_buffer_bytes;
        self.reply_buffer_bytes += reply_buffer_bytes;
        self.replies_refused += replies_refused;
    }
}
