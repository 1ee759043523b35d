//! Division of granules among tenants whose costs are known, exactly.
//!
//! It is a (min,+) convolution of the tenants' costs. Done pair by pair over every split it takes O(V n²) for V tenants and n
//! granules, which is the dynamic programme of Wang 2024 (Algorithm 1). Where a tenant's cost is *convex*, which is checked and
//! not assumed, the same answer is found faster:
//!
//! * Convex costs among themselves are divided by giving each granule to the tenant that it helps most. This is exact because a
//!   tenant's granules help less and less: a tenant that a later granule would serve was offered all earlier ones (Fox 1966).
//! * A convex cost convolved with any other has its best split move only upwards as there is more to give, so that it is found by
//!   halving: O(n log n).
//!
//! So all convex tenants are merged first, the others come in one by one at O(n²), and the merged ones last.

use super::Cost;

/// A tenant's side of a division.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The granules that it gets at least.
    pub least: usize,
    /// Its costs with `least`, `least + 1` … granules; the last is for the most that it gets. Never empty.
    pub costs: Vec<Cost>,
}

impl Claim {
    fn most(&self) -> usize {
        self.least + self.costs.len() - 1
    }

    /// Whether each further granule helps at most as much as the one before, so that granules can be given one by one.
    pub fn is_convex(&self) -> bool {
        self.costs.windows(3).all(|three| three[1] - three[2] <= three[0] - three[1])
    }
}

/// Why nothing can be divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLittle {
    /// The sum of the claims' least parts.
    pub least: usize,
    /// The granules that there are.
    pub total: usize,
}

impl std::fmt::Display for TooLittle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "tenants are promised {} granules at least, and there are {}", self.least, self.total)
    }
}

impl std::error::Error for TooLittle {}

/// Costs of a group over the granules above its least part, and how to divide them within it.
struct Group {
    costs: Vec<Cost>,
    split: Split,
}

enum Split {
    /// One tenant.
    Tenant(usize),
    /// Convex tenants: the tenant that gets each granule in turn.
    Turns(Vec<u32>),
    /// For each number of granules how many the second of the two gets.
    Pair(Box<Group>, Box<Group>, Vec<u32>),
}

/// The division of `total` granules, or of as many as all may have, with the smallest sum of costs; the granules of each tenant.
/// Granules that help no tenant are given out all the same.
///
/// # Errors
/// When the claims' least shares exceed the total.
pub fn divide(claims: &[Claim], total: usize) -> Result<Vec<usize>, TooLittle> {
    divide_by(claims, total, Claim::is_convex)
}

pub(super) fn divide_by(
    claims: &[Claim],
    total: usize,
    is_convex: impl Fn(&Claim) -> bool,
) -> Result<Vec<usize>, TooLittle> {
    let least: usize = claims.iter().map(|claim| claim.least).sum();
    let Some(spare) = total.checked_sub(least) else { return Err(TooLittle { least, total }) };
    let mut shares: Vec<usize> = claims.iter().map(|claim| claim.least).collect();
    let (convex, others): (Vec<usize>, Vec<usize>) =
        (0..claims.len()).partition(|&at| is_convex(&claims[at]));
    let mut whole: Option<Group> = None;
    for at in others {
        let costs = claims[at].costs.iter().copied().take(spare + 1).collect();
        let one = Group { costs, split: Split::Tenant(at) };
        whole = Some(match whole {
            None => one,
            Some(rest) => join(rest, one, spare, best_of_all),
        });
    }
    if !convex.is_empty() {
        let turns = take_turns(claims, &convex, spare);
        whole = Some(match whole {
            None => turns,
            Some(rest) => join(rest, turns, spare, best_by_halving),
        });
    }
    if let Some(group) = whole {
        let most = claims.iter().map(|claim| claim.most() - claim.least).sum::<usize>().min(spare);
        hand_out(&group, most, &mut shares);
    }
    Ok(shares)
}

/// Gives each of `spare` granules to the convex tenant that it helps most, among equals to the first.
fn take_turns(claims: &[Claim], tenants: &[usize], spare: usize) -> Group {
    use std::collections::BinaryHeap;
    /// By help, then the first tenant.
    #[derive(PartialEq)]
    struct Next(Cost, std::cmp::Reverse<usize>, usize);
    impl Eq for Next {}
    impl PartialOrd for Next {
        fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
            Some(self.cmp(other))
        }
    }
    impl Ord for Next {
        fn cmp(&self, other: &Self) -> std::cmp::Ordering {
            self.0.total_cmp(other.0).then(self.1.cmp(&other.1))
        }
    }
    let help = |tenant: usize, has: usize| {
        let costs = &claims[tenant].costs;
        (has + 1 < costs.len()).then(|| Next(costs[has] - costs[has + 1], std::cmp::Reverse(tenant), has))
    };
    let mut next: BinaryHeap<Next> = tenants.iter().filter_map(|&tenant| help(tenant, 0)).collect();
    let mut cost = tenants.iter().fold(Cost::default(), |sum, &tenant| sum + claims[tenant].costs[0]);
    let mut costs = vec![cost];
    let mut turns = Vec::new();
    while turns.len() < spare
        && let Some(Next(helps, std::cmp::Reverse(tenant), has)) = next.pop()
    {
        cost = cost - helps;
        costs.push(cost);
        turns.push(tenant as u32);
        next.extend(help(tenant, has + 1));
    }
    Group { costs, split: Split::Turns(turns) }
}

/// Finds the best split of each sum.
type Best = fn(&[Cost], &[Cost], &mut [(Cost, u32)]);

/// Two groups as one, each split of up to `spare` granules by `best`.
fn join(first: Group, second: Group, spare: usize, best: Best) -> Group {
    let len = (first.costs.len() + second.costs.len() - 1).min(spare + 1);
    let mut found = vec![(Cost::WORST, 0); len];
    best(&first.costs, &second.costs, &mut found);
    let (costs, splits) = found.into_iter().unzip();
    Group { costs, split: Split::Pair(Box::new(first), Box::new(second), splits) }
}

/// The splits of `sum` granules that both sides can take: how many the second gets.
fn splits(first: &[Cost], second: &[Cost], sum: usize) -> std::ops::RangeInclusive<usize> {
    sum.saturating_sub(first.len() - 1)..=sum.min(second.len() - 1)
}

fn best_in(
    first: &[Cost],
    second: &[Cost],
    sum: usize,
    range: std::ops::RangeInclusive<usize>,
) -> (Cost, u32) {
    let mut best = (Cost::WORST, *range.start() as u32);
    for to_second in range {
        let cost = first[sum - to_second] + second[to_second];
        if cost.total_cmp(best.0).is_lt() {
            best = (cost, to_second as u32);
        }
    }
    best
}

fn best_of_all(first: &[Cost], second: &[Cost], found: &mut [(Cost, u32)]) {
    for (sum, found) in found.iter_mut().enumerate() {
        *found = best_in(first, second, sum, splits(first, second, sum));
    }
}

/// [`best_in`] for all sums, where `second` is convex. With more to give the first side's best part need not grow, but among the
/// best splits the *first* side's part never falls as the sum grows (the matrix of splits is totally monotone), so the middle sum
/// bounds both halves.
fn best_by_halving(first: &[Cost], second: &[Cost], found: &mut [(Cost, u32)]) {
    /// Sums `low..high`, where the best split leaves the first side a part within `parts`.
    fn half(
        first: &[Cost],
        second: &[Cost],
        found: &mut [(Cost, u32)],
        (low, high): (usize, usize),
        parts: (usize, usize),
    ) {
        if low >= high {
            return;
        }
        let sum = low + (high - low) / 2;
        let able = splits(first, second, sum);
        let from = (*able.start()).max(sum.saturating_sub(parts.1));
        let to = (*able.end()).min(sum.saturating_sub(parts.0));
        found[sum] = best_in(first, second, sum, from..=to);
        let part = sum - found[sum].1 as usize;
        half(first, second, found, (low, sum), (parts.0, part));
        half(first, second, found, (sum + 1, high), (part, parts.1));
    }
    half(first, second, found, (0, found.len()), (0, first.len() - 1));
}

fn hand_out(group: &Group, granules: usize, shares: &mut [usize]) {
    match &group.split {
        Split::Tenant(tenant) => shares[*tenant] += granules,
        Split::Turns(turns) => turns[..granules].iter().for_each(|&tenant| shares[tenant as usize] += 1),
        Split::Pair(first, second, splits) => {
            let to_second = splits[granules] as usize;
            hand_out(first, granules - to_second, shares);
            hand_out(second, to_second, shares);
        }
    }
}
