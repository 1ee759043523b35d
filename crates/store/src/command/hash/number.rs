//! Hash fields that are numbers (`HINCRBY`, `HINCRBYFLOAT`).

use super::super::context::Context;
use super::super::long_double::{Extended, Parsed};
use super::super::refusal::{Outcome, Refusal};
use super::{find, open, put};
use crate::hash::Ttl;
use crate::resp::{Args, parse_i64};

/// The field's value as `read` takes it; `None` without the field.
fn number<T>(
    context: &mut Context<'_>,
    args: Args<'_>,
    read: impl FnOnce(&[u8]) -> Result<T, Refusal>,
) -> Result<Option<T>, Refusal> {
    let Some(item) = open(context.engine, context.session.db, &args[1])? else { return Ok(None) };
    find(context.engine, item, &args[2])?.map(|field| read(field.value)).transpose()
}

/// Stores what the field has become. Its expiry stays.
fn store(context: &mut Context<'_>, args: Args<'_>, text: &[u8]) -> Result<(), Refusal> {
    let pair = std::iter::once((&args[2], text));
    put(context.engine, context.session.db, &args[1], pair, Ttl::Keep).map(drop)
}

pub(in super::super) fn hincrby(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let by = parse_i64(&args[3]).ok_or(Refusal::NOT_AN_INTEGER)?;
    let read = |text: &[u8]| parse_i64(text).ok_or(Refusal::Text("ERR hash value is not an integer"));
    let old = number(context, args, read)?.unwrap_or(0);
    let new = old.checked_add(by).ok_or(Refusal::Text("ERR increment or decrement would overflow"))?;
    store(context, args, itoa::Buffer::new().format(new).as_bytes())?;
    context.reply().integer(new);
    Ok(())
}

pub(in super::super) fn hincrbyfloat(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let by = Extended::parse(&args[3]).ok_or(Refusal::Text("ERR value is not a valid float"))?;
    let Parsed::Finite(by) = by else { return Err(Refusal::Text("ERR value is NaN or Infinity")) };
    let read = |text: &[u8]| Extended::parse(text).ok_or(Refusal::Text("ERR hash value is not a float"));
    let new = match number(context, args, read)?.unwrap_or(Parsed::Finite(Extended::zero())) {
        Parsed::Finite(old) => old.plus(&by),
        Parsed::Infinite => None,
    };
    let new = new.ok_or(Refusal::Text("ERR increment would produce NaN or Infinity"))?.format();
    store(context, args, new.as_bytes())?;
    context.reply().bulk(new.as_bytes());
    Ok(())
}
