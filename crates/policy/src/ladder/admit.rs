//! Admission: new items enter the fast tier (Wang 2024, section 5.1.1).

use super::{Act, Context, Fit, Ladder, Loc, MoveKind, Reactive, Ticket};
use crate::column::CHUNK_ITEMS;
use crate::evict::{Item, Origin};
use crate::ladder::clearing::{Clear, LARGE_PAGES};
use crate::ladder::place::Place;
use crate::{Id, Now};
use tiermem_base::Rng;

/// Expired items taken before a live one has to go.
const EXPIRE_BEFORE_EVICT: u32 = 32;
/// How often room is made in one tier before another is asked: pages in a row first, then for those that it may not use.
const ROOM_TRIES: u32 = 4;
/// Bytes of metadata that a new chunk of item numbers brings with it: node, links, table cell, index entry and timer.
const CHUNK_METADATA_BYTES: u64 = (32 + TIMER_BYTES) * CHUNK_ITEMS as u64;
/// Bytes of an item's timer.
const TIMER_BYTES: u64 = 16;

/// What is admitted.
#[derive(Clone, Copy, Debug)]
pub struct NewItem {
    /// The hash of its key, the same whenever it comes.
    pub key: u64,
    /// Bytes that the driver will store: header, key and value.
    pub bytes: u64,
    /// When it expires.
    pub expires_at_ms: Option<u64>,
    /// The item that it replaces and whose tier and recency it inherits. The driver has pinned that one.
    pub rewrites: Option<Id>,
    /// Whose it is, below [`super::TENANTS_MAX`]; of no meaning where tenants are not told apart.
    pub tenant: u16,
}

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
        if self.may_enter(item.bytes) {
            // What could not be had even so is not tried for ever.
            let has_overflown = self.overflows_for(item.bytes);
            answer = self.find_place(item, &mut context);
            if answer == Admit::Full && self.may_overflow() && !has_overflown {
                answer = self.find_place(item, &mut context.overflowing());
            }
            if answer == Admit::Full && self.may_trespass(item.tenant) {
                // Its part is too small to have a page of every class, and the pages of those who are to give lie under what others
                // must not lose. Those have some of its bytes next time.
                answer = self.find_place(item, &mut context.forced());
            }
        }
        self.counters.refused += u64::from(answer == Admit::Full);
        answer
    }

    fn find_place(&mut self, item: &NewItem, context: &mut Context<'_>) -> Admit {
        let fit = self.classes.fit(item.bytes);
        if self.needs_chunk()
            && let Some(later) = self.make_room_for_chunk(context)
        {
            return later;
        }
        let Some(id) = self.new_id().or_else(|| self.free_a_number(fit, context)) else {
            return Admit::Full;
        };
        let first = match item.rewrites {
            Some(old) => usize::from(self.loc(old).tier),
            None => self.first_tier(item.key, fit),
        };
        if let Some(loc) = self.take_free_run(fit, first, id) {
            self.enter(id, loc, item, context.now);
            return Admit::Ready { id, loc };
        }
        // A rewritten item stays in its tier if it can, then goes down, then up; a new one where
        // the admission says.
        for tier in (first..self.levels.len()).chain((0..first).rev()) {
            if let Fit::Run(pages) = fit
                && pages > self.levels[tier].slots.supply().limit() / 2
            {
                // It would take more than half of the tier.
                continue;
            }
            let mut unit = self.take(tier, fit, id);
            if unit.is_none() && self.expire(context.now, EXPIRE_BEFORE_EVICT, context.acts) > 0 {
                unit = self.take(tier, fit, id);
            }
            let mut tries = 0;
            while unit.is_none() && tries < ROOM_TRIES {
                tries += 1;
                match self.make_room(tier, fit, context) {
                    Room::Free => unit = self.take(tier, fit, id),
                    Room::After(ticket) => {
                        self.give_back_id(id);
                        return Admit::After(ticket);
                    }
                    Room::None => break,
                }
            }
            if let Some(unit) = unit {
                let loc = Loc { tier: tier as u8, unit };
                self.enter(id, loc, item, context.now);
                return Admit::Ready { id, loc };
            }
        }
        let mut answer = Admit::Full;
        if let Fit::Run(pages) = fit
            && pages >= LARGE_PAGES
        {
            match self.clear_piece(pages, context) {
                Clear::Done => {
                    if let Some(loc) = self.take_free_run(fit, first, id) {
                        self.enter(id, loc, item, context.now);
                        return Admit::Ready { id, loc };
                    }
                }
                Clear::Working => answer = Admit::Again,
                Clear::Impossible => {}
            }
        }
        self.give_back_id(id);
        answer
    }

    /// Pages in a row for a large item where they are free: emptying so many at once, perhaps of a hundred thousand small
    /// items, would hold everybody up.
    fn take_free_run(&mut self, fit: Fit, first: usize, id: Id) -> Option<Loc> {
        let Fit::Run(pages) = fit else { return None };
        (pages >= LARGE_PAGES).then_some(())?;
        let last = self.levels.len();
        (first..last).find_map(|tier| {
            (pages <= self.levels[tier].slots.supply().limit() / 2).then_some(())?;
            // A window whose pages may not be used yet stays: begun anew, it would never be found to be stuck.
            if self.levels[tier].slots.supply().is_held_free() && self.levels[tier].slots.supply().held_fits()
            {
                self.end_clearing(tier);
            }
            let slots = &mut self.levels[tier].slots;
            let unit = slots.take(fit, id).or_else(|| {
                slots.close_idle_pages();
                slots.take(fit, id)
            })?;
            Some(Loc { tier: tier as u8, unit })
        })
    }

    pub(super) fn enter(&mut self, id: Id, loc: Loc, item: &NewItem, now: Now) {
        let place = Place::new(loc, self.recency(now), item.expires_at_ms.is_some());
        *self.places.at(id) = place.with_fresh(item.rewrites.is_none());
        self.uses.reset(id);
        self.tenants.as_mut().into_iter().for_each(|tenants| tenants.set_owner(id, item.tenant));
        if let Some(at_ms) = item.expires_at_ms {
            self.expiry.insert(id, at_ms, now.unix_ms);
        }
        if let Some(column) = &mut self.reuse {
            *column.at(id) = 0;
        }
        let level = &mut self.levels[usize::from(loc.tier)];
        level.counters.items += 1;
        let class = level.slots.pages().class_at(loc.unit);
        if let Some(old) = item.rewrites {
            self.candidates.rename_last(old, id);
        }
        // Sizes beyond 64 GiB are not told apart.
        let size = u32::try_from(item.bytes.div_ceil(super::UNIT_BYTES)).unwrap_or(u32::MAX);
        let known = Item { key: item.key, size, dirty: true, now: now.requests };
        let origin = if item.rewrites.is_some() { Origin::Rewritten(known) } else { Origin::Admitted(known) };
        self.order_insert(id, usize::from(loc.tier), class, origin);
    }

    /// Frees space of this kind in `tier`, moving or dropping as little as it can.
    fn make_room(&mut self, tier: usize, fit: Fit, context: &mut Context<'_>) -> Room {
        let class = self.classes.class(fit);
        if self.levels[tier].leaving[class.index()] > 0
            && let Some(ticket) = self.last_ticket()
        {
            // Space is about to be free: nobody else has to go for it.
            return Room::After(ticket);
        }
        if self.config.watermarks.is_none() {
            // Nobody else asks for a page.
            self.page_comes(tier, class, context);
        }
        let victim = self.victim(tier, class, context).filter(|&id| self.is_large_enough(id, fit));
        if let Some(victim) = victim.filter(|&victim| !self.is_cleared_anyway(tier, fit, victim)) {
            if self.keep_page(tier, victim) {
                return Room::Free;
            }
            self.note_victim(tier, victim, context.now);
            if self.config.reactive == Reactive::Demote
                && tier + 1 < self.levels.len()
                && let Some(ticket) = self.open_move(victim, tier + 1, MoveKind::Demote, context)
            {
                return Room::After(ticket);
            }
            if self.place_bytes(victim) <= self.evictable_bytes_for_admission(context.demand) {
                self.evict(victim, context);
                return Room::Free;
            }
        }
        // Nobody of the class can go: another class may have a page to give.
        let pages = if let Fit::Run(pages) = fit { pages } else { 1 };
        if pages >= LARGE_PAGES {
            // In pieces, by and by.
            return Room::None;
        }
        let is_reclaimed = self.reclaim_for(tier, pages, context);
        if let Some(ticket) = self.last_ticket() {
            // Also where there is nothing to reclaim: who is between two places can go once it has arrived.
            return Room::After(ticket);
        }
        if is_reclaimed {
            return Room::Free;
        }
        if self.levels[tier].clearing.is_some() {
            // Whoever waits for a large room begins anew.
            self.end_clearing(tier);
            return Room::Free;
        }
        Room::None
    }

    /// Whether an item's place is one for this fit, and its tier may use it: not if metadata has grown, and the tier uses more
    /// pages than it may.
    pub(super) fn is_large_enough(&self, id: Id, fit: Fit) -> bool {
        match fit {
            Fit::Slot(_) => true,
            Fit::Run(pages) => {
                let short = self.levels[usize::from(self.loc(id).tier)].slots.supply().pages_short(pages);
                self.place_bytes(id) >= u64::from(pages.max(short)) * super::PAGE_BYTES
            }
        }
    }

    /// Whether an item of so many bytes could be admitted if everything else went: a larger one never is.
    pub fn could_hold(&self, bytes: u64) -> bool {
        match self.classes.fit(bytes) {
            Fit::Slot(_) => true,
            Fit::Run(pages) => self.levels.iter().any(|level| pages <= level.slots.supply().limit() / 2),
        }
    }

    /// An unused number, if metadata may grow for it.
    pub(super) fn new_id(&mut self) -> Option<Id> {
        if self.free_ids != Id::NONE {
            let id = self.free_ids;
            self.free_ids = self.places.get(id).next_free();
            return Some(id);
        }
        if self.needs_chunk() {
            let max = self.config.levels[0].capacity_bytes as f64 * self.config.metadata_share_max;
            let bounded = self.config.charge_metadata;
            // As if every item had an expiry: it may get one at any time, without asking for room.
            let timers = (u64::from(self.ids_made) * TIMER_BYTES).saturating_sub(self.expiry.bytes());
            let metadata = self.metadata_bytes() + timers + CHUNK_METADATA_BYTES;
            let is_short = self.pages_short_for_chunk() > 0;
            if self.ids_made == Id::COUNT_MAX || bounded && (is_short || metadata as f64 > max) {
                return None;
            }
            let last = Id(self.ids_made + CHUNK_ITEMS as u32 - 1);
            self.places.grow_to(last);
            self.uses.grow_to(last);
            self.tenants.as_mut().into_iter().for_each(|tenants| tenants.grow_to(last));
            self.expiry.grow_to(last);
            if let Some(column) = &mut self.reuse {
                column.grow_to(last);
            }
            self.limit_pages();
        }
        self.ids_made += 1;
        Some(Id(self.ids_made - 1))
    }

    pub(super) fn give_back_id(&mut self, id: Id) {
        *self.places.at(id) = Place::free(self.free_ids);
        self.free_ids = id;
    }

    /// When no further number can be made: the coldest item of the slowest tier gives up its own.
    fn free_a_number(&mut self, fit: Fit, context: &mut Context<'_>) -> Option<Id> {
        if self.expire(context.now, EXPIRE_BEFORE_EVICT, context.acts) == 0 {
            let class = self.classes.class(fit);
            let victim = (0..self.levels.len()).rev().find_map(|tier| {
                self.victim(tier, class, context).or_else(|| Some(self.donors(tier, context).first()?.2))
            })?;
            if self.place_bytes(victim) > self.evictable_bytes_for_admission(context.demand) {
                return None;
            }
            self.evict(victim, context);
        }
        self.new_id()
    }
}
