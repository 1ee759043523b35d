//! LRU stack distances by a tree of last accesses (Olken, LBL-32370, 1993).

/// A last access that was never, or of what is gone.
const NEVER: u32 = u32::MAX;
/// Moments per word of the bit map.
const WORD: usize = 64;
/// Moments per leaf of the tree of counts.
const LEAF: usize = 4 * WORD;

/// Objects in the order of their last access.
///
/// Objects have dense numbers ([`crate::Interner`]), and each has the moment of its last access; how much was accessed
/// since then is its distance. Moments are bits (and, where objects have sizes, sizes) in leaves, with a Fenwick tree over the
/// leaves, so that an access takes O(log M) steps, nearly all in a few kilobytes. When moments run out, those in use
/// are numbered anew.
///
/// Memory: 8 to 13 bytes per object, with sizes 12 to 21.
#[derive(Clone, Debug)]
pub struct Recency {
    /// The moment of each object's last access.
    last: Vec<u32>,
    /// The object that was accessed at each moment, if that was its last access.
    object: Vec<u32>,
    /// Its size; zero where the access was not the last. Empty where every object counts one.
    sizes: Option<Vec<u32>>,
    /// The moments that are some object's last.
    used: Vec<u64>,
    /// The weight of each leaf and its subtree.
    tree: Vec<u64>,
    /// The weight of all leaves.
    total: u64,
    /// The next moment.
    now: usize,
    live: usize,
}

/// Where an object was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReuseDistance {
    /// What was accessed since its last access, itself included: the smallest LRU cache that held it.
    pub distance: u64,
    /// The item's own weight.
    pub own: u64,
}

impl Recency {
    /// No objects yet, each of which will count one.
    pub fn of_objects() -> Self {
        Self::new(None)
    }

    /// No objects yet, each of which will count its size.
    pub fn of_sizes() -> Self {
        Self::new(Some(Vec::new()))
    }

    fn new(sizes: Option<Vec<u32>>) -> Self {
        let mut recency = Recency {
            last: Vec::new(),
            object: Vec::new(),
            sizes,
            used: Vec::new(),
            tree: Vec::new(),
            total: 0,
            now: 0,
            live: 0,
        };
        recency.number_anew();
        recency
    }

    /// An access to object `id`, which counts `size` from now on where sizes count; `None` if it is new.
    #[inline]
    pub fn access(&mut self, id: u32, size: u32) -> Option<ReuseDistance> {
        let index = id as usize;
        if index >= self.last.len() {
            self.last.resize(index + 1, NEVER);
        }
        let before = self.last[index];
        let found = (before != NEVER).then(|| {
            let moment = before as usize;
            let own = self.charge_at(moment);
            let distance = self.distance_from(moment);
            self.take(moment, own);
            ReuseDistance { distance, own }
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
        let charge = match &mut self.sizes {
            None => 1,
            Some(sizes) => {
                sizes[moment] = size;
                u64::from(size)
            }
        };
        self.live += 1;
        self.add(moment / LEAF, charge);
        found
    }

    /// The distance at which an access would find object `id`, which leaves the order as it is; `None` if it is new.
    pub fn distance(&self, id: u32) -> Option<u64> {
        let moment = *self.last.get(id as usize)?;
        (moment != NEVER).then(|| self.distance_from(moment as usize))
    }

    /// Forgets an object; its next access is to a new one.
    pub fn remove(&mut self, id: u32) {
        let Some(last) = self.last.get_mut(id as usize) else { return };
        let moment = std::mem::replace(last, NEVER);
        if moment != NEVER {
            let charge = self.charge_at(moment as usize);
            self.take(moment as usize, charge);
        }
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        let sizes = self.sizes.as_ref().map_or(0, Vec::capacity);
        let words = self.last.capacity() + self.object.capacity() + sizes;
        let long_words = self.used.capacity() + self.tree.capacity();
        (words * size_of::<u32>() + long_words * size_of::<u64>()) as u64
    }

    #[inline]
    fn distance_from(&self, moment: usize) -> u64 {
        self.total - self.sum_before(moment)
    }

    fn take(&mut self, moment: usize, charge: u64) {
        self.used[moment / WORD] &= !(1 << (moment % WORD));
        if let Some(sizes) = &mut self.sizes {
            sizes[moment] = 0;
        }
        self.live -= 1;
        self.add(moment / LEAF, charge.wrapping_neg());
    }

    fn charge_at(&self, moment: usize) -> u64 {
        self.sizes.as_ref().map_or(1, |sizes| u64::from(sizes[moment]))
    }

    /// The sum at moments before this one.
    #[inline]
    fn sum_before(&self, moment: usize) -> u64 {
        let leaf = moment / LEAF;
        let mut sum = match &self.sizes {
            None => {
                let word = moment / WORD;
                let whole: u32 =
                    self.used[leaf * (LEAF / WORD)..word].iter().map(|word| word.count_ones()).sum();
                u64::from(whole + (self.used[word] & ((1 << (moment % WORD)) - 1)).count_ones())
            }
            Some(sizes) => sizes[leaf * LEAF..moment].iter().map(|&size| u64::from(size)).sum(),
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
    #[cold]
    fn number_anew(&mut self) {
        let mut to = 0;
        for from in 0..self.now {
            if self.used[from / WORD] >> (from % WORD) & 1 == 1 {
                let id = self.object[from];
                self.object[to] = id;
                self.last[id as usize] = to as u32;
                if let Some(sizes) = &mut self.sizes {
                    sizes[to] = sizes[from];
                }
                to += 1;
            }
        }
        debug_assert_eq!(to, self.live);
        let len = (2 * to).max(LEAF).next_multiple_of(LEAF);
        self.object.resize(len, NEVER);
        if let Some(sizes) = &mut self.sizes {
            sizes.resize(len, 0);
            sizes[to..].fill(0);
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
            let amount = match &self.sizes {
                None => moments.len() as u64,
                Some(sizes) => sizes[moments].iter().map(|&size| u64::from(size)).sum(),
            };
            self.add(leaf, amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few enough objects for moments to be numbered anew many times; sizes change.
        #[test]
        fn distances_are_those_of_a_list(
            steps in prop::collection::vec((0u32..60, 0u32..50, 0u8..9), 0..1500),
            by_size in any::<bool>(),
        ) {
            let mut recency = if by_size { Recency::of_sizes() } else { Recency::of_objects() };
            let mut list: Vec<(u32, u64)> = Vec::new();
            for (id, size, kind) in steps {
                let at = list.iter().position(|entry| entry.0 == id);
                let expected = at.map(|at| ReuseDistance {
                    distance: list[..=at].iter().map(|entry| entry.1).sum(),
                    own: list[at].1,
                });
                prop_assert_eq!(recency.distance(id), expected.map(|found| found.distance));
                at.map(|at| list.remove(at));
                if kind == 0 {
                    recency.remove(id);
                } else {
                    prop_assert_eq!(recency.access(id, size), expected);
                    list.insert(0, (id, if by_size { u64::from(size) } else { 1 }));
                }
            }
        }
    }
}
