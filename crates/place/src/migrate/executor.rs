//! Executor of a placement: carries out what [`Placer`] decides, on the pages of a running program.

use std::collections::BTreeMap;
use std::ops::Range;

use tiermem_model::placement::Plan;
use tiermem_policy::placement::{
    self as placing, Act, Course, FirstTouch, Outcome, Placer, Schedule, Seen, Tier,
};

use super::mover::{Moved, Mover, Pages};
use super::region_match::{self, Attached, Changed, MappedRegion};
use super::report::{Failure, Report};

/// How pages are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Where the kernel puts them at first touch; nothing moves. The baseline of a plan.
    FirstTouch,
    /// As the plan says, where that is not worse than first touch.
    Planned,
    /// As the plan says, and as is seen where the program departs from it, where that is not worse than first touch.
    Live,
}

impl Placement {
    /// The placer for a plan and the length of a slice.
    pub fn placer(self, plan: &Plan, slice_ns: u64, move_bytes_per_s: f64) -> Placer {
        let is_still = self == Placement::FirstTouch;
        let options = placing::Options {
            granules: plan.firsts().last().copied().unwrap_or(0),
            fast_granules: (plan.fast_bytes / plan.granule_bytes).min(u64::from(u32::MAX)) as u32,
            schedule: if is_still { Schedule::default() } else { plan.schedule() },
            live: self == Placement::Live,
            half_life_ns: slice_ns.saturating_mul(4),
        };
        let first_touch = if is_still { FirstTouch::Kernel } else { FirstTouch::Bound };
        let granules_per_s = if is_still { 0.0 } else { move_bytes_per_s / plan.granule_bytes as f64 };
        Placer::new(options, first_touch, granules_per_s)
    }
}

/// Accesses that were seen in one region.
#[derive(Clone, Copy, Debug)]
pub struct Touched {
    /// The region's number.
    pub region: u32,
    /// The first address.
    pub address: u64,
    /// Bytes that were observed as one.
    pub bytes: u64,
    /// Number of accesses.
    pub weight: f64,
}

/// Granules of which it is asked in a slice whether any of their pages have come into memory. A look takes some microseconds.
const LOOKS_MAX: u32 = 512;

/// Binds memory between two addresses to a node for its first touch, as far as the kernel allows.
pub type Bind<'a> = &'a mut dyn FnMut(u64, u64, u32);

/// A program's memory while it is placed.
#[derive(Debug)]
pub struct Executor<'a, P> {
    plan: &'a Plan,
    /// Of fast and of slow memory.
    nodes: [u32; 2],
    placer: Placer,
    mover: Mover<P>,
    firsts: Vec<u32>,
    attached: Vec<Option<Attached>>,
    /// The granule at which the next look for new ones begins.
    next_look: u32,
    report: Report,
}

impl<'a, P: Pages> Executor<'a, P> {
    /// Begins with nothing mapped; nodes are those of fast and of slow memory.
    pub fn new(plan: &'a Plan, placer: Placer, nodes: [u32; 2], pages: P) -> Self {
        Executor {
            plan,
            nodes,
            placer,
            mover: Mover::new(pages),
            firsts: plan.firsts(),
            attached: vec![None; plan.regions.len()],
            next_look: 0,
            report: Report::default(),
        }
    }

    /// The placer.
    pub fn placer(&self) -> &Placer {
        &self.placer
    }

    /// Measurements so far.
    pub fn report(&self) -> Report {
        Report {
            moved_pages: self.mover.moved - self.report.corrected_pages,
            failed_pages: self.mover.failed.clone(),
            moving: self.mover.took,
            regions_found: self.attached.iter().flatten().count(),
            shares: self.placer.shares(),
            rested_for: self.placer.rested_for(),
            ..self.report.clone()
        }
    }

    fn node(&self, tier: Tier) -> u32 {
        match tier {
            Tier::Fast => self.nodes[0],
            Tier::Slow => self.nodes[1],
        }
    }

    fn count(&self, planned: usize) -> u32 {
        self.firsts[planned + 1] - self.firsts[planned]
    }

    /// Finds the plan's regions among the present mappings. Unmapped granules are reported first, then
    /// mapped ones, both in the order of granules; memory that is not touched yet is bound to its home.
    ///
    /// # Errors
    /// If a region is not what the plan was made for, or pages cannot be moved.
    pub fn attach(&mut self, now: &[MappedRegion], bind: Bind<'_>) -> Result<(), Failure> {
        let changed = region_match::attach(self.plan, now, &mut self.attached).map_err(Failure::Misfit)?;
        let mut added = Vec::new();
        for Changed { planned, before, added: stretches } in changed {
            if let Some(before) = &before {
                let (first, count) = (self.firsts[planned], self.count(planned));
                let found = self.attached[planned].as_ref();
                for granule in before.lost_to(found, self.plan.granule_bytes, count) {
                    self.placer.unmapped(first + granule..first + granule + 1);
                }
            }
            added.extend(stretches.into_iter().map(|stretch| (planned, stretch)));
        }
        for (planned, stretch) in added {
            let Some(found) = self.attached[planned].clone() else { continue };
            let of = found.granules(stretch, self.plan.granule_bytes, self.count(planned));
            let first = self.firsts[planned];
            self.placer.mapped(first + of.start..first + of.end);
            self.settle(first, &found, stretch, of, bind)?;
        }
        Ok(())
    }

    /// Asks for the homes of what has been added to a region, and moves there what the plan names and was touched before.
    fn settle(
        &mut self,
        first: u32,
        found: &Attached,
        (from, to): (u64, u64),
        of: Range<u32>,
        bind: Bind<'_>,
    ) -> Result<(), Failure> {
        let granule_bytes = self.plan.granule_bytes;
        let address = |granule: u32| found.origin.saturating_add(u64::from(granule) * granule_bytes);
        let mut at = of.start;
        while at < of.end {
            let home = self.placer.decided(first + at);
            let same = (at..of.end).take_while(|it| self.placer.decided(first + it) == home).count() as u32;
            let run = at..at + same;
            at = run.end;
            // The kernel allocates pages of files where it likes, regardless of the
            // binding; named granules that are in the wrong place are moved below.
            let Some(tier) = home else { continue };
            let node = self.node(tier);
            bind(address(run.start).max(from), address(run.end).min(to), node);
            for granule in run {
                if tier == Tier::Slow || !self.placer.is_named(first + granule) {
                    continue;
                }
                let before = self.mover.moved;
                let (start, end) = (address(granule).max(from), address(granule + 1).min(to));
                let moved = self.mover.move_range(start, end, node).map_err(Failure::Move)?;
                if moved.present > 0 && moved.is_done() {
                    self.placer.placed(first + granule, tier);
                }
                self.report.corrected_pages += self.mover.moved - before;
            }
        }
        Ok(())
    }

    /// A slice of time is over: counts what was touched in it, and makes the moves that are decided on.
    ///
    /// # Errors
    /// If the program has gone, or its pages cannot be moved.
    pub fn after_slice(&mut self, from_ns: u64, to_ns: u64, touched: &[Touched]) -> Result<(), Failure> {
        let mut accesses: BTreeMap<u32, f32> = BTreeMap::new();
        let mut tiers: BTreeMap<u32, Tier> = BTreeMap::new();
        let parts: Vec<Touched> = touched.iter().flat_map(|it| self.parts_of(it)).collect();
        for it in &parts {
            let (start, end) = (it.address, it.address + it.bytes);
            let [fast, slow] = self.mover.sample(start, end, self.nodes).map_err(Failure::Move)?;
            match fast + slow {
                0 => self.report.unknown_accesses += it.weight,
                known => {
                    self.report.fast_accesses += it.weight * fast as f64 / known as f64;
                    self.report.slow_accesses += it.weight * slow as f64 / known as f64;
                }
            }
            let Some(granule) = self.granule_of(it) else { continue };
            *accesses.entry(granule).or_default() += it.weight as f32;
            // Another program may have moved it.
            let tier = if fast >= slow { Tier::Fast } else { Tier::Slow };
            if fast + slow > 0 {
                tiers.insert(granule, tier);
            }
        }
        self.find_new(&mut tiers)?;
        // In the order in which a replay takes them to be touched.
        tiers.into_iter().for_each(|(granule, tier)| self.placer.placed(granule, tier));
        let accesses: Vec<(u32, f32)> = accesses.into_iter().collect();
        self.placer.slice(&Seen { from_ns, to_ns, accesses: &accesses });
        self.report.slices += 1;
        let course = self.placer.course();
        self.report.departed_slices += u64::from(course == Course::Seen);
        self.report.resting_slices += u64::from(course == Course::Rest);
        while let Some(act) = self.placer.next_move() {
            let before = self.mover.took;
            let outcome = self.carry_out(act);
            let took_ns = (self.mover.took - before).as_nanos() as u64;
            self.placer.moved(act, *outcome.as_ref().unwrap_or(&Outcome::Refused), took_ns);
            outcome?;
        }
        Ok(())
    }

    /// Finds granules that have come into memory though no access to them was seen: first touch would have given them room too, and
    /// those that are never accessed again are the first to make room. Of files nobody knows who touched them first.
    fn find_new(&mut self, tiers: &mut BTreeMap<u32, Tier>) -> Result<(), Failure> {
        let Executor { plan, nodes, placer, mover, firsts, attached, next_look, .. } = self;
        let all = firsts.last().copied().unwrap_or(0);
        let mut looks = 0;
        for _ in 0..all {
            let granule = *next_look;
            *next_look = (granule + 1) % all;
            if placer.tier(granule).is_some() || tiers.contains_key(&granule) {
                continue;
            }
            let Some(planned) = firsts.partition_point(|first| *first <= granule).checked_sub(1) else {
                continue;
            };
            let is_file = plan.regions[planned].path.is_some();
            let Some(attached) = attached[planned].as_ref().filter(|_| !is_file) else { continue };
            let offset = u64::from(granule - firsts[planned]) * plan.granule_bytes;
            let mut on = [0; 2];
            for (start, end) in attached.parts(offset, offset.saturating_add(plan.granule_bytes)) {
                let [fast, slow] = mover.sample(start, end, *nodes).map_err(Failure::Move)?;
                on = [on[0] + fast, on[1] + slow];
            }
            if on != [0; 2] {
                tiers.insert(granule, if on[0] >= on[1] { Tier::Fast } else { Tier::Slow });
            }
            looks += 1;
            if looks >= LOOKS_MAX {
                break;
            }
        }
        Ok(())
    }

    /// What was observed as one, in parts that lie in one granule each: a source may have regions of its own.
    fn parts_of(&self, touched: &Touched) -> Vec<Touched> {
        let granule_bytes = self.plan.granule_bytes;
        let is_here = |it: &&Attached| it.region == touched.region;
        let end = touched.address.saturating_add(touched.bytes);
        // Where a region begins a little behind the planned one, a source's granule has parts of two: it is that of its middle.
        let found = self.attached.iter().flatten().find(is_here).filter(|_| touched.bytes > granule_bytes);
        let Some(attached) = found else { return vec![*touched] };
        let mut parts = Vec::new();
        let mut at = touched.address;
        while at < end {
            let next = match at.checked_sub(attached.origin) {
                Some(offset) => at.saturating_add(granule_bytes - offset % granule_bytes).min(end),
                None => attached.origin.min(end),
            };
            let weight = touched.weight * (next - at) as f64 / touched.bytes as f64;
            parts.push(Touched { address: at, bytes: next - at, weight, ..*touched });
            at = next;
        }
        parts
    }

    fn granule_of(&self, touched: &Touched) -> Option<u32> {
        let is_here = |it: &Option<Attached>| it.as_ref().is_some_and(|it| it.region == touched.region);
        let planned = self.attached.iter().position(is_here)?;
        let attached = self.attached[planned].as_ref()?;
        // Where a region begins a little behind the planned one, a piece has parts of two granules.
        let middle = touched.address + touched.bytes / 2;
        let at = middle.checked_sub(attached.origin)? / self.plan.granule_bytes;
        let granule = u64::from(self.firsts[planned]) + at;
        (granule < u64::from(self.firsts[planned + 1])).then_some(granule as u32)
    }

    /// Moves what there is of a granule.
    fn carry_out(&mut self, act: Act) -> Result<Outcome, Failure> {
        let node = self.node(act.to);
        let planned = self.firsts.partition_point(|first| *first <= act.granule).checked_sub(1);
        let Some((planned, Some(attached))) = planned.and_then(|at| Some((at, self.attached.get(at)?)))
        else {
            return Ok(Outcome::Absent);
        };
        let granule_bytes = self.plan.granule_bytes;
        let offset = u64::from(act.granule - self.firsts[planned]) * granule_bytes;
        let mut all = Moved::default();
        for (start, end) in attached.parts(offset, offset.saturating_add(granule_bytes)) {
            let moved = self.mover.move_range(start, end, node).map_err(Failure::Move)?;
            (all.present, all.there) = (all.present + moved.present, all.there + moved.there);
        }
        Ok(match all {
            Moved { present: 0, .. } => Outcome::Absent,
            all if all.is_done() => Outcome::Moved,
            _ => Outcome::Refused,
        })
    }
}
