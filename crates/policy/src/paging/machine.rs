//! The machine: its one door, faults and uses.

use super::ahead::Ahead;
use super::behind::Behind;
use super::config::{Config, Reclaim, UNLIMITED_PAGES, Watermarks};
use super::counts::Counts;
use super::event::{Act, Event};
use super::fetch_back::FetchBack;
use super::page_map::PageMap;
use super::page_range::PageRange;
use super::planned::Planned;
use super::refaults::{MoreDram, Refaults, Return};
use super::room::Room;
use crate::evict::Evict;
use crate::frames::{self, ConfigError, Frame, Frames, Space};
use crate::prefetch::{Demand, Prefetch, Why};
use tiermem_base::Rng;

/// The pages of a program, where each of them lies, and which move.
#[derive(Clone, Debug)]
pub struct Paging<E> {
    pub(super) frames: Frames<E>,
    pub(super) map: PageMap,
    pub(super) ahead: Ahead,
    pub(super) behind: Behind,
    pub(super) room: Room,
    pub(super) refaults: Refaults,
    pub(super) planned: Planned,
    pub(super) fetch_back: FetchBack,
    pub(super) counts: Counts,
    pub(super) config: Config,
    /// The tier that the kernel pages out to: the first that is not in place.
    pub(super) swap_tier: u8,
    /// Acts of the frames, until they are translated.
    pub(super) frame_acts: Vec<frames::Act>,
}

/// What comes along with an event.
#[derive(Debug)]
pub(super) struct Along<'a> {
    pub now: u64,
    pub rng: &'a mut Rng,
    pub acts: &'a mut Vec<Act>,
}

impl<E: Evict> Paging<E> {
    /// No pages yet. The policy has [`frames::domains`] domains of [`Config::frames`].
    pub fn new(config: Config, policy: E) -> Result<Self, ConfigError> {
        let frames = Frames::new(config.frames(), policy)?;
        let dram_pages = config.tiers.first().map_or(0, |dram| dram.frames);
        let prefetch = config.prefetch.within(dram_pages);
        let swap_tier = config.tiers.iter().take_while(|tier| tier.in_place).count() as u8;
        Ok(Paging {
            frames,
            map: PageMap::default(),
            ahead: Ahead::new(prefetch),
            behind: Behind::default(),
            room: Room::new(dram_pages, prefetch.pages_ahead()),
            refaults: Refaults::default(),
            planned: Planned::default(),
            fetch_back: FetchBack::default(),
            counts: Counts::default(),
            swap_tier,
            frame_acts: Vec::new(),
            config,
        })
    }

    /// Something has happened. `now` is a number that does not fall, such as touches or milliseconds: policies that ask how long
    /// ago a page was used count in it. Acts are added to `acts`.
    pub fn on(&mut self, event: Event, now: u64, rng: &mut Rng, acts: &mut Vec<Act>) {
        let mut along = Along { now, rng, acts };
        if !matches!(event, Event::Planned { .. }) {
            self.renew_plan();
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
            Event::Capacity { dram_pages, watermarks } => self.set_dram(dram_pages, watermarks),
            Event::Charged { pages } => {
                self.charged(pages);
                self.fetch_back(&mut along);
            }
            Event::Planned { pages, role } => return self.plan(pages, role),
            Event::Step { budget } => self.step(budget, &mut along),
        }
        self.translate(along.acts);
    }

    fn fault(&mut self, page: u64, major: bool, write: bool, along: &mut Along<'_>) {
        let Some(frame) = self.give(page, along.now) else {
            self.counts.untracked += 1;
            self.counts.faults += u64::from(major);
            return;
        };
        let before = self.frames.view(frame);
        if major && !before.is_moving && before.tier.is_some_and(|tier| tier < self.swap_tier) {
            // It was not there: the kernel had taken it.
            self.evicted_by_kernel(frame, page, along.now);
        }
        if major && before.tier.is_some_and(|tier| tier < self.swap_tier) {
            self.refaults.had_left(frame);
        }
        let before = self.frames.view(frame);
        let found = match self.frames.demand_of(frame) {
            // It left and is back before its move was settled.
            Demand::Hit | Demand::PrefetchHit if major => Demand::Miss,
            found => found,
        };
        self.count_use(found);
        self.used_by_plan(page, found);
        match (found, before.tier) {
            (Demand::Miss, _) if major => {
                self.counts.faults += 1;
                self.counts.polluted += u64::from(self.ahead.is_thrown_out(frame));
            }
            (Demand::Miss, None) => self.counts.first_touches += 1,
            (Demand::Miss, Some(_)) => self.counts.returned += 1,
            _ => {}
        }
        self.is_back(frame, found, major);
        self.ahead.forgive(frame);
        self.demand(page, found, major);
        let room = self.frames.faulted_in(frame, write, along.now, along.rng, &mut self.frame_acts);
        if found == Demand::Miss && !before.is_moving {
            self.ahead.prefetcher.filled(page, Why::Demand);
            self.has_come();
        }
        self.hold(frame, page);
        self.wish(room, along);
        if found.is_first() {
            self.came(frame, page, before.tier.is_some(), along);
        }
    }

    fn used(&mut self, page: u64, write: bool, along: &mut Along<'_>) {
        let Some(frame) = self.map.get(page) else { return };
        if self.frames.view(frame).tier.is_none_or(|tier| tier >= self.swap_tier) {
            return;
        }
        let found = self.frames.demand_of(frame);
        self.count_use(found);
        self.is_back(frame, found, false);
        self.used_by_plan(page, found);
        self.frames.faulted_in(frame, write, along.now, along.rng, &mut self.frame_acts);
        self.demand(page, found, false);
        self.wish(None, along);
        if found.is_first() {
            self.came(frame, page, true, along);
        }
    }

    /// Wishes for what comes after a page: by the plan where it says so, else by the prefetcher.
    fn demand(&mut self, page: u64, found: Demand, is_read: bool) {
        let is_on_path = found.is_first() && {
            let is_missed = is_read && found == Demand::Miss;
            self.planned.path_of(page).is_some_and(|path| path.used(page, is_missed))
        };
        let has_fetched = self.is_fetched_by_plan() && self.fetch_by_plan(page, found, is_on_path);
        if !has_fetched {
            self.ahead.prefetcher.demand(page, found, &mut self.ahead.wanted);
        }
    }

    fn count_use(&mut self, found: Demand) {
        let is_late = found == Demand::LatePrefetch;
        self.counts.prefetch_late += u64::from(is_late);
        self.counts.prefetch_used += u64::from(is_late || found == Demand::PrefetchHit);
    }

    /// A page has come to DRAM, or will.
    pub(super) fn has_come(&mut self) {
        self.room.has_come();
        self.refaults.has_come(self.frames.space().used(0).saturating_sub(self.room.dram_pages));
    }

    /// A page is used that may have left before.
    fn is_back(&mut self, frame: Frame, found: Demand, major: bool) {
        match found {
            // A fetch may be so late that the kernel has read the page for the fault.
            Demand::Miss | Demand::LatePrefetch if major => self.refaults.is_back(frame, Return::Fault),
            Demand::Miss => self.refaults.is_back(frame, Return::Free),
            Demand::PrefetchHit | Demand::LatePrefetch => self.refaults.is_back(frame, Return::Fetched),
            Demand::Hit | Demand::UnderMiss => {}
        }
    }

    fn referenced(&mut self, pages: PageRange, now: u64) {
        self.each(pages, |paging, _, frame| {
            // A page that was fetched ahead and not used yet is not mapped: no bit of the page table stands for it.
            if !paging.frames.view(frame).is_prefetched {
                paging.frames.touch(frame, now);
            }
        });
    }

    fn step(&mut self, budget: u32, along: &mut Along<'_>) {
        let begin = along.acts.len();
        self.frames.step(along.now, budget, along.rng, &mut self.frame_acts);
        self.translate(along.acts);
        // Neighbours side by side: the driver tells the kernel of ranges.
        along.acts[begin..].sort_unstable_by_key(|act| (matches!(act, Act::Fetch { .. }), act.page()));
    }

    /// The frame of a page, which is given one if it has none. A page that is known to hold data lies in the last tier then.
    pub(super) fn give(&mut self, page: u64, now: u64) -> Option<Frame> {
        if let Some(frame) = self.map.get(page) {
            return Some(frame);
        }
        let frame = self.map.give(page)?;
        self.frames.grow_to(self.map.frames());
        self.ahead.grow_to(self.map.frames());
        self.refaults.grow_to(self.map.frames());
        if self.config.drop_behind {
            self.behind.grow_to(self.map.frames());
        }
        if self.config.stored.holds(page) {
            self.frames.adopt(frame, self.frames.space().tiers() - 1, now, &mut self.frame_acts);
        }
        Some(frame)
    }

    /// Turns acts of the frames into acts on pages.
    pub(super) fn translate(&mut self, acts: &mut Vec<Act>) {
        for act in self.frame_acts.drain(..) {
            acts.push(match act {
                frames::Act::Demote { ticket, frame, from, to, .. } => {
                    Act::PageOut { ticket, page: self.map.page_of(frame), from, to: Some(to), clean: false }
                }
                frames::Act::Drop { ticket, frame, from, to } => {
                    Act::PageOut { ticket, page: self.map.page_of(frame), from, to, clean: true }
                }
                frames::Act::Fetch { ticket, frame, from, to, why } => {
                    Act::Fetch { ticket, page: self.map.page_of(frame), from, to, why }
                }
                // Bytes are the kernel's, which knows what it has; no fault waits here, so none calls a move back.
                frames::Act::Free { .. } | frames::Act::Recall { .. } => continue,
                // Frames are filled and written back where somebody asks for it. Nobody does here.
                frames::Act::Fill { .. } | frames::Act::WriteBack { .. } => continue,
            });
        }
    }

    /// DRAM has so many pages from now on.
    fn set_dram(&mut self, dram_pages: u32, watermarks: Watermarks) {
        self.room.dram_pages = dram_pages;
        self.set_capacity(dram_pages, watermarks);
    }

    /// All that DRAM is used for takes so many pages.
    fn charged(&mut self, pages: u64) {
        let dram_pages = self.room.charge(pages, self.frames.space().used(0));
        self.set_capacity(dram_pages, Watermarks::of(dram_pages));
    }

    fn set_capacity(&mut self, dram_pages: u32, watermarks: Watermarks) {
        let (dram_pages, watermarks) = match self.config.reclaim {
            Reclaim::Order => (dram_pages, watermarks),
            Reclaim::Kernel => (UNLIMITED_PAGES, Watermarks::of(UNLIMITED_PAGES)),
        };
        let high = watermarks.high.min(dram_pages.saturating_sub(1));
        self.frames.set_capacity(0, dram_pages, &mut self.frame_acts);
        self.frames.set_watermarks(0, watermarks.low.min(high), high);
    }

    /// Whether a step would find something to do.
    pub fn is_due(&self) -> bool {
        self.frames.is_due()
    }

    /// Where a page lies, while it moves too; `None`: nowhere.
    pub fn tier(&self, page: u64) -> Option<u8> {
        self.map.find(page).and_then(|frame| self.frames.view(frame).tier)
    }

    /// Whether the page lies in DRAM, was fetched ahead and was not used yet.
    pub fn is_prefetched(&self, page: u64) -> bool {
        self.map.find(page).is_some_and(|frame| self.frames.view(frame).is_prefetched)
    }

    /// Whether a move of the page is under way.
    pub fn is_moving(&self, page: u64) -> bool {
        self.map.find(page).is_some_and(|frame| self.frames.view(frame).is_moving)
    }

    /// Pages in the tiers, and their capacities.
    pub fn space(&self) -> &Space {
        self.frames.space()
    }

    /// What has happened.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What more DRAM would have saved so far.
    pub fn more_dram(&self) -> &MoreDram {
        self.refaults.more_dram()
    }

    /// Acts that are not settled.
    pub fn under_way(&self) -> usize {
        self.frames.under_way()
    }

    /// The eviction policy.
    pub fn policy(&self) -> &E {
        self.frames.policy()
    }

    /// Bytes held, those of the eviction policy among them.
    pub fn metadata_bytes(&self) -> u64 {
        let policies = self.frames.policy().metadata_bytes()
            + self.ahead.metadata_bytes()
            + self.behind.metadata_bytes()
            + self.refaults.metadata_bytes();
        let plan = self.planned.metadata_bytes() + self.fetch_back.metadata_bytes();
        self.frames.metadata_bytes() + self.map.bytes() + policies + plan
    }
}
