//! `LATENCY`: latency events, by time and cause.

use std::fmt::Write;

use crate::resp::{Args, Writer};

use super::context::Context;
use super::refusal::Outcome;
use crate::host::Event;

pub(super) fn latest(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let Context { session, host, output, .. } = context;
    let events = &host.timing.latencies.events;
    let mut reply = Writer::new(output.bytes(), session.version);
    reply.array(events.len());
    for (name, event) in events {
        let (second, ms) = event.samples.back().copied().unwrap_or_default();
        let second = host.wall_clock.unix_s(second);
        reply.array(4);
        reply.bulk(name.as_bytes());
        [second, ms, event.longest_ms].into_iter().for_each(|number| reply.integer(number as i64));
    }
    Ok(())
}

/// The event of this name, in upper or lower case.
fn named<'a>(context: &'a Context<'_>, name: &[u8]) -> Option<(&'static str, &'a Event)> {
    let mut events = context.host.timing.latencies.events.iter();
    events.find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name)).map(|(name, event)| (*name, event))
}

pub(super) fn history(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let samples: Vec<(u64, u64)> =
        named(context, &args[2]).map_or_else(Vec::new, |(_, event)| event.samples.iter().copied().collect());
    let Context { session, host, output, .. } = context;
    let mut reply = Writer::new(output.bytes(), session.version);
    reply.array(samples.len());
    for (second, ms) in samples {
        reply.array(2);
        reply.integer(host.wall_clock.unix_s(second) as i64);
        reply.integer(ms as i64);
    }
    Ok(())
}

pub(super) fn reset(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let names: Vec<&str> = if args.len() == 2 {
        context.host.timing.latencies.events.keys().copied().collect()
    } else {
        args.iter_from(2).filter_map(|name| Some(named(context, name)?.0)).collect()
    };
    let events = &mut context.host.timing.latencies.events;
    let count = names.into_iter().filter(|name| events.remove(name).is_some()).count();
    context.reply().integer(count as i64);
    Ok(())
}

pub(super) fn histogram(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let Context { session, host, output, .. } = context;
    let wanted = |name: &str| {
        args.len() == 2
            || args.iter_from(2).any(|asked| {
                let container = name.split_once('|').map_or(name, |(container, _)| container);
                [name, container].iter().any(|known| known.as_bytes().eq_ignore_ascii_case(asked))
            })
    };
    let calls: Vec<_> = host.timing.latencies.calls.iter().filter(|(name, _)| wanted(name)).collect();
    let mut reply = Writer::new(output.bytes(), session.version);
    reply.map(calls.len());
    for (name, buckets) in calls {
        reply.bulk(name.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.integer(buckets.iter().sum::<u64>() as i64);
        reply.bulk(b"histogram_usec");
        reply.map(buckets.iter().filter(|count| **count > 0).count());
        let mut sum = 0;
        for (power, count) in buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            sum += count;
            reply.integer(1 << power);
            reply.integer(sum as i64);
        }
    }
    Ok(())
}

/// In plain words what `LATENCY LATEST` has in numbers.
pub(super) fn doctor(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let latencies = &context.host.timing.latencies;
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = match (latencies.threshold_ms, latencies.events.len()) {
        (0, _) => writeln!(
            text,
            "Latency monitoring is off. \"CONFIG SET latency-monitor-threshold <milliseconds>\" turns it on."
        ),
        (threshold, 0) => writeln!(text, "No latency of {threshold} ms or more was seen."),
        (threshold, _) => writeln!(text, "Seen at {threshold} ms or more:"),
    };
    for (name, event) in &latencies.events {
        let count = event.samples.len();
        let mean = event.samples.iter().map(|(_, ms)| ms).sum::<u64>() / count.max(1) as u64;
        let _ = writeln!(
            text,
            "{name}: in {count} seconds of late, {mean} ms in the mean, {} ms at most.",
            event.longest_ms
        );
    }
    if latencies.events.contains_key("command") {
        text.push_str("Look at SLOWLOG GET for the requests. KEYS and large values are the usual reasons.\n");
    }
    context.reply().verbatim(text.as_bytes());
    Ok(())
}
