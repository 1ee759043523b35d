//! `EXEC`: runs the queued requests one after another.

use super::context::Context;
use super::refusal::{Outcome, Refusal};
use super::run::account;
use super::slow_path::{call, settle};
use super::transaction::{end, forget_watched};
use crate::host::Transaction;
use crate::resp::Args;

impl Transaction {
    /// Counts and shows the requests queued, which run elsewhere.
    pub fn account(&self, context: &mut Context<'_>) {
        for (spec, args) in self.iter() {
            account(context, spec, args);
        }
    }
}

pub(super) fn exec(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let queue = end(context).ok_or(Refusal::Text("ERR EXEC without MULTI"))?;
    if queue.is_void() {
        forget_watched(context);
        return Err(Refusal::Text("EXECABORT Transaction discarded because of previous errors."));
    }
    find_expired(context);
    let dirty = context.host.clients.watched().is_dirty(context.session.slot);
    forget_watched(context);
    if dirty {
        context.reply().null_array();
        return Ok(());
    }
    context.host.timing.mark_long();
    let start = context.output.mark();
    // What has run before it cannot run again.
    let may_wait = core::mem::replace(&mut context.host.may_wait_for_room, false);
    context.reply().array(queue.len());
    for (spec, args) in queue.iter() {
        let mark = context.output.mark();
        let _ = call(context, spec, args);
        if context.output.since(start) > context.host.reply_bytes_max {
            // It has run, as all of them must; only its reply is withheld.
            context.output.truncate(mark, context.engine);
            let text = "ERR the transaction's reply is longer than the limit, this part is left out";
            context.reply().error(text.as_bytes());
        }
    }
    context.host.may_wait_for_room = may_wait;
    Ok(())
}

/// An expired watched key counts as changed, also if no request has met it yet.
fn find_expired(context: &mut Context<'_>) {
    let Context { engine, session, host, .. } = context;
    for (db, key) in host.clients.watched().keys_of(session.slot) {
        let _ = engine.peek(db, key);
    }
    if let Some(spec) = session.command {
        settle(context, spec);
    }
}
