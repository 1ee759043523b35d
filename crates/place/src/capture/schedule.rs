//! Schedule of a recording: slices of equal length, one after the other.

use std::time::{Duration, Instant};

/// A slice that is to be observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// Its place among all.
    pub number: u32,
    /// When it ends, if looking does not take longer.
    pub until: Instant,
}

/// Says when slices end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    slice: Duration,
    due: Due,
    /// Slices that took longer than they should have, by half.
    pub late: u32,
}

impl Schedule {
    /// Slices of this length from now on.
    pub fn new(slice: Duration) -> Self {
        Schedule { slice, due: Due { number: 0, until: Instant::now() + slice }, late: 0 }
    }

    /// The slice under way.
    pub fn due(&self) -> Due {
        self.due
    }

    /// Goes on to the next: the one under way has ended. What a late one took too long is not made up for.
    pub fn end(&mut self, end: Instant) {
        let Due { number, until } = self.due;
        let is_late = end > until + self.slice / 2;
        self.late += u32::from(is_late);
        self.due = Due { number: number + 1, until: if is_late { end } else { until } + self.slice };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_slice_moves_all_that_follow() {
        let slice = Duration::from_secs(2);
        let mut schedule = Schedule::new(slice);
        let first = schedule.due();
        schedule.end(first.until + Duration::from_millis(900));
        assert_eq!((schedule.due(), schedule.late), (Due { number: 1, until: first.until + slice }, 0));
        let end = first.until + slice * 2;
        schedule.end(end);
        assert_eq!((schedule.due(), schedule.late), (Due { number: 2, until: end + slice }, 1));
    }
}
