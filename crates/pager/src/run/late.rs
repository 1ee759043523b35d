//! Steering that begins when there is something to steer, and that can be changed while it goes on.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use tiermem_model::placement::Plan;

use super::peaks::Peaks;
use super::steer_options::SteerOptions;
use super::target::Target;
use crate::machine::FreshCounts;
use crate::steer::{CoreOptions, Steered, Steering};

/// Steering of a program, begun or not.
#[derive(Debug)]
pub struct Late {
    options: CoreOptions,
    plan: Option<Arc<Plan>>,
    log: Option<PathBuf>,
    fresh_counts_command: Vec<OsString>,
    /// Runs from before the first page is dropped.
    fresh_counts: Option<FreshCounts>,
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
            options,
            plan: asked.plan.clone(),
            log: asked.log.clone(),
            fresh_counts_command: asked.fresh_counts.clone(),
            fresh_counts: None,
            begins_at_once,
            steering: None,
            processes: Vec::new(),
            gave_up: None,
        }
    }

    /// Tells it what a look has found.
    pub fn look(&mut self, target: &Target, peaks: &Peaks) {
        if let Some(steering) = &self.steering {
            steering.charged(peaks.charged_now());
            return self.guard(target);
        }
        if self.gave_up.is_some() || !(self.begins_at_once || peaks.flash_bytes > 0) {
            return;
        }
        self.processes = target.processes();
        let plan = self.plan.clone();
        match Steering::start(&self.processes, &self.options, plan, self.log.as_deref()) {
            Ok(steering) => self.steering = Some(steering),
            Err(error) => self.gave_up = Some(error.to_string()),
        }
    }

    /// Keeps the group's counts fresh where pages are paged out by advice: by a policy and a plan from the beginning, by dropping behind
    /// from when pages begin to be tried, which is long before they are dropped.
    fn guard(&mut self, target: &Target) {
        let (Some(steering), Some(group)) = (&self.steering, target.group()) else { return };
        let drops_soon = self.plan.is_some() || steering.now().counts.probed > 0;
        let is_needed = self.options.evict.is_some() || self.options.drop_behind && drops_soon;
        if !is_needed || self.fresh_counts.as_mut().is_some_and(|it| !it.has_ended()) {
            return;
        }
        match FreshCounts::start(&self.fresh_counts_command, group) {
            Ok(fresh_counts) => self.fresh_counts = Some(fresh_counts),
            // Where nobody can look after them, nothing is dropped.
            Err(_) => self.change(CoreOptions { drop_behind: false, ..self.options }),
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
        if let Some(steering) = &self.steering {
            steering.change(options);
        }
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
            fresh_counts.into_iter().for_each(FreshCounts::leave);
        }
        steering.map_or_else(|| Steered { gave_up, ..Steered::default() }, Steering::end)
    }
}
