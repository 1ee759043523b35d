//! The log below memory and its work: what comes in, which of its bytes are written when, what a place in it means now.
//!
//! The bytes of a segment that is being filled stay with the driver until all of it is safe; it says so with
//! [`Shard::written`]. So a look-up for what lies there needs no device, and a segment whose bytes are still in memory is not
//! read to be emptied.

use std::collections::VecDeque;

use super::victim::Victim;
use super::{Act, From, Items, Shard, Why};
use crate::Id;
use crate::index::{Found, Index};
use crate::ladder::{Loc, Outlet};
use crate::log::{
    Appended, Fate, ITEM_HEADER_BYTES, LOG_PAGE_BYTES, Leaving, Log, LogPlace, Stream, next_chunk,
};

/// A segment whose bytes the driver has in memory.
#[derive(Clone, Copy, Debug)]
struct Filling {
    segment: u32,
    stream: Stream,
    used: u32,
    submitted: u32,
    is_sealed: bool,
}

/// A log, the segments that are being filled, and the one that is being emptied.
#[derive(Debug)]
pub struct LogWork {
    pub(super) log: Log,
    fillings: Vec<Filling>,
    pub(super) victim: Option<Victim>,
    /// Emptied segments that are not free: what survived of them is not safe yet.
    emptied: u32,
    acts: VecDeque<Act>,
    /// The device was given up: nothing comes in any more.
    is_given_up: bool,
    /// The driver gives segments back before long.
    will_give_back: bool,
    /// Items that went there from each tier.
    sunk: Vec<u64>,
    /// Items that did not, for lack of memory for their index entries.
    unindexed: u64,
}

/// An item that leaves memory.
pub(super) struct Leaves {
    pub(super) id: Id,
    pub(super) loc: Loc,
    pub(super) hash: u64,
    pub(super) expires_at_ms: Option<u64>,
    pub(super) last_used: u64,
}

impl LogWork {
    pub(super) fn new(log: Log, tiers: usize) -> Self {
        let (fillings, acts) = (Vec::new(), VecDeque::new());
        LogWork {
            log,
            fillings,
            victim: None,
            emptied: 0,
            acts,
            is_given_up: false,
            will_give_back: false,
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
    pub(super) fn receive(&mut self, leaving: &Leaving, is_here: bool) -> Fate {
        if self.is_given_up && !is_here {
            return Fate::Rejected;
        }
        self.log.receive(leaving, is_here, self.fillings.len())
    }

    /// Appends an item and enters its place; the act that writes its bytes there. Other acts follow. `None`: no space.
    pub(super) fn append(
        &mut self,
        index: &mut Index,
        stream: Stream,
        (hash, bytes, heat): (u64, u32, u32),
        from: From,
    ) -> Option<Act> {
        let Appended { place, segment, sequence, offset, sealed } = self.log.append(stream, bytes)?;
        if let Some(sealed) = sealed {
            self.seal(sealed);
        }
        if !self.is_in_memory(segment) {
            self.fillings.push(Filling { segment, stream, used: 0, submitted: 0, is_sealed: false });
        }
        self.write(segment, false, |filling| {
            debug_assert!(!filling.is_sealed && offset >= filling.used, "a segment is filled from its start");
            filling.used = offset + bytes;
        });
        let to = Appended { place: place.with_heat(heat), segment, sequence, offset, sealed };
        let replaced = index.put_log(hash, to.place);
        if let Some(replaced) = replaced {
            // Another key with the same 40 bits, or what survives now: either is at one place only.
            self.log.forget(replaced);
        }
        Some(Act::Append { from, to, hash, bytes, replaced: replaced.filter(|_| stream == Stream::Fresh) })
    }

    /// Nothing more comes to a segment: the rest is written as it is.
    fn seal(&mut self, segment: u32) {
        self.acts.push_back(Act::Seal { segment });
        self.write(segment, true, |filling| filling.is_sealed = true);
    }

    /// Writes what a stream's open segment has, to the last byte.
    pub(super) fn flush(&mut self, stream: Stream) {
        let open = self.fillings.iter().find(|filling| filling.stream == stream && !filling.is_sealed);
        if let Some(segment) = open.map(|filling| filling.segment) {
            self.log.pad(stream);
            let end = self.log.config().segment_bytes;
            self.write(segment, true, |filling| {
                filling.used = filling.used.next_multiple_of(LOG_PAGE_BYTES).min(end);
            });
        }
    }

    /// Changes a filling, and has written of it what can be written.
    fn write(&mut self, segment: u32, all: bool, change: impl FnOnce(&mut Filling)) {
        let Some(filling) = self.fillings.iter_mut().find(|filling| filling.segment == segment) else {
            return;
        };
        change(filling);
        while let Some(range) = next_chunk(filling.used, filling.submitted, filling.is_sealed, all) {
            filling.submitted = range.end;
            self.acts.push_back(Act::Write { segment, start: range.start, end: range.end });
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
    pub fn is_in_memory(&self, segment: u32) -> bool {
        self.fillings.iter().any(|filling| filling.segment == segment)
    }

    /// The segment in which a place lies, and the number of its filling.
    pub fn filling_of(&self, place: LogPlace) -> (u32, u32) {
        let segment = self.log.segment_of(place.page());
        (segment, self.log.sequence(segment))
    }

    /// Takes an item out of index and log; where it was.
    pub(super) fn forget(&mut self, index: &mut Index, hash: u64) -> Option<LogPlace> {
        let place = index.remove_log(hash)?;
        self.log.forget(place);
        Some(place)
    }

    /// A segment is emptied; the act that gives it free.
    pub(super) fn note_emptied(&mut self, segment: u32) -> Act {
        // Survivors must be safe before what they came from is overwritten.
        self.flush(Stream::Kept);
        self.emptied += 1;
        Act::Free { segment }
    }

    /// Whether no segment becomes free before the victim at hand does: survivors that find no space would wait for ever.
    pub(super) fn is_stuck(&self) -> bool {
        self.emptied == 0 && !self.will_give_back
    }

    /// Nothing more comes to any segment that is being filled.
    fn seal_all(&mut self) {
        for stream in [Stream::Fresh, Stream::Kept] {
            self.log.seal(stream);
        }
        let open = self.fillings.iter().filter(|filling| !filling.is_sealed);
        let open: Vec<u32> = open.map(|filling| filling.segment).collect();
        open.into_iter().for_each(|segment| self.seal(segment));
    }
}

impl Shard {
    /// All bytes of a sealed segment are safe, and the driver keeps them no longer.
    pub fn written(&mut self, segment: u32) {
        let Some(work) = &mut self.log_work else { return };
        let before = work.fillings.len();
        work.fillings.retain(|filling| filling.segment != segment);
        debug_assert_eq!(work.fillings.len() + 1, before, "a segment that is being filled is written once");
    }

    /// What survived of an emptied segment is safe.
    pub fn freed(&mut self, segment: u32) {
        let Some(work) = &mut self.log_work else { return };
        debug_assert!(work.emptied > 0, "a segment is freed once, after it was emptied");
        work.emptied = work.emptied.saturating_sub(1);
        work.log.emptied(segment);
    }

    /// The device was given up: nothing comes in any more, and nobody waits for it.
    pub fn give_up_log(&mut self) {
        if let Some(work) = &mut self.log_work {
            work.is_given_up = true;
        }
        self.report_outlet();
    }

    /// Lends the driver a free segment for its own use, such as a checkpoint.
    pub fn lend_segment(&mut self) -> Option<u32> {
        let segment = self.log_work.as_mut()?.log.take_segment();
        self.report_outlet();
        segment
    }

    /// The driver gives a segment back that was lent to it.
    pub fn give_back_segment(&mut self, segment: u32) {
        if let Some(work) = &mut self.log_work {
            work.log.give_segment(segment);
        }
        self.report_outlet();
    }

    /// Whether the driver gives segments back before long, so that survivors may wait for them.
    pub fn promise_segments(&mut self, will_give_back: bool) {
        if let Some(work) = &mut self.log_work {
            work.will_give_back = will_give_back;
        }
    }

    /// What the log promised could not be read, and was forgotten: whether memory has it, whose copy is the only one now.
    pub fn note_lost<I: Items>(&self, hash: u64, items: &mut I) -> bool {
        self.memory.note_changed(hash, items)
    }

    /// Has everything written that can be, however little it is; with `seal` to the end. Acts follow.
    pub fn write_out(&mut self, seal: bool) {
        if let Some(work) = &mut self.log_work {
            match seal {
                true => work.seal_all(),
                false => [Stream::Fresh, Stream::Kept].into_iter().for_each(|stream| work.flush(stream)),
            }
        }
    }

    /// Forgets everything that the log has. Acts follow that seal what is being filled.
    pub fn clear_log(&mut self) {
        let Some(work) = &mut self.log_work else { return };
        work.log.kill_all();
        let mut hashes = Vec::with_capacity(self.memory.index.log_len() as usize);
        self.memory.index.scan(0, usize::MAX, |hash, found| {
            if let Found::Log(_) = found {
                hashes.push(hash);
            }
        });
        hashes.into_iter().for_each(|hash| _ = self.memory.index.remove_log(hash));
        self.charge_log();
    }

    /// The log below memory, if there is one.
    #[inline]
    pub fn log(&self) -> Option<&LogWork> {
        self.log_work.as_ref()
    }

    /// Forgets what the log has of a key that gets other bytes or goes; where it was.
    pub fn forget_below(&mut self, hash: u64) -> Option<LogPlace> {
        let place = self.log_work.as_mut()?.forget(&mut self.memory.index, hash);
        self.charge_log();
        place
    }

    /// Forgets what the log has of an item in memory that is about to change or go; where it was.
    pub fn forget_copy<I: Items>(&mut self, id: Id, hash: u64, items: &mut I) -> Option<LogPlace> {
        let loc = self.ladder().loc(id);
        self.forget_copy_at(id, loc, hash, items)
    }

    /// The same for one whose number may be nobody's any more.
    pub(super) fn forget_copy_at<I: Items>(
        &mut self,
        id: Id,
        loc: Loc,
        hash: u64,
        items: &mut I,
    ) -> Option<LogPlace> {
        self.log_work.as_ref()?;
        items.is_unchanged(id, loc).then(|| items.note_changed(id, loc))?;
        self.forget_below(hash)
    }

    /// Offers an item to the log whose bytes are at `from`; what becomes of it. Where it [enters](Fate::Enters), acts follow.
    /// `is_unchanged`: it was read from there and was not changed since.
    pub fn offer(&mut self, leaving: &Leaving, is_unchanged: bool, from: From) -> Fate {
        let Some(work) = &mut self.log_work else { return Fate::Rejected };
        if !is_unchanged && !self.memory.ladder.may_grow() {
            // Another index entry would take memory that tier 0 does not give.
            work.unindexed += 1;
            return Fate::Rejected;
        }
        let is_here = is_unchanged && self.memory.index.find_log(leaving.hash).is_some();
        let mut fate = work.receive(leaving, is_here);
        if fate == Fate::Enters {
            let item = (leaving.hash, leaving.bytes, 0);
            match work.append(&mut self.memory.index, Stream::Fresh, item, from) {
                // Before what comes of it is written.
                Some(act) => work.acts.push_front(act),
                None => fate = Fate::Refused,
            }
        }
        self.report_outlet();
        self.charge_log();
        fate
    }

    /// An item leaves memory at `loc`: what becomes of it.
    pub(super) fn sink<I: Items>(&mut self, leaving: Leaves, items: &I) -> Act {
        let Leaves { id, loc, hash, expires_at_ms, last_used } = leaving;
        let leave = |why| Act::Leave { id, loc, hash, why, expires_at_ms, last_used, below: None };
        if self.log_work.is_none() {
            return leave(Why::Evicted);
        }
        // Beyond 4 GiB it is no more than too large.
        let bytes = u32::try_from(items.bytes(id, loc).below).unwrap_or(u32::MAX);
        let from = From::Memory { id, loc, expires_at_ms };
        let fate = self.offer(&Leaving { hash, bytes, last_used }, items.is_unchanged(id, loc), from);
        let Some(work) = &mut self.log_work else { return leave(Why::Evicted) };
        work.sunk[usize::from(loc.tier)] += u64::from(matches!(fate, Fate::Stays | Fate::Enters));
        match fate {
            Fate::Stays => leave(Why::Stays),
            Fate::Rejected | Fate::Refused => leave(Why::Evicted),
            Fate::Enters => work.next_act().unwrap_or_else(|| leave(Why::Evicted)),
        }
    }

    /// Has tier 0 charged with what the log's state takes.
    pub(super) fn charge_log(&mut self) {
        if let Some(work) = &self.log_work {
            self.memory.charge_log(work.log.metadata_bytes());
        }
    }

    /// Tells the ladder how the log stands.
    pub(super) fn report_outlet(&mut self) {
        if let Some(work) = &self.log_work {
            let outlet = work.outlet(self.memory.ladder.items(), self.memory.all_item_bytes());
            self.memory.ladder.set_outlet(outlet);
        }
    }
}
