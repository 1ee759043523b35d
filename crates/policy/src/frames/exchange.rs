//! Exchange: a frame in place that is used often goes to the next faster tier, and one that is used little there takes its place.
//!
//! Source: Yang 2024, section 4.1.1: a node's memory migrates pages with the pool's node alone.
//!
//! The two moves are begun together and take no room for good: for each tier one frame comes and one goes. While they are under way
//! both tiers hold one frame more, of which one is leaving. If one of the moves fails, a tier holds one frame too many, and the next
//! step sends its coldest down.

use super::act::Act;
use super::begin_moves::Mover;
use super::cell::{WRITING, ZERO};
use super::heat::{Heat, Pair};
use super::state::{Kind, State};
use crate::evict::Evict;
use crate::prefetch::Insertion;

impl<E: Evict> State<E> {
    /// The frames that should change places between a tier and the next slower one.
    fn pair(&self, upper: u8) -> Option<Pair> {
        let space = &self.accounts.space;
        // A tier that holds too many gives them first.
        if space.would_want_room(upper) || space.would_want_room(upper + 1) {
            return None;
        }
        let pair = self.heat.as_ref()?.pair(upper, space.free(upper) > 0)?;
        let is_free = |frame| !self.cells.get(frame).is(WRITING);
        (is_free(pair.hot) && pair.cold.is_none_or(is_free)).then_some(pair)
    }

    /// Whether there are frames that should change places.
    pub fn would_exchange(&self) -> bool {
        self.heat.as_ref().is_some_and(|heat| heat.uppers().any(|upper| self.pair(upper).is_some()))
    }
}

impl<E: Evict> Mover<'_, E> {
    /// Frames change places, from the fastest tier down.
    pub(super) fn exchange(&mut self, end: u64) {
        let uppers = self.state.heat.as_ref().map_or(0..0, Heat::uppers);
        for upper in uppers {
            // Two moves, so that no frame goes down for one that stays.
            while self.opened() + 2 <= end
                && self.has_spare_moves()
                && self.state.moves.room() >= 2
                && let Some(pair) = self.state.pair(upper)
            {
                self.change_places(pair, upper);
            }
        }
    }

    fn change_places(&mut self, Pair { hot, cold }: Pair, upper: u8) {
        let Some(cold) = cold else {
            self.bring(hot, upper, false, Insertion::Mru);
            return;
        };
        let cell = self.state.cells.get(cold);
        let to = (!cell.is(ZERO)).then_some(upper + 1);
        if let Some(to) = to {
            self.state.accounts.overfill(cell.owner, to);
        }
        let kind = if to.is_some() { Kind::Demote } else { Kind::Drop };
        let Some(ticket) = self.open_down(cold, cell, kind, (upper, to)) else { return };
        self.acts.push(match to {
            Some(to) => Act::Demote { ticket, frame: cold, from: upper, to, has_copy: false },
            None => Act::Drop { ticket, frame: cold, from: upper, to },
        });
        self.state.accounts.overfill(self.state.cells.get(hot).owner, upper);
        self.open_up(hot, upper, false, Insertion::Mru);
    }
}
