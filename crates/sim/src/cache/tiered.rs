//! Tiered cache: the store's ladder over a trace, without bytes.
//!
//! It makes the same calls in the same order as the live engine, so one trace gives the same hits, moves and evictions in both; a
//! test of the store compares the two.

use tiermem_base::hash::KeyHasher;
use tiermem_base::latency_curve::Curve;
use tiermem_base::{Access, Op, Rng};
use tiermem_model::advisor::Outcome;
use tiermem_policy::Id;
use tiermem_policy::ladder::{LadderConfig, Loc};
use tiermem_policy::log::{Appended, ITEM_HEADER_BYTES, LogConfig, LogPlace};
use tiermem_policy::shard::{
    Act, Change, Entered, Entry, From, Items, LogState, Lying, Shard, Sizes, Staged, Why,
};
use tiermem_policy::shard_memory::Driven;

use super::dividing::{Dividing, Sharing};
use super::figures::Figures;
use super::flash_log::{FlashLog, Kept, Tail};

/// Pieces of the log's work that a writer waits for at most.
const WAITS_MAX: usize = 4096;

/// Configuration of the simulation: the ladder, and what surrounds it.
#[derive(Clone, Debug)]
pub struct TieredConfig {
    /// The ladder.
    pub ladder: LadderConfig,
    /// Bytes that are stored with each value: the item's header and the key.
    pub overhead_bytes: u64,
    /// The bytes of the header among them; on flash there is another header.
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

/// The content of an item's header, as a live engine keeps it.
#[derive(Clone, Copy, Debug, Default)]
struct Stored {
    key: u64,
    /// Header, key and value.
    bytes: u64,
    /// The log has the same item.
    is_unchanged: bool,
    /// The tenant of the key.
    tenant: u16,
}

/// The item of each item number, and the hash of keys.
#[derive(Debug)]
pub(super) struct Notes {
    stored: Vec<Stored>,
    hasher: KeyHasher,
    /// The bytes of an item's header in memory; in the log it has another header.
    header_bytes: u64,
    /// The log below the last tier, if there is one.
    flash: Option<FlashLog>,
}

impl Notes {
    pub(super) fn hash_of(&self, key: u64) -> u64 {
        self.hasher.hash(0, &Access::key_name(key))
    }

    /// Notes what a number stands for from now on.
    fn note(&mut self, id: Id, stored: Stored) {
        if self.stored.len() <= id.index() {
            self.stored.resize(id.index() + 1, Stored::default());
        }
        self.stored[id.index()] = stored;
    }
}

impl Items for Notes {
    type Key<'a> = u64;

    fn has_key(&self, id: Id, _: Loc, key: u64) -> bool {
        self.stored[id.index()].key == key
    }

    fn hash(&self, id: Id, _: Loc) -> Option<u64> {
        Some(self.hash_of(self.stored[id.index()].key))
    }

    fn bytes(&self, id: Id, _: Loc) -> Sizes {
        let here = self.stored[id.index()].bytes;
        Sizes { here, below: here - self.header_bytes + u64::from(ITEM_HEADER_BYTES) }
    }

    fn is_unchanged(&self, id: Id, _: Loc) -> bool {
        self.stored[id.index()].is_unchanged
    }

    fn note_changed(&mut self, id: Id, _: Loc) {
        self.stored[id.index()].is_unchanged = false;
    }

    fn lying_at(&self, segment: u32, _: u32, at: u32) -> Option<Lying> {
        self.flash.as_ref()?.lying_at(segment, at)
    }

    fn bring_near(&self, _: Id, _: Loc) {}
}

/// A shard and the keys in it.
#[derive(Debug)]
pub struct TieredCache {
    pub(super) shard: Shard,
    pub(super) items: Notes,
    rng: Rng,
    /// The access at hand, the hash of its key, and its tenant.
    pub(super) access: Access,
    pub(super) access_hash: u64,
    pub(super) tenant: u16,
    /// When it is, where what a miss costs is known.
    pub(super) at_ns: Option<u64>,
    overhead_bytes: u64,
    pub(super) dividing: Option<Dividing>,
    figures: Figures,
}

impl TieredCache {
    /// An empty ladder.
    pub fn new(config: TieredConfig) -> Self {
        let mut ladder = LadderConfig { tenants: config.sharing.is_some(), ..config.ladder };
        ladder.levels.iter_mut().zip(&config.curves).for_each(|(level, &curve)| level.curve = curve);
        let mut shard = Shard::new(ladder, 0);
        let dividing = config.sharing.map(|sharing| Dividing::new(sharing, &shard, config.seed));
        // Hashes that lie on flash must mean the same in the next life.
        let hash = if config.tail.is_some() { KeyHasher::stable } else { KeyHasher::seeded };
        let hasher = hash(config.seed);
        let flash = config.tail.as_ref().map(FlashLog::new);
        config.tail.into_iter().for_each(|log| shard.attach_log(LogState::new(log)));
        let items = Notes { stored: Vec::new(), hasher, header_bytes: config.header_bytes, flash };
        let access = Access::default();
        let mut cache = TieredCache {
            dividing,
            shard,
            access_hash: items.hash_of(access.key),
            items,
            rng: Rng::seeded(config.seed),
            access,
            tenant: 0,
            at_ns: None,
            overhead_bytes: config.overhead_bytes,
            figures: Figures::new(&config.curves),
        };
        cache.apply_settings();
        cache
    }

    /// An access at the trace's time: a look-up, whose miss is followed by a set (look-aside); a write; a removal. Returns
    /// whether a look-up found its key.
    pub fn access(&mut self, access: &Access) -> bool {
        self.shard.set_clock(access.time_ns / 1_000_000);
        self.come(access);
        let hit = match access.op {
            Op::Get | Op::Read | Op::Load | Op::Scan | Op::Unknown => {
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
        if let Some(flash) = &mut self.items.flash {
            flash.hand_over();
        }
        hit
    }

    fn get(&mut self, key: u64) -> bool {
        self.prepare();
        let is_staged = self.recall(key);
        self.begin();
        self.figures.note_look_up();
        if let Some(id) = self.find_live(key) {
            self.note_look_up(key, Outcome::Memory(id));
            let tier = self.shard.item(id).hit(None);
            self.figures.note_read(tier, self.items.stored[id.index()].bytes);
            return true;
        }
        let staged = if is_staged { self.find_staged(key) } else { None };
        // Before the item comes into memory: a window that ends here is of what lies there until now.
        self.note_look_up(key, if staged.is_some() { Outcome::Below } else { Outcome::Nowhere });
        match staged {
            Some(item) => self.get_staged(item),
            None => self.figures.note_miss(),
        }
        staged.is_some()
    }

    /// A look-up that found its item in the log, which comes into memory if it is hot.
    fn get_staged(&mut self, item: Kept) {
        let hash = self.hash(item.key);
        let bytes = u64::from(item.bytes) + self.items.header_bytes - u64::from(ITEM_HEADER_BYTES);
        if self.shard.hit_below(hash, bytes)
            && let Some(id) = self.enter(item.key, bytes, item.expires_at_ms)
        {
            self.items.stored[id.index()].is_unchanged = true;
            self.figures.note_read(self.shard.ladder().residents().nodes().loc(id).tier, bytes);
            self.shard.promoted();
        }
    }

    /// The item of this key that was read from the log, unless its time is over: then it is forgotten.
    fn find_staged(&mut self, key: u64) -> Option<Kept> {
        let flash = self.items.flash.as_ref()?;
        let item = flash.item(self.hash(key)).filter(|item| item.key == key)?;
        if !item.is_expired(self.shard.now().unix_ms) {
            return Some(item);
        }
        self.figures.note_expired();
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
            self.shard.forget(id, self.hash(key), &self.items);
        } else if is_staged && self.find_staged(key).is_some() {
            self.forget_in_log(key);
        } else {
            return;
        }
        self.note_gone(key, self.tenant);
    }

    /// Reads the key from the log if it lies only there, as a server does before it runs a request. Returns whether it is there.
    fn recall(&mut self, key: u64) -> bool {
        let hash = self.hash(key);
        while let Some(away) = self.shard.seek(hash, key, &self.items) {
            if away.is_in_memory {
                return true;
            }
            if let Some(flash) = &mut self.items.flash {
                flash.reads += 1;
                flash.hand_over();
            }
            self.advance();
            if self.shard.stage(&away) == Staged::Here {
                return true;
            }
        }
        false
    }

    fn set(&mut self, key: u64, size: u32) {
        let bytes = self.overhead_bytes + u64::from(size);
        self.prepare_write(bytes);
        self.begin();
        let ttl_ms = u64::from(self.access.ttl_s) * 1000;
        let expires_at_ms = (ttl_ms > 0).then(|| self.shard.now().unix_ms + ttl_ms);
        let found = self.find_live(key);
        self.note_write(key, bytes);
        let Some(old) = found else {
            if self.enter(key, bytes, expires_at_ms).is_some() {
                // Unseen: what the log has of the key is replaced without being read.
                self.forget_in_log(key);
            }
            return;
        };
        self.forget_copy(old);
        let entry = self.entry(key, bytes, expires_at_ms);
        self.shard.rewrite(old, &entry, &self.items, &mut self.rng);
        self.carry_out();
        if let Some((id, replaces)) = self.entered(key, bytes) {
            self.figures.note_write(self.shard.ladder().residents().nodes().loc(id).tier, bytes);
            replaces.into_iter().for_each(|old| _ = self.shard.forget(old, entry.hash, &self.items));
        }
    }

    fn entry(&mut self, key: u64, bytes: u64, expires_at_ms: Option<u64>) -> Entry {
        self.shard.hold(self.dividing.as_ref().map_or(0, |it| it.divider.metadata_bytes()));
        Entry { hash: self.hash(key), bytes, expires_at_ms, tenant: self.tenant, is_newcomer: true }
    }

    fn enter(&mut self, key: u64, bytes: u64, expires_at_ms: Option<u64>) -> Option<Id> {
        let entry = self.entry(key, bytes, expires_at_ms);
        self.shard.enter(&entry, &mut self.rng);
        self.carry_out();
        let (id, _) = self.entered(key, bytes)?;
        self.figures.note_write(self.shard.ladder().residents().nodes().loc(id).tier, bytes);
        Some(id)
    }

    /// The item that has its place when an admission is over, and the item that it replaces.
    fn entered(&mut self, key: u64, bytes: u64) -> Option<(Id, Option<Id>)> {
        let Entered::Placed { id, replaces, .. } = self.shard.entered() else { return None };
        self.items.note(id, Stored { key, bytes, is_unchanged: false, tenant: self.tenant });
        Some((id, replaces))
    }

    /// A writer waits until the log has caught up, as in a server; here that takes no time.
    fn wait_for_outlet(&mut self) {
        for _ in 0..WAITS_MAX {
            let Some(flash) =
                self.items.flash.as_mut().filter(|_| self.shard.ladder().transit().outlet().must_wait())
            else {
                return;
            };
            flash.hand_over();
            self.figures.note_wait();
            self.advance();
        }
    }

    /// A writer waits until there is room for what it writes, where that is large. A server has its turn with others meanwhile.
    fn prepare_write(&mut self, bytes: u64) {
        loop {
            self.prepare();
            self.wait_for_outlet();
            let is_done = self.shard.make_room(bytes, &mut self.rng);
            self.carry_out();
            if is_done {
                return;
            }
        }
    }

    /// Over a log a step is made before it is asked where the request's key lies: it may send the key there.
    fn prepare(&mut self) {
        if self.shard.log().is_some() && self.shard.is_due() {
            self.step();
        }
    }

    fn begin(&mut self) {
        self.shard.begin();
        if self.shard.log().is_none() && self.shard.is_due() {
            self.step();
        }
    }

    fn step(&mut self) {
        self.shard.step(&mut self.rng);
        self.carry_out();
        self.advance();
    }

    /// A piece of the log's own work.
    fn advance(&mut self) {
        let Some(flash) = &mut self.items.flash else { return };
        flash.tell(&mut self.shard);
        self.shard.advance(&mut self.rng);
        self.carry_out();
        if let Some(flash) = &mut self.items.flash {
            flash.step_checkpoint(&mut self.shard);
        }
        self.carry_out();
        if let Some(flash) = &mut self.items.flash {
            flash.hand_over();
        }
    }

    /// Does what the shard has decided, one thing after the other; here that takes no time.
    fn carry_out(&mut self) {
        let mut acts = 0;
        while let Some(act) = self.shard.next_act(&mut self.items, &mut self.rng) {
            let is_waited_for = matches!(act, Act::Move { .. } | Act::Leave { .. } | Act::Append { .. });
            acts += usize::from(is_waited_for);
            match act {
                Act::Leave { why: Why::Replaced, .. } => {}
                Act::Leave { id, loc, hash, why, below, .. } => {
                    self.charge_head(loc);
                    self.note_forgotten(hash, below);
                    if why == Why::Expired {
                        let Stored { key, tenant, .. } = self.items.stored[id.index()];
                        self.note_gone(key, tenant);
                    }
                }
                Act::Append { from, to, hash, bytes, replaced } => {
                    self.append(from, &to, hash, bytes);
                    if let Some((flash, replaced)) = self.items.flash.as_mut().zip(replaced) {
                        flash.retire(&mut self.shard, hash, replaced);
                    }
                }
                Act::Move { ticket, from, to, bytes, .. } => {
                    self.figures.note_move(from.tier, to.tier, bytes);
                    self.shard.moved(ticket, true);
                }
                Act::Write { .. } | Act::Read { .. } | Act::Gone { .. } => self.ask_flash(act),
                Act::Settled { .. }
                | Act::Discard { .. }
                | Act::Populate { .. }
                | Act::Seal { .. }
                | Act::Free { .. } => {}
            }
        }
        self.figures.note_acts(acts);
    }

    /// An item's header and key are read.
    fn charge_head(&mut self, loc: Loc) {
        self.figures.note_read(loc.tier, self.overhead_bytes);
    }

    fn append(&mut self, from: From, to: &Appended, hash: u64, bytes: u32) {
        let Some(flash) = &mut self.items.flash else { return };
        let kept = match from {
            From::Memory { id, expires_at_ms, .. } => {
                Some(Kept { key: self.items.stored[id.index()].key, bytes, expires_at_ms })
            }
            From::Segment { .. } => flash.item(hash),
        };
        kept.into_iter().for_each(|kept| flash.append(&mut self.shard, to, hash, kept));
        if let From::Memory { loc, .. } = from {
            self.charge_head(loc);
        }
    }

    fn ask_flash(&mut self, act: Act) {
        let Some(flash) = &mut self.items.flash else { return };
        match act {
            Act::Write { segment, start, end } => flash.write(segment, start, end),
            Act::Read { segment } => flash.read(segment),
            Act::Gone { hash, place, why, has_copy, .. } => {
                flash.forget(&mut self.shard, hash, place);
                // Where memory has the item too, that copy is the only one now.
                if why == Why::Expired && !has_copy {
                    self.figures.note_expired();
                }
            }
            _ => {}
        }
    }

    /// Forgets the copy in the log of an item in memory that is about to change or go.
    fn forget_copy(&mut self, id: Id) {
        let hash = self.hash(self.items.stored[id.index()].key);
        let forgotten = self.shard.forget_copy(id, hash, &mut self.items);
        self.note_forgotten(hash, forgotten);
    }

    fn forget_in_log(&mut self, key: u64) {
        let hash = self.hash(key);
        let forgotten = self.shard.forget_below(hash);
        self.note_forgotten(hash, forgotten);
    }

    fn note_forgotten(&mut self, hash: u64, forgotten: Option<LogPlace>) {
        if let Some((flash, place)) = self.items.flash.as_mut().zip(forgotten) {
            flash.forget(&mut self.shard, hash, place);
        }
    }

    fn find(&self, key: u64) -> Option<Id> {
        self.shard.memory().find(self.hash(key), key, &self.items)
    }

    /// The item of this key in memory, unless its time is over: then it is removed.
    fn find_live(&mut self, key: u64) -> Option<Id> {
        let id = self.find(key)?;
        if !self.shard.is_expired(id) {
            return Some(id);
        }
        self.forget_copy(id);
        self.note_gone(key, self.items.stored[id.index()].tenant);
        self.shard.forget(id, self.hash(key), &self.items);
        self.figures.note_expired();
        None
    }

    /// The hash of a key: mostly that of the access at hand.
    pub(super) fn hash(&self, key: u64) -> u64 {
        if key == self.access.key { self.access_hash } else { self.items.hash_of(key) }
    }

    /// The shard, to be read.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// The figures that are not among its own counters.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// The figures, to count anew.
    pub fn figures_mut(&mut self) -> &mut Figures {
        &mut self.figures
    }

    /// Stores the key if it is not there; no look-up is counted.
    pub fn preload(&mut self, access: &Access) {
        self.come(access);
        let hash = self.hash(access.key);
        let is_below = || self.shard.seek(hash, access.key, &self.items).is_some();
        if self.find(access.key).is_none() && !is_below() {
            self.set(access.key, access.size);
        }
    }

    /// The log below the last tier, if there is one.
    pub fn tail(&self) -> Option<Tail<'_>> {
        Some(Tail { work: self.shard.log()?, flash: self.items.flash.as_ref()? })
    }
}

/// Gives the log below the last tier so many more segments.
pub fn grow_tail(cache: &mut TieredCache, segments: u32) {
    if let Some(flash) = &mut cache.items.flash {
        flash.grow(segments);
        cache.shard.device().grow(segments);
    }
}

impl Driven for TieredCache {
    fn shard(&self) -> &Shard {
        &self.shard
    }

    fn set_capacity(&mut self, tier: usize, bytes: u64) {
        self.shard.configure(Change::Capacity { tier, bytes });
        if let Some(dividing) = &mut self.dividing {
            dividing.divider.resized(self.shard.ladder());
        }
        self.apply_settings();
    }

    fn step(&mut self) {
        TieredCache::step(self);
    }
}
