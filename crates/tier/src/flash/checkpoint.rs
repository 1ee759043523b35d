//! Checkpoints: the log's part of the index, written to segments of its own while requests go on.
//!
//! It is fuzzy: entries are written in hash order, some pieces at a time, and may change behind the writing. The journal's
//! half that began with the checkpoint holds all those changes, and applying a change twice is the same as once.

use tiermem_policy::index::Found;
use tiermem_policy::shard::{LogWork, Shard};
use tiermem_sys::aligned::AlignedBuffer;

use super::format::{
    self, BLOCK_BYTES, CHECKPOINT_ENTRY_BYTES, CHECKPOINT_HEADER_BYTES, CHECKPOINT_SEGMENT_BYTES,
    CheckpointHeader, NO_SEGMENT, entry_record, segment_record,
};
use super::{DATABASES, Flash, Moment, Position, Purpose};
use crate::block::Request;

/// Entries written in one piece of work, and when the journal is filling up: still some tens of microseconds.
const ENTRIES: usize = 256;
const ENTRIES_MAX: usize = 4096;
/// Share of the journal's half that is filled between two tries of a checkpoint that cannot be written.
const RETRY_SHARE: f64 = 0.1;

/// A checkpoint under way.
#[derive(Debug)]
pub struct Checkpoint {
    /// Where replaying begins once it is complete.
    journal: Position,
    /// The number of the next filling then.
    next_sequence: u32,
    flushed: [u32; DATABASES],
    items: [u64; DATABASES],
    /// The table of segments, taken when the first piece is written: that is before any entry is.
    segments: Option<Vec<(u32, u32, u32, u32)>>,
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
    /// The last part was submitted, when so many items had been appended.
    last: Option<u64>,
    /// There was no segment for a part.
    starved: bool,
    /// When all parts were written, and when the superblock that names them was.
    complete: Option<Moment>,
    named: Option<Moment>,
}

impl Checkpoint {
    /// Notes that a part was written, or could not be.
    pub fn written(&mut self, ok: bool) {
        self.in_flight -= 1;
        self.failed |= !ok;
    }

    /// Whether it waits for a segment.
    pub fn is_starved(&self) -> bool {
        self.starved
    }
}

impl Flash {
    /// Turns to the journal's other half and begins a checkpoint. Where a restart still needs that half, or a checkpoint is
    /// under way that needs this one, records are lost, and a restart must find nothing until the next checkpoint is complete.
    pub(super) fn turn_journal(&mut self) {
        if self.checkpoint.is_some() || self.needs_both_halves() {
            return self.lose_records();
        }
        self.write_records();
        self.journal.turn();
        self.begin_checkpoint();
    }

    /// Whether a restart would begin with the half that is not in use: the checkpoint that was to end that failed, or was not
    /// complete when the process before this one died.
    fn needs_both_halves(&self) -> bool {
        !self.blank && self.superblock.journal_half != self.journal.half()
    }

    #[cold]
    fn lose_records(&mut self) {
        if !std::mem::replace(&mut self.blank, true) {
            self.stats.journal_overruns += 1;
            self.blank_superblocks();
            // The half is about to be written over, and nothing may name it by then.
            if self.syncs.is_wanted()
                && let Err(error) = self.io.sync()
            {
                self.give_up_recovery(&error.to_string());
            }
        }
        (self.records_lost, self.checkpoint_retry) = (true, 0.0);
        self.write_records();
        self.journal.rewind();
    }

    /// Begins a checkpoint of what the index holds now; replaying will begin at the journal's present end.
    fn begin_checkpoint(&mut self) {
        self.write_records();
        self.checkpoint = Some(Checkpoint {
            journal: self.journal.position(),
            next_sequence: 0,
            flushed: self.superblock.flushed,
            items: self.announced,
            segments: None,
            segments_done: 0,
            position: Some(0),
            part: Vec::new(),
            part_segments: 0,
            part_entries: 0,
            taken: Vec::new(),
            in_flight: 0,
            failed: false,
            last: None,
            starved: false,
            complete: None,
            named: None,
        });
    }

    /// Begins the checkpoint that is missing, if one is.
    fn make_up_for_checkpoint(&mut self) {
        let due = self.blank || self.needs_both_halves();
        if !due || self.broken || self.journal.fullness() < self.checkpoint_retry {
            return;
        }
        if self.blank {
            // What the journal holds is worth nothing without a block that names it.
            self.write_records();
            self.journal.rewind();
        }
        self.records_lost = false;
        self.begin_checkpoint();
    }

    /// A piece of the checkpoint under way: the more, the fuller the journal is. Acts of the shard may follow.
    pub fn step_checkpoint(&mut self, shard: &mut Shard) {
        if self.checkpoint.is_none() {
            self.make_up_for_checkpoint();
        }
        let Some(mut checkpoint) = self.checkpoint.take() else { return };
        let capacity = self.layout.segment_bytes as usize;
        if checkpoint.last.is_none()
            && (checkpoint.part.capacity() > 0 || self.take_part(&mut checkpoint, shard))
        {
            // At half the journal all must be written.
            let share = (self.journal.fullness() * 2.0)
                .max(ENTRIES as f64 / shard.memory().items_below().max(1) as f64);
            let entries =
                ((shard.memory().items_below() as f64 * share / 64.0) as usize).clamp(ENTRIES, ENTRIES_MAX);
            self.gather(&mut checkpoint, shard, entries, capacity);
        }
        // An entry whose item is not on the device yet must not stand for one that is: the places that survivors were
        // copied from count until they are announced.
        let first = self.fillings.iter().filter_map(|filling| filling.first_unannounced()).min();
        let safe = self.journal.is_full() || first.is_none_or(|first| checkpoint.last < Some(first));
        if checkpoint.last.is_none()
            || checkpoint.in_flight > 0
            || !safe
            || !self.settle(&mut checkpoint, shard)
        {
            self.checkpoint = Some(checkpoint);
        }
    }

    /// Ends a checkpoint whose parts are written, as soon as they are durable; whether it has ended.
    fn settle(&mut self, checkpoint: &mut Checkpoint, shard: &mut Shard) -> bool {
        let complete = *checkpoint.complete.get_or_insert_with(|| self.syncs.ask());
        if !self.syncs.is_past(complete) {
            return false;
        }
        if checkpoint.named.is_none() && !self.name(checkpoint, shard) {
            return true;
        }
        let named = *checkpoint.named.get_or_insert_with(|| self.syncs.ask());
        // Until then a restart may begin with the checkpoint before.
        let durable = self.syncs.is_past(named);
        if durable {
            std::mem::take(&mut checkpoint.taken)
                .into_iter()
                .for_each(|it| shard.device().give_back_segment(it));
            self.stats.checkpoints += 1;
        }
        durable
    }

    /// Takes a segment for the next part; whether there was one.
    fn take_part(&mut self, checkpoint: &mut Checkpoint, shard: &mut Shard) -> bool {
        let segment = shard.device().lend_segment();
        checkpoint.starved = segment.is_none();
        let Some(segment) = segment else { return false };
        checkpoint.taken.push(segment);
        checkpoint.part = Vec::with_capacity(self.layout.segment_bytes as usize);
        checkpoint.part.resize(CHECKPOINT_HEADER_BYTES, 0);
        true
    }

    fn gather(
        &mut self,
        checkpoint: &mut Checkpoint,
        shard: &mut Shard,
        mut entries: usize,
        capacity: usize,
    ) {
        if checkpoint.segments.is_none() {
            let log = shard.log().map(LogWork::log);
            checkpoint.segments = Some(log.map(|log| log.in_use()).unwrap_or_default());
            checkpoint.next_sequence = log.map_or(0, |log| log.next_sequence());
        }
        let record = |checkpoint: &Checkpoint| {
            checkpoint.segments.as_ref().and_then(|segments| segments.get(checkpoint.segments_done)).copied()
        };
        while let Some(record) = record(checkpoint)
            && entries > 0
        {
            if checkpoint.part.len() + CHECKPOINT_SEGMENT_BYTES > capacity {
                return self.write_part(checkpoint, shard, false);
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
            return self.write_part(checkpoint, shard, false);
        }
        let mut found = Vec::new();
        checkpoint.position = shard.memory().entries(from, entries.min(left - 32), |hash, entry| {
            if let Found::Log(place) = entry {
                found.push((hash, place.0));
            }
        });
        for (hash, place) in found {
            checkpoint.part.extend_from_slice(&entry_record(hash, place));
            checkpoint.part_entries += 1;
        }
        if checkpoint.position.is_none() {
            self.write_part(checkpoint, shard, true);
        }
    }

    /// Submits the part that was gathered. Unless it is the last it names the next one's segment, so that must be there.
    fn write_part(&mut self, checkpoint: &mut Checkpoint, shard: &mut Shard, last: bool) {
        let mut part = std::mem::take(&mut checkpoint.part);
        let segment = checkpoint.taken.last().copied().unwrap_or(NO_SEGMENT);
        if !last && !self.take_part(checkpoint, shard) {
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
        if last {
            checkpoint.last = Some(self.appended);
            // So that it need not wait for segments to fill.
            shard.device().write_out(false);
        }
    }

    /// Writes the superblock that names a checkpoint, which takes over the segments of the one before. `false`: it failed.
    fn name(&mut self, checkpoint: &mut Checkpoint, shard: &mut Shard) -> bool {
        if checkpoint.failed || self.records_lost {
            std::mem::take(&mut checkpoint.taken)
                .into_iter()
                .for_each(|it| shard.device().give_back_segment(it));
            // The last checkpoint and both halves still say all there is to say, until the journal is full again.
            self.stats.checkpoints_failed += u64::from(checkpoint.failed);
            self.checkpoint_retry = self.journal.fullness() + RETRY_SHARE;
            return false;
        }
        std::mem::swap(&mut self.checkpoint_segments, &mut checkpoint.taken);
        self.superblock.checkpoint = self.checkpoint_segments.first().copied().unwrap_or(NO_SEGMENT);
        let Position { half, skipped, sequence } = checkpoint.journal;
        (self.superblock.journal_half, self.superblock.journal_sequence) = (half, sequence);
        (self.superblock.journal_skipped, self.superblock.next_sequence) =
            (skipped, checkpoint.next_sequence);
        self.superblock.items = checkpoint.items;
        let flushed = std::mem::replace(&mut self.superblock.flushed, checkpoint.flushed);
        let written = self.write_superblock();
        self.superblock.flushed = flushed;
        match written {
            Ok(()) => self.blank = false,
            Err(error) => self.give_up_recovery(&error.to_string()),
        }
        true
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
