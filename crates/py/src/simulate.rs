//! Cache simulation.

use std::sync::Arc;
use std::thread::available_parallelism;

use pyo3::prelude::*;
use tiermem_policy::evict::Named;
use tiermem_policy::flat::{Cache, Capacity, Counts, cache};
use tiermem_sim::cache::belady::{Belady, Future};
use tiermem_sim::cache::pass::{self, PassError};
use tiermem_sim::cache::{Batch, Batches};

use crate::failure::Failure;
use crate::progress::Progress;
use crate::source::{Input, Reading};

/// Policy, K or None, size, requests, misses, bytes, bytes of misses.
type Row = (String, Option<u32>, u64, u64, u64, u64, u64);

/// The name of the bound that knows the future.
const BELADY: &str = "belady";

/// One cache: a policy and its size; None is Belady's.
type Planned = (Option<Named>, u64);

fn plan(policies: &[String], ks: &[u32], sizes: &[u64]) -> Result<Vec<Planned>, Failure> {
    let mut plan = Vec::new();
    for name in policies {
        let named = match name.as_str() {
            BELADY => None,
            name => Some(name.parse::<Named>().map_err(|error| format!("{error}, {BELADY}"))?),
        };
        let variants: Vec<Option<Named>> = match named {
            Some(policy) if policy.k().is_some() => ks.iter().map(|&k| Some(policy.with_k(k))).collect(),
            other => vec![other],
        };
        plan.extend(variants.iter().flat_map(|variant| sizes.iter().map(|&size| (*variant, size))));
    }
    Ok(plan)
}

fn failure(error: PassError<Failure>) -> Failure {
    match error {
        PassError::Trace(failure) => failure,
        PassError::Keys => Failure::Value(
            "the trace has more distinct keys than can be simulated, which is some 4 billion; requests=N cuts it"
                .to_owned(),
        ),
    }
}

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
        let plan = plan(&policies, &ks, &sizes)?;
        let mut batches = Batches::new(trace.open(&reading)?.records(&progress), 0, 0);
        // A clairvoyant policy must have seen the whole trace.
        let held: Option<Vec<Arc<Batch>>> = match plan.iter().any(|(policy, _)| policy.is_none()) {
            true => Some(batches.by_ref().collect::<Result<_, _>>().map_err(failure)?),
            false => None,
        };
        let future = match &held {
            Some(held) => Future::of(held).ok_or_else(|| {
                "belady takes fewer than 2^32 requests; requests=N cuts the trace".to_owned()
            })?,
            None => Future::default(),
        };
        let make = |&(policy, size): &Planned| -> Box<dyn Cache> {
            let capacity = if in_bytes { Capacity::Bytes(size) } else { Capacity::Objects(size) };
            match policy {
                Some(policy) => cache(policy, capacity, seed),
                None => Box::new(Belady::new(future.clone(), capacity)),
            }
        };
        let caches = plan.iter().map(make).collect();
        let threads = available_parallelism().map_or(1, usize::from);
        let counts = match held {
            Some(held) => pass::run(held.into_iter().map(Ok), caches, threads),
            None => pass::run(batches, caches, threads),
        };
        let row = |(&(policy, size), counts): (&Planned, Vec<Counts>)| {
            let Counts { requests, misses, bytes, miss_bytes } = counts.last().copied().unwrap_or_default();
            let name = policy.map_or(BELADY, Named::name).to_owned();
            (name, policy.and_then(Named::k), size, requests, misses, bytes, miss_bytes)
        };
        Ok(plan.iter().zip(counts.map_err(failure)?).map(row).collect())
    });
    Ok(result?)
}
