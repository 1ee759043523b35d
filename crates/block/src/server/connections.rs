//! Connections of a server, and the jobs in flight of each.
//!
//! All connections share one [`Core`]. It submits their jobs to the disks and puts each outcome
//! among the answers of its connection. Jobs are kept apart from connections, as they outlive them.

use std::task::Waker;
use std::time::Instant;

use tiermem_tier::block::AlignedBuffer;

use super::buffers::Buffers;
use crate::disks::{Answer, Asker, Disks, Job, Outcome, Task, UNIT_BYTES};
use crate::nbd::wire::CommandFlags;
use crate::nbd::{Command, Contexts, Errno, Request};

/// What one call reads at most: some thousand requests, or fifteen writes of 4 KiB.
pub(super) const SCRATCH_BYTES: usize = 64 * 1024;

/// Extents in one answer.
pub(super) const EXTENTS_MAX: usize = 8192;
/// An extent on the wire, and in memory.
const EXTENT_BYTES: u64 = 8;
/// A reply without data.
const HEAD_BYTES: u64 = 32;

/// A request with a completed job.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) request: Request,
    /// When it was there as a whole.
    pub(super) since: Instant,
    pub(super) result: Result<Answer, (Errno, String)>,
}

#[derive(Debug)]
struct Flight {
    number: u64,
    request: Request,
    since: Instant,
}

/// A connection in transmission, or the jobs that one has left behind.
#[derive(Debug)]
struct ConnectionState {
    id: u64,
    disk: usize,
    /// Whether the connection is still there.
    taken: bool,
    waker: Option<Waker>,
    answers: Vec<Answered>,
    flights: Vec<Option<Flight>>,
    /// Places of `flights` where none is.
    free: Vec<u32>,
    under_way: usize,
    bytes: u64,
    /// Whether it waits for its disk to have less to do.
    waiting: bool,
    /// Whether its socket is not being read, so that a hang-up would go unnoticed.
    is_paused: bool,
}

/// Load of a disk.
#[derive(Debug, Default)]
struct Load {
    bytes: u64,
    /// Places of the connections that wait for less.
    waiting: Vec<usize>,
}

/// What the connections of a server share.
#[derive(Debug)]
pub(super) struct Core<D> {
    pub(super) disks: D,
    connections: Vec<Option<ConnectionState>>,
    vacant: Vec<usize>,
    loads: Vec<Load>,
    done: Vec<Outcome>,
    scratch: Vec<u8>,
    buffers: Buffers,
    /// Counts connections and flights, so that their numbers come again only after 4 billion others.
    serial: u32,
    under_way: usize,
    stopping: bool,
}

/// The place that a number begins with.
fn place(number: u64) -> usize {
    (number & u64::from(u32::MAX)) as usize
}

/// Charge of a request while it is in flight. One without data costs something too.
fn charge(request: &Request) -> u64 {
    match request.command {
        Command::Read | Command::Write => UNIT_BYTES + u64::from(request.len_bytes),
        _ => UNIT_BYTES,
    }
}

/// Memory that a request takes from when it is read until it is answered, and its reply then: whole units, as buffers have them.
pub(super) fn memory_bytes(request: &Request) -> u64 {
    let end = request.offset.saturating_add(request.len_bytes.into());
    let units = end.div_ceil(UNIT_BYTES) - request.offset / UNIT_BYTES;
    match request.command {
        Command::Read | Command::Write => units * UNIT_BYTES,
        // For each context.
        Command::BlockStatus => 2 * EXTENT_BYTES * units.min(EXTENTS_MAX as u64),
        _ => HEAD_BYTES,
    }
}

/// Memory that an answer takes.
fn answer_bytes(result: &Result<Answer, (Errno, String)>) -> u64 {
    match result {
        Ok(Answer::Data(pieces)) => pieces.iter().map(|piece| piece.buffer.len() as u64).sum(),
        Ok(Answer::Parts { allocation, cache }) => EXTENT_BYTES * (allocation.len() + cache.len()) as u64,
        _ => HEAD_BYTES,
    }
}

impl<D: Disks> Core<D> {
    /// No connection yet. All connections together may hold `buffers_bytes_max`, beside a little for each.
    pub(super) fn new(disks: D, buffers_bytes_max: u64) -> Self {
        Core {
            disks,
            connections: Vec::new(),
            vacant: Vec::new(),
            loads: Vec::new(),
            done: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES],
            buffers: Buffers::new(buffers_bytes_max),
            serial: 0,
            under_way: 0,
            stopping: false,
        }
    }

    fn number(&mut self, place: usize) -> u64 {
        self.serial = self.serial.wrapping_add(1);
        u64::from(self.serial) << 32 | place as u64
    }

    /// The state of the connection with that number.
    fn connection_state(&mut self, id: u64) -> &mut ConnectionState {
        let connection_state = self
            .connections
            .get_mut(place(id))
            .and_then(Option::as_mut)
            .filter(|connection_state| connection_state.id == id);
        connection_state.expect("a connection has its connection_state until it leaves")
    }

    /// A connection to `disk` begins; its number.
    pub(super) fn enter(&mut self, disk: usize) -> u64 {
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        if self.loads.len() <= disk {
            self.loads.resize_with(disk + 1, Load::default);
        }
        let id = self.number(at);
        self.connections[at] = Some(ConnectionState {
            id,
            disk,
            taken: true,
            waker: None,
            answers: Vec::new(),
            flights: Vec::new(),
            free: Vec::new(),
            under_way: 0,
            bytes: 0,
            waiting: false,
            is_paused: false,
        });
        self.buffers.enter(at, disk);
        id
    }

    /// A connection has ended. Its jobs in flight continue, and their outcomes are discarded.
    pub(super) fn leave(&mut self, id: u64) {
        let connection_state = self.connection_state(id);
        connection_state.taken = false;
        connection_state.waker = None;
        for answered in std::mem::take(&mut connection_state.answers) {
            self.throw_away(answered.result);
        }
        self.buffers.leave(place(id));
        self.wake_served();
        self.vacate(place(id));
    }

    fn wake_served(&mut self) {
        while let Some(at) = self.buffers.next() {
            self.wake(at);
        }
    }

    fn wake(&self, at: usize) {
        let waker =
            self.connections[at].as_ref().and_then(|connection_state| connection_state.waker.as_ref());
        waker.into_iter().for_each(Waker::wake_by_ref);
    }

    /// Sets the bytes that a connection holds: payloads that are arriving, and replies in its queue.
    pub(super) fn hold(&mut self, id: u64, bytes: u64) {
        self.buffers.set(place(id), bytes);
        self.wake_served();
    }

    /// Whether a connection may take a request that needs `more` bytes; otherwise it is woken when it can.
    pub(super) fn may_hold(&mut self, id: u64, more: u64) -> bool {
        self.buffers.may_hold(place(id), more)
    }

    /// A connection's socket has given or taken bytes.
    pub(super) fn moved(&mut self, id: u64) {
        self.buffers.moved(place(id));
    }

    /// Whether a connection must be dropped, as it holds memory that others wait for.
    pub(super) fn is_shut_out(&self, id: u64) -> bool {
        self.buffers.is_shut_out(place(id))
    }

    /// A connection reads nothing, or does again; whether it did not.
    pub(super) fn set_deaf(&mut self, id: u64, is_paused: bool) -> bool {
        std::mem::replace(&mut self.connection_state(id).is_paused, is_paused)
    }

    /// Checks for clients without progress, and wakes paused connections to check their sockets.
    pub(super) fn look_around(&mut self) {
        for at in self.buffers.look() {
            self.wake(at);
        }
        let paused = self.connections.iter().flatten().filter(|connection_state| connection_state.is_paused);
        paused.filter_map(|connection_state| connection_state.waker.as_ref()).for_each(Waker::wake_by_ref);
    }

    /// Frees the state of a connection that has ended and to which nothing will come.
    fn vacate(&mut self, at: usize) {
        if self.connections[at]
            .as_ref()
            .is_some_and(|connection_state| !connection_state.taken && connection_state.under_way == 0)
        {
            self.connections[at] = None;
            self.vacant.push(at);
        }
    }

    fn throw_away(&mut self, result: Result<Answer, (Errno, String)>) {
        if let Ok(Answer::Data(pieces)) = result {
            pieces.into_iter().for_each(|piece| self.disks.give_back(piece.buffer));
        }
    }

    /// Whom to wake when there are answers.
    pub(super) fn await_mail(&mut self, id: u64, waker: &Waker) {
        let connection_state = self.connection_state(id);
        if !connection_state.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            connection_state.waker = Some(waker.clone());
        }
    }

    /// Submits `request` to its disk, with the payload if it is a write, and what a description is to be in; returns when it began.
    pub(super) fn submit(
        &mut self,
        id: u64,
        request: Request,
        buffer: AlignedBuffer,
        contexts: Contexts,
    ) -> Instant {
        let since = Instant::now();
        let number = self.number(0);
        let connection_state = self.connection_state(id);
        let at = connection_state.free.pop().map(|at| at as usize).unwrap_or_else(|| {
            connection_state.flights.push(None);
            connection_state.flights.len() - 1
        });
        let number = number | at as u64;
        connection_state.flights[at] = Some(Flight { number, request, since });
        let bytes = charge(&request);
        connection_state.under_way += 1;
        connection_state.bytes += bytes;
        let disk = connection_state.disk;
        self.under_way += 1;
        self.buffers.begin(place(id), memory_bytes(&request));
        self.loads[disk].bytes += bytes;
        let task = match request.command {
            Command::Read => Task::Read,
            Command::Write => Task::Write(buffer),
            Command::Trim => Task::Trim,
            Command::WriteZeroes => Task::Zero,
            Command::Cache => Task::Prefetch,
            Command::BlockStatus => Task::Describe(contexts),
            // A disconnect is no job; it never comes here.
            Command::Flush | Command::Disconnect => Task::Flush,
        };
        self.disks.submit(Job {
            asker: Asker { connection: id, cookie: number },
            disk,
            task,
            offset: request.offset,
            bytes: u64::from(request.len_bytes),
            durable: request.flags.contains(CommandFlags::FUA),
        });
        since
    }

    /// Puts outcomes among the answers of their connections, and wakes these, except `awake`, which looks anyway.
    pub(super) fn collect(&mut self, awake: Option<u64>) {
        let mut done = std::mem::take(&mut self.done);
        self.disks.take(&mut done);
        for outcome in done.drain(..) {
            self.deliver(outcome, awake);
        }
        self.done = done;
    }

    fn deliver(&mut self, outcome: Outcome, awake: Option<u64>) {
        let Asker { connection, cookie } = outcome.asker;
        let at = place(connection);
        let connection_state = self
            .connections
            .get_mut(at)
            .and_then(Option::as_mut)
            .filter(|connection_state| connection_state.id == connection);
        let flight = connection_state.and_then(|connection_state| {
            let slot = connection_state.flights.get_mut(place(cookie))?;
            Some((slot.take_if(|flight| flight.number == cookie)?, connection_state))
        });
        let Some((Flight { number, request, since }, connection_state)) = flight else {
            tracing::error!(connection, cookie, "an outcome of a job that nobody asked for");
            return self.throw_away(outcome.result);
        };
        let bytes = charge(&request);
        connection_state.free.push(place(number) as u32);
        connection_state.under_way -= 1;
        connection_state.bytes -= bytes;
        let (taken, disk) = (connection_state.taken, connection_state.disk);
        self.buffers.end(at, memory_bytes(&request));
        if taken {
            self.buffers.mail(at, answer_bytes(&outcome.result));
            connection_state.answers.push(Answered { request, since, result: outcome.result });
            if connection_state.answers.len() == 1 && awake != Some(connection) {
                connection_state.waker.iter().for_each(Waker::wake_by_ref);
            }
        } else {
            self.throw_away(outcome.result);
            self.vacate(at);
        }
        self.under_way -= 1;
        self.loads[disk].bytes -= bytes;
        self.wake_served();
        if !self.loads[disk].waiting.is_empty() && !self.is_saturated(disk) {
            for at in std::mem::take(&mut self.loads[disk].waiting) {
                if let Some(connection_state) = &mut self.connections[at] {
                    connection_state.waiting = false;
                    connection_state.waker.iter().for_each(Waker::wake_by_ref);
                }
            }
        }
    }

    /// Exchanges the answers for `empty`.
    pub(super) fn take_mail(&mut self, id: u64, empty: &mut Vec<Answered>) {
        debug_assert!(empty.is_empty());
        self.buffers.mail_taken(place(id));
        std::mem::swap(&mut self.connection_state(id).answers, empty);
    }

    /// Jobs that a connection has under way or among its answers, and bytes of the former.
    pub(super) fn held(&mut self, id: u64) -> (usize, u64) {
        let connection_state = self.connection_state(id);
        (connection_state.under_way + connection_state.answers.len(), connection_state.bytes)
    }

    /// Whether a disk has as much to do as it should.
    pub(super) fn is_saturated(&self, disk: usize) -> bool {
        self.loads[disk].bytes >= self.disks.bytes_in_flight_max()
    }

    /// Wakes a connection when its disk has less to do.
    pub(super) fn await_disk(&mut self, id: u64) {
        let connection_state = self.connection_state(id);
        if !connection_state.waiting {
            connection_state.waiting = true;
            let disk = connection_state.disk;
            self.loads[disk].waiting.push(place(id));
        }
    }

    /// Lends the buffer that requests are read through.
    pub(super) fn lend_scratch(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.scratch)
    }

    pub(super) fn return_scratch(&mut self, scratch: Vec<u8>) {
        self.scratch = scratch;
    }

    /// Tells all connections to take no more requests.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
        let wakers =
            self.connections.iter().flatten().filter_map(|connection_state| connection_state.waker.as_ref());
        wakers.for_each(Waker::wake_by_ref);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Jobs under way, those of connections that have ended included.
    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::disks::Waker as DiskWaker;
    use crate::nbd::Export;

    /// Keeps jobs until it is called to complete them.
    #[derive(Default)]
    struct Held {
        exports: Vec<Export>,
        jobs: HashMap<u64, Asker>,
        done: Vec<Outcome>,
        freed: usize,
    }

    impl Held {
        fn finish(&mut self, offset: u64) -> Asker {
            let asker = self.jobs.remove(&offset).unwrap();
            self.done.push(Outcome { asker, result: Ok(Answer::Done) });
            asker
        }
    }

    impl Disks for Held {
        fn exports(&self) -> &[Export] {
            &self.exports
        }
        fn submit(&mut self, job: Job) {
            self.jobs.insert(job.offset, job.asker);
        }
        fn take(&mut self, done: &mut Vec<Outcome>) {
            done.append(&mut self.done);
        }
        fn notify(&mut self, _: DiskWaker) {}
        fn bytes_in_flight_max(&self) -> u64 {
            20_000
        }
        fn give_back(&mut self, _: AlignedBuffer) {
            self.freed += 1;
        }
    }

    fn read(offset: u64) -> Request {
        let flags = CommandFlags::none();
        Request { cookie: 7, command: Command::Read, flags, offset, len_bytes: 4096 }
    }

    fn answers(core: &mut Core<Held>, id: u64) -> Vec<u64> {
        let mut answers = Vec::new();
        core.take_mail(id, &mut answers);
        answers.iter().map(|answered| answered.request.offset).collect()
    }

    #[test]
    fn outcomes_find_who_asked_though_cookies_repeat() {
        let mut core = Core::new(Held::default(), 1 << 20);
        let (a, b) = (core.enter(0), core.enter(0));
        core.submit(a, read(1), AlignedBuffer::empty(), Contexts::none());
        core.submit(a, read(2), AlignedBuffer::empty(), Contexts::none());
        core.submit(b, read(3), AlignedBuffer::empty(), Contexts::none());
        assert_eq!((core.held(a), core.under_way()), ((2, 2 * 8192), 3));
        assert!(core.is_saturated(0), "it bounds what all have under way");
        for offset in [3, 2] {
            core.disks.finish(offset);
        }
        core.collect(None);
        assert!(!core.is_saturated(0));
        assert_eq!((core.held(a), core.held(b)), ((2, 8192), (1, 0)), "answers counts until it is taken");
        assert_eq!((answers(&mut core, a), answers(&mut core, b)), (vec![2], vec![3]));
    }

    #[test]
    fn jobs_outlive_their_connection_and_leave_nothing() {
        let mut core = Core::new(Held::default(), 1 << 20);
        let id = core.enter(0);
        core.submit(id, read(1), AlignedBuffer::empty(), Contexts::none());
        core.submit(id, read(2), AlignedBuffer::empty(), Contexts::none());
        core.disks.finish(1);
        core.collect(None);
        core.leave(id);
        let other = core.enter(0);
        assert_ne!(place(other), place(id), "the connection_state is kept for the job");
        let asker = core.disks.jobs.remove(&2).unwrap();
        let pieces = vec![crate::disks::Piece { buffer: AlignedBuffer::zeroed(1), from: 0, bytes: 1 }];
        core.disks.done.push(Outcome { asker, result: Ok(Answer::Data(pieces)) });
        core.collect(None);
        assert_eq!((core.under_way(), core.disks.freed), (0, 1));
        assert_eq!(place(core.enter(0)), place(id), "and is free then");
    }

    #[test]
    fn an_outcome_that_comes_twice_is_nobodys() {
        let mut core = Core::new(Held::default(), 1 << 20);
        let id = core.enter(0);
        core.submit(id, read(1), AlignedBuffer::empty(), Contexts::none());
        let asker = core.disks.finish(1);
        core.collect(None);
        core.submit(id, read(2), AlignedBuffer::empty(), Contexts::none());
        core.disks.done.push(Outcome { asker, result: Ok(Answer::Done) });
        core.collect(None);
        assert_eq!((answers(&mut core, id), core.under_way()), (vec![1], 1));
    }
}
