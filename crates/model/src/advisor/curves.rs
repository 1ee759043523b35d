//! The curves of one tenant, kept while it is served.

use tiermem_base::Interner;
use tiermem_policy::evict::Named;

use super::{Plan, Way};
use crate::mrc::klru::{EvictionLaw, SampledCaches};
use crate::mrc::krr::{Correction, KrrStack};
use crate::mrc::{Curve, Miniature, Model, Point, Unit};

/// Distances are told apart to one part in 2^6: 64 bins an octave, some ten kilobytes for each K.
const PRECISION_BITS: u32 = 7;
/// When the sample's keys have so many times the bytes of the largest cache of interest, the longest unused are forgotten:
/// whoever of them comes back would be a miss at practically every size.
const FORGET_AT: u64 = 4;
/// Set in a key's window while a look-up has missed it and nobody has written it since.
const MISSED: u16 = 1 << 15;

/// The K-LRU curves of one tenant over a sample of its keys, one for each K, in bytes.
///
/// Keys have one number for all K. Memory, per key of the sample: 21 to 43 bytes for the number, 6 here, and 12 in each
/// KRR stack ([`SampledCaches`]: 8, and 8 for each of its buckets and sizes).
pub(super) struct TenantCurves {
    keys: Interner,
    /// By number: the bytes that the item had when it was last seen.
    sizes: Vec<u32>,
    /// By number: the window in which it was last asked for or written, and [`MISSED`].
    windows: Vec<u16>,
    models: Vec<(u8, Box<dyn Model + Send>)>,
    /// Bytes of all items of the sample.
    bytes: u64,
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
                Way::KLru => Box::new(SampledCaches::new(EvictionLaw::k_lru(real), Unit::Bytes, sizes, rate)),
                Way::Miniature => {
                    Box::new(Miniature::new(Named::KLru(k.into()), Unit::Bytes, sizes, rate, seed))
                }
            };
            (k, model)
        };
        let (keys, sizes, windows) = (Interner::new(), Vec::new(), Vec::new());
        TenantCurves { keys, sizes, windows, models: plan.ks.iter().map(model).collect(), bytes: 0 }
    }

    /// A look-up. `bytes` are those of the item that was found; of one that was not, what it had when it was last seen
    /// stands for them, or the mean.
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
        }
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

    /// What was counted so far weighs `keep` times as much from now on, and keys unused for long are forgotten; `largest`
    /// is the largest cache of interest, in bytes of the sample.
    pub fn end_window(&mut self, keep: f64, window: u16, largest: u64) {
        self.models.iter_mut().for_each(|(_, model)| model.decay(keep));
        if self.bytes <= largest.saturating_mul(FORGET_AT) {
            return;
        }
        let age = |at: u16| window.wrapping_sub(at) & !MISSED;
        let mut by_age: Vec<(u16, u64)> =
            self.keys.entries().map(|(key, id)| (age(self.windows[id as usize] & !MISSED), key)).collect();
        by_age.sort_unstable_by(|a, b| b.cmp(a));
        for (_, key) in by_age {
            if self.bytes <= largest.saturating_mul(FORGET_AT - 1) {
                break;
            }
            self.removed(key);
        }
    }

    /// From now on these sizes are of interest, as many as before.
    pub fn resize(&mut self, sizes: &[u64]) {
        self.models.iter_mut().for_each(|(_, model)| model.resize(sizes));
    }

    /// Keys in the sample.
    pub fn keys_sampled(&self) -> u64 {
        self.keys.len() as u64
    }

    /// The curves at these ascending sizes; `accesses` are those that the sample's counts are held against, which were so
    /// many in all (the correction of SHARDS).
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
        let own = self.sizes.capacity() * size_of::<u32>() + self.windows.capacity() * size_of::<u16>();
        self.keys.metadata_bytes() + own as u64 + models
    }
}
