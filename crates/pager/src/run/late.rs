//! Steering that begins when there is something to steer, and that can be changed while it goes on.

use std::time::Instant;

use tiermem_policy::paging::{Counts, Written};
use tiermem_sys::control_group::Group;

use super::memory_use::MemoryUse;
use super::note::Note;
use super::peaks::Peaks;
use super::reclaim_balance::ReclaimBalance;
use super::steer_options::SteerOptions;
use super::target::Target;
use crate::machine::{Apart, Kept};
use crate::steer::{CoreOptions, Steered, Steering, SteeringOptions};

const PAGE_BYTES: u64 = 4096;

/// Steering of a program, begun or not.
#[derive(Debug)]
pub struct Late {
    /// As they were asked for. Of what may change while the program runs, `options` tell.
    asked: SteerOptions,
    options: CoreOptions,
    /// Keeps the group's counts fresh, from before the first page is dropped.
    fresh_counts: Apart,
    /// The counts are not kept fresh although they should be: nothing is dropped.
    is_unguarded: bool,
    balance: ReclaimBalance,
    written: Written,
    /// It begins at the first look, and not only when something is in swap.
    begins_at_once: bool,
    steering: Option<Steering>,
    processes: Vec<u32>,
    gave_up: Option<String>,
}

impl Late {
    /// Not begun yet.
    pub fn new(options: CoreOptions, asked: &SteerOptions, begins_at_once: bool) -> Self {
        Late {
            asked: asked.clone(),
            options,
            fresh_counts: Apart::new(asked.fresh_counts.clone()),
            is_unguarded: false,
            balance: ReclaimBalance::new(Instant::now()),
            written: Written::default(),
            begins_at_once,
            steering: None,
            processes: Vec::new(),
            gave_up: None,
        }
    }

    /// Tells it what a look has found. Returns what the user is to be told.
    pub fn look(&mut self, target: &Target, peaks: &Peaks) -> Option<Note> {
        if let Some(steering) = &self.steering {
            steering.charged(peaks.charged_now());
            if let (Some(group), true) = (target.group(), self.options.evict.is_some()) {
                let (counts, dram_pages) = (steering.now().counts, self.options.dram_pages);
                give_up(&mut self.written, group, &peaks.now(), counts, dram_pages);
            }
            // Another's group has the swappiness that its owner wants.
            if let Target::OwnGroup(group) = target {
                self.balance.look(group, Instant::now(), || steering.now().counts);
            }
            return self.guard(target);
        }
        if self.gave_up.is_some() || !(self.begins_at_once || peaks.flash_bytes > 0) {
            return None;
        }
        self.processes = target.processes();
        let SteerOptions { plan, log, granule_bytes, pool, .. } = self.asked.clone();
        let nodes = pool.map(|pool| pool.nodes);
        let options = SteeringOptions { core: self.effective(), plan, log, granule_bytes, nodes };
        match Steering::start(&self.processes, options) {
            Ok(steering) => self.steering = Some(steering),
            Err(error) => self.gave_up = Some(error.to_string()),
        }
        None
    }

    /// Keeps the group's counts fresh where pages are paged out by advice: by a policy and a plan from the beginning, by dropping behind
    /// from when pages begin to be tried, which is long before they are dropped.
    fn guard(&mut self, target: &Target) -> Option<Note> {
        let (Some(steering), Some(group)) = (&self.steering, target.group()) else { return None };
        let drops_soon = self.asked.plan.is_some() || steering.now().counts.probed > 0;
        let is_needed = self.options.evict.is_some() || self.options.drop_behind && drops_soon;
        if !is_needed {
            return None;
        }
        let kept = self.fresh_counts.keep(group.path().as_os_str(), Instant::now());
        let is_unguarded = matches!(kept, Kept::Failed(_) | Kept::Paused);
        if is_unguarded != self.is_unguarded {
            self.is_unguarded = is_unguarded;
            self.tell_options();
        }
        match kept {
            Kept::Failed(error) => {
                Some(Note::NoFreshCounts { error: error.to_string(), evicts: self.options.evict.is_some() })
            }
            Kept::Runs | Kept::Started | Kept::Paused => None,
        }
    }

    /// Tells it of processes that have come from elsewhere: those that are steered already bring their children themselves.
    pub fn processes(&mut self, target: &Target) {
        if let Some(steering) = &self.steering {
            let processes = target.processes();
            if processes != self.processes {
                steering.processes(processes.clone());
                self.processes = processes;
            }
        }
    }

    /// Changes who leaves, what is fetched ahead and how much DRAM there is.
    pub fn change(&mut self, options: CoreOptions) {
        self.options = options;
        self.tell_options();
    }

    fn tell_options(&self) {
        if let Some(steering) = &self.steering {
            steering.change(self.effective());
        }
    }

    /// What it is to do, without what is not safe for now.
    fn effective(&self) -> CoreOptions {
        CoreOptions { drop_behind: self.options.drop_behind && !self.is_unguarded, ..self.options }
    }

    /// What it has done so far.
    pub fn now(&self) -> Steered {
        self.steering.as_ref().map(Steering::now).unwrap_or_default()
    }

    /// Why nothing is steered any more, if that is so; the details are told at the end.
    pub fn has_ended(&self) -> Option<&str> {
        let ended = self.steering.as_ref().filter(|steering| steering.has_ended());
        self.gave_up.as_deref().or(ended.map(|_| "steering has ended"))
    }

    /// Ends it, and tells what it has done.
    pub fn end(self, target: &Target) -> Steered {
        let Late { steering, gave_up, fresh_counts, .. } = self;
        // What was paged out by advice comes back as active after this, too.
        if matches!(target, Target::OwnGroup(_)) && !target.processes().is_empty() {
            fresh_counts.leave();
        }
        steering.map_or_else(|| Steered { gave_up, ..Steered::default() }, Steering::end)
    }
}

/// Has the kernel give up what has left and was written.
fn give_up(written: &mut Written, group: &Group, memory: &MemoryUse, counts: Counts, dram_pages: u32) {
    let dram_bytes = u64::from(dram_pages) * PAGE_BYTES;
    if let Some(bytes) = written.due(memory.settled_bytes(), counts, dram_bytes)
        // What cannot be reclaimed is tried again at the next look.
        && group.reclaim(bytes).is_ok()
        && let Ok(after) = MemoryUse::of_group(group)
    {
        written.has_reclaimed(bytes, (memory.settled_bytes(), after.settled_bytes()), counts);
    }
}
