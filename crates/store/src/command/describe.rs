//! `COMMAND`: the table of commands, told to clients that ask.

use crate::resp::{Args, Writer};

use super::context::{Context, Outcome, Refusal};
use super::refusal::wrong_arity;
use super::spec::{Flags, Group, Spec};

/// Stands for commands that only have subcommands; called without one, which their arity forbids.
pub(super) fn container(_: &mut Context<'_>, args: Args<'_>) -> Outcome {
    Err(wrong_arity(&String::from_utf8_lossy(&args[0]).to_ascii_lowercase()))
}

pub(super) fn command(context: &mut Context<'_>, _: Args<'_>, table: &'static [Spec]) -> Outcome {
    let mut reply = context.reply();
    reply.array(table.len());
    table.iter().for_each(|spec| describe(&mut reply, spec));
    Ok(())
}

pub(super) fn count(context: &mut Context<'_>, _: Args<'_>, table: &'static [Spec]) -> Outcome {
    context.reply().integer(table.len() as i64);
    Ok(())
}

/// No documentation is kept here; clients then show none.
pub(super) fn docs(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    context.reply().map(0);
    Ok(())
}

pub(super) fn info(context: &mut Context<'_>, args: Args<'_>, table: &'static [Spec]) -> Outcome {
    if args.len() == 2 {
        return command(context, args, table);
    }
    let mut reply = context.reply();
    reply.array(args.len() - 2);
    for name in args.iter_from(2) {
        match find(table, name) {
            Some(spec) => describe(&mut reply, spec),
            None => reply.null(),
        }
    }
    Ok(())
}

/// A command by its name, or a subcommand by `container|name`.
fn find(table: &'static [Spec], name: &[u8]) -> Option<&'static Spec> {
    let mut words = name.splitn(2, |byte| *byte == b'|');
    let named = |specs: &'static [Spec], name: &[u8]| {
        specs.iter().find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
    };
    let spec = named(table, words.next()?)?;
    match words.next() {
        None => Some(spec),
        Some(sub) => named(spec.subcommands, sub),
    }
}

pub(super) fn list(context: &mut Context<'_>, args: Args<'_>, table: &'static [Spec]) -> Outcome {
    if args.len() > 2 {
        return Err(Refusal::SYNTAX);
    }
    let mut reply = context.reply();
    reply.set(table.len());
    table.iter().for_each(|spec| reply.bulk(spec.name.as_bytes()));
    Ok(())
}

/// Commands that may hold up or empty the store, though anybody may call them.
const DANGEROUS: [&str; 4] = ["flushall", "flushdb", "info", "keys"];

/// The access-control categories that follow from a command's flags and family.
pub(crate) fn categories(spec: &Spec) -> impl Iterator<Item = &'static str> + Clone + use<> {
    let flags = spec.flags;
    let family = match spec.group {
        // Redis counts telling of commands to the connection's.
        _ if spec.name == "command" || spec.container == "command" => Some("@connection"),
        // A container is in no family itself.
        _ if !spec.subcommands.is_empty() => None,
        Group::String => Some("@string"),
        Group::Hash => Some("@hash"),
        Group::Keyspace => Some("@keyspace"),
        Group::PubSub if spec.name != "help" => Some("@pubsub"),
        Group::Transaction => Some("@transaction"),
        Group::Connection => Some("@connection"),
        Group::Server | Group::PubSub => None,
    };
    let speed = if flags.contains(Flags::FAST) { "@fast" } else { "@slow" };
    // Redis counts this one to the administrators' although anybody may call it.
    let admin = flags.contains(Flags::ADMIN) || spec.name == "lastsave";
    [
        family,
        flags.contains(Flags::WRITE).then_some("@write"),
        flags.contains(Flags::READONLY).then_some("@read"),
        admin.then_some("@admin"),
        Some(speed),
        (admin || spec.container.is_empty() && DANGEROUS.contains(&spec.name)).then_some("@dangerous"),
    ]
    .into_iter()
    .flatten()
}

fn describe(reply: &mut Writer<'_>, spec: &Spec) {
    reply.array(10);
    reply.bulk(spec.full_name().as_bytes());
    reply.integer(i64::from(spec.arity));
    let flags = spec.flags.names();
    reply.set(flags.clone().count());
    flags.for_each(|name| reply.simple(name));
    for place in [spec.keys.0, spec.keys.1, spec.keys.2] {
        reply.integer(i64::from(place));
    }
    let categories = categories(spec);
    reply.set(categories.clone().count());
    categories.for_each(|name| reply.simple(name));
    // Tips and key specifications: none are given.
    reply.set(0);
    reply.set(0);
    reply.array(spec.subcommands.len());
    spec.subcommands.iter().for_each(|sub| describe(reply, sub));
}
