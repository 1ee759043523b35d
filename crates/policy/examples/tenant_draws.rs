//! Costs of drawing K items of one tenant among many: from a list of its own, and from a list of all items by checking the tenant
//! of each until K are found, as a store with one dictionary must (Wang 2024, section 4.1.3).
//!
//!     cargo run --release -p tiermem-policy --example tenant_draws -- [ITEMS]
//!
//! A million items, equally many of each tenant, in one tier; nothing leaves. Columns: tenants, ns for a victim from its tenant's
//! own list, ns by checking, items checked for it.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::time::Instant;

use tiermem_base::Rng;
use tiermem_base::latency_curve::LOCAL_DRAM;
use tiermem_policy::ladder::{Admit, INSERTION_POINT_FAST, Ladder, LadderConfig, LevelConfig, NewItem};
use tiermem_policy::{Id, Now};

const K: u8 = 5;
const ITEM_BYTES: u64 = 64;
/// Victims that are timed together, and how often; the median counts.
const VICTIMS: u32 = 2000;
const ROUNDS: usize = 9;

/// So many items, each tenant's as likely as any other's.
fn filled(items: u64, tenants: u64) -> (Ladder, Now, Rng) {
    let level = LevelConfig {
        capacity_bytes: 4 * items * ITEM_BYTES,
        insertion_point: INSERTION_POINT_FAST,
        order: Default::default(),
        curve: LOCAL_DRAM,
    };
    let mut ladder =
        Ladder::new(LadderConfig { levels: vec![level], tenants: true, ..LadderConfig::default() });
    let (mut rng, mut acts, mut now) = (Rng::seeded(1), Vec::new(), Now::default());
    for key in 0..items {
        now.requests += 1;
        let tenant = rng.below(tenants) as u16;
        let item = NewItem {
            key,
            bytes: ITEM_BYTES,
            expires_at_ms: None,
            rewrites: None,
            tenant,
            is_newcomer: true,
        };
        let answer = ladder.admit(&item, now, &mut rng, &mut acts);
        assert!(matches!(answer, Admit::Ready { .. }), "there is room for all");
        acts.clear();
    }
    (ladder, now, rng)
}

/// Median time for one of [`VICTIMS`].
fn median_ns(mut victim: impl FnMut()) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..VICTIMS).for_each(|_| victim());
            start.elapsed().as_nanos() as f64 / f64::from(VICTIMS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn main() {
    let items: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    println!("tenants  own_ns  looking_ns  looked_at");
    for tenants in [1, 4, 15, 100, 1000] {
        let (mut ladder, now, mut rng) = filled(items, tenants);
        let mut turn = 0;
        let own_ns = median_ns(|| {
            turn = (turn + 1) % tenants as u16;
            black_box(ladder.residents_mut().choose_victim(turn, 0, K, now, &mut rng));
        });
        let mut looked_at = 0u64;
        let looking_ns = median_ns(|| {
            turn = (turn + 1) % tenants as u16;
            let mut found = 0;
            while found < K {
                let id = Id(rng.below(items) as u32);
                looked_at += 1;
                if ladder.residents().tenants().is_some_and(|tenants| tenants.owner(id) == turn) {
                    // The one that is kept is the longest unused, which its place says.
                    black_box(ladder.residents().nodes().loc(id));
                    found += 1;
                }
            }
        });
        let looked_at = looked_at as f64 / (ROUNDS as f64 * f64::from(VICTIMS));
        println!("{tenants:>7}  {own_ns:>6.0}  {looking_ns:>10.0}  {looked_at:>9.1}");
    }
}
