//! Devices that hold a tier's bytes.
//!
//! The contract of [`Memory`]: `len` bytes at fixed offsets, zero until written (on a device whose contents outlive the
//! process: whatever is there, which nobody reads); what is written is read back until overwritten or discarded. `touch_*` says how many nanoseconds a contiguous range costs beyond what the access
//! itself takes here; the caller collects that as a debt. One conformance suite runs against every device.

mod dram;
mod emulated;
mod kept;
mod mapped;

pub use dram::Dram;
pub use emulated::Emulated;
pub(crate) use kept::in_order;
pub use kept::{Kept, SEAL, SEAL_AT, TAIL_BYTES};
pub use mapped::{Mapped, MappedError, MappedSpec};

use tiermem_sys::populate::Populate;

/// Byte-addressable memory.
pub trait Memory {
    /// All bytes.
    fn bytes(&self) -> &[u8];
    /// All bytes, to write.
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Gives the memory of a range back to the system; it reads as zero or as before.
    fn discard(&mut self, offset: usize, len: usize);
    /// A way for another thread to have memory taken before it is written, where a device takes it by and by.
    fn populate(&self) -> Option<Populate>;
    /// Nanoseconds to charge for reading a contiguous range.
    fn touch_read(&self, len: u64) -> f64;
    /// Nanoseconds to charge for writing a contiguous range.
    fn touch_write(&self, len: u64) -> f64;
}

/// Any device. An enum, so that the hot path is a branch and not a call through a table.
#[derive(Debug)]
pub enum Device {
    /// The process's own memory, local or of one node.
    Dram(Dram),
    /// Local memory with the cost of another device.
    Emulated(Emulated),
    /// A file or device that outlives the process. Boxed, for it carries more than bytes, and others are reached sooner
    /// where they lie close together.
    Mapped(Box<Mapped>),
}

impl Memory for Device {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Device::Dram(device) => device.bytes(),
            Device::Emulated(device) => device.bytes(),
            Device::Mapped(device) => device.bytes(),
        }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Device::Dram(device) => device.bytes_mut(),
            Device::Emulated(device) => device.bytes_mut(),
            Device::Mapped(device) => device.bytes_mut(),
        }
    }

    fn discard(&mut self, offset: usize, len: usize) {
        match self {
            Device::Dram(device) => device.discard(offset, len),
            Device::Emulated(device) => device.discard(offset, len),
            Device::Mapped(device) => device.discard(offset, len),
        }
    }

    fn populate(&self) -> Option<Populate> {
        match self {
            Device::Dram(device) => device.populate(),
            Device::Emulated(device) => device.populate(),
            Device::Mapped(device) => device.populate(),
        }
    }

    #[inline]
    fn touch_read(&self, len: u64) -> f64 {
        match self {
            Device::Dram(device) => device.touch_read(len),
            Device::Emulated(device) => device.touch_read(len),
            Device::Mapped(device) => device.touch_read(len),
        }
    }

    #[inline]
    fn touch_write(&self, len: u64) -> f64 {
        match self {
            Device::Dram(device) => device.touch_write(len),
            Device::Emulated(device) => device.touch_write(len),
            Device::Mapped(device) => device.touch_write(len),
        }
    }
}

#[cfg(test)]
mod conformance {
    use super::*;
    use tiermem_base::latency_curve::{Curve, DEFAULT_CURVE};

    fn suite(mut device: impl Memory) {
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
            std::thread::spawn(move || populate.range(0, LEN)).join().unwrap();
            assert!(device.bytes() == before, "taking memory changes nothing");
        }
        assert!(device.touch_read(4096) >= device.touch_read(64) && device.touch_read(64) >= 0.0);
        assert!(device.touch_write(4096) >= device.touch_write(64) && device.touch_write(64) >= 0.0);
    }

    #[test]
    fn every_device_keeps_the_contract() {
        let cxl = Curve::named(DEFAULT_CURVE).unwrap();
        suite(Dram::new(1 << 20).unwrap());
        suite(Emulated::new(1 << 20, cxl).unwrap());
        suite(Device::Dram(Dram::new(1 << 20).unwrap()));
        suite(Device::Emulated(Emulated::new(1 << 20, cxl).unwrap()));
        if let Some(node) = tiermem_sys::numa::nodes().first() {
            suite(Dram::on_node(1 << 20, node.number).unwrap());
        }
        let path = std::env::temp_dir().join(format!("tiermem-device-{}", std::process::id()));
        let spec = MappedSpec { path: path.clone(), layout: 0, reset: true };
        suite(Mapped::open(&spec, 2 << 20).unwrap());
        suite(Device::Mapped(Box::new(Mapped::open(&spec, 2 << 20).unwrap())));
        std::fs::remove_file(path).unwrap();
    }
}
