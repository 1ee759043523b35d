//! Copies of dirty data, to be written back.

use std::ops::Range;

use tiermem_policy::extents::UNIT_BYTES;
use tiermem_policy::extents::cleaner::{Act, Outcome, Token};
use tiermem_tier::block::AlignedBuffer;

use super::device::Io;
use super::op::{Op, Stage, units_of};
use super::op_steps::Work;
use super::op_table::After;
use super::shared::Shared;
use tiermem_tier::backing::{self, BackingError};

impl Work<'_> {
    /// The range does not change now: read it, once nothing older
    /// of it can come back in the cache when the store has it.
    pub fn copy(self) -> After {
        let number = self.shared.volumes[self.op.volume].number;
        let wait = self.shared.write_order.before_store(number, &self.op.units());
        if self.shared.log.must_wait(self.id, wait) {
            self.op.stage = Stage::Opening;
            return After::Waits;
        }
        // What is lost was to be copied with what was written around it.
        self.op.plan.cached = self.shared.dirty_parts(self.op.volume, &[self.op.units()]);
        self.gather()
    }

    /// The range cannot be written back, for the log is broken or what lies there cannot be proven: it stays dirty.
    pub fn keep_dirty(self, why: &str) -> After {
        if let Some(act) = self.op.act.take() {
            self.shared.write_back_failed(self.op.volume, act, &BackingError::Failed(why.to_owned()));
        }
        self.end()
    }

    /// The range is in memory: send it.
    pub fn copied(mut self) -> After {
        if let Some((_, why)) = self.op.failure.take() {
            return self.keep_dirty(&why);
        }
        self.op.held.retain(|held| !held.range.is_empty());
        self.op.held.sort_unstable_by_key(|held| held.range.start);
        self.lose();
        omit(self.op, self.shared);
        let runs = self.op.copied_runs();
        let Some(act) = self.op.act.take() else { return self.end() };
        for act in self.shared.write_back.tell(self.shared.now_ns, act, Outcome::Copied(&runs)) {
            if let Act::Send { token, units, .. } = act {
                let run = units.start * UNIT_BYTES..units.end * UNIT_BYTES;
                let buffer = match self.op.held.iter_mut().find(|part| part.range == run) {
                    Some(part) => std::mem::take(&mut part.buffer),
                    None => {
                        let mut buffer = self.shared.pool.lend((run.end - run.start) as usize);
                        self.op.copy_held(&run, &mut buffer);
                        buffer
                    }
                };
                self.send(token, units, buffer);
            }
        }
        self.end()
    }

    /// Dirty bytes of the operation's range that the cache's device has lost read as an error from now on.
    fn lose(&mut self) {
        let Work { op, shared, .. } = self;
        let number = shared.volumes[op.volume].number;
        for range in &op.lost {
            let mut parts = Vec::new();
            shared.extents.visit(number, range.clone(), |part, is_dirty| {
                if is_dirty {
                    parts.push(part);
                }
            });
            tracing::error!(
                volume = shared.volumes.name(op.volume),
                offset = range.start,
                bytes = range.end - range.start,
                "the cache's device has lost bytes that the store does not have: reads fail until they are written anew"
            );
            shared.lose_parts(op.volume, &parts);
            shared.write_back.cleaner_mut().lost(number, units_of(range));
        }
    }

    /// Writes dirty units back.
    fn send(&mut self, act: Token, units: Range<u64>, buffer: AlignedBuffer) {
        debug_assert_eq!(buffer.len() as u64, (units.end - units.start) * UNIT_BYTES, "all of it is copied");
        let (at, shared) = (self.op.volume, &mut *self.shared);
        let size_bytes = shared.volumes[at].backing.size_bytes();
        let start = units.start * UNIT_BYTES;
        if start >= size_bytes {
            // Of the last block, what lies behind the volume's end.
            shared.pool.give_back(buffer);
            let session = shared.write_back.cleaner().standing(shared.volumes[at].number).session;
            return shared.written_back(at, act, Ok(()), session);
        }
        let token = shared.device.name(Io::WriteBack { volume: at as u16, act });
        let volume = &mut shared.volumes[at];
        let bytes = (units.end * UNIT_BYTES).min(size_bytes) - start;
        volume.counts.core_writes += 1;
        volume.counts.core_written_bytes += bytes;
        volume.backing.submit(backing::Request::write(token, start, bytes, buffer));
    }
}

/// Bytes of a copy's range that are marked as dirty, which the store has all the same, and the cache's device has not: they are not cached
/// any more.
fn omit(op: &Op, shared: &mut Shared) {
    let number = shared.volumes[op.volume].number;
    for range in &op.omitted {
        let mut parts = Vec::new();
        shared.extents.visit(number, range.clone(), |part, _| parts.push(part));
        shared.forget_parts(op.volume, &parts);
        shared.write_order.note_dropped(&mut shared.log, number, &parts);
    }
}
