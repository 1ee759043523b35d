//! A simulated process: pages that are accessed at known rates, at times of their own, and calls that take the time that they take on Linux.

use std::convert::Infallible;

use tiermem_base::Rng;
use tiermem_policy::accessed_bits::{HUGE_BYTES, HUGE_PAGES, PAGE_BYTES, PageTable, Span, Told};

pub const GRANULE_BYTES: u64 = 4 << 20;
pub const GRANULE_PAGES: usize = (GRANULE_BYTES / PAGE_BYTES) as usize;
/// Time of a call to clear a range besides its pages, of a page in it, and of a huge page.
const CLEAR_S: f64 = 2e-6;
const CLEAR_PAGE_S: f64 = 50e-9;
const CLEAR_HUGE_S: f64 = 7e-6;
const CLEAR_FILE_PAGE_S: f64 = 13e-9;
/// Time of the walk for a mapping, a page in it, a huge page.
const READ_S: f64 = 3e-6;
const READ_PAGE_S: f64 = 61e-9;
const READ_HUGE_S: f64 = 0.2e-6;
/// Mappings of a piece of the walk.
const PIECE: usize = 5;

/// A page, small or huge.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Accesses in a second.
    pub per_s: f64,
    pub is_set: bool,
    pub since_s: f64,
}

#[derive(Debug)]
pub struct Block {
    pub is_huge: bool,
    /// One of a huge page, or as many as there are small ones.
    pub pages: Vec<Page>,
}

/// A process whose memory begins at 0, in granules.
pub struct Process {
    pub now_s: f64,
    pub ran_s: f64,
    /// Whether it has to wait while it is looked at.
    pub shares_processor: bool,
    /// Whether others take its processor away, at any time, for some milliseconds each.
    pub is_interrupted: bool,
    /// Whether it waits for something else and does not run at all.
    pub is_waiting: bool,
    pub rng: Rng,
    /// Where heat moves all the time: accesses to each granule in a second, at a time.
    pub rates_at: Option<fn(f64) -> Vec<f64>>,
    /// Since when they are as they are.
    pub rates_from_s: f64,
    /// Of 2 MiB each.
    pub blocks: Vec<Block>,
    /// Those from this one on are of a file that other processes have mapped too.
    pub shared_from: usize,
    pub next: usize,
    /// Pages whose bits the program had to set again.
    pub set_again: u64,
    /// Huge pages that were mapped page by page.
    pub mapped_by_pages: u64,
    /// Granules that were read.
    pub read: usize,
}

impl Process {
    /// `rates` are accesses to a granule in a second, and whether it has huge pages.
    pub fn new(rates: &[(f64, bool)], seed: u64) -> Self {
        let mut blocks = Vec::new();
        for (per_s, is_huge) in rates {
            let page = |per_s: f64| Page { per_s, is_set: true, since_s: 0.0 };
            for _ in 0..GRANULE_BYTES / HUGE_BYTES {
                let pages = match is_huge {
                    true => vec![page(per_s * HUGE_BYTES as f64 / GRANULE_BYTES as f64)],
                    false => vec![page(per_s / GRANULE_PAGES as f64); HUGE_PAGES as usize],
                };
                blocks.push(Block { is_huge: *is_huge, pages });
            }
        }
        Process {
            now_s: 1.0,
            ran_s: 0.0,
            shares_processor: false,
            is_interrupted: false,
            is_waiting: false,
            rng: Rng::seeded(seed),
            rates_at: None,
            rates_from_s: 1.0,
            shared_from: blocks.len(),
            blocks,
            next: 0,
            set_again: 0,
            mapped_by_pages: 0,
            read: 0,
        }
    }

    /// From now on granules are accessed so often in a second.
    pub fn set_rates(&mut self, rates: &[f64]) {
        for at in 0..self.blocks.len() {
            self.touch_block(at);
            let block = &mut self.blocks[at];
            let per_s = rates[at / 2] / 2.0 / block.pages.len() as f64;
            block.pages.iter_mut().for_each(|page| page.per_s = per_s);
        }
    }

    /// Of these pages alone each is accessed so often in a second.
    pub fn set_pages(&mut self, pages: impl Fn(usize) -> f64) {
        for (at, page) in self.blocks.iter_mut().flat_map(|block| &mut block.pages).enumerate() {
            page.per_s = pages(at);
        }
    }

    pub fn touch_block(&mut self, block: usize) {
        for page in self.blocks[block].pages.iter_mut().filter(|page| !page.is_set) {
            let accessed = 1.0 - (-page.per_s * (self.ran_s - page.since_s)).exp();
            page.is_set = self.rng.unit_f64() < accessed;
            self.set_again += u64::from(page.is_set);
            page.since_s = self.ran_s;
        }
    }

    /// Time passes while it is looked at.
    pub fn works(&mut self, seconds: f64) {
        let ran_s = if self.shares_processor { 0.0 } else { self.runs_within(seconds) };
        (self.now_s, self.ran_s) = (self.now_s + seconds, self.ran_s + ran_s);
    }

    pub fn waits_until(&mut self, until_s: f64) {
        /// Heat that moves is still for such a time.
        const STEP_S: f64 = 0.02;
        while let Some(rates_at) = self.rates_at.filter(|_| until_s >= self.rates_from_s + STEP_S) {
            self.passes_until(self.rates_from_s + STEP_S);
            self.rates_from_s += STEP_S;
            self.set_rates(&rates_at(self.rates_from_s));
        }
        self.passes_until(until_s);
    }

    pub fn passes_until(&mut self, until_s: f64) {
        let seconds = (until_s - self.now_s).max(0.0);
        let ran_s = self.runs_within(seconds);
        (self.now_s, self.ran_s) = (self.now_s + seconds, self.ran_s + ran_s);
    }

    /// How long it runs within so many seconds from now.
    pub fn runs_within(&self, seconds: f64) -> f64 {
        /// One that is interrupted runs for the first milliseconds of such a time.
        const TURN_S: f64 = 8.3e-3;
        const RUNS_S: f64 = 2.9e-3;
        let until = |at_s: f64| (at_s / TURN_S).floor() * RUNS_S + (at_s % TURN_S).min(RUNS_S);
        match (self.is_waiting, self.is_interrupted) {
            (true, _) => 0.0,
            (false, true) => until(self.now_s + seconds) - until(self.now_s),
            (false, false) => seconds,
        }
    }

    pub fn map_by_pages(&mut self, address: u64) {
        self.mapped_by_pages += 1;
        let block = &mut self.blocks[(address / HUGE_BYTES) as usize];
        assert!(block.is_huge && address.is_multiple_of(HUGE_BYTES));
        let [page] = block.pages[..] else { panic!() };
        block.pages = vec![Page { per_s: page.per_s / f64::from(HUGE_PAGES), ..page }; HUGE_PAGES as usize];
        block.is_huge = false;
    }

    pub fn collapse(&mut self, address: u64) {
        let block = &mut self.blocks[(address / HUGE_BYTES) as usize];
        let per_s = block.pages.iter().map(|page| page.per_s).sum();
        block.pages = vec![Page { per_s, is_set: true, since_s: self.ran_s }];
        block.is_huge = true;
    }

    pub fn spans(&self) -> Vec<Span> {
        let count = self.blocks.len() as u64 / 2;
        (0..count).map(|at| Span { start: at * GRANULE_BYTES, end: (at + 1) * GRANULE_BYTES }).collect()
    }
}

impl PageTable for Process {
    type Error = Infallible;

    fn now_s(&mut self) -> f64 {
        self.works(1e-7);
        self.now_s
    }

    fn ran_s(&mut self) -> f64 {
        self.works(5e-7);
        self.ran_s
    }

    fn pause(&mut self, seconds: f64) {
        self.waits_until(self.now_s + seconds);
    }

    fn clear(&mut self, spans: &[Span]) -> Result<(), Infallible> {
        for span in spans {
            self.works(CLEAR_S);
            for at in span.start / HUGE_BYTES..span.end.div_ceil(HUGE_BYTES).min(self.shared_from as u64) {
                self.touch_block(at as usize);
                let start = at * HUGE_BYTES;
                let (now_s, mut pages) = (self.ran_s, 0);
                let block = &mut self.blocks[at as usize];
                if block.is_huge {
                    assert!(
                        span.start <= start && span.end >= start + HUGE_BYTES,
                        "a huge page was divided: {span:?}"
                    );
                    block.pages[0] = Page { is_set: false, since_s: now_s, ..block.pages[0] };
                    self.works(CLEAR_HUGE_S);
                    continue;
                }
                for (page, address) in block.pages.iter_mut().zip((start..).step_by(PAGE_BYTES as usize)) {
                    if span.start <= address && address < span.end {
                        *page = Page { is_set: false, since_s: now_s, ..*page };
                        pages += 1;
                    }
                }
                self.works(CLEAR_PAGE_S * f64::from(pages));
            }
        }
        Ok(())
    }

    fn clear_files(&mut self) -> Result<(), Infallible> {
        for at in self.shared_from..self.blocks.len() {
            self.touch_block(at);
            let since_s = self.ran_s;
            self.blocks[at].pages.iter_mut().for_each(|page| (page.is_set, page.since_s) = (false, since_s));
            self.works(CLEAR_FILE_PAGE_S * f64::from(HUGE_PAGES));
        }
        Ok(())
    }

    fn read(&mut self, told: &mut Vec<Told>) -> Result<bool, Infallible> {
        if self.next * 2 >= self.blocks.len() {
            self.next = 0;
            return Ok(false);
        }
        let last = (self.next + PIECE).min(self.blocks.len() / 2);
        self.read += last - self.next;
        for granule in self.next..last {
            let start = granule as u64 * GRANULE_BYTES;
            let mut it = Told {
                start,
                end: start + GRANULE_BYTES,
                from_s: self.now_s,
                is_file: granule * 2 >= self.shared_from,
                ran_from_s: self.ran_s,
                ..Told::default()
            };
            self.works(READ_S);
            for at in [granule * 2, granule * 2 + 1] {
                self.touch_block(at);
                let block = &self.blocks[at];
                let (is_huge, set) =
                    (block.is_huge, block.pages.iter().filter(|page| page.is_set).count() as u32);
                if is_huge {
                    (it.huge, it.touched) = (it.huge + 1, it.touched + set * HUGE_PAGES);
                    self.works(READ_HUGE_S);
                } else {
                    (it.small, it.touched) = (it.small + HUGE_PAGES, it.touched + set);
                    it.shared += if it.is_file { HUGE_PAGES } else { 0 };
                    self.works(READ_PAGE_S * f64::from(HUGE_PAGES));
                }
            }
            it.ran_to_s = self.ran_s;
            told.push(it);
        }
        self.next = last;
        Ok(true)
    }
}
