//! Pending moves: the tickets of moves under way.
//!
//! A move is two-phase: it is decided with space taken at both ends, the ladder's driver copies the bytes, and only
//! [`super::Ladder::done`] makes the new place the item's own. An item that is overwritten, removed, expired or pinned in between
//! keeps its old place (or none), and the ticket is void.

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

/// The state of a ticket.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(id: Id) -> Move {
        let (from, to) = (Loc { tier: 0, unit: id.0 }, Loc { tier: 1, unit: id.0 });
        let (kind, state) = (MoveKind::Demote, MoveState::Live);
        Move { id, from, to, kind, state, class: Class(0), amount: 1, bytes: 64 }
    }

    proptest! {
        /// Over any sequence of opened, given up, closed and forgotten moves: a number is given out once, moves come back in
        /// their order and in their present state, and an item has the move that was not given up.
        #[test]
        fn equals_a_list_of_numbered_moves(ops in prop::collection::vec((0u8..16, 0u64..6, 0u32..4), 1..200)) {
            let mut tickets = Tickets::default();
            let (mut model, mut next) = (Vec::<(u64, Id, MoveState)>::new(), 0);
            for (what, number, id) in ops {
                let id = Id(id);
                let live = model.iter_mut().find(|(_, other, state)| *other == id && *state == MoveState::Live);
                match (what, live) {
                    (0, _) => {
                        tickets.clear();
                        model.clear();
                    }
                    (1..4, live) => {
                        let found = tickets.live_of(id).map(|one| {
                            one.state = MoveState::Void;
                            one.id
                        });
                        prop_assert_eq!(found, live.map(|(_, id, state)| {
                            *state = MoveState::Void;
                            *id
                        }));
                    }
                    (4..11, None) => {
                        prop_assert_eq!(tickets.open(one(id)), Ticket(next));
                        model.push((next, id, MoveState::Live));
                        next += 1;
                    }
                    _ => {
                        // Some open ones, one that was closed, or one that is still to come.
                        let last = (next + 1).saturating_sub(number);
                        let closed = std::iter::from_fn(|| tickets.close_first(Ticket(last)));
                        let closed: Vec<_> = closed.map(|one| (one.id, one.state)).collect();
                        let until = model.partition_point(|&(number, ..)| number <= last);
                        let expected: Vec<_> = model.drain(..until).map(|(_, id, state)| (id, state)).collect();
                        prop_assert_eq!(closed, expected);
                    }
                }
                prop_assert_eq!(tickets.last(), model.last().map(|&(number, ..)| Ticket(number)));
            }
        }
    }
}
