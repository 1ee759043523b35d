//! Expiry: a hierarchical timing wheel of intrusive lists finds the items whose time is over.
//!
//! Buckets are a tenth of a second wide for the next six seconds, then 64 times wider level by level. So an item is found within
//! a tenth of a second of its time, and moved between buckets at most [`LEVELS`] times. The exact time stays with the item, in
//! milliseconds, and decides what a request sees. Only items with an expiry cost memory: 16 bytes each.
//!
//! Sampling, as Redis does it, needs no memory beyond the deadline, but work for items whose time is not over, again and again, and
//! finds few of what is left where that is rare. The wheel looks at what is due and at nothing else: one without such items costs
//! nothing, among however many others.

use crate::Id;
use crate::column::SparseColumn;
use crate::deferred_free::DeferredFree;

/// Width of the finest bucket.
const BUCKET_MS: u64 = 100;
const BUCKETS: u64 = 64;
const LEVELS: usize = 5;
/// Set in a link that names a bucket, not an item.
const BUCKET_FLAG: u32 = 1 << 31;

#[derive(Clone, Copy, Debug, Default)]
struct Timer {
    at_ms: u64,
    /// The item before, or the bucket that this item is first in.
    prev: u32,
    /// The item behind, and above it the level that this one is filed on: sixteen bytes in all.
    next_and_level: u32,
}

/// No item behind. Numbers stay below [`Id::COUNT_MAX`], so this is none.
const LAST: u32 = (1 << 28) - 1;

impl Timer {
    fn next(self) -> Option<Id> {
        let next = self.next_and_level & LAST;
        (next != LAST).then_some(Id(next))
    }

    fn level(self) -> usize {
        (self.next_and_level >> 28) as usize
    }

    fn set_next(&mut self, next: Option<Id>) {
        self.next_and_level = self.next_and_level & !LAST | next.map_or(LAST, |id| id.0);
    }
}

/// The wheel.
#[derive(Clone, Debug)]
pub struct ExpiryWheel {
    timers: SparseColumn<Timer>,
    heads: Vec<Option<Id>>,
    /// The next bucket's time to be collected; everything filed is at or after it.
    cursor: u64,
    /// The level whose bucket at the cursor is being refiled; [`LEVELS`] when none is.
    refiling: usize,
    /// Items filed on each level.
    filed: [u64; LEVELS],
    len: u64,
}

impl Default for ExpiryWheel {
    fn default() -> Self {
        ExpiryWheel {
            timers: SparseColumn::default(),
            heads: vec![None; LEVELS * BUCKETS as usize],
            cursor: 0,
            refiling: LEVELS,
            filed: [0; LEVELS],
            len: 0,
        }
    }
}

impl ExpiryWheel {
    /// Forgets all timers.
    pub fn clear_into(&mut self, deferred_free: &mut DeferredFree) {
        self.timers.clear_into(deferred_free);
        *self = ExpiryWheel::default();
    }

    /// Makes room for naming the timers of all items up to `id`; a timer itself is made when it is set.
    pub fn grow_to(&mut self, id: Id) {
        self.timers.grow_to(id);
    }

    /// Files `id`, which has no timer yet, to expire at `at_ms`.
    pub fn insert(&mut self, id: Id, at_ms: u64, now_ms: u64) {
        if self.len == 0 {
            // Nothing is filed, so nothing is skipped: catch up with the clock at once.
            self.cursor = self.cursor.max(now_ms / BUCKET_MS);
        }
        self.len += 1;
        self.file(id, at_ms);
    }

    fn file(&mut self, id: Id, at_ms: u64) {
        // The bucket after the moment, so that a whole bucket is due when its time has come.
        let tick = (at_ms.div_ceil(BUCKET_MS)).max(self.cursor);
        let mut level = 0;
        while level + 1 < LEVELS && (tick >> (6 * level)) - (self.cursor >> (6 * level)) >= BUCKETS {
            level += 1;
        }
        let top = (self.cursor >> (6 * level)) + BUCKETS - 1;
        let slot = (tick >> (6 * level)).min(top) % BUCKETS;
        let bucket = level * BUCKETS as usize + slot as usize;
        let next = self.heads[bucket].replace(id);
        let timer = self.timers.at(id);
        *timer = Timer { at_ms, prev: bucket as u32 | BUCKET_FLAG, next_and_level: (level as u32) << 28 };
        timer.set_next(next);
        if let Some(next) = next {
            self.timers.at(next).prev = id.0;
        }
        self.filed[level] += 1;
    }

    fn unfile(&mut self, id: Id) {
        let timer = self.timers.get(id);
        self.filed[timer.level()] -= 1;
        let (prev, next) = (timer.prev, timer.next());
        if prev & BUCKET_FLAG != 0 {
            self.heads[(prev & !BUCKET_FLAG) as usize] = next;
        } else {
            self.timers.at(Id(prev)).set_next(next);
        }
        if let Some(next) = next {
            self.timers.at(next).prev = prev;
        }
    }

    /// Whether `id` has a timer. Those for the time 0 cannot be told from none.
    #[inline]
    pub fn has(&self, id: Id) -> bool {
        self.len > 0 && self.timers.get(id).at_ms != 0
    }

    /// Removes the timer of `id`, which has one.
    pub fn remove(&mut self, id: Id) {
        self.unfile(id);
        self.timers.at(id).at_ms = 0;
        self.len -= 1;
    }

    /// When `id`, which has a timer, expires: Unix time in milliseconds.
    #[inline]
    pub fn at_ms(&self, id: Id) -> u64 {
        self.timers.get(id).at_ms
    }

    /// An item whose time is over, if one is filed in a bucket that has passed. It keeps its timer. `budget` bounds the work of
    /// moving the wheel on, and is used up by it.
    pub fn due(&mut self, now_ms: u64, budget: &mut u32) -> Option<Id> {
        let now = now_ms / BUCKET_MS;
        while self.len > 0 && self.cursor <= now && *budget > 0 {
            if !self.refile(budget) || *budget == 0 {
                return None;
            }
            *budget -= 1;
            if let Some(id) = self.heads[(self.cursor % BUCKETS) as usize] {
                return Some(id);
            }
            // Over levels that hold nothing the cursor jumps, so that a clock that leaps years is caught up with.
            let empty = self.filed.iter().take_while(|&&filed| filed == 0).count().min(LEVELS - 1);
            let next = ((self.cursor >> (6 * empty)) + 1) << (6 * empty);
            self.cursor = next.min(now + 1);
            self.refiling = 1;
        }
        None
    }

    /// Refiles the coarser buckets that the cursor has entered, an item for each unit of the budget. Returns whether that is
    /// finished.
    fn refile(&mut self, budget: &mut u32) -> bool {
        while self.refiling < LEVELS && self.cursor.is_multiple_of(1 << (6 * self.refiling)) {
            let slot = (self.cursor >> (6 * self.refiling)) % BUCKETS;
            let bucket = self.refiling * BUCKETS as usize + slot as usize;
            while let Some(id) = self.heads[bucket] {
                if *budget == 0 {
                    return false;
                }
                *budget -= 1;
                let at_ms = self.timers.get(id).at_ms;
                self.unfile(id);
                self.file(id, at_ms);
            }
            self.refiling += 1;
        }
        self.refiling = LEVELS;
        true
    }

    /// For how long an item has been due, at least, that was not handed out; to the bucket.
    pub fn late_ms(&self, now_ms: u64) -> u64 {
        let is_due = self.len > 0 && self.cursor <= now_ms / BUCKET_MS;
        if is_due { now_ms.saturating_sub(self.cursor * BUCKET_MS) } else { 0 }
    }

    /// Items with a timer.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no item has a timer.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.timers.bytes() + (self.heads.capacity() * size_of::<Option<Id>>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Every item comes due within a bucket of its time, none early, whatever was added, removed or skipped.
        #[test]
        fn nothing_is_early_lost_or_late(
            ops in prop::collection::vec((0u32..50, prop_oneof![0u64..5_000, 0u64..400_000, 0u64..9_000_000_000]), 1..60),
            steps in prop::collection::vec(prop_oneof![1u64..3_000, 1u64..100_000, 1u64..20_000_000], 1..60),
        ) {
            let mut wheel = ExpiryWheel::default();
            let mut model = BTreeMap::new();
            let mut now = 1_700_000_000_000u64;
            for (at, step) in steps.iter().cycle().take(ops.len().max(steps.len())).enumerate() {
                if let Some(&(id, ttl)) = ops.get(at) {
                    if model.remove(&id).is_some() {
                        wheel.remove(Id(id));
                    }
                    if id % 5 != 0 {
                        wheel.insert(Id(id), now + ttl, now);
                        model.insert(id, now + ttl);
                    }
                }
                now += step;
                while let Some(id) = wheel.due(now, &mut u32::MAX.clone()) {
                    let expires = model.remove(&id.0);
                    prop_assert!(expires.is_some_and(|at| at <= now), "{id:?} at {expires:?}, now {now}");
                    prop_assert_eq!(wheel.at_ms(id), expires.unwrap_or(0));
                    wheel.remove(id);
                }
                prop_assert!(model.values().all(|&at| at + BUCKET_MS > now));
                prop_assert_eq!(wheel.len(), model.len() as u64);
            }
        }
    }
}
