//! Hash commands that read fields.

use std::collections::BTreeSet;

use tiermem_base::Rng;

use super::super::context::Context;
use super::super::output::Mark;
use super::super::refusal::{Outcome, Refusal};
use super::{find, open, view};
use crate::engine::{Engine, ItemRef};
use crate::hash::{Field, Hash};
use crate::resp::{Args, Version, Writer, parse_i64};

/// Takes a reply back that has grown beyond the limit.
fn check_length(context: &mut Context<'_>, mark: Mark) -> Outcome {
    let limit = context.host.reply_bytes_max;
    let bytes = context.output.since(mark);
    if bytes <= limit {
        return Ok(());
    }
    context.output.truncate(mark, context.engine);
    // How long the rest of it is was not looked at.
    Err(Refusal::NoRoom { needs_bytes: 2 * bytes, things: "fields" })
}

/// Replies with what `reply` makes of the field, or of its absence.
fn with_field(
    context: &mut Context<'_>,
    args: Args<'_>,
    reply: impl FnOnce(Writer<'_>, Option<Field<'_>>),
) -> Outcome {
    let Context { engine, session, output, .. } = context;
    let field = match open(engine, session.db, &args[1])? {
        Some(item) => find(engine, item, &args[2])?,
        None => None,
    };
    reply(Writer::new(output.bytes(), session.version), field);
    Ok(())
}

fn bulk_or_null(mut reply: Writer<'_>, field: Option<Field<'_>>) {
    match field {
        Some(field) => reply.bulk(field.value),
        None => reply.null(),
    }
}

pub(in super::super) fn hget(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    with_field(context, args, bulk_or_null)
}

pub(in super::super) fn hexists(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    with_field(context, args, |mut reply, field| reply.integer(i64::from(field.is_some())))
}

pub(in super::super) fn hstrlen(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    with_field(context, args, |mut reply, field| {
        reply.integer(field.map_or(0, |field| field.value.len()) as i64);
    })
}

pub(in super::super) fn hmget(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mark = context.output.mark();
    let item = open(context.engine, context.session.db, &args[1])?;
    context.reply().array(args.len() - 2);
    for name in args.iter_from(2) {
        let Context { engine, session, output, .. } = &mut *context;
        let field = match item {
            Some(item) => find(engine, item, name),
            None => Ok(None),
        };
        match field {
            Ok(field) => bulk_or_null(Writer::new(output.bytes(), session.version), field),
            Err(refusal) => {
                output.truncate(mark, engine);
                return Err(refusal);
            }
        }
        check_length(context, mark)?;
    }
    Ok(())
}

pub(in super::super) fn hlen(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let len = match open(context.engine, context.session.db, &args[1])? {
        Some(item) => view(context.engine, item)?.count(),
        None => 0,
    };
    context.reply().integer(len as i64);
    Ok(())
}

/// Fields that are not past their time.
fn live(hash: &Hash<'_>, now_ms: u64) -> usize {
    if hash.is_due(now_ms) { hash.fields(now_ms).count() } else { hash.count() }
}

/// Replies with all fields, after `head`, which gets their number.
fn all(
    context: &mut Context<'_>,
    args: Args<'_>,
    head: fn(&mut Writer<'_>, usize),
    one: fn(&mut Writer<'_>, Field<'_>),
) -> Outcome {
    let mark = context.output.mark();
    let item = open(context.engine, context.session.db, &args[1])?;
    let Some(item) = item else {
        head(&mut context.reply(), 0);
        return Ok(());
    };
    let Context { engine, session, output, host, .. } = &mut *context;
    let (hash, now_ms) = (view(engine, item)?, engine.clock_ms());
    engine.charge_read(item, hash.used_bytes());
    head(&mut Writer::new(output.bytes(), session.version), live(&hash, now_ms));
    for field in hash.fields(now_ms) {
        match field {
            Ok(field) => one(&mut Writer::new(output.bytes(), session.version), field),
            Err(broken) => {
                output.truncate(mark, engine);
                return Err(broken.into());
            }
        }
        if output.since(mark) > host.reply_bytes_max {
            break;
        }
    }
    check_length(context, mark)
}

pub(in super::super) fn hgetall(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    all(
        context,
        args,
        |reply, count| reply.map(count),
        |reply, field| {
            reply.bulk(field.name);
            reply.bulk(field.value);
        },
    )
}

pub(in super::super) fn hkeys(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    all(context, args, |reply, count| reply.array(count), |reply, field| reply.bulk(field.name))
}

pub(in super::super) fn hvals(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    all(context, args, |reply, count| reply.array(count), |reply, field| reply.bulk(field.value))
}

pub(in super::super) fn hrandfield(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let Some(count) = args.get(2) else { return one_random(context, args) };
    let count = parse_i64(count).ok_or(Refusal::NOT_AN_INTEGER)?;
    if count == i64::MIN {
        return Err(Refusal::Text(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    let values = match args.get(3) {
        None => false,
        Some(option) if args.len() == 4 && option.eq_ignore_ascii_case(b"withvalues") => true,
        Some(_) => return Err(Refusal::SYNTAX),
    };
    if values && !(-i64::MAX / 2..=i64::MAX / 2).contains(&count) {
        return Err(Refusal::Text("ERR value is out of range"));
    }
    let item = open(context.engine, context.session.db, &args[1])?;
    let Some(item) = item else {
        context.reply().array(0);
        return Ok(());
    };
    let mut rng = Rng::seeded(context.engine.draw());
    let mark = context.output.mark();
    let result = if count < 0 {
        repeated(context, item, count.unsigned_abs(), values, &mut rng, mark)
    } else {
        distinct(context, item, count.unsigned_abs(), values, &mut rng, mark)
    };
    if result.is_err() {
        context.output.truncate(mark, context.engine);
    }
    result?;
    check_length(context, mark)
}

fn one_random(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let item = open(context.engine, context.session.db, &args[1])?;
    let mut rng = Rng::seeded(context.engine.draw());
    let Context { engine, session, output, .. } = context;
    let mut reply = Writer::new(output.bytes(), session.version);
    let field = match item {
        Some(item) => view(engine, item)?.random(engine.clock_ms(), &mut |bound| rng.below(bound))?,
        None => None,
    };
    match field {
        Some(field) => reply.bulk(field.name),
        None => reply.null(),
    }
    Ok(())
}

/// One chosen field: its name or, with its value, a pair (RESP3) or two replies (RESP2).
fn chosen(reply: &mut Writer<'_>, field: Field<'_>, values: bool, version: Version) {
    if values && version == Version::Resp3 {
        reply.array(2);
    }
    reply.bulk(field.name);
    if values {
        reply.bulk(field.value);
    }
}

fn random_head(context: &mut Context<'_>, count: usize, values: bool) {
    let replies = if values && context.session.version == Version::Resp2 { 2 * count } else { count };
    context.reply().array(replies);
}

/// `count` fields, drawn with replacement.
fn repeated(
    context: &mut Context<'_>,
    item: ItemRef,
    count: u64,
    values: bool,
    rng: &mut Rng,
    mark: Mark,
) -> Outcome {
    let now_ms = context.engine.clock_ms();
    if live(&view(context.engine, item)?, now_ms) == 0 {
        // All are past their time and not yet collected.
        context.reply().array(0);
        return Ok(());
    }
    random_head(context, count as usize, values);
    let Context { engine, session, output, host, .. } = context;
    let hash = view(engine, item)?;
    for _ in 0..count {
        let Some(field) = hash.random(now_ms, &mut |bound| rng.below(bound))? else { break };
        chosen(&mut Writer::new(output.bytes(), session.version), field, values, session.version);
        if output.since(mark) > host.reply_bytes_max {
            break;
        }
    }
    Ok(())
}

/// `count` different fields, or all fields if there are fewer.
fn distinct(
    context: &mut Context<'_>,
    item: ItemRef,
    count: u64,
    values: bool,
    rng: &mut Rng,
    mark: Mark,
) -> Outcome {
    let now_ms = context.engine.clock_ms();
    let live = live(&view(context.engine, item)?, now_ms) as u64;
    let count = count.min(live);
    random_head(context, count as usize, values);
    // Drawing few of many, the same is seldom drawn twice; else one walk chooses (Knuth 2, 3.4.2, algorithm S).
    let Context { engine, session, output, host, .. } = context;
    let few = if count <= live / 3 { draw(engine, item, count, rng)? } else { BTreeSet::new() };
    let hash = view(engine, item)?;
    let mut write = |field| {
        chosen(&mut Writer::new(output.bytes(), session.version), field, values, session.version);
        output.since(mark) <= host.reply_bytes_max
    };
    if few.len() as u64 == count {
        few.iter().filter_map(|name| hash.get(name, now_ms).ok().flatten()).all(write);
        return Ok(());
    }
    let (mut left, mut wanted) = (live, count);
    for field in hash.fields(now_ms) {
        let field = field?;
        if wanted == 0 {
            break;
        }
        if rng.below(left) < wanted {
            wanted -= 1;
            if !write(field) {
                break;
            }
        }
        left = left.saturating_sub(1);
    }
    Ok(())
}

/// Up to `count` names drawn until they differ, within a bounded number of draws.
fn draw<'a>(
    engine: &'a Engine,
    item: ItemRef,
    count: u64,
    rng: &mut Rng,
) -> Result<BTreeSet<&'a [u8]>, Refusal> {
    let (hash, now_ms) = (view(engine, item)?, engine.clock_ms());
    let mut names = BTreeSet::new();
    for _ in 0..count.saturating_mul(4) {
        if names.len() as u64 == count {
            break;
        }
        if let Some(field) = hash.random(now_ms, &mut |bound| rng.below(bound))? {
            names.insert(field.name);
        }
    }
    Ok(names)
}
