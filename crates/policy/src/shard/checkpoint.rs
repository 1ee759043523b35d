//! Checkpoints: the contents of the log, written to segments that are borrowed from it, while requests go on.
//!
//! One begins when a half of the journal is full, and is made in pieces: the fuller the other half is, the larger they are, so
//! that it ends before that half is full. It is fuzzy: items are gathered in the order of their hashes and may change behind the
//! gathering. The half that began with it has all those changes, and to apply a change twice is the same as once.
//!
//! It borrows a segment for each part, gathered one after the other, and keeps them until the next checkpoint is complete:
//! segments that a restart could begin with are given back only when the superblock that names their successor is durable.

use std::collections::VecDeque;

use super::Keys;
use super::journal::Journal;
use super::persist_command::{Duty, Parts, Recorded, Settling};
use crate::index::Found;
use crate::log::{Filled, ITEM_ROW_BYTES, Log, PART_HEADER_BYTES, SEGMENT_ROW_BYTES};

/// Rows gathered in one piece of work, and when the journal is filling up: still some tens of microseconds.
const ROWS: u64 = 256;
const ROWS_MAX: u64 = 4096;
/// Pieces in which a checkpoint is gathered if the journal stays as full as it is.
const PIECES: f64 = 64.0;
/// Share of the journal's half that is filled between two tries of a checkpoint that cannot be written.
const RETRY_SHARE: f64 = 0.1;
/// A scan of the index gives whole hashes, so it may give this many items more than it is asked for.
const SCAN_SPARE: u32 = 32;

/// How far a checkpoint has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Gathering,
    /// All parts were handed out, when this many items had been appended.
    Gathered {
        appended: u64,
    },
    /// Its parts are on the device: it waits until they are durable.
    Written,
    /// The superblock that names it is being written, or is not durable.
    Named,
}

/// A checkpoint under way.
#[derive(Debug)]
struct Checkpoint {
    stage: Stage,
    /// The segments that the log has, taken when the first piece is gathered: that is before any item is. And how many were.
    table: Option<Vec<Filled>>,
    rows: usize,
    /// The number of the next filling then.
    next_sequence: u32,
    /// The next position of the index; `None`: it is at its end.
    position: Option<u64>,
    /// Bytes of the part that is being gathered; it has a segment.
    part_bytes: Option<u32>,
    /// The segments of its parts.
    taken: Vec<u32>,
    in_flight: u32,
    has_failed: bool,
    /// There was no segment for a part.
    is_starved: bool,
}

impl Checkpoint {
    fn new() -> Self {
        Checkpoint {
            stage: Stage::Gathering,
            table: None,
            rows: 0,
            next_sequence: 0,
            position: Some(0),
            part_bytes: None,
            taken: Vec::new(),
            in_flight: 0,
            has_failed: false,
            is_starved: false,
        }
    }

    /// Takes a segment for the next part. Returns whether there was one.
    fn take_part(&mut self, log: &mut Log) -> bool {
        let segment = log.take_segment();
        self.is_starved = segment.is_none();
        let Some(segment) = segment else { return false };
        debug_assert!(!self.taken.contains(&segment), "a segment is borrowed once");
        self.taken.push(segment);
        self.part_bytes = Some(PART_HEADER_BYTES);
        true
    }

    /// Gathers `rows` rows, or fewer where a part ends. Returns whether the last part was handed out.
    fn gather<P: Parts>(&mut self, mut rows: u64, around: &mut Around<'_>, parts: &mut P) -> bool {
        let segment_bytes = around.log.config().segment_bytes;
        if self.table.is_none() {
            (self.table, self.next_sequence) = (Some(around.log.in_use()), around.log.next_sequence());
        }
        let Some(mut part_bytes) = self.part_bytes else { return false };
        while let Some(&row) = self.table.as_ref().and_then(|table| table.get(self.rows))
            && rows > 0
        {
            if part_bytes + SEGMENT_ROW_BYTES > segment_bytes {
                return self.end_part(around, false);
            }
            parts.add_segment(row);
            part_bytes += SEGMENT_ROW_BYTES;
            self.part_bytes = Some(part_bytes);
            self.rows += 1;
            rows -= 1;
        }
        let Some(from) = self.position.filter(|_| rows > 0) else { return false };
        let left = (segment_bytes - part_bytes) / ITEM_ROW_BYTES;
        if left < 2 * SCAN_SPARE {
            return self.end_part(around, false);
        }
        let count = rows.min(u64::from(left - SCAN_SPARE)) as usize;
        self.position = around.keys.entries(from, count, |hash, found| {
            if let Found::Log(place) = found {
                parts.add_item(hash, place);
                part_bytes += ITEM_ROW_BYTES;
            }
        });
        assert!(part_bytes <= segment_bytes, "a part fits its segment");
        self.part_bytes = Some(part_bytes);
        self.position.is_none() && self.end_part(around, true)
    }

    /// Hands out the part that was gathered. Unless it is the last it names the next one's segment, so that must be there.
    /// Returns whether it was the last.
    fn end_part(&mut self, around: &mut Around<'_>, is_last: bool) -> bool {
        let Some(&segment) = self.taken.last() else { return false };
        if !is_last && !self.take_part(around.log) {
            return false;
        }
        let next = self.taken.last().copied().filter(|_| !is_last);
        around.duties.push_back(Duty::WritePart { segment, next });
        self.in_flight += 1;
        if is_last {
            self.part_bytes = None;
            self.stage = Stage::Gathered { appended: around.appended };
        }
        is_last
    }
}

/// The sources of a checkpoint, and where its duties go.
pub(super) struct Around<'a> {
    pub(super) log: &'a mut Log,
    pub(super) keys: &'a Keys,
    pub(super) duties: &'a mut VecDeque<Duty>,
    /// Items appended since the start, and the number of the first that was not announced.
    pub(super) appended: u64,
    pub(super) first_unannounced: Option<u64>,
}

/// How many there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointCounters {
    /// Checkpoints completed.
    pub completed: u64,
    /// Checkpoints that could not be written.
    pub failed: u64,
    /// How often the journal was full before its checkpoint was complete.
    pub overruns: u64,
}

/// The journal's room, the checkpoint under way, and the segments of the last one.
#[derive(Debug)]
pub struct Checkpoints {
    journal: Journal,
    under_way: Option<Checkpoint>,
    segments: Vec<u32>,
    /// Records are missing that the one under way would need.
    records_lost: bool,
    /// How full the journal must be before one that failed is tried again.
    retry_fullness: f64,
    completed: u64,
    failed: u64,
}

impl Checkpoints {
    /// The last one lies in these segments.
    pub(super) fn new(journal: Journal, segments: Vec<u32>) -> Self {
        let (under_way, records_lost, retry_fullness) = (None, false, 0.0);
        Checkpoints { journal, under_way, segments, records_lost, retry_fullness, completed: 0, failed: 0 }
    }

    /// Finds a place for a record of the journal; one begins where that is full.
    pub(super) fn note_record(&mut self) -> Recorded {
        let recorded = self.journal.note_record(self.under_way.is_some());
        match recorded {
            Recorded::Behind => {}
            // The half that begins with it has all records that it needs.
            Recorded::InOtherHalf => (self.under_way, self.records_lost) = (Some(Checkpoint::new()), false),
            Recorded::OverLost { .. } => (self.records_lost, self.retry_fullness) = (true, 0.0),
        }
        recorded
    }

    /// Does a piece of the one under way, or begins the one that is missing, if it `may_begin`. Returns whether all of it was
    /// handed out by this.
    pub(super) fn step<P: Parts>(&mut self, may_begin: bool, around: &mut Around<'_>, parts: &mut P) -> bool {
        let is_due = self.journal.lacks_checkpoint() && self.journal.fullness() >= self.retry_fullness;
        if self.under_way.is_none() && may_begin && is_due {
            parts.begin(self.journal.rewind_if_blank());
            self.records_lost = false;
            self.under_way = Some(Checkpoint::new());
        }
        let rows = self.rows(around.keys.items_below());
        let Some(checkpoint) = &mut self.under_way else { return false };
        let mut is_gathered = false;
        if checkpoint.stage == Stage::Gathering
            && (checkpoint.part_bytes.is_some() || checkpoint.take_part(around.log))
        {
            is_gathered = checkpoint.gather(rows, around, parts);
        }
        if let Stage::Gathered { appended } = checkpoint.stage
            && checkpoint.in_flight == 0
            // An item that is not on the device yet must not stand for one that is: the places that survivors were copied from
            // count until they are announced.
            && (self.journal.is_full() || around.first_unannounced.is_none_or(|first| appended < first))
        {
            checkpoint.stage = Stage::Written;
            around.duties.push_back(Duty::Settle(Settling::Parts));
        }
        is_gathered
    }

    /// Rows of the next piece, where the log has `items` items: at half the journal all must be gathered.
    fn rows(&self, items: u64) -> u64 {
        let share = (self.journal.fullness() * 2.0).max(ROWS as f64 / items.max(1) as f64);
        ((items as f64 * share / PIECES) as u64).clamp(ROWS, ROWS_MAX)
    }

    /// A part is on the device; with `false` it could not be written.
    pub(super) fn part_written(&mut self, is_written: bool) {
        debug_assert!(self.under_way.as_ref().is_some_and(|it| it.in_flight > 0), "a part is written once");
        if let Some(checkpoint) = &mut self.under_way {
            checkpoint.in_flight -= 1;
            checkpoint.has_failed |= !is_written;
        }
    }

    /// The parts are durable: the checkpoint can be named, and replaces the one before. Where it cannot, its borrowed segments go
    /// back: the one before and both halves still describe everything, until the journal is full again.
    pub(super) fn parts_settled(&mut self, log: &mut Log) -> Option<Duty> {
        let checkpoint = self.under_way.as_mut().filter(|it| it.stage == Stage::Written)?;
        if checkpoint.has_failed || self.records_lost {
            self.failed += u64::from(checkpoint.has_failed);
            self.retry_fullness = self.journal.fullness() + RETRY_SHARE;
            self.end(log);
            return None;
        }
        checkpoint.stage = Stage::Named;
        std::mem::swap(&mut self.segments, &mut checkpoint.taken);
        let next_sequence = checkpoint.next_sequence;
        self.segments.first().map(|&first| Duty::Name { first, next_sequence })
    }

    /// The superblock that names it is written; with `false` it could not be.
    pub(super) fn note_named(&mut self, is_written: bool) {
        self.journal.note_named(is_written);
    }

    /// And is durable: nothing begins with the one before any more.
    pub(super) fn name_settled(&mut self, log: &mut Log) {
        if self.under_way.as_ref().is_some_and(|it| it.stage == Stage::Named) {
            self.completed += 1;
            self.end(log);
        }
    }

    fn end(&mut self, log: &mut Log) {
        let taken = self.under_way.take().map(|it| it.taken).unwrap_or_default();
        for segment in taken {
            assert_eq!(log.live_in(segment), 0, "a borrowed segment has no items");
            log.give_segment(segment);
        }
    }

    /// Whether segments come back before long.
    pub(super) fn will_give_back(&self) -> bool {
        self.under_way.as_ref().is_some_and(|it| !it.is_starved)
    }

    /// Whether the journal is full, and room in it is being made.
    pub(super) fn makes_room(&self) -> bool {
        self.journal.is_full() && self.will_give_back()
    }

    /// Whether something would be lost if the process ended in order before the one under way is complete.
    pub fn is_awaited(&self) -> bool {
        (self.journal.is_blank() || self.journal.is_full()) && self.will_give_back()
    }

    /// Whether a restart would find nothing, until the next one is complete.
    pub fn is_blank(&self) -> bool {
        self.journal.is_blank()
    }

    /// How many there were.
    pub fn counters(&self) -> CheckpointCounters {
        let (completed, failed, overruns) = (self.completed, self.failed, self.journal.overruns());
        CheckpointCounters { completed, failed, overruns }
    }
}
