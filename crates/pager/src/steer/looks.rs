//! The thread that looks at references: which granules of a program were used since the last look.
//!
//! The kernel tells references for each mapping (`/proc/PID/smaps`), not for each page. So an agent within the program ([`tiermem_sys::agent`])
//! makes mappings of granules. The agent is traced by the thread that made it, and a look takes milliseconds, in which faults want to be
//! heard; so looks have a thread of their own.
//!
//! An agent shares the address space of its program and would keep its memory alone: it is ended soon after the program has gone, or has begun
//! another one. It is in the program's control group when it is born, where it would pass for a process of the program, and is moved to
//! tiermem's own.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tiermem_policy::paging::Granules;
use tiermem_sys::agent::{self, Agent, AgentError};
use tiermem_sys::control_group::{Group, Hierarchy};
use tiermem_sys::pidfd::PidFd;
use tiermem_sys::smaps::{Clear, Smaps};

/// How often it is tried to divide a range.
const TRIES: u32 = 3;
/// How soon a process is tried again that could have no agent.
const TRIED_APART: Duration = Duration::from_secs(1);
/// How soon it is noticed that a program has gone.
const TICK: Duration = Duration::from_millis(50);
/// What it costs a program to set the bit of a page anew, in a virtual machine.
const BIT_SET: Duration = Duration::from_nanos(400);
const PAGE_BYTES: u64 = 4096;

/// What the thread tells.
#[derive(Debug)]
pub enum Told {
    /// This process is an agent, in the address space of another.
    Agent(u32),
    /// A look has ended.
    Looked(Seen),
}

/// What a look has found.
#[derive(Debug, Default)]
pub struct Seen {
    /// Ranges of addresses in which something was used, with their process.
    pub ranges: Vec<(u32, (u64, u64))>,
    /// Processor time that it took, of the program too.
    pub took: Duration,
    /// Why references of a process cannot be had, if so.
    pub refused: Option<String>,
}

/// The thread. Dropped, it ends its agents, and is waited for.
#[derive(Debug)]
pub struct Looks {
    /// `None` when it is to end.
    orders: Option<Sender<Vec<u32>>>,
    told: Receiver<Told>,
    thread: Option<JoinHandle<()>>,
    is_looking: bool,
}

impl Looks {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system gives none.
    pub fn start(granule_bytes: u64) -> io::Result<Self> {
        let (orders, received) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let looker = move || Looker::new(granule_bytes, tell).run(&received);
        let thread = std::thread::Builder::new().name("look".to_owned()).spawn(looker)?;
        Ok(Looks { orders: Some(orders), told, thread: Some(thread), is_looking: false })
    }

    /// Has it look at these processes, all of the program's.
    pub fn look(&mut self, pids: Vec<u32>) {
        // A thread that has ended looks no more.
        self.is_looking = self.orders.as_ref().is_some_and(|orders| orders.send(pids).is_ok());
    }

    /// Whether a look has not ended yet.
    pub fn is_looking(&self) -> bool {
        self.is_looking
    }

    /// What was told since the last time.
    pub fn told(&mut self) -> Vec<Told> {
        let told: Vec<Told> = self.told.try_iter().collect();
        self.is_looking &= !told.iter().any(|it| matches!(it, Told::Looked(_)));
        told
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // One that has panicked has no agents any more.
            let _ = thread.join();
        }
    }
}

struct Looker {
    granule_bytes: u64,
    own_group: Option<Group>,
    programs: BTreeMap<u32, Looked>,
    /// Those that could have no agent, why, and when that was.
    refused: BTreeMap<u32, (String, Instant)>,
    tell: Sender<Told>,
}

/// A process that is looked at.
struct Looked {
    smaps: Smaps,
    agent: Agent,
    granules: Granules,
    /// Ranges that were one mapping at the last look, and how often in a row: what cannot be divided is left alone.
    whole: BTreeMap<(u64, u64), u32>,
    /// Whether references were cleared before, so that they tell something.
    is_cleared: bool,
}

impl Looker {
    fn new(granule_bytes: u64, tell: Sender<Told>) -> Self {
        let own_group = Hierarchy::of_memory().and_then(|it| it.own_group()).ok();
        Looker { granule_bytes, own_group, programs: BTreeMap::new(), refused: BTreeMap::new(), tell }
    }

    fn run(mut self, orders: &Receiver<Vec<u32>>) {
        loop {
            match orders.recv_timeout(TICK) {
                Ok(pids) => {
                    let seen = self.look(&pids);
                    if self.tell.send(Told::Looked(seen)).is_err() {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            agent::leave_late();
            // Also one that is in another program now: it has an agent of its own at the next look.
            self.programs.retain(|_, looked| looked.agent.is_in() != Some(false));
        }
    }

    fn look(&mut self, pids: &[u32]) -> Seen {
        let mut seen = Seen::default();
        self.programs.retain(|pid, _| pids.contains(pid));
        self.refused.retain(|pid, (_, at)| pids.contains(pid) && at.elapsed() < TRIED_APART);
        let mut used_bytes = 0;
        for pid in pids {
            if !self.programs.contains_key(pid) && !self.refused.contains_key(pid) {
                match self.begin(*pid) {
                    Ok(begun) => drop(self.programs.insert(*pid, begun)),
                    Err(why) if PidFd::open(*pid).is_ok() => {
                        self.refused.insert(*pid, (why, Instant::now()));
                    }
                    Err(_) => {}
                }
            }
            // A process that has gone meanwhile tells nothing.
            if let Some(looked) = self.programs.get_mut(pid) {
                let begun = Instant::now();
                let mappings = looked.look(|range, bytes| {
                    used_bytes += bytes;
                    seen.ranges.push((*pid, range));
                });
                seen.took += begun.elapsed();
                // Done once, so it is no matter for the pace.
                if let Ok(mappings) = mappings {
                    looked.divide(mappings);
                }
            }
        }
        seen.refused = self.refused.values().next().map(|(why, _)| why.clone());
        let pages = u32::try_from(used_bytes / PAGE_BYTES).unwrap_or(u32::MAX);
        seen.took += BIT_SET * pages;
        seen
    }

    fn begin(&self, pid: u32) -> Result<Looked, String> {
        let agent = agent::attach(pid).map_err(|error| format!("process {pid}: {error}"))?;
        if let Some(own) = agent.own_pid() {
            let _ = self.tell.send(Told::Agent(own));
            let moved = self.own_group.as_ref().map(|group| group.add(own));
            if let Some(Err(error)) = moved {
                return Err(format!("the agent stays in the program's control group: {error}"));
            }
        }
        let smaps = Smaps::open(pid).map_err(|error| format!("process {pid}: {error}"))?;
        let granules = Granules::of(self.granule_bytes);
        Ok(Looked { smaps, agent, granules, whole: BTreeMap::new(), is_cleared: false })
    }
}

impl Looked {
    /// Tells each range in which something was used, with the bytes that were, and forgets it. Returns the number of mappings.
    fn look(&mut self, mut tell: impl FnMut((u64, u64), u64)) -> io::Result<u64> {
        let (mut whole, mut mappings, mut used) = (BTreeMap::new(), 0_u64, Vec::new());
        let (granules, before) = (self.granules, &self.whole);
        self.smaps.read(|usage| {
            mappings += 1;
            if !usage.is_private_memory || usage.resident_bytes == 0 {
                return;
            }
            if usage.referenced_bytes > 0 {
                used.push(((usage.start, usage.end), usage.referenced_bytes));
            }
            let range = (usage.start, usage.end);
            if granules.divide(usage.end - usage.start, usage.resident_bytes) {
                whole.insert(range, before.get(&range).map_or(0, |looks| looks + 1));
            }
        })?;
        self.smaps.clear(Clear::Anonymous)?;
        if std::mem::replace(&mut self.is_cleared, true) {
            used.into_iter().for_each(|(range, bytes)| tell(range, bytes));
        }
        self.whole = whole;
        Ok(mappings)
    }

    /// Divides what is whole, in granules so large that there are not too many mappings.
    fn divide(&mut self, mappings: u64) {
        let new: Vec<(u64, u64)> =
            self.whole.iter().filter(|(_, looks)| **looks < TRIES).map(|(range, _)| *range).collect();
        let bytes: u64 = new.iter().map(|(start, end)| end - start).sum();
        let Some(granule_bytes) = self.granules.size(bytes, mappings) else { return };
        for (start, end) in new {
            // Granules are counted from address 0, so that the same page is always in the same one.
            if let Err(AgentError::Lost(_)) = self.agent.split(start, end - start, granule_bytes, 0) {
                return;
            }
        }
    }
}
