//! `tiermem probe`: how closely an emulated tier keeps to its curve on this machine.

use anyhow::anyhow;
use clap::Args;
use tiermem_base::latency_curve::{Curve, DEFAULT_CURVE, LOCAL_DRAM, Surcharge};
use tiermem_base::{Bytes, Rng, TierKind, TierSpec};
use tiermem_policy::ladder::Loc;
use tiermem_store::tiers::Tiers;
use tiermem_sys::cpu_time::thread_cpu_time;

use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};

const FIELDS: &[&str] = &["op", "bytes", "curve_ns", "measured_ns", "error_low", "error", "error_high"];
/// Larger than the caches, so that the ranges really come from memory.
const ARENA_BYTES: u64 = 256 << 20;
const RANGE_BYTES: [usize; 6] = [64, 256, 1024, 4096, 16384, 65536];
/// Nanoseconds that one sample should take at least.
const SAMPLE_NS: f64 = 10e6;

const HELP: &str = "\
Example:
  tiermem probe --curve a1000-cxl

Reads and writes random ranges in an emulated tier and in DRAM, alternately; the difference is the emulated delay.

Fields:
  op, bytes            operation and size of the range
  curve_ns             time by the curve, minus local DRAM
  measured_ns          measured time of the emulated range, minus the same range in DRAM: median over the samples
  error                measured_ns / curve_ns - 1: median, with the quartiles (error_low, error_high)";

/// Options of `tiermem probe`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// The curve to check.
    #[arg(long, default_value = DEFAULT_CURVE)]
    curve: String,
    /// Pairs of samples for each row.
    #[arg(long, value_name = "N", default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    samples: u32,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Measures and prints.
pub fn run(options: Options) -> Result<(), Failure> {
    let curve = Curve::named(&options.curve).map_err(|error| Failure::usage(anyhow!("{error}")))?;
    let tier = |kind| TierSpec::new(kind, Bytes(ARENA_BYTES));
    let specs = [tier(TierKind::Dram), tier(TierKind::Emulated).with_curve(&options.curve)];
    let mut tiers = Tiers::new(&specs, 0, true).map_err(Failure::failed)?;
    let end = Loc { tier: 0, unit: 0 };
    for tier in [0, 1] {
        tiers.bytes_mut(Loc { tier, ..end }, ARENA_BYTES as usize).fill(1);
    }
    let mut rows = Vec::new();
    for (op, device, dram) in
        [(Op::Read, curve.read, LOCAL_DRAM.read), (Op::Write, curve.write, LOCAL_DRAM.write)]
    {
        let surcharge = Surcharge::over_dram(device, dram);
        for bytes in RANGE_BYTES {
            rows.push(row(&mut tiers, op, bytes, surcharge.range_ns(bytes as u64), options.samples));
        }
    }
    output::print_rows(options.format, &Rows { fields: FIELDS, rows }).map_err(Failure::failed)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Read,
    Write,
}

fn row(tiers: &mut Tiers, op: Op, bytes: usize, curve_ns: f64, samples: u32) -> Vec<Cell> {
    let ranges = (SAMPLE_NS / (curve_ns + bytes as f64 / 10.0)).max(100.0) as u64;
    let mut added: Vec<f64> = (0..samples)
        .map(|seed| {
            let mut sample = |tier| touch(tiers, op, tier, bytes, ranges, u64::from(seed));
            // The order changes, so that a drift of the machine's speed cancels out.
            if seed % 2 == 0 { -sample(0) + sample(1) } else { sample(1) - sample(0) }
        })
        .collect();
    added.sort_by(f64::total_cmp);
    let at = |share: f64| added[((added.len() - 1) as f64 * share) as usize];
    let error = |measured: f64| if curve_ns > 0.0 { measured / curve_ns - 1.0 } else { f64::NAN };
    vec![
        Cell::Text(if op == Op::Read { "read" } else { "write" }.to_owned()),
        Cell::Count(bytes as u64),
        Cell::Number(curve_ns, 1),
        Cell::Number(at(0.5), 1),
        Cell::Number(error(at(0.25)), 4),
        Cell::Number(error(at(0.5)), 4),
        Cell::Number(error(at(0.75)), 4),
    ]
}

/// Nanoseconds of processor time per range.
fn touch(tiers: &mut Tiers, op: Op, tier: u8, bytes: usize, ranges: u64, seed: u64) -> f64 {
    let mut rng = Rng::seeded(seed);
    let units = (ARENA_BYTES - bytes as u64) / 16;
    let start = thread_cpu_time();
    for _ in 0..ranges {
        let loc = Loc { tier, unit: rng.below(units) as u32 };
        if op == Op::Read {
            tiers.charge_read(tier, bytes);
            // Words, so that reading is as fast as memory is.
            let words = tiers.bytes(loc, 0, bytes).chunks_exact(8);
            let sum = words.map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
            std::hint::black_box(sum.fold(0, u64::wrapping_add));
        } else {
            tiers.charge_write(tier, bytes);
            tiers.bytes_mut(loc, bytes).fill(seed as u8);
        }
        tiers.settle();
    }
    (thread_cpu_time() - start).as_nanos() as f64 / ranges as f64
}
