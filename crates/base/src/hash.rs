//! Hashing: one stable hash for what is stored or compared between runs, one seeded hash for hash tables.

use core::hash::{BuildHasher, Hasher};

/// The seed with which string keys of a trace become 64-bit keys.
pub const TRACE_KEY_SEED: u64 = 0x7469_6572_6d65_6d00;

/// The stable 64-bit hash (xxh3) of a string key, as it stands in traces. Never changes between versions.
pub fn trace_key(name: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(name, TRACE_KEY_SEED)
}

/// The seed of [`sample_hash`].
const SAMPLE_SEED: u64 = 0x7469_6572_6d65_6d01;

/// The stable 64-bit hash (xxh3 of the key's little-endian bytes) that decides whether a spatial sample holds a key.
///
/// Its high bits decide, see [`Sample`]; its low bits are free to tell parts of a sample from each other.
#[inline]
pub fn sample_hash(key: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(&key.to_le_bytes(), SAMPLE_SEED)
}

/// The seed of [`placement_hash`].
const PLACEMENT_SEED: u64 = 0x7469_6572_6d65_6d02;

/// The stable 64-bit hash (xxh3) of a string key that decides in which shard of a store it lies. Never changes between
/// versions: what lies on flash is divided by it.
#[inline]
pub fn placement_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(key, PLACEMENT_SEED)
}

/// Spatial sampling (SHARDS, FAST'15): a key is in the sample with all its accesses or with none, if its hash modulo
/// P lies below T = R P. P is 2^64 here, and instead of the low bits the hash as a whole is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    threshold: u64,
}

impl Sample {
    /// A sample of about the share `rate` of all keys; 1 or more takes every key.
    pub fn with_rate(rate: f64) -> Self {
        // The conversion saturates: at rate 1 all hashes but one are below.
        Sample { threshold: (rate.clamp(0.0, 1.0) * 2f64.powi(64)) as u64 }
    }

    /// The sample of all keys whose hash is less than this one.
    pub fn below(hash: u64) -> Self {
        Sample { threshold: hash.saturating_sub(1) }
    }

    /// The rate R that the threshold stands for.
    pub fn rate(&self) -> f64 {
        self.threshold as f64 / 2f64.powi(64)
    }

    /// Whether a key of this [`sample_hash`] is in the sample.
    #[inline]
    pub fn holds(&self, hash: u64) -> bool {
        hash <= self.threshold
    }
}

/// Hashes keys for the store's index. Seeded, so that no client can prepare colliding keys.
#[derive(Clone, Debug)]
pub struct KeyHasher(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Volatile(foldhash::quality::SeedableRandomState),
    /// The seed.
    Stable(u64),
}

impl KeyHasher {
    /// A hasher fixed by `seed`, whose values are never stored or sent: another version may give others.
    pub fn seeded(seed: u64) -> Self {
        KeyHasher(Kind::Volatile(foldhash::quality::SeedableRandomState::with_seed(
            seed,
            foldhash::SharedSeed::global_fixed(),
        )))
    }

    /// A hasher fixed by `seed` whose values (xxh3's) may be stored: they never change.
    pub fn stable(seed: u64) -> Self {
        KeyHasher(Kind::Stable(seed))
    }

    /// The hash of `key` within `space` (a database number; equal keys of two spaces differ).
    #[inline]
    pub fn hash(&self, space: u8, key: &[u8]) -> u64 {
        match &self.0 {
            Kind::Volatile(state) => {
                let mut hasher = state.build_hasher();
                hasher.write(key);
                hasher.write_u8(space);
                hasher.finish()
            }
            Kind::Stable(seed) => {
                // An odd multiple of the space parts the seeds of spaces as far as the hash itself parts keys.
                let seed = seed ^ (u64::from(space) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                xxhash_rust::xxh3::xxh3_64_with_seed(key, seed)
            }
        }
    }
}

/// The stable 64-bit hash (xxh3) of a hash's field name, by which the blob that holds the fields finds them. The seed is drawn
/// when the blob is made and lies in it, so that no client can prepare colliding names. Never changes between versions.
#[inline]
pub fn field_hash(seed: u32, name: &[u8]) -> u64 {
    // xxh3 mixes a seed into short inputs by itself; a wider one tells neighbouring seeds further apart.
    xxhash_rust::xxh3::xxh3_64_with_seed(name, u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15))
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
    fn samples_hold_their_share_and_grow_with_the_rate() {
        let (small, large, all) = (Sample::with_rate(0.01), Sample::with_rate(0.1), Sample::with_rate(1.0));
        let count = |sample: Sample| (0..100_000u64).filter(|&key| sample.holds(sample_hash(key))).count();
        assert!((900..1100).contains(&count(small)), "{}", count(small));
        assert!((9_600..10_400).contains(&count(large)), "{}", count(large));
        assert_eq!(count(all), 100_000);
        assert!((0..10_000).map(sample_hash).all(|hash| !small.holds(hash) || large.holds(hash)));
        // Stored samples and split traces rely on it.
        assert_eq!(
            sample_hash(1),
            xxhash_rust::xxh3::xxh3_64_with_seed(&[1, 0, 0, 0, 0, 0, 0, 0], SAMPLE_SEED)
        );
    }

    #[test]
    fn spaces_and_seeds_separate_equal_keys() {
        for make in [KeyHasher::seeded, KeyHasher::stable] {
            let hasher = make(1);
            assert_eq!(hasher.hash(0, b"a"), hasher.hash(0, b"a"));
            assert_ne!(hasher.hash(0, b"a"), hasher.hash(1, b"a"));
            assert_ne!(hasher.hash(0, b"a"), make(2).hash(0, b"a"));
        }
    }

    #[test]
    fn stored_hashes_never_change() {
        let seed = 7 ^ 4u64.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let expected = xxhash_rust::xxh3::xxh3_64_with_seed(b"user:1", seed);
        assert_eq!(KeyHasher::stable(7).hash(3, b"user:1"), expected);
    }
}
