//! The process's own memory: the machine's, or one NUMA node's.

use super::Memory;
use tiermem_sys::mapping::{MapError, Mapping};
use tiermem_sys::numa;
use tiermem_sys::populate::Populate;

/// DRAM: costs what it costs.
#[derive(Debug)]
pub struct Dram {
    mapping: Mapping,
}

impl Dram {
    /// Reserves `len` bytes; memory is taken as they are written.
    pub fn new(len: usize) -> Result<Self, MapError> {
        Ok(Dram { mapping: Mapping::anonymous(len)? })
    }

    /// The same from one node's memory and no other's: another socket's, or a CXL expander that the kernel shows as a
    /// node without processors. The node exists ([`numa::nodes`]).
    pub fn on_node(len: usize, node: u32) -> Result<Self, MapError> {
        let mut mapping = Mapping::anonymous(len)?;
        numa::bind(&mut mapping, node)?;
        Ok(Dram { mapping })
    }
}

impl Memory for Dram {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.mapping.bytes()
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.mapping.bytes_mut()
    }

    fn discard(&mut self, offset: usize, len: usize) {
        self.mapping.discard(offset, len);
    }

    fn populate(&self) -> Option<Populate> {
        self.mapping.populate()
    }

    #[inline]
    fn touch_read(&self, _len: u64) -> f64 {
        0.0
    }

    #[inline]
    fn touch_write(&self, _len: u64) -> f64 {
        0.0
    }
}
