//! `tiermem pager attach`: less DRAM for a program that runs.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::{ArgGroup, Args};
use tiermem_base::Bytes;
use tiermem_pager::control::on_or_off;
use tiermem_pager::machine::{Flash, Limits, Subject};
use tiermem_pager::run::{self, AttachOptions, SteerOptions};
use tiermem_place::capture::Stop;
use tiermem_policy::evict;
use tiermem_policy::prefetch::{self, readahead::ReadaheadParameters};

use crate::destination::Destination;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::Format;
use crate::run::memory_tiers::FlashSize;
use crate::run::paged::{self, EvictName, RoomArgs};
use crate::run::paged_report;
use crate::run::references::References;

const HELP: &str = "\
Examples:
  tiermem pager attach --cgroup /system.slice/app.service --dram 2GiB --flash 8GiB
  tiermem pager attach --pid 4711 --dram 2GiB --flash 8GiB --report app.html

It holds until Ctrl-C, SIGTERM, or the end of the last process; then the limits are what they were, and swap that was turned on is turned off.
If it is killed (SIGKILL), the next `tiermem pager` command or `tiermem run --dram` puts the limits back.

--cgroup sets the limits of a control group. It lowers them in steps, and only if what has to leave DRAM finds room: no process is killed for
it. It is refused where that room is missing, or tiermem itself runs in the group.

--pid sets no limit: tiermem pages out memory of the process, of the children that it has, and of those that it starts from then on, so that
together they stay at --dram. For a moment they may have more; a program that writes most of its memory all the time has more for long: take
--cgroup for that. Memory that two processes share stays, and so do files; --cgroup holds all of it. It takes Linux 6.7 and root, or
CAP_SYS_NICE, CAP_PERFMON and the right to read the process.

The report is that of `tiermem run --dram` (see `tiermem run --help`). user_s and system_s are null, ended is \"detached\" or \"its last process
has ended\", and all counts are from the beginning of the attachment. With --pid, dram_peak_bytes counts what the processes have in memory.";

/// Options of `tiermem pager attach`.
#[derive(Debug, Args)]
#[command(after_help = HELP, group(ArgGroup::new("subject").required(true).args(["pid", "cgroup"])))]
pub struct Options {
    /// Attach to this process and its children.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Attach to this control group: its folder, or its name as /proc/PID/cgroup has it.
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// DRAM for the program.
    #[arg(long, value_name = "SIZE")]
    dram: Bytes,
    /// Flash for what does not fit, as `tiermem run` has it [default: swap that is on].
    #[arg(long, value_name = "[PATH=]SIZE")]
    flash: Option<FlashSize>,
    /// Who leaves DRAM: a policy as `tiermem sim frames` has them, or, with --cgroup, kernel [default: kernel with --cgroup, clock with
    /// --pid].
    #[arg(long, value_name = "NAME")]
    evict: Option<EvictName>,
    /// What is fetched from flash before it is used: none, next-n, feedback-directed, best-offset, leap, readahead, plan (without a plan as
    /// readahead) [default: readahead].
    #[arg(long, value_name = "NAME")]
    prefetch: Option<prefetch::Named>,
    /// Whether pages that a sweep has passed leave first, where they are needed later than others: on or off [default: on].
    #[arg(long, value_name = "WHETHER", value_parser = on_or_off)]
    drop_behind: Option<bool>,
    /// What a policy hears of uses, as `tiermem run` has it: faults or granule[=SIZE].
    #[arg(long, value_name = "HOW", default_value = "faults")]
    references: References,
    /// Write the events and the acts of steering to FILE; `tiermem pager replay FILE` checks it.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    #[command(flatten)]
    room: RoomArgs,
    /// Format of the report.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Write the report to FILE; FILE.html is a page, FILE.json has all figures [default: standard output].
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl Options {
    fn subject(&self) -> Result<Subject, Failure> {
        match (self.pid, &self.cgroup) {
            (Some(pid), None) => Ok(Subject::Process(pid)),
            (None, Some(path)) => Ok(Subject::Group(path.clone())),
            _ => Err(Failure::usage(anyhow!("attach to what? --pid PID or --cgroup PATH"))),
        }
    }

    fn evict(&self) -> Result<Option<evict::Named>, Failure> {
        match (self.evict, self.pid) {
            (None, None) => Ok(None),
            (None, Some(_)) => Ok(Some(evict::Named::Clock)),
            (Some(EvictName(None)), Some(_)) => Err(Failure::usage(anyhow!(
                "--evict kernel takes a group whose limit the kernel keeps: --cgroup PATH; with --pid name a policy, such as --evict clock"
            ))),
            (Some(EvictName(evict)), _) => Ok(evict),
        }
    }
}

/// Attaches, and reports at the end.
pub fn run(options: &Options) -> Result<(), Failure> {
    let evict = options.evict()?;
    options.references.check(evict)?;
    let attach = AttachOptions {
        subject: options.subject()?,
        limits: Limits {
            dram_bytes: options.dram.0,
            flash: options.flash.clone().map_or(Flash::AlreadyOn, FlashSize::limited),
        },
        steer: SteerOptions {
            evict,
            prefetch: options.prefetch.unwrap_or(prefetch::Named::Readahead(ReadaheadParameters::DEFAULT)),
            drop_behind: options.drop_behind.unwrap_or(true),
            granule_bytes: options.references.granule_bytes(),
            pool: None,
            plan: None,
            log: options.log.clone(),
            fresh_counts: paged::own_command("fresh-counts"),
        },
        must_steer: options.evict.is_some()
            || options.prefetch.is_some()
            || options.drop_behind.is_some()
            || options.log.is_some(),
        room: options.room.options(),
        tell: |note| eprintln!("tiermem: {note}"),
    };
    let stop = Stop::default();
    // A second signal changes nothing: the limits have to be put back.
    interrupt::pass_on(&stop, Stop::stop, interrupt::Second::EndsProgram);
    let attached = run::attach(&attach, &stop, |id| {
        eprintln!("tiermem: attached as {id}; Ctrl-C detaches");
    });
    let (report, notes) = attached.map_err(paged::advise)?;
    paged::say(&notes, &report.ended);
    let destination = Destination::of_report(options.report.as_deref(), false);
    let command = match &attach.subject {
        Subject::Process(pid) => format!("process {pid}"),
        Subject::Group(path) => path.display().to_string(),
    };
    paged_report::write(&report, &[command.into()], options.format, &destination)
        .map_err(|error| Failure::writing("the report", error))
}
