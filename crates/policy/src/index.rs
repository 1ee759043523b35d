//! Hash index: from a key's hash to the number of its item or to its place in the log, 8 bytes an entry.
//!
//! An extendible hash table whose segments keep their entries *sorted by hash* (linear probing in hash order). A segment covers
//! one prefix of the hash space. It grows by an eighth at a time and splits in two when full, so no single insert moves more than
//! one segment (about 4 KiB) however large the table is, and the load stays between 0.75 and 0.87: about 10 bytes a key.
//!
//! The first eight bits of a hash choose one of 256 parts, and an entry holds the next 32 bits (its *tag*), so 40 bits tell keys
//! apart before their bytes are touched. That matters where those bytes lie in slow memory, and more where they lie on flash: of
//! all log entries there is at most one for each 40 bits, so a look-up reads flash once. Two keys with equal 40 bits drive each
//! other out of the log, at worst one pair in 2^40 / n for n keys there.
//!
//! Because the whole table is in hash order, a position in the hash space is a cursor that survives any growth: [`Index::scan`]
//! visits every entry that stays present during the scan exactly once per pass over its hash.

use crate::Id;
use crate::deferred_free::DeferredFree;
use crate::log::LogPlace;

/// Segments without an entry that one call of a scan passes over, some microseconds' worth.
const EMPTY_SEGMENTS_MAX: usize = 1024;
/// Bits of the hash that choose a part; all entries of a segment share them.
const PART_BITS: u8 = 8;
/// Bits of the hash that the index knows: the bits of the part and of the tag.
const HASH_BITS: u32 = PART_BITS as u32 + 32;

/// Positions of a segment before it splits.
const SEGMENT_HOMES_MAX: u32 = 512;
const SEGMENT_HOMES_MIN: u32 = 8;
/// Extra positions behind the last home, for the run that overflows there; doubled where it is longer.
const SPILL_MIN: u32 = 8;

const EMPTY: u64 = 0;
/// In an entry's lower half: it is a place in the log, and the rest is that place.
const LOG: u32 = 1 << 31;

/// The value of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// An item in a slotted tier.
    Item(Id),
    /// A place in the log, which holds an item with these 40 bits of its hash.
    Log(LogPlace),
}

fn entry(tag: u32, id: Id) -> u64 {
    u64::from(tag) << 32 | u64::from(id.0 + 1)
}

fn log_entry(tag: u32, place: LogPlace) -> u64 {
    u64::from(tag) << 32 | u64::from(LOG | place.0)
}

fn entry_tag(entry: u64) -> u32 {
    (entry >> 32) as u32
}

fn is_log(entry: u64) -> bool {
    entry as u32 & LOG != 0
}

fn found(entry: u64) -> Found {
    let low = entry as u32;
    if low & LOG != 0 { Found::Log(LogPlace(low & !LOG)) } else { Found::Item(Id(low - 1)) }
}

/// The tag: the bits after those that choose the part.
#[inline]
fn tag(hash: u64) -> u32 {
    (hash >> (64 - HASH_BITS)) as u32
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
    /// Leading bits of the tag that all entries share.
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
    fn home(&self, tag: u32) -> usize {
        let rest = (u64::from(tag) << self.depth) as u32;
        ((u64::from(rest) * u64::from(self.homes)) >> 32) as usize
    }

    /// The first position at or after its home whose entry does not precede `tag`.
    #[inline]
    fn lower_bound(&self, tag: u32) -> usize {
        let mut at = self.home(tag);
        while let Some(&found) = self.slots.get(at) {
            if found == EMPTY || entry_tag(found) >= tag {
                break;
            }
            at += 1;
        }
        at
    }

    /// Puts an entry in its place; `false` when the run it belongs to reaches the segment's end.
    fn insert(&mut self, new: u64) -> bool {
        let at = self.lower_bound(entry_tag(new));
        let Some(gap) = self.slots[at.min(self.slots.len())..].iter().position(|&slot| slot == EMPTY) else {
            return false;
        };
        self.slots.copy_within(at..at + gap, at + 1);
        self.slots[at] = new;
        self.len += 1;
        true
    }

    /// Where the log entry of this tag stands.
    fn log_position(&self, tag: u32) -> Option<usize> {
        let first = self.lower_bound(tag);
        let run =
            self.slots.get(first..)?.iter().take_while(|&&slot| slot != EMPTY && entry_tag(slot) == tag);
        run.into_iter().position(|&slot| is_log(slot)).map(|at| first + at)
    }

    fn remove_at(&mut self, at: usize) {
        let mut hole = at;
        // Entries that were pushed past their home move back; the first that sits at home ends the run.
        while let Some(&next) = self.slots.get(hole + 1) {
            if next == EMPTY || self.home(entry_tag(next)) > hole {
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
                self.slots.iter().filter(|&&slot| slot != EMPTY && keep(entry_tag(slot))).all(|&slot| {
                    // Sorted input: each entry goes to its home or just behind the one before.
                    let at = new.home(entry_tag(slot)).max(free_from);
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
    /// For each prefix of the part's bits and `depth` bits more, its segment.
    directory: Vec<u32>,
    depth: u8,
    segments: Vec<Segment>,
    len: u64,
    log_len: u64,
    segment_bytes: u64,
}

impl Default for Index {
    fn default() -> Self {
        let segments = vec![Segment::new(0, SEGMENT_HOMES_MIN, SPILL_MIN); 1 << PART_BITS];
        let segment_bytes = segments.iter().map(Segment::bytes).sum();
        let directory = (0..segments.len() as u32).collect();
        Index { directory, depth: 0, segments, len: 0, log_len: 0, segment_bytes }
    }
}

impl Index {
    #[inline]
    fn segment_of(&self, hash: u64) -> usize {
        self.directory[(hash >> (64 - PART_BITS - self.depth)) as usize] as usize
    }

    /// The item with this `hash` that `matches` accepts (it compares the keys).
    #[inline]
    pub fn find(&self, hash: u64, mut matches: impl FnMut(Id) -> bool) -> Option<Id> {
        let tag = tag(hash);
        let segment = &self.segments[self.segment_of(hash)];
        let mut at = segment.home(tag);
        while let Some(&entry) = segment.slots.get(at) {
            if entry == EMPTY || entry_tag(entry) > tag {
                return None;
            }
            if entry_tag(entry) == tag
                && let Found::Item(id) = found(entry)
                && matches(id)
            {
                return Some(id);
            }
            at += 1;
        }
        None
    }

    /// Visits the items with hashes in `from..=to`, in the order of hashes, with how far (in steps of the 40 bits) their hash
    /// lies behind `from`. The two differ in a few of the last of the 40 bits only.
    #[inline]
    pub fn range(&self, from: u64, to: u64, mut visit: impl FnMut(u32, Id)) {
        let segment = &self.segments[self.segment_of(from)];
        debug_assert_eq!(
            self.segment_of(from),
            self.segment_of(to),
            "segments are told apart by leading bits"
        );
        let (first, last) = (tag(from), tag(to));
        for &entry in segment.slots.get(segment.lower_bound(first)..).unwrap_or_default() {
            if entry == EMPTY || entry_tag(entry) > last {
                return;
            }
            if let Found::Item(id) = found(entry) {
                visit(entry_tag(entry) - first, id);
            }
        }
    }

    /// Where the log has an item with these 40 bits of its hash.
    pub fn find_log(&self, hash: u64) -> Option<LogPlace> {
        let segment = &self.segments[self.segment_of(hash)];
        segment.log_position(tag(hash)).map(|at| LogPlace(segment.slots[at] as u32 & !LOG))
    }

    /// Enters a place in the log, and returns the one that stood there for these 40 bits.
    pub fn put_log(&mut self, hash: u64, place: LogPlace) -> Option<LogPlace> {
        let tag = tag(hash);
        let segment_at = self.segment_of(hash);
        let segment = &mut self.segments[segment_at];
        if let Some(at) = segment.log_position(tag) {
            let old = std::mem::replace(&mut segment.slots[at], log_entry(tag, place));
            return Some(LogPlace(old as u32 & !LOG));
        }
        self.insert_entry(hash, log_entry(tag, place));
        self.log_len += 1;
        None
    }

    /// Removes the log entry of these 40 bits and returns it.
    pub fn remove_log(&mut self, hash: u64) -> Option<LogPlace> {
        let at = self.segment_of(hash);
        let position = self.segments[at].log_position(tag(hash))?;
        let place = LogPlace(self.segments[at].slots[position] as u32 & !LOG);
        self.remove_position(at, position);
        self.log_len -= 1;
        Some(place)
    }

    /// The segment that [`Self::home`] reads, for bringing it near before it is needed.
    #[inline]
    pub fn segment(&self, hash: u64) -> &impl Sized {
        &self.segments[self.segment_of(hash)]
    }

    /// Where [`Self::find`] begins to look, for bringing it near before it is needed.
    #[inline]
    pub fn home(&self, hash: u64) -> Option<&impl Sized> {
        let segment = &self.segments[self.segment_of(hash)];
        segment.slots.get(segment.home(tag(hash)))
    }

    /// Enters an item. The caller has made sure that its key is not there.
    pub fn insert(&mut self, hash: u64, id: Id) {
        self.insert_entry(hash, entry(tag(hash), id));
    }

    fn insert_entry(&mut self, hash: u64, entry: u64) {
        loop {
            let at = self.segment_of(hash);
            let segment = &mut self.segments[at];
            if !segment.is_full() && segment.insert(entry) {
                self.len += 1;
                return;
            }
            self.grow(at, hash);
        }
    }

    /// Removes an item's entry. Returns whether it was there.
    pub fn remove(&mut self, hash: u64, id: Id) -> bool {
        let tag = tag(hash);
        let at = self.segment_of(hash);
        let segment = &mut self.segments[at];
        let mut position = segment.lower_bound(tag);
        let wanted = entry(tag, id);
        while let Some(&entry) = segment.slots.get(position) {
            if entry == EMPTY || entry_tag(entry) > tag {
                return false;
            }
            if entry == wanted {
                self.remove_position(at, position);
                return true;
            }
            position += 1;
        }
        false
    }

    fn remove_position(&mut self, at: usize, position: usize) {
        let segment = &mut self.segments[at];
        segment.remove_at(position);
        self.len -= 1;
        if segment.homes > 4 * SEGMENT_HOMES_MIN && segment.len * 3 < segment.homes {
            let smaller = segment.rebuilt(segment.depth, homes_for(segment.len), SPILL_MIN, |_| true);
            self.replace(at, smaller);
        }
    }

    /// Visits the entries from position `from` of the hash space on (the first 40 bits of a hash), whole hashes at a
    /// time, until at least `count` were visited. Returns where to go on, or `None` at the end.
    pub fn scan(&self, from: u64, count: usize, mut visit: impl FnMut(u64, Found)) -> Option<u64> {
        let mut position = from;
        let (mut visited, mut empty) = (0, 0);
        loop {
            let hash = position.checked_shl(64 - HASH_BITS).filter(|_| position >> HASH_BITS == 0)?;
            let segment = &self.segments[self.segment_of(hash)];
            let part = hash >> (64 - u32::from(PART_BITS)) << 32;
            let mut last = None;
            for &entry in &segment.slots[segment.lower_bound(tag(hash))..] {
                if entry == EMPTY {
                    continue;
                }
                if visited >= count && last != Some(entry_tag(entry)) {
                    return Some(part | u64::from(entry_tag(entry)));
                }
                visit((part | u64::from(entry_tag(entry))) << (64 - HASH_BITS), found(entry));
                visited += 1;
                last = Some(entry_tag(entry));
            }
            // A segment without an entry is work as well, but so little that a small index is gone over at once.
            empty += usize::from(last.is_none());
            // The first hash behind this segment's prefix; past the last prefix the scan is over.
            let shared = PART_BITS + segment.depth;
            let prefixes_behind = (hash >> (64 - shared)) + 1;
            position = prefixes_behind << (HASH_BITS - u32::from(shared));
            if position >> HASH_BITS != 0 {
                return None;
            }
            if visited >= count || empty >= EMPTY_SEGMENTS_MAX {
                return Some(position);
            }
        }
    }

    /// Removes all entries.
    pub fn clear_into(&mut self, deferred_free: &mut DeferredFree) {
        let Index { segments, segment_bytes, .. } = std::mem::take(self);
        deferred_free.add(segments, segment_bytes);
    }

    /// Entries.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Entries that name places in the log.
    pub fn log_len(&self) -> u64 {
        self.log_len
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

    /// Bytes by which it may grow at one insertion: the directory doubles, and the list of segments grows by an eighth. (A
    /// segment grows by an eighth too, some hundreds of bytes.)
    pub fn growth_bytes(&self) -> u64 {
        (self.directory.len() * size_of::<u32>() + self.segments.len() / 8 * size_of::<Segment>()) as u64
    }

    fn replace(&mut self, at: usize, segment: Segment) {
        self.segment_bytes = self.segment_bytes - self.segments[at].bytes() + segment.bytes();
        self.segments[at] = segment;
    }

    /// Makes room in segment `at`, which `hash` belongs to.
    fn grow(&mut self, at: usize, hash: u64) {
        let segment = &self.segments[at];
        let depth = segment.depth + 1;
        let upper = |tag: u32| tag >> (32 - depth) & 1 == 1;
        let upper_len =
            segment.slots.iter().filter(|&&slot| slot != EMPTY && upper(entry_tag(slot))).count() as u32;
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
        let low = segment.rebuilt(depth, homes_for(segment.len - upper_len), SPILL_MIN, |tag| !upper(tag));
        let high = segment.rebuilt(depth, homes_for(upper_len), SPILL_MIN, upper);
        if depth > self.depth {
            let mut wider = Vec::with_capacity(2 * self.directory.len());
            wider.extend(self.directory.iter().flat_map(|&segment| [segment, segment]));
            self.directory = wider;
            self.depth = depth;
        }
        let new_at = self.segments.len() as u32;
        self.segment_bytes += high.bytes();
        self.replace(at, low);
        if self.segments.len() == self.segments.capacity() {
            // By an eighth: growth is charged to a tier, so it comes in small pieces.
            self.segments.reserve_exact(self.segments.len() / 8);
        }
        self.segments.push(high);
        // The directory entries of a segment are neighbours; the upper half of them now names the new one.
        let upper_prefix = (hash >> (64 - PART_BITS - depth) | 1) as usize;
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
            assert!(found.windows(2).all(|pair| entry_tag(*pair[0]) <= entry_tag(*pair[1])));
            for (at, &slot) in segment.slots.iter().enumerate().filter(|(_, slot)| **slot != EMPTY) {
                let home = segment.home(entry_tag(slot));
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
            cursor = index.scan(from, 10, |_, found| {
                if let Found::Item(id) = found
                    && let Some(count) = seen.get_mut(id.index())
                {
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
        fn behaves_as_a_map(ops in prop::collection::vec((any::<bool>(), 0u32..600, 0u32..4), 1..3000)) {
            let mut index = Index::default();
            let mut model = BTreeMap::<u32, u64>::new();
            let mut log = BTreeMap::<u64, u32>::new();
            for (number, (add, key, crowd)) in ops.into_iter().enumerate() {
                let id = Id(key * 3 + crowd);
                let hash = spread(u64::from(key)) & 0x01FF_F000_0000_0000;
                if crowd == 3 {
                    // The log has one entry for all keys of a hash.
                    let place = LogPlace(number as u32);
                    let (before, expected) = if add {
                        (index.put_log(hash, place), log.insert(hash, place.0))
                    } else {
                        (index.remove_log(hash), log.remove(&hash))
                    };
                    prop_assert_eq!(before, expected.map(LogPlace));
                } else if add && !model.contains_key(&id.0) {
                    index.insert(hash, id);
                    model.insert(id.0, hash);
                } else if !add {
                    prop_assert_eq!(index.remove(hash, id), model.remove(&id.0).is_some());
                }
            }
            check(&index);
            prop_assert_eq!(index.len(), (model.len() + log.len()) as u64);
            prop_assert_eq!(index.log_len(), log.len() as u64);
            for (&id, &hash) in &model {
                prop_assert_eq!(index.find(hash, |found| found == Id(id)), Some(Id(id)));
            }
            for (&hash, &place) in &log {
                prop_assert_eq!(index.find_log(hash), Some(LogPlace(place)));
            }
            let (mut seen, mut seen_log) = (Vec::new(), BTreeMap::new());
            let mut cursor = Some(0);
            while let Some(from) = cursor {
                cursor = index.scan(from, 7, |hash, found| match found {
                    Found::Item(id) => {
                        assert_eq!(model[&id.0], hash);
                        seen.push(id.0);
                    }
                    Found::Log(place) => assert_eq!(seen_log.insert(hash, place.0), None),
                });
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, model.keys().copied().collect::<Vec<_>>());
            prop_assert_eq!(seen_log, log);
        }
    }
}
