//! Tests of one operation by the steps that it returns: when it continues, what it waits for, and what it releases.

use tiermem_policy::extents::Mode;
use tiermem_tier::block::AlignedBuffer;

use super::*;
use crate::disks::Task;
use crate::engine::client_jobs::Job;
use crate::engine::op::{Held, Source};
use crate::engine::test_engine::{ask, asker, engine, told};

const UNIT: u64 = UNIT_BYTES;

/// An operation of a job of its own, that a client asked for under this name.
fn begin(shared: &mut Shared, cookie: u64, kind: Kind, units: std::ops::Range<u64>) -> Op {
    let (offset, bytes) = (units.start * UNIT, (units.end - units.start) * UNIT);
    let buffer = if kind == Kind::Write { shared.pool.lend(bytes as usize) } else { AlignedBuffer::empty() };
    let job = Job { asker: asker(cookie), volume: 0, kind, bytes, durable: false, buffer, offset };
    let job = Some(shared.answers.begin(job, 1));
    Op { job, kind, offset, bytes, ..Op::default() }
}

fn work<'a>(id: u32, op: &'a mut Op, shared: &'a mut Shared) -> Work<'a> {
    Work { id, op, shared }
}

/// A read that admission refused when it was planned, and that tries again: it bypasses the cache.
fn refuse(op: &mut Op) {
    (op.plan.again, op.plan.bypassed) = (true, true);
}

/// Whom the operations under way have called, in order.
fn called(shared: &mut Shared) -> Vec<Ready> {
    shared.ready.drain(..).collect()
}

#[test]
fn an_operation_that_was_woken_for_nothing_does_nothing() {
    let (mut engine, _) = engine(Mode::WriteBack, false);
    let shared = &mut engine.shared;
    let mut op = begin(shared, 1, Kind::Read, 0..1);
    assert_eq!(work(1, &mut op, shared).claim(), After::Waits);
    assert_eq!(called(shared), [Ready::Claim(1)]);
    for stage in [Stage::Parked, Stage::Opening, Stage::Gathering, Stage::Storing] {
        op.stage = stage;
        assert_eq!(work(1, &mut op, shared).try_claims(), After::Waits);
        assert_eq!((op.ios, op.stage), (0, stage));
    }
}

#[test]
fn reads_go_together_and_a_write_waits_until_the_last_of_them_is_over() {
    let (mut engine, _) = engine(Mode::WriteBack, false);
    let shared = &mut engine.shared;
    let mut ops = [(Kind::Read, 1), (Kind::Read, 2), (Kind::Write, 3)]
        .map(|(kind, cookie)| begin(shared, cookie, kind, 0..1));
    // What was fetched before a second reader came is filled by the first alone.
    ops[..2].iter_mut().for_each(refuse);
    for (id, op) in (1..).zip(&mut ops) {
        work(id, op, shared).claim();
    }
    for (id, op) in (1..).zip(&mut ops) {
        assert_eq!(work(id, op, shared).try_claims(), After::Waits);
    }
    assert_eq!(ops.each_ref().map(|op| op.stage), [Stage::Gathering, Stage::Gathering, Stage::Claiming]);
    called(shared);
    for (id, left) in [(1, false), (2, true)] {
        assert_eq!(work(id, &mut ops[id as usize - 1], shared).end(), After::Ends);
        assert_eq!(called(shared), [Ready::Claim(3)]);
        assert_eq!(work(3, &mut ops[2], shared).try_claims(), After::Waits);
        assert_eq!(ops[2].stage != Stage::Claiming, left, "{id} is over");
    }
}

#[test]
fn an_operation_goes_on_when_the_last_of_its_requests_is_done() {
    let (mut engine, _) = engine(Mode::WriteBack, false);
    let shared = &mut engine.shared;
    let mut op = Op { ios: 2, ..Op::default() };
    let failed = |why: &str| (Errno::Io, why.to_owned());
    work(7, &mut op, shared).through_done(Err(failed("first")), 0);
    assert_eq!(called(shared), []);
    work(7, &mut op, shared).through_done(Err(failed("second")), 0);
    assert_eq!(called(shared), [Ready::Stored(7)]);
    assert_eq!(op.failure, Some(failed("first")), "the first failure is told");
}

#[test]
fn who_can_do_nothing_lets_go_and_is_counted_where_it_waits_for_the_cleaner() {
    let (mut engine, _) = engine(Mode::WriteBack, false);
    let shared = &mut engine.shared;
    for (after, parked) in [(After::Parks, 1), (After::Crowds, 1)] {
        let mut op = begin(shared, 1, Kind::Write, 0..1);
        let mut other = begin(shared, 2, Kind::Write, 0..1);
        work(1, &mut op, shared).claim();
        work(2, &mut other, shared).claim();
        let claims = &mut shared.volumes[0].claims;
        assert!(claims.grant(op.claims[0]) && !claims.grant(other.claims[0]));
        called(shared);
        assert_eq!(work(1, &mut op, shared).try_later(after), after);
        assert_eq!((called(shared), op.claims.len()), (vec![Ready::Claim(2)], 0));
        assert_eq!((shared.volumes[0].counts.parked, told(shared)), (parked, vec![]), "nobody is told");
        work(2, &mut other, shared).release_claims();
        called(shared);
    }
}

#[test]
fn an_operation_that_is_over_replies_once_and_gives_all_back() {
    let (mut engine, _) = engine(Mode::WriteBack, false);
    let shared = &mut engine.shared;
    let mut op = begin(shared, 1, Kind::Prefetch, 0..1);
    work(1, &mut op, shared).claim();
    let before = shared.pool.kept_bytes();
    let buffer = AlignedBuffer::zeroed(UNIT as usize);
    let source = Source::Backing;
    op.held.push(Held { range: 0..UNIT, source, buffer, is_good: true, patches: None });
    assert_eq!(work(1, &mut op, shared).end(), After::Ends);
    assert_eq!(told(shared), [(1, true)]);
    assert!(op.held.is_empty() && op.claims.is_empty());
    assert_eq!(shared.pool.kept_bytes() - before, UNIT as usize);
    assert_eq!(work(1, &mut op, shared).end(), After::Ends);
    assert_eq!(told(shared), []);
}

#[test]
fn a_write_whose_log_is_broken_fails_and_leaves_nothing_of_itself() {
    let (mut engine, _) = engine(Mode::WriteBack, true);
    let shared = &mut engine.shared;
    let mut op = begin(shared, 1, Kind::Write, 0..1);
    work(1, &mut op, shared).claim();
    assert_eq!(work(1, &mut op, shared).try_claims(), After::Waits);
    assert!(shared.is_marked(0, &(0..UNIT)), "it is planned");
    assert_eq!(work(1, &mut op, shared).log_failed("the device is gone"), After::Ends);
    assert_eq!(told(shared), [(1, false)]);
    assert!(!shared.is_marked(0, &(0..UNIT)) && op.claims.is_empty());
    assert_eq!(shared.write_back.cleaner().standing(shared.volumes[0].number).dirty_bytes, 0);
}

#[test]
fn what_a_plan_fills_beside_its_range_is_kept_from_others() {
    let (mut engine, _) = engine(Mode::WriteBack, false);
    let shared = &mut engine.shared;
    // A part of a unit is written: the rest of it is fetched and stored with it.
    let mut op = begin(shared, 1, Kind::Read, 2..3);
    work(1, &mut op, shared).claim();
    assert_eq!(work(1, &mut op, shared).try_claims(), After::Waits);
    let filled: Vec<_> =
        op.plan.fill.iter().map(|part| part.offset / UNIT..(part.offset + part.bytes) / UNIT).collect();
    assert_eq!((op.claims.len(), op.stage), (1 + filled.len(), Stage::Gathering));
    assert!(!filled.is_empty());
    let mut other = begin(shared, 2, Kind::Read, 2..3);
    work(2, &mut other, shared).claim();
    assert_eq!(work(2, &mut other, shared).try_claims(), After::Waits);
    assert_eq!(other.stage, Stage::Claiming, "who would read what is not stored yet");
}

#[test]
fn claims_that_are_given_back_call_those_who_waited() {
    let (mut engine, _) = engine(Mode::WriteBack, false);
    let shared = &mut engine.shared;
    let claims = &mut shared.volumes[0].claims;
    let mut op = Op { claims: vec![claims.claim(1, 0..4, true)], ..Op::default() };
    let waiting = claims.claim(2, 2..3, false);
    assert!(claims.grant(op.claims[0]) && !claims.grant(waiting));
    work(1, &mut op, shared).release_claims();
    assert_eq!((op.claims.len(), called(shared)), (0, vec![Ready::Claim(2)]));
    assert!(shared.volumes[0].claims.grant(waiting));
}

#[test]
fn an_operation_goes_on_with_its_plan_when_it_gets_the_rest_of_its_claims() {
    let (mut engine, _) = engine(Mode::WriteBack, false);
    let shared = &mut engine.shared;
    let [mut first, mut second] = [1, 2].map(|cookie| begin(shared, cookie, Kind::Read, 0..1));
    refuse(&mut second);
    work(1, &mut first, shared).claim();
    work(2, &mut second, shared).claim();
    assert_eq!(work(2, &mut second, shared).try_claims(), After::Waits);
    assert_eq!(work(1, &mut first, shared).try_claims(), After::Waits);
    let stages = (first.stage, second.stage);
    assert_eq!((stages, first.claims.len()), ((Stage::Claiming, Stage::Gathering), 2), "the other reads yet");
    assert_eq!(work(2, &mut second, shared).end(), After::Ends);
    assert_eq!(work(1, &mut first, shared).try_claims(), After::Waits);
    assert_eq!((first.stage, first.claims.len()), (Stage::Gathering, 2));
    assert!(
        !first.plan.hit && first.plan.fill.len() == 1,
        "it is not planned anew, when its units count as there"
    );
}

#[test]
fn a_read_whose_bytes_leave_dram_while_it_waits_does_not_take_older_ones_from_the_cache() {
    let (mut engine, _) = engine(Mode::WriteBack, false);
    let mut buffer = engine.shared.pool.lend(UNIT as usize);
    buffer.fill(7);
    ask(&mut engine, Task::Write(buffer), 0..UNIT);
    let shared = &mut engine.shared;
    // The cache's device has not taken the next write: that is in DRAM until the store has it.
    let at = shared.dirty_parts(0, &units(0..1))[0].at / UNIT;
    shared.unstored.keep(at, 0, &[8; UNIT as usize]);
    let copy = Op { kind: Kind::Copy, offset: UNIT, bytes: UNIT, ..Op::default() };
    let mut ops = [copy, begin(shared, 2, Kind::Read, 0..2)];
    for (id, op) in (1..).zip(&mut ops) {
        work(id, op, shared).claim();
        assert_eq!(work(id, op, shared).try_claims(), After::Waits);
    }
    // What it is to fill is being copied.
    let own = &mut ops[1];
    assert_eq!((own.stage, own.plan.cached.len(), own.plan.fill.len()), (Stage::Claiming, 1, 1));
    shared.write_back.cleaner_mut().lost(shared.volumes[0].number, 0..1);
    assert!(shared.note_clean(0, units(0..1)) && !shared.unstored.has(&(at..at + 1)));
    work(1, &mut ops[0], shared).end();
    called(shared);
    let own = &mut ops[1];
    assert_eq!(work(2, own, shared).try_claims(), After::Waits);
    assert_eq!((called(shared), own.plan.cached.len()), (vec![Ready::Claim(2)], 0), "it begins anew");
    assert_eq!(work(2, own, shared).try_claims(), After::Waits);
    assert_eq!((own.stage, own.plan.cached.len()), (Stage::Gathering, 0));
    assert_eq!(own.plan.fetch, units(0..2 * UNIT), "the store's");
}

/// One range.
fn units(run: std::ops::Range<u64>) -> Vec<std::ops::Range<u64>> {
    std::iter::once(run).collect()
}
