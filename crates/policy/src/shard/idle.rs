//! Work around requests: steps, expiry that no request asks for, room for large items.

use super::Shard;
use crate::Id;
use tiermem_base::Rng;

impl Shard {
    /// A request begins.
    #[inline]
    pub fn begin(&mut self) {
        self.now.requests += 1;
    }

    /// Whether a [step](Self::step) is due.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.ladder().is_due(self.now)
    }

    /// Makes a step of background work. Acts follow. None is made before all moves of the one before have arrived.
    pub fn step(&mut self, rng: &mut Rng) {
        debug_assert!(self.is_at_rest(), "a step begins when all that was decided is carried out");
        if self.under_way.settle_all(self.contents.memory_mut()) {
            self.contents.memory_mut().ladder_mut().step(self.now, rng, self.under_way.decided());
        }
    }

    /// Does the work that is due without a request: some expired items, and memory for the first ones. Acts follow. Returns whether
    /// more items may have expired.
    pub fn idle(&mut self) -> bool {
        self.contents.memory_mut().ladder_mut().idle(self.now, self.under_way.decided())
    }

    /// What has expired, and no request asks for.
    pub fn expiry(&mut self) -> Expiry<'_> {
        Expiry { shard: self }
    }

    /// Does a piece of the log's own work. Acts follow. The driver has told before which bytes it has written, read and freed.
    pub fn advance(&mut self, rng: &mut Rng) {
        debug_assert!(self.is_at_rest(), "the log's work begins when all that was decided is carried out");
        self.contents.begin_piece(rng);
    }

    /// Makes a piece of the room for an item of `bytes`, if it is a large one. Returns whether nothing more is to be done before
    /// it is admitted, though it may be refused. Acts follow.
    pub fn make_room(&mut self, bytes: u64, rng: &mut Rng) -> bool {
        self.contents.report_outlet();
        let ladder = self.contents.memory_mut().ladder_mut();
        let done = ladder.prepare(bytes, self.now, rng, self.under_way.decided());
        if !done {
            self.admission.end_piece();
        }
        done
    }
}

/// Expiry that no request asks for.
#[derive(Debug)]
pub struct Expiry<'a> {
    shard: &'a mut Shard,
}

impl Expiry<'_> {
    /// Takes out a few of the items that have expired. Acts follow. Returns whether that was not all.
    pub fn piece(self) -> bool {
        let Shard { contents, under_way, now, .. } = self.shard;
        contents.memory_mut().ladder_mut().timers(*now).expire_piece(under_way.decided())
    }

    /// An item of which parts may have expired, found with at most `work` of work. The driver takes them out, or
    /// [says](super::Item::set_parts_expire_at_ms) when to try again.
    pub fn parts_due(self, work: &mut u32) -> Option<Id> {
        debug_assert!(self.shard.is_at_rest(), "parts are taken out of an item that stays where it is");
        let Shard { contents, now, .. } = self.shard;
        contents.memory_mut().ladder_mut().timers(*now).parts_due(work)
    }

    /// For how many milliseconds items or their parts have been due that are still there, to the tenth of a second.
    pub fn late_ms(self) -> u64 {
        let Shard { contents, now, .. } = self.shard;
        contents.memory_mut().ladder_mut().timers(*now).late_ms()
    }
}
