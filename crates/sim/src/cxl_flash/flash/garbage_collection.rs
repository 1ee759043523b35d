//! Garbage collection of flash blocks: the progress of one that is being emptied, and the candidates to be emptied.
//!
//! A plane with too few free blocks empties one: its pages with current data are read, data that are still current when they have
//! come are written to the plane's own block for moved data, and when all is written the block is erased. Which block is
//! `policy`'s decision ([`tiermem_policy::erase_block_gc`]), as is static wear levelling, which now and then empties the least
//! worn (Yang 2023, section 7, names both as missing).

use std::collections::VecDeque;

use tiermem_policy::erase_block_gc::{Region, Victim, least_worn};

use super::blocks::{Blocks, State};
use super::geometry::Geometry;

/// Rules of cleaning and wear levelling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// The rule for the block to be emptied.
    pub victim: Victim,
    /// Free blocks of a plane below which it is cleaned.
    pub free_blocks: u32,
    /// The least worn free block is written next.
    pub dynamic: bool,
    /// Erases by which blocks may differ, if cold ones are moved.
    pub wear_difference: Option<u32>,
    /// Lines that hold data before the first request.
    pub filled_units: u64,
}

/// A block that is being emptied.
#[derive(Clone, Debug)]
pub struct Job {
    /// Which.
    pub block: u32,
    /// Its units before this one have been looked at.
    pub cursor: u32,
    /// First units of pages whose reads are under way, in order.
    pub reading: VecDeque<u32>,
    /// Units that were read and wait to be written.
    pub gathered: Vec<u32>,
    /// Programs under way.
    pub programs: u32,
    /// The erase is under way.
    pub erasing: bool,
}

impl Job {
    /// At its beginning.
    pub fn new(block: u32) -> Self {
        Job { block, cursor: 0, reading: VecDeque::new(), gathered: Vec::new(), programs: 0, erasing: false }
    }
}

/// Blocks of a plane that hold data and are not being written.
fn filled(blocks: &Blocks, plane: u32) -> impl Iterator<Item = Region> + '_ {
    let clock = blocks.clock();
    let of_plane = blocks.of_plane(plane);
    of_plane.filter(|(_, block)| matches!(block.state, State::Closed | State::Initial)).map(
        move |(number, block)| {
            let age = clock - block.closed_at;
            Region { number, live: block.valid, age, erases: block.erases }
        },
    )
}

/// The block of a plane to be emptied; none if nothing would be won by any.
///
/// What is moved fills whole pages, so at least a page must be won: then each block that is emptied leaves fewer pages in
/// use, and cleaning comes to an end by itself.
pub fn victim(blocks: &Blocks, plane: u32, rule: Victim, geometry: &Geometry) -> Option<u32> {
    let wins = |live: u32| live.div_ceil(geometry.units_per_page) < geometry.pages_per_block;
    let regions = filled(blocks, plane).filter(|region| wins(region.live));
    rule.choose(geometry.units_per_block(), regions)
}

/// The least worn block of a plane that holds data, if others were erased so much more often.
pub fn coldest(blocks: &Blocks, plane: u32, difference: u32) -> Option<u32> {
    let most_erases = blocks.of_plane(plane).map(|(_, block)| block.erases).max()?;
    least_worn(most_erases, difference, filled(blocks, plane))
}
