//! Prefetching for known look-ups: their memory accesses overlap instead of waiting one after another.
//!
//! A look-up touches four random places, each found through the one before: the index's segment, the entry in it,
//! the node, the item. In a store larger than the processor's caches those waits are most of its time. The keys
//! of a pipeline are known before its first look-up, so all segments are prefetched, then all entries, then all
//! nodes, then all items. Prefetching counts, charges and changes nothing: the look-up pays what a request costs.

use tiermem_policy::Id;
use tiermem_sys::prefetch::prefetch;

use super::Engine;

/// Keys that [`Engine::foresee`] takes at a time: enough to keep all the memory requests busy that a core can have
/// open, and few enough that what was fetched is still there when it is used.
pub const FORESEEN_MAX: usize = 16;
/// Bytes asked for at an item's start: header, key and the start of the value. What follows in order, the processor
/// fetches by itself.
const ITEM_BYTES: usize = 192;

impl Engine {
    /// Asks for the memory that looking up the first of `keys` will touch, [`FORESEEN_MAX`] at most.
    // Within the loop over requests it would take the registers that the loop needs.
    #[inline(never)]
    pub fn foresee<'a>(&self, db: u8, keys: impl Iterator<Item = &'a [u8]>) {
        let mut hashes = [0; FORESEEN_MAX];
        let mut count = 0;
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.contents.items.hash(db, key);
            prefetch(self.contents.shard.memory().keys().foresee_segment(*hash));
            count += 1;
        }
        for &hash in &hashes[..count] {
            if let Some(home) = self.contents.shard.memory().keys().foresee_entry(hash) {
                prefetch(home);
            }
        }
        let mut ids = [Id::NONE; FORESEEN_MAX];
        let mut found = 0;
        for &hash in &hashes[..count] {
            if let Some(id) = self.contents.shard.memory().keys().foresee_item(hash) {
                prefetch(self.contents.shard.ladder().residents().nodes().node(id));
                if let Some(mark) = self.contents.shard.ladder().residents().mark(id) {
                    prefetch(mark);
                }
                ids[found] = id;
                found += 1;
            }
        }
        for &id in &ids[..found] {
            self.contents
                .items
                .tiers
                .prefetch(self.contents.shard.ladder().residents().nodes().loc(id), ITEM_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Condition, EngineConfig, Expiry};
    use tiermem_base::{Bytes, TierKind, TierSpec};

    #[test]
    fn what_is_foreseen_is_neither_counted_nor_charged() {
        let tier = |kind, mib: u64| TierSpec::new(kind, Bytes(mib << 20));
        let tiers = vec![tier(TierKind::Dram, 2), tier(TierKind::Emulated, 8)];
        let mut engine = Engine::new(EngineConfig { spin: false, ..EngineConfig::new(tiers) }).unwrap();
        let keys: Vec<String> = (0..5000).map(|key| format!("key:{key}")).collect();
        for key in &keys[..4000] {
            engine.set(0, key.as_bytes(), &[7; 1000], Condition::Always, Expiry::Never).unwrap();
        }
        let before = serde_json::to_value(engine.stats()).unwrap();
        for keys in keys.chunks(FORESEEN_MAX + 3) {
            engine.foresee(0, keys.iter().map(String::as_bytes));
            engine.foresee(1, keys.iter().map(String::as_bytes));
        }
        engine.foresee(0, std::iter::empty());
        assert_eq!(serde_json::to_value(engine.stats()).unwrap(), before);
    }
}
