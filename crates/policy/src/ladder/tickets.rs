//! Moves under way. A move is two-phase: it is decided with space taken at both ends, the bytes are copied by
//! whoever drives the ladder, and only [`super::Ladder::done`] makes the new place the item's own. An item that is
//! overwritten, removed, expired or pinned in between keeps its old place (or none), and the ticket is void.

use std::collections::VecDeque;

use super::{Class, Loc};
use crate::Id;

/// A move's number; they are delivered back in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Why an item moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveKind {
    /// To a faster tier.
    Promote,
    /// To a slower tier.
    Demote,
    /// Within its tier and class, to empty a page. The item keeps its position in the list.
    Relocate,
}

/// What a ticket has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveState {
    /// The item still waits for its new place.
    Live,
    /// The item stays where it is or is gone; the new place is given back when the copy ends.
    Void,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub id: Id,
    pub from: Loc,
    pub to: Loc,
    pub kind: MoveKind,
    pub state: MoveState,
    /// Class of both places, and how much of it leaves the old tier (slots, or pages of a run) in bytes too.
    pub class: Class,
    pub amount: u32,
    pub bytes: u64,
}

/// The queue of moves under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Tickets {
    moves: VecDeque<Move>,
    first: u64,
}

impl Tickets {
    pub fn open(&mut self, new: Move) -> Ticket {
        self.moves.push_back(new);
        Ticket(self.first + self.moves.len() as u64 - 1)
    }

    /// Takes out the oldest move if it is not after `ticket`.
    pub fn close_first(&mut self, ticket: Ticket) -> Option<Move> {
        if ticket.0 < self.first {
            return None;
        }
        let done = self.moves.pop_front()?;
        self.first += 1;
        Some(done)
    }

    /// Forgets all moves; numbers go on where they were.
    pub fn clear(&mut self) {
        self.first += self.moves.len() as u64;
        self.moves.clear();
    }

    /// The last move opened.
    pub fn last(&self) -> Option<Ticket> {
        (!self.moves.is_empty()).then(|| Ticket(self.first + self.moves.len() as u64 - 1))
    }

    /// The live move of `id`. Few moves are under way at any time (a step's batches), so a walk is enough.
    pub fn live_of(&mut self, id: Id) -> Option<&mut Move> {
        self.moves.iter_mut().rev().find(|one| one.id == id && one.state == MoveState::Live)
    }
}
