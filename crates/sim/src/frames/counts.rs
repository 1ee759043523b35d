//! Counts of a replay.

use tiermem_policy::paging;

/// A frame that leaves the first tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Touches that were done before, and the one that is under way.
    pub touch: u64,
    /// The page that leaves.
    pub page: u64,
}

/// Counts of one tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierCounts {
    /// Frames that lay here at one time, at most.
    pub peak_frames: u64,
    /// Touches that found their frame here; first touches of frames that came here.
    pub touches: u64,
    /// Frames that went from here to a faster tier.
    pub moved_up: u64,
    /// Frames that went from here to a slower tier, or were dropped.
    pub moved_down: u64,
    /// Bytes that moves have read here.
    pub read_bytes: u64,
    /// Bytes that moves have written here.
    pub written_bytes: u64,
}

/// Counts of the replay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Touches of frames.
    pub touches: u64,
    /// Touches that had to wait for their frame to be fetched.
    pub faults: u64,
    /// The least of the faults in the orders that are tried within slices; the same where the order is known.
    pub faults_low: u64,
    /// The most of them.
    pub faults_high: u64,
    /// What the machine counted.
    pub paging: paging::Counts,
    /// Bytes fetched from tiers that cannot be used in place.
    pub read_bytes: u64,
    /// Bytes sent to such tiers.
    pub written_bytes: u64,
    /// Each tier, fastest first; none where frames are placed once.
    pub tiers: Vec<TierCounts>,
    /// What more DRAM would have saved; nothing is known of it where pages are placed once.
    pub more_dram: paging::MoreDram,
    /// The frames that left for a tier that cannot be used in place, in their order, if they were asked for.
    pub evictions: Vec<Eviction>,
}

impl Counts {
    /// Faults over touches; 0 without.
    pub fn fault_ratio(&self) -> f64 {
        self.faults as f64 / self.touches.max(1) as f64
    }
}
