//! What has become of pages: acts that were settled, page scans, ranges that are gone.

use super::event::PageState;
use super::machine::{Along, Paging};
use super::page_map::CHUNK;
use super::page_range::PageRange;
use super::refaults::Return;
use crate::evict::Evict;
use crate::frames::{End, Frame, View};
use crate::moves::{Outcome, Ticket};
use crate::prefetch::{Prefetch, Why};

impl<E: Evict> Paging<E> {
    pub(super) fn settled(&mut self, ticket: Ticket, outcome: Outcome, along: &mut Along<'_>) {
        let Some(settled) = self.frames.done(ticket, outcome, along.now, &mut self.frame_acts) else {
            return;
        };
        let (frame, rises) = (settled.frame, settled.to < settled.from && settled.to.is_some());
        match settled.end {
            End::Arrived { .. } | End::Zero if settled.to == Some(0) => {
                self.ahead.forgive(frame);
                self.ahead.prefetcher.filled(self.map.page_of(frame), settled.why);
                self.owe(settled.why);
                self.hold(frame, self.map.page_of(frame));
            }
            End::Arrived { .. } | End::Zero if !rises => {
                self.counts.paged_out += 1;
                let is_below = settled.to.is_none_or(|to| to >= self.swap_tier);
                // What was fetched ahead and not used was never back.
                if is_below
                    && settled.from.is_some_and(|from| from < self.swap_tier)
                    && !settled.unused_prefetch
                {
                    self.refaults.has_left(frame);
                }
                if settled.from == Some(0) {
                    self.has_left(frame, settled.why, settled.unused_prefetch);
                }
            }
            End::Stayed if !rises => self.counts.stayed += 1,
            // The fetch failed, and the program has fetched the page itself meanwhile.
            End::Stayed if settled.awaited => {
                self.frames.found(frame, 0, along.now, &mut self.frame_acts);
                self.hold(frame, self.map.page_of(frame));
            }
            // Its page is gone, or it moved between slower tiers.
            _ => {}
        }
        self.go_on_wishing(ticket, outcome, along);
    }

    /// A page that was fetched ahead has arrived. If DRAM is nearly full, the next page that leaves does so for it.
    fn owe(&mut self, why: Why) {
        let (low, high) = self.frames.watermarks(0);
        if why == Why::Prefetch && low > 0 && self.frames.space().free(0) < high {
            self.ahead.owed = self.ahead.owed.saturating_add(1);
        }
    }

    /// A page has left DRAM.
    fn has_left(&mut self, frame: Frame, why: Why, unused_prefetch: bool) {
        let for_why = if self.ahead.owed > 0 { Why::Prefetch } else { why };
        self.ahead.owed = self.ahead.owed.saturating_sub(1);
        self.counts.prefetch_unused += u64::from(unused_prefetch);
        if for_why == Why::Prefetch && !unused_prefetch {
            self.ahead.throw_out(frame);
        }
        self.ahead.prefetcher.evicted(self.map.page_of(frame), for_why, unused_prefetch);
    }

    /// The kernel has taken a page by itself.
    pub(super) fn evicted_by_kernel(&mut self, frame: Frame, page: u64, now: u64) {
        let unused_prefetch = self.frames.view(frame).is_prefetched;
        self.let_go(frame);
        self.taken_by_kernel(page);
        self.counts.kernel_evicted += 1;
        self.counts.prefetch_unused += u64::from(unused_prefetch);
        self.frames.found(frame, self.swap_tier, now, &mut self.frame_acts);
        self.ahead.prefetcher.evicted(page, Why::Demand, unused_prefetch);
    }

    /// A page scan found these pages in this state. What moves is left alone: its ticket says where it is.
    pub(super) fn found(&mut self, pages: PageRange, state: PageState, along: &mut Along<'_>) {
        if state == PageState::Absent {
            return self.discarded(pages);
        }
        self.refaults.was_scanned();
        for page in pages.first..pages.end {
            let Some(frame) = self.give(page, along.now) else {
                self.counts.untracked += 1;
                continue;
            };
            let View { tier, is_moving, is_prefetched, .. } = self.frames.view(frame);
            let in_place = tier.is_some_and(|tier| tier < self.swap_tier);
            match state {
                _ if is_moving => {}
                // It came from outside, or was paged out and stayed.
                PageState::Present if !in_place => {
                    self.counts.returned += u64::from(tier.is_some());
                    self.refaults.is_back(frame, Return::Free);
                    self.ahead.forgive(frame);
                    self.frames.found(frame, 0, along.now, &mut self.frame_acts);
                    self.hold(frame, page);
                }
                PageState::Swapped if tier.is_none() => {
                    self.refaults.has_left(frame);
                    self.frames.found(frame, self.swap_tier, along.now, &mut self.frame_acts);
                }
                // A page that was fetched ahead lies in the swap cache, which looks the same.
                PageState::Swapped if in_place && !is_prefetched => {
                    self.evicted_by_kernel(frame, page, along.now);
                    self.refaults.has_left(frame);
                }
                _ => {}
            }
        }
    }

    pub(super) fn discarded(&mut self, pages: PageRange) {
        self.each(pages, |paging, _, frame| {
            paging.let_go(frame);
            paging.frames.discard(frame, &mut paging.frame_acts);
            paging.ahead.forgive(frame);
            paging.refaults.forget(frame);
        });
    }

    pub(super) fn unmapped(&mut self, pages: PageRange) {
        self.planned.forget(pages);
        self.discarded(pages);
        self.each(pages, |paging, page, _| paging.map.take(page));
    }

    /// Calls `on` for each page of a range that has a frame, in ascending order.
    pub(super) fn each(&mut self, pages: PageRange, mut on: impl FnMut(&mut Self, u64, Frame)) {
        let mut rest = pages;
        while let Some((start, frames)) = self.map.next_chunk(rest) {
            for (page, frame) in (start..).zip(frames) {
                if let Some(frame) = frame.checked_sub(1).map(Frame).filter(|_| pages.holds(page)) {
                    on(self, page, frame);
                }
            }
            rest.first = start.saturating_add(CHUNK);
        }
    }
}
