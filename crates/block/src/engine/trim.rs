//! Trims: bytes that need not be kept.

use tiermem_policy::extents::UNIT_BYTES;

use super::Engine;
use super::op::{Op, Stage};
use crate::journal::Wait;

impl Engine {
    /// Drops what is clean of the whole units of a range, and passes the trim on if the store lacks nothing of the volume.
    ///
    /// What is dirty stays: trimmed bytes may read as anything, and the store is to get all that came before a flush. For the same reason
    /// it is not told while it lacks something: it might forget what is to be there before that.
    pub(super) fn trim(&mut self, id: u32, mut op: Box<Op>) {
        if !self.await_log_room() {
            return self.park(id, op, true);
        }
        let (start, end) =
            (op.offset.next_multiple_of(UNIT_BYTES), (op.offset + op.bytes) / UNIT_BYTES * UNIT_BYTES);
        let mut clean = Vec::new();
        if start < end {
            self.extents.visit(self.volumes[op.volume].number, start..end, |part, is_dirty| {
                if !is_dirty {
                    clean.push(part);
                }
            });
        }
        self.extents.units_mut().invalidate(&clean);
        self.note_dropped(op.volume, &clean);
        if start >= end || !self.cleaner.is_settled(self.volumes[op.volume].number) {
            self.reply(&mut op, Vec::new());
            return self.end(id, op);
        }
        (op.offset, op.bytes) = (start, end - start);
        let Some(ledger) = &mut self.ledger else { return self.trim_store(id, op) };
        // No mapping of what was there may come back afterwards.
        op.wait = Wait { synced: ledger.journal.appended(), ..Wait::default() };
        if ledger.has(op.wait) {
            return self.trim_store(id, op);
        }
        ledger.journal.want_synced(op.wait.synced);
        op.stage = Stage::Opening;
        ledger.waiting.push(id);
        self.ops[id as usize] = Some(op);
    }

    /// Passes it on.
    pub(super) fn trim_store(&mut self, id: u32, mut op: Box<Op>) {
        op.stage = Stage::Storing;
        let size_bytes = self.volumes[op.volume].backing.size_bytes();
        op.bytes = op.bytes.min(size_bytes.saturating_sub(op.offset));
        self.submit_trim(id, &mut op);
        self.ops[id as usize] = Some(op);
    }

    /// The store has done it, or not.
    pub(super) fn trimmed(&mut self, id: u32, mut op: Box<Op>) {
        self.reply(&mut op, Vec::new());
        self.end(id, op);
    }
}
