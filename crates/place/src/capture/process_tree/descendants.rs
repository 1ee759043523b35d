//! Descendants of a process: who is born, comes of age, and ends.
//!
//! The kernel tells births and ends (`perf_event_open`), also of those whose parents have ended before. Where it does not, and of a process
//! that ran before, the children of all that are known are listed again and again: what lives for a moment only, or loses its parent
//! between two looks, is missed then.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use tiermem_sys::child;
use tiermem_sys::perf::{TaskChange, TaskEvent, TaskWatch};
use tiermem_sys::pidfd::PidFd;
use tiermem_trace::recording::{NumberedProcess, Process};

use super::identity::{self, Identity};

/// A process that has lived so long is observed. To begin with it costs the process a millisecond or more.
const OF_AGE: Duration = Duration::from_millis(100);
/// Least time between two lists of children, and the part of the time that listing them may take.
const LISTED_EVERY: Duration = Duration::from_millis(20);
const LISTING_PART: u32 = 50;
/// Processes that are observed at the same time, at most: each takes a thread here. And those that begin to be at once: each is waited for
/// with a processor's time until it stands still.
pub(super) const OBSERVED_MAX: usize = 256;
const BEGUN_AT_ONCE: usize = 8;
/// Processes of which is kept that they were there, at most.
const KEPT_MAX: usize = 20_000;

/// Its place in the list.
pub(super) type Place = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not of age.
    Young,
    /// Somebody looks at it.
    Observed,
    /// It lives, and nobody looks at it.
    LeftAlone,
    Ended,
}

#[derive(Debug)]
struct Descendant {
    process: Process,
    parent: Option<Place>,
    born: Instant,
    /// `None` if it had ended before it was noticed.
    watch: Option<PidFd>,
    state: State,
    /// Whether there were too many others when it came of age.
    was_left_alone: bool,
    /// An agent, or a process that was there to make one.
    is_ours: bool,
    /// Its number in the recording, once that has it.
    number: Option<u32>,
    is_told: bool,
}

/// A process and all its descendants.
#[derive(Debug)]
pub(super) struct Descendants {
    begun: Instant,
    watch: Option<TaskWatch>,
    /// Whether they are followed at all, and how many may be observed at the same time.
    is_followed: bool,
    observed_max: usize,
    all: Vec<Descendant>,
    living: HashMap<u32, Place>,
    agents: HashSet<u32>,
    numbers: u32,
    list_next: Instant,
    /// Those that nobody looked at as there were too many, and those of which nothing was kept.
    left_alone: u64,
    not_kept: u64,
}

impl Descendants {
    /// Of the process that was started or named, which is observed already.
    pub fn of(first: u32, begun: Instant, watch: Option<TaskWatch>, observed_max: usize) -> Self {
        let mut descendants = Descendants {
            begun,
            watch,
            is_followed: observed_max > 0,
            observed_max,
            all: Vec::new(),
            living: HashMap::new(),
            agents: HashSet::new(),
            numbers: 0,
            list_next: begun,
            left_alone: 0,
            not_kept: 0,
        };
        descendants.add(first, None, begun);
        descendants.all[0].state = State::Observed;
        descendants.is(0, &Identity::of(first));
        descendants
    }

    /// Takes in that a process is an agent, and none of the program's.
    pub fn is_agent(&mut self, pid: u32) {
        self.agents.insert(pid);
    }

    /// Looks around, and returns who is to be observed from now on: places and numbers of processes.
    pub fn look(&mut self) -> Vec<(Place, u32)> {
        if !self.is_followed {
            return Vec::new();
        }
        let is_told = self.watch.as_mut().map(TaskWatch::drain).is_some_and(|(events, lost)| {
            events.into_iter().for_each(|event| self.take(event));
            lost == 0
        });
        let now = Instant::now();
        if !is_told && now >= self.list_next {
            self.list();
            self.list_next = Instant::now() + LISTED_EVERY.max(now.elapsed() * LISTING_PART);
        }
        let mut young: Vec<Place> =
            self.living.values().copied().filter(|at| self.all[*at].state == State::Young).collect();
        young.sort_unstable();
        let mut come_of_age: Vec<(Place, u32)> = Vec::new();
        for at in young {
            if self.has_ended(at) {
                self.end(at, now);
            } else if come_of_age.len() < BEGUN_AT_ONCE
                && now.saturating_duration_since(self.all[at].born) >= OF_AGE
                && self.is_to_be_observed(at)
            {
                come_of_age.push((at, self.all[at].process.pid));
            }
        }
        come_of_age
    }

    /// Whether a process lives of which it is not known yet whether it is to be observed.
    pub fn has_young(&mut self) -> bool {
        let young = |at: &Place| self.all[*at].state == State::Young && !self.has_ended(*at);
        self.living.values().any(young)
    }

    /// What a process is called; several may be called alike.
    pub fn name(&self, at: Place) -> &str {
        &self.all[at].process.name
    }

    /// Notes for the reader of the recording.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let is_short = |it: &&Descendant| {
            let is_over = it.number.is_some() && it.state == State::Ended;
            is_over && !it.process.is_observed && !it.was_left_alone
        };
        match self.all.iter().skip(1).filter(is_short).count() {
            0 => {}
            1 => notes.push("a process ended within 100 ms; its memory was not looked at".to_owned()),
            short => {
                notes.push(format!("{short} processes ended within 100 ms; their memory was not looked at"))
            }
        }
        if self.left_alone > 0 {
            let Descendants { left_alone, observed_max, .. } = self;
            notes.push(format!(
                "{left_alone} processes were not looked at: no more than {observed_max} are at the same time"
            ));
        }
        if self.not_kept > 0 {
            let not_kept = self.not_kept;
            notes.push(format!("{not_kept} more processes are left out: a recording lists {KEPT_MAX}"));
        }
        notes
    }

    /// The number of a process in the recording, which has it from now on.
    pub fn number(&mut self, at: Place) -> u32 {
        if let Some(number) = self.all[at].number {
            return number;
        }
        let parent = self.all[at].parent.map(|parent| self.number(parent));
        let number = self.numbers;
        self.numbers += 1;
        let it = &mut self.all[at];
        (it.number, it.process.parent, it.is_told) = (Some(number), parent, false);
        number
    }

    /// What a process is by now.
    pub fn is(&mut self, at: Place, identity: &Identity) {
        let Identity { name, command, executable } = identity.clone();
        let it = &mut self.all[at];
        it.process = Process { name, command, executable, is_observed: true, ..it.process.clone() };
        it.is_told = false;
    }

    /// Takes in that nobody looks at a process any more.
    pub fn leave(&mut self, at: Place, has_ended: bool) {
        if has_ended {
            self.end(at, Instant::now());
        } else if self.all[at].state == State::Observed {
            self.all[at].state = State::LeftAlone;
        }
    }

    /// What is new, for the recording; all there is at its end.
    pub fn facts(&mut self, is_end: bool) -> Vec<NumberedProcess> {
        for at in 0..self.all.len() {
            let it = &self.all[at];
            if !it.is_ours && self.agents.contains(&it.process.pid) {
                self.is_ours(at);
            }
        }
        // What ended young has lived, unless it is ours, which may not be known at once.
        for at in 0..self.all.len() {
            let it = &self.all[at];
            let is_over = is_end || it.state == State::Ended && it.born.elapsed() >= OF_AGE;
            if it.number.is_none() && is_over && !it.is_ours {
                self.number(at);
            }
        }
        let told = |it: &mut Descendant| {
            let number = it.number.filter(|_| !std::mem::replace(&mut it.is_told, true))?;
            Some(NumberedProcess { number, process: it.process.clone() })
        };
        self.all.iter_mut().filter_map(told).collect()
    }

    /// Whether a process has ended.
    pub fn has_ended(&self, at: Place) -> bool {
        self.all[at].watch.as_ref().is_none_or(|watch| watch.wait(Duration::ZERO))
    }

    fn end(&mut self, at: Place, now: Instant) {
        let it = &mut self.all[at];
        if it.state != State::Ended {
            let ended_ns = now.saturating_duration_since(self.begun).as_nanos() as u64;
            it.process.ended_ns.get_or_insert(ended_ns);
            (it.state, it.is_told, it.watch) = (State::Ended, false, None);
            self.living.remove(&it.process.pid);
        }
    }

    fn add(&mut self, pid: u32, parent: Option<Place>, born: Instant) {
        if self.all.len() >= KEPT_MAX {
            self.not_kept += 1;
            return;
        }
        let watch = PidFd::open(pid).ok();
        let begun_ns = born.saturating_duration_since(self.begun).as_nanos() as u64;
        let inherited = parent.map(|parent| &self.all[parent].process);
        let name = inherited.map_or_else(String::new, |parent| parent.name.clone());
        let process = Process { name, pid, begun_ns, ..Process::default() };
        let is_ours = parent.is_some_and(|parent| self.all[parent].is_ours);
        let at = self.all.len();
        self.all.push(Descendant {
            process,
            parent,
            born,
            watch,
            state: State::Young,
            was_left_alone: false,
            is_ours,
            number: None,
            is_told: false,
        });
        self.living.insert(pid, at);
        if self.agents.contains(&pid) || identity::is_agent(pid) {
            self.is_ours(at);
        }
    }

    /// Takes in that a process is an agent. It was made by its program, or by a process between that is ours too.
    fn is_ours(&mut self, at: Place) {
        self.all[at].is_ours = true;
        self.all[at].state = State::LeftAlone;
        if let Some(parent) = self.all[at].parent.filter(|parent| self.all[*parent].state != State::Observed)
        {
            let is_between = self.all[parent].number.is_none() && self.has_ended(parent);
            if is_between {
                self.all[parent].is_ours = true;
            }
        }
    }

    fn take(&mut self, TaskEvent { pid, at, change }: TaskEvent) {
        match (change, self.living.get(&pid).copied()) {
            (TaskChange::Born { parent }, known) => {
                // Its number means another process now.
                if let Some(before) = known.filter(|before| *before > 0) {
                    self.end(before, at);
                }
                let parent = self.living.get(&parent).copied();
                self.add(pid, parent, at);
            }
            (TaskChange::Named(name), Some(known)) if self.all[known].state != State::Observed => {
                self.all[known].process.name = name;
            }
            // Whoever looks at it says when it has ended: its other threads may go on.
            (TaskChange::Ended, Some(known))
                if self.all[known].state != State::Observed && self.has_ended(known) =>
            {
                self.end(known, at);
            }
            _ => {}
        }
    }

    /// Adds the children of all that live, and theirs.
    fn list(&mut self) {
        let now = Instant::now();
        let mut parents: Vec<Place> = self.living.values().copied().collect();
        while let Some(parent) = parents.pop() {
            for pid in child::children(self.all[parent].process.pid) {
                if !self.living.contains_key(&pid) && self.all.len() < KEPT_MAX {
                    self.add(pid, Some(parent), now);
                    parents.push(self.all.len() - 1);
                }
            }
        }
    }

    fn is_to_be_observed(&mut self, at: Place) -> bool {
        let pid = self.all[at].process.pid;
        if self.agents.contains(&pid) || identity::is_agent(pid) {
            self.is_ours(at);
        }
        if self.all[at].is_ours {
            return false;
        }
        let observed = self.living.values().filter(|at| self.all[**at].state == State::Observed).count();
        let is_observed = observed < self.observed_max;
        self.left_alone += u64::from(!is_observed);
        self.all[at].was_left_alone = !is_observed;
        self.all[at].state = if is_observed { State::Observed } else { State::LeftAlone };
        is_observed
    }
}
