//! Warm start: restoring items that outlived the process in place, and writing them back.

use crate::tiers::{Losing, TAIL_BYTES};
use tiermem_policy::ladder::{Loc, PAGE_BYTES, UNIT_BYTES};
use tiermem_policy::shard::Entry;

use super::DATABASES;
use super::contents::{Contents, entry};
use super::expiry::note_fields;
use super::item::{HEADER_BYTES, Header};
use super::losses::LosesParts;
use super::seal::TakenUp;

/// Times that a tier is closed, where a part of it was lost meanwhile.
const CLOSE_TRIES: u32 = 3;

/// An engine that takes up what outlives the process where it lies, and writes it back.
#[derive(Debug)]
pub struct WarmStart<'a> {
    contents: &'a mut Contents,
}

impl Contents {
    /// To take up what outlives the process.
    pub fn warm_start(&mut self) -> WarmStart<'_> {
        WarmStart { contents: self }
    }
}

impl WarmStart<'_> {
    /// Takes up what tiers that outlive the process hold from before, where it lies. After the flash tier was attached, and
    /// before anything is stored; without it they are empty as soon as something is stored.
    pub fn take_up(&mut self, unix_ms: u64) -> TakenUp {
        self.contents.shard.set_clock(unix_ms);
        let other = self.contents.items.flash.as_ref().and_then(|flash| flash.found_session());
        let left_by = other.map_or_else(|| self.contents.items.tiers.sessions(), |other| vec![other]);
        self.contents.keeping.set_left_by(left_by);
        let mut found = TakenUp { disagree: !self.contents.items.tiers.agree(other), ..TakenUp::default() };
        for tier in 0..self.contents.shard.ladder().residents().levels() as u8 {
            self.take_up_tier(tier, &mut found);
        }
        self.contents.items.tiers.begin_session(self.contents.keeping.session());
        self.contents.keeping.set_taken_up(found);
        // A page of the medium may have turned bad.
        self.contents.look_for_losses();
        found
    }

    fn take_up_tier(&mut self, tier: u8, found: &mut TakenUp) {
        for page in 0..self.contents.items.tiers.kept_pages(tier) {
            let Some(form) = self.contents.items.tiers.kept_form(tier, page) else { continue };
            let (places, place_bytes) = form.places();
            for offset in places {
                let unit = (u64::from(page) * PAGE_BYTES + offset as u64) / UNIT_BYTES;
                let loc = Loc { tier, unit: unit as u32 };
                if !self.contents.items.tiers.is_sealed(loc) {
                    continue;
                }
                if self.take_up_item(loc, place_bytes, found) {
                    found.items += 1;
                } else {
                    self.contents.items.tiers.unseal(loc);
                }
            }
        }
    }

    /// Takes a sealed item up; `false`: its place is free.
    fn take_up_item(&mut self, loc: Loc, place_bytes: usize, found: &mut TakenUp) -> bool {
        let header = self.contents.items.header(loc);
        // The value's length is 32 bits and the key's 16: this cannot overflow.
        if header.item_len() + TAIL_BYTES > place_bytes || header.db >= DATABASES {
            found.dropped += 1;
            return false;
        }
        let expires_at_ms = self.contents.items.tiers.kept_expiry(loc, header.item_len());
        let key = self.contents.items.tiers.bytes(loc, HEADER_BYTES, usize::from(header.key_len)).to_vec();
        let hash = self.contents.items.hash(header.db, &key);
        if expires_at_ms.is_some_and(|at_ms| at_ms <= self.contents.shard.now().unix_ms) {
            if header.unchanged {
                self.forget_expired_copy(header.db, hash);
            }
            found.expired += 1;
            return false;
        }
        // Twice: a death between the two halves of a move. They are the same.
        let tenant = self.contents.tenant_for(header.db, &key);
        let entry = Entry { is_newcomer: false, ..entry(hash, header, expires_at_ms, tenant) };
        let adopted = match self.contents.find(header.db, &key, hash) {
            Some(_) => None,
            None => self.contents.shard.restore(loc, place_bytes as u64, &entry),
        };
        let Some(id) = adopted else {
            found.dropped += 1;
            return false;
        };
        self.contents.keys.add(header.db, hash);
        if !header.unchanged {
            // What flash has was overwritten, by a request that was perhaps never answered.
            self.contents.supersede(header.db, hash);
        } else if self.contents.shard.memory().keys().place_below(hash).is_some() {
            // It was counted there.
            self.contents.keys.remove(header.db, None);
        } else {
            Header::note_changed(self.contents.items.tiers.bytes_mut(loc, HEADER_BYTES));
        }
        note_fields(self.contents, id);
        true
    }

    /// Forgets the copy on flash of an item that was expired when it was found.
    fn forget_expired_copy(&mut self, db: u8, hash: u64) {
        if self.contents.has_flash() && self.contents.forget_on_flash(db, hash) {
            self.contents.keys.remove(db, None);
        }
    }

    /// Writes everything back that outlives the process where it lies, and can serve on. Waits for the device.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_back(&mut self) -> std::io::Result<()> {
        self.contents.look_for_losses();
        let Contents { keeping, items, shard, .. } = &mut *self.contents;
        keeping.seal_changed(&mut items.tiers, shard.ladder().residents());
        items.tiers.write_back_kept()
    }

    /// Writes it back for the last time. Waits for the device, which may take long enough for a loss: what is closed is whole.
    ///
    /// # Errors
    /// When it cannot be written: a restart finds it all the same, but not one after the machine was stopped.
    pub fn close(&mut self) -> std::io::Result<()> {
        for _ in 0..CLOSE_TRIES {
            self.contents.look_for_losses();
            let Contents { keeping, items, shard, .. } = &mut *self.contents;
            keeping.seal_changed(&mut items.tiers, shard.ladder().residents());
            items.tiers.close_kept()?;
            items.tiers.look_for_losses();
            if !items.tiers.have_lost() {
                return Ok(());
            }
        }
        self.contents.look_for_losses();
        Err(std::io::Error::other("its file was shortened again and again meanwhile"))
    }
}
