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
    if !context.session.mode.has(Mode::GUEST) {
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
    if outcome.is_err() {
        context.host.command_statistics.fail(number);
    }
    outcome
}
