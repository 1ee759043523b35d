//! Texts of perf must be taken or refused, whatever stands in them, and counted alike in one go and with broken lines passed
//! over, if there are none. `/proc/PID/maps` is read from the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tiermem_place::capture::mappings::maps;
use tiermem_place::capture::perf_mem::{ImportOptions, import_bytes};

fuzz_target!(|input: &[u8]| {
    let _ = maps::parse(&String::from_utf8_lossy(input));
    let options = ImportOptions { entries_max: 1 << 12, slice_ns: 1_000_000, ..ImportOptions::default() };
    let strict = import_bytes(input, &options);
    let lenient = import_bytes(input, &ImportOptions { skip_bad: u64::MAX, ..options });
    let Ok(lenient) = lenient else { return };
    for sample in &lenient.samples {
        let region = &lenient.head.regions[sample.region as usize];
        assert!(sample.offset < region.bytes && (sample.slice as usize) < lenient.head.slices.len());
    }
    if let Ok(strict) = strict {
        assert_eq!(strict, lenient);
    }
});
