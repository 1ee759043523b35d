//! The engine over a flash tier: what leaves memory goes there, and is read back before the request that needs it runs.
//!
//! The engine never waits. Whoever runs a request first asks [`Engine::seek`] for each of its keys whether the flash tier
//! must be read for it; asks; and once all answers are there, stages them ([`Engine::stage`]) and runs the request, which
//! then finds them as if they were in memory. Reading a staged value leaves it on flash, unless it is hot; whatever
//! changes a key brings it into memory first. A request that replaces a value needs no answer: the copy on flash is
//! forgotten by the hash alone.
//!
//! Counted keys: a key counts once, wherever it lies. An item in memory whose header says `unchanged` lies on flash too.

use std::sync::Arc;
use std::task::Waker;

use tiermem_base::hash::KeyHasher;
use tiermem_model::advisor::Outcome;
use tiermem_policy::Id;
use tiermem_policy::index::Found;
use tiermem_policy::ladder::Loc;
use tiermem_policy::log::LogPlace;
use tiermem_tier::block::BlockIo;
use tiermem_tier::flash::{FetchId, Flash, FlashConfig, FlashError, Gone, Moment, Offer};

use super::item::{HEADER_BYTES, Header};
use super::staged::{Staged, StagedItems};
use super::{DATABASES, Engine, Hit, ItemRef, ValueKind};

/// Item references from here on name staged items.
const STAGED: u32 = u32::MAX - (1 << 20);

/// What the engine keeps of the tier below memory.
#[derive(Debug, Default)]
pub(super) struct Below {
    pub(super) flash: Option<Box<Flash>>,
    /// Its name in figures.
    pub(super) name: String,
    /// Items read from there for the request at hand.
    pub(super) staged: StagedItems,
    /// What the flash tier threw out in the step at hand.
    gone: Vec<Gone>,
    /// Where the search for a random key begins that a request waits for.
    pub(super) random_from: Option<u64>,
    /// Writers that wait for space there.
    choked: Vec<Waker>,
    /// Those whose replies wait until what they say is durable.
    undurable: Vec<(Moment, Waker)>,
    /// Items that went there from each tier.
    pub(super) sunk: Vec<u64>,
    /// Items that did not for lack of memory for their index entries.
    pub(super) unindexed: u64,
    /// When it was attached, in Unix milliseconds; 0 before the clock was set.
    pub(super) since_ms: u64,
    /// Bytes that the device bears to be written.
    pub(super) endurance_bytes: Option<u64>,
}

impl Below {
    /// Nothing below so many tiers.
    pub(super) fn of(tiers: usize) -> Self {
        Below { sunk: vec![0; tiers], ..Below::default() }
    }
}

/// A key that lies on flash: what to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Away {
    hash: u64,
    place: LogPlace,
    /// Its database, where it was asked for by its key.
    db: Option<u8>,
}

impl Away {
    /// The hash of its key; of one that a scan met only the first 40 bits.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether both mean the same bytes, however often they were hit.
    pub fn is_same(&self, other: &Away) -> bool {
        self.hash >> 24 == other.hash >> 24 && self.place.is_same(other.place)
    }
}

impl Engine {
    /// Puts a flash tier below the others; before anything is stored. What the device holds from before is there then.
    /// `endurance_bytes` is what the device bears to be written, for the estimate of its life.
    ///
    /// # Errors
    /// When the device cannot be read or holds something else.
    pub fn attach_flash(
        &mut self,
        name: &str,
        endurance_bytes: Option<u64>,
        io: Box<dyn BlockIo>,
        config: &FlashConfig,
    ) -> Result<(), FlashError> {
        let hash = |seed: u64, word: &[u8]| KeyHasher::stable(seed).hash(0, word);
        // All that outlives the process is marked as one run's, so that a later one knows what belongs together.
        let config = FlashConfig { session: self.config.session, ..config.clone() };
        let flash = Flash::open(io, &config, hash, &mut self.index)?;
        self.hasher = KeyHasher::stable(flash.hash_seed());
        self.keys.copy_from_slice(&flash.items()[..usize::from(DATABASES)]);
        self.charge_index();
        self.below.flash = Some(Box::new(flash));
        (self.below.name, self.below.endurance_bytes) = (name.to_owned(), endurance_bytes);
        self.report_outlet();
        Ok(())
    }

    /// Tells the ladder what index and flash tier take of tier 0.
    #[inline]
    pub(super) fn charge_index(&mut self) {
        let flash_bytes = self.below.flash.as_ref().map_or(0, |flash| flash.metadata_bytes());
        let bytes = self.index.bytes() + flash_bytes + self.divider.metadata_bytes();
        self.ladder.set_index_bytes(bytes, self.index.growth_bytes());
    }

    /// Whether there is a flash tier.
    #[inline]
    pub fn has_flash(&self) -> bool {
        self.below.flash.is_some()
    }

    /// Whom to wake, from any thread, when [`Self::advance_flash`] has something to do.
    pub fn notify_flash(&mut self, waker: Arc<dyn Fn() + Send + Sync>) {
        if let Some(flash) = &mut self.below.flash {
            flash.notify(waker);
        }
    }

    /// Whether writers should wait until the flash tier has caught up.
    #[inline]
    pub fn is_choked(&self) -> bool {
        self.ladder.must_wait()
    }

    /// Tells the ladder how the flash tier stands.
    #[inline]
    pub(super) fn report_outlet(&mut self) {
        if let Some(flash) = &self.below.flash {
            let outlet = flash.outlet(self.ladder.items(), self.item_bytes.iter().sum());
            self.ladder.set_outlet(outlet);
        }
    }

    /// Has a writer woken when there is space again.
    pub fn wake_when_unchoked(&mut self, waker: &Waker) {
        if !self.below.choked.iter().any(|choked| choked.will_wake(waker)) {
            self.below.choked.push(waker.clone());
        }
    }

    /// Takes what the device has done, and goes on with the flash tier's own work.
    pub fn advance_flash(&mut self) {
        let Some(flash) = &mut self.below.flash else { return };
        if self.below.since_ms == 0 {
            self.below.since_ms = self.now.unix_ms;
        }
        flash.advance(&mut self.index, self.now.unix_ms, &mut self.rng, &mut self.below.gone);
        let mut gone = std::mem::take(&mut self.below.gone);
        gone.drain(..).for_each(|gone| self.lose(gone));
        self.below.gone = gone;
        self.report_outlet();
        if !self.below.choked.is_empty() && !self.is_choked() {
            self.below.choked.drain(..).for_each(Waker::wake);
        }
        let Below { flash: Some(flash), undurable, .. } = &mut self.below else { return };
        undurable.extract_if(.., |(moment, _)| flash.is_durable(*moment)).for_each(|(_, waker)| waker.wake());
    }

    /// Waits until the flash tier has caught up: for callers that have nothing else to do.
    pub(super) fn await_flash(&mut self) {
        while self.is_choked() {
            if let Some(flash) = &mut self.below.flash {
                flash.wait();
            }
            self.advance_flash();
        }
    }

    /// Takes an item out of the accounts that has left the flash tier; unless memory has it too, and counts it.
    fn lose(&mut self, gone: Gone) {
        let copy = self.index.find(gone.hash, |id| self.header(self.ladder.loc(id)).unchanged);
        if let Some(id) = copy {
            let loc = self.ladder.loc(id);
            return Header::note_changed(self.tiers.bytes_mut(loc, HEADER_BYTES));
        }
        // Where nobody knows the database, the fullest one is the likeliest.
        let fullest = || (0..DATABASES).max_by_key(|&db| self.keys[usize::from(db)]).unwrap_or(0);
        let db = gone.db.unwrap_or_else(fullest);
        self.uncount(db);
        self.expired_on_access += u64::from(gone.expired);
    }

    /// Hands to the device what was decided, and writes what a restart must know. Before replies are sent; they wait until
    /// the moment returned [is durable](Self::is_durable).
    #[inline]
    pub fn commit(&mut self) -> Moment {
        self.seal_changed();
        self.below.flash.as_mut().map_or_else(Moment::default, |flash| flash.commit())
    }

    /// Whether what was promised by that moment survives what it is to survive.
    #[inline]
    pub fn is_durable(&self, moment: Moment) -> bool {
        self.below.flash.as_ref().is_none_or(|flash| flash.is_durable(moment))
    }

    /// Wakes `waker` when it does, unless it does already.
    pub fn wake_when_durable(&mut self, moment: Moment, waker: &Waker) {
        if !self.is_durable(moment) {
            self.below.undurable.push((moment, waker.clone()));
        }
    }

    /// Once a second or so: what is half written is written.
    pub fn tick_flash(&mut self) {
        if let Some(flash) = &mut self.below.flash {
            flash.tick();
        }
    }

    /// Writes everything that a restart needs. Waits for the device.
    pub fn close_flash(&mut self) -> Result<(), FlashError> {
        match &mut self.below.flash {
            Some(flash) => flash.close(&mut self.index),
            None => Ok(()),
        }
    }

    /// Whether the flash tier must be read before a request that looks at `key` can run.
    #[inline]
    pub fn seek(&self, db: u8, key: &[u8]) -> Option<Away> {
        self.below.flash.as_ref()?;
        let hash = self.hasher.hash(db, key);
        let place = self.index.find_log(hash)?;
        self.find(db, key, hash).is_none().then_some(Away { hash, place, db: Some(db) })
    }

    /// Asks for an item. The question ends with [`Self::stage`] or [`Self::cancel`].
    pub fn ask(&mut self, away: Away) -> Option<FetchId> {
        Some(self.below.flash.as_mut()?.ask(away.hash, away.place))
    }

    /// Whether the answer is there; if not, `waker` is woken when it is.
    pub fn is_answered(&mut self, id: FetchId, waker: &Waker) -> bool {
        self.below.flash.as_mut().is_none_or(|flash| flash.is_ready(id, Some(waker)))
    }

    /// Takes an answer that is there, for the request that runs next. `false`: the item lies elsewhere by now, seek again.
    pub fn stage(&mut self, away: Away, id: FetchId) -> bool {
        let Some(flash) = &mut self.below.flash else { return true };
        let current = flash.is_current(id)
            && self.index.find_log(away.hash).is_some_and(|place| place.is_same(away.place));
        let item = flash.take(id);
        match item {
            Some(item) if current => self.below.staged.push(Staged { hash: item.header.hash, item }),
            // What was promised is not there: lost in a crash, or damaged.
            None if current => {
                flash.count_lost();
                let fullest = || (0..DATABASES).max_by_key(|&db| self.keys[usize::from(db)]).unwrap_or(0);
                let db = away.db.unwrap_or_else(fullest);
                if self.forget_on_flash(db, away.hash) {
                    self.lose(Gone { hash: away.hash, db: Some(db), expired: false });
                }
            }
            _ => return false,
        }
        true
    }

    /// Ends the request that staged items were for.
    #[inline]
    pub fn unstage(&mut self) {
        if !self.below.staged.is_empty() {
            self.below.staged.clear();
        }
    }

    /// An answer is not wanted any more.
    pub fn cancel(&mut self, id: FetchId) {
        if let Some(flash) = &mut self.below.flash {
            flash.cancel(id);
        }
    }

    /// Stages `key`, waiting for the device: for callers that have nothing else to do.
    pub fn resolve(&mut self, db: u8, key: &[u8]) {
        self.prepare();
        self.recall(db, key);
    }

    /// Stages `key` if it lies on flash alone.
    fn recall(&mut self, db: u8, key: &[u8]) {
        while let Some(away) = self.seek(db, key) {
            if self.below.staged.find(away.hash).is_some() {
                return;
            }
            let Some(id) = self.ask(away) else { return };
            while !self.is_answered(id, Waker::noop()) {
                if let Some(flash) = &mut self.below.flash {
                    flash.wait();
                }
                self.advance_flash();
            }
            self.stage(away, id);
        }
    }

    /// The staged item of this key, if its time is not over and its database was not flushed since.
    fn find_staged(&mut self, db: u8, key: &[u8], hash: u64) -> Option<usize> {
        let found = self.below.staged.find(hash)?;
        let staged = self.below.staged.get(found)?;
        let header = staged.item.header;
        if staged.hash != hash || header.db != db || staged.item.key() != key {
            return None;
        }
        let expired = header.expires_at_ms != 0 && header.expires_at_ms <= self.now.unix_ms;
        let flushed = self.below.flash.as_ref().is_some_and(|flash| flash.is_flushed(&header));
        if !expired && !flushed {
            return Some(found);
        }
        self.below.staged.remove(found);
        if self.forget_on_flash(db, hash) {
            self.uncount(db);
            self.expired_on_access += u64::from(expired);
        }
        if expired {
            self.note_gone(db, key, hash);
        }
        None
    }

    /// Reads a staged item as a look-up does; it moves into memory if it is hot.
    pub(super) fn get_staged(&mut self, db: u8, key: &[u8], hash: u64) -> Option<Hit<'_>> {
        let found = self.has_staged(db, key, hash).then(|| self.find_staged(db, key, hash)).flatten();
        self.note_look_up(db, key, hash, if found.is_some() { Outcome::Below } else { Outcome::Nowhere });
        let at = found?;
        self.get_hits += 1;
        let place = self.index.find_log(hash);
        let flash = self.below.flash.as_mut()?;
        let reuse = place.and_then(|place| flash.hit(&mut self.index, hash, place, self.now.requests));
        let len = HEADER_BYTES as u64 + self.below.staged.get(at)?.item.header.item_len() as u64;
        if self.ladder.wants(reuse, len)
            && let Some(id) = self.unstage_into_memory(db, key, hash)
        {
            if let Some(flash) = &mut self.below.flash {
                flash.promoted();
            }
            return Some(self.hit(id));
        }
        // Where memory had no room for it, it stands elsewhere among the staged now.
        let at = self.find_staged(db, key, hash)?;
        self.staged_hit(at)
    }

    /// Reads a staged item without counting.
    pub(super) fn peek_staged(&mut self, db: u8, key: &[u8], hash: u64) -> Option<Hit<'_>> {
        self.has_staged(db, key, hash).then_some(())?;
        let at = self.find_staged(db, key, hash)?;
        self.staged_hit(at)
    }

    /// Whether anything is staged for a key that is not in memory. An earlier key of the same request may have driven it out
    /// since it was seen there: then it is read now, and waited for.
    #[inline]
    pub(super) fn has_staged(&mut self, db: u8, key: &[u8], hash: u64) -> bool {
        if self.has_flash() && self.index.find_log(hash).is_some() {
            self.recall(db, key);
        }
        !self.below.staged.is_empty()
    }

    fn staged_hit(&self, at: usize) -> Option<Hit<'_>> {
        let item = &self.below.staged.get(at)?.item;
        let kind = ValueKind::from_byte(item.header.kind);
        Some(Hit { value: item.value(), kind, item: ItemRef(Id(STAGED + at as u32)) })
    }

    /// The value of a staged item; `None` for items in memory.
    #[inline]
    pub(super) fn staged_value(&self, item: ItemRef) -> Option<&[u8]> {
        let at = item.0.0.checked_sub(STAGED)?;
        Some(self.below.staged.get(at as usize)?.item.value())
    }

    /// When a staged item expires.
    pub(super) fn staged_expiry(&mut self, db: u8, key: &[u8], hash: u64) -> Option<Option<u64>> {
        self.has_staged(db, key, hash).then_some(())?;
        let at = self.find_staged(db, key, hash)?;
        let at_ms = self.below.staged.get(at)?.item.header.expires_at_ms;
        Some((at_ms != 0).then_some(at_ms))
    }

    /// Removes a staged item; whether it was there.
    pub(super) fn remove_staged(&mut self, db: u8, key: &[u8], hash: u64) -> bool {
        let at = self.has_staged(db, key, hash).then(|| self.find_staged(db, key, hash)).flatten();
        let Some(at) = at else { return false };
        self.below.staged.remove(at);
        if self.forget_on_flash(db, hash) {
            self.uncount(db);
        }
        true
    }

    /// Copies a staged item into memory. It stays on flash as well, and its header says so.
    #[cold]
    pub(super) fn unstage_into_memory(&mut self, db: u8, key: &[u8], hash: u64) -> Option<Id> {
        let at = self.find_staged(db, key, hash)?;
        let Staged { item, .. } = self.below.staged.remove(at);
        let header = Header {
            value_len: item.header.value_len,
            key_len: item.header.key_len,
            db,
            kind: ValueKind::from_byte(item.header.kind),
            unchanged: true,
        };
        let expires_at_ms = (item.header.expires_at_ms != 0).then_some(item.header.expires_at_ms);
        let tenant = self.tenant_for(db, key);
        let Ok((id, loc)) = self.enter(hash, header, expires_at_ms, None, tenant) else {
            self.below.staged.push(Staged { hash, item });
            return None;
        };
        if self.index.find_log(hash).is_some() {
            // It was counted when it lay on flash alone.
            self.uncount(db);
        }
        self.prepare_place(loc, header);
        let bytes = self.tiers.bytes_mut(loc, header.item_len());
        header.write(bytes);
        bytes[HEADER_BYTES..header.value_offset()].copy_from_slice(key);
        bytes[header.value_offset()..].copy_from_slice(item.value());
        self.seal_item(loc, header, expires_at_ms);
        self.tiers.charge_write(loc.tier, header.item_len());
        Some(id)
    }

    /// Forgets the copy on flash of an item in memory that is about to change or go.
    #[inline]
    pub(super) fn forget_copy(&mut self, id: Id, hash: u64) {
        if self.below.flash.is_none() {
            return;
        }
        let loc = self.ladder.loc(id);
        let header = self.header(loc);
        if header.unchanged {
            Header::note_changed(self.tiers.bytes_mut(loc, HEADER_BYTES));
            self.forget_on_flash(header.db, hash);
        }
    }

    /// Forgets what lies on flash under the hash of a key that has just got a value in memory, unseen.
    #[inline]
    pub(super) fn supersede(&mut self, db: u8, hash: u64) {
        // What was read for this request is not the key's value any more, should the new one go as well.
        if let Some(at) = self.below.staged.find(hash)
            && self.below.staged.get(at).is_some_and(|staged| staged.hash == hash)
        {
            self.below.staged.remove(at);
        }
        if self.below.flash.is_some() && self.forget_on_flash(db, hash) {
            // The key was counted there, and is counted here.
            self.uncount(db);
        }
    }

    /// Forgets the copy on flash of an item whose time is over.
    pub(super) fn forget_expired(&mut self, db: u8, hash: u64) {
        self.forget_on_flash(db, hash);
    }

    pub(super) fn forget_on_flash(&mut self, db: u8, hash: u64) -> bool {
        let counted = self.below.flash.as_mut().is_some_and(|flash| flash.forget(&mut self.index, hash, db));
        self.charge_index();
        counted
    }

    /// Offers an item that leaves memory at `loc` to the flash tier; whether it lies there now.
    pub(super) fn offer(
        &mut self,
        header: Header,
        loc: Loc,
        hash: u64,
        expires_at_ms: Option<u64>,
        last_used: u64,
    ) -> bool {
        let Some(flash) = &mut self.below.flash else { return false };
        if !header.unchanged && !self.ladder.may_grow() {
            // Another index entry would take memory that tier 0 does not give.
            self.below.unindexed += 1;
            return false;
        }
        let len = header.item_len() - HEADER_BYTES;
        let offer = Offer {
            hash,
            db: header.db,
            kind: header.kind.byte(),
            key_and_value: self.tiers.bytes(loc, HEADER_BYTES, len),
            key_len: header.key_len,
            expires_at_ms,
            last_used,
            unchanged: header.unchanged,
        };
        let taken = flash.offer(&mut self.index, &offer).is_taken();
        self.report_outlet();
        self.charge_index();
        taken
    }

    /// Flushes the flash tier's part of one database, or of all.
    pub(super) fn flush_on_flash(&mut self, db: Option<u8>) {
        if let Some(flash) = &mut self.below.flash {
            flash.flush(db);
        }
    }

    /// Takes all log entries out of the index, after a flush of all databases; their segments are free already.
    pub(super) fn forget_log_entries(&mut self) {
        let mut hashes = Vec::with_capacity(self.index.log_len() as usize);
        self.index.scan(0, usize::MAX, |hash, found| {
            if let Found::Log(_) = found {
                hashes.push(hash);
            }
        });
        for hash in hashes {
            self.index.remove_log(hash);
        }
        self.charge_index();
    }

    /// Keys that lie on flash, those that are in memory as well among them.
    pub fn keys_on_flash(&self) -> u64 {
        self.index.log_len()
    }

    /// What a scan of about `count` keys from `cursor` must read first.
    pub fn seek_scan(&self, cursor: u64, count: usize) -> Vec<Away> {
        let mut away = Vec::new();
        if self.below.flash.is_some() {
            self.index.scan(cursor, count.max(1), |hash, found| {
                if let Found::Log(place) = found {
                    away.push(Away { hash, place, db: None });
                }
            });
        }
        away
    }

    /// Visits the staged item with these 40 bits of its hash, unless it is in memory too.
    pub(super) fn visit_staged(&self, db: u8, hash: u64, visit: &mut dyn FnMut(&[u8], ValueKind)) {
        let staged = &self.below.staged;
        let Some(Staged { item, .. }) = staged.find(hash).and_then(|at| staged.get(at)) else { return };
        let header = &item.header;
        let expired = header.expires_at_ms != 0 && header.expires_at_ms <= self.now.unix_ms;
        let flushed = self.below.flash.as_ref().is_some_and(|flash| flash.is_flushed(header));
        if header.db == db && !expired && !flushed && self.find(db, item.key(), header.hash).is_none() {
            visit(item.key(), ValueKind::from_byte(header.kind));
        }
    }
}
