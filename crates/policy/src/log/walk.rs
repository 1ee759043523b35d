//! The walk over a victim segment: item by item in the order of writing, a bounded piece at a time.
//!
//! The driver knows which item stands at a byte: a live one reads it from the device, a simulator from its notes. Both walk in
//! the same way, so both empty segments at the same pace.

use super::{ITEM_ALIGN_BYTES, ITEM_HEADER_BYTES, LOG_PAGE_BYTES, SEGMENT_HEADER_BYTES};

/// Places looked at in one piece of work, and in one while writers wait.
const PLACES: u32 = 64;
const PLACES_CHOKED: u32 = 512;
/// Bytes of items after which a piece of work ends, however few they were.
const PIECE_BYTES: u32 = 256 << 10;

/// How far a victim is dealt with.
#[derive(Clone, Debug)]
pub struct Walk {
    /// The segment, and which filling of it.
    pub segment: u32,
    /// The sequence of that filling.
    pub sequence: u32,
    /// Bytes of its items that were appended again.
    pub kept_bytes: u32,
    at: u32,
    /// The rest of the piece at hand: places, and the byte that ends it.
    places: u32,
    piece_end: u32,
}

impl Walk {
    /// The beginning of a segment.
    pub fn new(segment: u32, sequence: u32) -> Self {
        Walk { segment, sequence, kept_bytes: 0, at: SEGMENT_HEADER_BYTES, places: 0, piece_end: 0 }
    }

    /// Begins a piece of work; a larger one while writers wait.
    pub fn begin(&mut self, is_choked: bool) {
        self.places = if is_choked { PLACES_CHOKED } else { PLACES };
        self.piece_end = self.at + PIECE_BYTES;
    }

    /// The byte to look at next; `None`: the piece is over, or a segment of `used_bytes` is.
    pub fn next_place(&mut self, used_bytes: u32) -> Option<u32> {
        if self.places == 0 || self.at >= self.piece_end || self.is_over(used_bytes) {
            return None;
        }
        self.places -= 1;
        Some(self.at)
    }

    /// Whether no item can begin behind this of `used_bytes`.
    pub fn is_over(&self, used_bytes: u32) -> bool {
        self.at + ITEM_HEADER_BYTES > used_bytes
    }

    /// The item that ends at byte `end` is dealt with.
    pub fn pass(&mut self, end: u32) {
        self.at = end.next_multiple_of(ITEM_ALIGN_BYTES);
    }

    /// No item begins here or behind in this page: its rest was left empty, or is damaged.
    pub fn skip(&mut self) {
        self.at = (self.at + 1).next_multiple_of(LOG_PAGE_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every item is met once, in order, whatever lies between them, in pieces that are bounded.
        #[test]
        fn a_walk_meets_every_item_in_bounded_pieces(
            items in prop::collection::vec((32u32..70_000, any::<bool>()), 0..300),
            choked in any::<bool>(),
        ) {
            let mut end = SEGMENT_HEADER_BYTES;
            let mut written = std::collections::BTreeMap::new();
            for (bytes, padded) in items {
                if padded {
                    end = end.next_multiple_of(LOG_PAGE_BYTES);
                }
                written.insert(end, bytes);
                end = (end + bytes).next_multiple_of(ITEM_ALIGN_BYTES);
            }
            let mut walk = Walk::new(1, 1);
            let mut met = Vec::new();
            while !walk.is_over(end) {
                walk.begin(choked);
                let (mut places, mut bytes) = (0, 0);
                while let Some(at) = walk.next_place(end) {
                    prop_assert!(bytes < PIECE_BYTES);
                    places += 1;
                    match written.get(&at) {
                        Some(&len) => {
                            met.push(at);
                            bytes += len;
                            walk.pass(at + len);
                        }
                        None => walk.skip(),
                    }
                }
                let places_max = if choked { 512 } else { 64 };
                prop_assert!(places > 0 && places <= places_max);
            }
            prop_assert_eq!(met, written.into_keys().collect::<Vec<_>>());
        }
    }
}
