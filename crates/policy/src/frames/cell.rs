//! The cell of a frame: all that is kept of it, in four bytes.

use super::config::TIERS_MAX;
use crate::Id;
use crate::column::Column;
use crate::evict::list::Links;

/// A frame's number: dense, from 0. The driver gives it to a page of a program, of the pool, of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame(pub u32);

impl Frame {
    /// The number by which orders know it.
    #[inline]
    pub fn id(self) -> Id {
        Id(self.0)
    }
}

/// Bits 0 to 2: the tier plus one, 0 for nowhere. Bits 3 and 4: the tier of the clean copy, 0 for none (tier 0 has none).
/// Bits 5 to 11: flags. Bits 12 to 15: pins.
const TIER_MASK: u16 = 0b111;
const COPY_SHIFT: u16 = 3;
const COPY_MASK: u16 = 0b11 << COPY_SHIFT;
const PIN_SHIFT: u16 = 12;
const PIN_MASK: u16 = 0b1111 << PIN_SHIFT;

const _: () = assert!(TIERS_MAX <= TIER_MASK as usize, "a tier, or none, fits its bits");
const _: () = assert!(TIERS_MAX <= (COPY_MASK >> COPY_SHIFT) as usize + 1, "a copy's tier fits its bits");

/// Written since it came, or since it was last written back. Such a frame has no copy.
pub(super) const DIRTY: u16 = 1 << 5;
/// Known to hold zeros alone.
pub(super) const ZERO: u16 = 1 << 6;
/// A move of it is under way, to or from where it lies.
pub(super) const MOVING: u16 = 1 << 7;
/// The frame is being written back, and stays where it is meanwhile.
pub(super) const WRITING: u16 = 1 << 8;
/// The frame was fetched ahead and not used yet.
pub(super) const PREFETCHED: u16 = 1 << 9;
/// A fault asked for it, and the order knows that.
pub(super) const ASKED: u16 = 1 << 10;
/// The frame was used since it came to a tier in place below the first.
pub(super) const SEEN: u16 = 1 << 11;

/// Pins that a frame can have at once.
pub const PINS_MAX: u16 = PIN_MASK >> PIN_SHIFT;

/// The state of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    pub owner: u16,
    bits: u16,
}

/// A frame costs its cell, its links in a list of copies, and a bit for references.
pub const FRAME_BYTES_MAX: usize = 16;
const _: () = assert!(size_of::<Cell>() + size_of::<Links>() < FRAME_BYTES_MAX, "a frame's state is small");

impl Cell {
    /// A frame that lies nowhere, with nothing known but its owner.
    pub fn of(owner: u16) -> Self {
        Cell { owner, bits: 0 }
    }

    #[inline]
    pub fn tier(self) -> Option<u8> {
        (self.bits & TIER_MASK).checked_sub(1).map(|tier| tier as u8)
    }

    pub fn set_tier(&mut self, tier: Option<u8>) {
        self.bits = self.bits & !TIER_MASK | tier.map_or(0, |tier| u16::from(tier) + 1);
    }

    #[inline]
    pub fn copy(self) -> Option<u8> {
        let copy = (self.bits & COPY_MASK) >> COPY_SHIFT;
        (copy > 0).then_some(copy as u8)
    }

    pub fn set_copy(&mut self, tier: Option<u8>) {
        debug_assert!(tier != Some(0), "a copy lies below");
        self.bits = self.bits & !COPY_MASK | tier.map_or(0, u16::from) << COPY_SHIFT;
    }

    #[inline]
    pub fn is(self, flag: u16) -> bool {
        self.bits & flag != 0
    }

    #[inline]
    pub fn set(&mut self, flags: u16, value: bool) {
        self.bits = if value { self.bits | flags } else { self.bits & !flags };
    }

    #[inline]
    pub fn pins(self) -> u16 {
        (self.bits & PIN_MASK) >> PIN_SHIFT
    }

    pub fn set_pins(&mut self, pins: u16) {
        debug_assert!(pins <= PINS_MAX, "pins fit their bits");
        self.bits = self.bits & !PIN_MASK | pins << PIN_SHIFT;
    }
}

/// The frames.
#[derive(Clone, Debug, Default)]
pub(super) struct Cells {
    cells: Column<Cell>,
    frames: u32,
}

impl Cells {
    pub fn grow_to(&mut self, frames: u32) {
        if frames > self.frames {
            self.frames = frames;
            self.cells.grow_to(Id(frames - 1));
        }
    }

    pub fn len(&self) -> u32 {
        self.frames
    }

    #[inline]
    pub fn get(&self, frame: Frame) -> Cell {
        debug_assert!(frame.0 < self.frames, "frames are made before they are used");
        self.cells.get(frame.id())
    }

    #[inline]
    pub fn at(&mut self, frame: Frame) -> &mut Cell {
        debug_assert!(frame.0 < self.frames, "frames are made before they are used");
        self.cells.at(frame.id())
    }

    pub fn bytes(&self) -> u64 {
        self.cells.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_cell_do_not_touch_each_other() {
        let flags = [DIRTY, ZERO, MOVING, WRITING, PREFETCHED, ASKED, SEEN];
        for tier in [None, Some(0), Some(3)] {
            for copy in [None, Some(1), Some(3)] {
                for pins in [0, 1, PINS_MAX] {
                    for flag in flags {
                        let mut cell = Cell::of(0xABCD);
                        cell.set_pins(pins);
                        cell.set(flag, true);
                        cell.set_copy(copy);
                        cell.set_tier(tier);
                        assert_eq!(
                            (cell.tier(), cell.copy(), cell.pins(), cell.owner),
                            (tier, copy, pins, 0xABCD)
                        );
                        assert!(flags.iter().all(|&other| cell.is(other) == (other == flag)));
                        cell.set(flag, false);
                        cell.set_copy(None);
                        cell.set_tier(None);
                        cell.set_pins(0);
                        assert_eq!(cell, Cell::of(0xABCD));
                    }
                }
            }
        }
    }
}
