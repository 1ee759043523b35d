//! Division of memory among tenants by what each would gain (Wang 2024, section 4.1.2).
//!
//! Each tenant brings its miss ratio at every number of granules, its request rate, and the cost of a miss; an [`Objective`]
//! makes costs of them, and [`divide`] finds the division with the least. The same code divides the whole store, where a miss
//! costs the trip to the database, and a fast tier, where it costs what the slow tier takes longer.

mod divide;
mod objective;

pub use divide::{Claim, TooLittle, divide};
pub use objective::{Demand, Objective, Promise, division};

/// The cost of a tenant with a share of memory: broken promises first, the rest second. Two costs compare by the first part, and
/// by the second only where that is equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Cost {
    /// Weight of the promises that are not kept.
    pub broken: f64,
    /// The quantity to minimise otherwise, in the objective's unit.
    pub cost: f64,
}

impl Cost {
    /// Dearer than anything.
    const WORST: Cost = Cost { broken: f64::INFINITY, cost: f64::INFINITY };

    fn total_cmp(self, other: Cost) -> std::cmp::Ordering {
        self.broken.total_cmp(&other.broken).then(self.cost.total_cmp(&other.cost))
    }
}

impl std::ops::Add for Cost {
    type Output = Cost;
    fn add(self, other: Cost) -> Cost {
        Cost { broken: self.broken + other.broken, cost: self.cost + other.cost }
    }
}

impl std::ops::Sub for Cost {
    type Output = Cost;
    fn sub(self, other: Cost) -> Cost {
        Cost { broken: self.broken - other.broken, cost: self.cost - other.cost }
    }
}
