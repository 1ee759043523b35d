//! Frames that others have moved: the kernel has answered a fault or has reclaimed a frame, and the machine is told afterwards.
//!
//! What has happened cannot be refused. So a frame is taken here whether one is free or not, and a tier can hold more than its
//! capacity until [`Frames::step`] has brought it down.

use super::act::Act;
use super::begin_moves::Mover;
use super::cell::{ASKED, DIRTY, Frame, MOVING, PREFETCHED, SEEN, WRITING, ZERO};
use super::evict::Room;
use super::queries::Frames;
use super::state::{Kind, State, What};
use crate::evict::{Departure, Evict, Origin};
use crate::moves::Ticket;
use crate::prefetch::Why;
use tiermem_base::Rng;

impl<E: Evict> Frames<E> {
    /// A fault for the frame was answered: it is in place. Where it took the last frame of the tier that it came to, another begins
    /// to leave. That one is chosen before this one enters the order, so that this one is not the victim.
    ///
    /// A move of the frame that is under way goes on: one that fetches it is awaited from now on, one that takes it away will
    /// not count. Returns the move that makes room.
    pub fn faulted_in(
        &mut self,
        frame: Frame,
        write: bool,
        now: u64,
        rng: &mut Rng,
        acts: &mut Vec<Act>,
    ) -> Option<Ticket> {
        let cell = self.state.cells.get(frame);
        let is_in_place = cell.tier().is_some_and(|tier| self.state.is_in_place(tier));
        if is_in_place && write {
            self.wrote(frame, now, acts);
        } else if is_in_place {
            self.touch(frame, now);
        }
        if cell.is(MOVING)
            && let Some(what) = self.state.moves.find_mut(u64::from(frame.0))
        {
            what.awaited = true;
            what.write |= write;
            what.stays |= matches!(what.kind, Kind::Demote | Kind::Drop);
            self.state.cells.at(frame).set(PREFETCHED, false);
        }
        if is_in_place || cell.is(MOVING) {
            return None;
        }
        let mut mover = Mover { state: &mut self.state, now, rng, acts, why: Why::Demand };
        mover.ask_for(frame);
        // First of all, so that a tier which makes room in its turn does not send this one down.
        if let Some(from) = cell.tier() {
            mover.state.leave_order(frame, from, Departure::Moved);
        }
        let to = mover.state.arrival_tier(cell.owner);
        let room = if mover.state.moves.room() > 0 { mover.room(to, cell.owner) } else { Room::Busy };
        mover.state.accounts.overfill(cell.owner, to);
        let kind = if cell.tier().is_some() { Kind::Fetch } else { Kind::Fill };
        let what =
            What { awaited: true, write, ..What::new(kind, cell.tier(), Some(to), cell.owner, Why::Demand) };
        mover.state.arrive_above(frame, what, now, mover.acts);
        match room {
            Room::After(ticket) => Some(ticket),
            Room::Free | Room::Busy | Room::None => None,
        }
    }

    /// The frame was found to lie in this tier, wherever the machine had it. It has no copy then, and enters the tier's order as
    /// a new one. Returns whether that is news; a frame that is pinned or has a move under way is left alone.
    pub fn found(&mut self, frame: Frame, tier: u8, now: u64, acts: &mut Vec<Act>) -> bool {
        let cell = self.state.cells.get(frame);
        let is_known = cell.tier() == Some(tier) || tier >= self.state.accounts.space.tiers();
        if is_known || cell.is(MOVING | WRITING) || cell.pins() > 0 {
            return false;
        }
        self.state.give_up_copy(frame, acts);
        if let Some(from) = cell.tier() {
            let departure = if from < tier { Departure::Evicted } else { Departure::Deleted };
            self.state.leave_order(frame, from, departure);
            self.state.accounts.release(cell.owner, from);
        }
        self.state.make_place(tier, acts);
        self.state.accounts.overfill(cell.owner, tier);
        let cell = self.state.cells.at(frame);
        cell.set_tier(Some(tier));
        cell.set(DIRTY | ZERO | PREFETCHED | ASKED | SEEN, false);
        self.state.bits.take(frame);
        self.state.came_to_memory(frame, tier, false);
        self.state.enter_order(frame, tier, Origin::Admitted(State::<E>::item(frame, false, now)));
        true
    }
}
