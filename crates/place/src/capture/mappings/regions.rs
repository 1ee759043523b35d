//! Regions of a running program: which of its mappings belong together, and their history.
//!
//! The kernel's mappings are finer than a program's own view: the recorder splits them into
//! granules, protections differ, allocators grow. So adjacent mappings of one kind are one
//! region, and a region that overlaps an earlier one is the same region, grown or shrunk.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use tiermem_model::placement::PlannedRegion;
use tiermem_trace::recording::{self, Candidate, NumberedRegion, Region, RegionKind};

use super::super::build_id;
use super::super::options::Closer;
use super::maps::MapLine;
use super::naming::{self, Names};

/// The regions that a program has or had.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    known: Vec<Known>,
    /// What is mapped of them, in the order of addresses. A region with a hole, as the program has given back a part of it, is
    /// there twice.
    current: Vec<Run>,
    /// Build-ids of their files, as far as they were requested.
    build_ids: HashMap<u32, Option<String>>,
    names: Names,
}

#[derive(Clone, Debug)]
struct Known {
    /// All of it, as if it were one mapping.
    line: MapLine,
    /// Where its granules are counted from: where it started when it was first seen, or when it had become a larger one.
    origin: u64,
    first_slice: u32,
    last_slice: u32,
    /// The region that it became a part of.
    within: Option<u32>,
    /// Its name; empty until the end of the slice in which it appeared.
    name: String,
    /// Accesses, those of a slice counted half as much after each further one.
    heat: f64,
    /// The thread that mapped it, if that is known.
    owner: Option<u32>,
}

/// A stretch of addresses of one region.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    end: u64,
    region: u32,
}

/// Adds a mapping, to the one before it if it continues that.
fn append(runs: &mut Vec<MapLine>, line: MapLine, owners: &BTreeMap<u64, u32>) {
    match runs.last_mut().filter(|last| last.goes_on_with(&line) && !owners.contains_key(&line.start)) {
        Some(last) => last.end = line.end,
        None => runs.push(line),
    }
}

/// Whether anything can be accessed there.
fn is_accessible(line: &MapLine) -> bool {
    line.permissions.starts_with('r') || line.permissions.contains(['w', 'x'])
}

impl Regions {
    /// Takes in the mappings that the program has now, in the order of addresses, and where the memory of a thread begins within them,
    /// and of which: there a region ends, though the mapping goes on.
    pub fn update(&mut self, lines: &[MapLine], owners: &BTreeMap<u64, u32>, slice: u32) {
        let mut runs: Vec<MapLine> = Vec::new();
        for line in lines.iter().filter(|line| is_accessible(line)) {
            let mut line = line.clone();
            for (&at, _) in owners.range(line.start + 1..line.end) {
                let rest = MapLine { start: at, offset: line.offset + (at - line.start), ..line.clone() };
                line.end = at;
                append(&mut runs, std::mem::replace(&mut line, rest), owners);
            }
            append(&mut runs, line, owners);
        }
        let before = std::mem::take(&mut self.current);
        // What is at a region's place is this region, unless it is another thread's and the region is there without it.
        let owner = |run: &MapLine| owners.get(&run.start).copied();
        let claims = self.claims(&before, &runs, owners);
        let mut from = 0;
        for run in runs {
            // Both are in the order of addresses, so regions that end before this run do not matter for later ones.
            while before.get(from).is_some_and(|it| it.end <= run.start) {
                from += 1;
            }
            let overlapping = before[from..].iter().take_while(|it| it.start < run.end);
            let mut same: Vec<u32> = overlapping
                .map(|it| whole(&self.known, it.region))
                .filter(|id| self.is_same(*id, &run))
                .filter(|id| {
                    let own = self.known[*id as usize].owner;
                    own.is_none()
                        || owner(&run).is_none()
                        || owner(&run) == own
                        || !claims.contains(&(*id, own))
                })
                .collect();
            // The oldest stays. Regions merged into another one are never
            // used for a region again, so that chains of merges end.
            same.sort_unstable();
            same.dedup();
            let (start, end) = (run.start, run.end);
            let region = match same.split_first() {
                None => {
                    let (origin, first_slice, last_slice) = (run.start, slice, slice);
                    let (within, name, heat, owner) = (None, String::new(), 0.0, None);
                    let line = run.clone();
                    self.known.push(Known {
                        line,
                        origin,
                        first_slice,
                        last_slice,
                        within,
                        name,
                        heat,
                        owner,
                    });
                    self.known.len() as u32 - 1
                }
                Some((&first, others)) => {
                    self.grow(first, &run, slice);
                    for &other in others {
                        let MapLine { start, end, offset, .. } = self.known[other as usize].line;
                        self.known[other as usize].within = Some(first);
                        let name = std::mem::take(&mut self.known[other as usize].name);
                        let heat = self.known[other as usize].heat;
                        let Known { line: into, name: own, heat: own_heat, .. } =
                            &mut self.known[first as usize];
                        *own_heat += heat;
                        // What is known by a name already keeps it.
                        if own.is_empty() {
                            *own = name;
                        }
                        if start < into.start {
                            (into.start, into.offset) = (start, offset);
                        }
                        into.end = into.end.max(end);
                    }
                    first
                }
            };
            if let Some(thread) = owner(&run) {
                self.known[region as usize].owner = Some(thread);
            }
            self.current.push(Run { start, end, region });
        }
        let Regions { known, current, .. } = self;
        current.iter_mut().for_each(|run| run.region = whole(known, run.region));
    }

    /// Which regions of before each thread has memory in now.
    fn claims(
        &self,
        before: &[Run],
        runs: &[MapLine],
        owners: &BTreeMap<u64, u32>,
    ) -> BTreeSet<(u32, Option<u32>)> {
        let mut claims = BTreeSet::new();
        let mut from = 0;
        for run in runs.iter().filter(|_| !owners.is_empty()) {
            from += before[from..].iter().take_while(|it| it.end <= run.start).count();
            let overlapping = before[from..].iter().take_while(|it| it.start < run.end);
            let owner = owners.get(&run.start).copied();
            claims.extend(overlapping.map(|it| (whole(&self.known, it.region), owner)));
        }
        claims
    }

    fn is_same(&self, id: u32, run: &MapLine) -> bool {
        let Known { line, within, .. } = &self.known[id as usize];
        let lines_up = line.file().is_none()
            || line.offset.wrapping_sub(line.start) == run.offset.wrapping_sub(run.start);
        within.is_none() && line.is_same_thing(run) && line.permissions == run.permissions && lines_up
    }

    fn grow(&mut self, id: u32, run: &MapLine, slice: u32) {
        let known = &mut self.known[id as usize];
        let line = &mut known.line;
        if run.start < line.start {
            // Memory is given out downward, so a large allocation may make one of a small one above it: what is large has its
            // own start as the origin.
            if line.start - run.start > line.end - line.start {
                known.origin = run.start;
            }
            (line.start, line.offset) = (run.start, run.offset);
        }
        line.end = line.end.max(run.end);
        known.last_slice = slice;
    }

    /// Forgets what is there: the program has begun another one, in an address space of its own.
    pub fn begin_anew(&mut self) {
        self.current.clear();
    }

    /// The region of an address, as of the last update.
    pub fn find(&self, address: u64) -> Option<u32> {
        let at = self.current.partition_point(|run| run.start <= address);
        let run = self.current.get(at.checked_sub(1)?)?;
        (address < run.end).then_some(run.region)
    }

    /// Adds the parts of a stretch of addresses that lie in regions, each with its region, start and end.
    pub fn overlapping(&self, start: u64, end: u64, parts: &mut Vec<(u32, u64, u64)>) {
        let first = self.current.partition_point(|run| run.end <= start);
        let overlapping = self.current[first..].iter().take_while(|run| run.start < end);
        parts.extend(overlapping.map(|run| (run.region, start.max(run.start), end.min(run.end))));
    }

    /// The regions that are there: number, start, and what a plan knows of them.
    pub fn planned(&mut self) -> Vec<(u32, u64, PlannedRegion)> {
        let Regions { known, current, build_ids, .. } = self;
        let mut of = |id: &u32| {
            let line = &known[*id as usize].line;
            let build_id = build_ids.entry(*id).or_insert_with(|| build_id(line)).clone();
            let region = Region { build_id, ..naming::region(line, 0, 0) };
            (*id, line.start, crate::plan::planned(&region))
        };
        // In the order of addresses, as in a recording: it distinguishes regions of the same kind.
        let mut ids: Vec<u32> = current.iter().map(|run| run.region).collect();
        ids.sort_unstable_by_key(|id| (known[*id as usize].line.start, *id));
        ids.dedup();
        ids.iter().map(&mut of).collect()
    }

    /// The mapped stretches of a region, start and end of each, in the order of addresses.
    pub fn mapped(&self, region: u32) -> Vec<(u64, u64)> {
        self.current.iter().filter(|run| run.region == region).map(|run| (run.start, run.end)).collect()
    }

    /// Where a region's granules are counted from; it may have grown downward since.
    pub fn origin(&self, id: u32) -> u64 {
        self.known[id as usize].origin
    }

    /// Whether its mappings are memory of the program's own or of a file's, which sources can look at.
    pub fn is_memory(&self, id: u32) -> bool {
        naming::kind(&self.known[id as usize].line) != RegionKind::Special
    }

    /// Gives names to regions that are mapped and have none. Where a program's memory lies differs from run to run, so what has
    /// no name of its own is numbered as it appears, and the largest first of what appeared in one slice.
    fn name_new(&mut self) {
        let Regions { known, current, names, .. } = self;
        // As much of each as is mapped: what was there for a moment, in one run and not in the next, does not count.
        let mut new: BTreeMap<u32, u64> = BTreeMap::new();
        for run in current.iter().filter(|run| known[run.region as usize].name.is_empty()) {
            *new.entry(run.region).or_default() += run.end - run.start;
        }
        let key = |(id, bytes): &(u32, u64)| {
            let Known { line, first_slice, .. } = &known[*id as usize];
            match naming::kind(line) {
                RegionKind::Anonymous => (*first_slice, Reverse(*bytes), Reverse(line.start), *id),
                // Parts of a file lie in the same order wherever it is mapped.
                _ => (*first_slice, Reverse(u64::MAX), Reverse(u64::MAX - line.start), *id),
            }
        };
        let mut new: Vec<(u32, u64)> = new.into_iter().collect();
        new.sort_unstable_by_key(key);
        let new: Vec<u32> = new.into_iter().map(|(id, _)| id).collect();
        names.learn(new.iter().map(|id| &known[*id as usize].line));
        for id in new {
            let line = &known[id as usize].line;
            let at = current.partition_point(|run| run.end < line.start);
            let before = current.get(at).filter(|run| run.end == line.start && run.region != id);
            let name = names.name(line, before.map(|run| &known[run.region as usize].line));
            known[id as usize].name = name;
        }
    }

    /// All that there is, is there in this slice too.
    pub fn remain(&mut self, slice: u32) {
        for it in &self.current {
            let region = whole(&self.known, it.region);
            self.known[region as usize].last_slice = slice;
        }
    }

    /// Takes in that a slice has passed, before its accesses.
    pub fn cool(&mut self) {
        self.known.iter_mut().for_each(|it| it.heat /= 2.0);
    }

    /// Takes in accesses to a region.
    pub fn heat(&mut self, region: u32, accesses: f64) {
        self.known[region as usize].heat += accesses;
    }

    /// The regions that a name means now, by number; of all that were ever seen if `ever`. `held` was the hottest one before: it stays
    /// until another one is half as hot again, so that what is looked at more closely does not change with each slice. A region of one
    /// granule is never the hottest: there is nothing to look at more closely.
    pub fn choose(&self, closer: &Closer, held: Option<u32>, ever: bool) -> Vec<u32> {
        let mut ids: Vec<u32> = match ever {
            true => {
                (0..self.known.len() as u32).filter(|id| self.known[*id as usize].within.is_none()).collect()
            }
            false => self.current.iter().map(|run| run.region).collect(),
        };
        ids.sort_unstable();
        ids.dedup();
        let candidate = |id: &u32| {
            let Known { line, name, heat, .. } = &self.known[*id as usize];
            let bytes = line.end - line.start;
            let accesses = match held {
                _ if bytes <= closer.granule_bytes => 0.0,
                Some(held) if held == *id => heat * 1.5,
                _ => *heat,
            };
            Candidate { name, kind: naming::kind(line), path: line.file(), bytes, accesses }
        };
        let candidates: Vec<Candidate<'_>> = ids.iter().map(candidate).collect();
        recording::choose(&closer.name, &candidates).into_iter().map(|at| ids[at]).collect()
    }

    /// How many there are or were: their numbers are below.
    pub fn count(&self) -> usize {
        self.known.len()
    }

    /// The names of all that were ever seen.
    pub fn names(&self) -> Vec<String> {
        let named = self.known.iter().filter(|it| it.within.is_none() && !it.name.is_empty());
        named.map(|it| it.name.clone()).collect()
    }

    /// The regions as they are now, for a recording: those that were named, which are all that anything was seen in.
    pub fn numbered(&mut self) -> Vec<NumberedRegion> {
        self.name_new();
        let Regions { known, current, build_ids, .. } = self;
        let mut is_mapped = vec![false; known.len()];
        current.iter().for_each(|run| is_mapped[run.region as usize] = true);
        let mut numbered = Vec::new();
        for (number, (it, is_mapped)) in (0..).zip(known.iter().zip(is_mapped)) {
            if it.name.is_empty() && it.within.is_none() {
                continue;
            }
            let id = number;
            let build_id = build_ids.entry(id).or_insert_with(|| build_id(&it.line)).clone();
            let region = naming::region(&it.line, it.first_slice, it.last_slice);
            let region = Region { name: it.name.clone(), build_id, ..region };
            numbered.push(NumberedRegion { number, within: it.within, is_mapped, region });
        }
        numbered
    }
}

/// Of what is mapped. A file that was deleted is not the one that bears its name by now, such as a library that was replaced.
fn build_id(line: &MapLine) -> Option<String> {
    build_id::of_path(line.path.as_deref())
}

/// The region that one has become a part of, or itself.
fn whole(known: &[Known], mut id: u32) -> u32 {
    while let Some(within) = known[id as usize].within {
        id = within;
    }
    id
}

#[cfg(test)]
mod tests;
