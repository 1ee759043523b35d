//! Tests of the shared parts: flushes and their waiters, what is clean and from when, what is lost.

use super::*;
use crate::disks::Task;
use crate::engine::test_engine::{ask, asker, engine, told};
use crate::engine::{Engine, op};

const UNIT: u64 = UNIT_BYTES;

/// The units that tests write.
fn all() -> Vec<Range<u64>> {
    std::iter::once(0..4).collect()
}

/// Four units are in the cache, and dirty.
fn write(engine: &mut Engine) {
    let mut buffer = engine.shared.pool.lend(4 * UNIT as usize);
    buffer.fill(7);
    ask(engine, Task::Write(buffer), 0..4 * UNIT);
    while !engine.is_idle() {
        engine.pump();
    }
    assert_eq!(engine.dirty_bytes(), 4 * UNIT);
}

/// The flush of the store that was begun has ended so.
fn flushed(shared: &mut Shared, result: Result<(), BackingError>, session: u64) {
    assert!(shared.volumes.collect(), "a flush was begun");
    let token = shared.volumes.answered().unwrap().token;
    let Some(Io::Flush { volume: 0, act }) = shared.device.owner(token) else { panic!("it is a flush") };
    shared.store_flushed(0, act, result, session);
    shared.flush_store(0);
}

#[test]
fn a_flush_of_nothing_is_done_at_once_and_one_of_what_the_store_has_taken_when_that_is_flushed() {
    let (mut engine, _) = engine(Mode::WriteThrough, false);
    let shared = &mut engine.shared;
    flushed_all(shared);
    shared.begin_flush(asker(1), 0, false);
    assert_eq!(told(shared), [(1, true)]);
    let session = shared.volumes[0].backing.session();
    shared.volumes[0].flushing.wrote(session);
    shared.begin_flush(asker(2), 0, false);
    // The flush that runs is for this one too; what is written from now on waits for the next.
    shared.begin_flush(asker(3), 0, false);
    shared.volumes[0].flushing.wrote(session);
    shared.begin_flush(asker(4), 0, false);
    assert_eq!(told(shared), []);
    flushed(shared, Ok(()), session);
    assert_eq!(told(shared), [(2, true), (3, true)]);
    flushed(shared, Ok(()), session);
    assert_eq!(told(shared), [(4, true)]);
}

#[test]
fn a_flush_of_what_the_log_has_does_not_wait_while_the_store_is_flushed_for_the_cleaner() {
    let (mut engine, _) = engine(Mode::WriteBack, true);
    flushed_all(&mut engine.shared);
    write(&mut engine);
    engine.shared.begin_flush(asker(1), 0, false);
    while told(&mut engine.shared).is_empty() {
        engine.pump();
    }
    let shared = &mut engine.shared;
    let act = shared.write_back.cleaner_mut().begin_flush(shared.volumes[0].number).unwrap();
    shared.begin_store_flush(0, act);
    shared.begin_flush(asker(2), 0, false);
    assert_eq!(told(shared), [(2, true)]);
}

/// The flush with which service begins is over.
fn flushed_all(shared: &mut Shared) {
    while shared.volumes[0].flushing.needed().is_some() {
        let session = shared.volumes[0].backing.session();
        if !shared.volumes.collect() {
            shared.volumes[0].flushing.want(1);
            shared.flush_store(0);
            continue;
        }
        let token = shared.volumes.answered().unwrap().token;
        let Some(Io::Flush { act, .. }) = shared.device.owner(token) else { panic!("it is a flush") };
        shared.store_flushed(0, act, Ok(()), session);
    }
}

#[test]
fn a_flush_that_fails_or_of_another_session_is_told_to_those_who_wait_for_it() {
    for (result, later) in [(Err(BackingError::Failed("away".to_owned())), 0), (Ok(()), 1)] {
        let (mut engine, _) = engine(Mode::WriteThrough, false);
        let shared = &mut engine.shared;
        flushed_all(shared);
        let session = shared.volumes[0].backing.session();
        shared.volumes[0].flushing.wrote(session);
        shared.begin_flush(asker(1), 0, false);
        flushed(shared, result, session + later);
        assert_eq!(told(shared), [(1, false)]);
    }
}

#[test]
fn a_write_that_was_lost_is_told_to_the_next_flush_once_and_to_no_write() {
    let (mut engine, _) = engine(Mode::WriteBack, false);
    let shared = &mut engine.shared;
    flushed_all(shared);
    let lost = shared.volumes[0].flushing.lose(&(Errno::Io, "the cache".to_owned()));
    assert!(lost.is_empty(), "no flush waits");
    shared.begin_flush(asker(1), 0, true);
    shared.begin_flush(asker(2), 0, false);
    shared.begin_flush(asker(3), 0, false);
    assert_eq!(told(shared), [(1, true), (2, false), (3, true)]);
}

#[test]
fn a_flush_of_a_cache_that_is_not_kept_waits_until_the_store_has_all_that_is_dirty() {
    for kept in [false, true] {
        let (mut engine, store) = engine(Mode::WriteBack, kept);
        write(&mut engine);
        engine.shared.begin_flush(asker(1), 0, false);
        assert_eq!(told(&mut engine.shared), []);
        let mut told_of = Vec::new();
        for _ in 0..100 {
            engine.pump();
            told_of.extend(told(&mut engine.shared));
        }
        assert_eq!(told_of, [(1, true)]);
        assert_eq!(
            (store.with_bytes(|bytes| bytes[0]), engine.dirty_bytes() > 0),
            if kept { (0, true) } else { (7, false) }
        );
    }
}

#[test]
fn what_the_store_has_is_clean_at_once_or_when_the_log_says_so_durably() {
    for kept in [false, true] {
        let (mut engine, _) = engine(Mode::WriteBack, kept);
        write(&mut engine);
        // The store has it: no other operation may write it back.
        engine.shared.write_back.cleaner_mut().lost(engine.shared.volumes[0].number, 0..4);
        assert_eq!(engine.shared.note_clean(0, all()), !kept);
        assert_eq!(engine.dirty_bytes(), if kept { 4 * UNIT } else { 0 });
        engine.pump();
        assert_eq!(engine.dirty_bytes(), 0);
    }
}

#[test]
fn what_is_dirty_again_when_the_log_says_that_it_is_clean_stays_dirty() {
    let (mut engine, _) = engine(Mode::WriteBack, true);
    write(&mut engine);
    // The cleaner knows that the store lacks it still.
    assert!(!engine.shared.note_clean(0, all()));
    engine.pump();
    assert_eq!(engine.dirty_bytes(), 4 * UNIT);
}

#[test]
fn what_is_dropped_is_fetched_anew_and_what_is_lost_is_an_error() {
    let (mut engine, store) = engine(Mode::WriteBack, false);
    store.with_bytes(|bytes| bytes.fill(1));
    assert_eq!(ask(&mut engine, Task::Read, 0..UNIT)[0], 1);
    write(&mut engine);
    let shared = &mut engine.shared;
    let parts = shared.dirty_parts(0, &all());
    assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>(), 4 * UNIT);
    assert!(shared.is_marked(0, &(0..UNIT)) && !shared.is_marked(0, &(4 * UNIT..5 * UNIT)));
    let first = Part { bytes: UNIT, ..parts[0] };
    shared.lose_parts(0, &[first]);
    assert_eq!(shared.volumes[0].counts.poisoned_units, 1);
    assert_eq!(shared.dirty_parts(0, &all()).iter().map(|part| part.bytes).sum::<u64>(), 3 * UNIT);
    let second = Part { offset: UNIT, at: first.at + UNIT, bytes: UNIT };
    shared.forget_parts(0, &[second]);
    assert!(!shared.is_marked(0, &(UNIT..2 * UNIT)));
    assert_eq!(shared.write_back.cleaner().standing(shared.volumes[0].number).dirty_bytes, 3 * UNIT);
    assert_eq!(ask(&mut engine, Task::Read, UNIT..2 * UNIT)[0], 1, "the store's");
}

#[test]
fn what_was_lost_is_written_into_both_where_writes_go_past_the_cache() {
    let (mut engine, _) = engine(Mode::WriteBack, false);
    write(&mut engine);
    let shared = &mut engine.shared;
    shared.volumes[0].mode = Mode::WriteAround;
    let op = |unit: u64| Op { kind: op::Kind::Write, offset: unit * UNIT, bytes: UNIT, ..Op::default() };
    assert_eq!(shared.mode_for(&op(0)), Mode::WriteAround);
    let mut parts = Vec::new();
    shared.extents.visit(shared.volumes[0].number, 0..UNIT, |part, _| parts.push(part));
    shared.lose_parts(0, &parts);
    assert_eq!((shared.mode_for(&op(0)), shared.mode_for(&op(1))), (Mode::WriteThrough, Mode::WriteAround));
}

#[test]
fn clients_are_told_of_a_stores_error_by_what_it_is() {
    let errnos = [
        BackingError::OutOfRange { offset: 0, end: 1, size_bytes: 0 },
        BackingError::ReadOnly,
        BackingError::Full,
        BackingError::Failed("away".to_owned()),
    ];
    let told = errnos.map(|error| failure(&error).0);
    assert_eq!(told, [Errno::Inval, Errno::Perm, Errno::NoSpc, Errno::Io]);
}
