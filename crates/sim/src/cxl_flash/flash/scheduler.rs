//! Scheduler of channels and dies: each die has its queues, each channel asks its dies in turn.
//!
//! This is out-of-order scheduling with queues per die as MQSim has it (Tavakkol, FAST 2018, section 4): a channel carries one
//! command or one transfer at a time; a die does one operation at a time, on as many of its planes as have the same page number
//! to read or program. Reads have priority over programs and programs over erases; the host's commands have priority over those
//! of cleaning unless a die is short of free blocks. A finished read waits for the channel before anything new starts on it.
//!
//! It is a state machine without a clock: [`Scheduler::begin`] takes an event and says what is finished, the driver acts on that
//! (it may submit), and [`Scheduler::end`] lets the channel go on. In between, channel and die still count as busy.

use super::geometry::Geometry;
use super::timing::{Operation, Timing};
use crate::events::EventQueue;

/// The origin of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A request of the host, its cache, or a prefetcher.
    Host,
    /// Garbage collection and wear levelling.
    Cleaning,
}

/// An operation on one plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The operation.
    pub operation: Operation,
    /// Its origin.
    pub origin: Origin,
    /// The die, by its number in the device.
    pub die: u32,
    /// The plane of the die.
    pub plane: u32,
    /// The page in its block: planes work together on pages of one number.
    pub page: u32,
    /// Data that the channel carries.
    pub bytes: u32,
    /// The driver's own number for it.
    pub tag: u32,
}

/// Something that happens on a channel or a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A command and its data have reached their die.
    Sent {
        /// The die.
        die: u32,
    },
    /// A die has done its operation, unless it was interrupted since.
    Ready {
        /// The die.
        die: u32,
        /// How often it was interrupted when this was foreseen.
        generation: u32,
    },
    /// A die has stopped what it was doing for something else.
    Stopped {
        /// The die.
        die: u32,
    },
    /// The data of one plane have come over the channel.
    Transferred {
        /// The die.
        die: u32,
    },
}

const NONE: u32 = u32::MAX;

/// A first-in first-out list of commands, linked through their slots.
#[derive(Clone, Copy, Debug)]
struct Queue {
    head: u32,
    tail: u32,
}

const EMPTY: Queue = Queue { head: NONE, tail: NONE };

#[derive(Clone, Copy, Debug)]
struct Slot {
    command: Command,
    /// How many were submitted before it.
    turn: u64,
    next: u32,
}

/// The state of a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// Its command is on the channel.
    Receiving,
    /// It was told to stop.
    Stopping,
    Working(Operation),
    /// The data that it read wait for the channel, or are on it.
    Sending,
}

/// Whether a die can start something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Now,
    Interrupting,
    Not,
}

/// Whether an operation under way gives way to another.
fn gives_way(current: Operation, to: Operation) -> bool {
    match current {
        Operation::Read => false,
        Operation::Program => to == Operation::Read,
        Operation::Erase => to != Operation::Erase,
    }
}

/// An operation that was interrupted.
#[derive(Clone, Debug)]
struct Interrupted {
    operation: Operation,
    active: Vec<u32>,
    left_ns: u64,
}

#[derive(Clone, Debug)]
struct Die {
    state: State,
    operation: Operation,
    /// The commands that it carries out together, one a plane.
    active: Vec<u32>,
    /// Commands of a finished read whose data are not yet over.
    to_send: u32,
    /// The one of them that is on the channel.
    on_channel: u32,
    /// Reads, programs and erases, of the host and of cleaning.
    queues: [[Queue; 2]; 3],
    queued: u32,
    ready_ns: u64,
    generation: u32,
    interrupted: Option<Interrupted>,
    /// Cleaning has priority.
    urgent: bool,
}

#[derive(Clone, Debug, Default)]
struct Channel {
    busy: bool,
    /// The die, counted in the channel, that is asked next.
    turn: u32,
    /// Commands whose data wait for the channel.
    waiting: [std::collections::VecDeque<u32>; 2],
    queued: u32,
}

/// The channels and dies of a device.
#[derive(Clone, Debug)]
pub struct Scheduler {
    geometry: Geometry,
    timing: Timing,
    channels: Vec<Channel>,
    dies: Vec<Die>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Commands that are dispatched together, kept for its memory.
    together: Vec<u32>,
    suspensions: u64,
    submitted: u64,
}

impl Scheduler {
    /// Idle channels and dies.
    pub fn new(geometry: Geometry, timing: Timing) -> Self {
        let die = Die {
            state: State::Idle,
            operation: Operation::Read,
            active: Vec::with_capacity(geometry.planes as usize),
            to_send: 0,
            on_channel: NONE,
            queues: [[EMPTY; 2]; 3],
            queued: 0,
            ready_ns: 0,
            generation: 0,
            interrupted: None,
            urgent: false,
        };
        Scheduler {
            geometry,
            timing,
            channels: vec![Channel::default(); geometry.channels as usize],
            dies: vec![die; geometry.die_count() as usize],
            slots: Vec::new(),
            free: Vec::new(),
            together: Vec::with_capacity(geometry.planes as usize),
            suspensions: 0,
            submitted: 0,
        }
    }

    /// How often an operation was interrupted for another.
    pub fn suspensions(&self) -> u64 {
        self.suspensions
    }

    /// Commands that are queued or under way.
    pub fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Sets whether cleaning has priority on this die from now on.
    pub fn set_urgent(&mut self, die: u32, urgent: bool) {
        self.dies[die as usize].urgent = urgent;
    }

    /// Takes a command, and starts it if channel and die are free.
    pub fn submit<E: Copy + From<Event>>(
        &mut self,
        now_ns: u64,
        command: Command,
        events: &mut EventQueue<E>,
    ) {
        let slot = Slot { command, turn: self.submitted, next: NONE };
        self.submitted += 1;
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        let die = &mut self.dies[command.die as usize];
        let queue = &mut die.queues[command.operation as usize][command.origin as usize];
        match queue.tail {
            NONE => queue.head = id,
            tail => self.slots[tail as usize].next = id,
        }
        queue.tail = id;
        die.queued += 1;
        let channel = self.geometry.channel_of(command.die);
        self.channels[channel as usize].queued += 1;
        self.dispatch(now_ns, channel, events);
    }

    /// An event has happened: appends what is finished by it, in order. [`Self::end`] must follow.
    pub fn begin(&mut self, event: Event, finished: &mut Vec<Command>) {
        match event {
            Event::Sent { .. } | Event::Stopped { .. } => {}
            Event::Ready { die, generation } => {
                let die = &self.dies[die as usize];
                if die.generation == generation && die.operation != Operation::Read {
                    finished.extend(die.active.iter().map(|id| self.slots[*id as usize].command));
                }
            }
            Event::Transferred { die } => {
                let id = self.dies[die as usize].on_channel;
                finished.push(self.slots[id as usize].command);
            }
        }
    }

    /// Ends an event, when the driver has done its work for it: channel and die go on.
    pub fn end<E: Copy + From<Event>>(&mut self, now_ns: u64, event: Event, events: &mut EventQueue<E>) {
        match event {
            Event::Sent { die } => self.sent(now_ns, die, events),
            Event::Ready { die, generation } => {
                if self.dies[die as usize].generation == generation {
                    self.ready(now_ns, die, events);
                }
            }
            Event::Stopped { die } => {
                self.dies[die as usize].state = State::Idle;
                let channel = self.geometry.channel_of(die);
                if !self.channels[channel as usize].busy {
                    self.serve(now_ns, die, events);
                }
            }
            Event::Transferred { die } => self.transferred(now_ns, die, events),
        }
    }

    fn sent<E: Copy + From<Event>>(&mut self, now_ns: u64, number: u32, events: &mut EventQueue<E>) {
        let die = &mut self.dies[number as usize];
        die.state = State::Working(die.operation);
        die.ready_ns = now_ns + self.timing.memory_ns(die.operation);
        events.push(die.ready_ns, E::from(Event::Ready { die: number, generation: die.generation }));
        let channel = self.geometry.channel_of(number);
        self.channels[channel as usize].busy = false;
        self.next_on_channel(now_ns, channel, events);
    }

    fn ready<E: Copy + From<Event>>(&mut self, now_ns: u64, number: u32, events: &mut EventQueue<E>) {
        let channel = self.geometry.channel_of(number);
        let die = &mut self.dies[number as usize];
        if die.operation == Operation::Read {
            die.state = State::Sending;
            die.to_send = die.active.len() as u32;
            for at in 0..die.active.len() {
                let id = self.dies[number as usize].active[at];
                if self.channels[channel as usize].busy {
                    let origin = self.slots[id as usize].command.origin;
                    self.channels[channel as usize].waiting[origin as usize].push_back(id);
                } else {
                    self.transfer(now_ns, id, events);
                }
            }
        } else {
            self.free.append(&mut die.active);
            self.rest(now_ns, number, events);
        }
        if !self.channels[channel as usize].busy {
            self.dispatch(now_ns, channel, events);
        }
    }

    fn transferred<E: Copy + From<Event>>(&mut self, now_ns: u64, number: u32, events: &mut EventQueue<E>) {
        let die = &mut self.dies[number as usize];
        let id = std::mem::replace(&mut die.on_channel, NONE);
        if let Some(at) = die.active.iter().position(|active| *active == id) {
            die.active.remove(at);
        }
        self.free.push(id);
        die.to_send -= 1;
        if die.to_send == 0 {
            self.rest(now_ns, number, events);
        }
        let channel = self.geometry.channel_of(number);
        self.channels[channel as usize].busy = false;
        self.next_on_channel(now_ns, channel, events);
    }

    /// The die has nothing to do but perhaps what it was interrupted in.
    fn rest<E: Copy + From<Event>>(&mut self, now_ns: u64, number: u32, events: &mut EventQueue<E>) {
        let die = &mut self.dies[number as usize];
        die.state = State::Idle;
        if let Some(interrupted) = die.interrupted.take() {
            die.state = State::Working(interrupted.operation);
            die.operation = interrupted.operation;
            die.active = interrupted.active;
            die.ready_ns = now_ns + interrupted.left_ns;
            events.push(die.ready_ns, E::from(Event::Ready { die: number, generation: die.generation }));
        }
    }

    fn transfer<E: Copy + From<Event>>(&mut self, now_ns: u64, id: u32, events: &mut EventQueue<E>) {
        let Command { die, bytes, .. } = self.slots[id as usize].command;
        self.dies[die as usize].on_channel = id;
        self.channels[self.geometry.channel_of(die) as usize].busy = true;
        events.push(now_ns + self.timing.transfer_ns(bytes), E::from(Event::Transferred { die }));
    }

    /// The channel is free: data that wait for it go first.
    fn next_on_channel<E: Copy + From<Event>>(
        &mut self,
        now_ns: u64,
        channel: u32,
        events: &mut EventQueue<E>,
    ) {
        let waiting = &mut self.channels[channel as usize].waiting;
        match waiting.iter_mut().find_map(|queue| queue.pop_front()) {
            Some(id) => self.transfer(now_ns, id, events),
            None => self.dispatch(now_ns, channel, events),
        }
    }

    /// Asks the channel's dies, each once and in turn, until one has taken the channel.
    fn dispatch<E: Copy + From<Event>>(&mut self, now_ns: u64, channel: u32, events: &mut EventQueue<E>) {
        let dies = self.geometry.dies_per_channel();
        for _ in 0..dies {
            let state = &mut self.channels[channel as usize];
            if state.busy || state.queued == 0 {
                return;
            }
            let die = channel * dies + state.turn;
            state.turn = (state.turn + 1) % dies;
            if self.dies[die as usize].queued > 0 {
                self.serve(now_ns, die, events);
            }
        }
    }

    /// Starts what is to be done next on a die, if it can be started now.
    fn serve<E: Copy + From<Event>>(&mut self, now_ns: u64, number: u32, events: &mut EventQueue<E>) {
        for operation in self.order(number) {
            let Some(origins) = self.next_of(number, operation) else { continue };
            match self.can_start(now_ns, number, operation) {
                Start::Not => continue,
                Start::Interrupting => self.interrupt(now_ns, number, events),
                Start::Now => {
                    self.collect(number, operation, origins);
                    self.start(now_ns, number, operation, events);
                }
            }
            return;
        }
        if self.dies[number as usize].state == State::Idle {
            // What it was interrupted for is not there any more.
            self.rest(now_ns, number, events);
        }
    }

    /// The order in which kinds of operations are asked.
    fn order(&self, number: u32) -> [Operation; 3] {
        use Operation::{Erase, Program, Read};
        let oldest = |operation: Operation| {
            let queues = &self.dies[number as usize].queues[operation as usize];
            let heads = queues.iter().filter(|queue| queue.head != NONE);
            heads.map(|queue| self.slots[queue.head as usize].turn).min().unwrap_or(u64::MAX)
        };
        if self.timing.read_priority || oldest(Read) <= oldest(Program) {
            [Read, Program, Erase]
        } else {
            [Program, Read, Erase]
        }
    }

    /// The origin whose commands of this kind are due, and the one whose commands may join them; none if another kind has
    /// priority.
    fn next_of(&self, number: u32, operation: Operation) -> Option<[Origin; 2]> {
        use Origin::{Cleaning, Host};
        let die = &self.dies[number as usize];
        let has = |operation: Operation, origin: Origin| {
            die.queues[operation as usize][origin as usize].head != NONE
        };
        let first = if die.urgent { Cleaning } else { Host };
        let second = if die.urgent { Host } else { Cleaning };
        if has(operation, first) {
            return Some([first, second]);
        }
        // Commands of the first origin, of any later kind, are done before commands of this kind of the second.
        let later = match operation {
            Operation::Read => &[Operation::Program, Operation::Erase][..],
            Operation::Program => &[Operation::Erase][..],
            Operation::Erase => &[][..],
        };
        let first_waits = later.iter().any(|later| has(*later, first));
        (has(operation, second) && !first_waits).then_some([second, first])
    }

    /// Whether the die can start this now.
    fn can_start(&self, now_ns: u64, number: u32, operation: Operation) -> Start {
        let die = &self.dies[number as usize];
        match die.state {
            State::Idle => match &die.interrupted {
                Some(interrupted) if !gives_way(interrupted.operation, operation) => Start::Not,
                _ => Start::Now,
            },
            State::Working(current) if die.interrupted.is_none() && gives_way(current, operation) => {
                match self.timing.suspension(current) {
                    // What is done at this instant is past stopping.
                    Some(suspension)
                        if die.ready_ns > now_ns && die.ready_ns - now_ns >= suspension.least_left_ns =>
                    {
                        Start::Interrupting
                    }
                    _ => Start::Not,
                }
            }
            _ => Start::Not,
        }
    }

    /// Tells a die to stop what it does, which takes a while during which the channel is free.
    fn interrupt<E: Copy + From<Event>>(&mut self, now_ns: u64, number: u32, events: &mut EventQueue<E>) {
        let die = &mut self.dies[number as usize];
        let Some(suspension) = self.timing.suspension(die.operation) else { return };
        die.generation = die.generation.wrapping_add(1);
        let active = std::mem::take(&mut die.active);
        let left_ns = die.ready_ns - now_ns;
        die.interrupted = Some(Interrupted { operation: die.operation, active, left_ns });
        die.state = State::Stopping;
        self.suspensions += 1;
        events.push(now_ns + self.timing.suspend_ns(suspension), E::from(Event::Stopped { die: number }));
    }

    /// Takes the first command of a queue and all that can be done together with it into `together`.
    fn collect(&mut self, number: u32, operation: Operation, origins: [Origin; 2]) {
        let Scheduler { dies, slots, together, geometry, channels, .. } = self;
        let die = &mut dies[number as usize];
        together.clear();
        let mut page = None;
        let mut planes = 0u64;
        for origin in origins {
            let queue = &mut die.queues[operation as usize][origin as usize];
            let (mut before, mut id) = (NONE, queue.head);
            while id != NONE && together.len() < geometry.planes as usize {
                let Slot { command, next, .. } = slots[id as usize];
                // Blocks are erased together whatever their numbers.
                let fits = operation == Operation::Erase || page.is_none_or(|page| page == command.page);
                if fits && planes & 1 << command.plane == 0 {
                    page = page.or(Some(command.page));
                    planes |= 1 << command.plane;
                    together.push(id);
                    slots[id as usize].next = NONE;
                    match before {
                        NONE => queue.head = next,
                        before => slots[before as usize].next = next,
                    }
                    if queue.tail == id {
                        queue.tail = before;
                    }
                } else {
                    before = id;
                }
                id = next;
            }
        }
        die.queued -= together.len() as u32;
        channels[geometry.channel_of(number) as usize].queued -= together.len() as u32;
    }

    fn start<E: Copy + From<Event>>(
        &mut self,
        now_ns: u64,
        number: u32,
        operation: Operation,
        events: &mut EventQueue<E>,
    ) {
        let die = &mut self.dies[number as usize];
        die.operation = operation;
        die.state = State::Receiving;
        die.active.clear();
        die.active.extend_from_slice(&self.together);
        let mut time_ns = now_ns + self.timing.command_ns(operation, die.active.len());
        if operation == Operation::Program {
            let data = die.active.iter().map(|id| self.slots[*id as usize].command.bytes);
            time_ns += data.map(|bytes| self.timing.transfer_ns(bytes)).sum::<u64>();
        }
        self.channels[self.geometry.channel_of(number) as usize].busy = true;
        events.push(time_ns, E::from(Event::Sent { die: number }));
    }
}
