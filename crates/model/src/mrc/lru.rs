//! Exact LRU stack distances (Olken, LBL-32370, 1993).

use super::{Distances, Model, Unit};

/// A last access that was never, or of what is gone.
const NEVER: u32 = u32::MAX;
/// Moments per word of the bit map.
const WORD: usize = 64;
/// Moments per leaf of the tree of counts.
const LEAF: usize = 4 * WORD;
/// Distances below 2^20 have a bin each, longer ones are told apart to one part in 2^19.
const PRECISION_BITS: u32 = 20;

/// LRU caches of all sizes.
///
/// Each object has the moment of its last access; the distance of an access is how much was accessed since. Moments are
/// bits (and, where bytes count, sizes) in leaves, with a Fenwick tree over the leaves, so that all but the
/// leaf's own four words come from a few kilobytes. When moments run out, those in use are numbered anew.
///
/// Memory: 8 to 13 bytes per object, where bytes count 12 to 21, and the histogram.
#[derive(Clone, Debug)]
pub struct LruStack {
    unit: Unit,
    distances: Distances,
    /// The share of the workload's objects that this stack sees.
    rate: f64,
    /// The moment of each object's last access.
    last: Vec<u32>,
    /// The object that was accessed at each moment, if that was its last access.
    object: Vec<u32>,
    /// Its size, where bytes count; zero where the access was not the last.
    bytes: Vec<u32>,
    /// The moments that are some object's last.
    used: Vec<u64>,
    /// What lies in each leaf and its subtree.
    tree: Vec<u64>,
    /// What lies in all leaves.
    total: u64,
    /// The next moment.
    now: usize,
    live: usize,
    /// Places distances within the range that a sample leaves open; see [`Self::new`].
    dither: u64,
}

impl LruStack {
    /// An empty stack that will see the share `rate` of the workload's objects.
    ///
    /// Between two accesses to an object of the sample with d − 1 others in between lie, for a locally even density of
    /// distances, anything from (d − 1)/rate to d/rate; the distance is recorded somewhere there.
    pub fn new(unit: Unit, rate: f64) -> Self {
        let precision_bits = if rate < 1.0 { 12 } else { PRECISION_BITS };
        let mut stack = LruStack {
            unit,
            distances: Distances::new(precision_bits),
            rate,
            last: Vec::new(),
            object: Vec::new(),
            bytes: Vec::new(),
            used: Vec::new(),
            tree: Vec::new(),
            total: 0,
            now: 0,
            live: 0,
            dither: 0,
        };
        stack.number_anew();
        stack
    }

    /// What was counted.
    pub fn distances(&self) -> &Distances {
        &self.distances
    }

    /// The access's distance including the object's own charge; `None` if it is new.
    #[inline]
    fn touch(&mut self, id: u32, size: u32) -> Option<(u64, u64)> {
        let index = id as usize;
        if index >= self.last.len() {
            self.last.resize(index + 1, NEVER);
        }
        let before = self.last[index];
        let found = (before != NEVER).then(|| {
            let moment = before as usize;
            let own = self.charge_at(moment);
            let distance = self.total - self.sum_before(moment);
            self.take(moment, own);
            (distance, own)
        });
        if self.now == self.object.len() {
            // The object is out of the order just now, and must not be numbered.
            self.last[index] = NEVER;
            self.number_anew();
        }
        let moment = self.now;
        self.now += 1;
        self.last[index] = moment as u32;
        self.object[moment] = id;
        self.used[moment / WORD] |= 1 << (moment % WORD);
        if self.unit == Unit::Bytes {
            self.bytes[moment] = size;
        }
        self.live += 1;
        self.add(moment / LEAF, self.unit.charge(size));
        found
    }

    fn take(&mut self, moment: usize, charge: u64) {
        self.used[moment / WORD] &= !(1 << (moment % WORD));
        if self.unit == Unit::Bytes {
            self.bytes[moment] = 0;
        }
        self.live -= 1;
        self.add(moment / LEAF, charge.wrapping_neg());
    }

    fn charge_at(&self, moment: usize) -> u64 {
        match self.unit {
            Unit::Objects => 1,
            Unit::Bytes => u64::from(self.bytes[moment]),
        }
    }

    /// What lies at moments before this one.
    #[inline]
    fn sum_before(&self, moment: usize) -> u64 {
        let leaf = moment / LEAF;
        let mut sum = match self.unit {
            Unit::Objects => {
                let word = moment / WORD;
                let whole: u32 =
                    self.used[leaf * (LEAF / WORD)..word].iter().map(|word| word.count_ones()).sum();
                u64::from(whole + (self.used[word] & ((1 << (moment % WORD)) - 1)).count_ones())
            }
            Unit::Bytes => self.bytes[leaf * LEAF..moment].iter().map(|&size| u64::from(size)).sum(),
        };
        let mut node = leaf;
        while node > 0 {
            sum = sum.wrapping_add(self.tree[node]);
            node &= node - 1;
        }
        sum
    }

    /// Adds to a leaf; the tree's node i covers the leaves from i less its lowest bit up to i − 1.
    #[inline]
    fn add(&mut self, leaf: usize, amount: u64) {
        self.total = self.total.wrapping_add(amount);
        let mut node = leaf + 1;
        while node < self.tree.len() {
            self.tree[node] = self.tree[node].wrapping_add(amount);
            node += node & node.wrapping_neg();
        }
    }

    /// Gives the moments in use the numbers from 0 on, with at least as many free ones after them.
    fn number_anew(&mut self) {
        let mut to = 0;
        for from in 0..self.now {
            if self.used[from / WORD] >> (from % WORD) & 1 == 1 {
                let id = self.object[from];
                self.object[to] = id;
                self.last[id as usize] = to as u32;
                if self.unit == Unit::Bytes {
                    self.bytes[to] = self.bytes[from];
                }
                to += 1;
            }
        }
        debug_assert_eq!(to, self.live);
        let len = (2 * to).max(LEAF).next_multiple_of(LEAF);
        self.object.resize(len, NEVER);
        if self.unit == Unit::Bytes {
            self.bytes.resize(len, 0);
            self.bytes[to..].fill(0);
        }
        self.used.clear();
        self.used.resize(len / WORD, 0);
        self.used[..to / WORD].fill(u64::MAX);
        if !to.is_multiple_of(WORD) {
            self.used[to / WORD] = (1 << (to % WORD)) - 1;
        }
        self.now = to;
        self.tree.clear();
        self.tree.resize(len / LEAF + 1, 0);
        self.total = 0;
        for leaf in 0..to.div_ceil(LEAF) {
            let moments = leaf * LEAF..((leaf + 1) * LEAF).min(to);
            let amount = match self.unit {
                Unit::Objects => moments.len() as u64,
                Unit::Bytes => self.bytes[moments].iter().map(|&size| u64::from(size)).sum(),
            };
            self.add(leaf, amount);
        }
    }

    #[inline]
    fn record(&mut self, (distance, own): (u64, u64)) {
        if self.rate >= 1.0 {
            self.distances.record(distance, 1.0);
            return;
        }
        // The golden ratio's multiples fill the unit interval evenly.
        self.dither = self.dither.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let within = (self.dither >> 11) as f64 / (1u64 << 53) as f64;
        let scaled = (distance as f64 - within * own as f64) / self.rate;
        self.distances.record(scaled.ceil() as u64, 1.0);
    }
}

impl Model for LruStack {
    fn access(&mut self, id: u32, size: u32) {
        match self.touch(id, size) {
            Some(found) => self.record(found),
            None => self.distances.record_cold(1.0),
        }
    }

    fn remove(&mut self, id: u32) {
        let Some(last) = self.last.get_mut(id as usize) else { return };
        let moment = std::mem::replace(last, NEVER);
        if moment != NEVER {
            let charge = self.charge_at(moment as usize);
            self.take(moment as usize, charge);
        }
    }

    fn misses(&self, sizes: &[u64]) -> Vec<f64> {
        self.distances.misses(sizes)
    }

    fn decay(&mut self, keep: f64) {
        self.distances.scale(keep);
    }

    fn set_rate(&mut self, rate: f64) {
        self.rate = rate;
    }

    fn metadata_bytes(&self) -> u64 {
        let words = self.last.capacity() + self.object.capacity() + self.bytes.capacity();
        let long_words = self.used.capacity() + self.tree.capacity();
        (words * size_of::<u32>() + long_words * size_of::<u64>()) as u64 + self.distances.metadata_bytes()
    }
}
