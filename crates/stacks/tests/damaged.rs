//! Files of code that are damaged anywhere are unwound and named, or not.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tiermem_stacks::{Image, ProcessCode, UnwindCache, name, site_of};

/// A program of a few functions with debug information, and a library without; behind each some words, as the fuzz target has it.
const FILES: [&[u8]; 2] = [
    include_bytes!("../../../fuzz/corpus/code_file/t"),
    include_bytes!("../../../fuzz/corpus/code_file/ts_so"),
];
const WORDS_BYTES: usize = 64;

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn a_whole_file_is_named_with_lines_and_what_is_inlined() {
    let image = Image::open("/t".to_owned(), Some(file_of(&FILES[0][..FILES[0].len() - WORDS_BYTES])));
    // Within `fill`, into which `add` is inlined, and in no function.
    let named = name(&image, &[0x4000b8, 0x10], Instant::now() + Duration::from_secs(60));
    let functions: Vec<Option<&str>> = named[0].iter().map(|frame| frame.function.as_deref()).collect();
    assert_eq!(functions.last(), Some(&Some("fill")), "{named:?}");
    assert!(named[0].iter().all(|frame| frame.file.as_deref().is_some_and(|file| file.ends_with("t.c"))));
    assert_eq!((named[1].len(), &named[1][0].function), (1, &None));
}

proptest! {
    #[test]
    fn a_damaged_file_is_read_as_far_as_it_makes_sense(
        file in 0..FILES.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        length in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        words in prop::collection::vec(any::<u16>(), 8),
    ) {
        let whole = FILES[file];
        let mut bytes = whole[..whole.len() - WORDS_BYTES].to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(length.map_or(bytes.len(), |length| length.index(bytes.len())));
        let image = Image::open("/t".to_owned(), Some(file_of(&bytes)));
        let mut addresses: Vec<u64> = words.iter().map(|word| u64::from(*word) & 0x7ff | 0x40_0000).collect();
        addresses.extend(words.iter().map(|word| u64::from(*word) & 0xfff));
        let named = name(&image, &addresses, Instant::now() + Duration::from_secs(60));
        prop_assert!(named.iter().all(|frames| site_of(frames).is_some()));
        let mut process = ProcessCode::default();
        process.map(0x40_0000, 0x2000, Some((0, &image, 0)));
        let mut cache = UnwindCache::default();
        for start in &addresses {
            let stack: Vec<u64> = addresses.iter().map(|address| address & 0xfff | 0x40_0000).collect();
            let unwound = process.unwind(&mut cache, [*start | 0x40_0000, 0x7000, 0x7010], &stack);
            prop_assert!(unwound.frames.len() <= 128);
        }
    }
}
