//! The import of perf's text must take any bytes without a panic, must bring the same from them however many threads read
//! them, and what it brings must be a recording that can be written and read. The first byte of an input says how it is
//! imported.
#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use tiermem_place::capture::perf_mem::{ImportOptions, import_from};

fuzz_target!(|input: &[u8]| {
    let [how, bytes @ ..] = input else { return };
    let options = ImportOptions {
        granule_bytes: [64, 4096, 12288, 2 << 20][usize::from(how & 3)],
        pid: (how & 4 != 0).then_some(1234),
        skip_bad: if how & 8 == 0 { u64::MAX } else { 1 },
        ..ImportOptions::default()
    };
    // Two files, so that text without times has more than one slice.
    let (one, other) = bytes.split_at(bytes.len() / 2);
    let read = |threads| {
        let inputs = [(PathBuf::from("one"), one), (PathBuf::from("other"), other)];
        import_from(inputs, &ImportOptions { threads, ..options.clone() }).ok()
    };
    let recording = read(1);
    assert_eq!(recording, read(2));
    let Some(recording) = recording else { return };
    for sample in &recording.samples {
        assert!((sample.slice as usize) < recording.head.slices.len());
        let region = &recording.head.regions[sample.region as usize];
        assert!(sample.bytes > 0 && sample.offset < region.bytes && sample.weight >= 1.0);
    }
});
