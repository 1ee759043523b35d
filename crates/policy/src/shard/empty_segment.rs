//! Emptying a segment: it is read whole, and item by item survives in another one or goes, a piece at a time.

use super::log::LogWork;
use super::victim::{Lying, Stage, Victim};
use super::{Act, From, Items, Memory, Why};
use crate::index::Found;
use crate::log::{LOG_PAGE_BYTES, Stream, Walk};
use tiermem_base::Rng;

/// Index entries looked at in one piece of work, where a segment could not be read.
const SWEEP: usize = 512;
/// Behind the last position of the index.
const END: u64 = u64::MAX;

impl LogWork {
    /// Begins a piece of the work of emptying segments, if there is any.
    pub(super) fn begin_piece(&mut self, rng: &mut Rng) {
        if self.victim.is_none() {
            let Some(segment) = self.log.victim(rng) else { return };
            if self.log.live_in(segment) == 0 && !self.is_in_memory(segment) {
                return self.log.emptied(segment);
            }
            let walk = Walk::new(segment, self.log.sequence(segment));
            self.victim = Some(Victim::new(walk));
        }
        let is_choked = self.is_choked();
        let Some(mut victim) = self.victim.take() else { return };
        match victim.stage {
            Stage::Waiting if self.is_in_memory(victim.walk.segment) => {}
            Stage::Waiting => {
                victim.stage = Stage::Reading;
                self.push(Act::Read { segment: victim.walk.segment });
            }
            Stage::Reading => {}
            Stage::Walking { .. } => {
                victim.walk.begin(is_choked);
                victim.stage = Stage::Walking { is_at_work: true };
            }
            Stage::Sweeping { from, .. } => victim.stage = Stage::Sweeping { from, is_at_work: true },
        }
        self.victim = Some(victim);
    }

    /// The bytes of the victim are there; with `false` they could not be read.
    pub(super) fn note_arrival(&mut self, segment: u32, is_readable: bool) {
        let reading =
            self.victim.as_mut().filter(|it| it.stage == Stage::Reading && it.walk.segment == segment);
        debug_assert!(reading.is_some(), "what arrives was asked for");
        if let Some(victim) = reading {
            victim.stage = match is_readable {
                true => Stage::Walking { is_at_work: false },
                false => Stage::Sweeping { from: 0, is_at_work: false },
            };
        }
    }

    /// Goes on with the piece at hand until there is something to be done; `None`: it is over.
    pub(super) fn go_on<I: Items>(&mut self, memory: &mut Memory, items: &mut I) -> Option<Act> {
        let mut victim = self.victim.take_if(|victim| victim.is_at_work())?;
        if let Stage::Sweeping { from, .. } = victim.stage {
            return self.sweep(victim, from, memory, items);
        }
        let used_bytes = self.log.used_in(victim.walk.segment);
        while let Some(at) = victim.walk.next_place(used_bytes) {
            match self.deal_with(&mut victim.walk, at, memory, items) {
                Dealt::With(None) => {}
                Dealt::With(act) => {
                    self.victim = Some(victim);
                    return act;
                }
                Dealt::NoSpace => break,
            }
        }
        if victim.walk.is_over(used_bytes) {
            if self.log.live_in(victim.walk.segment) == 0 {
                return Some(self.note_emptied(victim.walk.segment));
            }
            // Damaged, or promised and never written.
            victim.stage = Stage::Sweeping { from: 0, is_at_work: false };
            self.victim = Some(victim);
            return None;
        }
        victim.stage = Stage::Walking { is_at_work: false };
        self.victim = Some(victim);
        None
    }

    /// Takes entries that name a place in the segment out of the index, a piece at a time: their items could not be read.
    fn sweep<I: Items>(
        &mut self,
        mut victim: Victim,
        from: u64,
        memory: &mut Memory,
        items: &mut I,
    ) -> Option<Act> {
        let segment = victim.walk.segment;
        let mut next = Some(from);
        if victim.lost.is_empty() {
            next = memory.entries(from, SWEEP, |hash, found| {
                if let Found::Log(place) = found
                    && self.log.segment_of(place.page()) == segment
                {
                    victim.lost.push(hash);
                }
            });
            // What was found leaves first, one by one; it is not found again.
            victim.stage = match next {
                Some(from) => Stage::Sweeping { from, is_at_work: false },
                None => Stage::Sweeping { from: END, is_at_work: false },
            };
        }
        let Stage::Sweeping { from: behind, .. } = victim.stage else { return None };
        while let Some(hash) = victim.lost.pop() {
            let Some(place) = self.forget(memory, hash) else { continue };
            let has_copy = memory.note_changed(hash, items);
            victim.stage = Stage::Sweeping { from: behind, is_at_work: !victim.lost.is_empty() };
            self.victim = Some(victim);
            return Some(Act::Gone { hash, place, at: 0, why: Why::Lost, has_copy });
        }
        victim.stage = Stage::Sweeping { from: behind, is_at_work: false };
        if next.is_none() || from == END {
            return Some(self.note_emptied(segment));
        }
        self.victim = Some(victim);
        None
    }

    /// Deals with the item that stands at byte `from`, or next behind it.
    fn deal_with<I: Items>(
        &mut self,
        walk: &mut Walk,
        from: u32,
        memory: &mut Memory,
        items: &mut I,
    ) -> Dealt {
        let segment = walk.segment;
        let Some(lying) = items.lying_at(segment, walk.sequence, from) else {
            walk.skip();
            return Dealt::With(None);
        };
        let Lying { at, hash, bytes, is_latest, is_over } = lying;
        debug_assert!(
            at >= from && at / LOG_PAGE_BYTES == from / LOG_PAGE_BYTES,
            "the walk goes page by page"
        );
        let pages = self.log.config().segment_bytes / LOG_PAGE_BYTES;
        let page = segment * pages + at / LOG_PAGE_BYTES;
        let place = memory.place_below(hash).filter(|place| is_latest && place.page() == page);
        let Some(place) = place else {
            walk.pass(at + bytes);
            return Dealt::With(None);
        };
        let heat = match is_over {
            true => None,
            false => self.log.keeps(place, bytes, walk.kept_bytes, self.is_stuck()),
        };
        let act = match heat {
            Some(heat) => {
                let from = From::Segment { segment, at };
                let item = (hash, bytes, heat);
                let Some(act) = self.append(memory, Stream::Kept, item, from) else {
                    return Dealt::NoSpace;
                };
                walk.kept_bytes += bytes;
                act
            }
            None => {
                self.forget(memory, hash);
                // Where memory has the item too, that copy is the only one now.
                let has_copy = memory.note_changed(hash, items);
                let why = if is_over { Why::Expired } else { Why::Evicted };
                Act::Gone { hash, place, at, why, has_copy }
            }
        };
        walk.pass(at + bytes);
        Dealt::With(Some(act))
    }
}

enum Dealt {
    /// It is dealt with, by this act if it takes one.
    With(Option<Act>),
    /// It is to survive, and there is no space for it now.
    NoSpace,
}
