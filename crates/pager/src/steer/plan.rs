//! The plan of a program: brings the core what it says of the pages of one process.

use std::sync::Arc;

use tiermem_model::placement::Plan;
use tiermem_place::capture::mappings::maps::MapLine;
use tiermem_place::migrate::{PlannedStretch, ProcessPlan};

/// Looks one after another at which a region does not fit before that is believed: a library is mapped as a whole first.
const MISFITS_MAX: u32 = 3;

/// How a plan was followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanFound {
    /// The plan's regions that were there at once, at most.
    pub regions_found: usize,
    /// Its regions.
    pub regions: usize,
    /// Why it was followed no longer.
    pub misfit: Option<String>,
}

/// A plan, and the process that it is followed in: the first that runs its program.
#[derive(Debug)]
pub struct FollowedPlan {
    plan: Arc<Plan>,
    followed: Option<(u32, ProcessPlan)>,
    misfits: u32,
    found: PlanFound,
}

impl FollowedPlan {
    /// Not followed yet.
    pub fn new(plan: Arc<Plan>) -> Self {
        let found = PlanFound { regions: plan.regions.len(), ..PlanFound::default() };
        FollowedPlan { plan, followed: None, misfits: 0, found }
    }

    /// Takes in what a process has mapped now; nothing: it has gone. Returns what the plan says of memory that it did not have before, the
    /// most important first.
    pub fn look(&mut self, pid: u32, lines: &[MapLine]) -> Vec<PlannedStretch> {
        if self.found.misfit.is_some() {
            return Vec::new();
        }
        if self.followed.is_none() {
            self.followed = ProcessPlan::of(&self.plan, pid).map(|process| (pid, process));
        }
        let Some((_, process)) = self.followed.as_mut().filter(|(followed, _)| *followed == pid) else {
            return Vec::new();
        };
        let stretches = match process.look(lines) {
            Ok(stretches) => stretches,
            Err(misfit) => {
                self.misfits += 1;
                self.found.misfit = (self.misfits >= MISFITS_MAX).then(|| misfit.to_string());
                return Vec::new();
            }
        };
        self.misfits = 0;
        self.found.regions_found = self.found.regions_found.max(process.regions_found().0);
        if lines.is_empty() {
            self.followed = None;
        }
        stretches
    }

    /// Everything is told anew, to a core that knows nothing.
    pub fn begin_anew(&mut self) {
        self.followed = None;
    }

    /// How it was followed.
    pub fn found(&self) -> PlanFound {
        self.found.clone()
    }
}
