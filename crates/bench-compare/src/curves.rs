//! Curves of K-LRU models compared with a tight simulation of the same sizes: the time of each, and its error.

use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use tiermem_base::{Interner, Op, Rng};
use tiermem_model::mrc::Model;
use tiermem_model::mrc::Unit;
use tiermem_model::mrc::klru::{EvictionLaw, SampledCaches};
use tiermem_model::mrc::krr::{Correction, KrrStack};

use crate::output::{Cell, Format, Rows, print_rows};
use crate::summary::median;

const FIELDS: &[&str] =
    &["k", "model", "time_s", "simulation_s", "ratio", "mean_absolute_error", "max_error"];

const HELP: &str = "\
Fields:
  model                klru: SampledCaches; krr, krr-uncorrected: the KRR stack with K' = K^1.4 and with K' = K
  time_s               median time to model all sizes, keys numbered beforehand
  simulation_s         the same of a simulation of the same sizes: arrays, no hashing, objects only
  ratio                time_s over simulation_s, the median of interleaved pairs
  mean_absolute_error  against the mean of the simulations, over the sizes; so is max_error";

/// Options of `curves`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// A trace file, or a generator.
    trace: String,
    /// Number of requests.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    requests: usize,
    /// The K of K-LRU.
    #[arg(long, value_name = "K,..", value_delimiter = ',', default_values_t = [1, 2, 5, 10, 16])]
    k: Vec<u32>,
    /// Number of cache sizes to evaluate, evenly spaced up to the working set.
    #[arg(long, value_name = "COUNT", default_value_t = 25)]
    sizes: u64,
    /// Runs of everything, interleaved.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pairs: u64,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Measures and prints.
pub fn run(options: &Options) -> Result<()> {
    let (requests, keys) = numbered(&options.trace, options.requests)?;
    let sizes: Vec<u64> =
        (1..=options.sizes).map(|part| (keys as u64 * part / options.sizes).max(1)).collect();
    let mut rows = Vec::new();
    for &k in &options.k {
        rows.extend(compare(options, &requests, keys, &sizes, k));
    }
    print_rows(options.format, &Rows { fields: FIELDS, rows })?;
    Ok(())
}

/// The look-ups and writes of a trace with their keys numbered, and how many keys there are.
fn numbered(trace: &str, limit: usize) -> Result<(Vec<u32>, usize)> {
    let mut keys = Interner::new();
    let mut requests = Vec::new();
    for access in tiermem_trace::open(trace)?.take(limit) {
        let access = access?;
        if access.op != Op::Del {
            requests.push(keys.intern(access.key).0);
        }
    }
    if requests.is_empty() {
        bail!("{trace} has no requests");
    }
    Ok((requests, keys.len()))
}

fn compare(options: &Options, requests: &[u32], keys: usize, sizes: &[u64], k: u32) -> Vec<Vec<Cell>> {
    type Build<'a> = Box<dyn Fn(u64) -> Box<dyn Model> + 'a>;
    let krr = |correction| -> Build<'_> {
        Box::new(move |seed| Box::new(KrrStack::new(Unit::Objects, f64::from(k), correction, 1.0, seed)))
    };
    let klru: Build<'_> = Box::new(|_| {
        Box::new(SampledCaches::new(EvictionLaw::k_lru(f64::from(k)), Unit::Objects, sizes, 1.0))
    });
    let models =
        [("klru", klru), ("krr", krr(Correction::Power)), ("krr-uncorrected", krr(Correction::None))];
    let total = requests.len() as f64;
    let mut simulated = vec![0.0; sizes.len()];
    let mut modelled = vec![vec![0.0; sizes.len()]; models.len()];
    let mut simulation_s = Vec::new();
    let mut model_s = vec![Vec::new(); models.len()];
    for seed in 0..options.pairs {
        let start = Instant::now();
        for (sum, &size) in simulated.iter_mut().zip(sizes) {
            *sum +=
                k_lru_misses(requests, keys, size as usize, k, seed) as f64 / total / options.pairs as f64;
        }
        simulation_s.push(start.elapsed().as_secs_f64());
        for (((_, build), sums), times) in models.iter().zip(&mut modelled).zip(&mut model_s) {
            let start = Instant::now();
            let mut model = build(seed);
            requests.iter().for_each(|&id| model.access(id, 1));
            let misses = model.misses(sizes);
            times.push(start.elapsed().as_secs_f64());
            sums.iter_mut()
                .zip(misses)
                .for_each(|(sum, misses)| *sum += misses / total / options.pairs as f64);
        }
    }
    let mut rows = Vec::with_capacity(models.len());
    for (at, (name, _)) in models.iter().enumerate() {
        let times = &model_s[at];
        let errors: Vec<f64> = modelled[at].iter().zip(&simulated).map(|(a, b)| (a - b).abs()).collect();
        rows.push(vec![
            Cell::Count(u64::from(k)),
            Cell::Text((*name).to_owned()),
            Cell::Number(median(times.iter().copied()), 3),
            Cell::Number(median(simulation_s.iter().copied()), 3),
            Cell::Number(median(times.iter().zip(&simulation_s).map(|(a, b)| a / b)), 3),
            Cell::Number(errors.iter().sum::<f64>() / errors.len() as f64, 6),
            Cell::Number(errors.iter().copied().fold(0.0, f64::max), 6),
        ]);
    }
    rows
}

/// Misses of a cache of `size` objects that evicts the least recently used of `k` drawn with replacement: as fast as we
/// know how to write it, since it is what a model has to beat.
fn k_lru_misses(requests: &[u32], keys: usize, size: usize, k: u32, seed: u64) -> u64 {
    let mut rng = Rng::seeded(seed);
    let (mut last, mut place) = (vec![0u32; keys], vec![u32::MAX; keys]);
    let mut cached: Vec<u32> = Vec::with_capacity(size);
    let mut misses = 0;
    for (now, &id) in (0u32..).zip(requests) {
        let key = id as usize;
        last[key] = now;
        if place[key] != u32::MAX {
            continue;
        }
        misses += 1;
        if cached.len() < size {
            place[key] = cached.len() as u32;
            cached.push(id);
            continue;
        }
        let (mut oldest, mut victim) = (u32::MAX, 0);
        for _ in 0..k {
            let at = rng.below(size as u64) as usize;
            let used = last[cached[at] as usize];
            if used < oldest {
                (oldest, victim) = (used, at);
            }
        }
        place[cached[victim] as usize] = u32::MAX;
        place[key] = victim as u32;
        cached[victim] = id;
    }
    misses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulation_is_random_replacement_and_lru_at_its_ends() {
        let cycle: Vec<u32> = (0..50).cycle().take(5_000).collect();
        assert_eq!(k_lru_misses(&cycle, 50, 50, 5, 1), 50);
        assert!(k_lru_misses(&cycle, 50, 40, 1, 1) < 3_000);
        assert!(k_lru_misses(&cycle, 50, 40, 1_000, 1) > 4_900);
    }
}
