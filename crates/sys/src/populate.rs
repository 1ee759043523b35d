//! Populating memory before it is written.
//!
//! The first write to a page waits until the kernel has found memory and cleared it: for a huge page a good part of a
//! millisecond, and several in a virtual machine whose host must find the memory as well. Another thread can wait for it.
//!
//! That thread touches the pages as a program does, by an access that changes nothing. `MADV_POPULATE_WRITE` would be the call
//! for it, but it holds the lock on the process's whole address space while it clears, and then the thread that was to be spared
//! waits at its next `mmap`. A page fault holds the lock of one mapping (Linux 6.4 and later).

use std::sync::Arc;

use crate::mapping::area::Area;

/// Every page, whatever their size: what is there already costs a memory access.
const STEP_BYTES: usize = 4096;

/// Takes memory for a mapping's pages, from any thread. Keeps the addresses mapped.
#[derive(Clone, Debug)]
pub struct Populate {
    area: Arc<Area>,
}

impl Populate {
    pub(crate) fn over(area: Arc<Area>) -> Self {
        Populate { area }
    }

    /// Whether there is an instruction for it here.
    pub(crate) const fn is_supported() -> bool {
        cfg!(target_arch = "x86_64")
    }

    /// Has the pages of this range in memory when it returns, zero where they were not. Contents do not change, also under
    /// concurrent writes. A page that is discarded meanwhile may be populated again, and reads as zero.
    ///
    /// # Panics
    /// When the range does not lie within the mapping.
    pub fn range(&self, offset: usize, len: usize) {
        let Area { start, len: mapped } = *self.area;
        assert!(offset.checked_add(len).is_some_and(|end| end <= mapped), "a range of the mapping");
        for at in (offset..offset + len).step_by(STEP_BYTES) {
            // SAFETY: the byte lies in the area, which is mapped readable and writable as long as `self` holds it.
            unsafe { touch(start.add(at).as_ptr()) };
        }
    }
}

/// Makes the processor ask for a page as a write does, and writes nothing.
///
/// # Safety
/// The byte is mapped readable and writable.
#[inline]
unsafe fn touch(byte: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the byte is there. The locked instruction puts back what it finds in one indivisible access, so that no reader
    // and no writer of the byte, however it accesses it, sees or loses anything: to the program this block does nothing.
    unsafe {
        core::arch::asm!("lock or byte ptr [{byte}], 0", byte = in(reg) byte, options(nostack));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = byte;
}
