//! DLRU: K-LRU whose K is chosen while it runs (Wang 2024, chapter 3), by the advisor that the store has.

use tiermem_base::Op;
use tiermem_base::hash::sample_hash;
use tiermem_model::advisor::{Advisor, Plan, Room, Standing};
use tiermem_model::partition::Terms;
use tiermem_policy::choose_k::K_DEFAULT;
use tiermem_policy::evict::klru::KLru;
use tiermem_policy::flat::{Cache, Capacity, Counts, Flat, Request};

/// The bytes that a unit of the cache's capacity counts for the advisor, which keeps no more keys in its sample than would fill
/// memory with items of 64 bytes: objects of any size, and values of four bytes and more, are to be followed like a store's
/// items.
const OBJECT_BYTES: u32 = 256;
const VALUE_BYTE_BYTES: u32 = 16;

/// The only tenant.
const ALL: u16 = 0;

/// A cache that chooses its K after every window.
#[derive(Debug)]
pub struct Dlru {
    cache: Flat<KLru>,
    advisor: Advisor,
    room: Room,
    counts_bytes: bool,
    /// Look-ups that found something.
    hits: u64,
    lookups: u64,
    writes: u64,
    /// After how many requests K became what.
    chosen: Vec<(u64, u8)>,
    /// Look-ups and hits up to the window that runs.
    window_from: (u64, u64),
    predictions: Vec<Prediction>,
}

/// The sample's prediction for a window that ended, at the K that the cache had in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The miss ratio of the sample.
    pub predicted: f64,
    /// What the cache itself missed.
    pub measured: f64,
}

impl Dlru {
    /// An empty cache; `seed` decides what it draws. It begins with Redis's K, as long as nothing better is known.
    pub fn new(plan: Plan, capacity: Capacity, seed: u64) -> Self {
        let counts_bytes = matches!(capacity, Capacity::Bytes(_));
        let unit_bytes = if counts_bytes { VALUE_BYTE_BYTES } else { OBJECT_BYTES };
        let capacity_bytes = capacity.units().saturating_mul(unit_bytes.into());
        let room = Room { capacity_bytes, slower_ns: 0.0 };
        Dlru {
            cache: Flat::new(KLru::new(1, K_DEFAULT.into()), capacity, seed),
            advisor: Advisor::new(Plan { divides: false, ..plan }, &[room], seed),
            room,
            counts_bytes,
            hits: 0,
            lookups: 0,
            writes: 0,
            chosen: vec![(0, K_DEFAULT)],
            window_from: (0, 0),
            predictions: Vec::new(),
        }
    }

    /// After how many requests K became what, from the start on.
    pub fn chosen(&self) -> &[(u64, u8)] {
        &self.chosen
    }

    /// The miss ratio of each window in which enough keys were seen to say anything (Wang 2024, section 3.2.2).
    pub fn predictions(&self) -> &[Prediction] {
        &self.predictions
    }

    fn access(&mut self, request: Request, keys: u32) {
        let before = self.cache.counts().misses;
        self.cache.run(&[request], keys);
        let found = self.cache.counts().misses == before;
        let hash = sample_hash(request.key.into());
        let bytes = match self.counts_bytes {
            true => request.size.saturating_mul(VALUE_BYTE_BYTES),
            false => OBJECT_BYTES,
        };
        let follows = self.advisor.follows(hash);
        match request.op {
            Op::Del => {
                if follows {
                    self.advisor.removed(ALL, hash);
                }
            }
            Op::Set => self.wrote(hash, bytes, follows),
            _ => {
                self.lookups += 1;
                self.hits += u64::from(found);
                if follows {
                    self.advisor.looked_up(ALL, hash, found.then_some(bytes));
                }
                if !found {
                    // A miss brings the object in: the client writes it.
                    self.wrote(hash, bytes, follows);
                }
                if self.advisor.note_lookup() {
                    self.end_window();
                }
            }
        }
    }

    fn wrote(&mut self, hash: u64, bytes: u32, follows: bool) {
        self.writes += 1;
        if follows {
            self.advisor.wrote(ALL, hash, bytes);
        }
    }

    fn end_window(&mut self) {
        let standing = Standing {
            tenant: ALL,
            lookups: self.lookups,
            hits: self.hits,
            writes: self.writes,
            held_bytes: vec![self.room.capacity_bytes],
            terms: Terms::default(),
            miss_ns: None,
        };
        let answer = self.advisor.end_window(&[standing], &[self.room]).answer();
        self.advisor.note(&answer);
        let (lookups, hits) = (self.lookups - self.window_from.0, self.hits - self.window_from.1);
        self.window_from = (self.lookups, self.hits);
        if let Some(predicted) = answer.parts.first().and_then(|part| part.miss_ratio_before) {
            let measured = 1.0 - hits as f64 / lookups.max(1) as f64;
            self.predictions.push(Prediction { predicted, measured });
        }
        // Where too few keys were seen, the default is as good as any.
        let k = answer.parts.first().map(|part| part.ks[0]).filter(|&k| k > 0).unwrap_or(K_DEFAULT);
        if self.chosen.last().is_none_or(|&(_, last)| last != k) {
            self.cache.policy_mut().set_k(k.into());
            self.chosen.push((self.cache.counts().requests, k));
        }
    }
}

impl Cache for Dlru {
    fn run(&mut self, requests: &[Request], keys: u32) {
        requests.iter().for_each(|&request| self.access(request, keys));
    }

    fn counts(&self) -> Counts {
        self.cache.counts()
    }

    fn len(&self) -> u64 {
        self.cache.len()
    }

    fn metadata_bytes(&self) -> u64 {
        self.cache.metadata_bytes() + self.advisor.metadata_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_base::Rng;

    /// Two phases: circles larger than the cache, in which the oldest is the one that comes back first, then skewed keys.
    fn phases() -> Vec<Request> {
        let mut rng = Rng::seeded(3);
        let get = |key| Request { key, size: 100, op: Op::Get };
        let circles = (0..400_000).map(|at| get(at % 6000));
        circles.chain((0..400_000).map(|_| get(6000 + (rng.unit_f64().powi(3) * 20_000.0) as u32))).collect()
    }

    #[test]
    fn each_phase_has_its_k_and_no_fixed_one_does_much_better() {
        let requests = phases();
        let misses = |cache: &mut dyn Cache| {
            cache.run(&requests, 26_000);
            cache.counts().misses as f64
        };
        for way in [Plan::dlru(), Plan { divides: false, ..Plan::default() }] {
            let plan = Plan { window: 40_000, rate: 0.2, ..way };
            let mut dynamic = Dlru::new(plan, Capacity::Objects(4000), 1);
            let found = misses(&mut dynamic);
            let fixed = [1, 2, 5, 10, 16]
                .map(|k| misses(&mut Flat::new(KLru::new(1, k), Capacity::Objects(4000), 1)));
            let best = fixed.iter().copied().fold(f64::INFINITY, f64::min);
            // It is late by a window or some, and a phase has ten.
            assert!(found < 1.03 * best, "{found} beside {fixed:?}, K {:?}", dynamic.chosen());
            let off = dynamic.predictions().iter().map(|it| (it.predicted - it.measured).abs());
            let (windows, off) = (dynamic.predictions().len(), off.sum::<f64>());
            assert!(windows >= 18 && off / (windows as f64) < 0.05, "{off} in {windows} windows");
            let ks: Vec<u8> = dynamic.chosen().iter().map(|&(_, k)| k).collect();
            assert!(ks.contains(&1) && ks.iter().any(|&k| k >= 8), "{ks:?}");
        }
    }

    /// A sample of more keys than fit 64 bytes each into the cache, were an object a byte, is followed all the same.
    #[test]
    fn what_is_predicted_comes_true_where_there_are_many_objects() {
        let mut rng = Rng::seeded(4);
        let mut skewed = || (rng.unit_f64().powi(2) * 100_000.0) as u32;
        let requests: Vec<Request> =
            (0..600_000).map(|_| Request { key: skewed(), size: 100, op: Op::Get }).collect();
        let plan = Plan { window: 60_000, rate: 0.25, ..Plan::dlru() };
        let mut cache = Dlru::new(plan, Capacity::Objects(50_000), 1);
        cache.run(&requests, 100_000);
        for window in &cache.predictions()[1..] {
            assert!((window.predicted - window.measured).abs() < 0.03, "{window:?}");
        }
    }
}
