//! Eviction order: the seam of all eviction policies ([`Evict`]), and which item of a domain is evicted next.
//!
//! A policy keeps one order per *domain* and nothing else. It does not know tiers or places. Its driver (the ladder of the live
//! engine, a flat cache in a simulator) passes the item's domain, its description and the time. State lies in columns indexed by
//! item number. Memory for evicted items ([`ghosts`]) is bounded by the number of items held.

pub mod any_policy;
pub mod arc;
pub mod cflru;
pub mod clock;
pub mod fifo;
pub mod ghosts;
pub mod heap;
pub mod hyperbolic;
pub mod klru;
pub mod lfu;
pub mod lhd;
pub mod list;
pub mod lru;
pub mod named;
pub mod redis;
pub mod s3fifo;
pub mod sample;
pub mod sieve;
pub mod slru;
pub mod twoq;

pub use any_policy::Order;
pub use lru::Lru;
pub use named::Named;

use crate::Id;
use tiermem_base::Rng;

/// A domain: one order of eviction, such as one size class of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Domain(pub u32);

/// Description of a new item, as far as policies use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The key or its hash: the same when the key comes again after its item has gone.
    pub key: u64,
    /// The size of the item in the unit of the domain's capacity, which the driver chooses: bytes, 16-byte units, or 1.
    pub size: u32,
    /// Whether it was written, so that throwing it out means writing it back.
    pub dirty: bool,
    /// When it comes, in requests, see [`Touch::now`].
    pub now: u64,
}

/// Why an item enters a domain; the policy decides where in its order that puts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is new to the system.
    Admitted(Item),
    /// It takes the place of another item of the same key, which is removed.
    Rewritten(Item),
    /// It came down from a faster tier, or could not be moved. The policy knows it from before.
    Demoted,
    /// It was found hot, or used while it was moved. The policy knows it from before.
    Promoted,
}

impl Origin {
    /// The description of a new item; `None` for an item that the policy knows.
    #[inline]
    pub fn new_item(&self) -> Option<Item> {
        match self {
            Origin::Admitted(item) | Origin::Rewritten(item) => Some(*item),
            Origin::Demoted | Origin::Promoted => None,
        }
    }

    /// Whether the item was used lately, its entry not counted.
    #[inline]
    pub fn is_hot(&self) -> bool {
        matches!(self, Origin::Rewritten(_) | Origin::Promoted)
    }
}

/// Why an item leaves a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// It was the victim: the policy may remember it as a ghost.
    Evicted,
    /// It is gone for its own reasons: deleted, overwritten, expired.
    Deleted,
    /// It is on its way to another place: it comes back, here or in another domain, or is gone and its number new.
    Moved,
}

/// An access to an item that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Requests that the driver has served: the only clock. Policies may keep its low 32 bits, so that an item that is
    /// not used for four billion requests looks as if it had been used lately.
    pub now: u64,
    /// Whether the item was written.
    pub write: bool,
}

/// The contract of an eviction policy.
///
/// The caller guarantees: an id is in at most one domain; `hit`, `resize` and `remove` name the domain it was inserted
/// into; ids are dense (state is kept in arrays indexed by id); `now` only grows; an id is new (`Admitted`, `Rewritten`)
/// unless it left as `Moved`. The policy guarantees: no call allocates but for growth (an id or a number of items or
/// ghosts larger than any before); all calls but `victim` and `hottest` take constant or, where the policy says so,
/// logarithmic time; ghosts are no more than the items that the domain has held at once, times a constant.
///
/// Where a policy divides the capacity of a domain it takes that to be the larger of what it was told when it was made
/// and what the domain holds: a driver that cannot know it (a size class of the ladder) says 0.
pub trait Evict {
    /// Notes that the key was asked for and is not there; comes before the `victim`s that make room for it, perhaps
    /// several times before its `insert`, or without one.
    fn miss(&mut self, _domain: Domain, _key: u64) {}
    /// Enters an item.
    fn insert(&mut self, id: Id, domain: Domain, origin: Origin);
    /// Enters a new item so low that `go_before` items are evicted before it, and never higher than any other new item. It takes
    /// a step for each of them. Policies without an order enter it like any other item.
    fn insert_low(&mut self, id: Id, domain: Domain, item: Item, _go_before: u32) {
        self.insert(id, domain, Origin::Admitted(item));
    }
    /// Notes an access. `domain` is computed only if the policy needs it.
    fn hit(&mut self, id: Id, touch: Touch, domain: impl FnOnce() -> Domain);
    /// The one word that [`Self::hit`] usually writes, if there is such a word: a driver may bring it near before.
    fn mark(&self, _id: Id) -> Option<&u64> {
        None
    }
    /// Notes that the item has another size now.
    fn resize(&mut self, _id: Id, _domain: Domain, _size: u32) {}
    /// Forgets an item, but perhaps a ghost of it.
    fn remove(&mut self, id: Id, domain: Domain, departure: Departure);
    /// The next victim among the items that `may_go` accepts. The item stays until it is removed. A policy may give up after a
    /// bounded number of refusals.
    fn victim(&mut self, domain: Domain, now: u64, rng: &mut Rng, may_go: impl Fn(Id) -> bool) -> Option<Id>;
    /// Visits up to `count` items from the hot end, for promotion by scanning; none where the policy has no such end.
    fn hottest(&self, _domain: Domain, _count: usize, _visit: impl FnMut(Id)) {}
    /// Visits up to `count` items from the cold end, the next victims first, as they are if no item is used meanwhile. It visits
    /// none where the policy has no such end. It changes nothing.
    fn coldest(&self, _domain: Domain, _count: usize, _visit: impl FnMut(Id)) {}
    /// Forgets every item and ghost.
    fn clear(&mut self);
    /// Items in a domain.
    fn len(&self, domain: Domain) -> u32;
    /// Bytes of state held.
    fn metadata_bytes(&self) -> u64;
}
