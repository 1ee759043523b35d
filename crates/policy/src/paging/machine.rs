//! The machine: its one door, faults and uses.

use super::ahead::Ahead;
use super::behind::Behind;
use super::config::Config;
use super::counts::Counts;
use super::event::{Act, Event};
use super::follow_plan::FollowedPlan;
use super::page_range::PageRange;
use super::pages::{Along, Pages};
use super::refaults::{MoreDram, Return};
use crate::evict::Evict;
use crate::frames::{ConfigError, Frame, Space};
use crate::prefetch::{self, Demand, Prefetch, Why};
use tiermem_base::Rng;

/// The pages of a program, and what is decided about them.
#[derive(Clone, Debug)]
pub struct Paging<E> {
    pub(super) pages: Pages<E>,
    pub(super) ahead: Ahead,
    pub(super) behind: Behind,
    pub(super) plan: FollowedPlan,
    config: Config,
}

impl<E: Evict> Paging<E> {
    /// No pages yet. The policy has [`frames::domains`](crate::frames::domains) domains of [`Config::frames`].
    pub fn new(config: Config, policy: E) -> Result<Self, ConfigError> {
        let dram_pages = config.tiers.get(config.turnover_tier()).map_or(0, |tier| tier.frames);
        let prefetch = config.prefetch.within(dram_pages);
        Ok(Paging {
            pages: Pages::new(&config, prefetch.pages_ahead(), policy)?,
            ahead: Ahead::new(prefetch),
            behind: Behind::default(),
            plan: FollowedPlan::default(),
            config,
        })
    }

    /// Something has happened. `now` is a number that does not fall, such as touches or milliseconds: policies that ask how long
    /// ago a page was used count in it. Acts are added to `acts`.
    pub fn on(&mut self, event: Event, now: u64, rng: &mut Rng, acts: &mut Vec<Act>) {
        let mut along = Along { now, rng, acts };
        if !matches!(event, Event::Planned { .. }) {
            self.plan.renew(&mut self.pages);
        }
        match event {
            Event::Fault { page, major, write } => self.fault(page, major, write, &mut along),
            Event::Used { page, write } => self.used(page, write, &mut along),
            Event::Referenced { first, pages_log2 } => {
                let end = first.saturating_add(1 << pages_log2.min(63));
                self.referenced(PageRange { first, end }, now);
            }
            Event::Found { pages, state } => self.found(pages, state, &mut along),
            Event::Discarded { pages } => self.discarded(pages),
            Event::Unmapped { pages } => self.unmapped(pages),
            Event::Settled { ticket, outcome } => self.settled(ticket, outcome, &mut along),
            Event::Capacity { dram_pages, watermarks } => self.pages.set_dram(dram_pages, watermarks),
            Event::Charged { pages } => {
                self.pages.charged(pages);
                self.fetch_back(&mut along);
            }
            Event::Planned { pages, role } => return self.plan.tell(pages, role),
            Event::Step { budget } => self.step(budget, &mut along),
        }
        self.pages.translate(along.acts);
        while let Some(page) = self.pages.next_taken() {
            self.plan.taken_by_kernel(page);
        }
    }

    fn fault(&mut self, page: u64, major: bool, write: bool, along: &mut Along<'_>) {
        let Some(frame) = self.give(page, along.now) else {
            self.pages.counts.untracked += 1;
            self.pages.counts.faults += u64::from(major);
            return;
        };
        let before = self.pages.frames.view(frame);
        if major && !before.is_moving && before.tier.is_some_and(|tier| tier < self.pages.swap_tier) {
            // It was not there: the kernel had taken it.
            self.evicted_by_kernel(frame, page, along.now);
        }
        if major && before.tier.is_some_and(|tier| tier < self.pages.swap_tier) {
            self.pages.refaults.had_left(frame);
        }
        let before = self.pages.frames.view(frame);
        let found = match self.pages.frames.demand_of(frame) {
            // It left and is back before its move was settled.
            Demand::Hit | Demand::PrefetchHit if major => Demand::Miss,
            found => found,
        };
        self.count_use(found);
        self.plan.has_paid(page, found);
        match (found, before.tier) {
            (Demand::Miss, _) if major => {
                self.pages.counts.faults += 1;
                self.pages.counts.polluted += u64::from(self.ahead.is_thrown_out(frame));
            }
            (Demand::Miss, None) => self.pages.counts.first_touches += 1,
            (Demand::Miss, Some(_)) => self.pages.counts.returned += 1,
            _ => {}
        }
        self.is_back(frame, found, major);
        self.ahead.forgive(frame);
        self.demand(page, found, major);
        // A page that is there is told again by the fault of its first write, or by one that a page scan has overtaken: that is still the
        // use that brought it, and no other one.
        let is_told_again = found == Demand::Hit && !before.is_moving && !self.config.writes_told;
        let room = match is_told_again {
            true => None,
            false => self.pages.frames.faulted_in(frame, write, along.now, along.rng, &mut self.pages.acts),
        };
        if found == Demand::Miss && !before.is_moving {
            self.ahead.prefetcher.filled(page, Why::Demand);
            self.pages.has_come();
        }
        self.plan.hold(frame, page, &mut self.pages);
        self.plan.fetch_back(&self.pages, &mut self.ahead.wanted);
        self.wish(room, along);
        if found.is_first() {
            self.came(frame, page, before.tier.is_some(), along);
        }
    }

    fn used(&mut self, page: u64, write: bool, along: &mut Along<'_>) {
        let Some(frame) = self.pages.map.get(page) else { return };
        if self.pages.frames.view(frame).tier.is_none_or(|tier| tier >= self.pages.swap_tier) {
            return;
        }
        let found = self.pages.frames.demand_of(frame);
        self.count_use(found);
        self.is_back(frame, found, false);
        self.plan.has_paid(page, found);
        self.pages.frames.faulted_in(frame, write, along.now, along.rng, &mut self.pages.acts);
        self.demand(page, found, false);
        self.wish(None, along);
        if found.is_first() {
            self.came(frame, page, true, along);
        }
    }

    /// Wishes for what comes after a page: by the plan where it says so, else by the prefetcher.
    fn demand(&mut self, page: u64, found: Demand, is_read: bool) {
        let goes_on = found.is_first() && self.plan.used(page, is_read && found == Demand::Miss);
        let is_by_plan = matches!(self.config.prefetch, prefetch::Named::Plan(_)) && !self.plan.is_empty();
        let use_ = (page, found, goes_on);
        if !(is_by_plan && self.plan.fetch_ahead(use_, &mut self.pages, &mut self.ahead.wanted)) {
            self.ahead.prefetcher.demand(page, found, &mut self.ahead.wanted);
        }
    }

    fn count_use(&mut self, found: Demand) {
        let is_late = found == Demand::LatePrefetch;
        self.pages.counts.prefetch_late += u64::from(is_late);
        self.pages.counts.prefetch_used += u64::from(is_late || found == Demand::PrefetchHit);
    }

    /// A page is used that may have left before.
    fn is_back(&mut self, frame: Frame, found: Demand, major: bool) {
        match found {
            // A fetch may be so late that the kernel has read the page for the fault.
            Demand::Miss | Demand::LatePrefetch if major => self.pages.refaults.is_back(frame, Return::Fault),
            Demand::Miss => self.pages.refaults.is_back(frame, Return::Free),
            Demand::PrefetchHit | Demand::LatePrefetch => self.pages.refaults.is_back(frame, Return::Fetched),
            Demand::Hit | Demand::UnderMiss => {}
        }
    }

    fn referenced(&mut self, pages: PageRange, now: u64) {
        self.pages.each(pages, |pages, _, frame| {
            // A page that was fetched ahead and not used yet is not mapped: no bit of the page table stands for it.
            if !pages.frames.view(frame).is_prefetched {
                pages.frames.touch(frame, now);
            }
        });
    }

    fn step(&mut self, budget: u32, along: &mut Along<'_>) {
        let begin = along.acts.len();
        self.pages.frames.step(along.now, budget, along.rng, &mut self.pages.acts);
        self.pages.translate(along.acts);
        // Neighbours side by side: the driver tells the kernel of ranges, and asks for those that move within memory in another way.
        let swap_tier = self.pages.swap_tier;
        let order = |act: &Act| match *act {
            Act::PageOut { to, page, .. } => (false, to.is_some_and(|to| to < swap_tier), page),
            Act::Fetch { from, page, .. } => (true, from < swap_tier, page),
        };
        along.acts[begin..].sort_unstable_by_key(order);
    }

    /// The frame of a page, which is given one if it has none.
    pub(super) fn give(&mut self, page: u64, now: u64) -> Option<Frame> {
        if let Some(frame) = self.pages.map.get(page) {
            return Some(frame);
        }
        let frame = self.pages.give(page, now)?;
        let frames = self.pages.map.frames();
        self.ahead.grow_to(frames);
        if self.config.drop_behind {
            self.behind.grow_to(frames);
        }
        Some(frame)
    }

    /// The page is used for the first time since it came to DRAM; whether it was below before.
    fn came(&mut self, frame: Frame, page: u64, was_below: bool, along: &mut Along<'_>) {
        if !self.config.drop_behind {
            return;
        }
        self.behind.came(frame);
        if self.plan.is_on_followed_path(page) {
            self.plan.pass(page, &mut self.pages, along);
        } else if was_below {
            self.behind.used(page, &mut self.pages, along);
        }
    }

    /// Fetches back what the kernel has taken of what a plan holds.
    fn fetch_back(&mut self, along: &mut Along<'_>) {
        self.plan.fetch_back(&self.pages, &mut self.ahead.wanted);
        if !self.ahead.wanted.is_empty() {
            self.wish(None, along);
        }
    }

    /// Whether a step would find something to do.
    pub fn is_due(&self) -> bool {
        self.pages.frames.is_due()
    }

    /// Where a page lies, while it moves too; `None`: nowhere.
    pub fn tier(&self, page: u64) -> Option<u8> {
        self.pages.map.find(page).and_then(|frame| self.pages.frames.view(frame).tier)
    }

    /// The tier that a page comes to which faults now.
    pub fn arrival_tier(&self) -> u8 {
        self.pages.frames.arrival_tier()
    }

    /// Whether the page lies in DRAM, was fetched ahead and was not used yet.
    pub fn is_prefetched(&self, page: u64) -> bool {
        self.pages.map.find(page).is_some_and(|frame| self.pages.frames.view(frame).is_prefetched)
    }

    /// Whether a move of the page is under way.
    pub fn is_moving(&self, page: u64) -> bool {
        self.pages.map.find(page).is_some_and(|frame| self.pages.frames.view(frame).is_moving)
    }

    /// Pages in the tiers, and their capacities.
    pub fn space(&self) -> &Space {
        self.pages.frames.space()
    }

    /// What has happened.
    pub fn counts(&self) -> Counts {
        self.pages.counts
    }

    /// What more DRAM would have saved so far.
    pub fn more_dram(&self) -> &MoreDram {
        self.pages.refaults.more_dram()
    }

    /// Acts that are not settled.
    pub fn under_way(&self) -> usize {
        self.pages.frames.under_way()
    }

    /// The eviction policy.
    pub fn policy(&self) -> &E {
        self.pages.frames.policy()
    }

    /// Bytes held, those of the eviction policy among them.
    pub fn metadata_bytes(&self) -> u64 {
        let aside = self.ahead.metadata_bytes() + self.behind.metadata_bytes() + self.plan.metadata_bytes();
        self.pages.metadata_bytes() + aside
    }
}
