//! One run of a program: its group and swap are made, it is started there, looked at until it ends, and everything is taken away.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tiermem_place::capture::program::{self, Program};
use tiermem_place::capture::{CaptureError, Stop};
use tiermem_policy::{evict, prefetch};
use tiermem_sys::control_group::Group;
use tiermem_sys::cpu_time;
use tiermem_sys::pidfd::PidFd;
use tiermem_sys::swap::{self, SwapTraffic};

use super::ended::{Ended, Full};
use super::error::RunError;
use super::fault_times::Times;
use super::group_use::GroupUse;
use super::how::{AskedHow, How};
use super::peaks::{Look, Peaks};
use super::report::Report;
use crate::machine::{Left, Limits, MachineError, Reservation};
use crate::steer::{CoreOptions, Steered, Steering, can_steer};

/// Between two looks at a group: a look takes about 0.1 ms.
const LOOKS_APART: Duration = Duration::from_millis(50);
/// Looks take one part in this number of the time at most: a group of very many processes takes longer.
const LOOKS_SHARE: u32 = 50;

const PAGE_BYTES: u64 = 4096;

/// Characters of a command that a list of runs names.
const COMMAND_CHARS: usize = 200;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The limits.
    pub limits: Limits,
    /// By what it is to be paged.
    pub how: AskedHow,
    /// Who leaves, where the program is steered; `None`: as the kernel's own reclaim chooses.
    pub evict: Option<evict::Named>,
    /// What is fetched ahead.
    pub prefetch: prefetch::Named,
    /// Whether sweeps drop what they have passed, where that pays.
    pub drop_behind: bool,
    /// Where the events and the acts of steering are written.
    pub log: Option<PathBuf>,
    /// A command that, with the name of a run behind it, calls [`crate::machine::keep`]: it stays behind where processes outlive the
    /// program.
    pub keeper: Vec<OsString>,
}

impl Options {
    /// Whether there is nothing that steering would do.
    fn has_nothing_to_steer(&self) -> bool {
        self.evict.is_none() && self.prefetch == prefetch::Named::None && !self.drop_behind
    }
}

/// What is said of a run beside its report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Processes are left in the group, and a keeper waits for their end.
    ProcessesLeft {
        /// How many.
        count: usize,
    },
    /// The swap stays on until other paged programs have ended.
    SwapLeft {
        /// The file.
        path: PathBuf,
    },
    /// The program was not steered, or not to its end.
    NotSteered(String),
    /// The log is not whole.
    LogNotWhole(String),
    /// No log was written, as there was nothing to steer.
    NoLog,
    /// Something could not be taken away.
    NotTakenAway(String),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::ProcessesLeft { count } => write!(
                f,
                "{count} of the program's processes go on; their limit and their swap go with the last of them"
            ),
            Note::SwapLeft { path } => write!(
                f,
                "{} stays on: pages of other paged programs lie there; it goes with the last of them",
                path.display()
            ),
            Note::LogNotWhole(error) => write!(f, "the log is not whole: {error}"),
            Note::NoLog => write!(f, "no log was written: nothing of the program was in swap"),
            Note::NotSteered(reason) => write!(f, "paged by the kernel alone (--how swap): {reason}"),
            Note::NotTakenAway(error) => {
                write!(f, "{error}; the next `tiermem run --dram` or `tiermem pager status` tries again")
            }
        }
    }
}

/// Runs a program to its end.
///
/// # Errors
/// If it cannot be run, or the limits cannot be had. Then nothing is left.
pub fn run(options: &Options, stop: &Stop) -> Result<(Report, Vec<Note>), RunError> {
    // Found before anything is made.
    let mut command = program::command(&options.command)?;
    let (is_steered, mut notes) = match options.how {
        _ if options.has_nothing_to_steer() => (false, Vec::new()),
        AskedHow::Swap => (false, Vec::new()),
        AskedHow::Kernel => (can_steer().map(|()| true)?, Vec::new()),
        AskedHow::Auto => match can_steer() {
            Ok(()) => (true, Vec::new()),
            Err(error) => (false, vec![Note::NotSteered(error.to_string())]),
        },
    };
    let reservation = Reservation::make(&options.limits, &shown(&options.command))?;
    match run_there(options, &reservation, &mut command, is_steered, stop) {
        Ok(report) => {
            if let Some(Steered { gave_up, log_failed, has_begun, .. }) = &report.steered {
                notes.extend(gave_up.clone().map(Note::NotSteered));
                notes.extend(log_failed.clone().map(Note::LogNotWhole));
                notes.extend(
                    (options.log.is_some() && gave_up.is_none() && !has_begun).then_some(Note::NoLog),
                );
            }
            notes.extend(leave(reservation, &options.keeper));
            Ok((report, notes))
        }
        Err(error) => {
            // A program that could not be started has left nothing in the group. Of one that was, only its end could not be awaited:
            // it goes on, and its limits with it.
            let _ = stop.wait_for_program();
            let _ = leave(reservation, &options.keeper);
            Err(error)
        }
    }
}

fn run_there(
    options: &Options,
    reservation: &Reservation,
    command: &mut Command,
    is_steered: bool,
    stop: &Stop,
) -> Result<Report, RunError> {
    let group = reservation.group();
    group.add_child(command).map_err(MachineError::Group)?;
    let command = std::mem::replace(command, Command::new(""));
    let spent_before = own_time();
    let killed_before = group.events().ok().and_then(|events| events.killed).unwrap_or(0);
    let begun = Instant::now();
    let mut looks = Looks { reservation, begun, peaks: Peaks::default(), is_of_machine: false };
    // Before there is anything, so that all counts are from the program's start on.
    looks.look();
    let (program, _) = Program::start(command, stop, false).map_err(CaptureError::Program)?;
    let watch = PidFd::open(program.pid()).map_err(CaptureError::Program)?;
    // From here on nothing but its own end ends the program. It is steered from when it is paged: until then there is nothing to steer.
    let mut steering = is_steered.then(|| Late::new(options));
    let mut times = Times::new();
    let (mut next_look, mut next_time) = (begun, begun);
    loop {
        let now = Instant::now();
        if watch.wait(next_look.min(next_time).saturating_duration_since(now)) {
            break;
        }
        if Instant::now() >= next_time {
            next_time = times.step(group, &looks.peaks);
        }
        if Instant::now() < next_look {
            continue;
        }
        let look_begun = Instant::now();
        looks.look();
        next_look = Instant::now() + LOOKS_APART.max(look_begun.elapsed() * LOOKS_SHARE);
        if let Some(steering) = &mut steering {
            steering.look(group, &looks.peaks);
        }
    }
    let real = begun.elapsed();
    let status = program.wait().map_err(CaptureError::Wait)?;
    looks.look_at_end();
    let steered = steering.map(Late::end);
    let Looks { mut peaks, is_of_machine, .. } = looks;
    // The kernel's own peaks miss nothing between two looks.
    peaks.charged_bytes = peaks.charged_bytes.max(group.peak_bytes().unwrap_or(0));
    peaks.flash_bytes = peaks.flash_bytes.max(group.swap_peak_bytes().unwrap_or(0));
    let usage = program.usage().unwrap_or_default();
    let killed = group.events().ok().and_then(|events| events.killed).unwrap_or(0);
    let limits = &options.limits;
    let full = (killed > killed_before).then_some(Full {
        dram_bytes: limits.dram_bytes,
        flash_bytes: limits.flash.bytes(),
        flash_peak_bytes: peaks.flash_bytes,
    });
    let total = peaks.total();
    Ok(Report {
        how: if steered.is_some() { How::Kernel } else { How::Swap },
        // A program that ends before the second look has needed no less than its largest process.
        required_bytes: peaks.required_bytes.max(usage.peak_resident_bytes.min(peaks.charged_bytes)),
        charged_peak_bytes: peaks.charged_bytes,
        dram_bytes: limits.dram_bytes,
        flash_bytes: limits.flash.bytes(),
        flash_peak_bytes: peaks.flash_bytes,
        foreign_bytes: reservation.swap().map(|_| peaks.foreign_bytes),
        real,
        usage,
        pager_cpu: own_time().saturating_sub(spent_before),
        major_faults: total.major_faults,
        minor_faults: total.minor_faults,
        shared_bytes: peaks.shared_bytes,
        read_bytes: total.read_bytes,
        written_bytes: total.written_bytes,
        is_of_machine,
        fault_times: times.end(),
        steered,
        slices: peaks.slices(),
        ended: Ended { status, full },
    })
}

/// Steering that begins when something is in swap.
struct Late {
    options: CoreOptions,
    log: Option<PathBuf>,
    steering: Option<Steering>,
    gave_up: Option<String>,
}

impl Late {
    fn new(options: &Options) -> Self {
        let log = options.log.clone();
        Late { options: core_options(options), log, steering: None, gave_up: None }
    }

    fn look(&mut self, group: &Group, peaks: &Peaks) {
        if let Some(steering) = &self.steering {
            steering.charged(peaks.charged_now());
        } else if self.gave_up.is_none() && peaks.flash_bytes > 0 {
            let pids = group.processes().unwrap_or_default();
            match Steering::start(&pids, &self.options, self.log.as_deref()) {
                Ok(steering) => self.steering = Some(steering),
                Err(error) => self.gave_up = Some(error.to_string()),
            }
        }
    }

    fn end(self) -> Steered {
        let Late { steering, gave_up, .. } = self;
        steering.map_or_else(|| Steered { gave_up, ..Steered::default() }, Steering::end)
    }
}

fn core_options(options: &Options) -> CoreOptions {
    let pages = |bytes: u64| u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX);
    CoreOptions {
        evict: options.evict,
        prefetch: options.prefetch,
        drop_behind: options.drop_behind,
        dram_pages: pages(options.limits.dram_bytes),
        swap_pages: options.limits.flash.bytes().map_or(u32::MAX, pages),
    }
}

/// Looks at a group, and what they have found.
struct Looks<'a> {
    reservation: &'a Reservation,
    begun: Instant,
    peaks: Peaks,
    /// Pages read and written are counted for the machine alone.
    is_of_machine: bool,
}

impl Looks<'_> {
    fn look(&mut self) {
        if let Some(look) = self.look_now() {
            self.peaks.add(look);
        }
    }

    fn look_at_end(&mut self) {
        if let Some(look) = self.look_now() {
            self.peaks.add_end(look);
        }
    }

    /// `None` where the group does not tell for once: it is looked at again.
    fn look_now(&mut self) -> Option<Look> {
        let group = GroupUse::of(self.reservation.group()).ok()?;
        let (swapped_in, swapped_out) = match (group.swapped_in, group.swapped_out) {
            (Some(swapped_in), Some(swapped_out)) => (swapped_in, swapped_out),
            _ => {
                self.is_of_machine = true;
                let SwapTraffic { read_pages, written_pages } = swap::traffic().unwrap_or_default();
                (read_pages, written_pages)
            }
        };
        let foreign_bytes = self.used_bytes().saturating_sub(group.swap_places_bytes);
        let at = self.begun.elapsed();
        Some(Look { at, group, swapped_in, swapped_out, foreign_bytes })
    }

    /// Bytes in the swap that was turned on for this run.
    fn used_bytes(&self) -> u64 {
        let Some(path) = self.reservation.swap() else { return 0 };
        let areas = swap::areas().unwrap_or_default();
        areas.iter().find(|area| area.path == path).map_or(0, |area| area.used_bytes)
    }
}

/// A command as a list of runs names it.
fn shown(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ").chars().filter(|it| !it.is_control()).take(COMMAND_CHARS).collect()
}

fn own_time() -> Duration {
    let spent = cpu_time::process_spent();
    spent.user + spent.system
}

/// Takes everything away, or has a keeper do it after the last process.
fn leave(reservation: Reservation, keeper: &[OsString]) -> Vec<Note> {
    let count = reservation.group().processes().map_or(0, |all| all.len());
    if count > 0 {
        return match start_keeper(keeper, reservation.id()) {
            Ok(()) => vec![Note::ProcessesLeft { count }],
            Err(error) => vec![
                Note::ProcessesLeft { count },
                Note::NotTakenAway(format!("no process could be started that waits for them: {error}")),
            ],
        };
    }
    match reservation.end() {
        Ok(Left::Nothing) => Vec::new(),
        Ok(Left::SwapOfOthers(path)) => vec![Note::SwapLeft { path }],
        Err(error) => vec![Note::NotTakenAway(error.to_string())],
    }
}

/// Starts a process that has nothing of this one's: neither its streams nor its group of processes, which may get signals of a terminal.
fn start_keeper(keeper: &[OsString], id: &str) -> std::io::Result<()> {
    use std::os::unix::process::CommandExt;
    let (file, arguments) = keeper.split_first().ok_or(std::io::ErrorKind::NotFound)?;
    let mut command = Command::new(file);
    command.args(arguments).arg(id).process_group(0).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop)
}
