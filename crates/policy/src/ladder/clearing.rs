//! Making room for a large item, a piece at a time.
//!
//! An item of sixteen megabytes needs 256 pages in a row. Where no tier has them free, a quarter of a million small items may
//! have to leave first, which nobody shall wait for. So a window of pages is chosen and held: whatever becomes free in it
//! is given to nobody else, and some hundreds of items leave it in each piece of the work. [`Ladder::prepare`] does a piece
//! and says whether the room is there; between two pieces a server runs other requests. Who does not ask beforehand is
//! answered [`super::Admit::Again`] by the admission, and does the same pieces one after the other.

use super::{Act, Context, Demand, Fit, Ladder, MoveKind, PAGE_BYTES};
use crate::{Id, Now};
use tiermem_base::Rng;

/// From so many pages on an item goes where they are free rather than into the fast tier, and room is made in pieces.
pub(super) const LARGE_PAGES: u32 = 4;
/// Items that leave in one piece of work, and bytes of them that are copied.
const PIECE_ITEMS: u32 = 256;
const PIECE_BYTES: u64 = 512 << 10;
/// Pieces without progress after which a window is given up: something on it is pinned, or nothing may go.
const STUCK_PIECES: u32 = 64;
/// Requests after which a window is given up that nobody asked for again: its client has gone.
const ABANDONED_REQUESTS: u64 = 1 << 16;

/// A window that is being emptied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clearing {
    first: u32,
    pages: u32,
    /// Pages from here on may still have items.
    at: u32,
    stuck: u32,
    asked: u64,
    /// It was begun at the cost of items that nothing below takes, and goes on so.
    overflows: bool,
}

/// How the room for a large item stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clear {
    /// It is there.
    Done,
    /// Not yet.
    Working,
    /// It cannot be made.
    Impossible,
}

impl Ladder {
    /// Does a piece of the work of making room for an item of so many bytes; `true`: there is nothing more to do before it is
    /// admitted, though it may be refused. Otherwise execute the acts, end the moves under way and ask again, soon.
    pub fn prepare(&mut self, bytes: u64, now: Now, rng: &mut Rng, acts: &mut Vec<Act>) -> bool {
        let context = &mut Context::new(now, rng, acts);
        let fit = self.classes.fit(bytes);
        let Fit::Run(pages) = fit else { return true };
        pages < LARGE_PAGES
            || self.has_free_run(pages)
            || self.has_large_victim(fit, context)
            || self.clear_piece(pages, context) != Clear::Working
    }

    /// Whether a single item can make the room.
    fn has_large_victim(&mut self, fit: Fit, context: &mut Context<'_>) -> bool {
        let class = self.classes.class(fit);
        (0..self.levels.len()).any(|tier| {
            let victim = self.victim(tier, class, context).filter(|&id| self.is_large_enough(id, fit));
            victim
                .is_some_and(|id| self.place_bytes(id) <= self.evictable_bytes_for_admission(context.demand))
        })
    }

    fn has_free_run(&mut self, pages: u32) -> bool {
        self.levels.iter_mut().any(|level| {
            let slots = &mut level.slots;
            pages <= slots.supply().limit() / 2
                && (slots.supply_mut().has_run(pages) || {
                    slots.close_idle_pages();
                    slots.supply_mut().has_run(pages)
                })
        })
    }

    /// Whether room for an item of so many bytes is being made at the cost of items that nothing below takes.
    pub(super) fn overflows_for(&self, bytes: u64) -> bool {
        let is_large = matches!(self.classes.fit(bytes), Fit::Run(pages) if pages >= LARGE_PAGES);
        is_large && self.levels.iter().any(|level| level.clearing.is_some_and(|clearing| clearing.overflows))
    }

    /// A piece of the work.
    pub(super) fn clear_piece(&mut self, pages: u32, context: &mut Context<'_>) -> Clear {
        // The slowest tier that can hold it: its items are the coldest.
        let fits = |tier: &usize| pages <= self.levels[*tier].slots.supply().limit() / 2;
        let Some(tier) = (0..self.levels.len()).rev().find(fits) else { return Clear::Impossible };
        if self.levels[tier].clearing.is_some_and(|clearing| clearing.pages < pages) {
            self.end_clearing(tier);
        }
        let Some(mut clearing) =
            self.levels[tier].clearing.or_else(|| self.begin_clearing(tier, pages, context))
        else {
            return Clear::Impossible;
        };
        clearing.asked = context.now.requests;
        let overflows = context.demand.overflows || clearing.overflows && self.may_overflow();
        let context = &mut context.with(Demand { overflows, ..context.demand });
        let before = context.acts.len();
        let window = clearing.first..clearing.first + clearing.pages;
        let mut left = (PIECE_ITEMS, PIECE_BYTES);
        while window.contains(&clearing.at) {
            if !self.clear_page(tier, clearing.at, &mut left, context) {
                break;
            }
            clearing.at += 1;
        }
        let slots = &self.levels[tier].slots;
        let is_empty = slots.supply().is_held_free();
        if is_empty && slots.supply().held_fits() {
            self.levels[tier].clearing = Some(clearing);
            return Clear::Done;
        }
        if is_empty {
            // Metadata has taken the place of pages: another one must go.
            self.reclaim(tier, 1, self.evictable_bytes_for_admission(context.demand), context);
        }
        if clearing.at == window.end && !is_empty {
            // What was pinned, or came back to its place, is looked at again.
            clearing.at = window.start;
        }
        clearing.stuck = if context.acts.len() == before { clearing.stuck + 1 } else { 0 };
        self.levels[tier].clearing = Some(clearing);
        if clearing.stuck < STUCK_PIECES {
            return Clear::Working;
        }
        self.end_clearing(tier);
        Clear::Impossible
    }

    /// Whether a run would leave its pages to the window of a large item. For another large item that window is the way; a
    /// smaller one needs the pages context.now, and the window is given up for it.
    pub(super) fn is_cleared_anyway(&mut self, tier: usize, fit: Fit, victim: Id) -> bool {
        let Fit::Run(pages) = fit else { return false };
        let first = (self.loc(victim).byte_offset() / PAGE_BYTES) as u32;
        let run = first..first + (self.place_bytes(victim) / PAGE_BYTES) as u32;
        let overlaps =
            |clearing: Clearing| run.start < clearing.first + clearing.pages && clearing.first < run.end;
        if !self.levels[tier].clearing.is_some_and(overlaps) {
            return false;
        }
        if pages < LARGE_PAGES {
            self.end_clearing(tier);
        }
        pages >= LARGE_PAGES
    }

    fn begin_clearing(&mut self, tier: usize, pages: u32, context: &Context<'_>) -> Option<Clearing> {
        let first = self.coldest_start(tier, pages, context.now)?;
        self.levels[tier].slots.hold(first..first + pages);
        let (asked, overflows) = (context.now.requests, context.demand.overflows);
        Some(Clearing { first, pages, at: first, stuck: 0, asked, overflows })
    }

    /// Takes items off a page while the piece lasts; whether all that can leave have been told to.
    fn clear_page(
        &mut self,
        tier: usize,
        page: u32,
        left: &mut (u32, u64),
        context: &mut Context<'_>,
    ) -> bool {
        // Again each time: a class that was short may have taken its page back.
        self.levels[tier].slots.drain(page);
        let head = self.levels[tier].slots.pages().run_head(page);
        let here: Vec<Id> =
            self.levels[tier].slots.pages().items(head).filter(|&id| self.may_leave(id)).collect();
        for id in here {
            if left.0 == 0 || left.1 == 0 {
                return false;
            }
            if !self.may_leave(id) {
                continue;
            }
            let bytes = self.place_bytes(id);
            let is_protected = self.is_protected(id, context.demand);
            let moved = self.open_move(id, tier, MoveKind::Relocate, context).is_some()
                || tier + 1 < self.levels.len()
                    && self.open_move(id, tier + 1, MoveKind::Demote, context).is_some()
                || is_protected && self.give_slot_to(id, context);
            // Who may not go for another stays, and the window is given up when nothing else leaves it.
            if !moved && !is_protected && bytes <= self.evictable_bytes_for_admission(context.demand) {
                self.evict(id, context);
            }
            *left = (left.0 - 1, left.1.saturating_sub(bytes));
        }
        true
    }

    /// Gives up a window, or gives it away: its pages are everybody's again.
    pub(super) fn end_clearing(&mut self, tier: usize) {
        if let Some(clearing) = self.levels[tier].clearing.take() {
            let slots = &mut self.levels[tier].slots;
            slots.unhold();
            for page in clearing.first..clearing.first + clearing.pages {
                if !slots.pages().is_free(page) && slots.pages().run_head(page) == page {
                    slots.undrain(page);
                }
            }
        }
    }

    /// Gives up windows that nobody waits for any more.
    pub(super) fn end_abandoned_clearings(&mut self, now: Now) {
        for tier in 0..self.levels.len() {
            let asked = self.levels[tier].clearing.map(|clearing| clearing.asked);
            if asked.is_some_and(|asked| now.requests > asked + ABANDONED_REQUESTS) {
                self.end_clearing(tier);
            }
        }
    }
}
