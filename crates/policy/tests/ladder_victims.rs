//! Victims of the ladder's orders and admissions, seen from outside.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod keyed;

use std::collections::BTreeMap;

use keyed::{World, config, hash};
use tiermem_base::Rng;
use tiermem_policy::Id;
use tiermem_policy::evict::{self, Departure, Domain, Evict, Item, Named, Origin, Touch};
use tiermem_policy::ladder::{Admission, Admit, LadderConfig, NewItem, Order, PAGE_BYTES, Priority};
use tiermem_policy::promotion_rule::Promotion;

/// Runs a policy by itself with room for `capacity` items. Returns its hits.
fn hits_alone(named: Named, capacity: usize, keys: &[usize]) -> u64 {
    let mut order = evict::Order::new(named, 1, 0);
    let (mut rng, domain) = (Rng::seeded(5), Domain(0));
    let (mut ids, mut held, mut free): (BTreeMap<usize, Id>, BTreeMap<Id, usize>, Vec<Id>) =
        Default::default();
    let mut hits = 0;
    for (now, &key) in (1..).zip(keys) {
        if let Some(&id) = ids.get(&key) {
            order.hit(id, Touch { now, write: false }, || domain);
            hits += 1;
            continue;
        }
        order.miss(domain, hash(key));
        // The ladder takes a number before it makes room for it.
        let id = free.pop().unwrap_or(Id((held.len() + free.len()) as u32));
        if held.len() == capacity {
            let victim = order.victim(domain, now, &mut rng, |_| true).unwrap();
            order.remove(victim, domain, Departure::Evicted);
            ids.remove(&held.remove(&victim).unwrap());
            free.push(victim);
        }
        let item = Item { key: hash(key), size: 1000_u32.div_ceil(16), dirty: true, now };
        order.insert(id, domain, Origin::Admitted(item));
        ids.insert(key, id);
        held.insert(id, key);
    }
    hits
}

/// Keys by a popularity that shifts now and then, with scans between.
fn keys(count: usize) -> Vec<usize> {
    let mut rng = Rng::seeded(11);
    let key = |at: usize| {
        let shift = at / 5000 * 300;
        match rng.below(4) {
            0 => 10_000 + at,
            _ => shift + rng.below(3000).min(rng.below(3000)).min(rng.below(3000)) as usize,
        }
    };
    (0..count).map(key).collect()
}

/// The ladder adds nothing to a policy and takes nothing from it: one tier of items of one size hits as the policy alone.
#[test]
fn a_policy_hits_on_the_ladder_as_it_does_alone() {
    let keys = keys(20_000);
    for named in Named::ALL {
        let one = LadderConfig {
            watermarks: None,
            rebalance_batch: 0,
            promotion: Promotion::None,
            ..config(&[8], Order::Policy(named))
        };
        let mut world = World::new(one);
        keys.iter().for_each(|&key| world.access(key, 1000, None));
        let capacity = world.ladder.residents().items() as usize;
        assert!(capacity > 450, "{named}: {capacity} items");
        let hits = world.ladder.residents().level(0).counters().hits;
        assert_eq!(hits, hits_alone(named, capacity, &keys), "{named}");
    }
}

/// Whatever the sizes, over two tiers and with everything that moves items: each item is in one place, and tiers hold what they may.
#[test]
fn every_policy_serves_tiers_and_sizes() {
    for named in Named::ALL {
        let mut world =
            World::new(LadderConfig { charge_metadata: true, ..config(&[40, 80], Order::Policy(named)) });
        for (at, key) in keys(30_000).into_iter().enumerate() {
            let bytes = if at < 15_000 { 200 + key as u64 % 900 } else { 100 + key as u64 % 7000 };
            world.access(key, bytes, None);
            if at % 1000 == 0 && world.ids[key].is_some() {
                let id = world.ids[key].take().unwrap();
                world.ladder.transit_mut().remove(id);
            }
        }
        let residents = world.ladder.residents();
        assert_eq!(residents.items() as usize, world.held(0..world.ids.len()), "{named}");
        let counters = [0, 1].map(|tier| residents.level(tier).counters());
        assert!(counters[0].demotions > 100 && counters[1].evictions > 100, "{named}: {counters:?}");
        assert!(counters[1].promotions > 0, "{named}: {counters:?}");
        (0..200).for_each(|_| world.step());
        assert!(world.ladder.charged_bytes(0) <= 40 * PAGE_BYTES, "{named}");
        assert!(world.ladder.residents().level(1).is_within_capacity(), "{named}");
        assert!(world.ladder.clear() && world.ladder.residents().items() == 0, "{named}");
    }
}

#[test]
fn a_policy_orders_all_tiers_or_none() {
    let mut mixed = config(&[8, 8], Order::Policy(Named::Sieve));
    assert_eq!(mixed.check_orders(), Ok(()));
    assert!(LadderConfig { tenants: true, ..mixed.clone() }.check_orders().is_err());
    mixed.levels[1].order = Order::Lists;
    assert!(mixed.check_orders().unwrap_err().contains("all tiers or none"));
}

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
        // With K = 1 the item drawn is the victim.
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
fn items_that_were_there_before_enter_above_where_newcomers_enter_below() {
    let config = || LadderConfig { admission: Admission::Proven, ..config(&[4, 200], Order::Lists) };
    let demotions = |world: &World| world.ladder.residents().level(0).counters().demotions;
    let mut world = World::new(config());
    (0..4000).for_each(|key| world.access(key, 1000, None));
    let before = demotions(&world);
    (4000..6000).for_each(|key| world.bring_back(key, 1000));
    let copied = demotions(&world) - before;
    assert!(copied > 1900, "{copied} of 2000 were copied down, as only those are that entered above");
    // What became of them says nothing about newcomers.
    let mut world = World::new(config());
    (0..4000).for_each(|key| world.bring_back(key, 1000));
    let before = demotions(&world);
    (4000..4050).for_each(|key| world.access(key, 1000, None));
    assert_eq!(world.in_tier(0, 4000..4050), 50, "nothing is known of newcomers yet");
    assert!(demotions(&world) > before);
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
    let item = NewItem {
        key: 7,
        bytes: 16 * PAGE_BYTES,
        expires_at_ms: None,
        rewrites: None,
        tenant: 0,
        is_newcomer: true,
    };
    let answer = world.ladder.admit(&item, world.now, &mut world.rng, &mut acts);
    let Admit::Ready { loc, .. } = answer else { panic!("{answer:?}") };
    assert_eq!((loc.tier, acts.len()), (1, 0));
}
