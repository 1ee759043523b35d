//! The CXL-flash device: invariants on any device under any trace, and single devices with a known answer.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::convert::Infallible;

use proptest::prelude::*;
use tiermem_base::{Access, Op};
use tiermem_sim::cxl_flash::config::{Device, Layers};
use tiermem_sim::cxl_flash::device::{Wishes, simulate};
use tiermem_sim::cxl_flash::hints::Popularity;
use tiermem_sim::cxl_flash::outcome::Outcome;

fn device(settings: &[(&str, &str)]) -> Device {
    let mut layers = Layers::default();
    layers.preset("table6").unwrap();
    layers.set("host.mode", "open").unwrap();
    layers.set("host.outstanding", "4096").unwrap();
    for (key, value) in settings {
        layers.set(key, value).unwrap();
    }
    layers.config().unwrap().device().unwrap()
}

/// In debug builds a run also checks that each request is answered once and that the mapping is consistent.
fn run(device: &Device, trace: &[Access]) -> Outcome {
    let Ok(outcome) =
        simulate(device, Wishes::default(), trace.iter().map(|access| Ok::<_, Infallible>(*access)));
    let counts = &outcome.counts;
    assert_eq!(counts.requests, trace.len() as u64);
    assert_eq!(counts.requests, outcome.latency.len());
    assert_eq!(counts.hits + counts.hits_under_miss + counts.misses, counts.requests);
    // Every line that was sent for came from flash or from the log.
    assert_eq!(counts.flash_reads + counts.log_hits, counts.misses + counts.prefetches);
    // Cleaning follows writes and comes to an end when they do.
    assert!(counts.moves <= 64 * (counts.flash_writes + 64), "{counts:?}");
    assert_eq!(
        counts.answers.latency_ns,
        counts.answers.queue_ns + counts.answers.link_ns + counts.answers.dram_ns + counts.answers.flash_ns
    );
    outcome
}

/// A device so small that a few thousand requests fill it again and again.
const SMALL: [(&str, &str); 12] = [
    ("capacity", "4MiB"),
    ("cache", "256KiB"),
    ("ways", "4"),
    ("flash.channels", "2"),
    ("flash.ways", "2"),
    ("flash.planes", "2"),
    ("flash.pages_per_block", "4"),
    ("flash.over_provisioning", "1"),
    ("flash.write_log", "64KiB"),
    ("mshr.entries", "16"),
    ("flash.queue", "32"),
    ("prefetch.outstanding", "16"),
];

fn small(more: &[(&str, &str)]) -> Device {
    let settings: Vec<_> = SMALL.iter().chain(more).copied().collect();
    device(&settings)
}

fn writes(pages: impl Iterator<Item = u64>) -> Vec<Access> {
    (0u64..).zip(pages).map(|(number, page)| Access::new(number * 100, Op::Store, page * 4096, 64)).collect()
}

#[test]
fn a_miss_takes_link_flash_and_dram_and_a_hit_only_the_first_and_the_last() {
    let device = device(&[("host.link_latency", "100ns"), ("dram.gb_per_s", "64")]);
    let trace = [Access::new(7, Op::Load, 64, 8), Access::new(1_000_000, Op::Load, 128, 8)];
    let one = run(&device, &trace[..1]);
    // Command 290, read 3000, ready 20, 4096 bytes at 1.2 GB/s 3413; fill 4096 and access 64 bytes at 64 GB/s; DRAM 46.
    assert_eq!(one.counts.answers.flash_ns, 290 + 3000 + 20 + 3413);
    assert_eq!(
        (one.counts.answers.dram_ns, one.counts.answers.link_ns, one.counts.answers.queue_ns),
        (64 + 1 + 46, 200, 0)
    );
    let both = run(&device, &trace);
    assert_eq!(both.counts.answers.latency_ns - one.counts.answers.latency_ns, 1 + 46 + 200);
    assert_eq!((both.counts.hits, both.counts.answers.sub_us), (1, 1));
}

#[test]
fn a_device_that_fills_up_is_cleaned_for_ever() {
    for policy in ["greedy", "cost-benefit"] {
        for wear in ["none", "dynamic", "static"] {
            for log in ["0", "64KiB"] {
                let device = small(&[
                    ("cleaning.policy", policy),
                    ("cleaning.wear_levelling", wear),
                    ("cleaning.wear_difference", "4"),
                    ("write_log", log),
                ]);
                // Most writes go to an eighth of the capacity, in an order without neighbours.
                let page = |n: u64| if n.is_multiple_of(8) { n * 7919 % 1024 } else { n * 7919 % 128 };
                let outcome = run(&device, &writes((0..30_000).map(page)));
                let counts = &outcome.counts;
                assert!(counts.erases > 500, "{policy} {wear} {log}: {counts:?}");
                assert!(
                    (1.0..4.0).contains(&counts.write_amplification()),
                    "{policy} {wear} {log}: {counts:?}"
                );
            }
        }
    }
}

#[test]
fn static_wear_levelling_keeps_blocks_alike() {
    let spread = |kind| {
        let device = small(&[("cleaning.wear_levelling", kind), ("cleaning.wear_difference", "4")]);
        let (most, least) = run(&device, &writes((0..40_000).map(|n| n * 61 % 128))).wear;
        most - least
    };
    let (none, leveled) = (spread("none"), spread("static"));
    assert!(leveled < none / 2, "{leveled} against {none}");
}

#[test]
fn without_registers_reads_repeat_and_with_them_they_do_not() {
    let trace: Vec<Access> = (0..64).map(|n| Access::new(n * 10, Op::Load, n * 64, 8)).collect();
    let with = run(&device(&[]), &trace).counts;
    assert_eq!((with.flash_reads, with.repeated_reads, with.hits_under_miss), (1, 0, 63));
    let without = run(&device(&[("mshr", "off")]), &trace).counts;
    assert_eq!((without.flash_reads, without.repeated_reads, without.hits_under_miss), (64, 63, 0));
}

#[test]
fn without_a_cache_every_request_reads_and_every_write_writes() {
    let trace: Vec<Access> = (0..1000)
        .map(|n| Access::new(n * 100_000, if n % 4 == 0 { Op::Store } else { Op::Load }, n * 4096 * 3, 8))
        .collect();
    let counts = run(&device(&[("cache", "0"), ("write_log", "0")]), &trace).counts;
    assert_eq!((counts.hits, counts.flash_reads, counts.flash_writes), (0, 1000, 250));
}

#[test]
fn a_closed_loop_is_never_behind_and_goes_as_fast_as_its_window_allows() {
    // Each access to its own page, all at once by the trace's times.
    let trace: Vec<Access> = (0..2000).map(|n| Access::new(0, Op::Load, n * 4096, 8)).collect();
    let run_with = |outstanding: &str| {
        run(&device(&[("host.mode", "closed"), ("host.outstanding", outstanding)]), &trace)
    };
    let (one, many) = (run_with("1"), run_with("64"));
    assert_eq!(one.counts.answers.queue_ns, 0);
    assert!(many.duration_ns * 10 < one.duration_ns, "{} {}", many.duration_ns, one.duration_ns);
    let open = run(&device(&[("host.outstanding", "1")]), &trace);
    // The same work, but the wait counts from the trace's times.
    assert_eq!(open.duration_ns, one.duration_ns);
    assert!(open.counts.answers.queue_ns > 100 * one.counts.answers.latency_ns);
}

#[test]
fn a_paced_host_waits_and_is_later_by_that() {
    let trace: Vec<Access> = (0..100).map(|n| Access::new(n * 100, Op::Load, n * 4096, 8)).collect();
    let paced =
        |outstanding| run(&device(&[("host.mode", "paced"), ("host.outstanding", outstanding)]), &trace);
    // With room for all it is the trace's own pace; with one place the host goes from answer to answer.
    let (all, one) = (paced("4096"), paced("1"));
    assert_eq!((all.sent_span_ns, all.counts.answers.queue_ns), (99 * 100, 0));
    assert_eq!(one.counts.answers.queue_ns, 0);
    let answers_ns = one.counts.answers.latency_ns;
    assert!(
        (answers_ns..answers_ns + 100 * 100).contains(&one.duration_ns),
        "{answers_ns} {}",
        one.duration_ns
    );
}

#[test]
fn fills_and_evictions_take_the_dram_bandwidth_of_a_line() {
    // A page for each request, at a pace that flash without queues could serve but DRAM not: 4 KiB in, 4 KiB out each.
    let device = device(&[
        ("dram.gb_per_s", "1"),
        ("cache", "1MiB"),
        ("flash.channels", "32"),
        ("flash.ways", "32"),
        ("host.mode", "closed"),
    ]);
    let outcome = run(&device, &writes(0..20_000));
    let per_request_ns = outcome.duration_ns as f64 / 20_000.0;
    assert!((8192.0..9500.0).contains(&per_request_ns), "{per_request_ns}");
}

#[test]
fn reads_interrupt_programs_only_where_they_may() {
    let trace: Vec<Access> = (0..20_000u64)
        .map(|n| {
            Access::new(n * 20_000, if n % 2 == 0 { Op::Store } else { Op::Load }, n * 7919 % 900 * 4096, 8)
        })
        .collect();
    let programs = |on| run(&small(&[("flash.suspend_program", on)]), &trace);
    let (off, on) = (programs("off"), programs("on"));
    assert!(on.suspensions > 100, "{}", on.suspensions);
    assert!(on.counts.mean_miss_latency_ns() < off.counts.mean_miss_latency_ns());
}

#[test]
fn what_stops_at_once_is_still_done_only_once() {
    let device = small(&[
        ("flash.suspend_program", "on"),
        ("flash.suspend_program_time", "0ns"),
        ("flash.suspend_erase_time", "0ns"),
        ("cache", "64KiB"),
        ("write_log", "0"),
    ]);
    let mut rng = tiermem_base::Rng::seeded(1);
    let trace: Vec<Access> = (0..40_000u64)
        .map(|n| {
            Access::new(n * 20_000, if n % 3 > 0 { Op::Store } else { Op::Load }, rng.below(1024) * 4096, 8)
        })
        .collect();
    // In debug builds each erase finds an empty block, which one that is done twice does not.
    let outcome = run(&device, &trace);
    assert!(outcome.suspensions > 100 && outcome.counts.erases > 100, "{}", outcome.suspensions);
}

#[test]
fn reads_that_go_first_wait_less() {
    let trace: Vec<Access> = (0..20_000u64)
        .map(|n| {
            Access::new(n * 4000, if n % 2 == 0 { Op::Store } else { Op::Load }, n * 7919 % 900 * 4096, 8)
        })
        .collect();
    let miss_ns = |on| run(&small(&[("flash.read_priority", on)]), &trace).counts.mean_miss_latency_ns();
    assert!(miss_ns("on") < miss_ns("off"), "{} {}", miss_ns("on"), miss_ns("off"));
}

#[test]
fn hints_turn_waiting_into_hits() {
    // Sixteen accesses to a page, then the next, and so on round: each first one misses without a hint.
    let trace: Vec<Access> =
        (0..64_000).map(|n| Access::new(n * 500, Op::Load, n / 16 % 1000 * 4096 + n % 16 * 64, 8)).collect();
    let device = device(&[("cache", "1MiB"), ("hints.probability", "0.2"), ("hints.lead_requests", "48")]);
    let hinted = Popularity::of(&trace, 4096, device.units).top(100.0);
    let records = || trace.iter().map(|access| Ok::<_, Infallible>(*access));
    let Ok(without) = simulate(&device, Wishes::default(), records());
    let Ok(with) = simulate(&device, Wishes { hinted, ..Wishes::default() }, records());
    assert!(with.counts.hints > 1000);
    assert!(with.counts.hits > without.counts.hits + 10_000, "{} {}", with.counts.hits, without.counts.hits);
    assert!(with.counts.hits_under_miss < without.counts.hits_under_miss / 2);
}

#[test]
fn windows_add_up_to_the_whole_and_have_the_answers_of_their_requests() {
    let device = device(&[("prefetch", "next-n")]);
    // The number of requests is one of whole windows, then it is not.
    for requests in [10_000, 10_500] {
        let trace = writes((0..requests).map(|n| n / 3));
        let wishes = Wishes { window: 1000, ..Wishes::default() };
        let Ok(outcome) = simulate(&device, wishes, trace.iter().map(|access| Ok::<_, Infallible>(*access)));
        assert_eq!(outcome.windows.len() as u64, requests.div_ceil(1000));
        let sum = |of: fn(&tiermem_sim::cxl_flash::outcome::Counts) -> u64| {
            (outcome.windows.iter().map(|window| of(&window.counts)).sum::<u64>(), of(&outcome.counts))
        };
        for (parts, whole) in [
            sum(|c| c.requests),
            sum(|c| c.hits),
            sum(|c| c.prefetches),
            sum(|c| c.flash_reads),
            sum(|c| c.flash_writes),
            sum(|c| c.answers.latency_ns),
            sum(|c| c.answers.sub_us),
        ] {
            assert_eq!(parts, whole);
        }
        for (number, window) in outcome.windows.iter().enumerate() {
            assert_eq!(window.start_ns, trace[number * 1000].time_ns);
        }
    }
    // Of an overloaded device the answers come late, and still belong to their requests.
    let trace = writes(0..4000);
    let slow = small(&[("cache", "0"), ("mshr", "off")]);
    let wishes = Wishes { window: 1000, ..Wishes::default() };
    let Ok(outcome) = simulate(&slow, wishes, trace.iter().map(|access| Ok::<_, Infallible>(*access)));
    let means: Vec<u64> = outcome.windows.iter().map(|window| window.counts.answers.latency_ns).collect();
    assert!(means.is_sorted() && means[0] > 0 && means[3] > 2 * means[0], "{means:?}");
}

#[test]
fn the_tightest_device_that_is_accepted_is_never_stuck() {
    // 100, 64 and 40 blocks of data in each of eight planes.
    for (capacity, pages_per_block, page) in
        [("200MiB", "16", "16KiB"), ("32MiB", "4", "16KiB"), ("80MiB", "4", "64KiB"), ("8MiB", "2", "4KiB")]
    {
        let sizes =
            [("flash.pages_per_block", pages_per_block), ("flash.page", page), ("capacity", capacity)];
        let with = |share: f64| {
            let mut layers = Layers::default();
            for (key, value) in SMALL.iter().chain(&sizes) {
                layers.set(key, value).unwrap();
            }
            layers.set("flash.over_provisioning", &share.to_string()).unwrap();
            layers.config().unwrap().device()
        };
        let shares = (1..2000).map(|permille| f64::from(permille) / 1000.0);
        let tightest = shares.map(with).find_map(Result::ok).unwrap();
        let mut rng = tiermem_base::Rng::seeded(1);
        let trace = writes(std::iter::repeat_with(|| rng.below(tightest.units)).take(60_000));
        let outcome = run(&tightest, &trace);
        assert!(outcome.counts.flash_writes > 50_000 && outcome.counts.moves > 0, "{:?}", outcome.counts);
    }
}

#[test]
fn addresses_have_64_bits_and_beyond_the_capacity_they_fold() {
    let device = device(&[("capacity", "64GiB")]);
    let far = 48 << 30;
    let trace = [
        Access::new(0, Op::Load, 0, 8),
        // 4 GiB apart are not the same.
        Access::new(1_000_000, Op::Load, 4 << 30, 8),
        Access::new(2_000_000, Op::Load, far, 8),
        Access::new(3_000_000, Op::Load, far + (64 << 30), 8),
        Access::new(4_000_000, Op::Load, u64::MAX, 8),
    ];
    let counts = run(&device, &trace).counts;
    assert_eq!((counts.misses, counts.hits), (4, 1));
}

#[test]
fn times_and_bandwidths_at_their_ends_are_taken() {
    let trace = [Access::new(0, Op::Load, 0, 8), Access::new(u64::MAX, Op::Store, 4096, 8)];
    assert_eq!(run(&device(&[]), &trace).counts.misses, 2);
    // A link on which requests wait for seconds.
    let ends = [("host.link_gb_per_s", "0.001"), ("dram.gb_per_s", "0.001"), ("host.outstanding", "65536")];
    let slow = device(&ends);
    let counts = run(&slow, &writes((0..100_000).map(|n| n % 4))).counts;
    assert!(counts.per_request(counts.answers.link_ns) > 2e9, "{counts:?}");
    let mut layers = Layers::default();
    layers.set("dram.gb_per_s", "1e-300").unwrap();
    assert!(layers.config().unwrap().device().unwrap_err().to_string().contains("dram.gb_per_s"));
}

fn any_trace() -> impl Strategy<Value = Vec<Access>> {
    let access = (0u64..400, prop::bool::ANY, 0u64..1024, 0u64..64);
    prop::collection::vec(access, 1..1500).prop_map(|accesses| {
        let mut time_ns = 0;
        let mut one = |(gap_ns, write, page, line): (u64, bool, u64, u64)| {
            time_ns += gap_ns;
            Access::new(time_ns, if write { Op::Store } else { Op::Load }, page * 4096 + line * 64, 64)
        };
        accesses.into_iter().map(&mut one).collect()
    })
}

fn any_device() -> impl Strategy<Value = Device> {
    let one_of = |key: &'static str, values: &'static [&'static str]| {
        prop::sample::select(values).prop_map(move |value| (key, value))
    };
    (
        one_of("policy", &["fifo", "random", "lru", "cflru", "s3-fifo", "sieve", "klru", "arc"]),
        one_of("ways", &["1", "4", "full"]),
        one_of("cache", &["0", "256KiB"]),
        one_of("prefetch", &["none", "next-n", "feedback-directed", "best-offset", "leap", "readahead"]),
        one_of("mshr", &["on", "off"]),
        one_of("write_log", &["0", "16KiB", "64KiB"]),
        one_of("flash.suspend_program", &["on", "off"]),
        one_of("host.mode", &["open", "paced", "closed"]),
        one_of("host.outstanding", &["1", "7", "4096"]),
        one_of("cleaning.filled", &["0", "0.5", "1"]),
        (
            one_of("flash.dies", &["1", "2"]),
            one_of("mshr.merges", &["1", "65"]),
            one_of("flash.suspend_program_time", &["0ns", "20us"]),
            one_of("flash.suspend_erase_time", &["0ns", "100us"]),
        ),
    )
        .prop_map(|(a, b, c, d, e, f, g, h, i, j, (k, l, m, n))| {
            // With two dies each plane has half as many blocks, and as many to spare.
            let spare = ("flash.over_provisioning", "1.25");
            small(&[spare, a, b, c, d, e, f, g, h, i, j, k, l, m, n])
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// [`run`] asserts what holds on every device.
    #[test]
    fn any_device_answers_any_trace_and_always_alike(device in any_device(), trace in any_trace()) {
        let (first, second) = (run(&device, &trace), run(&device, &trace));
        prop_assert_eq!(first.counts, second.counts);
        prop_assert_eq!(first.latency, second.latency);
        prop_assert_eq!(first.duration_ns, second.duration_ns);
    }
}
