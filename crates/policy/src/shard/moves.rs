//! Moves between two places that were handed out to the driver and are not settled.
//!
//! The ladder takes the space at both ends and ends moves in the order in which it opened them; bytes arrive in any order. So a
//! move waits here for its bytes, and for those before it.

use std::collections::VecDeque;

use super::{Act, Shard};
use crate::Id;
use crate::ladder::{Loc, Ticket};

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

/// The moves under way, and those that are settled and were not handed out as such.
#[derive(Debug, Default)]
pub(super) struct Moves {
    under_way: VecDeque<Move>,
    settled: VecDeque<Act>,
}

impl Moves {
    /// A move is handed out.
    pub(super) fn open(&mut self, ticket: Ticket, id: Id, from: Loc, to: Loc, bytes: u64) {
        debug_assert!(
            self.under_way.back().is_none_or(|last| last.ticket.0 + 1 == ticket.0),
            "moves are handed out in the order of their tickets, and none is left out"
        );
        debug_assert_ne!(from, to, "a move has two ends");
        self.under_way.push_back(Move { ticket, id, from, to, bytes, outcome: None });
    }

    /// Its bytes have arrived, or cannot.
    fn close(&mut self, ticket: Ticket, arrived: bool) {
        let first = self.under_way.front().map_or(0, |first| first.ticket.0);
        let one = ticket.0.checked_sub(first).and_then(|at| self.under_way.get_mut(at as usize));
        let one = one.filter(|one| one.outcome.is_none());
        debug_assert!(one.is_some(), "a move ends once, after it was handed out and before it is settled");
        if let Some(one) = one {
            one.outcome = Some(arrived);
        }
    }

    /// The first move if it is not behind `last` and its bytes have arrived.
    fn next_arrived(&mut self, last: Ticket) -> Option<(Move, bool)> {
        let first = *self.under_way.front()?;
        let arrived = first.outcome.filter(|_| first.ticket <= last)?;
        self.under_way.pop_front();
        Some((first, arrived))
    }

    /// The next one that stands at its new place.
    pub(super) fn take_settled(&mut self) -> Option<Act> {
        self.settled.pop_front()
    }

    /// Whether all that are settled were handed out.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.settled.is_empty()
    }

    /// There are no items any more.
    pub(super) fn clear(&mut self) {
        self.under_way.clear();
        self.settled.clear();
    }
}

impl Shard {
    /// The bytes of a move have arrived at its new place; with `false` they could not be copied, and the item stays.
    pub fn moved(&mut self, ticket: Ticket, arrived: bool) {
        self.moves.close(ticket, arrived);
    }

    /// Ends the moves up to `last` whose bytes have arrived. `false`: the bytes of some are still on their way.
    pub(super) fn settle(&mut self, last: Ticket) -> bool {
        while let Some((one, arrived)) = self.moves.next_arrived(last) {
            let mut has_moved = false;
            self.memory.ladder.done(one.ticket, arrived, |moved| has_moved = moved);
            if has_moved {
                debug_assert_eq!(
                    self.memory.ladder.loc(one.id),
                    one.to,
                    "a settled item stands where it went"
                );
                self.memory.recount((one.from, one.bytes), (one.to, one.bytes));
                // Told now: the item may be gone again when the act is handed out.
                let (expires_at_ms, Move { from, to, bytes, .. }) =
                    (self.memory.ladder.expires_at_ms(one.id), one);
                self.moves.settled.push_back(Act::Settled { from, to, bytes, expires_at_ms });
            }
        }
        self.moves.under_way.front().is_none_or(|first| first.ticket > last)
    }

    /// The same for all moves.
    pub(super) fn settle_all(&mut self) -> bool {
        self.memory.ladder.last_ticket().is_none_or(|last| self.settle(last))
    }
}
