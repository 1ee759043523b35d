//! Writes: into the cache, into cache and store, or past the cache.

use std::ops::Range;

use tiermem_policy::extents::Service;
use tiermem_tier::block::AlignedBuffer;

use super::assembly::bytes_to_store;
use super::device::Io;
use super::early_answers::answer_early;
use super::op::{Failure, Op, Stage, Stored};
use super::op_steps::Work;
use super::op_table::{After, Ready};
use super::shared::Shared;
use super::write_order::units_at;
use crate::nbd::Errno;
use tiermem_tier::backing;

impl Work<'_> {
    /// The bytes to be stored are complete, or cannot be.
    pub fn write_gathered(mut self) -> After {
        if self.op.failure.is_some() {
            // Nothing was stored yet.
            self.shared.forget_parts(self.op.volume, &self.op.plan.fresh);
            return self.end();
        }
        self.op.stage = Stage::Storing;
        for at in 0..self.op.plan.through.len() {
            let range = self.op.plan.through[at].clone();
            self.submit_through(range);
        }
        self.submit_fills();
        answer_early(self.shared, self.op);
        if self.op.ios == 0 {
            self.shared.ready.push_back(Ready::Stored(self.id));
        }
        After::Waits
    }

    /// The log is broken, and does not open the blocks of a write that is answered: what it brought stays in DRAM until the store has it.
    pub fn store_nothing(self) -> After {
        for (fill, buffer) in std::mem::take(&mut self.op.brought).into_iter().enumerate() {
            self.op.stored.push(Stored { fill: fill as u32, buffer, is_there: false });
        }
        self.written()
    }

    /// All is stored, or some of it failed.
    pub fn written(mut self) -> After {
        let is_dirty = !self.op.plan.dirtied.is_empty();
        if is_dirty && let Some(why) = self.shared.log.failure() {
            // The log takes no record of it: by what it says these bytes are older ones, and clean, and would be read from the store.
            let why = why.to_owned();
            self.op.failure.get_or_insert((Errno::Io, why));
        }
        let Work { op, shared, .. } = &mut self;
        let is_through = !op.plan.through.is_empty() && !is_dirty;
        if is_through && op.failure.is_some() {
            // The store has what it has; what the cache has may be older or newer.
            let parts = shared.extents.units().without_lost(&op.plan.fill);
            shared.drop_parts(op.volume, &parts);
            op.stored.drain(..).for_each(|stored| shared.pool.give_back(stored.buffer));
            return self.end();
        }
        let has_failed = is_dirty && shared.log.failure().is_some();
        for stored in std::mem::take(&mut op.stored) {
            if !stored.is_there || has_failed {
                op.unstored.push(stored.fill);
                shared.not_stored(op, &stored);
            }
            shared.pool.give_back(stored.buffer);
        }
        shared.note_stored(op);
        self.end()
    }

    /// Stores all that the operation's plan fills.
    pub fn submit_fills(&mut self) {
        let mut brought = std::mem::take(&mut self.op.brought).into_iter();
        for fill in 0..self.op.plan.fill.len() {
            let buffer = brought.next().unwrap_or_else(|| bytes_to_store(self.shared, self.op, fill));
            self.submit_store(fill as u32, buffer);
        }
    }

    /// Stores a part of the operation's plan.
    fn submit_store(&mut self, fill: u32, buffer: AlignedBuffer) {
        let Work { id, op, shared } = self;
        if shared.log.is_kept() {
            op.note_sums(shared.volumes[op.volume].number, fill as usize, &buffer);
        }
        let units = units_at(&op.plan.fill[fill as usize]);
        if shared.extents.units().has_failed(units.clone()) || is_kept_out(shared, op, units.clone()) {
            shared.memory.forget(units);
            return op.stored.push(Stored { fill, buffer, is_there: false });
        }
        let volume = &mut shared.volumes[op.volume];
        volume.counts.cache_writes += 1;
        volume.counts.cache_written_bytes += buffer.len() as u64;
        op.ios += 1;
        shared.device.write(Io::Store { op: *id, fill }, op.plan.fill[fill as usize].at, buffer);
    }

    /// Writes bytes of a volume, which the client brings, to its store.
    fn submit_through(&mut self, range: Range<u64>) {
        let Work { id, op, shared } = self;
        let bytes = range.end - range.start;
        let mut buffer = shared.pool.lend(bytes as usize);
        shared.answers.copy_own(op, range.start, &mut buffer[..bytes as usize]);
        let token = shared.device.name(Io::Through { op: *id });
        op.ios += 1;
        let volume = &mut shared.volumes[op.volume];
        volume.counts.core_writes += 1;
        volume.counts.core_written_bytes += bytes;
        volume.backing.submit(backing::Request::write(token, range.start, bytes, buffer));
    }

    /// A request that stores is done; its buffer is free.
    pub fn stored_part(&mut self, fill: u32, buffer: AlignedBuffer, result: Result<(), Failure>) {
        let units = units_at(&self.op.plan.fill[fill as usize]);
        let is_there = result.is_ok();
        match result {
            Ok(()) => {
                self.shared.memory.update(units.clone(), &buffer);
                self.shared.unstored.forget(units);
            }
            Err(failure) => {
                self.shared.memory.forget(units.clone());
                self.shared.volumes[self.op.volume].counts.cache_failures += 1;
                self.shared.place_failed(self.op.volume, units, &failure);
            }
        }
        self.op.stored.push(Stored { fill, buffer, is_there });
        self.stored_one(None);
    }

    /// One of the operation's requests that store is done.
    fn stored_one(&mut self, failed: Option<Failure>) {
        self.op.ios -= 1;
        if let Some(failed) = failed {
            self.op.failure.get_or_insert(failed);
        }
        if self.op.ios == 0 {
            self.shared.ready.push_back(Ready::Stored(self.id));
        }
    }

    /// A write to the store is done.
    pub fn through_done(&mut self, result: Result<(), Failure>, session: u64) {
        self.shared.volumes[self.op.volume].flushing.wrote(session);
        if let Err(failure) = &result {
            let Shared { volumes, now_ns, .. } = &mut *self.shared;
            volumes.complain(self.op.volume, *now_ns, self.op.offset, failure);
        }
        self.stored_one(result.err());
    }
}

/// Whether the cache's device is not to get these units, which the store has or gets as well: it is out of use, or some are lost. Those may
/// have been promised, and the store may still lose what is written over them, and have older content again. So the log calls them lost
/// until the store has flushed the new content, which is in DRAM meanwhile.
fn is_kept_out(shared: &Shared, op: &Op, units: Range<u64>) -> bool {
    let has_lost = || shared.extents.units().has_lost(units);
    op.plan.dirtied.is_empty() && (shared.extents.service() == Service::OutOfUse || has_lost())
}
