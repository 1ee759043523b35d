//! Memory that another thread populates: it is there afterwards, and concurrent writes lose nothing.
#![cfg(target_arch = "x86_64")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tiermem_sys::mapping::Mapping;
use tiermem_sys::memory::resident_bytes_of;

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
        // Not right after writing: then the core would read its own write before any other does.
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
