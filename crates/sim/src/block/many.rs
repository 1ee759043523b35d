//! Many block caches over one trace: each runs through all of it by itself, as many at a time as there are threads.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tiermem_base::Access;
use tiermem_policy::extents::{GeometryError, UNIT_BYTES};

use super::{BlockTraceError, Counts, Setup};

/// Records between two looks at whether the user has had enough.
const SLICE: usize = 1 << 16;

/// Why a cache was not simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BlockError {
    /// The cache cannot be.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The trace cannot be.
    #[error(transparent)]
    Trace(#[from] BlockTraceError),
    /// The user stopped it.
    #[error("interrupted")]
    Interrupted,
}

/// The bytes that each volume's requests touch, in whole units: their working sets.
pub fn working_sets(records: &[Access]) -> BTreeMap<u32, u64> {
    let mut touched: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.size > 0) {
        let end = record.key.saturating_add(u64::from(record.size)).div_ceil(UNIT_BYTES);
        touched.entry(record.tenant).or_default().push((record.key / UNIT_BYTES, end));
    }
    let covered = |mut ranges: Vec<(u64, u64)>| {
        ranges.sort_unstable();
        let (mut units, mut reached) = (0, 0);
        for (first, end) in ranges {
            units += end.saturating_sub(first.max(reached));
            reached = reached.max(end);
        }
        units * UNIT_BYTES
    };
    touched.into_iter().map(|(tenant, ranges)| (tenant, covered(ranges))).collect()
}

/// A cache's outcome: the counts of each volume, in the order of their first requests.
pub type Outcome = Result<Vec<(u32, Counts)>, BlockError>;

/// Runs each cache over the whole trace, or, where a volume is named, over that volume's requests. The first `warm_up` records are not
/// counted. Outcomes stand in the order of
/// the caches. `progress` is told, from any thread, of records that some cache has done with.
pub fn run(
    records: &[Access],
    caches: &[(Setup, Option<u32>)],
    warm_up: u64,
    seed: u64,
    threads: usize,
    stop: &(dyn Fn() -> bool + Sync),
    progress: &(dyn Fn(u64) + Sync),
) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes: Vec<Mutex<Option<Outcome>>> = caches.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((setup, volume)) = caches.get(at) else { return };
            let outcome = run_one(records, setup, *volume, warm_up, seed, stop, progress);
            if let Ok(mut place) = outcomes[at].lock() {
                *place = Some(outcome);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, caches.len().max(1)) {
            scope.spawn(work);
        }
    });
    let taken = outcomes.into_iter().map(|place| place.into_inner().ok().flatten());
    taken.map(|outcome| outcome.unwrap_or(Err(BlockError::Interrupted))).collect()
}

fn run_one(
    records: &[Access],
    setup: &Setup,
    volume: Option<u32>,
    warm_up: u64,
    seed: u64,
    stop: &(dyn Fn() -> bool + Sync),
    progress: &(dyn Fn(u64) + Sync),
) -> Outcome {
    let mut cache = setup.build(seed)?;
    let mut own = Vec::new();
    let warm_up = usize::try_from(warm_up).unwrap_or(usize::MAX).min(records.len());
    let (early, late) = records.split_at(warm_up);
    for part in [early, late] {
        // What was counted of the early ones is forgotten.
        cache.forget_counts();
        for slice in part.chunks(SLICE) {
            if stop() {
                return Err(BlockError::Interrupted);
            }
            match volume {
                None => cache.run(slice)?,
                Some(tenant) => {
                    own.clear();
                    own.extend(slice.iter().filter(|record| record.tenant == tenant));
                    cache.run(&own)?;
                }
            }
            progress(slice.len() as u64);
        }
    }
    Ok(cache.finish())
}
