//! Runs in less DRAM than the program needs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use tiermem_base::{Bytes, Nanos};
use tiermem_pager::control::on_or_off;
use tiermem_pager::run::{self, AskedHow, Ended, Note, Options, RunError, SteerOptions, WaitOptions};
use tiermem_place::capture::Stop;
use tiermem_policy::paging::GRANULE_BYTES;
use tiermem_policy::prefetch::readahead::ReadaheadParameters;
use tiermem_policy::{evict, prefetch};

use super::memory_tiers::MemoryArgs;
use super::placed::{CompareArgs, TRIALS_TO_COMPARE};
use super::references::References;
use super::{paged_compare, paged_report};
use crate::destination::Destination;
use crate::failure::Failure;
use crate::output::Format;
use crate::{interrupt, plan, record};

/// How it is used, and the fields of the report.
pub const HELP: &str = "\
With --dram the program runs in less DRAM than it needs: a control group limits it, and swap takes what does not fit. docs/pager.md
explains it. It needs root: a control group, and a swap file where no swap is on. --pool puts memory of another node between DRAM and flash.

Fields of the report with --dram:
  how                    by what the program was paged
  required_bytes         peak of anonymous, shared and mapped memory, in DRAM and on flash: what it needs in all
  charged_peak_bytes     peak of what its group was charged, with the file cache
  overcommit             required_bytes over dram_bytes, at least 1
  dram_bytes, dram_peak_bytes, flash_bytes, flash_peak_bytes
                         limits and peaks
  foreign_bytes          the most that other programs had in the swap of this run; null if no swap was turned on for it
  real_s, user_s, system_s
                         time from start to end; processor time in the program, and in the kernel for it
  pager_cpu_s            processor time of tiermem meanwhile
  minor_faults, major_faults
                         page faults answered from memory; page faults that read from disk
  fault_p50_us, fault_p99_us
                         how long those that read from disk took, of a sample; null if none was measured
  prefetched_pages, prefetch_used_pages, prefetch_late_pages
                         pages fetched ahead, those of them that were used, and those used before they had come; null without steering, as
                         the next three
  kernel_evicted_pages   pages that the kernel took by itself: with --evict kernel all but those that were dropped
  dropped_behind_pages   pages that left because a sweep had passed them
  events_lost            page faults of which steering was told nothing
  shared_bytes           peak of shared memory
  read_bytes, written_bytes
                         from and to swap; counted for the whole machine where the kernel does not count them by group
  tcm_saved              share of the cost of memory that is saved, with DRAM at 4.875 and flash at 0.16 dollars a GB; counts the flash
                         that was used
  ended                  how the program ended
  tenth_dram_bytes       DRAM with which a tenth of the major faults would be left; null if there is no such size, or it is not known
  tiers: a row for each tier: dram and flash; with --pool dram (local), numa and flash
    name, capacity_bytes, peak_bytes
                         limit and peak
    read_bytes, written_bytes
                         from and to flash; of numa what went from there to local DRAM, and came from there
  slices: equal parts of the time, at most 1000
    at_s                 end of the slice, since the program's start
    charged_bytes, flash_bytes
                         at its end
    minor_faults, major_faults, read_bytes, written_bytes
                         in it
  more_dram: what is left with more DRAM, up to four times as much; the first row is what it had. Empty without steering
    dram_bytes           limit of DRAM
    faults               major faults that are left
    fetched_pages        pages fetched ahead and used that are left
    wait_s               those faults at the median time of a fault; null if none was measured
  policies: what policies would have made of the uses that were seen, simulated by granule, without a prefetcher. Empty without
  --references granule, where uses are not seen
    evict, dram_bytes    the policy; the limit of DRAM
    touches              uses of granules: each counts once between two looks
    faults, faults_low, faults_high
                         of them those that would not have found their granule in DRAM: in an order between two looks that is drawn, in
                         the best and in the worst one
    fault_ratio          faults over touches
    granule_bytes, share size of a granule; the share of all granules that stand for all";

/// How long a program may wait for room, by default.
const WAIT_WHEN_FULL: Nanos = Nanos(60_000_000_000);

/// One `--evict`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EvictName(pub Option<evict::Named>);

impl FromStr for EvictName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "kernel" => Ok(EvictName(None)),
            _ => text
                .parse()
                .map(|named| EvictName(Some(named)))
                .map_err(|error: String| format!("{error}, kernel")),
        }
    }
}

fn how(text: &str) -> Result<AskedHow, String> {
    match text {
        "auto" => Ok(AskedHow::Auto),
        "swap" => Ok(AskedHow::Swap),
        "kernel" => Ok(AskedHow::Kernel),
        _ => Err(format!("{text:?} is none of auto, swap and kernel")),
    }
}

/// What concerns runs in less DRAM.
#[derive(Debug, Args)]
#[command(next_help_heading = "In less DRAM than the program needs")]
pub struct PagedArgs {
    #[command(flatten)]
    memory: MemoryArgs,
    /// By what the program is paged: swap (the kernel alone), kernel (which is told what leaves and what comes), or auto: kernel where that
    /// can be had [default: auto].
    #[arg(long, value_name = "HOW", value_parser = how, conflicts_with = "compare")]
    how: Option<AskedHow>,
    /// Who leaves DRAM: kernel (the kernel's own reclaim chooses), or a policy as `tiermem sim frames` has them [default: kernel].
    #[arg(long, value_name = "NAME")]
    evict: Option<EvictName>,
    /// What the policy of --evict hears of uses: faults, or granule[=SIZE] (also which granules were used; they become mappings of their own:
    /// docs/pager.md says what that takes) [default: faults].
    #[arg(long, value_name = "HOW")]
    references: Option<References>,
    /// Whether pages that a sweep has passed leave first, where they are needed later than others: on or off [default: on].
    #[arg(long, value_name = "WHETHER", value_parser = on_or_off)]
    drop_behind: Option<bool>,
    /// Write the events and the acts of steering to FILE; `tiermem pager replay FILE` checks it.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// What is fetched from flash before it is used: none, next-n, feedback-directed, best-offset, leap, readahead, plan [default: plan
    /// with --plan, else readahead].
    #[arg(long, value_name = "NAME")]
    prefetch: Option<prefetch::Named>,
    #[command(flatten)]
    room: RoomArgs,
}

impl PagedArgs {
    /// Whether the program is to have less DRAM.
    pub fn is_asked(&self) -> bool {
        self.memory.is_asked()
    }

    /// An option that says nothing without a limit of DRAM, if one was given.
    pub fn without_limit(&self) -> Option<&'static str> {
        let given = [
            ("--flash", self.memory.flash.is_some()),
            ("--pool", self.memory.pool.is_some()),
            ("--how", self.how.is_some()),
            ("--evict", self.evict.is_some()),
            ("--prefetch", self.prefetch.is_some()),
            ("--references", self.references.is_some()),
            ("--drop-behind", self.drop_behind.is_some()),
            ("--log", self.log.is_some()),
            ("--wait-when-full", self.room.is_given()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    /// Fails if the kernel alone is to page the program, and something is asked of steering.
    fn check_steering(&self, plan: Option<&Path>) -> Result<(), Failure> {
        let asked = [
            ("--plan", plan.is_some()),
            ("--pool", self.memory.pool.is_some()),
            ("--evict", self.evict.is_some()),
            ("--prefetch", self.prefetch.is_some()),
            ("--references", self.references.is_some()),
            ("--drop-behind", self.drop_behind.is_some()),
            ("--log", self.log.is_some()),
        ];
        match asked.into_iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) if self.how == Some(AskedHow::Swap) => Err(Failure::usage(anyhow!(
                "{name} is for --how kernel or auto; with --how swap nothing steers the program"
            ))),
            _ => Ok(()),
        }
    }

    /// Who leaves DRAM, and what it hears of uses. In a pool a policy has to choose, as the kernel does not know which node a page belongs
    /// to, and uses have to be told, or no pages would change places.
    fn chooser(&self) -> Result<(Option<evict::Named>, References), Failure> {
        let is_pool = self.memory.pool.is_some();
        let by_default = if is_pool { Some(evict::Named::LfuDa) } else { None };
        let evict = self.evict.map_or(by_default, |EvictName(evict)| evict);
        if is_pool && evict.is_none() {
            return Err(Failure::usage(anyhow!(
                "--pool takes a policy, such as --evict lfu-da: the kernel does not know which node a page belongs to"
            )));
        }
        let by_granule = References::ByGranule(Bytes(GRANULE_BYTES));
        let references = self.references.unwrap_or(if is_pool { by_granule } else { References::Faults });
        references.check(evict)?;
        Ok((evict, references))
    }
}

/// Runs the program and reports.
pub fn run(
    args: &PagedArgs,
    comparison: &CompareArgs,
    plan: Option<&Path>,
    command: Vec<OsString>,
    format: Format,
    destination: &Destination,
) -> Result<(), Failure> {
    args.check_steering(plan)?;
    let (evict, references) = args.chooser()?;
    let (limits, pool) = args.memory.limits()?;
    let by_default = match plan {
        Some(_) => prefetch::Named::Plan(ReadaheadParameters::DEFAULT),
        None => prefetch::Named::Readahead(ReadaheadParameters::DEFAULT),
    };
    let read = plan.map(plan::read).transpose()?;
    let options = Options {
        command,
        limits,
        how: args.how.unwrap_or_default(),
        steer: SteerOptions {
            evict,
            prefetch: args.prefetch.unwrap_or(by_default),
            drop_behind: args.drop_behind.unwrap_or(true),
            granule_bytes: references.granule_bytes(),
            pool,
            plan: read.map(Arc::new),
            log: args.log.clone(),
            fresh_counts: own_command("fresh-counts"),
        },
        keeper: own_command("keep"),
        room: args.room.options(),
        tell: |note| eprintln!("tiermem: {note}"),
    };
    let stop = Stop::default();
    // A signal is the program's; the run ends with it.
    interrupt::pass_on(&stop, Stop::stop, interrupt::Second::EndsProgram);
    if !comparison.compare.is_empty() || comparison.trials.is_some() {
        return compare(&options, comparison, &stop, format, destination);
    }
    let (report, notes) = run::run(&options, &stop).map_err(advise)?;
    say(&notes, &report.ended);
    paged_report::write(&report, &options.command, format, destination)
        .map_err(|error| Failure::writing("the report", error))?;
    report.ended.status().map_or(Ok(()), Failure::of_program)
}

fn compare(
    options: &Options,
    comparison: &CompareArgs,
    stop: &Stop,
    format: Format,
    destination: &Destination,
) -> Result<(), Failure> {
    let named = comparison.compare.iter().map(|name| how(name));
    let named: Result<Vec<AskedHow>, String> = named.collect();
    let mut hows = named
        .map_err(|error| Failure::usage(anyhow!("--compare: {error}, which can be compared with --dram")))?;
    if hows.is_empty() {
        hows.push(options.how);
    }
    if (1..hows.len()).any(|at| hows[..at].contains(&hows[at])) {
        return Err(Failure::usage(anyhow!("--compare names one twice")));
    }
    let trials = comparison.trials.unwrap_or(TRIALS_TO_COMPARE);
    let compared = run::compare(options, &hows, trials, stop, |_| {}).map_err(advise)?;
    for note in &compared.notes {
        eprintln!("tiermem: {note}");
    }
    let written = paged_compare::write(&compared, trials, format, destination);
    written.map_err(|error| Failure::writing("the report", error))?;
    match &compared.cut_short {
        Some((how, ended)) => {
            eprintln!(
                "tiermem: stopped before the last trial had ended, with --how {}: {ended}",
                paged_compare::name(*how)
            );
            ended.status().map_or(Ok(()), Failure::of_program)?;
            Err(Failure::failed(anyhow!("stopped before the last trial had ended")))
        }
        None => Ok(()),
    }
}

/// Says what is to be said beside the report.
pub fn say(notes: &[Note], ended: &Ended) {
    for note in notes {
        eprintln!("tiermem: {note}");
    }
    if let Some(full) = &ended.full {
        eprintln!("tiermem: {full}");
    }
}

/// Adds how to mend it.
pub fn advise(error: RunError) -> Failure {
    match error {
        RunError::Program(error) => record::advise(error),
        RunError::Misfit(misfit) => {
            Failure::failed(anyhow!("{misfit}; record this program and make a plan of that"))
        }
        RunError::Machine(error) => Failure::failed(error),
        RunError::Pool(_) => Failure::failed(anyhow!(
            "{error}; a cpuset may keep this process from it (cpuset.mems, cpuset.cpus)"
        )),
        RunError::Steer(error) => Failure::failed(anyhow!(
            "{error}; steering takes CAP_PERFMON and CAP_SYS_NICE (root has both); --how swap goes without"
        )),
    }
}

/// Waiting for room, as it is asked for.
#[derive(Debug, Args)]
pub struct RoomArgs {
    /// How long the program may wait, each time that DRAM and flash are full, for `tiermem pager set` to make room; then the kernel kills it.
    /// 0s: it is killed at once, as always with control groups of version 2 [default: 60s].
    #[arg(long, value_name = "TIME")]
    wait_when_full: Option<Nanos>,
}

impl RoomArgs {
    /// Whether something was asked for.
    pub fn is_given(&self) -> bool {
        self.wait_when_full.is_some()
    }

    /// What it means for this process.
    pub fn options(&self) -> WaitOptions {
        let patience = self.wait_when_full.unwrap_or(WAIT_WHEN_FULL);
        let mut command = own_command("wait-for-room");
        command.extend([std::process::id().to_string().into(), format!("{}ns", patience.0).into()]);
        WaitOptions { patience: Duration::from_nanos(patience.0), command }
    }
}

/// The command of a process that is started beside this one.
pub fn own_command(name: &str) -> Vec<OsString> {
    ["/proc/self/exe", "pager", name].map(OsString::from).into()
}
