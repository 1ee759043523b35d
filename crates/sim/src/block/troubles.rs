//! Failures that happen while a trace runs, and when.

use std::ops::Range;

/// Times at which stores and the cache's log do not do what they are asked; none unless said. All times are the trace's, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Troubles {
    /// When the store of a tenant's volume fails what is written back to it, and its flushes. It is read all the same.
    pub outages: Vec<(u32, Range<u64>)>,
    /// When the log is full of a cache that outlives the process, ascending; none of one that does not.
    pub log_full: Option<Vec<LogFull>>,
    /// Where the cache's device fails whatever is asked of it, in bytes of the cache.
    pub bad_places: Vec<Range<u64>>,
}

/// A time at which a log has no room, so that no request begins, and nothing is begun to be written back.
///
/// What fills it happens at one moment with what is decided then. So its end is told by number: how many find room at `from_ns` before
/// it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFull {
    /// When it is filled.
    pub from_ns: u64,
    /// When it has room again.
    pub until_ns: u64,
    /// Requests that find room at `from_ns`, each as often as it tries.
    pub requests: u64,
    /// The cleaner's decisions at `from_ns`, on something new, that find room.
    pub decisions: u64,
}

impl Troubles {
    /// Whether the store of a tenant's volume fails what it is asked at a time.
    pub(super) fn is_away(&self, tenant: u32, now_ns: u64) -> bool {
        self.outages.iter().any(|(of, times)| *of == tenant && times.contains(&now_ns))
    }
}

/// The log of a simulated cache: whether it has room. Time never goes back.
#[derive(Debug, Default)]
pub(super) struct Log {
    full: Option<Vec<LogFull>>,
    /// The moment at which it was last asked, and who has found room then.
    now_ns: u64,
    requests: u64,
    decisions: u64,
    /// There is something new for the cleaner to decide on.
    has_news: bool,
    /// Its last decision found no room.
    is_stopped: bool,
}

impl Log {
    /// Of a cache with these troubles.
    pub fn new(troubles: &Troubles) -> Self {
        Log { full: troubles.log_full.clone(), has_news: true, ..Log::default() }
    }

    /// Whether what is clean must be said in it before other data may come to its place.
    pub fn is_kept(&self) -> bool {
        self.full.is_some()
    }

    /// The trouble by which it is full at a time, or is filled then.
    fn full(&self, now_ns: u64) -> Option<&LogFull> {
        let times = self.full.as_deref().unwrap_or_default();
        let at = times.partition_point(|times| times.until_ns <= now_ns);
        times.get(at).filter(|times| times.from_ns <= now_ns)
    }

    /// When it has room again that is full at a time, or is filled then.
    pub fn has_room_ns(&self, now_ns: u64) -> Option<u64> {
        self.full(now_ns).map(|times| times.until_ns)
    }

    /// It is that time now.
    fn set_time(&mut self, now_ns: u64) {
        if self.now_ns != now_ns {
            (self.now_ns, self.requests, self.decisions, self.has_news) = (now_ns, 0, 0, true);
        }
    }

    /// Whether a request would find room that tries at a time.
    pub fn takes_requests(&mut self, now_ns: u64) -> bool {
        self.set_time(now_ns);
        let found = self.requests;
        self.full(now_ns).is_none_or(|full| full.from_ns == now_ns && found < full.requests)
    }

    /// A request tries: whether it finds room. What it then plans is news for the cleaner.
    pub fn admit(&mut self, now_ns: u64) -> bool {
        let has_room = self.takes_requests(now_ns);
        self.requests += u64::from(has_room);
        self.has_news |= has_room;
        has_room
    }

    /// The cleaner was told something.
    pub fn note_news(&mut self) {
        self.has_news = true;
    }

    /// The cleaner decides: whether it finds room.
    pub fn decide(&mut self, now_ns: u64) -> bool {
        self.set_time(now_ns);
        // Where nothing is new it decides nothing.
        if std::mem::take(&mut self.has_news) || self.is_stopped {
            let found = self.decisions;
            let is_full =
                self.full(now_ns).is_some_and(|full| full.from_ns < now_ns || found >= full.decisions);
            self.decisions += u64::from(!is_full);
            self.is_stopped = is_full;
        }
        !self.is_stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_full_for_those_who_come_after_it_is_filled() {
        let full = LogFull { from_ns: 10, until_ns: 20, requests: 1, decisions: 2 };
        let again = LogFull { from_ns: 20, until_ns: 30, requests: 0, decisions: 1 };
        let mut log = Log::new(&Troubles { log_full: Some(vec![full, again]), ..Troubles::default() });
        assert_eq!(
            [9, 10, 19, 20, 30].map(|now_ns| log.has_room_ns(now_ns)),
            [None, Some(20), Some(20), Some(30), None]
        );
        assert!(log.admit(9) && log.admit(9) && log.decide(9));
        assert!(log.decide(10) && log.decide(10), "the second decides nothing");
        assert!(log.admit(10) && !log.takes_requests(10) && !log.admit(10));
        assert!(log.decide(10), "on the request");
        log.note_news();
        assert!(!log.decide(10) && !log.decide(10) && !log.decide(15) && !log.admit(15));
        assert!(log.decide(20) && log.decide(20) && !log.admit(20));
        log.note_news();
        assert!(!log.decide(20));
        assert!(log.takes_requests(30) && log.decide(30));
    }

    #[test]
    fn a_log_without_troubles_has_room() {
        for log_full in [None, Some(Vec::new())] {
            let is_kept = log_full.is_some();
            let mut log = Log::new(&Troubles { log_full, ..Troubles::default() });
            assert!(log.admit(5) && log.decide(5) && log.is_kept() == is_kept);
        }
    }
}
