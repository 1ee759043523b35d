//! One tier of the ladder: its slots, the classes that are short of space, the space that moves will free, and its counters.

use super::classes::{Class, Fit, PAGE_GRANULES};
use super::config::Watermarks;
use super::slots::Slots;
use super::{LevelCounters, PAGE_BYTES};
use crate::Id;
use crate::deferred_free::DeferredFree;

/// Classes that hold less keep nothing free: a slot would be too large a share.
const KEEP_FREE_FROM: u64 = 8;

/// How much of `held` must be free for a watermark.
pub(super) fn threshold(held: u64, share: f64) -> u64 {
    if held < KEEP_FREE_FROM { 0 } else { (held as f64 * share).ceil() as u64 }
}

/// A tier of the ladder.
#[derive(Clone, Debug)]
pub struct Level {
    pub(super) slots: Slots,
    pub(super) counters: LevelCounters,
    /// Classes that fell below the low watermark and have not reached the high one.
    short: u128,
    /// Classes that could not have a slot when they wanted one.
    starved: u128,
    /// Moves under way out of each class: space that will be free.
    leaving: Vec<u32>,
    leaving_bytes: u64,
}

impl Level {
    pub(super) fn new(slots: Slots) -> Self {
        let classes = slots.by_class().runs().index() + 1;
        Level {
            slots,
            counters: LevelCounters::default(),
            short: 0,
            starved: 0,
            leaving: vec![0; classes],
            leaving_bytes: 0,
        }
    }

    /// The counters of the tier.
    pub fn counters(&self) -> LevelCounters {
        self.counters
    }

    /// Whether it holds no more than its capacity allows, and has given back all memory beyond it.
    pub fn is_within_capacity(&self) -> bool {
        self.slots.is_within_limits()
    }

    /// Bytes of a place that is taken, by its address in units.
    #[inline]
    pub fn place_bytes(&self, unit: u32) -> u64 {
        self.slots.pages().bytes_at(unit)
    }

    /// Space for an item, noting when its class has fallen below the low watermark.
    pub(super) fn take(&mut self, fit: Fit, id: Id, marks: Option<Watermarks>) -> Option<u32> {
        let class = if let Fit::Slot(class) = fit { class } else { self.slots.by_class().runs() };
        let bit = 1 << class.index();
        let Some(unit) = self.slots.take(fit, id) else {
            self.starved |= bit;
            self.short |= bit;
            return None;
        };
        self.starved &= !bit;
        if let Some(marks) = marks {
            let (free, held) = self.slots.class_space(class);
            if free < threshold(held, marks.low) {
                self.short |= bit;
            }
        }
        Some(unit)
    }

    /// Classes that want free space.
    pub(super) fn short(&self) -> u128 {
        self.short
    }

    /// A class has enough, or cannot have more.
    pub(super) fn settle_short(&mut self, class: Class) {
        self.short &= !(1 << class.index());
    }

    /// Whether a class will have enough free space when those have left that are leaving: up to the high watermark, and a slot at least
    /// where it could not have one.
    pub(super) fn will_be_enough(&self, class: Class, high: f64) -> bool {
        let (free, held) = self.slots.class_space(class);
        let will_be_free = free + u64::from(self.leaving[class.index()]);
        let starved = u64::from(self.starved >> class.index() & 1 == 1);
        will_be_free >= threshold(held, high).max(starved)
    }

    /// Begins a move out of a class: of `amount` slots or pages, and of `bytes`.
    pub(super) fn begin_leaving(&mut self, class: Class, amount: u32, bytes: u64) {
        self.leaving[class.index()] += amount;
        self.leaving_bytes += bytes;
    }

    /// Ends a move out of a class.
    pub(super) fn end_leaving(&mut self, class: Class, amount: u32, bytes: u64) {
        self.leaving[class.index()] -= amount;
        self.leaving_bytes -= bytes;
    }

    /// Whether a move out of a class is under way.
    pub(super) fn is_leaving(&self, class: Class) -> bool {
        self.leaving[class.index()] > 0
    }

    /// Whether any is.
    pub(super) fn has_leaving(&self) -> bool {
        self.leaving_bytes > 0
    }

    /// Bytes that are free, or will be when those have left that are leaving.
    pub(super) fn will_be_free_bytes(&self) -> u64 {
        self.slots.free_bytes() + self.leaving_bytes
    }

    /// Bytes of the pages that it may use.
    pub(super) fn usable_bytes(&self) -> u64 {
        u64::from(self.slots.supply().limit()) * PAGE_BYTES
    }

    /// Whether an item takes at most half of the tier; one that needs a slot always does.
    #[inline]
    pub(super) fn can_hold(&self, fit: Fit) -> bool {
        match fit {
            Fit::Slot(_) => true,
            Fit::Run(granules) => granules.div_ceil(PAGE_GRANULES) <= self.slots.supply().limit() / 2,
        }
    }

    /// Gives back everything at once.
    pub(super) fn clear(&mut self, deferred_free: &mut DeferredFree) {
        self.slots.clear(deferred_free);
        self.leaving.fill(0);
        (self.leaving_bytes, self.short, self.starved, self.counters.items) = (0, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::classes::SizeClasses;
    use super::*;
    use std::sync::Arc;

    fn level() -> (Level, Class, u32) {
        let classes = Arc::new(SizeClasses::geometric(2.0));
        let Fit::Slot(class) = classes.fit(1000) else { panic!("a slot") };
        let slots = classes.slots_per_page(class);
        (Level::new(Slots::new(classes, 2)), class, slots)
    }

    #[test]
    fn a_class_is_short_from_the_low_watermark_on() {
        let (mut level, class, slots) = level();
        let marks = Some(Watermarks { low: 0.25, high: 0.5 });
        for id in 0..2 * slots {
            let free = 2 * slots - id - 1;
            assert!(level.take(Fit::Slot(class), Id(id), marks).is_some());
            let held = if id < slots { slots } else { 2 * slots };
            assert_eq!(level.short() != 0, free < held / 4, "{free} of {held}");
        }
        assert!(!level.will_be_enough(class, 0.0) || level.short() != 0);
        assert!(level.take(Fit::Slot(class), Id(99), None).is_none());
        assert!(!level.will_be_enough(class, 0.0), "who was refused wants a slot at least");
        level.begin_leaving(class, 1, 1024);
        assert!(level.will_be_enough(class, 0.0) && level.is_leaving(class) && level.has_leaving());
        assert!(!level.will_be_enough(class, 0.5));
        level.end_leaving(class, 1, 1024);
        assert!(!level.is_leaving(class) && !level.has_leaving());
        level.settle_short(class);
        assert_eq!(level.short(), 0);
    }
}
