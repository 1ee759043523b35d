//! Cost of an access to the stack of KRR, by the size of the stack.

use std::time::Instant;

use anyhow::Result;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tiermem_base::Rng;
use tiermem_model::mrc::krr::{Correction, KrrStack};
use tiermem_model::mrc::{Model, Unit};

use crate::output::{Cell, Format, Rows, print_rows};
use crate::summary::median;

const FIELDS: &[&str] = &["k", "objects", "access_ns", "swaps", "swap_ns", "bytes_per_object"];

const HELP: &str = "\
Fields:
  access_ns         median time of an access to an object drawn evenly from all
  swaps             K' ln(objects), to which the objects that such an access moves come within one or two
  swap_ns           access_ns over swaps
  bytes_per_object  what the stack holds";

/// Options of `krr-cost`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// The K of K-LRU; K' is K^1.4.
    #[arg(long, value_name = "K,..", value_delimiter = ',', default_values_t = [5])]
    k: Vec<u32>,
    /// The largest stack; each tenth of it down to 1000 objects is measured on the way.
    #[arg(long, value_name = "N", default_value_t = 100_000_000, value_parser = clap::value_parser!(u32).range(1_000..))]
    objects: u32,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Measures and prints.
pub fn run(options: &Options) -> Result<()> {
    const ACCESSES: u32 = 100_000;
    const ROUNDS: usize = 5;
    let bar = ProgressBar::new(u64::from(options.objects) * options.k.len() as u64);
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} objects, {eta} left")?);
    let mut rows = Vec::new();
    for &k in &options.k {
        let mut stack = KrrStack::new(Unit::Objects, f64::from(k), Correction::Power, 1.0, 1);
        let mut rng = Rng::seeded(2);
        let mut next = 0;
        for objects in sizes(options.objects) {
            while next < objects {
                stack.access(next, 1);
                next += 1;
                if next % (1 << 16) == 0 {
                    bar.inc(1 << 16);
                }
            }
            let rounds: Vec<f64> = (0..ROUNDS)
                .map(|_| {
                    let drawn: Vec<u32> =
                        (0..ACCESSES).map(|_| rng.below(u64::from(objects)) as u32).collect();
                    let start = Instant::now();
                    drawn.iter().for_each(|&id| stack.access(id, 1));
                    start.elapsed().as_secs_f64() * 1e9 / f64::from(ACCESSES)
                })
                .collect();
            let (access_ns, swaps) = (median(rounds), f64::from(k).powf(1.4) * f64::from(objects).ln());
            rows.push(vec![
                Cell::Count(u64::from(k)),
                Cell::Count(u64::from(objects)),
                Cell::Number(access_ns, 0),
                Cell::Number(swaps, 0),
                Cell::Number(access_ns / swaps, 1),
                Cell::Number(stack.metadata_bytes() as f64 / f64::from(objects), 1),
            ]);
        }
    }
    bar.finish_and_clear();
    print_rows(options.format, &Rows { fields: FIELDS, rows })?;
    Ok(())
}

/// From 1000 on by factors of ten.
fn sizes(largest: u32) -> Vec<u32> {
    let mut sizes: Vec<u32> = std::iter::successors(Some(1_000u32), |size| size.checked_mul(10))
        .take_while(|&size| size < largest)
        .collect();
    sizes.push(largest);
    sizes
}
