//! Opening, ending and giving up moves between places.

use super::classes::PAGE_UNITS;
use super::slots::Holder;
use super::tickets::{Move, MoveState};
use super::{Act, Context, Fit, Ladder, Loc, MoveKind, Ticket};
use crate::Id;
use crate::evict::{Departure, Origin};
use crate::promote::Promotion;

impl Ladder {
    /// Ends all moves up to `ticket`; `copied` tells whether the bytes arrived (of all of them). `settled` is told
    /// of each, in ticket order, whether its item stands at the new place now.
    pub fn done(&mut self, ticket: Ticket, copied: bool, mut settled: impl FnMut(bool)) {
        while let Some(one) = self.tickets.close_first(ticket) {
            settled(copied && one.state == MoveState::Live);
            self.end_move(one, copied);
        }
    }

    /// The last move under way.
    pub fn last_ticket(&self) -> Option<Ticket> {
        self.tickets.last()
    }

    fn end_move(&mut self, one: Move, copied: bool) {
        let (from, to) = (usize::from(one.from.tier), usize::from(one.to.tier));
        let held = |loc: Loc| self.levels[usize::from(loc.tier)].slots.pages().holder_at(loc.unit);
        assert_eq!(
            held(one.to),
            Holder::Ghost,
            "space at the new place is taken, and nobody's, until a move ends"
        );
        if one.state == MoveState::Live {
            assert_eq!(
                held(one.from),
                Holder::Item(one.id),
                "space at the old place is the item's until a move ends"
            );
            assert_eq!(self.loc(one.id), one.from, "an item counts where it was until a move ends");
        }
        self.levels[from].leaving[one.class.index()] -= one.amount;
        self.levels[from].leaving_bytes -= one.bytes;
        if one.state == MoveState::Void {
            self.levels[to].slots.release(one.to.unit);
            return;
        }
        if !copied {
            self.levels[to].slots.release(one.to.unit);
            self.settle(one, one.from, Origin::Demoted);
            return;
        }
        self.levels[from].slots.release(one.from.unit);
        self.levels[to].slots.set_holder(one.to.unit, Holder::Item(one.id));
        let counters = &mut self.levels[from].counters;
        match one.kind {
            MoveKind::Promote => counters.promotions += 1,
            MoveKind::Demote => counters.demotions += 1,
            MoveKind::Relocate => counters.relocations += 1,
        }
        counters.items -= 1;
        self.levels[to].counters.items += 1;
        let origin = if one.kind == MoveKind::Promote { Origin::Promoted } else { Origin::Demoted };
        self.settle(one, one.to, origin);
    }

    /// The item of a move stands at `loc` from now on.
    fn settle(&mut self, one: Move, loc: Loc, origin: Origin) {
        let place = self.places.get(one.id);
        let fresh = match one.kind {
            // It takes two uses from here to go up again.
            MoveKind::Demote if loc == one.to && self.config.promotion == Promotion::ReuseTwice => true,
            _ => place.is_fresh(),
        };
        *self.places.at(one.id) = place.with_loc(loc).with_moving(false).with_fresh(fresh);
        if one.kind == MoveKind::Relocate && loc == one.from {
            self.levels[usize::from(loc.tier)].slots.undrain(loc.unit / PAGE_UNITS);
        }
        if one.kind != MoveKind::Relocate {
            self.order_insert(one.id, usize::from(loc.tier), one.class, origin);
        }
    }

    /// Takes space in `tier` for a copy of the item and writes the move down. `None`: no space there.
    pub(super) fn open_move(
        &mut self,
        id: Id,
        tier: usize,
        kind: MoveKind,
        context: &mut Context<'_>,
    ) -> Option<Ticket> {
        let place = self.places.get(id);
        let from = place.loc();
        let source = usize::from(from.tier);
        let fit = self.levels[source].slots.pages().fit_at(from.unit);
        let class = self.classes.class(fit);
        let unit = match kind {
            MoveKind::Relocate => self.levels[tier].slots.take_within(class, id)?,
            MoveKind::Promote | MoveKind::Demote => self.take(tier, fit, id)?,
        };
        if kind != MoveKind::Relocate {
            self.order_remove(id, source, class, Departure::Moved);
        }
        // Nobody's yet: the move may end as nothing, and the number may be another item's by then.
        self.levels[tier].slots.set_holder(unit, Holder::Ghost);
        *self.places.at(id) = place.with_moving(true);
        let amount = if let Fit::Run(pages) = fit { pages } else { 1 };
        let bytes = self.levels[source].slots.pages().bytes_at(from.unit);
        self.levels[source].leaving[class.index()] += amount;
        self.levels[source].leaving_bytes += bytes;
        let to = Loc { tier: tier as u8, unit };
        let ticket =
            self.tickets.open(Move { id, from, to, kind, state: MoveState::Live, class, amount, bytes });
        context.acts.push(Act::Move { ticket, id, from, to, kind });
        Some(ticket)
    }

    /// The item stays where it is; it was just used, so it stands at the head of its list again.
    pub(super) fn abort_move(&mut self, id: Id) {
        if !self.places.get(id).is_moving() {
            return;
        }
        let Some(one) = self.tickets.live_of(id) else { return };
        one.state = MoveState::Void;
        let one = *one;
        self.counters.moves_aborted += 1;
        self.settle(one, one.from, Origin::Promoted);
    }
}
