//! Costs of a request, computed and not measured: a latency for each step that must follow another, and the bytes at a bandwidth.

use std::ops::Range;

use tiermem_base::latency_curve::{Curve, NETWORK_STORE, NVME_FLASH};
use tiermem_policy::extents::store_speed::Measured;
use tiermem_policy::extents::{Part, Plan, Request};

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

/// A step of a request: its requests to both devices go out together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Until the last of them is done; 0 where there is none.
    pub ns: u64,
    /// The last one is the backing store's.
    pub ends_in_core: bool,
}

fn bytes_of(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

fn parts_bytes(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.bytes).sum()
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

    /// What the backing store does for a request, if it reads anything from there.
    pub(super) fn fetch(&self, plan: &Plan) -> Option<Measured> {
        let bytes = bytes_of(&plan.fetch);
        let took_ns = step_ns(bytes, self.core_latency_ns, self.core_bandwidth);
        (bytes > 0).then_some(Measured::Read { bytes, took_ns })
    }

    /// How long it takes to write bytes back: read from the cache, then written to the backing store.
    pub fn write_back_ns(&self, bytes: u64) -> u64 {
        step_ns(bytes, self.cache_latency_ns, self.cache_bandwidth)
            + step_ns(bytes, self.core_latency_ns, self.core_bandwidth)
    }

    /// The first step of a request whose plan can be carried out: all that it needs is read. `memory_bytes` of what is read from the
    /// cache are in DRAM, and copying them out costs nothing in addition.
    pub(super) fn gather(&self, plan: &Plan, memory_bytes: u64) -> Step {
        self.step(bytes_of(&plan.fetch), parts_bytes(&plan.cached) - memory_bytes)
    }

    /// The second step, after the first: all that the plan fills or writes through is stored.
    pub(super) fn store(&self, plan: &Plan) -> Step {
        self.step(bytes_of(&plan.through), parts_bytes(&plan.fill))
    }

    /// Both devices at once.
    fn step(&self, core_bytes: u64, cache_bytes: u64) -> Step {
        let core_ns = step_ns(core_bytes, self.core_latency_ns, self.core_bandwidth);
        let cache_ns = step_ns(cache_bytes, self.cache_latency_ns, self.cache_bandwidth);
        Step { ns: core_ns.max(cache_ns), ends_in_core: core_ns > 0 && core_ns >= cache_ns }
    }

    /// How long a client waits once the plan of its request can be carried out: for the reads, then, for a write, its writes. No
    /// request waits while the cache is filled after a read.
    pub fn latency_ns(&self, request: &Request, plan: &Plan, memory_bytes: u64) -> u64 {
        let writes_ns = if request.write.is_some() { self.store(plan).ns } else { 0 };
        self.gather(plan, memory_bytes).ns + writes_ns
    }
}
