//! Following a plan: what is held stays, what is swept is fetched ahead and leaves when it was passed.

use std::ops::ControlFlow;

use super::config::Watermarks;
use super::machine::{Along, Paging};
use super::page_range::PageRange;
use super::path::Lies;
use super::planned::Role;
use crate::evict::Evict;
use crate::frames::Frame;
use crate::prefetch::{self, Demand};

/// One page in so many of DRAM is left to what no plan names, whatever a plan holds.
const UNPLANNED_ONE_OF: u32 = 16;
/// Pages of a held range that are fetched when the program faults in it: 1 MiB.
const HELD_AHEAD_PAGES: u64 = 256;

impl<E: Evict> Paging<E> {
    /// A plan says this of some pages from now on.
    pub(super) fn plan(&mut self, pages: PageRange, role: Role) {
        self.planned.tell(pages, role);
    }

    /// Does what follows from a plan that was told, or from another capacity. What is held is pinned where it lies in DRAM: so no order
    /// names it as a victim, and nothing drops it.
    pub(super) fn renew_plan(&mut self) {
        if self.planned.is_empty() && !self.planned.is_stale() {
            return;
        }
        self.planned.limit_held(self.held_pages_max());
        if !self.planned.is_stale() {
            return;
        }
        let before = self.planned.held().to_vec();
        self.planned.renew();
        let now = self.planned.held().to_vec();
        for range in before {
            self.each(range, |paging, page, frame| {
                if !paging.planned.is_held(page) {
                    paging.let_go(frame);
                }
            });
        }
        for range in now {
            self.each(range, |paging, page, frame| paging.hold(frame, page));
        }
    }

    /// Room must be left for what passes, for what is fetched ahead of it, and for what no plan names.
    fn held_pages_max(&self) -> u64 {
        let dram_pages = self.room.dram_pages;
        let left = Watermarks::of(dram_pages).high
            + self.room.pages_ahead()
            + self.lag_pages()
            + dram_pages / UNPLANNED_ONE_OF;
        dram_pages.saturating_sub(left).into()
    }

    /// Pages between a program on its path and what leaves behind it: as many as may be fetched ahead of it.
    fn lag_pages(&self) -> u32 {
        self.room.pages_ahead() / 2
    }

    /// A page is in DRAM: it stays there if a plan says so.
    pub(super) fn hold(&mut self, frame: Frame, page: u64) {
        let view = self.frames.view(frame);
        if view.tier == Some(0) && view.pins == 0 && self.planned.is_held(page) {
            self.frames.pin(frame);
        }
    }

    /// A page is held no longer, or is not in DRAM.
    pub(super) fn let_go(&mut self, frame: Frame) {
        self.frames.unpin(frame);
    }

    /// Whether a plan says what is fetched ahead.
    pub(super) fn is_fetched_by_plan(&self) -> bool {
        matches!(self.config.prefetch, prefetch::Named::Plan(_)) && !self.planned.is_empty()
    }

    /// A page is used: wishes for those that come after it, if the plan says which. `goes_on`: the program goes on along the page's path.
    pub(super) fn fetch_by_plan(&mut self, page: u64, found: Demand, goes_on: bool) -> bool {
        let Paging { planned, map, frames, ahead, swap_tier, room, .. } = self;
        let mut lies = |page: u64| match map.get(page).map(|frame| frames.view(frame)) {
            Some(view) if view.tier == Some(*swap_tier) && !view.is_moving => Lies::Below,
            Some(view) if view.pins > 0 => Lies::Stays,
            _ => Lies::Here,
        };
        if let Some(path) = planned.path_of(page) {
            if goes_on {
                path.fetch_ahead(room.pages_ahead() / 2, lies, &mut ahead.wanted);
            }
            return goes_on;
        }
        let Some(held) = planned.held_around(page).filter(|_| found == Demand::Miss) else { return false };
        let end = held.end.min(page.saturating_add(HELD_AHEAD_PAGES));
        ahead.wanted.extend((page + 1..end).filter(|page| lies(*page) == Lies::Below));
        true
    }

    /// The kernel has taken a page. On a path it is fetched again when the program comes to it.
    pub(super) fn taken_by_kernel(&mut self, page: u64) {
        if self.planned.is_held(page) && self.planned.path_of(page).is_none() {
            self.fetch_back.add(page);
        }
    }

    /// A page that was fetched ahead has paid for that.
    pub(super) fn used_by_plan(&mut self, page: u64, found: Demand) {
        if matches!(found, Demand::PrefetchHit | Demand::LatePrefetch) && self.planned.is_held(page) {
            self.fetch_back.used();
        }
    }

    /// Fetches back what the kernel has taken of what is held.
    pub(super) fn fetch_back(&mut self, along: &mut Along<'_>) {
        while let Some(page) = self.fetch_back.next() {
            match self.planned.is_held(page) && self.tier(page) == Some(self.swap_tier) {
                true => self.ahead.wanted.push(page),
                false => self.fetch_back.used(),
            }
        }
        if !self.ahead.wanted.is_empty() {
            self.wish(None, along);
        }
    }

    /// What the program has passed on a path leaves, while DRAM is full.
    pub(super) fn pass_by_plan(&mut self, page: u64, along: &mut Along<'_>) {
        let lag_pages = self.lag_pages().into();
        let Paging { planned, map, frames, room, counts, frame_acts, .. } = self;
        let Some(path) = planned.path_of(page).filter(|_| room.is_full(frames.space().used(0))) else {
            return;
        };
        path.leave_passed(lag_pages, |page| {
            let frame = map.get(page).filter(|frame| frames.view(*frame).may_leave());
            if frame.and_then(|frame| frames.send_down(frame, along.now, along.rng, frame_acts)).is_some() {
                counts.dropped_behind += 1;
                room.has_left();
            }
            // What is under way out of DRAM is taken for gone.
            let used_pages = frames.space().used(0) - frames.space().leaving(0);
            if room.is_full(used_pages) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
    }
}
