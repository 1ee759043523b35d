//! Division of memory among tenants, from their miss-ratio curves (Wang 2024, section 4.1).
//!
//! A tenant has a curve for each K that it may be given. At every size the K with the smallest penalty is chosen
//! ([`tiermem_policy::choose_k`]), which merges them into one curve (section 4.1.1, equation 4.1; the cost of drawing more keys
//! is counted as well, so that where curves meet the smaller K is taken). The merged curves, rates and costs of misses are
//! divided by [`tiermem_policy::partition`]. The same function serves the command line and a running store.

mod least;
mod terms;

use tiermem_policy::choose_k::{self, Candidate, Overheads};
use tiermem_policy::partition::{Demand, Objective, Promise, TooLittle, division};

use crate::mrc::Curve;
pub use least::keep_least;
pub use terms::TenantTerms;

/// The profile of a tenant: curves, rate, miss cost, terms.
#[derive(Clone, Debug)]
pub struct Profile {
    /// A curve in bytes for each K.
    pub curves: Vec<(u8, Curve)>,
    /// Keys that were sampled for the curves: below [`choose_k::DISTINCT_LEAST`] K is not chosen.
    pub keys_sampled: u64,
    /// Look-ups per second, or in a window that is the same for all.
    pub rate: f64,
    /// The cost of a miss, in nanoseconds.
    pub miss_ns: f64,
    /// Its K now, which another must be better than.
    pub k: u8,
    /// Its bounds and promises.
    pub terms: Terms,
}

/// The bounds and promises of a tenant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// It gets no less.
    pub least_bytes: u64,
    /// It gets no more.
    pub most_bytes: u64,
    /// The weight of its misses relative to those of others.
    pub weight: f64,
    /// The promise that [`Objective::Slo`] tries to keep.
    pub promise: Option<Promise>,
}

impl Default for Terms {
    fn default() -> Self {
        Terms { least_bytes: 0, most_bytes: u64::MAX, weight: 1.0, promise: None }
    }
}

/// A tenant's part of a division.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Its memory.
    pub bytes: u64,
    /// Its K there.
    pub k: u8,
    /// Its miss ratio there, as the curves say.
    pub miss_ratio: f64,
    /// Whether what it was promised is kept; true where nothing was.
    pub is_kept: bool,
}

/// Memory in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// All of it; what is no whole granule is left over.
    pub total_bytes: u64,
    /// The bytes that are given at a time.
    pub granule_bytes: u64,
}

impl Pieces {
    /// Granules of the whole.
    pub fn count(self) -> usize {
        (self.total_bytes / self.granule_bytes.max(1)) as usize
    }

    /// The sizes at which a division looks at curves: one granule, two, and so on.
    pub fn sizes(self) -> Vec<u64> {
        (1..=self.count() as u64).map(|count| count * self.granule_bytes).collect()
    }
}

/// The division with the smallest loss.
///
/// # Errors
/// When what was promised at least is more than there is.
pub fn divide(
    profiles: &[Profile],
    objective: Objective,
    pieces: Pieces,
    overheads: &Overheads,
) -> Result<Vec<Share>, TooLittle> {
    let merged: Vec<Merged> =
        profiles.iter().map(|profile| Merged::new(profile, pieces, overheads)).collect();
    let demands: Vec<Demand> = merged.iter().map(|merged| merged.demand.clone()).collect();
    let granules = division(&demands, objective, pieces.count())?;
    Ok(merged.iter().zip(granules).map(|(merged, granules)| merged.share(granules, pieces)).collect())
}

/// The same amount for each tenant, as far as terms allow: the baseline of a division.
///
/// # Errors
/// Those of [`divide`].
pub fn divide_equally(
    profiles: &[Profile],
    pieces: Pieces,
    overheads: &Overheads,
) -> Result<Vec<Share>, TooLittle> {
    let merged: Vec<Merged> =
        profiles.iter().map(|profile| Merged::new(profile, pieces, overheads)).collect();
    let mut granules: Vec<usize> = merged.iter().map(|merged| merged.demand.least).collect();
    let least = granules.iter().sum::<usize>();
    let Some(mut spare) = pieces.count().checked_sub(least) else {
        return Err(TooLittle { least, total: pieces.count() });
    };
    // The tenant with the least gets the next one.
    while spare > 0 {
        let may_have_more = |&at: &usize| granules[at] < merged[at].demand.most;
        let Some(poorest) = (0..granules.len()).filter(may_have_more).min_by_key(|&at| granules[at]) else {
            break;
        };
        granules[poorest] += 1;
        spare -= 1;
    }
    Ok(merged.iter().zip(granules).map(|(merged, granules)| merged.share(granules, pieces)).collect())
}

/// The share of a tenant that has `bytes`, whatever its terms say.
pub fn share_at(profile: &Profile, bytes: u64, overheads: &Overheads) -> Share {
    let (k, miss_ratio) = best_at(profile, bytes, overheads);
    let Profile { rate, miss_ns, terms: Terms { weight, promise, .. }, .. } = *profile;
    let demand = Demand { miss_ratios: vec![miss_ratio], rate, miss_ns, weight, least: 0, most: 0, promise };
    Share { bytes, k, miss_ratio, is_kept: demand.is_kept(0) }
}

/// The score of shares by an objective: the weight of promises that they break, and the quantity to minimise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Only [`Objective::Slo`] counts them.
    pub broken: f64,
    /// Lost time or misses; with [`Objective::Fair`] the part of its possible gain that the worst off lacks.
    pub loss: f64,
}

impl Score {
    /// Whether this is better than `before` by more than the part `least` of what is lost there.
    pub fn is_worth(&self, before: &Score, least: f64) -> bool {
        let fewer_broken = self.broken < before.broken * (1.0 - least);
        fewer_broken || (self.broken <= before.broken && before.loss - self.loss > least * before.loss)
    }
}

/// How good these shares are.
pub fn score(
    profiles: &[Profile],
    shares: &[Share],
    objective: Objective,
    pieces: Pieces,
    overheads: &Overheads,
) -> Score {
    let mut score = Score { broken: 0.0, loss: 0.0 };
    for (profile, share) in profiles.iter().zip(shares) {
        let misses = share.miss_ratio * profile.rate * profile.terms.weight;
        match objective {
            Objective::Latency => score.loss += misses * profile.miss_ns,
            Objective::Mean if profile.rate > 0.0 => {
                score.loss += share.miss_ratio * profile.terms.weight * profile.miss_ns;
            }
            Objective::Mean => {}
            Objective::Hits => score.loss += misses,
            Objective::Slo => {
                score.broken += if share.is_kept { 0.0 } else { profile.terms.weight };
                score.loss += misses * profile.miss_ns;
            }
            Objective::Fair => {
                let at = |bytes| share_at(profile, bytes, overheads).miss_ratio;
                let (none, all) = (at(0), at(pieces.total_bytes));
                let lacks = if none > all { (share.miss_ratio - all) / (none - all) } else { 0.0 };
                score.loss = score.loss.max(lacks);
            }
        }
    }
    score
}

/// Time lost by misses in these shares, per second or window.
pub fn loss_ns(profiles: &[Profile], shares: &[Share]) -> f64 {
    profiles
        .iter()
        .zip(shares)
        .map(|(profile, share)| share.miss_ratio * profile.rate * profile.miss_ns)
        .sum()
}

/// The best K of a tenant with `bytes`, and its miss ratio then.
fn best_at(profile: &Profile, bytes: u64, overheads: &Overheads) -> (u8, f64) {
    let at = |&(k, ref curve): &(u8, Curve)| Candidate { k, misses: curve.miss_ratio(bytes) };
    let candidates: Vec<Candidate> = profile.curves.iter().map(at).collect();
    let k = choose_k::choose(&candidates, profile.miss_ns, overheads, profile.keys_sampled, profile.k);
    // Where too little is known to choose, the curve next to the default stands for it.
    let near = candidates.iter().min_by_key(|one| one.k.abs_diff(k));
    near.map_or((k, 1.0), |one| (one.k, one.misses))
}

/// A tenant's merged curve, at whole numbers of granules.
struct Merged {
    demand: Demand,
    /// The K at each of them.
    ks: Vec<u8>,
}

impl Merged {
    fn new(profile: &Profile, pieces: Pieces, overheads: &Overheads) -> Self {
        let Profile { rate, miss_ns, terms, .. } = *profile;
        let mut miss_ratios = Vec::with_capacity(pieces.count() + 1);
        let mut ks = Vec::with_capacity(pieces.count() + 1);
        for size in std::iter::once(0).chain(pieces.sizes()) {
            let (k, miss_ratio) = best_at(profile, size, overheads);
            miss_ratios.push(miss_ratio);
            ks.push(k);
        }
        // The last granule that it may have is the last whole one; the first must hold all that it was promised.
        let most = (terms.most_bytes / pieces.granule_bytes.max(1)).min(pieces.count() as u64) as usize;
        let least = terms.least_bytes.div_ceil(pieces.granule_bytes.max(1)) as usize;
        let Terms { weight, promise, .. } = terms;
        let demand = Demand { miss_ratios, rate, miss_ns, weight, least, most: most.max(least), promise };
        Merged { demand, ks }
    }

    fn share(&self, granules: usize, pieces: Pieces) -> Share {
        Share {
            bytes: granules as u64 * pieces.granule_bytes,
            k: self.ks[granules.min(self.ks.len() - 1)],
            miss_ratio: self.demand.miss_ratio(granules),
            is_kept: self.demand.is_kept(granules),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mrc::{Point, Unit};
    use tiermem_policy::choose_k::K_DEFAULT;

    const PIECES: Pieces = Pieces { total_bytes: 1000, granule_bytes: 100 };

    fn curve(points: &[(u64, f64)]) -> Curve {
        let point = |&(size, miss_ratio)| Point { size, miss_ratio, error: 0.0 };
        Curve { unit: Unit::Bytes, requests: 1000.0, points: points.iter().map(point).collect() }
    }

    fn profile(curves: Vec<(u8, Curve)>, miss_ns: f64) -> Profile {
        Profile { curves, keys_sampled: 1000, rate: 100.0, miss_ns, k: K_DEFAULT, terms: Terms::default() }
    }

    #[test]
    fn each_tenant_gets_the_k_that_is_best_at_its_share() {
        // A loop over 800 bytes: what is drawn at random keeps a part of it, what is old keeps nothing of it.
        let looping =
            vec![(1, curve(&[(400, 0.6), (800, 0.0)])), (16, curve(&[(400, 1.0), (799, 1.0), (800, 0.0)]))];
        let skewed = vec![(1, curve(&[(600, 0.3), (1000, 0.2)])), (16, curve(&[(600, 0.2), (1000, 0.15)]))];
        let profiles = [profile(looping, 1e6), profile(skewed, 1e6)];
        let shares = divide(&profiles, Objective::Latency, PIECES, &Overheads::default()).unwrap();
        assert_eq!(shares.iter().map(|share| share.bytes).sum::<u64>(), 1000);
        assert_eq!((shares[0].k, shares[1].k), (1, 16), "{shares:?}");
        let equal = divide_equally(&profiles, PIECES, &Overheads::default()).unwrap();
        assert_eq!((equal[0].bytes, equal[1].bytes), (500, 500));
        assert!(loss_ns(&profiles, &shares) <= loss_ns(&profiles, &equal));
    }

    #[test]
    fn terms_are_kept_in_bytes() {
        let flat = || vec![(5, curve(&[(1000, 0.9)]))];
        let steep = || vec![(5, curve(&[(300, 0.1), (1000, 0.0)]))];
        let promised = Terms { least_bytes: 250, ..Terms::default() };
        let bounded = Terms { most_bytes: 399, ..Terms::default() };
        let profiles = [
            Profile { terms: promised, ..profile(flat(), 1e6) },
            Profile { terms: bounded, ..profile(steep(), 1e6) },
        ];
        let shares = divide(&profiles, Objective::Latency, PIECES, &Overheads::default()).unwrap();
        assert_eq!((shares[0].bytes, shares[1].bytes), (700, 300));
        let greedy = Profile { terms: Terms { least_bytes: 800, ..promised }, ..profiles[0].clone() };
        let refused = divide(&[greedy.clone(), greedy], Objective::Latency, PIECES, &Overheads::default());
        assert_eq!(refused.unwrap_err(), TooLittle { least: 16, total: 10 });
    }

    #[test]
    fn a_small_sample_leaves_k_at_its_default() {
        let curves = vec![(1, curve(&[(1000, 0.1)])), (5, curve(&[(1000, 0.5)]))];
        let profiles = [Profile { keys_sampled: 100, ..profile(curves, 1e6) }];
        let shares = divide(&profiles, Objective::Hits, PIECES, &Overheads::default()).unwrap();
        assert_eq!((shares[0].k, shares[0].miss_ratio), (5, 0.5));
    }
}
