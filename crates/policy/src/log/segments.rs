//! Segments: the space of a log. It knows which are free, open, filled or being emptied, and how many bytes of each are live.

use std::collections::VecDeque;

use super::{ITEM_ALIGN_BYTES, LOG_PAGE_BYTES, LogPlace, SEGMENT_HEADER_BYTES};
use tiermem_base::Rng;

/// The stream of segments that an item is appended to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// It comes from memory.
    Fresh,
    /// It has survived the emptying of its segment.
    Kept,
}

/// Where an item was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The place for its index entry.
    pub place: LogPlace,
    /// The segment.
    pub segment: u32,
    /// The number of this filling of the segment.
    pub sequence: u32,
    /// Where in the segment, in bytes.
    pub offset: u32,
    /// The stream's segment before this one is full now: nothing more comes to it.
    pub sealed: Option<u32>,
}

/// A filled segment: a row of a checkpoint, and of what a restart finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// The segment.
    pub segment: u32,
    /// The number of its filling.
    pub sequence: u32,
    /// Items appended.
    pub items: u32,
    /// Bytes used from its start.
    pub used_bytes: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Free,
    Open,
    Filled,
    Emptying,
    /// The driver's own.
    Taken,
}

#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    state: State,
    sequence: u32,
    /// Bytes used from the start.
    used: u32,
    /// Items appended, and the live ones among them.
    items: u32,
    live: u32,
}

impl Segment {
    /// Bytes alive, as if all its items were of one size. An end that is too short for one more of them is theirs as well:
    /// writing them anew would only move it.
    fn live_bytes(&self, segment_bytes: u32) -> u64 {
        let used = u64::from(self.used.saturating_sub(SEGMENT_HEADER_BYTES));
        let mean = used.checked_div(u64::from(self.items)).unwrap_or(0);
        let end = u64::from(segment_bytes - self.used);
        let held = if self.state != State::Open && end < mean { used + end } else { used };
        (held * u64::from(self.live)).checked_div(u64::from(self.items)).unwrap_or(0)
    }
}

/// All segments.
#[derive(Clone, Debug)]
pub struct Segments {
    segments: Vec<Segment>,
    segment_bytes: u32,
    free: VecDeque<u32>,
    /// Filled segments in the order of their filling, with their sequence: an entry is skipped if its segment has another
    /// sequence or is not filled any more.
    order: VecDeque<(u32, u32)>,
    open: [Option<u32>; 2],
    next_sequence: u32,
    live_items: u64,
    live_bytes: u64,
    emptying: u32,
}

impl Segments {
    pub fn new(count: u32, segment_bytes: u32) -> Self {
        Segments {
            segments: vec![Segment::default(); count as usize],
            segment_bytes,
            free: (0..count).collect(),
            order: VecDeque::new(),
            open: [None; 2],
            next_sequence: 1,
            live_items: 0,
            live_bytes: 0,
            emptying: 0,
        }
    }

    /// Adds free segments behind the others.
    pub fn grow(&mut self, count: u32) {
        let has = self.segments.len() as u32;
        self.segments.resize((has + count) as usize, Segment::default());
        self.free.extend(has..has + count);
    }

    /// Changes a segment and keeps the sums right.
    fn change(&mut self, at: u32, change: impl FnOnce(&mut Segment)) {
        let (segment, bytes) = (&mut self.segments[at as usize], self.segment_bytes);
        self.live_bytes -= segment.live_bytes(bytes);
        self.live_items -= u64::from(segment.live);
        change(segment);
        self.live_bytes += segment.live_bytes(bytes);
        self.live_items += u64::from(segment.live);
    }

    fn fits(&self, at: u32, bytes: u32) -> bool {
        self.segments[at as usize].used.saturating_add(bytes) <= self.segment_bytes
    }

    /// Whether [`Self::append`] would find space.
    pub fn can_append(&self, stream: Stream, bytes: u32, spared: u32) -> bool {
        self.open[stream as usize].is_some_and(|open| self.fits(open, bytes)) || self.free() > spared
    }

    /// Space for an item, leaving `spared` free segments untouched.
    pub fn append(&mut self, stream: Stream, bytes: u32, spared: u32) -> Option<Appended> {
        let mut sealed = None;
        let at = match self.open[stream as usize] {
            Some(open) if self.fits(open, bytes) => open,
            full => {
                let fresh = self.take_free_sparing(spared)?;
                sealed = full;
                self.seal(stream);
                let sequence = self.next_sequence;
                self.skip_sequence(sequence);
                self.segments[fresh as usize] =
                    Segment { state: State::Open, sequence, used: SEGMENT_HEADER_BYTES, items: 0, live: 0 };
                self.open[stream as usize] = Some(fresh);
                fresh
            }
        };
        let offset = self.segments[at as usize].used;
        self.change(at, |segment| {
            segment.used = (offset + bytes).next_multiple_of(ITEM_ALIGN_BYTES);
            segment.items += 1;
            segment.live += 1;
        });
        let page = offset / LOG_PAGE_BYTES;
        let pages = (offset % LOG_PAGE_BYTES + bytes).div_ceil(LOG_PAGE_BYTES);
        let place = LogPlace::new(at * (self.segment_bytes / LOG_PAGE_BYTES) + page, pages);
        let sequence = self.segments[at as usize].sequence;
        Some(Appended { place, segment: at, sequence, offset, sealed })
    }

    fn take_free_sparing(&mut self, spared: u32) -> Option<u32> {
        if self.free() <= spared { None } else { self.free.pop_front() }
    }

    /// Skips to the next page.
    pub fn pad(&mut self, stream: Stream) {
        if let Some(at) = self.open[stream as usize] {
            let end = self.segment_bytes;
            self.change(at, |segment| segment.used = segment.used.next_multiple_of(LOG_PAGE_BYTES).min(end));
        }
    }

    /// Closes the open segment of a stream.
    pub fn seal(&mut self, stream: Stream) {
        if let Some(at) = self.open[stream as usize].take() {
            self.change(at, |segment| segment.state = State::Filled);
            self.order.push_back((at, self.segments[at as usize].sequence));
        }
    }

    /// Notes that an item is dead.
    pub fn forget(&mut self, place: LogPlace) {
        let at = self.segment_of(place.page());
        debug_assert!(self.segments[at as usize].live > 0, "an item dies once");
        self.change(at, |segment| segment.live = segment.live.saturating_sub(1));
    }

    fn live_bytes_in(&self, at: u32) -> u64 {
        self.segments[at as usize].live_bytes(self.segment_bytes)
    }

    fn is_filled(&self, (at, sequence): (u32, u32)) -> bool {
        let segment = &self.segments[at as usize];
        segment.state == State::Filled && segment.sequence == sequence
    }

    fn begin_emptying(&mut self, at: u32) -> Option<u32> {
        self.segments[at as usize].state = State::Emptying;
        self.emptying += 1;
        Some(at)
    }

    /// The segment that was filled first.
    pub fn take_oldest(&mut self) -> Option<u32> {
        while let Some(entry) = self.order.pop_front() {
            if self.is_filled(entry) {
                return self.begin_emptying(entry.0);
            }
        }
        None
    }

    /// Takes the segment with the least alive among `draws` filled ones and the oldest. Draws are positions in the order, so a
    /// segment that was emptied out of turn is drawn in vain.
    pub fn take_emptiest(&mut self, draws: u32, rng: &mut Rng) -> Option<u32> {
        while self.order.front().is_some_and(|&entry| !self.is_filled(entry)) {
            self.order.pop_front();
        }
        let oldest = self.order.front()?.0;
        let drawn = (0..draws).map(|_| self.order[rng.below(self.order.len() as u64) as usize]);
        let mut emptiest = oldest;
        for entry in drawn.collect::<Vec<_>>() {
            if self.is_filled(entry) && self.live_bytes_in(entry.0) < self.live_bytes_in(emptiest) {
                emptiest = entry.0;
            }
        }
        if self.order.len() > 2 * self.segments.len() {
            let mut order = std::mem::take(&mut self.order);
            order.retain(|&entry| self.is_filled(entry));
            self.order = order;
        }
        self.begin_emptying(emptiest)
    }

    /// Gives a segment free; whatever of it was alive is dead.
    pub fn release(&mut self, at: u32) {
        let was = self.segments[at as usize].state;
        debug_assert!(matches!(was, State::Emptying | State::Taken), "a segment is released by its taker");
        self.emptying -= u32::from(was == State::Emptying);
        self.change(at, |segment| *segment = Segment { sequence: segment.sequence, ..Segment::default() });
        self.free.push_back(at);
    }

    /// Takes a free segment out of use by items, if `spared` others stay free.
    pub fn take_free(&mut self, spared: u32) -> Option<u32> {
        let at = self.take_free_sparing(spared)?;
        self.segments[at as usize].state = State::Taken;
        Some(at)
    }

    /// Takes this free segment. Returns whether it was free. [`Self::end_restoring`] must follow.
    pub fn take_this(&mut self, at: u32) -> bool {
        let free = self.segments.get(at as usize).is_some_and(|segment| segment.state == State::Free);
        if free {
            self.segments[at as usize].state = State::Taken;
        }
        free
    }

    /// Takes up a filling of before a restart; `false` where that cannot be. [`Self::end_restoring`] must follow.
    pub fn restore(&mut self, filled: Filled) -> bool {
        let Filled { segment: at, sequence, items, used_bytes: used } = filled;
        let Some(segment) = self.segments.get(at as usize) else { return false };
        if segment.state == State::Taken || used > self.segment_bytes {
            return false;
        }
        self.change(at, |segment| {
            *segment = Segment { state: State::Filled, sequence, used, items, live: 0 };
        });
        self.order.push_back((at, sequence));
        self.skip_sequence(sequence);
        true
    }

    /// Takes up an item of before a restart; `false` where its segment is not filled.
    pub fn restore_item(&mut self, place: LogPlace) -> bool {
        let at = self.segment_of(place.page());
        if self.segments.get(at as usize).is_none_or(|segment| segment.state != State::Filled) {
            return false;
        }
        let pages = self.segment_bytes / LOG_PAGE_BYTES;
        let end = (place.page() % pages + 1) * LOG_PAGE_BYTES;
        self.change(at, |segment| {
            segment.live += 1;
            segment.items = segment.items.max(segment.live);
            segment.used = segment.used.max(end);
        });
        true
    }

    /// Everything that was there before a restart is taken up: what holds nothing alive is free. Were it to be emptied first,
    /// a store that died again and again would run out of segments, each life leaving some that it had just begun.
    pub fn end_restoring(&mut self) {
        for segment in &mut self.segments {
            if segment.state == State::Filled && segment.live == 0 {
                *segment = Segment { sequence: segment.sequence, ..Segment::default() };
            }
        }
        let is_free = |at: &u32| self.segments[*at as usize].state == State::Free;
        self.free = (0..self.segments.len() as u32).filter(is_free).collect();
    }

    /// Fillings are numbered on from behind this one.
    pub fn skip_sequence(&mut self, sequence: u32) {
        self.next_sequence = self.next_sequence.max(sequence.wrapping_add(1)).max(1);
    }

    /// No item is alive any more.
    pub fn kill_all(&mut self) {
        for at in 0..self.segments.len() as u32 {
            self.change(at, |segment| segment.live = 0);
        }
    }

    pub fn sequence(&self, at: u32) -> u32 {
        self.segments[at as usize].sequence
    }

    pub fn in_use(&self) -> Vec<Filled> {
        let all = (0..).zip(&self.segments);
        all.filter(|(_, it)| matches!(it.state, State::Open | State::Filled | State::Emptying))
            .map(|(segment, &Segment { sequence, items, used: used_bytes, .. })| Filled {
                segment,
                sequence,
                items,
                used_bytes,
            })
            .collect()
    }

    pub fn used_in(&self, at: u32) -> u32 {
        self.segments[at as usize].used
    }

    pub fn live_in(&self, at: u32) -> u32 {
        self.segments[at as usize].live
    }

    pub fn next_sequence(&self) -> u32 {
        self.next_sequence
    }

    pub fn segment_of(&self, page: u32) -> u32 {
        page / (self.segment_bytes / LOG_PAGE_BYTES)
    }

    pub fn free(&self) -> u32 {
        self.free.len() as u32
    }

    pub fn emptying(&self) -> u32 {
        self.emptying
    }

    pub fn live_items(&self) -> u64 {
        self.live_items
    }

    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub fn bytes(&self) -> u64 {
        (self.segments.capacity() * size_of::<Segment>()
            + self.free.capacity() * 4
            + self.order.capacity() * 8) as u64
    }
}
