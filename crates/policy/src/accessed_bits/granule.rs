//! What is known of a granule: its pages, what was cleared of them, what windows saw since.

use tiermem_base::Rng;

use super::pieces::pieces;
use super::rate::{Rate, SampleWindow, add_to, contradict, rate_of};
use super::{HUGE_BYTES, HUGE_PAGES, PAGE_BYTES, Span, Told};

/// Shortest time from clearing to reading that is planned: a call each to clear and to read.
const SHORTEST_S: f64 = 20e-6;
/// Accesses to a page in a window that tells most of its rate.
const ACCESSES: f64 = 1.5;
/// One clearing of so many may be of any length, lest a changed rate goes unnoticed.
const ANY_LENGTH: u64 = 8;
/// Cost of a clearing besides the pages that are touched again, in such pages: other processors flush their translations.
const CALL_PAGES: f64 = 4.0;
/// A run that was cleared so often is followed by another one.
const RUN_CLEARINGS: u32 = 16;
/// A run that is not touched for so long is cold.
const COLD_RUN_S: f64 = 0.02;
/// Accesses to an active page after which those that were not touched are inactive.
const SETTLED: f64 = 10.0;
/// Weight of what earlier slices saw, for each slice: of huge pages, which are few, they count more. And the least that counts.
const AGEING: f64 = 0.25;
const AGEING_HUGE: f64 = 0.6;
const AGED_LEAST: f64 = 0.01;
/// Accesses that were to be expected, from which on it means something that there were none.
const EXPECTED: f64 = 1.0;

/// What of a granule is cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All pages.
    Whole,
    /// Pages that lie one behind the other.
    Run(Span),
    /// A huge page that is mapped page by page.
    Examined(u64),
}

/// Whether a run can stand for a granule.
enum Run {
    /// This one.
    Clear(Span),
    /// Another one, once the pages of this one are touched.
    Wait,
    /// Its pages are cold, so that all can be cleared.
    Cold,
    /// No.
    None,
}

/// What was cleared last.
#[derive(Clone, Copy, Debug)]
struct Cleared {
    part: Part,
    /// When, and when it was read last, by the time for which the process ran; and what the last pass told of the part.
    at_s: f64,
    read_s: f64,
    touched: u32,
    /// Set bits outside of the part.
    outside: u32,
    /// How long the process should run until it is read.
    lead_s: f64,
    /// How often the same part was cleared in turn.
    times: u32,
}

/// Windows of pages of one size.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    ageing: f64,
    /// Of this slice in the order of time, and the time for which each stands: since the one before it was read, or the slice began.
    now: Vec<SampleWindow>,
    stands_s: Vec<f64>,
    read_s: Option<f64>,
    /// Of earlier slices, with less weight.
    before: Vec<SampleWindow>,
    /// As it was last.
    pub rate: Rate,
}

impl Seen {
    fn new(ageing: f64) -> Self {
        Seen {
            ageing,
            now: Vec::new(),
            stands_s: Vec::new(),
            read_s: None,
            before: Vec::new(),
            rate: Rate::default(),
        }
    }

    /// Whether windows of this slice say clearly that the rate is not this one.
    pub fn contradicts(&self, per_s: f64) -> bool {
        contradict(&self.now, Rate { active: 1.0, per_s, is_bound: false })
    }

    /// Whether there were windows in this slice.
    pub fn is_seen(&self) -> bool {
        !self.now.is_empty()
    }

    /// The length of the shortest window.
    pub fn shortest_s(&self) -> f64 {
        let all = self.now.iter().chain(&self.before);
        all.map(|window| window.seconds).fold(f64::INFINITY, f64::min)
    }

    /// A window that was read at `read_s`.
    fn add(&mut self, window: SampleWindow, read_s: f64) {
        if window.pages > 0.0 {
            let since_s = self.read_s.replace(read_s).map_or(window.seconds, |last_s| read_s - last_s);
            self.now.push(window);
            self.stands_s.push(since_s);
        }
    }

    /// Accesses to a page in a second of the slice. What earlier slices saw counts where this one says little.
    pub fn take(&mut self) -> f64 {
        let pieces = pieces(&self.now);
        let per_page_s = match pieces.last() {
            Some(last) if pieces.len() > 1 => {
                let (mut accesses, mut all_s) = (0.0, 0.0);
                for piece in &pieces {
                    let stands_s: f64 = self.stands_s[piece.clone()].iter().sum();
                    self.rate = rate_of(&self.now[piece.clone()]);
                    accesses += self.rate.per_page_s() * stands_s;
                    all_s += stands_s;
                }
                // What comes next is as the last piece was.
                self.now.drain(..last.start);
                self.before.clear();
                accesses / all_s.max(f64::MIN_POSITIVE)
            }
            _ => self.steady().per_page_s(),
        };
        self.stands_s.clear();
        self.now.drain(..).for_each(|window| add_to(&mut self.before, window));
        self.before.iter_mut().for_each(|window| {
            window.touched *= self.ageing;
            window.pages *= self.ageing;
        });
        self.before.retain(|window| window.pages >= AGED_LEAST);
        per_page_s
    }

    /// The rate after a slice in which it has not changed, if it may be another one than before.
    fn steady(&mut self) -> Rate {
        let touched: f64 = self.now.iter().map(|window| window.touched).sum();
        let of = |window: &SampleWindow| window.pages * -(-self.rate.per_page_s() * window.seconds).exp_m1();
        let expected: f64 = self.now.iter().map(of).sum();
        let is_over = touched == 0.0 && expected >= EXPECTED;
        if is_over {
            self.before.clear();
            self.rate = Rate::default();
        } else if !self.now.is_empty() {
            let bound = self.now.iter().all(|window| window.touched >= window.pages);
            let all: Vec<SampleWindow> = self.now.iter().chain(&self.before).copied().collect();
            self.rate = Rate { is_bound: bound, ..rate_of(&all) };
            // It has another rate than it had.
            if contradict(&self.now, self.rate) {
                self.rate = rate_of(&self.now);
                self.before.clear();
            }
        }
        self.rate
    }

    /// The length of a window that tells most: shorter than any in which all was touched.
    fn window_s(&self) -> Option<f64> {
        let first = |window: &&SampleWindow| window.before_s == 0.0;
        let shortest = |windows: &[SampleWindow]| {
            let full = windows.iter().filter(first).filter(|window| window.touched >= window.pages);
            full.map(|window| window.seconds / (2.0 * window.pages.sqrt()).max(4.0)).min_by(f64::total_cmp)
        };
        let some = |window: &&SampleWindow| window.touched > 0.0 && window.touched < window.pages;
        match self.now.iter().filter(first).rfind(some) {
            Some(window) => Some(ACCESSES * window.seconds / -(-window.touched / window.pages).ln_1p()),
            _ if self.rate.per_s > 0.0 && !self.rate.is_bound => {
                let of_rate = ACCESSES / self.rate.per_s;
                Some(shortest(&self.now).map_or(of_rate, |full| full.min(of_rate)))
            }
            None => {
                [shortest(&self.now), shortest(&self.before)].into_iter().flatten().min_by(f64::total_cmp)
            }
        }
    }
}

/// What was seen when a huge page of the granule was mapped page by page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Examined {
    /// Accesses to a huge page in a second.
    pub per_s: f64,
    pub slice: u64,
}

/// What is to be cleared, and how long before it is read, by the time for which the process runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub part: Part,
    /// Pages that the program touches again for it.
    pub pages: f64,
    pub lead_s: f64,
}

/// A granule.
#[derive(Clone, Debug)]
pub(super) struct Granule {
    pub span: Span,
    pub small_pages: u32,
    pub huge_pages: u32,
    /// Pages that other processes have mapped too.
    pub shared: u32,
    /// Set bits at the last pass, of the pages that can be cleared.
    pub set: u32,
    pub is_file: bool,
    /// Whether it is cleared together with all others of files: then shared pages are as good as its own.
    pub is_cleared_at_once: bool,
    /// Whether no pass has told of it since that has changed.
    is_anew: bool,
    cleared: Option<Cleared>,
    pub small: Seen,
    pub huge: Seen,
    /// Of the pages of the huge page that is examined.
    pub examined: Seen,
    pub examining: Option<u64>,
    pub examined_at: Option<Examined>,
    /// Pages that became resident in this slice, each by a touch.
    fresh: u64,
    /// When a pass reaches it, from the pass's start on.
    pub offset_s: f64,
    /// What mappings of the pass tell of it so far.
    told: Option<Told>,
    /// Whether its huge pages are accessed so often that their bits tell little.
    pub is_too_fast: bool,
}

impl Granule {
    pub fn new(span: Span) -> Self {
        Granule {
            span,
            small_pages: 0,
            huge_pages: 0,
            shared: 0,
            set: 0,
            is_file: false,
            is_cleared_at_once: false,
            is_anew: false,
            cleared: None,
            small: Seen::new(AGEING),
            huge: Seen::new(AGEING_HUGE),
            examined: Seen::new(AGEING),
            examining: None,
            examined_at: None,
            fresh: 0,
            offset_s: 0.0,
            told: None,
            is_too_fast: false,
        }
    }

    /// Whether no pass has told of it yet.
    pub fn is_unknown(&self) -> bool {
        self.small_pages + self.huge_pages == 0
    }

    /// Its resident pages, shared ones included.
    pub fn resident(&self) -> u32 {
        let own = self.small_pages + self.huge_pages * HUGE_PAGES;
        if self.is_cleared_at_once { own } else { own + self.shared }
    }

    /// Says whether it is cleared together with all others of files. What was known of its pages is of others if that changes.
    pub fn set_cleared_at_once(&mut self, is: bool) {
        if std::mem::replace(&mut self.is_cleared_at_once, is) != is {
            let Granule { span, is_file, shared, offset_s, .. } = *self;
            let is_anew = true;
            *self =
                Granule { is_file, shared, offset_s, is_cleared_at_once: is, is_anew, ..Granule::new(span) };
        }
    }

    /// What should be cleared for a pass that comes after the process has run for `gap_s`, if anything.
    pub fn wish(&self, gap_s: f64, run_pages: u32, every_page: bool, rng: &mut Rng) -> Option<Wish> {
        if self.is_cleared_at_once {
            return None;
        }
        if self.is_unknown() {
            return every_page.then_some(Wish { part: Part::Whole, pages: 0.0, lead_s: gap_s });
        }
        if let Some(huge) = self.examining {
            let lead_s = lead(self.examined.window_s().or(Some(300e-6)), gap_s, false, rng);
            return Some(Wish { part: Part::Examined(huge), pages: f64::from(HUGE_PAGES), lead_s });
        }
        let is_new = self.cleared.is_none();
        let touched = self.cleared.map_or(self.set, |cleared| cleared.touched);
        // All of them, while nothing is known; else those that the rate says, and at least those that were touched last.
        let again = |pages: u32| {
            let Rate { active, per_s, .. } = self.small.rate;
            let share = if is_new { 1.0 } else { active * -(-per_s * gap_s).exp_m1() };
            (f64::from(pages) * share).max(f64::from(touched.min(pages)))
        };
        let run = if every_page { Run::None } else { self.run(run_pages, rng) };
        let (part, pages) = match run {
            Run::Cold => (Part::Whole, f64::from(self.small_pages / run_pages.max(1))),
            Run::Wait => return None,
            _ if touched == 0 && !is_new => return None,
            Run::Clear(run) => (Part::Run(run), again(run_pages)),
            Run::None => (Part::Whole, again(self.small_pages)),
        };
        let window_s = match self.huge_pages {
            0 => self.small.window_s(),
            _ => self.huge.window_s().or(self.small.window_s()),
        };
        let any = rng.below(ANY_LENGTH) == 0 || window_s.is_none();
        Some(Wish { part, pages: pages + CALL_PAGES, lead_s: lead(window_s, gap_s, any, rng) })
    }

    /// The run to clear, where all pages but it are touched, so that the sum tells of the run.
    fn run(&self, run_pages: u32, rng: &mut Rng) -> Run {
        let only_small = self.huge_pages == 0 && self.shared == 0;
        let is_full = u64::from(self.small_pages) * PAGE_BYTES == self.span.end - self.span.start;
        if !only_small || !is_full || self.small_pages < run_pages * 4 {
            return Run::None;
        }
        let untouched = self.small_pages.saturating_sub(self.set);
        let is_settled =
            |cleared: &Cleared| (cleared.read_s - cleared.at_s) * self.small.rate.per_s >= SETTLED;
        let may_move = match &self.cleared {
            // No page of the run is touched: of the others there are few.
            Some(it @ Cleared { part: Part::Run(_), touched: 0, .. }) if it.read_s - it.at_s > COLD_RUN_S => {
                return Run::Cold;
            }
            // Pages of it that are touched later would be counted for another run.
            Some(it @ Cleared { part: Part::Run(run), touched, times, .. }) if *touched < run_pages => {
                match *times < RUN_CLEARINGS {
                    true => return Run::Clear(*run),
                    false if !is_settled(it) => return Run::Wait,
                    false => true,
                }
            }
            Some(it) => matches!(it.part, Part::Run(_)) || is_settled(it),
            None => false,
        };
        // In half of the cases a page of the run is among those that are not touched.
        let is_dense = untouched == 0 || may_move && untouched <= self.small_pages / (2 * run_pages);
        if !is_dense {
            return Run::None;
        }
        let places = u64::from(self.small_pages / run_pages);
        let start = self.span.start + rng.below(places) * u64::from(run_pages) * PAGE_BYTES;
        Run::Clear(Span { start, end: start + u64::from(run_pages) * PAGE_BYTES })
    }

    /// The range of a part.
    pub fn span_of(&self, part: Part) -> Span {
        match part {
            Part::Whole => self.span,
            Part::Run(run) => run,
            Part::Examined(start) => Span { start, end: start + HUGE_BYTES },
        }
    }

    /// A part was cleared, to be read when the process has run for `lead_s`.
    pub fn clear(&mut self, part: Part, at_s: f64, lead_s: f64) {
        let same = self.cleared.filter(|cleared| cleared.part == part);
        let pages = pages(self.span_of(part));
        let outside = match (part, same) {
            (Part::Whole, _) => 0,
            (_, Some(same)) => same.outside,
            (Part::Run(_), None) => self.set.saturating_sub(pages),
            (Part::Examined(_), None) => {
                (self.huge_pages * HUGE_PAGES + self.small_pages).saturating_sub(pages)
            }
        };
        let times = same.map_or(0, |same| same.times) + 1;
        self.cleared = Some(Cleared { part, at_s, read_s: at_s, touched: 0, outside, lead_s, times });
    }

    /// How much longer the process should run until it is read, if that is far from what was wanted.
    pub fn lacks_s(&self, ran_s: f64) -> Option<f64> {
        let cleared = self.cleared.filter(|cleared| cleared.read_s == cleared.at_s)?;
        (ran_s - cleared.at_s < cleared.lead_s / 4.0).then_some(cleared.lead_s)
    }

    /// Takes in what a mapping of it tells.
    pub fn add(&mut self, told: &Told) {
        match &mut self.told {
            None => self.told = Some(*told),
            Some(all) => {
                all.end = told.end;
                all.small += told.small;
                all.huge += told.huge;
                all.touched += told.touched;
                all.shared += told.shared;
                all.ran_to_s = told.ran_to_s;
            }
        }
    }

    /// The pass has left it.
    pub fn close(&mut self, pass_s: f64, is_first: bool) {
        let Some(told) = self.told.take() else { return };
        let is_first = is_first || std::mem::take(&mut self.is_anew);
        let own =
            |pages: u32| if self.is_cleared_at_once { pages } else { pages.saturating_sub(told.shared) };
        let (small, set) = (own(told.small), own(told.touched));
        let resident = |small: u32, huge: u32| small + huge * HUGE_PAGES;
        // A page is touched once when it becomes resident, however often it may be touched later.
        let growth = resident(small, told.huge).saturating_sub(resident(self.small_pages, self.huge_pages));
        let fresh = if is_first { 0 } else { growth.min(set) };
        self.fresh += u64::from(fresh);
        self.offset_s = told.from_s - pass_s;
        let was_known = !self.is_unknown();
        if let Some(mut cleared) = self.cleared.filter(|_| was_known || is_first) {
            if !matches!(cleared.part, Part::Whole) {
                cleared.outside += fresh;
            }
            self.window(&mut cleared, &told, small, set, fresh);
            // Windows of the part go on, until it is cleared again.
            self.cleared = Some(cleared);
        }
        self.set = set;
        (self.shared, self.is_file) = (told.shared, told.is_file);
        if self.examining.is_none() {
            (self.small_pages, self.huge_pages) = (small, told.huge);
        }
    }

    fn window(&mut self, cleared: &mut Cleared, told: &Told, small: u32, set: u32, fresh: u32) {
        let span = self.span_of(cleared.part);
        let bytes = (told.end - told.start).max(1) as f64;
        let share =
            ((span.start.saturating_sub(told.start) + (span.end - span.start) / 2) as f64 / bytes).min(1.0);
        let read_s = told.ran_from_s + (told.ran_to_s - told.ran_from_s) * share;
        let (seconds, before_s) = (read_s - cleared.read_s, cleared.read_s - cleared.at_s);
        if seconds <= 0.0 {
            return;
        }
        let window = |touched: u32, pages: u32| SampleWindow {
            seconds,
            before_s,
            touched: f64::from(touched.min(pages)),
            pages: f64::from(pages),
        };
        match cleared.part {
            Part::Whole => {
                // Small pages are fewer than a huge one's, or it does not matter which of them were touched.
                let huge = (set / HUGE_PAGES).min(told.huge);
                let touched = (set - huge * HUGE_PAGES).min(small).saturating_sub(fresh);
                if before_s == 0.0 {
                    self.huge.add(window(huge, told.huge), read_s);
                    self.small.add(window(touched, small.saturating_sub(fresh)), read_s);
                } else {
                    let was_huge = (cleared.touched / HUGE_PAGES).min(told.huge);
                    let was = (cleared.touched - was_huge * HUGE_PAGES).min(small);
                    self.huge.add(window(huge.saturating_sub(was_huge), told.huge - was_huge), read_s);
                    let left = (small - was).saturating_sub(fresh);
                    self.small.add(window(touched.saturating_sub(was), left), read_s);
                }
                cleared.touched = set;
            }
            Part::Run(_) | Part::Examined(_) => {
                let of = pages(span);
                let touched = set.saturating_sub(cleared.outside).min(of);
                let window = window(touched.saturating_sub(cleared.touched), of - cleared.touched);
                let seen =
                    if matches!(cleared.part, Part::Run(_)) { &mut self.small } else { &mut self.examined };
                seen.add(window, read_s);
                cleared.touched = touched;
            }
        }
        cleared.read_s = read_s;
    }

    /// The huge page that was examined is one again, and touched.
    pub fn end_examining(&mut self) {
        self.examining = None;
        self.cleared = None;
        self.set = self.huge_pages * HUGE_PAGES + self.small_pages;
    }

    /// A slice begins.
    pub fn begin(&mut self, at_s: f64) {
        for seen in [&mut self.small, &mut self.huge, &mut self.examined] {
            seen.read_s = Some(at_s);
        }
    }

    /// Accesses to its small pages in a second of the slice, and touches of pages that became resident in it.
    pub fn take(&mut self) -> (f64, u64) {
        let small = self.small.take() * f64::from(self.small_pages);
        (small, std::mem::take(&mut self.fresh))
    }
}

fn pages(span: Span) -> u32 {
    ((span.end - span.start) / PAGE_BYTES).min(u64::from(u32::MAX)) as u32
}

/// How long before it is read a page is cleared: about as long as tells most, or any time.
fn lead(window_s: Option<f64>, most_s: f64, any: bool, rng: &mut Rng) -> f64 {
    let most_s = most_s.max(SHORTEST_S);
    let lead = match window_s {
        Some(window_s) if !any => window_s * (2.0 * rng.unit_f64() - 1.0).exp(),
        _ => SHORTEST_S * (most_s / SHORTEST_S).powf(rng.unit_f64()),
    };
    lead.clamp(SHORTEST_S, most_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_changed_is_told_at_once() {
        let mut seen = Seen::new(AGEING);
        let mut slice = |per_s: f64| {
            let (seconds, pages) = (0.01, 1024.0_f64);
            let touched = (pages * -(-per_s * seconds).exp_m1()).round();
            seen.add(SampleWindow { seconds, before_s: 0.0, touched, pages }, 0.0);
            seen.take()
        };
        for per_s in [100.0, 100.0, 100.0, 2.0, 2.0, 100.0] {
            let told = slice(per_s);
            assert!((told / per_s).ln().abs() < 0.1, "{told} of {per_s}");
        }
    }
}
