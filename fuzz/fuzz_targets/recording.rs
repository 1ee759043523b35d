//! Journals of recordings must be recovered or refused, whatever stands in them. What is recovered names no slice, region or source
//! that is not there, and a shorter journal has no more of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tiermem_trace::recording::journal::recover;

fuzz_target!(|input: &[u8]| {
    let Ok(recording) = recover(input) else { return };
    let head = &recording.head;
    for sample in &recording.samples {
        let region = &head.regions[sample.region as usize];
        assert!(sample.offset < region.bytes && (sample.slice as usize) < head.slices.len());
        assert!(usize::from(sample.source) < head.sources.len());
    }
    assert!(head.slices.windows(2).all(|pair| pair[0].start_ns < pair[1].start_ns));
    if let Ok(half) = recover(&input[..input.len() / 2]) {
        assert!(half.head.slices.len() <= head.slices.len());
    }
});
