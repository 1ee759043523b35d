//! Following a plan: what is held stays, what is swept is fetched ahead and leaves when it was passed, and of phases the one that is used comes.

use std::ops::ControlFlow;

use super::config::Watermarks;
use super::fetch_back::FetchBack;
use super::page_range::PageRange;
use super::pages::{Along, Pages};
use super::path::Lies;
use super::planned::{Planned, Role};
use crate::evict::Evict;
use crate::frames::Frame;
use crate::prefetch::Demand;

/// One page in so many of DRAM is left to what no plan names, whatever a plan holds.
const UNPLANNED_ONE_OF: u32 = 16;
/// Pages of a held range that are fetched when the program faults in it: 1 MiB.
const HELD_AHEAD_PAGES: u64 = 256;

/// A plan, and what follows from it.
#[derive(Clone, Debug, Default)]
pub(super) struct FollowedPlan {
    planned: Planned,
    fetch_back: FetchBack,
}

impl FollowedPlan {
    /// A plan says this of some pages from now on.
    pub fn tell(&mut self, pages: PageRange, role: Role) {
        self.planned.tell(pages, role);
    }

    /// These pages are mapped no longer.
    pub fn forget(&mut self, pages: PageRange) {
        self.planned.forget(pages);
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.planned.is_empty()
    }

    /// Does what follows from a plan that was told, or from another capacity. What is held stays where it lies in DRAM: no order names
    /// it as a victim, and nothing drops it.
    pub fn renew<E: Evict>(&mut self, pages: &mut Pages<E>) {
        if self.planned.is_empty() && !self.planned.is_stale() {
            return;
        }
        self.planned.limit_held(held_pages_max(pages));
        if !self.planned.is_stale() {
            return;
        }
        let before = self.planned.held().to_vec();
        self.planned.renew();
        for range in before {
            pages.each(range, |pages, page, frame| {
                if !self.planned.is_held(page) {
                    pages.let_go(frame);
                }
            });
        }
        for range in self.planned.held() {
            pages.each(*range, |pages, page, frame| self.hold(frame, page, pages));
        }
    }

    /// A page is in DRAM: it stays there if a plan says so.
    pub fn hold<E: Evict>(&self, frame: Frame, page: u64, pages: &mut Pages<E>) {
        if self.planned.is_held(page) {
            pages.hold(frame);
        }
    }

    /// Whether a page may be held.
    pub fn may_hold(&self, page: u64) -> bool {
        self.planned.is_stale() || self.planned.is_held(page)
    }

    /// A page was used for the first time since it came to DRAM. `is_missed`: it had to be read, and nobody had fetched it. Returns
    /// whether the program goes on by that along a path.
    pub fn used(&mut self, page: u64, is_missed: bool) -> bool {
        self.planned.phases().used(page);
        self.planned.path_of(page).is_some_and(|path| path.used(page, is_missed))
    }

    /// Whether a page lies on a path that the program follows.
    pub fn is_on_followed_path(&mut self, page: u64) -> bool {
        self.planned.path_of(page).is_some_and(|path| path.is_followed())
    }

    /// A page is used: wishes for those that come after it, if the plan says which; whether it does. `goes_on`: the program goes on along the page's path.
    pub fn fetch_ahead<E: Evict>(
        &mut self,
        (page, found, goes_on): (u64, Demand, bool),
        pages: &mut Pages<E>,
        wanted: &mut Vec<u64>,
    ) -> bool {
        let window_max = pages.room.pages_ahead() / 2;
        let mut lies = |page: u64| match pages.map.get(page).map(|frame| (frame, pages.frames.view(frame))) {
            Some((_, view)) if view.tier == Some(pages.swap_tier) && !view.is_moving => Lies::Below,
            Some((frame, _)) if pages.is_held(frame) => Lies::Stays,
            _ => Lies::Here,
        };
        if let Some(path) = self.planned.path_of(page) {
            if goes_on {
                path.fetch_ahead(window_max, lies, wanted);
            }
            return goes_on;
        }
        let may_fetch = found == Demand::Miss && self.fetch_back.credit.pages() > 0;
        let held = self.planned.held_around(page).filter(|_| may_fetch);
        let Some(held) = held else { return self.planned.phases().fetch(page, lies, wanted) };
        let end = held.end.min(page.saturating_add(HELD_AHEAD_PAGES));
        for page in (page + 1..end).filter(|page| lies(*page) == Lies::Below) {
            if self.fetch_back.credit.pages() == 0 {
                break;
            }
            self.fetch_back.credit.spend();
            wanted.push(page);
        }
        true
    }

    /// The kernel has taken a page. On a path it is fetched again when the program comes to it.
    pub fn taken_by_kernel(&mut self, page: u64) {
        if self.planned.is_held(page) && self.planned.path_of(page).is_none() {
            self.fetch_back.add(page);
        }
    }

    /// A page that was fetched ahead has paid for that.
    pub fn has_paid(&mut self, page: u64, found: Demand) {
        if matches!(found, Demand::PrefetchHit | Demand::LatePrefetch) && self.planned.is_held(page) {
            self.fetch_back.credit.earn();
        }
        self.planned.phases().has_paid(page, found);
    }

    /// Wishes for what the kernel has taken of what is held.
    pub fn fetch_back<E: Evict>(&mut self, pages: &Pages<E>, wanted: &mut Vec<u64>) {
        while let Some(page) = self.fetch_back.next() {
            let tier = pages.map.find(page).and_then(|frame| pages.frames.view(frame).tier);
            match self.planned.is_held(page) && tier == Some(pages.swap_tier) {
                true => wanted.push(page),
                false => self.fetch_back.credit.give_back(),
            }
        }
    }

    /// What the program has passed on a path leaves, while DRAM is full.
    pub fn pass<E: Evict>(&mut self, page: u64, pages: &mut Pages<E>, along: &mut Along<'_>) {
        let lag_pages = lag_pages(pages).into();
        let Some(path) = self.planned.path_of(page).filter(|_| pages.is_full()) else { return };
        path.leave_passed(lag_pages, |page| {
            pages.counts.dropped_behind += u64::from(pages.send_away(page, along));
            // What is under way out of DRAM is taken for gone.
            let leaving_pages = pages.frames.space().leaving(pages.turnover_tier);
            match pages.room.is_full(pages.used_pages() - leaving_pages) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        self.planned.metadata_bytes() + self.fetch_back.metadata_bytes()
    }
}

/// Room must be left for what passes, for what is fetched ahead of it, and for what no plan names.
fn held_pages_max<E: Evict>(pages: &Pages<E>) -> u64 {
    let dram_pages = pages.room.dram_pages;
    let left = Watermarks::of(dram_pages).high
        + pages.room.pages_ahead()
        + lag_pages(pages)
        + dram_pages / UNPLANNED_ONE_OF;
    dram_pages.saturating_sub(left).into()
}

/// Pages between a program on its path and what leaves behind it: as many as may be fetched ahead of it.
fn lag_pages<E: Evict>(pages: &Pages<E>) -> u32 {
    pages.room.pages_ahead() / 2
}
