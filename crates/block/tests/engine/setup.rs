//! Parameters of the worlds of the engine tests.

use tiermem_base::Rng;
use tiermem_policy::extents::cleaner::WriteBackOrder;
use tiermem_policy::extents::{Around, Fill, Mode, Sizing};

pub const KIB: u64 = 1 << 10;
pub const ORDERS: [WriteBackOrder; 3] = [WriteBackOrder::Group, WriteBackOrder::Flush, WriteBackOrder::None];

/// Parameters of a world.
#[derive(Clone, Debug)]
pub struct Setup {
    pub sizes_bytes: Vec<u64>,
    pub cache_bytes: u64,
    pub volume_bytes: u64,
    pub fill: Fill,
    pub sizing: Sizing,
    pub modes: Vec<Mode>,
    /// In which order dirty bytes reach the stores.
    pub order: WriteBackOrder,
    /// Whether the cache outlives the process.
    pub durable: bool,
    /// DRAM for copies.
    pub memory_bytes: u64,
    /// DRAM for the log's table; enough for all of it unless given.
    pub table_bytes: Option<u64>,
    /// Requests in a thousand to the cache's device and to each store that fail.
    pub failures_per_mille: u64,
    /// Whether places of the cache's device and of stores go bad.
    pub bad_places: bool,
}

impl Setup {
    /// Bytes of the log.
    pub fn log_bytes(&self) -> u64 {
        512 * KIB
    }

    /// Whether a write fetches what it does not cover of its block.
    pub fn fetches_around(&self) -> bool {
        self.fill == Fill::Whole || self.sizing != Sizing::Request
    }

    /// Any setup of a cache that outlives the process.
    pub fn draw(rng: &mut Rng) -> Self {
        let sizes: [&[u64]; 3] =
            [&[32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB], &[4 * KIB, 16 * KIB], &[64 * KIB]];
        let around = Around { read: Some(0), write: Some(0) };
        let sizings = [Sizing::Request, Sizing::Around(around), Sizing::Observed(Default::default())];
        let modes = [Mode::WriteBack, Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround];
        let volumes = 1 + rng.below(2);
        Setup {
            sizes_bytes: sizes[rng.below(3) as usize].to_vec(),
            cache_bytes: (2 << 20) + (6 + rng.below(20)) * 256 * KIB,
            volume_bytes: (2 << 20) + rng.below(3) * 512,
            fill: if rng.below(2) == 0 { Fill::Whole } else { Fill::Units },
            sizing: sizings[rng.below(3) as usize],
            modes: (0..volumes).map(|_| modes[rng.below(4) as usize]).collect(),
            order: ORDERS[rng.below(3) as usize],
            durable: true,
            memory_bytes: rng.below(3) * 256 * KIB,
            table_bytes: (rng.below(2) == 0).then(|| (2 + rng.below(3)) * 4 * KIB),
            failures_per_mille: if rng.below(4) == 0 { 1 + rng.below(20) } else { 0 },
            bad_places: false,
        }
    }
}
