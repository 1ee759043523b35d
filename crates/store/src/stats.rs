//! What the server counts, apart from the engine's own figures.

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
    /// Connections whose client does not read its replies, so that nothing more is read from it.
    pub clients_blocked_on_output: u64,
    /// Connections whose large request waits for buffer space.
    pub clients_waiting_for_buffer: u64,
    /// Connections closed because they were idle, stalled, or broke the protocol.
    pub clients_dropped: u64,
    /// Bytes read from sockets.
    pub net_input_bytes: u64,
    /// Bytes written to sockets.
    pub net_output_bytes: u64,
    /// Bytes of unfinished requests held now.
    pub request_buffer_bytes: u64,
    /// Bytes of replies not yet sent held now, pinned values counted.
    pub reply_buffer_bytes: u64,
}
