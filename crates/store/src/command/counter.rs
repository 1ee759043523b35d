//! Counters: strings that are numbers (`INCR`, `INCRBYFLOAT` and relatives).

use crate::engine::{Condition, Expiry};
use crate::resp::{Args, parse_i64};

use super::context::Context;
use super::long_double::{Extended, Parsed};
use super::refusal::{Outcome, Refusal};
use super::string::string;

pub(super) fn incr(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    add(context, &args[1], 1)
}

pub(super) fn decr(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    add(context, &args[1], -1)
}

pub(super) fn incrby(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let by = parse_i64(&args[2]).ok_or(Refusal::NOT_AN_INTEGER)?;
    add(context, &args[1], by)
}

pub(super) fn decrby(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let by = parse_i64(&args[2]).ok_or(Refusal::NOT_AN_INTEGER)?;
    let by = by.checked_neg().ok_or(Refusal::Text("ERR decrement would overflow"))?;
    add(context, &args[1], by)
}

fn add(context: &mut Context<'_>, key: &[u8], by: i64) -> Outcome {
    let db = context.session.db;
    let old = match string(context.engine.peek(db, key))? {
        Some(text) => parse_i64(text).ok_or(Refusal::NOT_AN_INTEGER)?,
        None => 0,
    };
    let new = old.checked_add(by).ok_or(Refusal::Text("ERR increment or decrement would overflow"))?;
    let mut text = itoa::Buffer::new();
    context.engine.set(db, key, text.format(new).as_bytes(), Condition::Always, Expiry::Keep)?;
    context.reply().integer(new);
    Ok(())
}

const NOT_A_FLOAT: Refusal = Refusal::Text("ERR value is not a valid float");

pub(super) fn incrbyfloat(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (db, key) = (context.session.db, &args[1]);
    let old = match string(context.engine.peek(db, key))? {
        Some(text) => Extended::parse(text).ok_or(NOT_A_FLOAT)?,
        None => Parsed::Finite(Extended::zero()),
    };
    let by = Extended::parse(&args[2]).ok_or(NOT_A_FLOAT)?;
    let new = match (old, by) {
        (Parsed::Finite(old), Parsed::Finite(by)) => old.plus(&by),
        _ => None,
    };
    let new = new.ok_or(Refusal::Text("ERR increment would produce NaN or Infinity"))?.format();
    context.engine.set(db, key, new.as_bytes(), Condition::Always, Expiry::Keep)?;
    context.reply().bulk(new.as_bytes());
    Ok(())
}
