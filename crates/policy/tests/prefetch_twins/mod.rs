//! Prefetchers as the papers tell them: vectors and sets, and whole numbers wide enough for anything.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::{BTreeMap, BTreeSet};

use tiermem_policy::prefetch::best_offset::BestOffsetParameters;
use tiermem_policy::prefetch::feedback::{Base, FeedbackParameters, Level};
use tiermem_policy::prefetch::leap::LeapParameters;
use tiermem_policy::prefetch::next_n::NextNParameters;
use tiermem_policy::prefetch::readahead::ReadaheadParameters;
use tiermem_policy::prefetch::stream::StreamParameters;
use tiermem_policy::prefetch::{Demand, Insertion, Named, Why};

/// A twin answers with pages that may lie anywhere; those that are no pages are left out of the comparison.
pub trait Naive {
    fn demand(&mut self, page: i128, found: Demand) -> Vec<i128>;
    fn issued(&mut self) {}
    fn filled(&mut self, _page: i128, _why: Why) {}
    fn evicted(&mut self, _page: i128, _for_why: Why, _unused_prefetch: bool) {}
    fn insertion(&self) -> Insertion {
        Insertion::Mru
    }
}

pub const LAST_PAGE: i128 = u64::MAX as i128;

struct Nothing;

impl Naive for Nothing {
    fn demand(&mut self, _page: i128, _found: Demand) -> Vec<i128> {
        vec![]
    }
}

fn following(page: i128, degree: u32, offset: u32) -> Vec<i128> {
    let first = page + i128::from(offset) + 1;
    (first..first + i128::from(degree)).collect()
}

struct NextN(NextNParameters);

impl Naive for NextN {
    fn demand(&mut self, page: i128, found: Demand) -> Vec<i128> {
        match found {
            Demand::Miss | Demand::PrefetchHit | Demand::LatePrefetch => {
                following(page, self.0.degree, self.0.offset)
            }
            Demand::Hit | Demand::UnderMiss => vec![],
        }
    }
}

/// A tracking entry of section 2.1, with its pointers.
#[derive(Clone, Debug)]
enum Tracking {
    /// The misses that trained it so far.
    Training(Vec<i128>),
    /// Start, end, direction (1 or -1) and the page that triggered last.
    Monitor(i128, i128, i128, i128),
}

struct Stream {
    parameters: StreamParameters,
    entries: Vec<Tracking>,
    /// The entries in the order of their use, the eldest first.
    order: Vec<usize>,
    before: Option<i128>,
}

impl Stream {
    fn new(parameters: StreamParameters) -> Self {
        Stream { parameters, entries: vec![], order: vec![], before: None }
    }

    fn used(&mut self, entry: usize) {
        self.order.retain(|one| *one != entry);
        self.order.push(entry);
    }

    fn demand(&mut self, page: i128, found: Demand, level: Level) -> Vec<i128> {
        let missed = found == Demand::Miss || found == Demand::LatePrefetch;
        if self.before == Some(page) && !missed {
            return vec![];
        }
        self.before = Some(page);
        let monitors = |one: &Tracking| match one {
            Tracking::Monitor(start, end, 1, _) => (*start..=*end).contains(&page),
            Tracking::Monitor(start, end, _, _) => (*end..=*start).contains(&page),
            Tracking::Training(_) => false,
        };
        if let Some(entry) = self.entries.iter().position(monitors) {
            let Tracking::Monitor(start, end, direction, last) = self.entries[entry].clone() else {
                unreachable!()
            };
            if last == page {
                return vec![];
            }
            self.used(entry);
            let degree = i128::from(level.degree);
            let wishes = (1..=degree).map(|step| end + direction * step).collect();
            let end = (end + direction * degree).clamp(0, LAST_PAGE);
            let distance = i128::from(level.distance);
            let too_long = (end - start).abs() > distance;
            let start = if too_long { end - direction * distance } else { start };
            self.entries[entry] = Tracking::Monitor(start, end, direction, page);
            return wishes;
        }
        if !missed {
            return vec![];
        }
        let reach = i128::from(self.parameters.train_pages);
        let trains =
            |one: &Tracking| matches!(one, Tracking::Training(misses) if (misses[0] - page).abs() <= reach);
        if let Some(entry) = self.entries.iter().position(trains) {
            self.used(entry);
            let Tracking::Training(misses) = &mut self.entries[entry] else { unreachable!() };
            if misses.last() != Some(&page) {
                misses.push(page);
            }
            // The last three misses give two steps.
            if let [.., a, b, c] = misses[..]
                && (b - a).signum() == (c - b).signum()
            {
                let direction = (c - b).signum();
                let end = (c + direction * i128::from(self.parameters.startup_pages)).clamp(0, LAST_PAGE);
                let first = misses[0];
                let start = if (c - first).signum() == -direction { c } else { first };
                self.entries[entry] = Tracking::Monitor(start, end, direction, c);
            }
        } else if self.entries.len() < self.parameters.streams as usize {
            self.entries.push(Tracking::Training(vec![page]));
            self.used(self.entries.len() - 1);
        } else {
            let eldest = self.order[0];
            self.entries[eldest] = Tracking::Training(vec![page]);
            self.used(eldest);
        }
        vec![]
    }
}

/// The five counters of section 3.1, by name.
type Counts = BTreeMap<&'static str, f64>;

struct Feedback {
    parameters: FeedbackParameters,
    stream: Option<Stream>,
    /// The dynamic configuration counter, 1 to 5.
    level: i32,
    insertion: Insertion,
    evictions: u64,
    during: Counts,
    values: Counts,
    filter: BTreeSet<i128>,
}

/// Table 2: accuracy, late, polluting, update of the counter.
const TABLE_2: [(&str, bool, bool, i32); 12] = [
    ("high", true, false, 1),
    ("high", true, true, 1),
    ("high", false, false, 0),
    ("high", false, true, -1),
    ("medium", true, false, 1),
    ("medium", true, true, -1),
    ("medium", false, false, 0),
    ("medium", false, true, -1),
    ("low", true, false, -1),
    ("low", true, true, -1),
    ("low", false, false, 0),
    ("low", false, true, -1),
];

impl Feedback {
    fn new(parameters: FeedbackParameters) -> Self {
        let stream = match parameters.base {
            Base::Stream(stream) => Some(Stream::new(stream)),
            Base::Sequential => None,
        };
        Feedback {
            stream,
            level: parameters.level_start.min(4) as i32 + 1,
            insertion: if parameters.steer_insertion { Insertion::Mid } else { Insertion::Mru },
            evictions: 0,
            during: Counts::new(),
            values: Counts::new(),
            filter: BTreeSet::new(),
            parameters,
        }
    }

    fn count(&mut self, name: &'static str) {
        *self.during.entry(name).or_default() += 1.0;
    }

    /// The low digits exclusive or the next, in numbers to the base of the filter's size.
    fn fold(&self, page: i128) -> i128 {
        let size = i128::from(self.parameters.filter_bits.next_power_of_two());
        (page % size) ^ (page / size % size)
    }

    fn interval_ends(&mut self) {
        for name in ["pref", "used", "late", "demand", "pollution"] {
            let during = self.during.remove(name).unwrap_or(0.0);
            let value = self.values.entry(name).or_default();
            *value = *value / 2.0 + during / 2.0;
        }
        let ratio = |a: &str, b: &str| {
            let (a, b) = (self.values[a], self.values[b]);
            if b == 0.0 { 0.0 } else { a / b }
        };
        let (accuracy, lateness) = (ratio("used", "pref"), ratio("late", "used"));
        let pollution = ratio("pollution", "demand");
        let of = &self.parameters;
        let accuracy = match accuracy {
            _ if accuracy > of.accuracy_high => "high",
            _ if accuracy < of.accuracy_low => "low",
            _ => "medium",
        };
        let case = (accuracy, lateness > of.lateness, pollution > of.pollution);
        let row = TABLE_2.iter().find(|row| (row.0, row.1, row.2) == case).unwrap();
        self.level = (self.level + row.3).clamp(1, 5);
        if of.steer_insertion {
            self.insertion = if pollution < of.insertion_pollution_low {
                Insertion::Mid
            } else if pollution < of.insertion_pollution_high {
                Insertion::Quarter
            } else {
                Insertion::Lru
            };
        }
    }
}

impl Naive for Feedback {
    fn demand(&mut self, page: i128, found: Demand) -> Vec<i128> {
        if found == Demand::PrefetchHit || found == Demand::LatePrefetch {
            self.count("used");
        }
        if found == Demand::LatePrefetch {
            self.count("late");
        }
        if found == Demand::Miss {
            self.count("demand");
            if self.filter.contains(&self.fold(page)) {
                self.count("pollution");
            }
        }
        let level = self.parameters.levels[self.level as usize - 1];
        match &mut self.stream {
            Some(stream) => stream.demand(page, found, level),
            None => {
                NextN(NextNParameters { degree: level.degree, offset: level.distance }).demand(page, found)
            }
        }
    }
    fn issued(&mut self) {
        self.count("pref");
    }
    fn filled(&mut self, page: i128, why: Why) {
        if why == Why::Prefetch {
            self.filter.remove(&self.fold(page));
        }
    }
    fn evicted(&mut self, page: i128, for_why: Why, unused_prefetch: bool) {
        if for_why == Why::Prefetch && !unused_prefetch {
            self.filter.insert(self.fold(page));
        }
        self.evictions += 1;
        if self.evictions >= self.parameters.interval_evictions {
            self.evictions = 0;
            self.interval_ends();
        }
    }
    fn insertion(&self) -> Insertion {
        self.insertion
    }
}

/// Those up to 256 whose only prime factors are 2, 3 and 5, as the paper lists them.
const OFFSETS: [i128; 52] = [
    1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, 18, 20, 24, 25, 27, 30, 32, 36, 40, 45, 48, 50, 54, 60, 64, 72,
    75, 80, 81, 90, 96, 100, 108, 120, 125, 128, 135, 144, 150, 160, 162, 180, 192, 200, 216, 225, 240, 243,
    250, 256,
];

struct BestOffset {
    parameters: BestOffsetParameters,
    /// D; 0: prefetch is off.
    offset: i128,
    /// From places to tags.
    recent: BTreeMap<i128, i128>,
    /// The tests of this phase: the offset and whether it scored.
    tests: Vec<(i128, bool)>,
}

impl BestOffset {
    fn new(parameters: BestOffsetParameters) -> Self {
        let offset = i128::from(parameters.offset_start);
        BestOffset { parameters, offset, recent: BTreeMap::new(), tests: vec![] }
    }

    fn place(&self, page: i128) -> (i128, i128) {
        let entries = i128::from(self.parameters.recent_entries.next_power_of_two());
        let tags = 2i128.pow(self.parameters.recent_tag_bits);
        ((page % entries) ^ (page / entries % entries), page / entries % tags)
    }

    fn learn(&mut self, page: i128) {
        let offsets: Vec<i128> =
            OFFSETS.into_iter().filter(|one| *one <= i128::from(self.parameters.offset_max)).collect();
        let offset = offsets[self.tests.len() % offsets.len()];
        let base = page - offset;
        let (place, tag) = self.place(base.max(0));
        self.tests.push((offset, base >= 0 && self.recent.get(&place) == Some(&tag)));
        if !self.tests.len().is_multiple_of(offsets.len()) {
            return;
        }
        let rounds = self.tests.len() / offsets.len();
        let score = |offset: i128| self.tests.iter().filter(|test| **test == (offset, true)).count();
        let mut best = offsets[0];
        for offset in offsets {
            if score(offset) > score(best) {
                best = offset;
            }
        }
        let best_score = score(best);
        if best_score >= self.parameters.score_max as usize || rounds >= self.parameters.round_max as usize {
            self.offset = if best_score > self.parameters.bad_score as usize { best } else { 0 };
            self.tests.clear();
        }
    }
}

impl Naive for BestOffset {
    fn demand(&mut self, page: i128, found: Demand) -> Vec<i128> {
        if found == Demand::Hit || found == Demand::UnderMiss {
            return vec![];
        }
        self.learn(page);
        if self.offset == 0 { vec![] } else { vec![page + self.offset] }
    }
    fn filled(&mut self, page: i128, why: Why) {
        let base = page - self.offset;
        if base >= 0 && (why == Why::Prefetch || self.offset == 0) {
            let (place, tag) = self.place(base);
            self.recent.insert(place, tag);
        }
    }
}

struct Leap {
    parameters: LeapParameters,
    /// All accesses from the first, after page 0.
    pages: Vec<i128>,
    latest: Option<i128>,
    hits: u32,
    window: u32,
}

impl Leap {
    fn new(parameters: LeapParameters) -> Self {
        Leap { parameters, pages: vec![0], latest: None, hits: 0, window: 0 }
    }

    /// The deltas kept, the newest first.
    fn deltas(&self) -> Vec<i128> {
        let delta = |pair: &[i128]| i128::from((pair[1] - pair[0]) as i64);
        self.pages.windows(2).rev().map(delta).take(self.parameters.history as usize).collect()
    }

    /// Algorithm 1, by counting each delta of the window.
    fn find_trend(&self) -> Option<i128> {
        let deltas = self.deltas();
        let mut window = (self.parameters.history / self.parameters.splits).max(1) as usize;
        while window <= self.parameters.history as usize {
            let seen: Vec<i128> = deltas.iter().copied().take(window).collect();
            let times = |delta: i128| seen.iter().filter(|one| **one == delta).count();
            if let Some(major) = seen.iter().find(|delta| 2 * times(**delta) > seen.len()) {
                return Some(*major);
            }
            window *= 2;
        }
        None
    }
}

impl Naive for Leap {
    fn demand(&mut self, page: i128, found: Demand) -> Vec<i128> {
        match found {
            Demand::Hit | Demand::UnderMiss => return vec![],
            Demand::PrefetchHit | Demand::LatePrefetch => {
                self.pages.push(page);
                self.hits += 1;
                return vec![];
            }
            Demand::Miss => self.pages.push(page),
        }
        let trend = self.find_trend();
        if trend.is_some() {
            self.latest = trend;
        }
        let mut window = 0;
        if self.hits == 0 {
            if self.latest == Some(self.deltas()[0]) {
                window = 1;
            }
        } else {
            window = 1;
            while window < self.hits + 1 {
                window *= 2;
            }
        }
        window = window.min(self.parameters.window_max);
        if window < self.window / 2 {
            window = self.window / 2;
        }
        self.hits = 0;
        self.window = window;
        let mut wishes = vec![];
        let mut away = 1;
        while let Some(delta) = self.latest
            && delta != 0
            && wishes.len() < window as usize
        {
            wishes.push(page + away * delta);
            if trend.is_none() && wishes.len() < window as usize {
                wishes.push(page - away * delta);
            }
            away += 1;
        }
        wishes
    }
}

/// A run of accesses: the pages that it asked for, and those that were read ahead for it.
#[derive(Clone, Debug)]
struct Ahead {
    asked: Vec<i128>,
    fetched: Vec<i128>,
    window: i128,
    /// 1, -1, or 0 before its second page.
    direction: i128,
}

impl Ahead {
    fn last(&self) -> i128 {
        *self.asked.last().unwrap()
    }

    /// The page farthest along its direction.
    fn end(&self) -> i128 {
        let all = self.asked.iter().chain(&self.fetched).map(|page| page * self.direction);
        all.max().unwrap() * self.direction
    }
}

struct Readahead {
    parameters: ReadaheadParameters,
    /// In the order of the places that they have; with when each was asked for last.
    runs: Vec<(Ahead, usize)>,
    demands: usize,
    /// What may be fetched for nothing, of 128.
    credit: i128,
    /// Pages that have to follow the first of a run before it fetches.
    follow: usize,
}

impl Readahead {
    fn new(parameters: ReadaheadParameters) -> Self {
        Readahead { parameters, runs: vec![], demands: 0, credit: 128, follow: 1 }
    }

    fn direction_to(&self, run: &Ahead, page: i128) -> Option<i128> {
        let gap = i128::from(self.parameters.gap_pages);
        let away = page - run.last();
        if run.direction == 0 {
            return (away.abs() <= gap).then_some(away.signum());
        }
        let beyond = (page - run.end()) * run.direction;
        (away * run.direction > 0 && beyond <= gap).then_some(run.direction)
    }
}

impl Naive for Readahead {
    fn demand(&mut self, page: i128, found: Demand) -> Vec<i128> {
        if matches!(found, Demand::Hit | Demand::UnderMiss) {
            return vec![];
        }
        self.demands += 1;
        if self.runs.iter().any(|(run, _)| run.last() == page) {
            return vec![];
        }
        let run_of =
            (0..self.runs.len()).find_map(|at| Some((at, self.direction_to(&self.runs[at].0, page)?)));
        let Some((at, direction)) = run_of else {
            let new = (Ahead { asked: vec![page], fetched: vec![], window: 0, direction: 0 }, self.demands);
            if self.runs.len() < self.parameters.streams as usize {
                self.runs.push(new);
            } else {
                let oldest = (0..self.runs.len()).min_by_key(|at| self.runs[*at].1).unwrap();
                self.runs[oldest] = new;
            }
            return vec![];
        };
        let ReadaheadParameters { window_min, window_max, .. } = self.parameters;
        let (run, used) = &mut self.runs[at];
        if found != Demand::Miss && run.window > 0 {
            self.credit = (self.credit + 2).min(128);
            if self.credit == 128 && self.follow > 1 {
                (self.credit, self.follow) = (64, self.follow / 2);
            }
        }
        *used = self.demands;
        run.direction = direction;
        run.asked.push(page);
        let followed = run.asked.len() - 1;
        if run.window == 0 {
            let is_long = followed >= self.follow;
            if is_long && self.credit == 0 {
                (self.credit, self.follow) = (64, 256.min(2 * self.follow));
            }
            if followed < self.follow {
                return vec![];
            }
        }
        let left = (run.end() - page) * direction;
        if left > run.window / 2 {
            return vec![];
        }
        run.window = (run.window * 2).max(window_min.into()).min(window_max.into());
        let end = run.end();
        let wishes: Vec<i128> = (1..=run.window).map(|step| end + step * direction).collect();
        // Pages that there are not cannot be fetched, and the run ends there.
        run.fetched.extend(wishes.iter().filter(|page| (0..=LAST_PAGE).contains(*page)));
        wishes
    }

    fn issued(&mut self) {
        self.credit = (self.credit - 1).max(0);
    }
}

/// The twin of a prefetcher.
pub fn naive(prefetcher: Named) -> Box<dyn Naive> {
    match prefetcher {
        Named::None => Box::new(Nothing),
        Named::NextN(parameters) => Box::new(NextN(parameters)),
        Named::FeedbackDirected(parameters) => Box::new(Feedback::new(parameters)),
        Named::BestOffset(parameters) => Box::new(BestOffset::new(parameters)),
        Named::Leap(parameters) => Box::new(Leap::new(parameters)),
        Named::Readahead(parameters) | Named::Plan(parameters) => Box::new(Readahead::new(parameters)),
    }
}
