//! Replays against real servers: the crate's own over memory, one that dies, and disks that fail, shuffle and lie.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

#[path = "server/house.rs"]
#[allow(dead_code)]
mod house;
#[path = "replay/liar.rs"]
mod liar;
mod toy;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use house::{House, SIZE};
use liar::{Liar, Lie};
use tiermem_base::{Access, Op, Rng};
use tiermem_block::disks::{MemoryDisks, SlowDisks, Trouble};
use tiermem_block::nbd::{Address, BlockSizes, NbdUri};
use tiermem_block::replay::{
    self, End, ExpectedSector, FoundContent, LayoutError, Options, Outcome, ReplayError, Survey, Target,
    Wrong,
};
use tiermem_block::server::ServerConfig;
use tiermem_live::Pace;
use toy::Toy;

fn uri(address: &Address, export: &str) -> NbdUri {
    let address = address.clone();
    let export = export.to_owned();
    NbdUri { tls: false, address, export, tls_hostname: None, tls_verify_peer: true }
}

fn target(house: &House, export: &str, volumes: &[u32]) -> Target {
    Target { uri: uri(&house.unix, export), volumes: volumes.to_vec() }
}

fn record(op: Op, key: u64, size: u32) -> Access {
    Access::new(0, op, key, size)
}

/// Requests of `volumes` volumes in their first `bytes` bytes, half of them writes, some long, some unaligned.
fn requests(seed: u64, count: usize, volumes: u64, bytes: u64) -> Vec<Access> {
    let mut rng = Rng::seeded(seed);
    let draw = |time_ns| {
        let op = if rng.below(2) == 0 { Op::Read } else { Op::Write };
        let size = match rng.below(8) {
            0 => 1 + rng.below(60_000.min(bytes)),
            1 => 1 + rng.below(700),
            _ => 4096,
        };
        let key = rng.below(bytes - size.min(bytes - 1));
        let key = if rng.below(4) == 0 { key } else { key / 4096 * 4096 };
        let size = size.min(bytes - key);
        Access { tenant: rng.below(volumes) as u32, ..Access::new(time_ns, op, key, size as u32) }
    };
    (0..count as u64).map(draw).collect()
}

/// A busy machine may keep the server from answering for seconds.
fn options(targets: Vec<Target>) -> Options {
    Options { attempt: Duration::from_secs(120), ..Options::new(targets) }
}

fn try_replay(options: &Options, records: &[Access]) -> Result<Outcome, ReplayError> {
    let mut survey = Survey::default();
    records.iter().for_each(|access| survey.add(access));
    let trace = records.iter().map(|access| Ok::<_, Infallible>(*access));
    replay::run(options, &survey, trace, &mut |_| {}, &|| false)
}

fn verified(targets: Vec<Target>, records: &[Access]) -> Outcome {
    try_replay(&Options { verify: true, ..options(targets) }, records).unwrap()
}

fn assert_clean(outcome: &Outcome, records: &[Access]) {
    assert!(outcome.is_clean() && outcome.complaints.is_empty(), "{:?}", outcome.complaints);
    assert_eq!(outcome.end, End::Whole);
    let total = outcome.total();
    let of =
        |write: bool| records.iter().filter(move |access| access.op.is_write() == write && access.size > 0);
    assert_eq!(total.writes.requests, of(true).count() as u64);
    assert_eq!(total.reads.requests, of(false).count() as u64);
    assert_eq!(total.reads.latency.count(), total.reads.requests);
    assert!(total.bytes() >= records.iter().map(|access| u64::from(access.size)).sum());
}

#[test]
fn what_is_written_is_read_on_one_export_and_on_several() {
    let house = House::plain();
    let records = requests(1, 3000, 2, SIZE / 2);
    let apart = verified(vec![target(&house, "a", &[1]), target(&house, "b", &[0])], &records);
    assert_clean(&apart, &records);
    assert_eq!(apart.connections, [16, 16]);
    let of_1 = records.iter().filter(|access| access.tenant == 1).count() as u64;
    assert_eq!(apart.exports[0].requests(), of_1);
    // The server says the same of what was asked.
    let asked: u64 = house.stats.exports().iter().map(|export| export.requests_total()).sum();
    assert!(asked >= 3000, "{asked}");

    let one = Options { verify: true, seed: 2, ..options(vec![target(&house, "a", &[0, 1])]) };
    assert_clean(&try_replay(&one, &records).unwrap(), &records);
}

#[test]
fn overlapping_requests_keep_their_order_while_answers_come_in_any() {
    for (seed, workers) in [(1, 1), (2, 7), (3, 100)] {
        let house = House::of(ServerConfig::default(), move || {
            SlowDisks::new(house::memory(), Trouble { seed, ..Trouble::default() })
        });
        // In so little room hardly a request is alone.
        let records = requests(seed, 2000, 1, 100_000);
        let targets = vec![target(&house, "a", &[0])];
        let options = Options { verify: true, workers, ..options(targets) };
        let outcome = try_replay(&options, &records).unwrap();
        assert_clean(&outcome, &records);
        assert_eq!(outcome.connections, [workers.min(64)]);
    }
}

#[test]
fn a_least_block_and_a_longest_payload_are_kept() {
    let house = House::of(ServerConfig::default(), || {
        let mut disks = MemoryDisks::new();
        disks.add("a", SIZE).block = BlockSizes { minimum: 4096, preferred: 4096, payload_max: 8192 };
        disks
    });
    let records = requests(4, 1000, 1, SIZE);
    let outcome = verified(vec![target(&house, "a", &[0])], &records);
    assert_clean(&outcome, &records);
    let aligned = |access: &Access| (access.key | u64::from(access.size)).is_multiple_of(4096);
    assert_eq!(outcome.total().widened, records.iter().filter(|access| !aligned(access)).count() as u64);
}

#[test]
fn long_requests_and_those_of_nothing_are_sent_as_they_can_be() {
    let house = House::plain();
    let records = [
        record(Op::Write, 512, 5_000_000),
        record(Op::Write, 512, 0),
        record(Op::Del, 512, 4096),
        record(Op::Read, 0, 6_000_000),
        record(Op::Read, 0, 6_000_000),
    ];
    let outcome = verified(vec![target(&house, "a", &[0])], &records);
    assert!(outcome.is_clean(), "{:?}", outcome.complaints);
    let total = outcome.total();
    assert_eq!((total.reads.requests, total.writes.requests, outcome.skipped), (2, 1, 2));
    // 512 + 5,000,000 is widened to whole sectors, as is the end of each read.
    assert_eq!((total.writes.bytes, total.reads.bytes), (5_000_192, 12_000_256));
    assert_eq!(total.widened, 3);
}

#[test]
fn a_disk_that_lies_is_found_out() {
    for (lie, wanted) in [
        (Lie::LoseWrite(2), "what write 1 has written"),
        (Lie::Misplace, "at offset 4096 of export 0"),
        (Lie::Zeroes, "zeroes"),
        (Lie::Flip, "other bytes"),
    ] {
        let house = House::of(ServerConfig::default(), move || Liar::new(house::memory(), lie));
        let records = [
            record(Op::Write, 8192, 4096),
            record(Op::Write, 8192, 4096),
            record(Op::Write, 4096, 4096),
            record(Op::Read, 8192, 4096),
            record(Op::Read, 8192, 4096),
        ];
        let outcome = verified(vec![target(&house, "a", &[0])], &records);
        assert!(!outcome.is_clean() && outcome.end == End::Whole);
        let total = outcome.total();
        // The replay continues, and counts each wrong sector.
        assert_eq!((total.requests(), total.errors, outcome.complaints.len()), (5, 0, 2));
        assert!(total.mismatches >= 2, "{lie:?}: {}", total.mismatches);
        let first = &outcome.complaints[0];
        assert_eq!((first.export, first.op), (0, "read"));
        let Wrong::Differs(mismatch) = &first.what else { panic!("{first:?}") };
        assert_eq!(mismatch.expected, ExpectedSector::Version(2));
        assert!((8192..12288).contains(&mismatch.offset));
        let found = mismatch.found.to_string();
        assert!(found.contains(wanted), "{lie:?}: {found}");
    }
}

#[test]
fn bytes_that_were_there_before_must_stay() {
    let house = House::of(ServerConfig::default(), || Liar::new(house::memory(), Lie::Change));
    let records = [record(Op::Read, 8192, 4096), record(Op::Write, 0, 512), record(Op::Read, 8192, 4096)];
    // Reads go side by side, so with more workers either may be first.
    let options = Options { verify: true, workers: 1, ..options(vec![target(&house, "a", &[0])]) };
    let outcome = try_replay(&options, &records).unwrap();
    assert_eq!(outcome.total().mismatches, 1);
    let Wrong::Differs(mismatch) = outcome.complaints[0].what else { panic!("it differs") };
    assert!(
        matches!(mismatch.expected, ExpectedSector::Checksum(_))
            && matches!(mismatch.found, FoundContent::Checksum(_))
    );
}

#[test]
fn requests_that_fail_are_counted_and_told_and_leave_nothing_to_be_wrong() {
    let house = House::of(ServerConfig::default(), || {
        SlowDisks::new(house::memory(), Trouble { seed: 9, fail_one_in: 10, ..Trouble::default() })
    });
    let records = requests(5, 2000, 1, 300_000);
    let outcome = verified(vec![target(&house, "a", &[0])], &records);
    let total = outcome.total();
    assert!(total.errors > 50 && total.mismatches == 0 && !outcome.is_clean());
    assert_eq!(total.errors + total.requests(), 2000);
    let Wrong::Refused(words) = &outcome.complaints[0].what else { panic!("it is refused") };
    assert!(words.contains("the disk is in trouble"), "{words}");

    // What may not be written is not even asked for.
    let outcome = verified(vec![target(&house, "look", &[0])], &[record(Op::Write, 0, 512)]);
    assert_eq!(outcome.total().errors, 1);
    let Wrong::Refused(words) = &outcome.complaints[0].what else { panic!("it is refused") };
    assert!(words.contains("read-only"), "{words}");
}

#[test]
fn a_server_that_dies_ends_the_replay_with_what_was_done() {
    let toy = Toy::new(toy::export(1 << 20));
    let targets = vec![Target { uri: toy.uri(), volumes: vec![0] }];
    let records = requests(6, 200_000, 1, 1 << 20);
    let outcome = std::thread::scope(|scope| {
        let replayed = scope.spawn(|| verified(targets, &records));
        toy.wait_for_requests(500);
        toy.stop();
        replayed.join().unwrap()
    });
    let End::Broken { why, .. } = &outcome.end else { panic!("{:?}", outcome.end) };
    assert!(why.starts_with("nbd+unix:///vol?socket="), "{why}");
    let total = outcome.total();
    assert!(!outcome.is_clean() && total.requests() >= 400 && total.requests() < 200_000);
    assert_eq!(total.mismatches, 0, "{:?}", outcome.complaints);
    // It does not let a client have several connections.
    assert_eq!(outcome.connections, [1]);
}

#[test]
fn a_server_that_falls_silent_is_given_up() {
    let toy = Toy::new(toy::export(1 << 20));
    toy.silent(true);
    let targets = vec![Target { uri: toy.uri(), volumes: vec![0] }];
    let options = Options { stall: Duration::from_millis(50), ..options(targets) };
    let outcome = try_replay(&options, &requests(7, 100, 1, 1 << 20)).unwrap();
    let End::Broken { under_way, why } = &outcome.end else { panic!("{:?}", outcome.end) };
    assert!(*under_way > 0 && why.contains("no reply"), "{why}");
    assert_eq!(outcome.total().requests(), 0);
}

#[test]
fn timed_requests_are_all_sent_and_their_lateness_is_known() {
    let house = House::plain();
    let mut records = requests(8, 300, 1, SIZE);
    for (number, access) in (0u64..).zip(&mut records) {
        // Now and then a step back; and a trace need not begin at 0.
        access.time_ns = 5_000_000_000 + number * 1_000_000 - if number % 7 == 6 { 3_000_000 } else { 0 };
    }
    let targets = vec![target(&house, "a", &[0])];
    let options = Options { pace: Pace::Speed(10.0), verify: true, workers: 4, ..options(targets) };
    let outcome = try_replay(&options, &records).unwrap();
    assert_clean(&outcome, &records);
    assert_eq!(outcome.total().lateness.count(), 300);
    let closed = Options { pace: Pace::Closed, ..options };
    assert_eq!(try_replay(&closed, &records).unwrap().total().lateness.count(), 0);
}

#[test]
fn warming_up_is_not_measured_and_what_is_beyond_the_end_is_brought_in() {
    let house = House::plain();
    let records = requests(9, 1000, 1, 20 * SIZE);
    let targets = vec![target(&house, "a", &[0])];
    let options = Options { warm_up: 400, verify: true, ..options(targets) };
    let Err(ReplayError::Layout(LayoutError::TooSmall { needed_bytes, .. })) = try_replay(&options, &records)
    else {
        panic!("it does not fit")
    };
    assert!((19 * SIZE..=20 * SIZE).contains(&needed_bytes));
    let outcome = try_replay(&Options { wrap: true, ..options.clone() }, &records).unwrap();
    assert!(outcome.is_clean(), "{:?}", outcome.complaints);
    let total = outcome.total();
    assert_eq!(total.requests(), 600);
    assert_eq!(total.reads.latency.count() + total.writes.latency.count(), 600);
    assert!(total.wrapped > 500 && total.wrapped < 600);
    let all_warm = Options { wrap: true, warm_up: 1000, ..options };
    let outcome = try_replay(&all_warm, &records).unwrap();
    assert_eq!((outcome.total().requests(), outcome.elapsed), (0, Duration::ZERO));
}

#[test]
fn a_replay_that_is_stopped_tells_what_it_has_done() {
    let house = House::plain();
    let records = requests(10, 100_000, 1, SIZE);
    let mut survey = Survey::default();
    records.iter().for_each(|access| survey.add(access));
    let taken = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&taken);
    let trace = records.iter().map(move |access| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok::<_, Infallible>(*access)
    });
    let options = options(vec![target(&house, "a", &[0])]);
    let mut told = 0;
    let stop = || taken.load(Ordering::Relaxed) > 1000;
    let outcome = replay::run(&options, &survey, trace, &mut |done| told = done, &stop).unwrap();
    assert_eq!(outcome.end, End::Stopped);
    assert!(
        outcome.is_clean() && outcome.total().requests() == told && (1000..2000).contains(&told),
        "{told}"
    );
}

#[test]
fn who_cannot_be_had_is_named() {
    let house = House::plain();
    let nobody = "nbd+unix:///a?socket=/nonexistent/socket".parse().unwrap();
    let records = requests(11, 10, 1, SIZE);
    for (uri, wanted) in [
        (nobody, "is the server running?"),
        (uri(&house.tcp, "c"), "no such export"),
        (uri(&house.tcp, &"c".repeat(5000)), "more than the 4096 bytes"),
    ] {
        let options = options(vec![Target { uri: NbdUri::clone(&uri), volumes: vec![0] }]);
        let words = try_replay(&options, &records).unwrap_err().to_string();
        assert!(words.contains(&uri.to_string()) && words.contains(wanted), "{words}");
    }
}

#[test]
fn a_trace_that_breaks_off_is_told() {
    let house = House::plain();
    let records = requests(12, 10, 1, SIZE);
    let mut survey = Survey::default();
    records.iter().for_each(|access| survey.add(access));
    let bad = std::io::Error::other("line 11 is broken");
    let trace = records.iter().map(|access| Ok(*access)).chain([Err(bad)]);
    let options = options(vec![target(&house, "a", &[0])]);
    let error = replay::run(&options, &survey, trace, &mut |_| {}, &|| false).unwrap_err();
    assert!(matches!(&error, ReplayError::Trace(_)) && error.to_string() == "line 11 is broken");
}
