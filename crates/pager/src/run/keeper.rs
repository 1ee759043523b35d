//! The keeper: stays behind a run whose program has ended and of which processes are left, until the last of them has ended.

use std::path::Path;
use std::time::{Duration, Instant};

use super::ended::Cause;
use super::error::RunError;
use super::note::Note;
use super::room::WaitOptions;
use super::steer_options::SteerOptions;
use super::supervision::{Settings, Supervision};
use super::target::Target;
use crate::control::Control;
use crate::machine::{Reservation, limits_of};

/// How soon the end of the last process is noticed.
const PAUSE: Duration = Duration::from_millis(500);

/// Waits until the group of a run has no process, and takes everything away. Meanwhile it answers, and takes changes, as the run did;
/// nothing is steered unless that is asked for.
///
/// # Errors
/// If there is no such run, or something is left that should not be.
pub fn keep(id: &str, steer: SteerOptions) -> Result<(), RunError> {
    let reservation = Reservation::adopt(id)?;
    let group = reservation.group().clone();
    let (dram_bytes, flash_bytes) = limits_of(&group)?;
    let settings = Settings {
        dram_bytes,
        flash_bytes,
        steer,
        is_steered: false,
        swap: reservation.swap().map(Path::to_owned),
        // Nobody is there who would hear it.
        room: WaitOptions::never(),
        tell: |_: &Note| {},
    };
    let mut supervision = Supervision::begin(Target::OwnGroup(group.clone()), settings);
    if let Ok(control) = Control::listen(&reservation.socket(), Some(group), None) {
        supervision.answer(control);
    }
    while !supervision.target().processes().is_empty() {
        let next = supervision.next_due().saturating_duration_since(Instant::now());
        std::thread::sleep(next.min(PAUSE));
        supervision.step();
    }
    let lasted = supervision.lasted();
    supervision.end(lasted, None, Cause::LastProcess);
    reservation.end()?;
    Ok(())
}
