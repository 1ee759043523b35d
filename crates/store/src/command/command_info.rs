//! `COMMAND`: the table of commands, for clients that ask for it.

use crate::glob;
use crate::resp::{Args, Writer};

use super::categories::categories;
use super::context::Context;
use super::refusal::{Outcome, Refusal, wrong_arity};
use super::spec::Spec;
use super::table::COMMANDS;

/// Stands for commands that only have subcommands; called without one, which their arity forbids.
pub(super) fn container(_: &mut Context<'_>, args: Args<'_>) -> Outcome {
    Err(wrong_arity(&String::from_utf8_lossy(&args[0]).to_ascii_lowercase()))
}

pub(super) fn command(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let mut reply = context.reply();
    reply.array(COMMANDS.len());
    COMMANDS.iter().for_each(|spec| describe(&mut reply, spec));
    Ok(())
}

pub(super) fn count(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    context.reply().integer(COMMANDS.len() as i64);
    Ok(())
}

/// No documentation is kept here; clients then show none.
pub(super) fn docs(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    context.reply().map(0);
    Ok(())
}

pub(super) fn info(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() == 2 {
        return command(context, args);
    }
    let mut reply = context.reply();
    reply.array(args.len() - 2);
    for name in args.iter_from(2) {
        match find(name) {
            Some(spec) => describe(&mut reply, spec),
            None => reply.null(),
        }
    }
    Ok(())
}

/// A command by its name, or a subcommand by `container|name`.
fn find(name: &[u8]) -> Option<&'static Spec> {
    let mut words = name.splitn(2, |byte| *byte == b'|');
    let named = |specs: &'static [Spec], name: &[u8]| {
        specs.iter().find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
    };
    let spec = named(COMMANDS, words.next()?)?;
    match words.next() {
        None => Some(spec),
        Some(sub) => named(spec.subcommands, sub),
    }
}

/// With all subcommands, as in Redis.
pub(super) fn list(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let by = |word: &str| args.get(3).is_some_and(|given| given.eq_ignore_ascii_case(word.as_bytes()));
    let is_filtered = args.get(2).is_some_and(|word| word.eq_ignore_ascii_case(b"filterby"));
    let all = Spec::all(COMMANDS);
    let found: Vec<&Spec> = match args.get(4) {
        None if args.len() == 2 => all.collect(),
        Some(pattern) if is_filtered && args.len() == 5 && by("pattern") => {
            all.filter(|spec| glob::matches(pattern, spec.full_name().as_bytes(), true)).collect()
        }
        Some(category) if is_filtered && args.len() == 5 && by("aclcat") => {
            let is_it = |name: &str| name.as_bytes()[1..].eq_ignore_ascii_case(category);
            all.filter(|spec| categories(spec).any(is_it)).collect()
        }
        // There are no modules.
        Some(_) if is_filtered && args.len() == 5 && by("module") => Vec::new(),
        _ => return Err(Refusal::SYNTAX),
    };
    let mut reply = context.reply();
    reply.set(found.len());
    found.into_iter().for_each(|spec| reply.bulk(spec.full_name().as_bytes()));
    Ok(())
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
