//! Expiry of hash fields: the commands of Redis 7.4, with its replies.
//!
//! Each replies with an array of one number for each named field: -2 if the field or key does not exist. Setting: 0
//! when the condition does not hold, 1 when the expiry is set, 2 when the time is past and the field was removed.
//! Reading: -1 when the field does not expire. `HPERSIST`: -1 when the field did not expire, 1 when it did.

use super::super::context::Context;
use super::super::refusal::{Outcome, Refusal};
use super::super::set::{Base, Unit, invalid_expire_time};
use super::super::ttl::ms;
use super::write::change_or_grow;
use super::{find, open, open_mut, shrink};
use crate::engine::Change as Noted;
use crate::hash::{self, Change, EXPIRES_MS_MAX};
use crate::resp::{Args, parse_i64};

const NO_FIELD: i64 = -2;
const NO_EXPIRY: i64 = -1;
const CONDITION_FAILED: i64 = 0;
const DONE: i64 = 1;
const REMOVED: i64 = 2;

pub(in super::super) fn hexpire(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    expire(context, args, Unit::Seconds, Base::Now, "hexpire")
}

pub(in super::super) fn hpexpire(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    expire(context, args, Unit::Milliseconds, Base::Now, "hpexpire")
}

pub(in super::super) fn hexpireat(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    expire(context, args, Unit::Seconds, Base::Epoch, "hexpireat")
}

pub(in super::super) fn hpexpireat(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    expire(context, args, Unit::Milliseconds, Base::Epoch, "hpexpireat")
}

/// Under which condition a field gets its expiry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    Absent,
    Present,
    Later,
    Earlier,
}

impl When {
    fn named(word: &[u8]) -> Self {
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        if is(b"nx") {
            When::Absent
        } else if is(b"xx") {
            When::Present
        } else if is(b"gt") {
            When::Later
        } else if is(b"lt") {
            When::Earlier
        } else {
            When::Always
        }
    }

    /// Whether a field that expires at `old` (0: never, which counts as latest) may expire at `new`.
    fn allows(self, old: u64, new: u64) -> bool {
        match self {
            When::Always => true,
            When::Absent => old == 0,
            When::Present => old != 0,
            When::Later => old != 0 && new > old,
            When::Earlier => old == 0 || new < old,
        }
    }
}

/// The place of the first field: behind `FIELDS` at `at` and a number that must be right.
fn fields(args: Args<'_>, at: usize) -> Result<usize, Refusal> {
    if !args.get(at).is_some_and(|word| word.eq_ignore_ascii_case(b"fields")) {
        return Err(Refusal::Text("ERR Mandatory argument FIELDS is missing or not at the right position"));
    }
    let count = args.get(at + 1).and_then(parse_i64).filter(|count| *count > 0);
    let count = count.ok_or(Refusal::Text("ERR Parameter `numFields` should be greater than 0"))?;
    if u64::try_from(count) != Ok(args.len().saturating_sub(at + 2) as u64) {
        return Err(Refusal::Text("ERR The `numfields` parameter must match the number of arguments"));
    }
    Ok(at + 2)
}

/// The moment in ms of the store's time that is meant.
fn resolve(context: &Context<'_>, number: i64, unit: Unit, base: Base, name: &str) -> Result<u64, Refusal> {
    let number = u64::try_from(number).map_err(|_| Refusal::Text("ERR invalid expire time, must be >= 0"))?;
    let ms = match unit {
        Unit::Seconds => number.checked_mul(1000),
        Unit::Milliseconds => Some(number),
    };
    let at = match base {
        Base::Now => ms.and_then(|ms| ms.checked_add(context.engine.clock_ms())),
        Base::Epoch => ms,
    };
    let at = at.filter(|at| *at <= EXPIRES_MS_MAX).ok_or_else(|| invalid_expire_time(name))?;
    Ok(match base {
        Base::Now => at,
        Base::Epoch => {
            context.host.wall_clock.store_ms(at as i64).clamp(0, EXPIRES_MS_MAX as i64).cast_unsigned()
        }
    })
}

fn expire(context: &mut Context<'_>, args: Args<'_>, unit: Unit, base: Base, name: &str) -> Outcome {
    let db = context.session.db;
    // That the key is no hash is said before anything about the arguments.
    open(context.engine, db, &args[1])?;
    let number = parse_i64(&args[2]).ok_or(Refusal::NOT_AN_INTEGER)?;
    let at_ms = resolve(context, number, unit, base, name)?;
    let when = When::named(&args[3]);
    let first = fields(args, if when == When::Always { 3 } else { 4 })?;
    let mut codes = Vec::with_capacity(args.len() - first);
    for field in args.iter_from(first) {
        codes.push(expire_one(context, &args[1], field, at_ms, when)?);
    }
    if codes.contains(&REMOVED) || codes.contains(&DONE) {
        context.engine.changes().note(Noted::Changed, db, &args[1]);
    }
    if codes.contains(&DONE) {
        context.engine.in_place().note_fields(db, &args[1]);
    }
    if codes.contains(&REMOVED) {
        shrink(context.engine, db, &args[1])?;
    }
    reply_all(context, &codes);
    Ok(())
}

fn expire_one(
    context: &mut Context<'_>,
    key: &[u8],
    field: &[u8],
    at_ms: u64,
    when: When,
) -> Result<i64, Refusal> {
    let (db, now_ms) = (context.session.db, context.engine.clock_ms());
    let Some(item) = open(context.engine, db, key)? else { return Ok(NO_FIELD) };
    let Some(found) = find(context.engine, item, field)? else { return Ok(NO_FIELD) };
    if !when.allows(found.expires_ms, at_ms) {
        return Ok(CONDITION_FAILED);
    }
    if at_ms <= now_ms {
        if let Some(blob) = open_mut(context.engine, db, key, 0)? {
            hash::remove(blob, now_ms, field)?;
        }
        return Ok(REMOVED);
    }
    let room = hash::entry_bytes(field.len(), found.value.len(), true);
    let changed = change_or_grow(context, key, room, |blob| {
        let change = hash::set_expiry(blob, now_ms, field, at_ms)?;
        Ok((change != Change::NoRoom).then_some(change))
    })?;
    Ok(if changed == Some(Change::Replaced) { DONE } else { NO_FIELD })
}

pub(in super::super) fn hpersist(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (db, now_ms) = (context.session.db, context.engine.clock_ms());
    open(context.engine, db, &args[1])?;
    let first = fields(args, 2)?;
    let mut codes = Vec::with_capacity(args.len() - first);
    for field in args.iter_from(first) {
        let found = match open(context.engine, db, &args[1])? {
            Some(item) => find(context.engine, item, field)?.map(|field| field.expires_ms),
            None => None,
        };
        codes.push(match found {
            None => NO_FIELD,
            Some(0) => NO_EXPIRY,
            Some(_) => {
                if let Some(blob) = open_mut(context.engine, db, &args[1], 0)? {
                    hash::set_expiry(blob, now_ms, field, 0)?;
                }
                DONE
            }
        });
    }
    if codes.contains(&DONE) {
        context.engine.changes().note(Noted::Changed, db, &args[1]);
    }
    reply_all(context, &codes);
    Ok(())
}

fn reply_all(context: &mut Context<'_>, codes: &[i64]) {
    let mut reply = context.reply();
    reply.array(codes.len());
    codes.iter().for_each(|code| reply.integer(*code));
}

/// Replies with what `show` makes of each field's milliseconds: what is left of them, or Unix time.
fn ask(context: &mut Context<'_>, args: Args<'_>, base: Base, show: fn(u64) -> u64) -> Outcome {
    let item = open(context.engine, context.session.db, &args[1])?;
    let first = fields(args, 2)?;
    let mark = context.output.mark();
    context.reply().array(args.len() - first);
    for field in args.iter_from(first) {
        let found = match item {
            Some(item) => find(context.engine, item, field).map(|found| found.map(|field| field.expires_ms)),
            None => Ok(None),
        };
        let code = match found {
            Ok(None) => NO_FIELD,
            Ok(Some(0)) => NO_EXPIRY,
            Ok(Some(at_ms)) => show(ms(context, at_ms, base)) as i64,
            Err(refusal) => {
                context.output.truncate(mark, context.engine);
                return Err(refusal);
            }
        };
        context.reply().integer(code);
    }
    Ok(())
}

pub(in super::super) fn httl(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    ask(context, args, Base::Now, |left_ms| left_ms.div_ceil(1000))
}

pub(in super::super) fn hpttl(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    ask(context, args, Base::Now, |left_ms| left_ms)
}

pub(in super::super) fn hexpiretime(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    ask(context, args, Base::Epoch, |unix_ms| unix_ms.div_ceil(1000))
}

pub(in super::super) fn hpexpiretime(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    ask(context, args, Base::Epoch, |unix_ms| unix_ms)
}
