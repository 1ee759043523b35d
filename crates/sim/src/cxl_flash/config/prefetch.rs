//! The prefetchers' part of a configuration: which one, and the parameters of each, whose defaults are its paper's.

use serde::{Deserialize, Serialize};
use tiermem_policy::prefetch::Named;
use tiermem_policy::prefetch::best_offset::BestOffsetParameters;
use tiermem_policy::prefetch::feedback::{Base, FeedbackParameters};
use tiermem_policy::prefetch::leap::LeapParameters;
use tiermem_policy::prefetch::next_n::NextNParameters;
use tiermem_policy::prefetch::stream::StreamParameters;

/// What is fetched before it is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prefetch {
    /// none, next-n, feedback-directed, best-offset, leap.
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

impl Prefetch {
    /// The prefetcher with its parameters; says which key cannot be and why.
    pub fn named(&self) -> Result<Named, (&'static str, String)> {
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
                if offset_max == 0 || recent_entries == 0 {
                    return Err((
                        "prefetch.best_offset",
                        "offset_max and recent_entries are at least 1".to_owned(),
                    ));
                }
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
                if history == 0 || splits == 0 {
                    return Err(("prefetch.leap", "history and splits are at least 1".to_owned()));
                }
                Named::Leap(LeapParameters { history, splits, window_max })
            }
        })
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
            interval_evictions: u64::from(given.interval_evictions.max(1)),
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
