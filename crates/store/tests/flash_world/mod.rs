//! Shared code of the flash tests: a tier with its index, driven by key and value.
#![allow(clippy::unwrap_used, dead_code)] // Helpers of tests are tests, and not every test needs all of them.

use tiermem_base::Rng;
use tiermem_base::hash::trace_key;
use tiermem_policy::Id;
use tiermem_policy::ladder::{LadderConfig, Loc, PAGE_BYTES};
use tiermem_policy::log::{Admission, LogPlace, Stream};
use tiermem_policy::shard::{Act, Away, Entered, Entry, From, Items, Lying, Shard, Sizes};
use tiermem_store::flash::format::{ITEM_HEADER_BYTES, ItemHeader};
use tiermem_store::flash::{FetchId, Flash, FlashConfig, FlashError, FlashStats};
use tiermem_tier::block::{BlockError, BlockIo, Completion, Immediate, MemoryDisk, Request, Waker};

fn hash(seed: u64, key: &[u8]) -> u64 {
    trace_key(key) ^ seed.wrapping_mul(3)
}

/// A region that admits every item that leaves memory.
pub fn config(region_bytes: u64, segment_bytes: u32) -> FlashConfig {
    FlashConfig {
        admission: Admission::All,
        boot_id: [1; 16],
        ..FlashConfig::whole(region_bytes, segment_bytes, 77 << 40 | 5)
    }
}

/// The hash of an item that takes all of the memory.
const LARGE: u64 = 0x1A46_E000_0000_0001;

/// The items of the segment being emptied, and the item that leaves memory.
struct Facts<'a> {
    flash: &'a Flash,
    /// Its hash, and its bytes in the log.
    leaving: (u64, u64),
}

impl Items for Facts<'_> {
    type Key<'a> = ();

    fn has_key(&self, _: Id, _: Loc, (): ()) -> bool {
        false
    }

    fn hash(&self, _: Id, _: Loc) -> Option<u64> {
        Some(self.leaving.0)
    }

    fn bytes(&self, _: Id, _: Loc) -> Sizes {
        Sizes { here: PAGE_BYTES, below: self.leaving.1 }
    }

    fn is_unchanged(&self, _: Id, _: Loc) -> bool {
        false
    }

    fn note_changed(&mut self, _: Id, _: Loc) {}

    fn lying_at(&self, segment: u32, sequence: u32, at: u32) -> Option<Lying> {
        self.flash.lying_at(segment, sequence, at)
    }

    fn bring_near(&self, _: Id, _: Loc) {}
}

/// A flash tier and the shard over it, as a store owns them. Of the memory above it one item has all.
pub struct World {
    pub config: FlashConfig,
    pub flash: Flash,
    pub shard: Shard,
    pub rng: Rng,
    pub now_ms: u64,
    /// Items that the log let go.
    pub gone: u64,
}

impl World {
    pub fn open(io: Box<dyn BlockIo>, config: FlashConfig) -> Result<World, FlashError> {
        let (flash, state) = Flash::open(io, &config, hash)?;
        let ladder = LadderConfig { charge_metadata: false, ..LadderConfig::with_capacities(&[PAGE_BYTES]) };
        let mut shard = Shard::new(ladder, 0);
        shard.attach_log(state);
        Ok(World { config, flash, shard, rng: Rng::seeded(1), now_ms: 1000, gone: 0 })
    }

    /// Does what the shard has decided. `leaving` is the item that leaves memory.
    fn carry_out(&mut self, leaving: Option<(ItemHeader, &[u8])>) {
        let known =
            leaving.map_or((0, 0), |(header, bytes)| (header.hash, (ITEM_HEADER_BYTES + bytes.len()) as u64));
        while let Some(act) =
            self.shard.next_act(&mut Facts { flash: &self.flash, leaving: known }, &mut self.rng)
        {
            match act {
                Act::Append { from: From::Segment { at, .. }, to, .. } => {
                    self.flash.append_survivor(&mut self.shard, &to, at);
                }
                Act::Append { from: From::Memory { .. }, to, hash, replaced, .. } => {
                    let (header, bytes) = leaving.expect("an item leaves memory");
                    self.flash.append(&mut self.shard, (&to, Stream::Fresh), header, bytes);
                    replaced.into_iter().for_each(|old| _ = self.retire(hash, old, header.db));
                }
                Act::Seal { segment } => self.flash.seal(segment),
                Act::Write { segment, start, end } => self.flash.write(segment, start, end),
                Act::Read { segment } => self.flash.read(segment),
                Act::Free { .. } => self.flash.free(),
                Act::Gone { hash, place, at, .. } => {
                    let (segment, sequence) = self.shard.log().unwrap().filling_of(place);
                    let db = self.flash.header_at(segment, sequence, at).map_or(0, |header| header.db);
                    self.gone += u64::from(self.retire(hash, place, db));
                }
                // The log does not take it.
                Act::Leave { .. } => {}
                other => panic!("nothing moves, so why {other:?}"),
            }
        }
    }

    fn retire(&mut self, hash: u64, place: LogPlace, db: u8) -> bool {
        self.flash.retire(&mut self.shard, hash, place, db)
    }

    pub fn advance(&mut self) {
        self.flash.take_done(&mut self.shard, self.now_ms);
        self.shard.advance(&mut self.rng);
        self.carry_out(None);
        self.flash.step_checkpoint(&mut self.shard);
        self.carry_out(None);
        self.flash.submit();
    }

    pub fn tick(&mut self) {
        self.shard.device().write_out(false);
        self.carry_out(None);
        self.flash.tick();
    }

    pub fn write_back(&mut self) -> Result<(), FlashError> {
        self.shard.device().write_out(true);
        self.carry_out(None);
        self.flash.write_back(&mut self.shard)
    }

    pub fn close(&mut self) -> Result<(), FlashError> {
        self.shard.device().write_out(true);
        self.carry_out(None);
        self.flash.close(&mut self.shard)
    }

    /// Removes all items of a database.
    pub fn flush(&mut self, db: u8) {
        self.shard.device().write_out(true);
        self.carry_out(None);
        let sequence = self.shard.log().unwrap().log().next_sequence();
        self.flash.flush(&mut self.shard, Some(db), sequence);
    }

    /// Removes all items.
    pub fn flush_all(&mut self) {
        self.shard.device().write_out(true);
        self.carry_out(None);
        let sequence = self.shard.log().unwrap().log().next_sequence();
        self.flash.flush(&mut self.shard, None, sequence);
        self.shard.device().clear();
    }

    pub fn stats(&self) -> FlashStats {
        self.flash.stats(self.shard.log().unwrap())
    }

    /// Where the index says that an item of this hash lies.
    pub fn place(&self, hash: u64) -> Option<LogPlace> {
        self.shard.memory().keys().place_below(hash)
    }

    pub fn indexed(&self) -> u64 {
        self.shard.memory().keys().items_below()
    }

    /// Asks for an item that is there.
    pub fn ask(&mut self, hash: u64) -> (Away, FetchId) {
        let away = self.place(hash).map(|place| self.shard.log().unwrap().away(hash, place)).unwrap();
        (away, self.flash.ask(&away))
    }

    /// Until the device has nothing to do and everything written is announced.
    pub fn settle(&mut self) {
        self.tick();
        (0..100).for_each(|_| self.advance());
        self.flash.commit();
    }

    /// The process dies behind its last reply, and the next one opens what it left.
    pub fn restart(mut self, disk: &MemoryDisk) -> World {
        self.flash.commit();
        // Where nothing is found a region is made anew, never with the seed of a former one.
        let config = FlashConfig { hash_seed: self.config.hash_seed + (9 << 33), ..self.config };
        drop(self.flash);
        World::open(Box::new(disk.open()), config).unwrap()
    }

    pub fn hash(&self, db: u8, key: u32) -> u64 {
        hash(self.flash.hash_seed(), &name(db, key))
    }

    /// Offers a new value of a key, independent of the old one; returns whether it was admitted.
    pub fn offer(&mut self, db: u8, key: u32, value: &[u8], expires_at_ms: Option<u64>) -> bool {
        let hash = self.hash(db, key);
        // A store removes the copy on flash when a key is overwritten in memory, long before it comes here.
        self.delete(db, key);
        let (name, bytes) = (name(db, key), [&name(db, key), value].concat());
        let header = ItemHeader {
            sequence: 0,
            hash,
            value_len: value.len() as u32,
            key_len: name.len() as u16,
            db,
            kind: 0,
            expires_at_ms: expires_at_ms.unwrap_or(0),
        };
        let before = self.shard.log().unwrap().sunk(0);
        // It comes into memory, and leaves it for another one that takes all of that.
        self.enter(hash, expires_at_ms, None);
        let other = self.enter(LARGE, None, Some((header, &bytes)));
        self.shard.forget(other, LARGE, &Facts { flash: &self.flash, leaving: (0, 0) });
        self.shard.log().unwrap().sunk(0) > before
    }

    /// Finds a place in memory for an item that takes all of it; `leaving` is the one that leaves it.
    fn enter(&mut self, hash: u64, expires_at_ms: Option<u64>, leaving: Option<(ItemHeader, &[u8])>) -> Id {
        let entry = Entry { hash, bytes: PAGE_BYTES, expires_at_ms, tenant: 0, is_newcomer: true };
        self.shard.enter(&entry, &mut self.rng);
        self.carry_out(leaving);
        match self.shard.entered() {
            Entered::Placed { id, .. } => id,
            other => panic!("memory has room for one item, so why {other:?}"),
        }
    }

    /// Offers until it is taken.
    pub fn put(&mut self, db: u8, key: u32, value: &[u8]) {
        for _ in 0..10_000 {
            if self.offer(db, key, value, None) {
                return;
            }
            self.advance();
        }
        panic!("writers wait for ever");
    }

    pub fn delete(&mut self, db: u8, key: u32) {
        let hash = self.hash(db, key);
        if let Some(place) = self.shard.forget_below(hash) {
            self.retire(hash, place, db);
        }
    }

    pub fn get(&mut self, db: u8, key: u32) -> Option<Vec<u8>> {
        let hash = self.hash(db, key);
        self.place(hash)?;
        let (_, id) = self.ask(hash);
        for _ in 0..1000 {
            self.flash.submit();
            if self.flash.is_ready(id, None) {
                let item = self.flash.take(id).filter(|item| !self.flash.is_flushed(&item.header))?;
                return (item.key() == name(db, key)).then(|| item.value().to_vec());
            }
            self.advance();
        }
        panic!("a question is answered");
    }

    pub fn items(&self) -> u64 {
        self.flash.items().iter().sum()
    }
}

pub fn name(db: u8, key: u32) -> Vec<u8> {
    format!("{db}:key:{key}").into_bytes()
}

/// A device that leaves undone what it was asked while `holds` says so of it, and does it in any order; what it has not done
/// when the process dies is never done.
pub struct Holding<F> {
    inner: Immediate,
    asked: Vec<Request>,
    holds: F,
}

impl<F: FnMut(&Request) -> bool + Send + 'static> Holding<F> {
    pub fn over(disk: &MemoryDisk, holds: F) -> Box<dyn BlockIo> {
        Box::new(Holding { inner: disk.open(), asked: Vec::new(), holds })
    }
}

impl<F: FnMut(&Request) -> bool + Send> BlockIo for Holding<F> {
    fn submit(&mut self, request: Request) {
        self.asked.push(request);
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        let mut at = 0;
        while at < self.asked.len() {
            if (self.holds)(&self.asked[at]) {
                at += 1;
            } else {
                let request = self.asked.swap_remove(at);
                self.inner.submit(request);
            }
        }
        self.inner.completed(out);
    }

    fn wait(&mut self, out: &mut Vec<Completion>) {
        while out.is_empty() && self.in_flight() > 0 {
            self.completed(out);
        }
    }

    fn in_flight(&self) -> usize {
        self.asked.len() + self.inner.in_flight()
    }

    fn notify(&mut self, _waker: Waker) {}

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.inner.write_at(offset, bytes)
    }

    fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        self.inner.read_at(offset, bytes)
    }

    fn sync(&mut self) -> Result<(), BlockError> {
        self.inner.sync()
    }

    fn capacity_bytes(&self) -> u64 {
        self.inner.capacity_bytes()
    }
}
