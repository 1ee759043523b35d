//! Trims: bytes that may be discarded.

use tiermem_policy::extents::UNIT_BYTES;

use super::device::Io;
use super::op::Stage;
use super::op_steps::Work;
use super::op_table::After;
use tiermem_tier::backing;

impl Work<'_> {
    /// Drops the clean parts of the whole units of a range, and
    /// passes the trim on if the store lacks nothing of the volume.
    ///
    /// Dirty data stay: trimmed bytes may read as anything, and the store must get everything
    /// from before a flush. For the same reason the trim is not passed on while the store
    /// lacks dirty data: it might discard data that are written before the trim in order.
    ///
    /// Called again when the log has the records that it waits for.
    pub fn trim(self) -> After {
        if self.op.stage == Stage::Opening {
            return self.trim_store();
        }
        let Work { id, op, shared } = self;
        let (start, end) =
            (op.offset.next_multiple_of(UNIT_BYTES), (op.offset + op.bytes) / UNIT_BYTES * UNIT_BYTES);
        let number = shared.volumes[op.volume].number;
        let mut clean = Vec::new();
        if start < end {
            shared.extents.visit(number, start..end, |part, is_dirty| {
                if !is_dirty {
                    clean.push(part);
                }
            });
        }
        shared.drop_parts(op.volume, &clean);
        let is_over = start >= end || !shared.write_back.cleaner().is_settled(number);
        let work = Work { id, op, shared };
        if is_over {
            return work.end();
        }
        (work.op.offset, work.op.bytes) = (start, end - start);
        // No mapping of what was there may come back afterwards.
        let wait = work.shared.log.sync();
        if work.shared.log.must_wait(id, wait) {
            work.op.stage = Stage::Opening;
            return After::Waits;
        }
        work.trim_store()
    }

    /// Passes it on.
    fn trim_store(self) -> After {
        let Work { id, op, shared } = self;
        op.stage = Stage::Storing;
        let backing = &mut shared.volumes[op.volume].backing;
        op.bytes = op.bytes.min(backing.size_bytes().saturating_sub(op.offset));
        op.ios += 1;
        let token = shared.device.name(Io::Through { op: id });
        backing.submit(backing::Request::trim(token, op.offset, op.bytes));
        After::Waits
    }
}
