//! Cache simulation.

use pyo3::prelude::*;
use tiermem_policy::evict::Named;
use tiermem_policy::flat::{Cache, Capacity, Counts, Request, cache};

use crate::failure::Failure;
use crate::progress::Progress;
use crate::source::{Input, Reading};

/// Policy, K or None, size, requests, misses, bytes, bytes of misses.
type Row = (String, Option<u32>, u64, u64, u64, u64, u64);

/// Requests that go through each cache at once.
const BATCH_REQUESTS: usize = 1 << 13;

/// Counts of each policy at each size.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the Python side has one signature for people")]
pub fn simulate(
    py: Python<'_>,
    trace: Input,
    reading: Reading,
    policies: Vec<String>,
    ks: Vec<u32>,
    sizes: Vec<u64>,
    in_bytes: bool,
    seed: u64,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<Row>> {
    let progress = Progress::new(progress);
    let result = py.detach(|| -> Result<_, Failure> {
        let mut plan: Vec<(Named, u64)> = Vec::new();
        for name in &policies {
            let named: Named = name.parse().map_err(Failure::Value)?;
            let variants: Vec<Named> = match named.k() {
                Some(_) => ks.iter().map(|&k| named.with_k(k)).collect(),
                None => vec![named],
            };
            plan.extend(variants.iter().flat_map(|variant| sizes.iter().map(|&size| (*variant, size))));
        }
        let make = |&(policy, size): &(Named, u64)| {
            cache(policy, if in_bytes { Capacity::Bytes(size) } else { Capacity::Objects(size) }, seed)
        };
        let mut caches: Vec<Box<dyn Cache>> = plan.iter().map(make).collect();
        let mut interner = tiermem_base::Interner::new();
        let mut batch: Vec<Request> = Vec::with_capacity(BATCH_REQUESTS);
        let mut keys = 0;
        trace.open(&reading)?.each(&progress, |access| {
            let (key, _) = interner.intern(access.key);
            keys = keys.max(key + 1);
            batch.push(Request { key, size: access.size, op: access.op });
            if batch.len() == BATCH_REQUESTS {
                caches.iter_mut().for_each(|cache| cache.run(&batch, keys));
                batch.clear();
            }
            Ok(())
        })?;
        caches.iter_mut().for_each(|cache| cache.run(&batch, keys));
        let row = |(&(policy, size), counts): (&(Named, u64), Counts)| {
            let Counts { requests, misses, bytes, miss_bytes } = counts;
            (policy.name().to_owned(), policy.k(), size, requests, misses, bytes, miss_bytes)
        };
        Ok(plan.iter().zip(caches.iter().map(|cache| cache.counts())).map(row).collect())
    });
    Ok(result?)
}
