//! Loss: pages of a tier whose bytes are gone, and what becomes of the items on them.
//!
//! No byte of a lost item can be asked for, not even its key. So its place names it, and the index is gone through for its hash.
//! Losses are rare: this takes as long as the index is large, and the bytes of the tier are counted anew.

use std::ops::Range;

use super::{Items, Memory, Shard};
use crate::Id;
use crate::index::Found;
use crate::ladder::{Loc, PAGE_BYTES};

/// An item that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostItem {
    /// Where it was. The place is free, or a reply's that holds it.
    pub loc: Loc,
    /// The first 40 bits of its hash.
    pub hash: u64,
    /// Whether the log has the same item: then its key is there still.
    pub has_copy: bool,
}

impl Memory {
    /// The first 40 bits of the hash under which an item is found.
    pub(super) fn hash_of(&self, id: Id) -> Option<u64> {
        let mut hash = None;
        self.keys().all(|bits, found| hash = hash.or((found == Found::Item(id)).then_some(bits)));
        hash
    }

    /// Removes an item from the index that has left the ladder, and whose bytes are gone: they count until the tier's are counted anew.
    /// Returns the first 40 bits of its hash.
    pub(super) fn remove_lost(&mut self, id: Id) -> u64 {
        let hash = self.hash_of(id).unwrap_or(0);
        self.keys_mut().remove(hash, id);
        hash
    }

    /// Takes out the items on these pages of a tier.
    fn lose<I: Items>(&mut self, tier: u8, pages: &[Range<u32>], items: &I) -> Vec<LostItem> {
        let residents = self.ladder().residents();
        let on_pages = pages.iter().flat_map(|pages| residents.items_on(usize::from(tier), pages.clone()));
        let mut ids: Vec<Id> = on_pages.collect();
        ids.sort_unstable();
        ids.dedup();
        let mut hashes = vec![0; ids.len()];
        self.keys().all(|hash, found| {
            if let Found::Item(id) = found
                && let Ok(at) = ids.binary_search(&id)
            {
                hashes[at] = hash;
            }
        });
        let mut lost = Vec::with_capacity(ids.len());
        for (id, hash) in ids.into_iter().zip(hashes) {
            let loc = self.ladder().residents().nodes().loc(id);
            self.keys_mut().remove(hash, id);
            self.ladder_mut().transit_mut().remove(id);
            lost.push(LostItem { loc, hash, has_copy: self.keys().place_below(hash).is_some() });
        }
        self.set_item_bytes(tier, self.count_bytes(tier, items));
        lost
    }

    /// The bytes of a tier's items, as they are told now.
    fn count_bytes<I: Items>(&self, tier: u8, items: &I) -> u64 {
        let residents = self.ladder().residents();
        let of_page = |page: u32| {
            let here = residents.items_on(usize::from(tier), page..page + 1);
            let begins_here = |loc: &Loc| loc.byte_offset() / PAGE_BYTES == u64::from(page);
            let with_loc = here.map(|id| (id, residents.nodes().loc(id))).filter(|(_, loc)| begins_here(loc));
            with_loc.map(|(id, loc)| items.bytes(id, loc).here).sum::<u64>()
        };
        (0..residents.pages(usize::from(tier))).map(of_page).sum()
    }
}

/// A shard of whose memory a part may be lost.
pub trait LosesPages {
    /// Ends all moves under way. Acts follow.
    fn settle_moves(&mut self);

    /// Takes out all items that lie on these pages of a tier, also in part: their bytes are gone. Items of other places stay. When no move
    /// is under way: after [`Self::settle_moves`].
    ///
    /// The pages are free from now on, and are given out again: the driver sees to it that they have memory, or [takes](super::Change)
    /// them from the tier.
    fn lose_pages<I: Items>(&mut self, tier: u8, pages: &[Range<u32>], items: &I) -> Vec<LostItem>;
}

impl LosesPages for Shard {
    fn settle_moves(&mut self) {
        self.admission.end_piece();
    }

    fn lose_pages<I: Items>(&mut self, tier: u8, pages: &[Range<u32>], items: &I) -> Vec<LostItem> {
        debug_assert!(
            self.is_at_rest() && self.ladder().transit().last_ticket().is_none(),
            "no move is under way"
        );
        let lost = self.contents.memory_mut().lose(tier, pages, items);
        self.contents.report_outlet();
        lost
    }
}
