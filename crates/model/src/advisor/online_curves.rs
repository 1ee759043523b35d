//! Online curves of one tenant, kept while it is served.

use tiermem_base::{Interner, Rng};
use tiermem_policy::evict::Named;

use super::config::{Plan, Way};
use crate::mrc::klru::{EvictionLaw, SampledCaches};
use crate::mrc::krr::{Correction, KrrStack};
use crate::mrc::{Curve, LruStack, Miniature, Model, Point, Unit};

/// Distances are told apart to one part in 2^6: 64 bins an octave, some ten kilobytes for each K.
const PRECISION_BITS: u32 = 7;
/// The longest unused one of this many keys drawn is forgotten where there are too many.
const DRAWN: u64 = 8;
/// Keys forgotten for one that comes, as long as there are too many: more room is not made at once.
const FORGOTTEN: usize = 2;
/// Set in a key's window while a look-up has missed it and no write has followed.
const MISSED: u16 = 1 << 15;

/// The K-LRU curves of one tenant over a sample of its keys, one for each K, in bytes.
///
/// Keys have one number for all K. Memory, per key of the sample: 21 to 43 bytes for the number, 14 here, and 12 in each
/// KRR stack ([`SampledCaches`]: 8, and 8 for each of its buckets and sizes; [`LruStack`]: 12 to 21).
pub(super) struct TenantCurves {
    keys: Interner,
    /// By number: its key.
    hashes: Vec<u64>,
    /// By number: the bytes that the item had when it was last seen.
    sizes: Vec<u32>,
    /// By number: the window in which it was last asked for or written, and [`MISSED`].
    windows: Vec<u16>,
    models: Vec<(u8, Box<dyn Model + Send>)>,
    /// Bytes of all items of the sample.
    bytes: u64,
    rng: Rng,
}

impl std::fmt::Debug for TenantCurves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TenantCurves").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

impl TenantCurves {
    /// Curves at `sizes`, ascending, of the keys that a sample of this rate holds.
    pub fn new(plan: &Plan, rate: f64, sizes: &[u64], seed: u64) -> Self {
        let model = |&k: &u8| -> (u8, Box<dyn Model + Send>) {
            let real = f64::from(k);
            let model: Box<dyn Model + Send> = match plan.way {
                Way::Krr => Box::new(
                    KrrStack::new(Unit::Bytes, real, Correction::Power, rate, seed)
                        .with_precision(PRECISION_BITS),
                ),
                Way::Lru => Box::new(LruStack::new(Unit::Bytes, rate).with_precision(PRECISION_BITS)),
                Way::KLru => Box::new(SampledCaches::new(EvictionLaw::k_lru(real), Unit::Bytes, sizes, rate)),
                Way::Miniature => {
                    Box::new(Miniature::new(Named::KLru(k.into()), Unit::Bytes, sizes, rate, seed))
                }
            };
            (k, model)
        };
        TenantCurves {
            keys: Interner::new(),
            hashes: Vec::new(),
            sizes: Vec::new(),
            windows: Vec::new(),
            models: plan.ks.iter().map(model).collect(),
            bytes: 0,
            rng: Rng::seeded(seed),
        }
    }

    /// A look-up. `bytes` are those of the item that was found; for a miss the key's last known bytes stand in, or the mean.
    pub fn looked_up(&mut self, hash: u64, bytes: Option<u32>, window: u16) {
        let missed = if bytes.is_none() { MISSED } else { 0 };
        let id = self.seen(hash, bytes, window | missed);
        self.access(id);
    }

    /// A write. Only what no look-up has missed before is an access of its own: otherwise it is that look-up's end.
    pub fn wrote(&mut self, hash: u64, bytes: u32, window: u16) {
        let answers = self.keys.get(hash).is_some_and(|id| self.windows[id as usize] & MISSED != 0);
        let id = self.seen(hash, Some(bytes), window);
        if !answers {
            self.access(id);
        }
    }

    /// The key is gone.
    pub fn removed(&mut self, hash: u64) {
        if let Some(id) = self.keys.remove(hash) {
            self.bytes -= u64::from(std::mem::take(&mut self.sizes[id as usize]));
            self.models.iter_mut().for_each(|(_, model)| model.remove(id));
        }
    }

    fn seen(&mut self, hash: u64, bytes: Option<u32>, window: u16) -> u32 {
        let (id, new) = self.keys.intern(hash);
        let at = id as usize;
        if at >= self.sizes.len() {
            self.sizes.resize(at + 1, 0);
            self.windows.resize(at + 1, 0);
            self.hashes.resize(at + 1, 0);
        }
        self.hashes[at] = hash;
        let before = self.sizes[at];
        let bytes = bytes.unwrap_or(if new { self.mean_bytes() } else { before });
        self.bytes = self.bytes - u64::from(before) + u64::from(bytes);
        self.sizes[at] = bytes;
        self.windows[at] = window;
        id
    }

    fn access(&mut self, id: u32) {
        let bytes = self.sizes[id as usize].max(1);
        self.models.iter_mut().for_each(|(_, model)| model.access(id, bytes));
    }

    fn mean_bytes(&self) -> u32 {
        (self.bytes / (self.keys.len() as u64).max(1)) as u32
    }

    /// Forgets keys that were not used for long until there are `most` again, a few at a time. A forgotten key that comes back
    /// counts as new.
    pub fn bound(&mut self, most: usize, window: u16) {
        for _ in 0..FORGOTTEN {
            if self.keys.len() <= most {
                return;
            }
            let age = |id: usize| window.wrapping_sub(self.windows[id]) & !MISSED;
            let numbers = self.hashes.len() as u64;
            // Numbers that are free now have no key.
            let drawn = (0..DRAWN).map(|_| self.rng.below(numbers) as usize);
            let held = drawn.filter(|&id| self.keys.get(self.hashes[id]) == Some(id as u32));
            if let Some(oldest) = held.max_by_key(|&id| age(id)) {
                self.removed(self.hashes[oldest]);
            }
        }
    }

    /// Ends a window: counts so far weigh `keep` times as much from now on.
    pub fn end_window(&mut self, keep: f64) {
        self.models.iter_mut().for_each(|(_, model)| model.decay(keep));
    }

    /// From now on these sizes are of interest, as many as before.
    pub fn resize(&mut self, sizes: &[u64]) {
        self.models.iter_mut().for_each(|(_, model)| model.resize(sizes));
    }

    /// Keys in the sample.
    pub fn keys_sampled(&self) -> u64 {
        self.keys.len() as u64
    }

    /// The curves at these ascending sizes, at this sampling rate. `accesses` is the expected number of accesses in the sample,
    /// which the sample's counts are corrected by (the correction of SHARDS).
    pub fn curves(&self, sizes: &[u64], accesses: f64, rate: f64) -> Vec<(u8, Curve)> {
        let expected = (accesses * rate).max(f64::MIN_POSITIVE);
        let curve = |(k, model): &(u8, Box<dyn Model + Send>)| {
            let point = |(&size, misses): (&u64, f64)| Point {
                size,
                miss_ratio: (misses / expected).clamp(0.0, 1.0),
                error: 0.0,
            };
            let points = sizes.iter().zip(model.misses(sizes)).map(point).collect();
            (*k, Curve { unit: Unit::Bytes, requests: accesses, points })
        };
        self.models.iter().map(curve).collect()
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        let models: u64 = self.models.iter().map(|(_, model)| model.metadata_bytes()).sum();
        let own = self.sizes.capacity() * size_of::<u32>()
            + self.windows.capacity() * size_of::<u16>()
            + self.hashes.capacity() * size_of::<u64>();
        self.keys.metadata_bytes() + own as u64 + models
    }
}
