//! Touches as they come: their stacks unwound, and counted by place.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tiermem_stacks::{Code, Image, ProcessCode, UnwindCache, Unwound};
use tiermem_sys::perf::{StackCopy, TouchChange, TouchEvent};

use super::super::mappings::maps::{self, MapLine};
use super::images::Images;

const PAGE_BYTES: u64 = 4096;
/// The largest stretch that is counted together to begin with.
const CELL_BYTES_MAX: u64 = 64 << 10;
/// More of them become half as many, twice as large.
const CELLS_MAX: usize = 128 << 10;
/// So many samples of a cell are enough for so long: later its memory may have been given back, and be touched by other code.
const CELL_SAMPLES: u32 = 16;
const ENOUGH_FOR: Duration = Duration::from_secs(10);
/// Different stacks that are kept; of those beyond only the innermost frames are.
const STACKS_MAX: usize = 16 << 10;
const FRAMES_BEYOND: usize = 4;
/// Least time between two looks at what a process has mapped.
const LOOKED_EVERY: Duration = Duration::from_secs(1);

/// A place: a process, and a number of cells from address 0 on.
type Place = (u32, u64);

/// A place that is touched.
#[derive(Debug)]
struct Cell {
    samples: u32,
    /// Since when they are counted.
    since: Instant,
    by_stack: Vec<CellTouches>,
}

/// Touches of a place by one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CellTouches {
    pub stack: u32,
    /// From the first page that was seen touched to the end of the last one.
    pub start: u64,
    pub end: u64,
    /// How many touches the samples stand for.
    pub touches: u64,
    /// When the first was.
    pub first: Instant,
}

#[derive(Default)]
struct Process {
    code: ProcessCode,
    /// Of this process alone: rules are found by address.
    cache: Box<UnwindCache>,
    looked: Option<Instant>,
}

/// What has been gathered so far.
pub(super) struct Gathering {
    cell_bytes: u64,
    cells: HashMap<Place, Cell>,
    processes: HashMap<u32, Process>,
    images: Images,
    stacks: Vec<Unwound>,
    numbers: HashMap<Vec<Code>, u32>,
    sampled: u64,
    not_unwound: u64,
}

/// All that was gathered.
#[derive(Debug)]
pub(super) struct AllTouches {
    /// By process number in the system, in the order of places.
    pub touches: BTreeMap<u32, Vec<CellTouches>>,
    pub stacks: Vec<Unwound>,
    /// How many samples each stack has.
    pub samples: Vec<u64>,
    pub images: Vec<Arc<Image>>,
    pub sampled: u64,
    /// Touches without any frame.
    pub not_unwound: u64,
}

impl std::fmt::Debug for Gathering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gathering").field("sampled", &self.sampled).finish_non_exhaustive()
    }
}

impl Gathering {
    /// Of a recording with such granules.
    pub fn new(granule_bytes: u64) -> Self {
        Gathering {
            cell_bytes: granule_bytes.clamp(PAGE_BYTES, CELL_BYTES_MAX),
            cells: HashMap::new(),
            processes: HashMap::new(),
            images: Images::default(),
            stacks: Vec::new(),
            numbers: HashMap::new(),
            sampled: 0,
            not_unwound: 0,
        }
    }

    /// Whether the stack of a touch is wanted: where enough are known it is not.
    pub fn wants(&self, pid: u32, address: u64, now: Instant) -> bool {
        self.cells.get(&(pid, address / self.cell_bytes)).is_none_or(|cell| {
            cell.samples < CELL_SAMPLES || now.saturating_duration_since(cell.since) >= ENOUGH_FOR
        })
    }

    /// Takes in what has happened.
    pub fn take(&mut self, event: TouchEvent) {
        let TouchEvent { pid, at, change } = event;
        match change {
            TouchChange::Touched { address, touches, stack } => {
                self.sampled += 1;
                if let Some(stack) = stack {
                    self.touched(pid, at, address, touches, &stack);
                }
            }
            TouchChange::Mapped { start, bytes, file_offset, path } => {
                let line = MapLine {
                    start,
                    end: start.saturating_add(bytes),
                    offset: file_offset,
                    path: Some(path),
                    ..MapLine::default()
                };
                self.map(pid, &line);
            }
            TouchChange::Born { parent } => {
                let code = self.processes.get(&parent).map(|parent| parent.code.clone());
                self.processes.insert(pid, Process { code: code.unwrap_or_default(), ..Process::default() });
            }
            TouchChange::BeganProgram => {
                // What is at its places now is another program's.
                self.processes.insert(pid, Process::default());
            }
            TouchChange::Ended => {
                self.processes.remove(&pid);
            }
        }
    }

    fn map(&mut self, pid: u32, line: &MapLine) {
        let image = line.file().map(|path| self.images.of(pid, path));
        let image = image.as_ref().map(|(number, image)| (*number, image.as_ref(), line.offset));
        self.processes.entry(pid).or_default().code.map(line.start, line.end - line.start, image);
    }

    /// Looks at what a process has mapped of which nobody has told: it ran before, or records were lost.
    fn look(&mut self, pid: u32, now: Instant) {
        let process = self.processes.entry(pid).or_default();
        if process.looked.is_some_and(|before| now.saturating_duration_since(before) < LOOKED_EVERY) {
            return;
        }
        process.looked = Some(now);
        let Ok(text) = fs::read(format!("/proc/{pid}/maps")) else { return };
        let Ok(lines) = maps::parse(&String::from_utf8_lossy(&text)) else { return };
        for line in lines.iter().filter(|line| line.is_code()) {
            if !self.processes.get(&pid).is_some_and(|process| process.code.knows(line.start)) {
                self.map(pid, line);
            }
        }
    }

    fn touched(&mut self, pid: u32, at: Instant, address: u64, touches: u64, stack: &StackCopy) {
        if !self.processes.get(&pid).is_some_and(|process| process.code.knows(stack.ip)) {
            self.look(pid, at);
        }
        let process = self.processes.entry(pid).or_default();
        // The kernel itself, which lays out the stack of a program that is about to begin.
        if process.code.is_empty() {
            return;
        }
        let unwound = process.code.unwind(&mut process.cache, [stack.ip, stack.sp, stack.bp], &stack.words);
        if unwound.frames.is_empty() {
            self.not_unwound += 1;
            return;
        }
        let stack = self.number(unwound);
        let place = (pid, address / self.cell_bytes);
        let cell =
            self.cells.entry(place).or_insert_with(|| Cell { samples: 0, since: at, by_stack: Vec::new() });
        if at.saturating_duration_since(cell.since) >= ENOUGH_FOR {
            (cell.samples, cell.since) = (0, at);
        }
        cell.samples += 1;
        let start = address & !(PAGE_BYTES - 1);
        let new = CellTouches { stack, start, end: start.saturating_add(PAGE_BYTES), touches, first: at };
        cell.add(new);
        if self.cells.len() > CELLS_MAX {
            self.coarsen();
        }
    }

    /// The number of a stack.
    fn number(&mut self, mut stack: Unwound) -> u32 {
        if self.stacks.len() >= STACKS_MAX && !self.numbers.contains_key(&stack.frames) {
            stack.frames.truncate(FRAMES_BEYOND);
            stack.is_complete = false;
        }
        let next = self.stacks.len() as u32;
        *self.numbers.entry(stack.frames.clone()).or_insert_with(|| {
            self.stacks.push(stack);
            next
        })
    }

    /// Makes cells twice as large, so that there is room for more.
    fn coarsen(&mut self) {
        self.cell_bytes *= 2;
        for ((pid, number), cell) in std::mem::take(&mut self.cells) {
            match self.cells.entry((pid, number / 2)) {
                std::collections::hash_map::Entry::Vacant(place) => {
                    place.insert(cell);
                }
                std::collections::hash_map::Entry::Occupied(mut other) => {
                    let other = other.get_mut();
                    other.samples = other.samples.saturating_add(cell.samples);
                    cell.by_stack.into_iter().for_each(|touches| other.add(touches));
                }
            }
        }
    }

    /// All that was gathered, in the order of places.
    pub fn finish(self) -> AllTouches {
        let mut touches: BTreeMap<u32, Vec<CellTouches>> = BTreeMap::new();
        let mut samples = vec![0; self.stacks.len()];
        for ((pid, _), cell) in self.cells {
            for it in cell.by_stack {
                samples[it.stack as usize] += 1;
                touches.entry(pid).or_default().push(it);
            }
        }
        for of_process in touches.values_mut() {
            of_process.sort_by_key(|it| (it.start, it.stack));
        }
        let Gathering { stacks, images, sampled, not_unwound, .. } = self;
        AllTouches { touches, stacks, samples, images: images.into_all(), sampled, not_unwound }
    }
}

impl Cell {
    fn add(&mut self, new: CellTouches) {
        match self.by_stack.iter_mut().find(|it| it.stack == new.stack) {
            Some(before) => {
                before.start = before.start.min(new.start);
                before.end = before.end.max(new.end);
                before.touches = before.touches.saturating_add(new.touches);
                before.first = before.first.min(new.first);
            }
            None => self.by_stack.push(new),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(pid: u32, address: u64, ip: u64, at: Instant) -> TouchEvent {
        let stack = Some(StackCopy { ip, sp: 0x7000, bp: 0, words: Vec::new() });
        TouchEvent { pid, at, change: TouchChange::Touched { address, touches: 3, stack } }
    }

    /// A process with code at 0x1000 that is no file's.
    fn gathering(pid: u32, at: Instant) -> Gathering {
        let mut gathering = Gathering::new(4 << 20);
        let path = "/no/such/file".to_owned();
        let change = TouchChange::Mapped { start: 0x1000, bytes: 0x1000, file_offset: 0, path };
        gathering.take(TouchEvent { pid, at, change });
        gathering
    }

    #[test]
    fn touches_are_counted_by_place_and_stack_and_enough_are_enough() {
        let begun = Instant::now();
        let pid = u32::MAX;
        let mut gathering = gathering(pid, begun);
        for page in 0..CELL_SAMPLES {
            assert!(gathering.wants(pid, 0x50_0000, begun));
            let ip = 0x1000 + u64::from(page % 2);
            gathering.take(touch(pid, 0x50_0000 + u64::from(page) * 4096, ip, begun));
        }
        assert!(!gathering.wants(pid, 0x50_0000, begun) && gathering.wants(pid, 0x51_0000, begun));
        assert!(gathering.wants(1, 0x50_0000, begun));
        // Later on it may be another's.
        let later = begun + ENOUGH_FOR;
        assert!(gathering.wants(pid, 0x50_0000, later));
        gathering.take(touch(pid, 0x50_0000, 0x1000, later));
        assert!(gathering.wants(pid, 0x50_0000, later));
        // Nothing is executed there.
        gathering.take(touch(pid, 0x90_0000, 0x9999_0000, begun));
        let all = gathering.finish();
        let touches = &all.touches[&pid];
        let told: Vec<(u64, u64, u64)> = touches.iter().map(|it| (it.start, it.end, it.touches)).collect();
        assert_eq!(told, [(0x50_0000, 0x50_f000, 27), (0x50_1000, 0x51_0000, 24)]);
        assert_eq!((all.sampled, all.not_unwound, all.stacks.len()), (18, 1, 2));
    }

    #[test]
    fn children_have_the_code_of_their_parents_until_they_begin_a_program() {
        let now = Instant::now();
        let (parent, child) = (u32::MAX, u32::MAX - 1);
        let mut gathering = gathering(parent, now);
        gathering.take(TouchEvent { pid: child, at: now, change: TouchChange::Born { parent } });
        gathering.take(touch(child, 0x10_0000, 0x1000, now));
        gathering.take(TouchEvent { pid: child, at: now, change: TouchChange::BeganProgram });
        gathering.take(touch(child, 0x20_0000, 0x1000, now));
        gathering.take(TouchEvent { pid: parent, at: now, change: TouchChange::Ended });
        gathering.take(touch(parent, 0x30_0000, 0x1000, now));
        let all = gathering.finish();
        let told: Vec<(u32, u64)> = all.touches.iter().map(|(pid, of)| (*pid, of[0].start)).collect();
        assert_eq!((told, all.sampled, all.not_unwound), (vec![(child, 0x10_0000)], 3, 0));
    }

    #[test]
    fn large_programs_are_told_more_coarsely() {
        let now = Instant::now();
        let pid = u32::MAX;
        let mut gathering = gathering(pid, now);
        for cell in 0..=CELLS_MAX as u64 {
            gathering.take(touch(pid, cell * CELL_BYTES_MAX, 0x1000, now));
        }
        assert_eq!((gathering.cell_bytes, gathering.cells.len()), (2 * CELL_BYTES_MAX, CELLS_MAX / 2 + 1));
        let all = gathering.finish();
        assert_eq!(all.touches[&pid].iter().map(|it| it.touches).sum::<u64>(), 3 * (CELLS_MAX as u64 + 1));
        assert_eq!((all.touches[&pid][0].start, all.touches[&pid][0].end), (0, CELL_BYTES_MAX + PAGE_BYTES));
    }
}
