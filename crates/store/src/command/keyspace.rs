//! Keyspace commands, for keys of any type: whether keys exist, listing them, removing them.

use crate::engine::{FORESEEN_MAX, ValueKind};
use crate::resp::{Args, Writer, parse_i64};

use super::context::Context;
use super::permit::Sight;
use super::refusal::{Outcome, Refusal};
use super::string::keep_scratch;
use crate::glob;
use crate::shards::merge::split_cursor;

/// `SCAN` never visits more keys than this in one call; `COUNT` is a wish.
pub(super) const SCAN_COUNT_MAX: u64 = 10_000;
pub(super) const SCAN_COUNT_DEFAULT: u64 = 10;

/// Replies with how many of the keys `holds` says yes to.
fn count(
    context: &mut Context<'_>,
    args: Args<'_>,
    mut holds: impl FnMut(&mut Context<'_>, &[u8]) -> bool,
) -> Outcome {
    if args.len() > FORESEEN_MAX {
        context.host.timing.mark_long();
    }
    let mut found = 0;
    for key in args.iter_from(1) {
        found += i64::from(holds(context, key));
    }
    context.reply().integer(found);
    Ok(())
}

pub(super) fn del(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    count(context, args, |context, key| context.engine.remove(context.session.db, key))
}

pub(super) fn exists(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    count(context, args, |context, key| context.engine.peek(context.session.db, key).is_some())
}

pub(super) fn touch(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    count(context, args, |context, key| context.engine.get(context.session.db, key).is_some())
}

pub(super) fn type_of(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let kind = context.engine.peek(context.session.db, &args[1]).map(|hit| hit.kind);
    context.reply().simple(kind.map_or("none", ValueKind::name));
    Ok(())
}

pub(super) fn dbsize(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let keys = context.engine.len(context.session.db);
    context.reply().integer(keys as i64);
    Ok(())
}

pub(super) fn flushdb(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let db = context.session.db;
    flush(context, args, Some(db))
}

pub(super) fn flushall(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    flush(context, args, None)
}

/// `SYNC` and `ASYNC` are both taken: removing is a matter of giving regions back, there is nothing to put off.
fn flush(context: &mut Context<'_>, args: Args<'_>, db: Option<u8>) -> Outcome {
    match args.get(1) {
        None => {}
        Some(mode) if args.len() == 2 && is_flush_mode(mode) => {}
        Some(_) => return Err(Refusal::SYNTAX),
    }
    context.host.timing.mark_long();
    context.engine.flush(db);
    context.reply().ok();
    Ok(())
}

fn is_flush_mode(mode: &[u8]) -> bool {
    mode.eq_ignore_ascii_case(b"sync") || mode.eq_ignore_ascii_case(b"async")
}

/// A cursor is any unsigned number; Redis reads it with `strtoul`, which takes a sign, and nothing for 0.
pub(super) fn parse_cursor(text: &[u8]) -> Option<u64> {
    match text {
        [] => Some(0),
        [b'+', digits @ ..] => crate::resp::parse_u64_digits(digits),
        [b'-', digits @ ..] => crate::resp::parse_u64_digits(digits).map(u64::wrapping_neg),
        digits => crate::resp::parse_u64_digits(digits),
    }
}

pub(super) fn scan(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let cursor = parse_cursor(&args[1]).ok_or(Refusal::Text("ERR invalid cursor"))?;
    let (shard, cursor) = split_cursor(cursor);
    // A cursor that no scan has given ends one; the part of it that names the shard is put back on the way to the client.
    let cursor = if shard == context.host.placement().own { cursor } else { u64::MAX };
    let (mut pattern, mut wanted, mut kind) = (None, SCAN_COUNT_DEFAULT, None);
    let mut rest = args.iter_from(2);
    while let Some(option) = rest.next() {
        let value = rest.next().ok_or(Refusal::SYNTAX)?;
        if option.eq_ignore_ascii_case(b"count") {
            let count = parse_i64(value).ok_or(Refusal::NOT_AN_INTEGER)?;
            wanted = u64::try_from(count).ok().filter(|count| *count > 0).ok_or(Refusal::SYNTAX)?;
        } else if option.eq_ignore_ascii_case(b"match") {
            pattern = Some(value);
        } else if option.eq_ignore_ascii_case(b"type") {
            kind = Some(value);
        } else {
            return Err(Refusal::SYNTAX);
        }
    }
    context.host.timing.mark_long();
    let sight = Sight::of(context);
    let db = context.session.db;
    // Length, key, length, key, ...: the engine is borrowed while it visits.
    let mut visited = core::mem::take(&mut context.host.scratch);
    visited.clear();
    let mut found = 0;
    let next =
        context.engine.keyspace().scan(db, cursor, wanted.min(SCAN_COUNT_MAX) as usize, &mut |key, is| {
            let wanted = kind.is_none_or(|kind| kind.eq_ignore_ascii_case(is.name().as_bytes()));
            if wanted && pattern.is_none_or(|pattern| glob::matches(pattern, key, false)) && sight.has(key) {
                visited.extend_from_slice(&(key.len() as u16).to_le_bytes());
                visited.extend_from_slice(key);
                found += 1;
            }
        });
    let Context { session, output, .. } = context;
    let mut reply = Writer::new(output.bytes(), session.version);
    reply.array(2);
    reply.bulk(itoa::Buffer::new().format(next).as_bytes());
    reply.array(found);
    keys(&visited).for_each(|key| reply.bulk(key));
    keep_scratch(context, visited);
    Ok(())
}

/// The keys that `SCAN` noted down.
fn keys(mut noted: &[u8]) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        let (len, rest) = noted.split_first_chunk::<2>()?;
        let (key, rest) = rest.split_at(usize::from(u16::from_le_bytes(*len)));
        noted = rest;
        Some(key)
    })
}

pub(super) fn memory_usage(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut rest = args.iter_from(3);
    while let Some(option) = rest.next() {
        let samples = rest.next().filter(|_| option.eq_ignore_ascii_case(b"samples"));
        let samples = parse_i64(samples.ok_or(Refusal::SYNTAX)?).ok_or(Refusal::NOT_AN_INTEGER)?;
        if samples < 0 {
            return Err(Refusal::SYNTAX);
        }
    }
    match context.engine.keyspace().memory_usage(context.session.db, &args[2]) {
        Some(bytes) => context.reply().integer(bytes as i64),
        None => context.reply().null(),
    }
    Ok(())
}
