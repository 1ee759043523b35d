//! Events from outside: frames are written, pinned, discarded, written back, or given to an owner; quotas and capacities change.

use super::act::{Act, Pin, Touch};
use super::cell::{Cell, Frame, MOVING, PINS_MAX, WRITING, ZERO};
use super::config::{ConfigError, NO_QUOTA};
use super::queries::Frames;
use super::state::{Kind, State, What};
use crate::evict::{self, Departure, Evict, Origin};
use crate::moves::Ticket;
use crate::prefetch::Why;

impl<E: Evict> Frames<E> {
    /// The frame is written where it lies. Its clean copy is given up, and a move of it under way will not count: it stays.
    pub fn wrote(&mut self, frame: Frame, now: u64, acts: &mut Vec<Act>) -> Touch {
        let cell = self.state.cells.get(frame);
        let Some(tier) = cell.tier().filter(|tier| self.state.is_in_place(*tier)) else { return Touch::Away };
        if cell.is(MOVING | WRITING)
            && let Some(what) = self.state.moves.find_mut(u64::from(frame.0))
        {
            what.stays = true;
        }
        self.state.make_dirty(frame, acts);
        self.state.refer(frame, cell, tier, evict::Touch { now, write: true })
    }

    /// The frame stays in place until it is unpinned. A move that is to take it away will not count.
    pub fn pin(&mut self, frame: Frame) -> Pin {
        let cell = self.state.cells.get(frame);
        let Some(tier) = cell.tier().filter(|tier| self.state.is_in_place(*tier)) else { return Pin::Away };
        if cell.pins() == PINS_MAX || (cell.pins() == 0 && self.state.pinned >= self.state.config.pinned_max)
        {
            return Pin::TooMany;
        }
        if cell.is(MOVING) {
            if let Some(what) = self.state.moves.find_mut(u64::from(frame.0)) {
                what.stays = true;
            }
        } else {
            self.state.leave_order(frame, tier, Departure::Moved);
        }
        self.state.pinned += u32::from(cell.pins() == 0);
        self.state.cells.at(frame).set_pins(cell.pins() + 1);
        Pin::Pinned
    }

    /// Takes a pin away. Returns whether there was one. Without pins the frame stands in its order again, as one that was used.
    pub fn unpin(&mut self, frame: Frame) -> bool {
        let cell = self.state.cells.get(frame);
        let Some(pins) = cell.pins().checked_sub(1) else { return false };
        self.state.cells.at(frame).set_pins(pins);
        if pins == 0 {
            self.state.pinned -= 1;
            if let Some(tier) = cell.tier().filter(|_| !cell.is(MOVING)) {
                self.state.enter_order(frame, tier, Origin::Promoted);
            }
        }
        true
    }

    /// Frames that are pinned.
    pub fn pinned(&self) -> u32 {
        self.state.pinned
    }

    /// The frame's content is discarded: its range was unmapped or punched. It lies nowhere from now on, and may be used anew at
    /// once; a move of it under way is void, and keeps both its places until it is settled. A pinned frame is refused, because
    /// its bytes are still in use: unpin it first.
    pub fn discard(&mut self, frame: Frame, acts: &mut Vec<Act>) -> bool {
        let cell = self.state.cells.get(frame);
        if cell.pins() > 0 {
            return false;
        }
        self.state.give_up_copy(frame, acts);
        if !cell.is(MOVING)
            && let Some(tier) = cell.tier()
        {
            self.state.leave_order(frame, tier, Departure::Deleted);
            // A frame that is being written back is still read from.
            if !cell.is(WRITING) {
                self.state.accounts.release(cell.owner, tier);
                acts.push(Act::Free { frame, tier });
            }
        }
        if cell.is(MOVING | WRITING)
            && let Some((ticket, one)) = self.state.moves.void(u64::from(frame.0))
        {
            let what = one.what;
            for tier in what.gives_back(false).into_iter().flatten() {
                self.state.accounts.left(what.owner, tier);
            }
            for tier in what.gives_back(true).into_iter().flatten() {
                self.state.accounts.leaves(what.owner, tier);
            }
            acts.push(Act::Recall { ticket });
        }
        self.state.bits.take(frame);
        *self.state.cells.at(frame) = Cell::of(cell.owner);
        true
    }

    /// Begins to write the frame to the next tier that keeps copies; it stays where it is, and its demotion needs no write
    /// then. `None`: it is clean, zero, moving, not in place, or there is no room for a copy.
    pub fn write_back(&mut self, frame: Frame, acts: &mut Vec<Act>) -> Option<Ticket> {
        let cell = self.state.cells.get(frame);
        let from = cell.tier().filter(|tier| self.state.is_in_place(*tier))?;
        let to = from + 1;
        let keeps_copies = self.state.config.tiers.get(usize::from(to)).is_some_and(|tier| tier.keeps_copies);
        if cell.is(MOVING | WRITING | ZERO)
            || cell.copy().is_some()
            || !keeps_copies
            || self.state.moves.room() == 0
            || !self.state.accounts.has_room(cell.owner, to)
        {
            return None;
        }
        self.state.make_place(to, acts);
        self.state.accounts.take(cell.owner, to);
        let what = What::new(Kind::WriteBack, Some(from), Some(to), cell.owner, Why::Demand);
        let ticket = self.state.open(frame, what)?;
        acts.push(Act::WriteBack { ticket, frame, from, to });
        Some(ticket)
    }

    /// The frame holds something already, and it lies in this tier: a program that is taken over, a pool that starts again.
    /// Returns whether there was room, and the frame was nowhere.
    pub fn adopt(&mut self, frame: Frame, tier: u8, now: u64, acts: &mut Vec<Act>) -> bool {
        let cell = self.state.cells.get(frame);
        let is_nowhere = cell.tier().is_none() && !cell.is(MOVING);
        if !is_nowhere
            || tier >= self.state.accounts.space.tiers()
            || !self.state.accounts.has_room(cell.owner, tier)
        {
            return false;
        }
        self.state.make_place(tier, acts);
        self.state.accounts.take(cell.owner, tier);
        self.state.cells.at(frame).set_tier(Some(tier));
        self.state.came_to_memory(frame, tier, false);
        self.state.enter_order(frame, tier, Origin::Admitted(State::<E>::item(frame, false, now)));
        true
    }

    /// The frame is this owner's from now on. Returns whether it could be given, which is so while it lies nowhere.
    pub fn assign(&mut self, frame: Frame, owner: u16) -> bool {
        let cell = self.state.cells.get(frame);
        let may_be = cell.tier().is_none()
            && !cell.is(MOVING)
            && usize::from(owner) < self.state.accounts.owners.len();
        if may_be {
            self.state.cells.at(frame).owner = owner;
        }
        may_be
    }

    /// Limits an owner to `frames` of a tier; `None`: to all of them. An owner above its new quota gives frames at each
    /// [`Self::step`] and whenever a frame is needed.
    pub fn set_quota(&mut self, owner: u16, tier: u8, frames: Option<u32>) -> Result<(), ConfigError> {
        if !self.state.config.apart {
            return Err(ConfigError::Together);
        }
        if usize::from(owner) >= self.state.accounts.owners.len() || tier >= self.state.accounts.space.tiers()
        {
            return Err(ConfigError::Unknown { owner, tier });
        }
        self.state.accounts.owners.set_quota(owner, tier, frames.unwrap_or(NO_QUOTA));
        Ok(())
    }

    /// Sets the frames of a tier. Copies that have no room are given up at once; frames leave at each [`Self::step`]. Returns
    /// whether there is such a tier.
    pub fn set_capacity(&mut self, tier: u8, frames: u32, acts: &mut Vec<Act>) -> bool {
        if tier >= self.state.accounts.space.tiers() {
            return false;
        }
        self.state.accounts.space.set_capacity(tier, frames);
        while self.state.accounts.space.free(tier) < self.state.accounts.space.copies(tier)
            && let Some(oldest) = self.state.copies.oldest(tier)
        {
            self.state.give_up_copy(oldest, acts);
        }
        true
    }

    /// Sets the free frames, from `low` to `high`, that a step keeps in a tier. Returns whether the tier has one below it.
    pub fn set_watermarks(&mut self, tier: u8, low: u32, high: u32) -> bool {
        let is_above_another = tier + 1 < self.state.accounts.space.tiers();
        if is_above_another {
            self.state.accounts.space.set_watermarks(tier, low, high);
        }
        is_above_another
    }
}
