//! The log below the ladder, without bytes: what the live engine's flash tier does to [`Log`] and [`Index`], in the same
//! order, over a device that has done everything by the time it is asked.
//!
//! Left out is what only a restart needs: the journal, and checkpoints, which borrow segments of the log for a while. A
//! live tier writes those in addition; `docs/store.md` says how much.

use std::collections::HashMap;

use tiermem_base::Rng;
use tiermem_policy::index::Index;
use tiermem_policy::ladder::Outlet;
use tiermem_policy::log::{
    Fate, ITEM_HEADER_BYTES, LOG_PAGE_BYTES, Leaving, Log, LogConfig, LogCounters, LogPlace, Stream, Walk,
    next_chunk,
};

/// Bits of a hash that the index does not know.
const UNKNOWN_BITS: u32 = 24;

/// An item in the log.
#[derive(Clone, Copy, Debug)]
struct Held {
    key: u64,
    bytes: u32,
    segment: u32,
    offset: u32,
    expires_at_ms: Option<u64>,
}

impl Held {
    fn kept(&self) -> Kept {
        Kept { key: self.key, bytes: self.bytes, expires_at_ms: self.expires_at_ms }
    }
}

/// What is stored with an item.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// Its key.
    pub key: u64,
    /// Bytes of header, key and value, as they lie in the log.
    pub bytes: u32,
    /// When it expires, in Unix milliseconds.
    pub expires_at_ms: Option<u64>,
}

impl Kept {
    /// Whether its time is over.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }
}

/// An item that has left the log.
#[derive(Clone, Copy, Debug)]
pub struct Gone {
    /// Of its key.
    pub hash: u64,
    /// Its time was over.
    pub expired: bool,
}

/// What was appended to a segment, dead or alive.
#[derive(Clone, Copy, Debug)]
struct Written {
    offset: u32,
    bytes: u32,
    hash: u64,
}

/// A segment whose bytes a live tier still has in memory.
#[derive(Clone, Copy, Debug)]
struct Filling {
    segment: u32,
    stream: Stream,
    used: u32,
    submitted: u32,
    sealed: bool,
    /// The device was handed all of it.
    handed_over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its own bytes are not all on the device yet.
    Waiting,
    /// It is read; whether the device was asked.
    Reading(bool),
    Walking,
}

/// The log of one shard, and whose items lie in it.
#[derive(Debug)]
pub struct Tail {
    log: Log,
    /// By the bits of the hash that the index knows; only looked up.
    held: HashMap<u64, Held>,
    written: Vec<Vec<Written>>,
    fillings: Vec<Filling>,
    emptying: Option<(Walk, Stage)>,
    emptied: Vec<u32>,
    written_bytes: u64,
    /// Look-ups that had to read the device.
    pub reads: u64,
    /// Items that did not come for lack of memory for their index entries.
    pub unindexed: u64,
}

impl Tail {
    /// An empty log.
    pub fn new(config: LogConfig) -> Self {
        Tail {
            written: vec![Vec::new(); config.segments as usize],
            log: Log::new(config),
            held: HashMap::new(),
            fillings: Vec::new(),
            emptying: None,
            emptied: Vec::new(),
            written_bytes: 0,
            reads: 0,
            unindexed: 0,
        }
    }

    /// What the log has seen.
    pub fn counters(&self) -> LogCounters {
        self.log.counters()
    }

    /// Live items.
    pub fn items(&self) -> u64 {
        self.log.items()
    }

    /// Bytes of all segments.
    pub fn capacity_bytes(&self) -> u64 {
        let config = self.log.config();
        u64::from(config.segments) * u64::from(config.segment_bytes)
    }

    /// Bytes of segments written.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Bytes of memory for the log's state.
    pub fn metadata_bytes(&self) -> u64 {
        self.log.metadata_bytes()
    }

    /// What the ladder must know, which holds so many items of so many bytes of key and value and `header_bytes` each.
    pub fn outlet(&self, items: u64, item_bytes: u64) -> Outlet {
        self.log.outlet(self.fillings.len(), item_bytes + (items + 1) * u64::from(ITEM_HEADER_BYTES))
    }

    /// An item leaves memory; whether it lies here now. `is_unchanged`: it was read from here and has not changed since.
    pub fn receive(&mut self, index: &mut Index, leaving: &Leaving, item: Kept, is_unchanged: bool) -> bool {
        let is_here = is_unchanged && index.find_log(leaving.hash).is_some();
        match self.log.receive(leaving, is_here, self.fillings.len()) {
            Fate::Stays => true,
            Fate::Rejected | Fate::Refused => false,
            Fate::Enters => self.append(index, Stream::Fresh, leaving.hash, item, 0),
        }
    }

    fn append(&mut self, index: &mut Index, stream: Stream, hash: u64, item: Kept, heat: u32) -> bool {
        let Kept { key, bytes, expires_at_ms } = item;
        let Some(appended) = self.log.append(stream, bytes) else { return false };
        if let Some(sealed) = appended.sealed {
            self.write(sealed, true, |filling| filling.sealed = true);
        }
        let (segment, offset) = (appended.segment, appended.offset);
        if !self.is_in_memory(segment) {
            let used = 0;
            self.fillings.push(Filling {
                segment,
                stream,
                used,
                submitted: 0,
                sealed: false,
                handed_over: false,
            });
            self.written[segment as usize].clear();
        }
        self.written[segment as usize].push(Written { offset, bytes, hash });
        self.write(segment, false, |filling| filling.used = offset + bytes);
        self.held.insert(hash >> UNKNOWN_BITS, Held { key, bytes, segment, offset, expires_at_ms });
        if let Some(old) = index.put_log(hash, appended.place.with_heat(heat)) {
            self.log.forget(old);
        }
        true
    }

    /// Changes the filling of a segment and writes of it what can be written.
    fn write(&mut self, segment: u32, all: bool, change: impl FnOnce(&mut Filling)) {
        let Some(filling) = self.fillings.iter_mut().find(|filling| filling.segment == segment) else {
            return;
        };
        change(filling);
        while let Some(chunk) = next_chunk(filling.used, filling.submitted, filling.sealed, all) {
            self.written_bytes += u64::from(chunk.end - chunk.start);
            filling.submitted = chunk.end;
        }
    }

    /// Whether a live tier would answer from memory.
    pub fn is_in_memory(&self, segment: u32) -> bool {
        self.fillings.iter().any(|filling| filling.segment == segment)
    }

    /// Segment and filling in which a place lies.
    pub fn filling_of(&self, place: LogPlace) -> (u32, u32) {
        let segment = self.log.segment_of(place.page());
        (segment, self.log.sequence(segment))
    }

    /// The item that the index names for this hash.
    pub fn item(&self, hash: u64) -> Option<Kept> {
        self.held.get(&(hash >> UNKNOWN_BITS)).map(Held::kept)
    }

    /// The item of this hash is dead; whether there was one.
    pub fn forget(&mut self, index: &mut Index, hash: u64) -> bool {
        let Some(place) = index.remove_log(hash) else { return false };
        self.held.remove(&(hash >> UNKNOWN_BITS));
        self.log.forget(place);
        true
    }

    /// Notes a look-up that found its item here; how long ago the key was seen before.
    pub fn hit(&mut self, index: &mut Index, hash: u64, now: u64) -> Option<u64> {
        let place = index.find_log(hash)?;
        let (warmer, reuse) = self.log.hit(hash, place, now);
        if warmer != place {
            index.put_log(hash, warmer);
        }
        reuse
    }

    /// Notes that an item was copied into memory.
    pub fn promoted(&mut self) {
        self.log.promoted();
    }

    /// The device is handed everything that was decided.
    pub fn hand_over(&mut self) {
        self.fillings.iter_mut().for_each(|filling| filling.handed_over = filling.sealed);
        if let Some((_, Stage::Reading(asked))) = &mut self.emptying {
            *asked = true;
        }
    }

    /// A piece of the work beside requests. What left the log is appended to `gone`.
    pub fn advance(&mut self, index: &mut Index, now_ms: u64, rng: &mut Rng, gone: &mut Vec<Gone>) {
        self.fillings.retain(|filling| !filling.handed_over);
        if let Some((_, stage @ Stage::Reading(true))) = &mut self.emptying {
            *stage = Stage::Walking;
        }
        for segment in self.emptied.drain(..) {
            self.log.emptied(segment);
        }
        self.empty(index, now_ms, rng, gone);
        self.hand_over();
    }

    fn empty(&mut self, index: &mut Index, now_ms: u64, rng: &mut Rng, gone: &mut Vec<Gone>) {
        let (mut walk, stage) = match self.emptying.take() {
            Some(victim) => victim,
            None => {
                let Some(segment) = self.log.victim(rng) else { return };
                if self.log.live_in(segment) == 0 && !self.is_in_memory(segment) {
                    return self.log.emptied(segment);
                }
                (Walk::new(segment, self.log.sequence(segment)), Stage::Waiting)
            }
        };
        let stage = match stage {
            Stage::Waiting if self.is_in_memory(walk.segment) => Stage::Waiting,
            Stage::Waiting => Stage::Reading(false),
            Stage::Reading(asked) => Stage::Reading(asked),
            Stage::Walking => {
                let used = self.log.used_in(walk.segment);
                walk.begin(self.log.is_choked(self.fillings.len()));
                while let Some(at) = walk.next_place(used) {
                    if !self.deal_with(index, &mut walk, at, now_ms, gone) {
                        break;
                    }
                }
                if walk.is_over(used) {
                    debug_assert_eq!(self.log.live_in(walk.segment), 0, "every live item was met");
                    self.flush_kept();
                    self.emptied.push(walk.segment);
                    return;
                }
                Stage::Walking
            }
        };
        self.emptying = Some((walk, stage));
    }

    /// Deals with what stands at byte `at` of a victim; `false`: it is to survive, and there is no space for it now.
    fn deal_with(
        &mut self,
        index: &mut Index,
        walk: &mut Walk,
        at: u32,
        now_ms: u64,
        gone: &mut Vec<Gone>,
    ) -> bool {
        let written = &self.written[walk.segment as usize];
        let Ok(found) = written.binary_search_by_key(&at, |item| item.offset) else {
            walk.skip();
            return true;
        };
        let Written { bytes, hash, .. } = written[found];
        let held = self.held.get(&(hash >> UNKNOWN_BITS)).copied();
        let live = held.filter(|held| (held.segment, held.offset) == (walk.segment, at));
        let (Some(live), Some(place)) = (live, index.find_log(hash)) else {
            walk.pass(bytes);
            return true;
        };
        let expired = live.kept().is_expired(now_ms);
        let heat = match expired {
            true => None,
            false => self.log.keeps(place, bytes, walk.kept_bytes, self.emptied.is_empty()),
        };
        match heat {
            Some(heat) => {
                if !self.append(index, Stream::Kept, hash, live.kept(), heat) {
                    return false;
                }
                walk.kept_bytes += bytes;
            }
            None => {
                self.forget(index, hash);
                gone.push(Gone { hash, expired });
            }
        }
        walk.pass(bytes);
        true
    }

    /// Writes what the survivors' open segment has, to the last byte.
    fn flush_kept(&mut self) {
        let open = self.fillings.iter().find(|filling| filling.stream == Stream::Kept && !filling.sealed);
        if let Some(segment) = open.map(|filling| filling.segment) {
            self.log.pad(Stream::Kept);
            let end = self.log.config().segment_bytes;
            self.write(segment, true, |filling| {
                filling.used = filling.used.next_multiple_of(LOG_PAGE_BYTES).min(end);
            });
        }
    }
}
