//! A small ladder with items, for the tests of its parts. Items enter, are used and move as on a whole ladder, and nothing else
//! happens by itself.

use super::classes::PAGE_UNITS;
use super::item_lifecycle::Transit;
use super::residents::Use;
use super::reuse_stats::Learnt;
use super::{
    Act, Class, Context, LadderConfig, Loc, MoveKind, NewItem, Order, PAGE_BYTES, Priority, Setting,
};
use crate::evict::lru::Bump;
use crate::{Id, Now};
use tiermem_base::Rng;

/// The size of which four items lie on a page.
pub const QUARTER: u64 = PAGE_BYTES / 4;

/// Items, moves under way, and what decisions need.
pub struct World {
    pub transit: Transit,
    pub learnt: Learnt,
    pub rng: Rng,
    pub acts: Vec<Act>,
    /// A request passes with each item that enters or is used.
    pub now: Now,
}

impl World {
    /// Tiers of `pages` pages each. The least recently used item is evicted first, ages are known to the request, metadata is not
    /// charged and nothing is kept free.
    pub fn config(pages: &[u64]) -> LadderConfig {
        let capacities: Vec<u64> = pages.iter().map(|pages| pages * PAGE_BYTES).collect();
        let mut config = LadderConfig {
            class_factor: 2.0,
            bump: Bump::Always,
            watermarks: None,
            recency_requests: 1,
            charge_metadata: false,
            ..LadderConfig::with_capacities(&capacities)
        };
        config.levels.iter_mut().for_each(|level| level.insertion_point = 1.0);
        config
    }

    pub fn new(config: LadderConfig) -> Self {
        let learnt = Learnt::new(&config);
        let transit = Transit::new(config);
        World { transit, learnt, rng: Rng::seeded(1), acts: Vec::new(), now: Now::default() }
    }

    /// One tier of `pages` pages, sampled by recency, of which tenants 1 and 2 have a MiB each.
    pub fn of_two_tenants(pages: u64) -> Self {
        let mut config = World::config(&[pages]);
        config.tenants = true;
        config.levels[0].order = Order::Sample { k: 64, by: Priority::Recency };
        let mut world = World::new(config);
        for tenant in [1, 2] {
            world.transit.residents.apply(Setting::Share { tenant, tier: 0, share_bytes: 1 << 20, k: 0 });
        }
        world
    }

    /// Enters an item in a tier, if there is space.
    pub fn enter(&mut self, tier: usize, bytes: u64) -> Option<Id> {
        self.enter_of(0, tier, bytes)
    }

    /// Enters an item of a tenant.
    pub fn enter_of(&mut self, tenant: u16, tier: usize, bytes: u64) -> Option<Id> {
        let residents = &mut self.transit.residents;
        self.now.requests += 1;
        if residents.nodes.needs_chunk() {
            let last = residents.nodes.grow();
            residents.orders.grow_to(last);
        }
        let id = residents.nodes.take_number();
        let fit = residents.classes.fit(bytes);
        let Some(unit) = residents.levels[tier].take(fit, id, residents.config.watermarks) else {
            residents.nodes.leave(id);
            return None;
        };
        let item = NewItem {
            key: u64::from(id.0),
            bytes,
            expires_at_ms: None,
            rewrites: None,
            tenant,
            is_newcomer: true,
        };
        self.transit.enter(id, Loc { tier: tier as u8, unit }, &item, self.now);
        Some(id)
    }

    /// Enters items of one size until there is no space for another.
    pub fn fill(&mut self, tier: usize, bytes: u64) -> Vec<Id> {
        std::iter::from_fn(|| self.enter(tier, bytes)).collect()
    }

    /// A look-up finds an item.
    pub fn touch(&mut self, id: Id) -> Use {
        self.now.requests += 1;
        self.transit.residents.touch(id, self.now, false)
    }

    /// The arguments of a decision.
    pub fn parts(&mut self) -> (&mut Transit, &mut Learnt, Context<'_>) {
        (&mut self.transit, &mut self.learnt, Context::new(self.now, &mut self.rng, &mut self.acts))
    }

    /// Ends all moves under way.
    pub fn settle(&mut self) {
        let last = self.transit.last_ticket();
        last.into_iter().for_each(|last| self.transit.end_moves(last, true, |_| {}));
    }

    /// The items that were told to move since the last call, and how, and those that were told to leave.
    pub fn decided(&mut self) -> (Vec<(Id, MoveKind)>, Vec<Id>) {
        let (mut moved, mut dropped) = (Vec::new(), Vec::new());
        for act in self.acts.drain(..) {
            match act {
                Act::Move { id, kind, .. } => moved.push((id, kind)),
                Act::Drop { id, .. } => dropped.push(id),
                Act::Discard { .. } | Act::Populate { .. } => {}
            }
        }
        (moved, dropped)
    }

    /// All items that lie in a tier, by a walk over its pages.
    pub fn items(&self, tier: usize) -> Vec<Id> {
        let slots = &self.transit.residents.levels[tier].slots;
        let places_of = |page| slots.pages().items(page).map(move |id| (id, page));
        let all = (0..slots.supply().pages_total()).flat_map(places_of);
        // Of a run the page where it begins.
        let begins = |&(id, page): &(Id, u32)| self.transit.residents.nodes.loc(id).unit / PAGE_UNITS == page;
        all.filter(begins).map(|(id, _)| id).collect()
    }

    /// The item of a tier and class that may go and was not used for longest, by a look at all of them.
    pub fn oldest(&self, tier: usize, class: Class) -> Option<Id> {
        let nodes = &self.transit.residents.nodes;
        let pages = self.transit.residents.levels[tier].slots.pages();
        let mut items = self.items(tier);
        items.retain(|&id| pages.class_at(nodes.loc(id).unit) == class && nodes.get(id).may_go());
        items.into_iter().max_by_key(|&id| nodes.age(id, self.now))
    }

    /// The class of items of `bytes`.
    pub fn class(&self, bytes: u64) -> Class {
        let classes = &self.transit.residents.classes;
        classes.class(classes.fit(bytes))
    }

    /// All classes, that of runs too.
    pub fn classes(&self) -> impl Iterator<Item = Class> + use<> {
        (0..=self.transit.residents.classes.runs().0).map(Class)
    }
}
