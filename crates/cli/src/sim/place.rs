//! `tiermem sim place`: a placement plan replayed over a recording.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use tiermem_base::Bytes;
use tiermem_model::placement::replay::{self, Outcome};
use tiermem_model::placement::{Plan, Program, begins_behind, memory};
use tiermem_place::plan::Recorded;
use tiermem_policy::placement::Schedule;

use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::plan::{self, HowArgs};

const HELP: &str = "\
Examples:
  tiermem sim place app.rec --plan app.plan.json
  tiermem sim place app.rec --fast 2GiB                    # without a plan

The recording is replayed slice by slice. Pages start where they are first touched: in fast memory until it is full, then in slow
memory. A plan places memory when it is mapped: what it names in fast memory, the rest there too while there is room. Between
slices granules may move, up to --move-bandwidth; a slice's unused bandwidth is lost.

Placements:
  first-touch   nothing moves
  static        the hottest granules of the whole recording, from the start; nothing moves
  plan          the plan, by the code that carries it out live; nothing while that would be worse than first-touch
  plan+live     the same, following observed accesses where the program departs from the plan
  live          following observed accesses, without a plan; nothing while that would be worse than first-touch
  clairvoyant   knows all future slices, and moves no faster
  unlimited     the same without a limit of bandwidth

Fields:
  placement              one of the above
  slow_share             accesses to slow memory over all accesses
  slow, accesses         in the recording's unit
  moved_bytes            out of and into fast memory
  saved_share            share of first-touch's slow accesses that is saved
  of_clairvoyant         saved accesses over those that clairvoyant saves
  resting_slices         slices in which nothing was followed, as that would have been worse than first-touch";

const FIELDS: &[&str] = &[
    "placement",
    "slow_share",
    "slow",
    "accesses",
    "moved_bytes",
    "saved_share",
    "of_clairvoyant",
    "resting_slices",
];

/// Options of `tiermem sim place`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// A recording.
    #[arg(value_name = "REC")]
    recording: PathBuf,
    /// The plan; it also sets granule and fast memory.
    #[arg(long, value_name = "PLAN")]
    plan: Option<PathBuf>,
    /// Size of fast memory [default: the plan's, or the capacity of the first tier of --config].
    #[arg(long, value_name = "SIZE", required_unless_present_any = ["plan", "config"])]
    fast: Option<Bytes>,
    #[command(flatten)]
    how: HowArgs,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Replays and prints.
pub fn run(options: &Options) -> Result<(), Failure> {
    let plan = options.plan.as_deref().map(plan::read).transpose()?;
    let granule_bytes = plan.as_ref().map(|plan| plan.granule_bytes);
    if let (Some(granule_bytes), Some(asked)) = (granule_bytes, options.how.granule)
        && granule_bytes != asked.0
    {
        return Err(Failure::usage(anyhow!(
            "the plan moves {} at a time; leave --granule out, or make a plan with this one",
            Bytes(granule_bytes)
        )));
    }
    let (_, recorded) = options.how.read(&options.recording, granule_bytes)?;
    let found = plan.as_ref().map(|plan| find_regions(plan, &recorded, &options.recording)).transpose()?;
    let heats = recorded.heats();
    let program = recorded.program(&heats).map_err(|reason| Failure::failed(anyhow!(reason)))?;
    // What is smaller than a granule lies in fast memory, beside what is divided.
    let fast_bytes = match (options.fast, &plan) {
        (Some(fast), _) => fast.0.saturating_sub(recorded.small_bytes),
        (None, Some(plan)) => plan.fast_bytes,
        (None, None) => {
            options.how.fast_bytes(None)?.unwrap_or_default().saturating_sub(recorded.small_bytes)
        }
    };
    let memory = memory(&program, fast_bytes, &options.how.assumed()?);
    let schedule = plan
        .as_ref()
        .zip(found)
        .map(|(plan, places)| renumbered(&plan.schedule(), &plan.firsts(), &places, &program));
    let first = replay::first_touch(&program, &memory);
    let clairvoyant = replay::clairvoyant(&program, &memory);
    let mut outcomes = vec![("first-touch", first), ("static", replay::best_static(&program, &memory))];
    if let Some(schedule) = &schedule {
        outcomes.push(("plan", replay::follow(&program, &memory, schedule, false)));
        outcomes.push(("plan+live", replay::follow(&program, &memory, schedule, true)));
    }
    outcomes.push(("live", replay::follow_seen(&program, &memory)));
    outcomes.push(("clairvoyant", clairvoyant));
    let unlimited = replay::Memory { moves_per_s: f64::INFINITY, ..memory };
    outcomes.push(("unlimited", replay::clairvoyant(&program, &unlimited)));
    let saved = |outcome: &Outcome| first.slow - outcome.slow;
    let row = |(name, outcome): &(&str, Outcome)| {
        vec![
            Cell::Text((*name).to_owned()),
            Cell::Number(outcome.slow_share(), 4),
            Cell::Number(outcome.slow, 0),
            Cell::Number(outcome.accesses, 0),
            Cell::Count(outcome.moves * program.granule_bytes()),
            Cell::Number(saved(outcome) / first.slow.max(f64::MIN_POSITIVE), 4),
            Cell::Number(saved(outcome) / saved(&clairvoyant).max(f64::MIN_POSITIVE), 4),
            Cell::Count(outcome.resting),
        ]
    };
    let rows = Rows { fields: FIELDS, rows: outcomes.iter().map(row).collect() };
    output::print_rows(options.format, &rows).map_err(|error| Failure::writing("the outcomes", error))
}

/// Where each region of a plan is among those recorded, and how many granules behind its beginning in the plan it begins there; `None`: it
/// is not there.
fn find_regions(
    plan: &Plan,
    recorded: &Recorded,
    recording: &Path,
) -> Result<Vec<Option<(usize, i64)>>, Failure> {
    let places = plan.find(&recorded.regions).map_err(|misfit| {
        Failure::failed(anyhow!("{}: {misfit}; make a plan of this recording", recording.display()))
    })?;
    let regions = plan.regions.iter().zip(&places);
    let missing: Vec<&str> =
        regions.filter(|(_, place)| place.is_none()).map(|(region, _)| region.name.as_str()).collect();
    if missing.len() == plan.regions.len() {
        return Err(Failure::failed(anyhow!(
            "none of the plan's regions is in {} ({}): it is another program's, or one of another size",
            recording.display(),
            missing.join(", ")
        )));
    }
    if !missing.is_empty() {
        eprintln!("tiermem: the recording has not these regions of the plan: {}", missing.join(", "));
    }
    let places = plan.regions.iter().zip(places).map(|(planned, place)| {
        let place = place?;
        let behind = begins_behind(planned, &recorded.regions[place]);
        let granule_bytes = plan.granule_bytes.cast_signed();
        Some((place, behind.saturating_add(granule_bytes / 2).div_euclid(granule_bytes)))
    });
    Ok(places.collect())
}

/// A plan's schedule, renumbered for a program with regions in
/// another order, some missing, or beginning some granules later.
fn renumbered(
    schedule: &Schedule,
    firsts: &[u32],
    places: &[Option<(usize, i64)>],
    program: &Program<'_>,
) -> Schedule {
    let map = |granule: u32| -> Option<u32> {
        let region = firsts.partition_point(|first| *first <= granule).checked_sub(1)?;
        let (place, behind) = (*places.get(region)?)?;
        let at = u32::try_from(i64::from(granule - firsts[region]) - behind).ok()?;
        ((at as usize) < program.heats()[place].granules()).then(|| program.first_of(place) + at)
    };
    let mut new = schedule.clone();
    new.always = schedule.always.iter().copied().filter_map(map).collect();
    for phase in &mut new.phases {
        phase.granules = phase.granules.iter().copied().filter_map(map).collect();
    }
    new.sweeps = schedule
        .sweeps
        .iter()
        .filter_map(|sweep| {
            // It begins where there is something, at a granule that moves.
            let may_begin = (0..sweep.granules).step_by(sweep.every.max(1) as usize);
            let (lost, first) = may_begin.filter_map(|at| Some((at, map(sweep.first + at)?))).next()?;
            let (region, at) = program.region_of(first);
            let left = program.heats()[region].granules() as u32 - at;
            let granules = (sweep.granules - lost).min(left);
            Some(tiermem_policy::placement::Sweep { first, granules, ..*sweep })
        })
        .collect();
    new
}
