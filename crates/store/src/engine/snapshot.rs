//! What a snapshot is made of, and what becomes of it: gathering the items of memory a piece at a time, between requests, and
//! taking them in again.
//!
//! Items are gathered in passes over the index, in the order of hashes, which nothing rearranges. Each pass takes the items
//! that were last used within a stretch of time, the longest ago first, so that loading them in the order of the file leaves
//! the hot ones in the fast tier. A use moves an item to a later stretch and never to an earlier one: whoever is there from
//! the first pass to the last is met at least once. One that is met twice stands in the file twice, the newer one behind.

use tiermem_policy::Id;
use tiermem_policy::index::Found;
use tiermem_policy::shard;

use super::item::{HEADER_BYTES, Header};
use super::{Condition, DATABASES, Engine, Expiry, ItemRef, Pin, ValueKind};
use crate::snapshot::format::{BLOCK_BYTES, Item, write_item};

/// Stretches of time.
const PASSES: usize = 4;
/// Items by whose last use they are divided.
const SAMPLE: usize = 1024;
/// Index entries looked at together.
const VISITS: usize = 64;
/// Values from here on are held and copied in parts of so many bytes: a longer copy would keep requests waiting.
const LONG_BYTES: usize = 64 << 10;

/// A value that is copied in parts.
#[derive(Debug)]
struct Long {
    pin: Option<Pin>,
    /// The item as it stands in the file, as far as it is copied.
    bytes: Vec<u8>,
    /// Bytes of the value that are.
    copied: usize,
}

/// How far the gathering of a snapshot has come. [`Engine::end_gathering`] ends it.
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

/// What [`Engine::gather`] has gathered.
#[derive(Debug)]
pub enum Gathered {
    /// A block's bytes and the number of its items.
    Block(Vec<u8>, u32),
    /// Nothing yet.
    NotYet,
    /// There is no more.
    All,
}

/// What became of an item of a snapshot.
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

impl Engine {
    /// Begins a snapshot of the items in tiers that do not outlive the process themselves.
    pub fn begin_gathering(&mut self) -> Gathering {
        let mut ticks = Vec::with_capacity(2 * SAMPLE);
        self.shard.memory().entries(0, SAMPLE, |_, found| {
            if let Found::Item(id) = found {
                ticks.push(self.last_tick(id));
            }
        });
        ticks.sort_unstable();
        let quantile = |pass: usize| ticks.get(ticks.len() * pass / PASSES).copied().unwrap_or(0);
        let from = core::array::from_fn(|pass| if pass == 0 { 0 } else { quantile(pass) });
        Gathering { from, pass: 0, at: 0, long: Vec::new(), block: Vec::new(), items: 0 }
    }

    /// When the item was last used, in the ladder's ticks.
    fn last_tick(&self, id: Id) -> u64 {
        let tick_requests = self.shard.ladder().config().recency_requests.max(1);
        let idle =
            self.shard.ladder().residents().nodes().idle_requests(id, self.shard.now()) / tick_requests;
        (self.shard.now().requests / tick_requests).saturating_sub(idle)
    }

    /// Gathers for some ten microseconds: a few dozen items, or a part of a long one.
    pub fn gather(&mut self, gathering: &mut Gathering) -> Gathered {
        if let Some(long) = gathering.long.last_mut() {
            return match self.copy_part(long) {
                false => Gathered::NotYet,
                true => {
                    let long = gathering.long.pop();
                    long.map_or(Gathered::NotYet, |long| self.end_long(long))
                }
            };
        }
        let Gathering { from, pass, at, long, block, items } = gathering;
        let mut found_long = Vec::new();
        if let Some(&from_tick) = from.get(*pass) {
            let until = from.get(*pass + 1).copied().unwrap_or(u64::MAX);
            let next = self.shard.memory().entries(*at, VISITS, |_, found| {
                let Found::Item(id) = found else { return };
                let loc = self.shard.ladder().residents().nodes().loc(id);
                let tick = self.last_tick(id);
                if tick < from_tick || tick >= until || self.items.tiers.keeps(loc.tier) {
                    return;
                }
                let header = self.header(loc);
                if header.item_len() >= LONG_BYTES {
                    found_long.push(id);
                } else if self.write_head_of(id, header, block) {
                    block.extend_from_slice(self.value(ItemRef(id)));
                    self.items.tiers.charge_read(loc.tier, header.item_len());
                    *items += 1;
                }
            });
            (*pass, *at) = next.map_or((*pass + 1, 0), |at| (*pass, at));
        }
        for id in found_long {
            let header = self.header(self.shard.ladder().residents().nodes().loc(id));
            let mut bytes = Vec::with_capacity(header.item_len() + 64);
            if self.write_head_of(id, header, &mut bytes) {
                let pin = self.pin(ItemRef(id));
                if pin.is_none() {
                    bytes.extend_from_slice(self.value(ItemRef(id)));
                }
                long.push(Long { pin, bytes, copied: 0 });
            }
        }
        let last = *pass == PASSES && long.is_empty();
        if block.len() >= BLOCK_BYTES || last && !block.is_empty() {
            let items = std::mem::take(items);
            return Gathered::Block(std::mem::take(block), items);
        }
        if last { Gathered::All } else { Gathered::NotYet }
    }

    /// Writes what stands before an item's value; `false`: its time is over.
    fn write_head_of(&self, id: Id, header: Header, out: &mut Vec<u8>) -> bool {
        let expires_at_ms = self.shard.ladder().residents().nodes().expires_at_ms(id).unwrap_or(0);
        let lapsed = expires_at_ms != 0 && expires_at_ms <= self.shard.now().unix_ms;
        if !lapsed {
            let key = self.items.tiers.bytes(
                self.shard.ladder().residents().nodes().loc(id),
                HEADER_BYTES,
                usize::from(header.key_len),
            );
            let (db, kind, on_flash) = (header.db, header.kind.byte(), header.unchanged);
            let item = Item { db, kind, on_flash, expires_at_ms, key, value: &[] };
            write_item(out, &item, header.value_len);
        }
        !lapsed
    }

    /// Copies a part of a long value; whether it was the last.
    fn copy_part(&mut self, long: &mut Long) -> bool {
        let Some(pin) = &long.pin else { return true };
        let value = self.pinned(pin);
        let end = value.len().min(long.copied + LONG_BYTES);
        long.bytes.extend_from_slice(&value[long.copied..end]);
        long.copied = end;
        end == value.len()
    }

    fn end_long(&mut self, long: Long) -> Gathered {
        if let Some(pin) = long.pin {
            self.unpin(pin);
        }
        Gathered::Block(long.bytes, 1)
    }

    /// Lets go of what is held for a snapshot, complete or not.
    pub fn end_gathering(&mut self, gathering: Gathering) {
        for long in gathering.long {
            self.end_long(long);
        }
    }

    /// Values that were written since the start.
    pub fn sets(&self) -> u64 {
        self.sets
    }

    /// The name of this run.
    pub fn session(&self) -> [u8; 16] {
        self.config.session
    }

    /// Whether a snapshot of the run `session` can be of the state that everything else here was left in.
    pub fn follows(&self, session: [u8; 16]) -> bool {
        self.keeping.follows(session)
    }

    /// Before the first item of a snapshot is taken in, and behind the last.
    pub fn restoring(&mut self, on: bool) {
        self.shard.configure(shard::Change::TrustNewcomers(on));
    }

    /// Takes an item of a snapshot in. Where the snapshot is `exact`, what flash has too is known to be the same.
    pub fn restore(&mut self, item: &Item<'_>, exact: bool) -> Restored {
        let (db, kind) = (item.db, ValueKind::from_byte(item.kind));
        if db >= DATABASES
            || kind.byte() != item.kind
            || self.check_lengths(item.key.len(), item.value.len()).is_err()
        {
            return Restored::Refused;
        }
        if item.expires_at_ms != 0 && item.expires_at_ms <= self.shard.now().unix_ms {
            return Restored::Expired;
        }
        self.prepare();
        self.await_flash();
        let hash = self.items.hasher.hash(db, item.key);
        if let Some(id) = self.find(db, item.key, hash)
            && self.items.tiers.keeps(self.shard.ladder().residents().nodes().loc(id).tier)
        {
            return Restored::Known;
        }
        if self.has_flash() && self.shard.memory().place_below(hash).is_some() {
            let taken = exact && item.on_flash && self.restore_unchanged(item, kind, hash);
            return if taken { Restored::Taken } else { Restored::Known };
        }
        let expiry =
            if item.expires_at_ms == 0 { Expiry::Never } else { Expiry::AtUnixMs(item.expires_at_ms) };
        match self.set_kind(db, item.key, (kind, item.value), Condition::Always, expiry) {
            Ok(_) => {
                // Nobody has asked for it.
                self.sets -= 1;
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
        let tenant = self.tenant_for(item.db, item.key);
        let entry = self.entry(hash, header, expires_at_ms, tenant);
        let Ok((_, loc)) = self.enter(&entry, item.db) else { return false };
        // It was counted there.
        self.uncount(item.db);
        self.prepare_place(loc, header);
        let bytes = self.items.tiers.bytes_mut(loc, header.item_len());
        header.write(bytes);
        bytes[HEADER_BYTES..header.value_offset()].copy_from_slice(item.key);
        bytes[header.value_offset()..].copy_from_slice(item.value);
        self.seal_item(loc, header, expires_at_ms);
        self.items.tiers.charge_write(loc.tier, header.item_len());
        true
    }
}
