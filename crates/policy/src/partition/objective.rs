//! Objectives of a division: from miss-ratio curves, request rates and miss costs to the costs that are minimised.

use super::Cost;
use super::divide::{Claim, TooLittle, divide};

/// Halvings in search of the level that all tenants reach: beyond them a level is not told from its neighbour.
const LEVEL_HALVINGS: usize = 48;

/// The objective of a division: the quantity that it minimises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// Time lost by misses (Wang 2024, equation 4.3).
    #[default]
    Latency,
    /// The mean loss of a look-up of each tenant, added up regardless of request rates: a tenant that waits longer sends fewer
    /// requests, which [`Self::Latency`] takes for a smaller need. It is what Wang 2024 measures (section 4.2.3), though not what
    /// equation 4.3 says.
    Mean,
    /// Misses (equation 4.4).
    Hits,
    /// Max-min fairness: each tenant gets some part of what memory could gain it at all, and the smallest such part is made as
    /// large as it can be; what is then left over saves time.
    Fair,
    /// Broken promises, by weight; memory that is then left over saves time.
    Slo,
}

impl std::str::FromStr for Objective {
    type Err = String;
    /// Reads the word that configuration and command line use.
    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "latency" => Ok(Objective::Latency),
            "mean" => Ok(Objective::Mean),
            "hits" => Ok(Objective::Hits),
            "fair" => Ok(Objective::Fair),
            "slo" => Ok(Objective::Slo),
            _ => Err(format!("{word:?} is none of latency, mean, hits, fair, slo")),
        }
    }
}

impl std::fmt::Display for Objective {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Objective::Latency => "latency",
            Objective::Mean => "mean",
            Objective::Hits => "hits",
            Objective::Fair => "fair",
            Objective::Slo => "slo",
        })
    }
}

/// A promise to a tenant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Promise {
    /// This share of its look-ups is to be found.
    HitRatio(f64),
    /// The mean time of a look-up is to be at most this, where a hit takes `hit_ns`.
    MeanLatency {
        /// The promise.
        latency_ns: f64,
        /// A look-up that finds.
        hit_ns: f64,
    },
}

/// A tenant, as a division sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Its miss ratio with 0, 1, 2 … granules. With more than the last, that of the last.
    pub miss_ratios: Vec<f64>,
    /// Its look-ups per second, or in a window that is the same for all.
    pub rate: f64,
    /// The cost of a miss, in nanoseconds.
    pub miss_ns: f64,
    /// The weight of its misses, and of its promise, relative to other tenants'.
    pub weight: f64,
    /// Granules that it gets at least.
    pub least: usize,
    /// Granules that it gets at most.
    pub most: usize,
    /// The promise that [`Objective::Slo`] counts.
    pub promise: Option<Promise>,
}

impl Demand {
    /// Its miss ratio with `granules` granules.
    pub fn miss_ratio(&self, granules: usize) -> f64 {
        self.miss_ratios.get(granules).or(self.miss_ratios.last()).copied().unwrap_or(1.0)
    }

    /// Whether the promise is kept with `granules` granules; true where there is none.
    pub fn is_kept(&self, granules: usize) -> bool {
        let miss_ratio = self.miss_ratio(granules);
        match self.promise {
            None => true,
            Some(Promise::HitRatio(hits)) => 1.0 - miss_ratio >= hits,
            Some(Promise::MeanLatency { latency_ns, hit_ns }) => {
                (1.0 - miss_ratio) * hit_ns + miss_ratio * self.miss_ns <= latency_ns
            }
        }
    }

    /// The loss of the tenant in the objective's unit: nanoseconds of misses, or misses, per second or window.
    pub fn loss(&self, objective: Objective, granules: usize) -> f64 {
        let missed = self.miss_ratio(granules) * self.weight;
        match objective {
            Objective::Hits => missed * self.rate,
            Objective::Mean if self.rate > 0.0 => missed * self.miss_ns,
            // A tenant without requests waits for nothing.
            Objective::Mean => 0.0,
            Objective::Latency | Objective::Fair | Objective::Slo => missed * self.rate * self.miss_ns,
        }
    }

    /// The part that it gets, with `granules` granules, of what all of `total` could gain it; 1 where there is nothing to gain.
    fn gain(&self, granules: usize, total: usize) -> f64 {
        let (none, all) = (self.miss_ratio(0), self.miss_ratio(total));
        if none > all { (none - self.miss_ratio(granules)) / (none - all) } else { 1.0 }
    }

    fn claim(&self, objective: Objective, least: usize, most: usize) -> Claim {
        let cost = |granules| {
            let broken = objective == Objective::Slo && !self.is_kept(granules);
            Cost { broken: if broken { self.weight } else { 0.0 }, cost: self.loss(objective, granules) }
        };
        Claim { least, costs: (least..=most.max(least)).map(cost).collect() }
    }
}

/// The division of `total` granules among tenants: how many each gets. Their sum is the total, or less where all have the most
/// that they may.
///
/// # Errors
/// When what they get at least is more than there is.
pub fn division(demands: &[Demand], objective: Objective, total: usize) -> Result<Vec<usize>, TooLittle> {
    let least: usize = demands.iter().map(|demand| demand.least).sum();
    if least > total {
        return Err(TooLittle { least, total });
    }
    let floor = match objective {
        Objective::Fair => fair_floor(demands, total),
        _ => demands.iter().map(|demand| demand.least).collect(),
    };
    let claims: Vec<Claim> = demands
        .iter()
        .zip(floor)
        .map(|(demand, floor)| demand.claim(objective, floor, demand.most.min(total)))
        .collect();
    divide(&claims, total)
}

/// The granules that each must have for all to gain at least as large a part as the smallest part can be made.
fn fair_floor(demands: &[Demand], total: usize) -> Vec<usize> {
    let at_level = |level: f64| -> Vec<usize> {
        let need = |demand: &Demand| {
            let most = demand.most.min(total).max(demand.least);
            // Gains grow with memory, but a curve that was measured may turn back: the first that reaches the level counts.
            (demand.least..most).find(|&granules| demand.gain(granules, total) >= level).unwrap_or(most)
        };
        demands.iter().map(need).collect()
    };
    let fits = |needs: &[usize]| needs.iter().sum::<usize>() <= total;
    let all = at_level(1.0);
    if fits(&all) {
        return all;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..LEVEL_HALVINGS {
        let middle = (low + high) / 2.0;
        if fits(&at_level(middle)) { low = middle } else { high = middle }
    }
    at_level(low)
}
