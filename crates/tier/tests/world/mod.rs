//! What the tests of the flash tier share: a tier with its index, driven by key and value.
#![allow(clippy::unwrap_used, dead_code)] // Helpers of tests are tests, and not every test needs all of them.

use tiermem_base::Rng;
use tiermem_base::hash::trace_key;
use tiermem_policy::index::Index;
use tiermem_policy::log::Admission;
use tiermem_tier::block::{BlockError, BlockIo, Completion, Immediate, MemoryDisk, Request, Waker};
use tiermem_tier::flash::{Flash, FlashConfig, FlashError, Gone, Offer, Offered};

fn hash(seed: u64, key: &[u8]) -> u64 {
    trace_key(key) ^ seed.wrapping_mul(3)
}

/// A region of which everybody that leaves memory is let in.
pub fn config(region_bytes: u64, segment_bytes: u32) -> FlashConfig {
    FlashConfig {
        admission: Admission::All,
        boot_id: [1; 16],
        ..FlashConfig::whole(region_bytes, segment_bytes, 77 << 40 | 5)
    }
}

/// A flash tier and the index over it, as a store owns them.
pub struct World {
    pub config: FlashConfig,
    pub flash: Flash,
    pub index: Index,
    pub rng: Rng,
    pub now_ms: u64,
    pub gone: Vec<Gone>,
}

impl World {
    pub fn open(io: Box<dyn BlockIo>, config: FlashConfig) -> Result<World, FlashError> {
        let mut index = Index::default();
        let flash = Flash::open(io, &config, hash, &mut index)?;
        Ok(World { config, flash, index, rng: Rng::seeded(1), now_ms: 1000, gone: Vec::new() })
    }

    pub fn advance(&mut self) {
        self.flash.advance(&mut self.index, self.now_ms, &mut self.rng, &mut self.gone);
    }

    /// Until the device has nothing to do and everything written is announced.
    pub fn settle(&mut self) {
        self.flash.tick();
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

    /// Offers a new value of a key, whatever the old one was.
    pub fn offer(&mut self, db: u8, key: u32, value: &[u8], expires_at_ms: Option<u64>) -> Offered {
        let hash = self.hash(db, key);
        // A store removes the copy on flash when a key is overwritten in memory, long before it comes here.
        self.flash.forget(&mut self.index, hash, db);
        let bytes = [&name(db, key), value].concat();
        let offer = Offer {
            hash,
            db,
            kind: 0,
            key_and_value: &bytes,
            key_len: name(db, key).len() as u16,
            expires_at_ms,
            last_used: 0,
            unchanged: false,
        };
        self.flash.offer(&mut self.index, &offer)
    }

    /// Offers until it is taken.
    pub fn put(&mut self, db: u8, key: u32, value: &[u8]) {
        for _ in 0..10_000 {
            if self.offer(db, key, value, None) == Offered::Taken {
                return;
            }
            self.advance();
        }
        panic!("writers wait for ever");
    }

    pub fn delete(&mut self, db: u8, key: u32) {
        let hash = self.hash(db, key);
        self.flash.forget(&mut self.index, hash, db);
    }

    pub fn get(&mut self, db: u8, key: u32) -> Option<Vec<u8>> {
        let hash = self.hash(db, key);
        let place = self.index.find_log(hash)?;
        let id = self.flash.ask(hash, place);
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
