//! A ladder to which only new items come, and what is decided for each of them.
#![allow(clippy::unwrap_used, dead_code)] // Helpers of tests are tests, and each test program uses its part.

use std::collections::BTreeMap;

use tiermem_base::Rng;
use tiermem_policy::ladder::{
    Act, Admit, Eviction, Ladder, LadderConfig, NewItem, PAGE_BYTES, Watermarks, Why,
};
use tiermem_policy::{Id, Now};

/// A ladder and the bytes of each of its items.
pub struct World {
    pub ladder: Ladder,
    pub bytes: BTreeMap<u32, u64>,
    pub now: Now,
    rng: Rng,
}

/// What became of an item that was to come in.
#[derive(Debug)]
pub struct Admission {
    pub came: bool,
    /// How often it had to ask again.
    pub again: usize,
    /// The most that was decided at once.
    pub acts_max: usize,
    /// The bytes of the place of each item that left for it.
    pub dropped: Vec<u64>,
}

impl World {
    /// Tiers of `pages` pages each, in which metadata costs nothing.
    pub fn new(pages: &[u64], eviction: Eviction, watermarks: Option<Watermarks>) -> Self {
        let capacities: Vec<u64> = pages.iter().map(|pages| pages * PAGE_BYTES).collect();
        let config = LadderConfig {
            charge_metadata: false,
            eviction,
            watermarks,
            ..LadderConfig::with_capacities(&capacities)
        };
        World {
            ladder: Ladder::new(config),
            bytes: BTreeMap::new(),
            now: Now { requests: 0, unix_ms: 1 },
            rng: Rng::seeded(1),
        }
    }

    /// Carries the acts out. Returns how many bytes of places each of those dropped had.
    fn execute(&mut self, acts: Vec<Act>) -> Vec<u64> {
        let mut dropped = Vec::new();
        for act in acts {
            if let Act::Drop { id, why, .. } = act {
                assert_eq!(why, Why::Evicted);
                dropped
                    .push(self.ladder.residents().classes().place_bytes(self.bytes.remove(&id.0).unwrap()));
            }
        }
        dropped
    }

    /// All moves that are under way arrive.
    fn settle(&mut self) {
        if let Some(last) = self.ladder.transit().last_ticket() {
            self.ladder.done(last, true, |_| {});
        }
    }

    pub fn admit(&mut self, bytes: u64) -> Admission {
        self.now.requests += 1;
        // Scattered, as hashes are.
        let key = self.now.requests.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let item = NewItem { key, bytes, expires_at_ms: None, rewrites: None, tenant: 0, is_newcomer: true };
        let mut admission = Admission { came: false, again: 0, acts_max: 0, dropped: Vec::new() };
        loop {
            let mut acts = Vec::new();
            let answer = self.ladder.admit(&item, self.now, &mut self.rng, &mut acts);
            admission.acts_max = admission.acts_max.max(acts.len());
            admission.dropped.extend(self.execute(acts));
            match answer {
                Admit::Ready { id: Id(id), .. } => {
                    self.bytes.insert(id, bytes);
                    return Admission { came: true, ..admission };
                }
                Admit::After(_) => {}
                Admit::Again => admission.again += 1,
                Admit::Full => return admission,
            }
            self.settle();
        }
    }

    /// Background work. Returns how many bytes of places each of those dropped had.
    pub fn step(&mut self) -> Vec<u64> {
        self.settle();
        let mut acts = Vec::new();
        self.ladder.step(self.now, &mut self.rng, &mut acts);
        self.execute(acts)
    }

    /// A piece of the room for a large item. Returns whether it was the last, and how much was decided.
    pub fn prepare(&mut self, bytes: u64) -> (bool, usize) {
        self.settle();
        let mut acts = Vec::new();
        let done = self.ladder.prepare(bytes, self.now, &mut self.rng, &mut acts);
        let decided = acts.len();
        self.execute(acts);
        (done, decided)
    }
}
