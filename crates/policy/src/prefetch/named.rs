//! Prefetchers by the names that command lines and configurations use.

use std::fmt;
use std::str::FromStr;

use super::best_offset::{BestOffset, BestOffsetParameters};
use super::feedback::{Feedback, FeedbackParameters};
use super::leap::{Leap, LeapParameters};
use super::next_n::{NextN, NextNParameters};
use super::readahead::{Readahead, ReadaheadParameters};
use super::{Demand, Insertion, Prefetch, Why};

/// A window of readahead has one page in so many of a cache at most.
const WINDOW_ONE_OF: u32 = 32;

/// A prefetcher and its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Named {
    /// Nothing is fetched before it is asked for.
    None,
    /// [`super::next_n`].
    NextN(NextNParameters),
    /// [`super::feedback`].
    FeedbackDirected(FeedbackParameters),
    /// [`super::best_offset`].
    BestOffset(BestOffsetParameters),
    /// [`super::leap`].
    Leap(LeapParameters),
    /// [`super::readahead`].
    Readahead(ReadaheadParameters),
    /// What a plan says comes next, which its driver knows ([`crate::paging`]); for the rest, and without a plan, [`super::readahead`].
    Plan(ReadaheadParameters),
}

impl Named {
    /// Each of them once, in the order of their names' table, with default parameters.
    pub const ALL: [Named; 7] = [
        Named::None,
        Named::NextN(NextNParameters::DEFAULT),
        Named::FeedbackDirected(FeedbackParameters::DEFAULT),
        Named::BestOffset(BestOffsetParameters::DEFAULT),
        Named::Leap(LeapParameters::DEFAULT),
        Named::Readahead(ReadaheadParameters::DEFAULT),
        Named::Plan(ReadaheadParameters::DEFAULT),
    ];

    /// The name, without the parameters.
    pub fn name(self) -> &'static str {
        match self {
            Named::None => "none",
            Named::NextN(_) => "next-n",
            Named::FeedbackDirected(_) => "feedback-directed",
            Named::BestOffset(_) => "best-offset",
            Named::Leap(_) => "leap",
            Named::Readahead(_) => "readahead",
            Named::Plan(_) => "plan",
        }
    }

    /// The same for a cache of so many pages: what is read ahead at once takes a small part of it.
    pub fn within(self, cache_pages: u32) -> Self {
        let within = |parameters: ReadaheadParameters| {
            let most = (cache_pages / WINDOW_ONE_OF).max(parameters.window_min);
            ReadaheadParameters { window_max: parameters.window_max.min(most), ..parameters }
        };
        match self {
            Named::Readahead(parameters) => Named::Readahead(within(parameters)),
            Named::Plan(parameters) => Named::Plan(within(parameters)),
            other => other,
        }
    }

    /// Pages that are on their way, or have come and wait for their use, for one stream of demands at most; 0 where that is a few.
    pub fn pages_ahead(self) -> u32 {
        match self {
            Named::Readahead(parameters) | Named::Plan(parameters) => 2 * parameters.window_max,
            _ => 0,
        }
    }

    /// Makes the prefetcher.
    pub fn build(self) -> Prefetcher {
        match self {
            Named::None => Prefetcher::None,
            Named::NextN(parameters) => Prefetcher::NextN(NextN::new(parameters)),
            Named::FeedbackDirected(parameters) => Prefetcher::FeedbackDirected(Feedback::new(parameters)),
            Named::BestOffset(parameters) => Prefetcher::BestOffset(BestOffset::new(parameters)),
            Named::Leap(parameters) => Prefetcher::Leap(Leap::new(parameters)),
            Named::Readahead(parameters) | Named::Plan(parameters) => {
                Prefetcher::Readahead(Readahead::new(parameters))
            }
        }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || Named::ALL.map(Named::name).join(", ");
        let found = Named::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| format!("there is no prefetcher {text:?}; the prefetchers are {}", names()))
    }
}

/// A prefetcher of whichever type a name stands for. One branch, which is always taken the same way.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // The variants are those of [`Named`].
pub enum Prefetcher {
    None,
    NextN(NextN),
    FeedbackDirected(Feedback),
    BestOffset(BestOffset),
    Leap(Leap),
    Readahead(Readahead),
}

/// Calls the prefetcher that is there, or gives what none would.
macro_rules! of {
    ($self:expr, $one:ident => $call:expr, $none:expr) => {
        match $self {
            Prefetcher::None => $none,
            Prefetcher::NextN($one) => $call,
            Prefetcher::FeedbackDirected($one) => $call,
            Prefetcher::BestOffset($one) => $call,
            Prefetcher::Leap($one) => $call,
            Prefetcher::Readahead($one) => $call,
        }
    };
}

impl Prefetch for Prefetcher {
    #[inline]
    fn demand(&mut self, page: u64, found: Demand, wanted: &mut Vec<u64>) {
        of!(self, one => one.demand(page, found, wanted), ());
    }

    #[inline]
    fn issued(&mut self, page: u64) {
        of!(self, one => one.issued(page), ());
    }

    #[inline]
    fn filled(&mut self, page: u64, why: Why) {
        of!(self, one => one.filled(page, why), ());
    }

    #[inline]
    fn evicted(&mut self, page: u64, for_why: Why, unused_prefetch: bool) {
        of!(self, one => one.evicted(page, for_why, unused_prefetch), ());
    }

    #[inline]
    fn insertion(&self) -> Insertion {
        of!(self, one => one.insertion(), Insertion::Mru)
    }

    fn metadata_bytes(&self) -> u64 {
        of!(self, one => one.metadata_bytes(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for prefetcher in Named::ALL {
            assert_eq!(prefetcher.to_string().parse(), Ok(prefetcher));
        }
        assert!("oracle".parse::<Named>().unwrap_err().contains("best-offset"));
    }
}
