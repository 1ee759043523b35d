//! Prefetch instruction: asks the processor for memory before it is needed.

/// Asks for the cache line that `place` begins in. Nothing changes but the time that a later access takes; on
/// processors without a stable instruction for it nothing happens at all.
#[inline(always)]
pub fn prefetch<T: ?Sized>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing into the program and never faults, whatever the address; this one is a
        // reference's and valid besides.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(place).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_place_may_be_asked_for() {
        prefetch(&7u8);
        prefetch::<[u8]>(&[]);
        prefetch(&vec![0u64; 100][50..]);
    }
}
