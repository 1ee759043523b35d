//! Replay of a recording against a placement: how many accesses would have gone to slow memory.
//!
//! [`Placer`] decides, as it does for a program that runs: a replay is the other body that it drives. Mappings come at the start
//! of the slice in which they were first seen. Where the kernel decides, pages are placed when they are first touched, in fast
//! memory while there is room. Granules move between slices. The order within a slice is not known: a granule that moves is slow
//! for the slice before and fast for the one after, and granules first touched in one slice are touched in the order of
//! addresses.

use tiermem_policy::placement::{
    self as placing, Act, Course, FirstTouch, Options, Placer, RateLimit, Schedule, Seen, Tier,
};

use super::Program;

/// The memory of a replay: its sizes, and how fast it moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// Granules that fit in fast memory.
    pub fast_granules: u32,
    /// Granules that can be moved in a second, out of and into fast memory together.
    pub moves_per_s: f64,
}

/// Where accesses went, and what was moved.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// All accesses.
    pub accesses: f64,
    /// Accesses to slow memory.
    pub slow: f64,
    /// Granules moved, out of and into fast memory.
    pub moves: u64,
    /// Slices behind which nothing was followed, as that would have been worse than first touch.
    pub resting: u64,
}

impl Outcome {
    /// The share of accesses to slow memory; 0 if there are none.
    pub fn slow_share(&self) -> f64 {
        if self.accesses > 0.0 { self.slow / self.accesses } else { 0.0 }
    }
}

/// How a program is placed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct How {
    /// The plan.
    pub schedule: Schedule,
    /// Whether what is seen is followed where the program departs from the plan.
    pub live: bool,
    /// The rule for where a page lies that is touched for the first time.
    pub first_touch: FirstTouch,
}

/// Replays a placement without moves: first come, first served, as the kernel does.
pub fn first_touch(program: &Program<'_>, memory: &Memory) -> Outcome {
    let never = Memory { moves_per_s: 0.0, ..*memory };
    replay(program, &never, &How::default())
}

/// The plan is followed; with `live`, what is seen is followed where the program departs from the plan.
pub fn follow(program: &Program<'_>, memory: &Memory, schedule: &Schedule, live: bool) -> Outcome {
    replay(program, memory, &How { schedule: schedule.clone(), live, first_touch: FirstTouch::Bound })
}

/// Replays a placement that follows the accesses seen, without a plan: pages begin where they are first touched.
pub fn follow_seen(program: &Program<'_>, memory: &Memory) -> Outcome {
    replay(program, memory, &How { live: true, ..How::default() })
}

fn replay(program: &Program<'_>, memory: &Memory, how: &How) -> Outcome {
    let took_ns = (1e9 / memory.moves_per_s) as u64;
    carry_out(program, memory, how, |_, _| (placing::Outcome::Moved, took_ns)).0
}

/// Replays a program under a placement. `moving` is told each move and the slice behind which it is made, and says what becomes of
/// it and how many nanoseconds it takes. Gives where accesses went, and the placement as it is at the end.
pub fn carry_out(
    program: &Program<'_>,
    memory: &Memory,
    how: &How,
    mut moving: impl FnMut(usize, Act) -> (placing::Outcome, u64),
) -> (Outcome, Placer) {
    let options = Options {
        granules: program.granules(),
        fast_granules: memory.fast_granules,
        schedule: how.schedule.clone(),
        live: how.live,
        half_life_ns: program.slices().first().map_or(1, |(start, end)| (end - start) * 4),
    };
    let mut placer = Placer::new(options, how.first_touch, memory.moves_per_s);
    let mut outcome = Outcome::default();
    let mut accesses: Vec<(u32, f32)> = Vec::new();
    for slice in 0..program.slices().len() {
        let went = program.mapped().iter().filter(|it| it.last_slice as usize + 1 == slice);
        went.for_each(|it| placer.unmapped(it.granules.clone()));
        let came = program.mapped().iter().filter(|it| it.first_slice as usize == slice);
        came.for_each(|it| placer.mapped(it.granules.clone()));
        let (from_ns, to_ns) = program.slices()[slice];
        program.accesses(slice, &mut accesses);
        for (granule, count) in &accesses {
            let tier = placer.tier(*granule).unwrap_or_else(|| {
                let tier = placer.home(*granule);
                placer.placed(*granule, tier);
                tier
            });
            outcome.accesses += f64::from(*count);
            if tier == Tier::Slow {
                outcome.slow += f64::from(*count);
            }
        }
        placer.slice(&Seen { from_ns, to_ns, accesses: &accesses });
        outcome.resting += u64::from(placer.course() == Course::Rest);
        while let Some(act) = placer.next_move() {
            let (became, took_ns) = moving(slice, act);
            outcome.moves += u64::from(became == placing::Outcome::Moved);
            placer.moved(act, became, took_ns);
        }
    }
    (outcome, placer)
}

/// Replays the best static placement: the hottest granules over all slices lie in fast memory from the start, and nothing moves.
pub fn best_static(program: &Program<'_>, memory: &Memory) -> Outcome {
    let mut totals = program.totals();
    let accesses = totals.iter().sum();
    totals.sort_by(|a, b| b.total_cmp(a));
    // A sum of nothing is -0.
    let slow = totals.iter().skip(memory.fast_granules as usize).sum::<f64>().max(0.0);
    Outcome { accesses, slow, ..Outcome::default() }
}

/// The clairvoyant placement, which knows all slices to come and moves at most as fast: the best of three. Either nothing moves
/// ([`best_static`]); or in each slice the granule that is needed next comes in for the one that is needed last (Belady 1966, of
/// granules that are fetched ahead), beginning with first come, first served, or with room kept for the hottest granules over
/// all. It is a bound in practice, not in theory: with several accesses of different weight the best order is a harder question.
pub fn clairvoyant(program: &Program<'_>, memory: &Memory) -> Outcome {
    let hottest = program.hottest(memory.fast_granules as usize);
    let mut has_room_kept = vec![false; program.granules() as usize];
    hottest.into_iter().for_each(|granule| has_room_kept[granule as usize] = true);
    let none_kept = vec![false; has_room_kept.len()];
    let outcomes = [
        best_static(program, memory),
        prefetching(program, memory, &none_kept),
        prefetching(program, memory, &has_room_kept),
    ];
    outcomes.into_iter().min_by(|a, b| a.slow.total_cmp(&b.slow)).unwrap_or_default()
}

fn prefetching(program: &Program<'_>, memory: &Memory, has_room_kept: &[bool]) -> Outcome {
    let count = program.granules() as usize;
    let mut awaited = has_room_kept.iter().filter(|kept| **kept).count() as u32;
    let slices = program.slices().len();
    // For each granule, the slices in which it is accessed, latest first, so that the next one is at the end.
    let mut uses: Vec<Vec<(u32, f32)>> = vec![Vec::new(); count];
    let mut accesses = Vec::new();
    for slice in (0..slices).rev() {
        program.accesses(slice, &mut accesses);
        accesses.iter().for_each(|(granule, count)| uses[*granule as usize].push((slice as u32, *count)));
    }
    let mut fast = vec![None::<bool>; count];
    let mut allowance = RateLimit::new(memory.moves_per_s);
    let (mut in_fast, mut outcome) = (0_u32, Outcome::default());
    for slice in 0..slices {
        program.accesses(slice, &mut accesses);
        for (granule, weight) in &accesses {
            let at = *granule as usize;
            let is_fast = *fast[at].get_or_insert_with(|| {
                awaited -= u32::from(has_room_kept[at]);
                let has_room = in_fast + awaited < memory.fast_granules;
                in_fast += u32::from(has_room);
                has_room
            });
            outcome.accesses += f64::from(*weight);
            if !is_fast {
                outcome.slow += f64::from(*weight);
            }
            uses[at].pop();
        }
        let (from_ns, to_ns) = program.slices()[slice];
        allowance.slice(to_ns.saturating_sub(from_ns));
        // When it is needed next, and how much then: sooner first, and more before less.
        let need = |at: usize| uses[at].last().map_or((u32::MAX, 0.0), |(slice, weight)| (*slice, -*weight));
        let order = |a: &usize, b: &usize| {
            let (a, b) = (need(*a), need(*b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        };
        let mut comers: Vec<usize> =
            (0..count).filter(|at| fast[*at] == Some(false) && need(*at).0 < u32::MAX).collect();
        let mut goers: Vec<usize> = (0..count).filter(|at| fast[*at] == Some(true)).collect();
        comers.sort_by(order);
        goers.sort_by(order);
        for comer in comers {
            // Room that is kept is no room.
            let is_full = in_fast + awaited >= memory.fast_granules;
            let cost = if is_full { 2 } else { 1 };
            if allowance.left() < cost {
                break;
            }
            if is_full {
                let Some(goer) = goers.last().copied().filter(|goer| order(&comer, goer).is_lt()) else {
                    break;
                };
                goers.pop();
                fast[goer] = Some(false);
                in_fast -= 1;
            }
            fast[comer] = Some(true);
            in_fast += 1;
            (0..cost).for_each(|_| allowance.spend());
            outcome.moves += cost as u64;
        }
    }
    outcome
}
