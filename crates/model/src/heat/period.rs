//! The distance at which accesses repeat in space, by autocorrelation over granules (Fisher 2025, section 4.1).

/// A distance at which a region's accesses are like themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// The distance, in granules.
    pub lag: usize,
    /// The autocorrelation there: 1 is the most.
    pub height: f64,
}

/// Lags that are looked through for periods.
const LAGS_MAX: usize = 4096;
/// What stands out less is noise.
const HEIGHT_MIN: f64 = 0.1;

/// The autocorrelation of granules' accesses at each lag from 0 to `max_lag`, normalised so that lag 0 is 1; all 0 but for lag
/// 0 if all granules are alike. Lags at or beyond the number of granules are left out.
pub fn autocorrelation(totals: &[f64], max_lag: usize) -> Vec<f64> {
    let count = totals.len();
    if count == 0 {
        return Vec::new();
    }
    let mean = totals.iter().sum::<f64>() / count as f64;
    let centred: Vec<f64> = totals.iter().map(|value| value - mean).collect();
    let variance: f64 = centred.iter().map(|value| value * value).sum();
    (0..=max_lag.min(count - 1))
        .map(|lag| match lag {
            0 => 1.0,
            _ if variance <= 0.0 => 0.0,
            _ => centred.iter().zip(&centred[lag..]).map(|(a, b)| a * b).sum::<f64>() / variance,
        })
        .collect()
}

/// The peaks of the autocorrelation that stand out of their surroundings, strongest first, the fundamental period before all
/// others; empty if there is none.
pub fn periods(totals: &[f64]) -> Vec<Peak> {
    let curve = autocorrelation(totals, (totals.len() / 2).min(LAGS_MAX));
    let is_peak = |lag: usize| {
        let beside = (lag / 8).max(1);
        let around = lag.saturating_sub(beside).max(1)..(lag + beside + 1).min(curve.len());
        let lowest = curve[1..lag].iter().copied().fold(f64::INFINITY, f64::min);
        curve[lag] >= HEIGHT_MIN
            && around.clone().all(|at| at == lag || curve[at] < curve[lag])
            && curve[lag] - lowest >= HEIGHT_MIN
    };
    let mut peaks: Vec<Peak> = (2..curve.len().saturating_sub(1))
        .filter(|lag| is_peak(*lag))
        .map(|lag| Peak { lag, height: curve[lag] })
        .collect();
    peaks.sort_by(|a, b| b.height.total_cmp(&a.height));
    // The fundamental is the shortest of those that are nearly as strong as the strongest.
    if let Some(strongest) = peaks.first().copied() {
        let nearly = |peak: &&Peak| peak.height >= 0.8 * strongest.height;
        let fundamental = peaks.iter().filter(nearly).map(|peak| peak.lag).min();
        if let Some(at) = peaks.iter().position(|peak| Some(peak.lag) == fundamental) {
            let peak = peaks.remove(at);
            peaks.insert(0, peak);
        }
    }
    peaks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_has_its_period_and_what_does_not_has_none() {
        let comb: Vec<f64> = (0..200).map(|at| if at % 20 == 3 { 9.0 } else { 1.0 }).collect();
        assert_eq!(periods(&comb)[0].lag, 20);
        assert_eq!(autocorrelation(&comb, 40)[0], 1.0);
        for dull in [&[][..], &[1.0], &[2.0; 100]] {
            assert!(periods(dull).is_empty());
        }
        assert_eq!(autocorrelation(&[3.0; 3], 9), [1.0, 0.0, 0.0]);
    }
}
