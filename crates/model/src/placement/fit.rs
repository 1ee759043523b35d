//! Fit of a plan to a program: whether the program is the recorded one, and where its regions are now.

use std::fmt;

use tiermem_policy::placement::{self as follow, Schedule};

use super::phases;
use super::plan::{Plan, PlannedRegion, Span};

/// A region's size may differ by such a part of what was recorded, or a granule.
const SIZE_TOLERANCE: f64 = 0.1;

/// Why a plan does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The program's file is another one.
    Binary {
        /// The build-id that the plan was made with.
        planned: String,
        /// The present one of the program.
        found: String,
    },
    /// The file of a region is another build.
    Library {
        /// The region.
        name: String,
        /// The build-id that the plan was made with.
        planned: String,
        /// The present one of the file.
        found: String,
    },
    /// A region has another size.
    Size {
        /// The region.
        name: String,
        /// Its bytes in the recording.
        planned: u64,
        /// Its bytes now.
        found: u64,
    },
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misfit::Binary { planned, found } => {
                write!(f, "the plan was made for a program of build-id {planned}, and this one has {found}")
            }
            Misfit::Library { name, planned, found } => {
                write!(f, "the plan was made with {name} of build-id {planned}, and here it has {found}")
            }
            Misfit::Size { name, planned, found } => {
                write!(f, "the plan was made with {planned} bytes of {name}, and here there are {found}")
            }
        }
    }
}

/// How many bytes of the file the region that is there begins behind the planned one; below 0 if before. 0 for memory of no file.
pub fn begins_behind(planned: &PlannedRegion, found: &PlannedRegion) -> i64 {
    match planned.path {
        Some(_) => found.file_offset.wrapping_sub(planned.file_offset).cast_signed(),
        None => 0,
    }
}

impl Plan {
    /// Whether it was made for the program with this build-id. One without a build-id cannot be told from another.
    ///
    /// # Errors
    /// The difference.
    pub fn fits_binary(&self, build_id: Option<&str>) -> Result<(), Misfit> {
        match (&self.made_from.build_id, build_id) {
            (Some(planned), found) if found != Some(planned) => {
                let found = found.unwrap_or("none").to_owned();
                Err(Misfit::Binary { planned: planned.clone(), found })
            }
            _ => Ok(()),
        }
    }

    /// Matches the regions that a program has now with those of the plan: for each of the plan's, an index in `now`, or `None` if
    /// it is not there (yet). Files are told by path and place in the file, other memory by kind, size and order. A mapping of a
    /// file may begin a little before or after that of the recording, because a program that gives back pages of its start was
    /// seen before or after it did so: [`begins_behind`] tells how far.
    ///
    /// # Errors
    /// If a file is another build, or has another size.
    pub fn find(&self, now: &[PlannedRegion]) -> Result<Vec<Option<usize>>, Misfit> {
        let mut taken = vec![false; now.len()];
        let mut found = Vec::with_capacity(self.regions.len());
        for region in &self.regions {
            let is_same = |(at, it): &(usize, &PlannedRegion)| {
                let same_size = || region.bytes.abs_diff(it.bytes) <= self.tolerance(region);
                let same_place = match region.path {
                    Some(_) => it.path == region.path && self.begins_near(region, it),
                    None => it.path.is_none() && (region.kind != "anonymous" || same_size()),
                };
                !taken[*at] && same_place && it.kind == region.kind && it.permissions == region.permissions
            };
            let distance = |it: &PlannedRegion| region.path.as_ref().map(|_| begins_behind(region, it).abs());
            // The first of several that are as near.
            let at =
                now.iter().enumerate().filter(is_same).min_by_key(|(_, it)| distance(it)).map(|(at, _)| at);
            if let Some(at) = at {
                taken[at] = true;
                self.compare(region, &now[at])?;
            }
            found.push(at);
        }
        Ok(found)
    }

    fn begins_near(&self, planned: &PlannedRegion, found: &PlannedRegion) -> bool {
        let apart = begins_behind(planned, found).unsigned_abs();
        apart == 0 || apart <= self.tolerance(planned) && apart < planned.bytes.min(found.bytes) / 2
    }

    fn tolerance(&self, region: &PlannedRegion) -> u64 {
        ((region.bytes as f64 * SIZE_TOLERANCE) as u64).max(self.granule_bytes)
    }

    fn compare(&self, planned: &PlannedRegion, found: &PlannedRegion) -> Result<(), Misfit> {
        if let (Some(before), Some(now)) = (&planned.build_id, &found.build_id)
            && before != now
        {
            let (planned_id, found_id) = (before.clone(), now.clone());
            return Err(Misfit::Library { name: planned.name.clone(), planned: planned_id, found: found_id });
        }
        if planned.kind == "file" && planned.bytes.abs_diff(found.bytes) > self.tolerance(planned) {
            return Err(Misfit::Size {
                name: planned.name.clone(),
                planned: planned.bytes,
                found: found.bytes,
            });
        }
        Ok(())
    }

    /// The plan in numbers of granules: each region's granules follow those of the region before it.
    pub fn schedule(&self) -> Schedule {
        let firsts = self.firsts();
        let granules = |span: &Span| -> std::ops::Range<u32> {
            let Some(first) = firsts.get(span.region as usize) else { return 0..0 };
            let of = |bytes: u64| (bytes / self.granule_bytes.max(1)).min(u64::from(u32::MAX)) as u32;
            let end = span.offset.saturating_add(span.bytes).saturating_add(self.granule_bytes - 1);
            first.saturating_add(of(span.offset))..first.saturating_add(of(end))
        };
        let all = |spans: &[Span]| spans.iter().flat_map(&granules).collect();
        let sweep = |sweep: &super::plan::Sweep| {
            let range = granules(&sweep.span);
            let of = |bytes: u64| bytes.div_ceil(self.granule_bytes.max(1)).min(u64::from(u32::MAX)) as u32;
            follow::Sweep {
                first: range.start,
                granules: range.end.saturating_sub(range.start),
                granules_per_s: sweep.bytes_per_s / self.granule_bytes.max(1) as f64,
                hot: of(sweep.hot_bytes),
                window: of(sweep.window_bytes),
                every: sweep.every.max(1),
            }
        };
        Schedule {
            always: all(&self.always),
            sweeps: self.sweeps.iter().map(sweep).collect(),
            phases: self.phases.iter().map(|phase| follow::Phase { granules: all(&phase.spans) }).collect(),
            phase_ns: phases::typical_ns(self.phases.iter().flat_map(|phase| &phase.began_ns)),
        }
    }

    /// The number of each region's first granule, and behind them that of all granules.
    pub fn firsts(&self) -> Vec<u32> {
        let mut next = 0_u32;
        let mut firsts: Vec<u32> = self
            .regions
            .iter()
            .map(|region| {
                let first = next;
                let count = region.bytes.div_ceil(self.granule_bytes.max(1)).max(1);
                next = next.saturating_add(count.min(u64::from(u32::MAX)) as u32);
                first
            })
            .collect();
        firsts.push(next);
        firsts
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// What is wrong with it: no plan, another version, or numbers that make no sense.
    pub fn read(text: &str) -> Result<Plan, String> {
        let plan: Plan =
            serde_json::from_str(text).map_err(|error| format!("this is not a plan: {error}"))?;
        if plan.version != Plan::VERSION {
            let known = Plan::VERSION;
            return Err(format!(
                "this is a plan of version {}; this program reads version {known}",
                plan.version
            ));
        }
        if plan.granule_bytes == 0 || !plan.granule_bytes.is_multiple_of(4096) {
            return Err(format!("a granule of {} bytes is not a multiple of 4096", plan.granule_bytes));
        }
        // Every granule has state in memory, so a plan that speaks of more than machines have is refused.
        let all = plan.regions.iter().try_fold(0_u64, |sum, region| sum.checked_add(region.bytes));
        if all.is_none_or(|bytes| bytes / plan.granule_bytes > 1 << 28) {
            return Err("the plan's regions are larger than memory can be".to_owned());
        }
        let spans = plan.always.iter().chain(plan.phases.iter().flat_map(|phase| &phase.spans));
        let mut spans = spans.chain(plan.sweeps.iter().map(|sweep| &sweep.span));
        let lies_within = |span: &Span| {
            let region = plan.regions.get(span.region as usize);
            let end = span.offset.checked_add(span.bytes);
            region.zip(end).is_some_and(|(region, end)| end <= region.bytes)
        };
        if let Some(span) = spans.find(|span| !lies_within(span)) {
            return Err(format!(
                "{} bytes at {} of region {} are not there",
                span.bytes, span.offset, span.region
            ));
        }
        Ok(plan)
    }
}
