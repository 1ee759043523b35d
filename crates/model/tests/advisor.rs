//! An advisor beside caches that carry out its answers: whether its predictions come true, and whether its divisions are good.
#![allow(clippy::unwrap_used)]

use tiermem_base::Op;
use tiermem_base::Rng;
use tiermem_base::hash::sample_hash;
use tiermem_model::advisor::{Advisor, Answer, Plan, Room, Standing, Verdict, Way};
use tiermem_model::partition::Terms;
use tiermem_policy::evict::Named;
use tiermem_policy::flat::{Cache, Capacity, Request, cache};

const ITEM_BYTES: u32 = 100;
const ROOM: u64 = 1_000_000;
/// Longer than any window here.
const KEYS: u32 = 1 << 20;

/// A tenant with a cache of its own.
struct Tenant {
    keys: Box<dyn FnMut(&mut Rng) -> u32>,
    cache: Box<dyn Cache>,
    lookups: u64,
    hits: u64,
    miss_ns: f64,
}

fn tenant(bytes: u64, k: u32, miss_ns: f64, keys: impl FnMut(&mut Rng) -> u32 + 'static) -> Tenant {
    let cache = cache(Named::KLru(k), Capacity::Bytes(bytes), 7);
    Tenant { keys: Box::new(keys), cache, lookups: 0, hits: 0, miss_ns }
}

fn looping(length: u32) -> impl FnMut(&mut Rng) -> u32 {
    let mut next = 0;
    move |_| {
        next = (next + 1) % length;
        next
    }
}

/// Keys of which the first are asked for more often: the square of an even draw.
fn skewed(keys: u32) -> impl FnMut(&mut Rng) -> u32 {
    move |rng| (rng.unit_f64().powi(2) * f64::from(keys)) as u32
}

impl Tenant {
    fn ask(&mut self, number: u16, advisor: &mut Advisor, rng: &mut Rng) -> bool {
        let key = (self.keys)(rng);
        let before = self.cache.counts().misses;
        self.cache.run(&[Request { key, size: ITEM_BYTES, op: Op::Get }], KEYS);
        let found = self.cache.counts().misses == before;
        self.lookups += 1;
        self.hits += u64::from(found);
        let hash = sample_hash(u64::from(key) << 16 | u64::from(number));
        if advisor.follows(hash) {
            advisor.looked_up(number, hash, found.then_some(ITEM_BYTES));
            if !found {
                advisor.wrote(number, hash, ITEM_BYTES);
            }
        }
        advisor.note_lookup()
    }

    fn standing(&self, tenant: u16) -> Standing {
        Standing {
            tenant,
            lookups: self.lookups,
            hits: self.hits,
            writes: self.lookups - self.hits,
            held_bytes: vec![self.cache.len() * u64::from(ITEM_BYTES)],
            terms: Terms::default(),
            miss_ns: Some(self.miss_ns),
        }
    }
}

/// Runs windows; tenants ask in turn. After each the caches are made anew as the answer says.
fn run(plan: Plan, tenants: &mut [Tenant], windows: u64, adjust: &dyn Fn(&mut Vec<Standing>)) -> Vec<Answer> {
    let rooms = [Room { capacity_bytes: ROOM, slower_ns: 0.0 }];
    let mut advisor = Advisor::new(plan, &rooms, 3);
    let mut rng = Rng::seeded(5);
    let mut answers = Vec::new();
    while advisor.windows() < windows {
        for number in 0..tenants.len() {
            if tenants[number].ask(number as u16, &mut advisor, &mut rng) {
                let mut standings =
                    tenants.iter().zip(0..).map(|(tenant, number)| tenant.standing(number)).collect();
                adjust(&mut standings);
                let answer = advisor.end_window(&standings, &rooms).answer();
                advisor.note(&answer);
                for part in answer.parts.iter().filter(|_| answer.is_applied()) {
                    let tenant = &mut tenants[usize::from(part.tenant)];
                    let k = u32::from(part.ks[0]);
                    tenant.cache = cache(Named::KLru(k), Capacity::Bytes(part.bytes[0].max(1)), 7);
                }
                answers.push(answer);
            }
        }
    }
    answers
}

fn plan(way: Way) -> Plan {
    Plan { way, rate: 0.25, window: 50_000, ..Plan::default() }
}

#[test]
fn memory_goes_where_misses_are_dear_and_what_is_predicted_comes_true() {
    for way in [Way::Krr, Way::KLru, Way::Lru] {
        // Both would use all of it; the second one's misses cost ten times as much.
        let mut tenants =
            [tenant(ROOM / 2, 5, 1e5, skewed(20_000)), tenant(ROOM / 2, 5, 1e6, skewed(20_000))];
        let ks = if way == Way::Lru { vec![5] } else { plan(way).ks };
        let answers = run(Plan { ks, ..plan(way) }, &mut tenants, 6, &|_| {});
        let last = answers.iter().rev().find(|answer| answer.is_applied()).unwrap();
        assert!(last.parts[1].bytes[0] > 2 * last.parts[0].bytes[0], "{way:?} {:?}", last.parts);
        assert_eq!(last.parts.iter().map(|part| part.bytes[0]).sum::<u64>().div_ceil(10_000), ROOM / 10_000);
        let of = |answer: &Answer| answer.lost_ns;
        // The first window is cold.
        let (before, after) = (of(&answers[0]), of(answers.last().unwrap()));
        assert!(after < 0.9 * before, "{way:?}: {before} to {after}");
        let predicted = answers.last().unwrap().predicted_ns.0;
        assert!((predicted - after).abs() < 0.05 * after, "{way:?}: predicted {predicted}, was {after}");
    }
}

#[test]
fn a_loop_is_given_another_k_than_skewed_keys() {
    for way in [Way::Krr, Way::KLru, Way::Miniature] {
        let mut tenants = [tenant(ROOM, 5, 1e6, looping(15_000))];
        let looped = run(Plan { divides: false, ..plan(way) }, &mut tenants, 4, &|_| {});
        assert_eq!(looped.last().unwrap().parts[0].ks, [1], "{way:?}");
        assert_eq!(looped.last().unwrap().verdict, Verdict::ChooseK);
        let mut tenants = [tenant(ROOM, 5, 1e6, skewed(20_000))];
        let recent = run(Plan { divides: false, ..plan(way) }, &mut tenants, 4, &|_| {});
        assert!(recent.last().unwrap().parts[0].ks[0] >= 5, "{way:?}");
    }
}

#[test]
fn what_would_gain_little_is_left_alone() {
    let mut tenants = [tenant(ROOM / 2, 5, 1e6, skewed(20_000)), tenant(ROOM / 2, 5, 1e6, skewed(20_000))];
    let answers = run(plan(Way::Krr), &mut tenants, 10, &|_| {});
    let applied = answers.iter().filter(|answer| answer.is_applied()).count();
    assert!(applied <= 1, "{applied} divisions of ten among equals");
    assert!(matches!(answers.last().unwrap().verdict, Verdict::ChooseK));
}

#[test]
fn too_few_keys_decide_nothing_and_say_so() {
    let mut tenants = [tenant(ROOM, 5, 1e6, skewed(400)), tenant(ROOM, 5, 1e6, looping(300))];
    let answers = run(plan(Way::Krr), &mut tenants, 2, &|_| {});
    let verdict = &answers.last().unwrap().verdict;
    assert!(matches!(verdict, Verdict::TooFewSamples { sampled: 50..256, needed: 256 }), "{verdict}");
    // Beside a tenant with enough known keys they keep what they have.
    let mut tenants = [tenant(ROOM / 2, 5, 1e6, skewed(400)), tenant(ROOM / 2, 5, 1e6, skewed(20_000))];
    let answers = run(plan(Way::Krr), &mut tenants, 3, &|_| {});
    let last = answers.iter().rev().find(|answer| answer.is_applied()).unwrap();
    assert!((40_000..60_000).contains(&last.parts[1].bytes[0]), "{:?}", last.parts[1]);
    assert_eq!((last.parts[1].tenant, last.parts[1].miss_ratio), (0, None));
}

#[test]
fn promises_are_kept_and_those_that_outgrow_memory_are_cut_down() {
    let tenants = || [tenant(ROOM / 2, 5, 1e3, skewed(20_000)), tenant(ROOM / 2, 5, 1e6, skewed(20_000))];
    let least = |bytes| move |standings: &mut Vec<Standing>| standings[0].terms.least_bytes = bytes;
    let answers = run(plan(Way::Krr), &mut tenants(), 3, &least(600_000));
    let last = answers.iter().rev().find(|answer| answer.is_applied()).unwrap();
    assert!((600_000..610_000).contains(&last.parts[0].bytes[0]), "{:?}", last.parts);
    let answers = run(plan(Way::Krr), &mut tenants(), 2, &least(2 * ROOM));
    assert!(answers[0].is_applied(), "promises hold from the first window on");
    assert!(answers[0].parts[0].bytes[0] > ROOM * 9 / 10, "{:?}", answers[0].parts);
    // What is promised once memory is divided, and hardly could be better, holds all the same.
    let later = |standings: &mut Vec<Standing>| {
        if standings[0].lookups > 110_000 {
            standings[0].terms.least_bytes = 700_000;
        }
    };
    let answers = run(plan(Way::Krr), &mut tenants(), 7, &later);
    assert!(answers[3].parts[0].bytes[0] < 300_000, "{:?}", answers[3].parts);
    assert!(answers[4].is_applied() && answers[4].parts[0].bytes[0] >= 700_000, "{:?}", answers[4].parts);
    // So does a promise that grows by hardly anything.
    let little_more = |standings: &mut Vec<Standing>| {
        standings[0].terms.least_bytes = if standings[0].lookups > 110_000 { 507_000 } else { 500_000 };
    };
    let answers = run(plan(Way::Krr), &mut tenants(), 7, &little_more);
    assert!(answers[3].parts[0].bytes[0] < 507_000, "{:?}", answers[3].parts);
    assert!(answers[4].is_applied() && answers[4].parts[0].bytes[0] >= 507_000, "{:?}", answers[4].parts);
    assert!(!answers[6].is_applied(), "what is kept is left as it is");
    // Bounds that are less than a piece, or leave no piece in between, hold to the byte, and are kept once they are.
    let bounded = |standings: &mut Vec<Standing>| {
        standings[0].terms = Terms { least_bytes: 3_000, most_bytes: 3_000, ..Terms::default() };
    };
    let answers = run(plan(Way::Krr), &mut tenants(), 6, &bounded);
    assert!(answers.iter().all(|answer| answer.parts[0].bytes[0] == 3_000));
    assert!(answers.iter().filter(|answer| answer.is_applied()).count() <= 3);
}

#[test]
fn who_never_asks_gains_nothing_and_keys_that_never_return_do_not_pile_up() {
    let rooms = [Room { capacity_bytes: ROOM, slower_ns: 0.0 }];
    let mut advisor = Advisor::new(plan(Way::Krr), &rooms, 3);
    let mut written = 0u64;
    for window in 1..=40u64 {
        for key in 0..20_000 {
            // A second tenant only asks, for what is not there.
            let asked = sample_hash(!(window << 32 | key));
            if advisor.follows(asked) {
                advisor.looked_up(1, asked, None);
            }
            let hash = sample_hash(window << 32 | key);
            if advisor.follows(hash) {
                advisor.wrote(0, hash, ITEM_BYTES);
                written += 1;
            }
        }
        let standing = Standing {
            tenant: 0,
            lookups: 0,
            hits: 0,
            writes: 20_000 * window,
            held_bytes: vec![ROOM],
            terms: Terms::default(),
            miss_ns: None,
        };
        let answer = advisor.end_window(&[standing], &rooms).answer();
        assert!(!answer.is_applied());
    }
    // The largest cache holds 2,500 of the sample's keys.
    assert!(
        advisor.keys_sampled(0) < 16_000 && advisor.keys_sampled(1) < 16_000 && written > 150_000,
        "{} of {written}",
        advisor.keys_sampled(0)
    );
}

#[test]
fn many_keys_are_sampled_thinly_and_gone_ones_are_forgotten() {
    let rooms = [Room { capacity_bytes: 1 << 40, slower_ns: 0.0 }];
    let mut advisor = Advisor::new(Plan { rate: 0.002, ..Plan::default() }, &rooms, 1);
    let ask = |advisor: &mut Advisor, keys: std::ops::Range<u64>| {
        for key in keys {
            let hash = sample_hash(key);
            if advisor.follows(hash) {
                advisor.looked_up(0, hash, None);
            }
        }
    };
    let standing = Standing {
        tenant: 0,
        lookups: 1,
        hits: 0,
        writes: 0,
        held_bytes: vec![1 << 30],
        terms: Terms::default(),
        miss_ns: None,
    };
    ask(&mut advisor, 0..4_000_000);
    advisor.end_window(std::slice::from_ref(&standing), &rooms);
    assert!((advisor.rate() - 0.002).abs() < 1e-6, "not many yet");
    assert!((7000..9000).contains(&advisor.keys_sampled(0)), "{}", advisor.keys_sampled(0));
    ask(&mut advisor, 4_000_000..9_000_000);
    let question = advisor.end_window(std::slice::from_ref(&standing), &rooms);
    assert!(!question.answer().parts.is_empty(), "what was sampled counts once more");
    assert!((advisor.rate() - 0.001).abs() < 1e-6);
    assert_eq!(advisor.keys_sampled(0), 0);
    ask(&mut advisor, 0..1_000_000);
    assert!((900..1100).contains(&advisor.keys_sampled(0)), "{}", advisor.keys_sampled(0));
    advisor.forget();
    assert_eq!(advisor.keys_sampled(0), 0);
}
