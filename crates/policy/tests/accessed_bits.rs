//! Heat from accessed bits, over a simulated kernel: pages that are accessed at known rates, at times of their own, and calls
//! that take the time that they take on Linux.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;

use proptest::prelude::*;
use tiermem_base::Rng;
use tiermem_policy::accessed_bits::{
    HUGE_BYTES, HUGE_PAGES, PAGE_BYTES, Pacing, PageTable, Sampler, Settings, Span, Told, Window,
};

const GRANULE_BYTES: u64 = 4 << 20;
const GRANULE_PAGES: usize = (GRANULE_BYTES / PAGE_BYTES) as usize;
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
struct Page {
    /// Accesses in a second.
    per_s: f64,
    is_set: bool,
    since_s: f64,
}

#[derive(Debug)]
struct Block {
    is_huge: bool,
    /// One of a huge page, or as many as there are small ones.
    pages: Vec<Page>,
}

/// A process whose memory begins at 0, in granules.
struct Process {
    now_s: f64,
    ran_s: f64,
    /// Whether it has to wait while it is looked at.
    shares_processor: bool,
    /// Whether others take its processor away, at any time, for some milliseconds each.
    is_interrupted: bool,
    /// Whether it waits for something else and does not run at all.
    is_waiting: bool,
    rng: Rng,
    /// Where heat moves all the time: accesses to each granule in a second, at a time.
    rates_at: Option<fn(f64) -> Vec<f64>>,
    /// Since when they are as they are.
    rates_from_s: f64,
    /// Of 2 MiB each.
    blocks: Vec<Block>,
    /// Those from this one on are of a file that other processes have mapped too.
    shared_from: usize,
    next: usize,
    /// Pages whose bits the program had to set again.
    set_again: u64,
    /// Huge pages that were mapped page by page.
    mapped_by_pages: u64,
    /// Granules that were read.
    read: usize,
}

impl Process {
    /// `rates` are accesses to a granule in a second, and whether it has huge pages.
    fn new(rates: &[(f64, bool)], seed: u64) -> Self {
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
    fn set_rates(&mut self, rates: &[f64]) {
        for at in 0..self.blocks.len() {
            self.touch_block(at);
            let block = &mut self.blocks[at];
            let per_s = rates[at / 2] / 2.0 / block.pages.len() as f64;
            block.pages.iter_mut().for_each(|page| page.per_s = per_s);
        }
    }

    /// Of these pages alone each is accessed so often in a second.
    fn set_pages(&mut self, pages: impl Fn(usize) -> f64) {
        for (at, page) in self.blocks.iter_mut().flat_map(|block| &mut block.pages).enumerate() {
            page.per_s = pages(at);
        }
    }

    fn touch_block(&mut self, block: usize) {
        for page in self.blocks[block].pages.iter_mut().filter(|page| !page.is_set) {
            let accessed = 1.0 - (-page.per_s * (self.ran_s - page.since_s)).exp();
            page.is_set = self.rng.unit_f64() < accessed;
            self.set_again += u64::from(page.is_set);
            page.since_s = self.ran_s;
        }
    }

    /// Time passes while it is looked at.
    fn works(&mut self, seconds: f64) {
        let ran_s = if self.shares_processor { 0.0 } else { self.runs_within(seconds) };
        (self.now_s, self.ran_s) = (self.now_s + seconds, self.ran_s + ran_s);
    }

    fn waits_until(&mut self, until_s: f64) {
        /// Heat that moves is still for such a time.
        const STEP_S: f64 = 0.02;
        while let Some(rates_at) = self.rates_at.filter(|_| until_s >= self.rates_from_s + STEP_S) {
            self.passes_until(self.rates_from_s + STEP_S);
            self.rates_from_s += STEP_S;
            self.set_rates(&rates_at(self.rates_from_s));
        }
        self.passes_until(until_s);
    }

    fn passes_until(&mut self, until_s: f64) {
        let seconds = (until_s - self.now_s).max(0.0);
        let ran_s = self.runs_within(seconds);
        (self.now_s, self.ran_s) = (self.now_s + seconds, self.ran_s + ran_s);
    }

    /// How long it runs within so many seconds from now.
    fn runs_within(&self, seconds: f64) -> f64 {
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

    fn map_by_pages(&mut self, address: u64) {
        self.mapped_by_pages += 1;
        let block = &mut self.blocks[(address / HUGE_BYTES) as usize];
        assert!(block.is_huge && address.is_multiple_of(HUGE_BYTES));
        let [page] = block.pages[..] else { panic!() };
        block.pages = vec![Page { per_s: page.per_s / f64::from(HUGE_PAGES), ..page }; HUGE_PAGES as usize];
        block.is_huge = false;
    }

    fn collapse(&mut self, address: u64) {
        let block = &mut self.blocks[(address / HUGE_BYTES) as usize];
        let per_s = block.pages.iter().map(|page| page.per_s).sum();
        block.pages = vec![Page { per_s, is_set: true, since_s: self.ran_s }];
        block.is_huge = true;
    }

    fn spans(&self) -> Vec<Span> {
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

/// Heat of each granule as told in each slice of a second.
fn told(process: &mut Process, slices: usize, mut change: impl FnMut(&mut Process, usize)) -> Vec<Vec<f64>> {
    let mut sampler = Sampler::new(Settings::default());
    let mut all = Vec::new();
    let mut look_s = 0.0;
    for slice in 0..slices {
        change(process, slice);
        let end_s = process.now_s + 1.0;
        sampler.set_granules(&process.spans());
        let mut examined = sampler.examine(|_| true);
        examined.iter().for_each(|huge| process.map_by_pages(*huge));
        let mut pacing = Pacing::new(1.0, 12, look_s);
        for number in 0.. {
            let Window { seconds, is_last } = pacing.next(end_s - process.now_s, look_s);
            let read_s = process.now_s + seconds;
            sampler.open(process, read_s).unwrap();
            // As the recorder does: after the first pass, when the next window is open already.
            if number == 1 && !examined.is_empty() {
                examined.iter().for_each(|huge| process.collapse(*huge));
                sampler.end_examining();
                examined.clear();
            }
            while let Some(due_s) = sampler.due_s().filter(|due_s| *due_s < read_s) {
                process.waits_until(due_s);
                sampler.clear_due(process).unwrap();
            }
            process.waits_until(read_s);
            let from_s = process.now_s;
            sampler.pass(process).unwrap();
            look_s = process.now_s - from_s;
            if is_last {
                break;
            }
        }
        if !examined.is_empty() {
            examined.iter().for_each(|huge| process.collapse(*huge));
            sampler.end_examining();
        }
        let mut heat = vec![0.0; process.blocks.len() / 2];
        sampler.take(process, |span, accesses| heat[(span.start / GRANULE_BYTES) as usize] = accesses);
        all.push(heat);
    }
    all
}

fn sum(told: &[Vec<f64>]) -> Vec<f64> {
    (0..told[0].len()).map(|at| told.iter().map(|heat| heat[at]).sum()).collect()
}

fn share(heat: &[f64], of: std::ops::Range<usize>) -> f64 {
    heat[of].iter().sum::<f64>() / heat.iter().sum::<f64>()
}

/// A hot quarter, the second one, that has such a share of all accesses besides its part of the rest.
fn hot_quarter(granules: usize, per_s: f64, hot: f64) -> Vec<f64> {
    let quarter = granules / 4;
    let rest = per_s * (1.0 - hot) / granules as f64;
    let of = |at: usize| rest + if at / quarter == 1 { per_s * hot / quarter as f64 } else { 0.0 };
    (0..granules).map(of).collect()
}

/// Rank correlation of heats.
fn rank_correlation(one: &[f64], other: &[f64]) -> f64 {
    let ranks = |of: &[f64]| {
        let mut order: Vec<usize> = (0..of.len()).collect();
        order.sort_by(|one, other| of[*one].total_cmp(&of[*other]));
        let mut ranks = vec![0.0; of.len()];
        order.iter().enumerate().for_each(|(rank, at)| ranks[*at] = rank as f64);
        ranks
    };
    let (one, other) = (ranks(one), ranks(other));
    let n = one.len() as f64;
    let squares: f64 = one.iter().zip(&other).map(|(one, other)| (one - other).powi(2)).sum();
    1.0 - 6.0 * squares / (n * (n * n - 1.0))
}

fn rates_of(heat: &[f64], is_huge: impl Fn(usize) -> bool) -> Vec<(f64, bool)> {
    heat.iter().enumerate().map(|(at, per_s)| (*per_s, is_huge(at))).collect()
}

/// What the program does again for each second that it is looked at: the setting, and what a change of heat takes.
fn assert_cheap(process: &Process, seconds: u64) {
    let most = Settings::default().pages_per_s * 2.0;
    assert!((process.set_again / seconds) as f64 <= most, "{} pages a second", process.set_again / seconds);
}

#[test]
fn a_hot_quarter_is_told_at_every_size_of_small_and_huge_pages() {
    for (mib, is_huge) in
        [(256, false), (1024, false), (4096, false), (16384, false), (256, true), (1024, true)]
    {
        let granules = mib / 4;
        let heat = hot_quarter(granules, 2e7, 0.9);
        let mut process = Process::new(&rates_of(&heat, |_| is_huge), 7);
        let told = told(&mut process, 6, |_, _| {});
        for (slice, heat) in told.iter().enumerate().skip(2) {
            let share = share(heat, granules / 4..granules / 2);
            let least = if is_huge { 0.8 } else { 0.875 };
            assert!((least..0.975).contains(&share), "{mib} MiB, huge {is_huge}, slice {slice}: {share}");
        }
        let share = share(&sum(&told[2..]), granules / 4..granules / 2);
        assert!((0.855..0.97).contains(&share), "{mib} MiB, huge {is_huge}: {share}");
        assert_cheap(&process, 6);
    }
}

#[test]
fn huge_and_small_pages_are_told_on_one_scale() {
    // One half has huge pages and nine of ten accesses; then the other way round.
    for hot in [0.9, 0.1] {
        let heat: Vec<f64> = (0..64).map(|at| if at < 32 { hot } else { 1.0 - hot } * 2e7 / 32.0).collect();
        let mut process = Process::new(&rates_of(&heat, |at| at < 32), 3);
        let told = told(&mut process, 6, |_, _| {});
        let share = share(&sum(&told[2..]), 0..32);
        assert!((share - hot).abs() < 0.05, "{share} of {hot}");
        assert!(process.blocks[..64].iter().all(|block| block.is_huge), "a huge page was lost");
    }
}

#[test]
fn a_program_that_waits_for_a_processor_is_told_alike() {
    for (is_huge, is_interrupted) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut process = Process::new(&rates_of(&hot_quarter(256, 2e7, 0.9), |_| is_huge), 5);
        (process.shares_processor, process.is_interrupted) = (!is_interrupted, is_interrupted);
        let told = told(&mut process, 6, |_, _| {});
        let share = share(&sum(&told[2..]), 64..128);
        let least = if is_huge && is_interrupted { 0.8 } else { 0.85 };
        assert!((least..0.975).contains(&share), "huge {is_huge}, interrupted {is_interrupted}: {share}");
    }
}

#[test]
fn heat_that_moves_is_told_where_it_is() {
    for is_huge in [false, true] {
        let quarters: Vec<Vec<f64>> = (0..4)
            .map(|quarter| {
                let mut heat = hot_quarter(256, 2e7, 0.9);
                heat.rotate_right(quarter * 64);
                heat
            })
            .collect();
        let mut process = Process::new(&rates_of(&quarters[0], |_| is_huge), 11);
        let told = told(&mut process, 16, |process, slice| process.set_rates(&quarters[slice / 4]));
        // Huge pages that are hot now were examined when they were not.
        for slice in (0..16).filter(|slice| slice % 4 == 3) {
            let hot = (64 + slice / 4 * 64) % 256;
            let share = share(&told[slice], hot..hot + 64);
            assert!(share > 0.75, "huge {is_huge}, slice {slice}: {share}");
        }
    }
}

#[test]
fn what_comes_between_two_slices_is_of_none() {
    let heat = hot_quarter(64, 2e6, 0.9);
    let mut process = Process::new(&rates_of(&heat, |_| false), 5);
    let all = told(&mut process, 12, |process, slice| {
        if slice >= 8 {
            process.waits_until(process.now_s + 4.0);
            let mut other = heat.clone();
            other.rotate_right(slice % 4 * 16);
            process.set_rates(&other);
        }
    });
    let accesses: Vec<f64> = all.iter().map(|heat| heat.iter().sum()).collect();
    assert!(accesses[4..].iter().all(|it| (1e6..3e6).contains(it)), "{accesses:?}");
}

/// A window of an eighth of memory has nine tenths of all accesses, and passes through it in eight seconds.
fn moving<const GRANULES: usize>(at_s: f64) -> Vec<f64> {
    let window = GRANULES as f64 / 8.0;
    let first = at_s / 8.0 * (GRANULES as f64 - window) % (GRANULES as f64 - window);
    let of = |at: usize| ((at + 1) as f64).min(first + window) - (at as f64).max(first);
    (0..GRANULES).map(|at| 2e7 * (0.1 / GRANULES as f64 + 0.9 * of(at).max(0.0) / window)).collect()
}

/// The hot quarter is another one every two seconds.
fn phases<const GRANULES: usize>(at_s: f64) -> Vec<f64> {
    let mut heat = hot_quarter(GRANULES, 2e7, 0.9);
    heat.rotate_right([1, 3, 0, 2][(at_s / 2.0) as usize % 4] * GRANULES / 4);
    heat
}

/// In each slice, which are those from the first second on: the share of the quarter of granules that is hottest, as told.
fn told_of_hottest(told: &[Vec<f64>], rates_at: fn(f64) -> Vec<f64>) -> Vec<f64> {
    const STEPS: usize = 50;
    let of_slice = |(slice, heat): (usize, &Vec<f64>)| {
        let mut rates = vec![0.0; heat.len()];
        for step in 0..STEPS {
            let at_s = 1.0 + slice as f64 + step as f64 / STEPS as f64;
            rates.iter_mut().zip(rates_at(at_s)).for_each(|(sum, rate)| *sum += rate);
        }
        let mut order: Vec<usize> = (0..heat.len()).collect();
        order.sort_by(|one, other| rates[*other].total_cmp(&rates[*one]));
        let hottest: f64 = order[..heat.len() / 4].iter().map(|at| heat[*at]).sum();
        hottest / heat.iter().sum::<f64>()
    };
    told.iter().enumerate().map(of_slice).collect()
}

#[test]
fn heat_that_moves_all_the_time_or_jumps_is_told_where_it_was() {
    type Rates = fn(f64) -> Vec<f64>;
    // 92.5% in all of them. A larger program is looked at less often.
    let cases: [(Rates, f64); 4] =
        [(moving::<64>, 0.87), (phases::<64>, 0.91), (moving::<256>, 0.81), (phases::<256>, 0.89)];
    for (rates_at, least) in cases {
        let mut process = Process::new(&rates_of(&rates_at(1.0), |_| false), 12);
        process.rates_at = Some(rates_at);
        let told = told(&mut process, 14, |_, _| {});
        let mut shares = told_of_hottest(&told, rates_at).split_off(2);
        shares.sort_by(f64::total_cmp);
        assert!(shares[6] > least, "{shares:?}");
        assert_cheap(&process, 14);
    }
}

#[test]
fn memory_that_other_processes_have_mapped_too_is_told_on_the_scale_of_the_rest() {
    // A quarter of the accesses are to own memory, the rest to a file's, of whose granules each second one is hot.
    for (granules, per_s) in [(32, 2e5), (64, 2e6), (256, 2e6)] {
        let of = |at: usize| match at {
            at if at < granules / 4 => per_s / 4.0 / (granules as f64 / 4.0),
            at if at % 2 == 0 => per_s * 0.7 / (granules as f64 * 0.375),
            _ => per_s * 0.05 / (granules as f64 * 0.375),
        };
        let heat: Vec<f64> = (0..granules).map(of).collect();
        let mut process = Process::new(&rates_of(&heat, |_| false), 4);
        process.shared_from = granules / 4 * 2;
        let told = sum(&told(&mut process, 12, |_, _| {})[4..]);
        let own = share(&told, 0..granules / 4);
        assert!((own - 0.25).abs() < 0.08, "{granules} granules at {per_s}: {own}");
        let hot: f64 = (granules / 4..granules).filter(|at| at % 2 == 0).map(|at| told[at]).sum();
        let hot = hot / told.iter().sum::<f64>();
        assert!((hot - 0.7).abs() < 0.08, "{granules} granules at {per_s}: {hot}");
        // What files may cost comes on top.
        let most = Settings::default().pages_per_s * 3.0;
        assert!((process.set_again / 12) as f64 <= most, "{} pages a second", process.set_again / 12);
    }
}

#[test]
fn a_few_hot_pages_are_found_in_every_slice_and_others_are_not() {
    // Of 256 MiB, 64 pages at each 16 MiB.
    let mut process = Process::new(&vec![(0.0, false); 64], 2);
    process.set_pages(|page| if page % 4096 < 64 { 500.0 } else { 0.0 });
    let told = told(&mut process, 5, |_, _| {});
    for heat in &told[2..] {
        let found: Vec<usize> = (0..64).filter(|at| heat[*at] > 0.0).collect();
        assert_eq!(found, (0..64).step_by(4).collect::<Vec<_>>());
        let accesses: f64 = heat.iter().sum();
        assert!((accesses / (16.0 * 64.0 * 500.0)).ln().abs() < 0.5, "{accesses}");
    }
}

#[test]
fn what_is_not_accessed_costs_nothing_and_is_not_told() {
    let mut process = Process::new(&[vec![(0.0, false); 256], vec![(0.0, true); 256]].concat(), 2);
    let told = told(&mut process, 3, |_, _| {});
    assert_eq!((sum(&told).iter().sum::<f64>(), process.set_again), (0.0, 0));
}

#[test]
fn a_process_that_waits_is_not_read_and_one_that_runs_again_is_told() {
    let heat = hot_quarter(64, 2e6, 0.9);
    let mut process = Process::new(&rates_of(&heat, |_| false), 6);
    let mut read = Vec::new();
    let all = told(&mut process, 16, |process, slice| {
        read.push(std::mem::take(&mut process.read));
        process.is_waiting = (4..12).contains(&slice);
        let rates = if process.is_waiting { vec![0.0; 64] } else { heat.clone() };
        process.set_rates(&rates);
    });
    // That it waits for most of the time shows after some windows.
    assert!(read[4] > 128 && read[6] <= 128 && read[8..=12] == [0; 5] && read[13] > 128, "{read:?}");
    let accesses: Vec<f64> = all.iter().map(|heat| heat.iter().sum()).collect();
    assert!(accesses[4..12].iter().all(|it| *it == 0.0), "{accesses:?}");
    assert!(accesses[12..].iter().all(|it| (1e6..3e6).contains(it)), "{accesses:?}");
}

#[test]
fn huge_pages_are_looked_at_page_by_page_only_where_their_bits_do_not_tell() {
    // Each is accessed so often in a second; bits tell that where windows are short.
    for (per_s, at_most) in [(2e3, 8), (7e3, 120), (1e5, 1000)] {
        let heat = vec![per_s * 2.0; 64];
        let mut process = Process::new(&rates_of(&heat, |_| true), 4);
        let told = told(&mut process, 12, |_, _| {});
        let count = process.mapped_by_pages;
        assert!(count <= at_most && (per_s < 1e5 || count > 64), "{count} at {per_s}");
        let error = (sum(&told[4..]).iter().sum::<f64>() / 8.0 / heat.iter().sum::<f64>()).ln();
        assert!(error.abs() < 0.25, "{error} at {per_s}");
    }
}

#[test]
fn the_hottest_huge_pages_are_told_first() {
    // The n-th has 1/n of the hottest one's heat, in the order of addresses.
    for seed in 1..=3 {
        let heat: Vec<f64> = (1..=256).map(|rank| 2e6 / f64::from(rank)).collect();
        let mut process = Process::new(&rates_of(&heat, |_| true), seed);
        let told = sum(&told(&mut process, 8, |_, _| {})[4..]);
        let (told_share, true_share) = (share(&told, 0..16), share(&heat, 0..16));
        assert!((told_share - true_share).abs() < 0.1, "{told_share} of {true_share}");
    }
}

#[test]
fn huge_pages_of_all_heats_are_told_about_in_their_order() {
    // Only huge ones, and every other eight granules, at two rates: of the faster one bits tell the colder granules only.
    let pages: [fn(usize) -> bool; 2] = [|_| true, |at| at / 8 % 2 == 1];
    for (granules, is_huge) in [64, 256].into_iter().flat_map(|granules| pages.map(|pages| (granules, pages)))
    {
        for per_s in [1e6, 1e7] {
            let mut ranks = Vec::new();
            for seed in 1..=4 {
                let mut rng = Rng::seeded(seed);
                let mut heat: Vec<f64> = (1..=granules).map(|rank| per_s / 6.0 / rank as f64).collect();
                (1..granules).rev().for_each(|at| heat.swap(at, rng.below(at as u64 + 1) as usize));
                let mut process = Process::new(&rates_of(&heat, is_huge), seed);
                let told = sum(&told(&mut process, 12, |_, _| {})[4..]);
                let mut hottest: Vec<usize> = (0..granules).collect();
                hottest.sort_by(|one, other| heat[*other].total_cmp(&heat[*one]));
                let of = |heat: &[f64]| {
                    hottest[..granules / 4].iter().map(|at| heat[*at]).sum::<f64>() / heat.iter().sum::<f64>()
                };
                let (told_share, true_share) = (of(&told), of(&heat));
                let error = told_share - true_share;
                assert!(
                    error.abs() < 0.1,
                    "{granules} at {per_s}, seed {seed}: {told_share} of {true_share}"
                );
                ranks.push(rank_correlation(&heat, &told));
            }
            let mean = ranks.iter().sum::<f64>() / ranks.len() as f64;
            assert!(mean > 0.9, "{granules} at {per_s}: {ranks:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    /// Granules of all heats, at any size and rate, are told in their order.
    #[test]
    fn granules_are_told_in_the_order_of_their_heat(
        seed in any::<u64>(), granules in 48..512_usize, rate in 5.0..7.3_f64,
    ) {
        let mut rng = Rng::seeded(seed);
        let mut heat: Vec<f64> = (1..=granules).map(|rank| 10_f64.powf(rate) / 6.0 / rank as f64).collect();
        (1..granules).rev().for_each(|at| heat.swap(at, rng.below(at as u64 + 1) as usize));
        // Of huge pages that are too fast for their bits not all have been examined: their order is not told as well.
        let mut process = Process::new(&rates_of(&heat, |_| false), seed);
        let told = sum(&told(&mut process, 10, |_, _| {})[2..]);
        let found = rank_correlation(&heat, &told);
        prop_assert!(found > 0.9, "{found}");
        let error = (told.iter().sum::<f64>() / 8.0 / heat.iter().sum::<f64>()).ln();
        prop_assert!(error.abs() < 0.35, "{error}");
    }
}
