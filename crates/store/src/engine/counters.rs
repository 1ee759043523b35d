//! Counters of requests and their effects.

/// Effects of requests since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Look-ups.
    pub gets: u64,
    /// Look-ups that found their key.
    pub hits: u64,
    /// Values written.
    pub sets: u64,
    /// Items for which there was no room.
    pub refused: u64,
    /// Items that a request removed because their time was over.
    pub expired: u64,
}
