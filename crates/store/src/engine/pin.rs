//! Values that replies under way are sent from, piece by piece, where they lie.

use tiermem_policy::ladder::Loc;

use super::{Engine, ItemRef};

/// A value that stays where it is, whatever happens to its key, until [`Engine::unpin`].
#[derive(Debug)]
#[must_use = "a pin that is not unpinned keeps its memory for ever"]
pub struct Pin {
    loc: Loc,
    offset: usize,
    len: usize,
}

impl Pin {
    /// Bytes of the value.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the value is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Engine {
    /// Keeps an item's bytes in place for a reply that is sent piece by piece. `None` when too many bytes are
    /// pinned already: copy instead.
    pub fn pin(&mut self, item: ItemRef) -> Option<Pin> {
        if self.staged_value(item).is_some() {
            return None;
        }
        let header = self.header(self.shard.ladder().residents().nodes().loc(item.0));
        let len = header.value_len as usize;
        if self.pinned_bytes + len > self.config.pinned_bytes_max {
            return None;
        }
        self.pinned_bytes += len;
        Some(Pin { loc: self.shard.item(item.0).pin(), offset: header.value_offset(), len })
    }

    /// The bytes of a pinned value.
    pub fn pinned<'a>(&'a self, pin: &'a Pin) -> &'a [u8] {
        self.items.tiers.bytes(pin.loc, pin.offset, pin.len)
    }

    /// Gives a pinned value free.
    pub fn unpin(&mut self, pin: Pin) {
        self.pinned_bytes -= pin.len;
        self.shard.unpin(pin.loc);
    }
}
