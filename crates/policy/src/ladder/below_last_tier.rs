//! The outlet: what lies below the last tier (nothing, or a log), as far as the ladder must know it. It decides which items may
//! be dropped, when new items wait, and when eviction in the background rests.
//!
//! Dropping an item loses it where nothing is below, and sends it down where something is. So with an open outlet any item may be
//! dropped, whatever [`Eviction`] says. A ladder that must lose nothing is kept from promising too much because it takes no item
//! in for which the outlet has no room.
//!
//! An outlet that has to catch up is *choked*. Requests with new items then wait before they begin ([`Outlet::must_wait`]), and
//! nothing is dropped in the background. But a request that has begun cannot wait any more. For it the outlet keeps a little
//! space to spare: items that an admission drops go there, and are not lost. A request that needs more than that (it writes
//! megabytes into a full store) first gets any place that can be had without dropping an item. After that, where the operator
//! allows eviction, it costs cold items rather than an error; these are counted ([`super::LadderCounters::overflowed`]). Where
//! nothing may be lost it is refused.

use super::config::Eviction;

/// The state of whatever lies below the last tier. The driver reports it with [`super::Ladder::set_outlet`] whenever it may have
/// changed, and before each admission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outlet {
    /// Nothing is there: a dropped item is lost.
    #[default]
    Nowhere,
    /// It takes every dropped item.
    Open {
        /// Bytes for which it has room beyond all that the tiers above hold.
        room_bytes: u64,
    },
    /// It has to catch up first.
    Choked {
        /// Bytes for which it has room beyond all that the tiers above hold.
        room_bytes: u64,
        /// Bytes that it takes all the same.
        spare_bytes: u64,
    },
}

impl Outlet {
    /// Whether a request with new items should wait before it begins.
    #[inline]
    pub fn must_wait(self) -> bool {
        matches!(self, Outlet::Choked { .. })
    }

    /// Whether live items may leave the last tier in the background.
    pub(super) fn may_evict(self, eviction: Eviction) -> bool {
        match self {
            Outlet::Nowhere => eviction == Eviction::AllItems,
            Outlet::Open { .. } => true,
            Outlet::Choked { .. } => false,
        }
    }

    /// How many bytes of places live items may give up in the background: all or none.
    pub(super) fn evictable_bytes(self, eviction: Eviction) -> u64 {
        if self.may_evict(eviction) { u64::MAX } else { 0 }
    }

    /// Bytes of live items' places that may go for one that is admitted now; all of them where it `overflows`.
    pub(super) fn evictable_bytes_for_admission(self, eviction: Eviction, overflows: bool) -> u64 {
        match self {
            Outlet::Choked { .. } if overflows => u64::MAX,
            Outlet::Choked { spare_bytes, .. } => spare_bytes,
            Outlet::Nowhere | Outlet::Open { .. } => self.evictable_bytes(eviction),
        }
    }

    /// Whether an admission for which there is no place may be tried again at the cost of items that nothing below takes.
    pub(super) fn may_overflow(self, eviction: Eviction) -> bool {
        self.must_wait() && eviction == Eviction::AllItems
    }

    /// Whether an item of `bytes` may come in: where nothing may be lost, the outlet must have room for it.
    pub(super) fn may_enter(self, eviction: Eviction, bytes: u64) -> bool {
        match self {
            Outlet::Open { room_bytes } | Outlet::Choked { room_bytes, .. } => {
                eviction == Eviction::AllItems || bytes <= room_bytes
            }
            Outlet::Nowhere => true,
        }
    }

    /// A live item of `bytes` was dropped. Returns whether it overflows.
    pub(super) fn take_in(&mut self, bytes: u64) -> bool {
        let Outlet::Choked { spare_bytes, .. } = self else { return false };
        let left = spare_bytes.checked_sub(bytes);
        *spare_bytes = left.unwrap_or(*spare_bytes);
        left.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORBIDDEN: Eviction = Eviction::Forbidden;
    const ALL: Eviction = Eviction::AllItems;

    #[test]
    fn a_choked_outlet_takes_what_it_can_spare() {
        let mut outlet = Outlet::Choked { room_bytes: 1000, spare_bytes: 100 };
        assert!(outlet.must_wait() && !outlet.may_evict(ALL));
        assert!(!outlet.take_in(60));
        assert_eq!(outlet, Outlet::Choked { room_bytes: 1000, spare_bytes: 40 });
        assert!(outlet.take_in(60), "that is more than it can spare");
        assert_eq!(outlet.evictable_bytes_for_admission(FORBIDDEN, false), 40);
        assert_eq!(outlet.evictable_bytes_for_admission(FORBIDDEN, true), u64::MAX);
        assert!(outlet.may_overflow(ALL) && !outlet.may_overflow(FORBIDDEN));
        assert!(outlet.may_enter(FORBIDDEN, 1000) && !outlet.may_enter(FORBIDDEN, 1001));
        assert!(outlet.may_enter(ALL, 1001));
    }

    #[test]
    fn without_one_who_goes_is_lost() {
        let mut nowhere = Outlet::Nowhere;
        assert!(!nowhere.take_in(60) && !nowhere.must_wait() && nowhere.may_enter(FORBIDDEN, 9));
        assert_eq!((nowhere.evictable_bytes(ALL), nowhere.evictable_bytes(FORBIDDEN)), (u64::MAX, 0));
        let open = Outlet::Open { room_bytes: 10 };
        assert_eq!(open.evictable_bytes_for_admission(FORBIDDEN, false), u64::MAX);
        assert!(!open.may_enter(FORBIDDEN, 11) && !open.may_overflow(ALL));
    }
}
