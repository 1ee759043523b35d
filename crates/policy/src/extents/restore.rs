//! Restore after a restart: listing all that a cache holds, and making a cache that holds it.
//!
//! Blocks, their places and their units come back as they were. The order of eviction becomes the order in which they are
//! restored. The observations of block sizes, and what policies remember of evicted blocks, are lost.

use std::ops::Range;

use crate::evict::Evict;

use super::map::Map;
use super::table::Table;
use super::{Block, Extents, Volume};

/// A block that a cache cannot have, so that nothing of it was restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// There is no such block size.
    #[error("there is no block size {class}: the cache has {classes}")]
    Class {
        /// As asked.
        class: usize,
        /// How many there are.
        classes: usize,
    },
    /// No block of this size can begin there.
    #[error("no block of {pieces} pieces can begin at slot {slot}")]
    Place {
        /// As asked.
        slot: u32,
        /// The block's.
        pieces: u64,
    },
    /// The slot's group holds blocks of another size.
    #[error("slot {slot} lies in a group for blocks of {group_bytes} bytes")]
    Group {
        /// As asked.
        slot: u32,
        /// Size of the blocks in its group.
        group_bytes: u64,
    },
    /// The place is another block's.
    #[error("two blocks lie at slot {0}")]
    Taken(u32),
    /// No volume has an address like that.
    #[error("no block of {pieces} pieces can be for piece {piece} of volume {}", .volume.0)]
    Address {
        /// As asked.
        volume: Volume,
        /// As asked.
        piece: u64,
        /// The block's.
        pieces: u64,
    },
    /// Another block holds a part of the same range of the volume.
    #[error("the block at slot {other} holds a part of the same range as that at slot {slot}")]
    Overlap {
        /// As asked.
        slot: u32,
        /// The block that is there already.
        other: u32,
    },
    /// Units are named that are not the block's, or dirty ones that are not valid.
    #[error("units {}..{} cannot be those of the block at slot {slot}", .units.start, .units.end)]
    Units {
        /// As asked.
        slot: u32,
        /// The range of units of the cache that cannot be.
        units: Range<u64>,
    },
}

/// Whether all of `ranges` lie in `within`; else the first that does not.
fn all_within(ranges: &[Range<u64>], within: &Range<u64>) -> Result<(), Range<u64>> {
    let lies = |range: &Range<u64>| {
        within.start <= range.start && range.start <= range.end && range.end <= within.end
    };
    ranges.iter().find(|range| !lies(range)).map_or(Ok(()), |range| Err(range.clone()))
}

impl<O: Evict> Extents<O> {
    /// Puts a block back where it was: a block of a class (the number of its size) at a slot, for `piece` of a volume, with these
    /// `valid` and `dirty` units, both ranges of units of the cache. It counts as used now, so the blocks used longest ago come
    /// first. Shares are assigned before, and may be overdrawn: blocks stay where they were. No event is kept.
    ///
    /// Meant for a cache that is still empty but for what was restored; on an error the cache is as before.
    pub fn restore(
        &mut self,
        slot: u32,
        class: usize,
        volume: Volume,
        piece: u64,
        valid: &[Range<u64>],
        dirty: &[Range<u64>],
    ) -> Result<(), RestoreError> {
        self.map.check_place(slot, class)?;
        let pieces = self.geometry().class_pieces(class);
        let last = Table::PIECES_MAX - pieces;
        if volume.0 >= Volume::COUNT_MAX || !piece.is_multiple_of(pieces) || piece > last {
            return Err(RestoreError::Address { volume, piece, pieces });
        }
        let units = self.map.units_of(&Block { piece, pieces, slot });
        let misfit = |units| RestoreError::Units { slot, units };
        all_within(valid, &units).and_then(|()| all_within(dirty, &units)).map_err(misfit)?;
        self.map.cover(volume, piece..piece + pieces, &mut self.found);
        if let Some(other) = self.found.first() {
            return Err(RestoreError::Overlap { slot, other: other.slot });
        }
        // The units of a place without a block are all clear, so setting them can be taken back.
        valid.iter().for_each(|run| self.units.fill(run.clone()));
        if let Some(run) = dirty.iter().find(|run| !self.units.valid().all((*run).clone())) {
            self.units.drop_clean(units);
            return Err(misfit(run.clone()));
        }
        dirty.iter().for_each(|run| self.units.make_dirty(run.clone()));
        let is_dirty = self.units.dirty().any(units);
        let group = self.geometry().group_of(slot);
        if self.map.space().is_free(group) {
            let share = self.map.shares().of(volume);
            self.map.open(share, class, Some(group));
            self.eviction.group_comes(group, share);
        }
        self.map.take_at(slot);
        self.eviction.tick();
        self.enter(slot, class, volume, piece, is_dirty);
        Ok(())
    }
}

impl Map {
    /// Whether a block of a class can be put at a slot.
    fn check_place(&self, slot: u32, class: usize) -> Result<(), RestoreError> {
        let geometry = self.geometry();
        if class >= geometry.classes() {
            return Err(RestoreError::Class { class, classes: geometry.classes() });
        }
        let pieces = geometry.class_pieces(class);
        if slot >= geometry.slots() || !u64::from(slot).is_multiple_of(pieces) {
            return Err(RestoreError::Place { slot, pieces });
        }
        if self.space().is_free(geometry.group_of(slot)) {
            return Ok(());
        }
        let others = self.class_at(slot);
        if others != class {
            return Err(RestoreError::Group { slot, group_bytes: geometry.class_bytes(others) });
        }
        match self.space().block_of(geometry, slot) {
            Some(_) => Err(RestoreError::Taken(slot)),
            None => Ok(()),
        }
    }
}
