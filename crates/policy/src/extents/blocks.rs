//! Allocation and removal of blocks: a block gets a place, the victims leave theirs, and both are told to the driver as changes.

use std::cell::Cell;
use std::ops::Range;

use crate::evict::{Departure, Evict};

use super::geometry::UNIT_BYTES;
use super::plan::Part;
use super::table::Block;
use super::{Event, Extents, Share, Volume};

/// Blocks and groups that are looked at, one after the other, for one that is clean.
const CLEAN_LOOKS: u32 = 256;

/// No room could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// The blocks of this group, or this one of them, must be written back first.
    Dirty { group: u32, slot: Option<u32> },
    /// Everything that could go is in use by plans in flight, or lost.
    Busy,
}

impl<O: Evict> Extents<O> {
    /// Places a block of a class at a piece of a volume, and makes room for it if need be (Yang 2024, sections 2.2.3, 2.2.4).
    /// Dirty blocks are passed over where the plan spares them.
    pub(super) fn allocate(
        &mut self,
        volume: Volume,
        piece: u64,
        class: usize,
        write: bool,
        spares_dirty: bool,
    ) -> Result<Block, NoRoom> {
        let share = self.map.shares().of(volume);
        let slot = match self.map.space().open_group(share, class) {
            Some(group) => self.map.take(group),
            None if self.map.space().can_open(share) => self.open(share, class),
            None => match self.replace(share, class, spares_dirty) {
                // No request can use lost blocks, so they come to stand where the order looks first, and it gives up after some of them.
                Err(NoRoom::Busy) if self.units.has_lost(0..u64::MAX) => {
                    self.pass_over_lost();
                    self.replace(share, class, spares_dirty)?
                }
                place => place?,
            },
        };
        self.changes.note(Event::Mapped { slot, class, volume, piece });
        Ok(self.enter(slot, class, volume, piece, write))
    }

    /// Enters a block, whose place is taken, into the map and the order of eviction.
    pub(super) fn enter(
        &mut self,
        slot: u32,
        class: usize,
        volume: Volume,
        piece: u64,
        write: bool,
    ) -> Block {
        let block = self.map.enter(slot, class, volume, piece);
        // Not that of the volume where it was given another since the group was opened.
        self.eviction.block_comes(slot, self.map.share_at(slot), piece, block.pieces, write);
        block
    }

    /// The first place of a group that was free.
    fn open(&mut self, share: Share, class: usize) -> u32 {
        let group = self.map.open(share, class, None);
        self.eviction.group_comes(group, share);
        self.map.take(group)
    }

    /// A place for a block of a class where none is free: the place of the next victim among blocks if it has that size, or all
    /// of the next victim among groups.
    fn replace(&mut self, share: Share, class: usize, spares_dirty: bool) -> Result<u32, NoRoom> {
        let loser = self.map.shares().loser(share);
        let Extents { map, units, eviction, .. } = self;
        // A plan that spares dirty blocks looks at some blocks, not at all there are.
        let looks = Cell::new(CLEAN_LOOKS);
        let is_spared = |of: Range<u64>| {
            let looks_left = looks.get();
            looks.set(looks_left.saturating_sub(1));
            looks_left > 0 && units.dirty().any(of)
        };
        // A lost unit would be read from the store, which has older content; and it cannot be written back.
        let may_go = |of: Range<u64>| !(units.has_lost(of.clone()) || spares_dirty && is_spared(of));
        if loser == share {
            let is_reused = |slot| !map.space().is_retired(map.geometry().group_of(slot));
            let next = eviction
                .next_block(share, |slot| is_reused(slot) && may_go(map.units_of(&map.block_at(slot))));
            if let Some(slot) = next.filter(|slot| map.class_at(*slot) == class) {
                if units.dirty().any(map.units_of(&map.block_at(slot))) {
                    let group = map.geometry().group_of(slot);
                    return Err(NoRoom::Dirty { group, slot: Some(slot) });
                }
                self.forget(slot, Departure::Evicted);
                return Ok(slot);
            }
        }
        let is_reused = |group| !map.space().is_retired(group);
        let next = eviction.next_group(loser, |group| is_reused(group) && may_go(map.units_of_group(group)));
        // Where no block is clean a dirty one is evicted.
        let is_whole = |group| is_reused(group) && !units.has_lost(map.units_of_group(group));
        let group = next.or_else(|| eviction.next_group(loser, is_whole)).ok_or(NoRoom::Busy)?;
        if units.dirty().any(map.units_of_group(group)) {
            return Err(NoRoom::Dirty { group, slot: None });
        }
        while let Some(slot) = self.first_of(group) {
            self.drop_block(slot, Departure::Evicted);
        }
        Ok(self.open(share, class))
    }

    /// The first block of a group.
    fn first_of(&self, group: u32) -> Option<u32> {
        self.map.begins_in(group).next()
    }

    /// Drops a block that lies where nothing is to lie any more, unless the store lacks something of it or a plan speaks of it.
    pub(super) fn leave_retired(&mut self, slot: u32) {
        let space = self.map.space();
        if space.retired_groups() == 0 || !space.is_retired(self.geometry().group_of(slot)) {
            return;
        }
        let is_there = space.block_of(self.geometry(), slot) == Some(slot);
        if is_there
            && !self.eviction.is_held(slot)
            && !self.units.dirty().any(self.map.units_of(&self.map.block_at(slot)))
        {
            self.drop_block(slot, Departure::Evicted);
        }
    }

    /// Drops a block and frees its place.
    fn drop_block(&mut self, slot: u32, why: Departure) {
        self.forget(slot, why);
        let (group, share) = (self.geometry().group_of(slot), self.map.share_at(slot));
        if self.map.free(slot) {
            self.eviction.group_goes(group, share, why);
        }
    }

    /// Takes a block out of the map; its place stays taken.
    fn forget(&mut self, slot: u32, why: Departure) {
        let block = self.map.block_at(slot);
        let (class, volume) = (self.map.class_at(slot), self.map.volume_at(slot));
        self.units.forget(self.map.units_of(&block));
        self.map.remove(slot);
        self.changes.note(Event::Unmapped { slot, class, volume, piece: block.piece });
        self.eviction.block_goes(slot, self.map.share_at(slot), why);
    }

    /// Marks the blocks of these parts, which a verdict named, as used just now: they cannot be evicted in the foreseeable
    /// future, and the blocks after them may be.
    pub fn pass_over(&mut self, parts: &[Part]) {
        for part in parts {
            if let Some((_, block)) = self.map.block_of_unit(part.at / UNIT_BYTES) {
                self.eviction.used(block.slot, self.map.share_at(block.slot), false);
            }
        }
    }

    /// Marks all blocks that have lost units as used, so that the order passes them over.
    fn pass_over_lost(&mut self) {
        let Extents { map, units, eviction, .. } = self;
        for (_, block) in units.lost().filter_map(|unit| map.block_of_unit(unit)) {
            eviction.used(block.slot, map.share_at(block.slot), false);
        }
    }

    /// Forgets all whole units of a range, whatever their state, unless they are lost; blocks of which nothing is left go.
    pub fn discard(&mut self, volume: Volume, range: Range<u64>) {
        let whole = range.start.next_multiple_of(UNIT_BYTES)..range.end / UNIT_BYTES * UNIT_BYTES;
        if whole.start >= whole.end {
            return;
        }
        self.map.cover(volume, self.map.pieces_of(&whole), &mut self.found);
        for at in 0..self.found.len() {
            let block = self.found[at];
            let mut parts = Vec::new();
            self.map.parts_of(&block, &whole, self.units.valid(), |part| parts.push(part));
            self.units.invalidate(&self.units.without_lost(&parts));
            let is_left = self.units.valid().any(self.map.units_of(&block));
            if !is_left && !self.eviction.is_held(block.slot) {
                self.drop_block(block.slot, Departure::Deleted);
            }
        }
    }

    /// Forgets clean blocks of a volume: looks at up to `blocks_max` blocks of any volume from slot `from` on, and drops those of
    /// this volume that have nothing dirty and that no plan in flight holds. Adds the bytes that they held to `bytes`. Returns
    /// the slot to go on from; `None` at the end.
    pub fn forget_clean(
        &mut self,
        volume: Volume,
        from: u32,
        blocks_max: usize,
        bytes: &mut u64,
    ) -> Option<u32> {
        let mut slots: Vec<u32> = self.map.begins_from(from).take(blocks_max.saturating_add(1)).collect();
        let next = if slots.len() > blocks_max { slots.pop() } else { None };
        for slot in slots {
            let units = self.map.units_of(&self.map.block_at(slot));
            let may_go = !self.eviction.is_held(slot) && !self.units.dirty().any(units.clone());
            if self.map.volume_at(slot) == volume && may_go {
                *bytes += self.units.valid().count(units) * UNIT_BYTES;
                self.drop_block(slot, Departure::Deleted);
            }
        }
        next
    }

    /// Visits the cached parts of a volume's range, in the order of addresses, with whether each is dirty.
    pub fn visit(&mut self, volume: Volume, range: Range<u64>, mut each: impl FnMut(Part, bool)) {
        self.map.cover(volume, self.map.pieces_of(&range), &mut self.found);
        let dirty = self.units.dirty();
        for block in &self.found {
            self.map.parts_of(block, &range, self.units.valid(), |part| {
                let mut left = part;
                while left.bytes > 0 {
                    let first = left.at / UNIT_BYTES;
                    let units = first..first + left.bytes / UNIT_BYTES;
                    let is_dirty = dirty.get(first);
                    let end = dirty.runs(units.clone(), !is_dirty).next().map_or(units.end, |run| run.start);
                    let bytes = (end - first) * UNIT_BYTES;
                    each(Part { bytes, ..left }, is_dirty);
                    left =
                        Part { offset: left.offset + bytes, at: left.at + bytes, bytes: left.bytes - bytes };
                }
            });
        }
    }

    /// Visits all that is dirty, in the order of the cache's space.
    pub fn visit_dirty(&self, mut each: impl FnMut(Volume, Part)) {
        self.map.visit_blocks(|volume, _, block| {
            let range = self.map.bytes_of(&block);
            self.map.parts_of(&block, &range, self.units.dirty(), |part| each(volume, part));
        });
    }

    /// Names the dirty parts of the block that begins at a slot, and its volume for each of them.
    pub(super) fn name_dirty(&self, slot: u32, parts: &mut Vec<Part>, volumes: &mut Vec<Volume>) {
        let (block, volume) = (self.map.block_at(slot), self.map.volume_at(slot));
        self.map.parts_of(&block, &self.map.bytes_of(&block), self.units.dirty(), |part| {
            parts.push(part);
            volumes.push(volume);
        });
    }

    /// Names the dirty parts, and the volume of each, of the next victims of a share among groups and blocks, coldest first,
    /// until they and the free space make up `bytes` of the cache. A cleaner that writes them back keeps places clean ahead of
    /// need. Parts may be named twice; none are named where the order of eviction has no cold end ([`Evict::coldest`]).
    pub fn name_cold(
        &self,
        share: Share,
        reserve_bytes: u64,
        parts: &mut Vec<Part>,
        volumes: &mut Vec<Volume>,
    ) {
        let geometry = self.geometry();
        let groups = reserve_bytes.div_ceil(geometry.group_bytes()).min(geometry.groups().into());
        let groups = groups.saturating_sub(self.map.space().openable(share).into()) as usize;
        self.eviction.coldest_groups(share, groups, |group| {
            for slot in self.map.begins_in(group) {
                self.name_dirty(slot, parts, volumes);
            }
        });
        let slots = groups * geometry.group_slots() as usize;
        let mut left = slots as u64;
        self.eviction.coldest_blocks(share, slots, |slot| {
            // As many blocks as fill the same bytes.
            if left > 0 {
                self.name_dirty(slot, parts, volumes);
                left = left.saturating_sub(self.map.block_at(slot).pieces);
            }
        });
    }
}

/// Forgets what is cached of a volume, lost or dirty as it may be, or only what is clean. Returns the parts that are gone of blocks that
/// stay. For a start, before the volume is in use: no plan may hold its blocks.
pub fn forget_volume<O: Evict>(extents: &mut Extents<O>, volume: Volume, keeps_dirty: bool) -> Vec<Part> {
    let mut parts = Vec::new();
    let slots: Vec<u32> =
        extents.map.begins_from(0).filter(|slot| extents.map.volume_at(*slot) == volume).collect();
    for slot in slots {
        let Extents { map, units, .. } = &mut *extents;
        let block = map.block_at(slot);
        if !keeps_dirty || !units.dirty().any(map.units_of(&block)) {
            extents.drop_block(slot, Departure::Deleted);
            continue;
        }
        let (first, mut valid) = (parts.len(), Vec::new());
        map.parts_of(&block, &map.bytes_of(&block), units.valid(), |part| valid.push(part));
        parts.extend(units.those_dirty(&valid, false));
        units.invalidate(&parts[first..]);
    }
    parts
}
