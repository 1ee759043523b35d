//! Something that carries bytes one after the other: DRAM, or one direction of a link.

/// First come, first served, with a latency that overlaps and a bandwidth that does not.
///
/// Times are kept in picoseconds: 64 bytes at 64 GB/s take one nanosecond.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    latency_ps: u64,
    ps_per_byte: f64,
    free_ps: u64,
}

impl Server {
    /// With so much latency and bandwidth; a bandwidth of 0 is without bound.
    pub fn new(latency_ns: u64, gb_per_s: f64) -> Self {
        let ps_per_byte = if gb_per_s > 0.0 { 1000.0 / gb_per_s } else { 0.0 };
        Server { latency_ps: latency_ns * 1000, ps_per_byte, free_ps: 0 }
    }

    /// Carries `bytes` that are there at `now_ns`, which never goes back: when the last of them has arrived, in ns.
    #[inline]
    pub fn serve(&mut self, now_ns: u64, bytes: u32) -> u64 {
        let start = self.free_ps.max(now_ns * 1000);
        let carried = (f64::from(bytes) * self.ps_per_byte) as u64;
        self.free_ps = start + carried;
        (self.free_ps + self.latency_ps).div_ceil(1000)
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
