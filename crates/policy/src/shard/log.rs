//! The log below memory and its work: what comes in, which of its bytes are written when, what a place in it means now.
//!
//! The bytes of a segment that is being filled stay with the driver until all of it is safe; it says so with
//! [`super::Device::written`]. So a look-up for what lies there needs no device, and a segment whose bytes are still in memory is not
//! read to be emptied.

use std::collections::VecDeque;

use super::victim::Victim;
use super::{Act, Away, From, Memory};
use crate::ladder::Outlet;
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
    /// Segments that the driver has for its own use.
    lent: u32,
    /// The device was given up: nothing comes in any more.
    is_given_up: bool,
    /// The driver gives segments back before long.
    will_give_back: bool,
    /// Items that went there from each tier.
    sunk: Vec<u64>,
    /// Items that did not, for lack of memory for their index entries.
    unindexed: u64,
}

impl LogWork {
    pub(super) fn new(log: Log, lent: u32, tiers: usize) -> Self {
        let (fillings, acts) = (Vec::new(), VecDeque::new());
        LogWork {
            log,
            fillings,
            victim: None,
            emptied: 0,
            acts,
            lent,
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
        if !self.is_in_memory(segment) {
            self.fillings.push(Filling { segment, stream, used: 0, submitted: 0, is_sealed: false });
        }
        self.write(segment, false, |filling| {
            assert!(!filling.is_sealed && offset >= filling.used, "a segment is filled from its start");
            filling.used = offset + bytes;
        });
        let to = Appended { place: place.with_heat(heat), segment, sequence, offset, sealed };
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

    /// All bytes of a sealed segment are safe.
    pub(super) fn end_filling(&mut self, segment: u32) {
        let before = self.fillings.len();
        self.fillings.retain(|filling| filling.segment != segment);
        assert_eq!(self.fillings.len() + 1, before, "a segment that is being filled is written once");
    }

    /// What survived of an emptied segment is safe.
    pub(super) fn end_emptying(&mut self, segment: u32) {
        assert!(self.emptied > 0, "a segment is freed once, after it was emptied");
        assert_eq!(self.log.live_in(segment), 0, "nothing is needed of a segment that is freed");
        self.emptied -= 1;
        self.log.emptied(segment);
    }

    /// Lends a free segment.
    pub(super) fn lend_segment(&mut self) -> Option<u32> {
        let segment = self.log.take_segment()?;
        debug_assert!(!self.is_in_memory(segment), "what is lent is not being filled");
        self.lent += 1;
        Some(segment)
    }

    /// A lent segment is given back.
    pub(super) fn give_back_segment(&mut self, segment: u32) {
        assert!(self.lent > 0, "a segment is given back once, after it was lent");
        assert_eq!(self.log.live_in(segment), 0, "a lent segment has no items");
        self.lent -= 1;
        self.log.give_segment(segment);
    }

    /// Nothing comes in any more, and nobody waits for it.
    pub(super) fn give_up(&mut self) {
        self.is_given_up = true;
    }

    /// Whether the driver gives segments back before long.
    pub(super) fn expect_segments(&mut self, will_give_back: bool) {
        self.will_give_back = will_give_back;
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
        self.emptied += 1;
        Act::Free { segment }
    }

    /// Whether no segment becomes free before the victim at hand does: survivors that find no space would wait for ever.
    pub(super) fn is_stuck(&self) -> bool {
        self.emptied == 0 && !self.will_give_back
    }

    /// Nothing more comes to any segment that is being filled.
    pub(super) fn seal_all(&mut self) {
        for stream in [Stream::Fresh, Stream::Kept] {
            self.log.seal(stream);
        }
        let open = self.fillings.iter().filter(|filling| !filling.is_sealed);
        let open: Vec<u32> = open.map(|filling| filling.segment).collect();
        open.into_iter().for_each(|segment| self.seal(segment));
    }
}
