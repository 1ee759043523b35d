//! Statistics per command for `INFO commandstats`, `errorstats`
//! and `latencystats`: exact counters, and times of a sample.
//!
//! Reading the clock twice would cost a short command a tenth of its time, so about one call in 64 is timed, at
//! random distances that match no rhythm of requests. `usec` scales the sampled times to all calls: an estimate.

use std::collections::BTreeMap;
use std::time::Instant;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Calls between two that are timed, on average.
const DISTANCE: u32 = 64;
/// The longest time told apart, in nanoseconds.
const TIME_NS_MAX: u64 = 60_000_000_000;
/// Codes of errors that are counted by themselves, as in Redis; they come from a fixed set, so there are always enough.
const CODES_MAX: usize = 128;

/// Statistics of one command.
#[derive(Clone, Debug, Default)]
struct Calls {
    calls: u64,
    /// Refused before it began: by its arguments' number, or for want of a password.
    rejected: u64,
    /// Ended in an error.
    failed: u64,
    timed: u64,
    timed_ns: u64,
    /// The times in nanoseconds; made when the first is known.
    times_ns: Option<Box<Histogram<u64>>>,
}

/// One command's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallFigures {
    /// Calls.
    pub calls: u64,
    /// Calls refused before they began.
    pub rejected: u64,
    /// Calls that ended in an error.
    pub failed: u64,
    /// Microseconds of all calls together, estimated.
    pub usec: u64,
}

/// The counters of all commands.
#[derive(Clone, Debug)]
pub struct CommandStatistics {
    /// By the commands' numbers; commands that were never called may be missing at the end.
    calls: Vec<Calls>,
    /// Calls until one is timed.
    countdown: u32,
    random: u32,
    errors: BTreeMap<Box<str>, u64>,
    /// What had been counted when [`Self::begin_anew`] was called: by number, and by code.
    earlier: Vec<CallFigures>,
    earlier_errors: BTreeMap<Box<str>, u64>,
}

impl Default for CommandStatistics {
    fn default() -> Self {
        CommandStatistics {
            calls: Vec::new(),
            countdown: DISTANCE,
            random: 0x9e37_79b9,
            errors: BTreeMap::new(),
            earlier: Vec::new(),
            earlier_errors: BTreeMap::new(),
        }
    }
}

impl CallFigures {
    /// Adds other calls of the same command.
    pub fn add(&mut self, CallFigures { calls, rejected, failed, usec }: CallFigures) {
        self.calls += calls;
        self.rejected += rejected;
        self.failed += failed;
        self.usec += usec;
    }
}

impl CommandStatistics {
    #[inline]
    fn at(&mut self, number: usize) -> &mut Calls {
        if number >= self.calls.len() {
            self.grow(number);
        }
        &mut self.calls[number]
    }

    #[cold]
    fn grow(&mut self, number: usize) {
        self.calls.resize_with(number + 1, Calls::default);
    }

    /// Counts a call of the command of this number.
    #[inline]
    pub fn count(&mut self, number: usize) {
        self.at(number).calls += 1;
    }

    /// Whether the call that begins is to be timed.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        // A call within one that is being timed is timed as well.
        self.countdown = self.countdown.saturating_sub(1);
        self.countdown == 0
    }

    /// Notes when a call that was to be timed began, and chooses the next.
    #[cold]
    pub fn end(&mut self, number: usize, began: Instant) {
        // Marsaglia's xorshift (2003), 13, 17, 5: never 0, and random enough to be out of step with anything.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.countdown = DISTANCE / 2 + self.random % DISTANCE;
        let ns = began.elapsed().as_nanos() as u64;
        let calls = self.at(number);
        calls.timed += 1;
        calls.timed_ns += ns;
        if calls.times_ns.is_none() {
            calls.times_ns = Histogram::new_with_bounds(1, TIME_NS_MAX, 2).ok().map(Box::new);
        }
        if let Some(times) = &mut calls.times_ns {
            times.saturating_record(ns);
        }
    }

    /// Counts a call that ended in an error.
    #[cold]
    pub fn fail(&mut self, number: usize) {
        self.at(number).failed += 1;
    }

    /// Counts a call that was refused before it began.
    #[cold]
    pub fn reject(&mut self, number: usize) {
        self.at(number).rejected += 1;
    }

    /// Counts an error reply by its code.
    #[cold]
    pub fn note_error(&mut self, code: &str) {
        if let Some(count) = self.errors.get_mut(code) {
            *count += 1;
        } else if self.errors.len() < CODES_MAX {
            self.errors.insert(code.into(), 1);
        }
    }

    /// Begins the statistics anew; only the totals go on.
    pub fn begin_anew(&mut self) {
        let numbers = self.calls.len().max(self.earlier.len());
        let earlier = (0..numbers).map(|number| self.total(number).unwrap_or_default()).collect();
        let earlier_errors = self.error_totals();
        *self = CommandStatistics { earlier, earlier_errors, ..CommandStatistics::default() };
    }

    /// The calls of the command of this number since the start, if there were any.
    pub fn total(&self, number: usize) -> Option<CallFigures> {
        let mut sum = self.earlier.get(number).copied().unwrap_or_default();
        sum.add(self.figures(number).unwrap_or_default());
        (sum.calls + sum.rejected > 0).then_some(sum)
    }

    /// Error replies by code since the start.
    pub fn error_totals(&self) -> BTreeMap<Box<str>, u64> {
        let mut sums = self.earlier_errors.clone();
        for (code, count) in &self.errors {
            *sums.entry(code.clone()).or_default() += count;
        }
        sums
    }

    /// Adds another shard's, but for what was before statistics began anew.
    pub fn add(&mut self, other: &CommandStatistics) {
        for (number, theirs) in other.calls.iter().enumerate() {
            let ours = self.at(number);
            let Calls { calls, rejected, failed, timed, timed_ns, times_ns } = theirs;
            ours.calls += calls;
            ours.rejected += rejected;
            ours.failed += failed;
            ours.timed += timed;
            ours.timed_ns += timed_ns;
            match (&mut ours.times_ns, times_ns) {
                // All have the same bounds, so adding does not fail.
                (Some(sum), Some(times)) => sum.add(times.as_ref()).unwrap_or_default(),
                (none @ None, Some(times)) => *none = Some(times.clone()),
                (_, None) => {}
            }
        }
        for (code, count) in &other.errors {
            *self.errors.entry(code.clone()).or_default() += count;
        }
    }

    /// Error replies by code.
    pub fn errors(&self) -> impl Iterator<Item = (&str, u64)> {
        self.errors.iter().map(|(code, count)| (&**code, *count))
    }

    /// The figures of the command of this number, if it was called or refused at all.
    pub fn figures(&self, number: usize) -> Option<CallFigures> {
        let calls = self.calls.get(number).filter(|calls| calls.calls + calls.rejected > 0)?;
        let mean_ns = calls.timed_ns as f64 / calls.timed.max(1) as f64;
        Some(CallFigures {
            calls: calls.calls,
            rejected: calls.rejected,
            failed: calls.failed,
            usec: (mean_ns * calls.calls as f64 / 1000.0) as u64,
        })
    }

    /// Upper bounds in microseconds for 50%, 99% and 99.9% of the calls of the command of this number; `None` before one was timed.
    pub fn percentiles_usec(&self, number: usize) -> Option<[f64; 3]> {
        let times = self.calls.get(number)?.times_ns.as_deref()?;
        Some([0.5, 0.99, 0.999].map(|share| times.value_at_quantile(share) as f64 / 1000.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_in_so_many_is_timed() {
        let mut statistics = CommandStatistics::default();
        let mut timed = 0;
        for _ in 0..64_000 {
            statistics.count(7);
            if statistics.is_due() {
                timed += 1;
                statistics.end(7, Instant::now());
            }
        }
        assert!((900..1100).contains(&timed), "{timed}");
        assert_eq!(statistics.figures(6), None);
        let figures = statistics.figures(7).unwrap();
        assert_eq!((figures.calls, figures.rejected, figures.failed), (64_000, 0, 0));
        assert!(statistics.percentiles_usec(7).is_some());
    }

    #[test]
    fn calls_within_a_timed_call_are_timed() {
        let mut statistics = CommandStatistics::default();
        while !statistics.is_due() {}
        let began = Instant::now();
        for _ in 0..100 {
            statistics.count(2);
            if statistics.is_due() {
                statistics.end(2, Instant::now());
            }
        }
        statistics.end(1, began);
        assert_eq!(statistics.figures(2).unwrap().calls, 100);
    }

    #[test]
    fn failures_are_counted_by_command_and_by_code() {
        let mut statistics = CommandStatistics::default();
        statistics.reject(2);
        statistics.fail(2);
        statistics.note_error("ERR");
        statistics.note_error("OOM");
        statistics.note_error("ERR");
        let figures = statistics.figures(2).unwrap();
        assert_eq!((figures.calls, figures.rejected, figures.failed, figures.usec), (0, 1, 1, 0));
        assert_eq!(statistics.errors().collect::<Vec<_>>(), [("ERR", 2), ("OOM", 1)]);
    }

    #[test]
    fn totals_go_on_when_statistics_begin_anew() {
        let mut statistics = CommandStatistics::default();
        for round in 1..4 {
            statistics.count(2);
            statistics.fail(2);
            statistics.note_error("ERR");
            assert_eq!(statistics.figures(2).map(|it| it.calls), Some(1));
            assert_eq!(statistics.total(2).map(|it| (it.calls, it.failed)), Some((round, round)));
            assert_eq!(statistics.error_totals()["ERR"], round);
            statistics.begin_anew();
            assert_eq!((statistics.figures(2), statistics.errors().count()), (None, 0));
        }
        assert_eq!(statistics.total(1), None);
    }
}
