//! Losses of parts of tiers that outlive the process, as they are counted and told.

use tiermem_base::Bytes as Size;

/// What was lost, and what became of it.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Items that were dropped.
    pub items: u64,
    /// Whether replies may have been written of what was lost.
    pub is_doubtful: bool,
    /// Bytes, by tier, that are not in use as the file cannot hold them.
    pub missing: Vec<u64>,
    pub looks: u32,
    pub reports: Vec<LossReport>,
}

/// A loss, for whoever runs the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossReport {
    /// The tier, by its number.
    pub tier: u8,
    /// Items that were dropped.
    pub items: u64,
    /// What the tier has less than it was given, and why.
    pub missing: Option<(Size, String)>,
}

impl Losses {
    /// Bytes that tiers have less than they were given.
    pub fn missing_bytes(&self) -> u64 {
        self.missing.iter().sum()
    }
}
