//! Speed of the CXL-flash simulator in requests a second on one core, on the traces
//! on which the published simulator was measured: that one reached 278 thousand on
//! `zipf` and 68 thousand on `random` (a shared 2-core EPYC virtual machine).
//!
//! `cargo bench -p tiermem-bench-compare --bench cxl_flash`

use std::convert::Infallible;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tiermem_sim::cxl_flash::config::Layers;
use tiermem_sim::cxl_flash::device::{Wishes, simulate};

#[path = "../../sim/tests/published/mod.rs"]
mod published;
use published::{Pattern, trace};

const REQUESTS: usize = 1_000_000;

fn device_simulator(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cxl-flash");
    group
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .throughput(Throughput::Elements(REQUESTS as u64));
    for pattern in [Pattern::Zipf, Pattern::Stride, Pattern::Random] {
        let trace = trace(pattern, REQUESTS);
        for prefetch in ["none", "next-n", "feedback-directed", "best-offset", "leap"] {
            let mut layers = Layers::default();
            layers.preset("table6").expect("it is a preset");
            layers.set("prefetch", prefetch).expect("it is a prefetcher");
            // Nothing holds the trace back: the device has all the queues that it can have.
            layers.set("host.mode", "open").expect("it is a mode");
            layers.set("host.outstanding", "4096").expect("it is a number");
            let device = layers.config().and_then(|config| config.device()).expect("the preset is possible");
            let id = BenchmarkId::new(format!("{pattern:?}"), prefetch);
            group.bench_function(id, |bencher| {
                bencher.iter(|| {
                    let records = trace.iter().map(|access| Ok::<_, Infallible>(*access));
                    let Ok(outcome) = simulate(&device, Wishes::default(), records);
                    black_box(outcome.counts.answers.sub_us)
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, device_simulator);
criterion_main!(benches);
