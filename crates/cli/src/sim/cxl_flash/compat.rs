//! Compatibility mode `--compat atc23`: the same rows by the arithmetic of the published simulator.

use hdrhistogram::Histogram;
use tiermem_base::Access;
use tiermem_policy::evict::Evict;
use tiermem_policy::evict::any_policy::WithPolicy;
use tiermem_policy::prefetch::Named as Prefetcher;
use tiermem_policy::prefetch::next_n::NextNParameters;
use tiermem_sim::cxl_flash::atc23::{self, Settings, prefetch::Kind};
use tiermem_sim::cxl_flash::cache::Cache;
use tiermem_sim::cxl_flash::config::{ConfigError, Device};
use tiermem_sim::cxl_flash::flash::Timing;
use tiermem_sim::cxl_flash::outcome::{Answers, Counts, Outcome};

/// Latencies beyond this count as this.
const LATENCY_NS_MAX: u64 = 1 << 40;

/// The error if the device needs something that the published simulator cannot do.
pub fn refused(device: &Device) -> Option<ConfigError> {
    let refuse = |key: &str, why: &str| Some(ConfigError::key(key, format!("{why} with --compat atc23")));
    if device.geometry.unit_bytes != 4096 {
        return refuse("cache.line", "it is 4KiB");
    }
    if device.geometry.dies != 1 {
        return refuse("flash.dies", "it is 1");
    }
    if device.config.hints.top_percent > 0.0 {
        return refuse("hints.top_percent", "there are no hints");
    }
    if device.config.flash.over_provisioning >= 1.0 {
        return refuse("flash.over_provisioning", "it is a share of the capacity, less than 1,");
    }
    if let Prefetcher::NextN(parameters) = device.prefetcher
        && parameters != NextNParameters::DEFAULT
    {
        return refuse("prefetch.next_n", "the degree is 4 and the offset 16");
    }
    if matches!(device.prefetcher, Prefetcher::Readahead(_) | Prefetcher::Plan(_)) {
        let reason = format!("{} is not one of the prefetchers", device.prefetcher.name());
        return refuse("prefetch.kind", &reason);
    }
    None
}

/// Simulates a trace.
pub fn simulate<X>(device: &Device, trace: impl Iterator<Item = Result<Access, X>>) -> Result<Outcome, X> {
    let sets = device.sets.max(1);
    device.policy.build(sets as usize, u64::from(device.ways), Run { device, sets, trace })
}

struct Run<'a, I> {
    device: &'a Device,
    sets: u32,
    trace: I,
}

impl<X, I: Iterator<Item = Result<Access, X>>> WithPolicy for Run<'_, I> {
    type Output = Result<Outcome, X>;

    fn with<E: Evict + Send + std::fmt::Debug + 'static>(self, policy: E) -> Self::Output {
        let Run { device, sets, trace } = self;
        let settings = settings(device);
        let cache = Cache::new(policy, sets, device.ways, device.config.seed);
        let mut latency =
            Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("bounds and digits are in range");
        let (mut sum_ns, mut miss_ns, mut sub_us) = (0, 0, 0);
        let found = atc23::run(settings, cache, trace, |latency_ns, hit| {
            latency.saturating_record(latency_ns);
            sum_ns += latency_ns;
            sub_us += u64::from(latency_ns < 1000);
            if !hit {
                miss_ns += latency_ns;
            }
        })?;
        let counts = Counts {
            requests: found.requests,
            hits: found.hits,
            hits_under_miss: found.hits_under_miss + found.late,
            misses: found.misses,
            repeated_reads: found.repeated_reads,
            // Distinct lines, as it counts them.
            prefetches: found.feedback.prefetched,
            prefetches_used: found.feedback.used,
            prefetches_late: found.feedback.late,
            prefetch_hits: found.prefetch_hits,
            polluted: found.feedback.polluted,
            flash_reads: found.flash_reads,
            flash_writes: found.flash_writes,
            answers: Answers { sub_us, latency_ns: sum_ns, miss_latency_ns: miss_ns, ..Answers::default() },
            ..Counts::default()
        };
        let span_ns = found.end_ns - found.begin_ns;
        Ok(Outcome {
            counts,
            windows: Vec::new(),
            latency,
            duration_ns: span_ns,
            sent_span_ns: span_ns,
            flash_span_ns: span_ns,
            wear: (0, 0),
            suspensions: 0,
            metadata_bytes: 0,
        })
    }
}

fn settings(device: &Device) -> Settings {
    let flash = &device.config.flash;
    let timing = Timing {
        transfer_ns_per_byte: atc23::transfer_ns_per_byte(u64::from(flash.mega_transfers)),
        read_priority: true,
        suspend_program: None,
        suspend_erase: None,
        ..device.timing
    };
    let prefetch = match device.prefetcher {
        // What it does not have was refused.
        Prefetcher::None | Prefetcher::Readahead(_) | Prefetcher::Plan(_) => Kind::None,
        Prefetcher::NextN(_) => Kind::NextN,
        Prefetcher::FeedbackDirected(_) => Kind::FeedbackDirected,
        Prefetcher::BestOffset(_) => Kind::BestOffset,
        Prefetcher::Leap(_) => Kind::Leap,
    };
    // Its capacity is what the host sees and the spare blocks together.
    let units_per_block = u64::from(device.geometry.units_per_block());
    let planes = u64::from(device.geometry.plane_count());
    let geometry = tiermem_sim::cxl_flash::flash::Geometry {
        blocks_per_plane: (device.units / (planes * units_per_block)).max(1) as u32,
        ..device.geometry
    };
    let units = geometry.units_per_plane() * planes;
    let last_page = (units as f64 * (1.0 - flash.over_provisioning)) as u64;
    Settings {
        cache: device.sets > 0,
        mshr: device.config.mshr.enabled,
        prefetch,
        geometry,
        timing,
        last_page,
    }
}
