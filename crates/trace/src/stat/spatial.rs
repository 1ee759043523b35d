//! Spatial locality: how near accesses lie to recent ones, and how long sequential runs are.

use serde::Serialize;
use tiermem_base::{Access, Op};

/// How many of the latest accesses count as recent.
pub const WINDOW: usize = 32;
/// The distances in blocks that are told apart.
pub const NEAR_BLOCKS: [u64; 5] = [0, 1, 4, 16, 64];

/// Spatial locality of a trace. Fields are stable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpatialStat {
    /// Units of the key in a block, in which distances are measured.
    pub block: u64,
    /// For each distance, the share of accesses whose first block is at most that far from a block that one of the
    /// 32 accesses before it touched.
    pub near: Vec<Near>,
    /// The share of accesses that begin where the access before them ended.
    pub sequential_share: f64,
    /// Accesses in a sequential run, on average; an access that continues nothing and is not continued is a run of 1.
    pub run_length_mean: f64,
    /// Accesses in the longest run.
    pub run_length_max: u64,
}

/// A point of the distribution of distances.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Near {
    /// At most this many blocks away; 0 is the same block.
    pub blocks: u64,
    /// The share of all accesses.
    pub share: f64,
}

/// The blocks that one access touched, both ends included.
#[derive(Clone, Copy, Debug)]
struct Touched {
    first: u64,
    last: u64,
    tenant: u32,
}

/// Watches accesses in constant memory.
#[derive(Clone, Debug)]
pub struct Spatial {
    block: Option<u64>,
    /// A ring of the latest accesses.
    recent: [Touched; WINDOW],
    seen: u64,
    near: [u64; NEAR_BLOCKS.len()],
    /// Where the access before this one ended, and its tenant.
    expected: Option<(u64, u32)>,
    sequential: u64,
    run: u64,
    run_max: u64,
}

impl Spatial {
    /// Distances in blocks of `block` units of the key. `None` takes it from the first access: 4096 bytes for reads and writes of
    /// a device, 64 bytes for memory, 1 for other keys.
    pub fn new(block: Option<u64>) -> Self {
        let nothing = Touched { first: 0, last: 0, tenant: 0 };
        Spatial {
            block: block.map(|block| block.max(1)),
            recent: [nothing; WINDOW],
            seen: 0,
            near: [0; NEAR_BLOCKS.len()],
            expected: None,
            sequential: 0,
            run: 0,
            run_max: 0,
        }
    }

    /// Takes an access in.
    #[inline]
    pub fn observe(&mut self, access: &Access) {
        let block = *self.block.get_or_insert(match access.op {
            Op::Read | Op::Write => 4096,
            Op::Load | Op::Store | Op::Unknown => 64,
            Op::Get | Op::Set | Op::Del | Op::Scan => 1,
        });
        // Keys of single objects are one block each, whatever their value's size.
        let length = if block == 1 { 1 } else { u64::from(access.size).max(1) };
        let end = access.key.saturating_add(length - 1);
        let touched = Touched { first: access.key / block, last: end / block, tenant: access.tenant };

        let recent = &self.recent[..WINDOW.min(self.seen as usize)];
        let nearest = recent.iter().map(|other| distance(touched, *other)).min().unwrap_or(u64::MAX);
        for (count, blocks) in self.near.iter_mut().zip(NEAR_BLOCKS) {
            *count += u64::from(nearest <= blocks);
        }
        self.recent[self.seen as usize % WINDOW] = touched;
        self.seen += 1;

        if self.expected == Some((access.key, access.tenant)) {
            self.sequential += 1;
            self.run += 1;
        } else {
            self.run = 1;
        }
        self.run_max = self.run_max.max(self.run);
        self.expected = end.checked_add(1).map(|next| (next, access.tenant));
    }

    /// The result so far; shares of nothing are 0.
    pub fn stat(&self) -> SpatialStat {
        let share = |count: u64| count as f64 / self.seen.max(1) as f64;
        let runs = self.seen - self.sequential;
        SpatialStat {
            block: self.block.unwrap_or(1),
            near: self
                .near
                .iter()
                .zip(NEAR_BLOCKS)
                .map(|(count, blocks)| Near { blocks, share: share(*count) })
                .collect(),
            sequential_share: share(self.sequential),
            run_length_mean: self.seen as f64 / runs.max(1) as f64,
            run_length_max: self.run_max,
        }
    }
}

/// Blocks between the first block of an access and the nearest one of an earlier access; tenants are worlds apart.
#[inline]
fn distance(access: Touched, earlier: Touched) -> u64 {
    if access.tenant != earlier.tenant {
        return u64::MAX;
    }
    earlier.first.saturating_sub(access.first).max(access.first.saturating_sub(earlier.last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn observed(accesses: &[Access], block: Option<u64>) -> SpatialStat {
        let mut spatial = Spatial::new(block);
        accesses.iter().for_each(|access| spatial.observe(access));
        spatial.stat()
    }

    /// Every pair of an access and one of the 32 before it, every block of these.
    fn naive(accesses: &[Access], block: u64) -> SpatialStat {
        let blocks = |a: &Access| {
            let length = if block == 1 { 1 } else { u64::from(a.size).max(1) };
            a.key / block..=(a.key + length - 1) / block
        };
        let mut near = [0; NEAR_BLOCKS.len()];
        let (mut runs, mut longest) = (Vec::<u64>::new(), 0);
        for (at, access) in accesses.iter().enumerate() {
            let earlier =
                accesses[at.saturating_sub(WINDOW)..at].iter().filter(|e| e.tenant == access.tenant);
            let first = *blocks(access).start();
            let nearest = earlier.flat_map(&blocks).map(|other| other.abs_diff(first)).min();
            for (count, limit) in near.iter_mut().zip(NEAR_BLOCKS) {
                *count += u64::from(nearest.is_some_and(|nearest| nearest <= limit));
            }
            let continues = at > 0 && {
                let before = &accesses[at - 1];
                let length = if block == 1 { 1 } else { u64::from(before.size).max(1) };
                before.tenant == access.tenant && before.key + length == access.key
            };
            match runs.last_mut().filter(|_| continues) {
                Some(run) => *run += 1,
                None => runs.push(1),
            }
            longest = longest.max(*runs.last().unwrap());
        }
        let n = accesses.len() as f64;
        SpatialStat {
            block,
            near: near
                .iter()
                .zip(NEAR_BLOCKS)
                .map(|(c, blocks)| Near { blocks, share: *c as f64 / n })
                .collect(),
            sequential_share: (accesses.len() - runs.len()) as f64 / n,
            run_length_mean: n / runs.len() as f64,
            run_length_max: longest,
        }
    }

    proptest! {
        #[test]
        fn it_is_what_looking_back_gives(
            accesses in prop::collection::vec((0u64..5000, 0u32..300, 0u32..2), 1..150),
            block in prop::sample::select(vec![1u64, 10, 64]),
        ) {
            let access = |(key, size, tenant): &(u64, u32, u32)| Access { tenant: *tenant, ..Access::get(0, *key, *size) };
            let accesses: Vec<_> = accesses.iter().map(access).collect();
            prop_assert_eq!(observed(&accesses, Some(block)), naive(&accesses, block));
        }
    }

    #[test]
    fn a_sequential_read_of_a_device_is_one_run() {
        let accesses: Vec<_> = (0..100).map(|n| Access::new(0, Op::Read, n * 65536, 65536)).collect();
        let stat = observed(&accesses, None);
        assert_eq!((stat.block, stat.run_length_max, stat.run_length_mean), (4096, 100, 100.0));
        assert_eq!(stat.sequential_share, 0.99);
        assert_eq!(stat.near[..2], [Near { blocks: 0, share: 0.0 }, Near { blocks: 1, share: 0.99 }]);
    }

    #[test]
    fn the_ends_of_the_key_space_are_no_trouble() {
        let access = |key| Access::new(0, Op::Load, key, u32::MAX);
        let stat = observed(&[access(u64::MAX), access(u64::MAX), access(0)], None);
        assert_eq!((stat.block, stat.sequential_share), (64, 0.0));
        assert_eq!(observed(&[], None).run_length_mean, 0.0);
    }
}
