//! Making room: what costs nothing first, then somebody's coldest frame.

use super::act::Act;
use super::cell::{Cell, Frame, PREFETCHED, WRITING, ZERO};
use super::config::References;
use super::machine::{Ask, Frames, Kind, What};
use super::owners::Asked;
use crate::evict::{Departure, Evict, Touch};
use crate::moves::Ticket;
use crate::prefetch::Insertion;

/// Victims that may be spared for their reference bits, for one that goes.
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

impl<E: Evict> Frames<E> {
    /// Makes room for one more frame of an owner. The caller has checked that a move can be opened.
    pub(super) fn room(&mut self, tier: u8, owner: u16, ask: &mut Ask<'_>) -> Room {
        if self.accounts.has_room(owner, tier) {
            if self.accounts.space.is_full_of_copies(tier)
                && let Some(oldest) = self.copies.oldest(tier)
            {
                self.give_up_copy(oldest, ask.acts);
            }
            return Room::Free;
        }
        let only = self.accounts.owners.is_at_quota(owner, tier).then_some(owner);
        let room = if self.order.holds(tier) { self.evict_from(tier, only, ask) } else { Room::None };
        let leaving = match only {
            Some(owner) => self.accounts.owners.leaving(owner, tier),
            None => self.accounts.space.leaving(tier),
        };
        if room == Room::None && leaving > 0 { Room::Busy } else { room }
    }

    /// Sends a frame of this tier down: of `only`, or of who gives (see [`super::owners`]).
    pub(super) fn evict_from(&mut self, tier: u8, only: Option<u16>, ask: &mut Ask<'_>) -> Room {
        if only.is_some() || !self.config.apart {
            return self.send_coldest(only.unwrap_or(0), tier, ask);
        }
        let mut asked = Asked::default();
        let mut room = Room::None;
        while room == Room::None
            && let Some(giver) = self.accounts.owners.next_giver(tier, &mut asked)
        {
            room = self.send_coldest(giver, tier, ask);
        }
        self.accounts.owners.end(tier, asked);
        room
    }

    fn send_coldest(&mut self, owner: u16, tier: u8, ask: &mut Ask<'_>) -> Room {
        match self.coldest(owner, tier, ask) {
            Some(frame) => self.send_down(frame, tier, ask),
            None => Room::None,
        }
    }

    /// The order's victim; one whose reference bit is set is used instead of going, and another is asked for.
    fn coldest(&mut self, owner: u16, tier: u8, ask: &mut Ask<'_>) -> Option<Frame> {
        for look in 1..=LOOKS_MAX {
            let frame = self.order.victim(owner, tier, ask.now, ask.rng)?;
            self.counters.looks += 1;
            let is_spared = self.config.references == References::Sampled && self.bits.take(frame);
            if !is_spared || look == LOOKS_MAX {
                return Some(frame);
            }
            let cell = self.cells.at(frame);
            cell.set(PREFETCHED, false);
            let owner = cell.owner;
            self.order.hit(frame, owner, tier, Touch { now: ask.now, write: false });
        }
        None
    }

    /// Sends one frame to the next tier, or drops it. Answers with its ticket, or why it cannot go.
    fn send_down(&mut self, frame: Frame, tier: u8, ask: &mut Ask<'_>) -> Room {
        let cell = self.cells.get(frame);
        debug_assert!(cell.tier() == Some(tier) && cell.pins() == 0, "an order holds who may go");
        if cell.is(WRITING) {
            // It will be clean then, and can be dropped.
            return self.moves.find(u64::from(frame.0)).map_or(Room::None, |(ticket, _)| Room::After(ticket));
        }
        if self.moves.room() == 0 {
            return Room::Busy;
        }
        let below = tier + 1;
        let has_copy = cell.copy() == Some(below);
        let is_zero = cell.is(ZERO);
        if !is_zero && !(has_copy && self.accounts.has_room(cell.owner, below)) {
            match self.room(below, cell.owner, ask) {
                Room::Free => {}
                other => return other,
            }
        }
        if has_copy && !is_zero {
            self.forget_copy(frame, below);
        }
        let (kind, to) = match (is_zero, has_copy && self.config.writes_told) {
            (true, _) => (Kind::Drop, None),
            (false, true) => (Kind::Drop, Some(below)),
            (false, false) => (Kind::Demote, Some(below)),
        };
        let ticket = self.open_down(frame, cell, kind, (tier, to), ask);
        let Some(ticket) = ticket else { return Room::Busy };
        ask.acts.push(match (kind, to) {
            (Kind::Demote, Some(to)) => Act::Demote { ticket, frame, from: tier, to, has_copy },
            _ => Act::Drop { ticket, frame, from: tier, to },
        });
        Room::After(ticket)
    }

    fn open_down(
        &mut self,
        frame: Frame,
        cell: Cell,
        kind: Kind,
        (tier, to): (u8, Option<u8>),
        ask: &Ask<'_>,
    ) -> Option<Ticket> {
        if let Some(to) = to {
            self.accounts.take(cell.owner, to);
        }
        let stays_known = to.is_some_and(|to| self.order.holds(to));
        self.leave_order(frame, tier, if stays_known { Departure::Moved } else { Departure::Evicted });
        self.open(
            frame,
            What {
                kind,
                from: Some(tier),
                to,
                owner: cell.owner,
                why: ask.why,
                stays: false,
                awaited: false,
                write: false,
                is_zero: false,
                unused_prefetch: cell.is(PREFETCHED),
                insertion: Insertion::Mru,
            },
        )
    }
}
