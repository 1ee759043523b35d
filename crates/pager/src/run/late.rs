//! Steering that begins when there is something to steer, and that can be changed while it goes on.

use std::path::PathBuf;

use super::peaks::Peaks;
use super::target::Target;
use crate::steer::{CoreOptions, Steered, Steering};

/// Steering of a program, begun or not.
#[derive(Debug)]
pub struct Late {
    options: CoreOptions,
    log: Option<PathBuf>,
    /// It begins at the first look, and not only when something is in swap.
    begins_at_once: bool,
    steering: Option<Steering>,
    processes: Vec<u32>,
    gave_up: Option<String>,
}

impl Late {
    /// Not begun yet.
    pub fn new(options: CoreOptions, log: Option<PathBuf>, begins_at_once: bool) -> Self {
        Late { options, log, begins_at_once, steering: None, processes: Vec::new(), gave_up: None }
    }

    /// Tells it what a look has found.
    pub fn look(&mut self, target: &Target, peaks: &Peaks) {
        if let Some(steering) = &self.steering {
            return steering.charged(peaks.charged_now());
        }
        if self.gave_up.is_some() || !(self.begins_at_once || peaks.flash_bytes > 0) {
            return;
        }
        self.processes = target.processes();
        match Steering::start(&self.processes, &self.options, self.log.as_deref()) {
            Ok(steering) => self.steering = Some(steering),
            Err(error) => self.gave_up = Some(error.to_string()),
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
    pub fn end(self) -> Steered {
        let Late { steering, gave_up, .. } = self;
        steering.map_or_else(|| Steered { gave_up, ..Steered::default() }, Steering::end)
    }
}
