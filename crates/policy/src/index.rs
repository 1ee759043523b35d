//! The hash index: from a key's hash to the item's number, 8 bytes an entry.
//!
//! An extendible hash table whose segments keep their entries *sorted by hash* (linear probing in hash order).
//! A segment covers one prefix of the hash space; it grows by an eighth at a time and splits in two when full, so
//! no single insert moves more than one segment (about 4 KiB) however large the table is, and the load stays
//! between 0.75 and 0.87: about 10 bytes a key.
//!
//! An entry holds the upper 32 bits of the hash. Within a segment the leading bits are all equal; the rest tell
//! keys apart before their bytes are touched, which matters where those bytes lie in slow memory.
//!
//! Because the whole table is in hash order, a position in the hash space is a cursor that survives any growth:
//! [`Index::scan`] visits every entry that stays present during the scan exactly once per pass over its hash.

use crate::Id;

/// Positions of a segment before it splits.
const SEGMENT_HOMES_MAX: u32 = 512;
const SEGMENT_HOMES_MIN: u32 = 8;
/// Extra positions behind the last home, for the run that overflows there; doubled where it is longer.
const SPILL_MIN: u32 = 8;

const EMPTY: u64 = 0;

fn entry(hash32: u32, id: Id) -> u64 {
    u64::from(hash32) << 32 | u64::from(id.0 + 1)
}

fn entry_hash(entry: u64) -> u32 {
    (entry >> 32) as u32
}

fn entry_id(entry: u64) -> Id {
    Id(entry as u32 - 1)
}

/// Homes with which `len` entries leave room for an eighth more.
fn homes_for(len: u32) -> u32 {
    (len * 100 / 76).max(SEGMENT_HOMES_MIN).next_multiple_of(8)
}

#[derive(Clone, Debug)]
struct Segment {
    /// Sorted by hash, apart from gaps of [`EMPTY`].
    slots: Box<[u64]>,
    homes: u32,
    len: u32,
    /// Leading hash bits that all entries share.
    depth: u8,
}

impl Segment {
    fn new(depth: u8, homes: u32, spill: u32) -> Self {
        Segment { slots: vec![EMPTY; (homes + spill) as usize].into_boxed_slice(), homes, len: 0, depth }
    }

    fn spill(&self) -> u32 {
        self.slots.len() as u32 - self.homes
    }

    /// Where a hash would lie if nothing were in its way; grows with the hash.
    #[inline]
    fn home(&self, hash32: u32) -> usize {
        let rest = (u64::from(hash32) << self.depth) as u32;
        ((u64::from(rest) * u64::from(self.homes)) >> 32) as usize
    }

    /// The first position at or after its home whose entry does not precede `hash32`.
    #[inline]
    fn lower_bound(&self, hash32: u32) -> usize {
        let mut at = self.home(hash32);
        while let Some(&found) = self.slots.get(at) {
            if found == EMPTY || entry_hash(found) >= hash32 {
                break;
            }
            at += 1;
        }
        at
    }

    /// Puts an entry in its place; `false` when the run it belongs to reaches the segment's end.
    fn insert(&mut self, new: u64) -> bool {
        let at = self.lower_bound(entry_hash(new));
        let Some(gap) = self.slots[at.min(self.slots.len())..].iter().position(|&slot| slot == EMPTY) else {
            return false;
        };
        self.slots.copy_within(at..at + gap, at + 1);
        self.slots[at] = new;
        self.len += 1;
        true
    }

    fn remove_at(&mut self, at: usize) {
        let mut hole = at;
        // Entries that were pushed past their home move back; the first that sits at home ends the run.
        while let Some(&next) = self.slots.get(hole + 1) {
            if next == EMPTY || self.home(entry_hash(next)) > hole {
                break;
            }
            self.slots[hole] = next;
            hole += 1;
        }
        self.slots[hole] = EMPTY;
        self.len -= 1;
    }

    fn is_full(&self) -> bool {
        u64::from(self.len) * 100 >= u64::from(self.homes) * 87
    }

    /// A copy of the entries that `keep` accepts, in `homes` positions.
    fn rebuilt(&self, depth: u8, homes: u32, mut spill: u32, keep: impl Fn(u32) -> bool) -> Segment {
        loop {
            let mut new = Segment::new(depth, homes, spill);
            let mut free_from = 0;
            let fits =
                self.slots.iter().filter(|&&slot| slot != EMPTY && keep(entry_hash(slot))).all(|&slot| {
                    // Sorted input: each entry goes to its home or just behind the one before.
                    let at = new.home(entry_hash(slot)).max(free_from);
                    free_from = at + 1;
                    new.len += 1;
                    new.slots.get_mut(at).map(|free| *free = slot).is_some()
                });
            if fits {
                return new;
            }
            spill *= 2;
        }
    }

    fn bytes(&self) -> u64 {
        (self.slots.len() * 8) as u64
    }
}

/// The table.
#[derive(Clone, Debug)]
pub struct Index {
    /// For each prefix of `depth` bits, its segment.
    directory: Vec<u32>,
    depth: u8,
    segments: Vec<Segment>,
    len: u64,
    segment_bytes: u64,
}

impl Default for Index {
    fn default() -> Self {
        let segment = Segment::new(0, SEGMENT_HOMES_MIN, SPILL_MIN);
        let segment_bytes = segment.bytes();
        Index { directory: vec![0], depth: 0, segments: vec![segment], len: 0, segment_bytes }
    }
}

impl Index {
    #[inline]
    fn segment_of(&self, hash32: u32) -> usize {
        // A shift by 32 is what an empty prefix needs; do it in 64 bits.
        self.directory[(u64::from(hash32) >> (32 - self.depth)) as usize] as usize
    }

    /// The item with this `hash` that `matches` accepts (it compares the keys).
    #[inline]
    pub fn find(&self, hash: u64, mut matches: impl FnMut(Id) -> bool) -> Option<Id> {
        let hash32 = (hash >> 32) as u32;
        let segment = &self.segments[self.segment_of(hash32)];
        let mut at = segment.home(hash32);
        while let Some(&found) = segment.slots.get(at) {
            if found == EMPTY || entry_hash(found) > hash32 {
                return None;
            }
            if entry_hash(found) == hash32 && matches(entry_id(found)) {
                return Some(entry_id(found));
            }
            at += 1;
        }
        None
    }

    /// What [`Self::home`] reads, for bringing it near before it is needed.
    #[inline]
    pub fn segment(&self, hash: u64) -> &impl Sized {
        &self.segments[self.segment_of((hash >> 32) as u32)]
    }

    /// Where [`Self::find`] begins to look, for bringing it near before it is needed.
    #[inline]
    pub fn home(&self, hash: u64) -> Option<&impl Sized> {
        let hash32 = (hash >> 32) as u32;
        let segment = &self.segments[self.segment_of(hash32)];
        segment.slots.get(segment.home(hash32))
    }

    /// Enters an item. The caller has made sure that its key is not there.
    pub fn insert(&mut self, hash: u64, id: Id) {
        let hash32 = (hash >> 32) as u32;
        loop {
            let at = self.segment_of(hash32);
            let segment = &mut self.segments[at];
            if !segment.is_full() && segment.insert(entry(hash32, id)) {
                self.len += 1;
                return;
            }
            self.grow(at, hash32);
        }
    }

    /// Removes an item's entry; whether it was there.
    pub fn remove(&mut self, hash: u64, id: Id) -> bool {
        let hash32 = (hash >> 32) as u32;
        let at = self.segment_of(hash32);
        let segment = &mut self.segments[at];
        let mut position = segment.lower_bound(hash32);
        let wanted = entry(hash32, id);
        while let Some(&found) = segment.slots.get(position) {
            if found == EMPTY || entry_hash(found) > hash32 {
                return false;
            }
            if found == wanted {
                segment.remove_at(position);
                self.len -= 1;
                if segment.homes > 4 * SEGMENT_HOMES_MIN && segment.len * 3 < segment.homes {
                    let smaller = segment.rebuilt(segment.depth, homes_for(segment.len), SPILL_MIN, |_| true);
                    self.replace(at, smaller);
                }
                return true;
            }
            position += 1;
        }
        false
    }

    /// Visits the items from hash position `from` on, whole hashes at a time, until at least `count` were visited.
    /// Returns where to go on, or `None` at the end.
    pub fn scan(&self, from: u32, count: usize, mut visit: impl FnMut(Id)) -> Option<u32> {
        let mut hash32 = from;
        let mut visited = 0;
        loop {
            let segment = &self.segments[self.segment_of(hash32)];
            let mut last = None;
            for &found in &segment.slots[segment.lower_bound(hash32)..] {
                if found == EMPTY {
                    continue;
                }
                if visited >= count && last != Some(entry_hash(found)) {
                    return Some(entry_hash(found));
                }
                visit(entry_id(found));
                visited += 1;
                last = Some(entry_hash(found));
            }
            // A segment without an entry is work as well.
            visited += usize::from(last.is_none());
            // The first hash behind this segment's prefix; past the last prefix the scan is over.
            let prefixes_behind = (u64::from(hash32) >> (32 - segment.depth)) + 1;
            hash32 = u32::try_from(prefixes_behind << (32 - segment.depth)).ok()?;
            if visited >= count {
                return Some(hash32);
            }
        }
    }

    /// Entries.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.segment_bytes
            + (self.segments.capacity() * size_of::<Segment>() + self.directory.capacity() * size_of::<u32>())
                as u64
    }

    fn replace(&mut self, at: usize, segment: Segment) {
        self.segment_bytes = self.segment_bytes - self.segments[at].bytes() + segment.bytes();
        self.segments[at] = segment;
    }

    /// Makes room in segment `at`, which `hash32` belongs to.
    fn grow(&mut self, at: usize, hash32: u32) {
        let segment = &self.segments[at];
        let depth = segment.depth + 1;
        let upper = |hash32: u32| hash32 >> (32 - depth) & 1 == 1;
        let upper_len =
            segment.slots.iter().filter(|&&slot| slot != EMPTY && upper(entry_hash(slot))).count() as u32;
        let larger = if !segment.is_full() {
            Some((segment.homes, segment.spill() * 2))
        } else if segment.homes < SEGMENT_HOMES_MAX
            || upper_len.min(segment.len - upper_len) < segment.len / 8
        {
            // A split that parts few entries from many (equal hashes) would only double the directory.
            Some(((segment.homes + segment.homes / 8).next_multiple_of(8), SPILL_MIN))
        } else {
            None
        };
        if let Some((homes, spill)) = larger {
            let segment = segment.rebuilt(segment.depth, homes, spill, |_| true);
            self.replace(at, segment);
            return;
        }
        let low = segment.rebuilt(depth, homes_for(segment.len - upper_len), SPILL_MIN, |hash| !upper(hash));
        let high = segment.rebuilt(depth, homes_for(upper_len), SPILL_MIN, upper);
        if depth > self.depth {
            self.directory = self.directory.iter().flat_map(|&segment| [segment, segment]).collect();
            self.depth = depth;
        }
        let new_at = self.segments.len() as u32;
        self.segment_bytes += high.bytes();
        self.replace(at, low);
        self.segments.push(high);
        // The directory entries of a segment are neighbours; the upper half of them now names the new one.
        let upper_prefix = (u64::from(hash32) >> (32 - depth) | 1) as usize;
        let count = 1usize << (self.depth - depth);
        self.directory[upper_prefix * count..(upper_prefix + 1) * count].fill(new_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Entries in order, and every entry reachable from its home without crossing a gap.
    fn check(index: &Index) {
        for segment in &index.segments {
            let found: Vec<_> = segment.slots.iter().filter(|&&slot| slot != EMPTY).collect();
            assert_eq!(found.len(), segment.len as usize);
            assert!(found.windows(2).all(|pair| entry_hash(*pair[0]) <= entry_hash(*pair[1])));
            for (at, &slot) in segment.slots.iter().enumerate().filter(|(_, slot)| **slot != EMPTY) {
                let home = segment.home(entry_hash(slot));
                assert!(home <= at && segment.slots[home..at].iter().all(|&slot| slot != EMPTY));
            }
        }
    }

    fn spread(key: u64) -> u64 {
        key.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    #[test]
    fn a_million_entries_cost_about_ten_bytes_each() {
        let mut index = Index::default();
        for key in 0..1_000_000u32 {
            index.insert(spread(u64::from(key)), Id(key));
        }
        check(&index);
        for key in 0..1_000_000u32 {
            assert_eq!(index.find(spread(u64::from(key)), |id| id == Id(key)), Some(Id(key)));
        }
        let bytes_per_key = index.bytes() as f64 / 1e6;
        assert!((9.0..13.0).contains(&bytes_per_key), "{bytes_per_key}");
    }

    #[test]
    fn equal_hashes_live_side_by_side() {
        let mut index = Index::default();
        for id in 0..2000 {
            index.insert(0xABCD_0000_0000_0000, Id(id));
        }
        assert_eq!(index.find(0xABCD_0000_0000_0000, |id| id == Id(1999)), Some(Id(1999)));
        assert!(index.remove(0xABCD_0000_0000_0000, Id(7)));
        assert_eq!(index.find(0xABCD_0000_0000_0000, |id| id == Id(7)), None);
        check(&index);
    }

    #[test]
    fn a_scan_sees_whatever_stays_while_the_table_grows_and_shrinks() {
        let mut index = Index::default();
        for key in 0..3000u32 {
            index.insert(spread(u64::from(key)), Id(key));
        }
        let mut seen = vec![0u32; 3000];
        let mut cursor = Some(0);
        let mut next_key = 3000u32;
        while let Some(from) = cursor {
            cursor = index.scan(from, 10, |id| {
                if let Some(count) = seen.get_mut(id.index()) {
                    *count += 1;
                }
            });
            for _ in 0..40 {
                index.insert(spread(u64::from(next_key)), Id(next_key));
                next_key += 1;
            }
        }
        assert!(seen.iter().all(|&count| count == 1));
    }

    proptest! {
        /// Against a BTreeMap from hash to the set of ids. Few distinct upper hash bits, so that runs are long.
        #[test]
        fn behaves_as_a_map(ops in prop::collection::vec((any::<bool>(), 0u32..600, 0u32..3), 1..3000)) {
            let mut index = Index::default();
            let mut model = BTreeMap::<u32, u64>::new();
            for (add, key, crowd) in ops {
                let id = Id(key * 3 + crowd);
                let hash = spread(u64::from(key)) & 0xFFF0_0000_0000_0000;
                if add && !model.contains_key(&id.0) {
                    index.insert(hash, id);
                    model.insert(id.0, hash);
                } else if !add {
                    prop_assert_eq!(index.remove(hash, id), model.remove(&id.0).is_some());
                }
            }
            check(&index);
            prop_assert_eq!(index.len(), model.len() as u64);
            for (&id, &hash) in &model {
                prop_assert_eq!(index.find(hash, |found| found == Id(id)), Some(Id(id)));
            }
            let mut seen = Vec::new();
            let mut cursor = Some(0);
            while let Some(from) = cursor {
                cursor = index.scan(from, 7, |id| seen.push(id.0));
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, model.keys().copied().collect::<Vec<_>>());
        }
    }
}
