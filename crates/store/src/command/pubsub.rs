//! Pub/sub commands: subscribing, publishing, listing channels.

use crate::clients::Kind;
use crate::resp::{Args, Writer};

use super::context::Context;
use super::refusal::{Outcome, Refusal};
use super::session_flags::Mode;

pub(super) fn subscribe(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    begin(context, args, Kind::Channel, b"subscribe")
}

pub(super) fn psubscribe(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    begin(context, args, Kind::Pattern, b"psubscribe")
}

pub(super) fn unsubscribe(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    end(context, args, Kind::Channel, b"unsubscribe")
}

pub(super) fn punsubscribe(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    end(context, args, Kind::Pattern, b"punsubscribe")
}

/// One message for each name: the command, the name, and how many subscriptions the client then has.
fn begin(context: &mut Context<'_>, args: Args<'_>, kind: Kind, command: &[u8]) -> Outcome {
    let mark = context.output.mark();
    for name in args.iter_from(1) {
        if let Err(error) = context.host.clients.subscribe(context.session.slot, kind, name) {
            context.output.truncate(mark, context.engine);
            return Err(error.into());
        }
        context.session.mode.set(Mode::SUBSCRIBED, true);
        confirm(context, command, Some(name));
    }
    Ok(())
}

fn end(context: &mut Context<'_>, args: Args<'_>, kind: Kind, command: &[u8]) -> Outcome {
    let slot = context.session.slot;
    let all =
        if args.len() == 1 { context.host.clients.channels().subscriptions(slot, kind) } else { Vec::new() };
    let given = args.iter_from(1);
    let mut names = all.iter().map(|name| &**name).chain(given).peekable();
    if names.peek().is_none() {
        confirm(context, command, None);
    }
    for name in names {
        context.host.clients.unsubscribe(slot, kind, name);
        confirm(context, command, Some(name));
    }
    context.session.mode.set(Mode::SUBSCRIBED, context.host.clients.channels().is_subscriber(slot));
    Ok(())
}

fn confirm(context: &mut Context<'_>, command: &[u8], name: Option<&[u8]>) {
    let (clients, slot) = (&context.host.clients, context.session.slot);
    let count: usize = Kind::ALL.iter().map(|kind| clients.channels().subscription_count(slot, *kind)).sum();
    let mut reply = context.reply();
    reply.push(3);
    reply.bulk(command);
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.integer(count as i64);
}

pub(super) fn publish(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let reached = context.host.clients.publish(&args[1], &args[2]);
    context.reply().integer(reached as i64);
    Ok(())
}

pub(super) fn channels(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        let text = "ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP.";
        return Err(Refusal::Text(text));
    }
    let Context { session, host, output, .. } = context;
    let names: Vec<&[u8]> = host.clients.channels().active_channels(args.get(2)).collect();
    let mut reply = Writer::new(output.bytes(), session.version);
    reply.array(names.len());
    names.into_iter().for_each(|name| reply.bulk(name));
    Ok(())
}

pub(super) fn numsub(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let Context { session, host, output, .. } = context;
    let mut reply = Writer::new(output.bytes(), session.version);
    reply.array(2 * (args.len() - 2));
    for name in args.iter_from(2) {
        reply.bulk(name);
        reply.integer(host.clients.channels().subscriber_count(name) as i64);
    }
    Ok(())
}

pub(super) fn numpat(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let count = context.host.clients.channels().pattern_count();
    context.reply().integer(count as i64);
    Ok(())
}
