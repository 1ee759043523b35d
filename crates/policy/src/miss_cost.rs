//! Miss cost of a tenant: the time from a GET that finds nothing to the SET of the same key by the same tenant (Wang 2024,
//! section 3.1.2).
//!
//! The cost is a mean, because it is multiplied by a number of misses; but a mean over all times would be decided by the few SETs
//! that came long after their miss for other reasons. So of each window's times, kept as a fair sample, the highest and the
//! lowest twentieth are left out. Only some keys are followed, chosen by their hash: a miss of any other costs one comparison.

use tiermem_base::Rng;
use tiermem_base::hash::Sample;

/// Misses followed at the same time. When more are under way the oldest of the same place is forgotten.
const PENDING: usize = 1024;
/// Times kept of a window.
const KEPT: usize = 128;
/// Times that a window must have for its mean to count.
const LEAST: u32 = 8;
/// The part left out at either end.
const LEFT_OUT: f64 = 0.05;
/// The weight of a window's mean against all before it.
const WINDOW_WEIGHT: f64 = 0.5;
/// A SET later than this after the miss was not caused by it.
const LATEST_NS: u64 = 60_000_000_000;

/// A miss whose key has not been set yet.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    /// Of the key; 0 where nothing is pending.
    hash: u64,
    at_ns: u64,
    tenant: u16,
}

/// The times of one tenant's window.
#[derive(Clone, Debug, Default)]
struct MissTimes {
    /// Fair sample of them, in nanoseconds.
    kept: Vec<u64>,
    seen: u32,
    mean_ns: Option<f64>,
}

/// The costs of misses of all tenants.
///
/// Memory: 24 KiB, and 1 KiB for each tenant that has set a missed key back lately.
#[derive(Clone, Debug)]
pub struct MissCosts {
    sample: Sample,
    pending: Box<[Pending]>,
    windows: Vec<MissTimes>,
    rng: Rng,
}

impl MissCosts {
    /// Follows the share `rate` of the keys.
    pub fn new(rate: f64, seed: u64) -> Self {
        MissCosts {
            sample: Sample::with_rate(rate),
            pending: vec![Pending::default(); PENDING].into_boxed_slice(),
            windows: Vec::new(),
            rng: Rng::seeded(seed),
        }
    }

    /// Whether a key of this hash is followed: only for those need the driver measure time.
    #[inline]
    pub fn follows(&self, hash: u64) -> bool {
        self.sample.holds(hash)
    }

    /// A GET of a followed key found nothing.
    pub fn missed(&mut self, hash: u64, tenant: u16, now_ns: u64) {
        self.pending[place(hash)] = Pending { hash, at_ns: now_ns, tenant };
    }

    /// A followed key was set.
    pub fn set(&mut self, hash: u64, tenant: u16, now_ns: u64) {
        let pending = &mut self.pending[place(hash)];
        if pending.hash != hash || pending.tenant != tenant {
            return;
        }
        let took_ns = now_ns.saturating_sub(std::mem::take(pending).at_ns);
        if took_ns > LATEST_NS {
            return;
        }
        if self.windows.len() <= usize::from(tenant) {
            self.windows.resize_with(usize::from(tenant) + 1, MissTimes::default);
        }
        self.windows[usize::from(tenant)].note(took_ns, &mut self.rng);
    }

    /// Ends a window: from now on its means count. A tenant with too few SETs after misses keeps its earlier mean.
    pub fn end_window(&mut self) {
        self.windows.iter_mut().for_each(MissTimes::end);
    }

    /// The cost of a miss in nanoseconds, over the last windows; [`None`] for a tenant without a known one.
    pub fn mean_ns(&self, tenant: u16) -> Option<f64> {
        self.windows.get(usize::from(tenant))?.mean_ns
    }
}

fn place(hash: u64) -> usize {
    // The highest bits choose the sample, so they are much the same in all of it.
    (hash >> 40) as usize % PENDING
}

impl MissTimes {
    fn note(&mut self, took_ns: u64, rng: &mut Rng) {
        self.seen += 1;
        if self.kept.len() < KEPT {
            self.kept.push(took_ns);
        } else if let at @ 0..KEPT = rng.below(u64::from(self.seen)) as usize {
            self.kept[at] = took_ns;
        }
    }

    fn end(&mut self) {
        if self.seen < LEAST {
            return;
        }
        self.seen = 0;
        let mut kept = std::mem::take(&mut self.kept);
        kept.sort_unstable();
        let out = (kept.len() as f64 * LEFT_OUT).round() as usize;
        let counted = &kept[out..kept.len() - out];
        let mean = counted.iter().sum::<u64>() as f64 / counted.len() as f64;
        self.mean_ns = Some(match self.mean_ns {
            Some(before) => before + (mean - before) * WINDOW_WEIGHT,
            None => mean,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_base::hash::sample_hash;

    fn hash(key: u64) -> u64 {
        sample_hash(key)
    }

    /// `count` misses that take what `took` says.
    fn window(costs: &mut MissCosts, tenant: u16, count: u64, took_ns: impl Fn(u64) -> u64) {
        for key in 0..count {
            costs.missed(hash(key), tenant, key * 1_000_000);
            costs.set(hash(key), tenant, key * 1_000_000 + took_ns(key));
        }
        costs.end_window();
    }

    #[test]
    fn each_tenant_has_its_own_and_outliers_do_not_decide() {
        let mut costs = MissCosts::new(1.0, 1);
        window(&mut costs, 0, 1000, |_| 200_000);
        window(&mut costs, 7, 1000, |key| if key % 100 == 0 { 30_000_000_000 } else { 2_000_000 });
        assert_eq!(costs.mean_ns(0), Some(200_000.0));
        assert_eq!(costs.mean_ns(7), Some(2_000_000.0));
        assert_eq!(costs.mean_ns(3), None);
        assert_eq!(costs.mean_ns(4000), None);
    }

    #[test]
    fn a_mean_of_two_kinds_is_between_them() {
        let mut costs = MissCosts::new(1.0, 1);
        window(&mut costs, 0, 100, |key| if key % 2 == 0 { 100_000 } else { 300_000 });
        let mean = costs.mean_ns(0).unwrap();
        assert!((180_000.0..220_000.0).contains(&mean), "{mean}");
    }

    #[test]
    fn who_never_sets_back_costs_nothing_known() {
        let mut costs = MissCosts::new(1.0, 1);
        for key in 0..5000 {
            costs.missed(hash(key), 1, key);
            // Another tenant's write of the same key is no answer to the miss.
            costs.set(hash(key), 2, key + 10);
        }
        costs.end_window();
        assert_eq!((costs.mean_ns(1), costs.mean_ns(2)), (None, None));
    }

    #[test]
    fn a_change_is_followed_within_windows_and_what_is_old_is_kept_without_any() {
        let mut costs = MissCosts::new(1.0, 1);
        window(&mut costs, 0, 200, |_| 1_000_000);
        for _ in 0..5 {
            window(&mut costs, 0, 200, |_| 2_000_000);
        }
        let mean = costs.mean_ns(0).unwrap();
        assert!((1_950_000.0..2_000_000.0).contains(&mean), "{mean}");
        window(&mut costs, 0, 3, |_| 9_000_000);
        assert_eq!(costs.mean_ns(0), Some(mean), "three times are none");
    }

    #[test]
    fn keys_are_followed_by_their_hash() {
        let costs = MissCosts::new(0.01, 1);
        let followed = (0..100_000).filter(|&key| costs.follows(hash(key))).count();
        assert!((800..1200).contains(&followed), "{followed}");
    }
}
