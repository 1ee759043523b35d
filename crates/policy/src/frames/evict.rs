//! Eviction of frames: room is made from what costs nothing first, then from an owner's coldest frame.

use super::act::Act;
use super::begin_moves::Mover;
use super::cell::{Cell, Frame, PREFETCHED, WRITING, ZERO};
use super::config::References;
use super::owners::Asked;
use super::state::{Kind, What};
use crate::evict::{Departure, Evict, Touch};
use crate::moves::Ticket;

/// Victims that may be spared for their reference bits before one is evicted.
pub(super) const LOOKS_MAX: u32 = 64;

/// Whether a frame of a tier can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// When this move has ended, perhaps.
    After(Ticket),
    /// When some move has ended, perhaps.
    Busy,
    None,
}

impl<E: Evict> Mover<'_, E> {
    /// Makes room for one more frame of an owner. The caller has checked that a move can be opened.
    pub(super) fn room(&mut self, tier: u8, owner: u16) -> Room {
        if self.state.accounts.has_room(owner, tier) {
            self.state.make_place(tier, self.acts);
            return Room::Free;
        }
        let only = self.state.accounts.owners.is_at_quota(owner, tier).then_some(owner);
        let room = if self.state.order.holds(tier) { self.evict_from(tier, only) } else { Room::None };
        let leaving = match only {
            Some(owner) => self.state.accounts.owners.leaving(owner, tier),
            None => self.state.accounts.space.leaving(tier),
        };
        if room == Room::None && leaving > 0 { Room::Busy } else { room }
    }

    /// Sends a frame of this tier down: of the owner `only`, or of the owner that gives (see [`super::owners`]).
    pub(super) fn evict_from(&mut self, tier: u8, only: Option<u16>) -> Room {
        if only.is_some() || !self.state.config.apart {
            return self.send_coldest(only.unwrap_or(0), tier);
        }
        let mut asked = Asked::default();
        let mut room = Room::None;
        while room == Room::None
            && let Some(giver) = self.state.accounts.owners.next_giver(tier, &mut asked)
        {
            room = self.send_coldest(giver, tier);
        }
        self.state.accounts.owners.end(tier, asked);
        room
    }

    fn send_coldest(&mut self, owner: u16, tier: u8) -> Room {
        match self.coldest(owner, tier) {
            Some(frame) => self.send_down(frame, tier),
            None => Room::None,
        }
    }

    /// The least used frame, where frames go down by their uses. Else the order's victim; one whose reference bit is set is used
    /// instead of going, and another is asked for.
    fn coldest(&mut self, owner: u16, tier: u8) -> Option<Frame> {
        if let Some(coldest) = self.state.heat.as_ref().and_then(|heat| heat.coldest(tier)) {
            return Some(coldest);
        }
        for look in 1..=LOOKS_MAX {
            let frame = self.state.order.victim(owner, tier, self.now, self.rng)?;
            self.state.counters.looks += 1;
            let is_spared =
                self.state.config.references == References::Sampled && self.state.bits.take(frame);
            if !is_spared || look == LOOKS_MAX {
                return Some(frame);
            }
            let cell = self.state.cells.at(frame);
            cell.set(PREFETCHED, false);
            let owner = cell.owner;
            self.state.order.hit(frame, owner, tier, Touch { now: self.now, write: false });
        }
        None
    }

    /// Sends one frame to the next tier, or drops it. Answers with its ticket, or why it cannot go.
    pub(super) fn send_down(&mut self, frame: Frame, tier: u8) -> Room {
        let cell = self.state.cells.get(frame);
        debug_assert!(cell.tier() == Some(tier) && cell.pins() == 0, "an order holds who may go");
        if cell.is(WRITING) {
            // It will be clean then, and can be dropped.
            return self
                .state
                .moves
                .find(u64::from(frame.0))
                .map_or(Room::None, |(ticket, _)| Room::After(ticket));
        }
        if self.state.moves.room() == 0 {
            return Room::Busy;
        }
        let below = tier + 1;
        let has_copy = cell.copy() == Some(below);
        let is_zero = cell.is(ZERO);
        let falls_back = has_copy && self.state.accounts.has_room(cell.owner, below);
        if !is_zero && !falls_back {
            match self.room(below, cell.owner) {
                Room::Free => {}
                other => return other,
            }
        }
        if has_copy && !is_zero {
            self.state.forget_copy(frame, below);
        }
        let (kind, to) = match (is_zero, has_copy && self.state.config.writes_told) {
            (true, _) => (Kind::Drop, None),
            (false, true) => (Kind::Drop, Some(below)),
            (false, false) => (Kind::Demote, Some(below)),
        };
        if let Some(to) = to {
            self.state.accounts.take(cell.owner, to);
        }
        let ticket = self.open_down(frame, cell, kind, (tier, to));
        let Some(ticket) = ticket else { return Room::Busy };
        self.acts.push(match (kind, to) {
            (Kind::Demote, Some(to)) => Act::Demote { ticket, frame, from: tier, to, has_copy },
            _ => Act::Drop { ticket, frame, from: tier, to },
        });
        Room::After(ticket)
    }

    /// Opens a move down, for which room is taken already.
    pub(super) fn open_down(
        &mut self,
        frame: Frame,
        cell: Cell,
        kind: Kind,
        (tier, to): (u8, Option<u8>),
    ) -> Option<Ticket> {
        let stays_known = to.is_some_and(|to| self.state.order.holds(to));
        self.state.leave_order(frame, tier, if stays_known { Departure::Moved } else { Departure::Evicted });
        let what = What {
            unused_prefetch: cell.is(PREFETCHED) && !to.is_some_and(|to| self.state.is_in_place(to)),
            ..What::new(kind, Some(tier), to, cell.owner, self.why)
        };
        self.state.open(frame, what)
    }
}
