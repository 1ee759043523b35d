//! What lies below the last tier, as far as the ladder must know: it decides who may be dropped, when new items wait, and
//! when eviction in the background rests.
//!
//! Dropping an item means losing it where nothing is below, and sending it there where something is. So with an outlet
//! that is open anything may be dropped whatever [`Eviction`] says; what keeps a ladder that must lose nothing from
//! promising too much is that it takes no item in for which the outlet has no room.
//!
//! An outlet that has to catch up is *choked*. Whoever brings new items waits then ([`Ladder::must_wait`]), and nothing is
//! dropped in the background. But a request that has begun cannot wait any more. For it the outlet keeps a little space to
//! spare: what an admission drops goes there, and is not lost. A request that needs more than that (it writes megabytes into
//! a full store) is first given whatever place can be had without dropping anybody; and then, where the operator allows
//! eviction, costs cold items rather than an error, which are counted ([`super::LadderCounters::overflowed`]). Where nothing
//! may be lost it is refused.

use super::{Demand, Eviction, Ladder};

/// The state of whatever lies below the last tier. The driver reports it with [`Ladder::set_outlet`] whenever it may have
/// changed, and before each admission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outlet {
    /// Nothing is there: who is dropped is lost.
    #[default]
    Nowhere,
    /// It takes whoever is dropped.
    Open {
        /// Bytes for which it has room beyond all that the tiers above hold.
        room_bytes: u64,
    },
    /// It has to catch up first.
    Choked {
        /// As above.
        room_bytes: u64,
        /// Bytes that it takes all the same.
        spare_bytes: u64,
    },
}

impl Ladder {
    /// Reports what lies below the last tier.
    pub fn set_outlet(&mut self, outlet: Outlet) {
        self.outlet = outlet;
    }

    /// What was reported, less what was dropped there since.
    pub fn outlet(&self) -> Outlet {
        self.outlet
    }

    /// Whether whoever brings new items should wait before the next request.
    #[inline]
    pub fn must_wait(&self) -> bool {
        matches!(self.outlet, Outlet::Choked { .. })
    }

    /// Whether live items may leave the last tier in the background.
    pub(super) fn may_evict(&self) -> bool {
        match self.outlet {
            Outlet::Nowhere => self.config.eviction == Eviction::AllItems,
            Outlet::Open { .. } => true,
            Outlet::Choked { .. } => false,
        }
    }

    /// The same in bytes of their places: all or none.
    pub(super) fn evictable_bytes(&self) -> u64 {
        if self.may_evict() { u64::MAX } else { 0 }
    }

    /// Bytes of live items' places that may go for one that is admitted now.
    pub(super) fn evictable_bytes_for_admission(&self, demand: Demand) -> u64 {
        match self.outlet {
            Outlet::Choked { .. } if demand.overflows => u64::MAX,
            Outlet::Choked { spare_bytes, .. } => spare_bytes,
            Outlet::Nowhere | Outlet::Open { .. } => self.evictable_bytes(),
        }
    }

    /// Whether an admission for which there is no place may be tried again at the cost of items that nothing below takes.
    pub(super) fn may_overflow(&self) -> bool {
        self.must_wait() && self.config.eviction == Eviction::AllItems
    }

    /// Whether an item of so many bytes may come in: where nothing may be lost, what lies below must have room for it.
    pub(super) fn may_enter(&self, bytes: u64) -> bool {
        match self.outlet {
            Outlet::Open { room_bytes } | Outlet::Choked { room_bytes, .. } => {
                self.config.eviction == Eviction::AllItems || bytes <= room_bytes
            }
            Outlet::Nowhere => true,
        }
    }

    /// Notes that a live item of so many bytes was dropped.
    pub(super) fn note_evicted(&mut self, bytes: u64) {
        if let Outlet::Choked { spare_bytes, .. } = &mut self.outlet {
            match spare_bytes.checked_sub(bytes) {
                Some(left) => *spare_bytes = left,
                None => self.counters.overflowed += 1,
            }
        }
    }
}
