//! One volume as the cleaner sees it: what its store lacks, and whether the store answers.

use std::ops::Range;

use super::Token;
use super::epochs::Epochs;
use super::no_room::NoRoom;
use super::order_counts::OrderCounts;
use super::pause::Pause;
use super::trims::Trims;
use super::watermarks::{CleanerRules, WriteBackOrder};
use crate::extents::Verdict;
use crate::extents::unit_set::UnitSet;

/// Epochs that a volume may have before its writers wait for the oldest to be written back.
const EPOCHS_MAX: usize = 16;
/// Bytes of a volume that are copied at most, since writes over them would wait for the store otherwise.
const COPIES_BYTES_MAX: u64 = 64 << 20;
/// A store that has not answered a request for this long hangs: its completions are not counted on.
const HANG_NS: u64 = 1_000_000_000;

/// What is left to do of a volume's trims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimsLeft {
    /// Nothing: the store has had all.
    None,
    /// The store failed the last one, or something else, and is left alone.
    AfterPause,
    /// Some are under way, or go when the store has what was written before them.
    Some,
}

/// Dirty bytes at the cold end, when it was looked at last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ColdEnd {
    named_bytes: u64,
    unflushed_bytes: u64,
}

impl ColdEnd {
    pub fn note(&mut self, bytes: u64, lacks_flush: bool) {
        self.named_bytes += bytes;
        self.unflushed_bytes += if lacks_flush { bytes } else { 0 };
    }

    /// Whether a flush of the store would make half of them clean.
    pub fn lacks_flush(&self) -> bool {
        self.unflushed_bytes > 0 && self.unflushed_bytes >= self.named_bytes / 2
    }
}

/// A volume.
#[derive(Clone, Debug)]
pub(super) struct VolumeState {
    pub epochs: Epochs,
    /// The store's session, as it was told last.
    pub session: u64,
    /// The rest of the bytes that are due of this volume alone.
    pub due_bytes: u64,
    /// The flush of its store that is under way, whether the cleaner or a caller asked for it.
    pub flush: Option<Token>,
    /// What is dirty at the cold end.
    pub cold: ColdEnd,
    /// A write waits for something of this volume to be in the store.
    pub is_waited_for: bool,
    /// Who waits for something of it is to try again, though no flush has ended: bytes of it were lost, so that it may lack nothing now,
    /// or its store has no room and they wait no longer.
    pub calls_waiters: bool,
    /// What the store had no room for.
    pub no_room: NoRoom,
    /// Nothing of it is to stay dirty: its writes go elsewhere.
    pub drains: bool,
    /// A caller wants all epochs up to this one in the store.
    pub wanted: Option<u64>,
    /// The store failed: when to try again.
    pub pause: Pause,
    /// Trims that the store has not had.
    pub trims: Trims,
    /// Ranges that writes wait to change until they are copied.
    pub overwrites: Vec<Range<u64>>,
    /// Such copies, and their bytes.
    pub copies_out: u64,
    pub copied_out_bytes: u64,
    /// Flushes of its store that began.
    pub store_flushes: u64,
    /// When the last group ended.
    pub whole_since_ns: u64,
    /// Requests to the store that are under way.
    asked: u32,
    /// When one of them was answered last, or the first was asked.
    answered_ns: u64,
}

impl VolumeState {
    pub fn new(order: WriteBackOrder, flush_every_bytes: u64, session: u64) -> Self {
        VolumeState {
            epochs: Epochs::new(order, EPOCHS_MAX, flush_every_bytes),
            overwrites: Vec::new(),
            copies_out: 0,
            copied_out_bytes: 0,
            store_flushes: 0,
            cold: ColdEnd::default(),
            whole_since_ns: 0,
            session,
            due_bytes: 0,
            flush: None,
            is_waited_for: false,
            calls_waiters: false,
            no_room: NoRoom::default(),
            drains: false,
            wanted: None,
            pause: Pause::default(),
            trims: Trims::default(),
            asked: 0,
            answered_ns: 0,
        }
    }

    /// The cache has lost these units, or never had them: they cannot be written back.
    pub fn lost(&mut self, now_ns: u64, units: Range<u64>) {
        let groups = self.epochs.list().groups();
        self.epochs.lost(units.clone());
        self.no_room.forgotten(units);
        self.calls_waiters = true;
        self.note_group(now_ns, groups);
    }

    /// The store has all that it took: appends what is clean.
    pub fn flushed(&mut self, now_ns: u64, clean: &mut Vec<Range<u64>>) {
        let groups = self.epochs.list().groups();
        if !self.epochs.flushing().is_empty() {
            self.no_room.taken(self.epochs.flushing());
        }
        self.epochs.flushed(clean);
        self.note_group(now_ns, groups);
    }

    /// A flush of the store found that it has no room for some of what it took.
    pub fn flushed_without_room(&mut self, now_ns: u64) {
        for units in self.epochs.unflushed() {
            units.runs(0..u64::MAX, &[]).for_each(|run| self.no_room.refused(now_ns, run));
        }
    }

    /// From some time on nothing waits any more for a store without room: writes fail, and so do callers.
    pub fn look_for_room(&mut self, now_ns: u64, wait_ns: Option<u64>) {
        if self.no_room.look(now_ns, wait_ns) {
            self.calls_waiters = true;
            self.wanted = None;
        }
    }

    /// What the order of write-back has kept so far, and at which price.
    pub fn order_counts(&self) -> OrderCounts {
        let VolumeState { epochs, store_flushes, copies_out, copied_out_bytes, .. } = self;
        OrderCounts {
            store_flushes: *store_flushes,
            merges: epochs.list().merges(),
            groups: epochs.list().groups(),
            grown_groups: epochs.list().grown(),
            copies_out: *copies_out,
            copied_out_bytes: *copied_out_bytes,
        }
    }

    /// Notes when a group has ended: there were `before`.
    fn note_group(&mut self, now_ns: u64, before: u64) {
        if self.epochs.list().groups() > before {
            self.whole_since_ns = now_ns;
        }
    }

    /// Whether a write in write-back mode may change these units now, as far as older flushes are concerned.
    pub fn overwrite(&mut self, now_ns: u64, units: Range<u64>) -> Verdict {
        if self.epochs.list().order() == WriteBackOrder::Group && self.epochs.conflict(units.clone()) {
            // What is being trimmed leaves only after that, for which no write waits.
            if self.may_copy(now_ns) && !self.trims.are_asked(&units) {
                self.overwrites.push(units);
                return Verdict::Busy;
            }
            if !self.is_urgent() {
                self.epochs.grow();
            }
        }
        if self.epochs.conflict(units) || self.epochs.is_full() {
            self.is_waited_for = true;
            return Verdict::Clean;
        }
        Verdict::Ready
    }

    /// The store is asked for something.
    pub fn ask(&mut self, now_ns: u64) {
        if self.asked == 0 {
            self.answered_ns = now_ns;
        }
        self.asked += 1;
    }

    /// Notes that the store has answered, with success or failure.
    pub fn answered(&mut self, now_ns: u64) {
        debug_assert!(self.asked > 0, "an answer for each question");
        self.asked = self.asked.saturating_sub(1);
        self.answered_ns = now_ns;
    }

    /// Whether the store failed, or what should go to it could not be had: it is left alone for a while.
    pub fn is_left_alone(&self, now_ns: u64) -> bool {
        self.pause.is_on(now_ns)
    }

    /// The next units that the store may be asked to trim, if it is time. What goes to their places in the store waits for its answer.
    pub fn next_trim(&mut self, now_ns: u64) -> Option<Range<u64>> {
        let VolumeState { epochs, trims, pause, .. } = self;
        if pause.is_on(now_ns) || trims.pause.is_on(now_ns) {
            return None;
        }
        let units = trims.next(|epoch| epochs.is_flushed(epoch))?;
        debug_assert!(
            {
                let mut runs = Vec::new();
                epochs.lacks_nothing_of(units.clone(), &mut runs);
                runs.len() == 1 && runs[0] == units
            },
            "what was written since is not trimmed"
        );
        epochs.held_back = UnitSet::of(units.clone());
        Some(units)
    }

    /// The store has answered a trim.
    pub fn trimmed(&mut self, now_ns: u64, is_done: bool) {
        self.trims.answered(now_ns, is_done);
        self.epochs.held_back.clear();
    }

    /// What is left to do of trims.
    pub fn trims_left(&self, now_ns: u64) -> TrimsLeft {
        match self.trims_at_ns(now_ns) {
            _ if self.trims.is_empty() => TrimsLeft::None,
            Some(_) => TrimsLeft::AfterPause,
            None => TrimsLeft::Some,
        }
    }

    /// When a trim goes that waits for nothing but that its store is left alone no longer.
    pub fn trims_at_ns(&self, now_ns: u64) -> Option<u64> {
        let at_ns = self.pause.until_ns().max(self.trims.pause.until_ns());
        let waits = at_ns > now_ns && self.trims.may_be_due(|epoch| self.epochs.is_flushed(epoch));
        waits.then_some(at_ns)
    }

    /// Whether it is unknown when the store will take bytes again.
    pub fn is_stuck(&self, now_ns: u64) -> bool {
        self.is_left_alone(now_ns) || self.asked > 0 && now_ns.saturating_sub(self.answered_ns) >= HANG_NS
    }

    /// When it will be taken to hang, if it does not answer.
    pub fn hangs_at_ns(&self) -> Option<u64> {
        (self.asked > 0).then(|| self.answered_ns.saturating_add(HANG_NS))
    }

    /// Whether a request waits for just this volume.
    pub fn is_urgent(&self) -> bool {
        self.is_waited_for || self.drains || self.wanted.is_some_and(|epoch| !self.epochs.is_flushed(epoch))
    }

    /// When the oldest dirty bytes become old.
    pub fn old_ns(&self, rules: &CleanerRules) -> Option<u64> {
        self.epochs.first_dirty_ns().map(|since_ns| rules.old_ns(since_ns))
    }

    /// Finds the bytes that are due of this volume, unless some are already: all of them once any are old, because the rest would
    /// be the next moment.
    pub fn find_due(&mut self, now_ns: u64, rules: &CleanerRules) {
        let dirty_bytes = self.epochs.dirty_bytes();
        if self.due_bytes == 0 && self.old_ns(rules).is_some_and(|old_ns| old_ns <= now_ns) {
            self.due_bytes = dirty_bytes;
        }
        self.due_bytes = self.due_bytes.min(dirty_bytes);
    }

    /// Whether a write over what the group under way needs waits until that is copied. Else the group grows: where copies are held for
    /// a store that does not take them, and no caller waits for the group's end.
    pub fn may_copy(&self, now_ns: u64) -> bool {
        self.epochs.leaving_bytes() < COPIES_BYTES_MAX && !self.is_stuck(now_ns)
    }

    /// Bytes of this volume that are due now; while a request waits, all of the oldest epoch, which is all that may leave. A group is
    /// carried to its end.
    pub fn due_bytes(&self) -> u64 {
        if self.is_urgent() || self.epochs.list().must_end() {
            self.epochs.dirty_bytes()
        } else {
            self.due_bytes
        }
    }
}
