//! Configuration of an advisor, and the facts that it is told at the end of a window.

use tiermem_policy::choose_k::Overheads;
use tiermem_policy::partition::Objective;

use crate::partition::Terms;

/// Where curves come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Way {
    /// The stack of KRR: all sizes in one pass, little memory.
    #[default]
    Krr,
    /// [`crate::mrc::klru`]: closer to the truth, more memory a tenant.
    KLru,
    /// Miniature caches (section 3.1.1): the caches themselves, scaled down.
    Miniature,
    /// The stack of exact LRU, whatever K serves. The least work, and wrong where K matters: what came before KRR, to measure
    /// what curves of K-LRU gain (Wang 2024, section 4.2.3, pRedis).
    Lru,
}

/// How an advisor works; defaults are those of Wang 2024, section 4.1.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The quantity to minimise.
    pub objective: Objective,
    /// Whether memory is divided; if not, only K is chosen.
    pub divides: bool,
    /// Where curves come from.
    pub way: Way,
    /// The K to choose from.
    pub ks: Vec<u8>,
    /// The share of the keys that is sampled.
    pub rate: f64,
    /// Whether there are fewer of them once there are eight million keys, a thousandth, where it was more.
    pub thins: bool,
    /// Look-ups of a window.
    pub window: u64,
    /// The weight of earlier windows relative to the one that ends: 0 none, 1 the same.
    pub keep: f64,
    /// The least gain of a division that is worth its evictions, as a part of what is lost without it.
    pub gain_least: f64,
    /// Pieces that memory is divided in.
    pub granules: u64,
    /// The assumed cost of a miss where none is known.
    pub miss_ns: f64,
    /// The costs of choosing a victim here.
    pub overheads: Overheads,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            objective: Objective::Latency,
            divides: true,
            way: Way::Krr,
            ks: vec![1, 5, 8, 16],
            rate: 0.01,
            thins: true,
            window: 1_000_000,
            keep: 0.5,
            gain_least: 0.02,
            granules: 256,
            miss_ns: 1e6,
            overheads: Overheads::default(),
        }
    }
}

impl Plan {
    /// Whether only the size is of interest that a tenant has: then its miniature caches stand for that one (equation 3.1, but in bytes:
    /// a mean size misleads where sizes change).
    pub(super) fn is_at_one_size(&self) -> bool {
        self.way == Way::Miniature && !self.divides
    }

    /// Choosing K by miniature caches: DLRU, with the parameters of Wang 2024, section 3.1.
    pub fn dlru() -> Self {
        Plan {
            divides: false,
            way: Way::Miniature,
            ks: vec![1, 2, 5, 10, 16],
            rate: 1.0 / 200.0,
            window: 5_000_000,
            keep: 0.0,
            ..Plan::default()
        }
    }
}

/// A tier, as a division sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Room {
    /// The bytes that items may take there.
    pub capacity_bytes: u64,
    /// What a look-up takes longer when its item is one tier further down; of the last tier nothing is asked, for there it is
    /// the cost of a miss.
    pub slower_ns: f64,
}

/// A tenant at the end of a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Its number.
    pub tenant: u16,
    /// Look-ups so far.
    pub lookups: u64,
    /// Of these, the look-ups that found their key.
    pub hits: u64,
    /// Writes so far.
    pub writes: u64,
    /// Bytes that its items take in each tier.
    pub held_bytes: Vec<u64>,
    /// Its bounds and promises.
    pub terms: Terms,
    /// The cost of a miss, where it is declared.
    pub miss_ns: Option<f64>,
}
