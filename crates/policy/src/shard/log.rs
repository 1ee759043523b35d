//! The log below memory and its work: which items come in, what a place in it means now, which segments are emptied.

use super::append::Appender;
use super::checkpoint::Checkpoints;
use super::persistence::Restarts;
use super::segment_gc::Emptying;
use super::{Act, Away, From, Items, Keys, Memory};
use crate::ladder::Outlet;
use crate::log::{Fate, ITEM_HEADER_BYTES, Leaving, Log, LogPlace, Stream};
use tiermem_base::Rng;

/// A log with the segments that are being filled, the one that is being emptied, and its checkpoints.
#[derive(Debug)]
pub struct LogWork {
    appender: Appender,
    emptying: Emptying,
    restarts: Restarts,
    /// The device was given up: nothing comes in any more.
    is_given_up: bool,
    /// Items that went there from each tier.
    sunk: Vec<u64>,
    /// Items that did not, for lack of memory for their index entries.
    unindexed: u64,
}

/// The parts of a log's work, for the events of its device.
#[derive(Debug)]
pub(super) struct LogParts<'a> {
    pub(super) appender: &'a mut Appender,
    pub(super) emptying: &'a mut Emptying,
    pub(super) restarts: &'a mut Restarts,
}

impl LogWork {
    pub(super) fn new(log: Log, checkpoints: Checkpoints, tiers: usize) -> Self {
        LogWork {
            appender: Appender::new(log),
            emptying: Emptying::default(),
            restarts: Restarts::new(checkpoints),
            is_given_up: false,
            sunk: vec![0; tiers],
            unindexed: 0,
        }
    }

    /// Its parts. A caller that changes them [reports](super::contents::Contents::report_outlet) that.
    pub(super) fn parts(&mut self) -> LogParts<'_> {
        let LogWork { appender, emptying, restarts, .. } = self;
        LogParts { appender, emptying, restarts }
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
        self.appender.log()
    }

    /// Checkpoints: how far they are.
    pub fn checkpoints(&self) -> &Checkpoints {
        self.restarts.checkpoints()
    }

    /// The segment in which a place lies, and the number of its filling.
    pub fn filling_of(&self, place: LogPlace) -> (u32, u32) {
        self.appender.filling_of(place)
    }

    /// The bytes to read for an entry of the log.
    pub fn away(&self, hash: u64, place: LogPlace) -> Away {
        let (segment, sequence) = self.filling_of(place);
        Away { hash, place, sequence, is_in_memory: self.appender.fillings().has(segment) }
    }

    /// The state of the outlet, as the ladder above must know it, whose `items` items have `item_bytes` in all, keys and values
    /// included.
    pub(super) fn outlet(&self, items: u64, item_bytes: u64) -> Outlet {
        if self.is_given_up {
            return Outlet::Nowhere;
        }
        // With the header of one that may come.
        let unwritten = self.appender.fillings().len();
        self.log().outlet(unwritten, item_bytes + (items + 1) * u64::from(ITEM_HEADER_BYTES))
    }

    /// The log was given up: nothing comes in any more, and no request waits for it.
    pub(super) fn give_up(&mut self) {
        self.is_given_up = true;
    }

    /// Whether it was given up.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// An item, whose bytes are at `from`, leaves a tier. Returns what becomes of it. Where it enters the log, its act is the
    /// next. `is_unchanged`: it was read from the log and was not changed since.
    pub(super) fn take_in(
        &mut self,
        memory: &mut Memory,
        leaving: &Leaving,
        is_unchanged: bool,
        (tier, from): (u8, From),
    ) -> Fate {
        if !is_unchanged && !memory.ladder().may_grow() {
            // Another index entry would take memory that tier 0 does not give.
            self.unindexed += 1;
            return Fate::Rejected;
        }
        let is_here = is_unchanged && memory.keys().place_below(leaving.hash).is_some();
        if self.is_given_up && !is_here {
            return Fate::Rejected;
        }
        let mut fate = self.appender.receive(leaving, is_here);
        if fate == Fate::Enters {
            let item = (leaving.hash, leaving.bytes, 0);
            match self.appender.append(memory.keys_mut(), Stream::Fresh, item, from) {
                // Handed out before the writes that follow from it.
                Some(act) => self.appender.push_first(act),
                None => fate = Fate::Refused,
            }
        }
        self.sunk[usize::from(tier)] += u64::from(matches!(fate, Fate::Stays | Fate::Enters));
        fate
    }

    /// Takes an item out of index and log. Returns where it was.
    pub(super) fn forget(&mut self, keys: &mut Keys, hash: u64) -> Option<LogPlace> {
        self.appender.forget(keys, hash)
    }

    /// An item that lies at `place` is asked for; the same place with its heat, and after how many requests that is, if it is known.
    pub(super) fn hit(&mut self, hash: u64, place: LogPlace, now: u64) -> (LogPlace, Option<u64>) {
        self.appender.log_mut().hit(hash, place, now)
    }

    /// Notes that an item was copied into memory.
    pub(super) fn promoted(&mut self) {
        self.appender.log_mut().promoted();
    }

    /// Begins a piece of the work of emptying segments, if there is any.
    pub(super) fn begin_piece(&mut self, rng: &mut Rng) {
        let is_choked = !self.is_given_up && self.appender.is_choked();
        self.emptying.begin_piece(&mut self.appender, is_choked, rng);
    }

    /// Goes on with the piece at hand until there is something to be done; `None`: it is over.
    pub(super) fn go_on<I: Items>(&mut self, memory: &mut Memory, items: &mut I) -> Option<Act> {
        let will_give_back = self.restarts.checkpoints().will_give_back();
        self.emptying.go_on(&mut self.appender, will_give_back, memory, items)
    }

    /// The next act, to be carried out before anything else is decided.
    #[inline]
    pub(super) fn next_act(&mut self) -> Option<Act> {
        self.appender.next_act()
    }

    /// Whether nothing is, and no piece of the work of emptying a segment is under way.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.appender.is_quiet() && !self.is_at_work()
    }

    /// Whether such a piece is.
    #[inline]
    pub(super) fn is_at_work(&self) -> bool {
        self.emptying.is_at_work()
    }
}
