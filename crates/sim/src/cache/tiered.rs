//! The store's ladder over a trace, without bytes.
//!
//! It makes the same calls in the same order as the live engine, so one trace gives the same hits, moves and
//! evictions in both; a test of the store holds the two against each other.

use tiermem_base::curve::{Curve, LOCAL_DRAM, Surcharge};
use tiermem_base::hash::KeyHasher;
use tiermem_base::{Access, Op, Rng};
use tiermem_policy::index::Index;
use tiermem_policy::ladder::{
    Act, Admit, Eviction, Ladder, LadderConfig, LadderCounters, LevelCounters, NewItem,
};
use tiermem_policy::{Id, Now};

/// How often an admission may wait for moves; as in the engine.
const ADMIT_TRIES: usize = 8;

/// What the simulation needs to know beside the ladder.
#[derive(Clone, Debug)]
pub struct TieredConfig {
    /// The ladder.
    pub ladder: LadderConfig,
    /// Bytes that are stored with each value: the item's header and the key.
    pub overhead_bytes: u64,
    /// What the tiers below the first are; what they cost beyond local DRAM is charged as the engine charges it.
    pub slow: Curve,
    /// Seed of the index's hash and of the policies' choices.
    pub seed: u64,
}

/// A ladder and the keys on it.
#[derive(Debug)]
pub struct TieredCache {
    ladder: Ladder,
    index: Index,
    hasher: KeyHasher,
    rng: Rng,
    now: Now,
    next_step: u64,
    acts: Vec<Act>,
    /// The key of each item number, and the bytes that are stored for it.
    keys: Vec<(u64, u64)>,
    overhead_bytes: u64,
    read: Surcharge,
    write: Surcharge,
    charged_ns: f64,
    acts_max: usize,
    moved_bytes: u64,
    /// Look-ups.
    pub requests: u64,
    /// Look-ups that found nothing.
    pub misses: u64,
}

impl TieredCache {
    /// An empty ladder.
    pub fn new(config: TieredConfig) -> Self {
        let ladder = Ladder::new(config.ladder);
        TieredCache {
            next_step: ladder.config().step_requests,
            ladder,
            index: Index::default(),
            hasher: KeyHasher::seeded(config.seed),
            rng: Rng::seeded(config.seed),
            now: Now::default(),
            acts: Vec::new(),
            keys: Vec::new(),
            overhead_bytes: config.overhead_bytes,
            read: Surcharge::over_dram(config.slow.read, LOCAL_DRAM.read),
            write: Surcharge::over_dram(config.slow.write, LOCAL_DRAM.write),
            charged_ns: 0.0,
            acts_max: 0,
            moved_bytes: 0,
            requests: 0,
            misses: 0,
        }
    }

    /// One access at the trace's time: a look-up, whose miss is followed by a set (look-aside); a write; a removal.
    /// Whether a look-up found its key.
    pub fn access(&mut self, access: &Access) -> bool {
        self.now.unix_ms = self.now.unix_ms.max(access.time_ns / 1_000_000);
        match access.op {
            Op::Get | Op::Read | Op::Load | Op::Scan => {
                let hit = self.get(access.key);
                if !hit {
                    self.set(access.key, access.size);
                }
                hit
            }
            Op::Del => {
                self.begin();
                if let Some(id) = self.find(access.key) {
                    self.forget(id);
                }
                false
            }
            Op::Set | Op::Write | Op::Store => {
                self.set(access.key, access.size);
                false
            }
        }
    }

    fn get(&mut self, key: u64) -> bool {
        self.begin();
        self.requests += 1;
        let found = self.find(key);
        match found {
            Some(id) => {
                let tier = self.ladder.hit(id, self.now);
                self.charged_ns += charge(self.read, tier, self.keys[id.index()].1);
            }
            None => self.misses += 1,
        }
        found.is_some()
    }

    fn set(&mut self, key: u64, size: u32) {
        self.begin();
        let bytes = self.overhead_bytes + u64::from(size);
        let Some(old) = self.find(key) else {
            self.enter(key, bytes, None);
            return;
        };
        self.ladder.touch(old, self.now);
        if self.ladder.rewrite_in_place(old, bytes) {
            self.keys[old.index()].1 = bytes;
            self.charged_ns += charge(self.write, self.ladder.loc(old).tier, bytes);
            return;
        }
        let held = self.ladder.pin(old);
        let entered = self.enter(key, bytes, Some(old));
        self.ladder.unpin(held);
        if entered {
            self.forget(old);
        } else if self.ladder.config().eviction == Eviction::AllItems && self.ladder.could_hold(bytes) {
            self.forget(old);
            self.enter(key, bytes, None);
        }
    }

    fn enter(&mut self, key: u64, bytes: u64, rewrites: Option<Id>) -> bool {
        let item = NewItem { key: self.hash(key), bytes, expires_at_ms: None, rewrites };
        for _ in 0..ADMIT_TRIES {
            let answer = self.ladder.admit(&item, self.now, &mut self.rng, &mut self.acts);
            self.execute();
            match answer {
                Admit::Ready { id, loc } => {
                    self.index.insert(self.hash(key), id);
                    self.ladder.set_index_bytes(self.index.bytes());
                    if self.keys.len() <= id.index() {
                        self.keys.resize(id.index() + 1, (0, 0));
                    }
                    self.keys[id.index()] = (key, bytes);
                    self.charged_ns += charge(self.write, loc.tier, bytes);
                    return true;
                }
                Admit::After(ticket) => self.ladder.done(ticket, true, |_| {}),
                Admit::Full => return false,
            }
        }
        false
    }

    fn begin(&mut self) {
        self.now.requests += 1;
        if self.now.requests >= self.next_step {
            self.next_step = self.now.requests + self.ladder.config().step_requests;
            if let Some(last) = self.ladder.last_ticket() {
                self.ladder.done(last, true, |_| {});
            }
            self.ladder.step(self.now, &mut self.rng, &mut self.acts);
            self.execute();
        }
    }

    fn execute(&mut self) {
        let mut acts = std::mem::take(&mut self.acts);
        self.acts_max = self.acts_max.max(acts.len());
        for act in acts.drain(..) {
            match act {
                Act::Drop { id, loc, .. } => {
                    self.charged_ns += charge(self.read, loc.tier, self.overhead_bytes);
                    let hash = self.hash(self.keys[id.index()].0);
                    self.index.remove(hash, id);
                }
                Act::Move { id, from, to, .. } => {
                    let bytes = self.keys[id.index()].1;
                    self.moved_bytes += bytes;
                    self.charged_ns +=
                        charge(self.read, from.tier, bytes) + charge(self.write, to.tier, bytes);
                }
                Act::Discard { .. } => {}
            }
        }
        self.acts = acts;
    }

    fn forget(&mut self, id: Id) {
        let hash = self.hash(self.keys[id.index()].0);
        self.index.remove(hash, id);
        self.ladder.remove(id);
    }

    fn find(&self, key: u64) -> Option<Id> {
        self.index.find(self.hash(key), |id| self.keys[id.index()].0 == key)
    }

    fn hash(&self, key: u64) -> u64 {
        self.hasher.hash(0, &Access::key_name(key))
    }

    /// What a tier has seen.
    pub fn level(&self, tier: usize) -> LevelCounters {
        self.ladder.level(tier)
    }

    /// What the whole has seen.
    pub fn counters(&self) -> LadderCounters {
        self.ladder.counters()
    }

    /// Bytes of metadata.
    pub fn metadata_bytes(&self) -> u64 {
        self.ladder.metadata_bytes()
    }

    /// Items held.
    pub fn items(&self) -> u64 {
        self.ladder.items()
    }

    /// Nanoseconds that slow tiers were charged beyond local DRAM, for requests and moves.
    pub fn charged_ns(&self) -> f64 {
        self.charged_ns
    }

    /// Bytes of items moved.
    pub fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    /// The most acts that had to be executed at once since the last call.
    pub fn take_acts_max(&mut self) -> usize {
        std::mem::take(&mut self.acts_max)
    }

    /// Stores the key if it is not there; no look-up is counted.
    pub fn preload(&mut self, access: &Access) {
        if self.find(access.key).is_none() {
            self.set(access.key, access.size);
        }
    }

    /// How many tiers there are.
    pub fn levels(&self) -> usize {
        self.ladder.levels()
    }
}

/// What touching a range costs beyond local DRAM, of which tier 0 is made.
fn charge(surcharge: Surcharge, tier: u8, bytes: u64) -> f64 {
    if tier == 0 { 0.0 } else { surcharge.range_ns(bytes) }
}
