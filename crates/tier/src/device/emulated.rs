//! Emulated device for slower memory: the bytes are in local DRAM, and each contiguous range that is touched
//! is charged the difference between the device's curve and local DRAM, in latency and in time per byte.
//!
//! The charge assumes that the first byte of a range is waited for and the rest streamed: no overlap between
//! ranges, and writes wait like reads. Real CPUs overlap some of that, so the emulation errs to the slow side.

use super::{Dram, Memory};
use tiermem_base::latency_curve::{Curve, LOCAL_DRAM, Surcharge};
use tiermem_sys::mapping::MapError;
use tiermem_sys::populate::Populate;

/// Local DRAM that costs what another device would.
#[derive(Debug)]
pub struct Emulated {
    dram: Dram,
    read: Surcharge,
    write: Surcharge,
}

impl Emulated {
    /// Reserves `len` bytes that cost as `curve` says.
    pub fn new(len: usize, curve: Curve) -> Result<Self, MapError> {
        Ok(Emulated {
            dram: Dram::new(len)?,
            read: Surcharge::over_dram(curve.read, LOCAL_DRAM.read),
            write: Surcharge::over_dram(curve.write, LOCAL_DRAM.write),
        })
    }
}

impl Memory for Emulated {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.dram.bytes()
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.dram.bytes_mut()
    }

    fn discard(&mut self, offset: usize, len: usize) {
        self.dram.discard(offset, len);
    }

    fn populate(&self) -> Option<Populate> {
        self.dram.populate()
    }

    #[inline]
    fn touch_read(&self, len: u64) -> f64 {
        self.read.range_ns(len)
    }

    #[inline]
    fn touch_write(&self, len: u64) -> f64 {
        self.write.range_ns(len)
    }
}
