//! Analysis of a recording into a plan. Several plans are drafted, each is replayed over the recording by the code that will
//! carry it out, and the one with the fewest accesses to slow memory is kept (Fisher 2025, section 5.1: analyse once, off line).

use tiermem_policy::placement::{self as follow, Schedule};

use super::phases::{self, FoundPhase};
use super::plan::{Assumed, Phase, Plan, PlannedRegion, Predicted, Span, Sweep};
use super::program::{Program, by_heat};
use super::replay::{self, Memory, Outcome};
use crate::heat::{hotspot, period};

/// A plan of a more complicated kind must be better by so much of all accesses.
const WORTH: f64 = 0.01;
/// A region with less of all accesses gets no window.
const SWEEP_SHARE_MIN: f64 = 0.05;

/// A phase moves no granule that is not this many times hotter than what is left out: it is as well to leave whichever is there.
const PHASE_MARGIN: f64 = 1.25;

/// Makes a plan of a recorded program and its regions, in the same order, for `fast_bytes` of fast memory. What it was made from is
/// the caller's to fill in.
///
/// # Errors
/// If there is nothing to plan.
pub fn analyse(
    regions: Vec<PlannedRegion>,
    program: &Program<'_>,
    fast_bytes: u64,
    assumed: &Assumed,
) -> Result<Plan, String> {
    let memory = memory(program, fast_bytes, assumed);
    let before = replay::first_touch(program, &memory);
    let kinds = [
        vec![Draft::still(program, &memory)],
        Draft::sweeping(program, &memory),
        Draft::with_phases(program, &memory).into_iter().collect(),
    ];
    let mut best: Option<(Draft, Outcome)> = None;
    for drafts in kinds {
        let replayed = drafts.into_iter().map(|draft| {
            let outcome = replay::follow(program, &memory, &draft.schedule(), false);
            (draft, outcome)
        });
        let Some(of_kind) = replayed.min_by(|a, b| a.1.slow.total_cmp(&b.1.slow)) else { continue };
        let is_better =
            best.as_ref().is_none_or(|(_, best)| of_kind.1.slow_share() + WORTH < best.slow_share());
        if is_better {
            best = Some(of_kind);
        }
    }
    let (draft, after) = best.ok_or("there is nothing to plan")?;
    let clairvoyant = replay::clairvoyant(program, &memory);
    let seconds =
        (program.slices().iter().map(|(start, end)| end - start).sum::<u64>() as f64 / 1e9).max(1e-9);
    let moved = after.moves as f64 * program.granule_bytes() as f64;
    let saved = (before.slow - after.slow).max(0.0) * (assumed.slow_latency_ns - assumed.fast_latency_ns);
    let predicted = Predicted {
        slow_share_before: readable(before.slow_share()),
        slow_share_after: readable(after.slow_share()),
        slow_share_clairvoyant: readable(clairvoyant.slow_share()),
        moved_bytes_per_s: readable(moved / seconds),
        moving_s_per_s: readable(moved / assumed.move_bytes_per_s.max(1.0) / seconds),
        saved_ns_per_s: readable(saved / seconds),
        paged: None,
    };
    Ok(draft.plan(program, regions, fast_bytes, assumed, predicted))
}

/// A number with six digits: a plan is read by people too.
fn readable(number: f64) -> f64 {
    format!("{number:.5e}").parse().unwrap_or(number)
}

/// The memory that a plan is for.
pub fn memory(program: &Program<'_>, fast_bytes: u64, assumed: &Assumed) -> Memory {
    let fast = (fast_bytes / program.granule_bytes()).min(u64::from(u32::MAX)) as u32;
    Memory { fast_granules: fast, moves_per_s: assumed.move_bytes_per_s / program.granule_bytes() as f64 }
}

/// A plan in numbers of granules.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub always: Vec<u32>,
    pub phases: Vec<(Vec<u64>, Vec<u32>)>,
    pub sweeps: Vec<DraftSweep>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DraftSweep {
    pub follow: follow::Sweep,
    pub period_ns: u64,
    pub stride_granules: u64,
    pub lead_granules: u32,
}

impl Draft {
    fn schedule(&self) -> Schedule {
        let phase = |(_, granules): &(Vec<u64>, Vec<u32>)| follow::Phase { granules: granules.clone() };
        Schedule {
            always: self.always.clone(),
            sweeps: self.sweeps.iter().map(|sweep| sweep.follow).collect(),
            phases: self.phases.iter().map(phase).collect(),
            phase_ns: phases::typical_ns(self.phases.iter().flat_map(|(began_ns, _)| began_ns)),
        }
    }

    /// The hottest granules, always.
    fn still(program: &Program<'_>, memory: &Memory) -> Draft {
        Draft { always: program.hottest(memory.fast_granules as usize), ..Draft::default() }
    }

    /// A window for each hotspot that moves; the other granules as in the static drafts. Windows of several widths are tried: a
    /// wide one tolerates a hotspot that is not where it should be, and leaves less for granules that need not move. If a hotspot
    /// moves faster than bytes can be moved, every n-th granule passes through the window, spread over the stretch, and the
    /// others lie where they always lie.
    fn sweeping(program: &Program<'_>, memory: &Memory) -> Vec<Draft> {
        let all: f64 = program.heats().iter().map(|heat| heat.sum()).sum();
        let found: Vec<(usize, hotspot::Sweep)> = (0..program.heats().len())
            .filter(|region| program.heats()[*region].sum() >= all * SWEEP_SHARE_MIN)
            .filter_map(|region| Some((region, hotspot::sweep(program.heats()[region], program.slices())?)))
            .collect();
        if found.is_empty() {
            return Vec::new();
        }
        let slice_s = typical_slice_s(program.slices());
        // What comes in has to go out as well; what lies there always need not come.
        let speed: f64 = found.iter().map(|(_, sweep)| sweep.granules_per_s.abs()).sum();
        let pace = (speed * 2.0 / memory.moves_per_s.max(f64::MIN_POSITIVE)).ceil().clamp(1.0, 1e6) as u32;
        let mut everies = vec![1, pace - pace / 4, pace, pace + pace.div_ceil(4), pace * 2];
        everies.dedup();
        let widths = [0.5, 1.0, 1.5, 2.5, 4.0, 6.0];
        let tried = everies.iter().flat_map(|every| widths.map(|width| (*every, width)));
        let drafts = tried.filter_map(|(every, width)| {
            let sweeps: Vec<DraftSweep> = found
                .iter()
                .map(|(region, sweep)| {
                    let granules = sweep.granules as u32;
                    // Until the next move it goes on for a slice, and what is moved meanwhile must be there before it.
                    let lead = (sweep.granules_per_s.abs() * slice_s * width).ceil() as u32;
                    let window = (sweep.hot_granules as u32 + lead + 1).min(granules).div_ceil(every);
                    let periods = period::periods(&program.heats()[*region].totals());
                    DraftSweep {
                        follow: follow::Sweep {
                            first: program.first_of(*region) + sweep.first as u32,
                            granules,
                            granules_per_s: sweep.granules_per_s,
                            hot: sweep.hot_granules as u32,
                            window,
                            every,
                        },
                        period_ns: sweep.period_ns,
                        stride_granules: periods.first().map_or(0, |peak| peak.lag as u64),
                        lead_granules: lead,
                    }
                })
                .collect();
            let windows: u32 = sweeps.iter().map(|sweep| sweep.follow.window).sum();
            let left = memory.fast_granules.checked_sub(windows)?;
            let mut always = by_heat(&program.totals());
            // Where all of them pass, those that are there already are passed over.
            let comes_by_itself = |granule: &u32| sweeps.iter().any(|sweep| sweep.follow.moves(*granule));
            always.retain(|granule| every == 1 || !comes_by_itself(granule));
            always.truncate(left as usize);
            Some(Draft { always, sweeps, ..Draft::default() })
        });
        drafts.collect()
    }

    /// A draft with the granules that every phase needs, always, and for each phase the further granules that it needs.
    pub fn with_phases(program: &Program<'_>, memory: &Memory) -> Option<Draft> {
        let phases = phases::find(program);
        if phases.len() < 2 {
            return None;
        }
        let capacity = memory.fast_granules as usize;
        let tops: Vec<Vec<u32>> = phases
            .iter()
            .map(|phase| {
                let mut top = by_heat(&phase.mean);
                let left_out = top.get(capacity).map_or(0.0, |granule| phase.mean[*granule as usize]);
                top.truncate(capacity);
                top.retain(|granule| phase.mean[*granule as usize] > left_out * PHASE_MARGIN);
                top
            })
            .collect();
        let mut in_phases = vec![0_usize; program.granules() as usize];
        tops.iter().flatten().for_each(|granule| in_phases[*granule as usize] += 1);
        let everywhere = |granule: &u32| in_phases[*granule as usize] == phases.len();
        let always: Vec<u32> = tops[0].iter().copied().filter(everywhere).collect();
        let phase = |(phase, top): (&FoundPhase, Vec<u32>)| {
            let began = phase.runs.iter().map(|slice| program.slices()[*slice].0).collect();
            (began, top.into_iter().filter(|granule| !everywhere(granule)).collect())
        };
        Some(Draft { always, phases: phases.iter().zip(tops).map(phase).collect(), ..Draft::default() })
    }

    pub fn plan(
        &self,
        program: &Program<'_>,
        regions: Vec<PlannedRegion>,
        fast_bytes: u64,
        assumed: &Assumed,
        predicted: Predicted,
    ) -> Plan {
        let granule_bytes = program.granule_bytes();
        let bytes_of: Vec<u64> = regions.iter().map(|region| region.bytes).collect();
        let spans = |granules: &[u32]| spans(program, &bytes_of, granules);
        let sweep = |draft: &DraftSweep| {
            let (region, first) = program.region_of(draft.follow.first);
            let offset = u64::from(first) * granule_bytes;
            let bytes = (u64::from(draft.follow.granules) * granule_bytes).min(bytes_of[region] - offset);
            let speed = readable(draft.follow.granules_per_s * granule_bytes as f64);
            Sweep {
                span: Span { region: region as u32, offset, bytes },
                period_ns: draft.period_ns,
                bytes_per_s: speed,
                hot_bytes: u64::from(draft.follow.hot) * granule_bytes,
                lead_bytes: u64::from(draft.lead_granules) * granule_bytes,
                window_bytes: u64::from(draft.follow.window) * granule_bytes,
                stride_bytes: draft.stride_granules * granule_bytes,
                every: draft.follow.every,
            }
        };
        Plan {
            version: Plan::VERSION,
            granule_bytes,
            fast_bytes,
            assumed: *assumed,
            always: spans(&self.always),
            phases: self
                .phases
                .iter()
                .map(|(began_ns, granules)| Phase { began_ns: began_ns.clone(), spans: spans(granules) })
                .collect(),
            sweeps: self.sweeps.iter().map(sweep).collect(),
            predicted,
            regions,
            ..Plan::default()
        }
    }
}

/// Stretches of granules, in their order: neighbours that follow one another are one stretch.
fn spans(program: &Program<'_>, bytes_of: &[u64], granules: &[u32]) -> Vec<Span> {
    // Runs in the order of addresses, each as urgent as its first granule was.
    let mut sorted: Vec<(u32, usize)> = granules.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    let mut runs: Vec<(usize, Span)> = Vec::new();
    for (granule, rank) in sorted {
        let (region, at) = program.region_of(granule);
        let offset = u64::from(at) * program.granule_bytes();
        let bytes = program.granule_bytes().min(bytes_of[region].saturating_sub(offset)).max(1);
        match runs.last_mut() {
            Some((first, span)) if span.region as usize == region && span.offset + span.bytes == offset => {
                span.bytes += bytes;
                *first = (*first).min(rank);
            }
            _ => runs.push((rank, Span { region: region as u32, offset, bytes })),
        }
    }
    runs.sort_by_key(|(rank, _)| *rank);
    runs.into_iter().map(|(_, span)| span).collect()
}

fn typical_slice_s(slices: &[(u64, u64)]) -> f64 {
    let mut lengths: Vec<u64> = slices.iter().map(|(start, end)| end - start).collect();
    lengths.sort_unstable();
    lengths.get(lengths.len() / 2).copied().unwrap_or(0) as f64 / 1e9
}
