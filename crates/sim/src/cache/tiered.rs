//! The store's ladder over a trace, without bytes.
//!
//! It makes the same calls in the same order as the live engine, so one trace gives the same hits, moves and
//! evictions in both; a test of the store holds the two against each other.

use tiermem_base::hash::KeyHasher;
use tiermem_base::latency_curve::{Curve, LOCAL_DRAM, Point, Surcharge};
use tiermem_base::{Access, Op, Rng};
use tiermem_model::advisor::Outcome;
use tiermem_policy::index::Index;
use tiermem_policy::ladder::{
    Act, Admit, Eviction, LEVELS_MAX, Ladder, LadderConfig, LadderCounters, LevelCounters, NewItem,
    TenantLevel, Why,
};
use tiermem_policy::log::{ITEM_HEADER_BYTES, Leaving, LogConfig};
use tiermem_policy::{Id, Now};

use super::Tail;
use super::dividing::{Dividing, Sharing};
use super::tail::{Gone, Kept};

/// How often an admission may wait for moves; as in the engine.
const ADMIT_TRIES: usize = 8;
/// Pieces of the log's work that a writer waits for at most.
const WAITS_MAX: usize = 4096;

/// What the simulation needs to know beside the ladder.
#[derive(Clone, Debug)]
pub struct TieredConfig {
    /// The ladder.
    pub ladder: LadderConfig,
    /// Bytes that are stored with each value: the item's header and the key.
    pub overhead_bytes: u64,
    /// Those of them that are the header; on flash there is another one.
    pub header_bytes: u64,
    /// The log below the last tier, if there is one.
    pub tail: Option<LogConfig>,
    /// How fast each tier is; what it costs beyond local DRAM is charged as the engine charges what it emulates.
    pub curves: Vec<Curve>,
    /// How tenants share it; without, they are not told apart.
    pub sharing: Option<Sharing>,
    /// Seed of the index's hash and of the policies' choices.
    pub seed: u64,
}

/// What a live engine keeps in an item's header.
#[derive(Clone, Copy, Debug, Default)]
struct Stored {
    key: u64,
    /// Header, key and value.
    bytes: u64,
    /// The log has the same item.
    is_unchanged: bool,
    /// Whose the key is.
    tenant: u16,
}

/// A ladder and the keys on it.
#[derive(Debug)]
pub struct TieredCache {
    pub(super) ladder: Ladder,
    index: Index,
    hasher: KeyHasher,
    rng: Rng,
    pub(super) now: Now,
    /// The access at hand, and whose it is.
    pub(super) access: Access,
    pub(super) tenant: u16,
    /// When it is, where what a miss costs is known.
    pub(super) at_ns: Option<u64>,
    acts: Vec<Act>,
    /// What each item number stands for.
    stored: Vec<Stored>,
    /// Bytes of all of them.
    item_bytes: u64,
    overhead_bytes: u64,
    header_bytes: u64,
    tail: Option<Tail>,
    pub(super) dividing: Option<Dividing>,
    /// Items that went to the log from each tier.
    sunk: Vec<u64>,
    gone: Vec<Gone>,
    read: Surcharges,
    write: Surcharges,
    charged_ns: f64,
    acts_max: usize,
    moved_bytes: u64,
    /// Items whose time was over when they were met, and not found by the ladder.
    expired_met: u64,
    /// Pieces of the log's work that writers waited for.
    pub waits: u64,
    /// Look-ups.
    pub requests: u64,
    /// Look-ups that found nothing.
    pub misses: u64,
}

impl TieredCache {
    /// An empty ladder.
    pub fn new(config: TieredConfig) -> Self {
        let ladder = Ladder::new(LadderConfig { tenants: config.sharing.is_some(), ..config.ladder });
        let dividing = config.sharing.map(|sharing| Dividing::new(sharing, &ladder, config.seed));
        // Hashes that lie on flash must mean the same in the next life.
        let hash = if config.tail.is_some() { KeyHasher::stable } else { KeyHasher::seeded };
        let hasher = hash(config.seed);
        let mut cache = TieredCache {
            sunk: vec![0; ladder.levels()],
            gone: Vec::new(),
            tail: config.tail.map(Tail::new),
            dividing,
            ladder,
            index: Index::default(),
            hasher,
            rng: Rng::seeded(config.seed),
            now: Now::default(),
            access: Access::default(),
            tenant: 0,
            at_ns: None,
            acts: Vec::new(),
            stored: Vec::new(),
            item_bytes: 0,
            overhead_bytes: config.overhead_bytes,
            header_bytes: config.header_bytes,
            read: surcharges(&config.curves, |curve| curve.read),
            write: surcharges(&config.curves, |curve| curve.write),
            charged_ns: 0.0,
            acts_max: 0,
            moved_bytes: 0,
            expired_met: 0,
            waits: 0,
            requests: 0,
            misses: 0,
        };
        cache.apply_settings();
        cache.report_outlet();
        cache
    }

    /// One access at the trace's time: a look-up, whose miss is followed by a set (look-aside); a write; a removal.
    /// Whether a look-up found its key.
    pub fn access(&mut self, access: &Access) -> bool {
        self.now.unix_ms = self.now.unix_ms.max(access.time_ns / 1_000_000);
        self.come(access);
        let hit = match access.op {
            Op::Get | Op::Read | Op::Load | Op::Scan => {
                let hit = self.get(access.key);
                if !hit {
                    self.reload();
                    self.set(access.key, access.size);
                }
                hit
            }
            Op::Del => {
                self.remove(access.key);
                false
            }
            Op::Set | Op::Write | Op::Store => {
                self.set(access.key, access.size);
                false
            }
        };
        self.divide();
        if let Some(tail) = &mut self.tail {
            tail.hand_over();
        }
        hit
    }

    fn get(&mut self, key: u64) -> bool {
        self.prepare();
        let is_staged = self.recall(key);
        self.begin();
        self.requests += 1;
        if let Some(id) = self.find_live(key) {
            self.note_look_up(key, Outcome::Memory(id));
            let tier = self.ladder.hit(id, self.now);
            self.charged_ns += charge(self.read, tier, self.stored[id.index()].bytes);
            return true;
        }
        let staged = if is_staged { self.find_staged(key) } else { None };
        // Before the item comes into memory: a window that ends here is of what lies there until now.
        self.note_look_up(key, if staged.is_some() { Outcome::Below } else { Outcome::Nowhere });
        self.misses += u64::from(staged.is_none());
        staged.into_iter().for_each(|item| self.get_staged(item));
        staged.is_some()
    }

    /// A look-up that found its item in the log, which comes into memory if it is hot.
    fn get_staged(&mut self, item: Kept) {
        let hash = self.hash(item.key);
        let Some(tail) = &mut self.tail else { return };
        let reuse = tail.hit(&mut self.index, hash, self.now.requests);
        let bytes = u64::from(item.bytes) + self.header_bytes - u64::from(ITEM_HEADER_BYTES);
        if self.ladder.wants(reuse, bytes)
            && let Some(id) = self.enter(item.key, bytes, item.expires_at_ms, None)
        {
            self.stored[id.index()].is_unchanged = true;
            self.charged_ns += charge(self.read, self.ladder.loc(id).tier, bytes);
            if let Some(tail) = &mut self.tail {
                tail.promoted();
            }
        }
    }

    /// The item of this key that was read from the log, unless its time is over: then it is forgotten.
    fn find_staged(&mut self, key: u64) -> Option<Kept> {
        let item = self.tail.as_ref()?.item(self.hash(key)).filter(|item| item.key == key)?;
        if !item.is_expired(self.now.unix_ms) {
            return Some(item);
        }
        self.expired_met += 1;
        self.forget_in_log(key);
        self.note_gone(key, self.tenant);
        None
    }

    fn remove(&mut self, key: u64) {
        self.prepare();
        let is_staged = self.recall(key);
        self.begin();
        if let Some(id) = self.find_live(key) {
            self.forget_copy(id);
            self.forget(id);
        } else if is_staged && self.find_staged(key).is_some() {
            self.forget_in_log(key);
        } else {
            return;
        }
        self.note_gone(key, self.tenant);
    }

    /// Reads the key from the log if it lies only there, as a server does before it runs a request; whether it is there.
    fn recall(&mut self, key: u64) -> bool {
        let hash = self.hash(key);
        loop {
            let Some(tail) = &mut self.tail else { return false };
            let Some(place) = self.index.find_log(hash) else { return false };
            if self.index.find(hash, |id| self.stored[id.index()].key == key).is_some() {
                return false;
            }
            let filling = tail.filling_of(place);
            if tail.is_in_memory(filling.0) {
                return true;
            }
            tail.reads += 1;
            tail.hand_over();
            self.advance();
            // While it was read its segment may have been emptied.
            let is_same = self.index.find_log(hash).is_some_and(|now| now.is_same(place));
            if is_same && self.tail.as_ref().is_some_and(|tail| tail.filling_of(place) == filling) {
                return true;
            }
        }
    }

    fn set(&mut self, key: u64, size: u32) {
        self.prepare();
        self.wait_for_outlet();
        self.begin();
        let bytes = self.overhead_bytes + u64::from(size);
        let ttl_ms = u64::from(self.access.ttl_s) * 1000;
        let expires_at_ms = (ttl_ms > 0).then(|| self.now.unix_ms + ttl_ms);
        let found = self.find_live(key);
        self.note_write(key, bytes);
        let Some(old) = found else {
            if self.enter(key, bytes, expires_at_ms, None).is_some() {
                // Unseen: what the log has of the key is replaced without being read.
                self.forget_in_log(key);
            }
            return;
        };
        self.forget_copy(old);
        self.ladder.touch(old, self.now);
        if self.ladder.rewrite_in_place(old, bytes) {
            let was = std::mem::replace(&mut self.stored[old.index()].bytes, bytes);
            self.item_bytes = self.item_bytes + bytes - was;
            self.ladder.set_expires_at_ms(old, expires_at_ms, self.now);
            self.charged_ns += charge(self.write, self.ladder.loc(old).tier, bytes);
            return;
        }
        let held = self.ladder.pin(old);
        let entered = self.enter(key, bytes, expires_at_ms, Some(old));
        self.ladder.unpin(held);
        if entered.is_some() {
            self.forget(old);
        } else if self.ladder.config().eviction == Eviction::AllItems && self.ladder.could_hold(bytes) {
            self.forget(old);
            self.enter(key, bytes, expires_at_ms, None);
        }
    }

    fn enter(
        &mut self,
        key: u64,
        bytes: u64,
        expires_at_ms: Option<u64>,
        rewrites: Option<Id>,
    ) -> Option<Id> {
        self.report_outlet();
        let hash = self.hash(key);
        let tenant = self.tenant;
        let item = NewItem { key: hash, bytes, expires_at_ms, rewrites, tenant };
        let mut tries = 0;
        while tries < ADMIT_TRIES {
            let answer = self.ladder.admit(&item, self.now, &mut self.rng, &mut self.acts);
            self.execute();
            tries += usize::from(answer != Admit::Again);
            match answer {
                Admit::Again => self.settle_all_moves(),
                Admit::Ready { id, loc } => {
                    self.index.insert(hash, id);
                    self.charge_index();
                    if self.stored.len() <= id.index() {
                        self.stored.resize(id.index() + 1, Stored::default());
                    }
                    self.stored[id.index()] = Stored { key, bytes, is_unchanged: false, tenant };
                    self.item_bytes += bytes;
                    self.charged_ns += charge(self.write, loc.tier, bytes);
                    return Some(id);
                }
                Admit::After(ticket) => self.ladder.done(ticket, true, |_| {}),
                Admit::Full => return None,
            }
        }
        None
    }

    /// A writer waits until the log has caught up, as in a server; here that takes no time.
    fn wait_for_outlet(&mut self) {
        for _ in 0..WAITS_MAX {
            let Some(tail) = self.tail.as_mut().filter(|_| self.ladder.must_wait()) else { return };
            tail.hand_over();
            self.waits += 1;
            self.advance();
        }
    }

    /// Over a log a step is made before it is asked where the request's key lies: it may send the key there.
    fn prepare(&mut self) {
        if self.tail.is_some() && self.ladder.is_due(self.now) {
            self.step();
        }
    }

    fn begin(&mut self) {
        self.now.requests += 1;
        if self.tail.is_none() && self.ladder.is_due(self.now) {
            self.step();
        }
    }

    fn step(&mut self) {
        self.settle_all_moves();
        self.ladder.step(self.now, &mut self.rng, &mut self.acts);
        self.execute();
        self.advance();
    }

    fn settle_all_moves(&mut self) {
        if let Some(last) = self.ladder.last_ticket() {
            self.ladder.done(last, true, |_| {});
        }
    }

    /// A piece of the log's own work.
    fn advance(&mut self) {
        let Some(tail) = &mut self.tail else { return };
        tail.advance(&mut self.index, self.now.unix_ms, &mut self.rng, &mut self.gone);
        for Gone { hash, expired } in self.gone.drain(..) {
            // Where memory has the item too, that copy is the only one now.
            match self.index.find(hash, |id| self.stored[id.index()].is_unchanged) {
                Some(id) => self.stored[id.index()].is_unchanged = false,
                None => self.expired_met += u64::from(expired),
            }
        }
        self.report_outlet();
    }

    fn report_outlet(&mut self) {
        if let Some(tail) = &self.tail {
            self.ladder.set_outlet(tail.outlet(self.ladder.items(), self.item_bytes));
        }
    }

    pub(super) fn charge_index(&mut self) {
        let tail_bytes = self.tail.as_ref().map_or(0, Tail::metadata_bytes);
        let tenants_bytes = self.dividing.as_ref().map_or(0, |it| it.divider.metadata_bytes());
        let bytes = self.index.bytes() + tail_bytes + tenants_bytes;
        self.ladder.set_index_bytes(bytes, self.index.growth_bytes());
    }

    fn execute(&mut self) {
        let mut acts = std::mem::take(&mut self.acts);
        self.acts_max = self.acts_max.max(acts.len());
        for act in acts.drain(..) {
            match act {
                Act::Drop { id, loc, why, last_used, expires_at_ms } => {
                    self.charged_ns += charge(self.read, loc.tier, self.overhead_bytes);
                    let stored = self.stored[id.index()];
                    let hash = self.hash(stored.key);
                    self.index.remove(hash, id);
                    self.item_bytes -= stored.bytes;
                    match why {
                        Why::Evicted => {
                            let sunk = self.offer(stored, hash, expires_at_ms, last_used);
                            self.sunk[usize::from(loc.tier)] += u64::from(sunk);
                        }
                        Why::Expired => {
                            if stored.is_unchanged {
                                self.forget_in_log(stored.key);
                            }
                            self.note_gone(stored.key, stored.tenant);
                        }
                    }
                }
                Act::Move { id, from, to, .. } => {
                    let bytes = self.stored[id.index()].bytes;
                    self.moved_bytes += bytes;
                    self.charged_ns +=
                        charge(self.read, from.tier, bytes) + charge(self.write, to.tier, bytes);
                }
                Act::Discard { .. } | Act::Populate { .. } => {}
            }
        }
        self.acts = acts;
    }

    /// Offers an item that leaves memory to the log; whether it lies there now.
    fn offer(&mut self, stored: Stored, hash: u64, expires_at_ms: Option<u64>, last_used: u64) -> bool {
        let Some(tail) = &mut self.tail else { return false };
        if !stored.is_unchanged && !self.ladder.may_grow() {
            tail.unindexed += 1;
            return false;
        }
        // Beyond 4 GiB it is no more than too large.
        let log_bytes = stored.bytes - self.header_bytes + u64::from(ITEM_HEADER_BYTES);
        let leaving = Leaving { hash, bytes: u32::try_from(log_bytes).unwrap_or(u32::MAX), last_used };
        let item = Kept { key: stored.key, bytes: leaving.bytes, expires_at_ms };
        let taken = tail.receive(&mut self.index, &leaving, item, stored.is_unchanged);
        self.report_outlet();
        self.charge_index();
        taken
    }

    fn forget(&mut self, id: Id) {
        let Stored { key, bytes, .. } = self.stored[id.index()];
        let hash = self.hash(key);
        self.item_bytes -= bytes;
        self.index.remove(hash, id);
        self.ladder.remove(id);
    }

    /// Forgets the copy in the log of an item in memory that is about to change or go.
    fn forget_copy(&mut self, id: Id) {
        if std::mem::take(&mut self.stored[id.index()].is_unchanged) {
            self.forget_in_log(self.stored[id.index()].key);
        }
    }

    fn forget_in_log(&mut self, key: u64) {
        let hash = self.hash(key);
        if let Some(tail) = &mut self.tail {
            tail.forget(&mut self.index, hash);
            self.charge_index();
        }
    }

    fn find(&self, key: u64) -> Option<Id> {
        self.index.find(self.hash(key), |id| self.stored[id.index()].key == key)
    }

    /// The item of this key in memory, unless its time is over: then it is removed.
    fn find_live(&mut self, key: u64) -> Option<Id> {
        let id = self.find(key)?;
        if self.ladder.expires_at_ms(id).is_none_or(|at_ms| at_ms > self.now.unix_ms) {
            return Some(id);
        }
        self.forget_copy(id);
        self.note_gone(key, self.stored[id.index()].tenant);
        self.forget(id);
        self.expired_met += 1;
        None
    }

    pub(super) fn hash(&self, key: u64) -> u64 {
        self.hasher.hash(0, &Access::key_name(key))
    }

    /// A tenant in a tier.
    pub fn tenant_level(&self, tenant: u16, tier: usize) -> TenantLevel {
        self.ladder.tenant_level(tenant, tier)
    }

    /// What a tier has seen.
    pub fn level(&self, tier: usize) -> LevelCounters {
        self.ladder.level(tier)
    }

    /// What the whole has seen.
    pub fn counters(&self) -> LadderCounters {
        self.ladder.counters()
    }

    /// Items whose time was over.
    pub fn expired(&self) -> u64 {
        self.ladder.counters().expired + self.expired_met
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
        self.come(access);
        let in_log = self.tail.is_some() && self.index.find_log(self.hash(access.key)).is_some();
        if self.find(access.key).is_none() && !in_log {
            self.set(access.key, access.size);
        }
    }

    /// Items that went to the log from a tier.
    pub fn sunk(&self, tier: usize) -> u64 {
        self.sunk[tier]
    }

    /// The log below the last tier, if there is one.
    pub fn tail(&self) -> Option<&Tail> {
        self.tail.as_ref()
    }

    /// How many tiers there are above the log.
    pub fn levels(&self) -> usize {
        self.ladder.levels()
    }
}

/// What each tier costs beyond local DRAM.
type Surcharges = [Surcharge; LEVELS_MAX];

/// Of tiers of these curves, one way.
fn surcharges(curves: &[Curve], way: impl Fn(&Curve) -> Point) -> Surcharges {
    std::array::from_fn(|tier| {
        let curve = curves.get(tier).unwrap_or(&LOCAL_DRAM);
        Surcharge::over_dram(way(curve), way(&LOCAL_DRAM))
    })
}

/// What touching a range of a tier costs beyond local DRAM.
fn charge(surcharges: Surcharges, tier: u8, bytes: u64) -> f64 {
    surcharges[usize::from(tier)].range_ns(bytes)
}
