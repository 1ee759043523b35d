//! Eviction order: who is asked to go first.
//!
//! A policy keeps an order per *domain* and nothing else. It does not know sizes, tiers or bytes; whoever drives
//! it (the ladder, a flat simulator) says which domain an item is in.

pub mod lru;

pub use lru::Lru;

use crate::Id;
use tiermem_base::Rng;

/// One order of eviction, such as one size class of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Domain(pub u32);

/// Why an item enters a domain; the policy decides where in its order that puts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is new to the system.
    Admitted,
    /// It came down from a faster tier.
    Demoted,
    /// It was found hot, or rewritten while hot.
    Promoted,
}

/// The contract of an eviction policy.
///
/// The caller guarantees: an id is in at most one domain; `hit` and `remove` name the domain it was inserted
/// into; ids are dense (state is kept in arrays indexed by id). The policy guarantees: no call allocates but
/// `insert` of an id larger than any before; all calls but `victim` and `hottest` take constant time.
pub trait Evict {
    /// Enters an item.
    fn insert(&mut self, id: Id, domain: Domain, origin: Origin);
    /// Notes an access. `domain` is computed only if the policy needs it.
    fn hit(&mut self, id: Id, domain: impl FnOnce() -> Domain);
    /// The one word that [`Self::hit`] usually writes, if there is such a word: a driver may bring it near before.
    fn mark(&self, _id: Id) -> Option<&u64> {
        None
    }
    /// Forgets an item.
    fn remove(&mut self, id: Id, domain: Domain);
    /// Who should go next among those that `may_go` accepts; the item stays until removed. A policy may give up
    /// after a bounded number of refusals.
    fn victim(&mut self, domain: Domain, rng: &mut Rng, may_go: impl Fn(Id) -> bool) -> Option<Id>;
    /// Visits up to `count` items from the hot end, for promotion by scanning.
    fn hottest(&self, domain: Domain, count: usize, visit: impl FnMut(Id));
    /// Forgets every item.
    fn clear(&mut self);
    /// Items in a domain.
    fn len(&self, domain: Domain) -> u32;
    /// Bytes of state held.
    fn metadata_bytes(&self) -> u64;
}
