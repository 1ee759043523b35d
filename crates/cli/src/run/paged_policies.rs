//! What other policies would have made of what was seen of a paged program: simulated, by granule.

use std::convert::Infallible;
use std::thread::available_parallelism;

use tiermem_base::{Access, Op, Rng};
use tiermem_pager::run::Report;
use tiermem_pager::steer::Uses;
use tiermem_policy::evict::Named;
use tiermem_policy::frames::TierConfig;
use tiermem_policy::{Id, prefetch};
use tiermem_sim::frames::{self, Counts, Cut, Look, Memory, Order, Setup, Touches};

use crate::output::{Cell, Rows};

const POLICIES: &[&str] = &[
    "evict",
    "dram_bytes",
    "touches",
    "faults",
    "faults_low",
    "faults_high",
    "fault_ratio",
    "granule_bytes",
    "share",
];
/// The kernel's own reclaim, policies that can be chosen, and what no policy can do better.
const ORDERS: [Order; 8] = [
    Order::Kernel,
    Order::Named(Named::Lru),
    Order::Named(Named::Clock),
    Order::Named(Named::S3Fifo),
    Order::Named(Named::Arc),
    Order::Named(Named::Lfu),
    Order::Belady,
    Order::Fixed,
];

/// Rows of the report; none where nothing was seen.
pub fn rows(report: &Report) -> Rows {
    let uses = report.steered.as_ref().and_then(|steered| steered.uses.as_ref());
    let rows = uses.and_then(|uses| simulated(uses, report.dram_bytes)).unwrap_or_default();
    Rows { fields: POLICIES, rows }
}

/// `None`: there is nothing to simulate, or too little DRAM to have room for granules.
fn simulated(uses: &Uses, dram_bytes: u64) -> Option<Vec<Vec<Cell>>> {
    let granules = (dram_bytes as f64 * uses.share() / uses.granule_bytes() as f64) as u64;
    let granules = u32::try_from(granules).ok().filter(|granules| *granules > 0)?;
    // A granule is a frame; its number stands for its address. All hold data: what was read alone would be zeros, which need no flash.
    // Between two looks the order is not known. In that of addresses, uses of more granules than fit would be sweeps, which they may not be.
    let mut uses_in_order: Vec<(u32, u64)> = uses.all().collect();
    uses_in_order.sort_by_cached_key(|(look, granule)| (*look, drawn(*look, *granule)));
    // A granule is a frame; its number stands for its address. All hold data: what is only read would be zeros, which need no flash.
    let accesses =
        uses_in_order.into_iter().map(|(look, granule)| Ok(Access::new(look.into(), Op::Store, granule, 1)));
    let cut = Cut { in_slices: true, look: Look::Nanos(1), ..Cut::in_order(1) };
    let touches = Touches::of::<Infallible>(accesses, cut).ok().filter(|touches| touches.count() > 0)?;
    let tiers = vec![TierConfig::memory(granules), TierConfig::storage(Id::COUNT_MAX)];
    let memory = Memory { tiers, ..Memory::default() };
    let setups = ORDERS.map(|order| Setup { order, prefetch: prefetch::Named::None });
    let threads = available_parallelism().map_or(1, usize::from);
    let outcomes = frames::run(&touches, &memory, &setups, threads);
    let row = |(setup, counts): (&Setup, Counts)| {
        vec![
            Cell::Text(setup.order.name().to_owned()),
            Cell::Bytes(dram_bytes),
            Cell::Count(counts.touches),
            Cell::Count(counts.faults),
            Cell::Count(counts.faults_low),
            Cell::Count(counts.faults_high),
            Cell::Number(counts.fault_ratio(), 6),
            Cell::Bytes(uses.granule_bytes()),
            Cell::Number(uses.share(), 6),
        ]
    };
    // One that cannot be simulated is left out.
    let outcomes = setups.iter().zip(outcomes).filter_map(|(setup, outcome)| Some((setup, outcome.ok()?)));
    Some(outcomes.map(row).collect())
}

/// The place of a granule among those of its look.
fn drawn(look: u32, granule: u64) -> u64 {
    Rng::seeded(granule ^ u64::from(look) << 40).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few granules that are used at each look, and a sweep beside them.
    fn seen() -> Uses {
        let mut uses = Uses::of(64 << 10);
        for look in 0..200_u64 {
            (0..4).for_each(|granule| uses.page(granule * 16));
            uses.page(16 * (10 + look % 20));
            uses.looked([]);
        }
        uses
    }

    #[test]
    fn policies_are_compared_by_granule() {
        let rows = simulated(&seen(), 8 * (64 << 10)).unwrap();
        assert_eq!(rows.len(), ORDERS.len());
        let of = |name: &str| {
            let named = |row: &&Vec<Cell>| matches!(&row[0], Cell::Text(text) if text == name);
            match rows.iter().find(named).unwrap()[3] {
                Cell::Count(faults) => faults,
                _ => panic!("faults are a count"),
            }
        };
        // 180 uses of the sweep come back; no policy keeps more than three of its twenty granules, beside the four.
        assert!((150..=180).contains(&of("belady")), "{}", of("belady"));
        assert!(of("belady") <= of("lfu") && of("lru") == 180);
        assert!(simulated(&seen(), 1000).is_none() && simulated(&Uses::of(4096), 1 << 30).is_none());
    }
}
