//! Map of the blocks: where each stands in its volume, and where its bytes lie in the cache.

use std::ops::Range;

use super::bits::RunBits;
use super::geometry::{Geometry, UNIT_BYTES};
use super::plan::Part;
use super::space::Space;
use super::table::{Block, Table};
use super::{Share, Shares, Volume};

/// The blocks of all volumes, and the groups that they lie in.
#[derive(Debug)]
pub struct Map {
    geometry: Geometry,
    table: Table,
    space: Space,
}

impl Map {
    pub(super) fn new(geometry: Geometry, shares: u16) -> Self {
        let (table, space) = (Table::new(&geometry), Space::new(&geometry, shares));
        Map { geometry, table, space }
    }

    /// How the cache is divided.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The share of each group, and the limits of the shares.
    pub fn shares(&self) -> &Shares {
        self.space.shares()
    }

    /// The shares, to change their limits.
    pub fn shares_mut(&mut self) -> &mut Shares {
        self.space.shares_mut()
    }

    /// Blocks of each size, ascending.
    pub fn blocks(&self) -> &[u64] {
        self.table.blocks()
    }

    /// Visits all blocks and their classes, in the order of the cache's space.
    pub fn visit_blocks(&self, mut each: impl FnMut(Volume, usize, Block)) {
        for slot in self.space.begins_from(0) {
            let (volume, _) = self.table.address(slot);
            each(volume, self.class_at(slot), self.block_at(slot));
        }
    }

    /// The block that has a unit of the cache, and its volume.
    pub fn block_of_unit(&self, unit: u64) -> Option<(Volume, Block)> {
        let slot = u32::try_from(unit / self.geometry.piece_units()).ok()?;
        let slot = self.space.block_of(&self.geometry, slot)?;
        Some((self.volume_at(slot), self.block_at(slot)))
    }

    /// The blocks of a volume that hold any of these pieces, in the order of addresses.
    pub(super) fn cover(&mut self, volume: Volume, pieces: Range<u64>, found: &mut Vec<Block>) {
        self.table.cover(&self.geometry, &self.space, volume, pieces, found);
    }

    /// The pieces that hold a range of bytes.
    pub(super) fn pieces_of(&self, range: &Range<u64>) -> Range<u64> {
        self.geometry.piece_of(range.start)..range.end.div_ceil(self.geometry.piece_bytes())
    }

    /// The slots at which blocks begin, from this one on, ascending.
    pub(super) fn begins_from(&self, slot: u32) -> impl Iterator<Item = u32> + '_ {
        self.space.begins_from(slot)
    }

    /// The slots of a group at which blocks begin.
    pub(super) fn begins_in(&self, group: u32) -> impl Iterator<Item = u32> + '_ {
        self.space.blocks_of(&self.geometry, group)
    }

    /// The block that begins at a slot.
    #[inline]
    pub(super) fn block_at(&self, slot: u32) -> Block {
        self.table.block(&self.geometry, &self.space, slot)
    }

    /// The volume of the block that begins at a slot.
    #[inline]
    pub(super) fn volume_at(&self, slot: u32) -> Volume {
        self.table.address(slot).0
    }

    /// The class of the blocks around a slot; the slot's group must belong to a share.
    #[inline]
    pub(super) fn class_at(&self, slot: u32) -> usize {
        self.space.class(self.geometry.group_of(slot))
    }

    /// The share that holds a slot.
    #[inline]
    pub(super) fn share_at(&self, slot: u32) -> Share {
        self.space.share(self.geometry.group_of(slot))
    }

    /// The groups, and the free slots in them.
    pub(super) fn space(&self) -> &Space {
        &self.space
    }

    /// Opens a group for a share's blocks of a class, `group` or any free one, which [`Space::can_open`] says there is. Returns
    /// its number.
    pub(super) fn open(&mut self, share: Share, class: usize, group: Option<u32>) -> u32 {
        match group {
            None => self.space.open_new(share, class),
            Some(group) => {
                self.space.open_at(share, class, group);
                group
            }
        }
    }

    /// Bytes of the cache that get no more blocks, because the device has failed somewhere in their groups.
    pub fn retired_bytes(&self) -> u64 {
        u64::from(self.space.retired_groups()) * self.geometry.group_bytes()
    }

    /// Nothing gets a place in the groups of these units any more.
    pub(super) fn retire(&mut self, units: &Range<u64>) {
        let slot_of = |unit: u64| (unit / self.geometry.piece_units()) as u32;
        let (first, last) = (slot_of(units.start), slot_of(units.end.max(units.start + 1) - 1));
        for group in self.geometry.group_of(first)..=self.geometry.group_of(last) {
            self.space.retire(&self.geometry, group);
        }
    }

    /// Takes a free place in an open group.
    pub(super) fn take(&mut self, group: u32) -> u32 {
        self.space.take(&self.geometry, group)
    }

    /// Takes this place, which is free and where a block of its group can begin.
    pub(super) fn take_at(&mut self, slot: u32) {
        self.space.take_at(&self.geometry, slot);
    }

    /// Enters a block at a place that was taken for it.
    pub(super) fn enter(&mut self, slot: u32, class: usize, volume: Volume, piece: u64) -> Block {
        self.table.insert(&self.geometry, class, volume, piece, slot);
        Block { piece, pieces: self.geometry.class_pieces(class), slot }
    }

    /// Takes a block out; its place stays taken.
    pub(super) fn remove(&mut self, slot: u32) {
        self.table.remove(&self.geometry, self.class_at(slot), slot);
    }

    /// Frees the place of a block that was taken out. Returns true when its group has no block left and belongs to no share now.
    pub(super) fn free(&mut self, slot: u32) -> bool {
        self.space.free(&self.geometry, slot)
    }

    /// The units of slots of the cache.
    #[inline]
    pub(super) fn units_in(&self, slots: Range<u32>) -> Range<u64> {
        let per_piece = self.geometry.piece_units();
        u64::from(slots.start) * per_piece..u64::from(slots.end) * per_piece
    }

    /// The units of a block in the cache.
    #[inline]
    pub(super) fn units_of(&self, block: &Block) -> Range<u64> {
        self.units_in(block.slot..block.slot + block.pieces as u32)
    }

    /// The units of a group.
    pub(super) fn units_of_group(&self, group: u32) -> Range<u64> {
        let first = self.geometry.first_slot(group);
        self.units_in(first..first + self.geometry.group_slots())
    }

    /// The bytes of its volume that a block holds.
    pub(super) fn bytes_of(&self, block: &Block) -> Range<u64> {
        block.piece * self.geometry.piece_bytes()..block.end() * self.geometry.piece_bytes()
    }

    /// The parts of a block within a range of its volume whose units are set in `bits`.
    pub(super) fn parts_of(
        &self,
        block: &Block,
        range: &Range<u64>,
        bits: &RunBits,
        mut each: impl FnMut(Part),
    ) {
        let start = block.piece * self.geometry.piece_bytes();
        let units = self.units_of(block);
        let first = units.start + (range.start.saturating_sub(start)) / UNIT_BYTES;
        let end = units.end.min(units.start + (range.end.saturating_sub(start)).div_ceil(UNIT_BYTES));
        for run in bits.runs(first..end.max(first), true) {
            let offset = start + (run.start - units.start) * UNIT_BYTES;
            each(Part { offset, at: run.start * UNIT_BYTES, bytes: (run.end - run.start) * UNIT_BYTES });
        }
    }

    /// Bytes held for the blocks that are there, and bytes held whatever is there.
    pub(super) fn metadata_bytes(&self) -> (u64, u64) {
        let (index, keys) = self.table.metadata_bytes();
        (index, keys + self.space.metadata_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn a_block_is_found_by_its_address_and_by_its_units_until_it_is_taken_out() {
        let geometry = Geometry::new(&[32 * KIB, 64 * KIB], None, 3 * 64 * KIB).unwrap();
        let mut map = Map::new(geometry, 1);
        let group = map.open(Share(0), 0, None);
        let slots = [map.take(group), map.take(group)];
        map.enter(slots[0], 0, Volume(2), 7);
        let block = map.enter(slots[1], 0, Volume(3), 9);
        assert_eq!((map.units_of(&block), map.bytes_of(&block)), (8..16, 9 * 32 * KIB..10 * 32 * KIB));
        assert_eq!((map.block_of_unit(15), map.block_of_unit(16)), (Some((Volume(3), block)), None));
        let mut found = Vec::new();
        let pieces = map.pieces_of(&(9 * 32 * KIB + 1..9 * 32 * KIB + 2));
        map.cover(Volume(3), pieces, &mut found);
        assert_eq!((found.as_slice(), map.blocks()), ([block].as_slice(), [2, 0].as_slice()));
        let mut bits = RunBits::new(48);
        bits.set(8..9);
        let mut parts = Vec::new();
        map.parts_of(&block, &(0..u64::MAX), &bits, |part| parts.push(part));
        assert_eq!(parts, [Part { offset: 9 * 32 * KIB, at: 32 * KIB, bytes: 4 * KIB }]);
        map.remove(slots[1]);
        assert!(!map.free(slots[1]), "the other is there");
        map.cover(Volume(3), 0..100, &mut found);
        assert_eq!((found.len(), map.block_of_unit(8)), (0, None));
        map.remove(slots[0]);
        assert!(map.free(slots[0]), "the group is nobody's");
        assert_eq!(map.shares().held_bytes(Share(0)), 0);
    }
}
