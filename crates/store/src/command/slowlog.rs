//! `SLOWLOG`: the slowest recent requests.

use crate::resp::{Args, Writer, parse_i64};

use super::context::Context;
use super::refusal::{Outcome, Refusal};

pub(super) fn get(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    const DEFAULT: i64 = 10;
    let refusal = Refusal::Text("ERR count should be greater than or equal to -1");
    let count = match args.get(2) {
        None => DEFAULT,
        Some(_) if args.len() > 3 => return Err(Refusal::SYNTAX),
        Some(text) => parse_i64(text).filter(|count| *count >= -1).ok_or(refusal)?,
    };
    let Context { session, host, output, .. } = context;
    let log = &host.timing.slowlog;
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(log.entries.len());
    let mut reply = Writer::new(output.bytes(), session.version);
    reply.array(count);
    for entry in log.entries.iter().take(count) {
        reply.array(6);
        let unix_s = host.wall_clock.unix_s(entry.at_s);
        [entry.id, unix_s, entry.us].into_iter().for_each(|number| reply.integer(number as i64));
        reply.array(entry.args.len());
        entry.args.iter().for_each(|arg| reply.bulk(arg));
        reply.bulk(entry.address.as_bytes());
        reply.bulk(&entry.name);
    }
    Ok(())
}

pub(super) fn len(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let len = context.host.timing.slowlog.entries.len();
    context.reply().integer(len as i64);
    Ok(())
}

pub(super) fn reset(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    context.host.timing.slowlog.entries.clear();
    context.reply().ok();
    Ok(())
}
