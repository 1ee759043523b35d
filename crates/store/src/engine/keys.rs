//! Keys as such: copying one with all that belongs to it, picking one at random, how long one was not used.

use super::{Condition, Engine, Expiry, StoreError};

/// Bits of a cursor.
const CURSOR_BITS: u32 = 40;
/// Keys looked at together for a random one.
const SAMPLE: usize = 16;
/// Of these, looked at at most.
const SAMPLES_MAX: usize = 4096;

impl Engine {
    /// Copies the value and expiry of a key to another one, whatever was there; `Ok(false)` when there is nothing to
    /// copy. `value` is memory to use.
    pub fn copy_key(
        &mut self,
        from: (u8, &[u8]),
        to: (u8, &[u8]),
        value: &mut Vec<u8>,
    ) -> Result<bool, StoreError> {
        let Some(expires_at) = self.expires_at(from.0, from.1) else { return Ok(false) };
        let Some(hit) = self.peek(from.0, from.1) else { return Ok(false) };
        value.clear();
        value.extend_from_slice(hit.value);
        let kind = hit.kind;
        let expiry = expires_at.map_or(Expiry::Never, Expiry::AtUnixMs);
        self.set_kind(to.0, to.1, (kind, value), Condition::Always, expiry)
    }

    /// A live key of `db` that is `wanted`, about any with the same chance. O(1) where most keys are such; where few are, a part of
    /// the index is looked through, and perhaps none is found though there are some.
    pub fn random_key(&mut self, db: u8, wanted: &mut dyn FnMut(&[u8]) -> bool) -> Option<Vec<u8>> {
        if self.len(db) == 0 {
            return None;
        }
        let start = self.begin_random_key();
        self.below.random_from = None;
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut cursor = start;
        let mut wrapped = false;
        for _ in 0..SAMPLES_MAX {
            cursor =
                self.scan(db, cursor, SAMPLE, &mut |key, _| keys.extend(wanted(key).then(|| key.to_vec())));
            if !keys.is_empty() {
                let chosen = self.rng.below(keys.len() as u64) as usize;
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

    /// Where the next search for a random key begins: what lies there must be at hand before.
    pub fn begin_random_key(&mut self) -> u64 {
        let fresh = self.rng.below(1 << CURSOR_BITS);
        *self.below.random_from.get_or_insert(fresh)
    }

    /// Keys looked at together for a random one.
    pub const RANDOM_SAMPLE: usize = SAMPLE;

    /// Requests since `key` was last used, as the eviction order knows it: to the tick, and modulo its wrap.
    pub fn idle_requests(&mut self, db: u8, key: &[u8]) -> Option<u64> {
        let id = self.find_live(db, key, self.items.hasher.hash(db, key))?;
        Some(self.shard.ladder().residents().nodes().idle_requests(id, self.shard.now()))
    }

    /// Requests that the engine has served, which is its time.
    pub fn requests(&self) -> u64 {
        self.shard.now().requests
    }
}
