//! Conformance suite of eviction policies: the contract of [`Evict`], checked for each policy.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use proptest::prelude::*;
use tiermem_base::Rng;
use tiermem_policy::Id;
use tiermem_policy::evict::any_policy::WithPolicy;
use tiermem_policy::evict::{Departure, Domain, Evict, Item, Named, Order, Origin, Touch};

/// Domains in these tests.
const DOMAINS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Op {
    Insert {
        id: u32,
        domain: u32,
        hot: bool,
    },
    Hit {
        id: u32,
        write: bool,
    },
    Resize {
        id: u32,
        size: u32,
    },
    Delete {
        id: u32,
    },
    /// Between two domains, as a demotion or promotion does.
    Move {
        id: u32,
        domain: u32,
        up: bool,
    },
    /// The victim among ids that are no multiple of `held`; it leaves.
    Evict {
        domain: u32,
        held: u32,
    },
    Miss {
        domain: u32,
        key: u32,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let (id, domain) = (0u32..120, 0u32..DOMAINS as u32);
    prop_oneof![
        5 => (id.clone(), domain.clone(), any::<bool>())
            .prop_map(|(id, domain, hot)| Op::Insert { id, domain, hot }),
        4 => (id.clone(), any::<bool>()).prop_map(|(id, write)| Op::Hit { id, write }),
        1 => (id.clone(), 1u32..9).prop_map(|(id, size)| Op::Resize { id, size }),
        1 => id.clone().prop_map(|id| Op::Delete { id }),
        1 => (id.clone(), domain.clone(), any::<bool>()).prop_map(|(id, domain, up)| Op::Move { id, domain, up }),
        2 => (domain.clone(), 1u32..5).prop_map(|(domain, held)| Op::Evict { domain, held }),
        1 => (domain, id).prop_map(|(domain, key)| Op::Miss { domain, key }),
    ]
}

/// Runs the operations that make sense and checks every answer against a set; gives back the victims.
struct Conform<'a> {
    ops: &'a [Op],
}

impl WithPolicy for Conform<'_> {
    type Output = Result<Vec<u32>, TestCaseError>;

    fn with<E: Evict + Send + Debug + 'static>(self, mut policy: E) -> Self::Output {
        let mut rng = Rng::seeded(1);
        let mut held: BTreeMap<u32, u32> = BTreeMap::new();
        let mut victims = Vec::new();
        for (now, op) in (1u64..).zip(self.ops) {
            match *op {
                Op::Insert { id, domain, hot } if !held.contains_key(&id) => {
                    let item = Item { key: u64::from(id), size: 1 + id % 5, dirty: id % 2 == 0, now };
                    let origin = if hot { Origin::Rewritten(item) } else { Origin::Admitted(item) };
                    policy.insert(Id(id), Domain(domain), origin);
                    held.insert(id, domain);
                }
                Op::Hit { id, write } if held.contains_key(&id) => {
                    policy.hit(Id(id), Touch { now, write }, || Domain(held[&id]));
                }
                Op::Resize { id, size } if held.contains_key(&id) => {
                    policy.resize(Id(id), Domain(held[&id]), size);
                }
                Op::Delete { id } if held.contains_key(&id) => {
                    policy.remove(Id(id), Domain(held.remove(&id).unwrap()), Departure::Deleted);
                }
                Op::Move { id, domain, up } if held.contains_key(&id) => {
                    policy.remove(Id(id), Domain(held[&id]), Departure::Moved);
                    let origin = if up { Origin::Promoted } else { Origin::Demoted };
                    policy.insert(Id(id), Domain(domain), origin);
                    held.insert(id, domain);
                }
                Op::Evict { domain, held: every } => {
                    let may_go = |id: Id| every == 1 || !id.0.is_multiple_of(every);
                    let there: BTreeSet<u32> = held
                        .iter()
                        .filter(|(id, at)| **at == domain && may_go(Id(**id)))
                        .map(|(id, _)| *id)
                        .collect();
                    let victim = policy.victim(Domain(domain), now, &mut rng, may_go);
                    if every == 1 {
                        // It may give up only where an item was refused.
                        prop_assert_eq!(victim.is_some(), !there.is_empty());
                    }
                    if let Some(Id(victim)) = victim {
                        prop_assert!(there.contains(&victim), "{} is not there, or may not go", victim);
                        policy.remove(Id(victim), Domain(domain), Departure::Evicted);
                        held.remove(&victim);
                        victims.push(victim);
                    }
                }
                Op::Miss { domain, key } => policy.miss(Domain(domain), u64::from(key)),
                _ => {}
            }
            shows_who_is_there(&policy, &held)?;
        }
        // Every item leaves in the end, each once.
        for domain in 0..DOMAINS as u32 {
            while let Some(victim) = policy.victim(Domain(domain), 1 << 20, &mut rng, |_| true) {
                policy.remove(victim, Domain(domain), Departure::Evicted);
                prop_assert_eq!(held.remove(&victim.0), Some(domain));
            }
        }
        prop_assert!(held.is_empty());
        policy.insert(
            Id(7),
            Domain(0),
            Origin::Admitted(Item { key: 7, size: 1, dirty: false, now: 1 << 21 }),
        );
        policy.clear();
        prop_assert_eq!(policy.len(Domain(0)), 0);
        prop_assert_eq!(policy.victim(Domain(0), 1 << 22, &mut rng, |_| true), None);
        Ok(victims)
    }
}

/// Lengths, and both ends of the order, are those of the items that are there.
fn shows_who_is_there(policy: &impl Evict, held: &BTreeMap<u32, u32>) -> Result<(), TestCaseError> {
    for domain in 0..DOMAINS as u32 {
        let len = held.values().filter(|at| **at == domain).count();
        prop_assert_eq!(policy.len(Domain(domain)) as usize, len);
        let mut seen = BTreeSet::new();
        policy.hottest(Domain(domain), 1000, |id| {
            assert!(
                held.get(&id.0) == Some(&domain) && seen.insert(id),
                "{id:?} is shown twice or not there"
            );
        });
        let mut seen = BTreeSet::new();
        policy.coldest(Domain(domain), 1000, |id| {
            assert!(
                held.get(&id.0) == Some(&domain) && seen.insert(id),
                "{id:?} is shown twice or not there"
            );
        });
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_victim_is_there_and_may_go(ops in prop::collection::vec(op(), 1..400), capacity in 0u64..60) {
        for named in Named::ALL {
            let first = named.build(DOMAINS, capacity, Conform { ops: &ops });
            let again = named.build(DOMAINS, capacity, Conform { ops: &ops });
            let first = first.map_err(|error| TestCaseError::fail(format!("{named}: {error}")))?;
            prop_assert_eq!(&first, &again.unwrap(), "{} decides alike from the same seed", named);
            let any = Conform { ops: &ops }.with(Order::new(named, DOMAINS, capacity));
            prop_assert_eq!(first, any.unwrap(), "{} decides alike in the enum of all", named);
        }
    }

    #[test]
    fn the_cold_end_is_who_goes_next(ops in prop::collection::vec(op(), 1..200), capacity in 0u64..60) {
        for named in Named::ALL {
            // Where uses are only marked, a used item is passed over when it is judged.
            let marks = matches!(named, Named::Clock | Named::Clock2 | Named::Sieve | Named::S3Fifo | Named::LruLazy);
            let has_end = marks
                || matches!(
                    named,
                    Named::Fifo | Named::Lru | Named::Slru | Named::S4Lru | Named::TwoQ | Named::Arc | Named::Cflru(_)
                );
            let ends = named.build(DOMAINS, capacity, ColdEnd { ops: &ops, with_uses: !marks });
            for (cold, len, victim) in ends {
                prop_assert_eq!(cold.len() as u32, if has_end { len } else { 0 }, "{}: all, or none", named);
                if has_end {
                    prop_assert_eq!(cold.first().copied(), victim, "{}", named);
                }
            }
        }
    }
}

/// The cold end of each domain after some operations, the number of items, and the victims.
struct ColdEnd<'a> {
    ops: &'a [Op],
    with_uses: bool,
}

impl WithPolicy for ColdEnd<'_> {
    type Output = Vec<(Vec<Id>, u32, Option<Id>)>;

    fn with<E: Evict + Send + Debug + 'static>(self, mut policy: E) -> Self::Output {
        let mut rng = Rng::seeded(1);
        let mut held: BTreeMap<u32, u32> = BTreeMap::new();
        for (now, op) in (1u64..).zip(self.ops) {
            match *op {
                Op::Insert { id, domain, .. } if !held.contains_key(&id) => {
                    let item = Item { key: u64::from(id), size: 1, dirty: id % 2 == 0, now };
                    policy.insert(Id(id), Domain(domain), Origin::Admitted(item));
                    held.insert(id, domain);
                }
                Op::Hit { id, write } if self.with_uses && held.contains_key(&id) => {
                    policy.hit(Id(id), Touch { now, write }, || Domain(held[&id]));
                }
                Op::Delete { id } if held.contains_key(&id) => {
                    policy.remove(Id(id), Domain(held.remove(&id).unwrap()), Departure::Deleted);
                }
                Op::Evict { domain, .. } => {
                    if let Some(victim) = policy.victim(Domain(domain), now, &mut rng, |_| true) {
                        policy.remove(victim, Domain(domain), Departure::Evicted);
                        held.remove(&victim.0);
                    }
                }
                _ => {}
            }
        }
        let domains = (0..DOMAINS as u32).map(Domain);
        let ends = domains.map(|domain| {
            let mut cold = Vec::new();
            policy.coldest(domain, 1000, |id| cold.push(id));
            (cold, policy.len(domain), policy.victim(domain, 1 << 20, &mut rng, |_| true))
        });
        ends.collect()
    }
}

/// A scan through a full domain of a hundred: what is held afterwards must not depend on how long the scan was.
struct Scan {
    items: u32,
}

impl WithPolicy for Scan {
    type Output = u64;

    fn with<E: Evict + Send + Debug + 'static>(self, mut policy: E) -> u64 {
        let mut rng = Rng::seeded(1);
        let mut free: Vec<u32> = (0..100).collect();
        for key in 0..self.items {
            let now = u64::from(key);
            policy.miss(Domain(0), now);
            let id = free.pop().unwrap_or_else(|| {
                let victim = policy.victim(Domain(0), now, &mut rng, |_| true).unwrap();
                policy.remove(victim, Domain(0), Departure::Evicted);
                victim.0
            });
            let item = Item { key: u64::from(key), size: 1, dirty: false, now };
            policy.insert(Id(id), Domain(0), Origin::Admitted(item));
        }
        policy.metadata_bytes()
    }
}

#[test]
fn ghosts_are_bounded_by_what_is_held() {
    for named in Named::ALL {
        let bytes = |items| named.build(1, 0, Scan { items });
        assert_eq!(bytes(2_000), bytes(50_000), "{named}");
    }
}

/// All items may be held but one: policies give up after some refusals, but never loop, and never name another.
struct OnlyOne;

impl WithPolicy for OnlyOne {
    type Output = Option<Id>;

    fn with<E: Evict + Send + Debug + 'static>(self, mut policy: E) -> Option<Id> {
        for id in 0..1000u32 {
            let item = Item { key: u64::from(id), size: 1, dirty: false, now: u64::from(id) };
            policy.insert(Id(id), Domain(0), Origin::Admitted(item));
            policy.hit(Id(id), Touch { now: u64::from(id), write: true }, || Domain(0));
        }
        policy.victim(Domain(0), 2000, &mut Rng::seeded(1), |id| id == Id(500))
    }
}

#[test]
fn refusals_end() {
    for named in Named::ALL {
        let victim = named.build(1, 1000, OnlyOne);
        assert!(victim.is_none() || victim == Some(Id(500)), "{named}: {victim:?}");
    }
}
