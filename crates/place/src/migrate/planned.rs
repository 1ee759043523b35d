//! A program that is started under a plan: where its regions are in this run, where their pages lie, what it accesses, and the
//! moves that the follower of the plan decides on.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use tiermem_model::placement::{Misfit, Plan, PlannedRegion, begins_behind};
use tiermem_policy::placement::{self as follow, Follower, Seen, Tier};
use tiermem_sys::agent::Policy;

use super::mover::{Moved, Mover, ProcessPages};
use crate::capture::live::{self, Ending, Target};
use crate::capture::observer::{Observer, Piece};
use crate::capture::{CaptureError, Stop, executable_of};

/// A program that has given back its memory has ended after so long; until then its pages cannot be asked for.
const ENDING: Duration = Duration::from_secs(1);

/// How pages are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The first bytes of the plan's regions lie in fast memory, as many as it gives; nothing moves. What a plan is held against.
    FirstTouch,
    /// As the plan says.
    Planned,
    /// As the plan says, and as is seen where the program departs from it.
    Live,
}

/// How a program is to be run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program and how it is looked at: its granule must be the plan's, and the one source the pages referenced.
    pub look: live::Options,
    /// The plan.
    pub plan: Plan,
    /// How pages are placed.
    pub placement: Placement,
    /// The node of fast memory.
    pub fast_node: u32,
    /// The node of slow memory.
    pub slow_node: u32,
    /// Bytes that may be moved in a second.
    pub move_bytes_per_s: f64,
}

/// Why a program could not be run under a plan.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It could not be started or looked at.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The plan is not for this program.
    #[error("{0}")]
    Misfit(Misfit),
    /// Its pages cannot be moved.
    #[error("pages of the program cannot be moved: {0}")]
    Move(io::Error),
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Slices of time.
    pub slices: u64,
    /// From start to end.
    pub wall: Duration,
    /// Pages touched in fast memory, as estimated.
    pub fast_touches: f64,
    /// Pages touched in slow memory.
    pub slow_touches: f64,
    /// Pages touched of which the kernel did not tell where they lie.
    pub unknown_touches: f64,
    /// Pages moved by the plan.
    pub moved_pages: u64,
    /// Pages moved once, because they were touched before their place was known.
    pub corrected_pages: u64,
    /// Pages that could not be moved, by the kernel's error number.
    pub failed_pages: BTreeMap<i32, u64>,
    /// The time that moving took, of one processor.
    pub moving: Duration,
    /// Slices in which the program was followed by what was seen.
    pub departed_slices: u64,
    /// The plan's regions that were found.
    pub regions_found: usize,
    /// What the user should know.
    pub notes: Vec<String>,
    /// How it ended.
    pub ending: Option<Ending>,
}

impl Report {
    /// The share of touches that went to slow memory.
    pub fn slow_share(&self) -> f64 {
        let all = self.fast_touches + self.slow_touches;
        if all > 0.0 { self.slow_touches / all } else { 0.0 }
    }
}

/// Runs a program under a plan. `progress` is told the slices so far. The program does not outlive this call.
///
/// # Errors
/// If the plan is for another program (before that is started, where its build-id tells), if the program cannot be
/// started or looked at, or its pages cannot be moved.
pub fn run(options: &Options, stop: &Stop, mut progress: impl FnMut(u64)) -> Result<Report, Failure> {
    if let Target::Command(command) = &options.look.target {
        let build_id = executable_of(command)?.build_id;
        options.plan.fits_binary(build_id.as_deref()).map_err(Failure::Misfit)?;
    }
    let begun = Instant::now();
    let mut observer = Observer::begin(&options.look, stop)?;
    let pages = ProcessPages { pid: observer.process.pid };
    let mut run = Run {
        options,
        begun,
        follower: Follower::new(follow::Options {
            granules: options.plan.firsts().last().copied().unwrap_or(0),
            fast_granules: (options.plan.fast_bytes / options.plan.granule_bytes).min(u64::from(u32::MAX))
                as u32,
            schedule: options.plan.schedule(),
            live: options.placement == Placement::Live,
            half_life_ns: options.look.slice.as_nanos() as u64 * 4,
        }),
        mover: Mover::new(pages, options.move_bytes_per_s),
        firsts: options.plan.firsts(),
        attached: vec![None; options.plan.regions.len()],
        home: home_tiers(options),
        report: Report::default(),
    };
    let mut pieces: Vec<Piece> = Vec::new();
    let ended = loop {
        pieces.clear();
        let mut settled = Ok(());
        let mut mapped = |observer: &mut Observer<'_>| {
            if settled.is_ok() {
                settled = run.after_mapping(observer);
            }
        };
        let looked = observer.slice(stop, |piece| pieces.push(piece), &mut mapped)?;
        let Some(looked) = looked else { break true };
        let slice = (looked.begun, looked.end);
        match settled.and_then(|()| run.after_slice(&mut observer, slice, &pieces)) {
            Ok(()) => {}
            // A program that ends meanwhile has no pages.
            Err(_) if looked.ended || observer.process.watch.wait(ENDING) => break true,
            Err(error) => return Err(error),
        }
        progress(run.report.slices);
        if looked.ended || stop.is_asked() {
            break looked.ended;
        }
    };
    let Run { mut report, mover, attached, .. } = run;
    report.ending = Some(observer.process.finish(ended && !stop.is_asked())?);
    observer.end_sources();
    report.wall = begun.elapsed();
    report.moved_pages = mover.moved - report.corrected_pages;
    report.failed_pages = mover.failed;
    report.moving = mover.took;
    report.regions_found = attached.iter().flatten().count();
    report.notes = observer.notes;
    Ok(report)
}

/// Where each granule of the plan lies at first.
fn home_tiers(options: &Options) -> Vec<Tier> {
    let firsts = options.plan.firsts();
    let count = firsts.last().copied().unwrap_or(0) as usize;
    let fast = (options.plan.fast_bytes / options.plan.granule_bytes) as usize;
    let mut home = vec![Tier::Slow; count];
    match options.placement {
        Placement::FirstTouch => home.iter_mut().take(fast).for_each(|tier| *tier = Tier::Fast),
        Placement::Planned | Placement::Live => {
            for granule in options.plan.schedule().always.into_iter().take(fast) {
                if let Some(tier) = home.get_mut(granule as usize) {
                    *tier = Tier::Fast;
                }
            }
        }
    }
    home
}

/// Where a region of the plan is in this run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Attached {
    region: u32,
    /// Where the plan's offsets count from, which may lie before or behind its start.
    origin: u64,
    /// What is mapped of it, in the order of addresses: others may have what the program gave back in its middle.
    mapped: Vec<(u64, u64)>,
}

impl Attached {
    /// What is there of a stretch between two offsets of the plan's: start and end of each part.
    fn parts(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        let (from, to) = (self.origin.saturating_add(from), self.origin.saturating_add(to));
        let within = move |&(start, end): &(u64, u64)| (start.max(from), end.min(to));
        self.mapped.iter().map(within).filter(|(start, end)| start < end)
    }

    /// What is mapped of it and was not before.
    fn added_to(&self, before: Option<&Attached>) -> Vec<(u64, u64)> {
        let same = before.filter(|before| before.region == self.region && before.origin == self.origin);
        let known = same.map_or(&[][..], |before| &before.mapped);
        let mut added = Vec::new();
        for &(mut start, end) in &self.mapped {
            for &(from, to) in known {
                if from < end && to > start {
                    added.extend((start < from).then_some((start, from)));
                    start = to;
                }
            }
            added.extend((start < end).then_some((start, end)));
        }
        added
    }
}

struct Run<'a> {
    options: &'a Options,
    begun: Instant,
    follower: Follower,
    mover: Mover<ProcessPages>,
    firsts: Vec<u32>,
    attached: Vec<Option<Attached>>,
    home: Vec<Tier>,
    report: Report,
}

impl Run<'_> {
    fn node(&self, tier: Tier) -> u32 {
        match tier {
            Tier::Fast => self.options.fast_node,
            Tier::Slow => self.options.slow_node,
        }
    }

    /// Counts what was accessed in a slice, and moves what is to be moved.
    fn after_slice(
        &mut self,
        observer: &mut Observer<'_>,
        slice: (Instant, Instant),
        pieces: &[Piece],
    ) -> Result<(), Failure> {
        self.attach(observer)?;
        let nodes = [self.options.fast_node, self.options.slow_node];
        let mut accesses: BTreeMap<u32, f32> = BTreeMap::new();
        for piece in pieces {
            let [fast, slow] = self
                .mover
                .sample(piece.address, piece.address + piece.bytes, nodes)
                .map_err(Failure::Move)?;
            match fast + slow {
                0 => self.report.unknown_touches += piece.weight,
                known => {
                    self.report.fast_touches += piece.weight * fast as f64 / known as f64;
                    self.report.slow_touches += piece.weight * slow as f64 / known as f64;
                }
            }
            let Some(granule) = self.granule_of(piece) else { continue };
            *accesses.entry(granule).or_default() += piece.weight as f32;
            // Somebody else may have moved it; what moves is settled by its own report.
            let tier = if fast >= slow { Tier::Fast } else { Tier::Slow };
            if fast + slow > 0 {
                self.follower.placed(granule, tier);
            }
        }
        let accesses: Vec<(u32, f32)> = accesses.into_iter().collect();
        let since = |moment: Instant| moment.saturating_duration_since(self.begun).as_nanos() as u64;
        let (from_ns, to_ns) = (since(slice.0), since(slice.1));
        self.follower.observe(&Seen { from_ns, to_ns, accesses: &accesses });
        self.report.slices += 1;
        self.report.departed_slices += u64::from(self.follower.has_departed());
        if self.options.placement != Placement::FirstTouch {
            self.act(to_ns)?;
        }
        Ok(())
    }

    /// Makes the moves that are due.
    fn act(&mut self, now_ns: u64) -> Result<(), Failure> {
        let allowed = self.mover.allowance(Instant::now()) / self.options.plan.granule_bytes;
        let mut acts = Vec::new();
        self.follower.step(now_ns, usize::try_from(allowed).unwrap_or(usize::MAX), &mut acts);
        let mut has_no_room = false;
        for act in acts {
            let may_move = !(has_no_room && act.to == Tier::Fast);
            let ok = may_move && self.move_granule(act.granule, act.to)?;
            has_no_room = !ok && act.to == Tier::Slow;
            self.follower.done(act, ok);
        }
        Ok(())
    }

    /// Gives what the program has just mapped its place, before more of it is touched.
    fn after_mapping(&mut self, observer: &mut Observer<'_>) -> Result<(), Failure> {
        if !observer.look_again()? {
            return Ok(());
        }
        match self.attach(observer) {
            // A library is mapped as a whole first, and part by part then. What does not fit at the end of a slice does not fit.
            Err(Failure::Misfit(_)) => Ok(()),
            done => done,
        }
    }

    /// Finds the plan's regions among those that are there, and gives pages that are yet to come their first place.
    fn attach(&mut self, observer: &mut Observer<'_>) -> Result<(), Failure> {
        let now: Vec<(u32, u64, PlannedRegion)> = observer.regions.planned();
        let regions: Vec<PlannedRegion> = now.iter().map(|(_, _, region)| region.clone()).collect();
        let places = self.options.plan.find(&regions).map_err(Failure::Misfit)?;
        for (planned, place) in places.into_iter().enumerate() {
            let found = place.map(|at| {
                let (region, start, described) = &now[at];
                // Offsets of the plan count from where the region began then.
                let behind = begins_behind(&self.options.plan.regions[planned], described);
                let origin = start.saturating_add_signed(behind.saturating_neg());
                Attached { region: *region, origin, mapped: observer.regions.mapped(*region) }
            });
            let before = std::mem::replace(&mut self.attached[planned], found.clone());
            let Some(found) = found else { continue };
            for added in found.added_to(before.as_ref()) {
                self.settle(observer, planned, &found, added)?;
            }
        }
        Ok(())
    }

    /// Gives what has been added to a region its first place.
    fn settle(
        &mut self,
        observer: &mut Observer<'_>,
        planned: usize,
        found: &Attached,
        (from, to): (u64, u64),
    ) -> Result<(), Failure> {
        let granule_bytes = self.options.plan.granule_bytes;
        let first = self.firsts[planned];
        let count = self.firsts[planned + 1] - first;
        let address = |granule: u32| found.origin.saturating_add(u64::from(granule) * granule_bytes);
        let mut at = (from.saturating_sub(found.origin) / granule_bytes) as u32;
        while at < count && address(at) < to {
            let tier = self.home[(first + at) as usize];
            let run = (at..count).take_while(|it| self.home[(first + it) as usize] == tier).count() as u32;
            let node = self.node(tier);
            // Pages of files are taken where the kernel likes, whatever is asked for here; what is not where it should be is
            // moved below.
            let (start, end) = (address(at).max(from), address(at + run).min(to));
            if let Some(agent) = observer.agent.as_mut().filter(|_| node < 64 && start < end) {
                let _ = agent.bind(start, end - start, Policy::Preferred, 1 << node);
            }
            let before = self.mover.moved;
            for granule in at..at + run {
                let (start, end) = (address(granule).max(from), address(granule + 1).min(to));
                if start < end {
                    let moved = self.mover.move_range(start, end, node).map_err(Failure::Move)?;
                    if moved.present > 0 {
                        self.follower.placed(first + granule, tier);
                    }
                }
            }
            self.report.corrected_pages += self.mover.moved - before;
            at += run;
        }
        Ok(())
    }

    fn granule_of(&self, piece: &Piece) -> Option<u32> {
        let is_here = |it: &Option<Attached>| it.as_ref().is_some_and(|it| it.region == piece.region);
        let planned = self.attached.iter().position(is_here)?;
        let attached = self.attached[planned].as_ref()?;
        // Where a region begins a little behind the planned one, a piece has parts of two granules.
        let middle = piece.address + piece.bytes / 2;
        let at = middle.checked_sub(attached.origin)? / self.options.plan.granule_bytes;
        let granule = u64::from(self.firsts[planned]) + at;
        (granule < u64::from(self.firsts[planned + 1])).then_some(granule as u32)
    }

    /// Moves what there is of a granule. Whether nearly all of it is there now; false if there is nothing.
    fn move_granule(&mut self, granule: u32, to: Tier) -> Result<bool, Failure> {
        let node = self.node(to);
        let planned = self.firsts.partition_point(|first| *first <= granule).checked_sub(1);
        let Some((planned, Some(attached))) = planned.and_then(|at| Some((at, self.attached.get(at)?)))
        else {
            return Ok(false);
        };
        let granule_bytes = self.options.plan.granule_bytes;
        let offset = u64::from(granule - self.firsts[planned]) * granule_bytes;
        let mut all: Option<Moved> = None;
        for (start, end) in attached.parts(offset, offset.saturating_add(granule_bytes)) {
            let moved = self.mover.move_range(start, end, node).map_err(Failure::Move)?;
            let sum = all.get_or_insert_default();
            (sum.present, sum.there) = (sum.present + moved.present, sum.there + moved.there);
        }
        Ok(all.is_some_and(|all| all.is_done()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attached(origin: u64, mapped: &[(u64, u64)]) -> Attached {
        Attached { region: 1, origin, mapped: mapped.to_vec() }
    }

    #[test]
    fn what_is_given_back_in_the_middle_is_nobodys_and_what_comes_is_told() {
        let whole = attached(100, &[(100, 200)]);
        let holed = attached(100, &[(100, 130), (150, 200)]);
        assert_eq!(holed.parts(20, 60).collect::<Vec<_>>(), [(120, 130), (150, 160)]);
        assert_eq!(holed.parts(30, 50).count(), 0);
        assert_eq!(whole.added_to(None), [(100, 200)]);
        assert_eq!(holed.added_to(Some(&whole)), []);
        assert_eq!(whole.added_to(Some(&holed)), [(130, 150)]);
        let grown = attached(100, &[(90, 140), (150, 220), (300, 310)]);
        assert_eq!(grown.added_to(Some(&holed)), [(90, 100), (130, 140), (200, 220), (300, 310)]);
        // Offsets count from elsewhere: all of it is another thing.
        assert_eq!(attached(110, &[(100, 200)]).added_to(Some(&whole)), [(100, 200)]);
    }
}
