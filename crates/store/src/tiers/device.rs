//! Memory of a tier's bytes, by the tier's description.

use tiermem_base::{TierKind, TierSpec};
use tiermem_sys::mapping::MapError;
use tiermem_sys::populate::Populate;
use tiermem_tier::device::{Dram, Emulated, MappedError, Memory, NodeError};

use super::region::{Region, RegionSpec};

/// Why a tier has no memory.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Its description lacks something, or is of a kind that is no memory.
    #[error(transparent)]
    Described(#[from] tiermem_base::tier::TierError),
    /// The system gives none.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The node gives none.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The file or device cannot be taken.
    #[error(transparent)]
    Mapped(#[from] MappedError),
}

/// The device of a tier. An enum, so that the hot path is a branch and not a call through a table.
#[derive(Debug)]
pub enum Device {
    /// The process's own memory, local or of one node.
    Dram(Dram),
    /// Local memory with the cost of another device.
    Emulated(Emulated),
    /// A file or device that outlives the process. Boxed, for it carries more than bytes, and others are reached sooner
    /// where they lie close together.
    Region(Box<Region>),
}

impl Memory for Device {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Device::Dram(device) => device.bytes(),
            Device::Emulated(device) => device.bytes(),
            Device::Region(device) => device.bytes(),
        }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Device::Dram(device) => device.bytes_mut(),
            Device::Emulated(device) => device.bytes_mut(),
            Device::Region(device) => device.bytes_mut(),
        }
    }

    fn discard(&mut self, offset: usize, len: usize) {
        match self {
            Device::Dram(device) => device.discard(offset, len),
            Device::Emulated(device) => device.discard(offset, len),
            Device::Region(device) => device.discard(offset, len),
        }
    }

    fn populate(&self) -> Option<Populate> {
        match self {
            Device::Dram(device) => device.populate(),
            Device::Emulated(device) => device.populate(),
            Device::Region(device) => device.populate(),
        }
    }

    #[inline]
    fn touch_read(&self, len: u64) -> f64 {
        match self {
            Device::Dram(device) => device.touch_read(len),
            Device::Emulated(device) => device.touch_read(len),
            Device::Region(device) => device.touch_read(len),
        }
    }

    #[inline]
    fn touch_write(&self, len: u64) -> f64 {
        match self {
            Device::Dram(device) => device.touch_write(len),
            Device::Emulated(device) => device.touch_write(len),
            Device::Region(device) => device.touch_write(len),
        }
    }
}

/// The device of a tier. `layout` is what else than its capacity decides where items lie in one that outlives the process.
pub fn open(spec: &TierSpec, layout: u64) -> Result<Device, DeviceError> {
    let capacity = spec.bytes()?;
    let len = capacity as usize;
    Ok(match spec.kind {
        TierKind::Dram => Device::Dram(Dram::new(len)?),
        TierKind::Emulated => Device::Emulated(Emulated::new(len, spec.curve()?)?),
        TierKind::Numa => Device::Dram(Dram::on_node(len, spec.node()?)?),
        TierKind::Dax => {
            let region = RegionSpec { path: spec.path()?.to_owned(), layout, reset: spec.reset };
            Device::Region(Box::new(Region::open(&region, capacity)?))
        }
        TierKind::Compressed | TierKind::Flash | TierKind::Remote => {
            return Err(spec.not_served_by("memory", &TierKind::MEMORY).into());
        }
    })
}

#[cfg(test)]
mod tests {
    use tiermem_base::latency_curve::{Curve, DEFAULT_CURVE};
    use tiermem_tier::device::conformance;

    use super::*;

    #[test]
    fn every_device_keeps_the_contract() {
        let cxl = Curve::named(DEFAULT_CURVE).unwrap();
        conformance(Device::Dram(Dram::new(1 << 20).unwrap()));
        conformance(Device::Emulated(Emulated::new(1 << 20, cxl).unwrap()));
        let path = std::env::temp_dir().join(format!("tiermem-region-device-{}", std::process::id()));
        let spec = RegionSpec { path: path.clone(), layout: 0, reset: true };
        conformance(Region::open(&spec, 2 << 20).unwrap());
        conformance(Device::Region(Box::new(Region::open(&spec, 2 << 20).unwrap())));
        std::fs::remove_file(path).unwrap();
    }
}
