//! One run of a program: its group and swap are made, it is started there, looked at until it ends, and everything is taken away.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use tiermem_place::capture::program::{self, Program};
use tiermem_place::capture::{CaptureError, Stop, executable_of};
use tiermem_sys::pidfd::PidFd;

use super::ended::Cause;
use super::error::RunError;
use super::how::AskedHow;
use super::memory_pool::MemoryPool;
use super::note::Note;
use super::report::Report;
use super::room::WaitOptions;
use super::steer_options::SteerOptions;
use super::supervision::{Settings, Supervision};
use super::target::Target;
use crate::control::Control;
use crate::machine::{Limits, MachineError, Reservation, start_apart};
use crate::steer::{SteerError, can_steer};

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
    /// What steers it, where it is steered.
    pub steer: SteerOptions,
    /// A command that, with the name of a run behind it, calls [`super::keep`]: it stays behind where processes outlive the
    /// program.
    pub keeper: Vec<OsString>,
    /// How it may wait where DRAM and flash are full.
    pub room: WaitOptions,
    /// Is told at once what the user has to know while the program runs.
    pub tell: fn(&Note),
}

/// Runs a program to its end.
///
/// # Errors
/// If it cannot be run, or the limits cannot be had. Then nothing is left.
pub fn run(options: &Options, stop: &Stop) -> Result<(Report, Vec<Note>), RunError> {
    // Found before anything is made.
    let mut command = program::command(&options.command)?;
    if let Some(plan) = &options.steer.plan {
        let build_id = executable_of(&options.command)?.build_id;
        plan.fits_binary(build_id.as_deref()).map_err(RunError::Misfit)?;
    }
    let (is_steered, mut notes) = match options.how {
        _ if options.steer.is_idle() => (false, Vec::new()),
        AskedHow::Swap => (false, Vec::new()),
        AskedHow::Kernel => (can_steer().map(|()| true)?, Vec::new()),
        // Nothing else brings pages to its nodes.
        AskedHow::Auto if options.steer.pool.is_some() => (can_steer().map(|()| true)?, Vec::new()),
        AskedHow::Auto => match can_steer() {
            Ok(()) => (true, Vec::new()),
            Err(error) => (false, vec![Note::NotSteered(error.to_string())]),
        },
    };
    if let Some(path) = options.steer.log.as_ref().filter(|_| is_steered) {
        try_log(path).map_err(|source| SteerError::Log { path: path.clone(), source })?;
    }
    let reservation = Reservation::make(&options.limits, &shown(&options.command))?;
    match run_there(options, &reservation, &mut command, is_steered, stop) {
        Ok(report) => {
            let is_logged = options.steer.log.is_some();
            notes.extend(report.steered.iter().flat_map(|it| Note::of_steering(it, is_logged)));
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

/// Whether a log can be written there. Steering begins later, when it is too late to tell, or never; then none is left.
fn try_log(path: &Path) -> io::Result<()> {
    let is_new = !path.exists();
    // Who reads a pipe would take a first opening and its end for the whole log.
    if !is_new && !path.is_file() {
        return Ok(());
    }
    OpenOptions::new().append(true).create(true).open(path)?;
    if is_new { fs::remove_file(path) } else { Ok(()) }
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
    if let Some(pool) = options.steer.pool.as_ref().filter(|_| is_steered) {
        pool.prepare(command).map_err(RunError::Pool)?;
    }
    let command = std::mem::replace(command, Command::new(""));
    let settings = Settings {
        dram_bytes: options.limits.dram_bytes,
        flash_bytes: options.limits.flash.bytes(),
        steer: options.steer.clone(),
        is_steered,
        swap: reservation.swap().map(Path::to_owned),
        room: options.room.clone(),
        tell: options.tell,
    };
    // Before there is anything, so that all counts are from the program's start on.
    let mut supervision = Supervision::begin(Target::OwnGroup(group.clone()), settings);
    let (program, _) = Program::start(command, stop, false).map_err(CaptureError::Program)?;
    let watch = PidFd::open(program.pid()).map_err(CaptureError::Program)?;
    // A program that cannot be controlled while it runs is run all the same.
    let pool = options.steer.pool.as_ref().map(MemoryPool::bounds);
    if let Ok(control) = Control::listen(&reservation.socket(), Some(group.clone()), pool) {
        supervision.answer(control);
    }
    // From here on nothing but its own end ends the program.
    while !watch.wait(supervision.next_due().saturating_duration_since(Instant::now())) {
        supervision.step();
    }
    let real = supervision.lasted();
    let status = program.wait().map_err(CaptureError::Wait)?;
    Ok(supervision.end(real, Some(program.usage().unwrap_or_default()), Cause::Program(status)))
}

/// A command as a list of runs names it.
fn shown(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ").chars().filter(|it| !it.is_control()).take(COMMAND_CHARS).collect()
}

/// Takes everything away, or has a keeper do it after the last process.
fn leave(reservation: Reservation, keeper: &[OsString]) -> Vec<Note> {
    let count = reservation.group().processes().map_or(0, |all| all.len());
    if count > 0 {
        return match start_apart(keeper, reservation.id().as_ref()) {
            Ok(_) => vec![Note::ProcessesLeft { count }],
            Err(error) => vec![
                Note::ProcessesLeft { count },
                Note::NotTakenAway(format!("no process could be started that waits for them: {error}")),
            ],
        };
    }
    Note::of_left(reservation.end()).into_iter().collect()
}
