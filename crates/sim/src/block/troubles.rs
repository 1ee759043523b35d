//! What goes wrong while a trace runs, and when.

use std::ops::Range;

/// Times at which stores and the cache's log do not do what they are asked; none unless said. All times are the trace's, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Troubles {
    /// When the store of a tenant's volume fails what is written back to it, and its flushes. It is read all the same.
    pub outages: Vec<(u32, Range<u64>)>,
    /// When the cache's log is full, so that no request begins, and nothing is begun to be written back. Ascending.
    pub log_full: Vec<Range<u64>>,
}

impl Troubles {
    /// Whether the store of a tenant's volume fails what it is asked at a time.
    pub(super) fn is_away(&self, tenant: u32, now_ns: u64) -> bool {
        self.outages.iter().any(|(of, times)| *of == tenant && times.contains(&now_ns))
    }

    /// Whether the log has room at a time.
    pub(super) fn log_has_room(&self, now_ns: u64) -> bool {
        !self.log_full.iter().any(|times| times.contains(&now_ns))
    }

    /// When it has room again; none where it has room.
    pub(super) fn log_has_room_ns(&self, now_ns: u64) -> Option<u64> {
        self.log_full.iter().find(|times| times.contains(&now_ns)).map(|times| times.end)
    }
}
