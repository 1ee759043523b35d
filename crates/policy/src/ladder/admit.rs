//! Admission: new items enter the fast tier (Wang 2024, section 5.1.1).

use super::charges::metadata_bytes_max;
use super::classes::{Class, Fit};
use super::contiguous_room::{Clear, large, should_clear_row};
use super::demotion::Giving;
use super::rebalance::{Exchange, keep_page};
use super::reclaim::Reclaim;
use super::{Act, Context, Ladder, Loc, MoveKind, NewItem, Reactive, Residents, Ticket};
use crate::{Id, Now};
use tiermem_base::Rng;

/// Expired items taken before a live one has to go.
const EXPIRE_BEFORE_EVICT: u32 = 32;
/// How often room is made in one tier before the next is tried: first for pages in a row, then to make up for free pages that may
/// not be used.
const ROOM_TRIES: u32 = 4;

/// The answer to an admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// The item has a number and a place: write its bytes.
    Ready {
        /// Its number.
        id: Id,
        /// Its place.
        loc: Loc,
    },
    /// Execute the acts, call `done` with this ticket, and ask again.
    After(Ticket),
    /// A piece of the room for a large item was made. Execute the acts, end the moves under way, and ask again.
    Again,
    /// There is no room and nothing may go.
    Full,
}

/// Whose items make room for a large one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Give {
    /// Those of its own class, unless another class is clearly colder.
    Coldest,
    /// Those of its own class.
    Own,
}

enum Room {
    /// Space was freed.
    Free,
    /// Space will be free when this move is done.
    After(Ticket),
    /// Nothing can go.
    None,
}

impl Ladder {
    /// Finds a place for an item.
    ///
    /// A free slot of the fast tier is taken first, then expired items go, then the class's coldest item goes down
    /// or out as [`Reactive`] says. A class without a page gets the page of the coldest class. Only where the fast
    /// tier cannot take the item at all does the next one.
    pub fn admit(&mut self, item: &NewItem, now: Now, rng: &mut Rng, acts: &mut Vec<Act>) -> Admit {
        let mut context = Context::new(now, rng, acts).wanting(item.tenant);
        self.make_up_for_growth(&mut context);
        let mut answer = Admit::Full;
        let eviction = self.transit.residents.config.eviction;
        if self.transit.outlet.may_enter(eviction, item.bytes) {
            // An item that gets no place even so is refused, and not tried for ever.
            let fit = self.transit.residents.classes.fit(item.bytes);
            let is_large = large(fit).is_some();
            let has_overflown = is_large && self.clearings.overflow();
            let was_forced = is_large && self.clearings.force();
            answer = self.find_place(item, &mut context);
            if answer == Admit::Full && self.transit.outlet.may_overflow(eviction) && !has_overflown {
                answer = self.find_place(item, &mut context.overflowing());
            }
            if answer == Admit::Full
                && !was_forced
                && self.transit.residents.tenants().is_some_and(|tenants| tenants.may_trespass(item.tenant))
            {
                // The tenant's part is too small for a page of every class, and the pages of the tenants that are to give hold items
                // that others must not lose. Those others get some of its bytes next time.
                answer = self.find_place(item, &mut context.forced());
            }
        }
        self.transit.counters.refused += u64::from(answer == Admit::Full);
        answer
    }

    fn find_place(&mut self, item: &NewItem, context: &mut Context<'_>) -> Admit {
        let fit = self.transit.residents.classes.fit(item.bytes);
        if self.transit.residents.nodes.needs_chunk()
            && let Some(later) = self.make_room_for_chunk(context)
        {
            return later;
        }
        let Some(id) = self.new_id().or_else(|| self.free_a_number(fit, context)) else {
            return Admit::Full;
        };
        let first = match item.rewrites {
            Some(old) => usize::from(self.transit.residents.nodes.loc(old).tier),
            None => {
                let residents = &mut self.transit.residents;
                let first = self.learnt.first_tier(item, fit, residents);
                residents.orders.miss(item.key, first, residents.classes.class(fit));
                first
            }
        };
        let levels = self.transit.residents.levels.len();
        if let Some(loc) = self.take_free_run(fit, first..levels, id) {
            return self.enter(id, loc, item, context.now);
        }
        // Where large items are to get pages of colder classes, their own coldest goes only if no window can be emptied.
        if let Some(answer) = self.find_place_in_tiers(item, (id, first), Give::Coldest, context) {
            return answer;
        }
        if let Some(granules) = large(fit) {
            match self.clearings.piece(granules, &mut self.exchange, &mut self.transit, context) {
                Clear::Done => {
                    // Also above the first tier: the room was made where items are coldest.
                    if let Some(loc) = self.take_free_run(fit, by_preference(first, levels), id) {
                        return self.enter(id, loc, item, context.now);
                    }
                }
                Clear::Working => {
                    self.transit.residents.nodes.leave(id);
                    return Admit::Again;
                }
                Clear::Impossible => {
                    if let Some(answer) = self.find_place_in_tiers(item, (id, first), Give::Own, context) {
                        return answer;
                    }
                }
            }
        }
        self.transit.residents.nodes.leave(id);
        Admit::Full
    }

    /// Looks for a place in one tier after the other. A rewritten item stays in its tier if it can, then goes down, then up; a new
    /// one where the admission says. `None`: there is none, and `id` is still unused.
    fn find_place_in_tiers(
        &mut self,
        item: &NewItem,
        (id, first): (Id, usize),
        give: Give,
        context: &mut Context<'_>,
    ) -> Option<Admit> {
        let fit = self.transit.residents.classes.fit(item.bytes);
        for tier in by_preference(first, self.transit.residents.levels.len()) {
            if !self.transit.residents.levels[tier].can_hold(fit) {
                continue;
            }
            let take = |residents: &mut Residents| {
                residents.levels[tier].take(fit, id, residents.config.watermarks_of(tier))
            };
            let mut unit = take(&mut self.transit.residents);
            if unit.is_none() && self.transit.expire(context.now, EXPIRE_BEFORE_EVICT, context.acts).0 > 0 {
                unit = take(&mut self.transit.residents);
            }
            let mut tries = 0;
            while unit.is_none() && tries < ROOM_TRIES {
                tries += 1;
                match self.make_room(tier, fit, give, context) {
                    Room::Free => unit = take(&mut self.transit.residents),
                    Room::After(ticket) => {
                        self.transit.residents.nodes.leave(id);
                        return Some(Admit::After(ticket));
                    }
                    Room::None => break,
                }
            }
            if let Some(unit) = unit {
                return Some(self.enter(id, Loc { tier: tier as u8, unit }, item, context.now));
            }
        }
        None
    }

    /// Pages in a row for a large item where they are free. Emptying them at once, perhaps of a hundred thousand small items,
    /// would make every other request wait.
    fn take_free_run(&mut self, fit: Fit, mut tiers: impl Iterator<Item = usize>, id: Id) -> Option<Loc> {
        large(fit)?;
        tiers.find_map(|tier| {
            self.transit.residents.levels[tier].can_hold(fit).then_some(())?;
            let slots = &self.transit.residents.levels[tier].slots;
            let held = slots.supply().held();
            // A window whose pages may not be used yet stays: begun anew, it would never be found to be stuck.
            let emptied =
                (held.is_free(slots.pages()) && slots.supply().held_fits()).then(|| held.granules());
            if emptied.is_some() {
                self.clearings.end(tier, &mut self.transit.residents);
            }
            let slots = &mut self.transit.residents.levels[tier].slots;
            let unit = slots.take(fit, id).or_else(|| {
                slots.close_idle_pages();
                slots.take(fit, id)
            });
            // The lowest granules may lie on more free pages than may be used, where metadata has the memory of some.
            let unit = unit.or_else(|| slots.take_run_at(emptied?.start, fit, id))?;
            Some(Loc { tier: tier as u8, unit })
        })
    }

    /// The item has its place.
    pub(super) fn enter(&mut self, id: Id, loc: Loc, item: &NewItem, now: Now) -> Admit {
        self.promotions.note_entered(id, item.rewrites);
        self.learnt.note_entered(id, item, usize::from(loc.tier), &self.transit.residents);
        self.transit.enter(id, loc, item, now);
        Admit::Ready { id, loc }
    }

    /// Frees space of this kind in `tier`, moving or dropping as little as it can.
    fn make_room(&mut self, tier: usize, fit: Fit, give: Give, context: &mut Context<'_>) -> Room {
        let Ladder { transit, exchange, clearings, learnt, .. } = self;
        let class = transit.residents.classes.class(fit);
        if transit.residents.levels[tier].is_leaving(class)
            && let Some(ticket) = transit.last_ticket()
        {
            // Space is about to be free: no other item has to leave for it.
            return Room::After(ticket);
        }
        let runs = transit.residents.classes.runs();
        if class != runs && exchange.page_comes(tier, class, &mut Giving { transit, learnt }, context) {
            let level = &transit.residents.levels[tier];
            if level.slots.supply().free() > 0 {
                return Room::Free;
            }
            if let Some(ticket) = transit.last_ticket().filter(|_| level.is_leaving(runs)) {
                return Room::After(ticket);
            }
        }
        let others_give = give == Give::Coldest
            && matches!(fit, Fit::Run(_))
            && should_clear_row(tier, fit, exchange, &mut transit.residents, context);
        let victim = transit.residents.victim(tier, class, context);
        let victim = victim.filter(|&id| !others_give && transit.residents.is_large_enough(id, fit));
        if let Some(victim) =
            victim.filter(|&id| !clearings.is_cleared_anyway(tier, fit, id, &mut transit.residents))
        {
            if keep_page(&mut transit.residents.levels[tier].slots, transit.residents.nodes.loc(victim).unit)
            {
                return Room::Free;
            }
            learnt.note_victim(tier, victim, &transit.residents, context.now);
            if transit.residents.config.reactive == Reactive::Demote
                && let Some(ticket) =
                    demote_for_room(victim, class, exchange, &mut Giving { transit, learnt }, context)
            {
                return Room::After(ticket);
            }
            if transit.residents.place_bytes(victim) <= transit.evictable_bytes_for_admission(context.demand)
            {
                transit.evict(victim, context);
                return Room::Free;
            }
        }
        // No item of the class may leave: another class may have a page to give.
        if large(fit).is_some() {
            // In pieces, by `prepare`.
            return Room::None;
        }
        let is_reclaimed = Reclaim::for_item(tier, fit, transit, context);
        if let Some(ticket) = transit.last_ticket() {
            // Also where there is nothing to reclaim: an item between two places can leave once it has arrived.
            return Room::After(ticket);
        }
        if is_reclaimed {
            return Room::Free;
        }
        if clearings.is_under_way(tier) {
            // The admission that waits for a large room begins anew.
            clearings.end(tier, &mut transit.residents);
            return Room::Free;
        }
        Room::None
    }

    /// An unused number, if metadata may grow for it.
    pub(super) fn new_id(&mut self) -> Option<Id> {
        if self.transit.residents.nodes.needs_chunk() {
            let metadata_bytes = self.metadata_bytes();
            if !self.charges.may_have_chunk(metadata_bytes, &self.transit.residents) {
                return None;
            }
            let last = self.transit.residents.nodes.grow();
            self.transit.residents.orders.grow_to(last);
            self.promotions.grow_to(last);
            self.limit_pages();
        }
        Some(self.transit.residents.nodes.take_number())
    }

    /// When no further number can be made: the coldest item of the slowest tier gives up its own.
    fn free_a_number(&mut self, fit: Fit, context: &mut Context<'_>) -> Option<Id> {
        let transit = &mut self.transit;
        if transit.expire(context.now, EXPIRE_BEFORE_EVICT, context.acts).0 == 0 {
            let class: Class = transit.residents.classes.class(fit);
            let victim = (0..transit.residents.levels.len()).rev().find_map(|tier| {
                let victim = transit.residents.victim(tier, class, context);
                victim.or_else(|| {
                    let Residents { orders, nodes, levels, .. } = &mut transit.residents;
                    Some(orders.donors(tier, (nodes, &levels[tier].slots), context).first()?.2)
                })
            })?;
            if transit.residents.place_bytes(victim) > transit.evictable_bytes_for_admission(context.demand) {
                return None;
            }
            transit.evict(victim, context);
        }
        self.new_id()
    }

    /// Before an item comes in: where the index has grown since the last look, and into a page's memory, that page is taken
    /// back. Steps do so as well, but a request that brings thousands of items makes none.
    fn make_up_for_growth(&mut self, context: &mut Context<'_>) {
        if !self.charges.has_grown() {
            return;
        }
        self.limit_pages();
        let fast = &self.transit.residents.levels[0];
        let supply = fast.slots.supply();
        if supply.used() > supply.limit() && !fast.has_leaving() {
            let reclaim = Reclaim::for_admission(0, &self.transit, context.demand);
            reclaim.page(&mut self.transit, context);
        }
    }

    /// Takes back the pages that a chunk of item numbers needs. `Some`: they are free when moves are done.
    fn make_room_for_chunk(&mut self, context: &mut Context<'_>) -> Option<Admit> {
        let pages_short = |ladder: &Self| {
            ladder.charges.pages_short_for_chunk(ladder.metadata_bytes(), &ladder.transit.residents)
        };
        if !self.transit.residents.levels[0].has_leaving() {
            for _ in 0..pages_short(self) {
                let reclaim = Reclaim::for_admission(0, &self.transit, context.demand);
                if !reclaim.page(&mut self.transit, context) {
                    break;
                }
            }
        }
        let under_way = self.transit.residents.levels[0].has_leaving() && pages_short(self) > 0;
        self.transit.last_ticket().filter(|_| under_way).map(Admit::After)
    }

    /// Does a piece of the work of making room for an item of `bytes`. `true`: nothing more is to be done before it is admitted,
    /// though it may be refused. Otherwise execute the acts, end the moves under way and ask again, soon.
    pub fn prepare(&mut self, bytes: u64, now: Now, rng: &mut Rng, acts: &mut Vec<Act>) -> bool {
        let context = &mut Context::new(now, rng, acts);
        let Some(granules) = large(self.transit.residents.classes.fit(bytes)) else { return true };
        self.clearings.prepare(granules, &mut self.exchange, &mut self.transit, context)
    }

    /// Whether metadata may grow: it takes its memory from tier 0.
    pub fn may_grow(&self) -> bool {
        let most = metadata_bytes_max(&self.transit.residents);
        !self.transit.residents.config.charge_metadata || (self.metadata_bytes() as f64) < most
    }
}

/// The tiers in which an item is to have a place, best first: down from the first, then up.
fn by_preference(first: usize, levels: usize) -> impl Iterator<Item = usize> {
    (first..levels).chain((0..first).rev())
}

/// Moves an item to the tier below where that has a place. It evicts nothing of the item's size for it; but what is clearly colder
/// there, of other sizes, begins to leave, or nothing that came up would ever find a place again.
fn demote_for_room(
    victim: Id,
    class: Class,
    exchange: &mut Exchange,
    giving: &mut Giving<'_>,
    context: &mut Context<'_>,
) -> Option<Ticket> {
    let below = usize::from(giving.transit.residents.nodes.loc(victim).tier) + 1;
    if below == giving.transit.residents.levels.len() {
        return None;
    }
    let ticket = giving.transit.open_move(victim, below, MoveKind::Demote, context);
    ticket.or_else(|| {
        let comes = exchange.page_comes(below, class, giving, context);
        comes.then(|| giving.transit.open_move(victim, below, MoveKind::Demote, context)).flatten()
    })
}
