//! Transactions: requests are queued and then run one after another, unless a watched key has changed.

use crate::resp::{Args, Span};

use super::context::Context;
use super::refusal::{Outcome, Refusal};
use super::session_flags::Mode;
use super::spec::Spec;
use crate::host::{QUEUED_BYTES, Session, Transaction};
use crate::shards::ShardSet;

/// Voids a session's transaction, if it is in one: the request named `name` was refused. A refused `EXEC` ends it.
pub(super) fn fail(session: &mut Session, name: &[u8]) {
    if name.eq_ignore_ascii_case(b"exec") {
        session.transaction = None;
        session.mode.set(Mode::MULTI, false);
    } else if let Some(queue) = &mut session.transaction {
        queue.fail();
    }
}

/// Queues a request. What is longer than the connection may hold voids the transaction, and is not kept.
pub(super) fn queue(context: &mut Context<'_>, spec: &'static Spec, args: Args<'_>) -> Outcome {
    let limit_bytes = context.host.queue_bytes_max;
    let Some(queue) = &mut context.session.transaction else { return Ok(()) };
    // What will not run need not be kept.
    if !queue.is_void() {
        let bytes: usize = args.iter_from(0).map(|arg| arg.len() + size_of::<Span>()).sum();
        if queue.memory_bytes() + bytes + QUEUED_BYTES > limit_bytes {
            return Err(format!(
                "ERR the transaction does not fit the {limit_bytes} bytes that are left for it, send fewer requests \
                 between MULTI and EXEC"
            )
            .into());
        }
        queue.push(spec, args);
    }
    context.reply().simple("QUEUED");
    Ok(())
}

pub(super) fn multi(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    if context.session.transaction.is_some() {
        return Err(Refusal::Text("ERR MULTI calls can not be nested"));
    }
    context.session.transaction = Some(Box::default());
    context.session.mode.set(Mode::MULTI, true);
    context.reply().ok();
    Ok(())
}

/// Ends a transaction, whether it runs or is discarded.
pub(super) fn end(context: &mut Context<'_>) -> Option<Box<Transaction>> {
    let queue = context.session.transaction.take()?;
    context.session.mode.set(Mode::MULTI, false);
    Some(queue)
}

pub(super) fn forget_watched(context: &mut Context<'_>) {
    context.session.watched_shards = ShardSet::Empty;
    context.host.clients.unwatch(context.session.slot);
    context.refresh();
}

pub(super) fn discard(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    end(context).ok_or(Refusal::Text("ERR DISCARD without MULTI"))?;
    forget_watched(context);
    context.reply().ok();
    Ok(())
}

pub(super) fn watch(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if context.session.transaction.is_some() {
        return Err(Refusal::Text("ERR WATCH inside MULTI is not allowed"));
    }
    let Context { engine, session, host, .. } = context;
    if let Some(mailboxes) = &host.mailboxes {
        session.watched_shards.add(mailboxes.placement.own);
    }
    for key in args.iter_from(1) {
        let present = engine.peek(session.db, key).is_some();
        host.clients.watch(session.slot, session.db, key, present)?;
    }
    context.refresh();
    context.reply().ok();
    Ok(())
}

pub(super) fn unwatch(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    forget_watched(context);
    context.reply().ok();
    Ok(())
}
