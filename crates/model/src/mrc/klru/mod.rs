//! Model of caches that evict by random sampling (K-LRU, Redis): several sizes at once, without drawing a single sample.
//!
//! # The model
//!
//! A sampling policy looks at nothing but recency. So of two objects last accessed at the same moment each is still cached with
//! the same probability, whatever they are and whenever they were accessed before. Let objects be sorted by their last access,
//! w(τ) be the number of those accessed at τ and s(τ, t) the probability that such an object is still in a cache of size C at
//! time t. By the law of large numbers the cached objects younger than τ are n(τ, t) = Σ w s over the younger moments, of N =
//! n(oldest) in all, and as the evicted object is of rank at most q with probability F(q) ([`EvictionLaw`]), E evictions change
//! that by
//!
//! > dn(τ)/dE = −F(n(τ)/N)
//!
//! An access to an object last accessed at τ adds 1 − s(τ) misses and resets its survival to 1; evictions keep N at C. That is
//! the whole model: nothing is fitted, and K may be any real number from 1. What is neglected is the fluctuation of the state of
//! one random run around the mean, which is of the order of 1/√C and itself averages out (a cache of five objects is still off by
//! some hundredths, one of a few hundred by a few ten-thousandths). No assumption about the workload enters: loops, phases and
//! scans come out as well as independent references. The average eviction time (AET, USENIX ATC'16) is the special case of a
//! workload in steady state; KRR (ICPP'21, see `krr`) is a stack that approximates the same caches and drifts from them on loops,
//! because a stack position is not a rank by recency.
//!
//! # Discretisation
//!
//! Time passes in epochs; an epoch ends when the objects touched in it for the first time are 1/16 (or 1/(2 F'max), if that is
//! less) of the smallest cache. Larger caches step at 2, 4, 8 … epochs, so that each makes some 16 to 32 steps per turnover.
//! Survival is kept per cache and bucket of epochs ([`Ages`]). Evictions are staggered by half a step (they fill a cache up to C
//! less half of the misses of the last step), which makes the scheme one of second order.
//!
//! Cost per access: a few memory accesses, whatever K and however many sizes; a step costs some 5 ns per cache and bucket.
//! Memory: 4 bytes per object (8 where bytes count), and 8 bytes per bucket and cache.

mod ages;
mod law;

use ages::Ages;
pub use law::EvictionLaw;

use super::{Model, Unit};

/// A last access that was never, or of what is gone.
const NEVER: u32 = u32::MAX;
/// Steps per turnover of a cache, at least; fewer where the workload is a sample, whose own error is far larger.
const STEPS_PER_TURNOVER: f64 = 16.0;
const STEPS_PER_TURNOVER_SAMPLED: f64 = 6.0;
/// Buckets may be as wide as their age over this times the steps per turnover.
const AGE_PER_WIDTH_STEPS: f64 = 4.0;
/// Less likely than this to be cached is gone.
const SURVIVAL_MIN: f64 = 1e-7;
/// Buckets beyond those that merging leaves, before it is done again.
const MERGE_EVERY: usize = 48;

/// Sampling caches of given sizes; see the [module](self).
#[derive(Clone, Debug)]
pub struct SampledCaches {
    unit: Unit,
    law: EvictionLaw,
    /// The share of the workload's objects that this model sees.
    rate: f64,
    /// Ascending in size, so that caches of one pace are neighbours.
    caches: Vec<Cache>,
    paces: Vec<Pace>,
    ages: Ages,
    /// How many buckets merging left.
    merged_len: usize,
    epoch: u32,
    /// First touches of this epoch in units of the caches, and how many end it.
    epoch_charge: f64,
    epoch_charge_max: f64,
    /// Accesses of this epoch to objects of each older bucket, and which buckets those are.
    hits: Vec<u32>,
    touched: Vec<u32>,
    cold: f64,
    /// The epoch of each object's last access.
    last: Vec<u32>,
    /// The size of each object, where bytes count.
    sizes: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Cache {
    /// Its size for the whole workload, in objects or bytes.
    size: u64,
    misses: f64,
    /// Bytes that leave with an eviction, on the average; follows what was seen.
    bytes_per_eviction: f64,
    /// The survival of each bucket's objects.
    survival: Vec<f64>,
    /// It is zero in the buckets before this one: the older a bucket, the smaller.
    alive: usize,
    /// Something was evicted before; until then survival is 1.
    has_evicted: bool,
}

/// The caches that step after the same number of epochs.
#[derive(Clone, Debug)]
struct Pace {
    /// The number of epochs in a step.
    epochs: u32,
    /// The caches of this pace.
    caches: std::ops::Range<usize>,
    /// The first epoch of the step under way.
    start: u32,
    /// Accesses of this step to objects of each bucket older than the step, and to new objects.
    hits: Vec<f64>,
    hits_total: f64,
    cold: f64,
}

impl SampledCaches {
    /// Caches of `sizes` objects or bytes (in any order, at least one and none zero; others are dropped) that evict by
    /// `law`. Of the workload's objects only the share `rate` will be shown to the model.
    pub fn new(law: EvictionLaw, unit: Unit, sizes: &[u64], rate: f64) -> Self {
        let mut sizes: Vec<u64> = sizes.iter().copied().filter(|size| *size > 0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let smallest = sizes.first().map_or(1.0, |&size| size as f64 * rate);
        let paces = paces(&sizes);
        let steps = if rate < 1.0 { STEPS_PER_TURNOVER_SAMPLED } else { STEPS_PER_TURNOVER };
        let new = |&size: &u64| Cache {
            size,
            misses: 0.0,
            bytes_per_eviction: 0.0,
            survival: vec![1.0],
            alive: 0,
            has_evicted: false,
        };
        SampledCaches {
            unit,
            rate,
            caches: sizes.iter().map(new).collect(),
            paces,
            ages: Ages::new((steps * AGE_PER_WIDTH_STEPS) as u32),
            merged_len: 0,
            epoch: 0,
            epoch_charge: 0.0,
            epoch_charge_max: smallest / f64::max(steps, 2.0 * law.slope_max()),
            law,
            hits: vec![0],
            touched: Vec::new(),
            cold: 0.0,
            last: Vec::new(),
            sizes: Vec::new(),
        }
    }

    /// Misses so far of each cache with its size, ascending: [`Model::misses`] without interpolation. The accesses of the
    /// step under way count as hits or misses of the state at its start.
    pub fn counts(&self) -> Vec<(u64, f64)> {
        let mut counts = Vec::with_capacity(self.caches.len());
        for pace in &self.paces {
            for cache in &self.caches[pace.caches.clone()] {
                let mut misses = cache.misses + self.cold + cache.missed(pace);
                for &at in &self.touched {
                    if self.ages.start[at as usize] < pace.start {
                        misses += f64::from(self.hits[at as usize]) * (1.0 - cache.survival[at as usize]);
                    }
                }
                counts.push((cache.size, misses));
            }
        }
        counts
    }

    #[inline]
    fn charge(&mut self, amount: f64) {
        self.epoch_charge += amount;
        if self.epoch_charge >= self.epoch_charge_max {
            self.end_epoch();
        }
    }

    fn end_epoch(&mut self) {
        for pace in &mut self.paces {
            pace.cold += self.cold;
            for &at in &self.touched {
                // Objects of this very step are in every cache: it is a small part of any.
                if self.ages.start[at as usize] < pace.start {
                    let hits = f64::from(self.hits[at as usize]);
                    pace.hits[at as usize] += hits;
                    pace.hits_total += hits;
                }
            }
        }
        self.touched.iter().for_each(|&at| self.hits[at as usize] = 0);
        self.touched.clear();
        self.cold = 0.0;
        self.epoch_charge = 0.0;
        self.epoch += 1;
        for pace in &mut self.paces {
            if self.epoch.is_multiple_of(pace.epochs) {
                for cache in &mut self.caches[pace.caches.clone()] {
                    cache.step(&self.law, self.unit, self.rate, &self.ages, pace);
                }
                pace.hits.fill(0.0);
                pace.hits_total = 0.0;
                pace.cold = 0.0;
                pace.start = self.epoch;
            }
        }
        self.ages.push(self.epoch);
        self.hits.push(0);
        self.caches.iter_mut().for_each(|cache| cache.survival.push(1.0));
        self.paces.iter_mut().for_each(|pace| pace.hits.push(0.0));
        if self.ages.len() > self.merged_len + MERGE_EVERY {
            self.merge_buckets();
        }
    }

    fn merge_buckets(&mut self) {
        let groups = self.ages.groups_to_merge();
        for pace in &mut self.paces {
            // Objects that were accessed during this step have left their bucket, but their misses are still to be
            // counted with its survival.
            let weights: Vec<f64> = self.ages.objects.iter().zip(&pace.hits).map(|(a, b)| a + b).collect();
            for cache in &mut self.caches[pace.caches.clone()] {
                merge_groups(&mut cache.survival, &groups, |survival, from| {
                    let range = from..from + survival.len();
                    let weight: f64 = weights[range.clone()].iter().sum();
                    if weight <= 0.0 {
                        return survival[0];
                    }
                    survival.iter().zip(&weights[range]).map(|(a, b)| a * b).sum::<f64>() / weight
                });
                cache.find_alive();
            }
            merge_groups(&mut pace.hits, &groups, |hits, _| hits.iter().sum());
        }
        // Between epochs no bucket has hits of its own.
        self.hits.truncate(groups.len());
        self.ages.merge(&groups);
        self.merged_len = self.ages.len();
    }
}

impl Model for SampledCaches {
    fn access(&mut self, id: u32, size: u32) {
        let index = id as usize;
        if index >= self.last.len() {
            self.last.resize(index + 1, NEVER);
            if self.unit == Unit::Bytes {
                self.sizes.resize(index + 1, 0);
            }
        }
        let before = std::mem::replace(&mut self.last[index], self.epoch);
        let newest = self.ages.len() - 1;
        let size_before = match self.unit {
            Unit::Objects => 0,
            Unit::Bytes => std::mem::replace(&mut self.sizes[index], size),
        };
        if self.unit == Unit::Bytes {
            self.ages.bytes[newest] += f64::from(size);
        }
        if before == self.epoch {
            self.ages.bytes[newest] -= f64::from(size_before);
            // What grows takes of the caches like what comes.
            if self.unit == Unit::Bytes && size > size_before {
                self.charge(f64::from(size - size_before));
            }
            return;
        }
        if before == NEVER {
            self.cold += 1.0;
        } else {
            let at = self.ages.find(before);
            self.ages.objects[at] -= 1.0;
            self.ages.bytes[at] -= f64::from(size_before);
            if self.hits[at] == 0 {
                self.touched.push(at as u32);
            }
            self.hits[at] += 1;
        }
        self.ages.objects[newest] += 1.0;
        self.charge(self.unit.charge(size) as f64);
    }

    fn remove(&mut self, id: u32) {
        let Some(last) = self.last.get_mut(id as usize) else { return };
        let before = std::mem::replace(last, NEVER);
        if before != NEVER {
            let at = self.ages.find(before);
            self.ages.objects[at] -= 1.0;
            if self.unit == Unit::Bytes {
                self.ages.bytes[at] -= f64::from(std::mem::take(&mut self.sizes[id as usize]));
            }
        }
    }

    /// Between the sizes of the caches the misses are interpolated linearly, beyond them they are those of the nearest.
    fn misses(&self, sizes: &[u64]) -> Vec<f64> {
        super::interpolate(&self.counts(), sizes)
    }

    fn decay(&mut self, keep: f64) {
        for pace in &mut self.paces {
            pace.cold *= keep;
            pace.hits_total *= keep;
            pace.hits.iter_mut().for_each(|hits| *hits *= keep);
        }
        self.caches.iter_mut().for_each(|cache| cache.misses *= keep);
    }

    fn set_rate(&mut self, rate: f64) {
        self.epoch_charge_max *= rate / self.rate;
        self.rate = rate;
    }

    fn metadata_bytes(&self) -> u64 {
        let floats: usize = self.caches.iter().map(|cache| cache.survival.capacity()).sum::<usize>()
            + self.paces.iter().map(|pace| pace.hits.capacity()).sum::<usize>();
        let words =
            self.last.capacity() + self.sizes.capacity() + self.hits.capacity() + self.touched.capacity();
        (floats * size_of::<f64>() + words * size_of::<u32>()) as u64 + self.ages.metadata_bytes()
    }
}

impl Cache {
    /// The misses of the step under way.
    fn missed(&self, pace: &Pace) -> f64 {
        let hits = pace.hits[self.alive..].iter().zip(&self.survival[self.alive..]);
        pace.cold + pace.hits_total - hits.map(|(hits, survival)| hits * survival).sum::<f64>()
    }

    fn find_alive(&mut self) {
        self.alive = self.survival.iter().position(|&survival| survival > 0.0).unwrap_or(self.survival.len());
    }

    /// Counts the misses of a step and evicts what came in with them.
    fn step(&mut self, law: &EvictionLaw, unit: Unit, rate: f64, ages: &Ages, pace: &Pace) {
        let missed = self.missed(pace);
        self.misses += missed;
        let cached = |weights: &[f64]| -> f64 {
            if self.has_evicted {
                let alive = weights[self.alive..].iter().zip(&self.survival[self.alive..]);
                alive.map(|(weight, survival)| weight * survival).sum()
            } else {
                weights.iter().sum()
            }
        };
        let objects = cached(&ages.objects);
        let size = self.size as f64 * rate;
        // The next step will miss about as often as this one, on the average halfway through it; but a cache that is not
        // full yet evicts nothing in advance.
        let evictions = match unit {
            Unit::Objects => {
                if objects > size {
                    objects - size + missed / 2.0
                } else {
                    0.0
                }
            }
            Unit::Bytes => {
                let bytes = cached(&ages.bytes);
                let mean = if objects > 0.0 { bytes / objects } else { 0.0 };
                let each = if self.bytes_per_eviction > 0.0 { self.bytes_per_eviction } else { mean };
                if bytes > size { (bytes - size) / each + missed / 2.0 } else { 0.0 }
            }
        };
        if evictions > 0.0 {
            self.has_evicted = true;
            self.evict(law, unit, ages, objects, evictions);
        }
    }

    /// Takes `evictions` of the `objects` cached ones away.
    fn evict(&mut self, law: &EvictionLaw, unit: Unit, ages: &Ages, objects: f64, evictions: f64) {
        let evictions = evictions.min(objects / 2.0);
        let per_object = 1.0 / objects;
        // Ranks halfway through the step: the method of the midpoint.
        let per_object_midway = 1.0 / (objects - evictions / 2.0);
        let (mut younger, mut younger_left, mut bytes_gone) = (0.0, 0.0, 0.0);
        for (at, survival) in self.survival.iter_mut().enumerate().skip(self.alive).rev() {
            if *survival < SURVIVAL_MIN {
                *survival = 0.0;
                self.alive = self.alive.max(at + 1);
                continue;
            }
            let cached = ages.objects[at] * *survival;
            if cached <= 0.0 {
                continue;
            }
            younger += cached;
            let rank = (younger * per_object).min(1.0);
            let midway = ((younger - evictions / 2.0 * law.at(rank)) * per_object_midway).clamp(0.0, 1.0);
            let left = (younger - evictions * law.at(midway)).max(younger_left);
            let kept = ((left - younger_left) / cached).min(1.0);
            if unit == Unit::Bytes {
                bytes_gone += ages.bytes[at] * *survival * (1.0 - kept);
            }
            *survival *= kept;
            younger_left = left;
        }
        if bytes_gone > 0.0 {
            self.bytes_per_eviction = bytes_gone / evictions;
        }
    }
}

/// Replaces each group of neighbours by one value.
fn merge_groups(values: &mut Vec<f64>, groups: &[usize], merged: impl Fn(&[f64], usize) -> f64) {
    let mut from = 0;
    for (to, &count) in groups.iter().enumerate() {
        values[to] = if count == 1 { values[from] } else { merged(&values[from..from + count], from) };
        from += count;
    }
    values.truncate(groups.len());
}

/// Groups ascending sizes by the power of two that lies between them and the smallest.
fn paces(sizes: &[u64]) -> Vec<Pace> {
    let mut paces: Vec<Pace> = Vec::new();
    for (at, &size) in sizes.iter().enumerate() {
        let epochs = 1u32 << (size / sizes[0]).ilog2().min(31);
        match paces.last_mut() {
            Some(pace) if pace.epochs == epochs => pace.caches.end = at + 1,
            _ => paces.push(Pace {
                epochs,
                caches: at..at + 1,
                start: 0,
                hits: vec![0.0],
                hits_total: 0.0,
                cold: 0.0,
            }),
        }
    }
    paces
}
