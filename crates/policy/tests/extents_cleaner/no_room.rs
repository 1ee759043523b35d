//! Stores that have no room for what is written back.

use tiermem_policy::extents::cleaner::{Act, CleanerRules, WriteBackOrder};
use tiermem_policy::extents::{Mode, Verdict, Volume};

use crate::world::{KIB, MARKS, MIB, MS, S, World, dirty, is_copy, is_send, of};

const ORDERS: [WriteBackOrder; 3] = [WriteBackOrder::Group, WriteBackOrder::Flush, WriteBackOrder::None];

/// A small cache that is dirty up to the limit, in front of a store that had no room for any of it.
fn full(order: WriteBackOrder, full_wait_ns: Option<u64>) -> World {
    let mut world = World::new(64 * MIB, 2, 1, CleanerRules { order, full_wait_ns, ..MARKS });
    dirty(&mut world, 0, 0..57);
    refuse(&mut world);
    dirty(&mut world, 0, 57..58);
    assert!(world.extents.units().dirty_bytes() > 64 * MIB * 9 / 10);
    world
}

/// What is due is tried, and the store has no room for it.
fn refuse(world: &mut World) {
    world.step();
    world.answer_all(false, |act| is_copy(act) && of(0)(act));
    world.has_no_room(|act| is_send(act) && of(0)(act));
}

fn may_write(world: &mut World, volume: u16) -> Verdict {
    let request = World::request(volume, 60 * MIB..60 * MIB + 64 * KIB, Some(Mode::WriteBack));
    world.cleaner.may_write(world.now_ns, &world.extents, &request)
}

/// Steps; whether those who wait are to try again.
fn calls(world: &mut World) -> bool {
    let mut acts = Vec::new();
    world.wake_ns = None;
    world.cleaner.step(world.now_ns, &world.extents, &mut acts);
    let called = Act::Clean { volume: Volume(0), runs: Vec::new() };
    let any = acts.contains(&called);
    acts.retain(|act| *act != called);
    world.begin(acts);
    any
}

#[test]
fn writes_go_on_until_much_is_dirty_then_wait_for_a_minute_and_fail() {
    for order in ORDERS {
        let mut world = full(order, Some(60 * S));
        let standing = world.cleaner.standing(Volume(0));
        assert_eq!((standing.full_since_ns, standing.refuses), (Some(0), false), "{order:?}");
        // An hour in which nobody needs the store.
        world.now_ns = 3600 * S;
        refuse(&mut world);
        assert!(!world.cleaner.standing(Volume(0)).refuses, "nobody waits");
        assert_eq!(may_write(&mut world, 0), Verdict::Clean, "{order:?}");
        let first_ns = world.now_ns;
        while world.now_ns < first_ns + 60 * S - 1 {
            refuse(&mut world);
            assert_eq!(may_write(&mut world, 0), Verdict::Clean, "{order:?}");
            let wake_ns = world.wake_ns.unwrap();
            assert!(wake_ns <= first_ns + 60 * S, "it is to be called in time");
            world.now_ns = wake_ns.min(first_ns + 60 * S - 1);
        }
        world.now_ns += 1;
        assert!(calls(&mut world), "those who wait learn of it");
        assert_eq!(may_write(&mut world, 0), Verdict::Full, "{order:?}");
        assert!(!calls(&mut world), "once");
        // The other volume's store is well.
        assert_eq!(may_write(&mut world, 1), Verdict::Ready, "{order:?}");
        // A read that finds no place goes past the cache.
        assert_eq!(world.ask(0, 200 * MIB..201 * MIB, None), Verdict::Ready);
    }
}

#[test]
fn where_writes_are_to_wait_they_wait() {
    let mut world = full(WriteBackOrder::Group, None);
    for _ in 0..100 {
        assert_eq!(may_write(&mut world, 0), Verdict::Clean);
        refuse(&mut world);
        assert!(world.wake_ns.is_some());
        world.now_ns += 30 * S;
    }
    let standing = world.cleaner.standing(Volume(0));
    assert_eq!((standing.full_since_ns, standing.refuses), (Some(0), false));
}

#[test]
fn a_store_that_fails_otherwise_is_waited_for() {
    let mut world = World::new(64 * MIB, 1, 1, MARKS);
    dirty(&mut world, 0, 0..58);
    for _ in 0..100 {
        assert_eq!(may_write(&mut world, 0), Verdict::Clean);
        world.step();
        world.answer_all(false, is_copy);
        world.answer_all(true, is_send);
        world.now_ns += 30 * S;
    }
    assert_eq!(world.cleaner.standing(Volume(0)).full_since_ns, None);
}

#[test]
fn a_store_that_gets_room_is_written_to_again() {
    for order in ORDERS {
        let mut world = full(order, Some(60 * S));
        assert_eq!(may_write(&mut world, 0), Verdict::Clean);
        world.now_ns += 60 * S;
        assert!(calls(&mut world));
        assert_eq!(may_write(&mut world, 0), Verdict::Full);
        // It is tried again and again meanwhile, and takes all.
        world.now_ns += 30 * S;
        world.clean();
        let standing = world.cleaner.standing(Volume(0));
        assert_eq!((may_write(&mut world, 0), standing.refuses), (Verdict::Ready, false), "{order:?}");
        world.cleaner.close();
        world.clean();
        assert_eq!(world.cleaner.standing(Volume(0)).full_since_ns, None, "{order:?}");
    }
}

#[test]
fn a_flush_that_finds_no_room_is_no_room_either() {
    let mut world = World::new(64 * MIB, 1, 1, MARKS);
    dirty(&mut world, 0, 0..58);
    assert_eq!(may_write(&mut world, 0), Verdict::Clean);
    for _ in 0..10 {
        world.step();
        world.answer_all(false, is_copy);
        world.answer_all(false, is_send);
        world.step();
        assert!(!world.flushes().is_empty(), "it has taken all that it was given");
        world.answer_all(false, is_copy);
        world.answer_all(false, is_send);
        world.has_no_room(|act| matches!(act, Act::Flush { .. }));
        assert_eq!(world.cleaner.standing(Volume(0)).full_since_ns, Some(0), "what it takes it may lose");
        world.now_ns = world.cleaner.standing(Volume(0)).retry_at_ns;
    }
    world.now_ns = 60 * S;
    world.step();
    assert_eq!(may_write(&mut world, 0), Verdict::Full);
}

#[test]
fn callers_that_want_all_in_a_store_without_room_wait_no_longer_than_writes() {
    let mut world = World::new(64 * MIB, 1, 1, CleanerRules { order: WriteBackOrder::Group, ..MARKS });
    dirty(&mut world, 0, 0..1);
    let epoch = world.cleaner.close_epoch(Volume(0)).unwrap();
    world.cleaner.want(Volume(0), epoch);
    refuse(&mut world);
    world.now_ns = 60 * S - MS;
    assert!(!calls(&mut world) && !world.cleaner.standing(Volume(0)).refuses);
    world.now_ns = 60 * S;
    assert!(calls(&mut world) && world.cleaner.standing(Volume(0)).refuses);
    assert!(!world.cleaner.is_flushed(Volume(0), epoch), "they failed");
    // Writes over what the group needs find room, and need not wait for anybody.
    refuse(&mut world);
    let over = World::request(0, 0..64 * KIB, Some(Mode::WriteBack));
    assert_eq!(world.cleaner.may_write(world.now_ns, &world.extents, &over), Verdict::Ready);
}
