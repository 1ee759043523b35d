//! Rows for each tier.

use tiermem_base::TierSpec;
use tiermem_policy::frames::TierConfig;
use tiermem_sim::frames::{Counts, Setup};

use super::names;
use crate::output::Cell;

/// The columns.
pub const FIELDS: &[&str] = &[
    "evict",
    "prefetch",
    "tier",
    "capacity_bytes",
    "peak_bytes",
    "touches",
    "moved_up",
    "moved_down",
    "read_bytes",
    "written_bytes",
];

/// A row for each tier, fastest first. Flash that was not given has no spec and no limit.
pub fn rows(
    setup: Setup,
    frame_bytes: u64,
    (specs, configs): (&[TierSpec], &[TierConfig]),
    counts: &Counts,
) -> Vec<Vec<Cell>> {
    let row = |(at, (config, tier)): (usize, (&TierConfig, &tiermem_sim::frames::TierCounts))| {
        let mut row = names(setup).to_vec();
        row.push(Cell::Text(specs.get(at).map_or_else(|| "flash".to_owned(), |spec| spec.name.clone())));
        let bytes = |frames: u64| Cell::Count(frames.saturating_mul(frame_bytes));
        row.extend([bytes(config.frames.into()), bytes(tier.peak_frames)]);
        row.extend([tier.touches, tier.moved_up, tier.moved_down].map(Cell::Count));
        row.extend([tier.read_bytes, tier.written_bytes].map(Cell::Count));
        row
    };
    configs.iter().zip(&counts.tiers).enumerate().map(row).collect()
}
