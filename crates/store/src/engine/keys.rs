//! Keyspace operations: scanning keys, picking a random key, the cost of a key, its idle time.

use tiermem_policy::index::Found;

use super::ValueKind;
use super::contents::Contents;
use super::key_counts::{POSITION_BITS, start_of, stretch_of};
use super::staged::Staged;

/// Keys looked at together for a random one.
pub const RANDOM_SAMPLE: usize = 16;
/// Entries that are looked at together where there are few of the database.
const PIECE: usize = 256;
/// Keys of the database itself that are looked at for one that is wanted.
const OWN_MAX: usize = 1 << 16;
/// For each key that a scan is to visit it visits at most so many entries of other databases, and at most so many in one call.
const FOREIGN_MAX: usize = 16;
const FOREIGN_ENTRIES_MAX: usize = 4096;

/// What a piece of a scan has seen.
#[derive(Debug, Default)]
struct Seen {
    entries: usize,
    /// Keys of the database in question, in memory.
    own: usize,
}

/// The keys of an engine.
#[derive(Debug)]
pub struct Keyspace<'a> {
    pub(super) contents: &'a mut Contents,
}

impl Keyspace<'_> {
    /// Visits about `count` keys of `db` from `cursor` (0 starts) and returns the next cursor, 0 at the end. A key
    /// that stays in the engine from the first call to the last is visited at least once, also when keys are written
    /// or moved between calls: the cursor is a position in the index's hash order, which no operation rearranges.
    ///
    /// Where other databases have most keys, it visits up to [`FOREIGN_MAX`] times as many entries, and none of most of theirs.
    pub fn scan(
        &mut self,
        db: u8,
        cursor: u64,
        count: usize,
        visit: &mut dyn FnMut(&[u8], ValueKind),
    ) -> u64 {
        let count = count.max(1);
        let entries_max = count.max(FOREIGN_ENTRIES_MAX.min(count.saturating_mul(FOREIGN_MAX)));
        let (mut found, mut entries, mut piece) = (0, 0, count);
        let mut position = cursor;
        while let Some(at) = self.scan_start(db, position) {
            let (next, seen) = self.scan_piece(db, at, piece, visit);
            (found, entries) = (found + seen.own, entries + seen.entries);
            piece = count.saturating_sub(found).max(if seen.own == 0 { PIECE } else { 1 });
            match next {
                None => return 0,
                // Items on flash were fetched up to here.
                Some(next) if found >= count || entries >= entries_max || self.has_keys_on_flash() => {
                    return next;
                }
                Some(next) => position = next,
            }
        }
        0
    }

    /// Where a scan of `db` that has come to `position` finds the next key; `None`: there is none.
    pub fn scan_start(&self, db: u8, position: u64) -> Option<u64> {
        self.contents.keys.next_position(db, position)
    }

    fn has_keys_on_flash(&self) -> bool {
        self.contents.shard.memory().keys().items_below() > 0
    }

    /// Visits the keys of `db` among about `count` entries from `at` on. Where to go on, and what it has seen.
    fn scan_piece(
        &mut self,
        db: u8,
        at: u64,
        count: usize,
        visit: &mut dyn FnMut(&[u8], ValueKind),
    ) -> (Option<u64>, Seen) {
        let Contents { shard, items, .. } = &*self.contents;
        let mut seen = Seen::default();
        // Stretches that may have keys of `db`, in order.
        let mut used: Vec<u64> = Vec::new();
        let mut use_stretch = |hash: u64| {
            let stretch = stretch_of(hash >> (64 - POSITION_BITS));
            if used.last() != Some(&stretch) {
                used.push(stretch);
            }
        };
        let next = shard.memory().keys().entries(at, count, |hash, found| {
            seen.entries += 1;
            match found {
                Found::Item(id) => {
                    let loc = shard.ladder().residents().nodes().loc(id);
                    let header = items.header(loc);
                    items.tiers.charge_read(loc.tier, header.value_offset());
                    if header.db != db {
                        return;
                    }
                    seen.own += 1;
                    use_stretch(hash);
                    if !shard.is_expired(id) {
                        visit(items.key(loc, header), header.kind);
                    }
                }
                Found::Log(_) => {
                    // Whose it is is not known.
                    use_stretch(hash);
                    self.visit_staged(db, hash, visit);
                }
            }
        });
        // Of those that were seen as a whole.
        let mut position = at.next_multiple_of(start_of(1));
        let end = next.map_or(1 << POSITION_BITS, |next| start_of(stretch_of(next)));
        while let Some(stretch) =
            self.scan_start(db, position).map(stretch_of).filter(|it| start_of(*it) < end)
        {
            if used.binary_search(&stretch).is_err() {
                self.contents.keys.note_empty(db, stretch);
            }
            position = start_of(stretch + 1);
        }
        (next, seen)
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

    /// A live key of `db` that is `wanted`, about any with the same chance. Takes as long as `db` has keys that are not wanted; of
    /// those on flash only some are looked at.
    pub fn random_key(&mut self, db: u8, wanted: &mut dyn FnMut(&[u8]) -> bool) -> Option<Vec<u8>> {
        if self.contents.keys.of(db) == 0 {
            return None;
        }
        let start = self.begin_random_key(db);
        self.contents.staged.end_random_search();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let (mut position, mut own, mut wrapped) = (start, 0, false);
        while own < OWN_MAX {
            let Some(at) = self.scan_start(db, position).filter(|at| !wrapped || *at < start) else {
                if wrapped {
                    return None;
                }
                (position, wrapped) = (0, true);
                continue;
            };
            let piece = if at == start { RANDOM_SAMPLE } else { PIECE };
            let (next, seen) = self.scan_piece(db, at, piece, &mut |key, _| {
                keys.extend(wanted(key).then(|| key.to_vec()));
            });
            if !keys.is_empty() {
                let chosen = self.contents.rng.below(keys.len() as u64) as usize;
                return Some(keys.swap_remove(chosen));
            }
            own += seen.own;
            position = next.unwrap_or(1 << POSITION_BITS);
        }
        None
    }

    /// Where the next search for a random key begins. Items on flash at that position must be staged first.
    pub fn begin_random_key(&mut self, db: u8) -> u64 {
        let drawn = self.contents.rng.below(1 << POSITION_BITS);
        let fresh = self.scan_start(db, drawn).or_else(|| self.scan_start(db, 0));
        self.contents.staged.begin_random_search(fresh.unwrap_or(drawn))
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
