//! Heat: how often each frame in place was used of late, and which frames of a tier were used least and most.
//!
//! A frame's uses are counted from when it comes to memory until it leaves; they move with it from one tier in place to another.
//! After [`AGE_USES`] uses and arrivals for each frame of memory all counts are halved, so that a frame that was hot long ago grows
//! cold. Of frames with equal counts, the one whose last use is longer ago is the colder.
//!
//! Uses of one frame that follow each other without one of another frame between count once: a loop over the words of a page is
//! one use of it, however many words it has.

use super::cell::Frame;
use super::config::{Arrival, Config, TIERS_MAX};
use crate::Id;
use crate::column::Column;
use crate::evict::heap::{Heap, Positions};

/// A frame goes up in exchange for one that has this many times fewer uses, and [`LEAST_USES`] fewer still. The factor keeps two
/// frames that are used alike from changing places again and again.
const TIMES: u64 = 2;
/// An exchange copies two frames, which so many uses must be worth. So a frame that is used once in a sweep never changes places.
const LEAST_USES: u64 = 4;
/// Uses and arrivals for each frame of memory between two halvings.
const AGE_USES: u64 = 16;

/// Bits of a key below the uses: when the last one was, counted in uses and arrivals.
const CLOCK_BITS: u32 = 40;
const USES_MAX: u64 = (1 << (u64::BITS - CLOCK_BITS)) - 1;

fn uses_of(key: u64) -> u64 {
    key >> CLOCK_BITS
}

fn with_uses(key: u64, uses: u64) -> u64 {
    uses.min(USES_MAX) << CLOCK_BITS | key & ((1 << CLOCK_BITS) - 1)
}

/// A frame that should go up, and the one that should make its room, if none is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub hot: Frame,
    pub cold: Option<Frame>,
}

/// The frames of one tier that may move.
#[derive(Clone, Debug, Default)]
struct Level {
    /// By their keys, the least used on top: where there is a slower tier in place, to which they may go.
    coldest: Option<Heap>,
    /// By the complements of their keys, the most used on top: where there is a faster tier.
    hottest: Option<Heap>,
}

/// Heat of all frames in place.
#[derive(Clone, Debug)]
pub(super) struct Heat {
    /// Uses, and when the last one was.
    keys: Column<u64>,
    levels: [Level; TIERS_MAX],
    /// In the heaps of both kinds.
    positions: [Positions; 2],
    in_place: u8,
    /// Uses and arrivals so far.
    clock: u64,
    /// The frame that was used last.
    last: Option<Frame>,
    frames: u64,
    halved_at: u64,
}

impl Heat {
    /// `None` where frames do not change places by their uses.
    pub fn of(config: &Config) -> Option<Self> {
        let in_place = config.tiers.iter().take_while(|tier| tier.in_place);
        let frames = in_place.clone().map(|tier| u64::from(tier.frames)).sum();
        let in_place = in_place.count();
        let level = |tier: usize| Level {
            coldest: (tier + 1 < in_place).then(Heap::default),
            hottest: (tier > 0 && tier < in_place).then(Heap::default),
        };
        (config.arrival == Arrival::Spill && in_place > 1).then(|| Heat {
            keys: Column::default(),
            levels: std::array::from_fn(level),
            positions: Default::default(),
            in_place: in_place as u8,
            clock: 0,
            last: None,
            frames,
            halved_at: 0,
        })
    }

    pub fn grow_to(&mut self, frames: u32) {
        if let Some(last) = frames.checked_sub(1).map(Id) {
            self.keys.grow_to(last);
            self.positions.iter_mut().for_each(|positions| positions.grow_to(last));
        }
    }

    /// The tiers in which frames change places with the next slower tier.
    pub fn uppers(&self) -> std::ops::Range<u8> {
        0..self.in_place - 1
    }

    /// The frame has come to memory, by a use or not.
    pub fn came(&mut self, frame: Frame, is_used: bool) {
        // No two frames have the same key, so that what is coldest does not depend on how it is searched for.
        self.clock += 1;
        *self.keys.at(frame.id()) = with_uses(self.clock, 0);
        if is_used {
            self.last = None;
            self.used(frame, None);
        }
    }

    /// The frame was used; `tier`: where it stands among those that may move.
    pub fn used(&mut self, frame: Frame, tier: Option<u8>) {
        if self.last.replace(frame) == Some(frame) {
            return;
        }
        self.clock += 1;
        let uses = uses_of(self.keys.get(frame.id())) + 1;
        self.set(frame, with_uses(self.clock, uses), tier);
        if self.clock - self.halved_at >= AGE_USES * self.frames {
            self.halve();
        }
    }

    /// A move between two tiers in place has failed. The frame counts as used so much, or so little, that it is not chosen again at
    /// once.
    pub fn stayed(&mut self, frame: Frame, from: u8, to: u8) {
        if from.max(to) >= self.in_place {
            return;
        }
        let key = self.keys.get(frame.id());
        let uses = if to < from { 0 } else { TIMES * uses_of(key) + LEAST_USES };
        *self.keys.at(frame.id()) = with_uses(key, uses);
    }

    fn set(&mut self, frame: Frame, key: u64, tier: Option<u8>) {
        *self.keys.at(frame.id()) = key;
        let Some(level) = tier.map(|tier| &mut self.levels[usize::from(tier)]) else { return };
        let [coldest, hottest] = &mut self.positions;
        level.coldest.iter_mut().for_each(|heap| heap.update(coldest, frame.id(), key));
        level.hottest.iter_mut().for_each(|heap| heap.update(hottest, frame.id(), !key));
    }

    /// The frame lies in this tier, and may move from now on.
    pub fn enter(&mut self, frame: Frame, tier: u8) {
        let (key, level) = (self.keys.get(frame.id()), &mut self.levels[usize::from(tier)]);
        let [coldest, hottest] = &mut self.positions;
        level.coldest.iter_mut().for_each(|heap| heap.push(coldest, frame.id(), key));
        level.hottest.iter_mut().for_each(|heap| heap.push(hottest, frame.id(), !key));
    }

    /// The reverse.
    pub fn leave(&mut self, frame: Frame, tier: u8) {
        let level = &mut self.levels[usize::from(tier)];
        let [coldest, hottest] = &mut self.positions;
        level.coldest.iter_mut().for_each(|heap| heap.remove(coldest, frame.id()));
        level.hottest.iter_mut().for_each(|heap| heap.remove(hottest, frame.id()));
    }

    /// Which frame of the tier below `upper` should go up, and which one down for it, if any.
    pub fn pair(&self, upper: u8, has_room: bool) -> Option<Pair> {
        let (hot_uses, hot) = self.hottest(upper + 1)?;
        if has_room {
            return (hot_uses >= LEAST_USES).then_some(Pair { hot, cold: None });
        }
        let (key, cold) = self.levels[usize::from(upper)].coldest.as_ref()?.top()?;
        (hot_uses >= TIMES * uses_of(key) + LEAST_USES).then_some(Pair { hot, cold: Some(Frame(cold.0)) })
    }

    /// The least used frame of a tier from which frames go down by their uses; `None` for others.
    pub fn coldest(&self, tier: u8) -> Option<Frame> {
        let (_, id) = self.levels[usize::from(tier)].coldest.as_ref()?.top()?;
        Some(Frame(id.0))
    }

    fn hottest(&self, tier: u8) -> Option<(u64, Frame)> {
        let top = self.levels[usize::from(tier)].hottest.as_ref()?.top();
        top.map(|(key, id)| (uses_of(!key), Frame(id.0)))
    }

    fn halve(&mut self) {
        self.halved_at = self.clock;
        self.keys.each(|key| *key = with_uses(*key, uses_of(*key) / 2));
        let [coldest, hottest] = &mut self.positions;
        for level in &mut self.levels {
            level.coldest.iter_mut().for_each(|heap| heap.rekey(coldest, |id| self.keys.get(id)));
            level.hottest.iter_mut().for_each(|heap| heap.rekey(hottest, |id| !self.keys.get(id)));
        }
    }

    pub fn bytes(&self) -> u64 {
        let heaps = self.levels.iter().flat_map(|level| [&level.coldest, &level.hottest]).flatten();
        heaps.map(Heap::bytes).sum::<u64>()
            + self.keys.bytes()
            + self.positions.iter().map(Column::bytes).sum::<u64>()
    }

    /// Holds the heaps against the frames that may move and where they lie; panics if they differ.
    pub fn audit(&self, listed: impl Iterator<Item = (Frame, u8)>) {
        let mut lengths = [0; TIERS_MAX];
        for (frame, tier) in listed.filter(|(_, tier)| *tier < self.in_place) {
            let (level, key) = (&self.levels[usize::from(tier)], self.keys.get(frame.id()));
            let sides = [(&level.coldest, key), (&level.hottest, !key)];
            for ((heap, key), positions) in sides.into_iter().zip(&self.positions) {
                let Some(heap) = heap else { continue };
                assert_eq!(heap.key(positions, frame.id()), key, "{frame:?} in tier {tier}");
                assert!(heap.top().is_some_and(|(least, _)| least <= key), "{frame:?} in tier {tier}");
            }
            lengths[usize::from(tier)] += 1;
        }
        for (level, length) in self.levels.iter().zip(lengths) {
            let heaps = [&level.coldest, &level.hottest].into_iter().flatten();
            heaps.for_each(|heap| assert_eq!(heap.len(), length, "frames with heat"));
        }
    }
}
