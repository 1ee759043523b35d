//! Early answers: a client is told that its write is done before the cache's device has it.
//!
//! That promises no more than the device's own cache would: an unflushed write may be lost with the process either way. Operations that
//! read or overwrite it wait until it is stored, as it keeps its claim, and flushes wait for it ([`super::unflushed_writes`]).

use super::assembly::bytes_to_store;
use super::op::Op;
use super::shared::Shared;

/// Answers the client of an operation whose bytes are on their way to the cache, where that may be.
pub(super) fn answer_early(shared: &mut Shared, op: &mut Op) {
    if may_be_early(shared, op) {
        answer(shared, op);
    }
}

/// The operation waits until the log says that its blocks are open. A client that brings all that is to be stored need not wait for
/// that: nothing can fail any more before its bytes are stored, or kept for the store.
pub(super) fn answer_before_opening(shared: &mut Shared, op: &mut Op) {
    let needs_nothing = op.plan.cached.is_empty() && op.plan.fetch.is_empty();
    if needs_nothing && may_be_early(shared, op) {
        op.brought = (0..op.plan.fill.len()).map(|fill| bytes_to_store(shared, op, fill)).collect();
        answer(shared, op);
    }
}

fn answer(shared: &mut Shared, op: &mut Op) {
    shared.write_order.owe(&shared.log, op);
    shared.reply(op, Vec::new());
}

/// Whether the client may be answered before its write is stored.
fn may_be_early(shared: &Shared, op: &Op) -> bool {
    let plan = &op.plan;
    plan.through.is_empty()
        && !plan.dirtied.is_empty()
        && op.job.is_some_and(|job| !shared.answers.is_durable(job))
        && shared.write_order.has_early_room(&shared.log, op.bytes)
}
