//! Programs and libraries must be unwound and named, or not, whatever stands in their files. Each address has a frame or more, and a stack no
//! more frames than there may be.
#![no_main]

use std::io::Write;
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use tiermem_stacks::{Image, ProcessCode, UnwindCache, name, site_of};

const MAPPED: u64 = 0x10_0000;
const SP: u64 = 0x7f00_0000;

fuzz_target!(|input: &[u8]| {
    // The file, and behind it a stack and addresses.
    let Some((file, rest)) = input.split_last_chunk::<64>().map(|(file, rest)| (file, rest.as_chunks::<8>().0)) else {
        return;
    };
    let words: Vec<u64> = rest.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let Ok(mut copy) = tempfile::tempfile() else { return };
    copy.write_all(file).unwrap();
    let image = Image::open("/file".to_owned(), Some(copy));
    let addresses: Vec<u64> = words.iter().flat_map(|word| [*word, word & 0xffff]).collect();
    let named = name(&image, &addresses, Instant::now() + Duration::from_secs(5));
    assert_eq!(named.len(), addresses.len());
    assert!(named.iter().all(|frames| !frames.is_empty() && site_of(frames).is_some()));
    let mut process = ProcessCode::default();
    process.map(MAPPED, 1 << 16, Some((0, &image, words[0] & 0xf000)));
    // The stack is of addresses in the file, so that frames follow each other.
    let stack: Vec<u64> = words.iter().map(|word| MAPPED + (word & 0xffff)).collect();
    let mut cache = UnwindCache::default();
    for start in &stack {
        let unwound = process.unwind(&mut cache, [*start, SP, SP + 16], &stack);
        assert!(unwound.frames.len() <= 128);
    }
});
