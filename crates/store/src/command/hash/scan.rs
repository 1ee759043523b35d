//! `HSCAN`: fields of a hash, a batch at a time.

use super::super::context::Context;
use super::super::keyspace::{SCAN_COUNT_DEFAULT, SCAN_COUNT_MAX, parse_cursor};
use super::super::refusal::{Outcome, Refusal};
use super::{open, view};
use crate::glob;
use crate::resp::{Args, Writer, parse_i64};

struct Options<'a> {
    pattern: Option<&'a [u8]>,
    count: u64,
    values: bool,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>) -> Result<Self, Refusal> {
        let mut options = Options { pattern: None, count: SCAN_COUNT_DEFAULT, values: true };
        let mut rest = args.iter_from(3);
        while let Some(option) = rest.next() {
            if option.eq_ignore_ascii_case(b"novalues") {
                options.values = false;
                continue;
            }
            let value = rest.next().ok_or(Refusal::SYNTAX)?;
            if option.eq_ignore_ascii_case(b"count") {
                let count = parse_i64(value).ok_or(Refusal::NOT_AN_INTEGER)?;
                options.count =
                    u64::try_from(count).ok().filter(|count| *count > 0).ok_or(Refusal::SYNTAX)?;
            } else if option.eq_ignore_ascii_case(b"match") {
                options.pattern = Some(value);
            } else {
                return Err(Refusal::SYNTAX);
            }
        }
        Ok(options)
    }
}

pub(in super::super) fn hscan(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let cursor = parse_cursor(&args[2]).ok_or(Refusal::Text("ERR invalid cursor"))?;
    let item = open(context.engine, context.session.db, &args[1])?;
    let Context { engine, session, output, .. } = context;
    let Some(item) = item else {
        let mut reply = Writer::new(output.bytes(), session.version);
        reply.array(2);
        reply.bulk(b"0");
        reply.array(0);
        return Ok(());
    };
    let options = Options::parse(args)?;
    let (hash, now_ms) = (view(engine, item)?, engine.clock_ms());
    let mut found = Vec::new();
    let next = hash.scan(cursor, options.count.min(SCAN_COUNT_MAX) as usize, now_ms, &mut |field| {
        engine.charge_read(item, field.entry_bytes);
        if options.pattern.is_none_or(|pattern| glob::matches(pattern, field.name, false)) {
            found.push(field);
        }
    })?;
    let mut reply = Writer::new(output.bytes(), session.version);
    reply.array(2);
    reply.bulk(itoa::Buffer::new().format(next.cursor).as_bytes());
    reply.array(found.len() * if options.values { 2 } else { 1 });
    for field in found {
        reply.bulk(field.name);
        if options.values {
            reply.bulk(field.value);
        }
    }
    Ok(())
}
