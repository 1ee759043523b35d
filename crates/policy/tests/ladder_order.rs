//! What the ladder's orders and admissions do to whom, seen from outside.

mod keyed;

use keyed::{World, config};
use tiermem_policy::ladder::{Admission, Admit, LadderConfig, NewItem, Order, PAGE_BYTES, Priority};

#[test]
fn of_a_sample_the_least_used_goes_first() {
    for by in [Priority::Recency, Priority::Frequency] {
        let mut world = World::new(config(&[8], Order::Sample { k: 8, by }));
        // A hundred keys are used all the time while three thousand pass by, of which some 490 fit.
        for key in 100..3000 {
            world.access(key % 100, 1000, None);
            world.access(key, 1000, None);
        }
        assert!(world.held(0..100) >= 95, "{by:?}: {} of the used are left", world.held(0..100));
        assert!(world.held(100..3000) > 300, "{by:?}");
        // With K = 1 whoever it hits goes.
        let mut random = World::new(config(&[8], Order::Sample { k: 1, by }));
        for key in 100..3000 {
            random.access(key % 100, 1000, None);
            random.access(key, 1000, None);
        }
        assert!(random.held(0..100) < 95, "{by:?}: {} were spared by chance", random.held(0..100));
    }
}

#[test]
fn by_expiry_the_soonest_goes_first() {
    let mut world = World::new(config(&[8], Order::Sample { k: 16, by: Priority::Expiry }));
    // Every other key lives ten times as long.
    for key in 0..2000 {
        let lives_ms = if key % 2 == 0 { 1_000_000 } else { 10_000_000 };
        world.access(key, 1000, Some(lives_ms + key as u64));
    }
    let of = |parity: usize| (0..1500).filter(|key| key % 2 == parity && world.ids[*key].is_some()).count();
    assert!(of(1) > 10 * of(0), "{} long and {} short lives are left", of(1), of(0));
}

#[test]
fn samples_save_the_links() {
    let fill = |order| {
        let mut world = World::new(config(&[400], order));
        (0..100_000).for_each(|key| world.access(key, 200, None));
        world.ladder.metadata_bytes() as f64 / world.ladder.residents().items() as f64
    };
    let (lists, samples) = (fill(Order::Lists), fill(Order::Sample { k: 5, by: Priority::Recency }));
    assert!(lists - samples > 8.0, "{lists} and {samples} bytes an item");
}

#[test]
fn new_items_that_prove_useless_enter_below_and_useful_ones_above() {
    for (admission, below) in [(Admission::Proven, true), (Admission::Fast, false)] {
        let mut world = World::new(LadderConfig { admission, ..config(&[4, 200], Order::Lists) });
        (0..4000).for_each(|key| world.access(key, 1000, None));
        let demoted = world.ladder.residents().level(0).counters().demotions;
        (4000..6000).for_each(|key| world.access(key, 1000, None));
        let copied = world.ladder.residents().level(0).counters().demotions - demoted;
        assert_eq!(copied < 500, below, "{admission:?}: {copied} of 2000 were copied down");
        // Another size, of which each item is used again soon, is not judged by that.
        for key in 6000..7000 {
            world.access(key, 100, None);
            world.access(key - 3, 100, None);
        }
        assert!(world.in_tier(0, 6900..7000) > 90, "{admission:?}: {}", world.in_tier(0, 6900..7000));
    }
}

#[test]
fn interleaved_items_stay_where_their_hash_puts_them() {
    let admission = Admission::Interleaved { fast_share: 0.25 };
    let mut world = World::new(LadderConfig { admission, ..config(&[100, 100], Order::Lists) });
    (0..4000).for_each(|key| world.access(key, 1000, None));
    let fast = world.in_tier(0, 0..4000);
    assert!((900..1100).contains(&fast), "{fast} of 4000");
    assert_eq!(world.ladder.residents().level(0).counters().demotions, 0);
}

#[test]
fn a_large_item_goes_where_pages_are_free_and_nobody_waits_for_small_ones_to_leave() {
    let mut world = World::new(config(&[40, 80], Order::Lists));
    // The fast tier is full of small items, the slow one is not.
    (0..40_000).for_each(|key| world.access(key, 64, None));
    let mut acts = Vec::new();
    let item = NewItem { key: 7, bytes: 16 * PAGE_BYTES, expires_at_ms: None, rewrites: None, tenant: 0 };
    let answer = world.ladder.admit(&item, world.now, &mut world.rng, &mut acts);
    let Admit::Ready { loc, .. } = answer else { panic!("{answer:?}") };
    assert_eq!((loc.tier, acts.len()), (1, 0));
}
