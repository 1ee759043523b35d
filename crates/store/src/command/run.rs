//! Running a command whose handler is known, with its statistics and its line for monitors.

use std::time::Instant;

use super::context::Context;
use super::monitor;
use super::refusal::{Outcome, Refusal};
use super::session_flags::Mode;
use super::spec::{Flags, Spec};
use super::table::COMMANDS;
use crate::clients::Clients;
use crate::resp::Args;

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a request that has to wait must be offered again"]
pub enum Verdict {
    /// It is answered.
    Done,
    /// Nothing was done: requests are held up, it must be offered again when they no longer are.
    Later,
    /// Nothing was done: there is no room for the reply, which needs [`crate::host::Host::needed_reply_bytes`]. It must be offered again, until
    /// then its client's mode is [`Mode::PUT_OFF`].
    NoRoom,
}

/// Writes an error and counts it.
#[cold]
pub(super) fn refuse(context: &mut Context<'_>, refusal: &Refusal) {
    if let Refusal::NoRoom { things, .. } = refusal {
        let refusal = too_large(context, things);
        return refuse(context, &refusal);
    }
    context.host.stats.error_replies += 1;
    context.host.command_statistics.note_error(refusal.code());
    refusal.write(context.reply());
}

fn too_large(context: &mut Context<'_>, things: &str) -> Refusal {
    let limit_bytes = context.host.reply_bytes_max;
    if !context.host.replies_are_short {
        let text = format!(
            "ERR the reply is longer than the limit of {limit_bytes} bytes, ask for fewer {things} at a time"
        );
        return text.into();
    }
    context.host.stats.replies_refused += 1;
    format!(
        "ERR replies that are not sent yet leave {limit_bytes} bytes of output-buffer-total for this one: read \
         replies, ask for fewer {things} at a time, or raise output-buffer-total"
    )
    .into()
}

/// Whether what was refused waits for room instead.
fn waits(context: &Context<'_>, refusal: &Refusal) -> bool {
    let is_for_room = matches!(refusal, Refusal::NoRoom { .. });
    is_for_room && context.host.may_wait_for_room && context.host.replies_are_short
}

/// Puts a request off that was refused for want of room; `false`: it stays refused.
#[cold]
pub(super) fn put_off(context: &mut Context<'_>, refusal: &Refusal) -> bool {
    if let Refusal::NoRoom { needs_bytes, .. } = refusal
        && waits(context, refusal)
    {
        context.host.needed_reply_bytes = *needs_bytes;
        context.session.mode.set(Mode::PUT_OFF, true);
        return true;
    }
    false
}

/// Counts and shows a call of a command that runs elsewhere, or in parts.
pub(super) fn account(context: &mut Context<'_>, spec: &'static Spec, args: Args<'_>) {
    context.host.command_statistics.count(spec.number(COMMANDS));
    show(context, spec, args);
}

/// Sends a request to the monitoring clients.
pub(super) fn show(context: &mut Context<'_>, spec: &Spec, args: Args<'_>) {
    if context.host.clients.attention() & Clients::MONITORED != 0 && !spec.flags.contains(Flags::ADMIN) {
        monitor::tell(context, args);
    }
}

/// Calls a command's handler, and counts the call.
#[inline]
pub(super) fn start(context: &mut Context<'_>, spec: &'static Spec, args: Args<'_>) -> Outcome {
    context.session.command = Some(spec);
    let number = spec.number(COMMANDS);
    if !context.session.mode.has(Mode::GUEST) && !context.session.mode.has(Mode::PUT_OFF) {
        context.host.command_statistics.count(number);
    }
    let outcome = if context.host.command_statistics.is_due() {
        let began = Instant::now();
        let outcome = (context.handlers[number])(context, args);
        context.host.command_statistics.end(number, began);
        outcome
    } else {
        (context.handlers[number])(context, args)
    };
    if outcome.as_ref().is_err_and(|refusal| !waits(context, refusal)) {
        context.host.command_statistics.fail(number);
    }
    outcome
}
