//! Snapshots of the engine: gathering the items in memory a piece at a time, between requests, and restoring them.
//!
//! Items are gathered in passes over the index, in hash order, which no operation rearranges. Each
//! pass takes the items last used within one interval of time, the oldest first, so loading them
//! in the order of the file leaves the hot ones in the fast tier. A use moves an item to a later
//! interval and never to an earlier one, so an item that exists from the first pass to the last is
//! met at least once. An item that is met twice is in the file twice, the newer version behind.

use tiermem_policy::Id;
use tiermem_policy::index::Found;
use tiermem_policy::shard::{Entry, Shard};

use super::contents::{Contents, entry};
use super::expiry::note_fields;
use super::item::Header;
use super::{Condition, DATABASES, Engine, Expiry, Holder, ItemRef, Pin, ValueKind};
use crate::snapshot::format::{BLOCK_BYTES, Item, write_item};

/// Stretches of time.
const PASSES: usize = 4;
/// Items sampled to divide time into intervals.
const SAMPLE: usize = 1024;
/// Index entries looked at together.
const VISITS: usize = 64;
/// Values of this length or more are pinned and copied in parts
/// of this size: a longer copy would keep requests waiting.
const LONG_BYTES: usize = 64 << 10;

/// A value that is copied in parts.
#[derive(Debug)]
struct Long {
    pin: Option<Pin>,
    /// The item in the file's format, as far as it is copied.
    bytes: Vec<u8>,
    /// Bytes of the value that are.
    copied: usize,
}

/// Progress of gathering a snapshot. [`Self::end`] ends it.
#[derive(Debug)]
#[must_use = "it may hold values"]
pub struct Gathering {
    /// The ticks with which the passes begin.
    from: [u64; PASSES],
    pass: usize,
    /// The position in the hashes' order.
    at: u64,
    long: Vec<Long>,
    /// The block that is being filled, and its items.
    block: Vec<u8>,
    items: u32,
}

/// Result of [`Gathering::go_on`].
#[derive(Debug)]
pub enum Gathered {
    /// A block's bytes and the number of its items.
    Block(Vec<u8>, u32),
    /// Nothing yet.
    NotYet,
    /// There is no more.
    All,
}

/// Outcome of restoring one item of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// It is in memory.
    Taken,
    /// Its time is over.
    Expired,
    /// A tier that outlives the process has the key, as new or newer.
    Known,
    /// There is no room, or it makes no sense.
    Refused,
}

impl Gathering {
    /// Begins a snapshot of the items in tiers that do not outlive the process themselves.
    pub fn begin(engine: &Engine) -> Self {
        let contents = &engine.contents;
        let mut ticks = Vec::with_capacity(2 * SAMPLE);
        contents.shard.memory().keys().entries(0, SAMPLE, |_, found| {
            if let Found::Item(id) = found {
                ticks.push(last_tick(&contents.shard, id));
            }
        });
        ticks.sort_unstable();
        let quantile = |pass: usize| ticks.get(ticks.len() * pass / PASSES).copied().unwrap_or(0);
        let from = core::array::from_fn(|pass| if pass == 0 { 0 } else { quantile(pass) });
        Gathering { from, pass: 0, at: 0, long: Vec::new(), block: Vec::new(), items: 0 }
    }

    /// Gathers for some ten microseconds: a few dozen items, or a part of a long one.
    pub fn go_on(&mut self, engine: &mut Engine) -> Gathered {
        if let Some(long) = self.long.last_mut() {
            if !long.copy_part(&engine.contents) {
                return Gathered::NotYet;
            }
            return self.long.pop().map_or(Gathered::NotYet, |long| long.end(engine));
        }
        let found_long = self.gather_items(&engine.contents);
        for id in found_long {
            self.long.extend(Long::begin(engine, id));
        }
        let last = self.pass == PASSES && self.long.is_empty();
        if self.block.len() >= BLOCK_BYTES || last && !self.block.is_empty() {
            let items = std::mem::take(&mut self.items);
            return Gathered::Block(std::mem::take(&mut self.block), items);
        }
        if last { Gathered::All } else { Gathered::NotYet }
    }

    /// Gathers the next few items, and says which are long.
    fn gather_items(&mut self, contents: &Contents) -> Vec<Id> {
        let mut found_long = Vec::new();
        let Some(&from_tick) = self.from.get(self.pass) else { return found_long };
        let until = self.from.get(self.pass + 1).copied().unwrap_or(u64::MAX);
        let next = contents.shard.memory().keys().entries(self.at, VISITS, |_, found| {
            let Found::Item(id) = found else { return };
            let loc = contents.shard.ladder().residents().nodes().loc(id);
            let tick = last_tick(&contents.shard, id);
            if tick < from_tick || tick >= until || contents.items.tiers.keeps(loc.tier) {
                return;
            }
            let header = contents.items.header(loc);
            if header.item_len() >= LONG_BYTES {
                found_long.push(id);
            } else if write_head_of(contents, id, header, &mut self.block) {
                self.block.extend_from_slice(contents.items.value(loc, header));
                contents.items.tiers.charge_read(loc.tier, header.item_len());
                self.items += 1;
            }
        });
        (self.pass, self.at) = next.map_or((self.pass + 1, 0), |at| (self.pass, at));
        found_long
    }

    /// Releases everything held for a snapshot, complete or not.
    pub fn end(self, engine: &mut Engine) {
        for long in self.long {
            long.end(engine);
        }
    }
}

impl Long {
    /// Holds a long value, if its time is not over.
    fn begin(engine: &mut Engine, id: Id) -> Option<Self> {
        let loc = engine.contents.shard.ladder().residents().nodes().loc(id);
        let header = engine.contents.items.header(loc);
        let mut bytes = Vec::with_capacity(header.item_len() + 64);
        if !write_head_of(&engine.contents, id, header, &mut bytes) {
            return None;
        }
        let pin = engine.pins().pin(ItemRef(id), Holder::Store);
        if pin.is_none() {
            bytes.extend_from_slice(engine.contents.items.value(loc, header));
        }
        Some(Long { pin, bytes, copied: 0 })
    }

    /// Copies a part; whether it was the last.
    fn copy_part(&mut self, contents: &Contents) -> bool {
        let Some(value) = self.pin.as_ref().and_then(|pin| contents.pins.bytes_of(pin, &contents.items))
        else {
            return true;
        };
        let end = value.len().min(self.copied + LONG_BYTES);
        self.bytes.extend_from_slice(&value[self.copied..end]);
        self.copied = end;
        end == value.len()
    }

    fn end(self, engine: &mut Engine) -> Gathered {
        if let Some(pin) = self.pin {
            engine.pins().unpin(pin);
        }
        Gathered::Block(self.bytes, 1)
    }
}

/// When an item was last used, in the ladder's ticks.
fn last_tick(shard: &Shard, id: Id) -> u64 {
    let tick_requests = shard.ladder().config().recency_requests.max(1);
    let idle = shard.ladder().residents().nodes().idle_requests(id, shard.now()) / tick_requests;
    (shard.now().requests / tick_requests).saturating_sub(idle)
}

/// Writes the item's bytes before its value; `false`: it has expired.
fn write_head_of(contents: &Contents, id: Id, header: Header, out: &mut Vec<u8>) -> bool {
    let Contents { shard, items, .. } = contents;
    let expires_at_ms = shard.ladder().residents().nodes().expires_at_ms(id).unwrap_or(0);
    let lapsed = expires_at_ms != 0 && expires_at_ms <= shard.now().unix_ms;
    if !lapsed {
        let key = items.key(shard.ladder().residents().nodes().loc(id), header);
        let (db, kind, on_flash) = (header.db, header.kind.byte(), header.unchanged);
        let item = Item { db, kind, on_flash, expires_at_ms, key, value: &[] };
        write_item(out, &item, header.value_len);
    }
    !lapsed
}

/// An engine that takes a snapshot in.
#[derive(Debug)]
pub struct Restoring<'a> {
    pub(super) contents: &'a mut Contents,
}

impl Restoring<'_> {
    /// Takes an item of a snapshot in. Where the snapshot is `exact`, what flash has too is known to be the same.
    pub fn restore(&mut self, item: &Item<'_>, exact: bool) -> Restored {
        let (db, kind) = (item.db, ValueKind::from_byte(item.kind));
        if db >= DATABASES
            || kind.byte() != item.kind
            || self.contents.check_lengths(item.key.len(), item.value.len()).is_err()
        {
            return Restored::Refused;
        }
        if item.expires_at_ms != 0 && item.expires_at_ms <= self.contents.shard.now().unix_ms {
            return Restored::Expired;
        }
        self.contents.prepare();
        self.contents.flash_tier().await_space();
        let hash = self.contents.items.hash(db, item.key);
        if let Some(id) = self.contents.find(db, item.key, hash)
            && self.contents.items.tiers.keeps(self.contents.shard.ladder().residents().nodes().loc(id).tier)
        {
            return Restored::Known;
        }
        if self.contents.has_flash() && self.contents.shard.memory().keys().place_below(hash).is_some() {
            let taken = exact && item.on_flash && self.restore_unchanged(item, kind, hash);
            return if taken { Restored::Taken } else { Restored::Known };
        }
        let expiry =
            if item.expires_at_ms == 0 { Expiry::Never } else { Expiry::AtUnixMs(item.expires_at_ms) };
        match self.contents.set_as(false, db, item.key, (kind, item.value), Condition::Always, expiry) {
            Ok(_) => {
                // It is not a client's request.
                self.contents.counters.sets -= 1;
                Restored::Taken
            }
            Err(_) => Restored::Refused,
        }
    }

    /// Takes in an item that flash has as well.
    fn restore_unchanged(&mut self, item: &Item<'_>, kind: ValueKind, hash: u64) -> bool {
        let (value_len, key_len) = (item.value.len() as u32, item.key.len() as u16);
        let header = Header { value_len, key_len, db: item.db, kind, unchanged: true };
        let expires_at_ms = (item.expires_at_ms != 0).then_some(item.expires_at_ms);
        let tenant = self.contents.tenant_for(item.db, item.key);
        let entry = Entry { is_newcomer: false, ..entry(hash, header, expires_at_ms, tenant) };
        let Ok((id, loc)) = self.contents.enter(&entry, item.db) else { return false };
        // It was counted there.
        self.contents.keys.remove(item.db, None);
        self.contents.write_item(loc, header, (item.key, item.value), expires_at_ms);
        note_fields(self.contents, id);
        true
    }
}
