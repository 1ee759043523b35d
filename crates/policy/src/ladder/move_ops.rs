//! Operations on moves: opening, ending and giving up a move between two places.

use super::classes::PAGE_UNITS;
use super::item_lifecycle::Transit;
use super::pending_moves::{Move, MoveState};
use super::residents::Residents;
use super::slots::Holder;
use super::tail_age::is_clearly_colder;
use super::{Act, Context, Loc, MoveKind, Ticket};
use crate::Id;
use crate::evict::{Departure, Origin};
use crate::promotion_rule::Promotion;

impl Transit {
    /// Ends all moves up to `ticket`; `copied` tells whether the bytes arrived (of all of them). `settled` is told
    /// of each, in ticket order, whether its item stands at the new place now.
    pub(super) fn end_moves(&mut self, ticket: Ticket, copied: bool, mut settled: impl FnMut(bool)) {
        while let Some(one) = self.tickets.close_first(ticket) {
            settled(copied && one.state == MoveState::Live);
            self.end_move(one, copied);
        }
    }

    fn end_move(&mut self, one: Move, copied: bool) {
        let (from, to) = (usize::from(one.from.tier), usize::from(one.to.tier));
        let held = |loc: Loc| self.residents.levels[usize::from(loc.tier)].slots.pages().holder_at(loc.unit);
        assert_eq!(
            held(one.to),
            Holder::Ghost,
            "space at the new place is taken, and nobody's, until a move ends"
        );
        if one.state == MoveState::Live {
            debug_assert_eq!(
                held(one.from),
                Holder::Item(one.id),
                "space at the old place is the item's until a move ends"
            );
            debug_assert_eq!(
                self.residents.nodes.loc(one.id),
                one.from,
                "an item counts where it was until a move ends"
            );
        }
        self.residents.levels[from].end_leaving(one.class, one.amount, one.bytes);
        if one.state == MoveState::Void {
            self.residents.levels[to].slots.release(one.to.unit);
            return;
        }
        if !copied {
            self.residents.levels[to].slots.release(one.to.unit);
            self.settle(one, one.from, Origin::Demoted);
            return;
        }
        self.residents.levels[from].slots.release(one.from.unit);
        self.residents.levels[to].slots.pages_mut().set_holder(one.to.unit, Holder::Item(one.id));
        let counters = &mut self.residents.levels[from].counters;
        match one.kind {
            MoveKind::Promote => counters.promotions += 1,
            MoveKind::Demote => counters.demotions += 1,
            MoveKind::Relocate => counters.relocations += 1,
        }
        counters.items -= 1;
        self.residents.levels[to].counters.items += 1;
        let origin = if one.kind == MoveKind::Promote { Origin::Promoted } else { Origin::Demoted };
        self.settle(one, one.to, origin);
    }

    /// The item of a move stands at `loc` from now on.
    fn settle(&mut self, one: Move, loc: Loc, origin: Origin) {
        let place = self.residents.nodes.get(one.id);
        let fresh = match one.kind {
            // It takes two uses from here to go up again.
            MoveKind::Demote if loc == one.to && self.residents.config.promotion == Promotion::ReuseTwice => {
                true
            }
            _ => place.is_fresh(),
        };
        *self.residents.nodes.at(one.id) = place.with_loc(loc).with_moving(false).with_fresh(fresh);
        let slots = &mut self.residents.levels[usize::from(loc.tier)].slots;
        if one.kind == MoveKind::Relocate && loc == one.from {
            slots.undrain(loc.unit / PAGE_UNITS);
        }
        if one.kind != MoveKind::Relocate {
            let bytes = || slots.pages().bytes_at(loc.unit);
            self.residents.orders.insert(one.id, (usize::from(loc.tier), one.class), bytes, origin);
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
        let place = self.residents.nodes.get(id);
        let from = place.loc();
        let source = usize::from(from.tier);
        let fit = self.residents.levels[source].slots.pages().fit_at(from.unit);
        let class = self.residents.classes.class(fit);
        let unit = match kind {
            MoveKind::Relocate => self.residents.levels[tier].slots.take_within(class, id)?,
            MoveKind::Promote | MoveKind::Demote => {
                let marks = self.residents.config.watermarks_of(tier);
                self.residents.levels[tier].take(fit, id, marks)?
            }
        };
        let bytes = self.residents.classes.fit_bytes(fit);
        if kind != MoveKind::Relocate {
            self.residents.orders.remove(id, (source, class), || bytes, Departure::Moved);
        }
        // No item holds it yet: the move may come to nothing, and the number may be another item's by then.
        self.residents.levels[tier].slots.pages_mut().set_holder(unit, Holder::Ghost);
        *self.residents.nodes.at(id) = place.with_moving(true);
        let amount = fit.pages();
        self.residents.levels[source].begin_leaving(class, amount, bytes);
        let to = Loc { tier: tier as u8, unit };
        let ticket =
            self.tickets.open(Move { id, from, to, kind, state: MoveState::Live, class, amount, bytes });
        context.acts.push(Act::Move { ticket, id, from, to, kind });
        Some(ticket)
    }

    /// The item stays where it is; it was just used, so it stands at the head of its list again.
    #[inline]
    pub(super) fn abort_move(&mut self, id: Id) {
        if self.residents.nodes.get(id).is_moving() {
            self.void_move(id);
        }
    }

    fn void_move(&mut self, id: Id) {
        let Some(one) = self.tickets.live_of(id) else { return };
        one.state = MoveState::Void;
        let one = *one;
        self.counters.moves_aborted += 1;
        self.settle(one, one.from, Origin::Promoted);
    }

    /// Has an item leave its page, which is taken back: to a slot of its class elsewhere, or down; one that may not go for
    /// another tenant to a slot that is given up for it. `false`: there is no other place.
    pub(super) fn move_away(
        &mut self,
        id: Id,
        tier: usize,
        is_protected: bool,
        context: &mut Context<'_>,
    ) -> bool {
        self.open_move(id, tier, MoveKind::Relocate, context).is_some()
            || tier + 1 < self.residents.levels.len()
                && self.open_move(id, tier + 1, MoveKind::Demote, context).is_some()
            || is_protected && self.give_slot_to(id, context)
    }

    /// Whether an item is clearly hotter than the one that its class would evict next, whose slot it could take. Where all of the
    /// coldest are between two places now, it is not said to be colder than they are.
    pub(super) fn is_hotter_than_victim(&mut self, id: Id, tier: usize, context: &mut Context<'_>) -> bool {
        let Residents { nodes, levels, classes, .. } = &self.residents;
        let class = levels[tier].slots.pages().class_at(nodes.loc(id).unit);
        let age = nodes.age(id, context.now);
        // A run's place fits few others.
        class != classes.runs()
            && self
                .residents
                .victim(tier, class, context)
                .is_none_or(|victim| is_clearly_colder(self.residents.nodes.age(victim, context.now), age))
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_world::World;
    use super::*;

    const BYTES: u64 = 1000;

    /// Tells an item to go to a tier.
    fn begin(world: &mut World, id: Id, tier: usize, kind: MoveKind) -> Ticket {
        let (transit, _, mut context) = world.parts();
        transit.open_move(id, tier, kind, &mut context).unwrap()
    }

    /// Where an item stands among those of a tier: 0 is the last to go. And how many they are.
    fn rank(world: &World, id: Id, tier: usize) -> (usize, usize) {
        let mut items = Vec::new();
        world.transit.residents.orders.hottest(tier, world.class(BYTES), usize::MAX, |id| items.push(id));
        (items.iter().position(|&other| other == id).unwrap(), items.len())
    }

    fn is_last_to_go(world: &World, id: Id, tier: usize) -> bool {
        rank(world, id, tier).0 == 0
    }

    /// Where new items enter, below half of the others.
    fn is_in_the_middle(world: &World, id: Id, tier: usize) -> bool {
        let (rank, items) = rank(world, id, tier);
        assert!(items >= 8);
        rank.abs_diff(items / 2) <= 1
    }

    #[test]
    fn who_goes_up_or_is_used_on_the_way_is_the_last_to_go_and_who_goes_down_or_cannot_is_as_if_new() {
        let mut config = World::config(&[12, 12]);
        config.levels.iter_mut().for_each(|level| level.insertion_point = 0.5);
        let mut world = World::new(config);
        let above: Vec<Id> = (0..12).filter_map(|_| world.enter(0, BYTES)).collect();
        let below: Vec<Id> = (0..12).filter_map(|_| world.enter(1, BYTES)).collect();
        // Those of the middle are new themselves: somebody from the end moves.
        let last = |world: &World, of: &[Id], tier| {
            let is_there = |id: &&Id| usize::from(world.transit.residents.nodes.loc(**id).tier) == tier;
            *of.iter().filter(is_there).max_by_key(|&&id| rank(world, id, tier).0).unwrap()
        };

        let up = last(&world, &below, 1);
        begin(&mut world, up, 0, MoveKind::Promote);
        world.settle();
        assert!(is_last_to_go(&world, up, 0));

        let down = last(&world, &above, 0);
        begin(&mut world, down, 1, MoveKind::Demote);
        world.settle();
        assert!(is_in_the_middle(&world, down, 1));

        let used = last(&world, &above, 0);
        let ticket = begin(&mut world, used, 1, MoveKind::Demote);
        world.transit.abort_move(used);
        assert!(is_last_to_go(&world, used, 0));
        world.transit.end_moves(ticket, true, |stands| assert!(!stands));
        assert!(is_last_to_go(&world, used, 0), "it stays where it is");

        for (of, from, to, kind) in [(&above, 0, 1, MoveKind::Demote), (&below, 1, 0, MoveKind::Promote)] {
            let held_up = last(&world, of, from);
            let ticket = begin(&mut world, held_up, to, kind);
            world.transit.end_moves(ticket, false, |stands| assert!(!stands));
            assert!(is_in_the_middle(&world, held_up, from), "{kind:?}: its bytes did not arrive");
        }
    }
}
