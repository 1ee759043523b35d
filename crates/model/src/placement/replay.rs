//! Who would have met how many accesses in slow memory: a recording replayed against a placement.
//!
//! Pages come to be where they are first touched, in fast memory while there is room; in between slices a placement moves
//! granules, no more than fit through the memory's bandwidth in a slice. What happens within a slice is not known: a granule
//! that moves is slow for the slice before and fast for the one behind.

use tiermem_policy::placement::{Act, Follower, Options, Schedule, Seen, Tier};

use super::Program;

/// What memory there is, and how fast it moves.
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
    /// Those to slow memory.
    pub slow: f64,
    /// Granules moved, out of and into fast memory.
    pub moves: u64,
}

impl Outcome {
    /// The share of accesses to slow memory; 0 if there are none.
    pub fn slow_share(&self) -> f64 {
        if self.accesses > 0.0 { self.slow / self.accesses } else { 0.0 }
    }
}

/// Moves that fit between the start of a slice and that of the next.
fn moves_in(program: &Program<'_>, memory: &Memory, slice: usize) -> usize {
    let (start, end) = program.slices()[slice];
    (memory.moves_per_s * (end.saturating_sub(start)) as f64 / 1e9).min(1e9) as usize
}

/// Nothing moves: first come, first served.
pub fn first_touch(program: &Program<'_>, memory: &Memory) -> Outcome {
    let never = Memory { moves_per_s: 0.0, ..*memory };
    follow(program, &never, &Schedule::default(), false)
}

/// The plan is followed; with `live`, what is seen is followed where the program departs from the plan. With a plan that is
/// empty and `live`, only what is seen is followed.
pub fn follow(program: &Program<'_>, memory: &Memory, schedule: &Schedule, live: bool) -> Outcome {
    let half_life_ns = program.slices().first().map_or(1, |(start, end)| (end - start) * 4);
    let mut follower = Follower::new(Options {
        granules: program.granules(),
        fast_granules: memory.fast_granules,
        schedule: schedule.clone(),
        live,
        half_life_ns,
    });
    // Fast memory is kept free for what the plan has in it always, so long as that has not come.
    let mut is_awaited = vec![false; program.granules() as usize];
    let always = schedule.always.iter().take(memory.fast_granules as usize);
    let mut awaited = 0;
    for granule in always {
        if let Some(mark) = is_awaited.get_mut(*granule as usize).filter(|mark| !**mark) {
            *mark = true;
            awaited += 1;
        }
    }
    let mut outcome = Outcome::default();
    let (mut accesses, mut acts): (Vec<(u32, f32)>, Vec<Act>) = (Vec::new(), Vec::new());
    for slice in 0..program.slices().len() {
        let (from_ns, to_ns) = program.slices()[slice];
        program.accesses(slice, &mut accesses);
        for (granule, count) in &accesses {
            let tier = follower.tier(*granule).unwrap_or_else(|| {
                let is_due = std::mem::take(&mut is_awaited[*granule as usize]);
                awaited -= u32::from(is_due);
                let has_room = follower.fast() + awaited < memory.fast_granules;
                let tier = if is_due || has_room { Tier::Fast } else { Tier::Slow };
                follower.placed(*granule, tier);
                tier
            });
            outcome.accesses += f64::from(*count);
            if tier == Tier::Slow {
                outcome.slow += f64::from(*count);
            }
        }
        follower.observe(&Seen { from_ns, to_ns, accesses: &accesses });
        acts.clear();
        follower.step(to_ns, moves_in(program, memory, slice), &mut acts);
        outcome.moves += acts.len() as u64;
        acts.iter().for_each(|act| follower.done(*act, true));
    }
    outcome
}

/// What is hottest over all slices lies in fast memory from the start, and nothing moves: the best that never moves can do.
pub fn best_static(program: &Program<'_>, memory: &Memory) -> Outcome {
    let mut totals = program.totals();
    let accesses = totals.iter().sum();
    totals.sort_by(|a, b| b.total_cmp(a));
    // A sum of nothing is -0.
    let slow = totals.iter().skip(memory.fast_granules as usize).sum::<f64>().max(0.0);
    Outcome { accesses, slow, moves: 0 }
}

/// One who knows all slices to come, and moves at most as fast: the best of three. Nothing moves ([`best_static`]); or in each
/// slice what is needed next comes in, for what is needed last (Belady 1966, of granules that are fetched ahead), beginning with
/// first come, first served, or with room kept for what is hottest over all. A bound in practice, not in theory: with several
/// accesses of different weight the best order is a harder question.
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
        let mut left = moves_in(program, memory, slice);
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
            if left < cost {
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
            left -= cost;
            outcome.moves += cost as u64;
        }
    }
    outcome
}
