//! Failures of the cache's device: where nothing is stored any more, and what the cache is still used for.
//!
//! A place that failed once fails again, or gives what it was given only sometimes. Until a restart its group gets no new block, its
//! units are not filled again, and its blocks go when they are clean and no plan speaks of them. A device with many such places is about
//! to fail as a whole: then the cache goes out of use. Its stores serve alone, as soon as they have what only the cache had.

use std::ops::Range;

use crate::evict::Evict;

use super::{Extents, Mode, Volume};

/// The cache goes out of use when more groups than this part of all have failed places,
const OUT_OF_USE_PART: u32 = 16;
/// but not before this number,
const OUT_OF_USE_MIN: u32 = 4;
/// and at this number in any case: each of them has cost somebody the time of a failed request.
const OUT_OF_USE_MAX: u32 = 256;

/// What the cache is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Service {
    /// All.
    #[default]
    Whole,
    /// What is there is read, and nothing more is stored: it could not be written down where it lies.
    ReadOnly,
    /// It is out of use: only what the stores lack is read from it, and writes go past it.
    OutOfUse,
}

impl<O: Evict> Extents<O> {
    /// What the cache is used for.
    pub fn service(&self) -> Service {
        self.service
    }

    /// Nothing more is stored: the log takes no records any more.
    pub fn stop_storing(&mut self) {
        if self.service == Service::Whole {
            self.service = Service::ReadOnly;
        }
    }

    /// The cache's device failed a read or a write of these units: they are not used again. What is valid there and clean must be
    /// [invalidated](super::Units::invalidate) by the caller.
    pub fn fail(&mut self, units: Range<u64>) {
        self.units.fail(units.clone());
        self.map.retire(&units);
        let limit = (self.geometry().groups() / OUT_OF_USE_PART).clamp(OUT_OF_USE_MIN, OUT_OF_USE_MAX);
        if self.map.space().retired_groups() >= limit {
            self.service = Service::OutOfUse;
        }
    }

    /// Where a write of a range goes that its volume's mode sends to `mode`. What is lost is mended by writing it anew, which a write
    /// past the cache would not do: it goes through it. A cache that is out of use gets nothing else.
    pub fn write_mode(&mut self, volume: Volume, range: Range<u64>, mode: Mode) -> Mode {
        let mode = if self.service == Service::OutOfUse { Mode::WriteAround } else { mode };
        if mode != Mode::WriteAround || !self.units.has_lost(0..u64::MAX) {
            return mode;
        }
        let mut parts = Vec::new();
        self.visit(volume, range, |part, _| parts.push(part));
        match self.units.without_lost(&parts) == parts {
            true => Mode::WriteAround,
            false => Mode::WriteThrough,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evict::lru::{Bump, Lru};
    use crate::extents::{Config, Fill, Geometry, Part, Plan, Request, Sizing, UNIT_BYTES, Verdict};
    use tiermem_base::Rng;

    const KIB: u64 = 1 << 10;
    const GROUP: u64 = 64 * KIB;

    /// A cache of this number of groups with four blocks each.
    fn cache(groups: u64) -> Extents<Lru> {
        let geometry = Geometry::new(&[16 * KIB], Some(GROUP), groups * GROUP).unwrap();
        let config = Config { fill: Fill::Units, sizing: Sizing::Request, shares: 1 };
        Extents::new(geometry, config, Lru::new([1.0, 1.0], Bump::Always), Rng::seeded(1))
    }

    fn plan(cache: &mut Extents<Lru>, offset: u64, bytes: u64, write: Option<Mode>) -> Plan {
        let mut plan = Plan::default();
        let request = Request { volume: Volume(0), offset, bytes, write, bypass: false };
        assert_eq!(cache.plan(&request, &mut plan), Verdict::Ready);
        plan
    }

    fn read(cache: &mut Extents<Lru>, offset: u64, bytes: u64) -> Plan {
        let mut plan = plan(cache, offset, bytes, None);
        cache.finish(&mut plan);
        plan
    }

    fn units(part: &Part) -> Range<u64> {
        part.at / UNIT_BYTES..(part.at + part.bytes) / UNIT_BYTES
    }

    #[test]
    fn a_place_that_failed_gets_nothing_any_more_and_its_block_another_place() {
        let mut cache = cache(16);
        read(&mut cache, 0, 16 * KIB);
        // While the device fails, the plan that reads there holds the block.
        let mut held = plan(&mut cache, 0, 16 * KIB, None);
        let failed = Part { offset: 4 * KIB, at: held.cached[0].at + 4 * KIB, bytes: 4 * KIB };
        cache.fail(units(&failed));
        cache.units_mut().invalidate(&[failed]);
        let again = plan(&mut cache, 0, 16 * KIB, None);
        assert_eq!(
            (again.fetch.len(), again.fill.len(), again.fresh.len()),
            (1, 0, 0),
            "it is fetched, and not stored"
        );
        let mut again = again;
        cache.finish(&mut again);
        cache.finish(&mut held);
        for round in 0..2 {
            // More than the cache has: all that may be evicted is.
            for block in 0..80 {
                for part in read(&mut cache, block * 16 * KIB, 16 * KIB).fill {
                    assert!(
                        part.at >= GROUP,
                        "round {round}, block {block}: the failed place's group is not used"
                    );
                }
            }
        }
        assert_eq!((cache.map().retired_bytes(), cache.service()), (GROUP, Service::Whole));
    }

    #[test]
    fn what_is_dirty_where_the_device_failed_stays_until_it_is_clean_and_no_longer() {
        let mut cache = cache(16);
        let mut write = plan(&mut cache, 0, 16 * KIB, Some(Mode::WriteBack));
        let part = write.fill[0];
        cache.fail(units(&part));
        cache.finish(&mut write);
        let dirty = read(&mut cache, 0, 16 * KIB);
        assert_eq!((dirty.cached, dirty.fetch.len()), (vec![part], 0));
        cache.units_mut().cleaned(&[part]);
        let clean = read(&mut cache, 0, 16 * KIB);
        assert_eq!((clean.cached.len(), clean.fill.len(), clean.fetch.len()), (0, 0, 1));
        let anew = read(&mut cache, 0, 16 * KIB);
        assert!(anew.fill[0].at >= GROUP, "its block has left");
    }

    #[test]
    fn with_many_failed_places_only_what_the_stores_lack_is_read_and_writes_go_past() {
        let mut cache = cache(128);
        read(&mut cache, 0, 16 * KIB);
        let mut write = plan(&mut cache, 64 * KIB, 16 * KIB, Some(Mode::WriteBack));
        cache.finish(&mut write);
        for group in 100..108 {
            assert_eq!(cache.service(), Service::Whole, "{group}");
            cache.fail(group * 16..group * 16 + 1);
        }
        assert_eq!(cache.service(), Service::OutOfUse);
        cache.stop_storing();
        assert_eq!(cache.service(), Service::OutOfUse);
        let clean = read(&mut cache, 0, 16 * KIB);
        assert_eq!((clean.cached.len(), clean.fetch.len(), clean.fill.len()), (0, 1, 0));
        let missed = read(&mut cache, 1 << 20, 16 * KIB);
        assert_eq!((missed.fetch.len(), missed.allocated_blocks), (1, 0));
        let dirty = read(&mut cache, 64 * KIB, 32 * KIB);
        assert_eq!((dirty.cached.len(), dirty.fetch.len(), dirty.fill.len()), (1, 1, 0));
        assert_eq!(cache.write_mode(Volume(0), 0..16 * KIB, Mode::WriteBack), Mode::WriteAround);
        cache.units_mut().lose(units(&dirty.cached[0]));
        assert_eq!(cache.write_mode(Volume(0), 64 * KIB..68 * KIB, Mode::WriteBack), Mode::WriteThrough);
        assert_eq!(cache.write_mode(Volume(0), 0..16 * KIB, Mode::WriteThrough), Mode::WriteAround);
    }

    #[test]
    fn a_cache_that_stores_nothing_reads_what_it_has() {
        let mut cache = cache(16);
        read(&mut cache, 0, 8 * KIB);
        cache.stop_storing();
        let some = read(&mut cache, 0, 64 * KIB);
        assert_eq!((some.cached.len(), some.fetch.len()), (1, 1));
        assert!(some.fill.is_empty() && some.fresh.is_empty() && some.allocated_blocks == 0);
        assert_eq!(cache.write_mode(Volume(0), 0..16 * KIB, Mode::WriteBack), Mode::WriteBack);
    }

    #[test]
    fn a_write_tells_what_of_the_bytes_that_it_reads_the_store_lacked() {
        let mut cache = cache(16);
        read(&mut cache, 0, 16 * KIB);
        let mut dirty = plan(&mut cache, 0, 4 * KIB, Some(Mode::WriteBack));
        cache.finish(&mut dirty);
        let mut over = plan(&mut cache, 2 * KIB, 4 * KIB, Some(Mode::WriteBack));
        cache.finish(&mut over);
        let bytes = |parts: &[Part]| parts.iter().map(|part| (part.offset, part.bytes)).collect::<Vec<_>>();
        assert_eq!((bytes(&over.cached), bytes(&over.unclean)), (vec![(0, 8 * KIB)], vec![(0, 4 * KIB)]));
    }
}
