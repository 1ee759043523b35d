//! The tenant's entry for an item: its owner and its position in the owner's list.

/// The tenant of an item, and the item's position in that tenant's list: together in memory, because a move needs both.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    pub owner: u16,
    /// In halves, so that there is no padding.
    position: [u16; 2],
}

const _: () =
    assert!(size_of::<Entry>() == 6, "with its place in the list ten bytes, as docs/tenants.md says");

impl Entry {
    #[inline]
    pub fn position(self) -> u32 {
        u32::from(self.position[0]) | u32::from(self.position[1]) << 16
    }

    #[inline]
    pub fn set_position(&mut self, position: u32) {
        self.position = [position as u16, (position >> 16) as u16];
    }
}
