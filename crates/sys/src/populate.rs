//! Populates memory before it is written.
//!
//! The first write to a page waits until the kernel has found memory and cleared it: for a huge page a good part of a
//! millisecond, and several in a virtual machine whose host must find the memory as well. Another thread can wait for it.
//!
//! That thread touches the pages as a program does, by an access that changes nothing. `MADV_POPULATE_WRITE` would be the
//! call for it, but it holds the lock on the process's whole address space while it clears, and then the thread that was to
//! be spared waits at its next `mmap`. A page fault holds the lock of one mapping (Linux 6.4 and later).

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

    /// Has the pages of this range in memory when it returns, zero where they were not. Contents do not change, whoever
    /// writes there meanwhile. What is discarded meanwhile may be held again, and reads as zero.
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

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::mapping::Mapping;
    use crate::memory::resident_bytes_of;

    const LEN: usize = 8 << 20;

    #[test]
    fn a_range_is_in_memory_once_it_was_asked_for() {
        let mut mapping = Mapping::anonymous(LEN).unwrap();
        mapping.bytes_mut()[5_000_000..5_001_000].fill(7);
        let populate = mapping.populate().unwrap();
        std::thread::spawn(move || populate.range(4 << 20, 3 << 20)).join().unwrap();
        let middle = &mapping.bytes()[4 << 20..7 << 20];
        assert_eq!(resident_bytes_of(middle), Some(3 << 20));
        assert!(resident_bytes_of(mapping.bytes()).unwrap() < LEN as u64, "and no other");
        let written = 5_000_000 - (4 << 20);
        assert!(
            middle
                .iter()
                .enumerate()
                .all(|(at, &byte)| { byte == if (written..written + 1000).contains(&at) { 7 } else { 0 } })
        );
    }

    #[test]
    fn it_takes_nothing_from_those_who_write() {
        // Few pages, so that both are at the same ones all the time.
        const LEN: usize = 4 * 4096;
        let mut mapping = Mapping::anonymous(LEN).unwrap();
        let populate = mapping.populate().unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let is_done = Arc::clone(&done);
        let other = std::thread::spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                populate.range(0, LEN);
            }
        });
        let mut expected = [0; LEN / 4096];
        for round in 0..5_000_000u32 {
            // Not right after writing: then the core would read its own write before anybody else does.
            let page = round as usize % expected.len();
            assert_eq!(std::hint::black_box(&mapping).bytes()[page * 4096], expected[page], "round {round}");
            if round % 1000 == 0 {
                mapping.discard(page * 4096, 4096);
            }
            mapping.bytes_mut()[page * 4096] = round as u8;
            expected[page] = round as u8;
        }
        done.store(true, Ordering::Relaxed);
        other.join().unwrap();
    }

    #[test]
    fn the_addresses_stay_mapped_for_it() {
        let mapping = Mapping::anonymous(LEN).unwrap();
        let populate = mapping.populate().unwrap();
        drop(mapping);
        populate.range(0, LEN);
        assert!(std::panic::catch_unwind(|| populate.range(LEN - 1, 2)).is_err());
    }

    #[test]
    fn a_files_pages_are_there_already() {
        let path = std::env::temp_dir().join(format!("tiermem-populate-{}", std::process::id()));
        std::fs::write(&path, [0; 4096]).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        assert!(Mapping::file(file, 4096).unwrap().populate().is_none());
        std::fs::remove_file(path).unwrap();
    }
}
