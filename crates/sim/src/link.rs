//! Something that carries bytes one after the other: DRAM, or one direction of a link.

const TICKS_PER_NS: u64 = 64;

/// First come, first served, with a latency that overlaps and a bandwidth that does not.
///
/// Times are kept in ticks of a 64th of a nanosecond: fine enough for the header of a request at 64 GB/s, and enough of them for
/// [`crate::cxl_flash::TIME_NS_MAX`].
#[derive(Clone, Copy, Debug)]
pub struct Server {
    latency: u64,
    per_byte: f64,
    free: u64,
}

impl Server {
    /// With so much latency and bandwidth; a bandwidth of 0 is without bound.
    pub fn new(latency_ns: u64, gb_per_s: f64) -> Self {
        let per_byte = if gb_per_s > 0.0 { TICKS_PER_NS as f64 / gb_per_s } else { 0.0 };
        Server { latency: latency_ns * TICKS_PER_NS, per_byte, free: 0 }
    }

    /// Carries `bytes` that are there at `now_ns`, which never goes back: when the last of them has arrived, in ns.
    #[inline]
    pub fn serve(&mut self, now_ns: u64, bytes: u32) -> u64 {
        let start = self.free.max(now_ns * TICKS_PER_NS);
        self.free = start + (f64::from(bytes) * self.per_byte) as u64;
        (self.free + self.latency).div_ceil(TICKS_PER_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_overlaps_and_bandwidth_does_not() {
        let mut server = Server::new(46, 32.0);
        assert_eq!(server.serve(100, 64), 148);
        assert_eq!(server.serve(100, 4096), 276);
        assert_eq!(server.serve(100, 64), 278);
        assert_eq!(server.serve(1000, 64), 1048);
        assert_eq!(Server::new(0, 0.0).serve(7, 1 << 20), 7);
    }
}
