//! A plan in a process that runs, or in a recorded one: where the stretches that it names lie, by the mappings alone.
//!
//! For those who follow a plan without an observer ([`crate::capture::observer`]), which knows more: whose memory a mapping is. So memory
//! that several threads have made side by side may be one region here and several in the plan, and is not found then.

use std::collections::BTreeMap;
use std::sync::Arc;

use tiermem_model::placement::{Misfit, Plan, Span};
use tiermem_policy::paging::Role;
use tiermem_trace::recording::{Recording, Region};

use super::region_match::{self, Attached, Changed, MappedRegion};
use crate::capture::mappings::maps::MapLine;
use crate::capture::mappings::regions::Regions;
use crate::capture::runs_executable;
use crate::plan::planned;

/// A stretch of addresses that a plan names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedStretch {
    /// What it says of them: what belongs in fast memory all the time is held.
    pub role: Role,
    /// The first address.
    pub start: u64,
    /// Behind the last one.
    pub end: u64,
}

/// A plan in one process.
#[derive(Debug)]
pub struct ProcessPlan {
    plan: Arc<Plan>,
    regions: Regions,
    attached: Vec<Option<Attached>>,
    /// What was mapped at the last look.
    lines: Vec<MapLine>,
}

impl ProcessPlan {
    /// For a process; `None` if it does not run the program that the plan was made for.
    pub fn of(plan: &Arc<Plan>, pid: u32) -> Option<Self> {
        let made_from = &plan.made_from;
        runs_executable(pid, &made_from.executable, made_from.build_id.as_deref())
            .then(|| ProcessPlan::anywhere(plan))
    }

    fn anywhere(plan: &Arc<Plan>) -> Self {
        let attached = vec![None; plan.regions.len()];
        ProcessPlan { plan: plan.clone(), regions: Regions::default(), attached, lines: Vec::new() }
    }

    /// Takes in what is mapped now. Returns the stretches that the plan names and that were not mapped before, the most important first.
    ///
    /// # Errors
    /// If a region is not what the plan was made for. A library that is just being mapped is none for a moment.
    pub fn look(&mut self, lines: &[MapLine]) -> Result<Vec<PlannedStretch>, Misfit> {
        if lines == self.lines {
            return Ok(Vec::new());
        }
        self.lines = lines.to_vec();
        self.regions.update(lines, &BTreeMap::new(), 0);
        let now = region_match::mapped(&mut self.regions);
        let changed = region_match::attach(&self.plan, &now, &mut self.attached)?;
        Ok(named(&self.plan, &changed, &self.attached))
    }

    /// How many of the plan's regions are there, and how many it has.
    pub fn regions_found(&self) -> (usize, usize) {
        (self.attached.iter().flatten().count(), self.attached.len())
    }
}

/// The stretches that a plan names in a recorded program, where they lay then, by [`Region::first_key`].
///
/// # Errors
/// If a region is not what the plan was made for.
pub fn in_recording(plan: &Plan, recording: &Recording) -> Result<Vec<PlannedStretch>, Misfit> {
    let mapped = |(number, region): (u32, &Region)| {
        let start = region.first_key();
        let stretches = vec![(start, start.saturating_add(region.bytes))];
        MappedRegion { number, start, described: planned(region), stretches }
    };
    let now: Vec<MappedRegion> = (0..).zip(&recording.head.regions).map(mapped).collect();
    let mut attached = vec![None; plan.regions.len()];
    let changed = region_match::attach(plan, &now, &mut attached)?;
    Ok(named(plan, &changed, &attached))
}

/// The stretches that a plan names in what was added to its regions, the most important first.
fn named(plan: &Plan, changed: &[Changed], attached: &[Option<Attached>]) -> Vec<PlannedStretch> {
    let always = plan.always.iter().map(|span| (Role::Held, span));
    let sweeps = (0..=u16::MAX).zip(&plan.sweeps).map(|(number, sweep)| {
        (Role::Swept { sweep: number, is_down: sweep.bytes_per_s < 0.0 }, &sweep.span)
    });
    let phases = (0..=u16::MAX).zip(&plan.phases);
    let phases =
        phases.flat_map(|(phase, of)| of.spans.iter().map(move |span| (Role::Phase { phase }, span)));
    let within = |(role, span): (Role, &Span)| {
        let at = span.region as usize;
        let origin = attached.get(at).and_then(Option::as_ref).map(|found| found.origin);
        let added = changed.iter().filter(|it| it.planned == at).flat_map(|it| &it.added);
        let stretches = origin.into_iter().flat_map(|origin| {
            let from = origin.saturating_add(span.offset);
            let to = from.saturating_add(span.bytes);
            let of = move |(start, end): &(u64, u64)| PlannedStretch {
                role,
                start: from.max(*start),
                end: to.min(*end),
            };
            added.clone().map(of).filter(|stretch| stretch.start < stretch.end)
        });
        stretches.collect::<Vec<_>>()
    };
    always.chain(sweeps).chain(phases).flat_map(within).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::mappings::maps;
    use tiermem_model::placement::{Phase, PlannedRegion, Sweep};

    const MIB: u64 = 1 << 20;

    fn plan() -> Arc<Plan> {
        let region = |kind: &str, bytes| PlannedRegion {
            name: kind.to_owned(),
            kind: kind.to_owned(),
            permissions: "rw-p".to_owned(),
            bytes,
            ..PlannedRegion::default()
        };
        let span = |region, offset, bytes| Span { region, offset, bytes };
        let sweep = Sweep {
            span: span(0, 0, 64 * MIB),
            period_ns: 0,
            bytes_per_s: 1.0,
            hot_bytes: 0,
            lead_bytes: 0,
            window_bytes: 0,
            stride_bytes: 0,
            every: 1,
        };
        Arc::new(Plan {
            version: Plan::VERSION,
            granule_bytes: MIB,
            regions: vec![region("anonymous", 64 * MIB), region("heap", MIB)],
            always: vec![span(1, 0, MIB), span(0, 8 * MIB, 16 * MIB)],
            sweeps: vec![sweep],
            phases: vec![Phase { began_ns: vec![0], spans: vec![span(0, 48 * MIB, 4 * MIB)] }],
            ..Plan::default()
        })
    }

    fn lines(text: &str) -> Vec<MapLine> {
        maps::parse(text).unwrap()
    }

    #[test]
    fn stretches_are_told_once_and_again_where_their_region_came_anew() {
        let mut process = ProcessPlan::anywhere(&plan());
        let heap = "01000000-01100000 rw-p 00000000 00:00 0 [heap]\n";
        let stretch = |role, start, end| PlannedStretch { role, start, end };
        let of_heap = stretch(Role::Held, 0x100_0000, 0x110_0000);
        assert_eq!(process.look(&lines(heap)).unwrap(), [of_heap]);
        let both = format!("{heap}10000000-14000000 rw-p 00000000 00:00 0\n");
        let of_sweep = stretch(Role::Swept { sweep: 0, is_down: false }, 0x1000_0000, 0x1400_0000);
        let of_phase = stretch(Role::Phase { phase: 0 }, 0x1300_0000, 0x1340_0000);
        assert_eq!(
            process.look(&lines(&both)).unwrap(),
            [stretch(Role::Held, 0x1080_0000, 0x1180_0000), of_sweep, of_phase]
        );
        assert_eq!(process.regions_found(), (2, 2));
        assert_eq!(process.look(&lines(&both)).unwrap(), []);
        assert_eq!(process.look(&lines(heap)).unwrap(), []);
        assert_eq!(process.look(&lines(&both)).unwrap().len(), 3);
        // A region of another size is another one.
        let other = format!("{heap}10000000-18000000 rw-p 00000000 00:00 0\n");
        let mut process = ProcessPlan::anywhere(&plan());
        assert_eq!(process.look(&lines(&other)).unwrap(), [of_heap]);
        assert_eq!(process.regions_found(), (1, 2));
    }

    #[test]
    fn a_plan_is_for_the_program_that_it_was_made_from() {
        let own = std::env::current_exe().unwrap().to_string_lossy().into_owned();
        let made_for = |executable: &str, build_id: Option<&str>| {
            let mut plan = Plan::clone(&plan());
            plan.made_from.executable = executable.to_owned();
            plan.made_from.build_id = build_id.map(str::to_owned);
            ProcessPlan::of(&Arc::new(plan), std::process::id()).is_some()
        };
        assert!(!made_for("/bin/other", Some("0123")) && !made_for(&own, Some("0123")));
        // A program without a build-id is known by its file.
        assert!(made_for(&own, None) && !made_for("/bin/other", None));
    }
}
