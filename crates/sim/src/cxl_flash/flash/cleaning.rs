//! How blocks are made free again: which one is emptied, and how far that is.
//!
//! A plane with too few free blocks empties one: its pages with current data are read, what is still current when it has come
//! is written to the plane's own block for moved data, and when all is written the block is erased. Greedy takes the block with
//! the least current data; cost-benefit weighs what is won against what is moved and prefers data that have been left alone
//! (Rosenblum and Ousterhout, SOSP 1991: age x (1 - u) / 2u). Static wear levelling now and then empties the least worn block,
//! whatever it holds, so that data that nobody writes do not keep it young (Yang 2023, section 7, names both as missing).

use std::collections::VecDeque;

use super::blocks::{Blocks, State};
use super::geometry::Geometry;

/// Which block is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The one with the least current data.
    Greedy,
    /// The one where most is won for what is moved, old ones first.
    CostBenefit,
}

/// What cleaning and wear levelling do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Which block is emptied.
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

fn can_be_emptied(state: State) -> bool {
    matches!(state, State::Closed | State::Initial)
}

/// The block of a plane to be emptied; none if nothing would be won by any.
///
/// What is moved fills whole pages, so at least a page must be won: then each block that is emptied leaves fewer pages in
/// use, and cleaning comes to an end by itself.
pub fn victim(blocks: &Blocks, plane: u32, rule: Victim, geometry: &Geometry) -> Option<u32> {
    let units_per_block = geometry.units_per_block();
    let wins = |valid: u32| valid.div_ceil(geometry.units_per_page) < geometry.pages_per_block;
    let candidates =
        blocks.of_plane(plane).filter(|(_, block)| can_be_emptied(block.state) && wins(block.valid));
    match rule {
        Victim::Greedy => candidates.min_by_key(|(_, block)| block.valid).map(|(number, _)| number),
        Victim::CostBenefit => {
            let clock = blocks.clock();
            let benefit = |valid: u32, closed_at: u64| {
                let used = f64::from(valid) / f64::from(units_per_block);
                let age = (clock - closed_at) as f64 + 1.0;
                if valid == 0 { f64::INFINITY } else { age * (1.0 - used) / (2.0 * used) }
            };
            candidates
                .map(|(number, block)| (number, benefit(block.valid, block.closed_at)))
                .max_by(|a, b| a.1.total_cmp(&b.1))
                .map(|(number, _)| number)
        }
    }
}

/// The least worn block of a plane that holds data, if others were erased so much more often.
pub fn coldest(blocks: &Blocks, plane: u32, difference: u32) -> Option<u32> {
    let most = blocks.of_plane(plane).map(|(_, block)| block.erases).max()?;
    let (number, least) = blocks
        .of_plane(plane)
        .filter(|(_, block)| can_be_emptied(block.state))
        .min_by_key(|(_, block)| block.erases)?;
    (most - least.erases > difference).then_some(number)
}
