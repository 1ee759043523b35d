//! Prefetchers of the published simulator. They differ from those of their papers (`policy::prefetch`) in what the comments say.

use std::collections::VecDeque;

/// The kind of prefetcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// None.
    None,
    /// The next pages, degree 4 at offset 16.
    NextN,
    /// The sequential prefetcher with degree and offset by feedback.
    FeedbackDirected,
    /// Best-Offset.
    BestOffset,
    /// Leap.
    Leap,
}

impl Kind {
    /// The names, as the default model has them.
    pub const NAMES: [(&str, Kind); 5] = [
        ("none", Kind::None),
        ("next-n", Kind::NextN),
        ("feedback-directed", Kind::FeedbackDirected),
        ("best-offset", Kind::BestOffset),
        ("leap", Kind::Leap),
    ];
}

/// Counts of the simulator since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feedback {
    /// Distinct pages that were ever prefetched and have come.
    pub prefetched: u64,
    /// Prefetched pages that were used.
    pub used: u64,
    /// Prefetched pages that a request had to wait for.
    pub late: u64,
    /// Misses on pages that a prefetched one had thrown out.
    pub polluted: u64,
    /// Misses.
    pub misses: u64,
}

/// Degree and offset of the sequential prefetchers.
#[derive(Clone, Copy, Debug)]
pub struct Sequential {
    /// Pages at once.
    pub degree: u64,
    /// How far off they begin.
    pub offset: u64,
    level: usize,
}

impl Default for Sequential {
    fn default() -> Self {
        Sequential { degree: 4, offset: 16, level: LEVELS.len() - 1 }
    }
}

const LEVELS: [(u64, u64); 5] = [(1, 4), (1, 8), (2, 16), (4, 32), (4, 64)];

impl Sequential {
    /// Takes feedback in, at every trigger and over the whole run, where the paper has intervals that fade.
    pub fn follow(&mut self, feedback: Feedback) {
        let ratio = |part: u64, whole: u64| part as f64 / whole as f64;
        let accuracy = ratio(feedback.used, feedback.prefetched);
        let late = ratio(feedback.late, feedback.prefetched) >= 0.01;
        let polluting = ratio(feedback.polluted, feedback.misses) >= 0.25;
        let step = if accuracy >= 0.75 {
            if late { 1 } else { -i32::from(polluting) }
        } else if accuracy >= 0.40 {
            match (late, polluting) {
                (true, false) => 1,
                (_, true) => -1,
                (false, false) => 0,
            }
        } else if accuracy < 0.40 {
            -i32::from(late || polluting)
        } else {
            // Nothing was prefetched yet.
            0
        };
        self.level = self.level.saturating_add_signed(step as isize).min(LEVELS.len() - 1);
        (self.degree, self.offset) = LEVELS[self.level];
    }
}

const OFFSETS: usize = 128;
const SCORE_MIN: u32 = 3;
const ROUNDS: u32 = 8;
const OFFSETS_AT_ONCE: usize = 16;
const HISTORY: usize = 1024;

/// Best-Offset with offsets 1 to 127 and up to 16 of them at once; the history holds demands, not completed fetches.
#[derive(Clone, Debug)]
pub struct BestOffset {
    history: VecDeque<u64>,
    scores: [u32; OFFSETS],
    tested: u64,
    round: u32,
    /// In ascending order.
    chosen: Vec<u64>,
}

impl Default for BestOffset {
    fn default() -> Self {
        BestOffset {
            history: VecDeque::with_capacity(HISTORY),
            scores: [0; OFFSETS],
            tested: 1,
            round: 0,
            chosen: Vec::with_capacity(OFFSETS_AT_ONCE),
        }
    }
}

impl BestOffset {
    /// The offset whose turn it is to be tested.
    pub fn tested(&self) -> u64 {
        self.tested
    }

    /// Takes a trigger in; `base_known`: the page less the tested offset is in the history. Returns the page that falls out of
    /// it.
    pub fn learn(&mut self, page: u64, base_known: bool) -> Option<u64> {
        if base_known {
            self.scores[self.tested as usize - 1] += 1;
        }
        let forgotten = (self.history.len() >= HISTORY).then(|| self.history.pop_front()).flatten();
        self.history.push_back(page);
        self.tested += 1;
        if self.tested >= OFFSETS as u64 {
            self.tested = 1;
            self.round += 1;
            if self.round >= ROUNDS {
                self.round = 0;
                self.choose();
                self.scores = [0; OFFSETS];
            }
        }
        forgotten
    }

    /// The offsets in use.
    pub fn chosen(&self) -> &[u64] {
        &self.chosen
    }

    fn choose(&mut self) {
        self.chosen.clear();
        for _ in 0..OFFSETS_AT_ONCE {
            let candidates = (0..OFFSETS).filter(|at| !self.chosen.contains(&(*at as u64 + 1)));
            // Of equal ones the largest offset.
            let Some(best) = candidates.max_by_key(|at| self.scores[*at]) else { break };
            if self.scores[best] < SCORE_MIN {
                break;
            }
            self.chosen.push(best as u64 + 1);
        }
        self.chosen.sort_unstable();
    }
}

const LEAP_HISTORY: usize = 39;
const LEAP_SPLIT: usize = 8;
const LEAP_PAGES_MAX: u64 = 16;

/// Leap, whose vote always ends at the newest delta, and which always fetches something.
#[derive(Clone, Debug, Default)]
pub struct Leap {
    /// Pages with the distance from the one before.
    history: VecDeque<(u64, i64)>,
    last_offset: i64,
    last_count: u64,
    last_hits: u64,
}

impl Leap {
    /// Takes a miss in; `hits`: hits on prefetched pages so far. Appends what to fetch.
    pub fn miss(&mut self, page: u64, hits: u64, wanted: &mut Vec<u64>) {
        let delta = self.history.back().map_or(0, |(before, _)| page.wrapping_sub(*before) as i64);
        self.history.push_back((page, delta));
        if self.history.len() > LEAP_HISTORY {
            self.history.pop_front();
        }
        let count = self.count(hits);
        match self.trend() {
            0 => {
                let base = page.wrapping_add_signed(self.last_offset);
                wanted.extend((1..=count).map(|step| base.wrapping_add(step)));
            }
            trend => {
                wanted.extend((1..=count).map(|step| page.wrapping_add_signed(trend * step as i64)));
                self.last_offset = trend;
            }
        }
    }

    fn trend(&self) -> i64 {
        let len = self.history.len();
        let mut window = len / LEAP_SPLIT;
        while window <= len {
            let newest = self.history.range(len - window..);
            let candidate = newest.clone().next_back().map_or(0, |last| last.1);
            if newest.filter(|(_, delta)| *delta == candidate).count() > window / 2 && candidate != 0 {
                return candidate;
            }
            window = 2 * window + 1;
        }
        0
    }

    fn count(&mut self, hits: u64) -> u64 {
        let fresh = hits - self.last_hits;
        let count = if fresh == 0 { 1 } else { (fresh + 1).next_power_of_two() };
        self.last_count = count.min(LEAP_PAGES_MAX).max(self.last_count / 2);
        self.last_hits = hits;
        self.last_count
    }
}
