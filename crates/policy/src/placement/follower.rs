//! Follower of a plan: what should lie in fast memory at a moment, and the moves that bring it there.

use super::heat::Decaying;
use super::payoff::{Course, Payoff, Shares};
use super::position::{Position, Sweep, middle};
use super::undisturbed::Undisturbed;

/// Fast or slow memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Tier 0.
    Fast,
    /// Slow memory: all tiers below.
    Slow,
}

/// A move that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    /// The granule that moves.
    pub granule: u32,
    /// Where to.
    pub to: Tier,
}

/// The outcome of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The granule lies where it should.
    Moved,
    /// It stays where it was.
    Refused,
    /// Nothing of it is in memory.
    Absent,
}

/// Accesses within a stretch of time.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its start.
    pub from_ns: u64,
    /// The end of the stretch, not before the end of the last one.
    pub to_ns: u64,
    /// Granules, each at most once, and how often they were accessed.
    pub accesses: &'a [(u32, f32)],
}

/// A part of the program's time in which it uses other granules than in others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phase {
    /// The granules that it uses, the hottest first.
    pub granules: Vec<u32>,
}

/// The schedule of a plan, in numbers of granules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// The granules that lie in fast memory all the time, the hottest first.
    pub always: Vec<u32>,
    /// Hotspots that move.
    pub sweeps: Vec<Sweep>,
    /// Phases.
    pub phases: Vec<Phase>,
    /// How long a phase lasts; `None` if that is not known.
    pub phase_ns: Option<u64>,
}

/// How a program's memory is to be followed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Granules there are.
    pub granules: u32,
    /// How many of them fit in fast memory.
    pub fast_granules: u32,
    /// The plan's schedule.
    pub schedule: Schedule,
    /// Whether the accesses seen are followed where the program departs from the plan.
    pub live: bool,
    /// In what time a granule's accesses come to be worth half, for `live`.
    pub half_life_ns: u64,
}

/// Where a granule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GranuleState {
    /// It is not there: not mapped yet, or no longer.
    Gone,
    At(Tier),
    /// On its way there. Its room in fast memory is taken, or given, when the move is decided on: moves are made in that order.
    Moving(Tier),
}

/// A phase is followed if all of its moves take at most such a part of the time that a phase lasts: in a longer time they would bring in
/// what the next phase does not use, and always be behind.
const PHASE_MOVES: f64 = 0.5;
/// A phase replaces another if it has this many times its accesses seen.
const PHASE_MARGIN: f64 = 1.1;
/// A granule replaces another by its heat alone if it is this many times hotter: moves cost more than a small difference saves.
const HEAT_MARGIN: f32 = 1.25;
/// Slices from its first touch on in which a granule says nothing of a plan: see `payoff.rs`.
const SETTLING_SLICES: u32 = 4;
/// A slice says nothing in which granules that have settled have a smaller share of the accesses.
const SETTLED_MIN: f64 = 0.5;
/// Steps for which a granule that could not be moved is left where it is.
const REST_STEPS: u32 = 64;

/// Follows a plan.
///
/// It is told where granules lie ([`Self::placed`], [`Self::gone`]) and the accesses ([`Self::observe`]), settles which granules
/// are wanted now ([`Self::step`]), and is asked for one move after the other ([`Self::next`]), each of which is answered
/// ([`Self::done`]) before the next.
#[derive(Clone, Debug)]
pub(super) struct Follower {
    options: Options,
    places: Vec<GranuleState>,
    /// Granules in fast memory and on their way there.
    fast: u32,
    positions: Vec<Position>,
    phase: Option<usize>,
    /// Since when, whether it is worth its moves, and how long phases last.
    phase_since_ns: u64,
    follows_phase: bool,
    phase_ns: Option<f64>,
    heat: Decaying,
    undisturbed: Undisturbed,
    payoff: Payoff,
    /// The observation, by number, with which each granule counts as settled: some after its first touch.
    settled: Vec<u32>,
    observations: u32,
    /// The wanted granules, in the order of urgency; a stamp for each of them.
    wanted: Vec<u32>,
    /// How far `wanted` was gone through in this step.
    cursor: usize,
    stamps: Vec<u32>,
    stamp: u32,
    victims: Vec<(f32, u32)>,
    /// The granules that following heat alone would have in fast memory.
    hottest: Vec<u32>,
    rests: Vec<u32>,
    steps: u32,
    /// How long the last two observations lie apart.
    slice_ns: u64,
}

impl Follower {
    /// Begins with nothing placed. Granules of the schedule that do not exist are left out.
    pub fn new(mut options: Options) -> Self {
        let count = options.granules;
        let exists = |granule: &u32| *granule < count;
        options.schedule.always.retain(exists);
        options.schedule.phases.iter_mut().for_each(|phase| phase.granules.retain(exists));
        options.schedule.sweeps.retain(|sweep| {
            let fits = sweep.first.checked_add(sweep.granules).is_some_and(|end| end <= count);
            fits && sweep.granules > 0
                && sweep.every > 0
                && sweep.granules_per_s.is_finite()
                && sweep.granules_per_s != 0.0
        });
        let positions = options.schedule.sweeps.iter().map(|sweep| Position::new(*sweep)).collect();
        let heat = Decaying::new(count, options.half_life_ns);
        Follower {
            places: vec![GranuleState::Gone; count as usize],
            fast: 0,
            positions,
            phase: None,
            phase_since_ns: 0,
            follows_phase: false,
            phase_ns: options.schedule.phase_ns.map(|ns| ns as f64),
            heat,
            undisturbed: Undisturbed::new(count, options.fast_granules),
            payoff: Payoff::new(options.schedule != Schedule::default(), options.live),
            settled: vec![0; count as usize],
            observations: 0,
            wanted: Vec::with_capacity(count as usize),
            cursor: 0,
            stamps: vec![0; count as usize],
            stamp: 0,
            victims: Vec::with_capacity(count as usize),
            hottest: Vec::with_capacity(count as usize),
            rests: vec![0; count as usize],
            steps: 0,
            slice_ns: 0,
            options,
        }
    }

    /// A granule was found to lie in a tier: it was touched for the first time, or was moved from outside.
    pub fn placed(&mut self, granule: u32, tier: Tier) {
        if let Some(place @ (GranuleState::Gone | GranuleState::At(_))) = self.places.get(granule as usize) {
            if *place == GranuleState::Gone {
                self.settled[granule as usize] = self.observations.saturating_add(SETTLING_SLICES);
                self.undisturbed.touched(granule);
            }
            self.set(granule, GranuleState::At(tier));
        }
    }

    /// A granule is no longer there.
    pub fn gone(&mut self, granule: u32) {
        self.undisturbed.gone(granule);
        self.set(granule, GranuleState::Gone);
    }

    /// Notes the outcome of a move.
    pub fn done(&mut self, act: Act, outcome: Outcome) {
        let Some(GranuleState::Moving(to)) = self.places.get(act.granule as usize).copied() else { return };
        if to != act.to {
            return;
        }
        let from = if to == Tier::Fast { Tier::Slow } else { Tier::Fast };
        if outcome == Outcome::Refused {
            self.rests[act.granule as usize] = self.steps + REST_STEPS;
        }
        let place = match outcome {
            Outcome::Moved => GranuleState::At(to),
            Outcome::Refused => GranuleState::At(from),
            Outcome::Absent => return self.gone(act.granule),
        };
        self.set(act.granule, place);
    }

    /// Where a granule lies, `None` if it is not there. One that moves is still where it was.
    pub fn tier(&self, granule: u32) -> Option<Tier> {
        match self.places.get(granule as usize)? {
            GranuleState::Gone => None,
            GranuleState::At(tier) => Some(*tier),
            GranuleState::Moving(Tier::Fast) => Some(Tier::Slow),
            GranuleState::Moving(Tier::Slow) => Some(Tier::Fast),
        }
    }

    /// Granules that take fast memory.
    pub fn fast(&self) -> u32 {
        self.fast
    }

    /// What is followed, and what came of it so far.
    pub fn payoff(&self) -> &Payoff {
        &self.payoff
    }

    fn set(&mut self, granule: u32, place: GranuleState) {
        let takes = |place: GranuleState| {
            u32::from(matches!(place, GranuleState::At(Tier::Fast) | GranuleState::Moving(Tier::Fast)))
        };
        if let Some(old) = self.places.get_mut(granule as usize) {
            self.fast = self.fast - takes(*old) + takes(place);
            *old = place;
        }
    }

    /// Takes in the accesses of a stretch of time, and how long a move takes. Without observations hotspots are assumed to move on at their
    /// last speed.
    pub fn observe(&mut self, seen: &Seen<'_>, move_ns: f64) {
        self.slice_ns = seen.to_ns.saturating_sub(seen.from_ns);
        let all: f64 = seen.accesses.iter().map(|(_, count)| f64::from(*count)).sum();
        if all <= 0.0 {
            self.positions.iter_mut().for_each(|position| position.rested(seen.to_ns));
            return;
        }
        // Before anything is learned from these accesses, which would be a prediction of what is known.
        self.judge(seen);
        for position in &mut self.positions {
            let sweep = *position.sweep();
            let within = |granule: u32| granule.checked_sub(sweep.first).filter(|at| *at < sweep.granules);
            let of = seen
                .accesses
                .iter()
                .filter_map(|(granule, count)| Some((within(*granule)?, f64::from(*count))));
            if let Some(place) = middle(sweep.granules, of) {
                position.seen(place, seen.from_ns + self.slice_ns / 2);
            }
        }
        self.choose_phase(seen, move_ns);
        self.heat.add(seen.to_ns, seen.accesses);
    }

    /// Chooses the phase whose granules have the most of the accesses seen.
    fn choose_phase(&mut self, seen: &Seen<'_>, move_ns: f64) {
        if self.options.schedule.phases.is_empty() {
            return;
        }
        let mut best =
            (self.phase, self.phase.map_or(0.0, |at| self.seen_of_phase(at, seen.accesses)) * PHASE_MARGIN);
        for at in 0..self.options.schedule.phases.len() {
            let share = self.seen_of_phase(at, seen.accesses);
            if share > best.1 {
                best = (Some(at), share);
            }
        }
        let Some(next) = best.0.filter(|_| best.0 != self.phase) else { return };
        let lasted_ns = (seen.to_ns - self.phase_since_ns) as f64;
        if self.phase.replace(next).is_some() {
            self.phase_ns = Some(self.phase_ns.map_or(lasted_ns, |ns| f64::midpoint(ns, lasted_ns)));
        }
        self.phase_since_ns = seen.to_ns;
        let is_slow = |granule: &&u32| self.places[**granule as usize] == GranuleState::At(Tier::Slow);
        let comes = self.options.schedule.phases[next].granules.iter().filter(is_slow).count();
        // As many go out for it.
        let moves_ns = 2.0 * comes as f64 * move_ns;
        self.follows_phase = self.phase_ns.is_none_or(|ns| moves_ns <= ns * PHASE_MOVES);
    }

    fn seen_of_phase(&mut self, phase: usize, accesses: &[(u32, f32)]) -> f64 {
        self.stamp += 1;
        for granule in &self.options.schedule.phases[phase].granules {
            self.stamps[*granule as usize] = self.stamp;
        }
        let is_in = |granule: u32| self.stamps.get(granule as usize) == Some(&self.stamp);
        accesses.iter().filter(|(granule, _)| is_in(*granule)).map(|(_, count)| f64::from(*count)).sum()
    }

    /// Divides accesses by where granules lay, and by where each course would have had them.
    fn judge(&mut self, seen: &Seen<'_>) {
        let [mut plan, mut by_heat] = [[0.0; 2]; 2];
        if self.payoff.may_follow() {
            self.want_by_plan(seen.from_ns);
            self.mark_kept(seen.from_ns);
            plan = self.seen_of_marked(seen.accesses);
        }
        if self.options.live {
            self.want_by_heat();
            self.mark_kept(seen.from_ns);
            by_heat = self.seen_of_marked(seen.accesses);
        }
        let Follower { places, undisturbed, settled, observations, .. } = self;
        let is_fast = |granule: u32| {
            let place = places.get(granule as usize);
            place.is_some_and(|it| matches!(it, GranuleState::At(Tier::Fast)))
        };
        let sums = |counts: &dyn Fn(u32) -> bool| {
            let mut sums = Shares::default();
            for (granule, count) in seen.accesses.iter().filter(|(granule, _)| counts(*granule)) {
                let count = f64::from(*count);
                sums.accesses += count;
                sums.observed += if is_fast(*granule) { count } else { 0.0 };
                sums.undisturbed += if undisturbed.is_fast(*granule) { count } else { 0.0 };
            }
            sums
        };
        let is_old = |granule: u32| settled.get(granule as usize).is_some_and(|it| it <= observations);
        let all = Shares { plan: plan[0], seen: by_heat[0], ..sums(&|_| true) };
        let counted = Shares { plan: plan[1], seen: by_heat[1], ..sums(&is_old) };
        let is_filling = counted.accesses < all.accesses * SETTLED_MIN;
        self.payoff.slice(&all, &if is_filling { Shares::default() } else { counted });
        self.observations = self.observations.saturating_add(1);
    }

    /// Marks what would lie in fast memory if all that is wanted were moved there at once: that, and what need not make room for it.
    fn mark_kept(&mut self, now_ns: u64) {
        let capacity = self.options.fast_granules;
        self.wanted.truncate(capacity as usize);
        self.mark_wanted();
        self.find_victims(now_ns);
        let comes = |granule: &&u32| self.places[**granule as usize] == GranuleState::At(Tier::Slow);
        let coming = self.wanted.iter().filter(comes).count() as u32;
        let leaving = (self.fast + coming).saturating_sub(capacity) as usize;
        for (place, stamp) in self.places.iter().zip(&mut self.stamps) {
            if *place == GranuleState::At(Tier::Fast) {
                *stamp = self.stamp;
            }
        }
        for (_, granule) in self.victims.iter().rev().take(leaving) {
            self.stamps[*granule as usize] = 0;
        }
    }

    fn mark_wanted(&mut self) {
        self.stamp += 1;
        for granule in &self.wanted {
            self.stamps[*granule as usize] = self.stamp;
        }
    }

    /// Accesses to what is marked: all of them, and those that count.
    fn seen_of_marked(&self, accesses: &[(u32, f32)]) -> [f64; 2] {
        let is_in = |granule: u32| self.stamps.get(granule as usize) == Some(&self.stamp);
        let mut sums = [0.0; 2];
        for (granule, count) in accesses.iter().filter(|(granule, _)| is_in(*granule)) {
            let is_old = self.settled[*granule as usize] <= self.observations;
            sums = [sums[0] + f64::from(*count), sums[1] + if is_old { f64::from(*count) } else { 0.0 }];
        }
        sums
    }

    /// Puts the granules that the plan wants at a time into `wanted`, each granule once.
    fn want_by_plan(&mut self, now_ns: u64) {
        self.wanted.clear();
        self.stamp += 1;
        let Follower { options, wanted, stamps, stamp, positions, phase, follows_phase, .. } = self;
        let mut want = |granule: u32, wanted: &mut Vec<u32>| {
            if std::mem::replace(&mut stamps[granule as usize], *stamp) != *stamp {
                wanted.push(granule);
            }
        };
        // Granules that are needed next come first: they cannot wait, and those that always lie there are there already.
        for position in positions.iter() {
            let Some(place) = position.at(now_ns) else { continue };
            let sweep = position.sweep();
            let direction = sweep.granules_per_s.signum();
            let behind = f64::from(sweep.hot) / 2.0;
            let ahead = |step: u32| {
                let at = place + direction * (f64::from(step) - behind);
                sweep.first + (at.rem_euclid(f64::from(sweep.granules)) as u32).min(sweep.granules - 1)
            };
            let moving = (0..sweep.granules).map(ahead).filter(|granule| sweep.moves(*granule));
            moving.take(sweep.window as usize).for_each(|granule| want(granule, wanted));
        }
        let phase = phase.filter(|_| *follows_phase);
        if let Some(phase) = phase.and_then(|at| options.schedule.phases.get(at)) {
            phase.granules.iter().for_each(|granule| want(*granule, wanted));
        }
        options.schedule.always.iter().for_each(|granule| want(*granule, wanted));
    }

    /// Puts the granules that were hottest of late into `wanted`, as many as fit.
    fn want_by_heat(&mut self) {
        let capacity = self.options.fast_granules as usize;
        let Follower { heat, places, hottest, wanted, .. } = self;
        // Granules in fast memory are only replaced by granules that are hotter by a margin.
        let rank = |granule: u32| {
            let is_fast = matches!(
                places[granule as usize],
                GranuleState::At(Tier::Fast) | GranuleState::Moving(Tier::Fast)
            );
            heat.of(granule) * if is_fast { HEAT_MARGIN } else { 1.0 }
        };
        hottest.clear();
        hottest.extend((0..places.len() as u32).filter(|granule| heat.of(*granule) > 0.0));
        let order = |a: &u32, b: &u32| rank(*b).total_cmp(&rank(*a)).then(a.cmp(b));
        if hottest.len() > capacity && capacity > 0 {
            hottest.select_nth_unstable_by(capacity - 1, order);
            hottest.truncate(capacity);
        }
        hottest.sort_unstable_by(order);
        wanted.clear();
        wanted.extend_from_slice(hottest);
    }

    /// Puts what the undisturbed placement has in fast memory into `wanted`, the hottest first, if that is better than what is there;
    /// else nothing.
    fn want_undisturbed(&mut self) {
        let Follower { payoff, undisturbed, heat, places, wanted, .. } = self;
        wanted.clear();
        if payoff.is_to_be_undone() {
            let is_worth_it = |granule: &u32| undisturbed.is_fast(*granule) && heat.of(*granule) > 0.0;
            wanted.extend((0..places.len() as u32).filter(is_worth_it));
            wanted.sort_unstable_by(|a, b| heat.of(*b).total_cmp(&heat.of(*a)).then(a.cmp(b)));
        }
    }

    /// Settles which granules are wanted now and which make room for them, for [`Self::next`].
    pub fn step(&mut self, now_ns: u64) {
        self.steps += 1;
        match self.payoff.course() {
            Course::Plan => self.want_by_plan(now_ns),
            Course::Seen => self.want_by_heat(),
            Course::Rest => self.want_undisturbed(),
        }
        self.wanted.truncate(self.options.fast_granules as usize);
        self.cursor = 0;
        self.mark_wanted();
        self.find_victims(now_ns);
    }

    /// The next move of this step, if there is one and `moves_left` more may be made.
    pub fn next(&mut self, moves_left: usize) -> Option<Act> {
        if moves_left == 0 {
            return None;
        }
        let capacity = self.options.fast_granules;
        // More may have been found in fast memory than belongs there.
        if self.fast > capacity {
            return self.make_room();
        }
        while let Some(&granule) = self.wanted.get(self.cursor) {
            let rests = self.rests[granule as usize] > self.steps;
            if self.places[granule as usize] != GranuleState::At(Tier::Slow) || rests {
                self.cursor += 1;
                continue;
            }
            if self.fast >= capacity {
                // A move out alone is of no use.
                return if moves_left >= 2 { self.make_room() } else { None };
            }
            self.cursor += 1;
            self.set(granule, GranuleState::Moving(Tier::Fast));
            return Some(Act { granule, to: Tier::Fast });
        }
        None
    }

    /// Has the next victim move out; `None` if there is none.
    fn make_room(&mut self) -> Option<Act> {
        let (_, granule) = self.victims.pop()?;
        self.set(granule, GranuleState::Moving(Tier::Slow));
        Some(Act { granule, to: Tier::Slow })
    }

    /// Finds the granules in fast memory that are not wanted there; the first to leave is at the end.
    fn find_victims(&mut self, now_ns: u64) {
        let Follower { places, stamps, stamp, victims, positions, heat, rests, steps, .. } = self;
        victims.clear();
        for (granule, place) in (0..).zip(places.iter()) {
            let may_go = *place == GranuleState::At(Tier::Fast)
                && stamps[granule as usize] != *stamp
                && rests[granule as usize] <= *steps;
            if !may_go {
                continue;
            }
            // In a sweep the granule that was just passed is needed last; elsewhere the coldest leaves first.
            let ahead = positions.iter().find_map(|position| {
                let sweep = position.sweep();
                let is_in = granule >= sweep.first && granule - sweep.first < sweep.granules;
                position.at(now_ns).filter(|_| is_in).map(|place| position.ahead(granule, place))
            });
            let keep = match ahead {
                Some(ahead) => 1.0 / (1.0 + ahead as f32),
                None => 1.0 + heat.of(granule),
            };
            victims.push((keep, granule));
        }
        victims.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    }
}
