//! Writes: into the cache, into cache and store, or past the cache.

use std::ops::Range;

use tiermem_policy::extents::Part;
use tiermem_tier::block::AlignedBuffer;

use super::device::Io;
use super::op::{Failure, Stage, common};
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
        if self.may_be_early() {
            // Operations that read or overwrite it wait until it is stored, as this operation keeps its claim.
            self.shared.write_order.owe(&self.shared.log, self.op);
            self.op.is_early = true;
            self.shared.reply(self.op, Vec::new());
        }
        After::Waits
    }

    /// Whether the client may be answered before its write is stored.
    fn may_be_early(&self) -> bool {
        let plan = &self.op.plan;
        plan.through.is_empty()
            && !plan.dirtied.is_empty()
            && self.op.job.is_some_and(|job| !self.shared.answers.is_durable(job))
            && self.shared.write_order.has_early_room(&self.shared.log, self.op.bytes)
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
        let units = shared.extents.units();
        if op.failure.is_none() {
            shared.note_stored(op);
        } else if op.is_early {
            // The client takes it to be there: nothing older may be read in its place. What was fetched beside it the store has.
            let lost = units.those_dirty(&op.plan.fill, true);
            let fetched = units.those_dirty(&op.plan.fill, false);
            shared.lose_parts(op.volume, &lost);
            shared.drop_parts(op.volume, &fetched);
            if let Some(failure) = op.failure.take() {
                // The flushes that wait for it report the failure, or the next flush does.
                for waiter in shared.volumes[op.volume].flushing.lose(&failure) {
                    shared.answers.tell(waiter.asker, Err(failure.clone()));
                }
            }
        } else if is_dirty {
            // What the cache had of it is lost.
            let mut lost = op.plan.fill.clone();
            for fresh in &op.plan.fresh {
                lost = lost.into_iter().flat_map(|part| without(part, fresh)).collect();
            }
            shared.forget_parts(op.volume, &op.plan.fresh);
            shared.lose_parts(op.volume, &lost);
            let number = shared.volumes[op.volume].number;
            shared.write_order.note_dropped(&mut shared.log, number, &op.plan.fresh);
        } else {
            // The store has what it has; what the cache has may be older or newer.
            let parts = units.without_lost(&op.plan.fill);
            shared.drop_parts(op.volume, &parts);
        }
        self.end()
    }

    /// Stores all that the operation's plan fills.
    pub fn submit_fills(&mut self) {
        for fill in 0..self.op.plan.fill.len() {
            let own = self.shared.answers.take_own(self.op, &self.op.plan.fill[fill]);
            let buffer = own.unwrap_or_else(|| self.assemble(fill));
            self.submit_store(fill as u32, buffer);
        }
    }

    /// The bytes of a part of the plan: what was read, and over that what the client writes.
    fn assemble(&mut self, fill: usize) -> AlignedBuffer {
        let Work { op, shared, .. } = self;
        let part = op.plan.fill[fill];
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

    /// Stores a part of the operation's plan.
    fn submit_store(&mut self, fill: u32, buffer: AlignedBuffer) {
        let Work { id, op, shared } = self;
        let volume = &mut shared.volumes[op.volume];
        if shared.log.is_kept() {
            op.note_sums(volume.number, fill as usize, &buffer);
        }
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
        match result {
            Ok(()) => self.shared.memory.update(units, &buffer),
            Err(_) => self.shared.memory.forget(units),
        }
        self.shared.pool.give_back(buffer);
        self.stored_one(result.err());
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

/// The rest of a part without another.
fn without(part: Part, gone: &Part) -> impl Iterator<Item = Part> {
    let end = part.at + part.bytes;
    let cut = |from: u64, to: u64| {
        let (from, to) = (from.clamp(part.at, end), to.clamp(part.at, end));
        (from < to).then(|| Part { offset: part.offset + (from - part.at), at: from, bytes: to - from })
    };
    let (before, behind) = if gone.at < end && part.at < gone.at + gone.bytes {
        (cut(part.at, gone.at), cut(gone.at + gone.bytes, end))
    } else {
        (Some(part), None)
    };
    before.into_iter().chain(behind)
}
