//! What has become of pages: acts that were settled, page scans, ranges that are gone.

use super::event::PageState;
use super::machine::Paging;
use super::page_range::PageRange;
use super::pages::Along;
use super::refaults::Return;
use crate::evict::Evict;
use crate::frames::{End, Frame, View};
use crate::moves::{Outcome, Ticket};
use crate::prefetch::{Prefetch, Why};

impl<E: Evict> Paging<E> {
    pub(super) fn settled(&mut self, ticket: Ticket, outcome: Outcome, along: &mut Along<'_>) {
        let Some(settled) = self.pages.frames.done(ticket, outcome, along.now, &mut self.pages.acts) else {
            return;
        };
        let was_in_memory = settled.from.is_some_and(|from| from < self.pages.swap_tier);
        let (frame, rises) = (settled.frame, settled.to < settled.from && settled.to.is_some());
        match settled.end {
            End::Arrived { .. } if rises && was_in_memory => {
                self.pages.counts.moved_up += 1;
                self.plan.hold(frame, self.pages.map.page_of(frame), &mut self.pages);
            }
            End::Arrived { .. } if rises && settled.to.is_some_and(|to| to < self.pages.swap_tier) => {
                self.ahead.forgive(frame);
                self.ahead.prefetcher.filled(self.pages.map.page_of(frame), settled.why);
                self.owe(settled.why);
                self.plan.hold(frame, self.pages.map.page_of(frame), &mut self.pages);
            }
            End::Arrived { .. } | End::Zero if !rises => {
                self.pages.counts.paged_out += 1;
                let is_below = settled.to.is_none_or(|to| to >= self.pages.swap_tier);
                self.pages.counts.moved_down += u64::from(!is_below);
                // What was fetched ahead and not used was never back.
                if is_below && was_in_memory && !settled.unused_prefetch {
                    self.pages.refaults.has_left(frame);
                }
                if is_below && was_in_memory {
                    self.has_left(frame, settled.why, settled.unused_prefetch);
                }
            }
            End::Stayed if !rises => {
                self.pages.counts.stayed += 1;
                self.plan.hold(frame, self.pages.map.page_of(frame), &mut self.pages);
            }
            // The fetch failed, and the program has fetched the page itself meanwhile.
            End::Stayed if settled.awaited => {
                let tier = self.pages.frames.arrival_tier();
                self.pages.frames.found(frame, tier, along.now, &mut self.pages.acts);
                self.plan.hold(frame, self.pages.map.page_of(frame), &mut self.pages);
            }
            // Its page is gone, or it moved between slower tiers.
            _ => {}
        }
        self.go_on_wishing(ticket, outcome, along);
    }

    /// A page that was fetched ahead has arrived. If DRAM is nearly full, the next page that leaves does so for it.
    fn owe(&mut self, why: Why) {
        let (low, high) = self.pages.frames.watermarks(self.pages.turnover_tier);
        let free_pages = self.pages.frames.space().free(self.pages.turnover_tier);
        if why == Why::Prefetch && low > 0 && free_pages < high {
            self.ahead.owed = self.ahead.owed.saturating_add(1);
        }
    }

    /// A page has left memory.
    fn has_left(&mut self, frame: Frame, why: Why, unused_prefetch: bool) {
        let for_why = if self.ahead.owed > 0 { Why::Prefetch } else { why };
        self.ahead.owed = self.ahead.owed.saturating_sub(1);
        self.pages.counts.prefetch_unused += u64::from(unused_prefetch);
        if for_why == Why::Prefetch && !unused_prefetch {
            self.ahead.throw_out(frame);
        }
        self.ahead.prefetcher.evicted(self.pages.map.page_of(frame), for_why, unused_prefetch);
    }

    /// The kernel has taken a page by itself.
    pub(super) fn evicted_by_kernel(&mut self, frame: Frame, page: u64, now: u64) {
        let unused_prefetch = self.pages.frames.view(frame).is_prefetched;
        self.pages.let_go(frame);
        self.plan.taken_by_kernel(page);
        self.pages.counts.kernel_evicted += 1;
        self.pages.counts.prefetch_unused += u64::from(unused_prefetch);
        self.pages.frames.found(frame, self.pages.swap_tier, now, &mut self.pages.acts);
        self.ahead.prefetcher.evicted(page, Why::Demand, unused_prefetch);
    }

    /// A page scan found these pages in this state. What moves is left alone: its ticket says where it is.
    pub(super) fn found(&mut self, pages: PageRange, state: PageState, along: &mut Along<'_>) {
        if state == PageState::Absent {
            return self.discarded(pages);
        }
        self.pages.refaults.was_scanned();
        for page in pages.first..pages.end {
            let Some(frame) = self.give(page, along.now) else {
                self.pages.counts.untracked += 1;
                continue;
            };
            let View { tier, is_moving, is_prefetched, .. } = self.pages.frames.view(frame);
            let in_place = tier.is_some_and(|tier| tier < self.pages.swap_tier);
            match state {
                _ if is_moving => {}
                // It came from outside, or was paged out and stayed.
                PageState::Present if !in_place => {
                    self.pages.counts.returned += u64::from(tier.is_some());
                    self.pages.refaults.is_back(frame, Return::Free);
                    self.ahead.forgive(frame);
                    let tier = self.pages.frames.arrival_tier();
                    self.pages.frames.found(frame, tier, along.now, &mut self.pages.acts);
                    self.plan.hold(frame, page, &mut self.pages);
                }
                PageState::Swapped if tier.is_none() => {
                    self.pages.refaults.has_left(frame);
                    self.pages.frames.found(frame, self.pages.swap_tier, along.now, &mut self.pages.acts);
                }
                // A page that was fetched ahead lies in the swap cache, which looks the same.
                PageState::Swapped if in_place && !is_prefetched => {
                    self.evicted_by_kernel(frame, page, along.now);
                    self.pages.refaults.has_left(frame);
                }
                _ => {}
            }
        }
    }

    pub(super) fn discarded(&mut self, pages: PageRange) {
        let ahead = &mut self.ahead;
        self.pages.each(pages, |pages, _, frame| {
            pages.let_go(frame);
            pages.frames.discard(frame, &mut pages.acts);
            pages.refaults.forget(frame);
            ahead.forgive(frame);
        });
    }

    pub(super) fn unmapped(&mut self, pages: PageRange) {
        self.plan.forget(pages);
        self.discarded(pages);
        self.pages.each(pages, |pages, page, _| pages.map.take(page));
    }
}
