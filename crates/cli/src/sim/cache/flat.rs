//! `tiermem sim cache` without tiers: policies and sizes in one pass.

use std::sync::Arc;
use std::thread::available_parallelism;

use anyhow::anyhow;
use clap::Args;
use tiermem_model::advisor::Plan;
use tiermem_policy::evict::Named;
use tiermem_policy::evict::named::K_DEFAULT;
use tiermem_policy::flat::{Cache, Capacity, Counts, cache};
use tiermem_sim::cache::belady::{Belady, Future};
use tiermem_sim::cache::pass::{self, PassError};
use tiermem_sim::cache::{Batch, Batches, Dlru};

use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::size::{self, Size};
use crate::source::{TraceArgs, sample_rate};

const FIELDS: &[&str] =
    &["policy", "k", "size", "requests", "misses", "miss_ratio", "byte_miss_ratio", "window"];

/// Which caches are simulated.
#[derive(Debug, Args)]
pub struct FlatArgs {
    /// Cache size, or a percentage of the working set; repeat it for several in one pass.
    #[arg(long, value_name = "N", required_unless_present_any = ["tier", "config", "sizes"], conflicts_with_all = ["tier", "config"])]
    size: Vec<Size>,
    /// Number of cache sizes to evaluate, evenly spaced up to the working set.
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["tier", "config"], value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sizes: Option<u32>,
    /// Count sizes in bytes of values instead of objects.
    #[arg(long)]
    bytes: bool,
    /// Eviction policy; repeat it for several in one pass.
    #[arg(long, value_name = "NAME", default_value = "lru", conflicts_with_all = ["tier", "config"])]
    policy: Vec<Policy>,
    /// Sample size K of klru and redis; repeat it for several.
    #[arg(long, value_name = "K", default_values_t = [K_DEFAULT], value_parser = clap::value_parser!(u32).range(1..=4096))]
    k: Vec<u32>,
    /// Look-ups between two choices of K by dlru and dlru-krr [default: 5000000 and 1000000].
    #[arg(long, value_name = "N", conflicts_with_all = ["tier", "config"], value_parser = crate::trace::positive_count)]
    k_window: Option<u64>,
    /// Share of the keys that dlru and dlru-krr sample [default: 0.005 and 0.01].
    #[arg(long, value_name = "R", conflicts_with_all = ["tier", "config"], value_parser = sample_rate)]
    k_sample: Option<f64>,
    /// One row per N requests of the trace.
    #[arg(long, value_name = "N", value_parser = crate::trace::positive_count)]
    window: Option<u64>,
    /// Simulate the first N requests of the trace without counting them.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = crate::trace::count)]
    warmup: u64,
    /// Seed of random policies.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Number of threads [default: one per processor].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

impl FlatArgs {
    /// Choice of K: a plan with the options of the command line.
    fn dlru(&self, plan: Plan) -> Plan {
        let (window, rate) = (self.k_window.unwrap_or(plan.window), self.k_sample.unwrap_or(plan.rate));
        Plan { window, rate, ..plan }
    }

    /// Requests before anything is counted, and requests of a window, if there are windows.
    pub fn spans(&self) -> (u64, Option<u64>) {
        (self.warmup, self.window)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Policy {
    Named(Named),
    Belady,
    Dlru,
    DlruKrr,
}

impl std::str::FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "belady" => Ok(Policy::Belady),
            "dlru" => Ok(Policy::Dlru),
            "dlru-krr" => Ok(Policy::DlruKrr),
            _ => text.parse().map(Policy::Named).map_err(|error| format!("{error}, belady, dlru, dlru-krr")),
        }
    }
}

impl Policy {
    /// The policy with each K, or alone.
    fn variants(self, ks: &[u32]) -> Vec<Policy> {
        match self {
            Policy::Named(named) if named.k().is_some() => {
                ks.iter().map(|k| Policy::Named(named.with_k(*k))).collect()
            }
            one => vec![one],
        }
    }

    fn cells(self) -> [Cell; 2] {
        let (name, k) = match self {
            Policy::Named(named) => (named.name(), named.k().unwrap_or(0)),
            Policy::Belady => ("belady", 0),
            Policy::Dlru => ("dlru", 0),
            Policy::DlruKrr => ("dlru-krr", 0),
        };
        [Cell::Text(name.to_owned()), Cell::Count(u64::from(k))]
    }
}

/// Simulates and prints.
pub fn run(trace: &TraceArgs, args: &FlatArgs, format: Format) -> Result<(), Failure> {
    let source = trace.open()?;
    let mut batches = Batches::new(source.records(), args.warmup, args.window.unwrap_or(0));
    let sizes: Vec<Size> =
        args.size.iter().copied().chain(args.sizes.into_iter().flat_map(size::evenly)).collect();
    let policies: Vec<Policy> = args.policy.iter().flat_map(|policy| policy.variants(&args.k)).collect();
    let threads = args.threads.map_or_else(|| available_parallelism().map_or(1, usize::from), usize::from);

    let needs_all =
        policies.contains(&Policy::Belady) || sizes.iter().any(|size| matches!(size, Size::Share(_)));
    let held: Option<Vec<Arc<Batch>>> =
        needs_all.then(|| batches.by_ref().collect()).transpose().map_err(failure)?;
    let working_set = held.as_ref().map_or(0, |held| working_set(held, args.bytes));
    let mut plan = Vec::new();
    for policy in &policies {
        for size in &sizes {
            let units = size.units(working_set);
            plan.push((*policy, if args.bytes { Capacity::Bytes(units) } else { Capacity::Objects(units) }));
        }
    }
    let future = match &held {
        Some(held) if policies.contains(&Policy::Belady) => Some(Future::of(held).ok_or_else(|| {
            Failure::failed(anyhow!(
                "belady takes traces of fewer than 2^32 requests; --requests N cuts this one"
            ))
        })?),
        _ => None,
    };
    let make = |&(policy, capacity): &(Policy, Capacity)| -> Box<dyn Cache> {
        match (policy, &future) {
            (Policy::Named(named), _) => cache(named, capacity, args.seed),
            // There is a future whenever there is a belady.
            (Policy::Dlru, _) => Box::new(Dlru::new(args.dlru(Plan::dlru()), capacity, args.seed)),
            (Policy::DlruKrr, _) => Box::new(Dlru::new(args.dlru(Plan::default()), capacity, args.seed)),
            (Policy::Belady, future) => Box::new(Belady::new(future.clone().unwrap_or_default(), capacity)),
        }
    };
    let caches = plan.iter().map(make).collect();
    let counts = match held {
        Some(held) => pass::run(held.into_iter().map(Ok), caches, threads),
        None => pass::run(batches.by_ref(), caches, threads),
    };
    let counts = counts.map_err(failure)?;
    source.finish();

    let warm = batches.is_warm();
    let mut rows = Vec::new();
    for ((policy, capacity), counts) in plan.iter().zip(&counts) {
        // What came before the first window: the warm-up, or nothing.
        let (mut before, windows) = match counts.split_first() {
            Some((warmup, windows)) if warm => (*warmup, windows),
            _ => (Counts::default(), &counts[..]),
        };
        for (window, after) in (0u64..).zip(windows) {
            let counts = after.since(&before);
            before = *after;
            let [name, k] = policy.cells();
            rows.push(vec![
                name,
                k,
                Cell::Count(capacity.units()),
                Cell::Count(counts.requests),
                Cell::Count(counts.misses),
                Cell::Number(counts.miss_ratio(), 6),
                Cell::Number(counts.byte_miss_ratio(), 6),
                Cell::Count(window),
            ]);
        }
    }
    output::print_rows(format, &Rows { fields: FIELDS, rows }).map_err(Failure::failed)
}

/// Distinct keys, or the bytes of their values, each the largest that was seen.
fn working_set(held: &[Arc<Batch>], bytes: bool) -> u64 {
    let keys = held.last().map_or(0, |batch| batch.keys);
    if !bytes {
        return u64::from(keys);
    }
    let mut largest = vec![0u32; keys as usize];
    for request in held.iter().flat_map(|batch| &batch.requests) {
        let largest = &mut largest[request.key as usize];
        *largest = request.size.max(*largest);
    }
    largest.into_iter().map(u64::from).sum()
}

fn failure(error: PassError<Failure>) -> Failure {
    match error {
        PassError::Trace(failure) => failure,
        PassError::Keys => Failure::failed(anyhow!(
            "the trace has more distinct keys than can be simulated, which is some 4 billion; --requests N cuts it"
        )),
    }
}
