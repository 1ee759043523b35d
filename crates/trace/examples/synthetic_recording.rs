//! Writes a recording such as llama.cpp's: one large region of weights that a hotspot passes through from high to low addresses,
//! with hotter granules at a distance of 540 (Fisher 2025, figures 4.3 to 4.13), and small regions beside it.
//!
//!     cargo run -p tiermem-trace --features parquet --example synthetic_recording -- OUT.parquet [GRANULES] [SLICES]
//!
//! A granule has 4 MiB; 25,600 granules are 100 GiB. With 100 slices that is 2.56 million samples and some more.

use std::error::Error;
use std::path::Path;

use tiermem_base::{Op, Rng};
use tiermem_trace::recording::{
    self, Head, Level, Mode, Recording, Region, RegionKind, Sample, Slice, Source, Unit,
};

const GRANULE_BYTES: u64 = 4 << 20;
const PERIOD: u64 = 540;
const SECOND_NS: u64 = 1_000_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: synthetic_recording OUT.parquet [GRANULES] [SLICES]")?;
    let granules: u64 = arguments.next().map_or(Ok(25_600), |text| text.parse())?;
    let slices: u64 = arguments.next().map_or(Ok(100), |text| text.parse())?;
    let head = head(granules, slices);
    let mut rng = Rng::seeded(540);
    let mut samples = Vec::new();
    for slice in 0..slices {
        // The hotspot covers an eighth of the region and passes through all of it in twelve slices.
        let middle = granules as f64 * (1.0 - (slice as f64 / 12.0).fract());
        // The last hundredth is mapped and never accessed.
        for granule in 0..granules - granules / 100 {
            let distance = (granule as f64 - middle).abs() / granules as f64;
            let near = (-(distance / 0.06).powi(2)).exp();
            let stripe = match granule % PERIOD {
                0..4 => 12.0,
                4..60 => 3.0,
                _ => 1.0,
            };
            let mean = stripe * (1.0 + 8.0 * near);
            let weight = (mean * (0.5 + rng.unit_f64())).round() as f32;
            if weight > 0.0 {
                let is_remote = rng.unit_f64() < 0.2 + 0.6 * (granule as f64 / granules as f64);
                samples.push(Sample {
                    slice: slice as u32,
                    region: 0,
                    offset: granule * GRANULE_BYTES,
                    bytes: 4 << 20,
                    resident: 4 << 20,
                    weight,
                    latency_cycles: 300.0,
                    source: 0,
                    op: Op::Load,
                    level: if is_remote { Level::Remote } else { Level::Local },
                    mode: Mode::User,
                    node: u8::from(is_remote),
                });
            }
        }
        for (region, bytes, count) in [(1u32, 96u64 << 20, 300), (2, 132 << 10, 60), (3, 1 << 30, 500)] {
            for _ in 0..count {
                let skewed = rng.unit_f64().powi(3);
                samples.push(Sample {
                    slice: slice as u32,
                    region,
                    offset: (skewed * bytes as f64) as u64 / 4096 * 4096,
                    bytes: 4096,
                    resident: 4096,
                    weight: 1.0,
                    latency_cycles: 20.0,
                    source: 0,
                    op: if rng.unit_f64() < 0.4 { Op::Store } else { Op::Load },
                    level: Level::Cache,
                    mode: if rng.unit_f64() < 0.1 { Mode::Kernel } else { Mode::User },
                    node: 0,
                });
            }
        }
    }
    recording::write(Path::new(&path), &Recording { head, samples })?;
    Ok(())
}

/// A model's weights, which are what is looked at, beside a heap, a stack and other memory.
fn head(granules: u64, slices: u64) -> Head {
    let region = |name: &str, kind, start, bytes| Region {
        name: name.to_owned(),
        kind,
        start,
        bytes,
        permissions: "rw-p".to_owned(),
        last_slice: (slices - 1) as u32,
        ..Region::default()
    };
    let weights = Region {
        path: Some("/models/llama.gguf".to_owned()),
        permissions: "r--s".to_owned(),
        ..region("llama.gguf", RegionKind::File, 0x7e00_0000_0000, granules * GRANULE_BYTES)
    };
    Head {
        version: Head::VERSION,
        command: ["llama-cli", "-m", "llama.gguf"].map(str::to_owned).to_vec(),
        granule_bytes: 4096,
        slices: (0..slices)
            .map(|at| Slice { start_ns: at * SECOND_NS, end_ns: (at + 1) * SECOND_NS })
            .collect(),
        sources: vec![Source {
            name: "perf-mem".to_owned(),
            unit: Unit::Samples,
            tells_stores: true,
            tells_level: true,
        }],
        regions: vec![
            weights,
            region("heap", RegionKind::Heap, 0x5555_0000_0000, 96 << 20),
            region("stack", RegionKind::Stack, 0x7ffd_0000_0000, 132 << 10),
            region("anon 1", RegionKind::Anonymous, 0x7d00_0000_0000, 2 << 30),
        ],
        ..Head::default()
    }
}
