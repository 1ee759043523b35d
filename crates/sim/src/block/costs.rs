//! Costs of a request, computed and not measured: a latency for each step that must follow another, and the bytes at a bandwidth.

use tiermem_base::latency_curve::{Curve, NETWORK_STORE, NVME_FLASH, Point};
use tiermem_policy::extents::{Plan, Request, RequestCost};

/// Latency and bandwidth of the two devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Of the backing store, in nanoseconds a request.
    pub core_latency_ns: u64,
    /// Of the backing store, in bytes a second.
    pub core_bandwidth: u64,
    /// Of the cache's device.
    pub cache_latency_ns: u64,
    /// Of the cache's device.
    pub cache_bandwidth: u64,
}

impl Default for Costs {
    /// A backing store behind a network, flash in front of it.
    fn default() -> Self {
        Costs::of(&NETWORK_STORE, &NVME_FLASH)
    }
}

/// The time of a step: its requests go out together and share the bandwidth.
fn step_ns(bytes: u64, latency_ns: u64, bandwidth: u64) -> u64 {
    if bytes == 0 { 0 } else { latency_ns.saturating_add(bytes_ns(bytes, bandwidth)) }
}

/// A link of a device: a request queues at it for its bytes, and arrives a latency later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Link {
    latency_ns: u64,
    bandwidth: u64,
    free_ns: u64,
}

impl Link {
    fn new(latency_ns: u64, bandwidth: u64) -> Self {
        Link { latency_ns, bandwidth, free_ns: 0 }
    }

    /// When something is done that is asked for at a time.
    pub(super) fn done_ns(&mut self, now_ns: u64, bytes: u64) -> u64 {
        self.free_ns = self.free_ns.max(now_ns).saturating_add(bytes_ns(bytes, self.bandwidth));
        let from_ns = if bytes == 0 { now_ns } else { self.free_ns };
        from_ns.saturating_add(self.latency_ns)
    }
}

/// How long bytes take at a bandwidth.
fn bytes_ns(bytes: u64, bandwidth: u64) -> u64 {
    u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(bandwidth.max(1))).unwrap_or(u64::MAX)
}

impl Costs {
    /// The costs of a backing store and a cache's device with these curves, by how they are read.
    pub fn of(core: &Curve, cache: &Curve) -> Self {
        let (core, cache) = (core.read, cache.read);
        Costs {
            core_latency_ns: core.latency().0,
            core_bandwidth: core.bandwidth().0,
            cache_latency_ns: cache.latency().0,
            cache_bandwidth: cache.bandwidth().0,
        }
    }

    /// To the cache's device.
    pub(super) fn cache_link(&self) -> Link {
        Link::new(self.cache_latency_ns, self.cache_bandwidth)
    }

    /// To the backing stores, all of them.
    pub(super) fn core_link(&self) -> Link {
        Link::new(self.core_latency_ns, self.core_bandwidth)
    }

    /// The cost by which block sizes are chosen.
    pub fn request_cost(&self) -> RequestCost {
        let bandwidth_gb_per_s = self.core_bandwidth as f64 / 1e9;
        RequestCost::of(&Point { latency_ns: self.core_latency_ns as f64, bandwidth_gb_per_s })
    }

    /// How long it takes to write bytes back: read from the cache, then written to the backing store.
    pub fn write_back_ns(&self, bytes: u64) -> u64 {
        step_ns(bytes, self.cache_latency_ns, self.cache_bandwidth)
            + step_ns(bytes, self.core_latency_ns, self.core_bandwidth)
    }

    /// The time that a request takes once its plan can be carried out: its reads, then, for a write, its writes. No request waits
    /// while the cache is filled after a read. Copying `memory_bytes` of the reads out of DRAM costs nothing in addition.
    pub fn latency_ns(&self, request: &Request, plan: &Plan, memory_bytes: u64) -> u64 {
        let core = |bytes| step_ns(bytes, self.core_latency_ns, self.core_bandwidth);
        let cache = |bytes| step_ns(bytes, self.cache_latency_ns, self.cache_bandwidth);
        let parts =
            |parts: &[tiermem_policy::extents::Part]| parts.iter().map(|part| part.bytes).sum::<u64>();
        let ranges =
            |ranges: &[std::ops::Range<u64>]| ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        let reads = core(ranges(&plan.fetch)).max(cache(parts(&plan.cached) - memory_bytes));
        let writes = match request.write {
            None => 0,
            Some(_) => core(ranges(&plan.through)).max(cache(parts(&plan.fill))),
        };
        reads + writes
    }
}
