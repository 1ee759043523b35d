//! Assembly: the bytes that an operation stores, of what its client brings and what was read.

use tiermem_policy::extents::Part;
use tiermem_tier::block::AlignedBuffer;

use super::op::{Op, common};
use super::shared::Shared;

/// What is to be stored of a part of the operation's plan.
pub(super) fn bytes_to_store(shared: &mut Shared, op: &Op, fill: usize) -> AlignedBuffer {
    let part = op.plan.fill[fill];
    shared.answers.take_own(op, &part).unwrap_or_else(|| assemble(shared, op, part))
}

/// The bytes of a part of the plan: what was read, and over that what the client writes.
fn assemble(shared: &mut Shared, op: &Op, part: Part) -> AlignedBuffer {
    let range = part.offset..part.offset + part.bytes;
    let mut buffer = shared.pool.lend(part.bytes as usize);
    op.copy_held(&range, &mut buffer);
    let own = common(&range, &op.range());
    if op.kind.is_write() && !own.is_empty() {
        let to = (own.start - range.start) as usize;
        shared.answers.copy_own(op, own.start, &mut buffer[to..to + (own.end - own.start) as usize]);
    }
    buffer
}
