//! Faults and wishes, which bring frames in: a fault waits for its frame, a wish does not.

use super::act::{Act, Fault, Settled, Wish};
use super::begin_moves::Mover;
use super::cell::{ASKED, Frame, MOVING};
use super::evict::Room;
use super::queries::Frames;
use super::state::{Kind, What};
use crate::evict::{Departure, Evict};
use crate::moves::{Outcome, Ticket};
use crate::prefetch::{Demand, Insertion, Why};
use tiermem_base::Rng;

impl<E: Evict> Frames<E> {
    /// The frame is needed in place, for a write or not. On any answer but [`Fault::Here`] the driver carries out the acts, waits
    /// as the answer says, and asks again.
    pub fn fault(
        &mut self,
        frame: Frame,
        write: bool,
        now: u64,
        rng: &mut Rng,
        acts: &mut Vec<Act>,
    ) -> Fault {
        let cell = self.state.cells.get(frame);
        let is_here = cell.tier().is_some_and(|tier| self.state.is_in_place(tier)) && !cell.is(MOVING);
        if is_here && write {
            self.wrote(frame, now, acts);
        } else if is_here {
            self.touch(frame, now);
        }
        if is_here {
            return Fault::Here;
        }
        let mut mover = Mover { state: &mut self.state, now, rng, acts, why: Why::Demand };
        if cell.is(MOVING) {
            return mover.wait_for(frame, write);
        }
        mover.ask_for(frame);
        if mover.state.moves.room() == 0 {
            return Fault::Busy;
        }
        let to = mover.state.arrival_tier(cell.owner);
        match mover.room(to, cell.owner) {
            Room::After(ticket) => Fault::Room(ticket),
            Room::Busy => Fault::Busy,
            Room::None => Fault::Full,
            Room::Free => mover.bring(frame, to, write, Insertion::Mru).map_or(Fault::Busy, Fault::After),
        }
    }

    /// The demand for a frame, as a prefetcher is told of it. Call this before the demand.
    pub fn demand_of(&self, frame: Frame) -> Demand {
        let view = self.view(frame);
        let in_place = view.tier.is_some_and(|tier| self.state.is_in_place(tier));
        match self.state.moves.find(u64::from(frame.0)).map(|(_, one)| one.what) {
            Some(What { kind: Kind::Fetch, why: Why::Prefetch, awaited: false, .. }) => Demand::LatePrefetch,
            Some(What { kind: Kind::Fetch | Kind::Fill, .. }) if !in_place => Demand::UnderMiss,
            _ if in_place && view.is_prefetched => Demand::PrefetchHit,
            _ if in_place => Demand::Hit,
            _ => Demand::Miss,
        }
    }

    /// The frame may be needed soon. With watermarks it comes into free frames above the low one, which a step makes if there are
    /// none; without, room is made for it as for a demand. `insertion` says where it enters the order.
    pub fn prefetch(
        &mut self,
        frame: Frame,
        insertion: Insertion,
        now: u64,
        rng: &mut Rng,
        acts: &mut Vec<Act>,
    ) -> Wish {
        let cell = self.state.cells.get(frame);
        let is_below = cell.tier().is_some_and(|tier| !self.state.is_in_place(tier)) && !cell.is(MOVING);
        let mut mover = Mover { state: &mut self.state, now, rng, acts, why: Why::Prefetch };
        if !is_below || !mover.has_spare_moves() {
            return Wish::No;
        }
        let to = mover.state.arrival_tier(cell.owner);
        let accounts = &mut mover.state.accounts;
        let room = if !accounts.space.is_watched(to) {
            mover.room(to, cell.owner)
        } else if !accounts.space.is_above_low(to) {
            accounts.space.begin_to_refill(to);
            return Wish::AfterStep;
        } else if accounts.has_room(cell.owner, to) {
            Room::Free
        } else {
            Room::None
        };
        match room {
            Room::After(ticket) => Wish::Room(ticket),
            Room::Busy | Room::None => Wish::No,
            Room::Free => mover.bring(frame, to, false, insertion).map_or(Wish::No, Wish::Sent),
        }
    }

    /// Settles a move, in any order; `None` if it was settled before. `now` is when the frame enters an order.
    pub fn done(
        &mut self,
        ticket: Ticket,
        outcome: Outcome,
        now: u64,
        acts: &mut Vec<Act>,
    ) -> Option<Settled> {
        self.state.settle(ticket, outcome, now, acts)
    }

    /// A frame that moves down was looked at on its way, and holds zeros alone: it need not be kept anywhere.
    pub fn found_zero(&mut self, ticket: Ticket) {
        if let Some(what) = self.state.moves.get_mut(ticket)
            && what.kind == Kind::Demote
        {
            what.is_zero = true;
        }
    }
}

impl<E: Evict> Mover<'_, E> {
    /// Tells the order once of a fault for a frame that is not there.
    pub(super) fn ask_for(&mut self, frame: Frame) {
        let cell = self.state.cells.at(frame);
        if !cell.is(ASKED) {
            cell.set(ASKED, true);
            let owner = cell.owner;
            let to = self.state.turnover_tier();
            self.state.order.miss(frame, owner, to);
        }
    }

    /// A fault for a frame whose move is under way. One that leaves is called back.
    fn wait_for(&mut self, frame: Frame, write: bool) -> Fault {
        let Some((ticket, one)) = self.state.moves.find(u64::from(frame.0)) else {
            debug_assert!(false, "a frame that moves has a move");
            return Fault::Busy;
        };
        let (was_awaited, kind) = (one.what.awaited, one.what.kind);
        if let Some(what) = self.state.moves.find_mut(u64::from(frame.0)) {
            what.awaited = true;
            what.write |= write;
        }
        match kind {
            Kind::Demote | Kind::Drop if !was_awaited => self.acts.push(Act::Recall { ticket }),
            Kind::Fetch | Kind::Fill => self.ask_for(frame),
            Kind::Demote | Kind::Drop | Kind::WriteBack => {}
        }
        Fault::After(ticket)
    }

    /// Sends for a frame that lies below a tier, or nowhere, where there is room for it.
    pub(super) fn bring(
        &mut self,
        frame: Frame,
        to: u8,
        write: bool,
        insertion: Insertion,
    ) -> Option<Ticket> {
        self.state.accounts.take(self.state.cells.get(frame).owner, to);
        self.open_up(frame, to, write, insertion)
    }

    /// Opens a move up, for which room is taken already.
    pub(super) fn open_up(
        &mut self,
        frame: Frame,
        to: u8,
        write: bool,
        insertion: Insertion,
    ) -> Option<Ticket> {
        let cell = self.state.cells.get(frame);
        let (from, why) = (cell.tier(), self.why);
        if let Some(from) = from {
            self.state.leave_order(frame, from, Departure::Moved);
        }
        let is_promotion = from.is_some_and(|from| self.state.is_in_place(from));
        let kind = if from.is_some() { Kind::Fetch } else { Kind::Fill };
        let what = What {
            awaited: why == Why::Demand && !is_promotion,
            write,
            insertion,
            ..What::new(kind, from, Some(to), cell.owner, why)
        };
        let ticket = self.state.open(frame, what)?;
        self.acts.push(match from {
            Some(from) => Act::Fetch { ticket, frame, from, to, why },
            None => Act::Fill { ticket, frame, to },
        });
        Some(ticket)
    }
}
