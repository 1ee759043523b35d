//! When dirty bytes are written back, and how many.
//!
//! Writing back late saves the writes that are overwritten meanwhile; writing back early keeps clean room at hand and loses less
//! with the cache's device. So nothing is done until something is old or much is dirty, and then enough that it pays.

use super::geometry::UNIT_BYTES;

/// The least that somebody who waits has written back: room for several requests at the price of one trip to the store.
pub const WAITING_BYTES: u64 = 4 << 20;

/// The blocks that go next are kept clean: this part of the cache, so many bytes at most, and so many at least where the cache is small,
/// for places are taken while others are written back.
const RESERVE_SHARE: u64 = 16;
const RESERVE_BYTES_MAX: u64 = 64 << 20;
const RESERVE_BYTES_MIN: u64 = 1 << 20;
/// But never more than this part of the cache.
const RESERVE_SHARE_MAX: u64 = 4;
/// How often one looks at them while as much is allocated.
const LOOKS_PER_RESERVE: u64 = 8;

/// How much of a cache is to be clean or free at its cold end: what [`super::Extents::name_cold`] is asked for.
pub fn reserve_bytes(capacity_bytes: u64) -> u64 {
    let wanted = (capacity_bytes / RESERVE_SHARE).clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX);
    wanted.min(capacity_bytes / RESERVE_SHARE_MAX).max(1)
}

/// When a cleaner looks at the blocks that go next: as soon as a part of what it keeps clean may have been used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColdWatch {
    every_bytes: u64,
    left_bytes: u64,
}

impl ColdWatch {
    /// For a cache of this size.
    pub fn new(capacity_bytes: u64) -> Self {
        let every_bytes = (reserve_bytes(capacity_bytes) / LOOKS_PER_RESERVE).max(1);
        ColdWatch { every_bytes, left_bytes: every_bytes }
    }

    /// So many bytes of the cache were given to new blocks.
    pub fn allocated(&mut self, bytes: u64) {
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
    }

    /// A request found no clean place.
    pub fn missed(&mut self) {
        self.left_bytes = 0;
    }

    /// Whether it is time.
    pub fn is_due(&self) -> bool {
        self.left_bytes == 0
    }

    /// It was looked.
    pub fn looked(&mut self) {
        self.left_bytes = self.every_bytes;
    }
}

/// The limits within which dirty bytes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleaning {
    /// What has been dirty for so long is written back.
    pub age_ns: u64,
    /// Where cleaning ends that was begun because much was dirty, in percent of the room for dirty bytes.
    pub low_percent: u8,
    /// Where it begins.
    pub high_percent: u8,
}

impl Default for Cleaning {
    /// What is half a minute old, or all above half of the room once three quarters are taken.
    fn default() -> Self {
        Cleaning { age_ns: 30_000_000_000, low_percent: 50, high_percent: 75 }
    }
}

/// What is dirty at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dirty {
    /// Bytes that are dirty and not on their way yet.
    pub bytes: u64,
    /// Since when some of them have been, on the driver's clock.
    pub first_ns: Option<u64>,
    /// How many may be dirty.
    pub room_bytes: u64,
    /// Whether somebody waits for room, or for another epoch to begin.
    pub is_waited_for: bool,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing yet.
    Nothing,
    /// So much is to be written back.
    WriteBack {
        /// How much, in bytes of whole units; not 0.
        bytes: u64,
        /// Before anything else: somebody waits.
        urgent: bool,
    },
}

impl Cleaning {
    /// What is due at a time. It depends on nothing but what it is told: who has written back the bytes asks again.
    pub fn due(&self, now_ns: u64, dirty: &Dirty) -> Due {
        let Dirty { bytes, first_ns, room_bytes, is_waited_for } = *dirty;
        let share = |percent: u8| (u128::from(room_bytes) * u128::from(percent) / 100) as u64;
        let high = share(self.high_percent);
        let excess = bytes.saturating_sub(share(self.low_percent).min(high));
        let is_old = first_ns.is_some_and(|first_ns| now_ns.saturating_sub(first_ns) >= self.age_ns);
        let bytes = match () {
            _ if is_waited_for => excess.max(WAITING_BYTES.min(bytes)),
            _ if is_old => bytes,
            _ if bytes > high => excess,
            _ => 0,
        };
        // Marks need not lie between units, but nobody can write back less than one.
        match bytes.checked_next_multiple_of(UNIT_BYTES).unwrap_or(u64::MAX) {
            0 => Due::Nothing,
            bytes => Due::WriteBack { bytes, urgent: is_waited_for },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const CLEANING: Cleaning = Cleaning { age_ns: 100, low_percent: 50, high_percent: 75 };

    fn due(now_ns: u64, bytes: u64, first_ns: Option<u64>, is_waited_for: bool) -> Due {
        CLEANING.due(now_ns, &Dirty { bytes, first_ns, room_bytes: 100 * MIB, is_waited_for })
    }

    fn write_back(bytes: u64, urgent: bool) -> Due {
        Due::WriteBack { bytes, urgent }
    }

    #[test]
    fn much_is_written_back_down_to_the_low_mark() {
        assert_eq!(due(0, 75 * MIB, Some(0), false), Due::Nothing);
        assert_eq!(due(0, 76 * MIB, Some(0), false), write_back(26 * MIB, false));
        assert_eq!(due(0, 200 * MIB, Some(0), false), write_back(150 * MIB, false));
        let one_unit = Dirty { bytes: 4096, first_ns: None, room_bytes: 5000, is_waited_for: false };
        assert_eq!(CLEANING.due(0, &one_unit), write_back(4096, false));
    }

    #[test]
    fn what_is_old_goes_however_little_it_is() {
        assert_eq!(due(1099, MIB, Some(1000), false), Due::Nothing);
        assert_eq!(due(1100, MIB, Some(1000), false), write_back(MIB, false));
        assert_eq!(due(500, MIB, Some(1000), false), Due::Nothing, "a clock that is set back");
        assert_eq!(due(5000, 0, None, false), Due::Nothing);
    }

    #[test]
    fn who_waits_gets_room_at_once() {
        assert_eq!(due(0, 20 * MIB, Some(0), true), write_back(WAITING_BYTES, true));
        assert_eq!(due(0, MIB, Some(0), true), write_back(MIB, true));
        assert_eq!(due(0, 60 * MIB, Some(0), true), write_back(10 * MIB, true));
        assert_eq!(due(0, 0, None, true), Due::Nothing, "all of it is on its way");
    }

    #[test]
    fn the_reserve_is_a_part_of_the_cache() {
        for (capacity_bytes, reserve) in
            [(2 * MIB, MIB / 2), (8 * MIB, MIB), (64 * MIB, 4 * MIB), (4096 * MIB, 64 * MIB)]
        {
            assert_eq!(reserve_bytes(capacity_bytes), reserve);
        }
    }

    #[test]
    fn one_looks_again_when_a_part_of_the_reserve_may_be_gone() {
        let mut watch = ColdWatch::new(64 * MIB);
        watch.allocated(MIB / 4);
        assert!(!watch.is_due());
        watch.allocated(MIB / 4);
        assert!(watch.is_due());
        watch.looked();
        assert!(!watch.is_due());
        watch.missed();
        assert!(watch.is_due());
    }

    #[test]
    fn limits_without_sense_do_no_harm() {
        let odd = Cleaning { age_ns: u64::MAX, low_percent: 255, high_percent: 0 };
        let dirty = Dirty { bytes: u64::MAX, first_ns: Some(0), room_bytes: u64::MAX, is_waited_for: false };
        assert_eq!(odd.due(1, &dirty), write_back(u64::MAX, false));
    }
}
