//! Latency and bandwidth curves of memory devices, as one core sees them.
//!
//! The named curves are measured points of real hardware: Intel's Memory Latency Checker on Sapphire Rapids with DDR5-4800 and an
//! AsteraLabs A1000 CXL expander, published by the authors of Tang 2024 (bytedance, eurosys24-artifacts, Apache-2.0). Taken from
//! the runs with one thread and sequential access: latency is the lowest that was seen (injected delay 20000, hardly any load),
//! bandwidth the highest (no injected delay). One core cannot load a device beyond that, so the rest of the loaded-latency curve
//! does not matter here. Flash and a store behind a network are assumptions; they stand here so that simulators and engines
//! assume the same.

use crate::units::{Bandwidth, Nanos};

/// Latency and bandwidth of a device in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Time to the first byte at light load, in nanoseconds.
    pub latency_ns: f64,
    /// Bytes per nanosecond (GB/s) of one core.
    pub bandwidth_gb_per_s: f64,
}

impl Point {
    /// The latency in whole nanoseconds.
    pub fn latency(&self) -> Nanos {
        Nanos(self.latency_ns.round() as u64)
    }

    /// The bandwidth in whole bytes a second.
    pub fn bandwidth(&self) -> Bandwidth {
        Bandwidth::from_gb_per_s(self.bandwidth_gb_per_s)
    }

    /// Time to touch a contiguous range: one latency and the transfer.
    pub fn range_ns(&self, bytes: u64) -> f64 {
        self.latency_ns + bytes as f64 / self.bandwidth_gb_per_s
    }
}

/// A device as one core sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curve {
    /// Reads (mix 1:0).
    pub read: Point,
    /// Writes (mix 0:1, non-temporal).
    pub write: Point,
}

/// Local DRAM of the machine that the curves come from: what an emulated access is compared with.
pub const LOCAL_DRAM: Curve = Curve {
    read: Point { latency_ns: 96.22, bandwidth_gb_per_s: 18.5717 },
    write: Point { latency_ns: 99.19, bandwidth_gb_per_s: 31.4095 },
};

/// Name of the default curve of an emulated tier.
pub const DEFAULT_CURVE: &str = "a1000-cxl";

/// Wang's own slow tier: the other socket of a machine of 2018, of which Wang 2024 (section 5.2.1) says twice the
/// latency and 1/2.4 of the bandwidth of local memory.
const NUMA_2018: Curve = {
    const fn remote(local: Point) -> Point {
        Point { latency_ns: 2.0 * local.latency_ns, bandwidth_gb_per_s: local.bandwidth_gb_per_s / 2.4 }
    }
    Curve { read: remote(LOCAL_DRAM.read), write: remote(LOCAL_DRAM.write) }
};

/// Name of [`LOCAL_DRAM`].
pub const LOCAL_DRAM_CURVE: &str = "local-dram";
/// Name of the curve of another node's memory.
pub const NUMA_CURVE: &str = "numa-2018";
/// Name of [`NVME_FLASH`].
pub const FLASH_CURVE: &str = "nvme-flash";
/// Name of [`NETWORK_STORE`].
pub const STORE_CURVE: &str = "network-store";

/// A flash drive behind PCIe as simulators and planners take it to be unless told: an assumption of its order of size, no
/// measurement.
pub const NVME_FLASH: Curve = assumed(80_000.0, 3.0);

/// A store a millisecond away behind ten gigabits, likewise.
pub const NETWORK_STORE: Curve = assumed(1_000_000.0, 1.25);

const fn assumed(latency_ns: f64, bandwidth_gb_per_s: f64) -> Curve {
    let point = Point { latency_ns, bandwidth_gb_per_s };
    Curve { read: point, write: point }
}

/// An AsteraLabs A1000 behind CXL 1.1: the default of emulated tiers.
pub const A1000_CXL: Curve = Curve {
    read: Point { latency_ns: 244.18, bandwidth_gb_per_s: 16.6778 },
    write: Point { latency_ns: 243.95, bandwidth_gb_per_s: 21.8054 },
};

const NAMED: [(&str, Curve); 5] = [
    (DEFAULT_CURVE, A1000_CXL),
    (LOCAL_DRAM_CURVE, LOCAL_DRAM),
    (NUMA_CURVE, NUMA_2018),
    (FLASH_CURVE, NVME_FLASH),
    (STORE_CURVE, NETWORK_STORE),
];

impl Curve {
    /// A curve by its name; the error lists the names.
    pub fn named(name: &str) -> Result<Curve, String> {
        NAMED.iter().find(|(known, _)| *known == name).map(|(_, curve)| *curve).ok_or_else(|| {
            let known: Vec<_> = NAMED.iter().map(|(name, _)| *name).collect();
            format!("there is no curve {name:?}; known are {}", known.join(", "))
        })
    }

    /// A curve given by hand, with one bandwidth for both directions.
    pub fn custom(read_latency: Nanos, write_latency: Nanos, bandwidth_gb_per_s: f64) -> Curve {
        let point = |latency: Nanos| Point { latency_ns: latency.0 as f64, bandwidth_gb_per_s };
        Curve { read: point(read_latency), write: point(write_latency) }
    }

    /// The curve of a process that is given only this part of the device's bandwidth.
    pub fn with_bandwidth_share(self, share: f64) -> Curve {
        let part = |point: Point| Point { bandwidth_gb_per_s: point.bandwidth_gb_per_s * share, ..point };
        Curve { read: part(self.read), write: part(self.write) }
    }
}

/// The cost of a device beyond local DRAM, in which the bytes of an emulated tier really lie: a fixed part and one per byte,
/// neither below zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Surcharge {
    /// Nanoseconds for each contiguous range.
    pub latency_ns: f64,
    /// Nanoseconds for each byte of it.
    pub per_byte_ns: f64,
}

impl Surcharge {
    /// The difference between a device and local DRAM.
    pub fn over_dram(device: Point, dram: Point) -> Self {
        Surcharge {
            latency_ns: (device.latency_ns - dram.latency_ns).max(0.0),
            per_byte_ns: (device.bandwidth_gb_per_s.recip() - dram.bandwidth_gb_per_s.recip()).max(0.0),
        }
    }

    /// The surcharge of a range.
    pub fn range_ns(&self, bytes: u64) -> f64 {
        self.latency_ns + self.per_byte_ns * bytes as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cxl_costs_a_latency_and_a_little_per_byte_more_than_dram() {
        let cxl = Curve::named(DEFAULT_CURVE).unwrap();
        let read = Surcharge::over_dram(cxl.read, LOCAL_DRAM.read);
        assert!((read.range_ns(0) - 147.96).abs() < 0.01);
        assert!((read.range_ns(4096) - 147.96 - 25.0).abs() < 1.0);
        let none = Surcharge::over_dram(LOCAL_DRAM.read, LOCAL_DRAM.read);
        assert_eq!(none.range_ns(1 << 20), 0.0);
        let half = Surcharge::over_dram(cxl.with_bandwidth_share(0.5).read, LOCAL_DRAM.read);
        assert!(half.range_ns(4096) > read.range_ns(4096) + 200.0);
    }

    #[test]
    fn the_remote_socket_has_twice_the_latency_and_less_than_half_the_bandwidth() {
        let numa = Curve::named("numa-2018").unwrap();
        assert_eq!(numa.read.latency_ns, 2.0 * LOCAL_DRAM.read.latency_ns);
        assert_eq!(numa.write.bandwidth_gb_per_s * 2.4, LOCAL_DRAM.write.bandwidth_gb_per_s);
        // A large item costs more there than on CXL memory, a small one less.
        let cxl = Curve::named(DEFAULT_CURVE).unwrap();
        assert!(numa.read.range_ns(4096) > cxl.read.range_ns(4096));
        assert!(numa.read.range_ns(64) < cxl.read.range_ns(64));
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        assert!(Curve::named("a1000").unwrap_err().contains("a1000-cxl"));
    }
}
