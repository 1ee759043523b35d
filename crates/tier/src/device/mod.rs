//! Devices that hold a tier's bytes.
//!
//! The contract of [`Memory`]: `len` bytes at fixed offsets, zero until written (on a persistent
//! device: the old contents, which must not be read before); written bytes are read back until
//! overwritten or discarded. `touch_*` returns the nanoseconds that a contiguous range costs
//! beyond the access itself; the caller accumulates them as a debt. One conformance suite
//! ([`conformance`]) runs against every device, also those that other crates build on these.

mod dram;
mod emulated;
mod mapped;

pub use dram::{Dram, NodeError};
pub use emulated::Emulated;
pub use mapped::{Mapped, MappedError};

use tiermem_sys::populate::Populate;

/// Byte-addressable memory.
pub trait Memory {
    /// All bytes.
    fn bytes(&self) -> &[u8];
    /// All bytes, to write.
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Gives the memory of a range back to the system; it reads as zero or as before.
    fn discard(&mut self, offset: usize, len: usize);
    /// A handle for another thread to populate memory before it is written, where a device allocates it on first use.
    fn populate(&self) -> Option<Populate>;
    /// Nanoseconds to charge for reading a contiguous range.
    fn touch_read(&self, len: u64) -> f64;
    /// Nanoseconds to charge for writing a contiguous range.
    fn touch_write(&self, len: u64) -> f64;
}

/// Conformance test of the contract on a device, for tests of every
/// implementation of [`Memory`]. The device must have at least 1 MiB, all zero.
///
/// # Panics
/// When the device does not keep the contract.
pub fn conformance(mut device: impl Memory) {
    const LEN: usize = 1 << 20;
    assert!(device.bytes().len() >= LEN);
    assert!(device.bytes().iter().all(|&byte| byte == 0), "zero until written");
    device.bytes_mut()[4000..9000].fill(5);
    assert_eq!(&device.bytes()[3999..4001], &[0, 5], "what is written is read back");
    device.discard(0, 4096);
    assert_eq!(device.bytes()[4096..9000], [5; 9000 - 4096], "a discard leaves the rest");
    assert!(matches!(device.bytes()[4095], 0 | 5));
    if let Some(populate) = device.populate() {
        let before = device.bytes().to_vec();
        let taken = std::thread::spawn(move || populate.range(0, LEN)).join();
        assert!(taken.is_ok() && device.bytes() == before, "taking memory changes nothing");
    }
    assert!(device.touch_read(4096) >= device.touch_read(64) && device.touch_read(64) >= 0.0);
    assert!(device.touch_write(4096) >= device.touch_write(64) && device.touch_write(64) >= 0.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_base::latency_curve::{Curve, DEFAULT_CURVE};

    #[test]
    fn every_device_keeps_the_contract() {
        let cxl = Curve::named(DEFAULT_CURVE).unwrap();
        conformance(Dram::new(1 << 20).unwrap());
        conformance(Emulated::new(1 << 20, cxl).unwrap());
        if let Some(node) = tiermem_sys::numa::nodes().first() {
            conformance(Dram::on_node(1 << 20, node.number).unwrap());
        }
        let path = std::env::temp_dir().join(format!("tiermem-device-{}", std::process::id()));
        conformance(Mapped::open(&path, 2 << 20, 0, |_, _| Ok(false)).unwrap().0);
        std::fs::remove_file(path).unwrap();
    }
}
