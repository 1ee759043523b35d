//! Prefetchers in a configuration: which one is used, and the parameters of each, whose defaults are those of its paper.

use serde::{Deserialize, Serialize};
use tiermem_policy::prefetch::Named;
use tiermem_policy::prefetch::best_offset::BestOffsetParameters;
use tiermem_policy::prefetch::feedback::{Base, FeedbackParameters};
use tiermem_policy::prefetch::leap::LeapParameters;
use tiermem_policy::prefetch::next_n::NextNParameters;
use tiermem_policy::prefetch::readahead::ReadaheadParameters;
use tiermem_policy::prefetch::stream::StreamParameters;

/// More lines at once than this no queue takes.
const DEGREE_MAX: u32 = 1 << 16;
/// Entries of a table, at most.
const TABLE_MAX: u32 = 1 << 24;
/// Streams, which are searched one by one, at most.
const STREAMS_MAX: u32 = 4096;

/// Prefetching: which pages are fetched before they are requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prefetch {
    /// none, next-n, feedback-directed, best-offset, leap, readahead.
    pub kind: String,
    /// Prefetches that may be on their way.
    pub outstanding: u32,
    /// Of `next-n`.
    pub next_n: NextN,
    /// Of `feedback-directed`.
    pub feedback_directed: FeedbackDirected,
    /// Of `best-offset`.
    pub best_offset: BestOffset,
    /// Of `leap`.
    pub leap: Leap,
    /// Of `readahead`.
    pub readahead: Readahead,
}

impl Default for Prefetch {
    fn default() -> Self {
        Prefetch {
            kind: "none".to_owned(),
            // A quarter of the flash queue: requests shall not wait behind wishes.
            outstanding: 256,
            next_n: NextN::default(),
            feedback_directed: FeedbackDirected::default(),
            best_offset: BestOffset::default(),
            leap: Leap::default(),
            readahead: Readahead::default(),
        }
    }
}

/// Lines that follow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NextN {
    /// Lines at once.
    pub degree: u32,
    /// How many lines after the one that was asked for they begin.
    pub offset: u32,
}

impl Default for NextN {
    fn default() -> Self {
        let NextNParameters { degree, offset } = NextNParameters::DEFAULT;
        NextN { degree, offset }
    }
}

/// Feedback-Directed Prefetching.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FeedbackDirected {
    /// `stream`, as in the paper, or `sequential`.
    pub base: String,
    /// Level to start with, 1 (very conservative) to 5.
    pub level_start: u32,
    /// Evictions between two looks at the counters.
    pub interval_evictions: u32,
    /// Accuracy from which it is high.
    pub accuracy_high: f64,
    /// Accuracy below which it is low.
    pub accuracy_low: f64,
    /// Share of late ones from which they are too many.
    pub lateness: f64,
    /// Share of misses that prefetches caused from which they are too many.
    pub pollution: f64,
    /// Whether the place of prefetched lines in the order of eviction follows the pollution. It needs the policy `lru` or
    /// `cflru`.
    pub steer_insertion: bool,
    /// Bits of the filter that remembers what prefetches threw out.
    pub filter_bits: u32,
}

impl Default for FeedbackDirected {
    fn default() -> Self {
        let paper = FeedbackParameters::DEFAULT;
        FeedbackDirected {
            base: "stream".to_owned(),
            level_start: paper.level_start as u32 + 1,
            interval_evictions: paper.interval_evictions as u32,
            accuracy_high: paper.accuracy_high,
            accuracy_low: paper.accuracy_low,
            lateness: paper.lateness,
            pollution: paper.pollution,
            steer_insertion: paper.steer_insertion,
            filter_bits: paper.filter_bits,
        }
    }
}

/// Best-Offset Prefetching.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BestOffset {
    /// The largest offset tried.
    pub offset_max: u16,
    /// The score at which learning ends.
    pub score_max: u32,
    /// Rounds after which it ends.
    pub round_max: u32,
    /// A best score no higher than this turns it off.
    pub bad_score: u32,
    /// Entries of the table of recent requests.
    pub recent_entries: u32,
}

impl Default for BestOffset {
    fn default() -> Self {
        let paper = BestOffsetParameters::DEFAULT;
        BestOffset {
            offset_max: paper.offset_max,
            score_max: paper.score_max,
            round_max: paper.round_max,
            bad_score: paper.bad_score,
            recent_entries: paper.recent_entries,
        }
    }
}

/// Leap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Leap {
    /// Deltas that are remembered.
    pub history: u32,
    /// The first window of the vote is this part of them.
    pub splits: u32,
    /// Lines at once, at most.
    pub window_max: u32,
}

impl Default for Leap {
    fn default() -> Self {
        let LeapParameters { history, splits, window_max } = LeapParameters::DEFAULT;
        Leap { history, splits, window_max }
    }
}

/// Readahead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Readahead {
    /// Streams at once.
    pub streams: u32,
    /// Lines between one and the next of a stream, at most.
    pub gap: u32,
    /// Lines of the first window.
    pub window_min: u32,
    /// Lines of a window, at most.
    pub window_max: u32,
}

impl Default for Readahead {
    fn default() -> Self {
        let ReadaheadParameters { streams, gap_pages, window_min, window_max } = ReadaheadParameters::DEFAULT;
        Readahead { streams, gap: gap_pages, window_min, window_max }
    }
}

impl Prefetch {
    /// The prefetcher with its parameters; says which key cannot be and why.
    pub fn named(&self) -> Result<Named, (&'static str, String)> {
        self.numbers()?;
        let kind: Named = self.kind.parse().map_err(|error| ("prefetch.kind", error))?;
        Ok(match kind {
            Named::None => Named::None,
            Named::NextN(_) => {
                Named::NextN(NextNParameters { degree: self.next_n.degree, offset: self.next_n.offset })
            }
            Named::FeedbackDirected(paper) => Named::FeedbackDirected(self.feedback(paper)?),
            Named::BestOffset(paper) => {
                let BestOffset { offset_max, score_max, round_max, bad_score, recent_entries } =
                    self.best_offset;
                Named::BestOffset(BestOffsetParameters {
                    offset_max,
                    score_max,
                    round_max,
                    bad_score,
                    recent_entries,
                    ..paper
                })
            }
            Named::Leap(_) => {
                let Leap { history, splits, window_max } = self.leap;
                Named::Leap(LeapParameters { history, splits, window_max })
            }
            Named::Readahead(_) => Named::Readahead(self.readahead()),
            Named::Plan(_) => Named::Plan(self.readahead()),
        })
    }

    fn readahead(&self) -> ReadaheadParameters {
        let Readahead { streams, gap, window_min, window_max } = self.readahead;
        ReadaheadParameters { streams, gap_pages: gap, window_min, window_max }
    }

    /// All numbers are in their range, whichever prefetcher it is.
    fn numbers(&self) -> Result<(), (&'static str, String)> {
        let Prefetch { next_n, feedback_directed: feedback, best_offset, leap, readahead, .. } = self;
        let counts = [
            ("prefetch.next_n.degree", next_n.degree, 0, DEGREE_MAX),
            ("prefetch.feedback_directed.interval_evictions", feedback.interval_evictions, 1, u32::MAX),
            ("prefetch.feedback_directed.filter_bits", feedback.filter_bits, 1, TABLE_MAX),
            ("prefetch.best_offset.offset_max", u32::from(best_offset.offset_max), 1, u32::from(u16::MAX)),
            ("prefetch.best_offset.recent_entries", best_offset.recent_entries, 1, TABLE_MAX),
            ("prefetch.leap.history", leap.history, 1, TABLE_MAX),
            ("prefetch.leap.splits", leap.splits, 1, TABLE_MAX),
            ("prefetch.leap.window_max", leap.window_max, 0, DEGREE_MAX),
            ("prefetch.readahead.streams", readahead.streams, 1, STREAMS_MAX),
            ("prefetch.readahead.gap", readahead.gap, 0, DEGREE_MAX),
            ("prefetch.readahead.window_min", readahead.window_min, 0, readahead.window_max),
            ("prefetch.readahead.window_max", readahead.window_max, 0, DEGREE_MAX),
        ];
        if let Some((key, value, least, most)) =
            counts.into_iter().find(|(_, value, least, most)| !(least..=most).contains(&value))
        {
            return Err((key, format!("{value} is not {least} to {most}")));
        }
        let shares = [
            ("prefetch.feedback_directed.accuracy_high", feedback.accuracy_high),
            ("prefetch.feedback_directed.accuracy_low", feedback.accuracy_low),
            ("prefetch.feedback_directed.lateness", feedback.lateness),
            ("prefetch.feedback_directed.pollution", feedback.pollution),
        ];
        // NaN is in no range.
        match shares.into_iter().find(|(_, value)| !(0.0..=1.0).contains(value)) {
            Some((key, value)) => Err((key, format!("{value} is not 0 to 1"))),
            None => Ok(()),
        }
    }

    fn feedback(&self, paper: FeedbackParameters) -> Result<FeedbackParameters, (&'static str, String)> {
        let given = &self.feedback_directed;
        let base = match given.base.as_str() {
            "stream" => Base::Stream(StreamParameters::DEFAULT),
            "sequential" => Base::Sequential,
            other => {
                return Err((
                    "prefetch.feedback_directed.base",
                    format!("{other:?} is neither stream nor sequential"),
                ));
            }
        };
        let levels = paper.levels.len() as u32;
        if !(1..=levels).contains(&given.level_start) {
            return Err((
                "prefetch.feedback_directed.level_start",
                format!("{} is not 1 to {levels}", given.level_start),
            ));
        }
        Ok(FeedbackParameters {
            base,
            level_start: given.level_start as usize - 1,
            interval_evictions: u64::from(given.interval_evictions),
            accuracy_high: given.accuracy_high,
            accuracy_low: given.accuracy_low,
            lateness: given.lateness,
            pollution: given.pollution,
            steer_insertion: given.steer_insertion,
            filter_bits: given.filter_bits,
            ..paper
        })
    }
}
