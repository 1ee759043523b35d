//! Miss counts of every policy at eight sizes on real traces, written down once (`data/golden.csv`), and what another
//! simulator, the Python package libcachesim 0.3.5, counts (`data/libcachesim.csv`).
//!
//! A change of a golden count is a change of a policy. `docs/results/agreement-libcachesim.md` says where the two
//! simulators differ and why.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tiermem_policy::evict::Named;
use tiermem_policy::flat::{Cache, Capacity, cache};
use tiermem_sim::cache::belady::{Belady, Future};
use tiermem_sim::cache::{Batch, Batches, run};

/// Policies whose definitions agree in both simulators, so that the counts must be equal.
const SAME: [&str; 10] = ["fifo", "lru", "clock", "clock2", "sieve", "s3-fifo", "arc", "2q", "lfu", "belady"];

/// Trace to (policy, size, misses) in the order of the file.
type Table = BTreeMap<String, Vec<(String, u64, u64)>>;

fn table(text: &str) -> Table {
    let mut table = Table::new();
    for line in text.lines().skip(1) {
        let fields: Vec<_> = line.split(',').collect();
        let [trace, policy, size, misses] = fields[..] else { panic!("{line}") };
        let row = (policy.to_owned(), size.parse().unwrap(), misses.parse().unwrap());
        table.entry(trace.to_owned()).or_default().push(row);
    }
    table
}

fn batches(path: &Path) -> Vec<Arc<Batch>> {
    let trace = tiermem_trace::open(path.to_str().unwrap()).unwrap();
    Batches::new(trace, 0, 0).collect::<Result<_, _>>().unwrap()
}

fn check(path: &Path) {
    let name = path.file_name().unwrap().to_str().unwrap();
    let golden = &table(include_str!("data/golden.csv"))[name];
    let batches = batches(path);
    let future = Future::of(&batches).unwrap();
    let make = |(policy, size, _): &(String, u64, u64)| -> Box<dyn Cache> {
        match policy.parse::<Named>() {
            Ok(named) => cache(named, Capacity::Objects(*size), 0),
            Err(_) => Box::new(Belady::new(future.clone(), Capacity::Objects(*size))),
        }
    };
    let caches = golden.iter().map(make).collect();
    let counts = run(batches.into_iter().map(Ok::<_, ()>), caches, 2).unwrap();
    let counted: Vec<_> =
        golden.iter().zip(&counts).map(|(row, counts)| (row.0.clone(), row.1, counts[0].misses)).collect();
    assert_eq!(&counted, golden);
}

#[test]
fn a_slice_of_twitter() {
    check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/testdata/twitter_cluster52-20k.csv.zst"));
}

#[test]
fn a_slice_of_cloudphysics() {
    check(
        &Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../trace/testdata/cloudPhysicsIO-20k.oracleGeneral.bin.zst"),
    );
}

#[test]
#[ignore = "needs TIERMEM_TRACES, a directory with twitter_cluster52.csv.zst"]
fn a_million_requests_of_twitter() {
    let traces = std::env::var("TIERMEM_TRACES").expect("TIERMEM_TRACES names the directory of the trace");
    check(&Path::new(&traces).join("twitter_cluster52.csv.zst"));
}

#[test]
fn every_policy_has_golden_counts_and_the_other_simulator_agrees() {
    let golden = table(include_str!("data/golden.csv"));
    let other = table(include_str!("data/libcachesim.csv"));
    for (trace, rows) in &golden {
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        rows.iter().for_each(|(policy, ..)| *sizes.entry(policy).or_default() += 1);
        for policy in Named::ALL.map(Named::name).into_iter().chain(["belady"]) {
            assert_eq!(sizes.get(policy), Some(&8), "{trace}: {policy} at eight sizes");
        }
        let same = |row: &&(String, u64, u64)| SAME.contains(&row.0.as_str());
        let theirs: Vec<_> = other[trace].iter().filter(same).collect();
        assert_eq!(theirs.len(), 8 * SAME.len());
        for row in theirs {
            assert!(rows.contains(row), "{trace}: {row:?}");
        }
    }
}
