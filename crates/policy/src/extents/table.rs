//! Block table: the index that finds the block at an address, with one look-up for each frame.
//!
//! All blocks of a frame have hashes that differ only in their last known bits, and those bits are where in the frame the block
//! begins. The index is sorted by hash, so one run of its entries is the frame in the order of addresses. Since blocks do not
//! overlap, only the last one that begins at or before an address can hold it. So a look-up costs one probe for a whole frame,
//! where a table for each block size (Yang 2024, Algorithm 1) is probed once for each piece and size.

use std::ops::Range;

use crate::Id;
use crate::index::Index;

use super::Volume;
use super::geometry::Geometry;
use super::space::Space;

/// Leading bits of a hash that the index tells apart.
const INDEX_BITS: u32 = 40;
/// Bits of a piece's number that are kept.
const PIECE_BITS: u32 = 36;
/// A block, and where it stands in its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its first piece in the volume.
    pub piece: u64,
    /// Its pieces.
    pub pieces: u64,
    /// Its first slot in the cache, which is its number.
    pub slot: u32,
}

impl Block {
    /// The piece behind its last.
    #[inline]
    pub fn end(&self) -> u64 {
        self.piece + self.pieces
    }
}

/// The blocks of all volumes.
#[derive(Clone, Debug)]
pub struct Table {
    index: Index,
    /// Volume and address of the block at each slot: six bytes, low part and high part.
    key_low: Vec<u32>,
    key_high: Vec<u16>,
    /// How many blocks there are of each class.
    blocks: Vec<u64>,
    /// Entries of one frame while it is looked at: where in it, and the slot.
    run: Vec<(u32, u32)>,
}

fn key(volume: Volume, piece: u64) -> u64 {
    u64::from(volume.0) << PIECE_BITS | piece
}

/// Mixes a frame's name (the finaliser of MurmurHash3, by A. Appleby).
fn mix(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

impl Table {
    /// Volumes that can be told apart.
    pub const VOLUMES_MAX: u16 = 1 << (48 - PIECE_BITS);
    /// Pieces of a volume that can be told apart.
    pub const PIECES_MAX: u64 = 1 << PIECE_BITS;

    /// No block yet.
    pub fn new(geometry: &Geometry) -> Self {
        let slots = geometry.slots() as usize;
        Table {
            index: Index::default(),
            key_low: vec![0; slots],
            key_high: vec![0; slots],
            blocks: vec![0; geometry.classes()],
            run: Vec::new(),
        }
    }

    /// The hash of the block that begins at a piece.
    #[inline]
    fn hash(geometry: &Geometry, key: u64) -> u64 {
        let shift = geometry.frame_shift();
        let frame = mix(key >> shift) >> (64 - INDEX_BITS) >> shift << shift;
        (frame | (key & ((1 << shift) - 1))) << (64 - INDEX_BITS)
    }

    #[inline]
    fn key_of(&self, slot: u32) -> u64 {
        u64::from(self.key_high[slot as usize]) << 32 | u64::from(self.key_low[slot as usize])
    }

    /// The volume of the block that begins at this slot, and its piece.
    #[inline]
    pub fn address(&self, slot: u32) -> (Volume, u64) {
        let key = self.key_of(slot);
        (Volume((key >> PIECE_BITS) as u16), key & (Self::PIECES_MAX - 1))
    }

    /// The block that begins at a slot.
    #[inline]
    pub fn block(&self, geometry: &Geometry, space: &Space, slot: u32) -> Block {
        let (_, piece) = self.address(slot);
        Block { piece, pieces: geometry.class_pieces(space.class(geometry.group_of(slot))), slot }
    }

    /// Enters the block of a class that begins at a slot.
    pub fn insert(&mut self, geometry: &Geometry, class: usize, volume: Volume, piece: u64, slot: u32) {
        let key = key(volume, piece);
        self.key_low[slot as usize] = key as u32;
        self.key_high[slot as usize] = (key >> 32) as u16;
        self.blocks[class] += 1;
        self.index.insert(Self::hash(geometry, key), Id(slot));
    }

    /// Removes the block that begins at a slot.
    pub fn remove(&mut self, geometry: &Geometry, class: usize, slot: u32) {
        let removed = self.index.remove(Self::hash(geometry, self.key_of(slot)), Id(slot));
        debug_assert!(removed, "a block that is present is in the index");
        self.blocks[class] -= 1;
    }

    /// The blocks of a volume that hold any of the pieces `first..end`, in the order of addresses.
    pub fn cover(
        &mut self,
        geometry: &Geometry,
        space: &Space,
        volume: Volume,
        pieces: Range<u64>,
        found: &mut Vec<Block>,
    ) {
        let Range { start: first, end } = pieces;
        found.clear();
        let mut at = first;
        // A block larger than a frame that begins in a frame before.
        if let Some(block) = self.larger(geometry, space, volume, first) {
            found.push(block);
            at = block.end();
        }
        let shift = geometry.frame_shift();
        while at < end {
            let frame_end = (((at >> shift) + 1) << shift).min(end);
            self.cover_frame(geometry, space, volume, at..frame_end, found);
            at = found.last().map_or(frame_end, |last| frame_end.max(last.end()));
        }
    }

    /// Appends the blocks that cover a range within one frame to `found`.
    #[inline]
    fn cover_frame(
        &mut self,
        geometry: &Geometry,
        space: &Space,
        volume: Volume,
        pieces: Range<u64>,
        found: &mut Vec<Block>,
    ) {
        let Range { start: at, end } = pieces;
        let base = at >> geometry.frame_shift() << geometry.frame_shift();
        let (from, to) = (key(volume, base), key(volume, end - 1));
        let mut run = std::mem::take(&mut self.run);
        run.clear();
        let (from_hash, to_hash) = (Self::hash(geometry, from), Self::hash(geometry, to));
        self.index.range(from_hash, to_hash, |behind, Id(slot)| run.push((behind, slot)));
        // Another frame with the same hash, one in 2^36 of them, has its entries among these: every key is compared.
        let is_here = |&(behind, slot): &(u32, u32)| self.key_of(slot) == from + u64::from(behind);
        let later = run.partition_point(|&(behind, _)| base + u64::from(behind) <= at);
        let holder = run[..later].iter().rev().find(|entry| is_here(entry));
        let block = |&(_, slot): &(u32, u32)| self.block(geometry, space, slot);
        found.extend(holder.map(block).filter(|block| block.end() > at));
        found.extend(run[later..].iter().filter(|entry| is_here(entry)).map(block));
        self.run = run;
    }

    /// The block that holds a piece and begins in another frame.
    #[inline]
    fn larger(&self, geometry: &Geometry, space: &Space, volume: Volume, piece: u64) -> Option<Block> {
        let frame = 1 << geometry.frame_shift();
        (0..geometry.classes()).rev().find_map(|class| {
            let pieces = geometry.class_pieces(class);
            let start = piece & !(pieces - 1);
            if pieces <= frame
                || self.blocks[class] == 0
                || start >> geometry.frame_shift() == piece >> geometry.frame_shift()
            {
                return None;
            }
            let key = key(volume, start);
            let matches =
                |Id(slot): Id| self.key_of(slot) == key && space.class(geometry.group_of(slot)) == class;
            let Id(slot) = self.index.find(Self::hash(geometry, key), matches)?;
            Some(Block { piece: start, pieces, slot })
        })
    }

    /// Blocks of each class.
    pub fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    /// Bytes held for the blocks that are there, and bytes held whatever is there.
    pub fn metadata_bytes(&self) -> (u64, u64) {
        (self.index.bytes(), (self.key_low.len() * 6) as u64)
    }
}
