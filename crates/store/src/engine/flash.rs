//! Flash tier of the engine: items that leave memory go there, and are read back before a request that needs them runs.
//!
//! The engine never waits for the device: what a request needs is read before
//! it runs ([`FlashReads`](super::FlashReads)). A request that replaces a value
//! reads nothing: the copy on flash is forgotten by the key's hash alone.
//!
//! Counted keys: a key counts once, in memory or on flash. An
//! item in memory with `unchanged` in its header is on flash too.

use std::sync::Arc;
use std::task::Waker;

use crate::flash::format::ItemHeader;
use crate::flash::{Flash, FlashConfig, FlashError, Moment, growth};
use tiermem_base::hash::KeyHasher;
use tiermem_policy::log::{Appended, LogPlace, Stream};
use tiermem_policy::shard::{Act, From, Shard, Why};
use tiermem_tier::block::BlockIo;

use super::contents::Contents;
use super::flash_figures::{FlashDescription, FlashFigures};
use super::item::{HEADER_BYTES, Header};
use super::losses::LosesParts;
use super::memory::Memory;

/// The flash tier of an engine; where there is none, nothing comes of anything.
#[derive(Debug)]
pub struct FlashTier<'a> {
    contents: &'a mut Contents,
}

impl Contents {
    /// The flash tier.
    #[inline]
    pub fn flash_tier(&mut self) -> FlashTier<'_> {
        FlashTier { contents: self }
    }
}

impl FlashTier<'_> {
    /// Puts a flash tier below the others; before anything is stored. What the device holds from before is there then.
    /// `endurance_bytes` is what the device bears to be written, for the estimate of its life.
    ///
    /// # Errors
    /// When the device cannot be read or holds something else.
    pub fn attach(
        &mut self,
        name: &str,
        endurance_bytes: Option<u64>,
        io: Box<dyn BlockIo>,
        config: &FlashConfig,
    ) -> Result<(), FlashError> {
        let hash = |seed: u64, word: &[u8]| KeyHasher::stable(seed).hash(0, word);
        // All that outlives the process is marked as one run's, so that a later one knows what belongs together.
        let config = FlashConfig { session: self.contents.keeping.session(), ..config.clone() };
        let (flash, state) = Flash::open(io, &config, hash)?;
        self.contents.items.hasher = KeyHasher::stable(flash.hash_seed());
        self.contents.keys.set(flash.items());
        self.contents.items.flash = Some(Box::new(flash));
        self.contents.flash = FlashDescription::new(name, endurance_bytes);
        self.contents.shard.attach_log(state);
        Ok(())
    }

    /// Bytes of the device that all shards take; 0 where there is none.
    pub fn device_bytes(&self) -> u64 {
        self.contents.items.flash.as_ref().map_or(0, |flash| growth::device_bytes(flash))
    }

    /// Has the device grow; see [`growth::grow`]. Waits for it.
    ///
    /// # Errors
    /// When it cannot.
    pub fn grow(&mut self, capacity_bytes: u64) -> Result<(), FlashError> {
        let Contents { items, shard, .. } = &mut *self.contents;
        items.flash.as_mut().map_or(Ok(()), |flash| growth::grow(flash, shard, capacity_bytes))
    }

    /// The same at the start, when all shards are attached; see [`growth::grow_at_start`].
    ///
    /// # Errors
    /// When it cannot.
    pub fn grow_at_start(&mut self, capacity_bytes: u64) -> Result<(), FlashError> {
        let Contents { items, shard, .. } = &mut *self.contents;
        items.flash.as_mut().map_or(Ok(()), |flash| growth::grow_at_start(flash, shard, capacity_bytes))
    }

    /// Whether there is a flash tier.
    #[inline]
    pub fn is_there(&self) -> bool {
        self.contents.items.flash.is_some()
    }

    /// Whom to wake, from any thread, when [`Self::advance`] has something to do.
    pub fn notify(&mut self, waker: Arc<dyn Fn() + Send + Sync>) {
        if let Some(flash) = &mut self.contents.items.flash {
            flash.notify(waker);
        }
    }

    /// Whether writers should wait until the flash tier has caught up.
    #[inline]
    pub fn is_choked(&self) -> bool {
        self.contents.shard.ladder().transit().outlet().must_wait()
    }

    /// Wakes a writer when there is space again.
    pub fn wake_when_unchoked(&mut self, waker: &Waker) {
        self.contents.waiters.await_space(waker);
    }

    /// Takes the device's completions, and continues the flash tier's own work.
    pub fn advance(&mut self) {
        if !self.is_there() {
            return;
        }
        let now_ms = self.contents.shard.now().unix_ms;
        self.contents.flash.begin(now_ms);
        self.tell(|flash, shard| flash.take_done(shard, now_ms));
        self.contents.shard.advance(&mut self.contents.rng);
        self.contents.carry_out();
        self.tell(Flash::step_checkpoint);
        self.contents.carry_out();
        self.tell(|flash, _| flash.submit());
        let is_choked = self.is_choked();
        let Contents { waiters, items, .. } = &mut *self.contents;
        if let Some(flash) = &items.flash {
            waiters.wake(is_choked, |moment| flash.is_durable(moment));
        }
    }

    fn tell(&mut self, tell: impl FnOnce(&mut Flash, &mut Shard)) {
        if let Some(flash) = &mut self.contents.items.flash {
            tell(flash, &mut self.contents.shard);
        }
    }

    /// Has the flash tier do what the shard has decided.
    pub(super) fn carry_out(&mut self, act: Act) {
        let Some(flash) = &mut self.contents.items.flash else { return };
        match act {
            Act::Seal { segment } => flash.seal(segment),
            Act::Write { segment, start, end } => flash.write(segment, start, end),
            Act::Read { segment } => flash.read(segment),
            Act::Free { .. } => flash.free(),
            _ => {}
        }
    }

    /// Writes an item to its place on flash.
    pub(super) fn append(&mut self, from: From, to: &Appended, hash: u64, replaced: Option<LogPlace>) {
        let Memory { tiers, flash: Some(flash), .. } = &mut self.contents.items else { return };
        let (loc, expires_at_ms) = match from {
            From::Segment { at, .. } => return flash.append_survivor(&mut self.contents.shard, to, at),
            From::Memory { loc, expires_at_ms, .. } => (loc, expires_at_ms),
        };
        let header = Header::read(tiers.bytes(loc, 0, HEADER_BYTES));
        let Header { value_len, key_len, db, kind, .. } = header;
        let (kind, expires_at_ms) = (kind.byte(), expires_at_ms.unwrap_or(0));
        let below = ItemHeader { sequence: 0, hash, value_len, key_len, db, kind, expires_at_ms };
        let key_and_value = tiers.bytes(loc, HEADER_BYTES, header.item_len() - HEADER_BYTES);
        flash.append(&mut self.contents.shard, (to, Stream::Fresh), below, key_and_value);
        tiers.charge_read(loc.tier, header.value_offset());
        if let Some(replaced) = replaced {
            // Another key with the same 40 bits must not come back.
            self.contents.retire(hash, replaced, db);
        }
        if self.contents.items.tiers.keeps(loc.tier) && self.contents.has_lost_by_now() {
            self.contents.take_back_from_flash(db, hash);
        }
        self.contents.keeping.unseal(&mut self.contents.items.tiers, loc);
    }

    /// Waits until the device has done something: for callers that have nothing else to do.
    pub(super) fn wait(&mut self) {
        self.tell(|flash, _| flash.wait());
        self.advance();
    }

    /// Waits until the flash tier has caught up.
    pub(super) fn await_space(&mut self) {
        while self.is_choked() {
            self.wait();
        }
    }

    /// An item has left the flash tier, from this place. Its key is gone, unless memory has it too, and counts it.
    pub(super) fn lose(&mut self, hash: u64, (place, at): (LogPlace, u32), why: Why, has_copy: bool) {
        let (segment, sequence) = self.contents.shard.log().map_or((0, 0), |log| log.filling_of(place));
        let header = self.contents.items.flash.as_ref().filter(|_| why != Why::Lost);
        let header = header.and_then(|flash| flash.header_at(segment, sequence, at));
        // The item's database cannot be read any more: the database with most keys is the most likely one.
        let db = header.map_or_else(|| self.contents.keys.fullest(), |header| header.db);
        let counted = self.contents.retire(hash, place, db);
        if why == Why::Lost {
            self.tell(|flash, _| flash.count_lost());
        }
        if counted && !has_copy {
            self.contents.keys.remove(db, None);
            self.contents.counters.expired += u64::from(why == Why::Expired);
        }
    }

    /// Whether what was promised by that moment survives what it is to survive.
    #[inline]
    pub fn is_durable(&self, moment: Moment) -> bool {
        self.contents.items.flash.as_ref().is_none_or(|flash| flash.is_durable(moment))
    }

    /// Wakes `waker` when it does, unless it does already.
    pub fn wake_when_durable(&mut self, moment: Moment, waker: &Waker) {
        if !self.is_durable(moment) {
            self.contents.waiters.await_durable(moment, waker);
        }
    }

    /// Once a second or so: what is half written is written.
    pub fn tick(&mut self) {
        self.contents.shard.device().write_out(false);
        self.contents.carry_out();
        self.tell(|flash, _| flash.tick());
    }

    /// Writes everything that a restart needs, and can serve on. Waits for the device.
    ///
    /// # Errors
    /// When a restart would not find all that is there.
    pub fn write_back(&mut self) -> Result<(), FlashError> {
        self.contents.shard.device().write_out(true);
        self.contents.carry_out();
        self.contents.items.flash.as_mut().map_or(Ok(()), |flash| flash.write_back(&mut self.contents.shard))
    }

    /// Writes everything that a restart needs, for the last time. Waits for the device.
    ///
    /// # Errors
    /// When the device cannot be written.
    pub fn close(&mut self) -> Result<(), FlashError> {
        self.contents.shard.device().write_out(true);
        self.contents.carry_out();
        self.contents.items.flash.as_mut().map_or(Ok(()), |flash| flash.close(&mut self.contents.shard))
    }

    /// Flushes the flash tier's part of one database, or of all.
    pub(super) fn flush(&mut self, db: Option<u8>) {
        if !self.is_there() {
            return;
        }
        self.contents.shard.device().write_out(true);
        self.contents.carry_out();
        let sequence = self.contents.shard.log().map_or(0, |log| log.log().next_sequence());
        self.tell(|flash, shard| flash.flush(shard, db, sequence));
        if db.is_none() {
            self.contents.shard.device().clear();
        }
    }

    /// Keys on flash, including those that are in memory as well.
    pub fn keys(&self) -> u64 {
        self.contents.shard.memory().keys().items_below()
    }

    /// The flash tier's figures, if there is one.
    pub fn figures(&self) -> Option<FlashFigures> {
        let Contents { flash, items, shard, .. } = &*self.contents;
        flash.figures(items.flash.as_ref()?, shard)
    }
}
