//! A program and all processes that it starts, slice by slice.
//!
//! Each process has an observer on a thread of its own ([`member`]). The coordinator says when slices end, waits until all have told what
//! they saw, and looks meanwhile who is born ([`descendants`]). What is observed ends with the last process.

mod descendants;
mod identity;
mod member;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::Scope;
use std::time::{Duration, Instant};

use tiermem_sys::limits::raise_open_files;
use tiermem_sys::pidfd::PidFd;
use tiermem_trace::recording::{Facts, JournalSample, NumberedProcess, NumberedRegion, Region};

use self::descendants::{Descendants, OBSERVED_MAX, Place};
pub(in crate::capture) use self::member::Account;
use self::member::{Seen, Subject, Told};
use super::observer::Looked;
use super::options::{Options, SourceKind};
use super::schedule::Due;
use super::sites::SiteCollector;
use super::{CaptureError, Stop};

/// Longest time until a birth is noticed.
const STEP: Duration = Duration::from_millis(20);
/// Notes about descendants that are told, at most.
const NOTES_MAX: usize = 12;

/// All accesses of a slice, of all processes.
#[derive(Debug)]
pub(super) struct TreeSlice {
    pub looked: Looked,
    pub facts: Facts,
    pub samples: Vec<JournalSample>,
}

/// Processes under observation.
pub(super) struct ProcessTree<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    options: &'env Options,
    stop: &'env Stop,
    /// Those that were or are looked at.
    members: Vec<Member>,
    descendants: Descendants,
    reports: Receiver<(usize, Told)>,
    to_reports: Sender<(usize, Told)>,
    /// Numbers of regions, of all processes.
    numbers: u32,
    /// Its number, and what tells of its end.
    first: (u32, PidFd),
    /// What gathers who touches memory, if that is asked for.
    sites: Option<SiteCollector>,
    /// Who cannot be seen any more, from which slice on, and why.
    failures: Vec<(String, u32, String)>,
}

/// A process that is or was looked at.
struct Member {
    place: Place,
    /// None once its thread has ended.
    orders: Option<Sender<Due>>,
    /// Whether it has not told yet of the slice under way.
    is_due: bool,
    /// The numbers in the recording of its regions.
    numbers: Vec<u32>,
    /// As they were told last.
    regions: Vec<NumberedRegion>,
    account: Account,
}

impl<'scope, 'env> ProcessTree<'scope, 'env> {
    /// Starts the program, or opens the process, and looks at it.
    pub fn begin(
        scope: &'scope Scope<'scope, 'env>,
        options: &'env Options,
        stop: &'env Stop,
        begun: Instant,
    ) -> Result<Self, CaptureError> {
        // The kernel has one DAMON for all.
        let is_followed = options.children && !options.sources.contains(&SourceKind::Damon);
        let observed_max = if is_followed { observed_max() } else { 0 };
        let (to_reports, reports) = mpsc::channel();
        let first = spawn(scope, options, stop, (0, Subject::First), &to_reports);
        let (pid, tasks, sites) = match reports.recv() {
            Ok((_, Told::Begun { pid, tasks, sites })) => (pid, tasks, sites),
            Ok((_, Told::Left(Err(error), _))) => return Err(error),
            // Its thread begins with one of these.
            Ok(_) | Err(_) => return Err(CaptureError::Wait(std::io::ErrorKind::BrokenPipe.into())),
        };
        let watch = PidFd::open(pid).map_err(|_| CaptureError::NoProcess(pid))?;
        let descendants = Descendants::of(pid, begun, tasks, observed_max);
        let mut tree = ProcessTree {
            scope,
            options,
            stop,
            members: Vec::new(),
            descendants,
            reports,
            to_reports,
            numbers: 0,
            first: (pid, watch),
            sites,
            failures: Vec::new(),
        };
        tree.members.push(Member::new(0, first));
        Ok(tree)
    }

    /// Observes a slice of all.
    ///
    /// # Errors
    /// If the first process cannot be looked at, in the first slice. Later on that is noted.
    pub fn slice(&mut self, due: Due) -> Result<TreeSlice, CaptureError> {
        let begun = Instant::now();
        let mut slice = TreeSlice {
            looked: Looked { begun, end: begun, ended: false },
            facts: Facts::default(),
            samples: Vec::new(),
        };
        for member in &mut self.members {
            // One whose thread has ended has told so, or is about to.
            member.is_due = member.orders.as_ref().is_some_and(|orders| orders.send(due).is_ok());
        }
        loop {
            let until_due = due.until.saturating_duration_since(Instant::now());
            let wait = if self.is_waited_for() { STEP } else { STEP.min(until_due) };
            match self.reports.recv_timeout(wait) {
                Ok((number, told)) => self.take(number, told, due, &mut slice)?,
                // There is always a sender: this one's.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            // A request to stop is for all.
            let new = if self.stop.is_asked() { Vec::new() } else { self.descendants.look() };
            for (place, pid) in new {
                let subject = Subject::Descendant { pid, slice: due.number };
                // In the order of births, whoever is looked at first.
                self.descendants.number(place);
                let orders = spawn(
                    self.scope,
                    self.options,
                    self.stop,
                    (self.members.len(), subject),
                    &self.to_reports,
                );
                let is_due = orders.send(due).is_ok();
                self.members.push(Member { is_due, ..Member::new(place, orders) });
            }
            let is_over = self.stop.is_asked() || Instant::now() >= due.until || self.is_over();
            if is_over && !self.is_waited_for() {
                break;
            }
        }
        slice.looked.end = Instant::now();
        slice.looked.ended = self.is_over();
        slice.facts.processes = self.processes(false);
        Ok(slice)
    }

    /// Whether nobody is left to look at.
    fn is_over(&mut self) -> bool {
        self.members.iter().all(|member| member.orders.is_none()) && !self.descendants.has_young()
    }

    fn is_waited_for(&self) -> bool {
        self.members.iter().any(|member| member.is_due)
    }

    fn take(
        &mut self,
        number: usize,
        told: Told,
        due: Due,
        slice: &mut TreeSlice,
    ) -> Result<(), CaptureError> {
        let member = &mut self.members[number];
        match told {
            Told::Begun { .. } => {}
            Told::Slice(seen) => {
                let Seen { looked, samples, regions, numbers, account } = seen;
                // Of one that has ended there is more to come.
                member.is_due = looked.is_none_or(|looked| looked.ended);
                slice.looked.begun = looked.map_or(slice.looked.begun, |it| it.begun.min(slice.looked.begun));
                account.agents.iter().for_each(|pid| self.descendants.is_agent(*pid));
                self.descendants.is(member.place, &account.identity);
                let process = self.descendants.number(member.place);
                for _ in member.numbers.len()..numbers {
                    member.numbers.push(self.numbers);
                    self.numbers += 1;
                }
                let numbers = &member.numbers;
                let global = |local: u32| numbers[local as usize];
                slice
                    .samples
                    .extend(samples.into_iter().map(|it| JournalSample { region: global(it.region), ..it }));
                let regions = regions.into_iter().map(|it| NumberedRegion {
                    number: global(it.number),
                    within: it.within.map(global),
                    region: Region { process, ..it.region },
                    ..it
                });
                member.regions = regions.collect();
                slice.facts.regions.extend(member.regions.iter().cloned());
                member.account = *account;
            }
            Told::Left(done, account) => {
                let (is_first, is_begun) = (number == 0, !member.numbers.is_empty());
                let place = member.place;
                member.account = *account;
                member.orders = None;
                member.is_due = false;
                // Its memory is there no more, or nobody knows of it.
                for region in &mut member.regions {
                    region.region.last_slice =
                        if region.is_mapped { due.number } else { region.region.last_slice };
                    region.is_mapped = false;
                }
                slice.facts.regions.append(&mut member.regions);
                let has_ended = self.descendants.has_ended(place);
                self.descendants.leave(place, has_ended);
                match done {
                    Err(error) if is_first && !is_begun && !has_ended => return Err(error),
                    Err(error) if !has_ended => {
                        let name = self.descendants.name(place).to_owned();
                        self.failures.push((name, due.number, error.to_string()));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Ends all looking, and takes in what there is to say.
    pub fn finish(&mut self, due: Due) -> Facts {
        let mut last = TreeSlice {
            looked: Looked { begun: due.until, end: due.until, ended: false },
            facts: Facts::default(),
            samples: Vec::new(),
        };
        // Regions stay what they were: they are mapped still.
        self.members.iter_mut().for_each(|member| {
            member.regions.clear();
            member.is_due = member.orders.is_some();
        });
        let orders: Vec<Option<Sender<Due>>> = self.members.iter_mut().map(|it| it.orders.take()).collect();
        drop(orders);
        while self.is_waited_for() {
            match self.reports.recv() {
                Ok((number, told)) => drop(self.take(number, told, due, &mut last)),
                Err(_) => break,
            }
        }
        last.facts.processes = self.processes(true);
        last.facts
    }

    /// What gathers sites, once, with the number of the first process.
    pub fn take_sites(&mut self) -> Option<(SiteCollector, u32)> {
        self.sites.take().map(|sites| (sites, self.first.0))
    }

    /// Whether the first process lives, after this time at most if it does not.
    pub fn first_lives(&self, at_most: Duration) -> bool {
        !self.first.1.wait(at_most)
    }

    /// What is known of the looking at each process, the first one's first.
    pub fn accounts(&self) -> impl Iterator<Item = &Account> {
        self.members.iter().map(|member| &member.account)
    }

    /// Notes for the reader of the recording, but for what concerns all processes together.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.members[0].account.notes.clone();
        // Notes that differ in numbers alone are told once.
        let mut alike: BTreeMap<String, (&str, String, usize)> = BTreeMap::new();
        let mut of = |name, note: String| {
            let kind = note.chars().filter(|it| !it.is_ascii_digit()).collect();
            alike.entry(kind).or_insert_with(|| (name, note, 0)).2 += 1;
        };
        for (name, slice, error) in &self.failures {
            of(name, format!("not observed from slice {slice} on: {error}"));
        }
        for member in &self.members[1..] {
            let notes = member.account.notes.iter().cloned();
            notes.for_each(|note| of(self.descendants.name(member.place), note));
        }
        let more = alike.len().saturating_sub(NOTES_MAX);
        let told = alike.into_values().take(NOTES_MAX).map(|(name, note, count)| match count {
            1 => format!("{name}: {note}"),
            2 => format!("{name} and another process: {note}"),
            _ => format!("{name} and {} other processes: {note}", count - 1),
        });
        notes.extend(told);
        if more > 0 {
            notes.push(format!("{more} more notes about processes that the program started are left out"));
        }
        notes.extend(self.descendants.notes());
        notes
    }

    fn processes(&mut self, is_end: bool) -> Vec<NumberedProcess> {
        if self.options.children { self.descendants.facts(is_end) } else { Vec::new() }
    }
}

impl Member {
    fn new(place: Place, orders: Sender<Due>) -> Self {
        Member {
            place,
            orders: Some(orders),
            is_due: false,
            numbers: Vec::new(),
            regions: Vec::new(),
            account: Account::default(),
        }
    }
}

/// How many processes may be observed at the same time: each takes some open files.
fn observed_max() -> usize {
    const FILES_EACH: u64 = 16;
    const FILES: u64 = 128;
    let wanted = FILES + OBSERVED_MAX as u64 * FILES_EACH;
    let files = raise_open_files(wanted).map_or_else(|error| error.limit, |()| wanted);
    (files.saturating_sub(FILES) / FILES_EACH).clamp(1, OBSERVED_MAX as u64) as usize
}

/// Has a thread look at a process. Reports are of this number.
fn spawn<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    options: &'env Options,
    stop: &'env Stop,
    (number, subject): (usize, Subject),
    reports: &Sender<(usize, Told)>,
) -> Sender<Due> {
    let (orders, due) = mpsc::channel();
    let reports = reports.clone();
    scope.spawn(move || {
        // Whoever does not listen any more has gone.
        let tell = |told| drop(reports.send((number, told)));
        let looked = catch_unwind(AssertUnwindSafe(|| member::look(options, subject, stop, &due, tell)));
        // The panic has told of itself. It must not keep the others waiting.
        if looked.is_err() {
            tell(Told::Left(Err(CaptureError::Broken), Box::default()));
        }
    });
    orders
}
