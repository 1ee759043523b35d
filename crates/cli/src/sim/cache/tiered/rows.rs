//! Rows of the final state, summed over all shards.

use std::collections::BTreeMap;

use tiermem_base::Bytes;
use tiermem_sim::cache::ShardedCache;
use tiermem_sim::cache::tiered::TieredCache;

use crate::output::Cell;

/// Two rows' counts added up.
pub fn added<const N: usize>(mut sum: [u64; N], row: [u64; N]) -> [u64; N] {
    sum.iter_mut().zip(row).for_each(|(sum, count)| *sum += count);
    sum
}

/// A row for each tenant and tier, as they are in the end, by the tenants' numbers in the trace.
pub fn of_tenants(cache: &ShardedCache) -> Vec<Vec<Cell>> {
    let mut rows: BTreeMap<(u64, u64), [u64; 6]> = BTreeMap::new();
    for shard in cache.shards() {
        let names = shard.divider().into_iter().flat_map(|it| it.tenants().tallies()).map(|(name, _)| name);
        let name = |name: &[u8]| String::from_utf8_lossy(name).parse().unwrap_or(0);
        for (name, number) in names.map(name).zip(0..) {
            for tier in 0..shard.shard().ladder().residents().levels() {
                let level = shard.shard().ladder().residents().tenant_level(number, tier);
                let (counters, k) = (level.counters, u64::from(level.k));
                let counts =
                    [level.items, level.bytes, level.share_bytes, k, counters.evictions, counters.trespasses];
                let row = rows.entry((name, tier as u64)).or_default();
                *row = added(*row, counts);
                // Every shard has the same; a sum of it means nothing.
                row[3] = k;
            }
        }
    }
    let row = |((name, tier), counts): ((u64, u64), [u64; 6])| {
        [name, tier].into_iter().chain(counts).map(Cell::Count).collect()
    };
    rows.into_iter().map(row).collect()
}

/// The flash tier's row, after `years` of trace time.
pub fn of_flash(cache: &ShardedCache, years: f64, endurance: Option<Bytes>) -> Vec<Cell> {
    let of = |cache: &TieredCache| {
        let Some(tail) = cache.tail() else { return [0; 16] };
        let log = tail.counters();
        [
            tail.capacity_bytes(),
            tail.items(),
            log.hits,
            tail.reads(),
            log.promotions,
            log.evictions,
            log.admitted,
            log.rejected,
            log.refused,
            log.unchanged,
            tail.unindexed(),
            log.kept,
            log.segments_emptied,
            cache.figures().waits(),
            log.admitted_bytes,
            tail.written_bytes(),
        ]
    };
    let counts = cache.shards().iter().map(of).fold([0; 16], added);
    let [.., admitted_bytes, written_bytes] = counts;
    let amplification = written_bytes as f64 / admitted_bytes as f64;
    let worn = endurance.map_or(f64::NAN, |endurance| written_bytes as f64 / endurance.0 as f64);
    let lifetime_years = if worn > 0.0 && years > 0.0 { years / worn } else { f64::NAN };
    let mut cells: Vec<_> = counts.map(Cell::Count).into();
    cells.extend([Cell::Number(amplification, 3), Cell::Number(lifetime_years, 2)]);
    cells
}
