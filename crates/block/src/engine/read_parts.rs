//! Parts of an operation's reads: from DRAM, the cache's device, or the store where the device fails.

use std::ops::Range;

use tiermem_policy::extents::{Part, UNIT_BYTES};
use tiermem_tier::block::AlignedBuffer;

use super::device::Io;
use super::op::{Failure, Held, Kind, Source, Stage, common, units_from};
use super::op_steps::{Work, unplan};
use super::op_table::{After, Ready};
use super::write_order::units_at;
use crate::nbd::Errno;
use tiermem_tier::backing;

/// Error for bytes that may be right but cannot be verified.
const UNKNOWN: &str = "the checksums of these bytes of the cache cannot be read";

impl Work<'_> {
    /// Reads all that the operation's plan names.
    pub fn gather(mut self) -> After {
        let has_waited = self.op.unstored_forgotten != self.shared.unstored.forgotten();
        if has_waited
            && matches!(self.op.kind, Kind::Read | Kind::Prefetch)
            && !self.op.plan.cached.is_empty()
        {
            // Bytes that it was to find in DRAM are gone; where they were to be in the cache its device may have older ones.
            unplan(self.op, self.shared);
            self.release_claims();
            return self.claim();
        }
        self.op.stage = Stage::Gathering;
        self.op.asked_ns = self.shared.now_ns;
        for at in 0..self.op.plan.cached.len() {
            let part = self.op.plan.cached[at];
            let Part { offset, at, bytes } = part;
            if self.shared.extents.units().has_lost(units_at(&part)) {
                let words = format!(
                    "bytes {offset} to {} were lost by the cache's device; write them anew",
                    offset + bytes
                );
                self.op.failure.get_or_insert((Errno::Io, words));
                continue;
            }
            if !self.shared.unstored.has(&units_at(&part)) {
                self.submit_gather(offset..offset + bytes, Source::Cache(at), None);
                continue;
            }
            for units in self.shared.unstored.runs(units_at(&part)) {
                let run = units.start * UNIT_BYTES..units.end * UNIT_BYTES;
                self.submit_gather(
                    offset + (run.start - at)..offset + (run.end - at),
                    Source::Cache(run.start),
                    None,
                );
            }
        }
        for at in 0..self.op.plan.fetch.len() {
            let range = self.op.plan.fetch[at].clone();
            self.submit_gather(range, Source::Backing, None);
        }
        if self.op.ios == 0 {
            self.shared.ready.push_back(Ready::Gathered(self.id));
        }
        After::Waits
    }

    /// Reads a part of what the operation needs, which may replace a part of what was read before.
    fn submit_gather(&mut self, range: Range<u64>, source: Source, patches: Option<u32>) {
        let buffer = self.shared.pool.lend((range.end - range.start) as usize);
        let held = self.op.hold(range, source, buffer, patches);
        let Held { range, source, buffer, .. } = &mut self.op.held[held as usize];
        let volume = &mut self.shared.volumes[self.op.volume];
        let size_bytes = volume.backing.size_bytes();
        let is_here = match *source {
            // What lies behind the end of a volume reads as zeroes.
            Source::Backing if range.start >= size_bytes => {
                buffer.fill(0);
                true
            }
            Source::Backing => false,
            Source::Cache(at) => {
                let units = units_from(at, range);
                self.shared.unstored.read(units.clone(), buffer) || self.shared.memory.read(units, buffer)
            }
        };
        if is_here {
            return self.op.gathered(held, &mut self.shared.pool);
        }
        let buffer = std::mem::take(buffer);
        let io = Io::Gather { op: self.id, held };
        let bytes = range.end - range.start;
        self.op.ios += 1;
        match *source {
            Source::Cache(at) => {
                volume.counts.cache_reads += 1;
                volume.counts.cache_read_bytes += bytes;
                self.shared.device.read(io, at, buffer);
                // What they are compared with may have to be read as well.
                self.shared.log.has_sums(units_from(at, range));
            }
            Source::Backing => {
                volume.counts.core_reads += 1;
                volume.counts.core_read_bytes += bytes;
                let there = size_bytes.clamp(range.start, range.end) - range.start;
                let token = self.shared.device.name(io);
                volume.backing.submit(backing::Request::read(token, range.start, there, buffer));
            }
        }
    }

    /// A part of what the operation needs is here, or cannot be had.
    pub fn gathered_part(&mut self, held: u32, buffer: AlignedBuffer, result: Result<(), Failure>) {
        let Held { range, source, .. } = &self.op.held[held as usize];
        let (range, source) = (range.clone(), *source);
        if let (Ok(()), Source::Cache(at)) = (&result, source)
            && !self.shared.log.has_sums(units_from(at, &range))
        {
            return self.shared.unproven.push((self.id, held, buffer));
        }
        self.op.ios -= 1;
        self.op.held[held as usize].buffer = buffer;
        match (result, source) {
            (Ok(()), Source::Backing) => {
                self.op.fetched_ns = Some(self.shared.now_ns);
                self.op.gathered(held, &mut self.shared.pool);
            }
            (Ok(()), Source::Cache(at)) => self.prove(held, &range, at),
            (Err(failure), Source::Backing) => {
                self.shared.volumes.complain(self.op.volume, self.shared.now_ns, range.start, &failure);
                self.op.failure.get_or_insert(failure);
                self.fetch_less(held, range);
            }
            (Err(failure), Source::Cache(at)) => {
                if self.op.held[held as usize].patches.is_some() {
                    self.shared.place_failed(self.op.volume, units_from(at, &range), &failure);
                }
                self.not_read(held, range, at, failure);
            }
        }
        if self.op.ios == 0 && self.op.stage == Stage::Gathering {
            self.shared.ready.push_back(Ready::Gathered(self.id));
        }
    }

    /// The store failed to read these bytes of a buffer. What was asked for of them is read alone, where the rest was read for later: the
    /// store may have a bad place in that.
    fn fetch_less(&mut self, held: u32, range: Range<u64>) {
        let needed = common(&range, &self.op.aligned());
        if self.op.kind == Kind::Read && !needed.is_empty() && needed != range {
            self.op.held[held as usize].range = 0..0;
            self.submit_gather(needed, Source::Backing, None);
        }
    }

    /// Compares what the cache's device gave with the checksums.
    fn prove(&mut self, held: u32, range: &Range<u64>, at: u64) {
        let units = units_from(at, range);
        let is_known = self.shared.log.journal().is_none_or(|journal| !journal.has_lost_sums(units.clone()));
        if !is_known && self.op.kind == Kind::Copy {
            self.op.failure.get_or_insert((Errno::Io, UNKNOWN.to_owned()));
        }
        let number = self.shared.volumes[self.op.volume].number;
        let buffer = &self.op.held[held as usize].buffer;
        let misfits = self.shared.log.misfits(number, range, at, buffer);
        if misfits.is_empty() && self.op.kind != Kind::Copy {
            self.shared.memory.insert(units, buffer);
        }
        self.op.gathered(held, &mut self.shared.pool);
        for misfit in misfits {
            let why = match is_known {
                true => format!("the cache's device gives other bytes than were stored, at {}", misfit.start),
                false => UNKNOWN.to_owned(),
            };
            let at = at + (misfit.start - range.start);
            self.not_read(held, misfit, at, (Errno::Io, why));
        }
    }

    /// The cache's device failed to return these bytes of a buffer, or returned others than were stored: they are read once more, unit by
    /// unit. It may give some of them, or all now.
    fn not_read(&mut self, held: u32, range: Range<u64>, at: u64, failure: Failure) {
        if self.op.held[held as usize].patches.is_some() {
            return self.cache_failed(held, range, at, failure);
        }
        self.op.held[held as usize].is_good = true;
        for start in (range.start..range.end).step_by(UNIT_BYTES as usize) {
            let source = Source::Cache(at + (start - range.start));
            self.submit_patch(held, start..start + UNIT_BYTES, source);
        }
    }

    /// Reads what replaces a part of what was read before.
    fn submit_patch(&mut self, held: u32, range: Range<u64>, source: Source) {
        let patches = self.op.held[held as usize].patches.unwrap_or(held);
        self.submit_gather(range, source, Some(patches));
    }

    /// The cache's device does not return a unit, which lies at `at` there. Clean bytes are read from the store instead.
    fn cache_failed(&mut self, held: u32, range: Range<u64>, at: u64, failure: Failure) {
        self.shared.volumes[self.op.volume].counts.cache_failures += 1;
        let Held { range: whole, buffer, patches, .. } = &mut self.op.held[held as usize];
        debug_assert!(patches.is_some(), "it was read once more, by itself");
        // Its bytes are invalid, and must not be taken for a part of the answer beside the bytes read in their stead.
        *whole = 0..0;
        self.shared.pool.give_back(std::mem::take(buffer));
        self.op.held[held as usize].is_good = true;
        if self.shared.was_dirty(self.op, &range, at) {
            let root = self.op.held[held as usize].patches.unwrap_or(held);
            self.op.held[root as usize].is_good = false;
            if self.op.kind == Kind::Copy {
                self.op.lost.push(range);
            } else {
                self.op.failure.get_or_insert(failure);
            }
            return;
        }
        // After a crash it is no fault: another block's data may have come to its place, and the log did not get to say so.
        tracing::debug!(
            volume = self.shared.volumes.name(self.op.volume),
            offset = range.start,
            error = failure.1,
            "read from the store instead"
        );
        if self.op.kind == Kind::Copy {
            // They are marked with the rest of a block that is dirty as a whole, or by a write that failed with the log.
            return self.op.omitted.push(range);
        }
        // A write is about to store these units anew.
        let is_read = matches!(self.op.kind, Kind::Read | Kind::Prefetch);
        if is_read && !self.shared.is_marked(self.op.volume, &range) {
            let part = Part { offset: range.start, at, bytes: range.end - range.start };
            self.shared.drop_parts(self.op.volume, &[part]);
        }
        self.submit_patch(held, range, Source::Backing);
    }
}
