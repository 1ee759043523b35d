//! A tier described, not assumed.

use tiermem_base::Bytes;
use tiermem_base::curve::Curve;

/// What a tier's bytes are made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Local memory of the process.
    Dram,
    /// Local memory that is charged what the curve costs beyond local DRAM.
    Emulated(Curve),
}

impl Kind {
    /// The word for it in configuration, metrics and tables.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Dram => "dram",
            Kind::Emulated(_) => "emulated",
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
