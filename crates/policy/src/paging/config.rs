//! Configuration of the machine, set when it is made.

use super::page_range::PageRange;
use crate::Id;
use crate::frames::{self, Arrival, References, TierConfig};
use crate::{evict, prefetch};

/// The granule by which references are told: with it the 49,152 mappings that a process may have cover 3 GiB. Of twice the size most are used
/// between two looks that take a tenth of a processor, if uses are at random.
pub const GRANULE_BYTES: u64 = 64 << 10;
/// How often granules are looked at.
pub const LOOK_NS: u64 = 1_000_000_000;

/// One page in so many of DRAM is kept free at least.
const LOW_ONE_OF: u32 = 64;
/// No more pages than that are kept free at least: 32 MiB of 4 KiB.
const LOW_MAX: u32 = 8192;

/// Pages of DRAM that steps keep free: they begin when fewer than `low` are, and stop at `high`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Watermarks {
    /// 0: steps only bring down what exceeds the capacity, and a fault in full DRAM makes a page leave.
    pub low: u32,
    /// At least `low`.
    pub high: u32,
}

impl Watermarks {
    /// For a DRAM of so many pages: enough that what faults between two steps finds room, and little of the whole.
    pub fn of(dram_pages: u32) -> Self {
        let low = (dram_pages / LOW_ONE_OF).clamp(1, LOW_MAX).min(dram_pages.saturating_sub(1) / 2);
        Watermarks { low, high: 2 * low }
    }
}

/// Who chooses the pages that leave DRAM where it is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reclaim {
    /// The eviction order of this machine.
    #[default]
    Order,
    /// The kernel, by itself and for the limit that it knows. It has accessed bits of each page.
    Kernel,
    /// The kernel, for which the eviction order of this machine stands: a simulation. Like the kernel it does not know what is held.
    SimulatedKernel,
}

/// Pages that DRAM is taken for where the kernel reclaims: there are never too few of them.
pub(super) const UNLIMITED_PAGES: u32 = u32::MAX >> 1;

/// All of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// DRAM, then slower tiers: two to four. The kernel pages out to the first that is not in place.
    pub tiers: Vec<TierConfig>,
    /// Where a page comes that faults or is fetched ahead, if several tiers are in place.
    pub arrival: Arrival,
    /// Who chooses the pages that leave.
    pub reclaim: Reclaim,
    /// Whether sweeps drop what they have passed, where that pays.
    pub drop_behind: bool,
    /// How the eviction order hears of references: each at once, or when it names the page as a victim, which is spared once. By
    /// granule a list by recency needs the second: where each granule has a page that was used, all are spared alike, and the order is what
    /// it was. Told at once, all pages would be put into the order of their addresses, which can double the faults of LRU. A policy that
    /// counts uses needs the first: it learns how often a page was used, not only whether ([`Config::references_of`]).
    pub references: References,
    /// Whether each write is told. No live pager can tell.
    pub writes_told: bool,
    /// Acts that can be under way at once.
    pub moves_max: u32,
    /// The prefetcher.
    pub prefetch: prefetch::Named,
    /// Pages that hold data in the last tier though none of them was seen yet: those of a device or a file.
    pub stored: PageRange,
    /// Size of a page.
    pub page_bytes: u32,
}

/// Acts under way at once, for a driver that hands them to the kernel 1024 ranges at a time.
const MOVES_MAX: u32 = 4096;

impl Config {
    /// For a program whose faults the kernel serves: so much DRAM with watermarks over swap with room for `swap_pages`.
    pub fn kernel(dram_pages: u32, swap_pages: u32) -> Self {
        let Watermarks { low, high } = Watermarks::of(dram_pages);
        let dram = TierConfig { low, high, ..TierConfig::memory(dram_pages) };
        let swap = TierConfig { keeps_copies: false, ..TierConfig::storage(swap_pages.min(Id::COUNT_MAX)) };
        Config {
            tiers: vec![dram, swap],
            arrival: Arrival::First,
            reclaim: Reclaim::Order,
            drop_behind: false,
            references: References::Sampled,
            writes_told: false,
            moves_max: MOVES_MAX,
            prefetch: prefetch::Named::None,
            stored: PageRange::default(),
            page_bytes: 4096,
        }
    }

    /// The same with a pool: local memory of `local_pages`, which fills first and gives its pages to nobody but the memory below it, then
    /// `remote_pages` with watermarks of another node. Pages leave for swap from there alone.
    pub fn pool(local_pages: u32, remote_pages: u32, swap_pages: u32) -> Self {
        let mut config = Config::kernel(remote_pages, swap_pages);
        config.tiers.insert(0, TierConfig::memory(local_pages));
        config.arrival = Arrival::Spill;
        config
    }

    /// How a policy hears of references that are told by granule.
    pub fn references_of(policy: evict::Named) -> References {
        if policy.moves_at_hits() { References::Sampled } else { References::Told }
    }

    /// The tier in place from which pages leave memory as others come: see [`Arrival`].
    pub fn turnover_tier(&self) -> usize {
        match self.arrival {
            Arrival::First => 0,
            Arrival::Spill => self.tiers.iter().take_while(|tier| tier.in_place).count().saturating_sub(1),
        }
    }

    /// The configuration of the frames: an eviction policy has [`frames::domains`] of it.
    pub fn frames(&self) -> frames::Config {
        let mut tiers = self.tiers.clone();
        if let Some(tier) = tiers.get_mut(self.turnover_tier()).filter(|_| self.reclaim == Reclaim::Kernel) {
            let Watermarks { low, high } = Watermarks::of(UNLIMITED_PAGES);
            *tier = TierConfig { frames: UNLIMITED_PAGES, low, high, ..*tier };
        }
        frames::Config {
            arrival: self.arrival,
            references: self.references,
            writes_told: self.writes_told,
            moves_max: self.moves_max,
            frame_bytes: self.page_bytes,
            ..frames::Config::of(&tiers)
        }
    }
}
