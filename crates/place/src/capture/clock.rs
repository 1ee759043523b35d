//! Clock model of a program that runs many times slower than normal; Lackey itself has no clock.

/// Modelled time of a program: one core, in order. Every instruction takes its part of a cycle; an access that
/// misses L1 waits for the level that has the line, with no overlap. Write-backs cost the program nothing. So
/// times are too long for programs with overlapping misses, and too short for those with long dependency chains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Cycles in a nanosecond.
    pub ghz: f64,
    /// Instructions in a cycle when everything is in L1.
    pub ipc: f64,
    /// Latency of a hit in L2, in nanoseconds.
    pub l2_ns: f64,
    /// Latency of a hit in the last-level cache.
    pub llc_ns: f64,
    /// Latency of memory.
    pub memory_ns: f64,
}

impl Default for Timing {
    /// A server core of the early 2020s with local DRAM.
    fn default() -> Self {
        Timing { ghz: 3.0, ipc: 2.0, l2_ns: 4.0, llc_ns: 20.0, memory_ns: 96.0 }
    }
}

/// Events so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub instructions: u64,
    pub l2_hits: u64,
    pub llc_hits: u64,
    pub fills: u64,
}

impl Timing {
    /// The nanoseconds that this takes. It never falls as counts rise: each term is monotonous, and so is their sum, rounded
    /// or not.
    pub(super) fn time_ns(&self, so_far: &Progress) -> u64 {
        let cycles = so_far.instructions as f64 / self.ipc;
        let stalls = so_far.l2_hits as f64 * self.l2_ns
            + so_far.llc_hits as f64 * self.llc_ns
            + so_far.fills as f64 * self.memory_ns;
        (cycles / self.ghz + stalls) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_and_stalls_add_up() {
        let timing = Timing { ghz: 2.0, ipc: 0.5, l2_ns: 5.0, llc_ns: 10.0, memory_ns: 100.0 };
        let so_far = Progress { instructions: 1000, l2_hits: 3, llc_hits: 2, fills: 1 };
        assert_eq!(timing.time_ns(&so_far), 1000 + 15 + 20 + 100);
        assert_eq!(timing.time_ns(&Progress::default()), 0);
    }
}
