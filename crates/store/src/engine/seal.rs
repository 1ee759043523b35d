//! Seals of items that outlive the process in place: sealing items, and restoring them at the start.
//!
//! In a persistent tier ([`Tiers::keeps`]) an item is valid while it is sealed. So the seal is broken before
//! anything of the item changes, and set when all of it is written, expiry included. An acknowledged change is
//! sealed or unsealed before its reply: every method of the engine ensures this, except for values changed in
//! place. Their seal waits for `Engine::commit`, since only the caller knows when such a change is complete.
//!
//! Removing an item breaks its seal before another version of the key is sealed, or announced on flash. So
//! of one key there are never two sealed versions that differ. Where flash has the key too, either both are
//! the same, or the one on flash was overwritten by a request without a reply yet: memory takes precedence.

use crate::tiers::TAIL_BYTES;
use crate::tiers::Tiers;
use tiermem_policy::Id;
use tiermem_policy::ladder::{Loc, Residents};

use super::item::{HEADER_BYTES, Header};

/// The seals of items in persistent tiers. The owner of the tiers lends them.
#[derive(Debug, Default)]
pub struct Keeping {
    /// [`Tiers::keeping`].
    kept_tiers: u8,
    /// Bytes behind each item, in all tiers, since any may move to one that keeps it.
    tail_bytes: usize,
    /// The item with a value that is being changed in place, unsealed.
    changing: Option<(Id, Loc)>,
    /// Names this run in everything that outlives it.
    session: [u8; 16],
    /// What was there at the start.
    taken_up: TakenUp,
    /// The run that left it, or two of which one did; none where nothing was left.
    left_by: Vec<[u8; 16]>,
}

impl Keeping {
    pub(super) fn over(tiers: &Tiers, session: [u8; 16]) -> Self {
        let tail_bytes = if tiers.keeping() == 0 { 0 } else { TAIL_BYTES };
        Keeping { kept_tiers: tiers.keeping(), tail_bytes, session, ..Keeping::default() }
    }

    /// The name of this run.
    pub fn session(&self) -> [u8; 16] {
        self.session
    }

    /// Items restored at the start.
    pub fn taken_up(&self) -> TakenUp {
        self.taken_up
    }

    /// Whether a snapshot of the run `session` can be of the state that everything else here was left in.
    pub fn follows(&self, session: [u8; 16]) -> bool {
        self.left_by.is_empty() || self.left_by.contains(&session)
    }

    /// Notes the runs that left what is there at the start.
    pub(super) fn set_left_by(&mut self, runs: Vec<[u8; 16]>) {
        self.left_by = runs;
    }

    /// Notes what was there at the start.
    pub(super) fn set_taken_up(&mut self, found: TakenUp) {
        self.taken_up = found;
    }

    /// Bytes behind each item.
    #[inline]
    pub(super) fn tail_bytes(&self) -> usize {
        self.tail_bytes
    }

    /// Bytes of the place that an item needs.
    #[inline]
    pub(super) fn place_len(&self, header: Header) -> u64 {
        (header.item_len() + self.tail_bytes) as u64
    }

    /// Before an item is written to a place.
    #[inline]
    pub(super) fn prepare(&self, tiers: &mut Tiers, residents: &Residents, loc: Loc, header: Header) {
        if tiers.keeps(loc.tier) {
            self.prepare_kept(tiers, residents, loc, header);
        }
    }

    #[cold]
    fn prepare_kept(&self, tiers: &mut Tiers, residents: &Residents, loc: Loc, header: Header) {
        tiers.prepare(loc, residents.classes().place_bytes(self.place_len(header)));
    }

    /// When all of an item is written.
    #[inline]
    pub(super) fn seal(&mut self, tiers: &mut Tiers, loc: Loc, header: Header, expires_at_ms: Option<u64>) {
        if tiers.keeps(loc.tier) {
            self.seal_kept(tiers, loc, header, expires_at_ms);
        }
    }

    #[cold]
    fn seal_kept(&mut self, tiers: &mut Tiers, loc: Loc, header: Header, expires_at_ms: Option<u64>) {
        self.end_change(loc);
        tiers.seal(loc, header.item_len(), expires_at_ms);
    }

    /// When the place is not the item's any more.
    #[inline]
    pub(super) fn unseal(&mut self, tiers: &mut Tiers, loc: Loc) {
        if tiers.keeps(loc.tier) {
            self.unseal_kept(tiers, loc);
        }
    }

    #[cold]
    fn unseal_kept(&mut self, tiers: &mut Tiers, loc: Loc) {
        self.end_change(loc);
        tiers.unseal(loc);
    }

    fn end_change(&mut self, loc: Loc) {
        self.changing = self.changing.filter(|(_, changing)| *changing != loc);
    }

    /// Before an item's value is changed where it lies; until the next such change, or until [`Self::seal_changed`].
    #[inline]
    pub(super) fn unseal_to_change(
        &mut self,
        tiers: &mut Tiers,
        residents: &Residents,
        (id, loc): (Id, Loc),
    ) {
        if tiers.keeps(loc.tier) && self.changing != Some((id, loc)) {
            self.seal_changed(tiers, residents);
            self.unseal_kept(tiers, loc);
            self.changing = Some((id, loc));
        }
    }

    /// When a change is complete.
    #[inline]
    pub(super) fn seal_changed(&mut self, tiers: &mut Tiers, residents: &Residents) {
        if let Some((id, _)) = self.changing {
            self.seal_again(tiers, residents, id);
        }
    }

    /// Writes an item's expiry down where that has to be.
    #[cold]
    pub(super) fn seal_again(&mut self, tiers: &mut Tiers, residents: &Residents, id: Id) {
        let loc = residents.nodes().loc(id);
        if tiers.keeps(loc.tier) {
            tiers.unseal(loc);
            let header = Header::read(tiers.bytes(loc, 0, HEADER_BYTES));
            self.seal_kept(tiers, loc, header, residents.nodes().expires_at_ms(id));
        }
    }

    /// Seals what has moved at its new place, and then only breaks the seal of the old one: death in between leaves two that
    /// are the same.
    #[inline]
    pub(super) fn seal_moved(
        &mut self,
        tiers: &mut Tiers,
        (from, to): (Loc, Loc),
        bytes: u64,
        expires_at_ms: Option<u64>,
    ) {
        if self.kept_tiers & (1 << from.tier | 1 << to.tier) != 0 {
            self.seal_kept_move(tiers, (from, to), bytes, expires_at_ms);
        }
    }

    #[cold]
    fn seal_kept_move(
        &mut self,
        tiers: &mut Tiers,
        (from, to): (Loc, Loc),
        bytes: u64,
        expires_at_ms: Option<u64>,
    ) {
        if tiers.keeps(to.tier) {
            tiers.seal(to, bytes as usize, expires_at_ms);
        }
        self.unseal(tiers, from);
    }

    /// Empties the regions.
    pub(super) fn forget(&mut self, tiers: &mut Tiers) {
        self.changing = None;
        tiers.forget_kept();
    }
}

/// Counts of items restored in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakenUp {
    /// Items that are back.
    pub items: u64,
    /// Expired items.
    pub expired: u64,
    /// Items that were there twice, make no sense, or found no room for their metadata.
    pub dropped: u64,
    /// Whether everything was dropped, since the regions and the flash tier are not of one run.
    pub disagree: bool,
}
