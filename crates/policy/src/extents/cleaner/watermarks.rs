//! Watermarks of dirty bytes: when they are written back and how many, and the watch over the cold end.
//!
//! Late write-back saves the writes of bytes that are overwritten meanwhile; early write-back keeps clean room at hand and loses
//! less with the cache's device. So the cleaner does nothing until bytes are old or many are dirty, and then writes enough for
//! the trip to pay.

use crate::extents::geometry::UNIT_BYTES;

/// The least that is on its way to become clean while a request waits: room for several requests at the price of one trip to the
/// store.
pub(super) const WAITING_BYTES: u64 = 4 << 20;

/// The next victims are kept clean: this part of the cache, with a largest number of bytes, and a least one where the cache is
/// small, because places are taken while others are written back.
const RESERVE_SHARE: u64 = 16;
const RESERVE_BYTES_MAX: u64 = 64 << 20;
const RESERVE_BYTES_MIN: u64 = 1 << 20;
/// But never more than this part of the cache.
const RESERVE_SHARE_MAX: u64 = 4;
/// Looks at them while as much is allocated.
const LOOKS_PER_RESERVE: u64 = 8;

/// By how much a miniature is smaller than the cache that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scale(u64);

impl Scale {
    /// For a cache `times` as large; 1 for the cache itself.
    pub fn new(times: u64) -> Self {
        Scale(times.max(1))
    }

    /// The part of an amount of bytes that stands for it in the miniature.
    pub fn part_of(self, bytes: u64) -> u64 {
        (bytes / self.0).max(UNIT_BYTES)
    }

    /// Bytes of a cache, or of a share's limit, that are to be clean or free at its cold end: the argument of
    /// [`crate::extents::Extents::name_cold`].
    pub fn reserve_bytes(self, capacity_bytes: u64) -> u64 {
        let (least, most) = (self.part_of(RESERVE_BYTES_MIN), self.part_of(RESERVE_BYTES_MAX));
        let wanted = (capacity_bytes / RESERVE_SHARE).clamp(least, most);
        wanted.min(capacity_bytes / RESERVE_SHARE_MAX).max(1)
    }
}

/// The time between two looks at the next victims if nothing is allocated, where something has happened since the last look or
/// could not be written back then.
const COLD_EVERY_NS: u64 = 20_000_000;
/// The shortest time between two looks: a look costs time in proportion to what it may find, and where a store hangs nothing that
/// it finds can be written.
const COLD_PAUSE_NS: u64 = 500_000;

/// The watch over the cold end: a cleaner looks at the next victims as soon as a part of the clean reserve may have been used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColdWatch {
    every_bytes: u64,
    left_bytes: u64,
    /// A look may find something else than the last one, or the last one found bytes that could not be written back.
    is_stale: bool,
    looked_at_ns: u64,
}

impl ColdWatch {
    /// For a cache of this size.
    pub(super) fn new(capacity_bytes: u64, scale: Scale) -> Self {
        let every_bytes = (scale.reserve_bytes(capacity_bytes) / LOOKS_PER_RESERVE).max(1);
        ColdWatch { every_bytes, left_bytes: every_bytes, is_stale: false, looked_at_ns: 0 }
    }

    /// A request gave `bytes` of the cache to new blocks, perhaps none: the cold end is a different one then.
    pub(super) fn allocated(&mut self, bytes: u64) {
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
        self.is_stale = true;
    }

    /// A request found no clean place.
    pub(super) fn missed(&mut self) {
        self.left_bytes = 0;
    }

    /// Notes that dirty bytes which could not be written back may be now.
    pub(super) fn changed(&mut self) {
        self.is_stale = true;
    }

    /// When to look next, if nothing else happens.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let pause_ns = match () {
            () if self.left_bytes == 0 => COLD_PAUSE_NS,
            () if self.is_stale => COLD_EVERY_NS,
            () => return None,
        };
        Some(self.looked_at_ns.saturating_add(pause_ns))
    }

    /// Notes a look, and whether it found bytes that could not be written back.
    pub(super) fn looked(&mut self, now_ns: u64, something_stays: bool) {
        (self.left_bytes, self.is_stale, self.looked_at_ns) = (self.every_bytes, something_stays, now_ns);
    }
}

/// The order in which dirty bytes go to their store: what that is an image of, if the cache's device is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteBackOrder {
    /// All flushes that wait go as one group, and writes do not wait for the store. Between groups the store has all that was written
    /// before some flush, and nothing that was written after it.
    #[default]
    Group,
    /// One flush after the other. At any time the store has all that was written before some flush, and some of what was written
    /// before the next; so writers wait for it.
    Flush,
    /// As suits the store, which is an image of nothing before all is written back.
    None,
}

/// The limits within which dirty bytes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanerRules {
    /// In which order they go to their store.
    pub order: WriteBackOrder,
    /// Bytes that have been dirty for this long are written back, in nanoseconds.
    pub age_ns: u64,
    /// Where cleaning ends that was begun because much was dirty, in percent of the cache.
    pub low_percent: u8,
    /// Where it begins.
    pub high_percent: u8,
    /// For how long writes wait for a store that has no room, before they are refused; `None`: until it has.
    pub full_wait_ns: Option<u64>,
}

impl Default for CleanerRules {
    /// Bytes that are half a minute old, or all above half of the cache once three quarters are dirty. A minute for who waits.
    fn default() -> Self {
        CleanerRules {
            order: WriteBackOrder::Group,
            age_ns: 30_000_000_000,
            low_percent: 50,
            high_percent: 75,
            full_wait_ns: Some(60_000_000_000),
        }
    }
}

/// A percentage of a number of bytes.
pub(super) fn percent(bytes: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

impl CleanerRules {
    /// How much of all that is dirty is to be written back at once, wherever it is: `bytes` are dirty and not on their way yet,
    /// of a cache of `capacity_bytes`. Once begun it is to be carried to its end.
    pub(super) fn excess_bytes(&self, bytes: u64, capacity_bytes: u64) -> u64 {
        let high = percent(capacity_bytes, self.high_percent.into());
        if bytes <= high {
            return 0;
        }
        // Marks need not lie between units, but less than one unit cannot be written back.
        let excess = bytes - percent(capacity_bytes, self.low_percent.into()).min(high);
        excess.checked_next_multiple_of(UNIT_BYTES).unwrap_or(u64::MAX)
    }

    /// When what became dirty at a time is old.
    pub(super) fn old_ns(&self, since_ns: u64) -> u64 {
        since_ns.saturating_add(self.age_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const RULES: CleanerRules = CleanerRules {
        order: WriteBackOrder::Flush,
        age_ns: 100,
        low_percent: 50,
        high_percent: 75,
        full_wait_ns: None,
    };

    #[test]
    fn much_is_written_back_down_to_the_low_mark() {
        for (dirty, excess) in [(0, 0), (75, 0), (76, 26), (200, 150)] {
            assert_eq!(RULES.excess_bytes(dirty * MIB, 100 * MIB), excess * MIB);
        }
        assert_eq!(RULES.excess_bytes(4096, 5000), 4096, "one unit is the least");
        assert_eq!(RULES.excess_bytes(0, 0), 0);
    }

    #[test]
    fn limits_without_sense_do_no_harm() {
        let odd = CleanerRules { age_ns: u64::MAX, low_percent: 255, high_percent: 0, ..RULES };
        assert_eq!(odd.excess_bytes(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(odd.old_ns(5), u64::MAX);
        let never = CleanerRules { low_percent: 0, high_percent: 255, ..odd };
        assert_eq!(never.excess_bytes(100, 100), 0);
    }

    #[test]
    fn the_reserve_is_a_part_of_the_cache() {
        for (capacity_bytes, reserve) in
            [(2 * MIB, MIB / 2), (8 * MIB, MIB), (64 * MIB, 4 * MIB), (4096 * MIB, 64 * MIB), (0, 1)]
        {
            assert_eq!(Scale::new(1).reserve_bytes(capacity_bytes), reserve);
        }
        // A miniature of 16 GiB: as long as 64 MiB last there.
        assert_eq!(Scale::new(256).reserve_bytes(64 * MIB), MIB / 4);
        assert_eq!(Scale::new(256).part_of(MIB), UNIT_BYTES);
    }

    #[test]
    fn one_looks_again_when_a_part_of_the_reserve_may_be_gone() {
        let mut watch = ColdWatch::new(64 * MIB, Scale::new(1));
        assert_eq!(watch.next_ns(), None, "nothing has happened");
        watch.allocated(MIB / 4);
        assert_eq!(watch.next_ns(), Some(COLD_EVERY_NS), "what goes next may be another");
        watch.allocated(MIB / 4);
        assert_eq!(watch.next_ns(), Some(COLD_PAUSE_NS));
        watch.looked(7_000_000, false);
        assert_eq!(watch.next_ns(), None);
        watch.missed();
        assert_eq!(watch.next_ns(), Some(7_000_000 + COLD_PAUSE_NS));
        watch.looked(9_000_000, true);
        assert_eq!(watch.next_ns(), Some(9_000_000 + COLD_EVERY_NS), "something could not go");
        watch.looked(u64::MAX, true);
        assert_eq!(watch.next_ns(), Some(u64::MAX));
    }
}
