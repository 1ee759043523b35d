//! `tiermem plan`: which parts of a program's memory belong in fast memory, and when.

mod for_pager;
mod pages;
mod placement_args;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use tiermem_base::{Bytes, Nanos};
use tiermem_model::placement::{Plan, Span};
use tiermem_trace::recording::{Recording, Selection};

use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::print_lines;

use self::for_pager::PagerArgs;
pub use self::pages::pages;
pub use self::placement_args::HowArgs;

const HELP: &str = "\
Examples:
  tiermem plan app.rec --fast 2GiB -o app.plan.json
  tiermem plan app.rec --fast 2GiB --slices 3..                 # without the slices in which the program begins
  tiermem plan app.rec --fast 2GiB --granule 2MiB --move-bandwidth 4GiB
  tiermem plan app.rec --fast 2GiB --move-bandwidth measured   # on the machine where it will run
  tiermem plan app.rec --config tiers.toml                      # for its first two [[tier]] tables
  tiermem plan app.rec --fast 2GiB --for pager                  # for `tiermem run --dram 2GiB --plan`
  tiermem sim place app.rec --plan app.plan.json                # what it would have saved
  tiermem run --plan app.plan.json -- ./app                     # what it does save

Several plans are drafted (the hottest granules all the time; a window for each moving hotspot; phases) and replayed over the
recording; the one with the fewest accesses to slow memory is kept. A plan is JSON with regions and offsets; it does not say how
bytes are moved.

With --for pager the drafts are: the hottest granules held; a sweep that passes, of which a part is held, for each hotspot that moves and each
region that is used evenly; phases, of which the one is fetched that the program is in. They are replayed by the pager's core over the recording, as `tiermem sim frames` does; the one with the least time
of waiting for flash is kept: faults x --fault-latency + bytes read / --move-bandwidth. No plan at all is a draft, too, and wins a tie.

Fields, a row for each part of the plan:
  part                    always, phase N or sweep
  region                  the region's name
  offset_bytes, bytes     position in the region, and size
  period_s                of a sweep: time between two passes
  bytes_per_s             of a sweep: its speed, negative if downward
  window_bytes, lead_bytes
                          of a sweep: the fast memory that moves with it, and how far ahead it reaches
The table merges adjacent parts of a region, and adds:
  before, after, clairvoyant
                          the share of accesses to slow memory with first touch, with the plan, and with knowledge of the future
                          at the same bandwidth";

const FIELDS: &[&str] =
    &["part", "region", "offset_bytes", "bytes", "period_s", "bytes_per_s", "window_bytes", "lead_bytes"];

/// What a plan is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Purpose {
    /// Two nodes of memory: accesses to the slow one are to be few.
    #[default]
    Memory,
    /// DRAM with flash below: waiting for flash is to be short.
    Pager,
}

/// Options of `tiermem plan`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// A recording.
    #[arg(value_name = "REC")]
    recording: PathBuf,
    /// Fast memory that the program may use [default: the capacity of the first tier of --config].
    #[arg(long, value_name = "SIZE", required_unless_present = "config")]
    fast: Option<Bytes>,
    /// The plan to write.
    #[arg(short, long, value_name = "PLAN")]
    output: Option<PathBuf>,
    /// What the plan is for: memory (a fast and a slow node), or pager (DRAM, and flash below it: `tiermem run --dram --plan`).
    #[arg(long = "for", value_enum, default_value_t)]
    purpose: Purpose,
    #[command(flatten)]
    pager: PagerArgs,
    #[command(flatten)]
    how: HowArgs,
    /// Output format; json is the plan itself.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Makes the plan, writes and prints it.
pub fn run(options: &Options) -> Result<(), Failure> {
    if let Some(option) = options.pager.given().filter(|_| options.purpose == Purpose::Memory) {
        return Err(Failure::usage(anyhow!("{option} is for --for pager")));
    }
    let fast_bytes = options.how.fast_bytes(options.fast)?.unwrap_or_default();
    let (recording, recorded) = options.how.read(&options.recording, None)?;
    let name = options.recording.display().to_string();
    tell_initialisation(options, &recording);
    let plan = match options.purpose {
        Purpose::Memory => recorded
            .plan(&recording, &name, fast_bytes, &options.how.assumed()?)
            .map_err(|reason| Failure::failed(anyhow!("{name}: {reason}")))?,
        Purpose::Pager => {
            let (bytes_per_s, is_measured) = options.how.flash_bandwidth()?;
            let speed = options.pager.speed(bytes_per_s, is_measured)?;
            for_pager::plan(&recording, &recorded, &name, fast_bytes, speed)?
        }
    };
    let text = serde_json::to_string_pretty(&plan).map_err(|error| Failure::failed(anyhow!(error)))? + "\n";
    if let Some(output) = &options.output {
        fs::write(output, &text).map_err(|error| {
            Failure::failed(anyhow!("cannot write the plan {}: {error}", output.display()))
        })?;
    }
    let printed = match options.format {
        Format::Table => print_table(&plan),
        Format::Json => crate::print_text::print_text(&text),
        format => output::print_rows(format, &rows(&plan)),
    };
    printed.map_err(|error| Failure::writing("the plan", error))
}

/// Says how to leave out how the program begins, if that counts.
fn tell_initialisation(options: &Options, recording: &Recording) {
    if options.how.slices.is_some() {
        return;
    }
    if let Some(found) = recording.initialisation(&Selection::default()) {
        eprintln!(
            "tiermem: in {} the program touched {:.0}% of its memory for the first time (initialisation); to plan for what comes after, \
             give --slices {}..",
            found.range(),
            found.share * 100.0,
            found.slices
        );
    }
}

/// Reads a plan for another command.
pub fn read(path: &Path) -> Result<Plan, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::failed(anyhow!("cannot read the plan {}: {error}", path.display())))?;
    Plan::read(&text).map_err(|reason| Failure::failed(anyhow!("{}: {reason}", path.display())))
}

fn rows(plan: &Plan) -> Rows {
    let none = || Cell::Text(String::new());
    let part = |part: String, span: &Span| {
        vec![
            Cell::Text(part),
            Cell::Text(plan.regions[span.region as usize].name.clone()),
            Cell::Count(span.offset),
            Cell::Count(span.bytes),
        ]
    };
    let still = |name: String, span: &Span| {
        let mut row = part(name, span);
        row.extend([none(), none(), none(), none()]);
        row
    };
    let mut rows: Vec<Vec<Cell>> = plan.always.iter().map(|span| still("always".to_owned(), span)).collect();
    for (number, phase) in plan.phases.iter().enumerate() {
        rows.extend(phase.spans.iter().map(|span| still(format!("phase {}", number + 1), span)));
    }
    for sweep in &plan.sweeps {
        let mut row = part("sweep".to_owned(), &sweep.span);
        row.extend([
            Cell::Number(sweep.period_ns as f64 / 1e9, 3),
            Cell::Number(sweep.bytes_per_s, 0),
            Cell::Count(sweep.window_bytes),
            Cell::Count(sweep.lead_bytes),
        ]);
        rows.push(row);
    }
    Rows { fields: FIELDS, rows }
}

/// Bytes of each region in some stretches, in the order in which regions first come.
fn by_region(plan: &Plan, spans: &[Span]) -> Vec<(String, u64, usize)> {
    let mut sums: Vec<(u32, u64, usize)> = Vec::new();
    for span in spans {
        match sums.iter_mut().find(|(region, ..)| *region == span.region) {
            Some(sum) => (sum.1, sum.2) = (sum.1 + span.bytes, sum.2 + 1),
            None => sums.push((span.region, span.bytes, 1)),
        }
    }
    let named = |(region, bytes, parts): (u32, u64, usize)| {
        (plan.regions[region as usize].name.clone(), bytes, parts)
    };
    sums.into_iter().map(named).collect()
}

fn print_table(plan: &Plan) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut line =
        |name: &str, value: String, remark: String| print_lines::line(&mut out, name, value, remark);
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    let small = Bytes(plan.small_bytes);
    let remark = format!("in granules of {}; {small} more lie in smaller regions", Bytes(plan.granule_bytes));
    line("fast memory", Bytes(plan.fast_bytes).to_string(), remark)?;
    let stretches =
        |parts: usize| if parts == 1 { "in one stretch".to_owned() } else { format!("in {parts} stretches") };
    for (name, bytes, parts) in by_region(plan, &plan.always) {
        line("always", Bytes(bytes).to_string(), format!("of {name}, {}", stretches(parts)))?;
    }
    for (number, phase) in plan.phases.iter().enumerate() {
        for (name, bytes, parts) in by_region(plan, &phase.spans) {
            let began = format!("began {} times", phase.began_ns.len());
            line(
                &format!("phase {}", number + 1),
                Bytes(bytes).to_string(),
                format!("of {name}, {}; {began}", stretches(parts)),
            )?;
        }
    }
    for sweep in &plan.sweeps {
        let region = &plan.regions[sweep.span.region as usize];
        let speed = Bytes(sweep.bytes_per_s.abs() as u64);
        let way = if sweep.bytes_per_s < 0.0 { "down" } else { "up" };
        let lead = Bytes(sweep.lead_bytes);
        let remark = format!(
            "moves {way} through {} of {} at {speed}/s, once in {}, {lead} ahead{}",
            Bytes(sweep.span.bytes),
            region.name,
            Nanos(sweep.period_ns),
            match sweep.every {
                0 | 1 => String::new(),
                every => format!(", one granule in {every} of it"),
            }
        );
        line("window", Bytes(sweep.window_bytes).to_string(), remark)?;
    }
    let predicted = &plan.predicted;
    if let Some(paged) = &predicted.paged {
        return for_pager::print_prediction(&mut out, paged).and_then(|()| out.flush());
    }
    line(
        "before",
        percent(predicted.slow_share_before),
        "of accesses go to slow memory, first touched first served".to_owned(),
    )?;
    line(
        "after",
        percent(predicted.slow_share_after),
        "with this plan, replayed over the recording".to_owned(),
    )?;
    let clairvoyant = percent(predicted.slow_share_clairvoyant);
    line("clairvoyant", clairvoyant, "for one who knows what comes".to_owned())?;
    if predicted.moved_bytes_per_s > 0.0 {
        let remark = format!("{} of the time at the assumed speed", percent(predicted.moving_s_per_s));
        line("moves", format!("{}/s", Bytes(predicted.moved_bytes_per_s as u64)), remark)?;
    }
    out.flush()
}
