//! State of the pairing of the cache with its stores: who the cache is, and how each store is labelled.

use tiermem_policy::extents::pairing::{Label, Mark, Marks};

/// The cache, as stores know it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheIdentity {
    pub id: u128,
    /// The one that was here before, and was overwritten because the operator said so.
    pub discarded: Option<u128>,
}

/// How a volume's store is labelled.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pairing {
    /// The mark of this start; `None` if it does not write the store.
    pub own: Option<Mark>,
    /// What the log says.
    pub marks: Marks,
    /// Whether the store has that label, and what it says.
    pub label: Option<Label>,
    /// The cache has dirty data of an earlier life.
    pub was_dirty: bool,
}
