//! Divisions against brute force, and what every division must respect.

use proptest::prelude::*;
use tiermem_policy::partition::{Claim, Cost, Demand, Objective, Promise, divide, division};

/// The least sum of costs over all ways to divide exactly `total`, by trying them.
fn brute_force(claims: &[Claim], total: usize) -> Option<Cost> {
    let Some((first, rest)) = claims.split_first() else {
        return (total == 0).then(Cost::default);
    };
    let mut best: Option<Cost> = None;
    for (above, &cost) in first.costs.iter().enumerate() {
        let Some(left) = total.checked_sub(first.least + above) else { break };
        if let Some(others) = brute_force(rest, left) {
            let sum = cost + others;
            if best.is_none_or(|best| sum < best) {
                best = Some(sum);
            }
        }
    }
    best
}

fn cost_of(claims: &[Claim], shares: &[usize]) -> Cost {
    claims
        .iter()
        .zip(shares)
        .fold(Cost::default(), |sum, (claim, &share)| sum + claim.costs[share - claim.least])
}

/// Costs in whole numbers, so that sums in any order are equal.
fn claim() -> impl Strategy<Value = Claim> {
    let any_costs = prop::collection::vec((0u8..3, 0u16..50), 1..7).prop_map(|costs| {
        costs
            .into_iter()
            .map(|(broken, cost)| Cost { broken: f64::from(broken), cost: f64::from(cost) })
            .collect()
    });
    let convex_costs = prop::collection::vec(0u16..50, 0..6).prop_map(|mut helps| {
        helps.sort_unstable_by(|a, b| b.cmp(a));
        let mut left: u16 = helps.iter().sum();
        let mut costs = vec![Cost { broken: 0.0, cost: f64::from(left) }];
        for help in helps {
            left -= help;
            costs.push(Cost { broken: 0.0, cost: f64::from(left) });
        }
        costs
    });
    (0usize..3, prop_oneof![any_costs, convex_costs]).prop_map(|(least, costs)| Claim { least, costs })
}

fn demand() -> impl Strategy<Value = Demand> {
    let promise = prop_oneof![
        Just(None),
        (0.0..1.0f64).prop_map(|hits| Some(Promise::HitRatio(hits))),
        (0.0..2e6f64).prop_map(|latency_ns| Some(Promise::MeanLatency { latency_ns, hit_ns: 1000.0 })),
    ];
    let ratios = prop::collection::vec(0.0..1.0f64, 0..12).prop_map(|mut ratios| {
        ratios.sort_by(|a, b| b.total_cmp(a));
        ratios.insert(0, 1.0);
        ratios
    });
    (ratios, 0.0..1e6f64, 0.0..2e6f64, 0.1..10.0f64, 0usize..4, 0usize..12, promise).prop_map(
        |(miss_ratios, rate, miss_ns, weight, least, above, promise)| Demand {
            miss_ratios,
            rate,
            miss_ns,
            weight,
            least,
            most: least + above,
            promise,
        },
    )
}

const OBJECTIVES: [Objective; 5] =
    [Objective::Latency, Objective::Mean, Objective::Hits, Objective::Fair, Objective::Slo];

proptest! {
    #[test]
    fn no_division_costs_less(claims in prop::collection::vec(claim(), 1..5), total in 0usize..24) {
        let least: usize = claims.iter().map(|claim| claim.least).sum();
        let most: usize = claims.iter().map(|claim| claim.least + claim.costs.len() - 1).sum();
        match divide(&claims, total) {
            Err(too_little) => prop_assert!(least > total && too_little.least == least),
            Ok(shares) => {
                prop_assert_eq!(shares.iter().sum::<usize>(), total.min(most));
                prop_assert_eq!(Some(cost_of(&claims, &shares)), brute_force(&claims, total.min(most)));
            }
        }
    }

    #[test]
    fn least_most_and_total_are_respected(
        demands in prop::collection::vec(demand(), 1..8),
        total in 0usize..60,
        objective in prop::sample::select(&OBJECTIVES[..]),
    ) {
        let least: usize = demands.iter().map(|demand| demand.least).sum();
        let most: usize = demands.iter().map(|demand| demand.most).sum();
        match division(&demands, objective, total) {
            Err(_) => prop_assert!(least > total),
            Ok(shares) => {
                for (demand, &share) in demands.iter().zip(&shares) {
                    prop_assert!((demand.least..=demand.most).contains(&share), "{share} of {demand:?}");
                }
                prop_assert_eq!(shares.iter().sum::<usize>(), total.min(most));
            }
        }
    }

    /// No tenant with the smallest gain could have more without another falling as low: over all divisions the smallest gain is
    /// the largest.
    #[test]
    fn fair_helps_the_worst_off(demands in prop::collection::vec(demand(), 1..4), total in 0usize..14) {
        let most: usize = demands.iter().map(|demand| demand.most).sum();
        prop_assume!(demands.iter().map(|demand| demand.least).sum::<usize>() <= total && most >= total);
        let ratio = |demand: &Demand, at: usize| demand.miss_ratios[at.min(demand.miss_ratios.len() - 1)];
        let gain = |demand: &Demand, share: usize| {
            let (none, all) = (ratio(demand, 0), ratio(demand, total));
            if none > all { (none - ratio(demand, share)) / (none - all) } else { 1.0 }
        };
        let worst = |shares: &[usize]| {
            demands.iter().zip(shares).map(|(demand, &share)| gain(demand, share)).fold(1.0, f64::min)
        };
        let ours = worst(&division(&demands, Objective::Fair, total).unwrap());
        let mut best = 0.0f64;
        each_division(&demands, total, &mut Vec::new(), &mut |shares| best = best.max(worst(shares)));
        prop_assert!(ours >= best - 1e-9, "{ours} against {best}");
    }
}

fn each_division(
    demands: &[Demand],
    total: usize,
    shares: &mut Vec<usize>,
    visit: &mut impl FnMut(&[usize]),
) {
    let Some(demand) = demands.get(shares.len()) else {
        if total == 0 {
            visit(shares);
        }
        return;
    };
    for share in demand.least..=demand.most.min(total) {
        shares.push(share);
        each_division(demands, total - share, shares, visit);
        shares.pop();
    }
}

fn demanding(miss_ratios: &[f64], rate: f64, miss_ns: f64) -> Demand {
    Demand {
        miss_ratios: miss_ratios.to_vec(),
        rate,
        miss_ns,
        weight: 1.0,
        least: 0,
        most: 100,
        promise: None,
    }
}

#[test]
fn memory_goes_where_misses_cost_most() {
    let curve = [1.0, 0.5, 0.25, 0.125, 0.11];
    let demands = [demanding(&curve, 1000.0, 200e3), demanding(&curve, 1000.0, 2000e3)];
    assert_eq!(division(&demands, Objective::Hits, 4).unwrap(), [2, 2]);
    assert_eq!(division(&demands, Objective::Latency, 4).unwrap(), [1, 3], "ten times dearer");
}

#[test]
fn a_cliff_is_jumped_or_left_alone() {
    // A loop of four granules: three are worth nothing.
    let cliff = [1.0, 1.0, 1.0, 1.0, 0.0];
    let slope = [1.0, 0.8, 0.65, 0.55, 0.5];
    let demands = [demanding(&cliff, 100.0, 1.0), demanding(&slope, 100.0, 1.0)];
    assert_eq!(division(&demands, Objective::Hits, 3).unwrap(), [0, 3]);
    assert_eq!(division(&demands, Objective::Hits, 5).unwrap(), [4, 1]);
}

#[test]
fn promises_come_first_and_the_weightier_where_not_all_can_be_kept() {
    let curve = [1.0, 0.6, 0.4, 0.3, 0.25];
    let promised = |hits, weight| Demand {
        promise: Some(Promise::HitRatio(hits)),
        weight,
        ..demanding(&curve, 1.0, 1.0)
    };
    let rich = demanding(&curve, 1e6, 1e6);
    assert_eq!(division(&[promised(0.6, 1.0), rich.clone()], Objective::Slo, 4).unwrap(), [2, 2]);
    assert_eq!(division(&[promised(0.7, 1.0), promised(0.7, 2.0)], Objective::Slo, 4).unwrap(), [1, 3]);
    assert_eq!(division(&[promised(0.99, 1.0), rich], Objective::Slo, 4).unwrap()[1], 4, "in vain");
}
