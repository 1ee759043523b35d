//! The delay with which freed memory goes back. A process of one thread, which the usual harness is not.

use libmimalloc_sys::mi_option_get;
use tiermem_sys::allocator::{PURGE_DELAY, give_back_after};

fn main() {
    // SAFETY: it reads an option, and no other thread is there to change it.
    let delay_ms = || unsafe { mi_option_get(PURGE_DELAY) };
    if std::env::var_os("MIMALLOC_PURGE_DELAY").is_some() {
        assert!(!give_back_after(123), "whoever runs the program chooses");
        assert_ne!(delay_ms(), 123);
        return;
    }
    assert!(give_back_after(123));
    assert_eq!(delay_ms(), 123);
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || stopped.recv().is_err());
    assert!(!give_back_after(124), "another thread may allocate");
    assert_eq!(delay_ms(), 123);
    drop(stop);
    assert!(other.join().is_ok_and(|told| told));
    println!("freed memory goes back when it is to");
}
