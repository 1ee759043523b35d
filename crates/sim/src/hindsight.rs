//! Best placement in hindsight: the bound that a placement is measured against.

use std::collections::HashMap;

use tiermem_base::Access;

/// Counts accesses, and then places the keys with the most accesses per byte in the fast tier, for the whole trace.
///
/// No placement that never moves anything does better (up to the one item at the boundary); one that moves may, on
/// traces whose hot set changes, since it can hold different items at different times.
#[derive(Clone, Debug, Default)]
pub struct BestPlacement {
    /// Look-ups and largest size of each key.
    keys: HashMap<u64, (u64, u64)>,
    requests: u64,
}

impl BestPlacement {
    /// Counts one access; only look-ups count.
    pub fn note(&mut self, access: &Access) {
        if access.op.is_lookup() {
            self.requests += 1;
            let key = self.keys.entry(access.key).or_default();
            key.0 += 1;
            key.1 = key.1.max(u64::from(access.size));
        }
    }

    /// Bytes of all keys' items, each with `overhead_bytes` in addition to its value.
    pub fn working_set_bytes(&self, overhead_bytes: u64) -> u64 {
        self.keys.values().map(|(_, size)| size + overhead_bytes).sum()
    }

    /// Distinct keys.
    pub fn keys(&self) -> u64 {
        self.keys.len() as u64
    }

    /// The share of look-ups that the best placement answers from a fast tier of `fast_bytes`, the first look-up of
    /// each key not counted when `first_misses` (it cannot be answered by any cache).
    pub fn fast_share(&self, fast_bytes: u64, overhead_bytes: u64, first_misses: bool) -> f64 {
        let cost = |(&key, &(count, size)): (&u64, &(u64, u64))| {
            (count - u64::from(first_misses), size + overhead_bytes, key)
        };
        let mut keys: Vec<(u64, u64, u64)> = self.keys.iter().map(cost).collect();
        // Most look-ups per byte first, compared without division; ties by key, for the map has no order of its own.
        keys.sort_by(|a, b| {
            let density = |x: &(u64, u64, u64), y: &(u64, u64, u64)| u128::from(x.0) * u128::from(y.1);
            density(b, a).cmp(&density(a, b)).then(a.2.cmp(&b.2))
        });
        let mut left = fast_bytes;
        let mut answered = 0;
        for (count, bytes, _) in keys {
            if bytes <= left {
                left -= bytes;
                answered += count;
            }
        }
        answered as f64 / self.requests.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_used_bytes_come_first() {
        let mut best = BestPlacement::default();
        for (key, size, count) in [(1u64, 100u32, 10), (2, 10, 5), (3, 10, 1)] {
            for _ in 0..count {
                best.note(&Access::get(0, key, size));
            }
        }
        assert_eq!(best.fast_share(10, 0, false), 5.0 / 16.0);
        assert_eq!(best.fast_share(20, 0, false), 6.0 / 16.0);
        assert_eq!(best.fast_share(110, 0, false), 15.0 / 16.0);
        assert_eq!(best.fast_share(1000, 0, true), 13.0 / 16.0);
        assert_eq!((best.keys(), best.working_set_bytes(8)), (3, 144));
    }
}
