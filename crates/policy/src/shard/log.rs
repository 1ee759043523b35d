//! The log below memory and its work: what comes in, which of its bytes are written when, what a place in it means now.
//!
//! The bytes of a segment that is being filled stay with the driver until all of it is safe and announced; [`Duty::Release`] says
//! so. So a look-up for what lies there needs no device, and a segment whose bytes are still in memory is not read to be emptied.

use std::collections::VecDeque;

use super::checkpoint::{Around, Checkpoints};
use super::duty::{Duty, Parts, Recorded, Settling};
use super::filling::{Fillings, Withdrawn};
use super::victim::Victim;
use super::{Act, Away, From, Memory};
use crate::ladder::Outlet;
use crate::log::{Appended, Fate, ITEM_HEADER_BYTES, Leaving, Log, LogPlace, Stream};

/// An emptied segment that is not free: what survived of it is not safe yet.
#[derive(Clone, Copy, Debug)]
struct Emptied {
    segment: u32,
    /// The number of the last item appended when it was emptied.
    appended: u64,
    /// All that survived was announced.
    is_announced: bool,
}

/// A log, the segments that are being filled, the one that is being emptied, and its checkpoints.
#[derive(Debug)]
pub struct LogWork {
    pub(super) log: Log,
    fillings: Fillings,
    pub(super) victim: Option<Victim>,
    emptied: Vec<Emptied>,
    checkpoints: Checkpoints,
    acts: VecDeque<Act>,
    duties: VecDeque<Duty>,
    /// The device was given up: nothing comes in any more.
    is_given_up: bool,
    /// Items that went there from each tier.
    sunk: Vec<u64>,
    /// Items that did not, for lack of memory for their index entries.
    unindexed: u64,
}

/// Hands out what is to be written of a segment.
fn writes(acts: &mut VecDeque<Act>, segment: u32) -> impl FnMut(std::ops::Range<u32>) {
    move |range| acts.push_back(Act::Write { segment, start: range.start, end: range.end })
}

impl LogWork {
    pub(super) fn new(log: Log, checkpoints: Checkpoints, tiers: usize) -> Self {
        LogWork {
            log,
            fillings: Fillings::default(),
            victim: None,
            emptied: Vec::new(),
            checkpoints,
            acts: VecDeque::new(),
            duties: VecDeque::new(),
            is_given_up: false,
            sunk: vec![0; tiers],
            unindexed: 0,
        }
    }

    /// Items that went to the log from a tier.
    pub fn sunk(&self, tier: usize) -> u64 {
        self.sunk[tier]
    }

    /// Items that did not for lack of memory for their index entries.
    pub fn unindexed(&self) -> u64 {
        self.unindexed
    }

    /// The log, to be read.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// What the ladder above must know, whose items are so many of so many bytes in all, their keys and values included.
    pub(super) fn outlet(&self, items: u64, item_bytes: u64) -> Outlet {
        if self.is_given_up {
            return Outlet::Nowhere;
        }
        // With the header of one that may come.
        self.log.outlet(self.fillings.len(), item_bytes + (items + 1) * u64::from(ITEM_HEADER_BYTES))
    }

    /// Whether the driver should be given more time, as it has too much to write or to empty.
    pub(super) fn is_choked(&self) -> bool {
        !self.is_given_up && self.log.is_choked(self.fillings.len())
    }

    /// What becomes of an item that leaves memory. `is_here`: the log has the same one.
    fn receive(&mut self, leaving: &Leaving, is_here: bool) -> Fate {
        if self.is_given_up && !is_here {
            return Fate::Rejected;
        }
        self.log.receive(leaving, is_here, self.fillings.len())
    }

    /// Appends an item and enters its place; the act that writes its bytes there. Other acts follow. `None`: no space.
    pub(super) fn append(
        &mut self,
        memory: &mut Memory,
        stream: Stream,
        (hash, bytes, heat): (u64, u32, u32),
        from: From,
    ) -> Option<Act> {
        let Appended { place, segment, sequence, offset, sealed } = self.log.append(stream, bytes)?;
        if let Some(sealed) = sealed {
            self.seal(sealed);
        }
        let to = Appended { place: place.with_heat(heat), segment, sequence, offset, sealed };
        self.fillings.append(stream, (hash, bytes), &to, writes(&mut self.acts, segment));
        let replaced = memory.put_below(hash, to.place);
        if let Some(replaced) = replaced {
            // Another key with the same 40 bits, or what survives now: either is at one place only.
            self.log.forget(replaced);
        }
        Some(Act::Append { from, to, hash, bytes, replaced: replaced.filter(|_| stream == Stream::Fresh) })
    }

    /// Nothing more comes to a segment: the rest is written as it is.
    fn seal(&mut self, segment: u32) {
        self.acts.push_back(Act::Seal { segment });
        self.fillings.seal(segment, writes(&mut self.acts, segment));
    }

    /// Writes what a stream's open segment has, to the last byte.
    pub(super) fn flush(&mut self, stream: Stream) {
        if let Some(segment) = self.fillings.open(stream) {
            self.log.pad(stream);
            let segment_bytes = self.log.config().segment_bytes;
            self.fillings.pad(segment, segment_bytes, writes(&mut self.acts, segment));
        }
    }

    /// Has this done next.
    pub(super) fn push(&mut self, act: Act) {
        self.acts.push_back(act);
    }

    /// What is to be done before anything else is decided.
    pub(super) fn next_act(&mut self) -> Option<Act> {
        self.acts.pop_front()
    }

    /// Whether nothing is.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.acts.is_empty() && !self.is_at_work()
    }

    /// Whether a piece of the work of emptying a segment is under way.
    pub(super) fn is_at_work(&self) -> bool {
        self.victim.as_ref().is_some_and(Victim::is_at_work)
    }

    /// Whether the driver has a segment's bytes in memory.
    pub(super) fn is_in_memory(&self, segment: u32) -> bool {
        self.fillings.has(segment)
    }

    /// The segment in which a place lies, and the number of its filling.
    pub fn filling_of(&self, place: LogPlace) -> (u32, u32) {
        let segment = self.log.segment_of(place.page());
        (segment, self.log.sequence(segment))
    }

    /// What to read for an entry of the log.
    pub fn away(&self, hash: u64, place: LogPlace) -> Away {
        let (segment, sequence) = self.filling_of(place);
        Away { hash, place, sequence, is_in_memory: self.is_in_memory(segment) }
    }

    /// Takes an item out of index and log; where it was.
    pub(super) fn forget(&mut self, memory: &mut Memory, hash: u64) -> Option<LogPlace> {
        let place = memory.remove_below(hash)?;
        self.log.forget(place);
        Some(place)
    }

    /// Everything before byte `end` of a segment that is being filled is safe.
    pub(super) fn note_safe(&mut self, segment: u32, end: u32) {
        self.fillings.note_safe(segment, end);
    }

    /// Has an item that died not be announced any more.
    pub(super) fn withdraw(&mut self, hash: u64, place: LogPlace) -> Option<Withdrawn> {
        self.fillings.withdraw(self.log.segment_of(place.page()), hash, place)
    }

    /// Begins to announce what is safe.
    pub(super) fn begin_announcing(&mut self) {
        self.fillings.begin_round();
    }

    /// What the driver of the device has to do next.
    pub(super) fn next_duty(&mut self, memory: &Memory) -> Option<Duty> {
        if self.duties.is_empty() {
            let next = self.fillings.next_announcement(memory, self.checkpoints.makes_room());
            if next.is_some() {
                return next;
            }
            if self.fillings.end_round() {
                self.note_announced();
            }
        }
        self.duties.pop_front()
    }

    /// A round of announcing is over: what it leaves no more to do for.
    fn note_announced(&mut self) {
        let first = self.fillings.first_unannounced(Some(Stream::Kept)).unwrap_or(u64::MAX);
        for emptied in self.emptied.iter_mut().filter(|it| !it.is_announced && first > it.appended) {
            emptied.is_announced = true;
            self.duties.push_back(Duty::Settle(Settling::Emptied { segment: emptied.segment }));
        }
        while let Some(segment) = self.fillings.take_finished() {
            self.duties.push_back(Duty::Release { segment });
        }
    }

    /// What was written before the driver was asked for this is safe.
    pub(super) fn settled(&mut self, what: Settling) {
        match what {
            Settling::Emptied { segment } => {
                let at = self.emptied.iter().position(|it| it.is_announced && it.segment == segment);
                debug_assert!(at.is_some(), "a segment is freed once, after what survived was announced");
                if let Some(at) = at {
                    assert_eq!(self.log.live_in(segment), 0, "nothing is needed of a segment that is freed");
                    self.emptied.remove(at);
                    self.log.emptied(segment);
                }
            }
            Settling::Parts => self.duties.extend(self.checkpoints.parts_settled(&mut self.log)),
            Settling::Name => self.checkpoints.name_settled(&mut self.log),
        }
    }

    /// Finds a place for a record of the journal.
    pub(super) fn note_record(&mut self) -> Recorded {
        self.checkpoints.note_record()
    }

    /// Does a piece of a checkpoint; whether that has taken space of the log.
    pub(super) fn step_checkpoint<P: Parts>(&mut self, memory: &Memory, parts: &mut P) -> bool {
        let used = self.log.segments_used();
        let mut around = Around {
            log: &mut self.log,
            memory,
            duties: &mut self.duties,
            appended: self.fillings.appended(),
            first_unannounced: self.fillings.first_unannounced(None),
        };
        if self.checkpoints.step(!self.is_given_up, &mut around, parts) {
            // So that it need not wait for segments to fill.
            [Stream::Fresh, Stream::Kept].into_iter().for_each(|stream| self.flush(stream));
            return true;
        }
        self.log.segments_used() != used
    }

    /// A part of the checkpoint is on the device; with `false` it could not be written.
    pub(super) fn part_written(&mut self, is_written: bool) {
        self.checkpoints.part_written(is_written);
    }

    /// The superblock that names the checkpoint is written; with `false` it could not be.
    pub(super) fn note_named(&mut self, is_written: bool) {
        self.checkpoints.note_named(is_written);
        self.duties.push_back(Duty::Settle(Settling::Name));
    }

    /// Checkpoints: how far they are.
    pub fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// Nothing comes in any more, and nobody waits for it.
    pub(super) fn give_up(&mut self) {
        self.is_given_up = true;
    }

    /// Offers an item whose bytes are at `from`; what becomes of it. `is_unchanged`: it was read from there and was not changed since.
    pub(super) fn take_in(
        &mut self,
        memory: &mut Memory,
        leaving: &Leaving,
        is_unchanged: bool,
        from: From,
    ) -> Fate {
        if !is_unchanged && !memory.ladder.may_grow() {
            // Another index entry would take memory that tier 0 does not give.
            self.unindexed += 1;
            return Fate::Rejected;
        }
        let is_here = is_unchanged && memory.place_below(leaving.hash).is_some();
        let fate = self.receive(leaving, is_here);
        if fate != Fate::Enters {
            return fate;
        }
        match self.append(memory, Stream::Fresh, (leaving.hash, leaving.bytes, 0), from) {
            // Before what comes of it is written.
            Some(act) => self.acts.push_front(act),
            None => return Fate::Refused,
        }
        fate
    }

    /// An item has left a tier: whether for the log.
    pub(super) fn count_sunk(&mut self, tier: u8, fate: Fate) {
        self.sunk[usize::from(tier)] += u64::from(matches!(fate, Fate::Stays | Fate::Enters));
    }

    /// A segment is emptied; the act that gives it free.
    pub(super) fn note_emptied(&mut self, segment: u32) -> Act {
        // Survivors must be safe before what they came from is overwritten.
        self.flush(Stream::Kept);
        let appended = self.fillings.appended();
        self.emptied.push(Emptied { segment, appended, is_announced: false });
        Act::Free { segment }
    }

    /// Whether no segment becomes free before the victim at hand does: survivors that find no space would wait for ever.
    pub(super) fn is_stuck(&self) -> bool {
        self.emptied.is_empty() && !self.checkpoints.will_give_back()
    }

    /// Nothing more comes to any segment that is being filled.
    pub(super) fn seal_all(&mut self) {
        for stream in [Stream::Fresh, Stream::Kept] {
            self.log.seal(stream);
        }
        self.fillings.unsealed().into_iter().for_each(|segment| self.seal(segment));
    }
}
