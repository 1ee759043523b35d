//! The naive twin of paging: a list of pages, searched from end to end, DRAM over swap, in exact LRU order. It has a prefetcher of
//! its own, which hears what the twin believes.

use std::collections::{BTreeMap, VecDeque};

use tiermem_policy::frames::{References, TierConfig};
use tiermem_policy::paging::{Config, Counts, Event, Outcome, PageRange, PageState, Watermarks};
use tiermem_policy::prefetch::{Demand, Insertion, Prefetch, Prefetcher, Why};

use super::Op;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lies {
    Nowhere,
    Dram,
    Swap,
}

#[derive(Clone, Copy, Debug)]
pub struct Page {
    pub lies: Lies,
    pub prefetched: bool,
    thrown_out: bool,
    /// Was referenced since it came or was spared last.
    bit: bool,
}

const NEW: Page = Page { lies: Lies::Nowhere, prefetched: false, thrown_out: false, bit: false };

#[derive(Clone, Copy, Debug)]
struct Moving {
    page: u64,
    is_out: bool,
    why: Why,
    void: bool,
    stays: bool,
    awaited: bool,
    unused: bool,
    insertion: Insertion,
}

pub struct Naive {
    pub pages: BTreeMap<u64, Page>,
    /// Coldest first.
    order: Vec<u64>,
    moves: BTreeMap<usize, Moving>,
    opened: usize,
    /// The limit, of which what is not known takes some.
    limit: u32,
    pub dram: u32,
    swap: u32,
    watermarks: Watermarks,
    refilling: bool,
    moves_max: usize,
    /// Whether the order hears of references when it names a victim.
    sampled: bool,
    prefetcher: Prefetcher,
    wanted: Vec<u64>,
    wishes: VecDeque<u64>,
    waits_for: Option<usize>,
    owed: u32,
    pub counts: Counts,
    acts: Vec<(usize, u64, bool)>,
}

impl Naive {
    pub fn new(config: &Config) -> Self {
        let [TierConfig { frames: dram, low, high, .. }, TierConfig { frames: swap, .. }] = config.tiers[..]
        else {
            panic!("DRAM and swap");
        };
        Naive {
            pages: BTreeMap::new(),
            order: Vec::new(),
            moves: BTreeMap::new(),
            opened: 0,
            dram,
            swap,
            watermarks: Watermarks { low, high },
            limit: dram,
            refilling: false,
            moves_max: config.moves_max as usize,
            sampled: config.references == References::Sampled,
            prefetcher: config.prefetch.build(),
            wanted: Vec::new(),
            wishes: VecDeque::new(),
            waits_for: None,
            owed: 0,
            counts: Counts::default(),
            acts: Vec::new(),
        }
    }

    fn lie(&self, lies: Lies) -> u32 {
        self.pages.values().filter(|page| page.lies == lies).count() as u32
    }
    fn moves(&self, of: impl Fn(&Moving) -> bool) -> u32 {
        self.moves.values().filter(|one| of(one)).count() as u32
    }
    pub fn in_dram(&self) -> u32 {
        self.lie(Lies::Dram) + self.moves(|one| one.void || !one.is_out)
    }
    pub fn in_swap(&self) -> u32 {
        self.lie(Lies::Swap) + self.moves(|one| one.void || one.is_out)
    }
    fn free_dram(&self) -> u32 {
        self.dram.saturating_sub(self.in_dram())
    }
    fn free_moves(&self) -> usize {
        self.moves_max - self.moves.len()
    }
    fn moving(&self, page: u64) -> Option<usize> {
        self.moves.iter().find(|(_, one)| one.page == page && !one.void).map(|(number, _)| *number)
    }
    fn page(&mut self, page: u64) -> &mut Page {
        self.pages.entry(page).or_insert(NEW)
    }
    fn known(&self, range: PageRange) -> Vec<u64> {
        self.pages.keys().copied().filter(|page| range.holds(*page)).collect()
    }

    fn leave(&mut self, page: u64) {
        self.order.retain(|other| *other != page);
    }
    fn touch(&mut self, page: u64) {
        if !self.order.contains(&page) {
            return;
        }
        self.page(page).prefetched = false;
        if self.sampled {
            self.page(page).bit = true;
        } else {
            self.leave(page);
            self.order.push(page);
        }
    }
    fn open(&mut self, page: u64, is_out: bool, why: Why, insertion: Insertion) -> usize {
        let unused = self.pages[&page].prefetched;
        let number = self.opened;
        self.opened += 1;
        let one = Moving { page, is_out, why, void: false, stays: false, awaited: false, unused, insertion };
        self.moves.insert(number, one);
        self.acts.push((number, page, is_out));
        number
    }
    /// Sends the coldest page out, if there is one and a place for it.
    fn evict(&mut self, why: Why) -> Option<usize> {
        let mut page = *self.order.first().filter(|_| self.free_moves() > 0)?;
        for _ in 0..63 {
            if !std::mem::take(&mut self.page(page).bit) {
                break;
            }
            self.order.rotate_left(1);
            page = self.order[0];
        }
        self.page(page).bit = false;
        if self.in_swap() >= self.swap {
            return None;
        }
        self.leave(page);
        Some(self.open(page, true, why, Insertion::Mru))
    }

    fn demand(&self, page: u64) -> Demand {
        let Page { lies, prefetched, .. } = self.pages[&page];
        match self.moving(page).map(|number| self.moves[&number]) {
            Some(one) if !one.is_out && !one.awaited => Demand::LatePrefetch,
            Some(one) if !one.is_out => Demand::UnderMiss,
            _ if lies != Lies::Dram => Demand::Miss,
            _ if prefetched => Demand::PrefetchHit,
            _ => Demand::Hit,
        }
    }
    fn count_use(&mut self, found: Demand) {
        self.counts.prefetch_used += u64::from(matches!(found, Demand::PrefetchHit | Demand::LatePrefetch));
        self.counts.prefetch_late += u64::from(found == Demand::LatePrefetch);
    }
    fn taken_by_kernel(&mut self, page: u64) {
        let unused = self.pages[&page].prefetched;
        self.counts.kernel_evicted += 1;
        self.counts.prefetch_unused += u64::from(unused);
        self.leave(page);
        let cell = self.page(page);
        (cell.lies, cell.prefetched, cell.bit) = (Lies::Swap, false, false);
        self.prefetcher.evicted(page, Why::Demand, unused);
    }
    /// What was used while it moved. One that leaves stays then.
    fn used_on_its_way(&mut self, number: usize) {
        let one = self.moves.get_mut(&number).unwrap();
        one.awaited = true;
        one.stays = one.is_out;
        let page = one.page;
        self.page(page).prefetched = false;
    }

    fn fault(&mut self, page: u64, major: bool) {
        let is_moving = self.moving(page).is_some();
        if major && !is_moving && self.page(page).lies == Lies::Dram {
            self.taken_by_kernel(page);
        }
        let found = match self.page(page).lies {
            Lies::Dram if major => Demand::Miss,
            _ => self.demand(page),
        };
        self.count_use(found);
        let Page { lies, thrown_out, .. } = self.pages[&page];
        if found == Demand::Miss {
            match lies {
                _ if major => {
                    self.counts.faults += 1;
                    self.counts.polluted += u64::from(thrown_out);
                }
                Lies::Nowhere => self.counts.first_touches += 1,
                _ => self.counts.returned += 1,
            }
        }
        self.page(page).thrown_out = false;
        self.prefetcher.demand(page, found, &mut self.wanted);
        let mut room = None;
        if let Some(number) = self.moving(page) {
            self.used_on_its_way(number);
        } else if lies == Lies::Dram {
            // One that is there is told of its use again.
            if found != Demand::Hit {
                self.touch(page);
            }
        } else {
            if self.free_dram() == 0 {
                room = self.evict(Why::Demand);
            }
            self.page(page).lies = Lies::Dram;
            self.order.push(page);
            self.prefetcher.filled(page, Why::Demand);
        }
        self.wish(room);
    }
    fn used(&mut self, page: u64) {
        if self.pages.get(&page).is_none_or(|page| page.lies != Lies::Dram) {
            return;
        }
        let found = self.demand(page);
        self.count_use(found);
        match self.moving(page) {
            Some(number) => self.used_on_its_way(number),
            None => self.touch(page),
        }
        self.prefetcher.demand(page, found, &mut self.wanted);
        self.wish(None);
    }

    fn wish(&mut self, room: Option<usize>) {
        self.wishes.extend(self.wanted.drain(..));
        self.waits_for = room;
        if room.is_none() {
            self.send_for_wishes();
        }
    }
    fn send_for_wishes(&mut self) {
        while let Some(page) = self.wishes.pop_front() {
            let is_below = self.pages.get(&page).is_some_and(|page| page.lies == Lies::Swap);
            let has_spare = |it: &Self| it.free_moves() > it.moves_max / 4;
            if !is_below || self.moving(page).is_some() || !has_spare(self) {
                continue;
            }
            if self.watermarks.low == 0 && self.free_dram() == 0 {
                let Some(number) = self.evict(Why::Prefetch) else { continue };
                self.wishes.push_front(page);
                self.waits_for = Some(number);
                return;
            }
            if self.watermarks.low > 0 && self.free_dram() <= self.watermarks.low {
                self.refilling = true;
                self.wishes.push_front(page);
                return;
            }
            let insertion = self.prefetcher.insertion();
            let number = self.open(page, false, Why::Prefetch, insertion);
            self.counts.prefetched += 1;
            self.prefetcher.issued(page);
            if self.watermarks.low == 0 {
                self.waits_for = Some(number);
                return;
            }
        }
    }

    fn settled(&mut self, number: usize, outcome: Outcome) {
        let one = self.moves.remove(&number).unwrap();
        let is_done = outcome == Outcome::Done && !one.stays;
        match (one.is_out, is_done) {
            _ if one.void => {}
            (true, true) => self.has_left(one),
            (true, false) => {
                self.order.push(one.page);
                self.counts.stayed += 1;
            }
            (false, true) => {
                let at = match one.insertion {
                    _ if one.awaited => self.order.len(),
                    Insertion::Mru => self.order.len(),
                    Insertion::Mid => self.order.len() / 2,
                    Insertion::Quarter => self.order.len() / 4,
                    Insertion::Lru => 0,
                };
                self.order.insert(at, one.page);
                let cell = self.page(one.page);
                (cell.lies, cell.prefetched, cell.thrown_out) = (Lies::Dram, !one.awaited, false);
                self.prefetcher.filled(one.page, Why::Prefetch);
                self.owed += u32::from(self.watermarks.low > 0 && self.free_dram() < self.watermarks.high);
            }
            (false, false) if one.awaited => {
                self.page(one.page).lies = Lies::Dram;
                self.order.push(one.page);
            }
            (false, false) => {}
        }
        if self.waits_for == Some(number) {
            self.waits_for = None;
            if outcome != Outcome::Done {
                self.wishes.pop_front();
            }
        }
        if self.waits_for.is_none() {
            self.send_for_wishes();
        }
    }
    fn has_left(&mut self, one: Moving) {
        let why = if self.owed > 0 { Why::Prefetch } else { one.why };
        self.owed = self.owed.saturating_sub(1);
        let cell = self.page(one.page);
        (cell.lies, cell.prefetched) = (Lies::Swap, false);
        cell.thrown_out = why == Why::Prefetch && !one.unused;
        self.counts.paged_out += 1;
        self.counts.prefetch_unused += u64::from(one.unused);
        self.prefetcher.evicted(one.page, why, one.unused);
    }

    fn found(&mut self, page: u64, state: PageState) {
        let Page { lies, prefetched, .. } = *self.page(page);
        if self.moving(page).is_some() {
            return;
        }
        match (state, lies) {
            (PageState::Present, Lies::Nowhere | Lies::Swap) => {
                self.counts.returned += u64::from(lies == Lies::Swap);
                *self.page(page) = Page { lies: Lies::Dram, ..NEW };
                self.order.push(page);
            }
            (PageState::Swapped, Lies::Nowhere) => self.page(page).lies = Lies::Swap,
            (PageState::Swapped, Lies::Dram) if !prefetched => self.taken_by_kernel(page),
            _ => {}
        }
    }
    fn discard(&mut self, page: u64) {
        if let Some(number) = self.moving(page) {
            self.moves.get_mut(&number).unwrap().void = true;
        }
        self.leave(page);
        *self.page(page) = NEW;
    }

    fn step(&mut self, budget: u32) {
        let end = self.opened + budget as usize;
        while self.opened < end && self.free_moves() > self.moves_max / 4 {
            let leaving = self.moves(|one| one.void || one.is_out);
            let wanted = if self.refilling { self.watermarks.high } else { self.watermarks.low };
            self.refilling = self.in_dram() - leaving + wanted > self.dram;
            if !self.refilling || self.evict(Why::Demand).is_none() {
                break;
            }
        }
        // Neighbours side by side; tickets are numbered in the order of the acts.
        let first = self.opened - self.acts.len();
        self.acts.sort_by_key(|(_, page, _)| *page);
        let moved: Vec<Moving> = self.acts.iter().map(|(number, ..)| self.moves[number]).collect();
        for (at, one) in moved.into_iter().enumerate() {
            self.acts[at].0 = first + at;
            self.moves.insert(first + at, one);
        }
    }

    /// As the world runs it; `tickets` are the numbers of those under way, oldest first.
    pub fn run(&mut self, op: Op, tickets: &[usize]) -> Vec<String> {
        self.acts.clear();
        match op {
            Op::Settled { nth, outcome } => {
                if !tickets.is_empty() {
                    self.settled(tickets[nth % tickets.len()], outcome);
                }
            }
            Op::Event(Event::Fault { page, major, .. }) => self.fault(page, major),
            Op::Event(Event::Used { page, .. }) => self.used(page),
            Op::Event(Event::Referenced { first, pages_log2 }) => {
                let known = self.known(PageRange { first, end: first + (1 << pages_log2) });
                let known: Vec<_> = known.into_iter().filter(|page| !self.pages[page].prefetched).collect();
                known.into_iter().for_each(|page| self.touch(page));
            }
            Op::Event(Event::Found { pages, state: PageState::Absent } | Event::Discarded { pages }) => {
                self.known(pages).into_iter().for_each(|page| self.discard(page));
            }
            Op::Event(Event::Found { pages, state }) => {
                (pages.first..pages.end).for_each(|page| self.found(page, state));
            }
            Op::Event(Event::Unmapped { pages }) => {
                for page in self.known(pages) {
                    self.discard(page);
                    self.pages.remove(&page);
                }
            }
            Op::Event(Event::Capacity { dram_pages, watermarks: Watermarks { low, high } }) => {
                let high = high.min(dram_pages - 1);
                (self.dram, self.watermarks) = (dram_pages, Watermarks { low: low.min(high), high });
                self.limit = dram_pages;
            }
            // Plans are tested by themselves.
            Op::Event(Event::Planned { .. }) => {}
            Op::Event(Event::Charged { pages }) => {
                let others = (pages as u32).saturating_sub(self.in_dram()).min(self.limit / 2);
                self.dram = self.limit - others;
                let Watermarks { low, high } = Watermarks::of(self.dram);
                let high = high.min(self.dram - 1);
                self.watermarks = Watermarks { low: low.min(high), high };
            }
            Op::Event(Event::Step { budget }) => self.step(budget),
            Op::Event(Event::Settled { .. }) => unreachable!("the driver settles"),
        }
        let words = |(number, page, is_out): &(usize, u64, bool)| match is_out {
            true => format!("#{number} out {page} 0 Some(1) false"),
            false => format!("#{number} in {page} 1 0 Prefetch"),
        };
        self.acts.iter().map(words).collect()
    }
}
