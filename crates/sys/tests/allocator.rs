//! The delay with which freed memory goes back. A process of one thread, which the usual harness is not.

use std::time::{Duration, Instant};

use libmimalloc_sys::mi_option_get;
use tiermem_sys::allocator::{PURGE_DELAY, give_back_after, give_back_freed};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BLOCK_BYTES: usize = 1 << 20;
const BLOCKS: usize = 128;

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("the kernel says");
    pages.split_whitespace().nth(1).and_then(|it| it.parse::<usize>().ok()).expect("a number") * 4096
}

/// Values come and go, and then nothing is freed any more: their memory goes back when somebody asks.
fn goes_back_though_nothing_else_is_freed() {
    let before = resident_bytes();
    let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| vec![1; BLOCK_BYTES]).collect();
    assert!(resident_bytes() >= before + BLOCKS * BLOCK_BYTES);
    drop(blocks);
    let patience = Instant::now() + Duration::from_secs(60);
    while resident_bytes() > before + BLOCKS * BLOCK_BYTES / 8 {
        assert!(Instant::now() < patience, "{} bytes are resident, {before} were", resident_bytes());
        std::thread::sleep(Duration::from_millis(10));
        give_back_freed();
    }
}

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
    goes_back_though_nothing_else_is_freed();
    println!("freed memory goes back when it is to");
}
