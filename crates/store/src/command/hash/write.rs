//! Hash commands that set and remove fields.

use super::super::context::Context;
use super::super::refusal::{Outcome, Refusal, wrong_arity};
use super::{build, find, open, open_mut, put, shrink};
use crate::engine::Change as Noted;
use crate::hash::{self, Ttl};
use crate::resp::Args;

/// The fields and values behind the key.
fn pairs<'a>(
    args: Args<'a>,
    name: &str,
) -> Result<impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone + use<'a>, Refusal> {
    if !args.len().is_multiple_of(2) {
        return Err(wrong_arity(name));
    }
    let arg = move |at| args.get(at).unwrap_or_default();
    Ok((2..args.len()).step_by(2).map(move |at| (arg(at), arg(at + 1))))
}

pub(in super::super) fn hset(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let pairs = pairs(args, "hset")?;
    let added = put(context.engine, context.session.db, &args[1], pairs, Ttl::Clear)?;
    context.reply().integer(added as i64);
    Ok(())
}

pub(in super::super) fn hmset(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let pairs = pairs(args, "hmset")?;
    put(context.engine, context.session.db, &args[1], pairs, Ttl::Clear)?;
    context.reply().ok();
    Ok(())
}

pub(in super::super) fn hsetnx(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let db = context.session.db;
    let there = match open(context.engine, db, &args[1])? {
        Some(item) => find(context.engine, item, &args[2])?.is_some(),
        None => false,
    };
    if !there {
        let pair = std::iter::once((&args[2], &args[3]));
        put(context.engine, db, &args[1], pair, Ttl::Clear)?;
    }
    context.reply().integer(i64::from(!there));
    Ok(())
}

pub(in super::super) fn hdel(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (db, now_ms) = (context.session.db, context.engine.clock_ms());
    let mut removed = 0;
    if let Some(blob) = open_mut(context.engine, db, &args[1], 0)? {
        for name in args.iter_from(2) {
            removed += i64::from(hash::remove(blob, now_ms, name)?);
        }
        if removed > 0 {
            context.engine.changes().note(Noted::Changed, db, &args[1]);
        }
        shrink(context.engine, db, &args[1])?;
    }
    context.reply().integer(removed);
    Ok(())
}

/// Changes a field that is there and may get longer: in place, or with `bytes` more of room.
pub(super) fn change_or_grow<T>(
    context: &mut Context<'_>,
    key: &[u8],
    bytes: usize,
    change: impl Fn(&mut [u8]) -> Result<Option<T>, hash::Broken>,
) -> Result<Option<T>, Refusal> {
    let db = context.session.db;
    let Some(blob) = open_mut(context.engine, db, key, bytes)? else { return Ok(None) };
    match change(blob)? {
        Some(changed) => Ok(Some(changed)),
        None => build(context.engine, db, key, 0, bytes, change),
    }
}
