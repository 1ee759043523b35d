//! What an item's tenant knows of it.

/// Whose an item is, and where it stands in that tenant's list: one place in memory, for who moves needs both.
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
