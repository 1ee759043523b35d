//! The allocator of a server: how long it keeps memory that is free.
//!
//! mimalloc gives freed memory back to the kernel after a delay, which is a second by default. A store that is flooded with large
//! values of mixed sizes frees some hundred megabytes in a second, and what one value left seldom fits the next: the process would
//! hold twice what it uses.

use std::ffi::c_long;
use std::fs;

use libmimalloc_sys::{mi_option_set, mi_option_t};

/// `mi_option_purge_delay` of `mimalloc.h`, in versions 2 and 3.
pub const PURGE_DELAY: mi_option_t = 15;

/// With this variable whoever runs the program chooses another delay, as mimalloc's documentation says.
const VARIABLE: &str = "MIMALLOC_PURGE_DELAY";

/// Has freed memory go back to the kernel after so many milliseconds, unless `MIMALLOC_PURGE_DELAY` is set. `false`: nothing was
/// changed, since that is set or since there are other threads already.
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
