//! Bringing frames in: a fault waits for its frame, a wish does not.

use super::act::{Act, Fault, Wish};
use super::cell::{ASKED, Frame, MOVING};
use super::evict::Room;
use super::machine::{Ask, Frames, Kind, What};
use crate::evict::{Departure, Evict};
use crate::moves::Ticket;
use crate::prefetch::{Demand, Insertion, Why};
use tiermem_base::Rng;

impl<E: Evict> Frames<E> {
    /// The frame is needed in place, for a write or not. Whoever gets another answer than [`Fault::Here`] carries out the acts,
    /// waits as the answer says, and asks again.
    pub fn fault(
        &mut self,
        frame: Frame,
        write: bool,
        now: u64,
        rng: &mut Rng,
        acts: &mut Vec<Act>,
    ) -> Fault {
        let cell = self.cells.get(frame);
        if cell.is(MOVING) {
            return self.wait_for(frame, write, acts);
        }
        if cell.tier().is_some_and(|tier| self.is_in_place(tier)) {
            if write {
                self.wrote(frame, now, acts);
            } else {
                self.touch(frame, now);
            }
            return Fault::Here;
        }
        self.ask_for(frame);
        if self.moves.room() == 0 {
            return Fault::Busy;
        }
        match self.room(0, cell.owner, &mut Ask { now, rng, acts, why: Why::Demand }) {
            Room::After(ticket) => return Fault::Room(ticket),
            Room::Busy => return Fault::Busy,
            Room::None => return Fault::Full,
            Room::Free => {}
        }
        self.bring(frame, 0, Why::Demand, write, Insertion::Mru, acts).map_or(Fault::Busy, Fault::After)
    }

    /// What a prefetcher is to be told of a demand for the frame; to be asked before the demand.
    pub fn demand_of(&self, frame: Frame) -> Demand {
        let view = self.view(frame);
        let in_place = view.tier.is_some_and(|tier| self.is_in_place(tier));
        match self.moves.find(u64::from(frame.0)).map(|(_, one)| one.what) {
            Some(What { kind: Kind::Fetch, why: Why::Prefetch, awaited: false, .. }) => Demand::LatePrefetch,
            Some(What { kind: Kind::Fetch | Kind::Fill, .. }) if !in_place => Demand::UnderMiss,
            _ if in_place && view.is_prefetched => Demand::PrefetchHit,
            _ if in_place => Demand::Hit,
            _ => Demand::Miss,
        }
    }

    /// The frame may be needed soon. With watermarks it comes into what is free above the low one; without, room is made
    /// for it as for a demand. `insertion` says where it enters the order.
    pub fn prefetch(
        &mut self,
        frame: Frame,
        insertion: Insertion,
        now: u64,
        rng: &mut Rng,
        acts: &mut Vec<Act>,
    ) -> Wish {
        let cell = self.cells.get(frame);
        let Some(tier) = cell.tier().filter(|_| !cell.is(MOVING)) else { return Wish::No };
        if self.is_in_place(tier) || self.moves.room() <= self.moves.capacity() / 4 {
            return Wish::No;
        }
        if self.accounts.space.is_watched(0) {
            if !self.accounts.space.is_above_low(0) || self.accounts.owners.is_at_quota(cell.owner, 0) {
                return Wish::No;
            }
        } else {
            match self.room(0, cell.owner, &mut Ask { now, rng, acts, why: Why::Prefetch }) {
                Room::After(ticket) => return Wish::Room(ticket),
                Room::Busy | Room::None => return Wish::No,
                Room::Free => {}
            }
        }
        self.bring(frame, 0, Why::Prefetch, false, insertion, acts).map_or(Wish::No, Wish::Sent)
    }

    /// Tells the order once of a fault for a frame that is not there.
    fn ask_for(&mut self, frame: Frame) {
        let cell = self.cells.at(frame);
        if !cell.is(ASKED) {
            cell.set(ASKED, true);
            let owner = cell.owner;
            self.order.miss(frame, owner);
        }
    }

    /// A fault for a frame whose move is under way. One that leaves is called back.
    fn wait_for(&mut self, frame: Frame, write: bool, acts: &mut Vec<Act>) -> Fault {
        let Some((ticket, one)) = self.moves.find(u64::from(frame.0)) else {
            debug_assert!(false, "a frame that moves has a move");
            return Fault::Busy;
        };
        let (was_awaited, kind) = (one.what.awaited, one.what.kind);
        if let Some(what) = self.moves.find_mut(u64::from(frame.0)) {
            what.awaited = true;
            what.write |= write;
        }
        match kind {
            Kind::Demote | Kind::Drop if !was_awaited => acts.push(Act::Recall { ticket }),
            Kind::Fetch | Kind::Fill => self.ask_for(frame),
            Kind::Demote | Kind::Drop | Kind::WriteBack => {}
        }
        Fault::After(ticket)
    }

    /// Sends for a frame that lies below `to`, or nowhere, where there is room for it.
    pub(super) fn bring(
        &mut self,
        frame: Frame,
        to: u8,
        why: Why,
        write: bool,
        insertion: Insertion,
        acts: &mut Vec<Act>,
    ) -> Option<Ticket> {
        let cell = self.cells.get(frame);
        let from = cell.tier();
        self.accounts.take(cell.owner, to);
        if let Some(from) = from {
            self.leave_order(frame, from, Departure::Moved);
        }
        let kind = if from.is_some() { Kind::Fetch } else { Kind::Fill };
        let what = What {
            kind,
            from,
            to: Some(to),
            owner: cell.owner,
            why,
            stays: false,
            awaited: why == Why::Demand && !from.is_some_and(|from| self.is_in_place(from)),
            write,
            is_zero: false,
            unused_prefetch: false,
            insertion,
        };
        let ticket = self.open(frame, what)?;
        acts.push(match from {
            Some(from) => Act::Fetch { ticket, frame, from, to, why },
            None => Act::Fill { ticket, frame, to },
        });
        Some(ticket)
    }
}
