//! From counts of addresses to a recording: which regions there were, and which of them each stretch lies in.
//!
//! Perf tells what is mapped and never what is unmapped, so a mapping stays until another one takes its place. What lies in no
//! mapping that is known makes regions of its own, wherever addresses lie close together.

use std::collections::{BTreeMap, HashMap, HashSet};

use tiermem_trace::recording::{NODE_UNKNOWN, Region, RegionKind, Sample};

use super::line::Mapping;
use super::table::{Row, Tally, What};
use crate::capture::maps::MapLine;
use crate::capture::regions::Regions;

/// Addresses that lie further apart belong to different regions.
const GAP_BYTES: u64 = 64 << 20;
/// Mappings that are remembered.
const EVENTS_MAX: usize = 1 << 20;

/// A mapping, its slice and its process.
#[derive(Clone, Debug)]
struct Event {
    slice: i32,
    pid: u32,
    line: MapLine,
}

/// Mappings of processes in the order of the text.
#[derive(Debug, Default)]
pub(super) struct Events {
    list: Vec<Event>,
    build_ids: HashMap<String, String>,
    /// Those that found no room.
    pub left_out: u64,
}

impl Events {
    /// Takes one in, unless it is the kernel's.
    pub fn push(&mut self, slice: i32, mapping: &Mapping<'_>) {
        let Some(pid) = mapping.pid else { return };
        if self.list.len() >= EVENTS_MAX {
            self.left_out += 1;
            return;
        }
        let path = String::from_utf8_lossy(mapping.path).into_owned();
        let is_file = !matches!(path.as_str(), "" | "//anon" | "//anon_hugepage");
        if let Some(id) = mapping.build_id.filter(|_| is_file) {
            self.build_ids.insert(path.clone(), String::from_utf8_lossy(id).into_owned());
        }
        let line = MapLine {
            start: mapping.start,
            end: mapping.end,
            permissions: String::from_utf8_lossy(mapping.permissions).into_owned(),
            // That of memory without a file is its address.
            offset: if is_file { mapping.offset } else { 0 },
            device: String::new(),
            inode: mapping.inode,
            path: is_file.then_some(path),
        };
        self.list.push(Event { slice, pid, line });
    }

    /// Adds those of a later part of the text.
    pub fn append(&mut self, mut later: Events) {
        later.list.truncate(EVENTS_MAX - self.list.len().min(EVENTS_MAX));
        self.list.append(&mut later.list);
        self.build_ids.extend(later.build_ids);
        self.left_out += later.left_out;
    }

    /// Whether a process has any.
    fn has(&self, pid: u32) -> bool {
        self.list.iter().any(|event| event.pid == pid)
    }
}

/// Where regions come from.
pub(super) enum Known {
    /// The mappings of one moment.
    Maps(Vec<MapLine>),
    /// Those of one process, as it made them.
    Events(Events, Option<u32>),
}

/// What an address space has, by first addresses.
#[derive(Default)]
struct Space(BTreeMap<u64, MapLine>);

impl Space {
    fn map(&mut self, line: MapLine) {
        let before = self.0.range(..line.end).rev().take_while(|(_, old)| old.end > line.start);
        let overlapped: Vec<u64> = before.map(|(start, _)| *start).collect();
        for start in overlapped {
            let Some(old) = self.0.remove(&start) else { continue };
            if old.end > line.end {
                let offset =
                    old.offset.wrapping_add(if old.path.is_some() { line.end - old.start } else { 0 });
                self.0.insert(line.end, MapLine { start: line.end, offset, ..old.clone() });
            }
            if old.start < line.start {
                self.0.insert(old.start, MapLine { end: line.start, ..old });
            }
        }
        self.0.insert(line.start, line);
    }

    fn lines(&self) -> Vec<MapLine> {
        self.0.values().cloned().collect()
    }
}

/// Where a row lies.
#[derive(Clone, Copy)]
enum Place {
    /// In a region that is known, under its number while it was looked for.
    Known(u32),
    /// In one of those that addresses make.
    Cluster(u32),
}

/// Regions and samples. `rows` are in order, those of a slice and of an address together.
pub(super) fn build(
    rows: &[Row],
    known: Known,
    first_slice: i32,
    unit_bytes: u64,
    granule_bytes: u64,
) -> (Vec<Region>, Vec<Sample>) {
    let slice_of = |row: &Row| row.slice.wrapping_sub(first_slice).cast_unsigned();
    let mut regions = Regions::default();
    // The part of each row's stretch that lies in its region.
    let mut found: Vec<Option<(u32, u64)>> = Vec::with_capacity(rows.len());
    let mut parts = Vec::new();
    let mut find = |regions: &Regions, row: &Row| {
        parts.clear();
        regions.overlapping(row.address, row.address.saturating_add(unit_bytes), &mut parts);
        parts.first().map(|(region, from, _)| (*region, *from))
    };
    let mut build_ids = HashMap::new();
    match known {
        Known::Maps(mut lines) => {
            lines.sort_by_key(|line| line.start);
            regions.update(&lines, 0);
            found.extend(rows.iter().map(|row| find(&regions, row)));
        }
        Known::Events(events, pid) => {
            let pid = pid.filter(|pid| events.has(*pid));
            build_ids = events.build_ids;
            let mut events = events.list.into_iter().filter(|event| Some(event.pid) == pid).peekable();
            let mut space = Space::default();
            for rows in rows.chunk_by(|one, next| one.slice == next.slice) {
                let slice = rows[0].slice;
                let mut is_new = false;
                while let Some(event) = events.next_if(|event| event.slice <= slice) {
                    space.map(event.line);
                    is_new = true;
                }
                if is_new {
                    regions.update(&space.lines(), slice_of(&rows[0]));
                }
                found.extend(rows.iter().map(|row| find(&regions, row)));
            }
        }
    }
    let (mut list, places) = regions.finish_with(|path| path.and_then(|path| build_ids.get(path)).cloned());
    let last_slice = rows.last().map_or(0, slice_of);
    list.iter_mut().for_each(|region| region.last_slice = last_slice);
    let clusters = Clusters::of(rows, &found, &list, unit_bytes);
    let known_count = list.len() as u32;
    list.extend(clusters.regions(&list));
    let mut samples = Vec::new();
    let mut of_slice: Vec<(u32, u64, What, Tally)> = Vec::new();
    let mut at = 0;
    for rows in rows.chunk_by(|one, next| one.slice == next.slice) {
        of_slice.clear();
        for row in rows {
            let place = match found[at] {
                Some((region, from)) => Some((Place::Known(region), from)),
                None => clusters.find(row.address).map(|cluster| (Place::Cluster(cluster), row.address)),
            };
            at += 1;
            let Some((place, address)) = place else { continue };
            let region = match place {
                Place::Known(region) => places[region as usize],
                Place::Cluster(cluster) => known_count + cluster,
            };
            let start = list[region as usize].start;
            let granule = address.saturating_sub(start) / granule_bytes;
            let described = &mut list[region as usize];
            if place.is_cluster() && described.first_slice == u32::MAX {
                described.first_slice = slice_of(row);
            }
            of_slice.push((region, granule * granule_bytes, row.what, row.tally));
        }
        of_slice.sort_unstable_by_key(|(region, offset, what, _)| (*region, *offset, *what));
        for same in of_slice.chunk_by(|one, next| (one.0, one.1, one.2) == (next.0, next.1, next.2)) {
            let mut tally = Tally::default();
            same.iter().for_each(|(.., part)| tally.add(*part));
            let (region, offset, what, _) = same[0];
            samples.push(Sample {
                slice: slice_of(&rows[0]),
                region,
                offset,
                bytes: granule_bytes.min(list[region as usize].bytes - offset) as u32,
                weight: tally.count as f32,
                latency_cycles: if tally.timed == 0 {
                    0.0
                } else {
                    (tally.cycles as f64 / tally.timed as f64) as f32
                },
                source: 0,
                op: what.op,
                level: what.level,
                mode: what.mode,
                node: NODE_UNKNOWN,
            });
        }
    }
    (list, samples)
}

impl Place {
    fn is_cluster(self) -> bool {
        matches!(self, Place::Cluster(_))
    }
}

/// Addresses that lie close together: starts and ends, in order.
struct Clusters {
    ranges: Vec<(u64, u64)>,
    last_slice: u32,
}

impl Clusters {
    fn of(rows: &[Row], found: &[Option<(u32, u64)>], known: &[Region], unit_bytes: u64) -> Self {
        let outside = rows.iter().zip(found).filter(|(_, found)| found.is_none());
        let mut addresses: Vec<u64> = outside.map(|(row, _)| row.address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let mut starts: Vec<u64> = known.iter().map(|region| region.start).collect();
        starts.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for address in addresses {
            let end = address.saturating_add(unit_bytes);
            if let Some(last) = ranges.last_mut()
                && address - last.1.min(address) <= GAP_BYTES
                // Whatever is mapped between is a region that they must not overlap.
                && starts.partition_point(|start| *start < last.1) == starts.partition_point(|start| *start < address)
            {
                last.1 = end;
            } else {
                ranges.push((address, end));
            }
        }
        let last_slice = match (rows.first(), rows.last()) {
            (Some(first), Some(last)) => last.slice.wrapping_sub(first.slice).cast_unsigned(),
            _ => 0,
        };
        Clusters { ranges, last_slice }
    }

    fn find(&self, address: u64) -> Option<u32> {
        let at = self.ranges.partition_point(|(start, _)| *start <= address).checked_sub(1)?;
        (address < self.ranges[at].1).then_some(at as u32)
    }

    fn regions(&self, known: &[Region]) -> Vec<Region> {
        let taken: HashSet<&str> = known.iter().map(|region| region.name.as_str()).collect();
        let mut names =
            (1_u64..).map(|number| format!("region {number}")).filter(|name| !taken.contains(name.as_str()));
        let region = |(start, end): &(u64, u64)| Region {
            name: names.next().unwrap_or_default(),
            kind: if start >> 63 == 1 { RegionKind::Special } else { RegionKind::Anonymous },
            start: *start,
            bytes: end - start,
            first_slice: u32::MAX,
            last_slice: self.last_slice,
            ..Region::default()
        };
        self.ranges.iter().map(region).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(start: u64, end: u64, path: &str) -> MapLine {
        MapLine {
            start,
            end,
            permissions: "rw-p".to_owned(),
            path: Some(path.to_owned()),
            ..MapLine::default()
        }
    }

    #[test]
    fn a_mapping_takes_the_place_of_what_was_there() {
        let mut space = Space::default();
        space.map(line(0x1000, 0x9000, "/a"));
        space.map(line(0x3000, 0x4000, "/b"));
        space.map(line(0x8000, 0xa000, "/c"));
        let have: Vec<_> =
            space.lines().into_iter().map(|it| (it.start, it.end, it.offset, it.path.unwrap())).collect();
        let wanted = [
            (0x1000, 0x3000, 0, "/a".to_owned()),
            (0x3000, 0x4000, 0, "/b".to_owned()),
            (0x4000, 0x8000, 0x3000, "/a".to_owned()),
            (0x8000, 0xa000, 0, "/c".to_owned()),
        ];
        assert_eq!(have, wanted);
        space.map(line(0, u64::MAX, "/all"));
        assert_eq!(space.lines().len(), 1);
    }
}
