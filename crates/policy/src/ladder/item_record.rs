//! The node of an item: eight bytes with its place and its last use. With the eight bytes of links in the eviction order that
//! makes 16 bytes an item.

use super::Loc;
use crate::Id;

/// Recency counts up to here and wraps.
pub const LAST_MASK: u32 = (1 << 26) - 1;

const FRESH: u64 = 1 << 58;
const TIER_SHIFT: u32 = 59;
const EXPIRES: u64 = 1 << 61;
const MOVING: u64 = 1 << 62;
const PINNED: u64 = 1 << 63;

/// Bits 0..32 the address in units, 32..58 the last use, then whether there was none since the item came, 59..61 the tier, then
/// three flags. An item cannot be both moving and pinned; the two together mark a free number, whose address is the next free
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(u64);

impl Place {
    pub fn new(loc: Loc, last: u32, expires: bool) -> Self {
        Place(u64::from(loc.unit) | u64::from(last) << 32 | u64::from(loc.tier) << TIER_SHIFT)
            .with_expires(expires)
    }

    pub fn free(next: Id) -> Self {
        Place(MOVING | PINNED | u64::from(next.0))
    }

    pub fn next_free(self) -> Id {
        Id(self.0 as u32)
    }

    pub fn is_free(self) -> bool {
        self.is_moving() && self.is_pinned()
    }

    #[inline]
    pub fn unit(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub fn tier(self) -> u8 {
        (self.0 >> TIER_SHIFT) as u8 & 3
    }

    #[inline]
    pub fn loc(self) -> Loc {
        Loc { tier: self.tier(), unit: self.unit() }
    }

    #[inline]
    pub fn last(self) -> u32 {
        (self.0 >> 32) as u32 & LAST_MASK
    }

    /// Ticks since the last use.
    #[inline]
    pub fn age(self, recency: u32) -> u32 {
        recency.wrapping_sub(self.last()) & LAST_MASK
    }

    #[inline]
    pub fn expires(self) -> bool {
        self.0 & EXPIRES != 0
    }

    #[inline]
    pub fn is_moving(self) -> bool {
        self.0 & MOVING != 0
    }

    #[inline]
    pub fn is_pinned(self) -> bool {
        self.0 & PINNED != 0
    }

    /// Whether nothing keeps the item where it is.
    #[inline]
    pub fn may_go(self) -> bool {
        !self.is_moving() && !self.is_pinned()
    }

    /// Whether the item was not used since it was admitted.
    #[inline]
    pub fn is_fresh(self) -> bool {
        self.0 & FRESH != 0
    }

    pub fn with_fresh(self, fresh: bool) -> Self {
        self.with(FRESH, fresh)
    }

    /// Used now, and so no longer fresh.
    #[inline]
    pub fn used_at(self, last: u32) -> Self {
        Place(self.0 & !(FRESH | u64::from(LAST_MASK) << 32) | u64::from(last & LAST_MASK) << 32)
    }

    pub fn with_loc(self, loc: Loc) -> Self {
        let kept = self.0 & !(u64::from(u32::MAX) | 3 << TIER_SHIFT);
        Place(kept | u64::from(loc.unit) | u64::from(loc.tier) << TIER_SHIFT)
    }

    pub fn with_expires(self, expires: bool) -> Self {
        self.with(EXPIRES, expires)
    }

    pub fn with_moving(self, moving: bool) -> Self {
        self.with(MOVING, moving)
    }

    pub fn with_pinned(self, pinned: bool) -> Self {
        self.with(PINNED, pinned)
    }

    fn with(self, flag: u64, on: bool) -> Self {
        Place(if on { self.0 | flag } else { self.0 & !flag })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_touch_each_other() {
        let loc = Loc { tier: 3, unit: u32::MAX };
        let place = Place::new(loc, LAST_MASK, false).with_moving(true).used_at(5).with_expires(true);
        assert_eq!((place.loc(), place.last(), place.expires()), (loc, 5, true));
        assert!(place.is_moving() && !place.is_pinned() && !place.is_free());
        let moved = place.with_loc(Loc { tier: 1, unit: 7 }).with_moving(false);
        assert_eq!((moved.loc(), moved.last(), moved.expires()), (Loc { tier: 1, unit: 7 }, 5, true));
        let fresh = Place::new(loc, LAST_MASK, true).with_fresh(true);
        assert!(fresh.is_fresh() && fresh.last() == LAST_MASK && fresh.tier() == 3 && fresh.expires());
        assert!(!fresh.used_at(0).is_fresh() && fresh.used_at(0).loc() == loc);
        assert!(Place::free(Id(9)).is_free() && Place::free(Id(9)).next_free() == Id(9));
    }
}
