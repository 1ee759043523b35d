//! Slow path of requests: from a restricted user, in a transaction, silenced, paused, monitored,
//! tracked, or while changes are watched or published. Ordinary requests skip all of it.

use crate::clients::{Author, Class, Clients, PauseKind};
use crate::engine::Engine;
use crate::resp::{Args, Version};

use super::context::Context;
use super::refusal::Refusal;
use super::run::{Verdict, put_off, refuse, show, start};
use super::session_flags::Mode;
use super::spec::{Flags, Group, Spec, keys};
use super::{permit, transaction};

/// Runs one request, queues it, or says that it has to wait.
#[cold]
#[inline(never)]
pub(super) fn execute(
    context: &mut Context<'_>,
    resolved: Result<&'static Spec, Refusal>,
    args: Args<'_>,
) -> Verdict {
    if let Ok(spec) = resolved
        && is_held_up(context, spec)
    {
        return Verdict::Later;
    }
    let is_new = !context.session.mode.has(Mode::GUEST) && !context.session.mode.has(Mode::PUT_OFF);
    context.host.stats.commands_processed += u64::from(is_new);
    let mark = context.output.mark();
    // `CLIENT REPLY ON` takes this back.
    context.session.is_skipped = context.session.mode.has(Mode::SKIP_NEXT);
    context.session.mode.set(Mode::SKIP_NEXT, false);
    // What it tells of channels comes as their messages do, which are no replies.
    let mut tells_of_channels = false;
    let outcome = resolved.and_then(|spec| {
        tells_of_channels = spec.flags.contains(Flags::PUBSUB.and(Flags::WHILE_SUBSCRIBED));
        run(context, spec, args)
    });
    match outcome {
        Ok(Verdict::Done) => {}
        Ok(verdict) => {
            context.session.mode.set(Mode::SKIP_NEXT, context.session.is_skipped);
            context.session.is_skipped = false;
            return verdict;
        }
        Err(refusal) => {
            tells_of_channels = false;
            transaction::fail(context.session, &args[0]);
            refuse(context, &refusal);
        }
    }
    context.session.mode.set(Mode::PUT_OFF, false);
    let is_silent = context.session.is_skipped || context.session.mode.has(Mode::SILENT);
    if is_silent && !tells_of_channels {
        context.output.truncate(mark, context.engine);
    }
    context.session.is_skipped = false;
    Verdict::Done
}

/// Whether the request is of the kind that `CLIENT PAUSE` holds up.
fn is_held_up(context: &Context<'_>, spec: &Spec) -> bool {
    match context.host.clients.pauses().kind() {
        None => false,
        Some(PauseKind::All) => true,
        Some(PauseKind::Write) => {
            let queued_writes = context.session.transaction.as_ref().is_some_and(|queue| queue.writes());
            spec.flags.contains(Flags::WRITE)
                || spec.name == "publish"
                || (spec.name == "exec" && queued_writes)
        }
    }
}

/// An error here is one that voids a transaction; those of the command itself are written by [`call`].
fn run(context: &mut Context<'_>, spec: &'static Spec, args: Args<'_>) -> Result<Verdict, Refusal> {
    permit::check(context, spec, args)?;
    let mode = context.session.mode;
    if mode.has(Mode::SUBSCRIBED)
        && context.session.version == Version::Resp2
        && !spec.flags.contains(Flags::WHILE_SUBSCRIBED)
    {
        return Err(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
             context",
            spec.full_name()
        )
        .into());
    }
    if mode.has(Mode::MULTI) && spec.flags.contains(Flags::NO_MULTI) {
        return Err(Refusal::Text("ERR Command not allowed inside a transaction"));
    }
    if mode.has(Mode::MULTI) && !spec.flags.contains(Flags::IN_MULTI) {
        return transaction::queue(context, spec, args).map(|()| Verdict::Done);
    }
    let verdict = call(context, spec, args);
    if verdict == Verdict::Done
        && mode.has(Mode::TRACKS)
        && spec.container != "client"
        && !context.session.mode.has(Mode::MULTI)
    {
        context.host.clients.set_caching(context.session.slot, false);
    }
    Ok(verdict)
}

/// Runs a command, writes its reply, and informs the clients concerned.
pub(super) fn call(context: &mut Context<'_>, spec: &'static Spec, args: Args<'_>) -> Verdict {
    if !context.session.mode.has(Mode::PUT_OFF) {
        tell_misses(context, spec, args);
    }
    if let Err(refusal) = start(context, spec, args) {
        if put_off(context, &refusal) {
            // What it found expired is told now.
            settle(context, spec);
            return Verdict::NoRoom;
        }
        refuse(context, &refusal);
    }
    if !context.session.mode.has(Mode::GUEST) {
        show(context, spec, args);
    }
    if context.session.mode.has(Mode::TRACKS) && spec.flags.contains(Flags::READONLY) {
        remember_reads(context, spec, args);
    }
    settle(context, spec);
    Verdict::Done
}

fn remember_reads(context: &mut Context<'_>, spec: &Spec, args: Args<'_>) {
    let Context { session, host, .. } = context;
    let Some(mode) = host.clients.tracking().mode(session.slot) else { return };
    if (mode.opt_in && !mode.caching) || (mode.opt_out && mode.caching) {
        return;
    }
    for key in keys(spec, args) {
        host.clients.remember_read(session.slot, key);
    }
}

/// Publishes which keys a reading command will not find. `OBJECT` and `MEMORY` do not count as reading.
fn tell_misses(context: &mut Context<'_>, spec: &Spec, args: Args<'_>) {
    let Context { engine, session, host, .. } = context;
    if !host.clients.notify_flags().has(Class::MISS)
        || !spec.flags.contains(Flags::READONLY)
        || !spec.container.is_empty()
    {
        return;
    }
    for key in keys(spec, args) {
        if engine.peek(session.db, key).is_none() {
            host.clients.publish_event(Class::MISS, "keymiss", session.db, key);
        }
    }
}

/// Event name and class of a command's writes.
fn author(client: u64, spec: &'static Spec) -> Author {
    let class = match spec.group {
        Group::String => Class::STRING,
        Group::Hash => Class::HASH,
        _ => Class::GENERIC,
    };
    let event = match spec.name {
        "setex" | "psetex" | "setnx" | "getset" | "mset" | "msetnx" => "set",
        "incr" | "decr" | "decrby" => "incrby",
        "rename" | "renamenx" => "rename_to",
        "copy" => "copy_to",
        "hmset" | "hsetnx" => "hset",
        "hpexpire" | "hexpireat" | "hpexpireat" => "hexpire",
        name => name,
    };
    Author { client, class, event }
}

/// Tells everyone concerned what a command changed.
pub(super) fn settle(context: &mut Context<'_>, spec: &'static Spec) {
    if !context.engine.changes().is_empty() {
        let changes = context.engine.changes().take();
        context.host.clients.settle(&changes, &author(context.session.id, spec));
    }
}

/// Tells everyone concerned what happened without a request.
pub fn settle_idle(engine: &mut Engine, clients: &mut Clients) {
    if !engine.changes().is_empty() {
        let changes = engine.changes().take();
        clients.settle(&changes, &Author::STORE);
    }
}
