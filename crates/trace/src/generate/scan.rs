//! Look-ups of every key in turn, repeatedly: the worst case of a recency list.

use tiermem_base::Access;

use super::{Permutation, STEP_NS, Sizes};

/// Look-ups of keys `0..objects` in a fixed order, then in the same order again.
#[derive(Clone, Debug)]
pub struct Scan {
    objects: u64,
    order: Option<Permutation>,
    sizes: Sizes,
    next: u64,
    time_ns: u64,
}

impl Scan {
    /// Look-ups of `objects` keys in ascending order; with 0 of them, key 0 is asked for.
    pub fn new(objects: u64, sizes: Sizes) -> Self {
        Scan { objects: objects.max(1), order: None, sizes, next: 0, time_ns: 0 }
    }

    /// Look-ups of `objects` keys in an order that `seed` chooses, so that neighbours in time are no neighbours in
    /// the key space.
    pub fn scattered(objects: u64, sizes: Sizes, seed: u64) -> Self {
        let order = Permutation::new(objects.max(1), seed);
        Scan { order: Some(order), ..Scan::new(objects, sizes) }
    }
}

impl Iterator for Scan {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        let key = self.order.as_ref().map_or(self.next, |order| order.apply(self.next));
        let access = Access::get(self.time_ns, key, self.sizes.of(key));
        self.next = if self.next + 1 < self.objects { self.next + 1 } else { 0 };
        self.time_ns = self.time_ns.wrapping_add(STEP_NS);
        Some(access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::SizeDistribution;

    fn sizes() -> Sizes {
        Sizes::new(SizeDistribution::Fixed(1), 1)
    }

    #[test]
    fn it_goes_round() {
        let keys = |objects| Scan::new(objects, sizes()).map(|a| a.key).take(7).collect::<Vec<_>>();
        assert_eq!(keys(3), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(keys(1), [0; 7]);
        assert_eq!(keys(0), [0; 7]);
    }

    #[test]
    fn a_scattered_scan_repeats_its_order() {
        let keys: Vec<u64> = Scan::scattered(1000, sizes(), 7).map(|a| a.key).take(2000).collect();
        assert_eq!(keys[..1000], keys[1000..]);
        let mut sorted = keys[..1000].to_vec();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..1000));
        assert!(keys.windows(2).filter(|pair| pair[1] == pair[0] + 1).count() < 20);
    }
}
