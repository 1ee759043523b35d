//! Refusals: a store that may drop any item refuses nothing that fits, unless replies under way hold the pages.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use tiermem_base::Rng;
use tiermem_policy::ladder::{
    Act, Admit, Eviction, Ladder, LadderConfig, Loc, NewItem, Outlet, PAGE_BYTES, Ticket, Watermarks,
};
use tiermem_policy::{Id, Now};

/// What a driver tries before it gives up.
const ADMIT_TRIES: u32 = 8;
/// Pieces in which a few pages are emptied, and those in vain before a window is given up.
const AGAIN_MAX: u32 = 500;
/// Index bytes for each item, as a driver reports them.
const INDEX_BYTES: u64 = 16;

struct World {
    ladder: Ladder,
    keys: BTreeMap<u32, Id>,
    /// By number of the item: its key.
    key_of: BTreeMap<u32, u32>,
    pins: Vec<Loc>,
    now: Now,
    rng: Rng,
}

impl World {
    fn new(config: LadderConfig) -> Self {
        World {
            ladder: Ladder::new(config),
            keys: BTreeMap::new(),
            key_of: BTreeMap::new(),
            pins: Vec::new(),
            now: Now { requests: 0, unix_ms: 1 },
            rng: Rng::seeded(1),
        }
    }

    fn execute(&mut self, acts: Vec<Act>) {
        for act in acts {
            if let Act::Drop { id, loc, .. } = act {
                // The act says where it was: its number may stand for nothing by now, or for another item.
                assert!(!self.pins.contains(&loc), "a pinned item is dropped");
                let key = self.key_of.remove(&id.0).unwrap();
                self.keys.remove(&key).unwrap();
            }
        }
        let index = self.keys.len() as u64 * INDEX_BYTES;
        self.ladder.set_index_bytes(index.next_multiple_of(4096), 4096);
    }

    /// Whether it came in.
    fn enter(&mut self, key: u32, bytes: u64, rewrites: Option<Id>) -> bool {
        let hash = u64::from(key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let item = NewItem { key: hash, bytes, expires_at_ms: None, rewrites, tenant: 0, is_newcomer: true };
        let (mut tries, mut again) = (0, 0);
        while tries < ADMIT_TRIES {
            assert!(again < AGAIN_MAX, "it comes to an end");
            let mut acts = Vec::new();
            let answer = self.ladder.admit(&item, self.now, &mut self.rng, &mut acts);
            self.execute(acts);
            tries += u32::from(answer != Admit::Again);
            again += u32::from(answer == Admit::Again);
            match answer {
                Admit::Ready { id, .. } => {
                    self.keys.insert(key, id);
                    self.key_of.insert(id.0, key);
                    return true;
                }
                Admit::After(ticket) => self.ladder.done(ticket, true, |_| {}),
                Admit::Again => self.ladder.done(Ticket(u64::MAX), true, |_| {}),
                Admit::Full => return false,
            }
        }
        false
    }

    /// Whether the key has its new bytes.
    fn set(&mut self, key: u32, bytes: u64) -> bool {
        self.now.requests += 1;
        if self.ladder.is_due(self.now) {
            self.step();
        }
        let Some(&old) = self.keys.get(&key) else { return self.enter(key, bytes, None) };
        self.ladder.touch(old, self.now);
        if self.ladder.transit_mut().rewrite_in_place(old, bytes) {
            return true;
        }
        let held = self.ladder.transit_mut().pin(old, None);
        let entered = self.enter(key, bytes, Some(old));
        self.ladder.transit_mut().unpin(held);
        self.forget(old, key);
        entered || self.enter(key, bytes, None)
    }

    fn forget(&mut self, id: Id, key: u32) {
        self.ladder.transit_mut().remove(id);
        self.key_of.remove(&id.0);
        if self.keys.get(&key) == Some(&id) {
            self.keys.remove(&key);
        }
    }

    /// A reply is under way.
    fn pin(&mut self, key: u32) {
        if let Some(&id) = self.keys.get(&key) {
            self.pins.push(self.ladder.transit_mut().pin(id, None));
        }
    }

    fn step(&mut self) {
        self.ladder.done(Ticket(u64::MAX), true, |_| {});
        let mut acts = Vec::new();
        self.ladder.step(self.now, &mut self.rng, &mut acts);
        self.execute(acts);
    }

    /// Whether some tier may hold `pages` pages and has that many in a row without a pinned item on them.
    fn has_unpinned_window(&self, pages: u64) -> bool {
        (0..self.ladder.residents().levels()).any(|tier| {
            let total = self.ladder.config().levels[tier].capacity_bytes / PAGE_BYTES;
            let held: Vec<_> = self
                .pins
                .iter()
                .filter(|loc| usize::from(loc.tier) == tier)
                .map(|loc| {
                    let first = loc.byte_offset() / PAGE_BYTES;
                    let level = self.ladder.residents().level(tier);
                    first..first + level.place_bytes(loc.unit).div_ceil(PAGE_BYTES)
                })
                .collect();
            pages <= total / 4
                && (0..=total - pages)
                    .any(|start| held.iter().all(|held| held.end <= start || start + pages <= held.start))
        })
    }
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 1u64..4_000, 4 => 4_000u64..60_000, 4 => 66_000u64..190_000, 1 => 190_000u64..400_000]
}

fn config() -> impl Strategy<Value = LadderConfig> {
    (prop::collection::vec(40u64..120, 1..3), any::<bool>(), any::<bool>()).prop_map(
        |(pages, charge, marks)| {
            let capacities: Vec<u64> = pages.iter().map(|pages| pages * PAGE_BYTES).collect();
            LadderConfig {
                eviction: Eviction::AllItems,
                charge_metadata: charge,
                watermarks: marks.then(Watermarks::default),
                ..LadderConfig::with_capacities(&capacities)
            }
        },
    )
}

/// The number of cases: `PROPTEST_CASES`, or `default`.
fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::with_cases(cases(40)) })]

    #[test]
    fn nothing_that_fits_is_refused_but_for_pins(
        config in config(),
        small in 20u64..3_000,
        choked in prop::option::of(0u64..200_000),
        ops in prop::collection::vec((0u8..16, 0u32..3_000, bytes()), 400..1200),
    ) {
        let total: u64 = config.levels.iter().map(|level| level.capacity_bytes).sum();
        let mut world = World::new(config);
        // Full of one size, and then come others.
        for key in 0..(total / small.max(200) * 5 / 4) as u32 {
            prop_assert!(world.set(10_000 + key, small));
        }
        for (what, key, bytes) in ops {
            match what {
                0 => world.pin(key),
                1..=2 => if let Some(loc) = world.pins.pop() {
                    world.ladder.transit_mut().unpin(loc);
                },
                _ => {
                    if let Some(spare_bytes) = choked {
                        world.ladder.set_outlet(Outlet::Choked { room_bytes: u64::MAX, spare_bytes });
                    }
                    let came = world.set(key, bytes);
                    let pages = bytes.div_ceil(PAGE_BYTES);
                    // The window of a large item is chosen once, and one pin in it is enough.
                    let is_excused = !world.pins.is_empty() && (pages >= 4 || !world.has_unpinned_window(pages));
                    prop_assert!(came || is_excused, "{} bytes with {} pins", bytes, world.pins.len());
                }
            }
        }
    }
}

/// Metadata has the memory of some pages, which lie free while the tier is full: a run over such a page lacks another.
#[test]
fn a_run_finds_room_in_a_full_tier_that_pays_for_metadata() {
    let config = LadderConfig::with_capacities(&[256 * PAGE_BYTES]);
    let mut world = World::new(config);
    let mut sizes = Rng::seeded(2);
    for request in 0..100_000 {
        let bytes = if request % 200 == 0 { 66_000 + sizes.below(84_000) } else { sizes.below(5_000) };
        assert!(world.set(sizes.below(200_000) as u32, bytes), "{bytes} bytes in request {request}");
    }
}

/// What lies below takes hardly anything, so others have to go for a large item, and its own old place is held meanwhile.
#[test]
fn a_large_item_does_not_ask_for_ever_while_what_lies_below_has_to_catch_up() {
    let config = LadderConfig::with_capacities(&[80 * PAGE_BYTES]);
    let mut world = World::new(config);
    let mut sizes = Rng::seeded(3);
    for request in 0..20_000 {
        world.ladder.set_outlet(Outlet::Choked { room_bytes: u64::MAX, spare_bytes: 100 });
        let bytes = if request % 10 == 0 { 190_000 + sizes.below(210_000) } else { sizes.below(5_000) };
        assert!(world.set(sizes.below(3_000) as u32, bytes), "{bytes} bytes in request {request}");
    }
}
