//! Work beside requests: steps, expiry that no request asks for, room for large items.

use super::Shard;
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
        self.memory.ladder.is_due(self.now)
    }

    /// Makes a step of background work. Acts follow. None is made before all moves of the one before have arrived.
    pub fn step(&mut self, rng: &mut Rng) {
        debug_assert!(self.is_at_rest(), "a step begins when all that was decided is carried out");
        if self.settle_all() {
            self.memory.ladder.step(self.now, rng, &mut self.decided);
        }
    }

    /// Does what is due without a request: expired items, and memory for the first ones. Acts follow.
    pub fn idle(&mut self) {
        self.memory.ladder.idle(self.now, &mut self.decided);
    }

    /// Makes a piece of the room for an item of so many bytes, if it is a large one; whether nothing more is to be done before
    /// it is admitted, though it may be refused. Acts follow.
    pub fn make_room(&mut self, bytes: u64, rng: &mut Rng) -> bool {
        self.report_outlet();
        let done = self.memory.ladder.prepare(bytes, self.now, rng, &mut self.decided);
        if !done {
            self.admission.end_piece();
        }
        done
    }
}
