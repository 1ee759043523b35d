//! Pinned values: a reply under way sends them piece by piece from their place in memory.

use tiermem_policy::ladder::Loc;

use super::ItemRef;
use super::contents::Contents;

/// A value that stays in its place until [`Engine::unpin`](super::Engine::unpin),
/// even if its key is changed or removed.
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

    /// Whether an item of this form lies at the pinned place still, though its key may be gone.
    fn is_as_it_was(&self, contents: &Contents) -> bool {
        let header = contents.items.header(self.loc);
        (header.value_offset(), header.value_len as usize) == (self.offset, self.len)
    }
}

/// How much replies have pinned, and may.
#[derive(Debug)]
pub(super) struct Pins {
    bytes: usize,
    bytes_max: usize,
}

impl Pins {
    pub fn new(bytes_max: usize) -> Self {
        Pins { bytes: 0, bytes_max }
    }

    /// Bytes pinned now.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps an item's bytes in place. `None` when it is not in memory, or when too many bytes are pinned already.
    pub fn pin(&mut self, contents: &mut Contents, item: ItemRef) -> Option<Pin> {
        if contents.staged.value(item).is_some() {
            return None;
        }
        let header = contents.items.header(contents.shard.ladder().residents().nodes().loc(item.0));
        let len = header.value_len as usize;
        if self.bytes + len > self.bytes_max {
            return None;
        }
        self.bytes += len;
        Some(Pin { loc: contents.shard.item(item.0).pin(), offset: header.value_offset(), len })
    }

    /// Gives a pinned value free.
    pub fn unpin(&mut self, contents: &mut Contents, pin: Pin) {
        debug_assert!(pin.len <= self.bytes, "what is given free was pinned");
        debug_assert!(pin.is_as_it_was(contents), "a pinned value stays where it is, and as it is");
        self.bytes -= pin.len;
        contents.shard.unpin(pin.loc);
    }
}

impl Contents {
    /// The bytes of a pinned value.
    pub fn pinned<'a>(&'a self, pin: &Pin) -> &'a [u8] {
        self.items.tiers.bytes(pin.loc, pin.offset, pin.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Condition, EngineConfig, Expiry, ValueKind};
    use tiermem_base::{Bytes, TierKind, TierSpec};

    #[test]
    fn pinned_bytes_are_bounded_and_stay_when_their_key_goes() {
        let tiers = vec![TierSpec::new(TierKind::Dram, Bytes(8 << 20))];
        let mut contents = Contents::new(&EngineConfig::new(tiers)).unwrap();
        let mut pins = Pins::new(250);
        let mut put = |key: &[u8], byte| {
            let value = (ValueKind::String, &[byte; 100][..]);
            contents.set(0, key, value, Condition::Always, Expiry::Never).unwrap();
            let id = contents.find(0, key, contents.items.hash(0, key)).unwrap();
            pins.pin(&mut contents, ItemRef(id))
        };
        let (one, two) = (put(b"one", 1).unwrap(), put(b"two", 2).unwrap());
        assert!(put(b"three", 3).is_none(), "it would be more than there may be");
        contents.flush(None);
        assert_eq!((contents.pinned(&one), contents.pinned(&two)), (&[1; 100][..], &[2; 100][..]));
        pins.unpin(&mut contents, one);
        assert_eq!((pins.bytes(), two.len()), (100, 100));
        pins.unpin(&mut contents, two);
        assert_eq!(pins.bytes(), 0);
    }
}
