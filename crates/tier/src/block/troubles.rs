//! Troubles of one simulated device or store.

use super::bad_places::BadPlaces;

/// Faults that a test sets on one device or store while an engine uses it.
#[derive(Clone, Debug, Default)]
pub struct Troubles {
    /// Nothing is done.
    pub hangs: bool,
    /// Everything fails.
    pub broken: bool,
    /// Everything fails but reads.
    pub refuses_writes: bool,
    /// Requests in a thousand that fail, except direct reads, writes and syncs.
    pub failures_per_mille: u64,
    /// The submission after this number of others fails, once.
    pub fails_after: Option<u64>,
    /// Where requests fail.
    pub bad_places: BadPlaces,
    /// Additional time of a sync. Direct syncs, which are waited for, take no time.
    pub sync_ns: u64,
}
