//! Checkpoints: the log's part of the index, written to segments of its own while requests go on.
//!
//! It is fuzzy: entries are written in hash order, some pieces at a time, and may change behind the writing. The journal's
//! half that began with the checkpoint holds all those changes, and applying a change twice is the same as once.

use tiermem_policy::index::{Found, Index};
use tiermem_sys::aligned::AlignedBuffer;

use super::format::{
    self, BLOCK_BYTES, CHECKPOINT_ENTRY_BYTES, CHECKPOINT_HEADER_BYTES, CHECKPOINT_SEGMENT_BYTES,
    CheckpointHeader, NO_SEGMENT, entry_record, segment_record,
};
use super::{DATABASES, Flash, Purpose};
use crate::block::Request;

/// Entries written in one piece of work at least.
const ENTRIES: usize = 256;

/// A checkpoint under way.
#[derive(Debug)]
pub struct Checkpoint {
    /// Where replaying begins once it is complete.
    journal: (u32, u32),
    flushed: [u32; DATABASES],
    items: [u64; DATABASES],
    segments: Vec<(u32, u32, u32, u32)>,
    /// Segments of the table that were written.
    segments_done: usize,
    /// The next position of the index; none: it is at its end.
    position: Option<u64>,
    /// The part being gathered.
    part: Vec<u8>,
    part_segments: u32,
    part_entries: u32,
    /// Where the part will go, and the parts before it.
    taken: Vec<u32>,
    in_flight: u32,
    failed: bool,
    /// The last part was submitted.
    last: bool,
}

impl Checkpoint {
    /// Notes that a part was written, or could not be.
    pub fn written(&mut self, ok: bool) {
        self.in_flight -= 1;
        self.failed |= !ok;
    }
}

impl Flash {
    /// Turns to the journal's other half and begins a checkpoint, unless one is under way: then the journal has lost a
    /// record, and a restart must find nothing until the next checkpoint is complete.
    pub(super) fn turn_journal(&mut self) {
        if self.checkpoint.is_some() {
            self.lose_records();
            return;
        }
        self.begin_checkpoint();
    }

    #[cold]
    fn lose_records(&mut self) {
        if !std::mem::replace(&mut self.records_lost, true) {
            self.stats.journal_overruns += 1;
            self.blank_superblocks();
        }
        self.commit();
        self.journal.rewind();
    }

    /// Begins a checkpoint of what the index holds now.
    pub(super) fn begin_checkpoint(&mut self) {
        self.commit();
        self.journal.turn();
        self.checkpoint = Some(Checkpoint {
            journal: self.journal.position(),
            flushed: self.superblock.flushed,
            items: self.items,
            segments: self.log.in_order(),
            segments_done: 0,
            position: Some(0),
            part: Vec::new(),
            part_segments: 0,
            part_entries: 0,
            taken: Vec::new(),
            in_flight: 0,
            failed: false,
            last: false,
        });
    }

    /// A piece of the checkpoint under way: the more, the fuller the journal is.
    pub(super) fn step_checkpoint(&mut self, index: &Index) {
        let Some(mut checkpoint) = self.checkpoint.take() else { return };
        let capacity = self.layout.segment_bytes as usize;
        if !checkpoint.last && (checkpoint.part.capacity() > 0 || self.take_part(&mut checkpoint)) {
            // At half the journal all must be written.
            let share = (self.journal.fullness() * 2.0).max(ENTRIES as f64 / index.log_len().max(1) as f64);
            let entries = ((index.log_len() as f64 * share / 64.0) as usize).max(ENTRIES);
            self.gather(&mut checkpoint, index, entries, capacity);
        }
        if !checkpoint.last || checkpoint.in_flight > 0 {
            self.checkpoint = Some(checkpoint);
            return;
        }
        self.end_checkpoint(checkpoint);
    }

    /// Takes a segment for the next part; whether there was one.
    fn take_part(&mut self, checkpoint: &mut Checkpoint) -> bool {
        let Some(segment) = self.log.take_segment() else { return false };
        checkpoint.taken.push(segment);
        checkpoint.part = Vec::with_capacity(self.layout.segment_bytes as usize);
        checkpoint.part.resize(CHECKPOINT_HEADER_BYTES, 0);
        true
    }

    fn gather(&mut self, checkpoint: &mut Checkpoint, index: &Index, mut entries: usize, capacity: usize) {
        while let Some(&record) = checkpoint.segments.get(checkpoint.segments_done)
            && entries > 0
        {
            if checkpoint.part.len() + CHECKPOINT_SEGMENT_BYTES > capacity {
                return self.write_part(checkpoint, false);
            }
            checkpoint.part.extend_from_slice(&segment_record(record));
            checkpoint.segments_done += 1;
            checkpoint.part_segments += 1;
            entries -= 1;
        }
        let left = (capacity - checkpoint.part.len()) / CHECKPOINT_ENTRY_BYTES;
        let Some(from) = checkpoint.position.filter(|_| entries > 0) else { return };
        // A scan gives whole hashes, so it may give a few more than it is asked for.
        if left < 64 {
            return self.write_part(checkpoint, false);
        }
        let mut found = Vec::new();
        checkpoint.position = index.scan(from, entries.min(left - 32), |hash, entry| {
            if let Found::Log(place) = entry {
                found.push((hash, place.0));
            }
        });
        for (hash, place) in found {
            checkpoint.part.extend_from_slice(&entry_record(hash, place));
            checkpoint.part_entries += 1;
        }
        if checkpoint.position.is_none() {
            self.write_part(checkpoint, true);
        }
    }

    /// Submits the part that was gathered. Unless it is the last it names the next one's segment, so that must be there.
    fn write_part(&mut self, checkpoint: &mut Checkpoint, last: bool) {
        let mut part = std::mem::take(&mut checkpoint.part);
        let segment = checkpoint.taken.last().copied().unwrap_or(NO_SEGMENT);
        if !last && !self.take_part(checkpoint) {
            checkpoint.part = part;
            return;
        }
        let next = if last { NO_SEGMENT } else { checkpoint.taken.last().copied().unwrap_or(NO_SEGMENT) };
        let header = CheckpointHeader {
            uuid: self.superblock.uuid,
            epoch: self.superblock.epoch + 1,
            next,
            segments: std::mem::take(&mut checkpoint.part_segments),
            entries: std::mem::take(&mut checkpoint.part_entries),
        };
        header.seal(&mut part);
        let mut buffer = AlignedBuffer::zeroed(part.len().next_multiple_of(BLOCK_BYTES));
        buffer[..part.len()].copy_from_slice(&part);
        self.stats.checkpoint_bytes += buffer.len() as u64;
        let offset = self.layout.segment(segment);
        self.requests.push(Request::write(Purpose::Checkpoint.token(), offset, buffer));
        checkpoint.in_flight += 1;
        checkpoint.last = last;
    }

    fn end_checkpoint(&mut self, checkpoint: Checkpoint) {
        let lost = std::mem::take(&mut self.records_lost);
        if checkpoint.failed || lost {
            checkpoint.taken.into_iter().for_each(|segment| self.log.give_segment(segment));
            if checkpoint.failed {
                // The last checkpoint and both halves still say all there is to say, until the journal is full again.
                self.stats.checkpoints_failed += 1;
            }
            if lost {
                self.begin_checkpoint();
            }
            return;
        }
        let old = std::mem::replace(&mut self.checkpoint_segments, checkpoint.taken);
        self.superblock.checkpoint = self.checkpoint_segments.first().copied().unwrap_or(NO_SEGMENT);
        (self.superblock.journal_half, self.superblock.journal_sequence) = checkpoint.journal;
        self.superblock.items = checkpoint.items;
        let flushed = std::mem::replace(&mut self.superblock.flushed, checkpoint.flushed);
        let written = self.write_superblock();
        self.superblock.flushed = flushed;
        match written {
            Ok(()) => old.into_iter().for_each(|segment| self.log.give_segment(segment)),
            Err(error) => self.give_up_recovery(&error.to_string()),
        }
        self.stats.checkpoints += 1;
    }

    /// The block that names no checkpoint: a restart finds nothing.
    pub(super) fn blank_superblocks(&mut self) {
        let blank = [0; format::BLOCK_BYTES];
        for which in 0..2 {
            // If this fails there is nothing left to try.
            let _ = self.io.write_at(self.layout.superblock(which), &blank);
        }
    }
}
