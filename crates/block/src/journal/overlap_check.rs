//! Overlap check: whether all blocks of a table can be where it says.

use super::Layout;
use super::table::{BlockState, Illegal};

/// Whether blocks are where they can be: none over another, one size in a group. Told of all blocks in the order of slots.
#[derive(Debug, Default)]
pub struct Placement {
    end: u64,
    /// The group of the last, and its blocks' size.
    last: Option<(u32, u8)>,
}

impl Placement {
    /// # Errors
    /// When the block cannot be where it is.
    pub fn check(&mut self, layout: &Layout, block: &BlockState) -> Result<(), Illegal> {
        let geometry = &layout.geometry;
        let class = usize::from(block.class);
        if class >= geometry.classes() || !u64::from(block.slot).is_multiple_of(geometry.class_pieces(class))
        {
            return Err(Illegal("a block lies where none of its size can"));
        }
        let units = layout.block_units(block.slot, class);
        if units.start < self.end {
            return Err(Illegal("two blocks lie over each other"));
        }
        self.end = units.end;
        let group = geometry.group_of(block.slot);
        if self.last.is_some_and(|(of, class)| of == group && class != block.class) {
            return Err(Illegal("a group has blocks of two sizes"));
        }
        self.last = Some((group, block.class));
        Ok(())
    }
}
