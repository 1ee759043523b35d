//! The ladder: a chain of slotted tiers, and where each item stands on it.
//!
//! One [`Ladder`] per shard holds item numbers, places, free space, eviction order, expiry and moves under way. It
//! owns no bytes: it hands out places and lists of [`Act`]s, which a live engine executes on memory and a
//! simulator only counts. Both call it in the same way, so both see the same hits:
//!
//! 1. `hit` for each request that finds its item, `admit` for each item that comes, `remove` when one goes;
//! 2. before a request when it [is due](Ladder::is_due): `done` for the moves under way, then `step`;
//! 3. acts are executed in the order given, before anything else is asked.
//!
//! `admit` may answer `After(ticket)`: execute the acts, call `done(ticket)` and ask again.
//!
//! Source: Wang 2024, chapter 5 (sdTMM); the differences are named where they are made.

mod admit;
mod adopt;
mod ahead;
mod capacity;
mod classes;
mod clearing;
mod config;
mod demand;
mod entry;
mod growth;
mod idle;
mod leaving;
mod moves;
mod order;
mod outlet;
mod page_set;
mod pins;
mod place;
mod populate;
mod rebalance;
mod reclaim;
mod slots;
mod step;
mod tail;
mod tenants;
mod tickets;
mod tuning;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use admit::{Admit, NewItem};
pub use classes::{Class, Fit, PAGE_BYTES, SizeClasses, UNIT_BYTES};
pub use config::{
    Eviction, INSERTION_POINT_FAST, INSERTION_POINT_SLOW, LadderConfig, LevelConfig, Reactive, Watermarks,
};
pub use entry::Admission;
pub use order::{Order, Priority};
pub use outlet::Outlet;
pub use tenants::{Setting, TENANTS_MAX, TenantCounters, TenantLevel};
pub use tickets::{MoveKind, Ticket};
pub use tuning::Tuning;

use crate::column::Column;
use crate::evict::{Departure, Domain, Evict, Lru, Touch};
use crate::expiry::ExpiryWheel;
use crate::promote::{Candidate, Candidates, Promotion, ReuseWindow, packed_reuse};
use crate::waste::Waste;
use crate::{Id, Now};
use clearing::Clearing;
use demand::{Context, Demand};
use entry::Proof;
use order::{Sampling, Uses};
use place::Place;
use rebalance::{Donors, Emptying};
use slots::{Holder, Slots};
use tenants::Tenants;
use tickets::{MoveState, Tickets};

/// Slotted tiers that a ladder can have: the node has two bits for them.
pub const LEVELS_MAX: usize = 4;

/// Where an item's bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Loc {
    /// The tier, 0 the fastest.
    pub tier: u8,
    /// The address in the tier's arena, in units of 16 bytes.
    pub unit: u32,
}

impl Loc {
    /// The address in bytes.
    #[inline]
    pub fn byte_offset(self) -> u64 {
        u64::from(self.unit) * UNIT_BYTES
    }
}

/// Why an item left the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// To make room.
    Evicted,
    /// Its time was over.
    Expired,
}

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Copy the item's bytes. The old place stays the item's until `done`.
    Move {
        /// To hand back.
        ticket: Ticket,
        /// Whose bytes.
        id: Id,
        /// Where they are.
        from: Loc,
        /// Where they go.
        to: Loc,
        /// Why.
        kind: MoveKind,
    },
    /// Forget the key of this item; its bytes are still at `loc` until the next act.
    Drop {
        /// Which item.
        id: Id,
        /// Where its bytes are.
        loc: Loc,
        /// Why.
        why: Why,
        /// When it expires, in Unix milliseconds.
        expires_at_ms: Option<u64>,
        /// When it was last used, in requests.
        last_used: u64,
    },
    /// Give these pages' memory back to the system.
    Discard {
        /// The tier.
        tier: u8,
        /// The page's number in the arena.
        page: u32,
    },
    /// Have somebody else take memory for these pages: nothing lies there, and something will before long. Whether and when
    /// it is done makes no difference but to the time that the first write takes.
    Populate {
        /// The tier.
        tier: u8,
        /// The first page's number in the arena.
        first: u32,
        /// How many in a row.
        count: u32,
    },
}

/// Of so many ticks the hits of one say how soon a tenant's items are used again.
const TENANT_REUSE_EVERY: u32 = 8;

/// What one tier has seen. Only grows, but `items`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelCounters {
    /// Look-ups that found their item here.
    pub hits: u64,
    /// Items that left upwards.
    pub promotions: u64,
    /// Items that left downwards.
    pub demotions: u64,
    /// Live items dropped from here.
    pub evictions: u64,
    /// Items moved within the tier to empty a page.
    pub relocations: u64,
    /// Pages that a class gave up for another.
    pub pages_moved: u64,
    /// Items here now.
    pub items: u64,
}

/// What the whole ladder has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LadderCounters {
    /// Items dropped because their time was over.
    pub expired: u64,
    /// Moves whose item changed on the way.
    pub moves_aborted: u64,
    /// Admissions refused.
    pub refused: u64,
    /// Live items dropped while the [`Outlet`] was choked and had no space to spare.
    pub overflowed: u64,
}

#[derive(Clone, Debug)]
struct Level {
    slots: Slots,
    /// Classes that fell below the low watermark and have not reached the high one.
    short: u128,
    /// Classes that could not have a slot when they wanted one.
    starved: u128,
    /// The tier as a whole did.
    pressed: bool,
    /// The class that then gives next, and how many items.
    coldest_class: Option<(Class, u32)>,
    /// How often in a row used items of short classes were passed over and nobody was found.
    passes: u8,
    donors: Donors,
    /// Pages whose items are leaving, a few in each step.
    emptying: Option<Emptying>,
    /// Pages that are emptied for a large item.
    clearing: Option<Clearing>,
    /// Moves under way out of each class: space that will be free.
    leaving: Vec<u32>,
    leaving_bytes: u64,
    reuse: ReuseWindow,
    /// The age at which items leave downwards, on the running average of 64, in 1/64 ticks.
    tail_age: u64,
    order: Order,
    sampling: Sampling,
    counters: LevelCounters,
}

/// The ladder of one shard.
#[derive(Clone, Debug)]
pub struct Ladder {
    config: LadderConfig,
    classes: Arc<SizeClasses>,
    places: Column<Place>,
    ids_made: u32,
    free_ids: Id,
    levels: Vec<Level>,
    lists: Lru,
    uses: Uses,
    /// Whose items these are, where they are told apart.
    tenants: Option<Tenants>,
    expiry: ExpiryWheel,
    tickets: Tickets,
    /// Places held by replies under way: how many, and whether their item has left.
    pins: BTreeMap<Loc, (u32, bool)>,
    candidates: Candidates,
    /// Last reuse time per item, only for promotion by scanning.
    reuse: Option<Column<u8>>,
    proof: Proof,
    next_scan: u64,
    /// The request at which the next step is due.
    next_step: u64,
    /// The last one has left work.
    is_behind: bool,
    /// [`LadderConfig::promote_below`] in parts of [`crate::promote::WHOLE`].
    promote_below: u32,
    index_bytes: u64,
    /// By how much it may grow at once, and what it was when tier 0 was last limited for it.
    index_growth_bytes: u64,
    /// As above.
    index_bytes_limited: u64,
    outlet: Outlet,
    waste: Waste,
    counters: LadderCounters,
}

impl Ladder {
    /// An empty ladder.
    ///
    /// # Panics
    /// When there is no level or more than [`LEVELS_MAX`]; callers check their configuration.
    pub fn new(mut config: LadderConfig) -> Self {
        config.order_for_tenants();
        assert!((1..=LEVELS_MAX).contains(&config.levels.len()), "a ladder has 1 to {LEVELS_MAX} levels");
        let classes = Arc::new(SizeClasses::geometric(config.class_factor));
        let level = |level: &LevelConfig| Level {
            slots: capacity::slots(level, &config, classes.clone()),
            short: 0,
            starved: 0,
            pressed: false,
            coldest_class: None,
            passes: 0,
            donors: Donors::default(),
            emptying: None,
            clearing: None,
            leaving: vec![0; classes.count() + 1],
            leaving_bytes: 0,
            reuse: ReuseWindow::new(config.reuse_window_requests),
            tail_age: 0,
            order: level.order,
            sampling: Sampling::new(level.insertion_point),
            counters: LevelCounters::default(),
        };
        let by_frequency =
            |level: &LevelConfig| matches!(level.order, Order::Sample { by: Priority::Frequency, .. });
        let mut ladder = Ladder {
            levels: config.levels.iter().map(level).collect(),
            lists: config.lists(classes.count() + 1),
            uses: Uses::new(config.levels.iter().any(by_frequency)),
            tenants: config.tenants.then(|| Tenants::new(&config)),
            classes,
            places: Column::default(),
            ids_made: 0,
            free_ids: Id::NONE,
            expiry: ExpiryWheel::default(),
            tickets: Tickets::default(),
            pins: BTreeMap::new(),
            candidates: Candidates::new(config.candidates.max(1)),
            reuse: (config.promotion == Promotion::ReuseTimeScan).then(Column::default),
            proof: Proof::new(config.admission),
            next_scan: 0,
            next_step: config.step_requests,
            is_behind: false,
            promote_below: config.promote_below_parts(),
            index_bytes: 0,
            index_growth_bytes: 0,
            index_bytes_limited: 0,
            outlet: Outlet::default(),
            waste: Waste::default(),
            counters: LadderCounters::default(),
            config,
        };
        ladder.limit_pages();
        ladder
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &LadderConfig {
        &self.config
    }

    /// Notes a look-up that found a live item; returns its tier.
    #[inline]
    pub fn hit(&mut self, id: Id, now: Now) -> u8 {
        self.hit_of(None, id, now)
    }

    /// The same where it may be known whose item it is: to look that up costs a place in memory.
    #[inline]
    pub fn hit_of(&mut self, tenant: Option<u16>, id: Id, now: Now) -> u8 {
        let tier = self.used(tenant, id, now, false);
        self.levels[usize::from(tier)].counters.hits += 1;
        tier
    }

    /// Notes an access to a live item that is no look-up, such as a write; returns its tier.
    #[inline]
    pub fn touch(&mut self, id: Id, now: Now) -> u8 {
        self.used(None, id, now, true)
    }

    #[inline]
    fn used(&mut self, tenant: Option<u16>, id: Id, now: Now, write: bool) -> u8 {
        let recency = self.recency(now);
        let cell = self.places.at(id);
        let place = *cell;
        debug_assert!(!place.is_free());
        *cell = place.used_at(recency);
        let tier = usize::from(place.tier());
        let age = recency.wrapping_sub(place.last()) & place::LAST_MASK;
        if place.is_fresh() && tier == 0 && self.config.admission == Admission::Proven {
            let fit = self.levels[0].slots.pages().fit_at(place.unit());
            self.proof.note(self.units(fit), true);
        }
        // A promoted or demoted item is between two orders until its move is done.
        if !place.is_moving() {
            self.order_hit(id, place, age, Touch { now: now.requests, write });
        }
        // A few hits show the mean of a tenant, and each costs a place in memory.
        let counts = self.config.levels.len() > 1 && recency.is_multiple_of(TENANT_REUSE_EVERY);
        let tenant = tenant.unwrap_or_else(|| if counts || tier > 0 { self.tenant_of(id) } else { 0 });
        let level = &mut self.levels[tier];
        // In ticks; a reuse within one counts as one.
        let reuse = u64::from(age).max(1);
        match self.config.promotion {
            Promotion::None => {}
            Promotion::Naive if tier > 0 => self.candidates.push(Candidate { id, reuse: 0 }),
            Promotion::Naive => {}
            Promotion::ReuseTwice | Promotion::ReuseTime | Promotion::ReuseTimeScan | Promotion::TailAge => {
                let twice = self.config.promotion == Promotion::ReuseTwice;
                level.reuse.note(reuse);
                if let Some(tenants) = self.tenants.as_mut().filter(|_| counts) {
                    tenants.note_reuse(tenant, tier, reuse);
                }
                if tier > 0 {
                    if let Some(column) = &mut self.reuse {
                        // 0 there means never reused.
                        *column.at(id) = packed_reuse::pack(reuse);
                    } else if !self.is_hot(tenant, tier, reuse, place) {
                        if twice {
                            // The next use is the first of two again.
                            let cell = self.places.at(id);
                            *cell = cell.with_fresh(true);
                        }
                    } else if !(twice && place.is_fresh()) {
                        self.candidates.push(Candidate { id, reuse: age.max(1) });
                    }
                }
            }
        }
        place.tier()
    }

    /// Where a live item's bytes lie.
    #[inline]
    pub fn loc(&self, id: Id) -> Loc {
        self.places.get(id).loc()
    }

    /// Whether `bytes` fit the place that the item has, so that it can be rewritten there; a move under way is
    /// given up then. Never while the item is pinned.
    pub fn rewrite_in_place(&mut self, id: Id, bytes: u64) -> bool {
        let place = self.places.get(id);
        if place.is_pinned() {
            return false;
        }
        let slots = &self.levels[usize::from(place.tier())].slots;
        if slots.pages().fit_at(place.unit()) != self.classes.fit(bytes) {
            return false;
        }
        self.abort_move(id);
        true
    }

    /// Takes a live item out. Its place is free at once, or when a move or a pin lets go of it.
    pub fn remove(&mut self, id: Id) {
        self.leave(id, Departure::Deleted);
    }

    fn leave(&mut self, id: Id, departure: Departure) {
        let place = self.places.get(id);
        debug_assert!(!place.is_free());
        let tier = usize::from(place.tier());
        let loc = place.loc();
        let mut listed = true;
        if place.is_moving()
            && let Some(one) = self.tickets.live_of(id)
        {
            // Only the copy's target has to wait for `done`: what is still read from here goes nowhere.
            listed = one.kind == MoveKind::Relocate;
            one.state = MoveState::Void;
            self.counters.moves_aborted += 1;
        }
        if listed {
            let class = self.levels[tier].slots.pages().class_at(loc.unit);
            self.order_remove(id, tier, class, departure);
        }
        if place.expires() {
            self.expiry.remove(id);
        }
        let level = &mut self.levels[tier];
        level.counters.items -= 1;
        if let Some((_, left)) = self.pins.get_mut(&loc) {
            *left = true;
            level.slots.set_holder(loc.unit, Holder::Ghost);
        } else {
            level.slots.release(loc.unit);
        }
        *self.places.at(id) = Place::free(self.free_ids);
        self.free_ids = id;
    }

    /// When the item expires, in Unix milliseconds.
    #[inline]
    pub fn expires_at_ms(&self, id: Id) -> Option<u64> {
        self.places.get(id).expires().then(|| self.expiry.at_ms(id))
    }

    /// Sets or removes the item's expiry.
    pub fn set_expires_at_ms(&mut self, id: Id, at_ms: Option<u64>, now: Now) {
        let place = self.places.get(id);
        if !place.expires() && at_ms.is_none() {
            return;
        }
        if place.expires() {
            self.expiry.remove(id);
        }
        if let Some(at_ms) = at_ms {
            self.expiry.insert(id, at_ms, now.unix_ms);
        }
        *self.places.at(id) = place.with_expires(at_ms.is_some());
        self.limit_pages();
    }

    /// Takes all items out at once. `false`, and nothing done, while a place is pinned.
    pub fn clear(&mut self) -> bool {
        if !self.pins.is_empty() {
            return false;
        }
        self.tickets.clear();
        self.places.clear_into(&mut self.waste);
        self.reuse = self.reuse.is_some().then(Column::default);
        (self.ids_made, self.free_ids) = (0, Id::NONE);
        self.lists.clear_into(&mut self.waste);
        self.uses.clear();
        if let Some(tenants) = &mut self.tenants {
            tenants.clear_into(&mut self.waste);
        }
        self.expiry.clear_into(&mut self.waste);
        self.candidates = Candidates::new(self.config.candidates.max(1));
        for level in &mut self.levels {
            level.slots.clear(&mut self.waste);
            level.leaving.fill(0);
            (level.leaving_bytes, level.short, level.pressed, level.counters.items) = (0, 0, false, 0);
            (level.starved, level.emptying, level.clearing) = (0, None, None);
            (level.coldest_class, level.passes, level.tail_age) = (None, 0, 0);
        }
        self.limit_pages();
        true
    }

    /// Space in a tier, noting when its class has fallen below the low watermark.
    fn take(&mut self, tier: usize, fit: Fit, id: Id) -> Option<u32> {
        let level = &mut self.levels[tier];
        let class = self.classes.class(fit);
        let Some(unit) = level.slots.take(fit, id) else {
            level.starved |= 1 << class.index();
            level.short |= 1 << class.index();
            return None;
        };
        level.starved &= !(1 << class.index());
        if let Some(marks) = self.config.watermarks {
            let (free, held) = level.slots.class_space(class);
            if free < step::threshold(held, marks.low) {
                level.short |= 1 << class.index();
            }
        }
        Some(unit)
    }

    #[inline]
    fn recency(&self, now: Now) -> u32 {
        (now.requests / self.config.recency_requests.max(1)) as u32 & place::LAST_MASK
    }

    /// Ticks since the item was last used.
    fn age(&self, id: Id, now: Now) -> u32 {
        self.recency(now).wrapping_sub(self.places.get(id).last()) & place::LAST_MASK
    }

    /// Bytes of all state beside the items: nodes, lists, tables, timers and the caller's index.
    pub fn metadata_bytes(&self) -> u64 {
        self.places.bytes()
            + self.lists.metadata_bytes()
            + self.uses.bytes()
            + self.tenants.as_ref().map_or(0, Tenants::bytes)
            + self.proof.bytes()
            + self.expiry.bytes()
            + self.reuse.as_ref().map_or(0, Column::bytes)
            + self.levels.iter().map(|level| level.slots.metadata_bytes()).sum::<u64>()
            + self.index_bytes
            + self.waste.bytes()
    }

    /// Bytes held in a tier: its pages, and in tier 0 the metadata if that is charged.
    pub fn charged_bytes(&self, tier: usize) -> u64 {
        let pages = u64::from(self.levels[tier].slots.supply().used()) * PAGE_BYTES;
        pages + if tier == 0 && self.config.charge_metadata { self.metadata_bytes() } else { 0 }
    }

    /// Bytes that the item's place occupies.
    pub fn place_bytes(&self, id: Id) -> u64 {
        let loc = self.loc(id);
        self.levels[usize::from(loc.tier)].slots.pages().bytes_at(loc.unit)
    }

    /// Bytes of a place that is taken.
    pub fn bytes_of_place(&self, loc: Loc) -> u64 {
        self.levels[usize::from(loc.tier)].slots.pages().bytes_at(loc.unit)
    }

    /// Bytes of the place that an item of so many bytes gets.
    pub fn place_bytes_for(&self, bytes: u64) -> u64 {
        self.classes.fit_bytes(self.classes.fit(bytes))
    }

    /// A tier's counters.
    pub fn level(&self, tier: usize) -> LevelCounters {
        self.levels[tier].counters
    }

    /// How many tiers there are.
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Counters of the whole.
    pub fn counters(&self) -> LadderCounters {
        self.counters
    }

    /// Items that have an expiry.
    pub fn items_with_expiry(&self) -> u64 {
        self.expiry.len()
    }

    /// Live items.
    pub fn items(&self) -> u64 {
        self.levels.iter().map(|level| level.counters.items).sum()
    }
}

/// The order that an item of this tier and class is in.
#[inline]
fn domain(classes: &SizeClasses, tier: usize, class: Class) -> Domain {
    Domain((tier * (classes.count() + 1) + class.index()) as u32)
}
