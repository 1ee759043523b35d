//! Runs under a placement plan: the prediction, and the measurement.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use tiermem_base::{Bytes, Nanos};
use tiermem_model::placement::Plan;
use tiermem_place::capture::Stop;
use tiermem_place::capture::live::{self, Ending, SourceKind, Target};
use tiermem_place::migrate::{self, Placement, Report};
use tiermem_policy::placement::Shares;

use crate::destination::Destination;
use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::{interrupt, numa_nodes, plan, print_lines, record};

/// Fields of the report.
pub const HELP: &str = "\
Fields of the report with --plan:
  slices, seconds        slices and time in which the program was observed
  accesses               accesses to pages, estimated from accessed bits as `tiermem record` estimates them
  slow_share             share of accesses to slow memory; null if --follow first-touch could not be measured
  first_touch_slow_share the same share, had no page been placed or moved: first come, first served, by granule; of the plan's regions
  predicted_before, predicted_after
                         the plan's predicted slow_share: with first touch, and with the plan
  moved_bytes            moved by the plan
  corrected_bytes        moved once to fast memory because it was touched before it was bound
  failed_pages           pages that could not be moved
  moving_s               processor time of moving
  departed_slices        slices that followed observed accesses instead of the plan (--follow live)
  resting_slices         slices in which nothing was followed, as that would have been worse than first touch
  rested_plan, rested_observed, rested_first_touch
                         why it last began to rest: shares of the accesses of the slices before that the plan would have had in slow
                         memory, that were to slow memory, and that first touch would have had there; null if it never rested
  regions_found, regions of the plan
  ended                  stopped, or how the program ended";

const FIELDS: &[&str] = &[
    "slices",
    "seconds",
    "accesses",
    "slow_share",
    "first_touch_slow_share",
    "predicted_before",
    "predicted_after",
    "moved_bytes",
    "corrected_bytes",
    "failed_pages",
    "moving_s",
    "departed_slices",
    "resting_slices",
    "rested_plan",
    "rested_observed",
    "rested_first_touch",
    "regions_found",
    "regions",
    "ended",
];

/// How a plan is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Follow {
    /// Follow the plan.
    Plan,
    /// Follow the plan, and observed accesses where the program departs from it.
    Live,
    /// Baseline: the kernel places pages at first touch, and nothing moves. Pages are locked on the fast node until it has as
    /// much room as the plan uses, and no more.
    FirstTouch,
}

/// The source of accesses, as `tiermem record --source` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ObservedBy {
    /// Accessed bits in page tables.
    #[default]
    Refs,
    /// The kernel's DAMON.
    Damon,
}

/// With a limit of DRAM a plan is followed by pages, and none of this has a meaning.
const PAGED: [&str; 3] = ["dram", "tier", "overcommit"];

/// What concerns a plan.
#[derive(Debug, Args)]
#[command(next_help_heading = "With a plan")]
pub struct PlanArgs {
    /// The plan, made by `tiermem plan`; with --dram it says which pages stay in DRAM, and which pass.
    #[arg(long, value_name = "PLAN")]
    pub plan: Option<PathBuf>,
    /// How to follow the plan [default: plan; with --dram always live].
    #[arg(long, value_enum, requires = "plan")]
    follow: Option<Follow>,
    /// Source of the accesses that are observed: refs, or damon as the kernel's monitor sees them.
    #[arg(long, value_enum, default_value_t, requires = "plan", conflicts_with_all = PAGED)]
    source: ObservedBy,
    /// Interval between scans and moves.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = record::slice, requires = "plan", conflicts_with_all = PAGED)]
    slice: Duration,
    /// Node of fast memory [default: the first with processors].
    #[arg(long, value_name = "NODE", requires = "plan", conflicts_with_all = PAGED)]
    fast_node: Option<u32>,
    /// Node of slow memory [default: the nearest other one].
    #[arg(long, value_name = "NODE", requires = "plan", conflicts_with_all = PAGED)]
    slow_node: Option<u32>,
    /// Bytes per second that may be moved [default: what the plan assumes].
    #[arg(long, value_name = "SIZE", requires = "plan", conflicts_with_all = PAGED)]
    move_bandwidth: Option<Bytes>,
}

impl PlanArgs {
    /// The plan by which a program is paged in less DRAM than it needs, if there is one. There is one way to follow it.
    pub fn of_pages(&self) -> Result<Option<&Path>, Failure> {
        match self.follow {
            None | Some(Follow::Live) => Ok(self.plan.as_deref()),
            Some(Follow::Plan | Follow::FirstTouch) => Err(Failure::usage(anyhow!(
                "with --dram a plan is followed live: as far as the program does what it says; leave --follow out"
            ))),
        }
    }
}

/// The nodes of fast and of slow memory.
fn nodes_of(args: &PlanArgs) -> Result<[u32; 2], Failure> {
    numa_nodes::fast_and_slow(args.fast_node, args.slow_node)?.ok_or_else(|| {
        Failure::failed(anyhow!(
            "this machine has one node with memory, and a plan divides two; `tiermem sim place` replays it over its recording"
        ))
    })
}

/// Runs the program under the plan and reports.
pub fn run(
    args: &PlanArgs,
    file: &Path,
    command: Vec<OsString>,
    format: Format,
    destination: &Destination,
) -> Result<(), Failure> {
    let plan = plan::read(file)?;
    let [fast_node, slow_node] = nodes_of(args)?;
    let options = migrate::Options {
        look: live::Options {
            target: Target::Command(command),
            sources: vec![match args.source {
                ObservedBy::Refs => SourceKind::Refs,
                ObservedBy::Damon => SourceKind::Damon,
            }],
            slice: args.slice,
            granule_bytes: plan.granule_bytes,
            closer: None,
            every_page: false,
            tell_mappings: true,
            // A plan is for one process.
            children: false,
            sites: false,
            small_pages: false,
            agent: true,
            delay: Duration::ZERO,
            duration: None,
        },
        placement: match args.follow.unwrap_or(Follow::Plan) {
            Follow::Plan => Placement::Planned,
            Follow::Live => Placement::Live,
            Follow::FirstTouch => Placement::FirstTouch,
        },
        fast_node,
        slow_node,
        move_bytes_per_s: args.move_bandwidth.map_or(plan.assumed.move_bytes_per_s, |bytes| bytes.0 as f64),
        plan,
    };
    let stop = Stop::default();
    // A signal is the program's; the run ends with it.
    interrupt::pass_on(&stop, |_| {}, interrupt::Second::EndsProgram);
    let ran = migrate::run(&options, &stop, |_| {});
    if ran.is_err() {
        // It goes on as the kernel places it, and what is said of us comes after its end.
        let _ = stop.wait_for_program();
    }
    let report = ran.map_err(|failure| match failure {
        migrate::Failure::Capture(error) => record::advise(error),
        migrate::Failure::Misfit(misfit) => Failure::failed(anyhow!(
            "{}: {misfit}; record this program and make a plan of that",
            file.display()
        )),
        other => Failure::failed(anyhow!("{other}; run as root or with CAP_SYS_NICE")),
    })?;
    for note in &report.notes {
        eprintln!("tiermem: {note}");
    }
    if let Some(reason) = &report.not_measured {
        eprintln!("tiermem: first touch was not measured: {reason}");
    }
    let written = destination.open().and_then(|mut out| match format {
        Format::Table => write_table(&mut out, &report, &options.plan),
        format => output::write_rows(&mut out, format, &rows(&report, &options.plan)),
    });
    written.map_err(|error| Failure::writing("the report", error))?;
    match report.ending {
        Some(Ending::Exited(status)) => Failure::of_program(status),
        _ => Ok(()),
    }
}

fn ended(report: &Report) -> String {
    report.ending.as_ref().map_or_else(String::new, record::ended)
}

fn rows(report: &Report, plan: &Plan) -> Rows {
    let rested = |fast_share: &dyn Fn(&Shares) -> f64| {
        let slow_share = report.rested_for.map_or(f64::NAN, |shares| 1.0 - fast_share(&shares));
        Cell::Number(slow_share, 4)
    };
    let row = vec![
        Cell::Count(report.slices),
        Cell::Number(report.wall.as_secs_f64(), 3),
        Cell::Number(report.fast_accesses + report.slow_accesses, 0),
        Cell::Number(report.slow_share().unwrap_or(f64::NAN), 4),
        Cell::Number(report.undisturbed_slow_share().unwrap_or(f64::NAN), 4),
        Cell::Number(plan.predicted.slow_share_before, 4),
        Cell::Number(plan.predicted.slow_share_after, 4),
        Cell::Count(report.moved_pages * 4096),
        Cell::Count(report.corrected_pages * 4096),
        Cell::Count(report.failed_pages.values().sum()),
        Cell::Number(report.moving.as_secs_f64(), 3),
        Cell::Count(report.departed_slices),
        Cell::Count(report.resting_slices),
        rested(&|it| it.plan),
        rested(&|it| it.observed),
        rested(&|it| it.undisturbed),
        Cell::Count(report.regions_found as u64),
        Cell::Count(plan.regions.len() as u64),
        Cell::Text(ended(report)),
    ];
    Rows { fields: FIELDS, rows: vec![row] }
}

fn write_table(mut out: &mut impl Write, report: &Report, plan: &Plan) -> io::Result<()> {
    let mut line =
        |name: &str, value: String, remark: String| print_lines::line(&mut out, name, value, remark);
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    let accesses = report.fast_accesses + report.slow_accesses;
    let before = percent(plan.predicted.slow_share_before);
    let after = percent(plan.predicted.slow_share_after);
    let remark =
        format!("of {accesses:.0} accesses to pages; predicted {after} by the plan, {before} without");
    line("slow", report.slow_share().map_or_else(|| "not measured".to_owned(), percent), remark)?;
    if let Some(share) = report.undisturbed_slow_share() {
        let remark = "of them, had no page been placed or moved (first come, first served)".to_owned();
        line("first touch", percent(share), remark)?;
    }
    let moving = Nanos(report.moving.as_nanos() as u64);
    let failed: u64 = report.failed_pages.values().sum();
    let corrected = Bytes(report.corrected_pages * 4096);
    let remark = format!("in {moving}; {corrected} more at first, {failed} pages could not be moved");
    line("moved", Bytes(report.moved_pages * 4096).to_string(), remark)?;
    let regions = format!("{} of {}", report.regions_found, plan.regions.len());
    line("regions", regions, "of the plan were there at the end".to_owned())?;
    if report.departed_slices > 0 {
        let remark = format!("of {} slices followed what was seen", report.slices);
        line("departed", report.departed_slices.to_string(), remark)?;
    }
    if let Some(shares) = report.rested_for {
        let [plan, observed, still] =
            [shares.plan, shares.observed, shares.undisturbed].map(|fast| percent(1.0 - fast));
        let remark = format!(
            "of {} slices followed nothing: when it last began to rest, {observed} of the accesses were slow; {plan} would have been by the \
             plan, {still} by first touch",
            report.slices
        );
        line("rested", report.resting_slices.to_string(), remark)?;
    }
    line("took", Nanos(report.wall.as_nanos() as u64).to_string(), format!("{} slices", report.slices))?;
    line("ended by", ended(report), String::new())?;
    out.flush()
}
