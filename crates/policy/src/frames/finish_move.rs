//! End of a move: the space taken at both ends is given back at one of them, or at both.

use super::act::{Act, End, Settled};
use super::cell::{ASKED, Cell, DIRTY, Frame, MOVING, PREFETCHED, SEEN, WRITING, ZERO};
use super::state::{Kind, State, What};
use crate::evict::{Evict, Origin};
use crate::moves::{self, Outcome, Ticket};
use crate::prefetch::{Insertion, Why};

impl<E: Evict> State<E> {
    /// Settles a move, in any order; `None` if it was settled before. `now` is when the frame enters an order.
    pub fn settle(
        &mut self,
        ticket: Ticket,
        outcome: Outcome,
        now: u64,
        acts: &mut Vec<Act>,
    ) -> Option<Settled> {
        let stays = self.moves.get(ticket)?.0.what.stays;
        // A frame that was written or pinned at its old place is there and nowhere else.
        let outcome = if stays && outcome == Outcome::Done { Outcome::Touched } else { outcome };
        let (one, is_void) = match self.moves.settle(ticket, outcome)? {
            moves::Settled::Live(one) => (one, false),
            moves::Settled::Void(one) => (one, true),
        };
        let (frame, what) = (Frame(one.key as u32), one.what);
        for tier in what.gives_back(is_void).into_iter().flatten() {
            self.accounts.left(what.owner, tier);
        }
        let end = if is_void {
            for tier in [what.from, what.to].into_iter().flatten() {
                self.accounts.release(what.owner, tier);
            }
            End::Void
        } else {
            let flag = if what.kind == Kind::WriteBack { WRITING } else { MOVING };
            debug_assert!(self.cells.get(frame).is(flag), "a frame knows that it moves");
            self.cells.at(frame).set(flag, false);
            match (what.kind, outcome) {
                (Kind::WriteBack, _) => self.end_write_back(frame, what, outcome),
                (Kind::Fill | Kind::Fetch, Outcome::Done) => self.arrive_above(frame, what, now, acts),
                (Kind::Demote | Kind::Drop, Outcome::Done) => self.arrive_below(frame, what, acts),
                _ => self.stay(frame, what, outcome, now),
            }
        };
        let unused_prefetch = what.unused_prefetch && matches!(end, End::Arrived { .. } | End::Zero);
        self.counters.unused_prefetches += u64::from(unused_prefetch);
        Some(Settled {
            frame,
            from: what.from,
            to: what.to,
            end,
            why: what.why,
            awaited: what.awaited,
            unused_prefetch,
        })
    }

    pub(super) fn arrive_above(&mut self, frame: Frame, what: What, now: u64, acts: &mut Vec<Act>) -> End {
        let Some(to) = what.to else { return End::Stayed };
        let mut copy_stays = false;
        if let Some(from) = what.from {
            self.accounts.release(what.owner, from);
            copy_stays = self.config.tiers[usize::from(from)].keeps_copies
                && !what.write
                && self.cells.get(frame).copy().is_none()
                && self.accounts.space.free(from) > self.accounts.space.copies(from);
        }
        let was_in_place = what.from.is_some_and(|from| self.is_in_place(from));
        let is_unused = what.why == Why::Prefetch && !what.awaited;
        let cell = self.cells.at(frame);
        cell.set_tier(Some(to));
        cell.set(ASKED | SEEN, false);
        cell.set(PREFETCHED, is_unused);
        if !was_in_place {
            cell.set(ZERO, what.kind == Kind::Fill && self.config.writes_told);
        }
        if what.write {
            self.make_dirty(frame, acts);
        }
        if let Some(from) = what.from.filter(|_| copy_stays) {
            self.cells.at(frame).set_copy(Some(from));
            self.copies.enter(frame, from);
            self.accounts.space.copy_kept(from);
        }
        self.bits.take(frame);
        if !was_in_place {
            self.came_to_memory(frame, to, !is_unused);
        }
        let counted = match (what.kind, what.from, what.why) {
            (Kind::Fill, ..) => &mut self.counters.fills,
            _ if was_in_place => &mut self.counters.promotions,
            (.., Why::Demand) => &mut self.counters.fetches,
            _ => &mut self.counters.prefetches,
        };
        *counted += 1;
        self.enter_above(frame, what, to, now);
        End::Arrived { copy_stays }
    }

    /// A frame that came up enters the order; one that was fetched ahead and not used yet enters where the prefetcher wants it.
    fn enter_above(&mut self, frame: Frame, what: What, to: u8, now: u64) {
        let is_known = what.from.is_some_and(|from| self.order.holds(from));
        let item = Self::item(frame, self.cells.get(frame).is(DIRTY), now);
        let one_of = match what.insertion {
            _ if is_known || what.awaited || what.why == Why::Demand => None,
            Insertion::Mru => None,
            Insertion::Mid => Some(2),
            Insertion::Quarter => Some(4),
            Insertion::Lru => Some(u32::MAX),
        };
        match one_of {
            Some(one_of) => {
                self.order.enter_low(frame, what.owner, to, item, one_of);
                self.became_movable(frame, what.owner, to);
            }
            None if is_known => self.enter_order(frame, to, Origin::Promoted),
            None => self.enter_order(frame, to, Origin::Admitted(item)),
        }
    }

    fn arrive_below(&mut self, frame: Frame, what: What, acts: &mut Vec<Act>) -> End {
        let Some(from) = what.from else { return End::Stayed };
        self.accounts.release(what.owner, from);
        let lies = what.to.filter(|_| !what.is_zero);
        let is_in_place = lies.is_some_and(|to| self.is_in_place(to));
        let cell = self.cells.at(frame);
        cell.set_tier(lies);
        cell.set(ZERO | SEEN, false);
        // From memory to memory it is what it was; elsewhere it lies as it is now.
        if !is_in_place {
            cell.set(DIRTY | PREFETCHED, false);
        }
        self.bits.take(frame);
        if what.kind == Kind::Drop {
            self.counters.drops += 1;
        } else if !what.is_zero {
            self.counters.demotions += 1;
        }
        if let Some(to) = lies {
            self.enter_order(frame, to, Origin::Demoted);
        } else if let Some(to) = what.to {
            self.accounts.release(what.owner, to);
            // An older copy further down is of no use any longer.
            self.give_up_copy(frame, acts);
            return End::Zero;
        }
        End::Arrived { copy_stays: false }
    }

    /// The frame stays where it was. If it was used meanwhile it is hot.
    fn stay(&mut self, frame: Frame, what: What, outcome: Outcome, now: u64) -> End {
        if let Some(to) = what.to {
            self.accounts.release(what.owner, to);
        }
        let was_referenced = self.bits.take(frame);
        let is_hot = outcome == Outcome::Touched || was_referenced;
        let Some(from) = what.from else { return End::Stayed };
        let cell: Cell = self.cells.get(frame);
        if let (Some(heat), Some(to)) = (&mut self.heat, what.to) {
            heat.stayed(frame, from, to);
        }
        let left_as_moved =
            matches!(what.kind, Kind::Fetch) || what.to.is_some_and(|to| self.order.holds(to));
        let item = Self::item(frame, cell.is(DIRTY), now);
        self.enter_order(
            frame,
            from,
            match (left_as_moved, is_hot) {
                (true, true) => Origin::Promoted,
                (true, false) => Origin::Demoted,
                // The order took it for gone.
                (false, true) => Origin::Rewritten(item),
                (false, false) => Origin::Admitted(item),
            },
        );
        End::Stayed
    }

    /// A write-back makes a copy, unless the frame was written meanwhile.
    fn end_write_back(&mut self, frame: Frame, what: What, outcome: Outcome) -> End {
        let Some(to) = what.to else { return End::Stayed };
        self.accounts.release(what.owner, to);
        if outcome != Outcome::Done || self.accounts.space.free(to) <= self.accounts.space.copies(to) {
            return End::Stayed;
        }
        let cell = self.cells.at(frame);
        cell.set(DIRTY, false);
        cell.set_copy(Some(to));
        self.copies.enter(frame, to);
        self.accounts.space.copy_kept(to);
        self.counters.write_backs += 1;
        End::Arrived { copy_stays: false }
    }
}
