//! Failures that happen while a trace runs, and when.

use std::ops::Range;

/// Times at which stores and the cache's log do not do what they are asked; none unless said. All times are the trace's, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Troubles {
    /// When the store of a tenant's volume fails what is written back to it, and its flushes. It is read all the same.
    pub outages: Vec<(u32, Range<u64>)>,
    /// When the log is full of a cache that outlives the process, ascending; none of one that does not.
    pub log_full: Option<Vec<LogFull>>,
}

/// A time at which a log has no room, so that no request begins, and nothing is begun to be written back.
///
/// What is decided at a time is decided before what is written down of it fills the log: at `from_ns` the cleaner finds room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFull {
    /// When it is filled.
    pub from_ns: u64,
    /// When it has room again.
    pub until_ns: u64,
    /// Requests find no room at `from_ns` either: it was filled before they came, or tried again.
    pub for_requests: bool,
}

impl Troubles {
    /// Whether the store of a tenant's volume fails what it is asked at a time.
    pub(super) fn is_away(&self, tenant: u32, now_ns: u64) -> bool {
        self.outages.iter().any(|(of, times)| *of == tenant && times.contains(&now_ns))
    }

    /// Whether what is clean must be said in a log before other data may come to its place.
    pub(super) fn has_log(&self) -> bool {
        self.log_full.is_some()
    }

    /// The trouble by which a log is full at a time.
    fn log_full(&self, now_ns: u64) -> Option<&LogFull> {
        let times = self.log_full.as_deref().unwrap_or_default();
        let at = times.partition_point(|times| times.until_ns <= now_ns);
        times.get(at).filter(|times| times.from_ns <= now_ns)
    }

    /// Whether the log has room at a time, as far as the cleaner decides.
    pub(super) fn log_has_room(&self, now_ns: u64) -> bool {
        self.log_full(now_ns).is_none_or(|times| times.from_ns == now_ns)
    }

    /// Whether it has room for a request that comes or tries again at a time.
    pub(super) fn log_takes_requests(&self, now_ns: u64) -> bool {
        self.log_full(now_ns).is_none_or(|times| times.from_ns == now_ns && !times.for_requests)
    }

    /// When it has room again; none where it has room.
    pub(super) fn log_has_room_ns(&self, now_ns: u64) -> Option<u64> {
        self.log_full(now_ns).map(|times| times.until_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_filled_at_a_time_is_full_then_for_those_who_come_afterwards() {
        let full = |from_ns, until_ns, for_requests| LogFull { from_ns, until_ns, for_requests };
        let log_full = Some(vec![full(10, 20, false), full(30, 40, true)]);
        let troubles = Troubles { log_full, ..Troubles::default() };
        let told = |now_ns| {
            (
                troubles.log_takes_requests(now_ns),
                troubles.log_has_room(now_ns),
                troubles.log_has_room_ns(now_ns),
            )
        };
        assert_eq!([9, 20, 29, 40].map(told), [(true, true, None); 4]);
        assert_eq!([10, 30].map(told), [(true, true, Some(20)), (false, true, Some(40))]);
        assert_eq!([11, 19].map(told), [(false, false, Some(20)); 2]);
        assert!(troubles.has_log() && !Troubles::default().has_log());
        assert!(Troubles::default().log_takes_requests(15));
    }
}
