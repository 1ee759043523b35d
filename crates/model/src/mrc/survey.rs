//! Survey of a whole trace: its curves, from all of it or from a spatial sample.

use tiermem_base::{Access, Op};
use tiermem_policy::flat::Request;

use super::curve::{Curve, Point};
use super::distinct;
use super::estimate::{PartCounts, ratio_by_keys};
use super::sampled_trace::{Gathered, Mark, PARTS};
use super::{Kind, Unit};

/// Requests that a model gets together: few enough to stay in a core's own cache.
const BATCH_REQUESTS: usize = 4096;

/// The requests of a trace, or those of a spatial sample of its keys, held for as many models as one likes.
///
/// Memory: 8 bytes per request of the sample, and 45 to 67 bytes per key of it (with a bounded number of keys up to three
/// times that); models add theirs.
#[derive(Clone, Debug)]
pub struct Survey {
    gathered: Gathered,
}

impl Survey {
    /// A survey of the share `rate` of the keys; with another `seed` another choice of them.
    pub fn new(rate: f64, seed: u64) -> Self {
        Survey { gathered: Gathered::new(rate, usize::MAX, seed) }
    }

    /// A survey of as many keys as come, up to `keys_max`, and beyond that of a share of them that falls so that no more
    /// are held (as fixed-size SHARDS does; but as the requests are kept, what leaves the sample leaves it from the start).
    pub fn with_keys(keys_max: usize, seed: u64) -> Self {
        Survey { gathered: Gathered::new(1.0, keys_max.max(1), seed) }
    }

    /// Takes an access in. Keys beyond 2^30 sampled ones are refused with `false`: the rate is too high for the trace.
    #[inline]
    pub fn access(&mut self, access: &Access) -> bool {
        self.gathered.access(access)
    }

    /// Ends a window here: [`Self::curves`] gives a curve for each.
    pub fn end_window(&mut self) {
        self.gathered.end_window();
    }

    /// Look-ups and writes of the whole trace.
    pub fn requests(&self) -> u64 {
        self.gathered.total
    }

    /// Keys of the sample.
    pub fn keys_sampled(&self) -> usize {
        self.gathered.keys_sampled()
    }

    /// Distinct keys of the whole trace: counted, or where it was sampled estimated to 0.4% (one standard error).
    pub fn keys(&self) -> f64 {
        self.gathered.keys_total()
    }

    /// All keys at their last sizes, in the unit.
    pub fn working_set(&self, unit: Unit) -> u64 {
        self.gathered.working_set(unit)
    }

    /// `count` sizes evenly over the working set, the last one all of it.
    pub fn even_sizes(&self, unit: Unit, count: usize) -> Vec<u64> {
        let whole = self.working_set(unit) as f64;
        let part = |at| ((whole * (at as f64 / count as f64)).round() as u64).max(1);
        let mut sizes: Vec<u64> = (1..=count).map(part).collect();
        sizes.dedup();
        sizes
    }

    /// The curve of a policy at ascending `sizes`, for each window; one for all where no window was ended.
    ///
    /// Caches stay warm from window to window. Of a sample, misses per key are what is estimated, and multiplied by the
    /// number of keys, which is known better than the sample tells: misses come from the many rare keys, requests from a few
    /// frequent ones that a sample has or has not. (SHARDS, FAST'15, divides by the expected number of requests instead; on
    /// the traces of `docs/lab.md` that is off by two to three times as much.)
    pub fn curves(&self, kind: Kind, unit: Unit, sizes: &[u64]) -> Vec<Curve> {
        self.curves_until(kind, unit, sizes, &self.gathered.ends())
    }
    /// [`Self::curves`] over the whole trace.
    pub fn curve(&self, kind: Kind, unit: Unit, sizes: &[u64]) -> Curve {
        self.curves_until(kind, unit, sizes, &[self.gathered.end()]).swap_remove(0)
    }

    fn curves_until(&self, kind: Kind, unit: Unit, sizes: &[u64], ends: &[Mark]) -> Vec<Curve> {
        // The share that the sample turned out to be, not the one that was aimed at.
        let is_whole = self.gathered.is_whole();
        let rate = if is_whole { 1.0 } else { (self.keys_sampled() as f64 / self.keys().max(1.0)).min(1.0) };
        let whole = self.run(kind, unit, sizes, rate, None, ends);
        let is_sample = !is_whole && self.keys_sampled() > 0;
        let run = |part| self.run(kind, unit, sizes, rate / PARTS as f64, Some(part as u8), ends);
        let parts: Vec<Vec<Seen>> = if is_sample { (0..PARTS).map(run).collect() } else { Vec::new() };
        let mut start = 0;
        let curve = |(window, end): (usize, &Mark)| {
            let requests = (end.total - start) as f64;
            start = end.total;
            let parts: Vec<&Seen> = parts.iter().map(|part| &part[window]).collect();
            let points = match is_sample {
                true => self.sampled_points(unit, sizes, requests, &whole[window], &parts),
                false => whole_points(sizes, requests, &whole[window]),
            };
            Curve { unit, requests, points }
        };
        ends.iter().enumerate().map(curve).collect()
    }

    fn sampled_points(
        &self,
        unit: Unit,
        sizes: &[u64],
        requests: f64,
        whole: &Seen,
        parts: &[&Seen],
    ) -> Vec<Point> {
        let known = PartCounts { keys: self.keys(), requests };
        let working_set = self.working_set(unit).max(1) as f64;
        let mut points: Vec<Point> = Vec::with_capacity(sizes.len());
        for (at, &size) in sizes.iter().enumerate() {
            let by_part: Vec<(PartCounts, f64)> =
                parts.iter().map(|part| (part.counts, part.misses[at])).collect();
            let (miss_ratio, spread) = ratio_by_keys(whole.counts, whole.misses[at], &by_part, known);
            // How many keys of the sample compete for a cache of this size varies, as if the size did.
            let share = (size as f64 / working_set).min(1.0);
            let competing = share * whole.counts.keys;
            let size_error = (1.0 + (competing * (1.0 - share)).sqrt()) / whole.counts.keys * working_set;
            let per_request = known.keys / whole.counts.keys / requests.max(1.0);
            let sideways = 2.0 * local_slope(sizes, &whole.misses, at) * size_error * per_request;
            let counting = 2.0 * distinct::RELATIVE_ERROR * miss_ratio;
            let error = (spread.powi(2) + sideways.powi(2) + counting.powi(2)).sqrt();
            points.push(Point { size, miss_ratio: miss_ratio.clamp(0.0, 1.0), error: error.min(1.0) });
        }
        points
    }

    /// Runs a model over the requests of a part, or all. Returns what it has seen in each window.
    fn run(
        &self,
        kind: Kind,
        unit: Unit,
        sizes: &[u64],
        rate: f64,
        part: Option<u8>,
        ends: &[Mark],
    ) -> Vec<Seen> {
        let mut model = kind.model(unit, sizes, rate, u64::from(part.unwrap_or(0)));
        // A part numbers its keys itself, so that its arrays are its own size.
        let mut own = vec![u32::MAX; if part.is_some() { self.gathered.key_bound() } else { 0 }];
        let mut keys = 0u32;
        let mut seen: Vec<Seen> = Vec::with_capacity(ends.len());
        let (mut start, mut misses_before) = (0, vec![0.0; sizes.len()]);
        let mut batch: Vec<Request> = Vec::with_capacity(BATCH_REQUESTS);
        for &end in ends {
            let mut requests = 0u64;
            for mut request in self.gathered.requests(start, end.at) {
                if let Some(part) = part {
                    if self.gathered.part(request.key) != part {
                        continue;
                    }
                    let own = &mut own[request.key as usize];
                    if *own == u32::MAX {
                        *own = keys;
                        keys += 1;
                    }
                    request.key = *own;
                }
                requests += u64::from(request.op != Op::Del);
                batch.push(request);
                if batch.len() == BATCH_REQUESTS {
                    model.run(&batch);
                    batch.clear();
                }
            }
            model.run(&batch);
            batch.clear();
            start = end.at;
            let misses = model.misses(sizes);
            let of_window = misses.iter().zip(&misses_before).map(|(after, before)| after - before).collect();
            misses_before = misses;
            seen.push(Seen {
                counts: PartCounts { keys: 0.0, requests: requests as f64 },
                misses: of_window,
            });
        }
        // Misses are related to the keys of all windows: the keys of one do not tell which of its misses are new keys.
        let keys = if part.is_none() { self.keys_sampled() as f64 } else { f64::from(keys) };
        seen.iter_mut().for_each(|seen| seen.counts.keys = keys);
        seen
    }
}

/// The counts of a model in a window.
#[derive(Clone, Debug)]
struct Seen {
    counts: PartCounts,
    /// By size.
    misses: Vec<f64>,
}

fn whole_points(sizes: &[u64], requests: f64, seen: &Seen) -> Vec<Point> {
    let point = |(&size, misses): (&u64, &f64)| Point {
        size,
        miss_ratio: (misses / requests.max(1.0)).clamp(0.0, 1.0),
        error: 0.0,
    };
    sizes.iter().zip(&seen.misses).map(point).collect()
}

/// How fast misses fall around a size, per unit of size.
fn local_slope(sizes: &[u64], misses: &[f64], at: usize) -> f64 {
    let (left, right) = (at.saturating_sub(1), (at + 1).min(sizes.len() - 1));
    let between = |a: usize, b: usize| {
        if a == b { 0.0 } else { ((misses[a] - misses[b]) / (sizes[b] - sizes[a]) as f64).abs() }
    };
    between(left, at).max(between(at, right))
}
