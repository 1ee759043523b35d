//! The cleaner, driven by devices that take as long as a test says: its decisions one after the other, and worlds in which stores
//! fail, hang and come back, beside a model of what each store has.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

#[path = "extents_cleaner/groups.rs"]
mod groups;
#[path = "extents_cleaner/no_room.rs"]
mod no_room;
#[path = "extents_cleaner/trims.rs"]
mod trims;
#[path = "extents_cleaner/world.rs"]
mod world;

use proptest::prelude::*;
use tiermem_policy::extents::cleaner::{Act, BATCH_BYTES, CleanerRules, LEAVING_BYTES_MAX, Outcome, Token};
use tiermem_policy::extents::{Mode, Share, UNIT_BYTES, Verdict, Volume};
use world::{KIB, MARKS, MIB, MS, NEVER, S, World, dirty, is_copy, is_send, of};

#[test]
fn what_is_leaving_does_not_count_as_dirty() {
    let mut world = World::new(64 * MIB, 1, 1, MARKS);
    dirty(&mut world, 0, 0..48);
    // The cold end is full of what is dirty, so it is looked at; the marks ask for nothing yet.
    world.clean();
    let cold = 48 * MIB - world.extents.units().dirty_bytes();
    assert_eq!(cold, 0, "16 MiB are free, and that is more than the reserve");
    dirty(&mut world, 0, 48..49);
    // 49 of 64 are above 48; down to 32.
    let mut left = vec![world.step()];
    for _ in 0..40 {
        world.answer_all(false, |_| true);
        left.push(world.step());
    }
    let total: u64 = left.iter().flatten().map(|(_, bytes)| bytes).sum();
    assert_eq!(total, 17 * MIB);
    assert!(
        world.extents.units().dirty_bytes() <= 32 * MIB + 2 * MIB,
        "all but what waits for a flush is clean"
    );
}

#[test]
fn the_volume_that_is_dirty_for_longest_goes_first_and_yields_when_its_store_is_busy() {
    let mut world = World::new(64 * MIB, 3, 1, MARKS);
    world.now_ns = S;
    dirty(&mut world, 2, 0..20);
    world.now_ns = 2 * S;
    dirty(&mut world, 0, 0..20);
    world.now_ns = 3 * S;
    dirty(&mut world, 1, 0..9);
    // 17 MiB are too much: 8 of the oldest, 8 of the next, and the one that is left of the youngest.
    assert_eq!(world.step(), [(0, 8 * MIB), (1, MIB), (2, 8 * MIB)]);
    assert_eq!(world.pending.iter().filter(|act| is_copy(act)).count(), 17, "a megabyte each");
    world.assert_nothing_is_due();
    // One budget for all, and it is spent.
    world.answer_all(false, is_copy);
    world.answer_all(false, is_send);
    assert_eq!(world.step(), []);
}

#[test]
fn a_store_gets_no_more_than_it_may_have_and_the_next_batch_as_one_is_done() {
    let rules = CleanerRules { low_percent: 0, high_percent: 0, ..MARKS };
    let mut world = World::new(64 * MIB, 1, 1, rules);
    dirty(&mut world, 0, 0..20);
    assert_eq!(world.step(), [(0, LEAVING_BYTES_MAX)]);
    world.answer_all(false, is_copy);
    assert_eq!(world.step(), [], "what is sent is on its way still");
    let sent = world.pending.remove(0);
    world.answer(sent, false);
    assert_eq!(world.step(), [(0, BATCH_BYTES)]);
}

#[test]
fn a_store_is_flushed_when_half_a_reserve_is_written_and_not_before() {
    let mut world = World::new(64 * MIB, 1, 1, MARKS);
    dirty(&mut world, 0, 0..49);
    world.step();
    world.answer_all(false, is_copy);
    // The reserve is a sixteenth.
    for (written, flushes) in [(1, 0), (2, 1)] {
        let sent = world.pending.iter().position(is_send).unwrap();
        let sent = world.pending.remove(sent);
        world.answer(sent, false);
        world.step();
        assert_eq!(world.flushes().len(), flushes, "{written} MiB written");
    }
    world.answer_all(false, is_send);
    world.step();
    assert_eq!(world.flushes(), [0], "one at a time");
}

#[test]
fn places_at_the_cold_end_become_clean_however_little_of_them_is_dirty() {
    let mut world = World::new(64 * MIB, 1, 1, MARKS);
    for at in (0..64 * MIB).step_by(64 << 10) {
        world.write(0, at..at + 4 * KIB);
    }
    // A reserve is 64 blocks, of each of which a unit is dirty: half a reserve of dirty bytes is half of all that is cached.
    world.now_ns = S;
    assert_eq!(world.step(), [(0, 64 * 4 * KIB)]);
    world.answer_all(false, is_copy);
    world.answer_all(false, is_send);
    assert_eq!((world.step(), world.flushes()), (vec![], vec![]), "it looks again in a while");
    world.now_ns = world.wake_ns.unwrap();
    assert_eq!((world.step(), world.flushes()), (vec![], vec![0]), "they lack nothing but that");
    world.answer_all(false, |_| true);
    assert_eq!(world.extents.units().dirty_bytes(), 4 * MIB - 64 * 4 * KIB);
    world.step();
    world.assert_nothing_is_due();
}

#[test]
fn the_end_of_an_epoch_is_flushed_before_the_next_leaves() {
    let rules = CleanerRules { low_percent: 0, high_percent: 0, ..MARKS };
    let mut world = World::new(64 * MIB, 1, 1, rules);
    world.write(0, 0..64 * KIB);
    assert_eq!(world.cleaner.close_epoch(Volume(0)), Some(0));
    world.write(0, 128 * KIB..192 * KIB);
    assert_eq!(world.step(), [(0, 64 * KIB)]);
    world.answer_all(false, is_copy);
    assert_eq!(world.step(), []);
    world.answer_all(false, is_send);
    assert_eq!((world.step(), world.flushes()), (vec![], vec![0]));
    world.answer_all(false, |_| true);
    assert!(world.cleaner.is_flushed(Volume(0), 0));
    assert_eq!(world.step(), [(0, 64 * KIB)]);
}

#[test]
fn a_write_that_waits_begins_nothing_while_the_log_has_no_room() {
    let mut world = World::new(64 * MIB, 1, 1, MARKS);
    dirty(&mut world, 0, 0..57);
    assert_eq!(world.ask(0, 57 * MIB..64 * MIB, None), Verdict::Ready);
    world.cleaner.set_log_room(false);
    for has_room in [false, true] {
        world.cleaner.set_log_room(has_room);
        let verdict = world.ask(0, 100 * MIB..101 * MIB, Some(Mode::WriteBack));
        assert_eq!(verdict, Verdict::Clean, "the least recently used is dirty");
        assert_eq!(world.pending.iter().any(is_copy), has_room);
    }
}

#[test]
fn what_is_in_the_way_of_the_cold_end_goes_first() {
    let mut world = World::new(64 * MIB, 1, 1, MARKS);
    world.now_ns = S;
    world.write(0, 0..64 * KIB);
    world.cleaner.close_epoch(Volume(0));
    world.write(0, 64 * KIB..128 * KIB);
    // All of the cache is used, and what was written first is read again.
    for at in (128 * KIB..64 * MIB).step_by(64 << 10) {
        assert_eq!(world.ask(0, at..at + 64 * KIB, None), Verdict::Ready);
    }
    assert_eq!(world.ask(0, 0..64 * KIB, None), Verdict::Ready);
    // The later epoch's block goes next; but what the store must have before that is at the hot end.
    assert_eq!(world.step(), [(0, 64 * KIB)]);
    assert!(matches!(&world.pending[..], [Act::Copy { units, .. }] if *units == (0..16)));
}

#[test]
fn what_is_old_goes_with_all_of_its_volume_and_others_stay() {
    let rules = CleanerRules { age_ns: 10 * S, ..MARKS };
    let mut world = World::new(64 * MIB, 2, 1, rules);
    world.write(0, 0..64 * KIB);
    world.now_ns = S;
    world.write(1, 0..64 * KIB);
    world.now_ns = 9 * S;
    world.write(0, MIB..MIB + 64 * KIB);
    world.clean();
    world.now_ns += 20 * MS;
    world.clean();
    assert_eq!(world.wake_ns, Some(10 * S), "then the first is old");
    world.assert_nothing_is_due();
    world.now_ns = 10 * S;
    assert_eq!(world.step(), [(0, 128 * KIB)]);
    // A clock that is set back changes nothing.
    world.now_ns = 3 * S;
    assert_eq!(world.step(), []);
    world.settle();
    world.write(0, 2 * MIB..2 * MIB + 64 * KIB);
    assert_eq!(world.cleaner.standing(Volume(0)).first_dirty_ns, Some(10 * S));
    world.now_ns = 11 * S;
    assert_eq!(world.step(), [(1, 64 * KIB)]);
}

#[test]
fn what_became_dirty_while_a_store_was_left_alone_goes_with_what_was_due_before() {
    let rules = CleanerRules { age_ns: 10 * S, ..MARKS };
    let mut world = World::new(64 * MIB, 1, 1, rules);
    world.write(0, 0..64 * KIB);
    world.now_ns = 10 * S;
    world.step();
    world.answer_all(false, is_copy);
    world.answer_all(true, is_send);
    assert_eq!(world.step(), [], "the first is due, and its store is left alone");
    world.write(0, MIB..MIB + 64 * KIB);
    assert_eq!(world.step(), []);
    world.now_ns += 100 * MS;
    assert_eq!(world.step(), [(0, 128 * KIB)]);
    world.assert_nothing_is_due();
}

#[test]
fn a_store_that_fails_is_left_alone_for_longer_each_time() {
    let rules = CleanerRules { low_percent: 0, high_percent: 0, ..MARKS };
    let mut world = World::new(64 * MIB, 2, 1, rules);
    dirty(&mut world, 0, 0..2);
    for wait_ms in [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
        assert_eq!(world.step(), [(0, 2 * MIB)]);
        world.answer_all(false, is_copy);
        world.answer_all(true, is_send);
        assert_eq!(world.step(), []);
        // Others go on meanwhile.
        world.write(1, 0..64 * KIB);
        assert_eq!(world.step(), [(1, 64 * KIB)]);
        while world.answer_all(false, of(1)) > 0 {
            world.step();
        }
        world.now_ns += wait_ms * MS - 1;
        assert_eq!(world.step(), [], "{wait_ms} ms");
        world.assert_nothing_is_due();
        world.now_ns += 1;
    }
    world.clean();
    assert_eq!(world.extents.units().dirty_bytes(), 0);
    world.write(0, 0..64 * KIB);
    world.step();
    world.answer_all(false, is_copy);
    world.answer_all(true, is_send);
    let retry_at_ns = world.cleaner.standing(Volume(0)).retry_at_ns;
    assert_eq!(retry_at_ns - world.now_ns, 100 * MS, "a flush that was done begins anew");
}

#[test]
fn a_flush_that_fails_makes_all_dirty_again() {
    let rules = CleanerRules { low_percent: 0, high_percent: 0, ..MARKS };
    let mut world = World::new(64 * MIB, 1, 1, rules);
    dirty(&mut world, 0, 0..1);
    world.step();
    world.answer_all(false, is_copy);
    world.answer_all(false, is_send);
    world.step();
    world.answer_all(true, |_| true);
    let standing = world.cleaner.standing(Volume(0));
    assert_eq!((standing.dirty_bytes, standing.retry_at_ns), (MIB, 100 * MS));
    assert_eq!((world.step(), world.flushes()), (vec![], vec![]));
    world.now_ns = 100 * MS;
    world.clean();
    assert_eq!(world.extents.units().dirty_bytes(), 0);
}

#[test]
fn what_a_lost_session_had_taken_is_sent_again() {
    let rules = CleanerRules { low_percent: 0, high_percent: 0, ..MARKS };
    let mut world = World::new(64 * MIB, 1, 1, rules);
    dirty(&mut world, 0, 0..2);
    world.step();
    world.answer_all(false, is_copy);
    let mut acts = Vec::new();
    for (session, dirty_bytes) in [(0, 0), (7, MIB)] {
        let Act::Send { token, .. } = world.pending.remove(0) else { panic!("two are sent") };
        world.done(token, Outcome::Sent { session }, &mut acts);
        assert_eq!(world.cleaner.standing(Volume(0)).dirty_bytes, dirty_bytes);
    }
    assert_eq!(world.cleaner.standing(Volume(0)).retry_at_ns, 0, "that is no failure");
}

#[test]
fn writers_stop_when_nearly_all_is_dirty() {
    let rules = CleanerRules { high_percent: 255, low_percent: 255, ..MARKS };
    let mut world = World::new(200 * MIB, 1, 1, rules);
    dirty(&mut world, 0, 0..180);
    assert!(world.may_write(0));
    world.write(0, 180 * MIB..180 * MIB + 4 * KIB);
    assert!(!world.may_write(0));
    // A waiting request has 4 MiB on their way, though no mark says so.
    let leaving: u64 = world.step().iter().map(|(_, bytes)| bytes).sum();
    assert!(leaving >= 4 * MIB, "{leaving}");
    world.assert_nothing_is_due();
    world.answer_all(false, is_copy);
    world.answer_all(false, is_send);
    // It is flushed at once, though half a reserve would be more: nothing else is on its way.
    world.step();
    assert_eq!(world.flushes(), [0]);
    world.settle();
    assert!(world.may_write(0));
}

#[test]
fn a_store_that_hangs_stops_the_writes_of_its_own_volume_alone() {
    let mut world = World::new(100 * MIB, 2, 1, MARKS);
    for megabyte in 0..100 {
        if !world.may_write(0) {
            break;
        }
        // Its store never answers.
        if world.ask(0, megabyte * MIB..(megabyte + 1) * MIB, Some(Mode::WriteBack)) != Verdict::Ready {
            break;
        }
        world.step();
        world.answer_all(false, is_copy);
    }
    assert!(world.extents.units().dirty_bytes() >= 90 * MIB);
    world.now_ns += 2 * S;
    for megabyte in 0..300 {
        assert!(world.may_write(1), "megabyte {megabyte}");
        let mut tries = 0;
        while world.ask(1, megabyte * MIB..(megabyte + 1) * MIB, Some(Mode::WriteBack)) != Verdict::Ready {
            world.now_ns += MS;
            world.step();
            world.answer_all(false, of(1));
            tries += 1;
            assert!(tries < 100, "megabyte {megabyte} waits for the other's store");
        }
        world.cleaner.nobody_waits();
    }
    assert!(!world.may_write(0), "it has more than its part");
    // Once its store answers it goes on.
    for _ in 0..100 {
        world.step();
        world.answer_all(false, |_| true);
    }
    assert!(world.may_write(0));
}

#[test]
fn a_write_waits_for_a_store_that_does_well_and_what_it_waits_for_goes_first() {
    let mut world = World::new(16 * MIB, 1, 1, CleanerRules { high_percent: 80, ..MARKS });
    dirty(&mut world, 0, 0..12);
    for megabyte in 12..16 {
        assert_eq!(world.ask(0, megabyte * MIB..(megabyte + 1) * MIB, None), Verdict::Ready);
    }
    // The oldest block is dirty, though its neighbours were used since.
    let before = world.pending.len();
    assert_eq!(world.ask(0, 20 * MIB..20 * MIB + 64 * KIB, Some(Mode::WriteBack)), Verdict::Clean);
    let named: Vec<_> = world.pending[before..].to_vec();
    assert!(matches!(&named[..], [Act::Copy { units, .. }] if *units == (0..16)), "{named:?}");
    // A read does not wait.
    assert_eq!(world.ask(0, 30 * MIB..30 * MIB + 64 * KIB, None), Verdict::Ready);
}

#[test]
fn the_cold_end_is_kept_clean_in_every_share_by_the_clock_and_by_what_is_allocated() {
    let never = CleanerRules { high_percent: 255, low_percent: 255, ..MARKS };
    let mut world = World::new(64 * MIB, 2, 2, never);
    world.extents.shares_mut().assign(Volume(1), Share(1));
    world.extents.shares_mut().set_limit(Share(1), 16 * MIB);
    // Share 1 is full of what is dirty; the cache has room.
    world.now_ns = S;
    dirty(&mut world, 1, 0..16);
    // So much was allocated that it is looked at at once: a sixteenth of what the share may have, not of the cache.
    assert_eq!(world.step(), [(1, MIB)]);
    world.settle();
    world.step();
    world.settle();
    // Something has changed since: a look, after 20 ms.
    world.write(1, 0..64 * KIB);
    assert_eq!(world.step(), []);
    assert_eq!(world.wake_ns, Some(S + 20 * MS));
    world.assert_nothing_is_due();
    world.now_ns = S + 20 * MS;
    assert_eq!(world.step().first().map(|(volume, _)| *volume), Some(1));
    world.settle();
    world.now_ns += 20 * MS;
    world.clean();
    world.now_ns += 20 * MS;
    world.clean();
    assert_eq!(world.wake_ns.filter(|wake_ns| *wake_ns < NEVER), None, "nothing happens any more");
    // A read that found nothing clean has it looked at soon, but not at once.
    world.write(1, 16 * MIB..16 * MIB + 15 * 64 * KIB);
    world.now_ns += 20 * MS;
    world.step();
    let looked_ns = world.now_ns;
    world.ask(1, 40 * MIB..56 * MIB, None);
    world.step();
    assert_eq!(world.wake_ns, Some(looked_ns + MS / 2));
}

#[test]
fn nothing_begins_while_the_log_is_full_and_what_has_begun_goes_on() {
    let rules = CleanerRules { low_percent: 0, high_percent: 0, ..MARKS };
    let mut world = World::new(64 * MIB, 1, 1, rules);
    dirty(&mut world, 0, 0..1);
    world.step();
    dirty(&mut world, 0, 1..2);
    world.cleaner.set_log_room(false);
    world.answer_all(false, is_copy);
    assert_eq!((world.step(), world.wake_ns), (vec![], None));
    world.answer_all(false, is_send);
    assert_eq!((world.step(), world.flushes()), (vec![], vec![]), "what is clean must be noted");
    world.cleaner.set_log_room(true);
    assert_eq!(world.step(), [(0, MIB)]);
}

#[test]
fn who_waits_for_bytes_that_are_lost_tries_again() {
    let mut world = World::new(64 * MIB, 1, 1, MARKS);
    dirty(&mut world, 0, 0..1);
    let through = World::request(0, 0..4 * KIB, Some(Mode::WriteThrough));
    assert_eq!(world.cleaner.may_write(0, &world.extents, &through), Verdict::Clean);
    world.cleaner.lost(Volume(0), 0..MIB / UNIT_BYTES);
    let mut acts = Vec::new();
    world.cleaner.step(0, &world.extents, &mut acts);
    assert_eq!(acts.first(), Some(&Act::Clean { volume: Volume(0), runs: vec![] }), "no flush will tell");
    assert_eq!(world.cleaner.may_write(0, &world.extents, &through), Verdict::Ready);
    acts.clear();
    world.cleaner.step(0, &world.extents, &mut acts);
    assert!(!acts.iter().any(|act| matches!(act, Act::Clean { .. })), "once");
}

#[test]
fn other_modes_wait_until_nothing_is_dirty_and_have_it_written_back() {
    let mut world = World::new(64 * MIB, 1, 1, MARKS);
    dirty(&mut world, 0, 0..1);
    let through = World::request(0, 0..4 * KIB, Some(Mode::WriteThrough));
    assert_eq!(world.cleaner.may_write(0, &world.extents, &through), Verdict::Clean);
    world.clean();
    assert_eq!(world.cleaner.may_write(0, &world.extents, &through), Verdict::Ready);
    world.cleaner.nobody_waits();
    // A mode that changes does the same before any write; so does a caller that wants it.
    dirty(&mut world, 0, 0..1);
    assert_eq!(world.step(), []);
    world.cleaner.drain(Volume(0), true);
    assert_eq!(world.step(), [(0, MIB)]);
    world.settle();
    world.clean();
    world.cleaner.drain(Volume(0), false);
    dirty(&mut world, 0, 0..1);
    let epoch = world.cleaner.close_epoch(Volume(0)).unwrap();
    dirty(&mut world, 0, 1..2);
    world.cleaner.want(Volume(0), epoch);
    world.clean();
    assert_eq!(world.cleaner.standing(Volume(0)).dirty_bytes, MIB, "what came later may wait");
    world.cleaner.close();
    world.clean();
    assert!(world.cleaner.is_settled(Volume(0)));
}

#[test]
fn what_is_not_there_any_more_when_it_is_copied_does_not_go() {
    let rules = CleanerRules { low_percent: 0, high_percent: 0, ..MARKS };
    let mut world = World::new(64 * MIB, 1, 1, rules);
    world.write(0, 0..64 * KIB);
    world.step();
    let Act::Copy { token, units, .. } = world.pending.remove(0) else { panic!("a copy") };
    assert_eq!(units, 0..16);
    let mut acts = Vec::new();
    world.done(token, Outcome::Copied(&[1..4, 4..6, 9..10]), &mut acts);
    let sent: Vec<_> =
        acts.iter().map(|act| if let Act::Send { units, .. } = act { units.clone() } else { 0..0 }).collect();
    assert_eq!(sent, [1..6, 9..10]);
    let standing = world.cleaner.standing(Volume(0));
    assert_eq!((standing.dirty_bytes, standing.leaving_bytes), (0, 6 * UNIT_BYTES));
}

#[test]
#[should_panic(expected = "its outcome")]
fn an_answer_that_nobody_asked_for_is_no_answer() {
    let mut world = World::new(64 * MIB, 1, 1, MARKS);
    world.done(Token(3), Outcome::Failed, &mut Vec::new());
}

/// One thing that happens in a world.
#[derive(Clone, Debug)]
enum Happening {
    Write { volume: u16, block: u64, units: u64 },
    Read { volume: u16, block: u64 },
    Epoch { volume: u16 },
    Answer { at: usize, fails: bool },
    Passes { ms: u64 },
    Log { has_room: bool },
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let one = prop_oneof![
        6 => (0u16..3, 0u64..400, 1u64..33).prop_map(|(volume, block, units)| Happening::Write { volume, block, units }),
        2 => (0u16..3, 0u64..400).prop_map(|(volume, block)| Happening::Read { volume, block }),
        1 => (0u16..3).prop_map(|volume| Happening::Epoch { volume }),
        8 => (any::<prop::sample::Index>(), 0u8..10)
            .prop_map(|(at, fails)| Happening::Answer { at: at.index(1 << 20), fails: fails == 0 }),
        2 => (0u64..40).prop_map(|ms| Happening::Passes { ms }),
        1 => prop_oneof![3 => Just(true), 1 => Just(false)].prop_map(|has_room| Happening::Log { has_room }),
    ];
    prop::collection::vec(one, 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens: what leaves is dirty and leaves once, what becomes clean was taken, nothing is due before the time that was named,
    /// and in the end, once all goes well and time passes, nothing is dirty.
    #[test]
    fn all_of_it_leaves_once_and_in_time(happenings in happenings(), groups in 16u64..200) {
        let rules = CleanerRules { age_ns: S, ..MARKS };
        let mut world = World::new(groups * 64 * KIB, 3, 2, rules);
        world.extents.shares_mut().assign(Volume(1), Share(1));
        world.extents.shares_mut().set_limit(Share(1), groups / 3 * 64 * KIB);
        for happening in happenings {
            match happening {
                Happening::Write { volume, block, units } => {
                    let range = block * 64 * KIB..block * 64 * KIB + units * UNIT_BYTES;
                    let request = World::request(volume, range.clone(), Some(Mode::WriteBack));
                    if world.cleaner.may_write(world.now_ns, &world.extents, &request) == Verdict::Ready
                        && world.ask(volume, range.clone(), Some(Mode::WriteBack)) == Verdict::Ready {
                        let units = range.start / UNIT_BYTES..range.end / UNIT_BYTES;
                        units.for_each(|unit| {
                            world.taken.remove(&(volume, unit));
                        });
                    }
                    world.cleaner.nobody_waits();
                }
                Happening::Read { volume, block } => {
                    let verdict = world.ask(volume, block * 64 * KIB..(block + 1) * 64 * KIB, None);
                    prop_assert_eq!(verdict, Verdict::Ready);
                }
                Happening::Epoch { volume } => drop(world.cleaner.close_epoch(Volume(volume))),
                Happening::Answer { at, fails } if !world.pending.is_empty() => {
                    let at = at % world.pending.len();
                    let act = world.pending.remove(at);
                    world.answer(act, fails);
                }
                Happening::Answer { .. } => {}
                Happening::Passes { ms } => world.now_ns += ms * MS,
                Happening::Log { has_room } => world.cleaner.set_log_room(has_room),
            }
            world.step();
            world.assert_nothing_is_due();
            for volume in 0..3 {
                let standing = world.cleaner.standing(Volume(volume));
                prop_assert!(standing.leaving_bytes < LEAVING_BYTES_MAX + BATCH_BYTES);
                let flushes = world.flushes().into_iter().filter(|of| *of == volume).count();
                prop_assert!(flushes <= 1, "one flush of a store at a time");
            }
            let standings = (0..3).map(|volume| world.cleaner.standing(Volume(volume)));
            let dirty_bytes: u64 = standings.map(|standing| standing.dirty_bytes).sum();
            prop_assert!(dirty_bytes <= world.extents.units().dirty_bytes(), "both know of the same");
        }
        world.cleaner.set_log_room(true);
        let end_ns = world.now_ns + 100 * S;
        while world.extents.units().dirty_bytes() > 0 || !world.pending.is_empty() {
            world.step();
            if world.answer_all(false, |_| true) == 0 {
                let wake_ns = world.wake_ns;
                prop_assert!(wake_ns.is_some_and(|wake_ns| wake_ns > world.now_ns && wake_ns < end_ns), "{wake_ns:?}");
                world.now_ns = wake_ns.unwrap();
            }
        }
    }
}
