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
use tiermem_policy::log::{Appended, LogPlace, Stream};
use tiermem_policy::shard::{self, Act, From, Shard, Why};
use tiermem_tier::block::BlockIo;
use tiermem_tier::flash::format::{ITEM_HEADER_BYTES, ItemHeader};
use tiermem_tier::flash::{FetchId, Flash, FlashConfig, FlashError, Moment};

use super::item::{HEADER_BYTES, Header};
use super::staged::{Staged, StagedItems};
use super::{DATABASES, Engine, Hit, ItemRef, Memory, ValueKind};

/// Item references from here on name staged items.
const STAGED: u32 = u32::MAX - (1 << 20);

/// What the engine keeps of the tier below memory.
#[derive(Debug, Default)]
pub(super) struct Below {
    /// Its name in figures.
    pub(super) name: String,
    /// Items read from there for the request at hand.
    pub(super) staged: StagedItems,
    /// Where the search for a random key begins that a request waits for.
    pub(super) random_from: Option<u64>,
    /// Writers that wait for space there.
    choked: Vec<Waker>,
    /// Those whose replies wait until what they say is durable.
    undurable: Vec<(Moment, Waker)>,
    /// When it was attached, in Unix milliseconds; 0 before the clock was set.
    pub(super) since_ms: u64,
    /// Bytes that the device bears to be written.
    pub(super) endurance_bytes: Option<u64>,
}

/// A key that lies on flash: what to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Away {
    below: shard::Away,
    /// Its database, where it was asked for by its key.
    db: Option<u8>,
}

impl Away {
    /// The hash of its key; of one that a scan met only the first 40 bits.
    pub fn hash(&self) -> u64 {
        self.below.hash
    }

    /// Whether both mean the same bytes, however often they were hit.
    pub fn is_same(&self, other: &Away) -> bool {
        self.below.is_same(&other.below)
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
        let (flash, state) = Flash::open(io, &config, hash)?;
        self.items.hasher = KeyHasher::stable(flash.hash_seed());
        self.keys.copy_from_slice(&flash.items()[..usize::from(DATABASES)]);
        self.items.flash = Some(Box::new(flash));
        (self.below.name, self.below.endurance_bytes) = (name.to_owned(), endurance_bytes);
        self.shard.attach_log(state);
        Ok(())
    }

    /// Whether there is a flash tier.
    #[inline]
    pub fn has_flash(&self) -> bool {
        self.items.flash.is_some()
    }

    /// Whom to wake, from any thread, when [`Self::advance_flash`] has something to do.
    pub fn notify_flash(&mut self, waker: Arc<dyn Fn() + Send + Sync>) {
        if let Some(flash) = &mut self.items.flash {
            flash.notify(waker);
        }
    }

    /// Whether writers should wait until the flash tier has caught up.
    #[inline]
    pub fn is_choked(&self) -> bool {
        self.shard.ladder().transit().outlet().must_wait()
    }

    /// Has a writer woken when there is space again.
    pub fn wake_when_unchoked(&mut self, waker: &Waker) {
        if !self.below.choked.iter().any(|choked| choked.will_wake(waker)) {
            self.below.choked.push(waker.clone());
        }
    }

    /// Takes what the device has done, and goes on with the flash tier's own work.
    pub fn advance_flash(&mut self) {
        if !self.has_flash() {
            return;
        }
        let now_ms = self.shard.now().unix_ms;
        if self.below.since_ms == 0 {
            self.below.since_ms = now_ms;
        }
        self.tell_flash(|flash, shard| flash.take_done(shard, now_ms));
        self.shard.advance(&mut self.rng);
        self.carry_out();
        self.tell_flash(Flash::step_checkpoint);
        self.carry_out();
        self.tell_flash(|flash, _| flash.submit());
        if !self.below.choked.is_empty() && !self.is_choked() {
            self.below.choked.drain(..).for_each(Waker::wake);
        }
        let Some(flash) = &self.items.flash else { return };
        let undurable = &mut self.below.undurable;
        undurable.extract_if(.., |(moment, _)| flash.is_durable(*moment)).for_each(|(_, waker)| waker.wake());
    }

    fn tell_flash(&mut self, tell: impl FnOnce(&mut Flash, &mut Shard)) {
        if let Some(flash) = &mut self.items.flash {
            tell(flash, &mut self.shard);
        }
    }

    /// Has the flash tier do what the shard has decided.
    pub(super) fn ask_flash(&mut self, act: Act) {
        let Some(flash) = &mut self.items.flash else { return };
        match act {
            Act::Seal { segment } => flash.seal(segment),
            Act::Write { segment, start, end } => flash.write(segment, start, end),
            Act::Read { segment } => flash.read(segment),
            Act::Free { segment } => flash.free(segment),
            _ => {}
        }
    }

    /// Writes an item to its place on flash.
    pub(super) fn append(&mut self, from: From, to: &Appended, hash: u64, replaced: Option<LogPlace>) {
        let Memory { tiers, flash: Some(flash), .. } = &mut self.items else { return };
        let (loc, expires_at_ms) = match from {
            From::Segment { at, .. } => return flash.append_survivor(to, at),
            From::Memory { loc, expires_at_ms, .. } => (loc, expires_at_ms),
        };
        let header = Header::read(tiers.bytes(loc, 0, HEADER_BYTES));
        let Header { value_len, key_len, db, kind, .. } = header;
        let (kind, expires_at_ms) = (kind.byte(), expires_at_ms.unwrap_or(0));
        let below = ItemHeader { sequence: 0, hash, value_len, key_len, db, kind, expires_at_ms };
        let key_and_value = tiers.bytes(loc, HEADER_BYTES, header.item_len() - HEADER_BYTES);
        flash.append(to, Stream::Fresh, below, key_and_value);
        tiers.charge_read(loc.tier, header.value_offset());
        if let Some(replaced) = replaced {
            // Another key with the same 40 bits must not come back.
            self.retire(hash, replaced, db);
        }
        self.unseal_item(loc);
    }

    /// Takes an item out of the flash tier's accounts that has left the index. Whether it counted.
    pub(super) fn retire(&mut self, hash: u64, place: LogPlace, db: u8) -> bool {
        let Some(filling) = self.shard.log().map(|log| log.filling_of(place)) else { return false };
        self.items.flash.as_mut().is_some_and(|flash| flash.retire(hash, place, filling, db))
    }

    /// Waits until the flash tier has caught up: for callers that have nothing else to do.
    pub(super) fn await_flash(&mut self) {
        while self.is_choked() {
            self.tell_flash(|flash, _| flash.wait());
            self.advance_flash();
        }
    }

    /// An item has left the flash tier, from this place. Its key is gone, unless memory has it too, and counts it.
    pub(super) fn lose(&mut self, hash: u64, (place, at): (LogPlace, u32), why: Why, has_copy: bool) {
        let (segment, sequence) = self.shard.log().map_or((0, 0), |log| log.filling_of(place));
        let header = self.items.flash.as_ref().filter(|_| why != Why::Lost);
        let header = header.and_then(|flash| flash.header_at(segment, sequence, at));
        // Whose database it was nobody can read any more: the fullest one is the likeliest.
        let db = header.map_or_else(|| self.fullest(), |header| header.db);
        let counted = self.retire(hash, place, db);
        if why == Why::Lost {
            self.tell_flash(|flash, _| flash.count_lost());
        }
        if counted && !has_copy {
            self.uncount(db);
            self.expired_on_access += u64::from(why == Why::Expired);
        }
    }

    fn fullest(&self) -> u8 {
        (0..DATABASES).max_by_key(|&db| self.keys[usize::from(db)]).unwrap_or(0)
    }

    /// Hands to the device what was decided, and writes what a restart must know. Before replies are sent; they wait until
    /// the moment returned [is durable](Self::is_durable).
    #[inline]
    pub fn commit(&mut self) -> Moment {
        self.seal_changed();
        self.items.flash.as_mut().map_or_else(Moment::default, |flash| flash.commit())
    }

    /// Whether what was promised by that moment survives what it is to survive.
    #[inline]
    pub fn is_durable(&self, moment: Moment) -> bool {
        self.items.flash.as_ref().is_none_or(|flash| flash.is_durable(moment))
    }

    /// Wakes `waker` when it does, unless it does already.
    pub fn wake_when_durable(&mut self, moment: Moment, waker: &Waker) {
        if !self.is_durable(moment) {
            self.below.undurable.push((moment, waker.clone()));
        }
    }

    /// Once a second or so: what is half written is written.
    pub fn tick_flash(&mut self) {
        self.shard.device().write_out(false);
        self.carry_out();
        self.tell_flash(|flash, _| flash.tick());
    }

    /// Writes everything that a restart needs. Waits for the device.
    pub fn close_flash(&mut self) -> Result<(), FlashError> {
        self.shard.device().write_out(true);
        self.carry_out();
        self.items.flash.as_mut().map_or(Ok(()), |flash| flash.close(&mut self.shard))
    }

    /// Whether the flash tier must be read before a request that looks at `key` can run.
    #[inline]
    pub fn seek(&self, db: u8, key: &[u8]) -> Option<Away> {
        self.items.flash.as_ref()?;
        let hash = self.items.hasher.hash(db, key);
        let below = self.shard.seek(hash, (db, key), &self.items)?;
        Some(Away { below, db: Some(db) })
    }

    /// Asks for an item. The question ends with [`Self::stage`] or [`Self::cancel`].
    pub fn ask(&mut self, away: Away) -> Option<FetchId> {
        Some(self.items.flash.as_mut()?.ask(&away.below))
    }

    /// Whether the answer is there; if not, `waker` is woken when it is.
    pub fn is_answered(&mut self, id: FetchId, waker: &Waker) -> bool {
        self.items.flash.as_mut().is_none_or(|flash| flash.is_ready(id, Some(waker)))
    }

    /// Takes an answer that is there, for the request that runs next. `false`: the item lies elsewhere by now, seek again.
    pub fn stage(&mut self, away: Away, id: FetchId) -> bool {
        let Some(flash) = &mut self.items.flash else { return true };
        let is_current = self.shard.stage(&away.below) == shard::Staged::Here;
        match flash.take(id) {
            Some(item) if is_current => self.below.staged.push(Staged { hash: item.header.hash, item }),
            // What was promised is not there: lost in a crash, or damaged.
            None if is_current => {
                flash.count_lost();
                let db = away.db.unwrap_or_else(|| self.fullest());
                self.give_up_below(db, away.below.hash);
            }
            _ => return false,
        }
        true
    }

    /// An item is not where the flash tier should have it.
    fn give_up_below(&mut self, db: u8, hash: u64) {
        let counted = self.forget_on_flash(db, hash);
        if counted && !self.shard.device().note_lost(hash, &mut self.items) {
            self.uncount(db);
        }
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
        if let Some(flash) = &mut self.items.flash {
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
            if self.below.staged.find(away.hash()).is_some() {
                return;
            }
            let Some(id) = self.ask(away) else { return };
            while !self.is_answered(id, Waker::noop()) {
                self.tell_flash(|flash, _| flash.wait());
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
        let expired = header.expires_at_ms != 0 && header.expires_at_ms <= self.shard.now().unix_ms;
        let flushed = self.items.flash.as_ref().is_some_and(|flash| flash.is_flushed(&header));
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
        let bytes = self.below.staged.get(at)?.item.header.item_len() - ITEM_HEADER_BYTES + HEADER_BYTES;
        if self.shard.hit_below(hash, bytes as u64)
            && let Some(id) = self.unstage_into_memory(db, key, hash)
        {
            self.shard.promoted();
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
        if self.has_flash() && self.shard.memory().place_below(hash).is_some() {
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
        let entry = self.entry(hash, header, expires_at_ms, tenant);
        let Ok((id, loc)) = self.enter(&entry, db) else {
            self.below.staged.push(Staged { hash, item });
            return None;
        };
        if self.shard.memory().place_below(hash).is_some() {
            // It was counted when it lay on flash alone.
            self.uncount(db);
        }
        self.prepare_place(loc, header);
        let bytes = self.items.tiers.bytes_mut(loc, header.item_len());
        header.write(bytes);
        bytes[HEADER_BYTES..header.value_offset()].copy_from_slice(key);
        bytes[header.value_offset()..].copy_from_slice(item.value());
        self.seal_item(loc, header, expires_at_ms);
        self.items.tiers.charge_write(loc.tier, header.item_len());
        Some(id)
    }

    /// Forgets the copy on flash of an item in memory that is about to change or go.
    #[inline]
    pub(super) fn forget_copy(&mut self, id: Id, hash: u64) {
        if !self.has_flash() {
            return;
        }
        let db = self.header(self.shard.ladder().residents().nodes().loc(id)).db;
        if let Some(place) = self.shard.forget_copy(id, hash, &mut self.items) {
            self.retire(hash, place, db);
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
        if self.items.flash.is_some() && self.forget_on_flash(db, hash) {
            // The key was counted there, and is counted here.
            self.uncount(db);
        }
    }

    pub(super) fn forget_on_flash(&mut self, db: u8, hash: u64) -> bool {
        self.shard.forget_below(hash).is_some_and(|place| self.retire(hash, place, db))
    }

    /// Flushes the flash tier's part of one database, or of all.
    pub(super) fn flush_flash(&mut self, db: Option<u8>) {
        if !self.has_flash() {
            return;
        }
        self.shard.device().write_out(true);
        self.carry_out();
        let sequence = self.shard.log().map_or(0, |log| log.log().next_sequence());
        self.tell_flash(|flash, _| flash.flush(db, sequence));
        if db.is_none() {
            self.shard.device().clear();
        }
    }

    /// Keys that lie on flash, those that are in memory as well among them.
    pub fn keys_on_flash(&self) -> u64 {
        self.shard.memory().items_below()
    }

    /// What a scan of about `count` keys from `cursor` must read first.
    pub fn seek_scan(&self, cursor: u64, count: usize) -> Vec<Away> {
        let mut away = Vec::new();
        if let Some(log) = self.shard.log() {
            self.shard.memory().entries(cursor, count.max(1), |hash, found| {
                if let Found::Log(place) = found {
                    away.push(Away { below: log.away(hash, place), db: None });
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
        let expired = header.expires_at_ms != 0 && header.expires_at_ms <= self.shard.now().unix_ms;
        let flushed = self.items.flash.as_ref().is_some_and(|flash| flash.is_flushed(header));
        if header.db == db && !expired && !flushed && self.find(db, item.key(), header.hash).is_none() {
            visit(item.key(), ValueKind::from_byte(header.kind));
        }
    }
}
