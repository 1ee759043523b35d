//! Space of the tiers: frames taken, filled by copies and on their way out, and when free frames are too few.

use super::config::{Config, TIERS_MAX, TierConfig};

#[derive(Clone, Copy, Debug, Default)]
struct Level {
    capacity: u32,
    low: u32,
    high: u32,
    /// Taken by frames that lie here and by both ends of moves.
    used: u32,
    /// Filled by clean copies: room that is given up when it is needed.
    copies: u32,
    /// The part of `used` that moves under way will give back.
    leaving: u32,
    /// Free frames fell below `low` and have not come up to `high` since.
    refilling: bool,
}

impl Level {
    /// Frames that will be taken once all moves have ended.
    fn staying(&self) -> u64 {
        u64::from(self.used - self.leaving)
    }

    fn has_free(&self, frames: u32) -> bool {
        self.staying() + u64::from(frames) <= u64::from(self.capacity)
    }
}

/// The tiers.
#[derive(Clone, Debug)]
pub struct Space {
    levels: [Level; TIERS_MAX],
    tiers: u8,
}

impl Space {
    pub(super) fn new(config: &Config) -> Self {
        let mut levels = [Level::default(); TIERS_MAX];
        for (level, TierConfig { frames, low, high, .. }) in levels.iter_mut().zip(&config.tiers) {
            *level = Level { capacity: *frames, low: *low, high: *high, ..Level::default() };
        }
        Space { levels, tiers: config.tiers.len() as u8 }
    }

    /// How many tiers there are.
    pub fn tiers(&self) -> u8 {
        self.tiers
    }

    /// Frames that a tier can hold.
    pub fn capacity(&self, tier: u8) -> u32 {
        self.at(tier).capacity
    }

    /// Frames taken in a tier, both ends of moves among them; clean copies are not.
    pub fn used(&self, tier: u8) -> u32 {
        self.at(tier).used
    }

    /// Clean copies in a tier.
    pub fn copies(&self, tier: u8) -> u32 {
        self.at(tier).copies
    }

    /// Frames that moves under way will give back.
    pub fn leaving(&self, tier: u8) -> u32 {
        self.at(tier).leaving
    }

    /// Frames that can be taken, if need be in the place of copies.
    pub fn free(&self, tier: u8) -> u32 {
        let level = self.at(tier);
        level.capacity.saturating_sub(level.used)
    }

    /// Free frames, from low to high, that a step keeps.
    pub fn watermarks(&self, tier: u8) -> (u32, u32) {
        (self.at(tier).low, self.at(tier).high)
    }

    /// Whether more than the low watermark is free.
    pub(super) fn is_above_low(&self, tier: u8) -> bool {
        self.free(tier) > self.at(tier).low
    }

    /// Whether a tier has watermarks.
    pub(super) fn is_watched(&self, tier: u8) -> bool {
        self.at(tier).low > 0
    }

    /// Whether the next frame taken must take the place of a copy.
    pub(super) fn is_full_of_copies(&self, tier: u8) -> bool {
        let level = self.at(tier);
        level.copies > 0 && u64::from(level.used) + u64::from(level.copies) >= u64::from(level.capacity)
    }

    pub(super) fn set_capacity(&mut self, tier: u8, frames: u32) {
        self.level(tier).capacity = frames;
    }

    pub(super) fn set_watermarks(&mut self, tier: u8, low: u32, high: u32) {
        (self.level(tier).low, self.level(tier).high) = (low, high.max(low));
    }

    pub(super) fn take(&mut self, tier: u8) {
        self.overfill(tier);
        let level = self.at(tier);
        assert!(level.used <= level.capacity, "tier {tier} gives no more than it has");
    }

    /// Takes a frame whether there is one or not: somebody else has filled it already.
    pub(super) fn overfill(&mut self, tier: u8) {
        self.level(tier).used += 1;
    }

    pub(super) fn release(&mut self, tier: u8) {
        let level = self.level(tier);
        assert!(level.used > level.leaving, "tier {tier} takes back what it gave");
        level.used -= 1;
    }

    pub(super) fn copy_kept(&mut self, tier: u8) {
        let level = self.level(tier);
        level.copies += 1;
        debug_assert!(u64::from(level.used) + u64::from(level.copies) <= u64::from(level.capacity));
    }

    pub(super) fn copy_gone(&mut self, tier: u8) {
        let level = self.level(tier);
        assert!(level.copies > 0, "tier {tier} holds the copy");
        level.copies -= 1;
    }

    /// A frame begins to leave.
    pub(super) fn leaves(&mut self, tier: u8) {
        let level = self.level(tier);
        level.leaving += 1;
        assert!(level.leaving <= level.used, "what leaves tier {tier} is there");
    }

    /// A frame on its way out has left, or stays.
    pub(super) fn left(&mut self, tier: u8) {
        let level = self.level(tier);
        assert!(level.leaving > 0, "what has left tier {tier} was leaving it");
        level.leaving -= 1;
    }

    /// Whether frames should be demoted: fewer than the low watermark are or will be free, and until the high one is met.
    pub(super) fn wants_room(&mut self, tier: u8) -> bool {
        let level = self.level(tier);
        level.refilling =
            if level.refilling { !level.has_free(level.high) } else { !level.has_free(level.low) };
        level.refilling
    }

    /// Frames should be demoted until the high watermark is met, though no fewer than the low one are free.
    pub(super) fn begin_to_refill(&mut self, tier: u8) {
        self.level(tier).refilling = true;
    }

    /// Like [`Self::wants_room`], without changing its state.
    pub(super) fn would_want_room(&self, tier: u8) -> bool {
        let level = self.at(tier);
        !level.has_free(if level.refilling { level.high } else { level.low })
    }

    fn at(&self, tier: u8) -> &Level {
        &self.levels[usize::from(tier)]
    }

    fn level(&mut self, tier: u8) -> &mut Level {
        &mut self.levels[usize::from(tier)]
    }
}
