//! Layout of a program's memory: its regions, assembled from the mappings over time, and the samples in them.

use std::collections::{BTreeMap, BTreeSet};

use tiermem_trace::recording::{NODE_UNKNOWN, Region, RegionKind, Sample};

use super::mappings::maps::MapLine;
use super::mappings::naming::{self, Names};
use super::table::{Count, Key};

/// Addresses without a mapping belong to one region until a gap of this size.
const GAP_BYTES: u64 = 64 << 20;
/// Addresses from here on are the kernel's.
pub(super) const KERNEL_START: u64 = 1 << 63;

/// A mapping, or what has been left of it by later ones.
#[derive(Clone, Debug)]
struct Mapped {
    line: MapLine,
    first_slice: u32,
    last_slice: u32,
}

impl Mapped {
    /// The part from `start` to `end`.
    fn part(&self, start: u64, end: u64) -> Mapped {
        let mut part = self.clone();
        part.line.offset = self.line.offset.wrapping_add(start - self.line.start);
        (part.line.start, part.line.end) = (start, end);
        part
    }
}

/// What was mapped, by its start. Where mappings overlap the later one holds, as the kernel has it.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    mapped: BTreeMap<u64, Mapped>,
}

/// Regions by address, and the samples in them in the order of slices.
#[derive(Clone, Debug, Default)]
pub(super) struct Placed {
    pub regions: Vec<Region>,
    pub samples: Vec<Sample>,
    /// Accesses to addresses that belong to no mapping that is known.
    pub unmapped: u64,
}

impl Layout {
    /// Takes in that something was mapped, in this slice.
    pub fn map(&mut self, line: &MapLine, slice: u32) {
        if let Some(there) = self.mapped.get_mut(&line.start)
            && there.line == *line
        {
            there.last_slice = there.last_slice.max(slice);
            return;
        }
        let mut new = Mapped { line: line.clone(), first_slice: slice, last_slice: slice };
        let before = self.mapped.range(..line.start).next_back().filter(|(_, it)| it.line.end > line.start);
        let overlapped: Vec<u64> = before
            .into_iter()
            .chain(self.mapped.range(line.start..line.end))
            .map(|(start, _)| *start)
            .collect();
        for start in overlapped {
            let Some(old) = self.mapped.remove(&start) else { continue };
            if old.line.is_same_thing(line) {
                new.first_slice = new.first_slice.min(old.first_slice);
            }
            if start < line.start {
                self.mapped.insert(start, old.part(start, line.start));
            }
            if old.line.end > line.end {
                self.mapped.insert(line.end, old.part(line.end, old.line.end));
            }
        }
        let left = self.mapped.range_mut(..line.start).next_back().map(|(_, it)| it);
        match left.filter(|left| left.line.goes_on_with(line)) {
            Some(left) => {
                left.line.end = line.end;
                left.last_slice = left.last_slice.max(slice);
            }
            None => {
                self.mapped.insert(line.start, new);
            }
        }
    }

    /// Whether nothing is known of any mapping.
    pub fn is_empty(&self) -> bool {
        self.mapped.is_empty()
    }

    /// Takes what is mapped for mapped until this slice: sources that tell of new mappings alone do not know when they end.
    pub fn all_last_until(&mut self, slice: u32) {
        self.mapped.values_mut().for_each(|it| it.last_slice = slice);
    }

    /// Gives the mapping that an address lies in a name of the kernel's, in case it has none: what the kernel calls `[stack]`
    /// is the stack of the process, and a program that runs within another has its own elsewhere.
    pub fn name(&mut self, address: u64, name: &str) {
        let at = self.mapped.range_mut(..=address).next_back().map(|(_, it)| it);
        if let Some(it) = at.filter(|it| address < it.line.end && it.line.path.is_none()) {
            it.line.path = Some(format!("[{name}]"));
        }
    }

    /// The regions, with the samples of `counts`, which are ordered and have slices that
    /// start at 0. With `keeps_unused` a mapping that was never accessed is a region too.
    pub fn place(self, counts: &[(Key, Count)], granule_bytes: u64, keeps_unused: bool) -> Placed {
        let mapped: Vec<Mapped> = self.mapped.into_values().collect();
        let granules: BTreeSet<u64> = counts.iter().map(|(key, _)| key.granule).collect();
        let mut stretches: Vec<Stretch> =
            granules.iter().map(|granule| Stretch::of(*granule, granule_bytes, &mapped)).collect();
        let clusters = cluster(&mut stretches);

        let mut used = vec![keeps_unused; mapped.len()];
        stretches.iter().filter_map(|it| it.mapped).for_each(|at| used[at] = true);
        let mut described = describe(&mapped, &used);
        described.extend(clusters.into_iter().enumerate().map(|(at, region)| (Home::Cluster(at), region)));
        described.sort_by_key(|(_, region)| region.start);
        let mut ids = BTreeMap::new();
        let mut regions = Vec::with_capacity(described.len());
        for (id, (home, region)) in described.into_iter().enumerate() {
            ids.insert(home, id);
            regions.push(region);
        }
        let granules: Vec<u64> = granules.into_iter().collect();
        let mut placed = Placed { samples: Vec::with_capacity(counts.len()), ..Placed::default() };
        for (key, count) in counts {
            let stretch = granules.binary_search(&key.granule).ok().map(|at| &stretches[at]);
            let Some((stretch, id)) = stretch.and_then(|it| Some((it, *ids.get(&it.home())?))) else {
                continue;
            };
            let slice = u32::try_from(key.slice).unwrap_or(0);
            let region = &mut regions[id];
            if stretch.mapped.is_none() {
                placed.unmapped += count.accesses;
                region.first_slice = region.first_slice.min(slice);
                region.last_slice = region.last_slice.max(slice);
            }
            let kind = key.kind();
            let bytes = u32::try_from(stretch.end - stretch.start).unwrap_or(u32::MAX);
            placed.samples.push(Sample {
                slice,
                region: id as u32,
                offset: stretch.start - region.start,
                bytes,
                resident: bytes,
                weight: count.accesses as f32,
                latency_cycles: count.mean_cycles(),
                source: 0,
                op: kind.op,
                level: kind.level,
                mode: kind.mode,
                node: NODE_UNKNOWN,
            });
        }
        placed.regions = regions;
        placed
    }
}

/// A granule, or as much of it as lies in its mapping.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    start: u64,
    end: u64,
    mapped: Option<usize>,
    /// The mappings that begin before it: two stretches between which this changes are not neighbours.
    behind: usize,
    cluster: usize,
}

/// Where a stretch belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Home {
    Mapped(usize),
    Cluster(usize),
}

impl Stretch {
    /// In the mapping that has most of it.
    fn of(granule: u64, granule_bytes: u64, mapped: &[Mapped]) -> Stretch {
        let start = granule.saturating_mul(granule_bytes);
        let end = start.saturating_add(granule_bytes);
        let behind = mapped.partition_point(|it| it.line.start < end);
        let from = mapped.partition_point(|it| it.line.end <= start);
        let part = |at: usize| (start.max(mapped[at].line.start), end.min(mapped[at].line.end));
        // The first of several that have as much.
        let most = (from..behind).rev().max_by_key(|at| part(*at).1 - part(*at).0);
        let (start, end) = most.map_or((start, end), part);
        Stretch { start, end, mapped: most, behind, cluster: 0 }
    }

    fn home(&self) -> Home {
        self.mapped.map_or(Home::Cluster(self.cluster), Home::Mapped)
    }
}

/// Regions for stretches that no mapping has.
fn cluster(stretches: &mut [Stretch]) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    let mut last: Option<Stretch> = None;
    let (mut users, mut kernels) = (0, 0);
    for stretch in stretches.iter_mut().filter(|it| it.mapped.is_none()) {
        let is_kernel = stretch.start >= KERNEL_START;
        let goes_on = last.is_some_and(|last| {
            stretch.start - last.end <= GAP_BYTES
                && stretch.behind == last.behind
                && is_kernel == (last.start >= KERNEL_START)
        });
        if !goes_on {
            let (name, kind) = if is_kernel {
                kernels += 1;
                (format!("kernel {kernels}"), RegionKind::Special)
            } else {
                users += 1;
                (format!("region {users}"), RegionKind::Anonymous)
            };
            let start = stretch.start;
            regions.push(Region { name, kind, start, first_slice: u32::MAX, ..Region::default() });
        }
        stretch.cluster = regions.len() - 1;
        if let Some(region) = regions.last_mut() {
            region.bytes = stretch.end - region.start;
        }
        last = Some(*stretch);
    }
    regions
}

/// Regions for mappings, with names that are theirs alone.
fn describe(mapped: &[Mapped], used: &[bool]) -> Vec<(Home, Region)> {
    let mut names = Names::among(mapped.iter().map(|it| &it.line));
    let mut regions = Vec::new();
    for (at, it) in mapped.iter().enumerate().filter(|(at, _)| used[*at]) {
        let before = at.checked_sub(1).map(|before| &mapped[before].line);
        let name = names.name(&it.line, before);
        let region = Region { name, ..naming::region(&it.line, it.first_slice, it.last_slice) };
        regions.push((Home::Mapped(at), region));
    }
    regions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::mappings::maps::parse;
    use crate::capture::table::{Kind, Table};
    use proptest::prelude::*;
    use tiermem_base::Op;
    use tiermem_trace::recording::{Level, Mode};

    fn counts(addresses: &[u64], granule_bytes: u64) -> Vec<(Key, Count)> {
        let kind = Kind { op: Op::Load, level: Level::Unknown, mode: Mode::User };
        let mut table = Table::new(granule_bytes, 1 << 20);
        addresses.iter().for_each(|address| table.add(0, 0, *address, kind, 0));
        table.into_sorted(|_| true)
    }

    fn mapped(text: &str) -> Layout {
        let mut layout = Layout::default();
        parse(text).unwrap().iter().for_each(|line| layout.map(line, 0));
        layout
    }

    fn names(placed: &Placed) -> Vec<(&str, u64, u64)> {
        placed.regions.iter().map(|it| (it.name.as_str(), it.start, it.bytes)).collect()
    }

    #[test]
    fn what_lies_in_no_mapping_is_a_region_between_those_that_do() {
        let text = "20000-30000 r-xp 10000 00:01 7 /lib/libc.so.6\n60000-61000 rw-p 0 00:00 0 \n";
        let placed = mapped(text).place(&counts(&[0x20008, 0x5_5000, 1 << 40], 4096), 4096, true);
        assert_eq!(
            names(&placed).iter().map(|it| it.0).collect::<Vec<_>>(),
            ["libc.so.6 text", "region 1", "anon 1", "region 2"]
        );
        assert_eq!(placed.unmapped, 2);
        let sample = placed.samples[0];
        assert_eq!((sample.region, sample.offset, sample.bytes), (0, 0, 4096));
        let used = mapped(text).place(&counts(&[0x20008], 4096), 4096, false);
        assert_eq!(names(&used), [("libc.so.6 text", 0x20000, 0x10000)]);
    }

    #[test]
    fn addresses_far_apart_are_regions_of_their_own() {
        let gap = GAP_BYTES;
        let placed = Layout::default().place(
            &counts(&[0x1000, 0x3000, 0x4000 + gap, 0x6000 + 2 * gap, KERNEL_START, u64::MAX], 4096),
            4096,
            true,
        );
        let wanted = [
            ("region 1", 0x1000, 0x4000 + gap),
            ("region 2", 0x6000 + 2 * gap, 0x1000),
            ("kernel 1", KERNEL_START, 0x1000),
            ("kernel 2", !0xfff, 0xfff),
        ];
        assert_eq!(names(&placed), wanted);
        assert!(placed.regions.iter().all(|it| (it.first_slice, it.last_slice) == (0, 0)));
    }

    #[test]
    fn later_mappings_hold_and_neighbours_grow_together() {
        let mut layout = mapped("1000-9000 r-xp 0 00:01 7 /lib/a\n");
        for (slice, text) in [
            (1, "3000-4000 rw-p 2000 00:01 7 /lib/a"),
            (2, "4000-5000 rw-p 3000 00:01 7 /lib/a"),
            (3, "20000-21000 rw-p 0 00:00 0 [heap]"),
            (4, "20000-28000 rw-p 0 00:00 0 [heap]"),
        ] {
            parse(text).unwrap().iter().for_each(|line| layout.map(line, slice));
        }
        let placed = layout.place(&[], 4096, true);
        let wanted = [
            ("a text", 0x1000, 0x2000),
            ("a data", 0x3000, 0x2000),
            ("a text #2", 0x5000, 0x4000),
            ("heap", 0x20000, 0x8000),
        ];
        assert_eq!(names(&placed), wanted);
        let seen: Vec<_> =
            placed.regions.iter().map(|it| (it.first_slice, it.last_slice, it.file_offset)).collect();
        assert_eq!(seen, [(0, 0, 0), (0, 2, 0x2000), (0, 0, 0x4000), (3, 4, 0)]);
    }

    #[test]
    fn a_granule_belongs_to_who_has_most_of_it() {
        let text = "1000-2000 rw-p 0 00:00 0 [heap]\n2000-9000 rw-p 0 00:00 0 [stack]\n";
        let placed = mapped(text).place(&counts(&[0x1000], 0x4000), 0x4000, true);
        let sample = placed.samples[0];
        assert_eq!((sample.region, sample.offset, sample.bytes), (1, 0, 0x2000));
    }

    proptest! {
        /// Every access is in exactly one region, within its bounds, wherever mappings are.
        #[test]
        fn nothing_is_lost(
            mappings in prop::collection::vec((0u64..64, 1u64..16, 0u8..4), 0..20),
            addresses in prop::collection::vec(0u64..80 << 12, 1..100), bits in 10u32..16
        ) {
            let mut layout = Layout::default();
            for (start, pages, what) in mappings {
                let path = [None, Some("[heap]"), Some("/a"), Some("/b")][usize::from(what)].map(str::to_owned);
                let line = MapLine {
                    start: start << 12, end: (start + pages) << 12, permissions: "rw-p".to_owned(), path, ..MapLine::default()
                };
                layout.map(&line, 0);
            }
            let starts: Vec<_> = layout.mapped.values().map(|it| (it.line.start, it.line.end)).collect();
            prop_assert!(starts.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            let placed = layout.place(&counts(&addresses, 1 << bits), 1 << bits, true);
            prop_assert_eq!(placed.samples.iter().map(|it| it.weight as usize).sum::<usize>(), addresses.len());
            for sample in &placed.samples {
                prop_assert!(sample.bytes > 0 && sample.offset + u64::from(sample.bytes) <= placed.regions[sample.region as usize].bytes);
            }
            let names: BTreeSet<_> = placed.regions.iter().map(|it| &it.name).collect();
            prop_assert_eq!(names.len(), placed.regions.len());
        }
    }
}
