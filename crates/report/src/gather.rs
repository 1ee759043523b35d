//! Gatherer: collects everything that the page shows in one pass over a trace.

use serde::Serialize;
use tiermem_base::Access;
use tiermem_model::cost::{Cost, Prices, gains, size_for};
use tiermem_model::mrc::{Curve, Kind, Survey, Unit, curves_in_parallel};
use tiermem_trace::stat::{Collector, StatOptions, TraceStat};

/// Parts into which the memory is divided to tell what each of them buys.
const GAIN_PARTS: u32 = 10;
/// The smallest cache on a curve is this much smaller than the working set.
const SMALLEST_PART: f64 = 512.0;
/// Sizes of the curve for gains and costs, evenly over the working set, where more sizes cost nothing.
const FINE_SIZES: usize = 200;
/// Number of cache sizes with a reported cost.
const COST_SIZES: u32 = 60;

/// Options of a report.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the trace on the page.
    pub name: String,
    /// The share of the keys that is followed, above 0 and at most 1.
    pub sample_rate: f64,
    /// Another choice of keys.
    pub seed: u64,
    /// Number of sizes on each curve.
    pub sizes: usize,
    /// Policies whose curves are compared.
    pub policies: Vec<Kind>,
    /// Values of K at which K-LRU is compared, ascending.
    pub ks: Vec<f64>,
    /// Prices of memory.
    pub prices: Prices,
}

impl Default for Options {
    fn default() -> Self {
        let simulated = ["s3-fifo", "sieve", "arc", "fifo"].into_iter().filter_map(|name| name.parse().ok());
        Options {
            name: String::new(),
            sample_rate: 1.0,
            seed: 0,
            sizes: 28,
            policies: std::iter::once(Kind::Lru).chain(simulated).collect(),
            ks: vec![1.0, 2.0, 5.0, 10.0, 16.0],
            prices: Prices::default(),
        }
    }
}

/// Why there is no report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// The trace has nothing that could miss.
    #[error("the trace has no look-ups or writes, so there is nothing to report")]
    Empty,
    /// The sample is too large to be numbered.
    #[error("the sample has more than 2^30 keys; a smaller sample rate holds fewer")]
    Keys,
    /// None of the keys are in the sample.
    #[error("none of the trace's keys are in the sample; a larger sample rate holds some")]
    NoKeys,
}

/// Takes a trace in. Memory: 8 bytes for each request of the sample and about 150 for each key of it.
#[derive(Debug)]
pub struct Gatherer {
    options: Options,
    collector: Collector,
    survey: Survey,
}

impl Gatherer {
    /// Nothing seen yet.
    pub fn new(options: Options) -> Self {
        let collector = Collector::new(StatOptions { sample_rate: options.sample_rate, block: None });
        let survey = Survey::new(options.sample_rate, options.seed);
        Gatherer { options, collector, survey }
    }

    /// Takes the next access in.
    #[inline]
    pub fn observe(&mut self, access: &Access) -> Result<(), ReportError> {
        self.collector.observe(access);
        if self.survey.access(access) { Ok(()) } else { Err(ReportError::Keys) }
    }

    /// Curves that [`Self::finish`] will compute.
    pub fn curves(&self) -> usize {
        self.options.policies.len() + self.options.ks.len()
    }

    /// Computes curves and costs; `done` gets the number of curves so far.
    ///
    /// # Errors
    /// [`ReportError::Empty`] and [`ReportError::NoKeys`].
    pub fn finish(self, done: &(dyn Fn(usize) + Sync)) -> Result<Report, ReportError> {
        let Gatherer { options, collector, survey } = self;
        if survey.requests() == 0 {
            return Err(ReportError::Empty);
        }
        if survey.keys_sampled() == 0 {
            return Err(ReportError::NoKeys);
        }
        let stat = collector.finish();
        // Readers give accesses of traces without sizes the size 0 or 1: there are still numbers of objects.
        let tells_sizes = stat.size_bytes.as_ref().is_some_and(|sizes| sizes.max > 1);
        let unit = if tells_sizes { Unit::Bytes } else { Unit::Objects };
        let sizes = by_factors(survey.working_set(unit), options.sizes);
        let by_k = options.ks.iter().map(|&k| Kind::KLru { k });
        let kinds: Vec<Kind> = options.policies.iter().copied().chain(by_k).collect();
        let computed = curves_in_parallel(&survey, &kinds, unit, &sizes, done);
        let mut all: Vec<PolicyCurve> = kinds
            .into_iter()
            .zip(computed)
            .filter_map(|(kind, windows)| windows.into_iter().next().map(|curve| PolicyCurve { kind, curve }))
            .collect();
        let by_k = all.split_off(options.policies.len().min(all.len()));
        let bought = all.first().or(by_k.first()).ok_or(ReportError::Empty)?;
        let working_set = survey.working_set(unit);
        let fine = match bought.kind {
            Kind::Lru | Kind::Aet => {
                let mut sizes = by_factors(working_set, FINE_SIZES);
                sizes.extend(survey.even_sizes(unit, FINE_SIZES));
                sizes.sort_unstable();
                sizes.dedup();
                survey.curve(bought.kind, unit, &sizes)
            }
            _ => bought.curve.clone(),
        };
        Ok(Report {
            gains: gains(&fine, working_set, GAIN_PARTS),
            costs: match unit {
                Unit::Bytes => costs(&fine, &options.prices, working_set, stat.requests_per_second),
                Unit::Objects => Vec::new(),
            },
            bought: bought.kind,
            name: options.name,
            keys_sampled: survey.keys_sampled() as u64,
            keys: survey.keys().round() as u64,
            unit,
            working_set,
            by_policy: all,
            by_k,
            prices: options.prices,
            stat,
        })
    }
}

/// `count` sizes from `whole` over [`SMALLEST_PART`] up to `whole`, each larger than the one before by the same factor.
fn by_factors(whole: u64, count: usize) -> Vec<u64> {
    let at = |number: usize| {
        let exponent = number as f64 / (count.max(2) - 1) as f64 - 1.0;
        ((whole as f64 * SMALLEST_PART.powf(exponent)).round() as u64).clamp(1, whole.max(1))
    };
    let mut sizes: Vec<u64> = (0..count).map(at).collect();
    sizes.dedup();
    sizes
}

/// Costs at hit ratios that lie evenly between none and all that can be hit.
fn costs(curve: &Curve, prices: &Prices, working_set: u64, requests_per_second: Option<f64>) -> Vec<Cost> {
    let lowest = curve.points.iter().map(|point| point.miss_ratio).fold(1.0, f64::min);
    let sizes = (1..=COST_SIZES).filter_map(|step| {
        let hit_ratio = (1.0 - lowest) * f64::from(step) / f64::from(COST_SIZES);
        size_for(curve, 1.0 - hit_ratio).filter(|size| *size <= working_set as f64)
    });
    sizes.map(|size| prices.of_size(curve, size, requests_per_second)).collect()
}

/// The curve of one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyCurve {
    /// The policy.
    pub kind: Kind,
    /// Its miss ratios.
    pub curve: Curve,
}

/// All that is known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Name of the trace.
    pub name: String,
    /// The trace in figures.
    pub stat: TraceStat,
    /// Keys that were followed.
    pub keys_sampled: u64,
    /// Distinct keys, counted or estimated.
    pub keys: u64,
    /// Unit of cache sizes: bytes where the trace has sizes.
    pub unit: Unit,
    /// All keys at their last sizes, in the unit.
    pub working_set: u64,
    /// Curves of policies.
    pub by_policy: Vec<PolicyCurve>,
    /// Curves of K-LRU by K.
    pub by_k: Vec<PolicyCurve>,
    /// Of which policy gains and costs speak: the first.
    pub bought: Kind,
    /// Hit ratio that each tenth of the memory adds to those before it.
    pub gains: Vec<f64>,
    /// Costs by ascending hit ratio; none where sizes are unknown.
    pub costs: Vec<Cost>,
    /// The prices that they are computed from.
    pub prices: Prices,
}

impl Report {
    /// Whether only a part of the keys was followed.
    pub fn is_sampled(&self) -> bool {
        self.stat.sample_rate < 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_end_with_the_whole() {
        for (whole, count) in [(1, 28), (5, 28), (1_000_000, 28), (u64::MAX, 3)] {
            let sizes = by_factors(whole, count);
            assert!(sizes.windows(2).all(|two| two[0] < two[1]) && sizes[0] >= 1);
            assert_eq!(*sizes.last().unwrap(), whole);
        }
    }

    #[test]
    fn what_has_nothing_to_miss_has_no_report() {
        let gatherer = || Gatherer::new(Options::default());
        assert_eq!(gatherer().finish(&|_| ()), Err(ReportError::Empty));
        let mut deletions = gatherer();
        deletions.observe(&Access::new(0, tiermem_base::Op::Del, 1, 0)).unwrap();
        assert_eq!(deletions.finish(&|_| ()), Err(ReportError::Empty));
    }
}
