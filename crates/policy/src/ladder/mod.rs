//! The ladder: a chain of slotted tiers, and where each item stands on it.
//!
//! One [`Ladder`] per shard holds item numbers, places, free space, eviction order, expiry and moves under way. It owns no bytes:
//! it hands out places and lists of [`Act`]s, which a live engine executes on memory and a simulator only counts. Both call it in
//! the same way, so both see the same hits:
//!
//! 1. `hit` for each request that finds its item, `admit` for each item that comes, `remove` when one leaves;
//! 2. before a request when it [is due](Ladder::is_due): `done` for the moves under way, then `step`;
//! 3. acts are executed in the order given, before anything else is asked.
//!
//! `admit` may answer `After(ticket)`: execute the acts, call `done(ticket)` and ask again.
//!
//! # Parts
//!
//! | file | part | owns | reads or is lent |
//! | --- | --- | --- | --- |
//! | `item_table.rs` | [`Nodes`] | item numbers, the node of each, timers, how long a tick is (`ticks.rs`) | |
//! | `slots/` | [`slots::Slots`] | pages, slots and free space of one tier, in four parts of its own | |
//! | `level.rs` | [`Level`] | one tier: its slots, classes that are short of space, space that moves will free, counters | |
//! | `victims.rs`, `tier_order.rs` | [`Orders`](victims::Orders) | eviction order: lists, samples, use counts | nodes, slots |
//! | `tenants/` | [`Tenants`] | the tenant of each item, shares and K, what each tenant has of each tier | a sample of `Orders` |
//! | `residents.rs` | [`Residents`] | nodes, levels, orders, the configuration: where each item is, and which is evicted next | |
//! | `pending_moves.rs` | [`Tickets`](pending_moves::Tickets) | moves under way | |
//! | `pins.rs` | [`Pins`](pins::Pins) | places that replies hold | |
//! | `below_last_tier.rs` | [`Outlet`] | the state of what lies below the last tier | |
//! | `item_lifecycle.rs`, `move_ops.rs`, `removal.rs` | [`Transit`] | residents, tickets, pins, outlet, which must agree | |
//! | `reuse_stats.rs`, `entry.rs` | [`Learnt`](reuse_stats::Learnt) | reuse times and ages of the tiers, how new items fared | residents |
//! | `payoff.rs` | [`Payoff`](payoff::Payoff) | items under watch, what moves have saved and taken | |
//! | `promotions.rs` | [`Promotions`](promotions::Promotions) | candidates for a faster tier | learnt, transit, reclaim |
//! | `reclaim.rs` | [`Reclaim`](reclaim::Reclaim) | one attempt to take pages back: of which tier, at which cost | transit |
//! | `tail_age.rs`, `coldest_row.rs` | | nothing: how long what would go next was not used; which granules in a row cost least to empty | residents |
//! | `contiguous_room.rs` | [`Clearings`](contiguous_room::Clearings) | windows emptied for large items | transit, reclaim |
//! | `demotion.rs` | [`Giving`](demotion::Giving) | nothing: an item of a tier moves down or out | transit, learnt, reclaim |
//! | `rebalance.rs` | [`Exchange`](rebalance::Exchange) | pages on their way from one class to another | giving |
//! | `watermark_reclaim.rs` | [`Relief`](watermark_reclaim::Relief) | each tier on its way to the high watermark | giving, exchange |
//! | `charges.rs` | [`Charges`](charges::Charges) | what tier 0 is charged with: the caller's index, waste, room to grow | residents |
//! | `timers.rs` | [`Timers`] | nothing: when items and parts of them expire, and which are due | residents, charges |
//! | `admit.rs`, `step.rs`, `adopt.rs` | [`Ladder`] | all parts, and when the next step is due | |
//!
//! Each part is borrowed separately: a function takes the parts that it needs. The tenant that a decision is made for and what it
//! may cost are a value that is passed with it ([`decision_context::Demand`]).
//!
//! Source: Wang 2024, chapter 5 (sdTMM); the differences are named where they are made.

mod admit;
mod adopt;
mod below_last_tier;
mod charges;
mod classes;
mod coldest_row;
mod config;
mod contiguous_room;
mod decision_context;
mod demotion;
mod entry;
mod item_lifecycle;
mod item_record;
mod item_table;
mod level;
mod move_ops;
mod page_set;
mod payoff;
mod pending_moves;
mod pins;
mod promotions;
mod rebalance;
mod reclaim;
mod removal;
mod residents;
mod reuse_stats;
mod slots;
mod step;
mod tail_age;
mod tenants;
#[cfg(test)]
mod test_world;
mod ticks;
mod tier_order;
mod timers;
mod tuning;
mod victims;
mod watermark_reclaim;

pub use admit::Admit;
pub use below_last_tier::Outlet;
pub use classes::{Class, Fit, GRANULE_BYTES, PAGE_BYTES, SizeClasses, UNIT_BYTES};
pub use config::{
    Eviction, INSERTION_POINT_FAST, INSERTION_POINT_SLOW, LadderConfig, LevelConfig, Reactive, Watermarks,
};
pub use entry::Admission;
pub use item_lifecycle::Transit;
pub use item_table::Nodes;
pub use level::Level;
pub use pending_moves::{MoveKind, Ticket};
pub use pins::{HeldPlaces, PINNED_SHARE, may_hold};
pub use residents::{NewItem, Residents};
pub use tenants::{Setting, TENANTS_MAX, TenantCounters, TenantLevel, Tenants};
pub use tier_order::{Order, Priority};
pub use timers::Timers;
pub use tuning::Tuning;

use crate::deferred_free::DeferredFree;
use crate::promotion_rule::Promotion;
use crate::{Id, Now};
use charges::Charges;
use contiguous_room::Clearings;
use decision_context::{Context, Demand};
use promotions::Promotions;
use rebalance::Exchange;
use reuse_stats::Learnt;
use watermark_reclaim::Relief;

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

/// An act for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Copy the item's bytes. The old place stays the item's until `done`.
    Move {
        /// To hand back.
        ticket: Ticket,
        /// The item that moves.
        id: Id,
        /// Where they are.
        from: Loc,
        /// Where they go.
        to: Loc,
        /// The reason.
        kind: MoveKind,
    },
    /// Forget the key of this item; its bytes are still at `loc` until the next act.
    Drop {
        /// The item.
        id: Id,
        /// Where its bytes are.
        loc: Loc,
        /// The reason.
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
    /// Have another thread take memory for these pages: nothing lies there yet, and something will before long. Whether and when
    /// it is done changes only how long the first write takes.
    Populate {
        /// The tier.
        tier: u8,
        /// The first page's number in the arena.
        first: u32,
        /// How many in a row.
        count: u32,
    },
}

/// Counters of one tier. All but `items` only grow.
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

/// Counters of the whole ladder.
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

/// The ladder of one shard.
#[derive(Clone, Debug)]
pub struct Ladder {
    transit: Transit,
    learnt: Learnt,
    promotions: Promotions,
    clearings: Clearings,
    exchange: Exchange,
    relief: Relief,
    charges: Charges,
    /// The request at which the next step is due.
    next_step: u64,
}

impl Ladder {
    /// An empty ladder.
    ///
    /// # Panics
    /// When there is no level or more than [`LEVELS_MAX`], or not all tiers have the [`Order::Policy`] that one has; callers check
    /// their configuration.
    pub fn new(mut config: LadderConfig) -> Self {
        let problem = config.policy().and_then(|_| config.check_orders().err());
        assert_eq!(problem, None, "a policy orders all tiers");
        config.order_for_tenants();
        let levels = config.levels.len();
        assert!((1..=LEVELS_MAX).contains(&levels), "a ladder has 1 to {LEVELS_MAX} levels");
        let mut ladder = Ladder {
            learnt: Learnt::new(&config),
            promotions: Promotions::new(&config),
            clearings: Clearings::new(levels),
            exchange: Exchange::new(levels),
            relief: Relief::new(levels),
            charges: Charges::default(),
            next_step: config.step_requests,
            transit: Transit::new(config),
        };
        ladder.limit_pages();
        ladder
    }

    /// The configuration it was made with, with all changes since.
    pub fn config(&self) -> &LadderConfig {
        &self.transit.residents.config
    }

    /// The items: places, order and other state of each.
    #[inline]
    pub fn residents(&self) -> &Residents {
        &self.transit.residents
    }

    /// The residents, to change shares and K of tenants.
    pub fn residents_mut(&mut self) -> &mut Residents {
        &mut self.transit.residents
    }

    /// The items in transit: residents, moves, pins and the outlet.
    #[inline]
    pub fn transit(&self) -> &Transit {
        &self.transit
    }

    /// The items in transit, to pin, rewrite and remove items.
    #[inline]
    pub fn transit_mut(&mut self) -> &mut Transit {
        &mut self.transit
    }

    /// Notes a look-up that found a live item. Returns its tier. Pass the item's tenant if it is known: looking it up costs a
    /// read of memory.
    #[inline]
    pub fn hit(&mut self, tenant: Option<u16>, id: Id, now: Now) -> u8 {
        self.used(tenant, id, now, false)
    }

    /// Notes an access to a live item that is no look-up, such as a write. Returns its tier.
    #[inline]
    pub fn touch(&mut self, id: Id, now: Now) -> u8 {
        self.used(None, id, now, true)
    }

    #[inline]
    fn used(&mut self, tenant: Option<u16>, id: Id, now: Now, write: bool) -> u8 {
        let Ladder { transit: Transit { residents, .. }, learnt, promotions, .. } = self;
        let used = residents.touch(id, now, write);
        learnt.payoff_mut().note_use(id, used.place.tier());
        learnt.note_use(&used, residents);
        promotions.note_use(id, tenant, &used, learnt, residents);
        used.place.tier()
    }

    /// Ends all moves up to `ticket`; `copied` tells whether the bytes arrived (of all of them). `settled` is told
    /// of each, in ticket order, whether its item stands at the new place now.
    pub fn done(&mut self, ticket: Ticket, copied: bool, settled: impl FnMut(bool)) {
        self.transit.end_moves(ticket, copied, settled);
    }

    /// Reports the state of the outlet below the last tier.
    pub fn set_outlet(&mut self, outlet: Outlet) {
        self.transit.outlet = outlet;
    }

    /// Changes a tier's capacity, to at most what it was made for. Items beyond it leave in the steps that follow, a few pages in
    /// each.
    pub fn set_capacity(&mut self, tier: usize, capacity_bytes: u64) {
        self.transit.residents.set_capacity(tier, capacity_bytes);
        self.limit_pages();
    }

    /// Changes the settings in `tuning`. A change of promotion from or to [`Promotion::ReuseTimeScan`] is not carried out.
    pub fn tune(&mut self, tuning: Tuning) {
        let scans = |promotion| promotion == Promotion::ReuseTimeScan;
        let before = self.transit.residents.config.promotion;
        let promotion = if scans(tuning.promotion) == scans(before) { tuning.promotion } else { before };
        self.transit.residents.config.tune(Tuning { promotion, ..tuning });
        self.promotions.tune(&self.transit.residents.config);
    }

    /// Takes all items out at once. `false`, and nothing done, while a place is pinned.
    pub fn clear(&mut self) -> bool {
        if !self.transit.clear_into(self.charges.deferred_free()) {
            return false;
        }
        self.promotions.clear(&self.transit.residents.config);
        self.learnt.clear();
        self.clearings.clear();
        self.exchange.clear();
        self.relief.clear();
        self.limit_pages();
        true
    }

    /// Tells the bytes of the caller's own index, which are charged to tier 0, and by how much it may grow at once.
    #[inline]
    pub fn set_index_bytes(&mut self, bytes: u64, growth_bytes: u64) {
        self.charges.set_index_bytes(bytes, growth_bytes);
    }

    /// The tables that the caller no longer needs: add them here, and steps free their memory a little at a time.
    pub fn deferred_free(&mut self) -> &mut DeferredFree {
        self.charges.deferred_free()
    }

    /// Bytes of all state that is not items: nodes, lists, tables, timers and the caller's index.
    pub fn metadata_bytes(&self) -> u64 {
        self.transit.residents.metadata_bytes()
            + self.learnt.bytes()
            + self.promotions.bytes()
            + self.charges.bytes()
    }

    /// Tier 0 holds what metadata leaves of it.
    fn limit_pages(&mut self) {
        let metadata_bytes = self.metadata_bytes();
        self.charges.limit(metadata_bytes, &mut self.transit.residents);
    }

    /// Bytes held in a tier: its pages, and in tier 0 the metadata if that is charged.
    pub fn charged_bytes(&self, tier: usize) -> u64 {
        let pages = u64::from(self.transit.residents.levels[tier].slots.supply().used()) * PAGE_BYTES;
        pages + if tier == 0 && self.config().charge_metadata { self.metadata_bytes() } else { 0 }
    }

    /// How long ago, in requests, the items that leave a tier downwards were last used: the running mean over 64 of them.
    pub fn tail_age_requests(&self, tier: usize) -> u64 {
        self.transit.residents.nodes.ticks().in_requests(self.learnt.tail_age(tier))
    }

    /// Whether an item below all slotted tiers that was seen again after `reuse` requests belongs into memory: it is reused
    /// sooner than some tier's items are on average, or sooner than the age at which unused items leave the tier, because one of
    /// those makes room for it; or memory has unused room. Its bytes have been read already, so bringing it up costs one write,
    /// and each later use saves a read: that is why the threshold is lower than that of a promotion between slotted tiers. Not
    /// while the outlet is choked: a copy would drive another item out. `None`: its last use is not known.
    pub fn wants(&self, reuse: Option<u64>, bytes: u64) -> bool {
        let ticks = self.transit.residents.nodes.ticks();
        let ticks = reuse.map(|reuse| ticks.in_ticks(reuse).max(1));
        !self.transit.outlet.must_wait()
            && self.transit.residents.levels.iter().enumerate().any(|(tier, level)| {
                let high = self.config().watermarks_of(tier).map_or(0.0, |marks| marks.high);
                let spare = high * level.usable_bytes() as f64;
                level.slots.free_bytes() > spare as u64 + bytes
                    || ticks.is_some_and(|ticks| self.learnt.would_stay(tier, ticks))
            })
    }
}
