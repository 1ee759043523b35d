//! Attaching to a program that runs: its group is limited, or its size is held by steering; until it ends or the user detaches.

use std::path::Path;
use std::time::{Duration, Instant};

use tiermem_place::capture::Stop;
use tiermem_sys::pidfd::PidFd;
use tiermem_sys::process_advice::ProcessAdvice;
use tiermem_sys::process_identity::ProcessIdentity;

use super::ended::Cause;
use super::error::RunError;
use super::note::Note;
use super::process_tree::ProcessTree;
use super::report::Report;
use super::room::WaitOptions;
use super::steer_options::SteerOptions;
use super::supervision::{Settings, Supervision};
use super::target::Target;
use crate::control::Control;
use crate::machine::{AttachError, Attachment, Limits, Subject};
use crate::steer::{SteerError, can_steer};

/// How soon the end of the last process, or a wish to end, is noticed.
const PAUSE: Duration = Duration::from_millis(50);
/// A group may be without a process for a moment, where one starts the next.
const EMPTY_FOR: Duration = Duration::from_millis(500);

/// Options of an attachment.
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// What is attached to.
    pub subject: Subject,
    /// The limits; without a group, of DRAM alone.
    pub limits: Limits,
    /// What steers it. That the kernel chooses who leaves takes a group.
    pub steer: SteerOptions,
    /// Whether it is an error that the program cannot be steered.
    pub must_steer: bool,
    /// How it may wait where DRAM and flash are full; without a group it has no limit to wait at.
    pub room: WaitOptions,
    /// Is told at once what the user has to know while it goes on.
    pub tell: fn(&Note),
}

/// Attaches to a program until its last process ends or `stop` is asked for. `attached` is told the name once the limit holds.
///
/// # Errors
/// If it cannot be attached to, or the limit cannot be had. Then everything is as it was.
pub fn attach(
    options: &AttachOptions,
    stop: &Stop,
    attached: impl FnOnce(&str),
) -> Result<(Report, Vec<Note>), RunError> {
    let attachment = Attachment::make(&options.subject, &options.limits)?;
    match attach_there(options, &attachment, stop, attached) {
        Ok((report, mut notes)) => {
            let is_logged = options.steer.log.is_some();
            notes.extend(report.steered.iter().flat_map(|it| Note::of_steering(it, is_logged)));
            notes.extend(Note::of_left(attachment.end()));
            Ok((report, notes))
        }
        Err(error) => {
            // What is left all the same, the next pager command takes away.
            let _ = attachment.end();
            Err(error)
        }
    }
}

fn attach_there(
    options: &AttachOptions,
    attachment: &Attachment,
    stop: &Stop,
    attached: impl FnOnce(&str),
) -> Result<(Report, Vec<Note>), RunError> {
    let (is_steered, mut notes) = steered(options)?;
    let target = match (&options.subject, attachment.group()) {
        (_, Some(group)) => Target::Group(group),
        (Subject::Process(pid), _) => {
            let pid = *pid;
            Target::Processes(ProcessTree::of(ProcessIdentity::of(pid).ok_or(AttachError::Gone { pid })?))
        }
        (Subject::Group(path), None) => return Err(AttachError::Empty { path: path.clone() }.into()),
    };
    let settings = Settings {
        dram_bytes: options.limits.dram_bytes,
        flash_bytes: options.limits.flash.bytes(),
        steer: options.steer.clone(),
        is_steered,
        swap: attachment.swap().map(Path::to_owned),
        room: options.room.clone(),
        tell: options.tell,
    };
    let group = target.group().cloned();
    // Before the limit is set: what leaves for it counts.
    let mut supervision = Supervision::begin(target, settings);
    attachment.limit(&|| stop.is_asked())?;
    match Control::listen(&attachment.socket(), group, None) {
        Ok(control) => supervision.answer(control),
        Err(error) => notes.push(Note::NoControl(error.to_string())),
    }
    attached(attachment.id());
    let mut empty_since = None;
    let cause = loop {
        if stop.is_asked() {
            break Cause::Detached;
        }
        let is_empty = supervision.target().processes().is_empty();
        match is_empty {
            false => empty_since = None,
            true if empty_since.get_or_insert_with(Instant::now).elapsed() >= EMPTY_FOR => {
                break Cause::LastProcess;
            }
            true => {}
        }
        if let (Subject::Process(pid), Some(reason), false) =
            (&options.subject, supervision.steering_ended(), is_empty)
        {
            let (pid, reason) = (*pid, reason.to_owned());
            return Err(AttachError::NotHeld { pid, reason }.into());
        }
        let next = supervision.next_due().saturating_duration_since(Instant::now());
        std::thread::sleep(next.min(PAUSE));
        supervision.step();
    };
    let real = supervision.lasted();
    Ok((supervision.end(real, None, cause), notes))
}

/// Whether it is steered. Without a group nothing else holds its size.
fn steered(options: &AttachOptions) -> Result<(bool, Vec<Note>), RunError> {
    if let Subject::Process(pid) = options.subject {
        let process = PidFd::open(pid).map_err(|_| AttachError::Gone { pid })?;
        process.may_advise(ProcessAdvice::PageOut).map_err(SteerError::Advice)?;
        can_steer()?;
        return Ok((true, Vec::new()));
    }
    if options.steer.is_idle() {
        return Ok((false, Vec::new()));
    }
    match can_steer() {
        Ok(()) => Ok((true, Vec::new())),
        Err(error) if options.must_steer => Err(error.into()),
        Err(error) => Ok((false, vec![Note::NotSteered(error.to_string())])),
    }
}
