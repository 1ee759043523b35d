//! Simulated devices and stores in virtual time, on a machine
//! that may die at any submission: for tests of whole engines.
//!
//! One [`Simulation`] has the clock and the random numbers of all devices and stores of a machine, so a
//! run follows from its seed. A request takes effect, and completes, when its time has come: later
//! requests may overtake it. When the machine dies, a request in flight has happened entirely, in part,
//! or not at all, and of a direct write its front; the [`Medium`](super::Medium) decides what a power loss takes
//! back beyond that.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tiermem_base::rng::Rng;

use super::bad_places::{Failing, spoil};
use super::troubles::Troubles;
use super::{BlockError, BlockIo, Completion, MemoryDisk, Op, Request, SECTOR_BYTES, Waker, check_range};

/// The clock and the fate of one machine. Its clones are the same machine's.
#[derive(Clone, Debug)]
pub struct Simulation(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    now_ns: u64,
    rng: Rng,
    submitted: u64,
    /// The number of the submission in which it dies.
    dies_at: u64,
    dead: bool,
    /// When requests that were not taken are due, and how many.
    due: BTreeMap<u64, u32>,
}

impl Simulation {
    /// A machine that lives, at time 0.
    pub fn new(seed: u64) -> Self {
        let rng = Rng::seeded(seed);
        Simulation(Arc::new(Mutex::new(State {
            now_ns: 0,
            rng,
            submitted: 0,
            dies_at: u64::MAX,
            dead: false,
            due: BTreeMap::new(),
        })))
    }

    /// The time.
    pub fn now_ns(&self) -> u64 {
        self.lock().now_ns
    }

    /// Time passes, unless the machine is dead.
    pub fn pass(&self, ns: u64) {
        let mut state = self.lock();
        state.now_ns += if state.dead { 0 } else { ns };
    }

    /// When the next request is due that was not taken yet, of whichever device or store.
    pub fn next_due_ns(&self) -> Option<u64> {
        self.lock().due.keys().next().copied()
    }

    /// Number of requests submitted to all devices and stores, direct reads, writes and syncs among them.
    pub fn submitted(&self) -> u64 {
        self.lock().submitted
    }

    /// Dies at the submission after this number of others.
    pub fn die_after(&self, submissions: u64) {
        let mut state = self.lock();
        state.dies_at = state.submitted.saturating_add(submissions);
    }

    /// Whether it has died: all results since then are void.
    pub fn is_dead(&self) -> bool {
        self.lock().dead
    }

    /// It is started again, and no death is planned.
    pub fn restart(&self) {
        let mut state = self.lock();
        (state.dead, state.dies_at) = (false, u64::MAX);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts a submission. Whether the machine is alive when it begins.
    fn submit(&mut self) -> bool {
        let was_alive = !self.dead;
        self.dead |= self.submitted >= self.dies_at;
        self.submitted += 1;
        was_alive
    }

    /// Most requests take some dozens of microseconds, some are late.
    fn delay_ns(&mut self) -> u64 {
        let most_ns = match self.rng.below(64) {
            0 => 50_000_000,
            1..8 => 2_000_000,
            _ => 100_000,
        };
        10_000 + self.rng.below(most_ns)
    }

    /// A request is due then no more.
    fn is_over(&mut self, due_ns: u64) {
        if let Some(count) = self.due.get_mut(&due_ns) {
            *count -= 1;
            if *count == 0 {
                self.due.remove(&due_ns);
            }
        }
    }

    fn applied(&mut self) -> Applied {
        [Applied::None, Applied::Some, Applied::All][self.rng.below(3) as usize]
    }
}

/// The part of a request that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Nothing.
    None,
    /// Some of its sectors.
    Some,
    /// All of it.
    All,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is done.
    Done,
    /// It fails so, and this part of it has happened.
    Failed(Applied, Failing),
}

impl Fate {
    /// The result of a device's request.
    fn result(self, op: Op, offset: u64, len: usize) -> Result<(), BlockError> {
        match self {
            Fate::Done => Ok(()),
            Fate::Failed(_, failing) => Err(failing.block_error(op, offset, len)),
        }
    }
}

/// A medium and the requests that are carried out on it.
pub trait Target {
    /// Type of requests.
    type Request;
    /// Type of completions.
    type Completion;
    /// The number of the last write that took effect.
    fn written(&self) -> u64;
    /// What a request is to a device, and the bytes that it is about.
    fn place(request: &Self::Request) -> (Op, Range<u64>);
    /// A request takes effect. One that makes durable covers the writes up to number `synced`.
    fn carry_out(&self, request: Self::Request, fate: Fate, synced: u64, rng: &mut Rng) -> Self::Completion;
}

struct Flight<R> {
    due_ns: u64,
    /// The number of its submission.
    number: u64,
    request: R,
    fate: Fate,
    /// The writes that were completed when it was submitted.
    synced: u64,
}

/// A device or store in virtual time.
pub struct Simulated<T: Target> {
    target: T,
    simulation: Simulation,
    troubles: Arc<Mutex<Troubles>>,
    /// How long each request takes; by chance unless given.
    latency_ns: Option<u64>,
    flights: Vec<Flight<T::Request>>,
    done: Vec<T::Completion>,
}

impl<T: Target> Simulated<T> {
    /// Opens a medium on a machine.
    pub fn new(target: T, simulation: &Simulation) -> Self {
        let (flights, done) = (Vec::new(), Vec::new());
        let (simulation, troubles) = (simulation.clone(), Arc::default());
        Simulated { target, simulation, troubles, latency_ns: None, flights, done }
    }

    /// Opens a medium with the same latency for each request.
    pub fn steady(target: T, simulation: &Simulation, latency_ns: u64) -> Self {
        let mut device = Simulated::new(target, simulation);
        device.latency_ns = Some(latency_ns);
        device
    }

    /// The faults, for a test to set.
    pub fn troubles(&self) -> Arc<Mutex<Troubles>> {
        Arc::clone(&self.troubles)
    }

    /// The medium.
    pub fn target(&self) -> &T {
        &self.target
    }

    /// Requests that were submitted and not taken.
    pub fn in_flight(&self) -> usize {
        self.flights.len() + self.done.len()
    }

    /// A step that is no request: whether it happens, and whether the machine is alive behind it.
    pub fn step(&self) -> (bool, bool) {
        let mut state = self.simulation.lock();
        let happens = state.submit() && (!state.dead || state.rng.below(2) == 0);
        (happens, !state.dead)
    }

    /// Takes a request.
    pub fn submit(&mut self, request: T::Request) {
        let mut state = self.simulation.lock();
        if !state.submit() {
            let fate = Fate::Failed(Applied::None, Failing::Io);
            let completion = self.target.carry_out(request, fate, 0, &mut state.rng);
            drop(state);
            self.die();
            return self.done.push(completion);
        }
        let (op, bytes) = T::place(&request);
        let refused = self.lock_troubles().refuses_writes && op != Op::Read;
        let fails = self.trouble(true, &mut state.rng) || refused;
        let bad = self
            .lock_troubles()
            .bad_places
            .meet(op, &bytes)
            .map(|failing| Fate::Failed(Applied::None, failing));
        let fate = match bad {
            Some(fate) => fate,
            None if fails => Fate::Failed(state.applied(), Failing::Io),
            None => Fate::Done,
        };
        let latency_ns = self.latency_ns.unwrap_or_else(|| state.delay_ns());
        let sync_ns = if op == Op::Sync { self.lock_troubles().sync_ns } else { 0 };
        let (due_ns, number) = (state.now_ns + latency_ns + sync_ns, state.submitted);
        *state.due.entry(due_ns).or_default() += 1;
        let dies = state.dead;
        drop(state);
        self.flights.push(Flight { due_ns, number, request, fate, synced: self.target.written() });
        if dies {
            self.die();
        }
    }

    /// Takes what is done by now.
    pub fn take(&mut self, out: &mut Vec<T::Completion>) {
        if self.simulation.is_dead() {
            self.die();
        } else if !self.lock_troubles().hangs {
            self.carry_out_until(self.simulation.now_ns());
        }
        out.append(&mut self.done);
    }

    /// Advances the time until a request is done, and takes its
    /// completion. Takes nothing where nothing is in flight, or all hangs.
    pub fn take_next(&mut self, out: &mut Vec<T::Completion>) {
        let first_ns = self.flights.iter().map(|flight| flight.due_ns).min();
        if let Some(first_ns) = first_ns.filter(|_| self.done.is_empty()) {
            let now_ns = self.simulation.now_ns();
            self.simulation.pass(first_ns.saturating_sub(now_ns));
        }
        self.take(out);
    }

    /// Begins a direct read, write or sync; how much of it happens where it fails.
    fn begin_direct(&mut self, op: Op, bytes: &Range<u64>) -> Fate {
        let mut state = self.simulation.lock();
        let was_alive = state.submit();
        let fails = self.trouble(false, &mut state.rng);
        match (was_alive, state.dead) {
            (false, _) => Fate::Failed(Applied::None, Failing::Io),
            (true, false) if !fails => {
                let bad = self.lock_troubles().bad_places.meet(op, bytes);
                bad.map_or(Fate::Done, |failing| Fate::Failed(Applied::None, failing))
            }
            (true, _) => Fate::Failed(state.applied(), Failing::Io),
        }
    }

    /// Whether a submission is to fail.
    fn trouble(&self, by_chance: bool, rng: &mut Rng) -> bool {
        let mut troubles = self.lock_troubles();
        let is_due = troubles.fails_after == Some(0);
        troubles.fails_after = troubles.fails_after.and_then(|spared| spared.checked_sub(1));
        is_due || troubles.broken || by_chance && rng.below(1000) < troubles.failures_per_mille
    }

    fn lock_troubles(&self) -> MutexGuard<'_, Troubles> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn carry_out_until(&mut self, now_ns: u64) {
        let mut due: Vec<_> = self.flights.extract_if(.., |flight| flight.due_ns <= now_ns).collect();
        due.sort_unstable_by_key(|flight| (flight.due_ns, flight.number));
        let mut state = self.simulation.lock();
        for Flight { due_ns, request, fate, synced, .. } in due {
            state.is_over(due_ns);
            self.done.push(self.target.carry_out(request, fate, synced, &mut state.rng));
        }
    }

    /// The submitter of the requests in flight has died: requests
    /// that were due are done, the rest may be done in any part.
    fn die(&mut self) {
        self.carry_out_until(self.simulation.now_ns());
        let mut state = self.simulation.lock();
        while !self.flights.is_empty() {
            let at = state.rng.below(self.flights.len() as u64) as usize;
            let Flight { due_ns, request, synced, .. } = self.flights.swap_remove(at);
            state.is_over(due_ns);
            let applied = state.applied();
            let fate = Fate::Failed(applied, Failing::Io);
            self.done.push(self.target.carry_out(request, fate, synced, &mut state.rng));
        }
    }
}

impl<T: Target> Drop for Simulated<T> {
    fn drop(&mut self) {
        self.die();
    }
}

impl Target for MemoryDisk {
    type Request = Request;
    type Completion = Completion;

    fn written(&self) -> u64 {
        self.lock().written()
    }

    fn place(request: &Request) -> (Op, Range<u64>) {
        (request.op, request.offset..request.offset.saturating_add(request.buffer.len() as u64))
    }

    fn carry_out(&self, mut request: Request, fate: Fate, synced: u64, rng: &mut Rng) -> Completion {
        let mut medium = self.lock();
        let (op, offset, len) = (request.op, request.offset, request.buffer.len());
        if let Err(error) = request.check(medium.bytes().len() as u64) {
            return request.done(Err(error));
        }
        let range = offset as usize..offset as usize + len;
        match (op, fate) {
            (Op::Read, Fate::Failed(..)) => spoil(&mut request.buffer),
            (_, Fate::Failed(Applied::None, _)) | (Op::Sync, Fate::Failed(Applied::Some, _)) => {}
            (Op::Read, _) => request.buffer.copy_from_slice(&medium.bytes()[range]),
            (Op::Write, Fate::Failed(Applied::Some, _)) => {
                copy_some(medium.change(range), &request.buffer, 0, rng);
            }
            (Op::Write, _) => medium.change(range).copy_from_slice(&request.buffer),
            (Op::Sync, _) => medium.sync(synced),
        }
        drop(medium);
        request.done(fate.result(op, offset, len))
    }
}

/// Copies some sectors of what is written from a byte of the medium on.
pub fn copy_some(to: &mut [u8], from: &[u8], offset: u64, rng: &mut Rng) {
    let mut at = 0;
    while at < to.len() {
        let sector_end = SECTOR_BYTES - (offset + at as u64) % SECTOR_BYTES;
        let end = (at + sector_end as usize).min(to.len());
        if rng.below(2) == 0 {
            to[at..end].copy_from_slice(&from[at..end]);
        }
        at = end;
    }
}

/// Bytes at the front of a direct write that happen, up to the end of some sector. The page
/// cache takes them in order: only a power loss may take back sectors in between.
fn front_bytes(offset: u64, len: usize, rng: &mut Rng) -> usize {
    let in_sector = (offset % SECTOR_BYTES) as usize;
    let sectors = (in_sector + len).div_ceil(SECTOR_BYTES as usize);
    (rng.below(sectors as u64 + 1) as usize * SECTOR_BYTES as usize).saturating_sub(in_sector).min(len)
}

impl BlockIo for Simulated<MemoryDisk> {
    fn submit(&mut self, request: Request) {
        Simulated::submit(self, request);
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        self.take(out);
    }

    fn wait(&mut self, out: &mut Vec<Completion>) {
        self.take_next(out);
    }

    fn in_flight(&self) -> usize {
        Simulated::in_flight(self)
    }

    // The driver of an engine in virtual time looks for completions by itself.
    fn notify(&mut self, _: Waker) {}

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        check_range(Op::Write, offset, bytes.len() as u64, self.capacity_bytes())?;
        let fate = self.begin_direct(Op::Write, &(offset..offset + bytes.len() as u64));
        let range = offset as usize..offset as usize + bytes.len();
        match fate {
            Fate::Done | Fate::Failed(Applied::All, _) => {
                self.target.lock().change(range).copy_from_slice(bytes)
            }
            Fate::Failed(Applied::Some, _) => {
                let len = front_bytes(offset, bytes.len(), &mut self.simulation.lock().rng);
                self.target.lock().change(range)[..len].copy_from_slice(&bytes[..len]);
            }
            Fate::Failed(Applied::None, _) => {}
        }
        fate.result(Op::Write, offset, bytes.len())
    }

    fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        check_range(Op::Read, offset, bytes.len() as u64, self.capacity_bytes())?;
        let fate = self.begin_direct(Op::Read, &(offset..offset + bytes.len() as u64));
        match fate {
            Fate::Done => {
                let range = offset as usize..offset as usize + bytes.len();
                bytes.copy_from_slice(&self.target.lock().bytes()[range]);
            }
            Fate::Failed(..) => spoil(bytes),
        }
        fate.result(Op::Read, offset, bytes.len())
    }

    fn sync(&mut self) -> Result<(), BlockError> {
        let fate = self.begin_direct(Op::Sync, &(0..0));
        if fate == Fate::Done {
            self.target.lock().sync(u64::MAX);
        }
        fate.result(Op::Sync, 0, 0)
    }

    fn capacity_bytes(&self) -> u64 {
        self.target.lock().bytes().len() as u64
    }

    fn describe(&self) -> &'static str {
        "memory in virtual time"
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AlignedBuffer, BLOCK_BYTES};
    use super::*;

    fn write(device: &mut Simulated<MemoryDisk>, block: u64) {
        let mut buffer = AlignedBuffer::zeroed(BLOCK_BYTES);
        buffer.fill(1);
        BlockIo::submit(device, Request::write(block, block * BLOCK_BYTES as u64, buffer));
    }

    #[test]
    fn requests_are_done_when_their_time_has_come_and_overtake_each_other() {
        let simulation = Simulation::new(1);
        let disk = MemoryDisk::new(64 * BLOCK_BYTES);
        let mut device = Simulated::new(disk.clone(), &simulation);
        (0..64).for_each(|block| write(&mut device, block));
        let mut done = Vec::new();
        device.take(&mut done);
        assert!(done.is_empty() && disk.with_bytes(|bytes| bytes.iter().all(|byte| *byte == 0)));
        simulation.pass(50_000);
        device.take(&mut done);
        let early = done.len();
        assert!(early > 0 && early < 64, "{early}");
        while device.in_flight() > 0 {
            device.take_next(&mut done);
        }
        assert!(done.iter().all(|it| it.result.is_ok()) && !done.is_sorted_by_key(|it| it.token));
        assert!(simulation.now_ns() > 60_000);
    }

    #[test]
    fn death_comes_in_a_submission_and_leaves_anything_of_what_was_in_flight() {
        let mut seen = [0; 9];
        for seed in 0..200 {
            let simulation = Simulation::new(seed);
            let disk = MemoryDisk::new(4 * BLOCK_BYTES);
            let mut device = Simulated::new(disk.clone(), &simulation);
            simulation.die_after(1);
            write(&mut device, 0);
            assert!(!simulation.is_dead());
            write(&mut device, 1);
            assert!(simulation.is_dead());
            write(&mut device, 2);
            assert!(device.write_at(3 * BLOCK_BYTES as u64, &[1]).is_err() && device.sync().is_err());
            drop(device);
            disk.with_bytes(|bytes| {
                assert!(bytes[2 * BLOCK_BYTES..].iter().all(|byte| *byte == 0), "it was dead");
                seen[bytes[BLOCK_BYTES..].iter().filter(|byte| **byte == 1).count() / 512] += 1;
            });
        }
        assert!(seen[0] > 20 && seen[8] > 20 && seen[1..8].iter().sum::<u32>() > 20, "{seen:?}");
    }

    #[test]
    fn a_death_in_a_direct_write_leaves_its_front() {
        let mut seen = [0; 4];
        for seed in 0..200 {
            let simulation = Simulation::new(seed);
            let disk = MemoryDisk::new(BLOCK_BYTES);
            let mut device = Simulated::new(disk.clone(), &simulation);
            simulation.die_after(0);
            assert!(device.write_at(500, &[1; 1000]).is_err());
            let written = disk.with_bytes(|bytes| bytes[500..].iter().take_while(|byte| **byte == 1).count());
            disk.with_bytes(|bytes| assert_eq!(bytes.iter().filter(|byte| **byte == 1).count(), written));
            let ends_in = [0, 12, 524, 1000].into_iter().position(|end| end == written);
            seen[ends_in.expect("a sector is written or not")] += 1;
        }
        assert!(seen.iter().all(|&count| count > 10), "{seen:?}");
    }

    #[test]
    fn a_sync_covers_what_was_completed_before_it_was_submitted() {
        let simulation = Simulation::new(3);
        let disk = MemoryDisk::new(4 * BLOCK_BYTES);
        let mut device = Simulated::new(disk.clone(), &simulation);
        let mut done = Vec::new();
        write(&mut device, 0);
        device.take_next(&mut done);
        write(&mut device, 1);
        BlockIo::submit(&mut device, Request::sync(9));
        while device.in_flight() > 0 {
            device.take_next(&mut done);
        }
        assert!(disk.is_synced(0, 1) && !disk.is_synced(BLOCK_BYTES as u64, 1));
    }

    #[test]
    fn troubles_come_as_asked() {
        let simulation = Simulation::new(4);
        let mut device = Simulated::new(MemoryDisk::new(4 * BLOCK_BYTES), &simulation);
        device.lock_troubles().fails_after = Some(1);
        let results = [1, 2, 3].map(|_| device.write_at(0, &[1]).is_ok());
        assert_eq!(results, [true, false, true]);
        device.lock_troubles().hangs = true;
        write(&mut device, 0);
        let mut done = Vec::new();
        device.take_next(&mut done);
        assert!(done.is_empty());
        *device.lock_troubles() = Troubles { broken: true, ..Troubles::default() };
        write(&mut device, 1);
        while device.in_flight() > 0 {
            device.take_next(&mut done);
        }
        assert!(done[0].result.is_ok() && done[1].result.is_err());
    }

    #[test]
    fn requests_of_a_steady_device_take_as_long_and_who_refuses_writes_reads() {
        let simulation = Simulation::new(5);
        let mut device = Simulated::steady(MemoryDisk::new(4 * BLOCK_BYTES), &simulation, 700);
        write(&mut device, 0);
        simulation.pass(300);
        device.lock_troubles().refuses_writes = true;
        write(&mut device, 1);
        let mut buffer = AlignedBuffer::zeroed(BLOCK_BYTES);
        buffer.fill(9);
        BlockIo::submit(&mut device, Request::read(2, 0, buffer));
        let mut done = Vec::new();
        for (due_ns, count) in [(700, 1), (1000, 3)] {
            assert_eq!(simulation.next_due_ns(), Some(due_ns));
            simulation.pass(due_ns - 1 - simulation.now_ns());
            device.take(&mut done);
            simulation.pass(1);
            device.take(&mut done);
            assert_eq!(done.len(), count);
        }
        assert_eq!(simulation.next_due_ns(), None);
        assert_eq!(done.iter().map(|it| it.result.is_ok()).collect::<Vec<_>>(), [true, false, true]);
        write(&mut device, 3);
        drop(device);
        assert_eq!(simulation.next_due_ns(), None, "nobody waits for it");
    }
}
