//! Keyspace operations: scanning keys, picking a random key, the cost of a key, its idle time.

use tiermem_policy::index::Found;

use super::ValueKind;
use super::contents::Contents;
use super::staged::Staged;

/// Bits of a cursor.
const CURSOR_BITS: u32 = 40;
/// Keys looked at together for a random one.
pub const RANDOM_SAMPLE: usize = 16;
/// Of these, looked at at most.
const SAMPLES_MAX: usize = 4096;

/// The keys of an engine.
#[derive(Debug)]
pub struct Keyspace<'a> {
    pub(super) contents: &'a mut Contents,
}

impl Keyspace<'_> {
    /// Visits about `count` keys of `db` from `cursor` (0 starts) and returns the next cursor, 0 at the end. A key
    /// that stays in the engine from the first call to the last is visited at least once, also when keys are written
    /// or moved between calls: the cursor is a position in the index's hash order, which no operation rearranges.
    pub fn scan(&self, db: u8, cursor: u64, count: usize, visit: &mut dyn FnMut(&[u8], ValueKind)) -> u64 {
        let Contents { shard, items, .. } = &*self.contents;
        let next = shard.memory().keys().entries(cursor, count.max(1), |hash, found| match found {
            Found::Item(id) => {
                let loc = shard.ladder().residents().nodes().loc(id);
                let header = items.header(loc);
                items.tiers.charge_read(loc.tier, header.value_offset());
                if header.db == db && !shard.is_expired(id) {
                    visit(items.key(loc, header), header.kind);
                }
            }
            Found::Log(_) => self.visit_staged(db, hash, visit),
        });
        next.unwrap_or(0)
    }

    /// Visits the staged item with these 40 bits of its hash, unless it is in memory too.
    fn visit_staged(&self, db: u8, hash: u64, visit: &mut dyn FnMut(&[u8], ValueKind)) {
        let Contents { staged, shard, items, .. } = &*self.contents;
        let Some(Staged { item, .. }) = staged.find(hash).and_then(|at| staged.get(at)) else { return };
        let header = &item.header;
        let expired = header.expires_at_ms != 0 && header.expires_at_ms <= shard.now().unix_ms;
        let flushed = items.flash.as_ref().is_some_and(|flash| flash.is_flushed(header));
        if header.db == db
            && !expired
            && !flushed
            && self.contents.find(db, item.key(), header.hash).is_none()
        {
            visit(item.key(), ValueKind::from_byte(header.kind));
        }
    }

    /// A live key of `db` that is `wanted`, about any with the same chance. O(1) where most keys are such; where few are, a part of
    /// the index is looked through, and perhaps none is found though there are some.
    pub fn random_key(&mut self, db: u8, wanted: &mut dyn FnMut(&[u8]) -> bool) -> Option<Vec<u8>> {
        if self.contents.keys.of(db) == 0 {
            return None;
        }
        let start = self.begin_random_key();
        self.contents.staged.end_random_search();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut cursor = start;
        let mut wrapped = false;
        for _ in 0..SAMPLES_MAX {
            cursor = self.scan(db, cursor, RANDOM_SAMPLE, &mut |key, _| {
                keys.extend(wanted(key).then(|| key.to_vec()))
            });
            if !keys.is_empty() {
                let chosen = self.contents.rng.below(keys.len() as u64) as usize;
                return Some(keys.swap_remove(chosen));
            }
            match cursor {
                0 if wrapped => return None,
                0 => wrapped = true,
                at if wrapped && at > start => return None,
                _ => {}
            }
        }
        None
    }

    /// Where the next search for a random key begins. Items on flash at that position must be staged first.
    pub fn begin_random_key(&mut self) -> u64 {
        let fresh = self.contents.rng.below(1 << CURSOR_BITS);
        self.contents.staged.begin_random_search(fresh)
    }

    /// Requests since `key` was last used, as the eviction order knows it: to the tick, and modulo its wrap.
    pub fn idle_requests(&mut self, db: u8, key: &[u8]) -> Option<u64> {
        let id = self.contents.find_live(db, key, self.contents.items.hash(db, key))?;
        let shard = &self.contents.shard;
        Some(shard.ladder().residents().nodes().idle_requests(id, shard.now()))
    }

    /// Bytes that `key` costs: its place and its share of the metadata.
    pub fn memory_usage(&mut self, db: u8, key: &[u8]) -> Option<u64> {
        let id = self.contents.find_live(db, key, self.contents.items.hash(db, key))?;
        let ladder = self.contents.shard.ladder();
        let items = ladder.residents().items().max(1);
        Some(ladder.residents().place_bytes(id) + ladder.metadata_bytes().div_ceil(items).min(64))
    }
}
