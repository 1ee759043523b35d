//! Files that are read sequentially: the long streams of block traces, repeatedly.
//!
//! The keys are divided into streams of one length. One is chosen, read in order, and then the next is chosen, by Zipf's law
//! over the streams: alpha 0 makes all alike. Unlike in a scan of the whole, a stream comes back after a time that varies.

use tiermem_base::{Access, Rng};

use super::zipf::ZipfRanks;
use super::{Permutation, STEP_NS, Sizes};

/// Look-ups of keys `0..objects`, stream after stream.
#[derive(Clone, Debug)]
pub struct Streams {
    ranks: ZipfRanks,
    /// Which stream has which rank: those read often are no neighbours.
    order: Permutation,
    objects: u64,
    length: u64,
    sizes: Sizes,
    rng: Rng,
    time_ns: u64,
    next: u64,
    /// Where the stream at hand ends.
    end: u64,
}

impl Streams {
    /// Streams of `length` keys each, of which the last may be shorter, over `objects` keys. `None` where Zipf's law knows no
    /// such `alpha` or number of streams.
    pub fn new(objects: u64, length: u64, alpha: f64, sizes: Sizes, seed: u64) -> Option<Self> {
        let (objects, length) = (objects.max(1), length.max(1));
        let count = objects.div_ceil(length);
        Some(Streams {
            ranks: ZipfRanks::new(count, alpha)?,
            order: Permutation::new(count, seed),
            objects,
            length,
            sizes,
            rng: Rng::seeded(seed),
            time_ns: 0,
            next: 0,
            end: 0,
        })
    }
}

impl Iterator for Streams {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        if self.next == self.end {
            self.next = self.order.apply(self.ranks.draw(&mut self.rng)) * self.length;
            self.end = self.next.saturating_add(self.length).min(self.objects);
        }
        let access = Access::get(self.time_ns, self.next, self.sizes.of(self.next));
        self.next += 1;
        self.time_ns = self.time_ns.wrapping_add(STEP_NS);
        Some(access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::SizeDistribution;

    fn keys(objects: u64, length: u64, alpha: f64, count: usize) -> Vec<u64> {
        let sizes = Sizes::new(SizeDistribution::Fixed(1), 1);
        Streams::new(objects, length, alpha, sizes, 7).unwrap().map(|access| access.key).take(count).collect()
    }

    #[test]
    fn a_stream_is_read_from_its_front_to_its_end() {
        let keys = keys(1050, 100, 0.0, 50_000);
        let mut at = 0;
        while at + 100 < keys.len() {
            let first = keys[at];
            assert_eq!(first % 100, 0);
            let length = if first == 1000 { 50 } else { 100 };
            assert!(keys[at..at + length].iter().copied().eq(first..first + length as u64));
            at += length;
        }
        let mut firsts: Vec<u64> = keys.iter().copied().filter(|key| key % 100 == 0).collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 11, "each is read at some time");
    }

    #[test]
    fn some_streams_are_read_more_often() {
        let share = |alpha| {
            let mut counts = [0u32; 100];
            keys(1000, 10, alpha, 100_000).into_iter().for_each(|key| counts[(key / 10) as usize] += 1);
            counts.sort_unstable();
            counts[90..].iter().sum::<u32>() as f64 / 100_000.0
        };
        // Of 100 ranks at alpha 1 the first ten have 56% of the draws; of 1000 equal draws over 100 at most some 16 come to one.
        assert!(share(1.0) > 0.5 && share(0.0) < 0.18, "{} {}", share(1.0), share(0.0));
    }

    #[test]
    fn odd_settings_are_brought_into_bounds() {
        assert_eq!(keys(0, 0, 0.5, 3), [0, 0, 0]);
        assert_eq!(keys(3, u64::MAX, 0.5, 4), [0, 1, 2, 0]);
        assert!(Streams::new(10, 1, -1.0, Sizes::new(SizeDistribution::Fixed(1), 1), 1).is_none());
    }
}
