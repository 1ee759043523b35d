//! A shard over a log whose device answers at any time. Every key that was not removed or evicted is found with the bytes that
//! were written last, in memory or below; nothing that is still needed is written over; and the decisions equal those that were
//! counted when these figures were taken.

mod shard_world;

#[path = "shard_log/counts.rs"]
mod counts;
#[path = "shard_log/restart.rs"]
mod restart;
#[path = "shard_log/world.rs"]
mod world;

use counts::Counts;
use shard_world::PAGE;
use tiermem_policy::ladder::LadderConfig;
use tiermem_policy::log::Admission;
use tiermem_policy::promotion_rule::Promotion;
use tiermem_policy::shard::{LogState, Why};
use world::{World, log_config};

fn config(fast_pages: u64, slow_pages: u64) -> LadderConfig {
    let config = LadderConfig::with_capacities(&[fast_pages * PAGE, slow_pages * PAGE]);
    LadderConfig { charge_metadata: false, promotion: Promotion::ReuseTime, promote_batch: 8, ..config }
}

/// Decisions over all seeds, with a device that answers at once and with one that is late. A change of a decision changes them:
/// make sure that an intended change is for the better, and write down the new figures.
const DECIDED: [(Admission, bool, [u64; 16]); 4] = [
    (Admission::All, false, [47, 105, 0, 6448, 0, 5585, 11658, 21602, 1069, 650, 39, 6879, 47, 181, 17, 30]),
    (Admission::All, true, [34, 111, 0, 6600, 0, 5532, 11735, 19188, 992, 569, 37, 6993, 35, 183, 413, 26]),
    (Admission::Seen, false, [79, 94, 0, 6373, 0, 5608, 11712, 19787, 1107, 609, 37, 6817, 37, 183, 16, 19]),
    (Admission::Seen, true, [52, 109, 0, 6566, 0, 5557, 11683, 18546, 1009, 558, 36, 6989, 32, 179, 440, 24]),
];

#[test]
fn every_key_has_the_bytes_that_were_written_last_wherever_it_lies() {
    let mut decided = DECIDED;
    for (admission, late, row) in &mut decided {
        *row = [0; 16];
        for seed in 0..4 {
            println!("{admission:?}, late: {late}, seed {seed}");
            let mut world = World::new(config(8, 12), *admission, *late, seed);
            world.run(8000);
            let counts = world.counts.row();
            row.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let [evicted, expired, _, stays, _, moves, below @ ..] = *row;
        assert!([evicted, expired, stays, moves].iter().all(|&count| count > 0), "{row:?}");
        let [appended, survived, gone, freed, checkpoints, promoted, _, lapsed, _, read_again] = below;
        let works = [appended, survived, gone, freed, checkpoints, promoted, lapsed];
        assert!(works.iter().all(|&count| count > 0), "{row:?}");
        assert!(!*late || read_again > 0, "something moves while it is read");
    }
    assert_eq!(decided, DECIDED);
}

/// All that has expired leaves without a request, and nothing else does.
#[test]
fn what_has_expired_leaves_while_nobody_asks() {
    let mut world = World::new(config(8, 12), Admission::All, false, 11);
    world.run(500);
    let lasting = world.wanted.values().filter(|wanted| wanted.expires_at_ms.is_none()).count();
    assert!(lasting < world.wanted.len());
    let in_memory = world.shard.ladder().residents().nodes().items_with_expiry();
    assert!(in_memory > 0);
    let evicted = world.counts.left[Why::Evicted as usize];
    world.bytes.now_ms = 1 << 20;
    world.shard.set_clock(1 << 20);
    for _ in 0..64 {
        world.shard.idle();
        world.carry_out();
    }
    assert_eq!(world.shard.ladder().residents().nodes().items_with_expiry(), 0);
    assert_eq!(world.counts.left[Why::Evicted as usize], evicted);
    world.check();
}

/// Parts that cannot be written, and a journal that is full before the checkpoint is complete: a restart finds what the checkpoint
/// before says, or nothing, and in the end all there is.
#[test]
fn checkpoints_that_fail_and_journals_that_overrun_bring_nothing_back() {
    let mut sums = [0; 3];
    for seed in 0..24 {
        println!("seed {seed}");
        let journal_records = [64, 256, 1024][seed as usize % 3];
        let state = LogState::new(log_config(Admission::All, journal_records));
        let mut world = World::over(state, config(8, 12), true, seed);
        world.parts_fail = true;
        world.run(6000);
        let counters = world.shard.log().expect("there is one").checkpoints().counters();
        assert_eq!(counters.completed, world.counts.checkpoints);
        world.parts_fail = false;
        world.run(3000);
        for _ in 0..2000 {
            world.advance();
        }
        // One that failed is tried again when more was written.
        for _ in 0..20 {
            if world.restart.replay().is_none() {
                world.run(200);
                (0..500).for_each(|_| world.advance());
            }
        }
        world.check();
        assert!(world.restart.replay().is_some(), "the last checkpoint was complete");
        let after = [counters.completed, counters.failed, counters.overruns];
        sums.iter_mut().zip(after).for_each(|(sum, count)| *sum += count);
    }
    assert!(sums.iter().all(|&count| count > 5), "completed, failed, overrun: {sums:?}");
}

/// Survived, gone, freed by a log of which most is lent for good; with a device that answers at once, and with one that is late.
const DECIDED_IN_LITTLE_SPACE: [(bool, [u64; 3]); 2] =
    [(false, [44685, 2459, 980]), (true, [39951, 2337, 805])];

/// Survivors wait for space, but not where none can come: then they go.
#[test]
fn the_log_goes_on_though_most_of_it_is_lent_for_good() {
    let mut decided = DECIDED_IN_LITTLE_SPACE;
    for (late, row) in &mut decided {
        let mut state = LogState::new(log_config(Admission::All, 1 << 20));
        // The checkpoint of the life before is large, and no other one follows.
        state.settle(Vec::new(), &(0..17).collect::<Vec<_>>(), 1);
        let mut world = World::over(state, config(8, 12), *late, 12);
        world.run(4000);
        let before = world.counts.freed;
        world.run(4000);
        let Counts { survived, gone, freed, checkpoints, .. } = world.counts;
        assert!(freed > before + 20, "{before} freed before, {freed} after");
        assert!(gone > 100 && checkpoints == 0);
        *row = [survived, gone, freed];
    }
    assert_eq!(decided, DECIDED_IN_LITTLE_SPACE);
}
