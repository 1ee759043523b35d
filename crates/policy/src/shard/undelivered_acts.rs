//! Undelivered acts of the ladder: decisions that were not handed out yet, and moves that were handed out and are not settled.
//!
//! The ladder takes the space at both ends and ends moves in the order in which it opened them; bytes arrive in any order. So a
//! move waits here for its bytes, and for the moves before it.

use std::collections::VecDeque;

use super::{Act, Items, Memory};
use crate::Id;
use crate::ladder::{self, Loc, Ticket};

#[derive(Clone, Copy, Debug)]
struct Move {
    ticket: Ticket,
    id: Id,
    from: Loc,
    to: Loc,
    bytes: u64,
    /// Whether the bytes have arrived; `None`: they are on their way.
    outcome: Option<bool>,
}

/// Acts and moves under way.
#[derive(Debug)]
pub(super) struct UnderWay {
    /// Decisions, and how many of them were handed out. Reused, so that deciding allocates nothing.
    decided: Vec<ladder::Act>,
    handed_out: usize,
    moves: VecDeque<Move>,
    /// Moves that are settled and were not handed out as such.
    settled: VecDeque<Act>,
}

impl UnderWay {
    /// No decisions and no moves.
    pub(super) fn new() -> Self {
        let decided = Vec::with_capacity(256);
        UnderWay { decided, handed_out: 0, moves: VecDeque::new(), settled: VecDeque::new() }
    }

    /// The list into which the ladder puts its decisions.
    #[inline]
    pub(super) fn decided(&mut self) -> &mut Vec<ladder::Act> {
        debug_assert_eq!(self.handed_out, 0, "a decision follows when all of the one before are handed out");
        &mut self.decided
    }

    /// The next decision to be handed out.
    pub(super) fn next_decision<I: Items>(&mut self, items: &I) -> Option<ladder::Act> {
        if self.handed_out == 0 {
            // A batch waits for its items' memory once, not item by item.
            for act in &self.decided {
                if let ladder::Act::Move { id, from: loc, .. } | ladder::Act::Drop { id, loc, .. } = *act {
                    items.bring_near(id, loc);
                }
            }
        }
        let act = *self.decided.get(self.handed_out)?;
        self.handed_out += 1;
        if self.handed_out == self.decided.len() {
            self.decided.clear();
            self.handed_out = 0;
        }
        Some(act)
    }

    /// A move is handed out.
    pub(super) fn open(&mut self, ticket: Ticket, id: Id, from: Loc, to: Loc, bytes: u64) {
        assert!(
            self.moves.back().is_none_or(|last| last.ticket.0 + 1 == ticket.0),
            "moves are handed out in the order of their tickets, and none is left out"
        );
        assert_ne!(from, to, "a move has two ends");
        self.moves.push_back(Move { ticket, id, from, to, bytes, outcome: None });
    }

    /// Its bytes have arrived, or cannot.
    pub(super) fn close(&mut self, ticket: Ticket, arrived: bool) {
        let first = self.moves.front().map_or(0, |first| first.ticket.0);
        let one = ticket.0.checked_sub(first).and_then(|at| self.moves.get_mut(at as usize));
        let one = one.filter(|one| one.outcome.is_none());
        debug_assert!(one.is_some(), "a move ends once, after it was handed out and before it is settled");
        if let Some(one) = one {
            one.outcome = Some(arrived);
        }
    }

    /// The first move if it is not behind `last` and its bytes have arrived.
    fn next_arrived(&mut self, last: Ticket) -> Option<(Move, bool)> {
        let first = *self.moves.front()?;
        let arrived = first.outcome.filter(|_| first.ticket <= last)?;
        self.moves.pop_front();
        Some((first, arrived))
    }

    /// The next one that stands at its new place.
    pub(super) fn take_settled(&mut self) -> Option<Act> {
        self.settled.pop_front()
    }

    /// Whether all that was decided and all that is settled was handed out.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.decided.is_empty() && self.settled.is_empty()
    }

    /// There are no items any more.
    pub(super) fn clear(&mut self) {
        self.moves.clear();
        self.settled.clear();
    }

    /// Ends the moves up to `last` whose bytes have arrived. `false`: the bytes of some are still on their way.
    pub(super) fn settle(&mut self, last: Ticket, memory: &mut Memory) -> bool {
        while let Some((one, arrived)) = self.next_arrived(last) {
            let Move { ticket, id, from, to, bytes, .. } = one;
            if let Some(expires_at_ms) = memory.end_move(ticket, arrived, (id, from, to, bytes)) {
                self.settled.push_back(Act::Settled { from, to, bytes, expires_at_ms });
            }
        }
        self.moves.front().is_none_or(|first| first.ticket > last)
    }

    /// Ends all moves whose bytes have arrived, in order. `false`: the bytes of some are still on their way.
    pub(super) fn settle_all(&mut self, memory: &mut Memory) -> bool {
        memory.ladder().transit().last_ticket().is_none_or(|last| self.settle(last, memory))
    }
}
