//! A tier described, not assumed.

use tiermem_base::Bytes;
use tiermem_base::curve::{Curve, LOCAL_DRAM, Surcharge};

use crate::device::MappedSpec;
use crate::region::Division;

/// What a tier's bytes are made of.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Local memory of the process.
    Dram,
    /// Local memory that is charged what the curve costs beyond local DRAM.
    Emulated(Curve),
    /// Memory of this NUMA node.
    Numa(u32),
    /// A file or device that outlives the process.
    Mapped(MappedSpec),
}

impl Kind {
    /// What a short read takes longer than in local memory, in nanoseconds: by its curve, or as another node's memory does.
    pub fn slower_ns(&self) -> f64 {
        match self {
            Kind::Dram => 0.0,
            Kind::Emulated(curve) => Surcharge::over_dram(curve.read, LOCAL_DRAM.read).latency_ns,
            Kind::Numa(_) | Kind::Mapped(_) => LOCAL_DRAM.read.latency_ns,
        }
    }

    /// The word for it in configuration, metrics and tables.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Dram => "dram",
            Kind::Emulated(_) => "emulated",
            Kind::Numa(_) => "numa",
            Kind::Mapped(_) => "dax",
        }
    }
}

/// One tier.
#[derive(Clone, Debug, PartialEq)]
pub struct TierSpec {
    /// Its name in tables and metrics.
    pub name: String,
    /// What it is made of.
    pub kind: Kind,
    /// Bytes, everything kept for it counted.
    pub capacity: Bytes,
    /// Price of a gigabyte, in whatever money the operator counts; only reported.
    pub price_per_gb: Option<f64>,
}

impl TierSpec {
    /// Bytes of the capacity in which items can lie: a region that outlives the process begins with a header and a table.
    pub fn pages_bytes(&self) -> u64 {
        match self.kind {
            Kind::Mapped(_) => Division::of(self.capacity.0).pages_bytes,
            _ => self.capacity.0,
        }
    }
}
