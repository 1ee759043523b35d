//! States of all units: three bits each, always in memory, even if the page with the checksum is not.

use std::ops::Range;

use super::page::PageShape;

/// Stands as the checksum of a unit that was recorded since its block was mapped, and is not valid.
const GONE: u32 = 1;

/// State of a unit in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitState {
    /// The cache does not have it.
    Invalid,
    /// The backing store has the same.
    Clean,
    /// Only the cache has it.
    Dirty,
    /// It is lost.
    Poisoned,
}

/// Bits of up to 64 units; dirty and not valid is lost.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    valid: u64,
    dirty: u64,
    /// There was a record of it since its block was mapped. Only an invalid unit can be without one.
    recorded: u64,
}

/// Transition of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// They were written, and are dirty or not.
    Written { dirty: bool },
    /// The backing store has the valid ones.
    Clean,
    /// They are not cached any more.
    Drop,
    /// They are lost.
    Poison,
    /// Another block has their place.
    Begin,
}

impl Word {
    fn change(&mut self, mask: u64, change: Change) {
        match change {
            Change::Written { dirty } => {
                self.valid |= mask;
                self.dirty = if dirty { self.dirty | mask } else { self.dirty & !mask };
                self.recorded |= mask;
            }
            Change::Clean => self.dirty &= !(mask & self.valid),
            Change::Drop => {
                self.valid &= !mask;
                self.dirty &= !mask;
            }
            Change::Poison => {
                self.valid &= !mask;
                self.dirty |= mask;
                self.recorded |= mask;
            }
            Change::Begin => {
                *self = Word {
                    valid: self.valid & !mask,
                    dirty: self.dirty & !mask,
                    recorded: self.recorded & !mask,
                }
            }
        }
    }
}

/// The states of all units, page by page.
#[derive(Debug)]
pub struct States {
    shape: PageShape,
    words: Vec<Word>,
}

impl States {
    /// All invalid and unrecorded.
    pub fn new(shape: PageShape, pages: u32) -> Self {
        States { shape, words: vec![Word::default(); pages as usize * shape.words()] }
    }

    #[inline]
    fn word(&self, page: u32, unit: u32) -> (Word, u64) {
        let at = page as usize * self.shape.words() + unit as usize / 64;
        (self.words[at], 1 << (unit % 64))
    }

    /// The state of a unit of a page.
    #[inline]
    pub fn get(&self, page: u32, unit: u32) -> UnitState {
        let (word, bit) = self.word(page, unit);
        match (word.valid & bit != 0, word.dirty & bit != 0) {
            (false, false) => UnitState::Invalid,
            (true, false) => UnitState::Clean,
            (true, true) => UnitState::Dirty,
            (false, true) => UnitState::Poisoned,
        }
    }

    /// Whether there was any record of it since its block was mapped.
    #[inline]
    pub fn is_recorded(&self, page: u32, unit: u32) -> bool {
        let (word, bit) = self.word(page, unit);
        word.recorded & bit != 0
    }

    /// Changes units of a page.
    #[inline]
    pub fn change(&mut self, page: u32, units: Range<u32>, change: Change) {
        let first = page as usize * self.shape.words();
        let upto = |bits: u32| if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        for word in units.start / 64..units.end.div_ceil(64) {
            let (from, to) = (units.start.saturating_sub(word * 64), units.end - word * 64);
            self.words[first + word as usize].change(upto(to) & !upto(from), change);
        }
    }

    /// Takes the states of a page's units from its image.
    pub fn load(&mut self, page: u32, image: &[u8]) {
        let first = page as usize * self.shape.words();
        for word in 0..self.shape.words() {
            let (valid, dirty) = self.shape.bits(image, word);
            let units = word as u32 * 64..self.shape.units.min(word as u32 * 64 + 64);
            let mut recorded = valid | dirty;
            for unit in units.filter(|unit| self.shape.sum(image, *unit) != 0) {
                recorded |= 1 << (unit % 64);
            }
            self.words[first + word] = Word { valid, dirty, recorded };
        }
    }

    /// Writes them into a page that has the checksums of its valid units: what it then says of the others is what their states say.
    pub fn store(&self, page: u32, image: &mut [u8]) {
        let first = page as usize * self.shape.words();
        for word in 0..self.shape.words() {
            let Word { valid, dirty, recorded } = self.words[first + word];
            self.shape.set_bits(image, word, (valid, dirty));
            for unit in word as u32 * 64..self.shape.units.min(word as u32 * 64 + 64) {
                let bit = 1 << (unit % 64);
                if valid & bit == 0 {
                    self.shape.set_sum(image, unit, if recorded & bit != 0 { GONE } else { 0 });
                }
            }
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.words.len() * size_of::<Word>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::page::PAGE_BYTES;
    use proptest::prelude::*;

    const CHANGES: [Change; 6] = [
        Change::Written { dirty: true },
        Change::Written { dirty: false },
        Change::Clean,
        Change::Drop,
        Change::Poison,
        Change::Begin,
    ];

    /// The same, one unit at a time.
    fn plain(state: (UnitState, bool), change: Change) -> (UnitState, bool) {
        match (change, state.0) {
            (Change::Written { dirty: true }, _) => (UnitState::Dirty, true),
            (Change::Written { dirty: false }, _) => (UnitState::Clean, true),
            (Change::Clean, UnitState::Dirty) => (UnitState::Clean, true),
            (Change::Clean, _) => state,
            (Change::Drop, _) => (UnitState::Invalid, state.1),
            (Change::Poison, _) => (UnitState::Poisoned, true),
            (Change::Begin, _) => (UnitState::Invalid, false),
        }
    }

    proptest! {
        #[test]
        fn runs_are_changed_as_their_units_are_and_images_keep_it(
            piece_units in prop::sample::select(vec![1u64, 8, 64, 512]),
            steps in prop::collection::vec((0u32..2, 0u32..1000, 0u32..300, prop::sample::select(&CHANGES[..])), 0..60),
        ) {
            let shape = PageShape::of(piece_units);
            let mut states = States::new(shape, 2);
            let mut model = vec![vec![(UnitState::Invalid, false); shape.units as usize]; 2];
            for (page, first, count, change) in steps {
                let first = first.min(shape.units);
                let units = first..(first + count).min(shape.units);
                states.change(page, units.clone(), change);
                for unit in units {
                    let unit = &mut model[page as usize][unit as usize];
                    *unit = plain(*unit, change);
                }
            }
            let mut again = States::new(shape, 2);
            for page in 0..2 {
                let mut image = vec![0; PAGE_BYTES];
                (0..shape.units).for_each(|unit| shape.set_sum(&mut image, unit, 77));
                states.store(page, &mut image);
                again.load(page, &image);
                for unit in 0..shape.units {
                    let expected = model[page as usize][unit as usize];
                    prop_assert_eq!((states.get(page, unit), states.is_recorded(page, unit)), expected);
                    prop_assert_eq!((again.get(page, unit), again.is_recorded(page, unit)), expected);
                }
            }
        }
    }
}
