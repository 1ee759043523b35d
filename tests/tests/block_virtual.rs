//! Block cache twin in virtual time: the simulator against the live engine with all kinds of cleaning. One
//! clock, devices and stores that complete a request some time after its submission, and every count the same.
//!
//! The live engine runs first. A request is sent at its time in the trace, or later: when fewer than `depth` requests are in flight and none
//! of them touches the same groups of blocks. A request is in flight until its answer, and as long after it as storing what a read brought may
//! take. The simulator then gets the requests at the times at which they were sent.
//!
//! Both hold the blocks of a plan until the work of its request is done, which for a read may be after its answer: blocks of requests under
//! way are not evicted. A request that cannot begin at once is the only one that waits, since the simulator begins nothing else meanwhile:
//! for clean room, for plans in flight that hold all the room there is, for room in the log, or for its bytes to be copied.
//! In the engine, a request that touches the range of another one waits for its claim. The simulator has no claims of requests on each other,
//! so such requests are sent later.
//!
//! Traces have no flushes, no writes that must be durable and no trims. Where a case has flushes, one follows after so many writes to a volume,
//! and nothing is sent until it is acknowledged; the simulator is told when that was, as it has no log. Without them all writes of a volume
//! are one epoch. Trims, and durable writes, are none of it. What all of these do in the engine is checked against a map of acknowledged
//! data (`crates/block/tests/engine.rs`); what the cleaner makes of epochs is checked against an oracle
//! (`crates/policy/tests/extents_epochs.rs`).
//!
//! A persistent cache has a log, the engine's own, and it is full now and then: pages of its table are written
//! slowly, and the log itself in no time, so operations wait only for room. The filling of the log is not
//! simulated. *When* it was full, and how many requests and decisions of the cleaner found room at the moment at which it was
//! filled, is an event that the live engine reports and the simulator is given; both decide what follows from that (which requests
//! wait, what the cleaner leaves, when either continues).
//!
//! One corner is not compared: where so much becomes clean at one moment that the log takes it in several batches, the engine frees the
//! units batch by batch. A request that waits tries again after the first batch, and may find no clean room though the next batch brings
//! it at that very moment. For the cleaner that is one more look at what goes next. The simulator has no batches, and frees all at once.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod block_trace;
#[path = "virtual_time/case.rs"]
mod case;
#[path = "virtual_time/live.rs"]
mod live;
#[path = "virtual_time/log_device.rs"]
mod log_device;
#[path = "virtual_time/told.rs"]
mod told;

use tiermem_policy::evict::Named;
use tiermem_policy::extents::admission::AdmissionRules;
use tiermem_policy::extents::cleaner::{CleanerRules, OrderCounts, WriteBackOrder};
use tiermem_policy::extents::{Fill, Mode, Observation, Sizing};
use tiermem_sim::block::{Costs, Setup, Troubles};

use case::{BLOCK_BYTES, Case, KIB, MIB, MS, S, case, records};
use live::{Ran, live};
use told::Told;

fn simulated(case: &Case, ran: &Ran) -> Vec<Told> {
    let (outages, log_full) = (case.outages.clone(), ran.log_full.clone());
    let setup = Setup {
        sizes_bytes: BLOCK_BYTES.to_vec(),
        group_bytes: None,
        fill: case.fill,
        sizing: case.sizing,
        mode: Mode::WriteBack,
        admission: AdmissionRules::default(),
        cleaning: Some(case.rules),
        flush_every: None,
        troubles: Troubles { outages, log_full, ..Troubles::default() },
        quotas: case.quota_bytes.map(|quota| (2, quota)).into_iter().collect(),
        policy: case.policy,
        memory_bytes: case.memory_bytes,
        capacity_bytes: ran.capacity_bytes,
        costs: Costs {
            core_latency_ns: case.core_ns,
            core_bandwidth: u64::MAX,
            cache_latency_ns: case.cache_ns,
            cache_bandwidth: u64::MAX,
        },
    };
    let mut cache = setup.build(0).unwrap();
    let mut sent = 0;
    for flush in &ran.flushes {
        cache.run(&ran.sent[sent..flush.behind]).unwrap();
        cache.flush(flush.volume, flush.done_ns).unwrap();
        sent = flush.behind;
    }
    cache.run(&ran.sent[sent..]).unwrap();
    let told = |(_, counts)| Told::of_simulated(&counts);
    cache.finish().into_iter().map(told).collect()
}

fn sum(told: &[Told], of: impl Fn(&Told) -> u64) -> u64 {
    told.iter().map(of).sum()
}

/// Both count the same; what the live engine did.
fn agree(case: &Case, trace: &str) -> Ran {
    let records = records(trace, case);
    let ran = live(case, &records);
    let simulated = simulated(case, &ran);
    let live = &ran.told;
    for (volume, (live, simulated)) in live.iter().zip(&simulated).enumerate() {
        assert_eq!(simulated, live, "volume {volume}: {case:?} on {trace}");
    }
    assert!(
        sum(live, |told| told.allocated_bytes) > ran.capacity_bytes,
        "it is full, and blocks go: {live:?}"
    );
    ran
}

const ORDERS: [WriteBackOrder; 3] = [WriteBackOrder::Group, WriteBackOrder::Flush, WriteBackOrder::None];
const AGES_AND_MARKS: [(u64, u8); 3] = [(2 * S, 75), (1000 * S, 30), (20 * MS, 75)];
const TRACES: [&str; 2] = ["cloudPhysicsIO-20k.vscsi.zst", "msr-slice-rw20-10k.trace.zst"];

#[test]
fn cleaning_by_age_and_by_marks_agrees() {
    for trace in TRACES {
        for fill in [Fill::Units, Fill::Whole] {
            for (order, (age_ns, high_percent)) in ORDERS.into_iter().zip(AGES_AND_MARKS) {
                let rules = CleanerRules { order, age_ns, low_percent: 10, high_percent, ..case().rules };
                agree(&Case { fill, rules, ..case() }, trace);
            }
        }
    }
}

#[test]
fn requests_that_come_faster_than_the_stores_take_agree_and_wait() {
    let mut waited = 0;
    for trace in TRACES {
        let rules = CleanerRules { age_ns: 1000 * S, low_percent: 80, high_percent: 90, ..case().rules };
        let told = agree(&Case { rules, every_ns: 0, core_ns: 30 * MS, ..case() }, trace).told;
        waited += sum(&told, |told| told.waited_requests);
    }
    assert!(waited > 0, "somebody waits");
}

#[test]
fn two_shares_agree() {
    for trace in TRACES {
        agree(&Case { quota_bytes: Some(5 * MIB), ..case() }, trace);
    }
}

#[test]
fn a_store_that_fails_and_comes_back_agrees() {
    for trace in TRACES {
        let outages = vec![(1, 5 * S..15 * S), (2, 12 * S..13 * S), (0, 20 * S..20 * S + 50 * MS)];
        for quota_bytes in [None, Some(5 * MIB)] {
            agree(&Case { outages: outages.clone(), quota_bytes, ..case() }, trace);
        }
    }
}

#[test]
fn every_order_of_eviction_agrees() {
    let outages = vec![(1, 5 * S..8 * S)];
    for policy in Named::ALL {
        let case = Case { policy, outages: outages.clone(), quota_bytes: Some(5 * MIB), ..case() };
        agree(&case, TRACES[1]);
    }
}

#[test]
fn copies_in_dram_agree_with_all_of_it_going_on() {
    for trace in TRACES {
        let plain = agree(&case(), trace).told;
        for memory_bytes in [64 * KIB, 2 * MIB, 32 * MIB] {
            let outages = vec![(1, 5 * S..8 * S)];
            let case = Case { memory_bytes, outages, quota_bytes: Some(5 * MIB), ..case() };
            let told = agree(&case, trace).told;
            if memory_bytes == 32 * MIB {
                let reads = |told: &[Told]| sum(told, |told| told.cache_reads);
                assert!(reads(&told) < reads(&plain), "some are spared the device");
            }
        }
    }
}

#[test]
fn a_log_that_is_full_now_and_then_agrees_with_all_of_it_going_on() {
    for trace in TRACES {
        let cases =
            [(Fill::Units, 0, 200 * MS), (Fill::Whole, 2 * MIB, 200 * MS), (Fill::Units, 2 * MIB, 800 * MS)];
        for (fill, memory_bytes, page_ns) in cases {
            let (outages, quota_bytes) = (vec![(1, 5 * S..8 * S)], Some(5 * MIB));
            let case =
                Case { fill, memory_bytes, outages, quota_bytes, log_page_ns: Some(page_ns), ..case() };
            let ran = agree(&case, trace);
            let full = ran.log_full.unwrap_or_default();
            assert!(full.len() > 50, "it is full now and then: {full:?}");
            assert!(ran.log_refusals > full.len() as u64 / 2, "and requests wait for room: {full:?}");
        }
    }
}

/// All of it at once: two shares, three volumes, copies in DRAM, ageing, and outages of several seconds, without a log and with one that is
/// full now and then. In the small cache, requests under way hold all blocks that a write could replace.
#[test]
fn requests_that_are_under_way_at_once_agree() {
    let cases = [
        (4, 24 * MIB, Fill::Units),
        (8, 24 * MIB, Fill::Whole),
        (32, 24 * MIB, Fill::Units),
        (32, 4 * MIB, Fill::Units),
        (32, 4 * MIB, Fill::Whole),
    ];
    for (trace, log_page_ns) in TRACES.iter().flat_map(|trace| [(trace, None), (trace, Some(200 * MS))]) {
        for (depth, cache_bytes, fill) in cases {
            let timing = Case { every_ns: 0, cache_ns: MS, core_ns: 4 * MS, depth, log_page_ns, ..case() };
            let room = Case { cache_bytes, quota_bytes: Some(cache_bytes / 4), memory_bytes: MIB, ..timing };
            let rules = CleanerRules { age_ns: 300 * MS, ..CleanerRules::default() };
            let outages = vec![(1, S / 2..5 * S), (0, 3 * S..7 * S), (2, 6 * S..9 * S)];
            let case = Case { fill, rules, outages, ..room };
            let ran = agree(&case, trace);
            assert_eq!(ran.deepest, depth, "so many are under way at once");
            assert!(
                sum(&ran.told, |told| told.waited_requests) > 0,
                "requests wait until something is clean"
            );
            assert!(ran.write_back_failures > 100, "stores fail");
            if let Some(full) = &ran.log_full {
                assert!(full.len() > 50 && ran.log_refusals > 100, "the log is full now and then: {full:?}");
            }
        }
    }
}

/// Both bodies tell the sizing the same of their requests and of their stores, which are slower than is believed at first; the cleaner of each
/// miniature is behind now and then.
#[test]
fn sizes_by_observation_agree() {
    let mut differ = 0;
    for trace in TRACES {
        let cases = [
            (4 * MS, 1, Fill::Units, None),
            (4 * MS, 1, Fill::Units, Some(200 * MS)),
            (0, 8, Fill::Units, None),
            (0, 8, Fill::Whole, None),
        ];
        for (every_ns, depth, fill, log_page_ns) in cases {
            let outages = vec![(1, 5 * S..8 * S)];
            let room = Case { quota_bytes: Some(6 * MIB), memory_bytes: MIB, outages, ..case() };
            let by_request = Case { every_ns, depth, fill, log_page_ns, core_ns: 20 * MS, ..room };
            let ran = agree(
                &Case { sizing: Sizing::Observed(Observation::default()), ..by_request.clone() },
                trace,
            );
            let blocks = |told: &[Told]| sum(told, |told| told.allocated_blocks);
            differ += usize::from(blocks(&ran.told) != blocks(&simulated(&by_request, &ran)));
        }
    }
    assert!(differ > 4, "other sizes than the requests' are chosen in {differ} cases");
}

/// Sum of what the orders of write-back have counted.
fn order_counts(told: &[Told]) -> OrderCounts {
    told.iter().fold(OrderCounts::default(), |sum, told| sum.plus(&told.order))
}

/// Groups end with flushes while others are dirty, and what they need is copied before it is overwritten; in the strict order writes wait for
/// that, and without an order they do not.
#[test]
fn flushes_agree_in_every_order() {
    for (trace, depth) in TRACES.into_iter().zip([8, 1]) {
        for order in ORDERS {
            // Long groups, of which more is dirty than leaves at a time, and which are overwritten meanwhile.
            let rules =
                CleanerRules { order, age_ns: 1000 * S, low_percent: 5, high_percent: 40, ..case().rules };
            let timing = Case { every_ns: 100_000, depth, core_ns: 300 * MS, log_page_ns: Some(0), ..case() };
            let room = Case { cache_bytes: 64 * MIB, fill: Fill::Whole, ..timing };
            let ran = agree(&Case { rules, flush_every: Some(7), ..room }, trace);
            assert!(ran.flushes.len() > 100, "it is flushed {} times", ran.flushes.len());
            let (counts, waited) = (order_counts(&ran.told), sum(&ran.told, |told| told.waited_requests));
            match order {
                WriteBackOrder::Group => assert!(counts.groups > 5 && counts.copies_out > 0, "{counts:?}"),
                WriteBackOrder::Flush | WriteBackOrder::None => {
                    assert_eq!((counts.groups, counts.copies_out), (0, 0), "{counts:?}");
                }
            }
            assert_eq!(
                waited > 0,
                order == WriteBackOrder::Flush,
                "{waited} wait for the store in {order:?}"
            );
        }
    }
}

/// The same with all of it at once: two shares, copies in DRAM, ageing, outages, whole blocks, and a log that is full now and then.
#[test]
fn flushes_agree_with_all_of_it_going_on() {
    for (trace, (depth, fill, log_page_ns)) in
        TRACES.into_iter().zip([(32, Fill::Units, 200 * MS), (8, Fill::Whole, 200 * MS)])
    {
        for order in ORDERS {
            let rules = CleanerRules { order, age_ns: 300 * MS, ..CleanerRules::default() };
            let outages = vec![(1, S / 2..5 * S), (0, 3 * S..7 * S), (2, 6 * S..9 * S)];
            let timing = Case { every_ns: 0, cache_ns: MS, core_ns: 4 * MS, depth, outages, ..case() };
            let room = Case { quota_bytes: Some(6 * MIB), memory_bytes: MIB, flush_every: Some(5), ..timing };
            let ran = agree(&Case { fill, rules, log_page_ns: Some(log_page_ns), ..room }, trace);
            let counts = order_counts(&ran.told);
            let is_group = order == WriteBackOrder::Group;
            assert!(
                !is_group || counts.groups > 100 && counts.grown_groups > 50 && counts.copies_out > 0,
                "{counts:?}"
            );
            assert!(ran.write_back_failures > 20, "stores fail");
            let full = ran.log_full.unwrap_or_default();
            assert!(full.len() > 50 && ran.log_refusals > 100, "the log is full now and then: {full:?}");
        }
    }
}

/// Young bytes are copied while requests under way write others of the same batch. A write that comes then waits for copies that wait
/// themselves.
#[test]
fn writes_behind_copies_that_wait_agree() {
    let timing = Case { every_ns: 200_000, depth: 8, cache_ns: 5 * MS, core_ns: 30 * MS, ..case() };
    let rules = CleanerRules { age_ns: 20 * MS, low_percent: 80, high_percent: 90, ..case().rules };
    let case = Case { fill: Fill::Whole, rules, policy: Named::Clock2, memory_bytes: 64 * KIB, ..timing };
    for log_page_ns in [None, Some(800 * MS)] {
        agree(&Case { log_page_ns, ..case.clone() }, TRACES[0]);
    }
}
