//! Flash back end: mapping, scheduling and write log as one device that lines are read from and written to.

use std::collections::VecDeque;

use super::ftl::{self, Ftl, Places};
use super::garbage_collection::Rules;
use super::geometry::Geometry;
use super::scheduler::{Command, Event, Origin, Scheduler};
use super::timing::{Operation, Timing};
use crate::events::EventQueue;

/// The outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// It was sent for; it is finished with its tag.
    Sent,
    /// The line is still in the write log.
    InLog,
}

/// Parameters of a back end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// How it is divided.
    pub geometry: Geometry,
    /// How long it takes.
    pub timing: Timing,
    /// How room is made.
    pub cleaning: Rules,
    /// Lines that the log may hold before requests are held back; 0: there is no log.
    pub log_units: u32,
    /// Reads on their way before requests are held back.
    pub queue: u32,
}

/// The back end of a device.
#[derive(Clone, Debug)]
pub struct Backend {
    ftl: Ftl,
    scheduler: Scheduler,
    /// Lines that are programmed together.
    lines_per_program: usize,
    /// Lines that the log may hold before requests are held back; 0: there is no log.
    log_units: usize,
    queue: usize,
    /// Lines that wait to be programmed.
    pending: VecDeque<u32>,
    /// For each page of the table: copies in the log, and whether the latest of them waits.
    logged: Vec<Logged>,
    /// Lines in the log, those that are being programmed included.
    in_log: usize,
    reads: usize,
    commands: Vec<Command>,
    finished: Vec<Command>,
    lines: Vec<u32>,
    log_hits: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Logged {
    copies: u32,
    waits: bool,
}

impl Backend {
    /// A back end as it is before the first request.
    pub fn new(parameters: Parameters) -> Self {
        let Parameters { geometry, timing, cleaning, log_units, queue } = parameters;
        let lines = if log_units > 0 { geometry.units_per_page } else { 1 };
        Backend {
            ftl: Ftl::new(geometry, cleaning),
            scheduler: Scheduler::new(geometry, timing),
            lines_per_program: lines as usize,
            log_units: log_units as usize,
            queue: queue as usize,
            pending: VecDeque::new(),
            logged: Vec::new(),
            in_log: 0,
            reads: 0,
            commands: Vec::new(),
            finished: Vec::new(),
            lines: Vec::new(),
            log_hits: 0,
        }
    }

    /// Whether requests that need flash must wait.
    #[inline]
    pub fn is_full(&self) -> bool {
        // Without a log each line that is being written takes a place of the queue, with one only reads do.
        let writes = if self.log_units == 0 { self.in_log } else { 0 };
        self.reads + writes >= self.queue || (self.log_units > 0 && self.in_log >= self.log_units)
    }

    /// How many more reads could be sent for.
    #[inline]
    pub fn room(&self) -> usize {
        let writes = if self.log_units == 0 { self.in_log } else { 0 };
        self.queue.saturating_sub(self.reads + writes)
    }

    /// The counts so far.
    pub fn counts(&self) -> ftl::Counts {
        self.ftl.counts()
    }

    /// The most and the least that blocks were erased.
    pub fn wear(&self) -> (u32, u32) {
        self.ftl.wear()
    }

    /// Reads that were served from the write log.
    pub fn log_hits(&self) -> u64 {
        self.log_hits
    }

    /// Operations that were interrupted for others.
    pub fn suspensions(&self) -> u64 {
        self.scheduler.suspensions()
    }

    /// Reads a line.
    pub fn read<E: Copy + From<Event>>(
        &mut self,
        now_ns: u64,
        place: u32,
        number: u64,
        tag: u32,
        events: &mut EventQueue<E>,
    ) -> Read {
        if self.log_units > 0 && self.logged.get(place as usize).is_some_and(|logged| logged.copies > 0) {
            self.log_hits += 1;
            return Read::InLog;
        }
        self.reads += 1;
        let command = self.ftl.read(place, number, tag);
        self.scheduler.submit(now_ns, command, events);
        Read::Sent
    }

    /// Takes a line to be written.
    pub fn write<E: Copy + From<Event>>(
        &mut self,
        now_ns: u64,
        place: u32,
        places: &mut impl Places,
        events: &mut EventQueue<E>,
    ) {
        if self.logged.len() <= place as usize {
            self.logged.resize(place as usize + 1, Logged::default());
        }
        let logged = &mut self.logged[place as usize];
        // A copy that still waits takes the new data in; without a log nothing waits but for lack of room.
        if self.log_units > 0 && logged.waits {
            return;
        }
        *logged = Logged { copies: logged.copies.saturating_add(1), waits: true };
        self.in_log += 1;
        self.pending.push_back(place);
        self.flush(now_ns, places, events);
    }

    /// Programs whole pages of what waits, as far as there is room on flash.
    fn flush<E: Copy + From<Event>>(
        &mut self,
        now_ns: u64,
        places: &mut impl Places,
        events: &mut EventQueue<E>,
    ) {
        while self.pending.len() >= self.lines_per_program {
            self.lines.clear();
            self.lines.extend(self.pending.iter().take(self.lines_per_program));
            let written = self.ftl.write(&self.lines, places, &mut self.commands);
            if written {
                for place in self.pending.drain(..self.lines_per_program) {
                    self.logged[place as usize].waits = false;
                }
            }
            self.submit_all(now_ns, events);
            if !written {
                break;
            }
        }
    }

    fn submit_all<E: Copy + From<Event>>(&mut self, now_ns: u64, events: &mut EventQueue<E>) {
        let mut commands = std::mem::take(&mut self.commands);
        for command in commands.drain(..) {
            self.scheduler.set_urgent(command.die, self.ftl.is_urgent(command.die));
            self.scheduler.submit(now_ns, command, events);
        }
        self.commands = commands;
    }

    /// An event of the back end has happened: `fetched` takes the tag of each read that is finished by it.
    pub fn happened<E: Copy + From<Event>, P: Places>(
        &mut self,
        now_ns: u64,
        event: Event,
        places: &mut P,
        events: &mut EventQueue<E>,
        fetched: &mut Vec<u32>,
    ) {
        let mut finished = std::mem::take(&mut self.finished);
        self.scheduler.begin(event, &mut finished);
        let mut erased = false;
        for command in finished.drain(..) {
            match (command.origin, command.operation) {
                (Origin::Host, Operation::Program) => {
                    for place in self.ftl.written(command.tag) {
                        self.logged[*place as usize].copies -= 1;
                        self.in_log -= 1;
                    }
                }
                (Origin::Host, _) => {
                    self.reads -= 1;
                    fetched.push(command.tag);
                }
                (Origin::Cleaning, operation) => {
                    self.ftl.cleaned(command, places, &mut self.commands);
                    self.submit_all(now_ns, events);
                    self.scheduler.set_urgent(command.die, self.ftl.is_urgent(command.die));
                    erased |= operation == Operation::Erase;
                }
            }
        }
        self.finished = finished;
        if erased {
            self.flush(now_ns, places, events);
        }
        self.scheduler.end(now_ns, event, events);
    }

    /// Checks the mapping.
    ///
    /// # Panics
    /// If it is inconsistent: for tests.
    pub fn check(&self, places: &impl Places) {
        self.ftl.check(places);
    }

    /// Bytes of state held.
    pub fn metadata_bytes(&self) -> u64 {
        self.ftl.metadata_bytes() + (self.logged.capacity() * size_of::<Logged>()) as u64
    }
}
