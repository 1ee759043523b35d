//! Clock of a trace: times as they stand in files, counted from the first record.

/// Nanoseconds of the units that traces count in.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;
pub(crate) const MILLISECOND_NS: u64 = 1_000_000;
pub(crate) const MICROSECOND_NS: u64 = 1_000;
/// The tick of Windows file times.
pub(crate) const FILETIME_NS: u64 = 100;

/// Makes times relative to the first one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    start_ns: Option<u64>,
    last_ns: u64,
    /// Times before the one above them: many published traces are sorted by completion or merged from several
    /// machines, so this is legal, and counted.
    pub steps_back: u64,
}

impl Clock {
    /// Nanoseconds since the first time that was asked for. A time before the first counts as the first.
    #[inline]
    pub fn since_start(&mut self, at_ns: u64) -> u64 {
        self.steps_back += u64::from(at_ns < self.last_ns);
        self.last_ns = at_ns;
        at_ns.saturating_sub(*self.start_ns.get_or_insert(at_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_the_first_and_never_below() {
        let mut clock = Clock::default();
        let times = [5, 7, 3, 5, u64::MAX].map(|at| clock.since_start(at));
        assert_eq!(times, [0, 2, 0, 0, u64::MAX - 5]);
        assert_eq!(clock.steps_back, 1);
    }
}
