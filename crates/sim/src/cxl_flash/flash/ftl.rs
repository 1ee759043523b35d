//! Flash translation layer: which unit of flash holds which line of the capacity.
//!
//! Page-level mapping with a write log: evicted lines gather in DRAM until they fill a flash page, which is programmed on the
//! next plane in turn. Lines that were never written lie where their number puts them. A pure state machine: it returns the
//! commands to carry out and is told when they are done.

use super::blocks::{Blocks, NONE, State, Writer};
use super::garbage_collection::{self, Job, Rules};
use super::geometry::Geometry;
use super::scheduler::{Command, Origin};
use super::timing::Operation;

/// Counts, in units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Written for the host.
    pub host_writes: u64,
    /// Moved by cleaning and wear levelling.
    pub moves: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Blocks emptied for the sake of wear alone.
    pub wear_moves: u64,
}

/// Lines that are programmed together, as long as that takes.
#[derive(Clone, Debug, Default)]
struct Program {
    places: Vec<u32>,
    plane: u32,
}

/// Pages of a block that is emptied whose reads may be under way at once.
const READ_AHEAD: usize = 4;

/// The mapping and what is under way in it.
#[derive(Clone, Debug)]
pub struct Ftl {
    geometry: Geometry,
    rules: Rules,
    blocks: Blocks,
    /// The unit of each page of the table of pages that was written; `NONE`: where its number puts it.
    units: Vec<u32>,
    jobs: Vec<Option<Job>>,
    programs: Vec<Program>,
    free_programs: Vec<u32>,
    turn: u64,
    counts: Counts,
}

/// The table of pages, as far as the mapping needs it.
pub trait Places {
    /// The number in the table of the page with this number in the device.
    fn place_of(&mut self, number: u64) -> u32;
    /// The number in the table of the page with this number in the device, if the page is in the table already.
    fn find_place(&self, number: u64) -> Option<u32>;
    /// The number in the device of a page of the table.
    fn number_of(&self, place: u32) -> u64;
}

impl Ftl {
    /// A device as it is before the first request.
    pub fn new(geometry: Geometry, rules: Rules) -> Self {
        Ftl {
            blocks: Blocks::new(geometry, rules.filled_units, rules.dynamic),
            geometry,
            rules,
            units: Vec::new(),
            jobs: vec![None; geometry.plane_count() as usize],
            programs: Vec::new(),
            free_programs: Vec::new(),
            turn: 0,
            counts: Counts::default(),
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The most and the least that blocks were erased.
    pub fn wear(&self) -> (u32, u32) {
        let erases = || {
            (0..self.geometry.plane_count())
                .flat_map(|plane| self.blocks.of_plane(plane).map(|(_, block)| block.erases))
        };
        (erases().max().unwrap_or(0), erases().min().unwrap_or(0))
    }

    /// Whether a plane of this die is short of free blocks.
    pub fn is_urgent(&self, die: u32) -> bool {
        let first = die * self.geometry.planes;
        (first..first + self.geometry.planes).any(|plane| self.blocks.is_urgent(plane))
    }

    /// Where a line lies before it is written for the first time.
    fn initial_unit(&self, number: u64) -> u32 {
        let planes = u64::from(self.geometry.plane_count());
        let at = self.geometry.in_turn(number % planes);
        let plane = u64::from(self.geometry.plane_number(at));
        (plane * self.geometry.units_per_plane() + number / planes) as u32
    }

    /// The number of the line that lies in a unit of a block that was filled beforehand.
    fn initial_number(&self, unit: u32) -> u64 {
        let per_plane = self.geometry.units_per_plane();
        let plane = (u64::from(unit) / per_plane) as u32;
        let turn = self.geometry.turn_of(self.geometry.plane_at(plane));
        u64::from(unit) % per_plane * u64::from(self.geometry.plane_count()) + turn
    }

    fn command(&self, operation: Operation, origin: Origin, unit: u32, units: u32, tag: u32) -> Command {
        let block = self.blocks.block_of(unit);
        let at = self.geometry.plane_at(self.blocks.plane_of(block));
        let page = unit % self.geometry.units_per_block() / self.geometry.units_per_page;
        Command {
            operation,
            origin,
            die: at.die,
            plane: at.plane,
            page,
            bytes: units * self.geometry.unit_bytes,
            tag,
        }
    }

    /// The command that reads a line.
    pub fn read(&self, place: u32, number: u64, tag: u32) -> Command {
        let unit = self.unit_of(place).unwrap_or_else(|| self.initial_unit(number));
        self.command(Operation::Read, Origin::Host, unit, 1, tag)
    }

    fn unit_of(&self, place: u32) -> Option<u32> {
        self.units.get(place as usize).copied().filter(|unit| *unit != NONE)
    }

    /// Whether the unit holds the current data of a line.
    fn is_current(&self, unit: u32, places: &impl Places) -> bool {
        match self.blocks.owner(unit) {
            Some(NONE) => false,
            Some(place) => self.unit_of(place) == Some(unit),
            None => {
                let number = self.initial_number(unit);
                let written = || places.find_place(number).and_then(|place| self.unit_of(place)).is_some();
                number < self.rules.filled_units && !written()
            }
        }
    }

    /// The line whose current data the unit holds, if it does; a line that was not requested yet gets a place.
    fn current(&self, unit: u32, places: &mut impl Places) -> Option<u32> {
        if !self.is_current(unit, places) {
            return None;
        }
        Some(match self.blocks.owner(unit) {
            Some(place) => place,
            None => places.place_of(self.initial_number(unit)),
        })
    }

    fn map(&mut self, place: u32, unit: u32, places: &impl Places) {
        if self.units.len() <= place as usize {
            self.units.resize(place as usize + 1, NONE);
        }
        let before = std::mem::replace(&mut self.units[place as usize], unit);
        if before != NONE {
            self.blocks.invalidate(before);
        } else {
            let number = places.number_of(place);
            if number < self.rules.filled_units {
                self.blocks.invalidate(self.initial_unit(number));
            }
        }
    }

    fn program(
        &mut self,
        plane: u32,
        writer: Writer,
        lines: &[u32],
        places: &impl Places,
    ) -> Option<(Command, bool)> {
        let (unit, opened) = self.blocks.take(plane, writer, lines)?;
        for (unit, place) in (unit..).zip(lines) {
            self.map(*place, unit, places);
        }
        let id = self.free_programs.pop().unwrap_or_else(|| {
            self.programs.push(Program::default());
            (self.programs.len() - 1) as u32
        });
        let program = &mut self.programs[id as usize];
        program.plane = plane;
        program.places.clear();
        program.places.extend_from_slice(lines);
        let origin = if writer == Writer::Host { Origin::Host } else { Origin::Cleaning };
        Some((self.command(Operation::Program, origin, unit, lines.len() as u32, id), opened))
    }

    /// Writes lines to one page of the next plane in turn that has room; appends the commands. `false`: no plane has room
    /// before something is erased.
    pub fn write(&mut self, lines: &[u32], places: &mut impl Places, out: &mut Vec<Command>) -> bool {
        for _ in 0..self.geometry.plane_count() {
            let plane = self.geometry.plane_number(self.geometry.in_turn(self.turn));
            self.turn += 1;
            if self.blocks.has_room(plane, Writer::Host) {
                let Some((command, opened)) = self.program(plane, Writer::Host, lines, places) else {
                    continue;
                };
                self.counts.host_writes += lines.len() as u64;
                out.push(command);
                if opened {
                    self.clean_if_short(plane, places, out);
                }
                return true;
            }
            self.clean_if_short(plane, places, out);
        }
        false
    }

    /// A program of the host is done: the lines that it wrote.
    pub fn written(&mut self, tag: u32) -> &[u32] {
        self.free_programs.push(tag);
        &self.programs[tag as usize].places
    }

    fn clean_if_short(&mut self, plane: u32, places: &mut impl Places, out: &mut Vec<Command>) {
        if self.jobs[plane as usize].is_some()
            || self.blocks.free_of(plane) >= self.rules.free_blocks as usize
        {
            return;
        }
        if let Some(block) =
            garbage_collection::victim(&self.blocks, plane, self.rules.victim, &self.geometry)
        {
            self.empty(plane, block, places, out);
        }
    }

    fn empty(&mut self, plane: u32, block: u32, places: &mut impl Places, out: &mut Vec<Command>) {
        self.blocks.begin_emptying(block);
        self.jobs[plane as usize] = Some(Job::new(block));
        self.go_on(plane, places, out);
    }

    /// A command of cleaning is done.
    pub fn cleaned(&mut self, command: Command, places: &mut impl Places, out: &mut Vec<Command>) {
        match command.operation {
            Operation::Read => self.page_read(command.tag, places),
            Operation::Program => {
                let plane = self.programs[command.tag as usize].plane;
                self.free_programs.push(command.tag);
                if let Some(job) = &mut self.jobs[plane as usize] {
                    job.programs -= 1;
                }
                return self.go_on(plane, places, out);
            }
            Operation::Erase => return self.block_erased(command.tag, places, out),
        }
        self.go_on(command.tag, places, out);
    }

    /// A page of the block that is emptied has been read: what is still current waits to be written.
    fn page_read(&mut self, plane: u32, places: &mut impl Places) {
        let Some(mut job) = self.jobs[plane as usize].take() else { return };
        if let Some(first) = job.reading.pop_front() {
            for unit in first..first + self.geometry.units_per_page {
                if self.is_current(unit, places) {
                    job.gathered.push(unit);
                }
            }
        }
        self.jobs[plane as usize] = Some(job);
    }

    fn block_erased(&mut self, plane: u32, places: &mut impl Places, out: &mut Vec<Command>) {
        let Some(job) = self.jobs[plane as usize].take() else { return };
        self.blocks.erased(job.block);
        self.counts.erases += 1;
        self.clean_if_short(plane, places, out);
        if self.jobs[plane as usize].is_none()
            && let Some(difference) = self.rules.wear_difference
            && let Some(cold) = garbage_collection::coldest(&self.blocks, plane, difference)
        {
            self.counts.wear_moves += 1;
            self.empty(plane, cold, places, out);
        }
    }

    /// Does what can be done next for a plane's job.
    fn go_on(&mut self, plane: u32, places: &mut impl Places, out: &mut Vec<Command>) {
        let Some(mut job) = self.jobs[plane as usize].take() else { return };
        let (per_block, per_page) = (self.geometry.units_per_block(), self.geometry.units_per_page);
        let first = job.block * per_block;
        while job.reading.len() < READ_AHEAD && job.cursor < per_block && !job.erasing {
            let page = first + job.cursor;
            job.cursor += per_page;
            let count = (page..page + per_page).filter(|unit| self.is_current(*unit, places)).count();
            if count > 0 {
                out.push(self.command(Operation::Read, Origin::Cleaning, page, count as u32, plane));
                job.reading.push_back(page);
            }
        }
        let all_read = job.cursor >= per_block && job.reading.is_empty();
        while job.gathered.len() >= per_page as usize || (all_read && !job.gathered.is_empty()) {
            // What was overwritten while it waited is left behind.
            let count = job.gathered.len().min(per_page as usize);
            let lines: Vec<u32> =
                job.gathered.drain(..count).filter_map(|unit| self.current(unit, places)).collect();
            if lines.is_empty() {
                continue;
            }
            let Some((command, _)) = self.program(plane, Writer::Cleaning, &lines, places) else {
                debug_assert!(false, "the reserved block is gone");
                break;
            };
            self.counts.moves += lines.len() as u64;
            job.programs += 1;
            out.push(command);
        }
        if all_read && job.gathered.is_empty() && job.programs == 0 && !job.erasing {
            job.erasing = true;
            out.push(self.command(Operation::Erase, Origin::Cleaning, first, 0, plane));
        }
        self.jobs[plane as usize] = Some(job);
    }

    /// Checks that each unit counted valid holds a line that is mapped there, and the other way round. Devices of more than a
    /// million units are not looked at whole.
    ///
    /// # Panics
    /// If not: for tests.
    pub fn check(&self, places: &impl Places) {
        let mut mapped = 0;
        for (place, unit) in self.units.iter().enumerate().filter(|(_, unit)| **unit != NONE) {
            assert_eq!(self.blocks.owner(*unit), Some(place as u32), "unit {unit} is not its owner's");
            mapped += 1;
        }
        if self.geometry.units_per_plane() * u64::from(self.geometry.plane_count()) > 1 << 20 {
            return;
        }
        let mut valid = 0;
        for plane in 0..self.geometry.plane_count() {
            for (number, block) in self.blocks.of_plane(plane) {
                let first = number * self.geometry.units_per_block();
                let current = (first..first + block.written).filter(|unit| self.is_current(*unit, places));
                assert_eq!(current.count() as u32, block.valid, "block {number} {:?}", block.state);
                assert!(block.state != State::Free || block.written == 0);
                valid += u64::from(block.valid);
            }
        }
        let untouched = self.rules.filled_units;
        assert!(valid >= mapped && valid <= mapped + untouched, "{valid} valid, {mapped} mapped");
    }

    /// Bytes of state held.
    pub fn metadata_bytes(&self) -> u64 {
        self.blocks.metadata_bytes() + (self.units.capacity() * 4) as u64
    }
}
