//! Items that outlive the process where they lie: sealing them, and taking them up again.
//!
//! In a tier that keeps its items ([`Tiers::keeps`]) an item counts while it is sealed, so the seal is broken before
//! anything of the item changes, and set when all is there, expiry included. What is acknowledged is sealed or unsealed
//! before the reply: every method of the engine leaves it so, but for values that are changed in place, whose seal waits
//! for [`Engine::commit`], since nobody else knows when a change is complete.
//!
//! Whatever takes an item away breaks its seal before another version of the key is sealed, or announced on flash. So of
//! one key there are never two sealed versions that differ, and where flash has the key too, either both are the same, or
//! the one on flash was overwritten by a request that was not answered yet: memory wins.

use crate::tiers::TAIL_BYTES;
use crate::tiers::Tiers;
use tiermem_policy::Id;
use tiermem_policy::ladder::{Loc, PAGE_BYTES, UNIT_BYTES};

use super::item::{HEADER_BYTES, Header};
use super::{DATABASES, Engine};

/// What is under way in tiers that keep their items.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    /// [`Tiers::keeping`].
    tiers: u8,
    /// Bytes behind each item, in all tiers, since any may move to one that keeps it.
    tail_bytes: usize,
    /// The item whose value is being changed where it lies, unsealed.
    changing: Option<(Id, Loc)>,
    /// What was there at the start.
    taken_up: TakenUp,
    /// The run that left it, or two of which one did; none where nothing was left.
    left_by: Vec<[u8; 16]>,
}

impl Keeping {
    pub(super) fn over(tiers: &Tiers) -> Self {
        let tail_bytes = if tiers.keeping() == 0 { 0 } else { TAIL_BYTES };
        Keeping { tiers: tiers.keeping(), tail_bytes, ..Keeping::default() }
    }

    /// Bytes behind each item.
    #[inline]
    pub(super) fn tail_bytes(&self) -> usize {
        self.tail_bytes
    }

    pub(super) fn follows(&self, session: [u8; 16]) -> bool {
        self.left_by.is_empty() || self.left_by.contains(&session)
    }
}

/// What [`Engine::take_up`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakenUp {
    /// Items that are back.
    pub items: u64,
    /// Items whose time was over.
    pub expired: u64,
    /// Items that were there twice, make no sense, or found no room for their metadata.
    pub dropped: u64,
    /// Whether everything was dropped, since the regions and the flash tier are not of one run.
    pub disagree: bool,
}

impl Engine {
    /// Bytes of the place that an item needs.
    #[inline]
    pub(super) fn place_len(&self, header: Header) -> u64 {
        (header.item_len() + self.keeping.tail_bytes) as u64
    }

    /// Before an item is written to a place.
    #[inline]
    pub(super) fn prepare_place(&mut self, loc: Loc, header: Header) {
        if self.items.tiers.keeps(loc.tier) {
            self.prepare_kept(loc, header);
        }
    }

    #[cold]
    fn prepare_kept(&mut self, loc: Loc, header: Header) {
        let place_bytes = self.shard.ladder().residents().classes().place_bytes(self.place_len(header));
        self.items.tiers.prepare(loc, place_bytes);
    }

    /// When all of an item is written.
    #[inline]
    pub(super) fn seal_item(&mut self, loc: Loc, header: Header, expires_at_ms: Option<u64>) {
        if self.items.tiers.keeps(loc.tier) {
            self.seal_kept(loc, header, expires_at_ms);
        }
    }

    #[cold]
    fn seal_kept(&mut self, loc: Loc, header: Header, expires_at_ms: Option<u64>) {
        self.end_change(loc);
        self.items.tiers.seal(loc, header.item_len(), expires_at_ms);
    }

    /// When the place is not the item's any more.
    #[inline]
    pub(super) fn unseal_item(&mut self, loc: Loc) {
        if self.items.tiers.keeps(loc.tier) {
            self.unseal_kept(loc);
        }
    }

    #[cold]
    fn unseal_kept(&mut self, loc: Loc) {
        self.end_change(loc);
        self.items.tiers.unseal(loc);
    }

    fn end_change(&mut self, loc: Loc) {
        self.keeping.changing = self.keeping.changing.filter(|(_, changing)| *changing != loc);
    }

    /// Before an item's value is changed where it lies; until [`Self::commit`] or the next such change.
    #[inline]
    pub(super) fn unseal_to_change(&mut self, id: Id, loc: Loc) {
        if self.items.tiers.keeps(loc.tier) && self.keeping.changing != Some((id, loc)) {
            self.seal_changed();
            self.unseal_kept(loc);
            self.keeping.changing = Some((id, loc));
        }
    }

    /// When a change is complete.
    #[inline]
    pub(super) fn seal_changed(&mut self) {
        if let Some((id, _)) = self.keeping.changing {
            self.seal_again(id);
        }
    }

    /// Writes an item's expiry down where that has to be.
    #[cold]
    pub(super) fn seal_again(&mut self, id: Id) {
        let loc = self.shard.ladder().residents().nodes().loc(id);
        if self.items.tiers.keeps(loc.tier) {
            self.items.tiers.unseal(loc);
            self.seal_item(loc, self.header(loc), self.shard.ladder().residents().nodes().expires_at_ms(id));
        }
    }

    /// Seals what has moved at its new place, and then only breaks the seal of the old one: death in between leaves two that
    /// are the same.
    #[inline]
    pub(super) fn seal_moved(&mut self, from: Loc, to: Loc, bytes: u64, expires_at_ms: Option<u64>) {
        if self.keeping.tiers & (1 << from.tier | 1 << to.tier) != 0 {
            self.seal_kept_move(from, to, bytes, expires_at_ms);
        }
    }

    #[cold]
    fn seal_kept_move(&mut self, from: Loc, to: Loc, bytes: u64, expires_at_ms: Option<u64>) {
        if self.items.tiers.keeps(to.tier) {
            self.items.tiers.seal(to, bytes as usize, expires_at_ms);
        }
        self.unseal_item(from);
    }

    /// Empties the regions, and the ladder with them.
    pub(super) fn forget_kept(&mut self) {
        self.keeping.changing = None;
        self.items.tiers.forget_kept();
    }

    /// Takes up what tiers that outlive the process hold from before, where it lies. After the flash tier was attached, and
    /// before anything is stored; without it they are empty as soon as something is stored.
    pub fn take_up(&mut self, unix_ms: u64) -> TakenUp {
        self.set_clock(unix_ms);
        let other = self.items.flash.as_ref().and_then(|flash| flash.found_session());
        self.keeping.left_by = other.map_or_else(|| self.items.tiers.sessions(), |other| vec![other]);
        let mut found = TakenUp { disagree: !self.items.tiers.agree(other), ..TakenUp::default() };
        for tier in 0..self.shard.ladder().residents().levels() as u8 {
            self.take_up_tier(tier, &mut found);
        }
        self.items.tiers.begin_session(self.config.session);
        self.keeping.taken_up = found;
        found
    }

    /// What [`Self::take_up`] found.
    pub fn taken_up(&self) -> TakenUp {
        self.keeping.taken_up
    }

    fn take_up_tier(&mut self, tier: u8, found: &mut TakenUp) {
        let mut page = 0;
        while page < self.items.tiers.kept_pages(tier) {
            let Some(form) = self.items.tiers.kept_form(tier, page) else {
                page += 1;
                continue;
            };
            let mut pages = 1;
            let (places, place_bytes) = form.places();
            for offset in places {
                let unit = (u64::from(page) * PAGE_BYTES + offset as u64) / UNIT_BYTES;
                let loc = Loc { tier, unit: unit as u32 };
                if !self.items.tiers.is_sealed(loc) {
                    continue;
                }
                if self.take_up_item(loc, place_bytes, found) {
                    found.items += 1;
                    pages = form.pages();
                } else {
                    self.items.tiers.unseal(loc);
                }
            }
            page += pages;
        }
    }

    /// Takes a sealed item up; `false`: its place is free.
    fn take_up_item(&mut self, loc: Loc, place_bytes: usize, found: &mut TakenUp) -> bool {
        let header = self.header(loc);
        // The value's length is 32 bits and the key's 16: this cannot overflow.
        if header.item_len() + TAIL_BYTES > place_bytes || header.db >= DATABASES {
            found.dropped += 1;
            return false;
        }
        let expires_at_ms = self.items.tiers.kept_expiry(loc, header.item_len());
        let key = self.items.tiers.bytes(loc, HEADER_BYTES, usize::from(header.key_len)).to_vec();
        let hash = self.items.hasher.hash(header.db, &key);
        if expires_at_ms.is_some_and(|at_ms| at_ms <= self.shard.now().unix_ms) {
            if header.unchanged {
                self.forget_expired_copy(header.db, hash);
            }
            found.expired += 1;
            return false;
        }
        // Twice: a death between the two halves of a move. They are the same.
        let tenant = self.tenant_for(header.db, &key);
        let entry = self.entry(hash, header, expires_at_ms, tenant);
        let adopted = match self.find(header.db, &key, hash) {
            Some(_) => None,
            None => self.shard.restore(loc, place_bytes as u64, &entry),
        };
        if adopted.is_none() {
            found.dropped += 1;
            return false;
        }
        self.keys[usize::from(header.db)] += 1;
        if !header.unchanged {
            // What flash has was overwritten, by a request that was perhaps never answered.
            self.supersede(header.db, hash);
        } else if self.shard.memory().place_below(hash).is_some() {
            // It was counted there.
            self.uncount(header.db);
        } else {
            Header::note_changed(self.items.tiers.bytes_mut(loc, HEADER_BYTES));
        }
        true
    }

    /// Forgets the copy on flash of an item whose time was over when it was found.
    fn forget_expired_copy(&mut self, db: u8, hash: u64) {
        if self.has_flash() && self.forget_on_flash(db, hash) {
            self.uncount(db);
        }
    }

    /// Writes everything back that outlives the process where it lies. Waits for the device.
    ///
    /// # Errors
    /// When it cannot be written: a restart finds it all the same, but not one after the machine was stopped.
    pub fn close_kept(&mut self) -> std::io::Result<()> {
        self.seal_changed();
        self.items.tiers.close_kept()
    }
}
