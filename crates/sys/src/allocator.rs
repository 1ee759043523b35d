//! Allocator of a server: the delay after which freed memory goes back to the kernel.
//!
//! mimalloc gives freed memory back after a delay, which is a second by default. A store that is flooded with large values of
//! mixed sizes frees some hundred megabytes in a second, and the place of one value seldom fits the next: the process would hold
//! twice what it uses.

use std::ffi::c_long;
use std::fs;

use libmimalloc_sys::{mi_option_set, mi_option_t};

/// `mi_option_purge_delay` of `mimalloc.h`, in versions 2 and 3.
pub const PURGE_DELAY: mi_option_t = 15;

/// The variable by which an operator chooses another delay, as mimalloc's documentation says.
const VARIABLE: &str = "MIMALLOC_PURGE_DELAY";

/// Has freed memory go back to the kernel after `delay_ms` milliseconds, unless `MIMALLOC_PURGE_DELAY` is set. `false`: nothing
/// was changed, because that is set or because there are other threads already.
pub fn give_back_after(delay_ms: u16) -> bool {
    let threads = fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if threads != 1 || std::env::var_os(VARIABLE).is_some() {
        return false;
    }
    // SAFETY: options may be changed while no other thread allocates, and there is none. The number names one of the library's options
    // that takes any value.
    unsafe { mi_option_set(PURGE_DELAY, c_long::from(delay_ms)) };
    true
}
