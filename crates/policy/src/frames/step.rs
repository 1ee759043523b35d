//! Work in the background: room between the watermarks, owners above their quotas, promotions.

use super::act::Act;
use super::cell::{Frame, MOVING, SEEN, WRITING};
use super::evict::Room;
use super::machine::{Ask, Frames};
use crate::evict::Evict;
use crate::prefetch::{Insertion, Why};
use tiermem_base::Rng;

impl<E: Evict> Frames<E> {
    /// Begins at most `budget` moves, and says how many. It looks at no more frames than it moves, but for those that it
    /// spares because they were used.
    pub fn step(&mut self, now: u64, budget: u32, rng: &mut Rng, acts: &mut Vec<Act>) -> u32 {
        let mut ask = Ask { now, rng, acts, why: Why::Demand };
        let end = self.moves.counts().opened + u64::from(budget);
        // From below: what has room gives room to the tier above.
        for tier in (0..self.accounts.space.tiers() - 1).rev() {
            self.make_free(tier, end, &mut ask);
        }
        self.promote(end, &mut ask);
        budget - (end - self.moves.counts().opened) as u32
    }

    /// Whether a step would find something to do.
    pub fn is_due(&self) -> bool {
        let mut tiers = 0..self.accounts.space.tiers() - 1;
        !self.candidates.is_empty()
            || tiers.any(|tier| {
                self.accounts.space.would_want_room(tier) || self.accounts.owners.exceeding(tier).is_some()
            })
    }

    fn make_free(&mut self, tier: u8, end: u64, ask: &mut Ask<'_>) {
        while self.may_begin(end) {
            let opened = self.moves.counts().opened;
            let exceeding = self.accounts.owners.exceeding(tier);
            if exceeding.is_some() {
                self.evict_from(tier, exceeding, ask);
            }
            // One that exceeds its quota and cannot give keeps nobody from giving.
            if self.moves.counts().opened == opened && self.accounts.space.wants_room(tier) {
                self.evict_from(tier, None, ask);
            }
            if self.moves.counts().opened == opened {
                break;
            }
        }
    }

    /// Sends candidates up, each into the place of a colder frame where the first tier is full.
    fn promote(&mut self, end: u64, ask: &mut Ask<'_>) {
        while self.may_begin(end) {
            let Some(candidate) = self.candidates.pop() else { break };
            let frame = Frame(candidate.id.0);
            let cell = self.cells.get(frame);
            let is_below = cell.tier().is_some_and(|tier| tier > 0 && self.is_in_place(tier));
            if !is_below || cell.is(MOVING | WRITING) || cell.pins() > 0 {
                continue;
            }
            let room = self.room(0, cell.owner, ask);
            if room == Room::Free {
                self.bring(frame, 0, Why::Demand, false, Insertion::Mru, ask.acts);
                continue;
            }
            // It is a candidate again at its next use, when there may be room.
            self.cells.at(frame).set(SEEN, true);
            if !matches!(room, Room::After(_)) {
                break;
            }
        }
    }

    /// Whether the budget and the moves allow one more: a quarter of the moves is kept for faults.
    fn may_begin(&self, end: u64) -> bool {
        self.moves.counts().opened < end && self.moves.room() > self.moves.capacity() / 4
    }
}
