//! Figures of a simulated store: what is counted in addition to the shard's own counters.

use tiermem_base::latency_curve::{Curve, LOCAL_DRAM, Point, Surcharge};
use tiermem_policy::ladder::LEVELS_MAX;

/// The cost of each tier beyond local DRAM.
type Surcharges = [Surcharge; LEVELS_MAX];

/// The surcharges of tiers with these curves, one way.
fn surcharges(curves: &[Curve], way: impl Fn(&Curve) -> Point) -> Surcharges {
    std::array::from_fn(|tier| {
        let curve = curves.get(tier).unwrap_or(&LOCAL_DRAM);
        Surcharge::over_dram(way(curve), way(&LOCAL_DRAM))
    })
}

/// Everything that grows while a trace runs.
#[derive(Debug)]
pub struct Figures {
    read: Surcharges,
    write: Surcharges,
    charged_ns: f64,
    moved_bytes: u64,
    acts_max: usize,
    expired_met: u64,
    waits: u64,
    requests: u64,
    misses: u64,
}

impl Figures {
    /// Figures for tiers with these curves: their cost beyond local DRAM is charged as the engine charges emulated tiers.
    pub(super) fn new(curves: &[Curve]) -> Self {
        Figures {
            read: surcharges(curves, |curve| curve.read),
            write: surcharges(curves, |curve| curve.write),
            charged_ns: 0.0,
            moved_bytes: 0,
            acts_max: 0,
            expired_met: 0,
            waits: 0,
            requests: 0,
            misses: 0,
        }
    }

    /// A range of `bytes` is read in a tier.
    pub(super) fn note_read(&mut self, tier: u8, bytes: u64) {
        self.charged_ns += self.read[usize::from(tier)].range_ns(bytes);
    }

    /// A range of `bytes` is written in a tier.
    pub(super) fn note_write(&mut self, tier: u8, bytes: u64) {
        self.charged_ns += self.write[usize::from(tier)].range_ns(bytes);
    }

    /// An item moves from one tier to another.
    pub(super) fn note_move(&mut self, from: u8, to: u8, bytes: u64) {
        self.moved_bytes += bytes;
        self.note_read(from, bytes);
        self.note_write(to, bytes);
    }

    /// A request had to wait for `acts` moves and departures.
    pub(super) fn note_acts(&mut self, acts: usize) {
        self.acts_max = self.acts_max.max(acts);
    }

    /// An item's time was over when it was met.
    pub(super) fn note_expired(&mut self) {
        self.expired_met += 1;
    }

    /// A writer waits for a piece of the log's work.
    pub(super) fn note_wait(&mut self) {
        self.waits += 1;
    }

    /// A look-up begins.
    pub(super) fn note_look_up(&mut self) {
        self.requests += 1;
    }

    /// A look-up found nothing.
    pub(super) fn note_miss(&mut self) {
        self.misses += 1;
    }

    /// Look-ups.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Look-ups that found nothing.
    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// Pieces of the log's work that writers waited for.
    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// Items whose time was over when a request met them, and that the ladder had not found before.
    pub fn expired_met(&self) -> u64 {
        self.expired_met
    }

    /// Nanoseconds that slow tiers were charged beyond local DRAM, for requests and moves.
    pub fn charged_ns(&self) -> f64 {
        self.charged_ns
    }

    /// Bytes of items moved.
    pub fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    /// The most moves and departures that a request or a step had to wait for since the last call.
    pub fn take_acts_max(&mut self) -> usize {
        std::mem::take(&mut self.acts_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_tiers_are_charged_for_what_is_touched_in_them() {
        let slow = Curve::named("a1000-cxl").expect("it is built in");
        let mut figures = Figures::new(&[LOCAL_DRAM, slow]);
        figures.note_read(0, 1000);
        assert_eq!(figures.charged_ns(), 0.0, "nothing beyond DRAM");
        figures.note_move(1, 0, 1000);
        let read_ns = figures.charged_ns();
        figures.note_move(0, 1, 1000);
        assert!(read_ns > 0.0 && figures.charged_ns() > read_ns && figures.moved_bytes() == 2000);
        [3, 7, 5].into_iter().for_each(|acts| figures.note_acts(acts));
        assert_eq!((figures.take_acts_max(), figures.take_acts_max()), (7, 0));
    }
}
