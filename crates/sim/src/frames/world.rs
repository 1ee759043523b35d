//! What the program's pages hold where the machine does not hear of writes: the kernel knows it, and writes only what it must.

use tiermem_policy::Id;
use tiermem_policy::column::Bits;
use tiermem_policy::frames::Frame;

/// For each frame whether it was written since it came, and whether the tiers below have what it held before.
#[derive(Clone, Debug, Default)]
pub(super) struct World {
    dirty: Bits,
    below: Bits,
}

impl World {
    /// So many frames; `has_data`: the tiers below have the content of each.
    pub fn new(frames: u32, has_data: bool) -> Self {
        let mut world = World::default();
        for id in (0..frames).map(Id) {
            world.dirty.grow_to(id);
            world.below.grow_to(id);
            world.below.set(id, has_data);
        }
        world
    }

    /// Whether the content of the frame must be read if it is not in place.
    pub fn is_below(&self, frame: Frame) -> bool {
        self.below.get(frame.id())
    }

    pub fn wrote(&mut self, frame: Frame) {
        self.dirty.set(frame.id(), true);
    }

    /// The frame is paged out. Returns whether that is a write: the tiers below have another content.
    pub fn page_out(&mut self, frame: Frame) -> bool {
        let is_dirty = self.dirty.get(frame.id());
        self.dirty.set(frame.id(), false);
        self.below.set(frame.id(), is_dirty || self.is_below(frame));
        is_dirty
    }

    pub fn discard(&mut self, frame: Frame) {
        self.dirty.set(frame.id(), false);
        self.below.set(frame.id(), false);
    }
}
