//! Bytes of the values and keys that a replay sends.

use tiermem_base::{Access, Rng};

use super::ReplayError;

/// Bytes of random content, made once.
const POOL_BYTES: usize = 1 << 20;
/// Bytes of every key that is sent.
pub const KEY_BYTES: usize = 20;
/// Redis's own limit for one value (`proto-max-bulk-len`).
const VALUE_BYTES_MAX: u64 = 512 << 20;

/// Incompressible content, of which every value is a slice: servers that compress gain nothing from it.
pub struct Values {
    pool: Vec<u8>,
}

impl Values {
    /// Fills the pool from a fixed seed.
    pub fn new() -> Self {
        let mut rng = Rng::seeded(1);
        let pool = (0..POOL_BYTES / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        Values { pool }
    }

    /// Appends the value of `key`: `size` bytes of the pool from a place that the key decides, round and round.
    pub fn append(&self, out: &mut Vec<u8>, key: u64, size: usize) {
        let mut from = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % self.pool.len();
        let mut left = size;
        while left > 0 {
            let part = left.min(self.pool.len() - from);
            out.extend_from_slice(&self.pool[from..from + part]);
            left -= part;
            from = 0;
        }
    }
}

/// The bytes of an access's value when sizes are multiplied by `scale`.
pub fn value_bytes(access: &Access, scale: f64) -> Result<usize, ReplayError> {
    // The cast saturates: a negative or huge product becomes 0 or too large, never something else.
    let size_bytes = (f64::from(access.size) * scale).round() as u64;
    if size_bytes > VALUE_BYTES_MAX {
        return Err(ReplayError::ValueTooLarge { key: access.key, size_bytes, limit_bytes: VALUE_BYTES_MAX });
    }
    Ok(size_bytes as usize)
}

/// A key of the trace as it is sent: `key:` and 16 hexadecimal digits. Every key has the same length, so that an
/// item's size depends on its value alone.
pub fn key_text(key: u64) -> [u8; KEY_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = *b"key:0000000000000000";
    for (place, digit) in text[4..].iter_mut().rev().enumerate() {
        *digit = DIGITS[(key >> (4 * place) & 0xf) as usize];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_one_length() {
        assert_eq!(&key_text(0), b"key:0000000000000000");
        assert_eq!(&key_text(u64::MAX), b"key:ffffffffffffffff");
        assert_eq!(&key_text(0x0123_4567_89ab_cdef), b"key:0123456789abcdef");
    }

    #[test]
    fn values_have_their_size_and_belong_to_their_key() {
        let values = Values::new();
        let value = |key, size| {
            let mut out = Vec::new();
            values.append(&mut out, key, size);
            out
        };
        for size in [0, 1, 100, POOL_BYTES, 3 * POOL_BYTES + 1] {
            assert_eq!(value(7, size).len(), size);
            assert_eq!(value(7, size), value(7, size));
        }
        assert_ne!(value(7, 100), value(8, 100));
    }
}
