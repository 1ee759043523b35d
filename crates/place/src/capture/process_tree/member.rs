//! A process of the tree, and the thread that looks at it. (What traces a process is tied to a thread.)

use std::sync::mpsc::Receiver;
use std::time::Duration;

use tiermem_sys::cpu_time;
use tiermem_sys::perf::TaskWatch;
use tiermem_trace::recording::{JournalSample, NumberedRegion, Source as SourceInfo};

use super::super::numa_residency::{Located, Whereabouts};
use super::super::observer::{Looked, Observer, Piece};
use super::super::options::{Options, Target};
use super::super::resident::Resident;
use super::super::schedule::Due;
use super::super::sites::SiteCollector;
use super::super::{CaptureError, Stop};
use super::identity::Identity;

/// Who is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) enum Subject {
    /// The process of the options.
    First,
    /// A process that it or one of its descendants has made, from this slice on.
    Descendant { pid: u32, slice: u32 },
}

/// What its thread tells of a member.
#[derive(Debug)]
pub(super) enum Told {
    /// It is looked at. The number of its process, and what tells of its descendants.
    Begun { pid: u32, tasks: Option<TaskWatch>, sites: Option<SiteCollector> },
    /// A slice is over.
    Slice(Seen),
    /// Nobody looks any more. The last.
    Left(Result<(), CaptureError>, Box<Account>),
}

/// What was seen in a slice. Regions have numbers of the member's own.
#[derive(Debug)]
pub(super) struct Seen {
    /// `None` if it had no memory any more.
    pub looked: Option<Looked>,
    pub samples: Vec<JournalSample>,
    pub regions: Vec<NumberedRegion>,
    /// Numbers of regions are below.
    pub numbers: usize,
    pub account: Box<Account>,
}

/// What is known of the looking so far.
#[derive(Clone, Debug, Default)]
pub(in crate::capture) struct Account {
    pub identity: Identity,
    pub sources: Vec<SourceInfo>,
    pub tells_level: bool,
    pub agents: Vec<u32>,
    pub recorder_cpu: Duration,
    pub agent_cpu: Duration,
    pub notes: Vec<String>,
    pub begun_anew: Vec<u32>,
    pub windows: u32,
    pub long_windows: u32,
    pub seen: f64,
    pub outside: f64,
    pub is_closer_missing: bool,
    pub region_names: Vec<String>,
}

/// Looks at a process, slice by slice, until there are no more orders or the process has ended.
pub(super) fn look(
    options: &Options,
    subject: Subject,
    stop: &Stop,
    orders: &Receiver<Due>,
    mut tell: impl FnMut(Told),
) {
    let tasks = match (subject, &options.target) {
        (Subject::First, Target::Command(_)) if options.children => TaskWatch::before_start().ok(),
        _ => None,
    };
    // Before the program begins: it touches most of its memory early.
    let sites = match (subject, &options.target) {
        (Subject::First, Target::Command(_)) if options.sites => {
            Some(SiteCollector::before_start(options.granule_bytes))
        }
        (Subject::First, Target::Process(pid)) if options.sites => {
            Some(SiteCollector::of_process(*pid, options.children, options.granule_bytes))
        }
        _ => None,
    };
    let sites = match sites.transpose() {
        Ok(sites) => sites,
        Err(error) => return tell(Told::Left(Err(CaptureError::Sites(error)), Box::default())),
    };
    let begun = match subject {
        Subject::First => Observer::begin(options, stop),
        Subject::Descendant { pid, slice } => Observer::follow(options, pid, slice),
    };
    let observer = match begun {
        Ok(observer) => observer,
        Err(error) => return tell(Told::Left(Err(error), Box::default())),
    };
    let identity = Identity::of(observer.process.pid);
    let whereabouts = Whereabouts::new();
    let resident = Resident::new();
    let mut member = Member { observer, whereabouts, resident, identity, programs: 0, pieces: Vec::new() };
    tell(Told::Begun { pid: member.observer.process.pid, tasks, sites });
    let mut done = Ok(());
    while let Ok(due) = orders.recv() {
        match member.slice(stop, due) {
            Ok(seen) => {
                let is_over = seen.looked.is_none_or(|looked| looked.ended);
                tell(Told::Slice(seen));
                if is_over {
                    break;
                }
            }
            Err(error) => {
                done = Err(error);
                break;
            }
        }
    }
    member.observer.end_sources();
    let account = member.account();
    tell(Told::Left(done, Box::new(account)));
}

struct Member<'a> {
    observer: Observer<'a>,
    /// If there are several nodes.
    whereabouts: Option<Whereabouts>,
    resident: Resident,
    identity: Identity,
    /// Programs that it had begun when its identity was read.
    programs: usize,
    pieces: Vec<Piece>,
}

impl Member<'_> {
    fn slice(&mut self, stop: &Stop, due: Due) -> Result<Seen, CaptureError> {
        self.pieces.clear();
        let Member { observer, whereabouts, pieces, .. } = self;
        let looked = observer.slice(stop, due, |piece| pieces.push(piece), &mut |_| {})?;
        let mut samples = Vec::with_capacity(pieces.len());
        match whereabouts {
            Some(whereabouts) => {
                whereabouts.locate(observer.process.pid, pieces, &mut |it| samples.push(it.sample()));
            }
            None => samples.extend(pieces.iter().map(|piece| Located::unknown(*piece).sample())),
        }
        self.resident.fill(self.observer.process.pid, &mut samples);
        let observer = &self.observer;
        // Of one that has ended it is not to be had any more.
        if observer.begun_anew.len() > self.programs && looked.is_some_and(|looked| !looked.ended) {
            self.programs = observer.begun_anew.len();
            self.identity = Identity::of(observer.process.pid);
        }
        let regions = self.observer.regions.numbered();
        let numbers = self.observer.regions.count();
        Ok(Seen { looked, samples, regions, numbers, account: Box::new(self.account()) })
    }

    fn account(&self) -> Account {
        let observer = &self.observer;
        Account {
            identity: self.identity.clone(),
            sources: observer.infos.clone(),
            tells_level: self.whereabouts.is_some(),
            agents: observer.agents.clone(),
            recorder_cpu: cpu_time::thread_cpu_time(),
            agent_cpu: observer.agent_cpu(),
            notes: observer.notes.iter().cloned().chain(self.resident.note()).collect(),
            begun_anew: observer.begun_anew.clone(),
            windows: observer.windows,
            long_windows: observer.long_windows,
            seen: observer.seen,
            outside: observer.outside,
            is_closer_missing: observer.is_closer_missing(),
            region_names: observer.regions.names(),
        }
    }
}
