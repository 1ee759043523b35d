//! The sampler: plans what to clear for a pass, drives the pass, and says in the end how hot each granule is.

use tiermem_base::Rng;

use super::granule::{Granule, Part, Wish};
use super::shared_files::{SharedFiles, cleared_at_once};
use super::token_bucket::TokenBucket;
use super::{Clearing, PageTable, Settings, Span, Told};

/// Pages of a run, all granules together: more say more, and cost the program more.
const RUNS_PAGES: u32 = 4096;
/// Least and most pages of a run.
const RUN_PAGES: std::ops::RangeInclusive<u32> = 16..=64;
/// Ranges that are cleared by one call: the time of each is known the better the fewer they are.
const CALL_RANGES: usize = 32;
/// Clearings that are due within such a part of their lead are made together, and those within less time than this.
const TOGETHER: f64 = 1.0 / 8.0;
const TOGETHER_S: f64 = 1e-3;
/// Time of a piece of the walk, before one was measured.
const PIECE_S: f64 = 300e-6;
/// A process that waits for the reader's processor is let run before a piece is read, for so long at most, and in a pass for such a
/// part of what the pass takes without.
const PAUSE_S: f64 = 2e-3;
const PAUSES_PART: f64 = 2.0;
/// One that runs for less than such a part of the time waits for something else.
const RUNS: f64 = 0.1;
/// Huge pages that are examined in a second, and the most at once, if none was for some seconds. Each costs the process half a
/// millisecond: 512 bits are set again, and in the end its bytes are copied to a huge page.
const EXAMINED_PER_S: f64 = 16.0;
const EXAMINED_MAX: f64 = 64.0;
/// Least and most threads that a process is taken to run.
const THREADS: std::ops::RangeInclusive<f64> = 0.02..=1024.0;

/// A clearing that is planned.
#[derive(Clone, Copy, Debug)]
struct Due {
    at_s: f64,
    granule: usize,
    part: Part,
    lead_s: f64,
}

/// Decides which accessed bits to clear when, and estimates heat. See the [module](super).
#[derive(Debug)]
pub struct Sampler {
    settings: Settings,
    pub(super) rng: Rng,
    /// In the order of addresses.
    pub(super) granules: Vec<Granule>,
    /// The latest first.
    due: Vec<Due>,
    /// Pages that may be cleared and touched again.
    pages: TokenBucket,
    /// Time of a piece of the walk.
    piece_s: f64,
    /// Seconds for which the process runs in a second.
    threads: f64,
    /// Both clocks when the last window was opened.
    opened: Option<(f64, f64)>,
    /// When the slice began, with its first window, by the time for which the process ran: what comes between two slices is of none.
    began_s: Option<f64>,
    /// When the next pass is planned to begin.
    read_at_s: f64,
    passes: u64,
    /// How long the process had run when the last pass began, of one that waits for most of the time.
    passed_s: Option<f64>,
    told: Vec<Told>,
    /// Of huge pages.
    pub(super) examinations: TokenBucket,
    shared_files: SharedFiles,
    pub(super) slices: u64,
}

impl Sampler {
    /// Of a process of which nothing is known.
    pub fn new(settings: Settings) -> Self {
        Sampler {
            rng: Rng::seeded(settings.seed),
            settings,
            granules: Vec::new(),
            due: Vec::new(),
            // What was not used for a second is lost: the process's next second has its own.
            pages: TokenBucket::new(settings.pages_per_s, settings.pages_per_s),
            piece_s: PIECE_S,
            threads: 1.0,
            opened: None,
            began_s: None,
            read_at_s: 0.0,
            passes: 0,
            passed_s: None,
            told: Vec::new(),
            examinations: TokenBucket::new(EXAMINED_PER_S, EXAMINED_MAX),
            shared_files: SharedFiles::new(settings),
            slices: 0,
        }
    }

    /// The granules that there are now, in the order of addresses, none overlapping another.
    pub fn set_granules(&mut self, spans: &[Span]) {
        let mut known = std::mem::take(&mut self.granules).into_iter().peekable();
        self.granules.reserve(spans.len());
        for span in spans {
            while known.next_if(|granule| granule.span.start < span.start).is_some() {}
            let same = known.next_if(|granule| granule.span == *span);
            self.granules.push(same.unwrap_or_else(|| Granule::new(*span)));
        }
        self.due.clear();
    }

    /// Opens a window for all granules, and plans what is to be cleared until a pass that begins at `read_at_s`.
    ///
    /// # Errors
    /// If the process cannot be looked at any more.
    pub fn open<P: PageTable>(&mut self, table: &mut P, read_at_s: f64) -> Result<(), P::Error> {
        let (now_s, ran_s) = (table.now_s(), table.ran_s());
        self.opened = Some((now_s, ran_s));
        self.read_at_s = read_at_s;
        if self.began_s.is_none() {
            self.began_s = Some(ran_s);
            self.granules.iter_mut().for_each(|granule| granule.begin(ran_s));
        }
        self.due.clear();
        if self.settings.clearing == Clearing::AtOnce {
            table.clear(&[Span::ALL])?;
            let took_s = table.ran_s() - ran_s;
            cleared_at_once(&mut self.granules, (ran_s, took_s), |_| true);
            return Ok(());
        }
        self.shared_files.clear(table, &mut self.granules, self.slices)?;
        let every_page = self.settings.clearing == Clearing::EveryPage;
        let count = u32::try_from(self.granules.len()).unwrap_or(u32::MAX).max(1);
        let run_pages = (RUNS_PAGES / count).clamp(*RUN_PAGES.start(), *RUN_PAGES.end());
        let gap_s = (read_at_s - now_s).max(0.0);
        let mut wishes: Vec<(usize, Wish)> = Vec::new();
        for (number, granule) in self.granules.iter().enumerate() {
            let gap_s = (gap_s + granule.offset_s) * self.threads;
            let wish = granule.wish(gap_s, run_pages, every_page, &mut self.rng);
            wishes.extend(wish.map(|wish| (number, wish)));
        }
        let most = self.allowed(now_s, &wishes);
        for (number, wish) in wishes {
            let is_taken = every_page || wish.pages <= most || self.rng.unit_f64() < most / wish.pages;
            if is_taken {
                self.pages.spend(if every_page { 0.0 } else { wish.pages });
                let lead_s = wish.lead_s / self.threads;
                let step = (lead_s * TOGETHER).max(TOGETHER_S);
                let at_s = read_at_s + self.granules[number].offset_s - lead_s;
                let at_s = if lead_s > 2.0 * TOGETHER_S { (at_s / step).floor() * step } else { at_s };
                self.due.push(Due { at_s, granule: number, part: wish.part, lead_s: wish.lead_s });
            }
        }
        self.due.sort_by(|one, other| other.at_s.total_cmp(&one.at_s));
        self.clear_due(table)
    }

    /// Whether pages of files are told about whoever else has mapped them.
    pub fn clears_shared_files(&self) -> bool {
        self.shared_files.are_cleared_at_once()
    }

    /// What a wish may cost so that all together cost no more than is allowed: each gets as much, or what it needs.
    fn allowed(&mut self, now_s: f64, wishes: &[(usize, Wish)]) -> f64 {
        self.pages.reckon(now_s);
        let mut costs: Vec<f64> = wishes.iter().map(|(_, wish)| wish.pages).collect();
        costs.sort_by(f64::total_cmp);
        let mut left = self.pages.left();
        for (number, cost) in costs.iter().enumerate() {
            let each = left / (costs.len() - number) as f64;
            if *cost > each {
                return each;
            }
            left -= cost;
        }
        f64::INFINITY
    }

    /// What is planned for pages that are mapped one by one is not for the huge page that they are again.
    pub(super) fn forget_examined_parts(&mut self) {
        self.due.retain(|due| !matches!(due.part, Part::Examined(_)));
    }

    /// When the next clearing is due; none if all are made, or wait for the pass.
    pub fn due_s(&self) -> Option<f64> {
        self.due.last().map(|due| due.at_s)
    }

    /// Clears what is due.
    ///
    /// # Errors
    /// If the process cannot be looked at any more.
    pub fn clear_due<P: PageTable>(&mut self, table: &mut P) -> Result<(), P::Error> {
        let now_s = table.now_s();
        self.clear_until(table, now_s, 0)
    }

    /// Clears what is due until a time, and what lies below a granule: it is read next.
    fn clear_until<P: PageTable>(
        &mut self,
        table: &mut P,
        until_s: f64,
        below: usize,
    ) -> Result<(), P::Error> {
        let left = self.due.partition_point(|due| due.at_s > until_s);
        let mut now = self.due.split_off(left);
        now.extend(self.due.extract_if(.., |due| due.granule < below));
        for call in now.chunks(CALL_RANGES) {
            let spans: Vec<Span> =
                call.iter().map(|due| self.granules[due.granule].span_of(due.part)).collect();
            let from_s = table.ran_s();
            table.clear(&spans)?;
            let each_s = (table.ran_s() - from_s) / spans.len() as f64;
            for (number, due) in call.iter().enumerate() {
                let at_s = from_s + each_s * (number + 1) as f64;
                self.granules[due.granule].clear(due.part, at_s, due.lead_s);
            }
        }
        Ok(())
    }

    /// Walks over all mappings: clears what is to be read soon, and takes in what the kernel tells. Of a process that waits, and has not run
    /// since the last pass began, all that is known.
    ///
    /// # Errors
    /// If the process cannot be looked at any more.
    pub fn pass<P: PageTable>(&mut self, table: &mut P) -> Result<(), P::Error> {
        if self.threads <= RUNS {
            let ran_s = table.ran_s();
            if self.passed_s.replace(ran_s) == Some(ran_s) {
                self.opened = None;
                return Ok(());
            }
        }
        let (pass_s, mut paused_s) = (table.now_s(), 0.0);
        let is_first = self.passes == 0;
        let mut at = 0;
        let mut told = std::mem::take(&mut self.told);
        loop {
            let before_s = table.now_s();
            // Whether the walk is early or late by what was planned shows where it is now.
            let next = self.granules[at..].iter().position(|granule| !granule.is_unknown());
            let planned_s =
                next.map_or(f64::INFINITY, |next| self.read_at_s + self.granules[at + next].offset_s);
            let below = (at + next.unwrap_or(0) + told.len() + 1).min(self.granules.len());
            self.clear_until(table, planned_s + self.piece_s, below)?;
            let may_pause =
                self.threads > RUNS && paused_s < PAUSE_S + (before_s - pass_s - paused_s) * PAUSES_PART;
            if may_pause {
                let ran_s = table.ran_s();
                let lacks = self.granules[at..below].iter().filter_map(|granule| granule.lacks_s(ran_s));
                if let Some(lead_s) = lacks.min_by(f64::total_cmp) {
                    let pause_s = (lead_s / self.threads).min(PAUSE_S);
                    table.pause(pause_s);
                    paused_s += pause_s;
                }
            }
            let from_s = table.now_s();
            told.clear();
            let goes_on = table.read(&mut told)?;
            self.piece_s += ((table.now_s() - from_s) - self.piece_s) / 8.0;
            for it in &told {
                while self.granules.get(at).is_some_and(|granule| granule.span.end <= it.start) {
                    self.granules[at].close(pass_s, is_first);
                    at += 1;
                }
                // A mapping that is larger than a granule was not there when granules were made.
                let granule = self.granules.get_mut(at);
                if let Some(granule) = granule.filter(|of| of.span.start <= it.start && it.end <= of.span.end)
                {
                    granule.add(it);
                }
            }
            if !goes_on {
                break;
            }
        }
        self.told = told;
        self.granules[at..].iter_mut().for_each(|granule| granule.close(pass_s, is_first));
        self.passes += 1;
        if let Some((now_s, ran_s)) = self.opened.take() {
            let threads = (table.ran_s() - ran_s) / (table.now_s() - now_s).max(f64::MIN_POSITIVE);
            self.threads = f64::midpoint(self.threads, threads).clamp(*THREADS.start(), *THREADS.end());
        }
        Ok(())
    }

    /// Tells each granule that was accessed since the last time with its accesses, and begins the next slice.
    pub fn take<P: PageTable>(&mut self, table: &mut P, mut each: impl FnMut(Span, f64)) {
        self.slices += 1;
        self.examinations.reckon(table.now_s());
        let ran_s = table.ran_s();
        let slice_s = ran_s - self.began_s.take().unwrap_or(ran_s);
        let huge_rates = self.huge_rates();
        for (granule, huge_rate) in self.granules.iter_mut().zip(huge_rates) {
            let (small_per_s, fresh) = granule.take();
            let huge_per_s = huge_rate * f64::from(granule.huge_pages);
            let accesses = (small_per_s + huge_per_s) * slice_s + fresh as f64;
            if accesses > 0.0 {
                each(granule.span, accesses);
            }
        }
        if self.settings.clearing == Clearing::Sampled {
            self.shared_files.choose(&mut self.granules);
        }
    }
}
