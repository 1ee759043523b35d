//! A ladder driven by keys, as a cache drives it.
#![allow(dead_code)] // Each test program uses its part.

use tiermem_base::Rng;
use tiermem_policy::ladder::{Act, Admit, Ladder, LadderConfig, NewItem, Order, PAGE_BYTES};
use tiermem_policy::{Id, Now};

/// A ladder and the keys that it holds, by key.
pub struct World {
    pub ladder: Ladder,
    pub ids: Vec<Option<Id>>,
    /// By item number; what it was last.
    keys: Vec<usize>,
    pub now: Now,
    pub rng: Rng,
    /// Pages of all tiers whose memory was taken ahead.
    pub populated: u64,
}

impl World {
    pub fn new(config: LadderConfig) -> Self {
        let ladder = Ladder::new(config);
        World {
            ladder,
            ids: Vec::new(),
            keys: Vec::new(),
            now: Now::default(),
            rng: Rng::seeded(5),
            populated: 0,
        }
    }

    pub fn execute(&mut self, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Drop { id, .. } => {
                    self.ids[self.keys[id.index()]] = None;
                }
                Act::Populate { count, .. } => self.populated += u64::from(count),
                Act::Move { .. } | Act::Discard { .. } => {}
            }
        }
        if let Some(last) = self.ladder.transit().last_ticket() {
            self.ladder.done(last, true, |_| {});
        }
    }

    pub fn step(&mut self) {
        let mut acts = Vec::new();
        self.ladder.step(self.now, &mut self.rng, &mut acts);
        self.execute(acts);
    }

    /// Uses the key, or brings it in.
    pub fn access(&mut self, key: usize, bytes: u64, expires_at_ms: Option<u64>) {
        self.access_of(0, key, bytes, expires_at_ms);
    }

    /// An access of a tenant.
    pub fn access_of(&mut self, tenant: u16, key: usize, bytes: u64, expires_at_ms: Option<u64>) {
        self.request();
        if let Some(id) = self.ids.get(key).copied().flatten() {
            self.ladder.hit(None, id, self.now);
            return;
        }
        let item =
            NewItem { key: hash(key), bytes, expires_at_ms, rewrites: None, tenant, is_newcomer: true };
        self.admit(key, &item);
    }

    /// Brings in a key that was there before.
    pub fn bring_back(&mut self, key: usize, bytes: u64) {
        self.request();
        let (key_hash, expires_at_ms) = (hash(key), None);
        self.admit(
            key,
            &NewItem { key: key_hash, bytes, expires_at_ms, rewrites: None, tenant: 0, is_newcomer: false },
        );
    }

    /// A request begins.
    fn request(&mut self) {
        self.now.requests += 1;
        if self.ladder.is_due(self.now) {
            self.step();
        }
    }

    fn admit(&mut self, key: usize, item: &NewItem) {
        if self.ids.len() <= key {
            self.ids.resize(key + 1, None);
        }
        for _ in 0..8 {
            let mut acts = Vec::new();
            let answer = self.ladder.admit(item, self.now, &mut self.rng, &mut acts);
            self.execute(acts);
            if let Admit::Ready { id, .. } = answer {
                self.ids[key] = Some(id);
                if self.keys.len() <= id.index() {
                    self.keys.resize(id.index() + 1, usize::MAX);
                }
                self.keys[id.index()] = key;
                return;
            }
        }
    }

    pub fn held(&self, keys: std::ops::Range<usize>) -> usize {
        keys.filter(|&key| self.ids.get(key).is_some_and(Option::is_some)).count()
    }

    pub fn in_tier(&self, tier: u8, keys: std::ops::Range<usize>) -> usize {
        let stands = |key: &usize| {
            self.ids[*key].is_some_and(|id| self.ladder.residents().nodes().loc(id).tier == tier)
        };
        keys.filter(stands).count()
    }
}

/// Scattered, as hashes are.
pub fn hash(key: usize) -> u64 {
    (key as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Tiers of `pages` pages each, in which recency is known to the request and metadata costs nothing.
pub fn config(pages: &[u64], order: Order) -> LadderConfig {
    let capacities: Vec<u64> = pages.iter().map(|pages| pages * PAGE_BYTES).collect();
    let mut config = LadderConfig {
        charge_metadata: false,
        recency_requests: 1,
        ..LadderConfig::with_capacities(&capacities)
    };
    config.levels.iter_mut().for_each(|level| level.order = order);
    config
}
