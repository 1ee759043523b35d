//! Open segments, which are being filled: which of their bytes are written when, and which of their items a restart may be told
//! of.
//!
//! An item is announced once its bytes are on the device, so every announced item can be read after a restart. An item that died
//! before is not announced.

use std::collections::VecDeque;
use std::ops::Range;

use super::Keys;
use super::persist_command::Duty;
use crate::log::{Appended, LOG_PAGE_BYTES, LogPlace, Stream, next_chunk};

/// Items announced in one round: some hundred microseconds' worth.
const ANNOUNCED_MAX: usize = 4096;

/// An item that a restart is not told of yet.
#[derive(Clone, Copy, Debug)]
struct Unannounced {
    start: u32,
    end: u32,
    hash: u64,
    place: LogPlace,
    /// Its number among all items ever appended.
    number: u64,
    /// It was overwritten or deleted meanwhile.
    is_dead: bool,
}

/// A segment whose bytes the driver has in memory.
#[derive(Debug)]
struct Filling {
    segment: u32,
    stream: Stream,
    used: u32,
    submitted: u32,
    /// Everything before this is safe on the device.
    safe: u32,
    is_sealed: bool,
    unannounced: VecDeque<Unannounced>,
}

impl Filling {
    /// The next item to announce. Items before it that are on the device and need no announcing are taken out.
    fn next_to_announce(&mut self, budget: &mut usize, keys: &Keys) -> Option<Unannounced> {
        while let Some(&item) = self.unannounced.front().filter(|item| item.end <= self.safe && *budget > 0) {
            *budget -= 1;
            // Overwritten or deleted meanwhile: announcing it would bring it back.
            let place = keys.place_below(item.hash).filter(|place| place.is_same(item.place));
            if let Some(place) = place.filter(|_| !item.is_dead) {
                return Some(Unannounced { place, ..item });
            }
            self.unannounced.pop_front();
        }
        None
    }

    /// Whether nothing more comes, and all is on the device and announced.
    fn is_finished(&self) -> bool {
        let is_written = self.submitted >= self.used && self.safe >= self.submitted;
        self.is_sealed && is_written && self.unannounced.is_empty()
    }
}

/// How far a round of announcing has come.
#[derive(Clone, Copy, Debug)]
struct Round {
    at: usize,
    budget: usize,
}

/// Items that were withdrawn before they were announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withdrawn {
    /// Its bytes in the segment.
    pub bytes: Range<u32>,
    /// Whether it would have been announced for the first time: a survivor was announced where it lay before.
    pub is_new: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Fillings {
    all: Vec<Filling>,
    round: Option<Round>,
    /// Items appended since the start.
    appended: u64,
}

impl Fillings {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Items appended since the start.
    pub(super) fn appended(&self) -> u64 {
        self.appended
    }

    /// Whether a segment is one of them.
    pub(super) fn has(&self, segment: u32) -> bool {
        self.all.iter().any(|filling| filling.segment == segment)
    }

    fn get(&mut self, segment: u32) -> Option<&mut Filling> {
        self.all.iter_mut().find(|filling| filling.segment == segment)
    }

    /// An item of `bytes` comes to its segment. Returns the bytes of the segment that are to be written.
    pub(super) fn append(
        &mut self,
        stream: Stream,
        (hash, bytes): (u64, u32),
        to: &Appended,
        write: impl FnMut(Range<u32>),
    ) {
        let Appended { segment, place, offset, .. } = *to;
        if !self.has(segment) {
            let unannounced = VecDeque::new();
            let (used, submitted, safe) = (0, 0, 0);
            self.all.push(Filling { segment, stream, used, submitted, safe, is_sealed: false, unannounced });
        }
        self.appended += 1;
        let (number, end) = (self.appended, offset + bytes);
        let item = Unannounced { start: offset, end, hash, place, number, is_dead: false };
        self.change(segment, false, write, |filling| {
            assert!(!filling.is_sealed && offset >= filling.used, "a segment is filled from its start");
            filling.used = end;
            filling.unannounced.push_back(item);
        });
    }

    /// Seals a segment: nothing more is appended to it.
    pub(super) fn seal(&mut self, segment: u32, write: impl FnMut(Range<u32>)) {
        self.change(segment, true, write, |filling| filling.is_sealed = true);
    }

    /// Ends the last page of a segment, so that it can be written.
    pub(super) fn pad(&mut self, segment: u32, segment_bytes: u32, write: impl FnMut(Range<u32>)) {
        self.change(segment, true, write, |filling| {
            filling.used = filling.used.next_multiple_of(LOG_PAGE_BYTES).min(segment_bytes);
        });
    }

    /// Changes a filling, and has its bytes written as far as they can be.
    fn change(
        &mut self,
        segment: u32,
        all: bool,
        mut write: impl FnMut(Range<u32>),
        change: impl FnOnce(&mut Filling),
    ) {
        let Some(filling) = self.get(segment) else { return };
        change(filling);
        while let Some(range) = next_chunk(filling.used, filling.submitted, filling.is_sealed, all) {
            filling.submitted = range.end;
            write(range);
        }
    }

    /// The segment of a stream to which something may come.
    pub(super) fn open(&self, stream: Stream) -> Option<u32> {
        let mut all = self.all.iter();
        all.find(|filling| filling.stream == stream && !filling.is_sealed).map(|filling| filling.segment)
    }

    /// Everything before byte `end` of a segment is safe on the device.
    pub(super) fn note_safe(&mut self, segment: u32, end: u32) {
        if let Some(filling) = self.get(segment) {
            debug_assert!(end <= filling.submitted, "what is safe was handed out to be written");
            filling.safe = filling.safe.max(end);
        }
    }

    /// Has an item that died not be announced any more; `None`: it has been, or is not here.
    pub(super) fn withdraw(&mut self, segment: u32, hash: u64, place: LogPlace) -> Option<Withdrawn> {
        let filling = self.get(segment)?;
        // Items stand in the order of their pages; of two versions the older one comes first, and dies first.
        let first = filling.unannounced.partition_point(|item| item.place.page() < place.page());
        let mut behind = filling.unannounced.range_mut(first..);
        let found = behind.find(|item| {
            item.place.page() > place.page()
                || !item.is_dead && item.hash >> 24 == hash >> 24 && item.place.is_same(place)
        });
        let item = found.filter(|item| item.place.page() == place.page())?;
        item.is_dead = true;
        Some(Withdrawn { bytes: item.start..item.end, is_new: filling.stream == Stream::Fresh })
    }

    /// Begins a round of announcing.
    pub(super) fn begin_round(&mut self) {
        self.round = Some(Round { at: 0, budget: ANNOUNCED_MAX });
    }

    /// The next item of the round to be announced. `waits`: live items wait for room in the journal.
    pub(super) fn next_announcement(&mut self, keys: &Keys, waits: bool) -> Option<Duty> {
        let round = self.round.as_mut()?;
        while let Some(filling) = self.all.get_mut(round.at) {
            if let Some(item) = filling.next_to_announce(&mut round.budget, keys).filter(|_| !waits) {
                filling.unannounced.pop_front();
                let Unannounced { start: at, hash, place, .. } = item;
                let is_new = filling.stream == Stream::Fresh;
                return Some(Duty::Announce { segment: filling.segment, at, hash, place, is_new });
            }
            round.at += 1;
        }
        None
    }

    /// Ends the round. Returns whether there was one.
    pub(super) fn end_round(&mut self) -> bool {
        self.round.take().is_some()
    }

    /// The number of the first item that was not announced, of one stream or of both.
    pub(super) fn first_unannounced(&self, stream: Option<Stream>) -> Option<u64> {
        let all = self.all.iter().filter(|filling| stream.is_none_or(|stream| filling.stream == stream));
        all.filter_map(|filling| filling.unannounced.front().map(|item| item.number)).min()
    }

    /// Takes out the next one that is finished.
    pub(super) fn take_finished(&mut self) -> Option<u32> {
        let at = self.all.iter().position(Filling::is_finished)?;
        Some(self.all.swap_remove(at).segment)
    }

    /// The segments that are not sealed.
    pub(super) fn unsealed(&self) -> Vec<u32> {
        self.all.iter().filter(|filling| !filling.is_sealed).map(|filling| filling.segment).collect()
    }
}
