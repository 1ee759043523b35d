//! Loss of a part of a tier that outlives the process, while the store runs: its file was shortened, or the medium has a bad page.
//!
//! An access to what is lost reads zeros (`tiermem_sys::mapping`), at any moment, also between two reads of the same item. So:
//!
//! | when | the engine |
//! | --- | --- |
//! | an item was looked up | reads a byte of each of its pages. If any is lost, the item is dropped with all others that are, and the look-up is a miss |
//! | an item was copied, to another tier or to flash | looks for losses. The copy comes to nothing if there are any |
//! | a value was written, perhaps made of what was read | asks as well. The new value is removed then, and the request is an error |
//! | replies are about to leave | asks as well. A client whose replies may have zeros in them is disconnected |
//! | once a second, and before the state is written for a restart | looks for losses that no access shows |
//!
//! [`LosesParts::drop_lost`] drops the items: that needs no byte of them ([`LosesPages::lose_pages`]). Where flash
//! has the same item, its key stays. Then the file is made whole again, with zeros, which are no items; if that fails (a full disk, a bad
//! page of a device) the tier ends before the first page that is missing, and it is tried again now and then.

use std::ops::Range;

use tiermem_base::Bytes as Size;
use tiermem_policy::Id;
use tiermem_policy::index::Found;
use tiermem_policy::ladder::PAGE_BYTES;
use tiermem_policy::shard::{Change, LosesPages, LostItem};

use super::contents::Contents;
use super::losses::{LosesParts, LossReport};
use super::pin::Holder;
use super::{BetweenRequests, DATABASES, StoreError};
use crate::tiers::{Losing, Unmended};

/// Looks, a second apart, between two tries to have a part again that the file could not hold.
const TRY_LOOKS: u32 = 10;

/// An engine that may have lost a part of its tiers.
#[derive(Debug)]
pub struct LostParts<'a> {
    contents: &'a mut Contents,
}

impl<'a> BetweenRequests<'a> {
    /// For what was lost of tiers that outlive the process.
    #[inline]
    pub fn lost_parts(self) -> LostParts<'a> {
        LostParts { contents: self.contents }
    }
}

impl LostParts<'_> {
    /// Before requests, and before values are sent from where they lie: drops what was lost.
    #[inline]
    pub fn begin(self) {
        if self.contents.has_lost() {
            self.contents.drop_lost();
        }
        self.contents.losses.is_doubtful = false;
    }

    /// Behind requests, before their replies leave: whether these may hold what was lost.
    #[inline]
    pub fn may_be_in_replies(self) -> bool {
        note_doubt(self.contents);
        self.contents.losses.is_doubtful
    }

    /// Once a second, and before a stop: looks for losses that no access has shown, and tries again to have what is missing.
    pub fn look(self) {
        let losses = &mut self.contents.losses;
        losses.looks += 1;
        if losses.missing_bytes() > 0 && losses.looks.is_multiple_of(TRY_LOOKS) {
            self.contents.drop_lost();
        }
        self.contents.look_for_losses();
    }

    /// Losses since the last call.
    pub fn take_reports(self) -> Vec<LossReport> {
        std::mem::take(&mut self.contents.losses.reports)
    }
}

impl LosesParts for Contents {
    #[inline]
    fn has_lost(&self) -> bool {
        self.items.tiers.have_lost()
    }

    #[cold]
    fn has_lost_by_now(&mut self) -> bool {
        self.items.tiers.look_for_losses();
        self.has_lost()
    }

    fn look_for_losses(&mut self) {
        if self.has_lost_by_now() {
            self.drop_lost();
        }
    }

    #[cold]
    fn find_there(&mut self, db: u8, key: &[u8], hash: u64) -> Option<Id> {
        note_doubt(self);
        let id = self.find(db, key, hash)?;
        let loc = self.shard.ladder().residents().nodes().loc(id);
        if self.items.tiers.are_there(loc, self.items.header(loc).item_len()) {
            return Some(id);
        }
        self.drop_lost();
        self.find(db, key, hash)
    }

    #[inline]
    fn keep_unless_lost(&mut self, db: u8, key: &[u8], hash: u64) -> Result<(), StoreError> {
        if !self.has_lost() {
            return Ok(());
        }
        note_doubt(self);
        if let Some(id) = self.find(db, key, hash) {
            self.forget_copy(id, hash);
            self.forget(id, hash);
        }
        Err(StoreError::Lost)
    }

    #[cold]
    fn take_back_from_flash(&mut self, db: u8, hash: u64) {
        if self.forget_on_flash(db, hash) {
            self.keys.remove(db, None);
        }
        self.losses.items += 1;
    }

    #[cold]
    fn leave_lost(&mut self, hash: u64) {
        self.losses.items += 1;
        if self.shard.memory().keys().place_below(hash).is_none() {
            // Its database cannot be read any more.
            self.keys.remove(self.keys.fullest(), None);
        }
    }

    #[cold]
    fn drop_lost(&mut self) {
        loop {
            self.shard.settle_moves();
            self.carry_out();
            for (tier, pages) in self.items.tiers.take_lost() {
                drop_pages(self, tier, &pages);
            }
            // Looking at what is left may have shown more. A hole that is not seen now is filled with zeros next, and never seen.
            if self.has_lost_by_now() {
                continue;
            }
            let mended = self.items.tiers.mend();
            if !self.has_lost() {
                mended.into_iter().for_each(|(tier, outcome)| resize_to_what_is_there(self, tier, outcome));
                return;
            }
        }
    }
}

/// What was read until now may be in replies, or in values.
#[inline]
fn note_doubt(contents: &mut Contents) {
    if contents.has_lost() {
        contents.losses.is_doubtful = true;
        contents.drop_lost();
    }
}

fn drop_pages(contents: &mut Contents, tier: u8, pages: &[Range<u32>]) {
    take_pins_from(contents, tier, pages);
    let lost = contents.shard.lose_pages(tier, pages, &contents.items);
    for item in &lost {
        // What its seal was in is perhaps there still.
        contents.keeping.unseal(&mut contents.items.tiers, item.loc);
    }
    uncount_keys(contents, &lost);
    contents.losses.items += lost.len() as u64;
    let items = lost.len() as u64;
    contents.losses.reports.push(LossReport { tier, items, missing: None });
}

/// Replies that are being sent from lost places end here.
fn take_pins_from(contents: &mut Contents, tier: u8, pages: &[Range<u32>]) {
    let level = contents.shard.ladder().residents().level(usize::from(tier));
    let is_on = |start: u64, bytes: u64| {
        let of_place = start / PAGE_BYTES..(start + bytes).div_ceil(PAGE_BYTES);
        pages.iter().any(|lost| of_place.start < u64::from(lost.end) && u64::from(lost.start) < of_place.end)
    };
    let places = contents.pins.by_place.iter().filter(|(loc, _)| loc.tier == tier);
    let places = places.filter(|(loc, _)| is_on(loc.byte_offset(), level.place_bytes(loc.unit)));
    let numbers: Vec<u64> = places.flat_map(|(_, numbers)| numbers.iter().copied()).collect();
    for number in numbers {
        let holder = contents.pins.held.get(&number).map(|held| held.holder);
        if let Some(Holder::Client(slot, _)) = holder {
            contents.pinned_values().rob(slot);
        }
    }
}

/// Keys of lost items are gone unless flash has them. What databases they were of is known where only one has keys.
fn uncount_keys(contents: &mut Contents, lost: &[LostItem]) {
    let with_keys: Vec<u8> = (0..DATABASES).filter(|&db| contents.keys.of(db) > 0).collect();
    if let [db] = with_keys[..] {
        let gone = lost.iter().filter(|item| !item.has_copy);
        gone.for_each(|_| contents.keys.remove(db, None));
        return;
    }
    let mut counts = [0; DATABASES as usize];
    if let Some(flash) = &contents.items.flash {
        counts.copy_from_slice(flash.items());
    }
    contents.shard.memory().keys().all(|_, found| {
        if let Found::Item(id) = found {
            let header = contents.items.header(contents.shard.ladder().residents().nodes().loc(id));
            if let Some(count) = counts.get_mut(usize::from(header.db)).filter(|_| !header.unchanged) {
                *count += 1;
            }
        }
    });
    contents.keys.set(&counts);
}

/// A tier has what its file can hold.
fn resize_to_what_is_there(contents: &mut Contents, tier: u8, outcome: Result<(), Unmended>) {
    let at = usize::from(tier);
    if contents.losses.missing.len() <= at {
        contents.losses.missing.resize(at + 1, 0);
    }
    let capacity_bytes = contents.shard.ladder().config().levels[at].capacity_bytes;
    let given_bytes = capacity_bytes + contents.losses.missing[at];
    // A tier has one page at least. It may be memory of this process.
    let has =
        outcome.as_ref().map_or_else(|unmended| unmended.pages_before.max(1) * PAGE_BYTES, |()| given_bytes);
    let has_bytes = has.min(given_bytes);
    if has_bytes == capacity_bytes {
        return;
    }
    contents.losses.missing[at] = given_bytes - has_bytes;
    contents.shard.configure(Change::Capacity { tier: at, bytes: has_bytes });
    contents.tenants.resized(&mut contents.shard);
    let missing = outcome.err().map(|unmended| (Size(given_bytes - has_bytes), unmended.source.to_string()));
    contents.losses.reports.push(LossReport { tier, items: 0, missing });
}
