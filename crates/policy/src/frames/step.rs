//! Background work in a step: free frames between the watermarks, owners above their quotas, promotions.

use super::act::Act;
use super::begin_moves::Mover;
use super::cell::{Frame, MOVING, SEEN, WRITING};
use super::evict::Room;
use super::queries::Frames;
use crate::evict::Evict;
use crate::moves::Ticket;
use crate::prefetch::{Insertion, Why};
use tiermem_base::Rng;

impl<E: Evict> Frames<E> {
    /// Begins at most `budget` moves, and returns how many. It looks at no more frames than it moves, except for those that it
    /// spares because they were used.
    pub fn step(&mut self, now: u64, budget: u32, rng: &mut Rng, acts: &mut Vec<Act>) -> u32 {
        let tiers = self.state.accounts.space.tiers();
        let end = self.state.moves.counts().opened + u64::from(budget);
        let mut mover = Mover { state: &mut self.state, now, rng, acts, why: Why::Demand };
        // From below: a tier with room gives room to the tier above.
        for tier in (0..tiers - 1).rev() {
            mover.make_free(tier, end);
        }
        mover.promote(end);
        mover.exchange(end);
        budget - (end - self.state.moves.counts().opened) as u32
    }

    /// Sends one frame of the tier from which frames leave memory down, whatever the order says. `None` if it does not lie there, is
    /// pinned or has a move under way, or if there is no room below.
    pub fn send_down(
        &mut self,
        frame: Frame,
        now: u64,
        rng: &mut Rng,
        acts: &mut Vec<Act>,
    ) -> Option<Ticket> {
        let cell = self.state.cells.get(frame);
        let tier = self.state.turnover_tier();
        if cell.tier() != Some(tier) || cell.is(MOVING | WRITING) || cell.pins() > 0 {
            return None;
        }
        let mut mover = Mover { state: &mut self.state, now, rng, acts, why: Why::Demand };
        match mover.send_down(frame, tier) {
            Room::After(ticket) => Some(ticket),
            Room::Free | Room::Busy | Room::None => None,
        }
    }

    /// Whether a step would find something to do.
    pub fn is_due(&self) -> bool {
        let accounts = &self.state.accounts;
        let mut tiers = 0..accounts.space.tiers() - 1;
        let is_due = |tier| accounts.space.would_want_room(tier) || accounts.owners.exceeding(tier).is_some();
        !self.state.candidates.is_empty() || tiers.any(is_due) || self.state.would_exchange()
    }
}

impl<E: Evict> Mover<'_, E> {
    /// How many moves were begun so far.
    pub(super) fn opened(&self) -> u64 {
        self.state.moves.counts().opened
    }

    fn make_free(&mut self, tier: u8, end: u64) {
        while self.opened() < end && self.has_spare_moves() {
            let opened = self.opened();
            let exceeding = self.state.accounts.owners.exceeding(tier);
            if exceeding.is_some() {
                self.evict_from(tier, exceeding);
            }
            // An owner that exceeds its quota and cannot give does not keep others from giving.
            if self.opened() == opened && self.state.accounts.space.wants_room(tier) {
                self.evict_from(tier, None);
            }
            if self.opened() == opened {
                break;
            }
        }
    }

    /// Sends candidates up, each into the place of a colder frame where the first tier is full.
    fn promote(&mut self, end: u64) {
        while self.opened() < end && self.has_spare_moves() {
            let Some(candidate) = self.state.candidates.pop() else { break };
            let frame = Frame(candidate.id.0);
            let cell = self.state.cells.get(frame);
            let is_below = cell.tier().is_some_and(|tier| tier > 0 && self.state.is_in_place(tier));
            if !is_below || cell.is(MOVING | WRITING) || cell.pins() > 0 {
                continue;
            }
            let room = self.room(0, cell.owner);
            if room == Room::Free {
                self.bring(frame, 0, false, Insertion::Mru);
                continue;
            }
            // It is a candidate again at its next use, when there may be room.
            self.state.cells.at(frame).set(SEEN, true);
            if !matches!(room, Room::After(_)) {
                break;
            }
        }
    }

    /// A quarter of the moves is kept for faults.
    pub(super) fn has_spare_moves(&self) -> bool {
        self.state.moves.room() > self.state.moves.capacity() / 4
    }
}
