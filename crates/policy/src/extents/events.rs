//! Events of the map: every change of blocks and groups, for a driver that keeps a log of them.

use super::Volume;

/// A change of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block got a place; none of its units is valid yet.
    Mapped {
        /// Its first slot, which is its number.
        slot: u32,
        /// Its size's number, see [`super::Geometry::class_bytes`].
        class: usize,
        /// The volume of the block.
        volume: Volume,
        /// Its first piece in the volume.
        piece: u64,
    },
    /// A block's place is free: it was evicted, replaced, or nothing was left of it.
    Unmapped {
        /// Its first slot.
        slot: u32,
        /// Its size's number.
        class: usize,
        /// The volume of the block.
        volume: Volume,
        /// Its first piece in the volume.
        piece: u64,
    },
}

/// Changes of the map that the driver has not taken yet, where the driver wants them.
#[derive(Debug, Default)]
pub struct Changes {
    events: Option<Vec<Event>>,
}

impl Changes {
    /// Keeps what happens to the map from now on, or no more.
    pub fn record(&mut self, on: bool) {
        if on {
            self.events.get_or_insert_with(Vec::new);
        } else {
            self.events = None;
        }
    }

    /// Appends the events since the last call, in order.
    pub fn take(&mut self, into: &mut Vec<Event>) {
        if let Some(events) = &mut self.events {
            into.append(events);
        }
    }

    #[inline]
    pub(super) fn note(&mut self, event: Event) {
        if let Some(events) = &mut self.events {
            events.push(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evict::lru::{Bump, Lru};
    use crate::extents::*;

    const KIB: u64 = 1 << 10;

    /// A cache with one group of 64 KiB for each of two sizes, and one more.
    fn cache() -> Extents<Lru> {
        let geometry = Geometry::new(&[32 * KIB, 64 * KIB], None, 3 * 64 * KIB).unwrap();
        let config = Config { fill: Fill::Units, sizing: Sizing::Request, shares: 1 };
        let mut cache = Extents::new(geometry, config, Lru::new([1.0, 1.0], Bump::Always), Rng::seeded(1));
        cache.changes_mut().record(true);
        cache
    }

    fn read(cache: &mut Extents<Lru>, offset: u64, bytes: u64) -> Vec<Event> {
        let mut plan = Plan::default();
        let request = Request { volume: Volume(3), offset, bytes, write: None, bypass: false };
        assert_eq!(cache.plan(&request, &mut plan), Verdict::Ready);
        cache.finish(&mut plan);
        let mut events = Vec::new();
        cache.changes_mut().take(&mut events);
        events
    }

    fn mapped(slot: u32, class: usize, piece: u64) -> Event {
        Event::Mapped { slot, class, volume: Volume(3), piece }
    }

    fn unmapped(slot: u32, class: usize, piece: u64) -> Event {
        Event::Unmapped { slot, class, volume: Volume(3), piece }
    }

    #[test]
    fn allocation_replacement_eviction_and_discard_are_told_in_order() {
        let mut cache = cache();
        assert_eq!(read(&mut cache, 32 * KIB, 96 * KIB), [mapped(0, 0, 1), mapped(2, 1, 2)]);
        assert_eq!(read(&mut cache, 32 * KIB, 96 * KIB), [], "hits change nothing");
        assert_eq!(read(&mut cache, 256 * KIB, 64 * KIB), [mapped(4, 1, 8)]);
        // The small block is the oldest, and its group goes for a large one.
        let events = read(&mut cache, 512 * KIB, 64 * KIB);
        assert_eq!(events, [unmapped(0, 0, 1), mapped(0, 1, 16)]);
        // The tail has the size that is wanted: its place is taken.
        let events = read(&mut cache, 640 * KIB, 64 * KIB);
        assert_eq!(events, [unmapped(2, 1, 2), mapped(2, 1, 20)]);
        cache.discard(Volume(3), 640 * KIB..704 * KIB);
        let mut events = Vec::new();
        cache.changes_mut().take(&mut events);
        assert_eq!(events, [unmapped(2, 1, 20)]);
        cache.changes_mut().record(false);
        assert_eq!(read(&mut cache, 0, 4 * KIB), []);
    }

    #[test]
    fn every_unit_of_a_block_names_it_and_others_name_none() {
        let mut cache = cache();
        read(&mut cache, 32 * KIB, 96 * KIB);
        let small = Block { piece: 1, pieces: 1, slot: 0 };
        let large = Block { piece: 2, pieces: 2, slot: 2 };
        for unit in 0..3 * 16 {
            let expected = match unit {
                0..8 => Some((Volume(3), small)),
                16..32 => Some((Volume(3), large)),
                _ => None,
            };
            assert_eq!(cache.map().block_of_unit(unit), expected, "unit {unit}");
        }
        assert_eq!(cache.map().block_of_unit(48), None);
        assert_eq!(cache.map().block_of_unit(u64::MAX), None);
    }
}
