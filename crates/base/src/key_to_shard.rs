//! Mapping of keys to the shards of a store. It is part of the format on flash: a region holds the keys of one shard.

use crate::hash::placement_hash;

/// The shard of a key among `shards`: by the hash of all of it or, as in a Redis cluster, of the text between its first `{` and
/// the next `}`, if that is not empty.
#[inline]
pub fn shard_of(key: &[u8], shards: usize) -> usize {
    let hash = placement_hash(tag(key));
    ((u128::from(hash) * shards as u128) >> 64) as usize
}

/// Most keys have no tag, which a few words tell at once.
#[inline]
fn tag(key: &[u8]) -> &[u8] {
    if has_brace(key) { tag_behind_brace(key) } else { key }
}

/// Whether there is a `{`, eight bytes at a time: exact, as the lowest byte that borrows is one that became zero.
#[inline]
fn has_brace(key: &[u8]) -> bool {
    const ONES: u64 = u64::MAX / 255;
    let words = key.chunks_exact(8);
    let rest = words.remainder();
    let zero_byte = |word: u64| {
        let zeroed = word ^ (ONES * b'{' as u64);
        zeroed.wrapping_sub(ONES) & !zeroed & (ONES << 7)
    };
    let mut found = 0;
    for word in words {
        found |= zero_byte(word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
    }
    found != 0 || rest.contains(&b'{')
}

#[cold]
fn tag_behind_brace(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let behind = &key[open + 1..];
    match behind.iter().position(|byte| *byte == b'}') {
        None | Some(0) => key,
        Some(close) => &behind[..close],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_spread_and_tags_keep_together() {
        let mut counts = [0; 3];
        (0..30_000).for_each(|n| counts[shard_of(format!("key:{n}").as_bytes(), 3)] += 1);
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
        for n in 0..100 {
            let keys = [format!("{{user{n}}}.a"), format!("b{{user{n}}}"), format!("user{n}")];
            let shards = keys.map(|key| shard_of(key.as_bytes(), 3));
            assert_eq!(shards, [shards[0]; 3]);
        }
        assert_eq!(tag(b"a{}b"), b"a{}b");
        assert_eq!(tag(b"a{b"), b"a{b");
        for len in 0..40 {
            for at in 0..len {
                let mut key = vec![b'|'; len];
                assert!(!has_brace(&key));
                key[at] = b'{';
                assert!(has_brace(&key), "{at} of {len}");
            }
        }
    }

    #[test]
    fn a_keys_shard_never_changes() {
        let shards = ["a", "b", "user:1", "user:2", "{x}y"].map(|key| shard_of(key.as_bytes(), 8));
        assert_eq!(shards, [3, 7, 2, 4, 6]);
    }
}
