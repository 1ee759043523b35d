//! Drafts of plans for the pager, where slow memory is flash: whatever is touched comes to DRAM first, so that it matters what stays there
//! and what has left when something else comes.
//!
//! Which draft is best is not told here: paging brings in whatever is touched, which accesses to slow memory say nothing of. The pager's
//! own simulation replays them.

use super::analyse::{Draft, DraftSweep, memory};
use super::plan::{Assumed, Plan, PlannedRegion, Predicted};
use super::program::{Program, by_heat};
use crate::heat::hotspot;
use tiermem_policy::placement as follow;

/// A region with less of all accesses has no sweep of its own.
const SWEEP_SHARE_MIN: f64 = 0.05;
/// A region is used evenly if so large a share of its granules have at least half of the mean accesses.
const EVEN_SHARE: f64 = 0.9;
/// Shares of fast memory that a draft holds, in sixteenths: something must pass.
const HELD_SIXTEENTHS: [u32; 3] = [13, 10, 6];

/// Drafts of plans, each of another kind or size; none that says nothing.
///
/// - The hottest granules are held.
/// - A sweep passes, and of its granules as many are held as find room, spread over all of it: so flash is read all the time. What is hotter
///   than the sweep is held before that. A sweep is a hotspot that moves through a region, or a region that is used evenly and is larger
///   than what is left of fast memory: slices may be too long to see it move.
/// - What every phase of the program needs is held, and what each needs besides comes with it.
pub fn drafts_for_pager(
    regions: &[PlannedRegion],
    program: &Program<'_>,
    fast_bytes: u64,
    assumed: &Assumed,
) -> Vec<Plan> {
    let memory = memory(program, fast_bytes, assumed);
    let fast_granules = memory.fast_granules;
    // Files are paged by the kernel, without swap.
    let is_own = |granule: &u32| regions[program.region_of(*granule).0].path.is_none();
    let mut hottest = by_heat(&program.totals());
    hottest.retain(is_own);
    let held = |sixteenths: u32| (u64::from(fast_granules) * u64::from(sixteenths) / 16) as usize;
    let mut drafts = Vec::new();
    let still = hottest.iter().copied().take(held(HELD_SIXTEENTHS[0])).collect();
    drafts.push(Draft { always: still, ..Draft::default() });
    let found: Vec<DraftSweep> = (0..program.heats().len())
        .filter(|region| regions[*region].path.is_none())
        .filter_map(|region| sweep_of(program, region, fast_granules))
        .collect();
    let mut sets: Vec<Vec<DraftSweep>> = found.iter().map(|sweep| vec![*sweep]).collect();
    if found.len() > 1 {
        sets.push(found);
    }
    for sweeps in sets {
        for sixteenths in HELD_SIXTEENTHS {
            let always = beside(program, &hottest, &sweeps, held(sixteenths));
            drafts.push(Draft { always, sweeps: sweeps.clone(), ..Draft::default() });
        }
    }
    drafts.extend(Draft::with_phases(program, &memory).map(|draft| {
        let own = |granules: Vec<u32>| granules.into_iter().filter(is_own).collect();
        let phases = draft.phases.into_iter().map(|(began_ns, granules)| (began_ns, own(granules))).collect();
        Draft { always: own(draft.always), phases, ..Draft::default() }
    }));
    drafts.retain(|draft| {
        !draft.always.is_empty()
            || !draft.sweeps.is_empty()
            || draft.phases.iter().any(|(_, granules)| !granules.is_empty())
    });
    let plan =
        |draft: Draft| draft.plan(program, regions.to_vec(), fast_bytes, assumed, Predicted::default());
    drafts.into_iter().map(plan).collect()
}

/// The sweep through a region.
fn sweep_of(program: &Program<'_>, region: usize, fast_granules: u32) -> Option<DraftSweep> {
    let (heat, first) = (program.heats()[region], program.first_of(region));
    let all: f64 = program.heats().iter().map(|heat| heat.sum()).sum();
    if heat.sum() < all * SWEEP_SHARE_MIN {
        return None;
    }
    if let Some(found) = hotspot::sweep(heat, program.slices()) {
        return Some(DraftSweep {
            follow: follow::Sweep {
                first: first + found.first as u32,
                granules: found.granules as u32,
                granules_per_s: found.granules_per_s,
                hot: found.hot_granules as u32,
                window: 0,
                every: 1,
            },
            period_ns: found.period_ns,
            stride_granules: 0,
            lead_granules: 0,
        });
    }
    let totals = heat.totals();
    let mean = heat.sum() / totals.len().max(1) as f64;
    let even = totals.iter().filter(|total| **total >= mean / 2.0).count();
    let is_even = even as f64 >= totals.len() as f64 * EVEN_SHARE;
    (is_even && totals.len() as u64 > u64::from(fast_granules) / 2).then_some(DraftSweep {
        follow: follow::Sweep {
            first,
            granules: totals.len() as u32,
            granules_per_s: 0.0,
            hot: totals.len() as u32,
            window: 0,
            every: 1,
        },
        period_ns: 0,
        stride_granules: 0,
        lead_granules: 0,
    })
}

/// What is held beside sweeps and of them, the most important first.
fn beside(program: &Program<'_>, hottest: &[u32], sweeps: &[DraftSweep], held: usize) -> Vec<u32> {
    let is_swept = |granule: &u32| sweeps.iter().any(|sweep| sweep.follow.moves(*granule));
    let totals = program.totals();
    let swept: Vec<u32> = (0..program.granules()).filter(is_swept).collect();
    let mean = swept.iter().map(|granule| totals[*granule as usize]).sum::<f64>() / swept.len().max(1) as f64;
    let hotter = |granule: &u32| !is_swept(granule) && totals[*granule as usize] >= mean;
    let mut always: Vec<u32> = hottest.iter().copied().filter(hotter).take(held).collect();
    let left = held - always.len();
    always.extend(spread(&swept, left));
    always
}

/// So many of these, as evenly spread as they can be.
fn spread(granules: &[u32], count: usize) -> Vec<u32> {
    let (all, count) = (granules.len(), count.min(granules.len()));
    (0..all).filter(|at| (at + 1) * count / all > at * count / all).map(|at| granules[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_base::Heat;

    const GRANULE: u64 = 1 << 20;

    fn region(bytes: u64, path: Option<&str>) -> PlannedRegion {
        PlannedRegion { bytes, path: path.map(str::to_owned), ..PlannedRegion::default() }
    }

    fn heat(granules: usize, slices: usize, count: impl Fn(usize, usize) -> f32) -> Heat {
        let values = (0..slices).flat_map(|slice| (0..granules).map(move |granule| (slice, granule)));
        Heat::of(GRANULE, granules, values.map(|(slice, granule)| count(slice, granule)).collect())
    }

    #[test]
    fn granules_are_spread_evenly() {
        assert_eq!(spread(&[10, 11, 12, 13], 2), [11, 13]);
        assert_eq!(spread(&[1, 2, 3, 4, 5, 6, 7], 3), [3, 5, 7]);
        assert_eq!((spread(&[1, 2], 9), spread(&[], 3), spread(&[1, 2], 0)), (vec![1, 2], vec![], vec![]));
    }

    #[test]
    fn what_is_used_evenly_and_does_not_fit_is_swept_and_held_in_part() {
        let slices: Vec<(u64, u64)> = (0..8).map(|at| (at * 1_000_000, (at + 1) * 1_000_000)).collect();
        let even = heat(64, 8, |_, _| 2.0);
        let hot = heat(4, 8, |_, _| 9.0);
        let file = heat(8, 8, |_, _| 50.0);
        let heats = [&even, &hot, &file];
        let regions =
            [region(64 * GRANULE, None), region(4 * GRANULE, None), region(8 * GRANULE, Some("/a"))];
        let program = Program::new(&heats, &slices).unwrap();
        let drafts = drafts_for_pager(&regions, &program, 32 * GRANULE, &Assumed::default());
        let bytes = |plan: &Plan, region: u32| {
            plan.always
                .iter()
                .filter(|span| span.region == region)
                .map(|span| span.bytes / GRANULE)
                .sum::<u64>()
        };
        let told: Vec<_> = drafts.iter().map(|it| (it.sweeps.len(), bytes(it, 1), bytes(it, 0))).collect();
        assert_eq!(told, [(0, 4, 22), (1, 4, 22), (1, 4, 16), (1, 4, 8)]);
        assert!(drafts.iter().all(|plan| bytes(plan, 2) == 0), "files are the kernel's");
        // The hotter ones come first, and what is held of the sweep is not one stretch.
        assert_eq!((drafts[1].always[0].region, drafts[1].always[0].bytes), (1, 4 * GRANULE));
        assert!(drafts[1].always.len() > 16 && drafts[0].always.len() == 2);
        assert_eq!(drafts[1].sweeps[0].span.bytes, 64 * GRANULE);
        // One that uses its memory alike all the time has no phases.
        assert!(drafts.iter().all(|plan| plan.phases.is_empty()));
        // What fits needs no sweep.
        let roomy = drafts_for_pager(&regions, &program, 256 * GRANULE, &Assumed::default());
        assert!(roomy.iter().all(|plan| plan.sweeps.is_empty()));
    }

    #[test]
    fn what_all_phases_need_is_held_and_files_are_in_none() {
        let slices: Vec<(u64, u64)> = (0..32).map(|at| (at * 1_000_000, (at + 1) * 1_000_000)).collect();
        // Every second granule in turn, for four slices each; the first ones all the time.
        let turns = heat(
            64,
            32,
            |slice, granule| {
                if granule < 4 || granule % 2 == slice / 4 % 2 { 9.0 } else { 0.0 }
            },
        );
        let file = heat(8, 32, |slice, _| if slice / 4 % 2 == 0 { 20.0 } else { 0.0 });
        let regions = [region(64 * GRANULE, None), region(8 * GRANULE, Some("/a"))];
        let heats = [&turns, &file];
        let program = Program::new(&heats, &slices).unwrap();
        let drafts = drafts_for_pager(&regions, &program, 48 * GRANULE, &Assumed::default());
        let found: Vec<&Plan> = drafts.iter().filter(|plan| !plan.phases.is_empty()).collect();
        let [plan] = found[..] else { panic!("{} drafts with phases", found.len()) };
        let granules = |spans: &[super::super::plan::Span]| {
            let all =
                spans.iter().flat_map(|span| (0..span.bytes / GRANULE).map(|at| span.offset / GRANULE + at));
            let mut all: Vec<u64> = all.collect();
            all.sort_unstable();
            all
        };
        assert_eq!(granules(&plan.always), [0, 1, 2, 3]);
        let phases: Vec<Vec<u64>> = plan.phases.iter().map(|phase| granules(&phase.spans)).collect();
        let every_second = |first| (first..64).step_by(2).collect::<Vec<u64>>();
        assert_eq!(phases, [every_second(4), every_second(5)]);
        assert!(plan.phases.iter().all(|phase| phase.spans.iter().all(|span| span.region == 0)));
    }
}
