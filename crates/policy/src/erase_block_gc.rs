//! Choice of the region to empty where space is reclaimed one region at a time: an erase block of flash, a segment of a log.
//!
//! - *Greedy* takes the region with the least live data.
//! - *Cost-benefit* weighs the space won against the data moved, and prefers data that were left alone: age x (1 - u) / 2u for a
//!   region of which the share u is live (Rosenblum and Ousterhout, SOSP 1991, section 3.5).
//! - *Wear levelling* empties a region that was erased much less often than others, whatever it holds, so that data that are
//!   never rewritten do not keep it young.
//!
//! Ties are broken by the order in which the regions are given.

/// A region that may be emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The caller's number for it.
    pub number: u32,
    /// Live units in it.
    pub live: u32,
    /// Units written to all regions since this one was filled.
    pub age: u64,
    /// Times that it was erased.
    pub erases: u32,
}

/// How the region to be emptied is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The one with the least live data.
    Greedy,
    /// The region with the most space won for the data moved, old ones first.
    CostBenefit,
}

impl Victim {
    /// The number of one of these regions of `capacity` units each; `None` if there are none.
    pub fn choose(self, capacity: u32, regions: impl Iterator<Item = Region>) -> Option<u32> {
        let found = match self {
            Victim::Greedy => regions.min_by_key(|region| region.live),
            Victim::CostBenefit => {
                regions.min_by(|a, b| benefit(b, capacity).total_cmp(&benefit(a, capacity)))
            }
        };
        found.map(|region| region.number)
    }
}

/// Benefit of emptying a region, relative to its cost; infinite where nothing is to be moved.
fn benefit(region: &Region, capacity: u32) -> f64 {
    if region.live == 0 {
        return f64::INFINITY;
    }
    let used = f64::from(region.live) / f64::from(capacity.max(1));
    (region.age as f64 + 1.0) * (1.0 - used) / (2.0 * used)
}

/// The least worn of these regions, if one was erased more than `difference` times more often, `most_erases` times.
pub fn least_worn(most_erases: u32, difference: u32, regions: impl Iterator<Item = Region>) -> Option<u32> {
    let least = regions.min_by_key(|region| region.erases)?;
    (most_erases.saturating_sub(least.erases) > difference).then_some(least.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regions(of: &[(u32, u64, u32)]) -> impl Iterator<Item = Region> + '_ {
        let region = |(number, &(live, age, erases))| Region { number, live, age, erases };
        (0..).zip(of).map(region)
    }

    #[test]
    fn greedy_takes_the_least_live_and_the_first_of_equals() {
        assert_eq!(Victim::Greedy.choose(10, regions(&[(5, 0, 0), (3, 0, 0), (3, 9, 0)])), Some(1));
        assert_eq!(Victim::Greedy.choose(10, regions(&[])), None);
    }

    #[test]
    fn cost_benefit_prefers_old_data_to_slightly_emptier_regions() {
        let of = [(5, 100, 0), (4, 10, 0)];
        assert_eq!(Victim::Greedy.choose(10, regions(&of)), Some(1));
        assert_eq!(Victim::CostBenefit.choose(10, regions(&of)), Some(0));
        // A region without live data costs nothing and is chosen first, however young; of several such regions the first.
        assert_eq!(Victim::CostBenefit.choose(10, regions(&[(5, 100, 0), (0, 0, 0), (0, 5, 0)])), Some(1));
        // A full region wins nothing, however old.
        assert_eq!(Victim::CostBenefit.choose(10, regions(&[(10, u64::MAX, 0), (9, 0, 0)])), Some(1));
    }

    #[test]
    fn the_least_worn_is_emptied_only_beyond_the_difference() {
        let of = [(10, 0, 7), (10, 0, 2), (1, 0, 9)];
        assert_eq!(least_worn(9, 6, regions(&of)), Some(1));
        assert_eq!(least_worn(9, 7, regions(&of)), None);
        assert_eq!(least_worn(9, 0, regions(&[])), None);
    }
}
