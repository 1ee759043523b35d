//! Dispatch of a request to its handler.

use crate::resp::Args;

use super::context::Context;
use super::refusal::{Outcome, Refusal, printable, wrong_arity};
use super::run::{Verdict, put_off, refuse, start};
use super::slow_path;
use super::spec::{Flags, Spec};
use super::table::{COMMANDS, lookup};
use super::transaction;

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
    if context.session.mode.bits() | u16::from(context.host.clients.attention()) != 0 {
        return slow_path::execute(context, resolved, args);
    }
    context.host.stats.commands_processed += 1;
    if let Err(refusal) = resolved.and_then(|spec| start(context, spec, args)) {
        if put_off(context, &refusal) {
            return Verdict::NoRoom;
        }
        refuse(context, &refusal);
    }
    Verdict::Done
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

/// The command that the request names, if it takes this number of arguments and this client may run it.
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

/// Logs in a client that needs no password any more, since `CONFIG SET` or `ACL SETUSER` removed it.
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
