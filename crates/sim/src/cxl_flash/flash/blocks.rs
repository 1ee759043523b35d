//! Blocks of every plane: which are free, which are being filled, how much of each is valid, how worn it is.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::geometry::Geometry;

/// No page, no place.
pub const NONE: u32 = u32::MAX;

/// The use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Erased.
    Free,
    /// Being filled.
    Open,
    /// Filled.
    Closed,
    /// Filled before the first request: the pages of its data follow from its place.
    Initial,
    /// Being emptied, to be erased.
    Emptying,
}

/// A block.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its use.
    pub state: State,
    /// Units that hold current data.
    pub valid: u32,
    /// Units programmed since it was erased, those left out included.
    pub written: u32,
    /// Times that it was erased.
    pub erases: u32,
    /// Units written to the device when it was filled: its age.
    pub closed_at: u64,
    /// The page whose data each unit holds, by its number in the table of pages; none while it has no data of requests.
    owners: Option<Box<[u32]>>,
}

/// The writer that a block is filled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// Requests.
    Host,
    /// Cleaning.
    Cleaning,
}

#[derive(Clone, Debug)]
struct Plane {
    /// Free blocks, the least worn first, by number within the device.
    free: BinaryHeap<Reverse<(u32, u32)>>,
    open: [u32; 2],
}

/// Free blocks that only cleaning may take: it fills one before it frees one.
const RESERVED: usize = 1;

/// The blocks of the device.
#[derive(Clone, Debug)]
pub struct Blocks {
    geometry: Geometry,
    blocks: Vec<Block>,
    planes: Vec<Plane>,
    /// Free blocks in the order of wear, not of their numbers.
    by_wear: bool,
    /// Units written so far.
    clock: u64,
}

impl Blocks {
    /// A device of which the first `filled_units` of the capacity hold data, spread over the planes in turn.
    pub fn new(geometry: Geometry, filled_units: u64, by_wear: bool) -> Self {
        let empty = Block { state: State::Free, valid: 0, written: 0, erases: 0, closed_at: 0, owners: None };
        let count = geometry.plane_count() as usize * geometry.blocks_per_plane as usize;
        let mut blocks = vec![empty; count];
        let mut planes = Vec::with_capacity(geometry.plane_count() as usize);
        let plane_count = u64::from(geometry.plane_count());
        for plane in 0..geometry.plane_count() {
            let turn = geometry.turn_of(geometry.plane_at(plane));
            let mut left = (filled_units / plane_count) + u64::from(turn < filled_units % plane_count);
            let first = plane * geometry.blocks_per_plane;
            let mut free = Vec::new();
            for number in first..first + geometry.blocks_per_plane {
                let here = left.min(u64::from(geometry.units_per_block()));
                left -= here;
                if here > 0 {
                    let block = &mut blocks[number as usize];
                    (block.state, block.valid, block.written) = (State::Initial, here as u32, here as u32);
                } else {
                    free.push(Reverse((0, number)));
                }
            }
            planes.push(Plane { free: free.into(), open: [NONE; 2] });
        }
        Blocks { geometry, blocks, planes, by_wear, clock: 0 }
    }

    /// The block that holds a unit.
    pub fn block_of(&self, unit: u32) -> u32 {
        unit / self.geometry.units_per_block()
    }

    /// The plane that holds a block.
    pub fn plane_of(&self, block: u32) -> u32 {
        block / self.geometry.blocks_per_plane
    }

    /// A block.
    pub fn at(&self, block: u32) -> &Block {
        &self.blocks[block as usize]
    }

    /// Blocks of a plane, by their numbers.
    pub fn of_plane(&self, plane: u32) -> impl Iterator<Item = (u32, &Block)> {
        let first = plane * self.geometry.blocks_per_plane;
        let blocks = &self.blocks[first as usize..(first + self.geometry.blocks_per_plane) as usize];
        (first..).zip(blocks)
    }

    /// Free blocks of a plane.
    pub fn free_of(&self, plane: u32) -> usize {
        self.planes[plane as usize].free.len()
    }

    /// Whether the plane is so short of free blocks that cleaning must not wait.
    pub fn is_urgent(&self, plane: u32) -> bool {
        self.free_of(plane) <= RESERVED
    }

    /// Units written so far.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// The page that owns a unit by having written it; `None` in a block that was filled beforehand.
    pub fn owner(&self, unit: u32) -> Option<u32> {
        let owners = self.at(self.block_of(unit)).owners.as_ref()?;
        Some(owners[(unit % self.geometry.units_per_block()) as usize])
    }

    /// Where `writer` would put the next page of this plane: whether there is room.
    pub fn has_room(&self, plane: u32, writer: Writer) -> bool {
        let plane = &self.planes[plane as usize];
        plane.open[writer as usize] != NONE || plane.free.len() > self.kept_from(writer)
    }

    fn kept_from(&self, writer: Writer) -> usize {
        if writer == Writer::Host { RESERVED } else { 0 }
    }

    /// Takes the next `owners.len()` units of one page for `writer`: the first of them, and whether a block was opened. There
    /// must be room. What is left of the page after cleaning stays empty.
    pub fn take(&mut self, plane: u32, writer: Writer, owners: &[u32]) -> Option<(u32, bool)> {
        let kept = self.kept_from(writer);
        let per_block = self.geometry.units_per_block();
        let place = &mut self.planes[plane as usize];
        let mut opened = false;
        if place.open[writer as usize] == NONE {
            if place.free.len() <= kept {
                return None;
            }
            let Reverse((_, number)) = place.free.pop()?;
            place.open[writer as usize] = number;
            self.blocks[number as usize].state = State::Open;
            opened = true;
        }
        let number = place.open[writer as usize];
        let block = &mut self.blocks[number as usize];
        let first = block.written;
        let list = block.owners.get_or_insert_with(|| vec![NONE; per_block as usize].into_boxed_slice());
        list[first as usize..first as usize + owners.len()].copy_from_slice(owners);
        block.written += owners.len() as u32;
        if writer == Writer::Cleaning {
            block.written = block.written.next_multiple_of(self.geometry.units_per_page);
        }
        block.valid += owners.len() as u32;
        self.clock += owners.len() as u64;
        if block.written >= per_block {
            block.state = State::Closed;
            block.closed_at = self.clock;
            place.open[writer as usize] = NONE;
        }
        Some((number * per_block + first, opened))
    }

    /// The data of a unit are no longer current.
    pub fn invalidate(&mut self, unit: u32) {
        let block = self.block_of(unit);
        let block = &mut self.blocks[block as usize];
        debug_assert!(block.valid > 0, "a unit is invalidated twice");
        block.valid = block.valid.saturating_sub(1);
    }

    /// The block is going to be emptied.
    pub fn begin_emptying(&mut self, block: u32) {
        self.blocks[block as usize].state = State::Emptying;
    }

    /// The block has been erased.
    pub fn erased(&mut self, number: u32) {
        let plane = self.plane_of(number);
        let block = &mut self.blocks[number as usize];
        debug_assert_eq!(block.valid, 0, "a block with data is erased");
        block.state = State::Free;
        (block.valid, block.written, block.owners) = (0, 0, None);
        block.erases += 1;
        let order = if self.by_wear { block.erases } else { 0 };
        self.planes[plane as usize].free.push(Reverse((order, number)));
    }

    /// Bytes of state held.
    pub fn metadata_bytes(&self) -> u64 {
        let owned = self.blocks.iter().filter(|block| block.owners.is_some()).count() as u64;
        let owners = owned * u64::from(self.geometry.units_per_block()) * 4;
        let free: usize = self.planes.iter().map(|plane| plane.free.len() * 8).sum();
        owners + free as u64 + (self.blocks.capacity() * size_of::<Block>()) as u64
    }
}
