//! Descriptions under way: what of a range is cached, and what of it is holes and zeroes.
//!
//! What only the cache has is data, whatever the store has there. That is noted before the store is asked: bytes that are written back
//! meanwhile are clean when its answer comes, and not in it.

use std::ops::Range;

use slab::Slab;
use tiermem_tier::backing;

use crate::disks::Asker;
use crate::nbd::Extent;
use crate::nbd::wire::{STATE_HOLE, STATE_ZERO};

/// Extents in one description: a reply may be shorter than its request.
pub(super) const EXTENTS_MAX: usize = 8192;

/// Descriptions for which stores were asked.
pub(super) type Descriptions = Slab<Description>;

/// A description that waits for its store.
#[derive(Debug)]
pub(super) struct Description {
    pub asker: Asker,
    pub range: Range<u64>,
    /// What the store lacked of it.
    pub dirty: Vec<Range<u64>>,
    pub cache: Vec<Extent>,
}

/// What of a range is holes and zeroes: as the store says from its begin on, but for what it lacks. All is data of which it says nothing.
pub(super) fn allocation(
    range: &Range<u64>,
    extents: &[backing::Extent],
    dirty: &[Range<u64>],
) -> Vec<Extent> {
    let whole = [backing::Extent::data(range.end - range.start)];
    let extents = if extents.is_empty() { &whole } else { extents };
    let mut parts: Vec<Extent> = Vec::new();
    let mut push = |len_bytes: u64, flags: u32| {
        let is_full = parts.len() == EXTENTS_MAX;
        match parts.last_mut() {
            _ if len_bytes == 0 => {}
            Some(last) if last.flags == flags => last.len_bytes += len_bytes as u32,
            _ if is_full => return false,
            _ => parts.push(Extent { len_bytes: len_bytes as u32, flags }),
        }
        true
    };
    let (mut at, mut dirty) = (range.start, dirty.iter().peekable());
    for extent in extents {
        let end = (at + extent.bytes).min(range.end);
        let flags = if extent.is_hole { STATE_HOLE } else { 0 } | if extent.is_zero { STATE_ZERO } else { 0 };
        while at < end {
            while dirty.next_if(|dirty| dirty.end <= at).is_some() {}
            let (to, flags) = match dirty.peek() {
                Some(dirty) if dirty.start <= at => (dirty.end.min(end), 0),
                Some(dirty) => (dirty.start.min(end), flags),
                None => (end, flags),
            };
            if !push(to - at, flags) {
                return parts;
            }
            at = to;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLE: u32 = STATE_HOLE | STATE_ZERO;

    fn told(range: Range<u64>, extents: &[backing::Extent], dirty: &[Range<u64>]) -> Vec<(u32, u32)> {
        let parts = allocation(&range, extents, dirty);
        parts.iter().map(|part| (part.len_bytes, part.flags)).collect()
    }

    #[test]
    fn what_only_the_cache_has_is_data_wherever_the_store_has_a_hole() {
        let store = [backing::Extent::hole(100), backing::Extent::data(50), backing::Extent::hole(50)];
        assert_eq!(told(1000..1200, &store, &[]), [(100, HOLE), (50, 0), (50, HOLE)]);
        assert_eq!(
            told(1000..1200, &store, &[1000..1010, 1090..1105, 1160..1300]),
            [(10, 0), (80, HOLE), (60, 0), (10, HOLE), (40, 0)].map(|(bytes, flags)| (bytes, flags)),
        );
        assert_eq!(told(1000..1200, &store, &[900..1000, 1000..1200]), [(200, 0)]);
    }

    #[test]
    fn a_store_may_say_less_and_one_that_says_nothing_has_data() {
        assert_eq!(told(0..200, &[backing::Extent::hole(30)], &[]), [(30, HOLE)]);
        assert_eq!(
            told(0..200, &[backing::Extent::hole(300)], &[]),
            [(200, HOLE)],
            "and no more than was asked"
        );
        assert_eq!(told(0..200, &[], &[10..20, 30..40]), [(200, 0)]);
        let zero = backing::Extent { bytes: 200, is_hole: false, is_zero: true };
        assert_eq!(told(0..200, &[zero], &[]), [(200, STATE_ZERO)]);
        let many: Vec<_> = (0..9000).map(|at| backing::Extent { is_zero: at % 2 == 0, ..zero }).collect();
        assert_eq!(told(0..1 << 30, &many, &[]).len(), EXTENTS_MAX);
    }
}
