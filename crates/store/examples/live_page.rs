//! Live page with made-up figures: the HTTP port without a store and its load.
//!
//!     cargo run -p tiermem-store --example live_page -- 127.0.0.1:7380 [idle]
//!
//! With `idle` it shows a server that has served no requests yet.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tiermem_base::Rng;
use tiermem_store::engine::TierStats;
use tiermem_store::http::HttpServer;
use tiermem_store::http::view::{Bucket, View};
use tokio::sync::watch;

const MIB: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr = arguments.next().unwrap_or_else(|| "127.0.0.1:7380".to_owned()).parse()?;
    let idle = arguments.next().is_some_and(|word| word == "idle");
    let mut view = start();
    let (publish, views) = watch::channel(Arc::new(view.clone()));
    let http = HttpServer::start(address, views)?;
    http.set_ready(true);
    println!("http://{}", http.address());
    let (started, mut rng) = (Instant::now(), Rng::seeded(1));
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let uptime_s = started.elapsed().as_secs_f64();
        if !idle {
            let seconds = uptime_s - view.uptime_s;
            advance(&mut view, seconds, &mut rng);
        }
        view.uptime_s = uptime_s;
        publish.send_replace(Arc::new(view.clone()));
    }
}

fn start() -> View {
    let tier = |name: &str, kind: &str, capacity_mib| TierStats {
        name: name.to_owned(),
        kind: kind.to_owned(),
        capacity_bytes: capacity_mib * MIB,
        ..Default::default()
    };
    let mut view = View { version: env!("CARGO_PKG_VERSION"), ..Default::default() };
    view.engine.tiers = vec![tier("dram", "dram", 512), tier("cxl", "emulated", 2048)];
    view.engine.metadata_bytes = 3 * MIB;
    view.engine.tiers[0].used_bytes = 3 * MIB;
    view.latency.buckets = (10..36)
        .map(|power| Bucket { upper_us: f64::from(1u32 << (power - 10)) * 1.024, count: 0 })
        .collect();
    view
}

/// A cache that warms up over a minute, under a load that swings.
fn advance(view: &mut View, seconds: f64, rng: &mut Rng) {
    let time = view.uptime_s;
    let warm = 1.0 - (-time / 25.0).exp();
    let noise = 0.95 + 0.1 * rng.unit_f64();
    let gets = 410_000.0 * seconds * (1.0 + 0.18 * (time / 31.0).sin()) * noise;
    let (fast, slow) = (gets * 0.81 * warm, gets * 0.13 * warm);
    let misses = gets - fast - slow;
    view.connections = 8;
    view.commands_total += (gets + misses) as u64;
    view.net_input_bytes += (gets * 45.0) as u64;
    view.net_output_bytes += (gets * 300.0) as u64;
    let engine = &mut view.engine;
    engine.gets += gets as u64;
    engine.hits += (fast + slow) as u64;
    engine.sets += misses as u64;
    let demoted = misses * 0.8 * warm;
    let promoted = slow * 0.035 * (1.2 + (time / 12.0).sin());
    let fill = |tier: &mut TierStats, share: f64| {
        tier.used_bytes = (tier.capacity_bytes as f64 * share) as u64;
        tier.item_bytes = (tier.used_bytes as f64 * 0.93) as u64;
        tier.items = tier.item_bytes / 312;
    };
    if let [dram, cxl] = engine.tiers.as_mut_slice() {
        dram.hits += fast as u64;
        dram.demotions += (demoted + promoted) as u64;
        cxl.hits += slow as u64;
        cxl.promotions += promoted as u64;
        cxl.evictions += (demoted * (time / 120.0).min(0.9)) as u64;
        cxl.charged_ns += (slow * 280.0) as u64;
        fill(dram, 0.965 * warm + 0.006);
        fill(cxl, (time / 150.0).min(0.962));
        engine.keys = dram.items + cxl.items;
    }
    record_latency(view, gets + misses, noise);
}

/// Service times around 8 us, with a tail.
fn record_latency(view: &mut View, requests: f64, noise: f64) {
    let latency = &mut view.latency;
    for bucket in &mut latency.buckets {
        let octaves = (bucket.upper_us / 8.0).log2();
        let tail = if octaves > 3.0 { 0.004 * 0.5f64.powf(octaves - 3.0) } else { 0.004 };
        bucket.count += (requests * (1.0 / (1.0 + (-2.1 * octaves).exp()) - tail).max(0.0)) as u64;
    }
    latency.count += requests as u64;
    latency.sum_us += requests * 11.0;
    (latency.p50_us, latency.p99_us, latency.p999_us) = (8.3 * noise, 61.0 * noise, 340.0 * noise);
}
