//! KRR: the stack that models K-LRU (Yang, Wang, Wang, ICPP'21; Wang 2024, section 2.3.1).
//!
//! Positions count from 1. An access to x at position φ (one past the end if x is new) has the distance φ: caches of φ or more
//! objects hit. Then x goes to the top and some of the objects above φ move down: position 1 always swaps, position i from 2 to φ
//! − 1 does with probability 1 − ((i−1)/i)^K′, and each object that swaps takes the place of the next one that does, the last one
//! that of x. Going through all positions would cost O(M). Going from swap to swap, upward from φ, costs about K′ ln φ, because
//! given a swap at i the next one above it lies at or above j with probability (j/(i−1))^K′.
//!
//! One pass gives every size, but the model is not exact. A position in the stack is not a rank by recency, so K′ = K evicts too
//! evenly; K′ = K^1.4 corrects that well for independent references and badly for loops. [`super::klru`] has neither fault, but
//! has to know its sizes beforehand.

mod sizes;

use tiermem_base::Rng;

use super::{Distances, Model, Unit};
use sizes::PrefixSizes;

/// A position of what is not in the stack.
const NOWHERE: u32 = u32::MAX;
/// Stands where a removed object stood.
const HOLE: u32 = u32::MAX;

/// K-LRU caches of all sizes; see the [module](self).
///
/// Memory: 8 bytes per object (12 where bytes count) and the histogram.
#[derive(Clone, Debug)]
pub struct KrrStack {
    unit: Unit,
    rate: f64,
    step: Step,
    rng: Rng,
    distances: Distances,
    /// The object at each position; position 1 is at index 0.
    stack: Vec<u32>,
    /// The index of each object.
    place: Vec<u32>,
    /// The size of each object, where bytes count.
    size: Vec<u32>,
    prefix: PrefixSizes,
    holes: usize,
    /// The indices that swap in the update under way, deepest first.
    swaps: Vec<u32>,
}

/// How K′ follows from K.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Correction {
    /// K′ = K.
    None,
    /// K′ = K^1.4, found by the authors of KRR by experiment.
    Power,
}

impl KrrStack {
    /// An empty stack for K-LRU with this `k`, real and at least 1, that will see the share `rate` of the objects.
    pub fn new(unit: Unit, k: f64, correction: Correction, rate: f64, seed: u64) -> Self {
        let k = k.max(1.0);
        let exponent = match correction {
            Correction::None => k,
            Correction::Power => k.powf(1.4),
        };
        KrrStack {
            unit,
            rate,
            step: Step::new(exponent),
            rng: Rng::seeded(seed),
            distances: Distances::new(if rate < 1.0 { 12 } else { 20 }),
            stack: Vec::new(),
            place: Vec::new(),
            size: Vec::new(),
            prefix: PrefixSizes::new(),
            holes: 0,
            swaps: Vec::new(),
        }
    }

    /// This stack with a histogram that tells distances apart to one part in 2^(`precision_bits` - 1): for callers that keep many
    /// stacks.
    pub fn with_precision(self, precision_bits: u32) -> Self {
        KrrStack { distances: Distances::new(precision_bits), ..self }
    }

    /// The distances that were counted.
    pub fn distances(&self) -> &Distances {
        &self.distances
    }

    /// The objects from the top on, without the holes of removed ones.
    pub fn objects(&self) -> impl Iterator<Item = u32> + '_ {
        self.stack.iter().copied().filter(|&id| id != HOLE)
    }

    /// The charge of each position from the top on: zero where an object was removed.
    pub fn sizes(&self) -> impl Iterator<Item = u64> + '_ {
        self.stack.iter().map(|&id| self.size_of(id))
    }

    /// The bytes at positions 1 to 2^k, for each k with 2^k within the stack: what byte distances are read from.
    pub fn partial_sums(&self) -> &[u64] {
        self.prefix.boundaries()
    }

    fn size_of(&self, id: u32) -> u64 {
        match self.unit {
            _ if id == HOLE => 0,
            Unit::Objects => 1,
            Unit::Bytes => u64::from(self.size[id as usize]),
        }
    }

    fn record(&mut self, index: usize, own: u64) {
        let distance = match self.unit {
            Unit::Objects => index as f64 + 1.0,
            Unit::Bytes => self.prefix.up_to(index + 1, self.stack.len()),
        };
        let scaled = if self.rate < 1.0 {
            (distance - self.rng.unit_f64() * own as f64).max(1.0) / self.rate
        } else {
            distance
        };
        self.distances.record(scaled.ceil() as u64, 1.0);
    }

    /// Moves the object at `index` to the top.
    fn update(&mut self, id: u32, index: usize) {
        self.swaps.clear();
        let mut position = index as u32 + 1;
        while position > 1 {
            position = self.step.next(position, &mut self.rng);
            self.swaps.push(position - 1);
        }
        let mut bottom = index;
        let mut swaps = &self.swaps[..];
        if self.holes > 0
            && let Some(hole) = swaps.iter().rposition(|&at| self.stack[at as usize] == HOLE)
        {
            // Caches that reach as far as the hole had room: no object below it moves, and the room is now where x was.
            bottom = swaps[hole] as usize;
            swaps = &swaps[hole + 1..];
            self.stack[index] = HOLE;
        }
        if self.unit == Unit::Bytes {
            let entering = u64::from(self.size[id as usize]);
            // Of the region above each boundary the object at its deepest swap leaves, for the next swap below.
            let mut below = index;
            for &at in &self.swaps {
                let leaving = match self.stack[at as usize] {
                    _ if (at as usize) > bottom => 0,
                    HOLE => 0,
                    other => u64::from(self.size[other as usize]),
                };
                self.prefix.exchange(at as usize + 1, below, entering, leaving);
                below = at as usize;
            }
        }
        for &at in swaps {
            let moved = self.stack[at as usize];
            self.stack[bottom] = moved;
            self.place[moved as usize] = bottom as u32;
            bottom = at as usize;
        }
        self.stack[bottom] = id;
        self.place[id as usize] = bottom as u32;
    }

    fn drop_holes_at_the_end(&mut self) {
        while self.stack.last() == Some(&HOLE) {
            self.stack.pop();
            self.holes -= 1;
            self.prefix.shrink(self.stack.len());
        }
    }
}

impl Model for KrrStack {
    fn access(&mut self, id: u32, size: u32) {
        let slot = id as usize;
        if slot >= self.place.len() {
            self.place.resize(slot + 1, NOWHERE);
            if self.unit == Unit::Bytes {
                self.size.resize(slot + 1, 0);
            }
        }
        let found = self.place[slot];
        let index = if found == NOWHERE {
            self.distances.record_cold(1.0);
            self.stack.push(id);
            self.stack.len() - 1
        } else {
            let own = if self.unit == Unit::Bytes { u64::from(self.size[slot]) } else { 1 };
            self.record(found as usize, own);
            found as usize
        };
        if self.unit == Unit::Bytes {
            let before = if found == NOWHERE { 0 } else { self.size_of(id) };
            self.size[slot] = size;
            self.prefix.resize_at(index + 1, before, u64::from(size), self.stack.len());
        }
        self.update(id, index);
        if self.holes > 0 {
            self.drop_holes_at_the_end();
        }
    }

    fn remove(&mut self, id: u32) {
        let Some(place) = self.place.get_mut(id as usize) else { return };
        let index = std::mem::replace(place, NOWHERE);
        if index == NOWHERE {
            return;
        }
        if self.unit == Unit::Bytes {
            let before = self.size_of(id);
            self.size[id as usize] = 0;
            self.prefix.resize_at(index as usize + 1, before, 0, self.stack.len());
        }
        self.stack[index as usize] = HOLE;
        self.holes += 1;
        self.drop_holes_at_the_end();
    }

    fn misses(&self, sizes: &[u64]) -> Vec<f64> {
        self.distances.misses(sizes)
    }

    fn decay(&mut self, keep: f64) {
        self.distances.scale(keep);
    }

    fn set_rate(&mut self, rate: f64) {
        self.rate = rate;
    }

    fn metadata_bytes(&self) -> u64 {
        let words =
            self.stack.capacity() + self.place.capacity() + self.size.capacity() + self.swaps.capacity();
        (words * size_of::<u32>()) as u64 + self.distances.metadata_bytes() + self.prefix.metadata_bytes()
    }
}

/// Draws the next swap upward.
#[derive(Clone, Debug)]
struct Step {
    inverse: f64,
    /// u^(1/K′) at u = 0, 1/`CELLS` … 1.
    roots: Vec<f64>,
}

/// Cells of the table of roots. Linear interpolation is off by at most 1/(8 K′ n²) of the value in cell n, so the first
/// [`EXACT`] cells, where that exceeds 1/2000, are computed.
const CELLS: usize = 1024;
const EXACT: usize = 16;

impl Step {
    fn new(exponent: f64) -> Self {
        let inverse = 1.0 / exponent;
        let roots = (0..=CELLS).map(|cell| (cell as f64 / CELLS as f64).powf(inverse)).collect();
        Step { inverse, roots }
    }

    /// The next position above `position` (which is at least 2) that swaps.
    #[inline]
    fn next(&self, position: u32, rng: &mut Rng) -> u32 {
        let random = rng.next_u64();
        let cell = (random >> 54) as usize;
        let root = if cell < EXACT {
            // From (0, 1]: zero has no place to go.
            ((((random >> 11) + 1) as f64) / (1u64 << 53) as f64).powf(self.inverse)
        } else {
            let within = (random << 10 >> 11) as f64 / (1u64 << 53) as f64;
            self.roots[cell] + within * (self.roots[cell + 1] - self.roots[cell])
        };
        let above = position - 1;
        ((f64::from(above) * root).ceil() as u32).clamp(1, above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The distribution that makes the backward walk equal to the naive one.
    #[test]
    fn the_next_swap_is_at_or_above_j_with_probability_j_over_i_less_1_to_the_k() {
        let mut rng = Rng::seeded(5);
        for exponent in [1.0, 2.5, 16f64.powf(1.4)] {
            let step = Step::new(exponent);
            for position in [2u32, 3, 10, 1_000, 1_000_000] {
                const DRAWS: usize = 40_000;
                let drawn: Vec<u32> = (0..DRAWS).map(|_| step.next(position, &mut rng)).collect();
                let above = f64::from(position - 1);
                assert!(drawn.iter().all(|&at| 1 <= at && at < position));
                for share in [0.05, 0.3, 0.7, 0.9, 0.99] {
                    let j = (above * share).floor();
                    let expected = (j / above).powf(exponent);
                    let seen = drawn.iter().filter(|&&at| f64::from(at) <= j).count() as f64 / DRAWS as f64;
                    let deviation = (expected * (1.0 - expected) / DRAWS as f64).sqrt();
                    assert!(
                        (seen - expected).abs() < 5.0 * deviation + 1e-3,
                        "{exponent} {position} {share}: {seen} {expected}"
                    );
                }
            }
        }
    }
}
