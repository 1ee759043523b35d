//! Choice of K for K-LRU (Wang 2024, section 3.1.3).
//!
//! Every candidate K has a count of misses, from miniature caches or from a model, and a cost of choosing a victim. The best K
//! minimises `P_K = M_K (p + OH_K)` (equation 3.2), where p is the cost of a miss.
//!
//! Two counts that are nearly equal do not tell two K apart: a cache that is not full yet, or that holds everything, misses
//! equally often with any K. The smallest K would win there by the little that a draw saves, and it is the wrong one as soon as K
//! matters: on a trace that begins with many new keys it cost a seventh of the speed. So another K replaces the present one only
//! if it is better by [`GAIN_LEAST`].

/// The K that is used where nothing better is known: Redis's own default.
pub const K_DEFAULT: u8 = 5;
/// Keys that a window must have seen for its counts to mean anything (section 3.1.1).
pub const DISTINCT_LEAST: u64 = 256;

/// The least saving for which another K is chosen, as a part of what is lost: less is noise.
pub const GAIN_LEAST: f64 = 0.005;

/// Costs of choosing a victim, by K.
#[derive(Clone, Debug, PartialEq)]
pub struct Overheads {
    /// K and its cost relative to K = 1, ascending in K.
    ratios: Vec<(u8, f64)>,
    /// The cost of K = 1 in nanoseconds.
    one_ns: f64,
}

impl Default for Overheads {
    /// Redis's ratios, as measured by Wang 2024 (table 3.1, machine A), and 100 ns for K = 1. Replace them by figures measured on
    /// the machine at hand.
    fn default() -> Self {
        Overheads { ratios: vec![(1, 1.0), (2, 1.64), (5, 2.37), (10, 3.18), (16, 4.31)], one_ns: 100.0 }
    }
}

impl Overheads {
    /// From measured costs in nanoseconds by K; [`None`] unless there is one for K = 1 and all are above zero.
    pub fn measured(mut costs_ns: Vec<(u8, f64)>) -> Option<Self> {
        costs_ns.sort_by_key(|&(k, _)| k);
        let &(1, one_ns) = costs_ns.first()? else { return None };
        if costs_ns.iter().any(|&(_, cost)| cost.is_nan() || cost <= 0.0) {
            return None;
        }
        let ratios = costs_ns.into_iter().map(|(k, cost)| (k, cost / one_ns)).collect();
        Some(Overheads { ratios, one_ns })
    }

    /// Where draws do not count.
    pub fn none() -> Self {
        Overheads { ratios: vec![(1, 1.0)], one_ns: 0.0 }
    }

    /// The ratios to K = 1.
    pub fn ratios(&self) -> &[(u8, f64)] {
        &self.ratios
    }

    /// The cost of choosing a victim in nanoseconds; between two known K on the line through them, beyond the last in
    /// proportion to it.
    pub fn ns(&self, k: u8) -> f64 {
        let above = self.ratios.partition_point(|&(known, _)| known < k);
        let ratio = match (above.checked_sub(1).map(|at| self.ratios[at]), self.ratios.get(above)) {
            (_, Some(&(known, ratio))) if known == k => ratio,
            (Some((below, low)), Some(&(above, high))) => {
                low + (high - low) * f64::from(k - below) / f64::from(above - below)
            }
            (Some((last, ratio)), None) => ratio * f64::from(k) / f64::from(last),
            (None, _) => 1.0,
        };
        ratio * self.one_ns
    }
}

/// The misses of one candidate in a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The sample size.
    pub k: u8,
    /// Its misses, or their share; the same unit for all candidates.
    pub misses: f64,
}

/// The candidate with the smallest `P_K`, the smaller K among equals, if it is better by [`GAIN_LEAST`] than the candidate next to
/// `present`; else that one. [`K_DEFAULT`] where the window saw fewer than [`DISTINCT_LEAST`] keys or there is no candidate.
pub fn choose(
    candidates: &[Candidate],
    miss_ns: f64,
    overheads: &Overheads,
    distinct: u64,
    present: u8,
) -> u8 {
    if distinct < DISTINCT_LEAST {
        return K_DEFAULT;
    }
    let penalty = |one: &Candidate| one.misses * (miss_ns + overheads.ns(one.k));
    let best = candidates.iter().min_by(|a, b| penalty(a).total_cmp(&penalty(b)).then(a.k.cmp(&b.k)));
    let stays = candidates.iter().min_by_key(|one| one.k.abs_diff(present));
    match (best, stays) {
        (Some(best), Some(stays)) if penalty(best) < penalty(stays) * (1.0 - GAIN_LEAST) => best.k,
        (_, Some(stays)) => stays.k,
        _ => K_DEFAULT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(misses: &[(u8, f64)]) -> Vec<Candidate> {
        misses.iter().map(|&(k, misses)| Candidate { k, misses }).collect()
    }

    #[test]
    fn misses_decide_where_they_are_dear_and_the_draw_where_they_are_equal() {
        let overheads = Overheads::default();
        let loops = candidates(&[(1, 700.0), (5, 900.0), (16, 1000.0)]);
        assert_eq!(choose(&loops, 2e6, &overheads, 300, 5), 1);
        let recent = candidates(&[(1, 700.0), (5, 600.0), (16, 595.0)]);
        assert_eq!(choose(&recent, 2e6, &overheads, 300, 5), 16);
        assert_eq!(
            choose(&recent, 1e3, &overheads, 300, 5),
            5,
            "1 us a miss: 5 misses in 600 do not pay 194 ns a draw"
        );
        let equal = candidates(&[(16, 500.0), (5, 500.0), (1, 500.0)]);
        for present in [1, 5, 16] {
            assert_eq!(
                choose(&equal, 2e6, &overheads, 300, present),
                present,
                "what makes no difference stays"
            );
        }
        assert_eq!(
            choose(&equal, 1e3, &overheads, 300, 16),
            1,
            "1 us a miss: 331 ns a draw are worth saving"
        );
        assert_eq!(
            choose(&equal, 2e6, &overheads, 300, 7),
            5,
            "what was never a candidate gives way to the next"
        );
    }

    #[test]
    fn a_small_sample_decides_nothing() {
        let loops = candidates(&[(1, 700.0), (16, 1000.0)]);
        assert_eq!(choose(&loops, 2e6, &Overheads::default(), 255, 1), K_DEFAULT);
        assert_eq!(choose(&[], 2e6, &Overheads::default(), 300, 1), K_DEFAULT);
    }

    #[test]
    fn costs_between_and_beyond_what_was_measured() {
        let overheads = Overheads::measured(vec![(4, 80.0), (1, 50.0), (8, 160.0)]).unwrap();
        for (k, ns) in [(1, 50.0), (6, 120.0), (16, 320.0)] {
            assert!((overheads.ns(k) - ns).abs() < 1e-6, "{k}: {}", overheads.ns(k));
        }
        assert_eq!((Overheads::none().ns(1), Overheads::none().ns(16)), (0.0, 0.0));
        assert_eq!(Overheads::measured(vec![(2, 80.0)]), None);
        assert_eq!(Overheads::measured(vec![(1, 0.0)]), None);
    }
}
