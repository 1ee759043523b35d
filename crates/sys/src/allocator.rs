//! Allocator of a server: the delay after which freed memory goes back to the kernel.
//!
//! mimalloc gives freed memory back after a delay, which is a second by default. A store that is flooded with large values of
//! mixed sizes frees some hundred megabytes in a second, and the place of one value seldom fits the next: the process would hold
//! twice what it uses. The delay alone does not do it: mimalloc looks at what is due only when something else is freed, so that
//! a flood which ends leaves its memory with the process for good. Somebody has to ask.

use std::ffi::c_long;
use std::fs;

use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t};

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

/// Gives memory back to the kernel that was freed longer ago than the delay, whichever thread freed it. It costs a look at the
/// clock where nothing is due.
pub fn give_back_freed() {
    // SAFETY: any thread may call it at any time. Without force it moves no memory in use, and frees none.
    unsafe { mi_collect(false) };
}
