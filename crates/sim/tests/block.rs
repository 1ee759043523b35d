//! The block cache on real slices: golden counts, counts that must follow from each other, and the gain of choosing block sizes
//! by observation.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::path::Path;

use tiermem_base::{Access, Op, Rng};
use tiermem_policy::evict::Named;
use tiermem_policy::extents::admission::AdmissionRules;
use tiermem_policy::extents::cleaner::{CleanerRules, OrderCounts, WriteBackOrder};
use tiermem_policy::extents::{Fill, Mode, Observation, Sizing};
use tiermem_sim::block::{BlockError, BlockTraceError, Costs, Counts, Setup, Troubles, run, working_sets};

const KIB: u64 = 1 << 10;
const ADAPTIVE: [u64; 4] = [32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB];
const SLICES: [&str; 2] = ["cloudPhysicsIO-20k.vscsi.zst", "msr-slice-rw20-10k.trace.zst"];

fn slice(name: &str) -> Vec<Access> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/testdata").join(name);
    tiermem_trace::open(path.to_str().unwrap()).unwrap().collect::<Result<_, _>>().unwrap()
}

fn setup(sizes: &[u64], fill: Fill, sizing: Sizing, capacity_bytes: u64) -> Setup {
    Setup {
        sizes_bytes: sizes.to_vec(),
        group_bytes: None,
        fill,
        sizing,
        mode: Mode::WriteBack,
        admission: AdmissionRules::default(),
        cleaning: None,
        flush_every: None,
        troubles: Troubles::default(),
        quotas: Vec::new(),
        memory_bytes: 0,
        policy: Named::Lru,
        capacity_bytes,
        costs: Costs::default(),
    }
}

fn simulate(records: &[Access], setups: Vec<Setup>) -> Vec<Counts> {
    let caches: Vec<_> = setups.into_iter().map(|setup| (setup, None)).collect();
    let outcomes = run(records, &caches, 0, 0, 2, &|| false, &|_| ());
    let sum =
        |volumes: Vec<(u32, Counts)>| volumes.iter().fold(Counts::default(), |sum, (_, one)| sum.plus(one));
    outcomes.into_iter().map(|outcome| sum(outcome.unwrap())).collect()
}

/// A tenth of the working set, but room for some groups.
fn tenth(records: &[Access]) -> u64 {
    (working_sets(records).values().sum::<u64>() / 10).max(2 << 20)
}

#[test]
fn counts_on_real_slices() {
    let mut found = String::from(
        "trace,blocks,fill,read_hits,write_hits,core_read,core_written,cache_read,cache_written\n",
    );
    for name in SLICES {
        let records = slice(name);
        let mut setups = Vec::new();
        for sizes in [&ADAPTIVE[..1], &ADAPTIVE[1..2], &ADAPTIVE[3..], &ADAPTIVE] {
            for fill in [Fill::Whole, Fill::Units] {
                setups.push(setup(sizes, fill, Sizing::Request, tenth(&records)));
            }
        }
        for (setup, counts) in setups.clone().iter().zip(simulate(&records, setups)) {
            let sizes: Vec<_> = setup.sizes_bytes.iter().map(|size| (size / KIB).to_string()).collect();
            let fill = if setup.fill == Fill::Whole { "whole" } else { "units" };
            let Counts { read_hits, write_hits, core_read_bytes, core_written_bytes, .. } = counts;
            let (read, written) = (counts.cache_read_bytes, counts.cache_written_bytes);
            found += &format!(
                "{name},{},{fill},{read_hits},{write_hits},{core_read_bytes},{core_written_bytes},{read},{written}\n",
                sizes.join("+")
            );
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/block.csv");
    let expected = std::fs::read_to_string(&path).unwrap();
    assert!(found == expected, "{} says otherwise; found:\n{found}", path.display());
}

#[test]
fn what_is_moved_adds_up() {
    for name in SLICES {
        let records = slice(name);
        for fill in [Fill::Whole, Fill::Units] {
            let capacity = tenth(&records);
            let counts = simulate(&records, vec![setup(&ADAPTIVE, fill, Sizing::Request, capacity)])[0];
            assert_eq!(counts.reads + counts.writes, records.len() as u64);
            assert_eq!(counts.read_hits + counts.write_hits + counts.missed_requests, records.len() as u64);
            // What is written back was written to the cache once, and read there again.
            assert!(counts.core_written_bytes <= counts.cache_written_bytes);
            assert!(counts.core_written_bytes <= counts.cache_read_bytes);
            // What is fetched lands in the cache.
            assert!(counts.core_read_bytes <= counts.cache_written_bytes);
            if fill == Fill::Whole {
                // Nothing is fetched but for a block, and no block is fetched twice.
                assert!(counts.core_read_bytes <= counts.allocated_bytes);
            } else {
                // No more than the units that requests touch.
                let touched: u64 = records
                    .iter()
                    .map(|record| {
                        let end = (record.key + u64::from(record.size)).next_multiple_of(4 * KIB);
                        end - record.key / (4 * KIB) * (4 * KIB)
                    })
                    .sum();
                assert!(
                    counts.core_read_bytes + counts.cache_read_bytes <= touched + counts.core_written_bytes
                );
            }
        }
    }
}

#[test]
fn a_cache_that_holds_everything_misses_each_piece_once() {
    for name in SLICES {
        let records = slice(name);
        let counts = simulate(&records, vec![setup(&[32 * KIB], Fill::Whole, Sizing::Request, 4 << 30)])[0];
        let mut seen = std::collections::BTreeSet::new();
        let mut hits = 0;
        for record in &records {
            let (first, last) =
                (record.key / (32 * KIB), (record.key + u64::from(record.size) - 1) / (32 * KIB));
            let new = (first..=last).filter(|piece| seen.insert((record.tenant, *piece))).count();
            hits += u64::from(new == 0);
        }
        assert_eq!(counts.read_hits + counts.write_hits, hits);
        assert_eq!(counts.allocated_blocks, seen.len() as u64);
    }
}

#[test]
fn volumes_with_a_cache_each_know_nothing_of_each_other() {
    // Every third request is another volume's.
    let number = |(at, record): (usize, Access)| Access { tenant: (at % 3) as u32, ..record };
    let records: Vec<_> = slice(SLICES[1]).into_iter().enumerate().map(number).collect();
    let volumes: Vec<u32> = working_sets(&records).into_keys().collect();
    assert_eq!(volumes, [0, 1, 2]);
    let one = setup(&ADAPTIVE, Fill::Whole, Sizing::Request, 2 << 20);
    let apart: Vec<_> = volumes.iter().map(|volume| (one.clone(), Some(*volume))).collect();
    let together = run(&records, &apart, 0, 0, 2, &|| false, &|_| ());
    for (volume, outcome) in volumes.iter().zip(together) {
        let mut own = records.clone();
        own.retain(|record| record.tenant == *volume);
        assert_eq!(outcome.unwrap()[0].1, simulate_one(&own, &one));
    }
}

fn simulate_one(records: &[Access], setup: &Setup) -> Counts {
    run(records, &[(setup.clone(), None)], 0, 0, 1, &|| false, &|_| ()).remove(0).unwrap()[0].1
}

fn observed() -> Sizing {
    Sizing::Observed(Observation::default())
}

/// What choosing goes by: requests to the backing store, and bytes.
fn price(counts: &Counts) -> f64 {
    let bytes = (counts.core_read_bytes + counts.core_written_bytes) as f64;
    counts.core_reads as f64 * 1e6 + bytes / 1024.0 * 820.0
}

#[test]
fn observation_never_loses_to_the_published_rule_nor_its_hits_to_the_largest_block() {
    for name in SLICES {
        let records = slice(name);
        let capacity = tenth(&records);
        let counts = simulate(
            &records,
            vec![
                setup(&ADAPTIVE, Fill::Units, observed(), capacity),
                setup(&ADAPTIVE, Fill::Units, Sizing::Request, capacity),
                setup(&ADAPTIVE, Fill::Whole, Sizing::Request, capacity),
                setup(&ADAPTIVE[3..], Fill::Whole, Sizing::Request, capacity),
            ],
        );
        let [observed, units, whole, largest] = counts[..] else { unreachable!() };
        assert!(price(&observed) <= price(&units).min(price(&whole)), "{name}");
        assert!(observed.read_hits as f64 >= 0.9 * largest.read_hits as f64, "{name}");
        assert!(observed.write_hits as f64 >= 0.9 * largest.write_hits as f64, "{name}");
        assert!(
            observed.core_read_bytes + observed.core_written_bytes
                <= largest.core_read_bytes + largest.core_written_bytes,
            "{name}"
        );
    }
}

#[test]
fn observation_reads_around_where_neighbours_are_asked_for_and_only_there() {
    let small = |key: u64| Access::new(0, Op::Read, key, 4096);
    let ascending: Vec<_> = (0..50_000).map(|at| small(at * 4096)).collect();
    let mut rng = Rng::seeded(5);
    let scattered: Vec<_> = (0..50_000).map(|_| small(rng.below(1 << 28) * 4096)).collect();
    let capacity = 64 << 20;
    let both = |records: &[Access]| {
        let setups =
            [observed(), Sizing::Request].map(|sizing| setup(&ADAPTIVE, Fill::Units, sizing, capacity));
        simulate(records, setups.to_vec())
    };
    let counts = both(&ascending);
    assert_eq!(counts[1].read_hits, 0, "each unit is asked for once");
    assert!(counts[0].read_hits > 45_000, "{} hits", counts[0].read_hits);
    let counts = both(&scattered);
    assert!(counts[0].core_read_bytes as f64 <= 1.02 * counts[1].core_read_bytes as f64);
}

#[test]
fn what_is_no_trace_of_blocks_is_refused() {
    let one = setup(&ADAPTIVE, Fill::Units, Sizing::Request, 4 << 20);
    let outcome =
        |records: &[Access]| run(records, &[(one.clone(), None)], 0, 0, 1, &|| false, &|_| ()).remove(0);
    let read = Access::new(0, Op::Read, 0, 4096);
    let get = Access::get(0, 1, 100);
    let refused = BlockTraceError::Op { record: 2, op: Op::Get };
    assert_eq!(outcome(&[read, get]), Err(BlockError::Trace(refused)));
    let far = Access::new(0, Op::Write, u64::MAX - 10, 4096);
    assert!(matches!(outcome(&[far]), Err(BlockError::Trace(BlockTraceError::TooFar { record: 1, .. }))));
    assert!(matches!(
        run(&[read], &[(Setup { capacity_bytes: 1, ..one.clone() }, None)], 0, 0, 1, &|| false, &|_| ())[0],
        Err(BlockError::Geometry(_))
    ));
    assert_eq!(
        run(&[read], &[(one.clone(), None)], 0, 0, 1, &|| true, &|_| ())[0],
        Err(BlockError::Interrupted)
    );
    assert_eq!(outcome(&[Access { size: 0, ..read }]), Ok(Vec::new()), "a request of nothing is none");
}

/// A block read again and again while a long file is read once.
fn hot_block_and_scan() -> Vec<Access> {
    let read = |key, size| Access { op: Op::Read, key, size, ..Access::default() };
    let scan = (0..1000u64).map(|step| (1 << 30) + step * 256 * KIB);
    scan.flat_map(|offset| {
        [read(offset / 5 % (8 << 20) / (64 * KIB) * (64 * KIB), 4096), read(offset, 256 << 10)]
    })
    .collect()
}

#[test]
fn long_streams_are_kept_out_and_counted() {
    let records = hot_block_and_scan();
    let open = setup(&ADAPTIVE, Fill::Units, Sizing::Request, 16 << 20);
    let cutoff = AdmissionRules { sequential_cutoff_bytes: Some(8 << 20), promote_after: 1 };
    let seldom = AdmissionRules { sequential_cutoff_bytes: None, promote_after: 2 };
    let setups =
        [AdmissionRules::default(), cutoff, seldom].map(|admission| Setup { admission, ..open.clone() });
    let counts = simulate(&records, setups.to_vec());
    assert_eq!(counts[0].bypassed_reads, 0);
    for kept_out in &counts[1..] {
        assert!(kept_out.bypassed_reads > 800 && kept_out.bypassed_reads < 1200);
        assert!(kept_out.read_hits > counts[0].read_hits);
        // Nothing is read from the store that need not be.
        assert!(kept_out.core_read_bytes <= counts[0].core_read_bytes);
        assert!(kept_out.cache_written_bytes < counts[0].cache_written_bytes / 4);
    }
}

/// A small write every millisecond, each to another block, and none ever again.
fn steady_writes(count: u64, every_ns: u64) -> Vec<Access> {
    let write = |step| Access::new(step * every_ns, Op::Write, step * 64 * KIB, 16 << 10);
    (0..count).map(write).collect()
}

fn cleaned(setup: &Setup, cleaning: CleanerRules) -> Setup {
    Setup { cleaning: Some(cleaning), ..setup.clone() }
}

#[test]
fn writes_wait_only_where_the_cleaner_is_too_slow() {
    let one = setup(&[64 * KIB], Fill::Units, Sizing::Request, 16 << 20);
    let soon = CleanerRules { age_ns: 50_000_000, ..CleanerRules::default() };
    let slow = simulate(&steady_writes(2000, 1_000_000), vec![one.clone(), cleaned(&one, soon)]);
    // All but the blocks that fill the cache drive a dirty one out.
    assert_eq!((slow[0].waited_requests, slow[1].waited_requests), (2000 - 256, 0));
    assert_eq!(slow[0].core_written_bytes, slow[1].core_written_bytes);
    assert!(slow[1].write_latency_ns < slow[0].write_latency_ns / 10);
    assert!(slow[1].dirty_at_end_bytes < slow[0].dirty_at_end_bytes);
    // Sixteen megabytes in a millisecond.
    let fast = simulate(&steady_writes(2000, 1000), vec![cleaned(&one, soon)]);
    assert!(fast[0].waited_requests > 0);
    assert_eq!(fast[0].core_written_bytes, slow[0].core_written_bytes);
}

#[test]
fn what_is_overwritten_before_it_is_old_is_written_back_once() {
    let mut records = steady_writes(64, 1_000_000);
    let again: Vec<_> =
        records.iter().map(|one| Access { time_ns: one.time_ns + 64_000_000, ..*one }).collect();
    records.extend(again);
    let one = setup(&[64 * KIB], Fill::Units, Sizing::Request, 64 << 20);
    let late = CleanerRules { age_ns: 1_000_000_000, ..CleanerRules::default() };
    let soon = CleanerRules { age_ns: 1_000_000, ..CleanerRules::default() };
    let counts = simulate(&records, vec![cleaned(&one, late), cleaned(&one, soon)]);
    assert_eq!(
        counts.iter().map(|one| one.core_written_bytes / KIB).collect::<Vec<_>>(),
        [64 * 16, 2 * 64 * 16]
    );
}

#[test]
fn the_background_cleaner_agrees_with_the_cache_on_real_slices() {
    for name in SLICES {
        // Ten requests a second, and as fast as can be; two volumes.
        for every_ns in [100_000_000, 1000] {
            let number = |(at, record): (usize, Access)| Access {
                tenant: (at % 2) as u32,
                time_ns: at as u64 * every_ns,
                ..record
            };
            let records: Vec<_> = slice(name).into_iter().enumerate().map(number).collect();
            for fill in [Fill::Whole, Fill::Units] {
                let one = setup(&ADAPTIVE, fill, Sizing::Request, tenth(&records));
                let both = simulate(&records, vec![one.clone(), cleaned(&one, CleanerRules::default())]);
                assert_eq!((both[0].reads, both[0].writes), (both[1].reads, both[1].writes));
                // A block that is dirty as a whole is written back as a whole, whatever was written of it.
                assert!(fill == Fill::Whole || both[1].core_written_bytes <= both[1].cache_written_bytes);
                assert!(both[1].core_written_bytes >= both[1].dirty_at_end_bytes);
                assert!(both[1].waited_requests <= both[0].waited_requests);
                assert_eq!(both[0].bypassed_reads, 0);
            }
        }
    }
}

/// Two hundred writes, of which the second half overwrites what the first wrote.
fn written_twice() -> Vec<Access> {
    let again = |one: &Access| Access { time_ns: one.time_ns + 100_000_000, ..*one };
    let first = steady_writes(100, 1_000_000);
    first.iter().copied().chain(first.iter().map(again)).collect()
}

fn in_order(order: WriteBackOrder, flush_every: Option<u64>) -> Setup {
    let one = setup(&[64 * KIB], Fill::Units, Sizing::Request, 64 << 20);
    let rules = CleanerRules { order, age_ns: 50_000_000, ..CleanerRules::default() };
    Setup { flush_every, ..cleaned(&one, rules) }
}

#[test]
fn flushes_come_after_so_many_writes_and_cost_what_their_order_asks_for() {
    let orders = [WriteBackOrder::Group, WriteBackOrder::Flush, WriteBackOrder::None];
    let setups: Vec<_> = orders.map(|order| in_order(order, Some(8))).to_vec();
    let counts = simulate(&written_twice(), setups.clone());
    for (setup, counts) in setups.iter().zip(&counts) {
        let mut by_hand = Setup { flush_every: None, ..setup.clone() }.build(0).unwrap();
        for records in written_twice().chunks(8) {
            by_hand.run(records).unwrap();
            by_hand.flush(0, records[records.len() - 1].time_ns).unwrap();
        }
        assert_eq!(by_hand.finish()[0].1, *counts);
    }
    let [group, strict, none] = counts.iter().map(|counts| counts.order).collect::<Vec<_>>()[..] else {
        unreachable!()
    };
    // What is younger than 50 ms stays at the end.
    assert!(strict.store_flushes >= 150 / 8, "one for each: {strict:?}");
    assert!(group.groups > 1 && group.store_flushes < strict.store_flushes / 2, "{group:?}");
    assert_eq!((strict.groups, strict.merges, none.groups, none.copies_out), (0, 0, 0, 0));
    // The trace's first half alone.
    let warm =
        |warm_up| run(&written_twice(), &[(setups[1].clone(), None)], warm_up, 0, 1, &|| false, &|_| ());
    let [all, second] = [0, 100].map(|warm_up| warm(warm_up).remove(0).unwrap()[0].1.order.store_flushes);
    assert!(second < all, "{second} of {all}");
}

/// More of it than leaves at a time, then a write over what has not left.
#[test]
fn what_a_group_needs_is_copied_out_before_it_is_overwritten() {
    let mut records = steady_writes(800, 1000);
    let last = records[799];
    records.push(Access { time_ns: 60_000_000, ..last });
    let setup = Setup {
        costs: Costs { core_latency_ns: 100_000_000, ..Costs::default() },
        ..in_order(WriteBackOrder::Group, Some(800))
    };
    let counts = simulate(&records, vec![setup]);
    let expected = OrderCounts { copies_out: 1, copied_out_bytes: 16 * KIB, ..counts[0].order };
    assert_eq!((counts[0].order, counts[0].waited_requests), (expected, 0));
}
