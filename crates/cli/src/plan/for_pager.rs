//! Plans for the pager: drafts are replayed by the pager's core over the recording, and the one that takes least time is kept.

use std::convert::Infallible;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use anyhow::anyhow;
use clap::Args;
use tiermem_base::{Bytes, Nanos};
use tiermem_model::placement::{Assumed, PagedPrediction, Plan, drafts_for_pager};
use tiermem_pager::machine::flash_read_speed;
use tiermem_place::plan::Recorded;
use tiermem_policy::Id;
use tiermem_policy::frames::TierConfig;
use tiermem_sim::frames::plans::{FlashSpeed, replay_plans};
use tiermem_sim::frames::{Counts, Cut, Memory, Touches};
use tiermem_trace::recording::Recording;

use super::pages;
use crate::failure::Failure;
use crate::print_lines;

const PAGE_BYTES: u64 = 4096;
/// A fault from a file on flash under swap, p50, as measured on the machine of docs/pager-experiments.md.
const FAULT: Nanos = Nanos(77_000);
/// Bytes a second that were read there for a sweep that was steered by hand.
const READ_BYTES_PER_S: f64 = (1 << 30) as f64;

/// What concerns plans for the pager.
#[derive(Debug, Args)]
#[command(next_help_heading = "With --for pager")]
pub struct PagerArgs {
    /// Folder on the flash, which --move-bandwidth measured reads from [default: /var/lib/tiermem].
    #[arg(long, value_name = "PATH")]
    flash: Option<PathBuf>,
    /// How long a page fault that reads from flash takes, as fault_p50_us of a report tells it [default: 77us].
    #[arg(long, value_name = "TIME")]
    fault_latency: Option<Nanos>,
}

impl PagerArgs {
    /// An option that has no meaning for another plan, if one was given.
    pub fn given(&self) -> Option<&'static str> {
        let given = [("--flash", self.flash.is_some()), ("--fault-latency", self.fault_latency.is_some())];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    /// How fast flash is. `bytes_per_s`: as it was given; `is_measured`: it is to be measured.
    pub fn speed(&self, bytes_per_s: Option<f64>, is_measured: bool) -> Result<FlashSpeed, Failure> {
        let fault_ns = self.fault_latency.unwrap_or(FAULT).0 as f64;
        if !is_measured {
            return Ok(FlashSpeed { fault_ns, read_bytes_per_s: bytes_per_s.unwrap_or(READ_BYTES_PER_S) });
        }
        let folder = self.flash.as_deref().unwrap_or(Path::new("/var/lib/tiermem"));
        let speed = flash_read_speed(folder).map_err(|error| {
            Failure::failed(anyhow!(
                "reading from {} cannot be measured: {error}; name a folder on the flash with --flash, or say with --move-bandwidth SIZE \
                 how fast it is",
                folder.display()
            ))
        })?;
        eprintln!("tiermem: {}/s are read from {}", Bytes(speed as u64), folder.display());
        Ok(FlashSpeed { fault_ns, read_bytes_per_s: speed })
    }
}

/// Makes the plan.
pub fn plan(
    recording: &Recording,
    recorded: &Recorded,
    file: &str,
    dram_bytes: u64,
    speed: FlashSpeed,
) -> Result<Plan, Failure> {
    let failed = |reason: String| Failure::failed(anyhow!("{file}: {reason}"));
    let assumed = Assumed {
        slow_latency_ns: speed.fault_ns,
        move_bytes_per_s: speed.read_bytes_per_s,
        ..Assumed::default()
    };
    let heats = recorded.heats();
    let program = recorded.program(&heats).map_err(failed)?;
    let left_bytes = dram_bytes.saturating_sub(recorded.small_bytes);
    let drafts = drafts_for_pager(&recorded.regions, &program, left_bytes, &assumed);
    let drafts: Vec<Plan> = drafts.into_iter().map(|draft| recorded.signed(draft, recording, file)).collect();
    let touches = touches(recording).map_err(failed)?;
    let dram_pages = u32::try_from(dram_bytes / PAGE_BYTES).unwrap_or(u32::MAX);
    if dram_pages == 0 {
        return Err(Failure::usage(anyhow!("--fast {} is less than a page", Bytes(dram_bytes))));
    }
    let tiers = vec![TierConfig::memory(dram_pages), TierConfig::storage(Id::COUNT_MAX)];
    let memory = Memory { tiers, ..Memory::default() };
    let pages = drafts.iter().map(|draft| pages(draft, recording, PAGE_BYTES));
    let pages = pages.collect::<Result<Vec<_>, _>>().map_err(|misfit| failed(misfit.to_string()))?;
    let threads = available_parallelism().map_or(1, usize::from);
    let (without, with) =
        replay_plans(&touches, &memory, &pages, threads).map_err(|error| failed(error.to_string()))?;
    let nothing = Plan {
        always: Vec::new(),
        sweeps: Vec::new(),
        phases: Vec::new(),
        ..drafts.first().cloned().unwrap_or_default()
    };
    let mut best = (nothing, without.clone());
    for (draft, counts) in drafts.into_iter().zip(with) {
        // Doing nothing comes first, so that it wins where nothing is better.
        if speed.waiting_s(&counts) < speed.waiting_s(&best.1) {
            best = (draft, counts);
        }
    }
    let (mut plan, after) = best;
    plan.predicted.paged = Some(predicted(&speed, &without, &after));
    Ok(plan)
}

fn predicted(speed: &FlashSpeed, before: &Counts, after: &Counts) -> PagedPrediction {
    PagedPrediction {
        faults_before: before.faults,
        faults_after: after.faults,
        read_bytes_before: before.read_bytes,
        read_bytes_after: after.read_bytes,
        waiting_s_before: speed.waiting_s(before),
        waiting_s_after: speed.waiting_s(after),
    }
}

/// What was touched, in the order of the recording: within a slice none is known.
fn touches(recording: &Recording) -> Result<Touches, String> {
    let accesses = recording.samples.iter().map(|sample| Ok::<_, Infallible>(recording.head.access(sample)));
    Touches::of(accesses, Cut::in_order(PAGE_BYTES as u32)).map_err(|error| error.to_string())
}

/// Prints the parts of a plan's table that are the pager's.
pub fn print_prediction(out: &mut impl Write, predicted: &PagedPrediction) -> io::Result<()> {
    let mut line = |name: &str, waiting_s: f64, faults: u64, bytes: u64, how: &str| {
        let remark = format!("of waiting for flash: {faults} faults, {} read, {how}", Bytes(bytes));
        print_lines::line(&mut *out, name, format!("{waiting_s:.3} s"), remark)
    };
    let it = predicted;
    line("before", it.waiting_s_before, it.faults_before, it.read_bytes_before, "without a plan")?;
    line(
        "after",
        it.waiting_s_after,
        it.faults_after,
        it.read_bytes_after,
        "with this plan, replayed over the recording",
    )
}
