//! From a request to its handler.

use std::time::Instant;

use crate::resp::Args;

use super::attended;
use super::context::{Context, Outcome, Refusal};
use super::mode::Mode;
use super::refusal::{printable, wrong_arity};
use super::spec::{Flags, Handler, Spec};
use super::table::{COMMANDS, lookup};
use super::transaction;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a request that has to wait must be offered again"]
pub enum Verdict {
    /// It is answered.
    Done,
    /// Nothing was done: requests are held up, it must be offered again when they no longer are.
    Later,
}

/// Runs a request of which nothing is known: most are refused.
#[cold]
#[inline(never)]
pub(super) fn execute(context: &mut Context<'_>, args: Args<'_>) -> Verdict {
    let resolved = resolve(context, args);
    run(context, resolved, args)
}

/// Runs a request of which it is known what [`resolve`] says.
#[inline]
pub(super) fn run(
    context: &mut Context<'_>,
    resolved: Result<&'static Spec, Refusal>,
    args: Args<'_>,
) -> Verdict {
    if context.session.mode.bits() | context.host.clients.attention() != 0 {
        return attended::execute(context, resolved, args);
    }
    context.host.stats.commands_processed += 1;
    if let Err(refusal) = resolved.and_then(|spec| start(context, spec, args)) {
        refuse(context, &refusal);
    }
    Verdict::Done
}

/// Writes an error and counts it.
#[cold]
pub(super) fn refuse(context: &mut Context<'_>, refusal: &Refusal) {
    context.host.stats.error_replies += 1;
    context.host.command_statistics.note_error(refusal.code());
    refusal.write(context.reply());
}

/// Counts and shows a call of a command that runs elsewhere, or in parts.
pub(super) fn account(context: &mut Context<'_>, spec: &'static Spec, args: Args<'_>) {
    context.host.command_statistics.count(spec.number(COMMANDS));
    attended::show(context, spec, args);
}

/// Refuses a request that cannot run with the shards there are. An `EXEC` ends its transaction and its watching.
#[cold]
pub fn refuse_request(context: &mut Context<'_>, text: &'static str, args: Args<'_>) {
    context.host.stats.commands_processed += 1;
    transaction::fail(context.session, &args[0]);
    if args[0].eq_ignore_ascii_case(b"exec") {
        transaction::forget_watched(context);
    }
    refuse(context, &Refusal::Text(text));
}

/// The command that is meant, if it may run with so many arguments and for this client.
#[inline]
fn resolve(context: &mut Context<'_>, args: Args<'_>) -> Result<&'static Spec, Refusal> {
    let Some(mut spec) = lookup(&args[0]) else { return Err(unknown(context, args)) };
    if !spec.subcommands.is_empty() && args.len() > 1 {
        spec = subcommand(spec, &args[1])?;
    }
    if !spec.accepts(args.len()) {
        context.host.command_statistics.reject(spec.number(COMMANDS));
        return Err(wrong_arity(&spec.full_name()));
    }
    if !context.session.authenticated && !spec.flags.contains(Flags::NO_AUTH) {
        authenticate(context, spec)?;
    }
    Ok(spec)
}

/// Calls a command's handler, and counts the call.
#[inline]
pub(super) fn start(context: &mut Context<'_>, spec: &'static Spec, args: Args<'_>) -> Outcome {
    context.session.command = Some(spec);
    let number = spec.number(COMMANDS);
    if !context.session.mode.has(Mode::GUEST) {
        context.host.command_statistics.count(number);
    }
    let outcome = if context.host.command_statistics.is_due() {
        let began = Instant::now();
        let outcome = call(context, spec, args);
        context.host.command_statistics.end(number, began);
        outcome
    } else {
        call(context, spec, args)
    };
    if outcome.is_err() {
        context.host.command_statistics.fail(number);
    }
    outcome
}

#[inline]
fn call(context: &mut Context<'_>, spec: &'static Spec, args: Args<'_>) -> Outcome {
    match spec.handler {
        Handler::Plain(run) => run(context, args),
        Handler::OverTable(run) => run(context, args, COMMANDS),
    }
}

/// Lets a client in that needs no password any more, since `CONFIG SET` or `ACL SETUSER` took it away.
#[cold]
fn authenticate(context: &mut Context<'_>, spec: &'static Spec) -> Outcome {
    if !context.host.settings.users.are_open() {
        context.host.command_statistics.reject(spec.number(COMMANDS));
        return Err(Refusal::Text("NOAUTH Authentication required."));
    }
    context.session.authenticated = true;
    Ok(())
}

fn subcommand(spec: &'static Spec, name: &[u8]) -> Result<&'static Spec, Refusal> {
    spec.subcommands.iter().find(|sub| sub.name.as_bytes().eq_ignore_ascii_case(name)).ok_or_else(|| {
        let mut text = b"ERR unknown subcommand '".to_vec();
        text.extend_from_slice(printable(name, 128));
        text.extend_from_slice(format!("'. Try {} HELP.", spec.name.to_ascii_uppercase()).as_bytes());
        Refusal::Built(text)
    })
}

#[cold]
fn unknown(context: &mut Context<'_>, args: Args<'_>) -> Refusal {
    // A browser that was tricked into posting here must get no second line executed.
    if args[0].eq_ignore_ascii_case(b"post") || args[0].eq_ignore_ascii_case(b"host:") {
        context.session.closing = true;
    }
    let mut shown = Vec::new();
    for argument in args.iter_from(1) {
        if shown.len() >= 128 {
            break;
        }
        shown.push(b'\'');
        let room = 128 - (shown.len() - 1);
        shown.extend_from_slice(printable(argument, room));
        shown.extend_from_slice(b"' ");
    }
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(printable(&args[0], 128));
    text.extend_from_slice(b"', with args beginning with: ");
    text.extend_from_slice(&shown);
    Refusal::Built(text)
}
