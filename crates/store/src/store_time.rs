//! The store's time: the wall clock as of the start, moved on by the time since boot.
//!
//! All that the store remembers as a moment is in this time: deadlines of keys and fields, when a client came and was last heard,
//! when a snapshot was written. It goes on while the machine is suspended, and a step of the wall clock moves none of it. Moments that
//! clients give or get are of the wall clock, and are converted as they come and leave ([`WallClock`]). What is written to flash, `dax`
//! tiers and snapshots stays as it is: it is in the wall clock's time as far as the start knew it.

use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tiermem_sys::boot_time::since_boot;

/// Differences to the wall clock that differ by less are the same one: clocks cannot be read at the same moment.
const SLACK_US: i64 = 1000;

/// When the store started, by both clocks. All shards must have the same.
#[derive(Clone, Copy, Debug)]
pub struct StartTime {
    unix_us: u64,
    since_boot: Duration,
}

impl StartTime {
    /// The store starts now.
    pub fn now() -> Self {
        StartTime { unix_us: unix_us(), since_boot: since_boot() }
    }

    /// The store's time, in Unix microseconds.
    pub fn store_us(&self) -> u64 {
        self.unix_us + since_boot().saturating_sub(self.since_boot).as_micros() as u64
    }
}

/// A clock set before 1970 counts as 1970.
fn unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// The wall clock beside the store's time. Without a start, as in virtual time, they are the same.
#[derive(Debug, Default)]
pub struct WallClock {
    start: Option<StartTime>,
    /// By how much it is ahead, as last seen. Whole milliseconds, and the same until it steps: a moment that a client gives is the one
    /// that it gets back.
    ahead_ms: Cell<i64>,
}

impl WallClock {
    /// The wall clock of a store with this start.
    pub fn beside(start: StartTime) -> Self {
        WallClock { start: Some(start), ahead_ms: Cell::new(0) }
    }

    /// By how many milliseconds the wall clock is ahead of the store's time.
    pub fn ahead_ms(&self) -> i64 {
        if let Some(start) = &self.start {
            let before_us = start.store_us();
            let unix_us = unix_us();
            self.see(before_us, unix_us, start.store_us());
        }
        self.ahead_ms.get()
    }

    /// The wall clock steps.
    #[cfg(test)]
    pub fn step(&self, ms: i64) {
        self.ahead_ms.set(self.ahead_ms.get() + ms);
    }

    /// The wall clock was read between two readings of the store's time.
    fn see(&self, before_us: u64, unix_us: u64, after_us: u64) {
        let (most, least) = (unix_us as i64 - before_us as i64, unix_us as i64 - after_us as i64);
        let known = self.ahead_ms.get() * 1000;
        if known < least - SLACK_US || known > most + SLACK_US {
            self.ahead_ms.set((most + 500).div_euclid(1000));
        }
    }

    /// A moment of the store's time, in microseconds, as Unix time.
    pub fn unix_us(&self, store_us: u64) -> u64 {
        store_us.saturating_add_signed(self.ahead_ms() * 1000)
    }

    /// The same in milliseconds.
    pub fn unix_ms(&self, store_ms: u64) -> u64 {
        store_ms.saturating_add_signed(self.ahead_ms())
    }

    /// The same in seconds, to the nearest where the wall clock stepped by a part of one.
    pub fn unix_s(&self, store_s: u64) -> u64 {
        store_s.saturating_add_signed((self.ahead_ms() + 500).div_euclid(1000))
    }

    /// A Unix time in milliseconds, which may lie anywhere, in the store's time.
    pub fn store_ms(&self, unix_ms: i64) -> i64 {
        unix_ms.saturating_sub(self.ahead_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_s_time_begins_at_the_wall_clock_and_goes_on() {
        let start = StartTime::now();
        let first = start.store_us();
        assert!(first.abs_diff(unix_us()) < 60_000_000, "{first}");
        std::thread::sleep(Duration::from_millis(2));
        assert!(start.store_us() >= first + 2000);
    }

    #[test]
    fn a_step_is_seen_and_unequal_readings_are_none() {
        const START_US: u64 = 1_700_000_000_000_000;
        let wall = WallClock::default();
        let see = |before: u64, ahead: i64, between: u64, after: u64| {
            wall.see(
                START_US + before,
                (START_US + before + between).saturating_add_signed(ahead),
                START_US + after,
            );
            wall.ahead_ms()
        };
        assert_eq!(see(0, 0, 3, 9), 0);
        // The thread stood still before or after the wall clock was read.
        assert_eq!((see(50, 0, 80_000, 80_010), see(50, 0, 3, 80_000)), (0, 0));
        assert_eq!(see(200, -600_000_000, 1, 2), -600_000);
        assert_eq!((see(300, -600_000_400, 1, 2), see(300, -599_999_600, 1, 2)), (-600_000, -600_000));
        assert_eq!(see(400, 5_000_000, 1, 2), 5000);
        let moments = [wall.unix_ms(10_000), wall.unix_us(10_000_000), wall.unix_s(10)];
        assert_eq!((moments, wall.store_ms(15_000)), ([15_000, 15_000_000, 15], 10_000));
    }

    #[test]
    fn moments_at_the_ends_of_time_stay_there() {
        let wall = WallClock { start: None, ahead_ms: Cell::new(-600_000) };
        assert_eq!((wall.unix_ms(5), wall.unix_us(5), wall.unix_s(5)), (0, 0, 0));
        assert_eq!((wall.store_ms(i64::MAX), wall.store_ms(i64::MIN)), (i64::MAX, i64::MIN + 600_000));
    }
}
