//! String commands without expiry options: reading, writing, and ranges of a string.

use crate::engine::{Condition, Engine, Expiry, FORESEEN_MAX, Hit, Holder, StoreError, ValueKind};
use crate::resp::{Args, Writer, parse_i64};

use super::context::Context;
use super::output::{Mark, PIN_BYTES_MIN};
use super::refusal::{Outcome, Refusal, wrong_arity};
use super::session_flags::Mode;
use crate::users::DEFAULT;

/// Redis's own bound on a string, 512 MiB; the engine's is usually lower.
const STRING_BYTES_MAX: u64 = 512 << 20;

/// Replies with `key`'s value or null; whether it was there.
///
/// A large value is pinned and sent from its tier; when the engine or the client has too many bytes pinned already it is
/// copied, and when there is no memory for that ([`crate::host::Host::reply_bytes_max`]) it has no room.
#[inline]
pub(super) fn reply_value(context: &mut Context<'_>, key: &[u8]) -> Result<bool, Refusal> {
    let Context { engine, session, output, host, .. } = context;
    let untouched = session.mode.has(Mode::NO_TOUCH);
    let hit = if untouched { engine.peek(session.db, key) } else { engine.get(session.db, key) };
    let Some(hit) = hit else {
        Writer::new(output.bytes(), session.version).null();
        return Ok(false);
    };
    if hit.kind != ValueKind::String {
        return Err(Refusal::WRONG_TYPE);
    }
    if hit.value.len() < PIN_BYTES_MIN {
        Writer::new(output.bytes(), session.version).bulk(hit.value);
        return Ok(true);
    }
    let (item, len) = (hit.item, hit.value.len());
    let user = session.login.name().map_or(DEFAULT, |name| name);
    let holder = Holder::Client(session.slot, engine.tenants().of_client(session.db, user));
    match engine.pins().pin(item, holder) {
        Some(pin) => {
            Writer::new(output.bytes(), session.version).bulk_header(len);
            output.push_pin(pin);
            output.bytes().extend_from_slice(b"\r\n");
        }
        None if output.uncounted_bytes() + len > host.reply_bytes_max => {
            return Err(Refusal::NoRoom { needs_bytes: output.uncounted_bytes() + len, things: "keys" });
        }
        None => {
            if let Some(hit) = engine.peek(session.db, key) {
                Writer::new(output.bytes(), session.version).bulk_header(len);
                output.push_copy(hit.value);
                output.bytes().extend_from_slice(b"\r\n");
            }
        }
    }
    Ok(true)
}

/// The bytes of a string that was looked up, none without a key; an error where it is something else.
#[inline]
pub(super) fn string(hit: Option<Hit<'_>>) -> Result<Option<&[u8]>, Refusal> {
    match hit {
        Some(hit) if hit.kind != ValueKind::String => Err(Refusal::WRONG_TYPE),
        hit => Ok(hit.map(|hit| hit.value)),
    }
}

pub(super) fn get(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_value(context, &args[1]).map(drop)
}

pub(super) fn getdel(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if reply_value(context, &args[1])? {
        context.engine.remove(context.session.db, &args[1]);
    }
    Ok(())
}

pub(super) fn getset(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mark = context.output.mark();
    reply_value(context, &args[1])?;
    store_or_take_back(context, mark, &args[1], &args[2], Condition::Always, Expiry::Never).map(drop)
}

/// Stores, and when the engine refuses, withdraws the reply already written.
pub(super) fn store_or_take_back(
    context: &mut Context<'_>,
    mark: Mark,
    key: &[u8],
    value: &[u8],
    condition: Condition,
    expiry: Expiry,
) -> Result<bool, Refusal> {
    context.engine.set(context.session.db, key, value, condition, expiry).map_err(|error| {
        context.output.truncate(mark, context.engine);
        error.into()
    })
}

/// What a key adds to a reply of values.
fn value_len(context: &mut Context<'_>, key: &[u8]) -> usize {
    context.engine.peek(context.session.db, key).map_or(0, |hit| hit.value.len())
}

pub(super) fn mget(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() > FORESEEN_MAX {
        context.host.timing.mark_long();
    }
    let mark = context.output.mark();
    context.reply().array(args.len() - 1);
    for (at, key) in args.iter_from(1).enumerate() {
        if at.is_multiple_of(FORESEEN_MAX) {
            context.engine.foresee(context.session.db, args.iter_from(1 + at));
        }
        let limit = context.host.reply_bytes_max;
        let result = match reply_value(context, key) {
            // Counts as missing, as in Redis.
            Err(Refusal::WRONG_TYPE) => {
                context.reply().null();
                Ok(false)
            }
            result => result,
        };
        let bytes = context.output.since(mark);
        if result.is_err() || bytes > limit {
            context.output.truncate(mark, context.engine);
            let rest = result.map_or(at + 1, |_| at + 2);
            let needs_bytes = bytes + args.iter_from(rest).map(|key| value_len(context, key)).sum::<usize>();
            return Err(Refusal::NoRoom { needs_bytes, things: "keys" });
        }
    }
    Ok(())
}

pub(super) fn setnx(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let db = context.session.db;
    let stored = context.engine.set(db, &args[1], &args[2], Condition::IfAbsent, Expiry::Never)?;
    context.reply().integer(i64::from(stored));
    Ok(())
}

/// The keys and values of `MSET` and `MSETNX`, after a check that all of them can be stored at all, so that
/// neither command stops half-way for a reason that was plain before.
fn pairs<'a>(
    engine: &Engine,
    args: Args<'a>,
    name: &str,
) -> Result<impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone + use<'a>, Refusal> {
    if args.len().is_multiple_of(2) {
        return Err(wrong_arity(name));
    }
    let limit_bytes = engine.value_bytes_max();
    for at in (1..args.len()).step_by(2) {
        if args[at].len() > crate::engine::KEY_BYTES_MAX {
            return Err(StoreError::KeyTooLarge.into());
        }
        if args[at + 1].len() > limit_bytes {
            return Err(StoreError::ValueTooLarge { limit_bytes }.into());
        }
    }
    Ok((1..args.len())
        .step_by(2)
        .map(move |at| (args.get(at).unwrap_or_default(), args.get(at + 1).unwrap_or_default())))
}

pub(super) fn mset(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 2 * FORESEEN_MAX {
        context.host.timing.mark_long();
    }
    for (key, value) in pairs(context.engine, args, "mset")? {
        context.engine.set(context.session.db, key, value, Condition::Always, Expiry::Never)?;
    }
    context.reply().ok();
    Ok(())
}

pub(super) fn msetnx(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let db = context.session.db;
    let pairs = pairs(context.engine, args, "msetnx")?;
    if pairs.clone().any(|(key, _)| context.engine.peek(db, key).is_some()) {
        context.reply().integer(0);
        return Ok(());
    }
    for (done, (key, value)) in pairs.clone().enumerate() {
        if let Err(error) = context.engine.set(db, key, value, Condition::Always, Expiry::Never) {
            // All or nothing: none of the keys was there before.
            pairs.clone().take(done).for_each(|(key, _)| {
                context.engine.remove(db, key);
            });
            return Err(error.into());
        }
    }
    context.reply().integer(1);
    Ok(())
}

pub(super) fn append(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let db = context.session.db;
    let mut value = core::mem::take(&mut context.host.scratch);
    value.clear();
    value.extend_from_slice(string(context.engine.peek(db, &args[1]))?.unwrap_or_default());
    value.extend_from_slice(&args[2]);
    let stored = context.engine.set(db, &args[1], &value, Condition::Always, Expiry::Keep);
    let len = value.len();
    keep_scratch(context, value);
    stored?;
    context.reply().integer(len as i64);
    Ok(())
}

/// Gives the scratch memory back to its place, unless it has grown large.
pub(super) fn keep_scratch(context: &mut Context<'_>, scratch: Vec<u8>) {
    if scratch.capacity() <= 1 << 16 {
        context.host.scratch = scratch;
    }
}

pub(super) fn strlen(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let len = string(context.engine.get(context.session.db, &args[1]))?.map_or(0, <[u8]>::len);
    context.reply().integer(len as i64);
    Ok(())
}

pub(super) fn getrange(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let start = parse_i64(&args[2]).ok_or(Refusal::NOT_AN_INTEGER)?;
    let end = parse_i64(&args[3]).ok_or(Refusal::NOT_AN_INTEGER)?;
    let Context { engine, session, output, .. } = context;
    let value = string(engine.get(session.db, &args[1]))?.unwrap_or_default();
    let part = range(value.len(), start, end).map_or(&[][..], |range| &value[range]);
    Writer::new(output.bytes(), session.version).bulk(part);
    Ok(())
}

/// The bytes from `start` to `end`, both counted, from the end when negative.
fn range(len: usize, start: i64, end: i64) -> Option<core::ops::Range<usize>> {
    if start < 0 && end < 0 && start > end {
        return None;
    }
    let len = len as i64;
    let place = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    let (start, end) = (place(start), place(end).min(len - 1));
    (start <= end && len > 0).then(|| start as usize..end as usize + 1)
}

pub(super) fn setrange(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let offset = parse_i64(&args[2]).ok_or(Refusal::NOT_AN_INTEGER)?;
    let offset = u64::try_from(offset).map_err(|_| Refusal::Text("ERR offset is out of range"))?;
    let (db, part) = (context.session.db, &args[3]);
    let old_len = string(context.engine.peek(db, &args[1]))?.map_or(0, <[u8]>::len);
    if part.is_empty() {
        context.reply().integer(old_len as i64);
        return Ok(());
    }
    let end = offset.saturating_add(part.len() as u64);
    if end > STRING_BYTES_MAX {
        return Err(Refusal::Text("ERR string exceeds maximum allowed size (proto-max-bulk-len)"));
    }
    let limit_bytes = context.engine.value_bytes_max();
    if end > limit_bytes as u64 {
        return Err(StoreError::ValueTooLarge { limit_bytes }.into());
    }
    let (offset, end) = (offset as usize, end as usize);
    let mut value = core::mem::take(&mut context.host.scratch);
    value.clear();
    value.extend_from_slice(string(context.engine.peek(db, &args[1]))?.unwrap_or_default());
    value.resize(old_len.max(end), 0);
    value[offset..end].copy_from_slice(part);
    let stored = context.engine.set(db, &args[1], &value, Condition::Always, Expiry::Keep);
    let len = value.len();
    keep_scratch(context, value);
    stored?;
    context.reply().integer(len as i64);
    Ok(())
}
