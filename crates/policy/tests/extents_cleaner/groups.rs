//! Orders in which flushes reach the store: in groups, and in none.

use std::ops::Range;

use tiermem_policy::extents::cleaner::{CleanerRules, LEAVING_BYTES_MAX, OrderCounts, WriteBackOrder};
use tiermem_policy::extents::{Mode, Verdict, Volume};

use crate::world::{KIB, MARKS, MIB, S, World, dirty, is_copy, is_send};

/// A volume whose flushes go in groups, where all is due at once.
fn in_groups() -> World {
    let rules = CleanerRules { order: WriteBackOrder::Group, low_percent: 0, high_percent: 0, ..MARKS };
    World::new(64 * MIB, 1, 1, rules)
}

/// Writes 64 KiB at each place, and a flush is acknowledged after each.
fn flushed_writes(world: &mut World, places: Range<u64>) {
    for place in places {
        world.write(0, place * 64 * KIB..(place + 1) * 64 * KIB);
        world.cleaner.close_epoch(Volume(0));
    }
}

fn may_overwrite(world: &mut World, place: u64) -> Verdict {
    let request = World::request(0, place * 64 * KIB..(place + 1) * 64 * KIB, Some(Mode::WriteBack));
    world.cleaner.may_write(world.now_ns, &world.extents, &request)
}

#[test]
fn all_flushes_that_wait_go_as_one_group_with_one_flush() {
    let mut world = in_groups();
    flushed_writes(&mut world, 0..100);
    assert_eq!(world.cleaner.standing(Volume(0)).whole_since_ns, Some(0));
    assert!(
        (0..100).all(|place| may_overwrite(&mut world, place) == Verdict::Ready),
        "no group is under way"
    );
    world.now_ns = S;
    assert_eq!(world.step(), [(0, 100 * 64 * KIB)]);
    assert_eq!(world.cleaner.standing(Volume(0)).whole_since_ns, None);
    // What comes now waits for the next group.
    flushed_writes(&mut world, 100..200);
    world.answer_all(false, is_copy);
    world.answer_all(false, is_send);
    assert_eq!((world.step(), world.flushes()), (vec![], vec![0]));
    world.answer_all(false, |_| true);
    let standing = world.cleaner.standing(Volume(0));
    assert_eq!((standing.counts.groups, standing.whole_since_ns, standing.counts.merges), (1, Some(S), 0));
    assert!(world.cleaner.is_flushed(Volume(0), 99) && !world.cleaner.is_flushed(Volume(0), 100));
    assert_eq!(world.step(), [(0, LEAVING_BYTES_MAX.min(100 * 64 * KIB))]);
}

#[test]
fn what_a_group_needs_is_copied_before_it_is_overwritten_and_no_write_waits_for_the_store() {
    let mut world = in_groups();
    // More than leaves at a time: the last places are not on their way.
    flushed_writes(&mut world, 0..300);
    assert_eq!(world.step(), [(0, LEAVING_BYTES_MAX)]);
    world.answer_all(false, is_copy);
    assert_eq!(may_overwrite(&mut world, 0), Verdict::Ready, "it is copied");
    assert_eq!(may_overwrite(&mut world, 299), Verdict::Busy);
    assert_eq!(world.step(), [(0, 64 * KIB)], "just that, though the store is busy");
    assert_eq!(may_overwrite(&mut world, 299), Verdict::Busy, "the copy is under way");
    world.answer_all(false, is_copy);
    assert_eq!(may_overwrite(&mut world, 299), Verdict::Ready);
    world.write(0, 299 * 64 * KIB..300 * 64 * KIB);
    assert_eq!(world.cleaner.standing(Volume(0)).counts.groups, 0, "the store has done nothing");
    world.cleaner.close_epoch(Volume(0));
    world.clean();
    let standing = world.cleaner.standing(Volume(0));
    let expected = OrderCounts {
        groups: 2,
        store_flushes: standing.counts.store_flushes,
        copies_out: 1,
        copied_out_bytes: 64 * KIB,
        ..OrderCounts::default()
    };
    assert_eq!(standing.counts, expected);
    assert!(world.cleaner.is_settled(Volume(0)));
}

#[test]
fn a_group_whose_store_hangs_grows_and_is_whole_at_a_later_flush() {
    let mut world = in_groups();
    flushed_writes(&mut world, 0..300);
    world.step();
    world.answer_all(false, is_copy);
    world.now_ns = 2 * S;
    assert_eq!(may_overwrite(&mut world, 299), Verdict::Ready, "it waits for no store that hangs");
    world.write(0, 299 * 64 * KIB..300 * 64 * KIB);
    assert_eq!(world.cleaner.standing(Volume(0)).counts.grown_groups, 1);
    world.clean();
    assert!(world.cleaner.is_settled(Volume(0)), "all is written, the flush that it grew to or not");
    assert!(world.cleaner.standing(Volume(0)).whole_since_ns.is_some());
}

#[test]
fn a_group_takes_in_what_was_written_over_what_waited() {
    let mut world = in_groups();
    flushed_writes(&mut world, 0..2);
    world.write(0, 64 * KIB..128 * KIB);
    assert_eq!(world.step(), [(0, 128 * KIB)], "the flush before cannot be had any more");
    world.settle();
    world.write(0, 128 * KIB..192 * KIB);
    assert_eq!(world.cleaner.close_epoch(Volume(0)), Some(2));
    world.clean();
    assert!(world.cleaner.is_flushed(Volume(0), 2) && world.cleaner.is_settled(Volume(0)));
}

#[test]
fn without_an_order_nothing_waits_for_older_flushes() {
    let rules = CleanerRules { order: WriteBackOrder::None, low_percent: 0, high_percent: 0, ..MARKS };
    let mut world = World::new(64 * MIB, 1, 1, rules);
    flushed_writes(&mut world, 0..300);
    world.step();
    assert!([0, 299].iter().all(|place| may_overwrite(&mut world, *place) == Verdict::Ready));
    world.write(0, 299 * 64 * KIB..300 * 64 * KIB);
    world.clean();
    let standing = world.cleaner.standing(Volume(0));
    assert!(world.cleaner.is_settled(Volume(0)) && standing.whole_since_ns.is_none());
    assert_eq!((standing.counts.groups, standing.counts.copies_out), (0, 0), "it never is an image");
}

#[test]
fn a_group_that_ends_with_a_flush_is_carried_to_its_end_and_an_open_one_is_not() {
    for has_flush in [false, true] {
        let mut world = World::new(64 * MIB, 1, 1, CleanerRules { order: WriteBackOrder::Group, ..MARKS });
        dirty(&mut world, 0, 0..49);
        if has_flush {
            world.cleaner.close_epoch(Volume(0));
        }
        world.clean();
        let standing = world.cleaner.standing(Volume(0));
        let left_bytes = if has_flush { 0 } else { 32 * MIB };
        assert_eq!((standing.dirty_bytes, standing.whole_since_ns.is_some()), (left_bytes, has_flush));
    }
}

#[test]
fn copies_that_are_held_for_the_store_have_a_bound_and_beyond_it_the_group_grows() {
    let rules = CleanerRules { order: WriteBackOrder::Group, low_percent: 0, high_percent: 0, ..MARKS };
    let mut world = World::new(256 * MIB, 1, 1, rules);
    flushed_writes(&mut world, 0..2000);
    world.step();
    let mut copied = 0;
    for place in (0..2000).rev() {
        if may_overwrite(&mut world, place) == Verdict::Ready {
            break;
        }
        world.step();
        world.answer_all(false, is_copy);
        copied += 1;
    }
    assert_eq!(copied * 64 * KIB + LEAVING_BYTES_MAX, 64 * MIB);
    assert_eq!(world.cleaner.standing(Volume(0)).counts.grown_groups, 1);
}
