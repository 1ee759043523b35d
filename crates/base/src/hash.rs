//! Hashing: one stable hash for what is stored or compared between runs, one seeded hash for hash tables.

use core::hash::{BuildHasher, Hasher};

/// The seed with which string keys of a trace become 64-bit keys.
pub const TRACE_KEY_SEED: u64 = 0x7469_6572_6d65_6d00;

/// The stable 64-bit hash (xxh3) of a string key, as it stands in traces. Never changes between versions.
pub fn trace_key(name: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(name, TRACE_KEY_SEED)
}

/// Hashes keys for the store's index. Seeded per process, so that nobody can prepare colliding keys; the value
/// is never stored or sent.
#[derive(Clone, Debug)]
pub struct KeyHasher(foldhash::quality::SeedableRandomState);

impl KeyHasher {
    /// A hasher fixed by `seed`.
    pub fn seeded(seed: u64) -> Self {
        KeyHasher(foldhash::quality::SeedableRandomState::with_seed(
            seed,
            foldhash::SharedSeed::global_fixed(),
        ))
    }

    /// The hash of `key` within `space` (a database number; equal keys of two spaces differ).
    #[inline]
    pub fn hash(&self, space: u8, key: &[u8]) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write(key);
        hasher.write_u8(space);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_keys_never_change() {
        // Written down once: a change here would make stored traces disagree with new ones.
        assert_eq!(trace_key(b""), trace_key(b""));
        assert_ne!(trace_key(b"user:1"), trace_key(b"user:2"));
        assert_eq!(
            trace_key(b"user:1"),
            xxhash_rust::xxh3::xxh3_64_with_seed(b"user:1", 0x7469_6572_6d65_6d00)
        );
    }

    #[test]
    fn spaces_and_seeds_separate_equal_keys() {
        let hasher = KeyHasher::seeded(1);
        assert_eq!(hasher.hash(0, b"a"), hasher.hash(0, b"a"));
        assert_ne!(hasher.hash(0, b"a"), hasher.hash(1, b"a"));
        assert_ne!(hasher.hash(0, b"a"), KeyHasher::seeded(2).hash(0, b"a"));
    }
}
