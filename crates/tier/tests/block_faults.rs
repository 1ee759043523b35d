//! Wrappers of block devices do as documented: faults in the configured share and shape and
//! no others, delays that lose nothing, a limit on speed that holds, counts that are right.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use tiermem_base::rng::Rng;
use tiermem_tier::block::{
    AlignedBuffer, BLOCK_BYTES, BlockError, BlockIo, Completion, Counted, Faults, Faulty, Immediate,
    MemoryDisk, Op, Request, Throttled,
};

const BLOCKS: u64 = 64;

fn block(byte: u8, blocks: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(blocks * BLOCK_BYTES);
    buffer.fill(byte);
    buffer
}

fn take_all(device: &mut dyn BlockIo) -> Vec<Completion> {
    let mut done = Vec::new();
    while device.in_flight() > 0 {
        device.wait(&mut done);
    }
    done
}

fn one(device: &mut dyn BlockIo, request: Request) -> Completion {
    device.submit(request);
    take_all(device).pop().unwrap()
}

fn faulty(disk: &MemoryDisk, faults: Faults) -> Faulty<Immediate> {
    Faulty::new(disk.open(), faults, Rng::seeded(11))
}

fn disk() -> MemoryDisk {
    MemoryDisk::new(BLOCKS as usize * BLOCK_BYTES)
}

#[test]
fn errors_come_in_their_share_and_write_nothing() {
    let disk = disk();
    let mut device = faulty(&disk, Faults { write_error: 0.25, ..Faults::default() });
    let mut failed = 0;
    for round in 0..2000 {
        let place = round % BLOCKS * BLOCK_BYTES as u64;
        let before = disk.with_bytes(|bytes| bytes[place as usize]);
        let done = one(&mut device, Request::write(round, place, block(round as u8, 1)));
        let after = disk.with_bytes(|bytes| bytes[place as usize]);
        assert_eq!((done.token, done.buffer[0]), (round, round as u8));
        match done.result {
            Ok(()) => assert_eq!(after, round as u8),
            Err(error) => {
                assert_eq!(error, BlockError::device(Op::Write, place, BLOCK_BYTES));
                assert_eq!(after, before);
                failed += 1;
            }
        }
        assert_eq!(one(&mut device, Request::read(0, place, block(0, 1))).result, Ok(()));
    }
    // Five standard deviations around a quarter.
    assert!((403..=597).contains(&failed), "{failed}");
}

#[test]
fn the_nth_request_fails_once() {
    let disk = disk();
    for sync in [false, true] {
        let mut device = faulty(&disk, Faults { error_after: Some(3), ..Faults::default() });
        let mut results = Vec::new();
        for token in 0..6 {
            let request = match (sync, token % 2) {
                (true, 0) => Request::sync(token),
                _ => Request::read(token, 0, block(0, 1)),
            };
            results.push(one(&mut device, request).result.is_ok());
        }
        assert_eq!(results, [true, true, true, false, true, true]);
    }
    let mut device = faulty(&disk, Faults { error_after: Some(1), ..Faults::default() });
    assert!(
        device.write_at(0, &[1]).is_ok() && device.read_at(0, &mut [0]).is_err() && device.sync().is_ok()
    );
}

proptest! {
    #[test]
    fn a_torn_write_leaves_a_prefix_of_sectors(
        seed in any::<u64>(), first in 0..BLOCKS - 4, blocks in 1usize..4, done in any::<bool>(),
        small in prop::option::of((0u64..5000, 1usize..3000)),
    ) {
        let disk = disk();
        disk.with_bytes(|bytes| bytes.fill(1));
        let faults = Faults { torn_write: 1.0, torn_write_reported_done: done, ..Faults::default() };
        let mut device = Faulty::new(disk.open(), faults, Rng::seeded(seed));
        let offset = first * BLOCK_BYTES as u64;
        let (at, len) = match small {
            None => {
                let completion = one(&mut device, Request::write(7, offset, block(2, blocks)));
                prop_assert_eq!(completion.result.is_ok(), done);
                // The caller's bytes come back as they were.
                prop_assert!(*completion.buffer == *block(2, blocks));
                (offset, blocks * BLOCK_BYTES)
            }
            Some((at, len)) => {
                prop_assert_eq!(device.write_at(at, &vec![2; len]).is_ok(), done);
                (at, len)
            }
        };
        let (at, end) = (at as usize, at as usize + len);
        disk.with_bytes(|bytes| {
            let written = bytes[at..end].iter().take_while(|byte| **byte == 2).count();
            prop_assert!(written < len, "torn, not whole");
            prop_assert!(written == 0 || (at + written).is_multiple_of(512));
            prop_assert!(bytes[at + written..].iter().all(|byte| *byte == 1));
            prop_assert!(bytes[..at].iter().all(|byte| *byte == 1));
            Ok(())
        })?;
    }

    #[test]
    fn a_flipped_read_differs_in_one_bit_and_the_medium_does_not(seed in any::<u64>(), small in any::<bool>()) {
        let disk = disk();
        disk.with_bytes(|bytes| bytes.fill(0x55));
        let faults = Faults { flipped_read: 1.0, ..Faults::default() };
        let mut device = Faulty::new(disk.open(), faults, Rng::seeded(seed));
        let mut bytes = vec![0; 1000];
        if small {
            device.read_at(3, &mut bytes).unwrap();
        } else {
            bytes = one(&mut device, Request::read(0, 0, block(0, 2))).buffer.to_vec();
        }
        prop_assert_eq!(bytes.iter().map(|byte| (byte ^ 0x55).count_ones()).sum::<u32>(), 1);
        prop_assert!(disk.with_bytes(|bytes| bytes.iter().all(|byte| *byte == 0x55)));
    }

    /// Faults follow from the seed, so a failure can be repeated.
    #[test]
    fn the_same_seed_has_the_same_faults(seed in any::<u64>()) {
        let run = || {
            let faults = Faults {
                read_error: 0.1, write_error: 0.1, sync_error: 0.1, torn_write: 0.2, flipped_read: 0.2, delayed: 0.3,
                ..Faults::default()
            };
            let disk = disk();
            let mut device = Faulty::new(disk.open(), faults, Rng::seeded(seed));
            let mut log = Vec::new();
            for token in 0..60 {
                let place = token * 7 % BLOCKS * BLOCK_BYTES as u64;
                device.submit(match token % 5 {
                    0 | 1 => Request::write(token, place, block(token as u8, 1)),
                    4 => Request::sync(token),
                    _ => Request::read(token, place, block(0, 1)),
                });
                let mut done = Vec::new();
                device.completed(&mut done);
                log.extend(done.into_iter().map(|it| (it.token, it.result, it.buffer.to_vec())));
            }
            log.extend(take_all(&mut device).into_iter().map(|it| (it.token, it.result, it.buffer.to_vec())));
            (log, disk.with_bytes(|bytes| bytes.to_vec()))
        };
        prop_assert!(run() == run());
    }
}

#[test]
fn delays_change_the_order_and_lose_nothing() {
    let mut device = faulty(&disk(), Faults { delayed: 0.5, ..Faults::default() });
    for token in 0..500 {
        device.submit(Request::read(token, 0, block(0, 1)));
    }
    let mut tokens: Vec<u64> = take_all(&mut device).iter().map(|it| it.token).collect();
    assert!(!tokens.is_sorted());
    tokens.sort_unstable();
    assert!(tokens.into_iter().eq(0..500));
}

#[test]
fn a_full_disk_is_full_for_writes_until_it_has_room() {
    let room = 3 * BLOCK_BYTES as u64 + 100;
    let mut device = faulty(&disk(), Faults { full_after_bytes: Some(room), ..Faults::default() });
    let write = |device: &mut Faulty<Immediate>, blocks| {
        one(device, Request::write(0, 0, block(1, blocks))).result.map_err(|error| error.is_full())
    };
    assert_eq!(write(&mut device, 3), Ok(()));
    assert_eq!(write(&mut device, 1), Err(true));
    assert!(device.write_at(0, &[0; 100]).is_ok());
    assert!(device.write_at(0, &[0; 1]).is_err_and(|error| error.is_full()));
    assert_eq!(one(&mut device, Request::read(0, 0, block(0, 1))).result, Ok(()));
    device.faults().full_after_bytes = None;
    assert_eq!(write(&mut device, 1), Ok(()));
}

#[test]
fn no_faults_are_no_faults() {
    let mut device = Faulty::new(Immediate::new(1 << 20), Faults::default(), Rng::seeded(1));
    for token in 0..500 {
        let place = token % 200 * BLOCK_BYTES as u64;
        assert_eq!(one(&mut device, Request::write(token, place, block(token as u8, 1))).result, Ok(()));
        let back = one(&mut device, Request::read(token, place, block(0, 1)));
        assert!(*back.buffer == *block(token as u8, 1));
    }
}

#[test]
fn nothing_passes_a_throttled_device_too_early() {
    let (latency, bytes_per_s) = (Duration::from_millis(2), 16e6);
    let mut device = Throttled::new(Immediate::new(1 << 20), latency, bytes_per_s);
    let start = Instant::now();
    for token in 0..10 {
        device.submit(Request::read(token, 0, block(0, 4)));
    }
    let mut done = Vec::new();
    while device.in_flight() > 0 {
        device.wait(&mut done);
        // A lower bound of the time that was taken holds on the busiest machine.
        let passing = Duration::from_secs_f64((done.len() * 4 * BLOCK_BYTES) as f64 / bytes_per_s);
        assert!(start.elapsed() >= passing + latency);
    }
    assert_eq!(done.len(), 10);
}

#[test]
fn what_passes_is_counted() {
    let faults = Faults { error_after: Some(4), ..Faults::default() };
    let mut device = Counted::new(Faulty::new(Immediate::new(1 << 20), faults, Rng::seeded(1)));
    device.write_at(10, &[1; 30]).unwrap();
    device.read_at(10, &mut [0; 20]).unwrap();
    device.submit(Request::write(7, 0, block(1, 2)));
    device.submit(Request::read(8, 0, block(0, 1)));
    device.submit(Request::read(9, 0, block(0, 1)));
    device.submit(Request::sync(10));
    let done = take_all(&mut device);
    assert_eq!(
        done.iter().map(|it| (it.token, it.result.is_ok())).filter(|it| !it.1).collect::<Vec<_>>(),
        [(9, false)]
    );
    let counters = device.counters();
    assert_eq!((counters.reads, counters.writes, counters.syncs, counters.errors), (2, 1, 1, 1));
    assert_eq!((counters.read_bytes, counters.written_bytes), (4096, 8192));
    assert_eq!((counters.small_read_bytes, counters.small_written_bytes), (20, 30));
    assert_eq!((counters.read_latency_ns.len(), counters.write_latency_ns.len()), (2, 1));
}
