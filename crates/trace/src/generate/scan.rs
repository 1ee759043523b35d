//! Look-ups of every key in turn, again and again: what a recency list handles worst.

use tiermem_base::Access;

use super::{STEP_NS, Sizes};

/// Look-ups of keys `0, 1, ..., objects - 1`, then from 0 again.
#[derive(Clone, Debug)]
pub struct Scan {
    objects: u64,
    sizes: Sizes,
    next: u64,
    time_ns: u64,
}

impl Scan {
    /// Look-ups of `objects` keys in their order; with 0 of them, key 0 is asked for.
    pub fn new(objects: u64, sizes: Sizes) -> Self {
        Scan { objects, sizes, next: 0, time_ns: 0 }
    }
}

impl Iterator for Scan {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        let access = Access::get(self.time_ns, self.next, self.sizes.of(self.next));
        self.next = if self.next + 1 < self.objects { self.next + 1 } else { 0 };
        self.time_ns = self.time_ns.wrapping_add(STEP_NS);
        Some(access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_round() {
        let keys = |objects| Scan::new(objects, Sizes::Fixed(1)).map(|a| a.key).take(7).collect::<Vec<_>>();
        assert_eq!(keys(3), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(keys(1), [0; 7]);
    }
}
