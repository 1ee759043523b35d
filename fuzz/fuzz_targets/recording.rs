//! Journals of recordings must be recovered or refused, whatever stands in them. What is recovered names no slice, region or source
//! that is not there, and a shorter journal has no more of it. Who follows a journal and keeps a part of it sees as many slices.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tiermem_trace::recording::journal::recover;
use tiermem_trace::recording::{Follower, Limits, Recording};

const LIMITS: Limits = Limits { slices_max: 4, samples_max: 16 };

fn check(recording: &Recording) {
    let head = &recording.head;
    for sample in &recording.samples {
        let region = &head.regions[sample.region as usize];
        assert!(sample.offset < region.bytes && (sample.slice as usize) < head.slices.len());
        assert!(usize::from(sample.source) < head.sources.len());
    }
    assert!(head.slices.windows(2).all(|pair| pair[0].start_ns < pair[1].start_ns));
}

fuzz_target!(|input: &[u8]| {
    let whole = recover(input);
    let path = std::env::temp_dir().join(format!("tiermem-fuzz-recording-{}", std::process::id()));
    if std::fs::write(&path, input).is_ok()
        && let Ok(Some(mut follower)) = Follower::open(&path, LIMITS)
    {
        let read = follower.read();
        if let Ok(recording) = &whole {
            assert!(read.is_ok() && follower.slices() as usize == recording.head.slices.len());
            let kept = follower.recording().expect("it has what the whole has");
            check(&kept);
            assert!(kept.head.slices.len() <= LIMITS.slices_max);
            let _ = follower.newest();
        }
    }
    let Ok(recording) = whole else { return };
    check(&recording);
    let head = &recording.head;
    if let Ok(half) = recover(&input[..input.len() / 2]) {
        assert!(half.head.slices.len() <= head.slices.len());
    }
});
