//! Moves that are weighed: what has paid is found in the same way in both, and decides.

use super::{live, simulated};
use tiermem_base::{Access, Op, Rng};
use tiermem_policy::ladder::LadderConfig;

/// Keys that pass through, each used some times soon after it comes; then some of them are hot, and others pass again.
fn trace() -> Vec<Access> {
    let mut rng = Rng::seeded(4);
    let key = |at: u64| match at {
        40_000..60_000 => 5000 + rng.below(800),
        _ => (at / 3).saturating_sub(rng.below(3) * 20),
    };
    let access = |(at, key): (usize, u64)| Access {
        time_ns: at as u64 * 1000,
        op: Op::Get,
        key,
        size: 500 + (key % 5) as u32 * 100,
        ..Access::default()
    };
    (0..100_000).map(key).enumerate().map(access).collect()
}

#[test]
fn moves_are_weighed_alike() {
    let trace = trace();
    let counts = [true, false].map(|weighs_moves| {
        let capacities = [2 << 20, 64 << 20];
        let ladder = LadderConfig {
            weighs_moves,
            reuse_window_requests: 1 << 14,
            charge_metadata: false,
            ..LadderConfig::with_capacities(&capacities)
        };
        let (live, simulated) = (live(&ladder, None, &trace), simulated(&ladder, None, &trace));
        assert_eq!(live, simulated, "{weighs_moves}");
        let [_, _, demotions, evictions, _] = live.tiers[0];
        let [_, promotions, ..] = live.tiers[1];
        assert_eq!(evictions, 0);
        (promotions, demotions)
    });
    let [weighed, always] = counts;
    assert!(weighed.0 > 0 && weighed.1 * 2 < always.1, "{weighed:?} {always:?}");
}
