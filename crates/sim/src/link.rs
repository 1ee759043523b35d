//! A link or a memory channel as a queue: DRAM behind its controller, one direction of a CXL or network link.
//!
//! Transfers are served in the order in which they are handed over. The bandwidth is shared (a transfer starts when the one
//! before it has left), the latency is not (it passes for many transfers at once). So the state is one number: when the link
//! is free again.

/// Resolution of times within a link: a header of 16 bytes at 64 GB/s takes a quarter of a nanosecond.
const TICKS_PER_NS: u64 = 64;

/// Times from here on (more than four years) would not leave room for the ticks; simulators end or clamp traces before.
pub const LINK_TIME_NS_MAX: u64 = 1 << 57;

/// A queue with one server: first come, first served, with a latency that overlaps and a bandwidth that does not.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    latency_ticks: u64,
    ticks_per_byte: f64,
    /// When the last byte handed over has left.
    free_at_ticks: u64,
}

impl Link {
    /// With this latency and bandwidth (10^9 bytes per second); a bandwidth of 0 is unlimited.
    pub fn new(latency_ns: u64, gb_per_s: f64) -> Self {
        let ticks_per_byte = if gb_per_s > 0.0 { TICKS_PER_NS as f64 / gb_per_s } else { 0.0 };
        Link { latency_ticks: latency_ns.saturating_mul(TICKS_PER_NS), ticks_per_byte, free_at_ticks: 0 }
    }

    /// Hands over `bytes` at `now_ns`. Returns the time in ns at which the last of them has arrived, rounded up. What the
    /// transfer takes of the link is rounded down to a 64th of a nanosecond.
    ///
    /// `now_ns` is below [`LINK_TIME_NS_MAX`] and never goes back: a link does not reorder.
    #[inline]
    pub fn serve(&mut self, now_ns: u64, bytes: u32) -> u64 {
        debug_assert!(now_ns < LINK_TIME_NS_MAX, "a time that a link can hold: {now_ns}");
        let start = self.free_at_ticks.max(now_ns * TICKS_PER_NS);
        self.free_at_ticks = start + (f64::from(bytes) * self.ticks_per_byte) as u64;
        (self.free_at_ticks + self.latency_ticks).div_ceil(TICKS_PER_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn latency_overlaps_and_bandwidth_does_not() {
        let mut link = Link::new(46, 32.0);
        assert_eq!(link.serve(100, 64), 148);
        assert_eq!(link.serve(100, 4096), 276);
        assert_eq!(link.serve(100, 64), 278);
        assert_eq!(link.serve(1000, 64), 1048);
        assert_eq!(Link::new(0, 0.0).serve(7, 1 << 20), 7);
    }

    proptest! {
        /// The oracle keeps when the last byte left as a fraction of a nanosecond; these rates are whole numbers of ticks.
        #[test]
        fn arrivals_are_those_of_a_queue_with_one_server(
            latency_ns in 0..10_000_u64,
            gb_per_s in prop::sample::select(vec![0.0, 0.5, 1.0, 4.0, 32.0, 64.0]),
            steps in prop::collection::vec((0..2000_u64, 0..100_000_u32), 1..200),
        ) {
            let mut link = Link::new(latency_ns, gb_per_s);
            let (mut now_ns, mut left_ns) = (0, 0.0_f64);
            for (pause_ns, bytes) in steps {
                now_ns += pause_ns;
                let carried_ns = if gb_per_s > 0.0 { f64::from(bytes) / gb_per_s } else { 0.0 };
                left_ns = left_ns.max(now_ns as f64) + carried_ns;
                prop_assert_eq!(link.serve(now_ns, bytes), (left_ns + latency_ns as f64).ceil() as u64);
            }
        }
    }
}
